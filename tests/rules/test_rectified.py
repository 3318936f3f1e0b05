"""Rectified costs against their integral, and potentials that change no route's rank."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from superarm.core import Arms, Offer
from superarm.core.errors import InputError, ShapeError
from superarm.core.normal import rectified_mean
from superarm.kernels import SquaredExponential
from superarm.posteriors import FiniteGP
from superarm.rules import UCB, Fixed, Greedy, Rectified, Thompson

ARMS = Arms.numbered(np.linspace(0.0, 1.0, 6)[:, None])


def belief():
    posterior = FiniteGP(
        SquaredExponential(), ARMS.features, 0.04, np.linspace(-1.0, 2.0, 6)
    )
    posterior.observe([1, 4], [0.3, -0.2])
    return posterior.belief(Offer(step=1, arms=ARMS))


@pytest.mark.slow
@given(st.floats(-8.0, 8.0), st.floats(0.05, 3.0))
def test_rectified_mean_is_the_expectation_of_the_positive_part(
    mean: float, std: float
) -> None:
    expected = quad(
        lambda x: x * norm.pdf(x, mean, std),
        0.0,
        max(mean, 0.0) + 12.0 * std,
        points=[max(mean, 0.0)],
    )[0]
    value = rectified_mean(np.array([mean]), std)[0]
    assert value == pytest.approx(expected, rel=1e-7, abs=1e-14)


@pytest.mark.parametrize("z", [0.0, 1.0, 5.0, 12.0, 20.0, 35.0])
def test_both_tails_are_precise(z: float) -> None:
    # Mills' ratio: φ(z) − zΦ(−z) = φ(z)·(1/z² − 3/z⁴ + …) for large z.
    low = rectified_mean(np.array([-z]), 1.0)[0]
    if z >= 12.0:
        series = (
            math.exp(-0.5 * z * z)
            / math.sqrt(2 * math.pi)
            * (z**-2 - 3 * z**-4 + 15 * z**-6)
        )
        assert low == pytest.approx(series, rel=105 / z**6)
    high = rectified_mean(np.array([z]), 1.0)[0]
    assert high - z == pytest.approx(low, abs=1e-14)
    assert low >= 0.0


def test_without_spread_it_cuts_off_at_zero() -> None:
    costs = np.array([-2.0, 0.0, 3.0])
    assert rectified_mean(costs, 0.0).tolist() == [0.0, 0.0, 3.0]
    mixed = rectified_mean(costs, np.array([0.0, 1.0, 0.0]))
    assert mixed.tolist() == [0.0, pytest.approx(1 / math.sqrt(2 * math.pi)), 3.0]


@pytest.mark.parametrize("spread", ["noise", "posterior", "none"])
def test_the_rule_is_algorithm_2(spread: str) -> None:
    seen = belief().negated()  # costs
    inner = UCB(schedule=Fixed(value=1.5))
    rule = Rectified(rule=inner, spread=spread)  # type: ignore[arg-type]
    optimistic = -seen.mean - 1.5 * seen.std
    s = {"noise": 0.2, "posterior": seen.std, "none": 0.0}[spread]
    got = rule.desirability(seen, 3, np.random.default_rng(0))
    np.testing.assert_allclose(-got, rectified_mean(optimistic, s), rtol=0, atol=1e-14)
    assert (got <= 0.0).all()
    assert rule.deterministic
    assert not Rectified(rule=Thompson()).deterministic


def test_a_reduction_is_taken_off_first() -> None:
    seen = belief().negated()
    reduction = np.linspace(-1.0, 1.0, 6)
    got = Rectified(rule=Greedy(), spread="none", reduction=reduction).desirability(
        seen, 1, np.random.default_rng(0)
    )
    np.testing.assert_allclose(
        -got, np.maximum(-seen.mean - reduction, 0.0), atol=1e-15
    )
    with pytest.raises(ShapeError, match="reduction has 2 entries for 6 arms"):
        Rectified(rule=Greedy(), reduction=[0.0, 1.0]).desirability(
            seen, 1, np.random.default_rng(0)
        )


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="spread is 'both'"):
        Rectified(rule=Greedy(), spread="both")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be a rule"):
        Rectified(rule="greedy")  # type: ignore[arg-type]
