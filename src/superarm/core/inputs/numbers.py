"""Checks of single numbers: each returns a clean value or raises an error."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core.errors import InputError

SMALLEST, LARGEST = 1e-100, 1e100
"""Range of variances and lengthscales, and largest size of rewards: products and quotients of three of
them fit a float."""

_MOST_DRAWN = 1 << 31
"""Numbers that may be drawn at once: 16 GiB."""


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


def require_scale(array: NDArray[np.float64], name: str) -> None:
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
    is_integer = isinstance(value, int | np.integer) and not is_other
    if not is_integer or not least <= value <= most:
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
