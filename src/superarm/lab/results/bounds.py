"""Theory over a run: the bounds that were worked out for its policies, and why others have none."""

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
    corollary: (
        float | None
    )  # the same by the paper's own corollary, where the order is its own
    exponent: float  # p where the order grows like T^p over the last half of the rounds
    measured: (
        float | None
    )  # the same of the run's regret, where the run has the algorithm


class RateTable(NamedTuple):
    """Orders of regret side by side."""

    rows: tuple[Rate, ...]
    note: str  # what they take for granted, as whole sentences


class RegretBounds(NamedTuple):
    """What theory says of a run's first setting, policy by policy."""

    drawn: Mapping[str, Bound]  # by policy
    missing: Mapping[
        str, str
    ]  # why other policies have none, as sentences without their full stops
    note: str = ""  # what all of them take for granted, as whole sentences
    rates: RateTable | None = None  # orders of regret, where the paper compares several
    orders: Mapping[str, Bound] = MappingProxyType(
        {}
    )  # by policy: growth alone, scaled to the regret
