"""Arms whose rewards are expected: their stored rows of the covariance against a dense solve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Decision, Feedback, Floats, Ints, Offer
from superarm.core.errors import StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import Matern
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP
from superarm.posteriors.finite import visited
from superarm.rules import Thompson

NOISE = 0.1
COUNT = 60
POINTS = np.random.default_rng(0).random((COUNT, 2))
KERNEL = Matern(lengthscale=0.5)
OFFER = Offer(step=1, arms=Arms(ids=list(range(COUNT)), features=POINTS))
TOLERANCE = 1e-10
"""Rounding, about 1e-16, times the condition of a prior of variance 1 with the least noise, 1e3, times the
observations between two fresh solutions, at most 256, whose rounding may add up."""


def posterior() -> FiniteGP:
    return FiniteGP(KERNEL, POINTS, NOISE, form="visited")


def engine_of(gp: FiniteGP) -> visited.VisitedEngine:
    engine = gp._engine
    assert isinstance(engine, visited.VisitedEngine)
    return engine


def dense(rows: Ints, rewards: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of all arms by one solve with all observations."""
    K = np.asarray(KERNEL(POINTS))
    solved = np.linalg.solve(K[np.ix_(rows, rows)] + np.diag(noise), K[rows])
    return rewards @ solved, K - K[:, rows] @ solved


def assert_dense(gp: FiniteGP, mean: Floats, covariance: Floats) -> None:
    prediction = gp.predict(np.arange(COUNT))
    assert prediction.std is not None
    np.testing.assert_allclose(prediction.mean, mean, atol=TOLERANCE)
    np.testing.assert_allclose(
        prediction.std**2, np.diagonal(covariance), atol=TOLERANCE
    )
    engine = engine_of(gp)
    arms = engine.expected
    np.testing.assert_allclose(
        engine._expected.rows, covariance[arms], atol=10 * TOLERANCE
    )


routes = st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=8, unique=True)


@pytest.mark.thorough
@given(
    rounds=st.lists(st.tuples(routes, st.integers(0, 3)), min_size=1, max_size=12),
    seed=st.integers(0, 100),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_order_of_rewards_equals_a_dense_solve(
    rounds: list[tuple[list[int], int]], seed: int
) -> None:
    """Routes that share arms; rewards in any order, in part, with other noise, or never."""
    rng = np.random.default_rng(seed)
    gp = posterior()
    pending: list[list[int]] = []
    rows: list[int] = []
    rewards: list[float] = []
    noise: list[float] = []

    def observe(arms: list[int], has_own_noise: bool) -> None:
        values = rng.normal(size=len(arms))
        variances = np.full(len(arms), NOISE)
        if has_own_noise:
            variances = rng.uniform(1e-3, 1.0, len(arms))
        gp.observe(arms, values, variances if has_own_noise else None)
        rows.extend(arms)
        rewards.extend(values.tolist())
        noise.extend(variances.tolist())

    for route, told in rounds:
        if pending:
            gp.expect(np.concatenate(pending))
        pending.append(route)
        for _ in range(min(told, len(pending))):
            arms = pending.pop(int(rng.integers(len(pending))))
            count = int(rng.integers(1, len(arms) + 1))
            observe(arms[:count], bool(rng.integers(2)))
            if count < len(arms):
                pending.append(arms[count:])
    if rows:
        assert_dense(gp, *dense(np.array(rows), np.array(rewards), np.array(noise)))


def teach(gp: FiniteGP, steps: range, *, asks: bool = True) -> None:
    """Routes of which four are pending at a time, past several fresh solutions."""
    pending = [route_of(step) for step in range(steps.start - 4, steps.start)]
    for step in steps:
        if asks:
            gp.belief(OFFER, np.concatenate(pending))
        gp.expect(np.concatenate(pending))
        pending.append(route_of(step))
        first = pending.pop(step % 3)
        gp.observe(first, np.random.default_rng([1, step]).standard_normal(len(first)))


def route_of(step: int) -> Ints:
    return np.random.default_rng([2, step + 10]).permutation(COUNT)[:5]


def test_rewards_of_expected_arms_need_no_pass_over_the_visited_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gp = posterior()
    teach(gp, range(5))
    route = route_of(20)
    gp.expect(route)

    def refuse(*_: Any) -> Any:
        raise AssertionError("a product with all rows of visited arms")

    monkeypatch.setattr(visited.VisitedEngine, "_product", refuse)
    gp.observe(route[::-1], np.ones(5))


def test_single_rewards_update_expected_rows() -> None:
    """The fast path of one arm seen before."""
    gp = posterior()
    gp.observe([3, 7], [1.0, 0.5])
    gp.expect(np.array([7, 20, 3]))
    gp.observe([7], [0.25])
    rewards = np.array([1.0, 0.5, 0.25])
    assert_dense(gp, *dense(np.array([3, 7, 7]), rewards, np.full(3, NOISE)))


def test_to_expect_rewards_changes_no_belief() -> None:
    gp = posterior()
    teach(gp, range(20))
    pending = np.concatenate([route_of(30), route_of(31)])
    before = gp.belief(OFFER, pending)
    gp.expect(pending)
    after = gp.belief(OFFER, pending)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.std, after.std)


def test_beliefs_do_not_change_what_is_learned() -> None:
    """A fold that decides nothing must learn the same bits as one that decides."""
    asked = posterior()
    silent = posterior()
    teach(asked, range(12))
    teach(silent, range(12), asks=False)
    assert state_to_bytes(asked.state()) == state_to_bytes(silent.state())


def test_rows_are_dropped_when_nothing_is_pending() -> None:
    gp = posterior()
    gp.expect(np.array([1, 2, 1]))
    assert engine_of(gp).expected.tolist() == [1, 2]
    gp.expect(None)
    assert engine_of(gp).expected.tolist() == []


def test_fresh_solution_drops_rows_with_old_rounding() -> None:
    gp = posterior()
    gp.expect(np.array([1, 2]))
    for step in range(visited._FIRST_REFRESH):
        assert engine_of(gp).expected.tolist() == [1, 2]
        gp.observe([step, step + 20], [1.0, 2.0])
    assert engine_of(gp).expected.tolist() == []


@pytest.mark.parametrize("rounds", [1, 5, 8, 30])
def test_restored_posterior_continues_bit_for_bit(rounds: int) -> None:
    gp = posterior()
    teach(gp, range(rounds))
    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert restored.same_bits
    for learner in (gp, restored):
        teach(learner, range(rounds, rounds + 20))
    assert state_to_bytes(gp.state()) == state_to_bytes(restored.state())


def test_too_many_rows_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    gp = posterior()
    teach(gp, range(5))
    pending = np.concatenate([route_of(30), route_of(31)])
    gp.expect(pending)
    assert gp.same_bits
    monkeypatch.setattr(visited, "_MOST_SAVED_NUMBERS", 5 * COUNT)
    assert not gp.same_bits
    restored = gp.restored(gp.state())
    assert engine_of(restored).expected.tolist() == []
    np.testing.assert_allclose(
        restored.belief(OFFER, pending).std,
        gp.belief(OFFER, pending).std,
        atol=TOLERANCE,
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("expected", np.array([1, 1])),
        ("expected", np.array([1, COUNT])),
        ("expected", np.array([1])),
        ("expected_rows", np.zeros((2, 3))),
        ("expected_rows", np.full((2, COUNT), np.nan)),
    ],
)
def test_impossible_rows_are_refused(name: str, value: Any) -> None:
    gp = posterior()
    gp.expect(np.array([1, 2]))
    state = gp.state()
    engine = state.part("engine")
    wrong = replace(engine, arrays={**engine.arrays, name: value})
    with pytest.raises(StateError, match="damaged"):
        gp.restored(replace(state, parts={"engine": wrong}))


# --- the policy ----------------------------------------------------------------------------


def play(policy: IndexPolicy) -> list[Decision]:
    """Decisions of which four are pending at a time; one in three is rewarded out of order."""
    offers = [replace(OFFER, step=step) for step in range(1, 31)]
    decisions: list[Decision] = []
    pending: list[Decision] = []
    for offer in offers:
        rng = np.random.default_rng([3, offer.step])
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        decisions.append(decision)
        pending.append(decision)
        if len(pending) > 4:
            known = pending.pop(offer.step % 3)
            rewards = np.random.default_rng([4, known.step]).standard_normal(5)
            feedback = Feedback(positions=known.positions, rewards=rewards)
            policy.learn(offers[known.step - 1], known, feedback, rng)
    return decisions


def new_policy() -> IndexPolicy:
    rule = Thompson(mode="independent")
    return IndexPolicy(posterior=posterior(), rule=rule, oracle=TopK(k=5))


def test_policy_decides_as_without_stored_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = new_policy()
    decisions = play(policy)
    assert isinstance(policy.posterior, FiniteGP)
    assert len(engine_of(policy.posterior).expected)
    monkeypatch.setattr(FiniteGP, "expect", lambda *_: None)
    for actual, expected in zip(decisions, play(new_policy()), strict=True):
        np.testing.assert_array_equal(actual.positions, expected.positions)
        np.testing.assert_allclose(actual.mean, expected.mean, atol=TOLERANCE)
        np.testing.assert_allclose(actual.std, expected.std, atol=TOLERANCE)
