"""Averages over seeds, their errors, and the bands around them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.lab.simulation.run import Run

Band = Literal["stderr", "std"]
"""Half the height of a band: the standard error of the mean, or the deviation between seeds."""


class Average(NamedTuple):
    """One number's mean over seeds, with its standard error (0 for a single seed)."""

    mean: float
    stderr: float


def mean_stderr(values: Floats) -> tuple[Floats, Floats]:
    """Return the mean over the first axis and its standard error.

    Args:
        values: One row for each seed, (seeds, …).
    """
    count = len(values)
    mean = values.mean(axis=0)
    if count == 1:
        return mean, np.zeros(values.shape[1:])
    std = values.std(axis=0, ddof=1)
    return mean, std / np.sqrt(count)


def mean_band(values: Floats, band: Band) -> tuple[Floats, Floats]:
    """Return the mean over the first axis and half the height of a band around it.

    Args:
        values: One row for each seed, (seeds, …).
        band: The kind of band.
    """
    mean, stderr = mean_stderr(values)
    if band == "std":
        return mean, stderr * np.sqrt(len(values))
    return mean, stderr


def band_text(run: Run, band: Band) -> str:
    """Describe the bands of a chart.

    Args:
        run: The run in the chart.
        band: The kind of band.
    """
    seeds = len(run.seeds)
    if seeds == 1:
        return "one seed"
    half = "standard error" if band == "stderr" else "standard deviation"
    return f"mean ± 1 {half} over {seeds} seeds"


def average(values: Floats) -> Average:
    """Average one number per seed.

    Args:
        values: (seeds,).

    >>> average(np.array([1.0, 3.0]))
    Average(mean=2.0, stderr=1.0)
    """
    mean, stderr = mean_stderr(values)
    return Average(float(mean), float(stderr))


def noise_limit(seeds: int) -> float:
    """Standard errors to either end of a 95 % interval for a mean, by Student's t.

    Args:
        seeds: The number of seeds.

    >>> [round(noise_limit(seeds), 2) for seeds in (2, 3, 5, 25)]
    [12.71, 4.3, 2.78, 2.06]
    """
    from scipy.special import stdtrit

    return float(stdtrit(seeds - 1, 0.975))
