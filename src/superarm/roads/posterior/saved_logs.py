"""The log and the scales of a fleet as a state contains them, in any of its versions."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from superarm.core import State
from superarm.core.errors import StateError
from superarm.roads.energy.scales import RoadScales

from .compact_trips import compact_arrays, expanded_arrays, is_compact
from .forms import FormName
from .trip_arrays import trips_from_arrays
from .trips import Trips

# Scales of every state whose trips may have motion; states from before have fewer.
_SCALES_WITH_MOTION = 24


def log_arrays(trips: Trips, form: FormName) -> dict[str, NDArray[Any]]:
    """The arrays of a log: compact in the sparse form, whose logs are long.

    Args:
        trips: The log.
        form: The form of the posterior.
    """
    return compact_arrays(trips) if form == "sparse" else trips.arrays()


def saved_trips(state: State, roads: int, columns: int) -> Trips:
    """The log of a state.

    Args:
        state: The saved state.
        roads: How many roads there are.
        columns: How many columns a key has.
    """
    arrays = state.arrays
    log = expanded_arrays(arrays) if is_compact(arrays) else arrays
    return trips_from_arrays(log, roads, columns)


def saved_scales(state: State, initial: RoadScales) -> RoadScales:
    """The fitted scales of a state, or :class:`StateError`.

    States from before a scale was added have fewer: what is missing is as it was initially.

    Args:
        state: The saved state.
        initial: The scales before anything was fitted.
    """
    fitted = state.vector("fitted")
    # A compact log is from after motion.
    has_motion = "border_size" in state.arrays or is_compact(state.arrays)
    if has_motion and len(fitted) < _SCALES_WITH_MOTION:
        raise StateError(f"this state is damaged: it has {len(fitted)} fitted scales")
    return type(initial).from_vector(fitted, like=initial)
