"""Days of wind speeds, measured and synthetic, and the power that a turbine makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.streams import stream
from superarm.lab.datasets import (
    LIDAR_HEIGHTS,
    LidarWinds,
    WindShapes,
    load_lidar_winds,
    load_wind_shapes,
)

HOURS = 24
"""Hours of a day."""
_SYNTHETIC_DAYS = 72
_EARLY_DAYS = 10  # left out, so that the weather has settled
_MEMORY = 0.98  # correlation of the weather with that of the hour before


@dataclass(frozen=True, kw_only=True, eq=False)
class WindDays:
    """Wind speeds by day, hour and altitude, in m/s.

    Args:
        altitudes: In m, rising, (n,).
        speeds: In m/s, (days, 24, n).
        origin: Where they come from, in words.
    """

    altitudes: Floats
    speeds: Floats
    origin: str


def power(
    speeds: Floats, cut_in: float = 3.0, rated: float = 12.0, cut_out: float = 25.0
) -> Floats:
    """Return the share of its rated power that a turbine yields at some wind speeds.

    Energy rises with the cube of the speed, from none at ``cut_in`` to all at ``rated``;
    above ``cut_out`` the turbine stands still.

    Args:
        speeds: Wind speeds in m/s.
        cut_in: Speed below which nothing is generated, in m/s.
        rated: Speed from which the rated power is generated, in m/s.
        cut_out: Speed above which nothing is generated, in m/s.

    >>> power(np.array([2.0, 3.0, 12.0, 25.0, 26.0]))
    array([0., 0., 1., 1., 0.])
    """
    useful = np.clip(speeds, cut_in, rated)
    none = cut_in**3
    full = rated**3
    shares = (useful**3 - none) / (full - none)
    return np.where(speeds > cut_out, 0.0, shares)


@lru_cache(maxsize=2)
def real_days(profile: str, path: Path) -> WindDays:
    """Days of measured winds.

    Args:
        profile: "lidar", the nine heights that were measured, or "era5", 25 levels up to
            1600 m.
        path: The main file; the loaders find it and those beside it. Another path is
            read again.
    """
    lidar = load_lidar_winds()
    shapes = load_wind_shapes()
    date = lidar.hours.astype("datetime64[D]")
    dates, day = np.unique(date, return_inverse=True)
    speeds = _complete_days(lidar, day, len(dates))  # (days, 24, 9)
    origin = f"a lidar, January to March 2020, {len(speeds)} days of {len(dates)} with every hour once"
    if profile == "lidar":
        return WindDays(
            altitudes=np.array(LIDAR_HEIGHTS, float),
            speeds=speeds,
            origin=f"{origin}: the nine heights from 40 to 200 m as they were measured",
        )
    at_100 = speeds[..., LIDAR_HEIGHTS.index(100)]
    at_200 = speeds[..., LIDAR_HEIGHTS.index(200)]
    relative = _relative_profiles(shapes)  # (8, 25)
    shape = _draw_shapes(shapes, at_200)  # (days, 24)
    return WindDays(
        altitudes=shapes.levels,
        speeds=at_100[..., None] * relative[shape],
        origin=f"{origin}: its speed at 100 m times one of eight shapes of ERA5 profiles at 52° N, "
        "4° E. Shapes are drawn once for all seeds, by how often each occurs at the hour's speed at "
        "200 m, from one random number per day, so that they change with the wind; above 500 m, where "
        "they end, speeds stay the same",
    )


def _complete_days(lidar: LidarWinds, day: Ints, days: int) -> Floats:
    """Speeds of days with every hour once, (days, 24, 9); ``day`` is that of each hour."""
    hours_since_1970 = lidar.hours.astype(np.int64)
    hour = hours_since_1970 % HOURS
    record_counts = np.zeros((days, HOURS), dtype=np.intp)
    np.add.at(record_counts, (day, hour), 1)
    has_one_record = record_counts == 1
    is_complete = has_one_record.all(axis=1)  # (days,)
    used = is_complete[day]  # by record
    speeds: Floats = lidar.speeds[used]
    return speeds.reshape(-1, HOURS, len(LIDAR_HEIGHTS))


def _relative_profiles(shapes: WindShapes) -> Floats:
    """Speeds of each shape at all levels, relative to that at 100 m, (8, 25)."""
    profiles = []
    for speeds in shapes.speeds:
        at_levels = np.interp(shapes.levels, shapes.heights, speeds)
        at_100 = np.interp(100.0, shapes.heights, speeds)
        profiles.append(at_levels / at_100)
    return np.array(profiles)


def _draw_shapes(shapes: WindShapes, at_200: Floats) -> Ints:
    """Draw a shape for every hour by its speed at 200 m, from one number per day."""
    shares = shapes.shares.sum(axis=2)  # (8, bins)
    occurring = np.flatnonzero(shares.sum(axis=0))  # bins with any shape
    shares = shares[:, occurring]
    lower = shapes.bins[:-1]
    upper = shapes.bins[1:]
    middles = 0.5 * (upper + lower)
    middles = middles[occurring]
    distances = np.abs(at_200[..., None] - middles)  # (days, 24, bins)
    nearest = distances.argmin(axis=2)  # (days, 24)
    # A shape is drawn by inverting its cumulative probabilities.
    cumulative = np.cumsum(shares, axis=0) / shares.sum(axis=0)  # (8, bins)
    thresholds = cumulative[:, nearest]  # (8, days, 24)
    rng = stream(0, "wind-shapes", 0)
    uniforms = rng.random((len(at_200), 1))
    shape: Ints = (uniforms > thresholds).sum(axis=0)
    return shape


@cache
def synthetic_days(profile: str) -> WindDays:
    """Days of a boundary layer, deep by day and shallow by night, with a jet at its top at night.

    Below its top speeds follow a power law, steeper at night; above it the wind is that of
    the weather, which changes slowly.

    Args:
        profile: "lidar", nine heights up to 200 m, or "era5", 25 levels up to 1600 m.
    """
    altitudes = np.linspace(40.0, 200.0, 9)
    if profile == "era5":
        altitudes = np.geomspace(10.0, 1600.0, 25)
    weather = _synthetic_weather()
    aloft = 9.0 * np.exp(0.45 * weather)  # (hours,)
    aloft = aloft.reshape(_SYNTHETIC_DAYS, HOURS, 1)
    origin = (
        f"{_SYNTHETIC_DAYS} days of a boundary layer with a jet at night, {len(altitudes)} altitudes from "
        f"{altitudes[0]:g} to {altitudes[-1]:g} m, synthetic data"
    )
    return WindDays(
        altitudes=altitudes,
        speeds=aloft * _boundary_layer(altitudes),
        origin=origin,
    )


def _boundary_layer(altitudes: Floats) -> Floats:
    """Speeds relative to that aloft, by hour and altitude, (24, n)."""
    hours_since_3 = np.arange(HOURS)[:, None] - 3.0
    angle = 2.0 * np.pi * hours_since_3 / HOURS
    night = 0.5 + 0.5 * np.cos(angle)  # 1 at 3 am, 0 at 3 pm, (24, 1)
    top = 1200.0 * 0.25**night
    exponent = 0.1 + 0.2 * night
    below = (np.minimum(altitudes, top) / top) ** exponent
    log_height = np.log(altitudes / top)
    jet = 0.25 * night * np.exp(-2.0 * log_height**2)
    return np.asarray(below + jet)


def _synthetic_weather() -> Floats:
    """A standard normal number for every hour, correlated with the hour before."""
    from scipy.signal import lfilter

    skipped = _EARLY_DAYS * HOURS
    hours = (_EARLY_DAYS + _SYNTHETIC_DAYS) * HOURS
    rng = stream(0, "made-wind", 0)
    normals = rng.standard_normal(hours)
    innovation = np.sqrt(1.0 - _MEMORY**2)
    weather: Floats = lfilter([innovation], [1.0, -_MEMORY], normals)
    return weather[skipped:]
