"""SUMO's own converter of networks, which comes with the extra ``sumo``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from superarm.errors import InputError, MissingExtraError, require_extra

_ERROR_LINES = 10


def _netconvert() -> Path:
    home = Path(require_extra("sumo", "sumo").SUMO_HOME)
    program = home / "bin" / ("netconvert.exe" if os.name == "nt" else "netconvert")
    if not program.is_file():
        raise MissingExtraError(f"{program} is missing; run: pip install 'superarm[sumo]'")
    return program


def convert(path: Path, options: list[str], folder: str, timeout: float = 600.0) -> None:
    """Run netconvert in ``folder``, where names hold nothing that it could take for more.

    ``path`` is what an error is about.
    """
    program = _netconvert()
    try:
        done = subprocess.run(
            [str(program), *options, "--xml-validation=never"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            env={**os.environ, "SUMO_HOME": str(program.parents[1])},
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"{path}: netconvert had not finished after {timeout:g} s; raise timeout, or use a "
            "smaller map"
        ) from None
    if done.returncode:
        words = [line for line in done.stderr.splitlines() if not line.startswith("Warning")]
        said = "\n".join(words[-_ERROR_LINES:]) or "nothing"
        raise InputError(f"{path}: netconvert failed (exit code {done.returncode}) and said:\n{said}")
