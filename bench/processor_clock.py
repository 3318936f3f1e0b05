"""Runs a module with the processor's clock in place of the one on the wall.

``python bench/processor_clock.py bench SUITE --json``, in any checkout: what its suites call wall time is
then processor time, of child processes too. Other programs on the machine hardly count.
"""

from __future__ import annotations

import os
import resource
import runpy
import sys
import time


def processor_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    # Suites import it later.
    time.perf_counter = processor_seconds
    del sys.argv[0]
    sys.path[0] = os.getcwd()  # as ``python -m`` does
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
