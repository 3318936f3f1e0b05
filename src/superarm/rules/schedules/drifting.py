"""Widths for rewards that drift: bogunovic2016time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from superarm.core import Gamma, Schedule
from superarm.core.inputs import as_count, require_part
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters, root

_PI_SQUARED = math.pi**2


@register("schedule", "logarithmic")
@dataclass(frozen=True, kw_only=True)
class LogarithmicUCB(CheckedParameters):
    """√(c₁ ln(c₂ t)): the growth of theory, with constants chosen by hand.

    bogunovic2016time, section 5.

    Args:
        c1: c₁: multiplies the logarithm.
        c2: c₂: multiplies t inside the logarithm.
    """

    c1: float = 0.8
    c2: float = 4.0

    def width(self, step: int, gamma: Gamma) -> float:
        beta = self.c1 * math.log(self.c2 * step)
        return root(beta)


@register("schedule", "in-block")
@dataclass(frozen=True, kw_only=True)
class InBlock:
    """The width of another schedule at the step within its block of ``block`` steps.

    For posteriors that restart with every block. γ is evaluated at that step, too.

    Args:
        schedule: How wide the confidence bound is in each round of a block.
        block: Number of rounds between two resets.
    """

    schedule: Schedule
    block: int

    def __post_init__(self) -> None:
        require_part(self.schedule, Schedule, "schedule")
        block = as_count(self.block, "block")
        object.__setattr__(self, "block", block)

    def width(self, step: int, gamma: Gamma) -> float:
        step_in_block = (step - 1) % self.block + 1
        return self.schedule.width(step_in_block, gamma)


@dataclass(frozen=True, kw_only=True)
class DriftSchedule(CheckedParameters):
    """β_T = 2 ln(m π²T²/(6δ)) + 2d ln(r d b T² √ln(d a m π²T²/(6δ))), where m events share δ.

    β grows with the round (eq. 34) unless a ``horizon`` T fixes it. The discretisation under the second
    logarithm has at least one point.

    Args:
        dimension: d: number of features.
        side: r: side length of the domain.
        a: Constant a of the tail bound on the derivatives of f.
        b: Constant b of the tail bound on the derivatives of f.
        delta: δ: probability with which the confidence bounds may fail.
        horizon: T: number of rounds; by default β grows with the round.
    """

    dimension: int
    side: float = 1.0
    a: float = 1.0
    b: float = 1.0
    delta: float = 0.1
    horizon: int | None = None

    events: ClassVar[float]
    """m: the number of events that share δ."""

    def width(self, step: int, gamma: Gamma) -> float:
        rounds = step if self.horizon is None else self.horizon
        squared_rounds = float(rounds * rounds)
        d = self.dimension
        # m π²T²/(6δ)
        all_events = self.events * _PI_SQUARED * squared_rounds
        events = all_events / (6.0 * self.delta)
        # r d b T² √ln(d a m π²T²/(6δ))
        log_slopes = math.log(d * self.a * events)
        slope = root(log_slopes)
        points = self.side * d * self.b * squared_rounds * slope
        log_points = math.log(max(1.0, points))
        log_events = math.log(events)
        beta = 2.0 * log_events + 2.0 * d * log_points
        return root(beta)


@register("schedule", "r-gp-ucb")
@dataclass(frozen=True, kw_only=True)
class ResettingGPUCB(DriftSchedule):
    """R-GP-UCB: β_T = 2 ln(2π²T²/(3δ)) + 2d ln(r d b T² √ln(2daπ²T²/(3δ))).

    bogunovic2016time, Theorem 4.2, eq. 16, for the domain [0, r]^d, r the ``side``; a and b
    bound the slopes of the prior's draws (eq. 10). A ``horizon`` T fixes β.

    Args:
        dimension: d: number of features.
        side: r: side length of the domain.
        a: Constant a of the tail bound on the derivatives of f.
        b: Constant b of the tail bound on the derivatives of f.
        delta: δ: probability with which the confidence bounds may fail.
        horizon: T: number of rounds; by default β grows with the round.
    """

    events: ClassVar[float] = 4.0


@register("schedule", "tv-gp-ucb")
@dataclass(frozen=True, kw_only=True)
class TimeVaryingGPUCB(DriftSchedule):
    """TV-GP-UCB: β_T = 2 ln(π²T²/(2δ)) + 2d ln(r d b T² √ln(daπ²T²/(2δ))).

    bogunovic2016time, Theorem 4.3, eq. 19; a and b as in :class:`ResettingGPUCB`.

    Args:
        dimension: d: number of features.
        side: r: side length of the domain.
        a: Constant a of the tail bound on the derivatives of f.
        b: Constant b of the tail bound on the derivatives of f.
        delta: δ: probability with which the confidence bounds may fail.
        horizon: T: number of rounds; by default β grows with the round.
    """

    events: ClassVar[float] = 3.0
