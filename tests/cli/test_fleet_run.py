"""``superarm run navigation/fleet``: extended runs and the files they write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
SMALL = ("edges=200", "least_metres=300", "vehicles=3", "trips=4")


def words(out: str, rounds: int, *more: str) -> tuple[object, ...]:
    options = [word for setting in SMALL for word in ("--set", setting)]
    place = ("--rounds", rounds, "--seeds", 1, "--jobs", 1, "-q", "--out", out)
    return ("run", "navigation/fleet", *options, *place, *more)


def cells(out: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(out, "cells").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("seen", ["edges", "trips"])
def test_longer_run_resumes_a_shorter_one(cli: Command, seen: str) -> None:
    """With pending feedback, refits in between, and every kind of policy: the same bytes."""
    policies = (
        "cautious,greedy,thompson,bayes-ucb,informed,prior,fastest,cautious-alone"
    )
    more = ("--policies", policies, "--set", f"seen={seen}")
    assert cli(*words("whole", 14, *more)).code == 0
    assert cli(*words("parts", 6, *more)).code == 0
    longer = cli(*words("parts", 14, *more, "--resume"))
    assert longer.code == 0, longer.err
    assert cells("parts") == cells("whole")


def test_a_run_may_begin_with_a_log(cli: Command) -> None:
    """Trips of a log are not rounds; the run uses them from the first round."""
    first = cli(*words("first", 6, "--policies", "cautious"))
    assert first.code == 0, first.err
    state = "first/states/cautious.s0.seed00000.npz"
    second = cli(
        *words("second", 4, "--policies", "cautious", "--state", state, "--json")
    ).json()
    assert second["rows"]


@pytest.mark.slow
def test_its_report_and_calibration(cli: Command) -> None:
    assert cli(*words("run", 8, "--policies", "cautious,greedy,informed")).code == 0
    assert cli("report", "run").code == 0
    page = Path("run", "report.html").read_text(encoding="utf-8")
    assert "95 %" in page
    assert "informed" in page
    assert (
        "Visits in 8 rounds of seed 0. Grey roads were never used." in page
    )  # no one start or goal


def test_invalid_fleet_options_are_rejected(cli: Command) -> None:
    assert "choose 'edges' or 'trips'" in cli(
        *words("a", 4, "--set", "seen=turns")
    ).fails(2)
    assert "one trip" in cli(*words("b", 4, "--from", "r1", "--to", "r2")).fails(2)
