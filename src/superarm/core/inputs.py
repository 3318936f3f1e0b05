"""Checks of arguments and of data from outside: each returns a clean value or raises an error."""

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
# Each is one object in a process, so that ``is`` compares them.
_FLOAT = np.dtype(np.float64)
_INTEGER = np.dtype(np.intp)
_FEW = 8  # entries up to which Python checks a vector faster than numpy

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of variances and lengthscales, and largest size of rewards: products and quotients of three of
them fit a float."""


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
    is_whole = numbers == values
    valid &= is_whole
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


def is_listed(value: object) -> bool:
    """Whether this is a list of some kind: not a number, a text or an array without an axis.

    Args:
        value: Any object.
    """
    if isinstance(value, list | tuple):  # a ragged one has no ``ndim``
        return True
    array_like: Any = value
    return np.ndim(array_like) > 0


_MOST_DRAWN = 1 << 31
"""Numbers that may be drawn at once: 16 GiB."""


def as_draws(size: Any, arms: int) -> int:
    """A number of joint draws that fit into memory.

    Args:
        size: The number of draws.
        arms: The number of arms of each draw.
    """
    draws = as_count(size, "size")
    numbers_per_draw = max(arms, 1)
    if draws * numbers_per_draw > _MOST_DRAWN:
        size_text = f"{draws:,}" if draws < 10**20 else "beyond 10²⁰"
        most_draws = _MOST_DRAWN // numbers_per_draw
        raise InputError(
            f"size is {size_text}; joint draws of {arms} arms may have {_MOST_DRAWN:,} numbers "
            f"together: draw at most {most_draws:,} at once"
        )
    return draws


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


def as_number(value: Any, name: str, least: float = -inf, most: float = inf) -> float:
    """Value as one finite number.

    Args:
        value: A number of Python or numpy.
        name: What errors call it.
        least: The smallest number allowed.
        most: The largest number allowed.
    """
    number = value if type(value) is float else _as_float(value, name)
    if not (isfinite(number) and least <= number <= most):
        raise InputError(
            f"{name} must be a number{_range(least, most)}, got {value!r:.60}"
        )
    return number


def _as_float(value: Any, name: str) -> float:
    is_number = not isinstance(value, bool | np.bool_ | str | bytes)
    try:
        if is_number and not np.ndim(value) and not np.ma.is_masked(value):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    # An integer fails only if it is too large.
    size = " that fits a float" if type(value) is int else ""
    raise InputError(f"{name} must be a number{size}, got {value!r:.60}")


def _range(least: float, most: float) -> str:
    if isfinite(least) and isfinite(most):
        return f" from {least:,} to {most:,}"
    if isfinite(least):
        return f" of at least {least:,}"
    return " that is finite"


def as_positive(value: Any, name: str) -> float:
    """Value as one finite number above 0.

    Args:
        value: A number of Python or numpy.
        name: What errors call it.
    """
    number = as_number(value, name)
    if number <= 0.0:
        raise InputError(f"{name} must be finite and above 0, got {number!r}")
    return number


def as_scale(value: Any, name: str) -> float:
    """Value as one number above 0 whose square and inverse fit a float.

    Args:
        value: A number of Python or numpy.
        name: What errors call it.
    """
    number = as_positive(value, name)
    require_scale(np.array([number]), name)
    return number


def as_noise_std(value: Any) -> float:
    """Value as a standard deviation of noise whose square is a valid variance.

    Args:
        value: A number of Python or numpy, in the unit of rewards.
    """
    return as_number(value, "noise_std", SMALLEST**0.5, LARGEST**0.5)


def require_scale(array: _Floats, name: str) -> None:
    """Refuse positive numbers that are too small or too large to compute with.

    Args:
        array: Positive numbers.
        name: What errors call them.
    """
    out_of_range = (array < SMALLEST) | (array > LARGEST)
    if out_of_range.any():
        first = array[out_of_range][0]
        raise InputError(
            f"{name} is {first:g}; squares of it must fit a float: "
            f"choose units in which it lies between {SMALLEST:g} and {LARGEST:g}"
        )


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


def as_count(value: Any, name: str, least: int = 1, most: float = inf) -> int:
    """Value as a whole number.

    Args:
        value: An integer of Python or numpy.
        name: What errors call it.
        least: The smallest number allowed.
        most: The largest number allowed.
    """
    if type(value) is int and least <= value <= most:
        return value
    # numpy's spans of time derive from its integers.
    is_other = isinstance(value, bool | np.timedelta64)
    is_whole = isinstance(value, int | np.integer) and not is_other
    if not is_whole or not least <= value <= most:
        raise InputError(
            f"{name} must be a whole number{_range(least, most)}, got {value!r:.60}"
        )
    return int(value)


def as_flag(value: Any, name: str) -> bool:
    """Value as true or false; 1 and 0 count as such.

    Args:
        value: A boolean of Python or numpy, or 1 or 0.
        name: What errors call it.
    """
    if not isinstance(value, bool | np.bool_ | int) or value not in (0, 1):
        raise InputError(f"{name} must be True or False, got {value!r:.60}")
    return bool(value)


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


def require_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of a few texts.

    Args:
        value: What the user chose.
        name: What errors call it.
        choices: The texts to choose from.
    """
    if isinstance(value, str) and value in choices:
        return
    *others, last = map(repr, choices)
    choices_text = f"{', '.join(others)} or {last}" if others else last
    raise InputError(f"{name} is {value!r:.60}; choose {choices_text}")


def as_plain(value: Any, where: str | None = None) -> Any:
    """Value as JSON represents it: numpy's numbers as numbers, infinity and NaN as null.

    Args:
        value: A plain value, an array, or a container of these.
        where: What errors call it. With it, nothing is converted: what JSON lacks is refused.
    """
    if isinstance(value, Mapping):
        table: dict[str, Any] = {}
        for key, item in value.items():
            item_where = f"{where}: {key}" if where else where
            table[str(key)] = as_plain(item, item_where)
        return table
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_plain(item, where) for item in value]
    if where is not None:
        _require_plain(value, where)
        return value
    if isinstance(value, np.ndarray | np.generic):
        return as_plain(value.tolist())
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def _require_plain(value: Any, where: str) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise SpecError(f"{where}: {value!r} is not a finite number")
    if not isinstance(value, str | int | float | None):
        raise SpecError(
            f"{where}: {value!s} is a {type(value).__name__}; use text or numbers"
        )


def require_type(value: Any, kind: type, name: str, advice: str = "") -> None:
    """Refuse a value of another type.

    Args:
        value: Any object.
        kind: The type that it must have.
        name: What errors call it.
        advice: The end of the error, such as an example.
    """
    if not isinstance(value, kind):
        raise InputError(
            f"{name} is {value!r:.60}, of type {type(value).__name__}; "
            f"it must be of type {kind.__name__}{advice}"
        )


def require_part(
    part: object,
    protocol: Any,
    name: str,
    *,
    kind: str = "",
    optional: bool = False,
) -> None:
    """Refuse what is no part of a protocol: a class, a bare name, a spec that was not built.

    Args:
        part: Any object.
        protocol: A runtime-checkable protocol, such as ``Oracle``, or ``collections.abc.Callable``.
        name: What errors call the part.
        kind: What such parts are called; ``name`` by default.
        optional: Whether ``None`` is allowed.

    >>> require_part(3, Mapping, "oracle")
    Traceback (most recent call last):
    superarm.core.errors.InputError: oracle must be an oracle with the methods of \
collections.abc.Mapping (in a spec, a table with its name: {"name": …}), got 3
    """
    if part is None and optional:
        return
    if isinstance(part, protocol) and not isinstance(part, type):
        return
    noun = kind or name
    article = "an" if noun[0] in "aeiou" else "a"
    raise InputError(
        f"{name} must be {article} {noun} with the methods of "
        f"{protocol.__module__}.{protocol.__name__} (in a spec, a table with its name: "
        f'{{"name": …}}), got {part!r:.60}'
    )


def as_path(value: Any, name: str) -> Path:
    """Value as the path of a file.

    Args:
        value: A text or a path.
        name: What errors call it.
    """
    if not isinstance(value, str | PathLike) or isinstance(value, bytes):
        raise InputError(
            f"{name} is {value!r:.60}; give the path of a file, as text or a Path"
        )
    text = fspath(value)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError(f"{name} is {value!r:.60}; no file can have this path")
    return Path(text)


def as_generator(rng: Any) -> np.random.Generator:
    """The generator itself, once it is known to be one.

    Args:
        rng: A generator of numpy.
    """
    if not isinstance(rng, np.random.Generator):
        raise InputError(
            f"rng is {rng!r:.60}; pass a generator: numpy.random.default_rng(seed)"
        )
    return rng


def _surely_small(array: _Floats) -> bool:
    """Whether one product proves every entry to be finite and at most ``LARGEST``.

    NaN and infinity persist in a sum of squares, which is below ``LARGEST`` only if every entry is
    below its root. ``False`` proves nothing: then check the entries.
    """
    return array.flags.c_contiguous and float(np.vdot(array, array)) <= LARGEST


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
