"""Checks of feature rows, where they come from outside."""

from __future__ import annotations

from typing import Any
from weakref import ref

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError, UnknownArmError
from superarm.core.inputs import as_features
from superarm.roads.rows import ANY_HOUR, COLUMNS, Column

from .names import MOST_VEHICLES

_LEAST_RATIO = 1e-6  # of a mass
_LATEST_HOUR = 24.0
_LARGEST = 1e9  # of any column but the vehicle: 1 GWh


def check_rows(arms: Any, roads: int, columns: int = COLUMNS) -> Floats:
    """Feature rows as an array, (m, 9), or an error that explains what is wrong.

    Args:
        arms: Rows with the columns of :class:`~superarm.roads.rows.Column`.
        roads: How many roads there are.
        columns: How many columns a row has: one more where the model has hours.
    """
    rows = as_features(arms, "arms", columns)
    _check_numbers(rows, Column.EDGE, roads, "roads")
    _check_numbers(rows, Column.VEHICLE, MOST_VEHICLES, "vehicles")
    mass_ratios = rows[:, Column.MASS_RATIO]
    stops = rows[:, Column.STOPS]
    if not ((mass_ratios > 0.0) & (stops >= 0.0)).all():
        raise InputError(
            "columns 6 and 7 of arms must hold masses above 0 and variances of 0 or more"
        )
    quantities = rows[:, : Column.VEHICLE]
    largest = np.abs(quantities).max(initial=0.0)
    least_ratio = mass_ratios.min(initial=_LARGEST)
    if largest > _LARGEST or least_ratio < _LEAST_RATIO:
        raise InputError(
            f"arms hold numbers beyond {_LARGEST:g}, or masses below {_LEAST_RATIO:g}; energies are in Wh, "
            "and masses are multiples of Table 2's"
        )
    _check_hours(rows[:, COLUMNS:])
    return rows


def _check_hours(hours: Floats) -> None:
    """Raise :class:`InputError` where the last column, if there is one, holds no hours, (m, 0 or 1)."""
    is_hour = (hours >= 0.0) & (hours <= _LATEST_HOUR)
    is_wrong = ~(is_hour | (hours == ANY_HOUR))
    if is_wrong.any():
        raise InputError(
            f"column 9 of arms must hold hours from 0 to {_LATEST_HOUR:g}, or {ANY_HOUR:g} for any "
            f"time; got {hours[is_wrong][0]!r}"
        )


def _check_numbers(rows: Floats, column: Column, count: int, what: str) -> None:
    """Raise :class:`UnknownArmError` where a column does not hold numbers below ``count``."""
    values = rows[:, column]
    in_range = (values >= 0.0) & (values < count)
    is_integer = values == np.floor(values)
    is_wrong = ~(in_range & is_integer)
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise UnknownArmError(
            f"row {row}, column {int(column)} holds {values[row]!r}; {what} are numbered "
            f"0 … {count - 1}"
        )


class CheckedRows:
    """The rows that were checked last: those of an offer, which a round uses several times.

    Only arrays that nobody can write into are remembered. Copies and pickles remember nothing.
    """

    def __init__(self) -> None:
        self._rows: ref[Floats] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> CheckedRows:
        return CheckedRows()

    def __reduce__(self) -> Any:
        return CheckedRows, ()

    def __contains__(self, rows: Floats) -> bool:
        return self._rows is not None and self._rows() is rows

    def remember(self, rows: Floats) -> None:
        """Remember checked rows, unless they can change."""
        is_constant = rows.base is None and not rows.flags.writeable
        self._rows = ref(rows) if is_constant else None
