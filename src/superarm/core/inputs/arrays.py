"""Checks of arrays: each returns a clean array or raises an error."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core.errors import InputError, NotFiniteError, ShapeError, UnknownArmError

from .numbers import LARGEST, as_number

_Floats = NDArray[np.float64]
# Each is one object in a process, so that ``is`` compares them.
_FLOAT = np.dtype(np.float64)
_INTEGER = np.dtype(np.intp)
_FEW = 8  # entries up to which Python checks a vector faster than numpy


def as_features(values: Any, name: str, columns: int | None = None) -> _Floats:
    """Values as a finite float64 array (n, d).

    Args:
        values: Anything that numpy turns into a matrix of numbers.
        name: What errors call it.
        columns: The number of columns that it must have.
    """
    if type(values) is np.ndarray and values.dtype is _FLOAT and values.ndim == 2:
        # The short way for arrays that policies and posteriors pass in every round.
        rows: _Floats = values
        if columns in (None, rows.shape[1]) and _surely_small(rows):
            return rows
    array = _as_floats(values, name, "numbers in a rectangular (n, d) array")
    if array.ndim != 2:
        raise ShapeError(
            f"{name} must be two-dimensional (n, d), one row per arm, got shape {array.shape}"
        )
    if columns is not None and array.shape[1] != columns:
        raise ShapeError(
            f"{name} has {array.shape[1]} columns, but {columns} are expected"
        )
    require_finite(array, name)
    return array


def as_vector(values: Any, name: str, length: int | None = None) -> _Floats:
    """Values as a finite float64 vector.

    Args:
        values: Anything that numpy turns into a vector of numbers.
        name: What errors call it.
        length: The number of entries that it must have.
    """
    if type(values) is np.ndarray and values.dtype is _FLOAT and values.ndim == 1:
        # The short way for vectors that policies and posteriors pass 100,000 times a second.
        size = len(values)
        fits = size <= _FEW and (length is None or size == length)
        if fits and all(map(isfinite, values.tolist())):
            return values
    array = _as_floats(values, name, "a list of numbers")
    if array.ndim != 1:
        raise ShapeError(f"{name} must be one-dimensional, got shape {array.shape}")
    if length is not None and len(array) != length:
        raise ShapeError(f"{name} has {len(array)} entries, but {length} are expected")
    require_finite(array, name)
    return array


def as_positions(values: Any, name: str) -> NDArray[np.intp]:
    """Values as a vector of whole numbers, which may be empty.

    Args:
        values: Anything that numpy turns into a vector of whole numbers.
        name: What errors call it.
    """
    if type(values) is np.ndarray and values.dtype is _INTEGER and values.ndim == 1:
        return values
    if np.ma.is_masked(values):
        raise InputError(f"{name} has masked entries; leave them out")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} must be a plain list of whole numbers") from None
    if array.ndim != 1:
        raise ShapeError(f"{name} must be one-dimensional, got shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} must be whole numbers, got {array.dtype} values")
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.intp).max:
        raise InputError(f"{name} holds {array.max()}; no offer has that many arms")
    return array.astype(np.intp)


def as_numbers(values: _Floats, count: int, what: str, column: int) -> NDArray[np.intp]:
    """A column of features that contains numbers of things, as integers.

    Args:
        values: The column, (n,).
        count: How many things there are, numbered 0 … ``count`` − 1.
        what: What they are called, in the plural.
        column: The place of the column among the features.
    """
    # NaN fails both comparisons, so that the cast never meets it.
    valid = (values >= 0.0) & (values < count)
    numbers: NDArray[np.intp] = np.where(valid, values, 0.0).astype(np.intp)
    is_integer = numbers == values
    valid &= is_integer
    if not valid.all():
        row = int(np.argmin(valid))
        value = values[row].item()
        raise UnknownArmError(
            f"row {row}, column {column} holds {value!r}; {what} are numbered 0 … {count - 1}"
        )
    return numbers


def as_rows(values: Any, name: str, receiver: str) -> _Floats:
    """Values as a float64 array (n, d) that may contain NaN: posteriors check that once.

    Args:
        values: Anything that numpy turns into a matrix of numbers.
        name: What errors call it.
        receiver: The class that needs it, for errors.
    """
    if type(values) is np.ndarray and values.dtype is _FLOAT:
        array = values
    else:
        array = _as_floats(values, name, "numbers in a rectangular (n, d) array")
    if array.ndim != 2:
        raise ShapeError(
            f"{name} has shape {array.shape}; {receiver} needs (n, d), one row per arm"
        )
    return array


def as_levels(values: Any, name: str, count: int) -> _Floats:
    """One number for each arm, as a read-only vector.

    Args:
        values: One number for all arms, or one for each.
        name: What errors call them.
        count: The number of arms.
    """
    if is_listed(values):
        return read_only(as_vector(values, name, count))
    return read_only(np.full(count, as_number(values, name)))


def is_listed(value: object) -> bool:
    """Whether this is a list of some kind: not a number, a text or an array without an axis.

    Args:
        value: Any object.
    """
    if isinstance(value, list | tuple):  # a ragged one has no ``ndim``
        return True
    array_like: Any = value
    return np.ndim(array_like) > 0


def _as_floats(values: Any, name: str, what: str) -> _Floats:
    # Also arrays in a list: numpy would silently drop their masks.
    parts = values if isinstance(values, list | tuple) else (values,)
    for part in parts:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise InputError(f"{name} has masked entries; leave those rows out")
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufO":
            return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be {what}: {error}") from None
    raise InputError(f"{name} must be {what}, not {array.dtype} values")


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A read-only copy.

    Args:
        values: An array.
    """
    duplicate = values.copy()
    duplicate.flags.writeable = False
    return duplicate


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """The array itself if nobody can write into it, otherwise a read-only copy.

    Args:
        values: An array.
    """
    if values.base is None and not values.flags.writeable:
        return values
    return read_only(values)


def require_size(array: _Floats, name: str) -> None:
    """Refuse numbers that are too large to compute with.

    Args:
        array: Finite numbers.
        name: What errors call them.
    """
    if array.size == 0 or _surely_small(array):
        return
    if max(array.max(), -array.min()) > LARGEST:
        largest = array.flat[int(np.abs(array).argmax())]
        raise InputError(
            f"{name} holds {largest:g}; choose units in which it stays below {LARGEST:g}"
        )


def require_finite(array: _Floats, name: str) -> None:
    """Raise :class:`NotFiniteError` naming the first entry that is NaN or infinite.

    Args:
        array: Numbers.
        name: What errors call them.
    """
    if _surely_small(array) or np.isfinite(array).all():
        return
    first = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
    index = ", ".join(map(str, first))
    raise NotFiniteError(
        f"{name}[{index}] is {array[first]}; every entry must be a finite number"
    )


def _surely_small(array: _Floats) -> bool:
    """Whether one product proves every entry to be finite and at most ``LARGEST``.

    NaN and infinity persist in a sum of squares, which is below ``LARGEST`` only if every entry is
    below its root. ``False`` proves nothing: then check the entries.
    """
    # Not ``array.dot(array)``, which warns where the sum overflows.
    return array.flags.c_contiguous and float(np.vdot(array, array)) <= LARGEST
