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


def thinned(rounds: int, points: int = 600, log: bool = False) -> NDArray[np.intp]:
    """Return some of the rounds 1 … ``rounds``, ends included, evenly spaced on an axis.

    Args:
        rounds: The last round.
        points: The largest number of rounds to return.
        log: Whether the axis is logarithmic.
    """
    space = np.geomspace if log else np.linspace
    places = space(1, rounds, min(points, rounds))
    return np.unique(np.rint(places).astype(np.intp))


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
    rounds = thinned(run.rounds, points, log=True)
    totals = run.cumulative(policy, setting_index)[:, rounds - 1]
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
    late = 2 * curve.rounds >= curve.rounds[-1]
    rounds = curve.rounds[late]
    mean = curve.mean[late]
    if len(rounds) < 3 or mean.min() <= 0.0:
        return float("nan")
    slope, _ = np.polyfit(np.log(rounds), np.log(mean), 1)
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
    stretches, ends = _stretches(run, policy, setting_index, points)
    means = [stretch.mean(dtype=float) for stretch in stretches]
    return Curve(ends, np.array(means))


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
    stretches, ends = _stretches(run, policy, setting_index, points)
    medians = [np.median(stretch, axis=1) for stretch in stretches]
    by_seed = np.stack(medians, axis=1)  # (seeds, stretches)
    return [Curve(ends, seed.astype(np.float64)) for seed in by_seed]


def _stretches(
    run: Run, policy: str, setting_index: int, points: int
) -> tuple[list[NDArray[np.float32]], NDArray[np.intp]]:
    """Seconds in consecutive stretches of rounds, (seeds, length) each, and their last rounds.

    The first round, which compiles code, is left out unless it is the only one.
    """
    skipped = min(1, run.rounds - 1)
    seconds = run.seconds(policy, setting_index)[:, skipped:]
    count = seconds.shape[1]
    places = np.linspace(0, count, min(points, count) + 1)
    edges = np.unique(places.astype(np.intp))
    stretches = [seconds[:, start:stop] for start, stop in pairwise(edges)]
    return stretches, edges[1:] + skipped
