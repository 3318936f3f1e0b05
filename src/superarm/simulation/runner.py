"""The simulator: one of the drivers of Offer → Decision → Feedback.

Every policy meets the same offers and the same noise: both depend on (seed, step) alone, and
noise is drawn for all arms before anyone chooses. So all policies of a seed run side by side,
a block of rounds at a time, and share each block's offers and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import (
    Decision,
    Feedback,
    Floats,
    Ints,
    Offer,
    Policy,
    Problem,
    TablePlayer,
    TableProblem,
)
from superarm.errors import InputError
from superarm.streams import Streams

_BLOCK_NUMBERS = 1 << 18
"""How many noise values a block may hold: a few megabytes, whatever the number of arms."""


class Trajectory(NamedTuple):
    """What one policy did and how it fared, round by round."""

    series: Mapping[str, Floats]
    """Metrics of each round, (T,); ``regret`` always."""
    choices: NDArray[np.int32]
    """Chosen positions, (T, k), padded with −1."""
    seconds: NDArray[np.float32]
    """Time spent deciding and learning, (T,)."""


Watch = Callable[[str, Offer, Decision, Feedback], None]
"""Hears of every round once it is learned from: policy, offer, decision, feedback."""


class _Round(NamedTuple):
    step: int
    offer: Offer
    noise: Floats
    best: float


class _Recorder:
    """One policy's way through the rounds."""

    def __init__(self, name: str, policy: Policy, seed: int, rounds: int, watch: Watch | None) -> None:
        self.name = name
        self.policy = policy
        self._watch = watch
        self._decide_streams = Streams(seed, f"policy:{name}")
        self._learn_streams = Streams(seed, f"learn:{name}")
        self._series: dict[str, Floats] = {"regret": np.zeros(rounds)}
        self._choices: list[Ints] = []  # of a round (k,), or of a block of them (T, 1)
        self._seconds = np.zeros(rounds, dtype=np.float32)

    def play(self, problem: Problem, block: list[_Round]) -> None:
        """Play a block of rounds: at once where problem and policy allow it, else one by one."""
        if not self._play_at_once(problem, block):
            self._play_one_by_one(problem, block)

    def _play_at_once(self, problem: Problem, block: list[_Round]) -> bool:
        policy, first = self.policy, block[0]
        if (
            self._watch is not None
            or not isinstance(problem, TableProblem)
            or not isinstance(policy, TablePlayer)
            or any(each.offer.arms is not first.offer.arms for each in block)
        ):
            return False
        rewards = problem.table(np.stack([each.noise for each in block]))
        start = perf_counter()
        played = policy.play_table(first.offer, rewards, self._decide_streams.at)
        elapsed = perf_counter() - start
        if played is None:
            return False
        steps = slice(first.step - 1, block[-1].step)
        sign = 1.0 if problem.direction == "maximize" else -1.0
        best = np.array([each.best for each in block])
        self._series["regret"][steps] = sign * (best - problem.values(played))
        self._seconds[steps] = elapsed / len(block)
        self._choices.append(played[:, None])
        return True

    def _play_one_by_one(self, problem: Problem, block: list[_Round]) -> None:
        policy, series, rounds = self.policy, self._series, len(self._seconds)
        sign = 1.0 if problem.direction == "maximize" else -1.0
        regret = series["regret"]
        # A deterministic policy leaves its generator alone, so there is no need to set it.
        chance = not policy.deterministic
        decide_rng = self._decide_streams.at(block[0].step)
        learn_rng = self._learn_streams.at(block[0].step)
        for step, offer, noise, best in block:
            if chance:
                decide_rng = self._decide_streams.at(step)
                learn_rng = self._learn_streams.at(step)
            start = perf_counter()
            decision = policy.decide(offer, decide_rng)
            policy.commit(decision)
            middle = perf_counter()
            positions = decision.positions
            rewards = problem.pull(offer, positions, noise)
            feedback = Feedback(positions=positions, rewards=rewards)
            again = perf_counter()
            policy.learn(offer, decision, feedback, learn_rng)
            self._seconds[step - 1] = perf_counter() - again + middle - start
            regret[step - 1] = sign * (best - problem.value(offer, positions))
            self._choices.append(positions)
            if self._watch is not None:
                self._watch(self.name, offer, decision, feedback)
            for metric, value in problem.metrics(offer, positions, rewards).items():
                if metric not in series:
                    series[metric] = np.zeros(rounds)
                series[metric][step - 1] = value

    def trajectory(self) -> Trajectory:
        most = max(chosen.shape[-1] for chosen in self._choices)
        choices = np.full((len(self._seconds), most), -1, dtype=np.int32)
        row = 0
        for chosen in self._choices:
            rows = chosen if chosen.ndim == 2 else chosen[None, :]
            choices[row : row + len(rows), : rows.shape[1]] = rows
            row += len(rows)
        return Trajectory(self._series, choices, self._seconds)


def simulate(
    problem: Problem,
    policies: Mapping[str, Policy],
    *,
    rounds: int,
    seed: int,
    watch: Watch | None = None,
) -> dict[str, Trajectory]:
    """Run every policy for ``rounds`` rounds; ``watch`` hears of each one."""
    if rounds < 1:
        raise InputError(f"rounds is {rounds}; run at least one")
    recorders = [_Recorder(name, policy, seed, rounds, watch) for name, policy in policies.items()]
    noise_streams = Streams(seed, "noise")
    step = 1
    while step <= rounds:
        block: list[_Round] = []
        numbers = 0
        while step <= rounds and (not block or numbers < _BLOCK_NUMBERS):
            offer = problem.offer(step)
            noise = problem.noise(offer, noise_streams.at(step))
            block.append(_Round(step, offer, noise, problem.best(offer)))
            numbers += math.prod(offer.arms.features.shape) + len(noise)
            step += 1
        for recorder in recorders:
            recorder.play(problem, block)
    return {name: recorder.trajectory() for name, recorder in zip(policies, recorders, strict=True)}
