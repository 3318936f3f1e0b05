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
    """Whether policies that forget recover sooner than those that do not.

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
        judged = {
            policy: drift for policy, drift in drifts.items() if drift is not None
        }
        forgetful = [policy for policy, drift in judged.items() if drift > 0.0]
        static = [policy for policy, drift in judged.items() if drift == 0.0]
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
    rows = np.arange(len(best))
    drops = before[rows, best] - after[rows, best]  # in rounds 2, 3, …
    rounds = rows + 2
    last_round = len(readings)
    has_rounds_before = rounds > _AFTER
    has_rounds_after = rounds + _AFTER <= last_round
    usable = has_rounds_before & has_rounds_after & (drops > 0.0)
    usable_rounds = rounds[usable]
    largest_first = np.argsort(-drops[usable], kind="stable")
    count = max(_FEWEST, math.ceil(_SUDDEN * last_round))
    sudden = usable_rounds[largest_first[:count]]
    return sorted(int(step) for step in sudden)


def _recovers(
    recorded: RecordedRun, index: int, policy: str, rival: str, changes: list[int]
) -> Verdict:
    run = recorded.run
    regret = _regret_around(recorded, policy, index, changes)
    rival_regret = _regret_around(recorded, rival, index, changes)
    mean = float(regret.rise.mean())
    rival_mean = float(rival_regret.rise.mean())
    scale = max(abs(mean), abs(rival_mean))
    difference = rival_regret.rise - regret.rise
    margin = Margin(f"{rival} − {policy}", difference, scale)
    evidence = (
        f"{recorded.where(index)}around {len(changes)} sudden drops of the best sensor, mean regret "
        f"of the {_AFTER} rounds after less that of the {_AFTER} before: {policy} "
        f"{_rise_text(regret)}, {rival} {_rise_text(rival_regret)} {size_text(run)}"
    )
    return Verdict(
        f"Section 5.2: {policy} recovers more quickly from sudden changes than {rival}",
        word_of_margin(margin, sharing_of(run, [index])),
        evidence + few_seeds_text(run),
    )


class _RegretAround(NamedTuple):
    """Mean regret of rounds before and after sudden changes, (seeds,)."""

    before: Floats
    after: Floats

    @property
    def rise(self) -> Floats:
        """By how much regret is larger after the changes, (seeds,)."""
        return self.after - self.before


def _rise_text(regret: _RegretAround) -> str:
    before = mean_text(regret.before)
    after = mean_text(regret.after)
    return f"{mean_text(regret.rise)} ({before} before, {after} after)"


def _regret_around(
    recorded: RecordedRun, policy: str, index: int, changes: list[int]
) -> _RegretAround:
    totals = recorded.run.cumulative(policy, index).astype(np.float64)
    regrets = np.diff(totals, axis=1, prepend=0.0)  # (seeds, T)
    before = []
    after = []
    for step in changes:
        column = step - 1
        next_column = column + 1
        rounds_before = regrets[:, column - _AFTER : column]
        rounds_after = regrets[:, next_column : next_column + _AFTER]
        before.append(rounds_before.mean(axis=1))
        after.append(rounds_after.mean(axis=1))
    mean_before = np.mean(before, axis=0)
    mean_after = np.mean(after, axis=0)
    return _RegretAround(mean_before, mean_after)
