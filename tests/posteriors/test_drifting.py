"""Rewards that drift, against eqs. 7 and 8 of bogunovic2016time with dense matrices."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Floats, Offer
from superarm.core.errors import ForgottenError, InputError, StateError, UnknownArmError
from superarm.core.states import state_to_bytes
from superarm.kernels import (
    Constant,
    Kernel,
    Matern,
    Periodic,
    SquaredExponential,
    Temporal,
)
from superarm.posteriors import DriftingGP, StreamingGP
from superarm.posteriors.drifting.form import TRUNCATION, Form
from superarm.posteriors.drifting.keys import as_single_reward, as_timed_keys

NOISE = 0.05
ARMS = np.random.default_rng(0).random((25, 2))
SMOOTH, ROUGH = (
    SquaredExponential(lengthscale=0.3),
    Matern(nu=2.5, lengthscale=0.3, variance=2.0),
)
KERNELS: dict[str, Kernel] = {"se": SMOOTH, "matern": ROUGH}
FORMS = ("auto", "folded", "visited", "kalman")
DRIFTS: dict[str, Kernel] = {
    "none": Temporal(epsilon=0.0),
    "slow": Temporal(epsilon=0.001),
    "fast": Temporal(epsilon=0.5),
    "matern-half": Matern(nu=0.5, lengthscale=30.0),
    "matern-three-halves": Matern(nu=1.5, lengthscale=30.0, variance=0.7),
    "rush-hours": Constant(variance=0.3)
    + Temporal(epsilon=0.01) * Periodic(period=24.0, lengthscale=1.5, variance=0.7),
}


def dense_posterior(
    kernel: Kernel,
    drift: Kernel,
    keys: Floats,
    rewards: Floats,
    queries: Floats,
    noise: Any = NOISE,
) -> Any:
    """Mean and covariance by eqs. 7 and 8, for any times and any kernel of time."""

    def covariance(a: Floats, b: Floats) -> Floats:
        space = kernel(ARMS[a[:, 0].astype(int)], ARMS[b[:, 0].astype(int)])
        return space * drift(a[:, 1:], b[:, 1:])

    K, k = covariance(keys, keys) + noise * np.eye(len(keys)), covariance(queries, keys)
    solved = np.linalg.solve(K, np.column_stack([rewards, k.T]))
    return k @ solved[:, 0], covariance(queries, queries) - k @ solved[:, 1:]


def observations(seed: int, count: int, last: int) -> tuple[Floats, Floats]:
    """Several at one time, none at others."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, last, count)) * 0.5
    return np.column_stack(
        [rng.integers(0, len(ARMS), count), times]
    ), rng.standard_normal(count)


def questions(after: float) -> Floats:
    rng = np.random.default_rng(2)
    return np.column_stack(
        [np.arange(len(ARMS)), after + rng.integers(0, 9, len(ARMS))]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("drift", DRIFTS.values(), ids=DRIFTS)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_textbook_formula(kernel: Kernel, drift: Kernel, form: Any) -> None:
    """Several samples per time, missing rounds, irregular times; one by one and many at once."""
    keys, rewards = observations(1, 300, 400)
    gp = DriftingGP(kernel, ARMS, NOISE, drift=drift, form=form)
    for key, reward in zip(keys[:150], rewards[:150], strict=True):
        gp.observe(key[None], [reward])
    gp.observe(keys[150:], rewards[150:])
    queries = questions(200.0)
    mean, cov = dense_posterior(kernel, drift, keys, rewards, queries)
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)
    np.testing.assert_allclose(
        gp.predict(queries).std, np.sqrt(np.diag(cov)), atol=1e-9
    )
    # One time for all, which is what a round asks about.
    now = np.column_stack([np.arange(len(ARMS)), np.full(len(ARMS), 203.0)])
    mean, cov = dense_posterior(kernel, drift, keys, rewards, now)
    predicted = gp.predict(now, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)
    size = len(drift.state_space().output)
    limit = (
        (2 * len(ARMS) * size + 64) + 64 if gp.form == "folded" else len(ARMS) * size
    )
    assert gp.rank <= limit
    assert gp.tolerance <= 1e-11
    if form != "auto":
        assert gp.form == form
    K = kernel(ARMS[keys[:, 0].astype(int)]) * drift(keys[:, 1:])
    information = 0.5 * np.linalg.slogdet(np.eye(300) + K / NOISE)[1]
    assert gp.information_gain == pytest.approx(information, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([*DRIFTS]),
    st.sampled_from(FORMS),
    st.integers(1, 12),
    st.booleans(),
)
def test_feedback_in_any_order_and_parts(
    seed: int, drift: str, form: Any, parts: int, restart: bool
) -> None:
    """Late feedback is learned at its own time: equal to learning everything in order."""
    keys, rewards = observations(seed, 40, 60)
    rng = np.random.default_rng(seed)
    order = rng.permutation(40)
    noise = rng.uniform(0.5, 2.0, 40) * NOISE
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=DRIFTS[drift], form=form)
    for number, part in enumerate(np.array_split(order, parts)):
        gp.observe(keys[part], rewards[part], noise[part])
        if restart and number == parts // 2:
            gp = DriftingGP.from_state(gp.state())
    queries = questions(31.0)
    mean, cov = dense_posterior(ROUGH, DRIFTS[drift], keys, rewards, queries, noise)
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)
    K = ROUGH(ARMS[keys[:, 0].astype(int)]) * DRIFTS[drift](keys[:, 1:])
    weight = 1.0 / np.sqrt(noise)
    information = 0.5 * np.linalg.slogdet(np.eye(40) + K * np.outer(weight, weight))[1]
    assert gp.information_gain == pytest.approx(information, rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_late_feedback_resumes_from_a_checkpoint(form: Any) -> None:
    """After hundreds of rounds, slightly late feedback is learned without replaying earlier rounds."""
    drift = Temporal(epsilon=0.02)
    rng = np.random.default_rng(5)
    keys = np.column_stack([rng.integers(0, 25, 400), np.arange(400.0)])
    rewards = rng.standard_normal(400)
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=drift, form=form)
    late = rng.choice(np.arange(100, 395), 20, replace=False)
    for place in range(400):
        if place not in late:
            gp.observe(keys[place : place + 1], rewards[place : place + 1])
    ages = [400 - checkpoint.steps for checkpoint in gp._history.checkpoints]
    assert len(ages) <= 10
    assert min(ages) <= 52  # the 20 that are missing, and 32
    steps: list[int] = []
    fold = gp._learner._fold

    def count_text(form: Any, since: Any, checkpoints: Any) -> Any:
        steps.append(len(since.noise))
        return fold(form, since, checkpoints)

    cast(Any, gp._learner)._fold = count_text
    for place in np.sort(late)[::-1]:
        gp.observe(keys[place : place + 1], rewards[place : place + 1])
    assert steps[0] <= 5 + 2 * 32 + 20
    mean, cov = dense_posterior(
        ROUGH, drift, keys, rewards, queries := questions(400.0)
    )
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("drift", DRIFTS.values(), ids=DRIFTS)
def test_queries_about_the_past(drift: Kernel, form: Any) -> None:
    """Any moments, before and after the last observation, together: by eqs. 7 and 8."""
    keys, rewards = observations(8, 200, 300)
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=drift, form=form)
    for part in np.array_split(np.arange(200), 150):
        gp.observe(keys[part], rewards[part])
    rng = np.random.default_rng(9)
    first = gp.remembered.arms[0, 1] - (5.0 if drift is not DRIFTS["fast"] else 0.0)
    times = np.concatenate(
        [rng.uniform(first, 160.0, 20), keys[[150, 150, 160, 199, 199], 1]]
    )
    queries = np.column_stack([rng.integers(0, 25, 25), times])
    mean, cov = dense_posterior(ROUGH, drift, keys, rewards, queries)
    before = gp.state()
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)
    np.testing.assert_allclose(
        gp.predict(queries).std, np.sqrt(np.diag(cov)), atol=1e-9
    )
    draws = gp.sample(queries, np.random.default_rng(0), size=2000) - mean
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / 2000)
    assert (np.abs(draws.T @ draws / 2000 - cov) <= 5.0 * error + 1e-9).all()
    np.testing.assert_array_equal(
        gp.state().array("a"), before.array("a")
    )  # a question changes nothing


@pytest.mark.parametrize("form", FORMS)
def test_arms_chosen_before_the_last_observation_and_not_yet_seen(form: Any) -> None:
    """Pending arms may be older than the observations: their own time counts."""
    drift = Temporal(epsilon=0.05)
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=drift, form=form)
    keys, rewards = observations(10, 60, 80)
    gp.observe(keys, rewards)
    awaited = np.array([[3.0, 20.5], [4.0, 38.0], [3.0, 45.0]])
    offer = Offer(step=1, arms=Arms.numbered(ARMS), time=46.0)
    belief = gp.belief(offer, awaited)
    queries = gp.keys(offer)
    mean, _ = dense_posterior(ROUGH, drift, keys, rewards, queries)
    _, cov = dense_posterior(
        ROUGH, drift, np.vstack([keys, awaited]), np.zeros(63), queries
    )
    np.testing.assert_allclose(belief.mean, mean, atol=1e-9)
    np.testing.assert_allclose(belief.std, np.sqrt(np.diag(cov)), atol=1e-9)
    np.testing.assert_allclose(belief.cov, cov, atol=1e-9)


@pytest.mark.parametrize("at_once", [1, 3])
def test_memory_stays_bounded(at_once: int) -> None:
    """(1 − ε)^{Δ/2} < 1e-13 for Δ ≥ 268 at ε = 0.2; checkpoints lie within a factor of two or so."""
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.2))
    rng, sizes = np.random.default_rng(0), []
    for step in range(0, 3000, at_once):
        times = np.arange(step, step + at_once)
        gp.observe(
            np.column_stack([rng.integers(0, 25, at_once), times]),
            rng.standard_normal(at_once),
        )
        sizes.append(len(gp.remembered.noise))
    assert 268 <= max(sizes[len(sizes) // 2 :]) <= 2 * 268 + 4 * 32
    assert len(gp._history.checkpoints) <= 12
    still = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.0))
    for step in range(3000):
        still.observe([[step % 25, step]], [1.0])
    ages = [3000 - checkpoint.steps for checkpoint in still._history.checkpoints]
    assert len(ages) <= 2 * 12
    assert all(older <= 2 * younger + 64 for older, younger in pairwise(ages))


@pytest.mark.parametrize("form", FORMS)
def test_query_about_the_past_has_no_side_effects(form: Any) -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE, form=form)
    gp.observe([[0, 1.0], [1, 2.0]], [1.0, -1.0])
    before, rank = state_to_bytes(gp.state()), gp.rank
    gp.predict(np.column_stack([np.arange(25), np.full(25, 1.5)]))
    assert state_to_bytes(gp.state()) == before
    assert gp.rank == rank


def test_answers_about_the_past_are_those_of_now() -> None:
    gp = DriftingGP(ROUGH, ARMS, NOISE)
    gp.observe([[0, 1.0], [1, 3.0]], [1.0, -1.0])
    first = gp.predict([[0, 2.0]]).mean
    gp.observe([[0, 3.0]], [5.0])
    assert gp.predict([[0, 2.0]]).mean > first + 0.5


@pytest.mark.parametrize("form", FORMS)
def test_state_with_other_parts_is_relearned(form: Any) -> None:
    keys, rewards = observations(11, 40, 60)
    gp = DriftingGP(SMOOTH, ARMS, NOISE, 2.0, form=form)
    gp.observe(keys, rewards)
    for other in ({"kernel": ROUGH}, {"drift": Temporal(epsilon=0.3)}, {"mean": 10.0}):
        relearned = DriftingGP(**{**gp.parameters(), **other})
        relearned.observe(keys, rewards)
        restored = DriftingGP.from_state(gp.state(), **other)
        queries = questions(31.0)
        ours, theirs = (
            posterior.predict(queries, return_cov=True)
            for posterior in (restored, relearned)
        )
        np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-10)
        np.testing.assert_allclose(ours.cov, theirs.cov, atol=1e-10)


def test_without_drift_the_folded_form_does_not_grow() -> None:
    gp = DriftingGP(SMOOTH, ARMS, NOISE, drift=Temporal(epsilon=0.0), form="folded")
    rng = np.random.default_rng(0)
    for step in range(3000):
        gp.observe([[int(rng.integers(25)), step]], [float(rng.standard_normal())])
    assert gp.rank <= 2 * 25 + 64


def test_drifting_posterior_equals_streaming_with_a_temporal_kernel() -> None:
    keys, rewards = observations(3, 60, 80)
    space = SquaredExponential(lengthscale=0.3, columns=(0, 1))
    timed = StreamingGP(space * Temporal(epsilon=0.05, column=2), NOISE, timed=True)
    gp = DriftingGP(SMOOTH, ARMS, NOISE, drift=Temporal(epsilon=0.05))
    gp.observe(keys, rewards)
    timed.observe(np.column_stack([ARMS[keys[:, 0].astype(int)], keys[:, 1]]), rewards)
    offer = Offer(step=1, arms=Arms.numbered(ARMS), time=44.0)
    ours, theirs = gp.belief(offer), timed.belief(offer)
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-9)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=1e-9)


# --- forms -------------------------------------------------------------------------------


def test_the_form_is_chosen_by_cost() -> None:
    axis = np.linspace(0.0, 1.0, 24)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)  # 576 arms
    short = Matern(nu=0.5, lengthscale=0.05)
    assert DriftingGP(SMOOTH, grid, NOISE).form == "kalman"  # few features
    assert DriftingGP(short, ARMS, NOISE).form == "kalman"  # few arms
    assert DriftingGP(short, grid, NOISE).form == "visited"
    assert (
        DriftingGP(short, grid, 1e-6).form == "folded"
    )  # too little noise for the others
    with pytest.raises(InputError, match="no features on these arms"):
        DriftingGP(
            short, np.random.default_rng(0).random((1100, 2)), NOISE, form="kalman"
        )


def test_a_visited_form_that_grows_is_folded() -> None:
    """Many arms, of which few at a time matter: rank stays far below the number of arms visited."""
    grid = np.linspace(0.0, 1.0, 700)[:, None]
    kernel, drift = Matern(nu=2.5, lengthscale=0.5), Temporal(epsilon=0.3)
    gp = DriftingGP(kernel, grid, NOISE, drift=drift)
    rng = np.random.default_rng(0)
    keys = np.column_stack([rng.permutation(700)[:300], np.arange(300.0)])
    rewards = rng.standard_normal(300)
    forms = set()
    for key, reward in zip(keys, rewards, strict=True):
        gp.observe(key[None], [reward])
        forms.add(gp.form)
    assert forms == {"visited", "folded"}
    assert gp.rank <= 150
    assert 0.0 < gp.tolerance <= TRUNCATION
    queries = np.column_stack([np.arange(0, 700, 50), np.full(14, 301.0)])

    def covariance(a: Floats, b: Floats) -> Floats:
        return kernel(grid[a[:, 0].astype(int)], grid[b[:, 0].astype(int)]) * drift(
            a[:, 1:], b[:, 1:]
        )

    K, k = covariance(keys, keys) + NOISE * np.eye(300), covariance(queries, keys)
    mean, cov = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(mean, k @ np.linalg.solve(K, rewards), atol=1e-9)
    np.testing.assert_allclose(
        cov, covariance(queries, queries) - k @ np.linalg.solve(K, k.T), atol=1e-9
    )


@pytest.mark.parametrize("least", [1e-7, 1e-9])
def test_a_reward_with_little_noise_changes_the_form(least: float) -> None:
    keys, rewards = observations(4, 60, 100)
    noise = np.full(60, NOISE)
    noise[30] = least
    axis = np.linspace(0.0, 1.0, 24)
    grid = np.vstack([ARMS, np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)])
    gp = DriftingGP(ROUGH, grid, NOISE)
    assert gp.form == "visited"
    gp.observe(keys[:30], rewards[:30], noise[:30])
    gp.observe(keys[30:], rewards[30:], noise[30:])
    assert gp.form == "folded"
    queries = questions(50.0)
    mean, cov = dense_posterior(ROUGH, Temporal(), keys, rewards, queries, noise)
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-8)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-8)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("drift", ["slow", "rush-hours"])
def test_joint_draws_have_the_covariance(form: Any, drift: str) -> None:
    keys, rewards = observations(6, 80, 100)
    gp = DriftingGP(SMOOTH, ARMS, NOISE, drift=DRIFTS[drift], form=form)
    offer = Offer(step=1, arms=Arms.numbered(ARMS), time=60.0)
    for known in (False, True):
        if known:
            gp.observe(keys, rewards)
        queries = gp.keys(offer)
        mean, cov = gp.predict(queries, return_cov=True)
        draws = gp.sample(queries, np.random.default_rng(0), size=4000) - mean
        # Standard error of a covariance: √((σ_i²σ_j² + σ_ij²)/4000); 300 pairs, five of them.
        error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / 4000)
        assert (np.abs(draws.T @ draws / 4000 - cov) <= 5.0 * error + 1e-9).all()


# --- forgetting and rejected input -------------------------------------------------------


def test_old_observations_are_forgotten() -> None:
    """(1 − ε)^{Δ/2} falls below 1e-13 after Δ = 2 ln 10¹³ / −ln(1 − ε), 19.98 for ε = 0.95."""
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=Temporal(epsilon=0.95))
    for step in range(300):
        gp.observe([[step % 25, step]], [1.0])
    assert 20 <= len(gp.remembered.noise) <= 20 + 2 * 32
    before = gp.predict(questions(300.0)).mean
    information = gp.information_gain
    gp.observe([[3, 100.0], [4, 200.0]], [9.0, 9.0])  # they are forgotten
    assert (gp.count, gp.ignored) == (302, 2)
    assert gp.information_gain == information
    np.testing.assert_array_equal(gp.predict(questions(300.0)).mean, before)
    for ask in (gp.predict, lambda arms: gp.sample(arms, np.random.default_rng(0))):
        with pytest.raises(
            ForgottenError,
            match=r"time 200 is forgotten: what was observed until 2\d\d",
        ):
            ask([[3, 300.0], [4, 200.0]])
    # Chosen long ago and never observed: irrelevant now.
    offer = Offer(step=1, arms=Arms.numbered(ARMS), time=300.0)
    awaited = gp.belief(offer, np.array([[4.0, 200.0]]))
    np.testing.assert_allclose(awaited.std, gp.belief(offer).std, rtol=1e-12)
    restored = DriftingGP.from_state(gp.state())
    restored.observe([[3, 100.0]], [9.0])
    assert restored.ignored == 3
    np.testing.assert_array_equal(restored.predict(questions(300.0)).mean, before)


@pytest.mark.parametrize(
    "bad", [[[1.5, 0.0]], [3], [[1.0, 2.0, 3.0]], [[np.nan, 1.0]], [[1.0, np.inf]]]
)
def test_keys_are_a_row_number_and_a_time(bad: Any) -> None:
    gp = DriftingGP(SMOOTH, ARMS, NOISE)
    with pytest.raises(InputError):
        gp.observe(bad, [1.0])
    assert gp.count == 0


@pytest.mark.parametrize(
    "key", [[-5, 1.0], [25, 1.0], [0.5, 1.0], [0, 2e15], [0, -2e15], [0, np.nan]]
)
def test_both_fast_paths_refuse_the_same_keys(key: list[float]) -> None:
    assert as_single_reward([key], [1.0], len(ARMS)) is None
    with pytest.raises(InputError):
        as_timed_keys([key], len(ARMS))
    assert as_single_reward([[24, -1e15]], [1.0], len(ARMS)) == (24, -1e15, 1.0)
    np.testing.assert_array_equal(
        as_timed_keys([[24, -1e15]], len(ARMS)), [[24, -1e15]]
    )


def test_impossible_parameters() -> None:
    with pytest.raises(UnknownArmError, match="no arm 25"):
        DriftingGP(SMOOTH, ARMS, NOISE).observe([[25, 1.0]], [1.0])
    with pytest.raises(InputError, match="arms"):
        DriftingGP(SMOOTH, np.empty((0, 2)), NOISE)
    with pytest.raises(InputError, match=r"such as Temporal\(epsilon=0.01\)"):
        DriftingGP(SMOOTH, ARMS, NOISE, drift=0.01)  # type: ignore[arg-type]
    for kernel in (SMOOTH, ROUGH, Temporal() * SMOOTH, 2.0 * ROUGH):
        with pytest.raises(InputError, match="cannot be followed through time"):
            DriftingGP(SMOOTH, ARMS, NOISE, drift=kernel)


@pytest.mark.parametrize("form", ["folded", "visited", "kalman"])
def test_damaged_states_are_refused(form: Any) -> None:
    import dataclasses

    gp = DriftingGP(ROUGH, ARMS, NOISE, form=form)
    gp.observe(*observations(7, 20, 30))
    state = gp.state()
    array = {"folded": "columns", "visited": "recent", "kalman": "G"}[form]
    lost = state.array(array)[:-1] if form == "folded" else state.array(array)[:, :-1]
    for arrays, scalars in (
        ({array: lost}, {}),
        ({}, {"left": 0.0}),
        ({"a": np.zeros((1, 3))}, {}),
        ({"arms": state.array("arms")[::-1]}, {}),
        ({}, {"in_use": "kalman" if form != "kalman" else "folded!"}),
        ({}, {"time": 0.0}),
        ({}, {"forgotten": 1e9}),
        ({}, {"error": 1.0}),
        ({}, {"steps": -1}),
        ({}, {"least_noise": 1.0}),
    ):
        damaged = dataclasses.replace(
            state,
            arrays={**state.arrays, **arrays},
            scalars={**state.scalars, **scalars},
        )
        with pytest.raises(StateError):
            DriftingGP.from_state(damaged)


# --- odd input ---------------------------------------------------------------------------


def test_many_rewards_of_one_time() -> None:
    """Repeats of an arm count as one of their weighted mean; thousands take no thousands squared."""
    rng = np.random.default_rng(0)
    rows, rewards, noise = (
        rng.integers(0, 25, 3000),
        rng.standard_normal(3000),
        rng.uniform(0.1, 1.0, 3000),
    )
    gp = DriftingGP(ROUGH, ARMS, NOISE)
    gp.observe(np.column_stack([rows, np.ones(3000)]), rewards, noise)
    weight = np.bincount(rows, 1.0 / noise)
    merged = DriftingGP(ROUGH, ARMS, NOISE)
    keys = np.column_stack([np.arange(25), np.ones(25)])
    merged.observe(keys, np.bincount(rows, rewards / noise) / weight, 1.0 / weight)
    ours, theirs = (
        posterior.predict(questions(2.0), return_cov=True) for posterior in (gp, merged)
    )
    np.testing.assert_allclose(ours.mean, theirs.mean, atol=1e-10)
    np.testing.assert_allclose(ours.cov, theirs.cov, atol=1e-10)
    assert gp.information_gain == pytest.approx(merged.information_gain, rel=1e-9)


def test_many_arms_of_one_time_in_pieces() -> None:
    arms = np.random.default_rng(0).random((700, 2))
    gp = DriftingGP(ROUGH, arms, NOISE)
    rewards = np.sin(5.0 * arms[:, 0])
    gp.observe(np.column_stack([np.arange(700), np.ones(700)]), rewards)
    K = ROUGH(arms) * np.sqrt(0.99)
    mean = gp.predict(np.column_stack([np.arange(700), np.full(700, 2.0)])).mean
    np.testing.assert_allclose(
        mean,
        K @ np.linalg.solve(ROUGH(arms) + NOISE * np.eye(700), rewards),
        atol=1e-9,
    )


def test_requests_that_lose_precision_or_memory_are_rejected() -> None:
    with pytest.raises(InputError, match=r"use at least 0.0002, or form='auto'"):
        DriftingGP(ROUGH, ARMS, 1e-6, form="visited")
    with pytest.raises(InputError, match="digits would be lost; use at least 2e-13"):
        DriftingGP(ROUGH, ARMS, 1e-16)
    gp = DriftingGP(ROUGH, ARMS, NOISE)
    with pytest.raises(InputError, match="digits would be lost"):
        gp.observe([[0, 1.0]], [1.0], [1e-15])
    assert gp.count == 0
    for time in (1e16, -1e300):
        with pytest.raises(InputError, match="times must lie between"):
            gp.observe([[0, time]], [1.0])
    with pytest.raises(InputError, match="longer lengthscale, or a larger"):
        DriftingGP(ROUGH, ARMS, NOISE, drift=Periodic(period=10.0, lengthscale=1e-3))
    many = np.random.default_rng(0).random((20_000, 1))
    with pytest.raises(InputError, match="too many for 20000 arms"):
        DriftingGP(ROUGH, many, NOISE, drift=Periodic(period=10.0, lengthscale=0.05))
    with pytest.raises(InputError, match="time_tolerance"):
        DriftingGP(ROUGH, ARMS, NOISE, time_tolerance=1e300)


def test_a_reward_with_little_noise_and_a_new_arm_on_few_arms() -> None:
    gp = DriftingGP(SMOOTH, ARMS, NOISE)
    gp.observe([[0, 1.0]], [1.0], [2e-13])
    assert (gp.form, gp.count) == ("folded", 1)
    assert gp.predict([[0, 1.0]]).mean == pytest.approx(1.0, abs=1e-9)


def rounds_past_a_checkpoint(form: Any, at_once: int) -> DriftingGP:
    gp = DriftingGP(ROUGH, np.random.default_rng(1).random((60, 2)), NOISE, form=form)
    rng = np.random.default_rng(0)
    for time in range(34):
        rows = rng.choice(60, at_once, replace=False)
        gp.observe(
            np.column_stack([rows, np.full(at_once, time)]),
            rng.standard_normal(at_once),
        )
    assert gp._history.checkpoints[-1].time == 31.0
    return gp


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("form", ["folded", "visited", "kalman"])
def test_query_from_a_checkpoint_has_no_side_effects(form: Any, at_once: int) -> None:
    """It relearns the observations since the checkpoint, in separate rows."""
    gp = rounds_past_a_checkpoint(form, at_once)
    before = state_to_bytes(gp.state())
    gp.predict([[7, 31.3], [8, 32.7]])
    assert state_to_bytes(gp.state()) == before


@pytest.mark.parametrize("at_once", [1, 5])
@pytest.mark.parametrize("form", ["folded", "visited", "kalman"])
def test_failed_late_feedback_has_no_side_effects(
    form: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Observations since the checkpoint are relearned in other rows; then an error occurs."""
    gp = rounds_past_a_checkpoint(form, at_once)
    before = state_to_bytes(gp.state())
    pass_time = Form.pass_time

    def interrupted(self: Form, time: float) -> None:
        if time == 33.0:  # the last
            raise KeyboardInterrupt
        pass_time(self, time)

    monkeypatch.setattr(Form, "pass_time", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gp.observe([[7, 31.5]], [5.0])
    assert state_to_bytes(gp.state()) == before


@pytest.mark.parametrize("repeated_arms", [[0], [0, 1]])
def test_rows_of_a_failed_update_are_ignored(
    repeated_arms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had visited arm 2, which was then unknown; its row is reused before arm 2 is observed."""
    drift = Temporal(epsilon=0.02)
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=drift, form="visited")
    gp.observe([[0, 1.0]], [1.0])
    gp.observe([[1, 2.0]], [-1.0])
    with monkeypatch.context() as patch:
        patch.setattr("superarm.posteriors.drifting.form.cholesky", lambda *_: 1 / 0)
        with pytest.raises(
            ZeroDivisionError
        ):  # arm 2 is the only one at its time, and is learned first
            gp.observe([[2, 3.0], [3, 4.0], [4, 4.0]], [5.0] * 3)
    keys = np.array(
        [[0, 1.0], [1, 2.0], *([arm, 5.0] for arm in repeated_arms), [2, 6.0]]
    )
    rewards = np.linspace(-1.0, 1.0, len(keys))
    rewards[:2] = 1.0, -1.0
    gp.observe(keys[2:-1], rewards[2:-1])
    gp.observe(keys[-1:], rewards[-1:])
    mean, cov = dense_posterior(ROUGH, drift, keys, rewards, queries := questions(7.0))
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)


def test_states_with_per_column_shares_load() -> None:
    """Schema 2: each column stored its remaining share."""
    gp = DriftingGP(ROUGH, ARMS, NOISE, form="folded")
    keys, rewards = observations(11, 30, 40)
    gp.observe(keys, rewards)
    state = gp.state()
    shares, scale = np.linspace(0.2, 1.0, gp.rank), state.scalar("left")
    arrays = {**state.arrays, "left": shares}
    arrays["columns"] = scale * state.array("columns") / shares[:, None]
    arrays["a"] = scale * state.array("a")
    arrays["known"] = scale**2 * state.array("known")
    scalars = {
        name: value
        for name, value in state.scalars.items()
        if name not in ("left", "rank")
    }
    restored = DriftingGP.from_state(
        replace(state, schema=2, arrays=arrays, scalars=scalars)
    )
    queries = questions(21.0)
    expected, predicted = (
        posterior.predict(queries, return_cov=True) for posterior in (gp, restored)
    )
    np.testing.assert_allclose(predicted.mean, expected.mean, atol=1e-12)
    np.testing.assert_allclose(predicted.cov, expected.cov, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_very_long_pause_forgets_everything(form: Any) -> None:
    """Of what is known, 2⁻²⁰⁰ is: less than the smallest factor by which what is stored is scaled."""
    drift = Temporal(epsilon=0.5)
    gp = DriftingGP(ROUGH, ARMS, NOISE, drift=drift, form=form)
    keys = np.array([[0, 0.0], [1, 1.0], [0, 401.0], [2, 402.0]])
    rewards = np.array([3.0, -3.0, 1.0, 2.0])
    for key, reward in zip(keys, rewards, strict=True):
        gp.observe([key], [reward])
    mean, cov = dense_posterior(
        ROUGH, drift, keys, rewards, queries := questions(403.0)
    )
    predicted = gp.predict(queries, return_cov=True)
    np.testing.assert_allclose(predicted.mean, mean, atol=1e-9)
    np.testing.assert_allclose(predicted.cov, cov, atol=1e-9)
