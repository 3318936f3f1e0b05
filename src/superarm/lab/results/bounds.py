"""Theory over a run: bounds on the regret of its policies, and why others have none."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from superarm.core import Floats


class Bound(NamedTuple):
    """A bound on one policy's cumulative regret, to be drawn over it."""

    label: str
    rounds: Floats
    values: Floats
    assumes: str  # what it rests on, as a sentence without its full stop


class Rate(NamedTuple):
    """One row of a paper's table of regret orders, at the size of a run."""

    algorithm: str
    work: str  # whose order it is: a paper, or a case of the algorithm
    order: str  # the formula as printed
    value: float  # of it after the last round
    # The same by the paper's own corollary, where the order is its own.
    corollary: float | None
    exponent: float  # p where the order grows like T^p over the last half of the rounds
    # The exponent of the run's regret, where the run has the algorithm.
    measured: float | None


class RateTable(NamedTuple):
    """Orders of regret side by side."""

    rows: tuple[Rate, ...]
    note: str  # their assumptions, as whole sentences


class RegretBounds(NamedTuple):
    """Bounds from theory for a run's first setting.

    Args:
        drawn: Bounds by policy.
        missing: Why other policies have none, by policy, as sentences without their full
            stops.
        note: The assumptions of all bounds, as whole sentences.
        rates: Orders of regret, where the paper compares several.
        orders: Growth alone, scaled to the regret, by policy.
    """

    drawn: Mapping[str, Bound]
    missing: Mapping[str, str]
    note: str = ""
    rates: RateTable | None = None
    orders: Mapping[str, Bound] = MappingProxyType({})
