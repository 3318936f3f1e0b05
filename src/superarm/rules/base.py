"""What schedules and index rules share: parameter checks and the normal quantile."""

from __future__ import annotations

import math
import operator
from functools import cache
from statistics import NormalDist
from types import ModuleType
from typing import Any

from superarm.errors import InputError
from superarm.inputs import as_positive

_LOG_HALF = -math.log(2.0)
_LOG_SMALLEST = -700.0  # exp(-700) is still a normal number
_lower_quantile = NormalDist().inv_cdf


def upper_quantile(log_tail: float) -> float:
    """The standard normal quantile at 1 − η, given ln η; 0 where η ≥ ½.

    Works on the lower tail, so that no digit of a small η is lost in 1 − η.

    >>> round(upper_quantile(math.log(0.025)), 6)
    1.959964
    """
    if log_tail >= _LOG_HALF:
        return 0.0
    if log_tail > _LOG_SMALLEST:
        return -_lower_quantile(math.exp(log_tail))
    return -float(special().ndtri_exp(log_tail))


def root(beta: float) -> float:
    """√β, the width that a paper's β gives; 0 for a β below zero."""
    return math.sqrt(beta) if beta > 0.0 else 0.0


@cache
def special() -> ModuleType:
    """``scipy.special``, loaded on first use."""
    import scipy.special

    return scipy.special


# Frozen parts store their checked parameters through these, so that a width is computed from
# plain floats and integers whatever the caller passed.


def keep_positive(part: object, *fields: str) -> None:
    """Fields that are finite and above 0."""
    for field in fields:
        object.__setattr__(part, field, as_positive(getattr(part, field), field))


def keep_nonnegative(part: object, *fields: str) -> None:
    """Fields that are finite and at least 0."""
    for field in fields:
        value = _as_number(getattr(part, field), field)
        if value < 0.0:
            raise InputError(f"{field} is {value!r}; it must not be negative")
        object.__setattr__(part, field, value)


def keep_finite(part: object, *fields: str) -> None:
    """Fields that are finite."""
    for field in fields:
        object.__setattr__(part, field, _as_number(getattr(part, field), field))


def keep_probability(part: object, *fields: str) -> None:
    """Fields strictly between 0 and 1."""
    for field in fields:
        value = _as_number(getattr(part, field), field)
        if not 0.0 < value < 1.0:
            raise InputError(f"{field} is {value!r}; it must lie strictly between 0 and 1")
        object.__setattr__(part, field, value)


def keep_count(part: object, *fields: str) -> None:
    """Fields that are integers from 1 on."""
    for field in fields:
        value = getattr(part, field)
        try:
            number = operator.index(value)
        except TypeError:
            raise InputError(f"{field} must be an integer, not {value!r}") from None
        if number < 1:
            raise InputError(f"{field} is {number}; it must be at least 1")
        object.__setattr__(part, field, number)


_METHODS = {"schedule": "width", "gain": "__call__", "rule": "desirability"}


def require_part(value: object, field: str, family: str, *, optional: bool = False) -> None:
    """Refuse what is no part of the family: a number, a bare name, a spec that was not built."""
    if value is None and optional:
        return
    if isinstance(value, type) or not callable(getattr(value, _METHODS[family], None)):
        raise InputError(
            f"{field} is {value!r}; it must be a {family}, or in a spec a table with its name: "
            f'"{field}": {{"name": …}}'
        )


def _as_number(value: Any, field: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{field} must be a number, not {value!r}") from None
    if not math.isfinite(number):
        raise InputError(f"{field} is {number!r}; it must be finite")
    return number
