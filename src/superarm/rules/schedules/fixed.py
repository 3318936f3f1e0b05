"""A constant width."""

from __future__ import annotations

from dataclasses import dataclass

from superarm.core import Gamma
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters


@register("schedule", "fixed")
@dataclass(frozen=True, kw_only=True)
class Fixed(CheckedParameters):
    """The same width in every round.

    Args:
        value: The width, 0 or more.
    """

    value: float

    def width(self, step: int, gamma: Gamma) -> float:
        return self.value
