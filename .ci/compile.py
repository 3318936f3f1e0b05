"""Compiles all modules and loops, on all cores, so that no two workers of the tests compile the same."""

import compileall
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[1] / "src"


def compile_module(path: Path) -> None:
    """Import a module of compiled loops, which caches them beside it."""
    name = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    subprocess.run([sys.executable, "-c", f"import {name}"], check=True)


compileall.compile_dir(SOURCES, quiet=1, workers=os.cpu_count() or 1)
modules = sorted(SOURCES.rglob("_compiled*.py"))
with ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(compile_module, modules))
