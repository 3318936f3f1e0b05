"""One process per run directory: runs are never mixed and no files are lost."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import pytest

from superarm.core import files
from superarm.core.errors import ConflictError
from superarm.lab.experiments import Plan, execute, load_experiment
from superarm.lab.simulation import cell_name
from superarm.lab.simulation.files import LOCK, run_lock


def plan(out: Path, rounds: int = 5) -> Plan:
    experiment = load_experiment("kernelized/rkhs-se").with_policies(
        ["random", "gp-greedy"]
    )
    return Plan.make(
        experiment, out=out, rounds=rounds, seeds=2, overrides={"arms": 16}
    )


def test_second_process_is_locked_out(tmp_path: Path) -> None:
    out = tmp_path / "run"
    execute(plan(out))
    with (
        run_lock(out),
        pytest.raises(ConflictError, match="another process is running"),
    ):
        execute(plan(out), resume=True)
    assert execute(plan(out), resume=True)["seeds"] == 2
    assert not list(out.glob(".*"))


def test_lock_on_a_removed_file_is_invalid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking the file its holder ends, and another takes the directory."""
    first, third = ExitStack(), ExitStack()
    first.enter_context(run_lock(tmp_path))
    lock = files._lock
    opened = 0

    def late(file: BinaryIO, wait: bool) -> None:
        nonlocal opened
        opened += 1
        if opened == 1:
            first.close()
            monkeypatch.setattr(files, "_lock", lock)
            third.enter_context(run_lock(tmp_path))
        lock(file, wait)

    monkeypatch.setattr(files, "_lock", late)
    with third:
        with pytest.raises(BlockingIOError, match="another process holds the lock"):
            files.open_locked(tmp_path / LOCK, wait=False)
        assert opened == 1
    with run_lock(tmp_path):
        assert (tmp_path / LOCK).is_file()
    assert not list(tmp_path.iterdir())


HOLDER = """
import os, sys
from pathlib import Path
from superarm.core.errors import ConflictError
from superarm.core import files
from superarm.lab.simulation.files import LOCK, run_lock
out, tries, held, refused = Path(sys.argv[1]), int(sys.argv[2]), 0, 0
for _ in range(tries):
    try:
        with run_lock(out):
            os.close(os.open(out / "alone", os.O_CREAT | os.O_EXCL))  # fails if another is here
            held += 1
            os.remove(out / "alone")
    except ConflictError:
        refused += 1
assert held + refused == tries
print(held)
"""


@pytest.mark.slow
def test_processes_never_hold_a_directory_together(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path), "1000"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    ends = [
        (process.communicate(timeout=300)[0], process.returncode)
        for process in processes
    ]
    assert [code for _, code in ends] == [0, 0, 0]
    assert sum(int(out) for out, _ in ends) > 0
    assert not list(tmp_path.iterdir())


def test_lost_timing_is_recomputed(tmp_path: Path) -> None:
    out = tmp_path / "run"
    execute(plan(out))
    cell = f"{cell_name('random', 0, 1)}.npz"
    before = (out / "cells" / cell).read_bytes()
    (out / "timings" / cell).unlink()
    execute(plan(out), resume=True)
    assert (out / "timings" / cell).is_file()
    assert (out / "cells" / cell).read_bytes() == before


def test_no_two_policies_share_a_cell() -> None:
    lookalike = f"a-{crc32(b'A'):08x}"
    assert cell_name("A", 0, 0) != cell_name(lookalike, 0, 0)
    assert cell_name("a", 0, 0) != cell_name("A", 0, 0)
