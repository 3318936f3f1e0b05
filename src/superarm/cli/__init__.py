"""The command line: a thin layer over the library, loaded piece by piece.

Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict. Progress goes to stderr; with ``--json``
stdout is one line with one object.
"""

from __future__ import annotations

import io
import os
import sys
import warnings


def main() -> None:
    """Entry point of the ``superarm`` command."""
    # Before numpy is loaded: one BLAS thread per process, so that results and timings do not
    # depend on the number of cores. Work is spread over seeds by processes instead.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    # A terminal that cannot encode a letter shows "?" instead of a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    from .commands import superarm
    from .common import say

    def show_warning(message: Warning | str, *_: object, **__: object) -> None:
        # Without file and line, which are of no use on the command line.
        say(f"superarm: {message}", err=True)

    warnings.showwarning = show_warning
    sys.exit(superarm(prog_name="superarm"))
