"""Numbers from outside, checked: as numpy has them, or an error that says what is wrong."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, NotFiniteError, ShapeError, UnknownArmError

_Floats = NDArray[np.float64]
_FLOAT, _INTEGER = np.dtype(np.float64), np.dtype(np.intp)  # each one object in a process

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of variances and lengthscales, and largest size of rewards: products and quotients of three of
them fit a float."""


def as_features(values: Any, name: str, columns: int | None = None) -> _Floats:
    """``values`` as a finite float64 array (n, d), or an error that says what is wrong."""
    array = _as_floats(values, name, "numbers in a rectangular (n, d) array")
    if array.ndim != 2:
        raise ShapeError(
            f"{name} has shape {array.shape}; it must be two-dimensional (n, d), one row per arm"
        )
    if columns is not None and array.shape[1] != columns:
        raise ShapeError(f"{name} has {array.shape[1]} columns, but {columns} are expected")
    require_finite(array, name)
    return array


def as_vector(values: Any, name: str, length: int | None = None) -> _Floats:
    """``values`` as a finite float64 vector of the given length."""
    if type(values) is np.ndarray and values.dtype is _FLOAT and values.ndim == 1:
        # What posteriors and policies hand each other a hundred thousand times a second.
        size = len(values)
        if (length is None or size == length) and size <= 8 and all(map(isfinite, values.tolist())):
            return values
    array = _as_floats(values, name, "a list of numbers")
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if length is not None and len(array) != length:
        raise ShapeError(f"{name} has {len(array)} entries, but {length} are expected")
    require_finite(array, name)
    return array


def as_positions(values: Any, name: str) -> NDArray[np.intp]:
    """``values`` as a vector of whole numbers, which may be empty."""
    if type(values) is np.ndarray and values.dtype is _INTEGER and values.ndim == 1:
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array; leave the masked entries out")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} must be a plain list of whole numbers") from None
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} holds {array.dtype} values; they must be whole numbers")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.intp).max:
        raise InputError(f"{name} holds {array.max()}; no offer has that many arms")
    return array.astype(np.intp)


def as_numbers(values: _Floats, count: int, what: str, column: int) -> NDArray[np.intp]:
    """A column of features that numbers ``what`` 0 … ``count`` − 1, as integers."""
    # NaN fails the first comparison, so that the cast never meets it.
    known = (values >= 0.0) & (values < count)
    numbers: NDArray[np.intp] = np.where(known, values, 0.0).astype(np.intp)
    known &= numbers == values
    if not known.all():
        row = int(np.argmin(known))
        raise UnknownArmError(
            f"row {row}, column {column} holds {values[row].item()!r}; {what} are numbered "
            f"0 … {count - 1}"
        )
    return numbers


def _as_floats(values: Any, name: str, what: str) -> _Floats:
    refuse_masked(values, name)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise InputError(f"{name} must be {what}, not {array.dtype} values")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} must be {what}: {error}") from None


def refuse_masked(values: Any, name: str) -> None:
    """Refuse masked entries, also of arrays in a list: numpy would drop the mask without a word."""
    for part in values if isinstance(values, list | tuple) else (values,):
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise InputError(f"{name} has masked entries; leave those rows out")


def as_positive(value: Any, name: str) -> float:
    """``value`` as one finite number above zero."""
    try:
        if np.ndim(value) or np.ma.is_masked(value):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number that fits a float, not {value!r:.60}") from None
    if not np.isfinite(number) or number <= 0.0:
        raise InputError(f"{name} is {number!r}; it must be finite and above 0")
    return number


def as_scale(value: Any, name: str) -> float:
    """``value`` as one number above zero that can be squared and divided by."""
    number = as_positive(value, name)
    require_scale(np.array([number]), name)
    return number


def require_scale(array: _Floats, name: str) -> None:
    """Refuse positive numbers that are too small or too large to work with."""
    bad = (array < SMALLEST) | (array > LARGEST)
    if bad.any():
        raise InputError(
            f"{name} is {array[bad][0]:g}; squares of it must fit a float: choose units in which it "
            f"lies between {SMALLEST:g} and {LARGEST:g}"
        )


def require_size(array: _Floats, name: str) -> None:
    """Refuse numbers that are too large to work with."""
    if array.size and max(array.max(), -array.min()) > LARGEST:
        where = int(np.abs(array).argmax())
        raise InputError(
            f"{name} holds {array.flat[where]:g}; choose units in which it stays below {LARGEST:g}"
        )


def as_count(value: Any, name: str, least: int = 1) -> int:
    """``value`` as a whole number of at least ``least``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise InputError(f"{name} is {value!r}; it must be a whole number of at least {least}")
    return int(value)


def as_generator(rng: Any) -> np.random.Generator:
    """``rng`` if it is numpy's generator."""
    if not isinstance(rng, np.random.Generator):
        raise InputError(f"rng is {rng!r:.60}; pass a generator: numpy.random.default_rng(seed)")
    return rng


def require_finite(array: _Floats, name: str) -> None:
    """Raise :class:`NotFiniteError` naming the first bad entry."""
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        place = ", ".join(str(int(i)) for i in where)
        raise NotFiniteError(
            f"{name}[{place}] is {array[tuple(where)]}; every entry must be a finite number"
        )
