"""Two checkouts side by side: this one, and an earlier commit in a temporary worktree."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from superarm.core.data_files import search_path

ROOT = Path(__file__).resolve().parents[1]
_CLOCK = Path(__file__).with_name("processor_clock.py")


class Side(NamedTuple):
    """A checkout whose code runs in processes of its own."""

    root: Path

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a module of this side, with its package, by the clock of the processor.

        Args:
            arguments: The module and its arguments.
        """
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        # A worktree has no data beside it: both sides read those of this checkout.
        folders = [folder for folder in search_path() if folder.is_dir()]
        if folders:
            environment.setdefault("SUPERARM_DATA", str(folders[0]))
        return subprocess.run(
            [sys.executable, str(_CLOCK), *arguments],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


@contextmanager
def worktree(commit: str) -> Iterator[Side]:
    """A commit of this repository in a temporary folder.

    Args:
        commit: Anything that Git takes for one.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "checkout"
        git = ("git", "-C", str(ROOT), "worktree")
        added = subprocess.run(
            [*git, "add", "--detach", str(path), commit],
            capture_output=True,
            text=True,
            check=False,
        )
        if added.returncode:
            raise SystemExit(f"{commit} cannot be checked out: {added.stderr.strip()}")
        try:
            yield Side(path)
        finally:
            subprocess.run([*git, "remove", "--force", str(path)], check=True)
