"""Cells kept without their states, restored and completed (``bench.kept``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench import kept

from superarm.core.errors import ConflictError
from superarm.lab.experiments import Plan, execute
from superarm.lab.experiments.loading import load_experiment

RUN = "navigation/city"


def plan(out: Path) -> Plan:
    return Plan.make(load_experiment(RUN), out=out, rounds=3, seeds=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cells of one policy of a finished run."""
    directory = tmp_path_factory.mktemp("kept")
    execute(plan(directory / "run"))
    count = kept.save(directory / "run", directory / "cells", ("gp-ts",), "a1b2c3d")
    assert count == 1
    return directory / "cells"


@pytest.mark.slow
def test_a_restored_run_is_completed_not_repeated(folder: Path, tmp_path: Path) -> None:
    assert not (folder / "states").exists()
    out = tmp_path / "restored"
    assert kept.restore(folder, out) == 1
    cell = out / "cells" / "gp-ts.s0.seed00000.npz"
    written = cell.stat().st_mtime_ns
    (task,) = plan(out).tasks()
    assert "gp-ts" not in task.policies
    assert len(task.policies) == len(plan(out).policies) - 1
    execute(plan(out), resume=True)
    assert plan(out).tasks() == []
    assert cell.stat().st_mtime_ns == written


@pytest.mark.slow
def test_another_experiment_is_refused(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "restored"
    kept.restore(folder, out)
    other = Plan.make(
        load_experiment(RUN), out=out, rounds=3, seeds=1, overrides={"edges": 300}
    )
    with pytest.raises(ConflictError, match="different run"):
        execute(other, resume=True)


@pytest.mark.slow
def test_other_decisions_are_noticed(folder: Path) -> None:
    plan_of_kept = kept.plan_of(folder)
    (cell,) = kept.finished(plan_of_kept)
    assert kept.first_difference(plan_of_kept, cell, 3) is None
    # The cell of another seed in its place.
    content = (folder / "cells" / f"{cell.name}.npz").read_bytes()
    other = cell._replace(seed=1)
    wrong = folder / "cells" / f"{other.name}.npz"
    wrong.write_bytes(content)
    try:
        assert kept.first_difference(plan_of_kept, other, 3) is not None
    finally:
        wrong.unlink()


FOLDERS = sorted((Path(kept.__file__).parent / "runs").glob("*/run.json"))


@pytest.mark.parametrize("path", FOLDERS, ids=lambda path: path.parent.name)
def test_kept_cells_are_of_the_experiment_as_it_is(path: Path) -> None:
    """If this fails, the experiment has changed: delete the folder, it can be resumed no more."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    experiment = load_experiment(spec["experiment"])
    plain = experiment.as_json()
    for name, parameters in spec["parameters"].items():
        assert parameters == plain[name]
    assert spec["rounds"] == experiment.rounds
    assert spec["policies"] == list(experiment.policies)
    for folder in ("cells", "timings", "audits"):
        names = {file.name for file in (path.parent / folder).iterdir()}
        assert names == {file.name for file in (path.parent / "cells").iterdir()}
    size = sum(file.stat().st_size for file in path.parent.rglob("*.npz"))
    assert size < 3_000_000
