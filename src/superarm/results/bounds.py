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


class RegretBounds(NamedTuple):
    """What theory says of a run's first setting, policy by policy."""

    drawn: Mapping[str, Bound]  # by policy
    missing: Mapping[str, str]  # why other policies have none, as sentences without their full stops
    note: str = ""  # what all of them take for granted, as whole sentences
    orders: Mapping[str, Bound] = MappingProxyType({})  # by policy: growth alone, scaled to the regret
