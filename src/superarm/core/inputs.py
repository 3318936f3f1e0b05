"""What comes from outside, checked: as numpy or JSON have it, or an error that says what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, NotFiniteError, ShapeError, SpecError, UnknownArmError

_Floats = NDArray[np.float64]
_FLOAT, _INTEGER = (
    np.dtype(np.float64),
    np.dtype(np.intp),
)  # each one object in a process

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of variances and lengthscales, and largest size of rewards: products and quotients of three of
them fit a float."""


def as_features(values: Any, name: str, columns: int | None = None) -> _Floats:
    """``values`` as a finite float64 array (n, d), or an error that says what is wrong."""
    if type(values) is np.ndarray and values.dtype is _FLOAT and values.ndim == 2:
        rows: _Floats = (
            values  # what policies and posteriors hand each other in every round
        )
        if columns in (None, rows.shape[1]) and _surely_small(rows):
            return rows
    array = _as_floats(values, name, "numbers in a rectangular (n, d) array")
    if array.ndim != 2:
        told = "it must be two-dimensional (n, d), one row per arm"
        raise ShapeError(f"{name} has shape {array.shape}; {told}")
    if columns is not None and array.shape[1] != columns:
        raise ShapeError(
            f"{name} has {array.shape[1]} columns, but {columns} are expected"
        )
    require_finite(array, name)
    return array


def as_vector(values: Any, name: str, length: int | None = None) -> _Floats:
    """``values`` as a finite float64 vector of the given length."""
    if type(values) is np.ndarray and values.dtype is _FLOAT and values.ndim == 1:
        # What posteriors and policies hand each other a hundred thousand times a second.
        size = len(values)
        if (
            (length is None or size == length)
            and size <= 8
            and all(map(isfinite, values.tolist()))
        ):
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
    if np.ma.is_masked(values):
        raise InputError(f"{name} has masked entries; leave them out")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ShapeError(f"{name} must be a plain list of whole numbers") from None
    if array.ndim != 1:
        raise ShapeError(f"{name} has shape {array.shape}; it must be one-dimensional")
    if array.size and array.dtype.kind not in "iu":
        raise InputError(
            f"{name} holds {array.dtype} values; they must be whole numbers"
        )
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
        told = f"row {row}, column {column} holds {values[row].item()!r}"
        raise UnknownArmError(f"{told}; {what} are numbered 0 … {count - 1}")
    return numbers


def as_rows(values: Any, name: str, receiver: str) -> _Floats:
    """``values`` as a float64 array (n, d), which may hold NaN: posteriors check that once."""
    if type(values) is np.ndarray and values.dtype is _FLOAT:
        array = values
    else:
        array = _as_floats(values, name, "numbers in a rectangular (n, d) array")
    if array.ndim != 2:
        raise ShapeError(
            f"{name} has shape {array.shape}; {receiver} needs (n, d), one row per arm"
        )
    return array


def is_listed(value: object) -> bool:
    """Whether this is a list of some kind: not a number, a text or an array without an axis."""
    if isinstance(value, list | tuple):  # which may be ragged
        return True
    given: Any = value
    return np.ndim(given) > 0


_MOST_DRAWN = 1 << 31
"""Numbers that may be drawn at once: 16 GiB."""


def as_draws(size: Any, arms: int) -> int:
    """``size`` as a number of joint draws of so many arms."""
    draws = as_count(size, "size")
    if draws * max(arms, 1) > _MOST_DRAWN:
        shown = f"{draws:,}" if draws < 10**20 else "beyond 10²⁰"
        raise InputError(
            f"size is {shown}; joint draws of {arms} arms may have {_MOST_DRAWN:,} numbers together: "
            f"draw at most {_MOST_DRAWN // max(arms, 1):,} at once"
        )
    return draws


def _as_floats(values: Any, name: str, what: str) -> _Floats:
    # Also of arrays in a list: numpy would drop the mask without a word.
    for part in values if isinstance(values, list | tuple) else (values,):
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
    """A copy that nobody can write into."""
    kept = values.copy()
    kept.flags.writeable = False
    return kept


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """The array itself where nobody can write into it, otherwise a read-only copy."""
    if values.base is None and not values.flags.writeable:
        return values
    return read_only(values)


def as_number(value: Any, name: str, least: float = -inf, most: float = inf) -> float:
    """``value`` as one finite number from ``least`` to ``most``."""
    number: float = value
    if type(value) is not float:
        try:
            other = isinstance(value, bool | np.bool_ | str | bytes)
            if other or np.ndim(value) or np.ma.is_masked(value):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            large = " that fits a float" * (type(value) is int)
            raise InputError(
                f"{name} is {value!r:.60}; it must be a number{large}"
            ) from None
    if not (isfinite(number) and least <= number <= most):
        raise InputError(
            f"{name} is {value!r:.60}; it must be a number{_range(least, most)}"
        )
    return number


def _range(least: float, most: float) -> str:
    if isfinite(least) and isfinite(most):
        return f" from {least:,} to {most:,}"
    return f" of at least {least:,}" if isfinite(least) else " that is finite"


def as_positive(value: Any, name: str) -> float:
    number = as_number(value, name)
    if number <= 0.0:
        raise InputError(f"{name} is {number!r}; it must be finite and above 0")
    return number


def as_scale(value: Any, name: str) -> float:
    """``value`` as one number above zero that can be squared and divided by."""
    number = as_positive(value, name)
    require_scale(np.array([number]), name)
    return number


def as_noise_std(value: Any) -> float:
    """``value`` as a standard deviation of noise whose square is a variance that can be worked with."""
    return as_number(value, "noise_std", SMALLEST**0.5, LARGEST**0.5)


def require_scale(array: _Floats, name: str) -> None:
    """Refuse positive numbers that are too small or too large to work with."""
    bad = (array < SMALLEST) | (array > LARGEST)
    if bad.any():
        told = f"{name} is {array[bad][0]:g}; squares of it must fit a float"
        raise InputError(
            f"{told}: choose units in which it lies between {SMALLEST:g} and {LARGEST:g}"
        )


def require_size(array: _Floats, name: str) -> None:
    """Refuse numbers that are too large to work with."""
    if (
        array.size
        and not _surely_small(array)
        and max(array.max(), -array.min()) > LARGEST
    ):
        largest = array.flat[int(np.abs(array).argmax())]
        raise InputError(
            f"{name} holds {largest:g}; choose units in which it stays below {LARGEST:g}"
        )


def as_count(value: Any, name: str, least: int = 1, most: float = inf) -> int:
    """``value`` as a whole number from ``least`` to ``most``."""
    if type(value) is int and least <= value <= most:
        return value
    # Numpy counts spans of time among its whole numbers.
    whole = isinstance(value, int | np.integer) and not isinstance(
        value, bool | np.timedelta64
    )
    if not whole or not least <= value <= most:
        raise InputError(
            f"{name} is {value!r:.60}; it must be a whole number{_range(least, most)}"
        )
    return int(value)


def as_flag(value: Any, name: str) -> bool:
    """``value`` as true or false; 1 and 0 are taken for them."""
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise InputError(f"{name} is {value!r:.60}; it must be True or False")
    return bool(value)


def as_levels(values: Any, name: str, count: int) -> _Floats:
    """One number for all of ``count`` arms, or one for each, as a read-only vector."""
    if is_listed(values):
        return read_only(as_vector(values, name, count))
    return read_only(np.full(count, as_number(values, name)))


def require_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        *most, last = map(repr, choices)
        told = f"{', '.join(most)} or {last}" if most else last
        raise InputError(f"{name} is {value!r:.60}; choose {told}")


def as_plain(value: Any, where: str | None = None) -> Any:
    """``value`` as JSON can hold it: numpy's numbers as numbers, what is not finite as null.

    With ``where``, which errors name, nothing is turned into anything else: it is refused.
    """
    if isinstance(value, Mapping):
        below = {key: where and f"{where}: {key}" for key in value}
        return {str(key): as_plain(item, below[key]) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(item, where) for item in value]
    if where is None and isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        if where is not None:
            raise SpecError(f"{where}: {value!r} is not a finite number")
        return None
    if where is not None and not isinstance(value, str | int | float | None):
        raise SpecError(
            f"{where}: {value!s} is a {type(value).__name__}; use text or numbers"
        )
    return value


def require_type(value: Any, kind: type, name: str, advice: str = "") -> None:
    if not isinstance(value, kind):
        told = f"{name} is {value!r:.60}, of type {type(value).__name__}"
        raise InputError(f"{told}; it must be of type {kind.__name__}{advice}")


def as_path(value: Any, name: str) -> Path:
    """``value`` as the path of a file."""
    if not isinstance(value, str | PathLike) or isinstance(value, bytes):
        raise InputError(
            f"{name} is {value!r:.60}; give the path of a file, as text or a Path"
        )
    text = fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name} is {value!r:.60}; no file can have this path")
    return Path(text)


def as_generator(rng: Any) -> np.random.Generator:
    if not isinstance(rng, np.random.Generator):
        raise InputError(
            f"rng is {rng!r:.60}; pass a generator: numpy.random.default_rng(seed)"
        )
    return rng


def _surely_small(array: _Floats) -> bool:
    """Whether one product proves every entry to be finite and at most ``LARGEST``.

    NaN and infinity stay in a sum of squares, which is below ``LARGEST`` only where every entry is
    below its root. ``False`` proves nothing: look at the entries.
    """
    return array.flags.c_contiguous and float(np.vdot(array, array)) <= LARGEST


def require_finite(array: _Floats, name: str) -> None:
    """Raise :class:`NotFiniteError` naming the first bad entry."""
    if not _surely_small(array) and not np.isfinite(array).all():
        where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        place = ", ".join(map(str, where))
        raise NotFiniteError(
            f"{name}[{place}] is {array[where]}; every entry must be a finite number"
        )
