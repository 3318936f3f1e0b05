"""The log of a large fleet in few bytes, without a loss: what a state of the sparse form contains.

Most columns of a log repeat a few values: what a model expects of a road, a vehicle's mass. Each array is
stored in the shortest of three ways, and is the same array, bit for bit, once it is expanded:

=============  =======================================================================
``NAME``       as it is
``NAME/runs``  values of runs, and their ``lengths``
``NAME/table`` distinct values, and the ``place`` of each entry among them
=============  =======================================================================

Arrays that count up, like the trip of each reward, are stored as bits: where they step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Ints
from superarm.core.errors import StateError
from superarm.core.inputs import as_positions

from .trips import Trips

_PREFIX = "log/"
_COUNTERS = ("of", "trip")
_KEYS = "keys"


def compact_arrays(trips: Trips) -> dict[str, NDArray[Any]]:
    """All arrays of trips, as short as they can be."""
    compact: dict[str, NDArray[Any]] = {}
    for name, values in trips.arrays().items():
        if name == _KEYS:
            for number, column in enumerate(values.T):
                compact |= _shortest(f"{_PREFIX}{name}{number}", column)
        elif name in _COUNTERS:
            steps = np.diff(values, prepend=0).astype(np.uint8)
            compact[f"{_PREFIX}{name}/steps"] = np.packbits(steps)
            compact[f"{_PREFIX}{name}/count"] = np.array([len(values)])
        else:
            compact |= _shortest(f"{_PREFIX}{name}", values)
    return compact


def is_compact(arrays: Mapping[str, Any]) -> bool:
    """Whether these arrays contain a compact log."""
    return any(name.startswith(_PREFIX) for name in arrays)


def expanded_arrays(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The inverse of :func:`compact_arrays`, by the names of :meth:`Trips.arrays`.

    Args:
        arrays: The arrays of a state.
    """
    expanded: dict[str, NDArray[Any]] = {}
    of_rewards = _counter(arrays, "of")
    trip = _counter(arrays, "trip")
    rewards = len(trip)
    expanded["of"] = of_rewards
    expanded["trip"] = trip
    for name in ("rewards", "noise", "alone"):
        expanded[name] = _expanded(arrays, f"{_PREFIX}{name}", rewards)
    columns: list[NDArray[Any]] = []
    while _is_stored(arrays, f"{_PREFIX}{_KEYS}{len(columns)}"):
        name = f"{_PREFIX}{_KEYS}{len(columns)}"
        columns.append(_expanded(arrays, name, len(of_rewards)))
    if not columns:
        raise StateError("this state is damaged: its log has no keys")
    expanded[_KEYS] = np.column_stack(columns)
    # A reward has at most two borders, one of which begins it.
    most_borders = 2 * rewards
    for name in ("border_before", "border_after", "border_size", "border_variance"):
        expanded[name] = _expanded(arrays, f"{_PREFIX}{name}", most_borders, False)
    return expanded


# --- one array -----------------------------------------------------------------------------


def _shortest(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """One array in the shortest way."""
    values = np.ascontiguousarray(_narrow(values))
    ways = [{name: values}]
    if len(values):
        # Numbers are the same if their bits are: 0 and −0 differ.
        bits = values.view(f"u{values.itemsize}")
        starts = np.flatnonzero(np.diff(bits, prepend=~bits[:1]))
        lengths = np.diff(starts, append=len(bits))
        ways.append(
            {f"{name}/runs": values[starts], f"{name}/lengths": _narrow(lengths)}
        )
        table, place = np.unique(bits, return_inverse=True)
        named = {
            f"{name}/table": table.view(values.dtype),
            f"{name}/place": _narrow(place),
        }
        ways.append(named)
    return min(ways, key=lambda way: sum(array.nbytes for array in way.values()))


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers in as few bytes as hold them."""
    if values.dtype.kind not in "iu" or not len(values):
        return values
    for kind in (np.uint8, np.uint16, np.uint32, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= values.min() and values.max() <= limits.max:
            return values.astype(kind)
    return values


def _is_stored(arrays: Mapping[str, Any], name: str) -> bool:
    return any(f"{name}{way}" in arrays for way in ("", "/runs", "/table"))


def _expanded(
    arrays: Mapping[str, Any], name: str, count: int, is_exact: bool = True
) -> NDArray[Any]:
    """One array of so many entries, or of at most so many."""
    if f"{name}/runs" in arrays:
        lengths = as_positions(_found(arrays, f"{name}/lengths"), name)
        runs = np.asarray(arrays[f"{name}/runs"])
        # Before they are repeated: a damaged file must not fill the memory.
        is_too_long = int(lengths.sum()) > count or lengths.max(initial=0) > count
        if lengths.shape != runs.shape or lengths.min(initial=0) < 0 or is_too_long:
            raise _damaged(name)
        values = np.repeat(runs, lengths)
    elif f"{name}/table" in arrays:
        table = np.asarray(arrays[f"{name}/table"])
        place = as_positions(_found(arrays, f"{name}/place"), name)
        if place.min(initial=0) < 0 or place.max(initial=-1) >= len(table):
            raise _damaged(name)
        values = table[place]
    else:
        values = np.asarray(_found(arrays, name))
    if values.ndim != 1 or len(values) > count or (is_exact and len(values) != count):
        raise _damaged(name)
    return values


def _counter(arrays: Mapping[str, Any], name: str) -> Ints:
    """Numbers that count up from where their steps are."""
    packed = np.asarray(_found(arrays, f"{_PREFIX}{name}/steps"))
    counts = as_positions(_found(arrays, f"{_PREFIX}{name}/count"), name)
    if packed.dtype != np.uint8 or counts.shape != (1,) or packed.ndim != 1:
        raise _damaged(name)
    count = int(counts[0])
    if not 0 <= count <= 8 * len(packed):
        raise _damaged(name)
    steps = np.unpackbits(packed, count=count)
    return np.cumsum(steps, dtype=np.intp)


def _found(arrays: Mapping[str, Any], name: str) -> Any:
    if name not in arrays:
        raise StateError(f"this state is damaged: it lacks {name!r}")
    return arrays[name]


def _damaged(name: str) -> StateError:
    return StateError(f"this state is damaged: {name!r} does not fit its log")
