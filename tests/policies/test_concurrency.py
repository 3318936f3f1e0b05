"""Concurrent use of a policy: no update is lost, repeated or half visible."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Decision, Feedback, Offer
from superarm.core.errors import ConflictError
from superarm.core.states import state_to_bytes
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed

FEATURES = np.linspace(0.0, 1.0, 30)[:, None]
ARMS = Arms.numbered(FEATURES)


def make_policy(kind: str) -> IndexPolicy:
    kernel = SquaredExponential(lengthscale=0.2)
    posterior = (
        FiniteGP(kernel, FEATURES, 0.1)
        if kind == "finite"
        else StreamingGP(kernel, 0.1)
    )
    return IndexPolicy(
        posterior=posterior, rule=UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=2)
    )


def rounds(policy: IndexPolicy, steps: range) -> list[tuple[Offer, Decision, Feedback]]:
    played = []
    for step in steps:
        offer = Offer(step=step, arms=ARMS)
        decision = policy.decide(offer, np.random.default_rng(step))
        rewards = np.sin(3.0 * FEATURES[decision.positions, 0] + step)
        played.append(
            (offer, decision, Feedback(positions=decision.positions, rewards=rewards))
        )
    return played


def test_many_threads_learn_what_one_would() -> None:
    for kind in ("finite", "streaming"):
        lessons = rounds(make_policy(kind), range(1, 81))
        serial, shared = make_policy(kind), make_policy(kind)
        for offer, decision, feedback in lessons:
            serial.commit(decision)
            serial.learn(offer, decision, feedback, np.random.default_rng(0))

        def work(
            lesson: tuple[Offer, Decision, Feedback], policy: IndexPolicy = shared
        ) -> int:
            offer, decision, feedback = lesson
            policy.commit(decision)
            policy.decide(
                Offer(step=1000 + offer.step, arms=ARMS), np.random.default_rng(0)
            )
            policy.learn(offer, decision, feedback, np.random.default_rng(0))
            refused = 0
            try:
                policy.learn(offer, decision, feedback, np.random.default_rng(0))
            except ConflictError:
                refused = 1
            policy.state()
            return refused

        with ThreadPoolExecutor(max_workers=4) as pool:
            assert sum(pool.map(work, lessons)) == len(lessons)
        assert shared.posterior.count == serial.posterior.count == 160
        assert shared.version == serial.version
        assert not shared.awaits
        offer = Offer(step=2000, arms=ARMS)
        # Another order of observations: posteriors differ only by rounding.
        for ours, theirs in zip(
            serial.beliefs(offer), shared.beliefs(offer), strict=True
        ):
            assert ours is not None
            assert theirs is not None
            np.testing.assert_allclose(theirs, ours, atol=1e-9)


def test_copies_have_their_own_lock() -> None:
    policy = make_policy("finite")
    for offer, decision, feedback in rounds(policy, range(1, 4)):
        policy.commit(decision)
        policy.learn(offer, decision, feedback, np.random.default_rng(0))
    for copied in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert state_to_bytes(copied.state()) == state_to_bytes(policy.state())
        with policy._lock, ThreadPoolExecutor(max_workers=1) as pool:
            ((offer, decision, feedback),) = rounds(copied, range(9, 10))
            pool.submit(copied.commit, decision).result(timeout=60)
            learned = pool.submit(
                copied.learn, offer, decision, feedback, np.random.default_rng(0)
            )
            learned.result(timeout=60)
        assert copied.version == policy.version + 1


@pytest.mark.parametrize(
    "way", [copy.copy, copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))]
)
@pytest.mark.parametrize("kind", ["finite", "streaming"])
def test_copies_are_consistent_during_concurrent_updates(
    kind: str, way: Callable[[Any], Any]
) -> None:
    """A copy's posterior and its ledger are consistent."""
    policy, done = make_policy(kind), threading.Event()
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    def learn() -> None:
        for offer, decision, feedback in rounds(make_policy(kind), range(1, 61)):
            policy.commit(decision)
            policy.learn(offer, decision, feedback, np.random.default_rng(0))

    def decide() -> None:
        while not done.is_set():
            policy.decide(Offer(step=1000, arms=ARMS), np.random.default_rng(0))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    threads = [
        threading.Thread(target=guarded, args=(work,)) for work in (learn, decide)
    ]
    for thread in threads:
        thread.start()
    try:
        while not done.is_set():
            copied = way(policy)
            learned = sum(copied.has_learned(step) for step in range(1, 61))
            assert copied.posterior.count == 2 * learned
            assert copied.version == learned
            loaded = make_policy(kind).restored(copied.state())
            assert loaded.version == copied.version
    finally:
        done.set()
        for thread in threads:
            thread.join(timeout=60.0)
        sys.setswitchinterval(interval)
    assert not errors
