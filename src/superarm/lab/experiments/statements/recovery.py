"""Section 5.2 of *Time-Varying Gaussian Process Bandit Optimization (2016)*: recovery from drops.

A sudden change is a round in which the best sensor of the round before has dropped by an amount among
the largest 5 % (three rounds at least). Recovery is the mean regret of the five rounds after that
round, less that of the five before it, averaged over changes; smaller is quicker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.lab.experiments.claims import Margin, Verdict
from superarm.lab.problems.series import SensorSeries
from superarm.lab.results.formats import mean_text
from superarm.lab.results.settings import sharing_of

from .judging import few_seeds_text, size_text, word_of_margin
from .recorded import RecordedRun

_SUDDEN = 0.05  # the share of rounds that count as sudden changes
_AFTER = 5  # rounds before and after a sudden change
_FEWEST = 3  # sudden changes

AssumedDrift = Callable[[RecordedRun, str, int], float | None]


def recovery(recorded: RecordedRun, forgetting: AssumedDrift) -> Iterator[Verdict]:
    """After the sensor that was best has dropped most: regret, less that from before the drop.

    Args:
        recorded: a run on sensors whose readings were recorded round by round.
        forgetting: ε that a policy forgets by in a setting; ``None`` for policies that are not judged.
    """
    run = recorded.run
    for index in range(len(run.settings)):
        setting_world = recorded.world(run.seeds[0], index)
        if not isinstance(setting_world, SensorSeries):
            continue
        changes = sudden_changes(setting_world.readings[: run.rounds])
        if len(changes) < _FEWEST:
            continue
        drifts = {
            policy: forgetting(recorded, policy, index) for policy in run.policies
        }
        forgetful = [
            policy
            for policy, drift in drifts.items()
            if drift is not None and drift > 0.0
        ]
        static = [policy for policy, drift in drifts.items() if drift == 0.0]
        for policy in forgetful:
            for rival in static:
                yield _recovers(recorded, index, policy, rival, changes)


def sudden_changes(readings: Floats) -> list[int]:
    """Rounds, counted from 1, in which the best sensor of the round before drops most.

    Args:
        readings: (T, n), a row for each round.
    """
    before = readings[:-1]
    after = readings[1:]
    best = before.argmax(axis=1)
    steps = np.arange(len(best))
    drops = before[steps, best] - after[steps, best]  # of round t = 2, 3, …
    rounds = steps + 2
    usable = (rounds > _AFTER) & (rounds + _AFTER <= len(readings)) & (drops > 0.0)
    count = max(_FEWEST, math.ceil(_SUDDEN * len(readings)))
    largest = np.argsort(-drops[usable], kind="stable")[:count]
    return sorted(int(step) for step in rounds[usable][largest])


def _recovers(
    recorded: RecordedRun, index: int, policy: str, rival: str, changes: list[int]
) -> Verdict:
    run = recorded.run
    own = _around(recorded, policy, index, changes)
    other = _around(recorded, rival, index, changes)
    scale = max(abs(float(own.rise.mean())), abs(float(other.rise.mean())))
    margin = Margin(f"{rival} − {policy}", other.rise - own.rise, scale)
    evidence = (
        f"{recorded.where(index)}around {len(changes)} sudden drops of the best sensor, mean regret "
        f"of the {_AFTER} rounds after less that of the {_AFTER} before: {policy} "
        f"{mean_text(own.rise)} ({mean_text(own.before)} before, {mean_text(own.after)} after), "
        f"{rival} {mean_text(other.rise)} ({mean_text(other.before)} before, "
        f"{mean_text(other.after)} after) {size_text(run)}"
    )
    return Verdict(
        f"Section 5.2: {policy} recovers more quickly from sudden changes than {rival}",
        word_of_margin(margin, sharing_of(run, [index])),
        evidence + few_seeds_text(run),
    )


class _Around(NamedTuple):
    """Mean regret of rounds before and after sudden changes, (seeds,)."""

    before: Floats
    after: Floats

    @property
    def rise(self) -> Floats:
        return self.after - self.before


def _around(
    recorded: RecordedRun, policy: str, index: int, changes: list[int]
) -> _Around:
    totals = recorded.run.cumulative(policy, index).astype(np.float64)
    regrets = np.diff(totals, axis=1, prepend=0.0)  # column t − 1 is round t
    before = [regrets[:, step - 1 - _AFTER : step - 1].mean(axis=1) for step in changes]
    after = [regrets[:, step : step + _AFTER].mean(axis=1) for step in changes]
    return _Around(np.mean(before, axis=0), np.mean(after, axis=0))
