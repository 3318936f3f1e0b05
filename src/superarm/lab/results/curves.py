"""Curves over the rounds of a run, and how they grow."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.lab.simulation.run import Run


class Curve(NamedTuple):
    """A mean over seeds at some rounds."""

    rounds: NDArray[np.intp]
    mean: Floats


def spaced_rounds(
    rounds: int, points: int = 600, log: bool = False
) -> NDArray[np.intp]:
    """Return some of the rounds 1 … ``rounds``, ends included, evenly spaced on an axis.

    Args:
        rounds: The last round.
        points: The largest number of rounds to return.
        log: Whether the axis is logarithmic.
    """
    space = np.geomspace if log else np.linspace
    count = min(points, rounds)
    places = space(1, rounds, count)
    nearest = np.rint(places).astype(np.intp)
    return np.unique(nearest)


def totals_at(
    run: Run,
    policy: str,
    setting_index: int,
    rounds: NDArray[np.intp],
    metric: str = "regret",
) -> Floats:
    """Running totals of a metric after some rounds, (seeds, n).

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        rounds: The rounds, (n,).
        metric: The metric's name.
    """
    totals = run.cumulative(policy, setting_index, metric)
    return totals[:, rounds - 1]


def regret_curve(
    run: Run, policy: str, setting_index: int = 0, points: int = 600
) -> Curve:
    """Cumulative regret, averaged over seeds, in rounds evenly spaced on a log axis.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        points: The largest number of rounds.
    """
    rounds = spaced_rounds(run.rounds, points, log=True)
    totals = totals_at(run, policy, setting_index, rounds)
    return Curve(rounds, totals.mean(axis=0))


def growth_exponent(run: Run, policy: str, setting_index: int = 0) -> float:
    """The slope p of regret ∝ t^p over the last half of the rounds; NaN where undefined.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
    """
    return growth_of(regret_curve(run, policy, setting_index))


def growth_of(curve: Curve) -> float:
    """The slope p of a curve ∝ t^p over the last half of its rounds; NaN where undefined.

    Args:
        curve: The curve, fitted on log–log axes.
    """
    last = curve.rounds[-1]
    late = 2 * curve.rounds >= last
    rounds = curve.rounds[late]
    mean = curve.mean[late]
    if len(rounds) < 3 or mean.min() <= 0.0:
        return float("nan")
    x = np.log(rounds)
    y = np.log(mean)
    slope, _ = np.polyfit(x, y, 1)
    return float(slope)


def seconds_curve(
    run: Run, policy: str, setting_index: int = 0, points: int = 120
) -> Curve:
    """Mean seconds per round over all seeds, in consecutive stretches of rounds.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        points: The largest number of stretches; the curve is drawn at their last rounds.
    """
    stretches = _stretches(run, policy, setting_index, points)
    means = [stretch.seconds.mean(dtype=float) for stretch in stretches]
    last_rounds = [stretch.last for stretch in stretches]
    return Curve(np.array(last_rounds), np.array(means))


def seconds_by_seed(
    run: Run, policy: str, setting_index: int = 0, points: int = 30
) -> list[Curve]:
    """For each seed, the median seconds of a round in consecutive stretches of rounds.

    Medians, because a busy machine or garbage collection makes single rounds long.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        points: The largest number of stretches; curves are drawn at their last rounds.
    """
    stretches = _stretches(run, policy, setting_index, points)
    last_rounds = []
    medians = []
    for stretch in stretches:
        last_rounds.append(stretch.last)
        of_each_seed = np.median(stretch.seconds, axis=1)
        medians.append(of_each_seed.astype(np.float64))
    rounds = np.array(last_rounds)
    by_seed = np.stack(medians, axis=1)  # (seeds, stretches)
    return [Curve(rounds, seconds) for seconds in by_seed]


class _Stretch(NamedTuple):
    """The times of consecutive rounds."""

    seconds: NDArray[np.float32]  # (seeds, rounds)
    last: int  # its last round


def _stretches(
    run: Run, policy: str, setting_index: int, points: int
) -> list[_Stretch]:
    """The rounds of a run in at most ``points`` stretches of about equal length.

    The first round, which compiles code, is left out unless it is the only one.
    """
    skipped = min(1, run.rounds - 1)
    count = run.rounds - skipped
    places = np.linspace(0, count, min(points, count) + 1)
    edges = np.unique(places.astype(np.intp)) + skipped
    seconds = run.seconds(policy, setting_index)
    stretches = []
    for start, stop in pairwise(edges.tolist()):
        stretches.append(_Stretch(seconds[:, start:stop], stop))
    return stretches
