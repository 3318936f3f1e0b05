"""Confidence widths for the Bayesian regret of functions drawn from a GP: sandberg2025bayesian.

==================  ==============================================================
``t``               the round, ``step``
``n``               points among which is chosen: |A| arms, or τ_t^d of a discretisation
``log_points``      ln n, which stays finite where n would overflow
``η_t``             the upper tail whose normal quantile is the width
``ω``, ``ξ``        ``omega`` and ``xi`` of GP-BUCB
==================  ==============================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from superarm.core import Floats, Gamma
from superarm.core.registry import register

from .base import Checked, root, upper_quantile

LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)

Number = TypeVar("Number", float, Floats)


def bayesian_beta(log_points: Number, log_step: Number) -> Number:
    """GP-UCB's β_t = 2 ln(n t²/√(2π)), negative for few points and rounds: Theorem 3.2 (i)."""
    return 2.0 * (log_points + 2.0 * log_step - LOG_ROOT_TWO_PI)


def bayesian_log_tail(
    log_points: Number, log_step: Number, omega: float, xi: float
) -> Number:
    """GP-BUCB's ln η_t, η_t = √(2π)^ω / (2 n^ω t^ξ), above ln ½ for few points: Theorem 3.2 (ii)."""
    return omega * (LOG_ROOT_TWO_PI - log_points) - _LOG_TWO - xi * log_step


@register("schedule", "gp-ucb-bayesian")
@dataclass(frozen=True, kw_only=True)
class BayesianGPUCB(Checked):
    """GP-UCB for Bayesian regret on finitely many arms: β_t = 2 ln(|A| t² / √(2π)).

    sandberg2025bayesian, Theorem 3.2 (i); ``scale`` multiplies β_t (½ in its Figure 3, which
    the theorem no longer covers).

    Args:
        arms: How many arms there are.
        scale: Multiplies the width or the cost.
    """

    arms: int
    scale: float = 1.0

    def width(self, step: int, gamma: Gamma) -> float:
        return root(self.scale * bayesian_beta(math.log(self.arms), math.log(step)))


@dataclass(frozen=True, kw_only=True)
class _Discretised(Checked):
    """τ_t points per dimension stand for a compact set; the default exponent is that of eq. 6d.

    Args:
        dimension: Number of features.
        tau: Discretisation points per dimension, times t to the power tau_exponent.
        tau_exponent: Exponent of t in the discretisation.
    """

    dimension: int
    tau: float | Callable[[int], float]
    tau_exponent: float = 2.0

    def log_points(self, step: int) -> float:
        """ln τ_t^d."""
        if callable(self.tau):
            return self.dimension * math.log(self.tau(step))
        return self.dimension * (
            math.log(self.tau) + self.tau_exponent * math.log(step)
        )


@register("schedule", "gp-ucb-bayesian-compact")
@dataclass(frozen=True, kw_only=True)
class BayesianGPUCBCompact(_Discretised):
    """GP-UCB for Bayesian regret on a compact set: β_t = 2 ln(τ_t^d t² / √(2π)).

    sandberg2025bayesian, Theorem 3.6 (i). τ_t is ``tau`` where that is callable, else
    ``tau``·t^``tau_exponent``.

    Args:
        scale: Multiplies the width or the cost.
    """

    scale: float = 1.0

    def width(self, step: int, gamma: Gamma) -> float:
        return root(self.scale * bayesian_beta(self.log_points(step), math.log(step)))


class QuantileSchedule(ABC):
    """Schedules whose width is a normal quantile: Φ⁻¹(1 − η_t), η_t the upper tail.

    In the papers' notation √β_t with β_t = 2 erf⁻¹(1 − 2η_t)². Squaring hides the sign, so
    η_t must stay below ½: from there on the width is 0, the posterior median.
    """

    @abstractmethod
    def log_tail(self, step: int) -> float:
        """ln η_t, which stays finite where η_t itself would underflow."""

    def width(self, step: int, gamma: Gamma) -> float:
        return upper_quantile(self.log_tail(step))


@register("schedule", "bayes-ucb")
@dataclass(frozen=True, kw_only=True)
class BayesUCBQuantile(Checked, QuantileSchedule):
    """GP-BUCB on finitely many arms: η_t = √(2π)^ω / (2 |A|^ω t^ξ).

    sandberg2025bayesian, Theorem 3.2 (ii), after kaufmann2012bayesian. The theorem needs
    ξ > ω > 1; the experiments use ω = ξ = 1, for which it gives no bound.

    Args:
        arms: How many arms there are.
        omega: Exponent of the number of arms.
        xi: Exponent of t in the quantile.
    """

    arms: int
    omega: float = 1.0
    xi: float = 1.0

    def log_tail(self, step: int) -> float:
        return bayesian_log_tail(
            math.log(self.arms), math.log(step), self.omega, self.xi
        )


@register("schedule", "bayes-ucb-compact")
@dataclass(frozen=True, kw_only=True)
class BayesUCBQuantileCompact(_Discretised, QuantileSchedule):
    """GP-BUCB on a compact set: η_t = (2π)^{ω/2} / (2 τ_t^{dω} t^ξ).

    sandberg2025bayesian, Theorem 3.6 (ii); ``tau`` as in :class:`BayesianGPUCBCompact`.

    Args:
        omega: Exponent of the number of arms.
        xi: Exponent of t in the quantile.
    """

    omega: float = 1.0
    xi: float = 1.0

    def log_tail(self, step: int) -> float:
        return bayesian_log_tail(
            self.log_points(step), math.log(step), self.omega, self.xi
        )


@register("schedule", "simple-quantile")
@dataclass(frozen=True, kw_only=True)
class SimpleQuantile(QuantileSchedule):
    """η_t = 1/(t + 1), whatever the number of arms.

    sandberg2025bayesian, Algorithm 2, prints 1/t, whose quantile is infinite at t = 1.
    """

    def log_tail(self, step: int) -> float:
        return -math.log(step + 1.0)
