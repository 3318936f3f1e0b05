"""What schedules and index rules share: parameter checks and the normal quantile."""

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
    """The standard normal quantile at 1 − η, given ln η; 0 where η ≥ ½.

    Works on the lower tail, so that no digit of a small η is lost in 1 − η.
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


def as_probability(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    number = as_number(value, name)
    if not 0.0 < number < 1.0:
        raise InputError(f"{name} is {number!r}; it must lie strictly between 0 and 1")
    return number


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("arms", "most_arms", "dimension"), as_count),
    **dict.fromkeys(
        ("value", "norm_bound", "noise_bound", "eta"), partial(as_number, least=0.0)
    ),
    **dict.fromkeys(
        ("regularisation", "scale", "omega", "xi", "c1", "c2"), as_positive
    ),
    **dict.fromkeys(("side", "a", "b"), as_positive),
    "delta": as_probability,
    "horizon": lambda value, name: None if value is None else as_count(value, name),
    "tau": lambda value, name: value if callable(value) else as_positive(value, name),
    "tau_exponent": as_number,
}


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A schedule's parameters: what each must be goes by its name.

    They are kept as plain floats and integers, whatever the caller passed, and widths computed from
    these.
    """

    def __post_init__(self) -> None:
        for each in fields(self):
            kept = _CHECKS[each.name](getattr(self, each.name), each.name)
            object.__setattr__(self, each.name, kept)


_METHODS = {"schedule": "width", "gain": "__call__", "rule": "desirability"}


def require_part(
    value: object, field: str, family: str, *, optional: bool = False
) -> None:
    """Refuse what is no part of the family: a number, a bare name, a spec that was not built."""
    if value is None and optional:
        return
    if isinstance(value, type) or not callable(getattr(value, _METHODS[family], None)):
        raise InputError(
            f"{field} is {value!r}; it must be a {family}, or in a spec a table with its name: "
            f'"{field}": {{"name": …}}'
        )
