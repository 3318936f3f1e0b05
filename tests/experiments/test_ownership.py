"""One run, one directory, one process: nothing is mixed, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from superarm.errors import ConflictError
from superarm.experiments import Plan, execute, load_experiment
from superarm.simulation import cell_name
from superarm.simulation.files import run_lock


def plan(out: Path, rounds: int = 5) -> Plan:
    experiment = load_experiment("kernelized/rkhs-se").with_policies(["random", "gp-greedy"])
    return Plan.make(experiment, out=out, rounds=rounds, seeds=2, overrides={"arms": 16})


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    out = tmp_path / "run"
    execute(plan(out))
    with run_lock(out), pytest.raises(ConflictError, match="another process is running"):
        execute(plan(out), resume=True)
    assert execute(plan(out), resume=True)["seeds"] == 2
    assert not list(out.glob(".*"))


def test_a_lost_timing_is_made_again(tmp_path: Path) -> None:
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
