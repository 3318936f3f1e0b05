"""Derived numbers may differ in their last digits between processors; choices may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from superarm.core.errors import ConflictError
from superarm.lab.experiments import Experiment, Plan, execute
from superarm.lab.experiments.agreement import agree

MINE = {
    "id": "mine",
    "rounds": 3,
    "seeds": 1,
    "problem": {"name": "rkhs-function", "arms": 9, "kernel": "matern"},
    "policies": {"random": {}},
}


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ([0.5], [0.5 * (1.0 + 9e-6)], True),
        ([0.5], [0.5 * (1.0 + 2e-5)], False),
        ([0.5, None], [0.5, None], True),
        ([0.5], [0.5, 0.5], False),
        ([0.0], [1e-300], False),
        (
            {"a": "length 0.123"},
            {"a": "length 0.124"},
            True,
        ),  # rounded to different sides
        ({"a": "length 0.0999"}, {"a": "length 0.1"}, True),
        ({"a": "length 0.999"}, {"a": "length 1"}, True),
        ({"a": "length 1e-05"}, {"a": "length 1.01e-05"}, True),
        ({"a": "length 0.123"}, {"a": "length 0.125"}, False),
        ({"a": "length 0.12"}, {"a": "length 0.13"}, True),
        ({"a": "length 0.123 m"}, {"a": "length 0.124 km"}, False),
        ({"a": "length 0.123"}, {"b": "length 0.123"}, False),
        ({"a": "72 days"}, {"a": "73 days"}, False),
        ({"a": "from r1 to r2"}, {"a": "from r1 to r3"}, False),
        ({"a": "one"}, {"a": 1}, False),
        ({"a": "one 1.5"}, {"a": "one"}, False),
    ],
)
def test_what_counts_as_rounding(before: Any, now: Any, same: bool) -> None:
    assert agree(before, now) is same
    assert agree(now, before) is same


def planned(out: Path, **changes: Any) -> Plan:
    return Plan.make(Experiment.from_mapping({**MINE, **changes}, "here"), out=out)


def as_from_another_processor(directory: Path, factor: float) -> None:
    """``run.json`` as a processor would have written it whose sums differ by this factor."""
    path = directory / "run.json"
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["noise_variance"] = [factor * variance for variance in spec["noise_variance"]]
    path.write_text(json.dumps(spec), encoding="utf-8")


def test_run_from_another_processor_resumes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    execute(planned(out))
    next((out / "cells").iterdir()).unlink()
    as_from_another_processor(out, 1.0 + 2e-8)  # what was measured between BLAS kernels
    execute(planned(out), resume=True)
    as_from_another_processor(out, 1.001)
    with pytest.raises(ConflictError, match="noise_variance differ"):
        execute(planned(out), resume=True)


def test_choices_are_compared_exactly(tmp_path: Path) -> None:
    out = tmp_path / "run"
    problem = {**MINE["problem"], "lengthscale": 0.2}  # type: ignore[dict-item]
    execute(planned(out, problem=problem))
    problem["lengthscale"] = 0.2 * (1.0 + 1e-12)
    with pytest.raises(ConflictError, match="parameters"):
        execute(planned(out, problem=problem), resume=True)
