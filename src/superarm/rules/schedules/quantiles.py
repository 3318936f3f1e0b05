"""Widths that are quantiles of the posterior: Bayes-UCB and GP-BUCB."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from superarm.core import Gamma
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters, upper_quantile

from .bayesian import Discretisation, bayesian_log_tail


class QuantileSchedule(ABC):
    """A schedule whose width is a normal quantile: Φ⁻¹(1 − η_t), η_t the upper tail.

    In the papers' notation √β_t with β_t = 2 erf⁻¹(1 − 2η_t)². Squaring hides the sign, so η_t must
    stay below ½. Otherwise the width is 0, which is the posterior median.
    """

    @abstractmethod
    def log_tail(self, step: int) -> float:
        """ln η_t, which stays finite where η_t itself would underflow.

        Args:
            step: The round t.
        """

    def width(self, step: int, gamma: Gamma) -> float:
        return upper_quantile(self.log_tail(step))


@register("schedule", "bayes-ucb")
@dataclass(frozen=True, kw_only=True)
class BayesUCBQuantile(CheckedParameters, QuantileSchedule):
    """GP-BUCB on finitely many arms: η_t = √(2π)^ω / (2 |A|^ω t^ξ).

    sandberg2025bayesian, Theorem 3.2 (ii), after kaufmann2012bayesian. The theorem needs
    ξ > ω > 1; the experiments use ω = ξ = 1, for which it gives no bound.

    Args:
        arms: |A|: how many arms there are.
        omega: ω: exponent of the number of arms.
        xi: ξ: exponent of t.
    """

    arms: int
    omega: float = 1.0
    xi: float = 1.0

    def log_tail(self, step: int) -> float:
        log_points = math.log(self.arms)
        log_step = math.log(step)
        return bayesian_log_tail(log_points, log_step, self.omega, self.xi)


@register("schedule", "bayes-ucb-compact")
@dataclass(frozen=True, kw_only=True)
class BayesUCBQuantileCompact(Discretisation, QuantileSchedule):
    """GP-BUCB on a compact set: η_t = (2π)^{ω/2} / (2 τ_t^{dω} t^ξ).

    sandberg2025bayesian, Theorem 3.6 (ii).

    Args:
        dimension: d: number of features.
        tau: τ_t as a function of t, or the number that t^``tau_exponent`` multiplies.
        tau_exponent: Exponent of t in τ_t; the default is that of eq. 6d.
        omega: ω: exponent of the number of points.
        xi: ξ: exponent of t.
    """

    omega: float = 1.0
    xi: float = 1.0

    def log_tail(self, step: int) -> float:
        log_points = self.log_points(step)
        log_step = math.log(step)
        return bayesian_log_tail(log_points, log_step, self.omega, self.xi)


@register("schedule", "simple-quantile")
@dataclass(frozen=True, kw_only=True)
class SimpleQuantile(QuantileSchedule):
    """η_t = 1/(t + 1), whatever the number of arms.

    sandberg2025bayesian, Algorithm 2, prints 1/t, whose quantile is infinite at t = 1.
    """

    def log_tail(self, step: int) -> float:
        return -math.log(step + 1.0)
