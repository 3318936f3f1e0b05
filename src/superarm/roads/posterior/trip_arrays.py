"""Checks of trips, where their arrays come from outside: from a caller or a saved state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_positions, as_vector
from superarm.roads.rows import COLUMNS

from .borders import Borders
from .keys import check_rows
from .trips import Trips

# Those that every state has; states from before motion have no borders.
_REQUIRED = frozenset({"keys", "of", "rewards", "trip", "noise", "alone"})


def trips_from_arrays(
    arrays: Mapping[str, Any], roads: int, columns: int = COLUMNS
) -> Trips:
    """The inverse of :meth:`Trips.arrays`, or an error that explains what is wrong.

    Args:
        arrays: By the names that they have in a state.
        roads: How many roads there are.
        columns: How many columns a key has.
    """
    missing = _REQUIRED - {*arrays}
    if missing:
        raise StateError(f"this state is damaged: it lacks {min(missing)!r}")
    trips = Trips(
        keys=check_rows(arrays["keys"], roads, columns),
        reward_of_arm=as_positions(arrays["of"], "of"),
        rewards=as_vector(arrays["rewards"], "rewards"),
        trip=as_positions(arrays["trip"], "trip"),
        noise=as_vector(arrays["noise"], "noise"),
        unshared=np.asarray(arrays["alone"]),
        borders=_borders_from_arrays(arrays),
    )
    if trips.unshared.dtype != np.bool_ or not trips.is_consistent():
        raise InputError(
            "trips must give each arm a reward and each reward a trip, in order, and borders must "
            "lie between neighbours"
        )
    return trips


def _borders_from_arrays(arrays: Mapping[str, Any]) -> Borders:
    if "border_size" not in arrays:
        return Borders.none()
    return Borders(
        before=as_positions(arrays["border_before"], "border_before"),
        after=as_positions(arrays["border_after"], "border_after"),
        size=as_vector(arrays["border_size"], "border_size"),
        variance=as_vector(arrays["border_variance"], "border_variance"),
    )
