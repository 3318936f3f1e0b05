"""Which sensor reads highest? Figure 4 of On Kernelized Multi-armed Bandits (2017).

Arms are sensors. Their covariance and mean are learned from past readings; the function to be
maximised is one later row of readings, the same throughout a run. Each seed takes a different row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import gcd, sqrt
from typing import NamedTuple

import numpy as np

from superarm.core import Arms, Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, as_positive, require_choice
from superarm.core.registry import register
from superarm.core.streams import stream
from superarm.kernels import Empirical, SquaredExponential
from superarm.lab.datasets import INTEL_MOTES, load_cmu_light, load_intel_temperature

from .finite import (
    FiniteProblem,
    gaussian_draw,
    hilbert_norm,
    kernelized_problem,
    representer,
)
from .sources import from_source

# The Intel file has a row every 30 seconds, and no clock. Half-hour means of the same readings in
# another extract fit its rows (to 0.05 °C, four days running) if the file starts 47 to 52 minutes
# after that extract's day does. Taking that as midnight, the heating, which rises at the same row
# on days 1–4, starts just after 6 am. Day 5 warms late and slowly, like a day off; it is a test day.
_ROWS_A_DAY = 2880
_ROWS_AN_HOUR = 120
_ROWS_A_MINUTE = 2
_START_MINUTE = 50
_LEARNING_DAYS = range(0, 3)
_TEST_DAYS = range(3, 5)
_MORNINGS = len(_LEARNING_DAYS)
GLITCH_BELOW = 5.0
"""Temperatures below it are glitches, in °C."""
_MEMORY = 0.98  # correlation of a synthetic row with the one before


@dataclass(frozen=True, kw_only=True, eq=False)
class SensorRows:
    """Readings to learn the model from, and readings to test on.

    Args:
        ids: The sensors' ids.
        learn: Learning rows, (m, n).
        test: Test rows, (q, n).
        origin: Where they come from, in words.
        folds: Number of parts, each of consecutive rows, into which the learning rows fall for
            cross-validation.
    """

    ids: Sequence[Hashable]
    learn: Floats
    test: Floats
    origin: str
    folds: int = 5

    def held_out(self, seed: int) -> SensorRows:
        """The learning rows alone: one of their parts to test on, the others to learn from.

        Args:
            seed: The seed; seeds take the parts in turn.
        """
        parts = np.array_split(self.learn, self.folds)
        test = parts.pop(seed % self.folds)
        origin = f"{self.origin}. Tested on learning rows, of which {len(test)} in a row are held out"
        learn = np.concatenate(parts)
        return replace(self, learn=learn, test=test, origin=origin)


@register("problem", "temperature-sensors")
def temperature_sensors(
    *,
    seed: int,
    horizon: int,
    source: str = "auto",
    start_minute: int = _START_MINUTE,
    noise_fraction: float = 0.05,
    prior_mean: str = "learned",
    norm: str = "mean",
    units: str = "raw",
    regularisation: str = "noise",
    gamma: float = 1.0,
    rows: str = "test",
) -> FiniteProblem:
    """The warmest of 52 sensors between 8 and 9 am in the Intel Berkeley lab.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        source: Real data, synthetic data of the same shape, or auto: real where available.
        start_minute: Minutes after midnight at the first row of the real file, which has no clock:
            50 fits best.
        noise_fraction: The noise variance as a share of the range or variance of the truth.
        prior_mean: The mean of the training rows (learned), or zero, as in On Kernelized
            Multi-armed Bandits (2017).
        norm: How B is chosen from the norms of the training rows less the prior mean: their mean,
            the largest, or printed: the mean of √(fᵀKf), as section 6 has it.
        units: Readings as they come (raw), or in units of the most variable sensor's standard
            deviation (unit), so that k ≤ 1, which the widths need.
        regularisation: The λ that learners use: noise is the true noise variance, theory is 1 +
            2/T.
        gamma: The constant information gain γ_t; the paper found 1 by cross-validation.
        rows: Which rows to test on: test (the later ones) or held-out (some of the learning rows,
            for cross-validation).
    """
    if as_count(start_minute, "start_minute", least=0) > 8 * 60:
        raise InputError(
            f"start_minute must be at most 480, which is 8 am, got {start_minute}"
        )
    readings = from_source(source, lambda: _intel_rows(start_minute), _warm_room)
    return _sensor_problem(
        readings,
        seed,
        horizon,
        noise_fraction=noise_fraction,
        prior_mean=prior_mean,
        norm=norm,
        units=units,
        regularisation=regularisation,
        gamma=gamma,
        tested_on=rows,
    )


@register("problem", "light-sensors")
def light_sensors(
    *,
    seed: int,
    horizon: int,
    source: str = "auto",
    noise_fraction: float = 0.05,
    prior_mean: str = "learned",
    norm: str = "mean",
    units: str = "raw",
    regularisation: str = "noise",
    gamma: float = 1.0,
    rows: str = "test",
) -> FiniteProblem:
    """The brightest of 41 light sensors in the CMU Intelligent Workplace.

    601 rows to learn from and 192 to test on, as the data come.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        source: Real data, synthetic data of the same shape, or auto: real where available.
        noise_fraction: The noise variance as a share of the range or variance of the truth.
        prior_mean: The mean of the training rows (learned), or zero, as in On Kernelized
            Multi-armed Bandits (2017).
        norm: How B is chosen from the norms of the training rows less the prior mean: their mean,
            the largest, or printed: the mean of √(fᵀKf), as section 6 has it.
        units: Readings as they come (raw), or in units of the most variable sensor's standard
            deviation (unit), so that k ≤ 1, which the widths need.
        regularisation: The λ that learners use: noise is the true noise variance, theory is 1 +
            2/T.
        gamma: The constant information gain γ_t; the paper found 1 by cross-validation.
        rows: Which rows to test on: test (the later ones) or held-out (some of the learning rows,
            for cross-validation).
    """
    readings = from_source(source, _cmu_rows, _lit_room)
    return _sensor_problem(
        readings,
        seed,
        horizon,
        noise_fraction=noise_fraction,
        prior_mean=prior_mean,
        norm=norm,
        units=units,
        regularisation=regularisation,
        gamma=gamma,
        tested_on=rows,
    )


def row_of_seed(seed: int, rows: int) -> int:
    """The row that a seed is tested on: every row once in ``rows`` seeds, early ones far apart.

    Steps of about 1/1.618 of all rows, coprime to their number, visit all of them and cover
    them evenly at any moment (the three-distance theorem).

    Args:
        seed: The seed.
        rows: Number of rows.

    >>> [row_of_seed(seed, 240) for seed in range(5)]
    [0, 149, 58, 207, 116]
    """
    stride = round(rows * (sqrt(5.0) - 1.0) / 2.0)
    while gcd(stride, rows) != 1:
        stride += 1
    return seed * stride % rows


def effective_rows(readings: Floats) -> float:
    """How many independent rows have a mean as uncertain as that of some rows in time order.

    m / (1 + 2 Σ_k r_k) with r_k the correlation of a row with the k-th after it, over all
    sensors, up to the first r_k that is not above zero. At least 2: fewer rows have no spread.

    Args:
        readings: (m, n).

    >>> effective_rows(np.array([[1.0], [-1.0]] * 8))
    16.0
    """
    count = len(readings)
    centred = readings - readings.mean(axis=0)
    total = float(np.sum(centred**2))
    correlation_time = 1.0  # 1 + 2 Σ_k r_k
    if total > 0.0:
        for lag in range(1, count):
            correlation = float(np.sum(centred[:-lag] * centred[lag:])) / total
            if correlation <= 0.0:
                break
            correlation_time += 2.0 * correlation
    return max(2.0, count / correlation_time)


def repair_glitches(readings: Floats, below: float) -> Floats:
    """Interpolate low readings between the sensor's neighbouring good ones.

    Args:
        readings: A column for each sensor, (m, n).
        below: Readings below it are glitches.
    """
    repaired = np.array(readings)
    rows = np.arange(len(repaired))
    has_glitches = (repaired < below).any(axis=0)  # by sensor
    for sensor in np.flatnonzero(has_glitches):
        series = repaired[:, sensor]
        good = series >= below
        glitches = ~good
        between = np.interp(rows[glitches], rows[good], series[good])
        series[glitches] = between
    return repaired


def _sensor_problem(
    rows: SensorRows,
    seed: int,
    horizon: int,
    *,
    noise_fraction: float,
    prior_mean: str,
    norm: str,
    units: str,
    regularisation: str,
    gamma: float,
    tested_on: str,
) -> FiniteProblem:
    as_count(seed, "seed", least=0)
    gamma = as_number(gamma, "gamma", least=0.0)
    require_choice(prior_mean, "prior_mean", ("learned", "zero"))
    require_choice(norm, "norm", ("mean", "largest", "printed"))
    require_choice(units, "units", ("raw", "unit"))
    require_choice(tested_on, "rows", ("test", "held-out"))
    if tested_on == "test":
        shared = 1.0 / effective_rows(rows.test)
        turn = seed
    else:
        shared = 1.0 / effective_rows(rows.learn)
        turn = seed // rows.folds
        rows = rows.held_out(seed)
    if units == "unit":
        variances = rows.learn.var(axis=0, ddof=1)
        largest = float(np.sqrt(variances.max()))
        rows = replace(rows, learn=rows.learn / largest, test=rows.test / largest)
    fraction = as_positive(noise_fraction, "noise_fraction")
    covariance = np.cov(rows.learn, rowvar=False)
    n = len(covariance)
    mean = rows.learn.mean(axis=0) if prior_mean == "learned" else np.zeros(n)
    total_variance = float(np.trace(covariance))
    noise_variance = fraction * total_variance / n
    norm_bound = _norm_bound(rows, mean, covariance, noise_variance, norm)
    # The kernel is a table: an arm's only feature is its row number in it.
    numbers = np.arange(n, dtype=np.float64)
    tested_row = row_of_seed(turn, len(rows.test))
    return kernelized_problem(
        arms=Arms(ids=rows.ids, features=numbers[:, None]),
        truth=rows.test[tested_row],
        kernel=Empirical(covariance=covariance, column=0),
        norm_bound=norm_bound.value,
        noise_variance=noise_variance,
        gain={"name": "constant", "value": gamma},
        regularisation=regularisation,
        horizon=horizon,
        mean=mean,
        shared_data=shared,
        independent_seeds=1.0 / shared,
        interpretations={
            "units": "readings as they come"
            if units == "raw"
            else "readings scaled so that k ≤ 1",
            "data": rows.origin,
            "function": f"one of {len(rows.test)} test rows, the readings themselves; "
            "each seed takes a different one",
            "kernel": f"empirical covariance of {len(rows.learn)} learning rows",
            "prior mean": "zero, as printed"
            if prior_mean == "zero"
            else "that of the learning rows",
            "rkhs norm": norm_bound.description,
            "noise": f"Gaussian, variance R² = {fraction:g} of the sensors' average variance",
            "information gain": (
                "γ = 1, as the paper found by cross-validation"
                if gamma == 1.0
                else f"γ = {gamma:g}"
            ),
            "seeds": (
                "rows that follow each other are alike: in the readings there are about "
                f"{1.0 / shared:.1f} independent rows, so that all seeds together count as no more, and "
                f"any two are taken to have {100.0 * shared:.0f} % of their data in common"
            ),
        },
    )


class _NormBound(NamedTuple):
    """The bound B on the norm of functions in the kernel's Hilbert space."""

    value: float
    description: str


def _norm_bound(
    rows: SensorRows,
    mean: Floats,
    covariance: Floats,
    noise_variance: float,
    norm: str,
) -> _NormBound:
    """The mean or largest norm of the learning rows, by the choice of ``norm``."""

    def norms_of(readings: Floats) -> Floats:
        weights = (readings - mean).T
        if norm != "printed":
            weights = representer(covariance, noise_variance, weights)
        return hilbert_norm(covariance, weights)

    norms = norms_of(rows.learn)
    mean_norm = norms.mean()
    relative_norm = norms_of(rows.test).max() / mean_norm
    if norm == "largest":
        pick = "largest"
        value = norms.max()
    else:
        pick = "mean"
        value = mean_norm
    length = "√(αᵀKα), α = (K + R²I)⁻¹f"
    if norm == "printed":
        length = "√(fᵀKf), as printed"
    description = (
        f"B = {pick} over learning rows f, less the prior mean, of {length}; "
        "the paper only says that parameters are learned. Test rows reach "
        f"{relative_norm:.1f} times the learning rows' mean norm"
    )
    return _NormBound(float(value), description)


def _intel_rows(start_minute: int = _START_MINUTE) -> SensorRows:
    readings = repair_glitches(load_intel_temperature(), below=GLITCH_BELOW)
    eight_am = 8 * _ROWS_AN_HOUR - start_minute * _ROWS_A_MINUTE

    def mornings(days: range) -> Floats:
        hours = []
        for day in days:
            start = day * _ROWS_A_DAY + eight_am
            hours.append(readings[start : start + _ROWS_AN_HOUR])
        return np.concatenate(hours)

    origin = (
        "Intel Berkeley lab, 52 sensors, 5 days of data: 8–9 am of days 1–3 to learn, of days 4–5 "
        f"to test. The file has no clock; its first row is taken as {start_minute} minutes "
        f"after midnight. Readings under {GLITCH_BELOW:g} °C are interpolated in time"
    )
    return SensorRows(
        ids=INTEL_MOTES,
        learn=mornings(_LEARNING_DAYS),
        test=mornings(_TEST_DAYS),
        origin=origin,
        folds=_MORNINGS,
    )


def _cmu_rows() -> SensorRows:
    data = load_cmu_light()
    origin = "CMU Intelligent Workplace, 41 sensors, 601 rows to learn, 192 to test, as supplied"
    return SensorRows(
        ids=range(data.train.shape[1]), learn=data.train, test=data.test, origin=origin
    )


@cache
def made_room(
    kind: str,
    *,
    sensors: int,
    learn: int,
    test: int,
    level: float,
    spread: float,
    folds: int = 5,
) -> SensorRows:
    """Synthetic sensors in a room, alike when near, drifting smoothly from row to row.

    The same for every seed, as real data would be: seeds differ in the row they are tested on.
    A lasting pattern over the room has 0.36 of the variance, a slowly moving one the rest.

    Args:
        kind: What sensors measure.
        sensors: Number of sensors.
        learn: Number of learning rows.
        test: Number of test rows.
        level: Mean of the readings.
        spread: Their standard deviation.
        folds: Number of parts for cross-validation.
    """
    rng = stream(0, f"made-{kind}", 0)
    K = SquaredExponential(lengthscale=0.3)(rng.random((sensors, 2)))
    lasting = gaussian_draw(K, rng)
    moving = gaussian_draw(K, rng)
    readings = np.empty((learn + test, sensors))
    for row in readings:
        row[:] = level + spread * (0.6 * lasting + 0.8 * moving)
        moving = _MEMORY * moving + sqrt(1.0 - _MEMORY**2) * gaussian_draw(K, rng)
    jitter = 0.05 * spread * rng.standard_normal(readings.shape)  # each sensor's own
    readings += jitter
    origin = f"{sensors} {kind} sensors, {learn} rows to learn, {test} to test, synthetic data"
    return SensorRows(
        ids=range(sensors),
        learn=readings[:learn],
        test=readings[learn:],
        origin=origin,
        folds=folds,
    )


_warm_room = partial(
    made_room,
    "temperature",
    sensors=52,
    learn=360,
    test=240,
    level=22.0,
    spread=2.0,
    folds=_MORNINGS,
)
_lit_room = partial(
    made_room, "light", sensors=41, learn=601, test=192, level=400.0, spread=80.0
)
