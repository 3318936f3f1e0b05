"""The command line: a thin skin over the library, loaded piece by piece.

Exit codes: 0 ok, 1 failure, 2 usage, 3 conflict. Progress goes to stderr; with ``--json``
stdout is one line holding one object.
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
    # A terminal that lacks a letter shows "?" in its place rather than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    from .commands import superarm
    from .common import say

    # Warnings are for the user of the command, who has no use for a file and a line of code.
    warnings.showwarning = lambda message, *_, **__: say(
        f"superarm: {message}", err=True
    )
    sys.exit(superarm(prog_name="superarm"))
