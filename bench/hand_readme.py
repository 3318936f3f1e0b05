"""The README's loop beside the same policy written by hand.

100 rounds of 20 new arms in the unit square, three of them chosen by O'CLOK-UCB and observed. Both get
the same arms, make the same choices and take turns round by round. A round is everything that the
README shows: draw the arms, decide, commit, observe, learn. Medians and means are of all rounds of all
loops: means count the rounds in which ours looks for a cheaper form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, OclokUCB

from .by_hand import ReadmeRound
from .measure import Row, Spent, mean_spent, median_spent, row, spent, without_gc
from .peers import Moments

ROUNDS = 100
OFFERED = 20  # arms
CHOSEN = 3
NOISE_STD = 0.1
SCHEDULE = OclokUCB(most_arms=OFFERED)
Round = Callable[[int], Moments]
_OURS = "ours"
_THEIRS = "theirs"


def _ours() -> Round:
    policy = IndexPolicy(
        posterior=StreamingGP(
            kernel=SquaredExponential(lengthscale=0.3), noise_variance=0.01
        ),
        rule=UCB(schedule=SCHEDULE),
        oracle=TopK(k=CHOSEN),
    )
    rng = np.random.default_rng(0)

    def round_(step: int) -> Moments:
        arms = Arms.numbered(rng.random((OFFERED, 2)))
        truth = np.sin(5.0 * arms.features).sum(axis=1)
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = truth[decision.positions] + NOISE_STD * rng.standard_normal(CHOSEN)
        feedback = Feedback(positions=decision.positions, rewards=rewards)
        policy.learn(offer, decision, feedback, rng)
        assert decision.mean is not None
        assert decision.std is not None
        return Moments(decision.mean, decision.std)

    return round_


def _by_hand() -> Round:
    def width(step: int) -> float:
        return SCHEDULE.width(step, lambda _: 0.0)

    peer = ReadmeRound(ROUNDS, width, CHOSEN)
    rng = np.random.default_rng(0)

    def round_(step: int) -> Moments:
        arms = rng.random((OFFERED, 2))
        truth = np.sin(5.0 * arms).sum(axis=1)
        chosen, mean, std = peer.decide(arms, step)
        peer.learn(truth[chosen] + NOISE_STD * rng.standard_normal(CHOSEN))
        return Moments(mean, std)

    return round_


def rows(quick: bool) -> list[Row]:
    """Play the loop, and compare the times of its rounds.

    Args:
        quick: Whether to play only a few loops.
    """
    loops = 2 if quick else 40
    ours: list[Spent] = []
    theirs: list[Spent] = []
    difference = 0.0
    with without_gc():
        for loop in range(loops):
            contenders = {_OURS: _ours(), _THEIRS: _by_hand()}
            for step in range(1, ROUNDS + 1):
                turn = _take_turns(contenders, step)
                difference = max(difference, turn.difference)
                if loop:  # the first loop warms up
                    ours.append(turn.ours)
                    theirs.append(turn.theirs)
    median = row(
        "README round, median",
        median_spent(ours),
        ReadmeRound.name,
        median_spent(theirs),
        difference,
    )
    mean = row(
        "README round, mean",
        mean_spent(ours),
        ReadmeRound.name,
        mean_spent(theirs),
        difference,
    )
    return [median, mean]


class _Turn(NamedTuple):
    """One round of both."""

    ours: Spent
    theirs: Spent
    difference: float


def _take_turns(contenders: Mapping[str, Round], step: int) -> _Turn:
    answers: dict[str, Moments] = {}

    def work(name: str, play: Round, step: int) -> None:
        answers[name] = play(step)

    times = {
        name: spent(partial(work, name, play, step))
        for name, play in contenders.items()
    }
    difference = answers[_OURS].difference(answers[_THEIRS])
    return _Turn(times[_OURS], times[_THEIRS], difference)
