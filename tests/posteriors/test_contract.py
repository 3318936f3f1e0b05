"""What posteriors share beyond the published contract: states, stale beliefs, pending arms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sample_posteriors import posterior_makers

from superarm.core import Arms, Offer, State
from superarm.core.errors import StateError
from superarm.kernels import Matern, Temporal
from superarm.testing import restored

FEATURES = np.random.default_rng(0).random((6, 2))
KERNEL = Matern(nu=1.5, lengthscale=0.4)
FADING = Matern(nu=1.5, lengthscale=0.4, columns=(0, 1)) * Temporal(
    epsilon=0.1, column=2
)
MAKERS = posterior_makers(FEATURES, 0.1, lengthscale=0.4, inducing=4, block=3)
# It warns that it is approximate; ``test_long_histories`` is about it.
del MAKERS["streaming, inducing"]
ARMS = {
    "RoadGP": np.column_stack(
        [np.arange(6), np.ones((6, 6)), np.zeros(6), np.arange(6) % 2]
    ),
    "Separate": np.column_stack([FEATURES, np.arange(6) % 2]),
}


def offer_for(posterior: Any) -> Offer:
    return Offer(
        step=1, arms=Arms.numbered(ARMS.get(type(posterior).__name__, FEATURES))
    )


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


everyone = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@everyone
def test_another_kind_or_schema_is_refused(make: Any) -> None:
    posterior = make()
    state: State = restored(posterior.state())
    for wrong in (replace(state, schema=99), replace(state, kind="something")):
        with pytest.raises(StateError, match=f"{type(posterior).__name__} reads"):
            type(posterior).from_state(wrong)


@pytest.mark.thorough
@everyone
def test_state_is_independent_of_later_updates(make: Any) -> None:
    posterior = make()
    keys = posterior.keys(offer_for(posterior))
    posterior.observe(keys[:2], [1.0, 2.0], rng=rng())
    state = posterior.state()
    mean = posterior.predict(keys).mean
    for step in range(400):  # past every refresh, fold and change of form
        posterior.observe(keys[[step % 6]], [float(step)], rng=rng())
    reloaded = type(posterior).from_state(state)
    np.testing.assert_allclose(reloaded.predict(keys).mean, mean, atol=1e-10)


@everyone
def test_computed_belief_stays_readable(make: Any) -> None:
    """Mean and std are values; what would have to be computed from the posterior is refused."""
    posterior = make()
    offer = offer_for(posterior)
    posterior.observe(posterior.keys(offer)[:2], [1.0, 2.0], rng=rng())
    belief = posterior.belief(offer)
    mean, std, cov = belief.mean.copy(), belief.std.copy(), belief.cov.copy()
    posterior.observe(posterior.keys(offer)[2:3], [5.0], rng=rng())
    np.testing.assert_array_equal(belief.mean, mean)
    np.testing.assert_array_equal(belief.std, std)
    np.testing.assert_array_equal(belief.cov, cov)


@everyone
def test_conditioning_on_no_arms_returns_the_belief(make: Any) -> None:
    posterior = make()
    belief = posterior.belief(offer_for(posterior))
    none = belief.condition(np.empty(0, dtype=np.intp))
    np.testing.assert_allclose(none.cov, belief.cov, atol=1e-15)


@everyone
def test_pending_arms_in_one_step_or_in_two(make: Any) -> None:
    posterior = make()
    offer = offer_for(posterior)
    posterior.observe(posterior.keys(offer)[:1], [0.5], rng=rng())
    belief = posterior.belief(offer).negated()
    both = belief.condition(np.array([1, 4]))
    steps = belief.condition(np.array([1])).condition(np.array([4]))
    np.testing.assert_allclose(both.cov, steps.cov, atol=1e-12)
    assert (
        both.incumbent == steps.incumbent == -posterior.incumbent
    )  # one arm: best and worst
