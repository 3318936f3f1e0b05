"""Hyper-parameters of a model of losses over altitudes and hours, by maximum likelihood."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import read_only
from superarm.kernels import Periodic, SquaredExponential

from .wind_days import HOURS, WindDays, power

# Bounds of ln(lengthscale) over altitudes and over hours, and of ln(variance).
_BOUNDS = ((-3.0, 3.0), (-3.0, 3.0), (-12.0, 3.0))
_START = (1.0, 1.0, 0.05)  # the same, not as logarithms


class LossFit(NamedTuple):
    """A model of losses, for ρ = 1."""

    space: SquaredExponential  # over ln(altitude)
    time: Periodic  # over the hour
    mean: float
    noise_variance: float
    misfit: float  # minus the log-likelihood, but for a constant


class _Losses(NamedTuple):
    """Mean losses of some days, from which a model is fitted."""

    table: Floats  # Y, (24, n)
    noise_variance: float  # of a single day
    days: int
    rows: Floats  # features of all arms, (24 n, 2)


def altitude_rows(altitudes: Floats) -> Floats:
    """Features of all arms, hour by hour, (24 n, 2): ln(altitude) and hour.

    Args:
        altitudes: In m, (n,).
    """
    hours, heights = np.meshgrid(np.arange(HOURS), np.log(altitudes), indexing="ij")
    return read_only(np.column_stack([heights.ravel(), hours.ravel()]))


@lru_cache(maxsize=64)  # it is the same for any ρ
def fit_losses(
    wind: WindDays, used: tuple[int, ...], curve: tuple[float, ...]
) -> LossFit:
    """Fit the hyper-parameters under which mean losses of some days are most likely.

    The variance of the noise is not fitted: it is that between days.

    Args:
        wind: All days.
        used: Days to leave out, because a run uses them.
        curve: Wind speeds at which a turbine cuts in, reaches its rated power and cuts out,
            in m/s.
    """
    from scipy.optimize import minimize

    losses = _mean_losses(wind, used, curve)

    def misfit(theta: Floats) -> float:
        return _fit(losses, theta).misfit

    best = minimize(
        misfit,
        np.log(_START),
        method="Nelder-Mead",
        bounds=_BOUNDS,
        options={"xatol": 1e-6},
    )
    return _fit(losses, best.x)


def _mean_losses(
    wind: WindDays, used: tuple[int, ...], curve: tuple[float, ...]
) -> _Losses:
    unused_speeds = np.delete(wind.speeds, used, axis=0)
    E = power(unused_speeds, *curve)  # (days, 24, n)
    loss = E.max(axis=2, keepdims=True) - E
    if not loss.any():
        raise InputError(
            f"with cut_in, rated and cut_out {curve} no altitude is better than another"
        )
    variance_between_days = loss.var(axis=0, ddof=1)  # (24, n)
    return _Losses(
        table=loss.mean(axis=0),
        noise_variance=float(variance_between_days.mean()),
        days=len(E),
        rows=altitude_rows(wind.altitudes),
    )


def _fit(losses: _Losses, theta: Floats) -> LossFit:
    """The model with given hyper-parameters, and its likelihood.

    Losses are a whole table Y, (24, n): with K₁ = UAUᵀ over hours and K₂ = VBVᵀ over
    altitudes, their covariance is diagonal in the basis UᵀYV.

    Args:
        losses: The losses.
        theta: Logarithms of the lengthscales over altitudes and hours, and of the variance.
    """
    space_scale, time_scale, variance = np.exp(theta)
    space = SquaredExponential(lengthscale=space_scale, variance=variance, columns=(0,))
    time = Periodic(period=float(HOURS), lengthscale=time_scale, columns=(1,))
    table = losses.table  # Y
    n = table.shape[1]
    hours = losses.rows[::n]  # rows of the first altitude
    altitudes = losses.rows[:n]  # rows of the first hour
    A, U = np.linalg.eigh(time(hours))
    B, V = np.linalg.eigh(space(altitudes))
    noise = losses.noise_variance / losses.days  # of the mean over days
    signal = np.maximum(np.outer(A, B), 0.0)
    spectrum = signal + noise
    rotated = U.T @ table @ V
    ones = np.outer(U.sum(axis=0), V.sum(axis=0))  # a constant table in that basis
    mean = _generalised_mean(rotated, ones, spectrum)
    residuals = (rotated - mean * ones) ** 2 / spectrum
    misfit = (residuals + np.log(spectrum)).sum() / 2.0
    return LossFit(
        space=space,
        time=time,
        mean=mean,
        noise_variance=losses.noise_variance,
        misfit=float(misfit),
    )


def _generalised_mean(rotated: Floats, ones: Floats, spectrum: Floats) -> float:
    """The most likely mean, by generalised least squares: 1ᵀC⁻¹y / 1ᵀC⁻¹1."""
    weighted_sum = (ones * rotated / spectrum).sum()
    weight = (ones**2 / spectrum).sum()
    return float(weighted_sum / weight)
