"""The README's loop beside the same policy written by hand.

100 rounds of 20 new arms in the unit square, three of them chosen by O'CLOK-UCB and observed. Both see
the same arms, make the same choices and take turns round by round. A round is everything the README
shows: draw the arms, decide, commit, observe, learn. Medians and means are of all rounds of all loops:
means count the rounds in which ours looks for a cheaper form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
SCHEDULE = OclokUCB(most_arms=20)
Round = Callable[[int], Moments]


def _ours() -> Round:
    policy = IndexPolicy(
        posterior=StreamingGP(
            kernel=SquaredExponential(lengthscale=0.3), noise_variance=0.01
        ),
        rule=UCB(schedule=SCHEDULE),
        oracle=TopK(k=3),
    )
    rng = np.random.default_rng(0)

    def round_(step: int) -> Moments:
        arms = Arms.numbered(rng.random((20, 2)))
        truth = np.sin(5.0 * arms.features).sum(axis=1)
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = truth[decision.positions] + 0.1 * rng.standard_normal(3)
        feedback = Feedback(positions=decision.positions, rewards=rewards)
        policy.learn(offer, decision, feedback, rng)
        assert decision.mean is not None
        assert decision.std is not None
        return Moments(decision.mean, decision.std)

    return round_


def _by_hand() -> Round:
    peer = ReadmeRound(ROUNDS, lambda step: SCHEDULE.width(step, lambda _: 0.0))
    rng = np.random.default_rng(0)

    def round_(step: int) -> Moments:
        arms = rng.random((20, 2))
        truth = np.sin(5.0 * arms).sum(axis=1)
        chosen, mean, std = peer.decide(arms, step)
        peer.learn(truth[chosen] + 0.1 * rng.standard_normal(3))
        return Moments(mean, std)

    return round_


def rows(quick: bool) -> list[Row]:
    loops = 2 if quick else 40
    times: dict[str, list[Spent]] = {"ours": [], "theirs": []}
    difference = 0.0
    with without_gc():
        for loop in range(loops):
            contenders = {"ours": _ours(), "theirs": _by_hand()}
            for step in range(1, ROUNDS + 1):
                answers: dict[str, Moments] = {}

                def work(
                    name: str,
                    play: Round,
                    at: int,
                    answers: dict[str, Moments] = answers,
                ) -> None:
                    answers[name] = play(at)

                for name, play in contenders.items():
                    taken = spent(partial(work, name, play, step))
                    if loop:  # the first loop warms up
                        times[name].append(taken)
                difference = max(
                    difference, answers["ours"].difference(answers["theirs"])
                )
    kinds = (("median", median_spent), ("mean", mean_spent))
    return [
        row(
            f"README round, {kind}",
            of(times["ours"]),
            ReadmeRound.name,
            of(times["theirs"]),
            difference,
        )
        for kind, of in kinds
    ]
