"""Parameter checks and the normal quantile, shared by schedules and index rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from statistics import NormalDist
from types import ModuleType
from typing import Any

from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, as_positive

_LOG_HALF = -math.log(2.0)
_LOG_SMALLEST = -700.0  # exp(-700) is still a normal number
_lower_quantile = NormalDist().inv_cdf


def upper_quantile(log_tail: float) -> float:
    """The standard normal quantile at 1 − η; 0 where η ≥ ½.

    It works on the lower tail, so that no digit of a small η is lost in 1 − η.

    Args:
        log_tail: ln η.
    """
    if log_tail >= _LOG_HALF:
        return 0.0
    if log_tail > _LOG_SMALLEST:
        tail = math.exp(log_tail)
        return -_lower_quantile(tail)
    quantile = special().ndtri_exp(log_tail)
    return -float(quantile)


def root(beta: float) -> float:
    """√β, the width for a paper's β; 0 for a negative β.

    Args:
        beta: β, the squared width.
    """
    return math.sqrt(beta) if beta > 0.0 else 0.0


@cache
def special() -> ModuleType:
    """``scipy.special``, loaded on first use."""
    import scipy.special

    return scipy.special


def as_probability(value: Any, name: str) -> float:
    """A number strictly between 0 and 1, checked.

    Args:
        value: The number.
        name: Name of the parameter, for the error message.
    """
    number = as_number(value, name)
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} must be strictly between 0 and 1, got {number!r}")
    return number


def _as_optional_count(value: Any, name: str) -> int | None:
    return None if value is None else as_count(value, name)


def _as_positive_or_function(value: Any, name: str) -> Any:
    return value if callable(value) else as_positive(value, name)


_as_not_negative = partial(as_number, least=0.0)

# The check of every parameter, by its name, which means the same in all schedules.
_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "a": as_positive,
    "arms": as_count,
    "b": as_positive,
    "c1": as_positive,
    "c2": as_positive,
    "delta": as_probability,
    "dimension": as_count,
    "eta": _as_not_negative,
    "horizon": _as_optional_count,
    "most_arms": as_count,
    "noise_bound": _as_not_negative,
    "norm_bound": _as_not_negative,
    "omega": as_positive,
    "regularisation": as_positive,
    "scale": as_positive,
    "side": as_positive,
    "tau": _as_positive_or_function,
    "tau_exponent": as_number,
    "value": _as_not_negative,
    "xi": as_positive,
}


@dataclass(frozen=True, kw_only=True)
class CheckedParameters:
    """A base class that checks the parameters of a schedule by their names.

    It stores plain floats and integers, whatever the caller passed.
    """

    def __post_init__(self) -> None:
        for parameter in fields(self):
            name = parameter.name
            check = _CHECKS[name]
            value = check(getattr(self, name), name)
            object.__setattr__(self, name, value)
