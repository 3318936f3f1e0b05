"""Keys of a drifting posterior: rows of an arm's row number and a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError
from superarm.core.inputs import LARGEST, as_features
from superarm.posteriors.fixed import as_rows

# Columns of a key.
ROW = 0
TIME = 1

# Beyond these times, either way, floats do not resolve single steps well enough.
LATEST = 1e15
# Larger whole numbers are not exact as floats.
_LARGEST_ROW = 2**53
# Types of lists on the fast path of one reward; others get the full checks.
_LISTS = frozenset([list, tuple])


def rows_of(keys: Floats) -> Ints:
    """Row numbers of the arms in keys, (m,), a new array."""
    return keys[:, ROW].astype(np.intp)


def times_of(keys: Floats) -> Floats:
    """Times in keys, (m,)."""
    return keys[:, TIME]


def as_timed_keys(arms: Any, n: int) -> Floats:
    """``arms`` as keys of arms below ``n``, (m, 2), or an error with the reason."""
    keys = as_features(arms, "arms", 2)
    if len(keys) == 1:
        # The fast path of most rounds.
        row, time = keys[0].tolist()
        if _is_key(row, time, n):
            return keys
    # What _is_key requires, for all keys together, with an error for each fault.
    rows = keys[:, ROW]
    are_fractions = rows != np.floor(rows)
    are_too_large = np.abs(rows) > _LARGEST_ROW
    if are_fractions.any() or are_too_large.any():
        raise InputError(
            "arms must be rows of a row number and a time, as in [[3, 10.0]]"
        )
    sizes = np.abs(keys[:, TIME])
    if (sizes > LATEST).any():
        raise InputError(f"times must lie between −{LATEST:g} and {LATEST:g}")
    row_numbers = rows.astype(np.intp)
    as_rows(row_numbers, n)
    return keys


def _is_key(row: float, time: float, n: int) -> bool:
    """Whether finite numbers are the row number of one of ``n`` arms and a time that is resolved."""
    is_row = row % 1 == 0 and 0 <= row < n
    return is_row and -LATEST <= time <= LATEST


class SingleReward(NamedTuple):
    """One valid observation in plain numbers."""

    row: int
    time: float
    reward: float


def as_single_reward(arms: Any, rewards: Any, n: int) -> SingleReward | None:
    """One observation of arms below ``n`` in plain numbers.

    ``None`` for all else, valid or not: the full checks find out and raise the right error.
    """
    keys = _as_list(arms, (1, 2))
    values = _as_list(rewards, (1,))
    if keys is None or values is None or not len(keys) == len(values) == 1:
        return None
    key = keys[0]
    reward = values[0]
    if type(key) not in _LISTS or len(key) != 2:
        return None
    row, time = key
    if not (_is_real(row) and _is_real(time) and _is_real(reward)):
        return None
    if not _is_key(row, time, n):
        return None
    return SingleReward(int(row), float(time), float(reward))


def _as_list(values: Any, shape: tuple[int, ...]) -> Sequence[Any] | None:
    """A list or tuple, or an array of this shape as a list; ``None`` for all else."""
    if type(values) in _LISTS:
        listed: Sequence[Any] = values
        return listed
    if type(values) is np.ndarray and values.shape == shape:
        entries: list[Any] = values.tolist()
        return entries
    return None


def _is_real(value: Any) -> bool:
    """Whether this is a finite ``float``, ``int`` or ``np.float64``."""
    kind = type(value)
    is_number = kind is float or kind is np.float64 or kind is int
    return is_number and -LARGEST <= value <= LARGEST
