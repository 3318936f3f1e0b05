"""Compact sets of arms, seen through the points that stand for them: sandberg2025bayesian, section 3.2.

========================  ==============================================================
``tau``                   τ_t, the points per dimension of the discretisation D_t
``s``                     ln τ_t: everything is computed in it
``v``                     ``largest_variance``, max k(a, a)
========================  ==============================================================

The rest of the notation, and all that is assumed, stands in :mod:`superarm.lab.theory.bayesian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_positive
from superarm.rules.schedules.bayesian import (
    LOG_ROOT_TWO_PI,
    bayesian_beta,
    bayesian_log_tail,
)

from .arguments import as_rounds

_LOG_HALF = -math.log(2.0)
_LARGEST_EXACT = 2.0**53
_STEPS = 1000


def confidence_parameter(
    rounds: Any, log_points: Any, omega: float | None = None, xi: float | None = None
) -> Floats:
    """β_t at t = ``rounds`` for ln|A|, or ln τ_t^d, = ``log_points``; 0 where it is negative.

    With ω and ξ that of GP-BUCB: the squared normal quantile at 1 − η_t, computed from ln η_t so that
    a tail below the smallest float keeps its digits; 0 where η_t ≥ ½. Else that of GP-UCB and GP-TS.

    Args:
        rounds: t, one or several.
        log_points: ln|A| or ln τ_t^d.
        omega: ω of GP-BUCB.
        xi: ξ of GP-BUCB.
    """
    log_t = np.log(as_rounds(rounds))
    points = np.asarray(log_points, dtype=np.float64)
    if omega is None and xi is None:
        beta = bayesian_beta(points, log_t)
        return np.maximum(0.0, beta)
    if omega is None or xi is None:
        raise InputError("gp-bucb needs both omega and xi")
    from scipy.special import ndtri_exp

    omega = as_positive(omega, "omega")
    xi = as_positive(xi, "xi")
    log_tail = bayesian_log_tail(points, log_t, omega, xi)  # ln η_t
    below_half = np.minimum(log_tail, _LOG_HALF)
    width = np.maximum(0.0, -ndtri_exp(below_half))
    return np.asarray(width**2)


class DiscretisationConditions(NamedTuple):
    """Assumption 3.4 in logarithms: τ ≥ e^least, τ/β ≥ e^ratio, τ²/β ≥ e^square."""

    least: Floats  # eqs 6a and 6d
    ratio: Floats  # eq. 6b
    square: Floats  # eq. 6c

    def required(self, log_beta: Floats, power: float = 0.0) -> Floats:
        """The least ln τ.

        Args:
            log_beta: ln β.
            power: p, for a β of τ^p times as much.
        """
        least_ratio = self.ratio + log_beta
        from_ratio = least_ratio / (1.0 - power)
        least_square = self.square + log_beta
        from_square = least_square / (2.0 - power)
        from_beta = np.maximum(from_ratio, from_square)
        from_size = np.maximum(0.0, self.least)
        return np.maximum(from_size, from_beta)


@dataclass(frozen=True, kw_only=True)
class CompactSet:
    """Arms in [0, C₁]^d, and how fast the function changes over them: Assumption 3.3.

    Args:
        dimension: d.
        side: C₁.
        lipschitz: L, of the prior mean and of the kernel.
        derivative_constants: (C₂, C₃) with P(sup |∂f/∂a_j| > l) ≤ C₂ exp(−l²/C₃²): eq. 5.
    """

    dimension: int
    side: float
    lipschitz: float
    derivative_constants: tuple[float, float]

    def __post_init__(self) -> None:
        as_count(self.dimension, "dimension")
        as_positive(self.side, "side")
        as_positive(self.lipschitz, "lipschitz")
        for place, value in enumerate(self.derivative_constants):
            as_positive(value, f"derivative_constants[{place}]")

    def conditions(
        self,
        t: Any,
        *,
        budget: int,
        noise_variance: float,
        largest_variance: float = 1.0,
    ) -> DiscretisationConditions:
        """Eqs 6a–6d, for the g = f/√v of kernel at most 1.

        g's mean has the Lipschitz constant L/√v and its kernel L/v, so the larger of the two is
        taken; its noise is ς/√v and its C₃ is C₃/√v. Where C₂d < 1 the ln(C₂d) of eq. 6d counts as
        0: it comes from E sup|∂f| ≤ ∫ min(1, C₂d·exp(−l²/C₃²)) dl, which is then below C₃√π/2.

        Args:
            t: rounds, one or several.
            budget: K, the most arms that a decision holds.
            noise_variance: ς².
            largest_variance: v.
        """
        rounds = as_rounds(t)
        K = as_count(budget, "budget")
        d = self.dimension
        v = as_positive(largest_variance, "largest_variance")
        root_v = math.sqrt(v)
        noise_std = math.sqrt(as_positive(noise_variance, "noise_variance"))
        noise = noise_std / root_v
        c2, c3 = self.derivative_constants
        slope = c3 / root_v
        log_directions = max(0.0, math.log(c2 * d))
        spread = math.sqrt(log_directions)
        log_scale = math.log(min(v, root_v))
        log_lipschitz = math.log(self.lipschitz) - log_scale
        log_reach = math.log(d) + math.log(self.side)  # d·C₁
        log_change = log_lipschitz + log_reach  # L·d·C₁
        log_K = math.log(K)
        log_t = np.log(rounds)
        # Eq. 6a.
        log_observed = np.log1p(rounds * K / noise)
        mean = math.log(2.0) + log_K + log_change + 2.0 * log_t + log_observed
        # Eq. 6b.
        ratio = math.log(8.0) + 2.0 * log_K + log_change + 4.0 * log_t
        # Eq. 6c.
        log_change_in_noise = log_change - math.log(noise)
        log_factor = math.log(8.0) + 3.0 * log_K + 2.0 * log_change_in_noise
        square = log_factor + 5.0 * log_t
        # Eq. 6d.
        log_spread = math.log(spread + 0.5 * math.sqrt(math.pi))
        steepest = math.log(slope) + log_spread
        path = log_K + log_reach + steepest + 2.0 * log_t
        return DiscretisationConditions(
            least=np.maximum(mean, path),
            ratio=np.asarray(ratio),
            square=np.asarray(square),
        )

    def log_size(
        self,
        t: Any,
        *,
        budget: int,
        noise_variance: float,
        omega: float | None = None,
        xi: float | None = None,
        largest_variance: float = 1.0,
    ) -> Floats:
        """ln τ_t, real and not negative, from which on every τ satisfies Assumption 3.4.

        β_t, that of GP-BUCB where ω and ξ are given, depends on τ_t, so the conditions read s ≥ F(s)
        for s = ln τ, with F increasing. They may also hold at small τ, where β_t is nearly 0, and fail
        above; since p·s − ln β(s) is convex (β is affine in s for GP-UCB; for GP-BUCB (ln β)′ is a
        Mills ratio over the width, which falls), they fail on one interval at most. Taken is the end
        of it, the largest solution of s = F(s): it grows with t, and so does β_t, as Lemma A.3 needs.
        Found by s ← F(s) from the closed form downwards: each step satisfies the conditions, so
        stopping early is safe.

        Args:
            t: rounds, one or several.
            budget: K, the most arms that a decision holds.
            noise_variance: ς².
            omega: ω of GP-BUCB.
            xi: ξ of GP-BUCB.
            largest_variance: v.
        """
        conditions = self.conditions(
            t,
            budget=budget,
            noise_variance=noise_variance,
            largest_variance=largest_variance,
        )
        s = self.log_closed_size(t, conditions, omega=omega, xi=xi)
        for _ in range(_STEPS):
            beta = confidence_parameter(t, self.dimension * s, omega, xi)
            with np.errstate(divide="ignore"):  # β may be 0
                smaller = np.minimum(s, conditions.required(np.log(beta)))
            if np.all(s - smaller <= 1e-13 * s):
                return smaller
            s = smaller
        return s

    def log_closed_size(
        self,
        t: Any,
        conditions: DiscretisationConditions,
        *,
        omega: float | None = None,
        xi: float | None = None,
    ) -> Floats:
        """ln τ_t by the closed forms of Remark A.7, eq. 59 (or eq. 60 with ω and ξ), put right.

        With c = ln(t²/√(2π)) they rest on β = 2(d ln τ + c) ≤ 2τ^{1/e}(d + c), by ln τ ≤ τ^{1/e} and
        1 ≤ τ^{1/e}. The second step needs c ≥ 0, false at t = 1: there eq. 59 can be too small (and
        for d = 1 has almost nothing under its root), so c counts as at least 0 here.

        For GP-BUCB, Lemma A.14 with both its parameters 1 gives β ≤ −2 ln(2η_t) =
        2(dω ln τ + ln(t^ξ/√(2π)^ω)): the 2 of 2η_t cancels that in η_t, which eq. 60 keeps.

        Args:
            t: rounds, one or several.
            conditions: of :meth:`conditions`.
            omega: ω of GP-BUCB.
            xi: ξ of GP-BUCB.
        """
        log_t = np.log(as_rounds(t))
        if omega is None or xi is None:
            points = float(self.dimension)
            tail = 2.0 * log_t - LOG_ROOT_TWO_PI
        else:
            points = self.dimension * omega
            tail = xi * log_t - omega * LOG_ROOT_TWO_PI
        factor = points + np.maximum(0.0, tail)  # d + c
        growth = math.log(2.0) + np.log(factor)
        return conditions.required(growth, power=1.0 / math.e)


def log_ceiling(s: Floats) -> Floats:
    """ln of the next whole number from e^s on, up to rounding.

    Above 2⁵³, where all floats are whole, s itself.

    Args:
        s: ln τ, of any shape.
    """
    largest = math.log(_LARGEST_EXACT)
    exact = np.minimum(s, largest)
    size = np.exp(exact)
    nearest = np.round(size)
    # e^s has about 15 digits: a whole number that it misses by less is meant.
    digits = np.maximum(s, 1.0)
    tolerance = 1e-14 * digits * size
    is_integer = np.abs(size - nearest) <= tolerance
    ceiling = np.where(is_integer, nearest, np.ceil(size))
    log_next = np.log(np.maximum(1.0, ceiling))
    return np.where(s < largest, log_next, s)
