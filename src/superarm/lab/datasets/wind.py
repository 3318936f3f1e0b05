"""Wind profiles: hourly winds over one place, and typical shapes."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats
from superarm.core.data_files import find
from superarm.core.errors import FileError
from superarm.core.inputs import read_only

from .reading import Row, csv_rows, number_table, open_text, parse_number, split_lines

LIDAR_HEIGHTS = tuple(range(40, 201, 20))
"""Heights of the lidar's readings, in m."""
_HOURS = 2148
_SHAPES = 8
_HEIGHTS = 50
_SPEED_BINS = 50
_DIRECTION_BINS = 10
_LEVELS = 25


class LidarWinds(NamedTuple):
    """Wind speeds over one place, in m/s; some hours are missing, some are there twice."""

    hours: NDArray[np.datetime64]  # (2148,), one after another
    speeds: Floats  # (2148, 9), a column for each of ``LIDAR_HEIGHTS``


class WindShapes(NamedTuple):
    """Typical profiles of the wind, and how often each of them occurs."""

    heights: Floats  # (50,), in m
    speeds: Floats  # (8, 50), relative to the speed at 200 m
    bins: Floats  # (51,), edges of the classes of the speed at 200 m, in m/s
    shares: Floats  # (8, 50, 10), of shape, speed and direction: percent of all hours
    levels: Floats  # (25,), heights of the lowest levels of the model, in m


def load_lidar_winds() -> LidarWinds:
    """Hourly winds at nine heights."""
    return _read_winds(find("wind-profiles"))


def load_wind_shapes() -> WindShapes:
    """Eight shapes of wind profiles from 10 to 500 m, and 25 levels from 10 to 1600 m."""
    shapes = find("wind-profiles", ending=".yml.xz")
    levels = find("wind-profiles", ending=".txt")
    return _read_shapes(shapes, levels)


@lru_cache(maxsize=1)
def _read_winds(path: Path) -> LidarWinds:
    components = []
    for height in LIDAR_HEIGHTS:
        components += [f"{height}m X-wind (m/s)", f"{height}m Y-wind (m/s)"]
    lines = []
    stamps = []
    winds = []
    for line, words in csv_rows(path, "Timestamp", *components):
        lines.append(line)
        stamps.append(words[0])
        winds.append(Row(line, words[1:]))
    table = number_table(path, winds, len(components), _HOURS)
    try:
        hours = np.array(stamps, dtype="datetime64[h]")
    except ValueError as error:
        raise FileError(f"{path}: {error}; download it again") from None
    backwards = hours[1:] < hours[:-1]
    if backwards.any():
        line = lines[int(backwards.argmax()) + 1]
        raise FileError(f"{path}, line {line}: it is earlier than the line above")
    x = table[:, ::2]
    y = table[:, 1::2]
    return LidarWinds(read_only(hours), read_only(np.hypot(x, y)))


@lru_cache(maxsize=1)
def _read_shapes(path: Path, levels_path: Path) -> WindShapes:
    lists = _read_lists(path)
    speeds_size = _SHAPES * _HEIGHTS
    shares_shape = (_SHAPES, _SPEED_BINS, _DIRECTION_BINS)
    # Edges of the speed bins, then those of the direction bins.
    edges_size = _SPEED_BINS + 1 + _DIRECTION_BINS + 1
    heights = _numbers(path, lists, "altitudes", _HEIGHTS)
    along = _numbers(path, lists, "u_normalized", speeds_size)
    across = _numbers(path, lists, "v_normalized", speeds_size)
    edges = _numbers(path, lists, "bin_edges", edges_size)
    shares = _numbers(path, lists, "data", int(np.prod(shares_shape)))
    bins = edges[: _SPEED_BINS + 1]
    levels = _read_levels(levels_path)
    _check_rising(path, heights)
    _check_rising(path, bins)
    _check_rising(levels_path, levels)
    speeds = np.hypot(along, across).reshape(_SHAPES, _HEIGHTS)
    if speeds.min() <= 0.0 or shares.min() < 0.0 or not shares.any():
        raise FileError(
            f"{path}: speeds must be above 0, and shares 0 or more, not all 0; download it again"
        )
    return WindShapes(
        heights=read_only(heights),
        speeds=read_only(speeds),
        bins=read_only(bins),
        shares=read_only(shares.reshape(shares_shape)),
        levels=read_only(levels),
    )


def _read_lists(path: Path) -> dict[str, list[float]]:
    """The lists of a YAML file by key; those of one key follow each other.

    Of YAML it has only "key: …" and lists of numbers.
    """
    lists: dict[str, list[float]] = {}
    values: list[float] = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            key, colon, _ = line.partition(":")
            if colon:
                name = key.strip("- ")
                values = lists.setdefault(name, [])
            elif line.lstrip().startswith("- "):
                word = line.replace("- ", "")
                values.append(parse_number(path, number, word))
    return lists


def _numbers(path: Path, lists: dict[str, list[float]], key: str, size: int) -> Floats:
    values = lists.get(key, [])
    finite = all(isfinite(value) for value in values)
    if len(values) != size or not finite:
        raise FileError(
            f"{path}: {key} must be {size} finite numbers; download it again"
        )
    return np.array(values)


def _read_levels(path: Path) -> Floats:
    """Heights of the model's levels, one a line, (25,)."""
    with open_text(path) as lines:
        rows = (row for row in split_lines(lines) if row.words[:1] != ["#"])
        table = number_table(path, rows, columns=1, count=_LEVELS)
    return table[:, 0]


def _check_rising(path: Path, values: Floats) -> None:
    if values[0] <= 0.0 or (np.diff(values) <= 0.0).any():
        raise FileError(
            f"{path}: heights and speeds must be above 0 and rise; download it again"
        )
