"""Failed or overtaken updates have no side effects."""

from __future__ import annotations

import copy
import sys
import threading
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from superarm.core import Arms, Feedback, Offer
from superarm.core.errors import InputError, JitterWarning, StaleBeliefError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import GraphMatern, Matern, SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import DriftingGP, Separate, StreamingGP
from superarm.roads.posterior import RoadGP, Trips
from superarm.rules import UCB, Fixed, Thompson
from superarm.testing.helpers import (
    Interrupt,
    interrupted,
    interrupted_after,
    unchanged,
)

ROUGH = Matern(nu=1.5, lengthscale=0.4)
FEATURES = np.random.default_rng(0).random((12, 2))
LINKS = np.eye(8, k=1) + np.eye(8, k=-1)
ROADS = GraphMatern(csc_array(np.diag(LINKS.sum(axis=0)) - LINKS), nu=2)


def test_rejection_by_one_learner_leaves_all_unchanged() -> None:
    gp = Separate(StreamingGP(ROUGH, 0.1, most_exact=2), column=2)
    rows = np.column_stack([FEATURES[:4], [0, 1, 0, 1]])
    gp.observe(rows, np.ones(4))
    gp.observe(np.array([[0.5, 0.5, 2.0]]), [1.0])  # a third learner, which has room
    refused = pytest.raises(InputError, match="most_exact")
    with unchanged(gp, "an observation that one of several learners refuses"), refused:
        gp.observe([[0.1, 0.1, 2.0], [0.2, 0.2, 3.0], [0.3, 0.3, 1.0]], [0.0, 0.0, 0.0])
    assert gp.count == 5
    restored = Separate.from_state(state_from_bytes(state_to_bytes(gp.state())))
    np.testing.assert_allclose(
        restored.predict(rows).mean, gp.predict(rows).mean, atol=1e-12
    )


def road_keys(*edges: int) -> Any:
    count = len(edges)
    return np.column_stack(
        [edges, np.ones((count, 6)), np.zeros(count), np.zeros(count)]
    )


def trip(keys: Any, rewards: Any) -> Trips:
    return Trips.of_one(keys, None, np.asarray(rewards, dtype=np.float64))


def test_log_is_learned_entirely_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    gp = RoadGP(ROADS, np.ones(8))
    gp.observe(road_keys(0, 1), [1.0, 1.2])
    keys = road_keys(2, 3, 4, 5)
    both = Trips(
        keys,
        np.arange(4),
        np.ones(4),
        np.array([0, 0, 1, 1]),
        np.zeros(4),
        np.zeros(4, bool),
    )
    taken = RoadGP._take
    calls = []

    def fails_later(self: RoadGP, one: Trips) -> None:
        calls.append(one)
        if len(calls) == 2:
            raise Interrupt
        taken(self, one)

    with monkeypatch.context() as patch, unchanged(gp, "a log of which one trip fails"):
        patch.setattr(RoadGP, "_take", fails_later)
        with pytest.raises(Interrupt):
            gp.observe_trips(both)
    version = gp.version
    gp.observe_trips(both)
    assert (gp.trips, gp.count, gp.version) == (3, 6, version + 2)
    apart = RoadGP(ROADS, np.ones(8))
    apart.observe(road_keys(0, 1), [1.0, 1.2])
    for trip_number in (0, 1):
        apart.observe(keys[2 * trip_number : 2 * trip_number + 2], np.ones(2))
    assert state_to_bytes(apart.state()) == state_to_bytes(gp.state())


def test_jitter_warning_as_error_does_not_change_the_roads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Including flagged outliers, and including warnings raised while refitting the scales."""
    gp = RoadGP(ROADS, np.ones(8), outliers="refuse")
    for _ in range(3):
        gp.observe(road_keys(0, 1), [1.0, 1.2])

    def warns(*_: object) -> Any:
        raise JitterWarning("made an error")

    with monkeypatch.context() as patch, unchanged(gp, "a refused trip"):
        patch.setattr("superarm.roads.posterior.engine.cholesky", warns)
        with pytest.raises(JitterWarning):
            gp.observe(road_keys(2, 3, 4), [1.0, 1.0, 1e6])
        assert gp.flagged == ()
    with monkeypatch.context() as patch:
        patch.setattr("superarm.roads.posterior.learner.fit_scales", warns)
        gp.observe(road_keys(2, 3), [1.0, 1.0])  # the fourth trip: scales are fitted
    assert (gp.trips, gp.count, gp.fits) == (4, 8, 0)
    RoadGP.from_state(state_from_bytes(state_to_bytes(gp.state())))
    with pytest.warns(Warning, match="made an error"):  # raised at the next trip
        gp.observe(road_keys(2, 3), [1.0, 1.0])


def policy_of(posterior: Any, rule: Any) -> IndexPolicy:
    return IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=2), stepwise=True)


def test_feedback_learned_before_an_interrupt_is_not_learned_twice() -> None:
    gp = RoadGP(ROADS, np.ones(8), refit=4)
    policy = policy_of(gp, UCB(schedule=Fixed(value=1.0)))
    rng, arms = np.random.default_rng(0), Arms.numbered(road_keys(*range(8)))
    learned = 0
    for step in range(1, 5):
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        feedback = Feedback(positions=decision.positions, rewards=np.ones(2))
        for number in (1, 40, 90):
            before = gp.count
            with interrupted(number):
                if not policy.has_learned(step):
                    policy.learn(offer, decision, feedback, rng)
            learned += gp.count - before
            assert policy.has_learned(step) == (gp.count > 2 * (step - 1))
        if not policy.has_learned(step):
            policy.learn(offer, decision, feedback, rng)
            learned += 2
    assert gp.count == learned == 8


@pytest.mark.parametrize(
    "rule", [UCB(schedule=Fixed(value=2.0)), Thompson()], ids=["ucb", "thompson"]
)
def test_decisions_during_concurrent_learning(rule: Any) -> None:
    policy = policy_of(StreamingGP(ROUGH, 0.1), rule)
    arms, done, errors = Arms.numbered(FEATURES), threading.Event(), []

    def learn() -> None:
        rng = np.random.default_rng(1)
        for step in range(1, 60):
            offer = Offer(step=step, arms=arms)
            decision = policy.decide(offer, rng)
            policy.commit(decision)
            feedback = Feedback(
                positions=decision.positions, rewards=rng.standard_normal(2)
            )
            policy.learn(offer, decision, feedback, rng)
        done.set()

    def guarded() -> None:
        try:
            learn()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=guarded)
    thread.start()
    rng, count = np.random.default_rng(2), 0
    try:
        while not done.is_set():
            policy.decide(Offer(step=10_000 + count, arms=arms), rng)
            count += 1
    finally:
        thread.join(timeout=60.0)
        sys.setswitchinterval(interval)
    assert not errors
    assert count


def test_stale_belief_is_rebuilt_once() -> None:
    """Taught through the policy or past it, in the middle of a decision."""

    class Teaching(Thompson):
        taught = 0

        def desirability(self, belief: Any, step: int, rng: Any) -> Any:
            if type(self).taught < 1:
                type(self).taught += 1
                thread = threading.Thread(
                    target=lambda: gp.observe(FEATURES[:1], [1.0])
                )
                thread.start()
                thread.join()
            return super().desirability(belief, step, rng)

    gp = StreamingGP(ROUGH, 0.1)
    policy = policy_of(gp, Teaching())
    decision = policy.decide(
        Offer(step=1, arms=Arms.numbered(FEATURES)), np.random.default_rng(0)
    )
    assert len(decision.positions) == 2
    assert gp.count == 1
    belief = gp.belief(Offer(step=1, arms=Arms.numbered(FEATURES)))
    gp.observe(FEATURES[:1], [1.0])
    with pytest.raises(StaleBeliefError):  # by itself a belief still refuses
        belief.sample(np.random.default_rng(0))


# --- an interrupt before every instruction ---------------------------------------------------


def taught(posterior: Any, keys: Any) -> Any:
    rng = np.random.default_rng(3)
    for key in keys:
        posterior.observe(key[None], rng.standard_normal(1))
    return posterior


def of_time(count: int) -> Any:
    steps = np.arange(count, dtype=np.float64)
    return np.column_stack([5 * steps % 12, steps])


SMOOTH = SquaredExponential(lengthscale=1.0)
DRIFT = Temporal(epsilon=0.1)
COMMITTED = {
    "folded": lambda: taught(
        DriftingGP(ROUGH, FEATURES, 0.1, drift=DRIFT, form="folded"), of_time(40)
    ),
    "visited": lambda: taught(
        DriftingGP(ROUGH, FEATURES, 0.1, drift=DRIFT, form="visited"), of_time(20)
    ),
    # The next reward is added to G with the pending ones.
    "added": lambda: taught(
        DriftingGP(ROUGH, FEATURES, 0.1, drift=DRIFT, form="visited"), of_time(31)
    ),
    # The next reward comes after a checkpoint.
    "checkpoint": lambda: taught(
        DriftingGP(ROUGH, FEATURES, 0.1, drift=DRIFT), of_time(64)
    ),
    "factored": lambda: taught(
        DriftingGP(ROUGH, FEATURES, 0.1, drift=DRIFT), of_time(7)
    ),
    "kalman": lambda: taught(
        DriftingGP(ROUGH, FEATURES, 0.1, drift=DRIFT), of_time(20)
    ),
    "cholesky": lambda: taught(StreamingGP(ROUGH, 0.1), FEATURES),
    "finite-rank": lambda: taught(
        StreamingGP(SMOOTH, 0.1, form="finite-rank"), FEATURES
    ),
}


@pytest.mark.parametrize(
    ("name", "rewards"), [*((name, 1) for name in COMMITTED), ("folded", 2)]
)
def test_policy_update_is_atomic_under_any_interrupt(name: str, rewards: int) -> None:
    """Also within the few instructions that adopt it."""
    posterior = COMMITTED[name]()
    fixed = isinstance(posterior, DriftingGP)
    last = posterior.remembered.arms[-1, 1] if fixed else 0.0
    keys = (
        np.array([[3.0, last + 1.0], [4.0, last + 1.0]])
        if fixed
        else FEATURES[[3, 4]] + 0.01
    )
    queries = (
        np.column_stack([np.arange(12), np.full(12, last + 2.0)]) if fixed else FEATURES
    )
    values = np.array([0.7, -0.4])
    twin, count, before = (
        copy.deepcopy(posterior),
        posterior.count,
        posterior.predict(queries),
    )
    twin.observe(keys[:rewards], values[:rewards])
    after, call, stopped = twin.predict(queries), 0, True
    while stopped:
        call += 1
        attempt = copy.deepcopy(posterior)
        with interrupted_after(call, "superarm.posteriors") as count_text:
            attempt.observe(keys[:rewards], values[:rewards])
        stopped = count_text[0] == call
        if attempt.count == count:
            np.testing.assert_array_equal(attempt.predict(queries), before)
            attempt.observe(
                keys[:rewards], values[:rewards]
            )  # what was begun does no harm
        answers = attempt.predict(queries)
        np.testing.assert_allclose(answers, after, rtol=0.0, atol=1e-12)
        assert (attempt.count, attempt.version) == (twin.count, twin.version)
        assert attempt.information_gain == pytest.approx(
            twin.information_gain, rel=1e-12
        )
    assert state_to_bytes(attempt.state()) == state_to_bytes(twin.state())
    assert call > 20  # many were tried
