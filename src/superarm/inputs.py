"""Numbers from outside, checked: as numpy has them, or an error that says what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, NotFiniteError, ShapeError

_Floats = NDArray[np.float64]


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
    array = _as_floats(values, name, "a list of numbers")
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if length is not None and len(array) != length:
        raise ShapeError(f"{name} has {len(array)} entries, but {length} are expected")
    require_finite(array, name)
    return array


def as_positions(values: Any, name: str) -> NDArray[np.intp]:
    """``values`` as a vector of whole numbers, which may be empty."""
    if type(values) is np.ndarray and values.dtype == np.intp and values.ndim == 1:
        return values
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array; leave the masked entries out")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} must be a list of whole numbers, not of lists") from None
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{name} holds {array.dtype} values; they must be whole numbers")
    return array.astype(np.intp)


def _as_floats(values: Any, name: str, what: str) -> _Floats:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} has masked entries; leave those rows out")
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise InputError(f"{name} must be {what}, not {array.dtype} values")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} must be {what}: {error}") from None


def as_positive(value: Any, name: str) -> float:
    """``value`` as a finite number above zero."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number that fits a float, not {value!r:.60}") from None
    if not np.isfinite(number) or number <= 0.0:
        raise InputError(f"{name} is {number!r}; it must be finite and above 0")
    return number


def require_finite(array: _Floats, name: str) -> None:
    """Raise :class:`NotFiniteError` naming the first bad entry."""
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        place = ", ".join(str(int(i)) for i in where)
        raise NotFiniteError(
            f"{name}[{place}] is {array[tuple(where)]}; every entry must be a finite number"
        )
