"""Feature rows of roads: each row is one road as one vehicle meets it.

A row has nine columns (:class:`Column`), and a tenth, the hour, where the model has hours. Saved
states contain rows, so the order of the columns never changes. The *terms* of a row are the five
columns from ``ROLLING`` to ``MASS_RATIO``: on all roads alike, a vehicle differs from its description
by a multiple of each of them. The *size* of a road is the Wh that it moves: for rolling, drag and
height.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from superarm.core import Floats, Ints


class Column(IntEnum):
    """Columns of a feature row."""

    EDGE = 0  # number of the road
    EXPECTED = 1  # Wh by the energy model, less what is stored in height
    ROLLING = 2  # Wh for rolling
    TIME = 3  # Wh of 1 kW over the travel time
    DRAG = 4  # Wh for air drag
    CLIMB = 5  # Wh for climbing
    MASS_RATIO = 6  # mass of the vehicle as a multiple of Table 2's
    STOPS = 7  # Wh² by which signals behind the road make drives differ
    VEHICLE = 8  # number of the vehicle
    HOUR = 9  # when the road is reached, 0 to 24; −1: at any time


COLUMNS = int(Column.HOUR)
"""Columns of a row without an hour."""
HOURLY_COLUMNS = len(Column)
ANY_HOUR = -1.0
"""The hour of a row that stands for the mean over the day."""
DISCRETE_COLUMNS = (int(Column.EDGE), int(Column.VEHICLE))
"""Columns that hold numbers of things, not quantities."""
_TERMS = slice(Column.ROLLING, Column.MASS_RATIO + 1)
_ENERGIES = slice(Column.EXPECTED, Column.MASS_RATIO + 1)
_SIZES = [Column.ROLLING, Column.DRAG, Column.CLIMB]


class NoiseColumn(IntEnum):
    """Columns of :func:`noise_parts`, in the order of ``RoadScales.noise_scales``."""

    ROAD = 0
    TIME = 1
    STOPS = 2
    SIZE = 3


def build_rows(
    *,
    edges: Floats,
    expected: Floats,
    terms: Floats,
    mass_ratio: float,
    stops: Floats,
    vehicle: int,
) -> Floats:
    """Feature rows of one vehicle, (n, 9).

    Args:
        edges: Numbers of the roads, (n,).
        expected: Wh by the energy model, less what is stored in height, (n,).
        terms: Wh for rolling, time, drag and climb, (n, 4).
        mass_ratio: Mass of the vehicle as a multiple of Table 2's.
        stops: Wh² by which signals make drives differ, (n,).
        vehicle: Number of the vehicle.
    """
    count = len(edges)
    mass_ratios = np.full(count, mass_ratio)
    vehicles = np.full(count, vehicle, dtype=np.float64)
    columns = [edges, expected, terms, mass_ratios, stops, vehicles]
    return np.column_stack(columns)


def edges_of(rows: Floats) -> Ints:
    """Numbers of the roads, (N,)."""
    return rows[:, Column.EDGE].astype(np.intp)


def vehicles_of(rows: Floats) -> Ints:
    """Numbers of the vehicles, (N,)."""
    return rows[:, Column.VEHICLE].astype(np.intp)


def terms_of(rows: Floats) -> Floats:
    """Terms of each row, a view, (N, 5)."""
    return rows[:, _TERMS]


def term_sizes(terms: Floats) -> Floats:
    """Wh that each road moves, (n,), of its terms without the mass ratio, (n, 4)."""
    columns = [column - Column.ROLLING for column in _SIZES]
    moved = np.abs(terms[:, columns])
    return np.asarray(moved.sum(axis=1))


def with_hours(rows: Floats, hours: Floats | float) -> Floats:
    """Rows with an hour, (N, 10), of rows that may have none.

    Args:
        rows: Feature rows, (N, 9) or (N, 10).
        hours: When each road is reached, 0 to 24, (N,) or the same for all; ``ANY_HOUR``: at any time.
    """
    count = len(rows)
    column = np.broadcast_to(np.asarray(hours, dtype=np.float64), count)
    return np.column_stack([rows[:, :COLUMNS], column])


def noise_parts(rows: Floats) -> Floats:
    """What the square of each scale of the noise multiplies, (N, 4); see :class:`NoiseColumn`."""
    mass_ratios = rows[:, Column.MASS_RATIO]
    times = np.maximum(rows[:, Column.TIME], 0.0)
    stops = rows[:, Column.STOPS]
    moved = np.abs(rows[:, _SIZES])
    sizes = moved.sum(axis=1)
    squared_ratio = np.square(mass_ratios)
    # In the order of NoiseColumn.
    parts = [
        squared_ratio,
        squared_ratio * times,
        stops,
        np.square(sizes),
    ]
    return np.column_stack(parts)


def scale_energies(rows: Floats, shares: Floats) -> None:
    """Multiply what is expected and all terms of each row by its share, (N,), in place."""
    rows[:, _ENERGIES] *= shares[:, None]
