"""Names BLAS kernels of other processors that this one can run, two at most, for OPENBLAS_CORETYPE.

Each is tried: one that the processor cannot run dies, and only this process hears of it.
"""

import os
import re
import subprocess
import sys

# Fused sums; wide registers; neither; and of other families.
CANDIDATES = ("Haswell", "SkylakeX", "Sandybridge", "Prescott", "ARMV8", "NEOVERSEN1")
MULTIPLY = """
import numpy, scipy.linalg
matrix = numpy.eye(99)
scipy.linalg.blas.dgemm(1.0, matrix @ matrix, scipy.linalg.cholesky(matrix))
"""


def core(kernel: str) -> str | None:
    """What OpenBLAS calls the kernel that it chose, or none if it did not work."""
    env = {**os.environ, "OPENBLAS_CORETYPE": kernel, "OPENBLAS_VERBOSE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", MULTIPLY],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^Core: (\w+)", done.stdout + done.stderr, re.MULTILINE)
    return found[1] if found and done.returncode == 0 else None


seen, chosen = {core(""), None}, []
for candidate in CANDIDATES:
    if (name := core(candidate)) not in seen:
        seen.add(name)
        chosen.append(candidate)
if not chosen:
    print("no other BLAS can be chosen here", file=sys.stderr)
# The first and the last: the two that differ most.
print(*dict.fromkeys(chosen[:1] + chosen[-1:]))
