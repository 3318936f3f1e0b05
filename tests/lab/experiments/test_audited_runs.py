"""Runs on roads store audits, states and maps; resuming restores all of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from superarm.core.errors import FileError
from superarm.core.states import load_state
from superarm.lab.experiments import Plan, execute, load_experiment
from superarm.lab.simulation import Run

POLICIES = ["gp-ts", "bi-ts", "shortest"]


def plan(out: Path, jobs_of: int = 2) -> Plan:
    experiment = load_experiment("navigation/city").with_policies(POLICIES)
    experiment = replace(experiment, paper="A paper (2025)")
    return Plan.make(
        experiment, out=out, rounds=4, seeds=jobs_of, overrides={"edges": 250}
    )


def files(out: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(out)): path.read_bytes()
        for folder in ("cells", "audits", "states", "maps")
        for path in (out / folder).iterdir()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    execute(plan(out))
    return out


def test_learners_are_audited_and_others_are_not(finished: Path) -> None:
    run = Run.load(finished)
    assert run.spec["audited"] == ["gp-ts", "bi-ts"]
    assert run.audit("shortest", 0, 0) is None
    assert run.audit("gp-ts", 0, 1) is not None
    assert (
        load_state(finished / "states" / "gp-ts.s0.seed00001.npz").kind
        == "index-policy"
    )
    assert run.road_map() is not None
    rows = {(row["policy"], row["metric"]) for row in run.summary["rows"]}
    metrics = {"cumulative_regret", "reduced_regret", "true_energy", "distinct_edges"}
    assert rows == {(policy, metric) for policy in POLICIES for metric in metrics}
    assert (
        run.spec["metrics"][0]["true_energy"] == run.metric("true_energy", 0)._asdict()
    )
    assert run.metric("true_energy", 0).text == "energy per trip (Wh)"
    lemma = [
        claim
        for claim in run.summary["claims"]
        if claim["text"].startswith("Lemma A.12")
    ]
    assert [claim["holds"] for claim in lemma] == [True]
    assert "4 cells" in lemma[0]["evidence"]


@pytest.mark.thorough
@pytest.mark.parametrize("folder", ["cells", "timings", "audits", "states"])
def test_lost_files_are_recomputed(finished: Path, folder: str, tmp_path: Path) -> None:
    out = tmp_path / "again"
    execute(plan(out))
    (out / folder / "gp-ts.s0.seed00001.npz").unlink()
    execute(plan(out), resume=True)
    assert files(out) == files(finished)


def test_states_may_be_left_out_of_finished_cells(
    finished: Path, tmp_path: Path
) -> None:
    """A cell that the run lists as stateless is complete; any other needs its state."""
    out = tmp_path / "kept"
    shutil.copytree(finished, out)
    kept, lost = "gp-ts.s0.seed00001", "bi-ts.s0.seed00000"
    for name in (kept, lost):
        (out / "states" / f"{name}.npz").unlink()
    (out / "stateless.json").write_text(json.dumps([kept]), encoding="utf-8")
    (task,) = plan(out).tasks()
    assert (task.seed, task.policies) == (0, ("bi-ts",))
    (out / "stateless.json").write_text('{"cells": 1}', encoding="utf-8")
    with pytest.raises(FileError, match=r"stateless\.json must contain a list"):
        plan(out).tasks()


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(finished: Path, tmp_path: Path) -> None:
    execute(plan(tmp_path / "two"), jobs=2)
    assert files(tmp_path / "two") == files(finished)
