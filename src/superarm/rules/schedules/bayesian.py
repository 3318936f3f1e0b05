"""Confidence widths for the Bayesian regret of functions drawn from a GP: sandberg2025bayesian.

==================  ==============================================================
``t``               the round, ``step``
``n``               points to choose from: |A| arms, or τ_t^d of a discretisation
``log_points``      ln n, which stays finite where n would overflow
``η_t``             the upper tail whose normal quantile is the width
``ω``, ``ξ``        ``omega`` and ``xi`` of GP-BUCB
==================  ==============================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from superarm.core import Floats, Gamma
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters, root

LOG_ROOT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)

Number = TypeVar("Number", float, Floats)


def bayesian_beta(log_points: Number, log_step: Number) -> Number:
    """GP-UCB's β_t = 2 ln(n t²/√(2π)), negative for few points and rounds: Theorem 3.2 (i).

    Args:
        log_points: ln n.
        log_step: ln t.
    """
    logarithm = log_points + 2.0 * log_step - LOG_ROOT_TWO_PI
    return 2.0 * logarithm


def bayesian_log_tail(
    log_points: Number, log_step: Number, omega: float, xi: float
) -> Number:
    """GP-BUCB's ln η_t, η_t = √(2π)^ω / (2 n^ω t^ξ), above ln ½ for few points: Theorem 3.2 (ii).

    Args:
        log_points: ln n.
        log_step: ln t.
        omega: ω, the exponent of n.
        xi: ξ, the exponent of t.
    """
    points_term = omega * (LOG_ROOT_TWO_PI - log_points)
    step_term = xi * log_step
    return points_term - _LOG_TWO - step_term


@register("schedule", "gp-ucb-bayesian")
@dataclass(frozen=True, kw_only=True)
class BayesianGPUCB(CheckedParameters):
    """GP-UCB for Bayesian regret on finitely many arms: β_t = 2 ln(|A| t² / √(2π)).

    sandberg2025bayesian, Theorem 3.2 (i); ``scale`` multiplies β_t (½ in its Figure 3, which
    the theorem no longer covers).

    Args:
        arms: |A|: how many arms there are.
        scale: Multiplies β_t.
    """

    arms: int
    scale: float = 1.0

    def width(self, step: int, gamma: Gamma) -> float:
        log_points = math.log(self.arms)
        log_step = math.log(step)
        beta = bayesian_beta(log_points, log_step)
        return root(self.scale * beta)


@dataclass(frozen=True, kw_only=True)
class Discretisation(CheckedParameters):
    """A grid of τ_t points per dimension in place of a compact set.

    Args:
        dimension: d: number of features.
        tau: τ_t as a function of t, or the number that t^``tau_exponent`` multiplies.
        tau_exponent: Exponent of t in τ_t; the default is that of eq. 6d.
    """

    dimension: int
    tau: float | Callable[[int], float]
    tau_exponent: float = 2.0

    def log_points(self, step: int) -> float:
        """ln τ_t^d.

        Args:
            step: The round t.
        """
        if callable(self.tau):
            log_tau = math.log(self.tau(step))
        else:
            log_power = self.tau_exponent * math.log(step)
            log_tau = math.log(self.tau) + log_power
        return self.dimension * log_tau


@register("schedule", "gp-ucb-bayesian-compact")
@dataclass(frozen=True, kw_only=True)
class BayesianGPUCBCompact(Discretisation):
    """GP-UCB for Bayesian regret on a compact set: β_t = 2 ln(τ_t^d t² / √(2π)).

    sandberg2025bayesian, Theorem 3.6 (i).

    Args:
        dimension: d: number of features.
        tau: τ_t as a function of t, or the number that t^``tau_exponent`` multiplies.
        tau_exponent: Exponent of t in τ_t; the default is that of eq. 6d.
        scale: Multiplies β_t.
    """

    scale: float = 1.0

    def width(self, step: int, gamma: Gamma) -> float:
        log_points = self.log_points(step)
        log_step = math.log(step)
        beta = bayesian_beta(log_points, log_step)
        return root(self.scale * beta)
