"""How often runs with a right model are called wrong, and how often wrong ones are noticed.

Simulated by ``bench.judging``; its README has the numbers of longer simulations.
"""

from __future__ import annotations

from typing import Any

import pytest
from bench import judging
from scipy import stats

# Losses beyond the larger total, in one seed of ten: no rule excludes them with so few seeds.
BEYOND = [
    case
    for case in judging.NULL
    if "90 %" in case.name or "30 % better, 10" in case.name
]


def alarms(runs: int, **error: float) -> int:
    size: dict[str, Any] = {"rounds": 20, "seeds": 3, "error": judging.Error(**error)}
    return round(runs * judging.alarms(judging.scattered, runs, 0, **size))


def test_right_models_rarely_raise_alarms_and_wrong_ones_do() -> None:
    """At most 5 % are: so few runs have more than four alarms with a probability of less than 1e-4."""
    runs = 8
    most = int(stats.binom.isf(1e-4, runs, 0.05))
    assert most == 4
    assert alarms(runs) <= most
    assert alarms(2, latent=3.0, noise=3.0) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [judging.scattered, judging.routes], ids=["scattered", "routes"]
)
@pytest.mark.parametrize(("rounds", "seeds"), [(60, 5), (20, 3)])
def test_false_alarms_are_as_rare_as_promised(
    make: Any, rounds: int, seeds: int
) -> None:
    runs = 60
    size: dict[str, Any] = {"rounds": rounds, "seeds": seeds, "error": judging.Error()}
    assert runs * judging.alarms(make, runs, 1, **size) <= stats.binom.isf(
        1e-3, runs, 0.05
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [case for case in judging.NULL if case not in BEYOND],
    ids=lambda case: case.name,
)
def test_false_claims_rarely_hold_by_chance(case: judging.Case) -> None:
    holds, fails = judging.shares(case, 1000, 1)
    if "1e-12" in case.name:
        assert (holds, fails) == (0.0, 1.0)  # a tie
    else:
        assert 1000 * (holds + fails) <= stats.binom.isf(1e-3, 1000, 0.07)


@pytest.mark.slow
def test_a_clear_difference_is_decided() -> None:
    """Half as much with five seeds, a fifth less with 25."""
    for case in judging.REAL:
        if case.name in (
            "80 % better, 5 seeds",
            "50 % better, 10 seeds",
            "20 % better, 25 seeds",
        ):
            assert judging.shares(case, 300, 1)[0] > 0.9
        if case.name.endswith(" 3 seeds"):
            assert judging.shares(case, 50, 1) == (0.0, 0.0)
