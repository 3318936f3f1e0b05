"""The variational posterior besides its moments: states, random draws, errors, settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from edge_data import batch_rng, edge_data, network_kernel

from superarm.core import Arms, Feedback, Floats, Offer, registry
from superarm.core.errors import (
    InputError,
    NotFiniteError,
    NotPositiveDefiniteError,
    ShapeError,
    StateError,
)
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import Matern
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import SparseVariational
from superarm.rules import UCB, Fixed


def sum_up(gp: SparseVariational) -> bytes:
    return state_to_bytes(gp.state())


def taught(seed: int = 0, rounds: int = 6, **options: Any) -> SparseVariational:
    settings: dict[str, Any] = {
        "inducing": 7,
        "batch": 12,
        "steps": 2,
        "discrete_columns": (0,),
    }
    gp, batches = (
        SparseVariational(network_kernel(), 0.1, 0.5, **(settings | options)),
        batch_rng(seed),
    )
    rows, rewards, noise = edge_data(10 * rounds, seed=1)
    for part in np.split(np.arange(10 * rounds), rounds):
        gp.observe(rows[part], rewards[part], noise[part], rng=batches)
    return gp


def test_the_same_seed_is_the_same_posterior_and_another_is_not() -> None:
    assert sum_up(taught()) == sum_up(taught())
    assert sum_up(taught()) != sum_up(taught(seed=1))
    assert sum_up(taught(batch=1000)) != sum_up(taught())


def test_chance_must_be_handed_in() -> None:
    gp = taught()
    before = sum_up(gp)
    assert gp.draws
    for missing in (None, 0):
        with pytest.raises(InputError, match="draws while it learns; pass rng="):
            gp.observe(*edge_data(3), rng=missing)  # type: ignore[arg-type]
    assert sum_up(gp) == before


def test_looking_between_observations_makes_no_difference() -> None:
    rows, rewards, noise = edge_data(60, seed=1)
    gp = SparseVariational(
        network_kernel(), 0.1, 0.5, inducing=7, batch=12, steps=2, discrete_columns=(0,)
    )
    batches = batch_rng()
    for part in np.split(np.arange(60), 6):
        gp.sample(rows, np.random.default_rng(0))
        gp.predict(rows, return_cov=True)
        gp.observe(rows[part], rewards[part], noise[part], rng=batches)
    assert sum_up(gp) == sum_up(taught())


def test_restored_posterior_continues_bit_for_bit() -> None:
    gp, queries = taught(), edge_data(5)[0]
    restored = SparseVariational.from_state(
        state_from_bytes(state_to_bytes(gp.state()))
    )
    for _ in range(3):
        assert sum_up(restored) == sum_up(gp)
        np.testing.assert_array_equal(
            restored.predict(queries).mean, gp.predict(queries).mean
        )
        np.testing.assert_array_equal(
            restored.predict(queries).std, gp.predict(queries).std
        )
        for posterior in (gp, restored):
            posterior.observe(queries, np.arange(5.0), rng=batch_rng())
    assert sum_up(gp.restored(gp.state())) == sum_up(gp)
    empty = SparseVariational(Matern(), 0.1)
    assert sum_up(empty.restored(empty.state())) == sum_up(empty)


def test_mean_function_must_be_passed_on_restore() -> None:
    gp = SparseVariational(Matern(), 0.1, lambda rows: rows[:, 0])
    gp.observe([[0.1]], [0.3], rng=batch_rng())
    with pytest.raises(StateError, match="pass it"):
        SparseVariational.from_state(gp.state())
    assert sum_up(gp.restored(gp.state())) == sum_up(gp)


def test_damaged_states_are_refused() -> None:
    state = taught().state()
    arrays = dict(state.arrays)
    for name in ("points", "inducing_arms", "precision", "adam_first"):
        fewer = replace(state, arrays=arrays | {name: arrays[name][:-1]})
        with pytest.raises((StateError, ShapeError)):
            SparseVariational.from_state(fewer)
    other = replace(state, scalars={**state.scalars, "count": 3})
    with pytest.raises(StateError, match="count differs from the observations"):
        SparseVariational.from_state(other)


def test_noise_of_each_observation_counts() -> None:
    kernel = Matern()
    gp = SparseVariational(kernel, 0.1, natural_rate=1.0, adam_rate=0.0)
    gp.observe([[0.0], [0.0]], [1.0, -1.0], [0.01, 1.0], rng=batch_rng())
    assert gp.predict([[0.0]]).mean[0] == pytest.approx(
        (100.0 - 1.0) / (100.0 + 1.0 + 1.0)
    )
    assert gp.predict([[0.0]]).std[0] ** 2 == pytest.approx(1.0 / 102.0)  # type: ignore[index]


class Broken(Matern):
    """Fails on rows beyond 5."""

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        K = super()._covariance(X, Y)
        if Y is None and len(X) > 2 and X.max() > 5.0:
            K[0, -1] = K[-1, 0] = 3.0
        return K


def test_error_has_no_side_effects() -> None:
    gp = SparseVariational(Broken(), 0.1)
    gp.observe([[0.0], [1.0], [2.0]], [0.1, 0.2, 0.3], rng=batch_rng())
    before = sum_up(gp)
    with pytest.raises(NotPositiveDefiniteError), pytest.warns(match="not numerically"):
        gp.observe([[4.0], [9.0]], [0.1, 0.2], rng=batch_rng())
    assert sum_up(gp) == before
    with pytest.raises(NotFiniteError):
        gp.observe([[4.0]], [np.nan], rng=batch_rng())
    with pytest.raises(ShapeError):
        gp.observe([[4.0, 1.0]], [0.0], rng=batch_rng())
    gp.observe([[4.0]], [0.1], rng=batch_rng())
    retried = SparseVariational(Broken(), 0.1)
    retried.observe([[0.0], [1.0], [2.0]], [0.1, 0.2, 0.3], rng=batch_rng())
    retried.observe([[4.0]], [0.1], rng=batch_rng())
    assert sum_up(gp) == sum_up(retried)


@pytest.mark.parametrize(
    "options",
    [
        {"inducing": 0},
        {"inducing": 2.5},
        {"batch": 0},
        {"steps": True},
        {"natural_rate": 1.5},
        {"natural_rate": 0.0},
        {"adam_rate": -0.1},
        {"discrete_columns": (-1,)},
        {"mean": np.inf},
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        SparseVariational(Matern(), 0.1, **options)


def test_ids_that_are_not_declared_are_explained() -> None:
    gp = SparseVariational(network_kernel(), 0.1)
    with pytest.raises(InputError, match="discrete_columns"):
        gp.observe(*edge_data(3)[:2], rng=batch_rng())
    with pytest.raises(InputError, match="discrete_columns"):
        SparseVariational(Matern(), 0.1, discrete_columns=(3,)).observe(
            [[0.0]], [1.0], rng=batch_rng()
        )


def test_variational_posterior_is_built_from_json_and_serves_a_policy() -> None:
    gp = registry.build(
        "posterior",
        {
            "name": "variational",
            "kernel": {"name": "matern"},
            "noise_variance": 0.01,
            "inducing": 5,
        },
    )
    policy = IndexPolicy(
        posterior=gp, rule=UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=2)
    )
    rng = np.random.default_rng(0)
    arms = Arms.numbered(np.linspace(0.0, 3.0, 8)[:, None])
    for step in range(1, 9):
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = arms.features[decision.positions, 0]
        feedback = Feedback(positions=decision.positions, rewards=rewards)
        policy.learn(offer, decision, feedback, rng)
    assert set(policy.decide(Offer(step=9, arms=arms), rng).positions.tolist()) == {
        6,
        7,
    }
