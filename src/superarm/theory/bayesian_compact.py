"""Bayesian regret on a compact set of arms: sandberg2025bayesian, section 3.2.

========================  ==============================================================
``dimension``             d
``side``                  C₁, the arms lie in [0, C₁]^d
``lipschitz``             L, of the prior mean and of the kernel (Assumption 3.3)
``derivative_constants``  (C₂, C₃) with P(sup |∂f/∂a_j| > l) ≤ C₂ exp(−l²/C₃²) (eq. 5)
``noise_std``             ς
``tau``                   τ_t, the points per dimension of the discretisation D_t
``s``                     ln τ_t: everything is computed in it
========================  ==============================================================

The rest of the notation, and all that is assumed, stands in :mod:`superarm.theory.bayesian`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Gamma
from superarm.errors import InputError
from superarm.inputs import as_positive
from superarm.rules.bayesian import LOG_ROOT_TWO_PI

from .bayesian import (
    BayesianAlgorithm,
    _count,
    assembled_bound,
    confidence_parameter,
    require_algorithm,
)
from .bounds import _rounds

_LOG_LARGEST = math.log(np.finfo(np.float64).max)
_LARGEST_EXACT = 2.0**53
_STEPS = 1000


class DiscretisationConditions(NamedTuple):
    """Assumption 3.4 in logarithms: τ ≥ e^least, τ/β ≥ e^ratio, τ²/β ≥ e^square."""

    least: Floats
    """Eqs 6a and 6d."""
    ratio: Floats
    """Eq. 6b."""
    square: Floats
    """Eq. 6c."""

    def hold(self, log_tau: Any, beta: Any, tolerance: float = 1e-9) -> bool:
        """Whether ``log_tau`` with its ``beta`` satisfies all of them, up to rounding."""
        s = np.asarray(log_tau, dtype=np.float64) + tolerance
        log_beta = _log(np.asarray(beta, dtype=np.float64))
        return bool(np.all(s >= self.required(log_beta)))

    def required(self, log_beta: Floats) -> Floats:
        """The least ln τ for this ln β."""
        return np.maximum(
            np.maximum(0.0, self.least),
            np.maximum(self.ratio + log_beta, 0.5 * (self.square + log_beta)),
        )


def discretisation_conditions(
    t: Any,
    *,
    dimension: int,
    budget: int,
    noise_std: float,
    lipschitz: float,
    side: float,
    derivative_constants: tuple[float, float],
    largest_variance: float = 1.0,
) -> DiscretisationConditions:
    """Eqs 6a–6d, for the g = f/√v of kernel at most 1.

    g's mean has the Lipschitz constant L/√v and its kernel L/v, so the larger of the two is
    taken; its noise is ς/√v and its C₃ is C₃/√v. Where C₂d < 1 the ln(C₂d) of eq. 6d counts as
    0: it comes from E sup|∂f| ≤ ∫ min(1, C₂d·exp(−l²/C₃²)) dl, which is then below C₃√π/2.
    """
    rounds = _rounds(t)
    K, d = _count(budget, "budget"), _count(dimension, "dimension")
    v = as_positive(largest_variance, "largest_variance")
    noise = as_positive(noise_std, "noise_std") / math.sqrt(v)
    first, second = derivative_constants
    slope = as_positive(second, "derivative_constants[1]") / math.sqrt(v)
    spread = math.sqrt(max(0.0, math.log(as_positive(first, "derivative_constants[0]") * d)))
    log_reach = math.log(d) + math.log(as_positive(side, "side"))  # d·C₁
    log_change = math.log(as_positive(lipschitz, "lipschitz")) - math.log(min(v, math.sqrt(v)))
    log_change += log_reach  # L·d·C₁
    log_K, log_t = math.log(K), np.log(rounds)
    mean = math.log(2.0) + log_K + log_change + 2.0 * log_t + np.log1p(rounds * K / noise)  # 6a
    ratio = math.log(8.0) + 2.0 * log_K + log_change + 4.0 * log_t  # 6b
    square = math.log(8.0) + 3.0 * log_K + 2.0 * (log_change - math.log(noise)) + 5.0 * log_t  # 6c
    steepest = math.log(slope) + math.log(spread + 0.5 * math.sqrt(math.pi))
    path = log_K + log_reach + steepest + 2.0 * log_t  # 6d
    return DiscretisationConditions(np.maximum(mean, path), np.asarray(ratio), np.asarray(square))


def log_bayesian_discretisation_size(
    t: Any,
    *,
    dimension: int,
    budget: int,
    noise_std: float,
    lipschitz: float,
    side: float,
    derivative_constants: tuple[float, float],
    algorithm: BayesianAlgorithm,
    omega: float | None = None,
    xi: float | None = None,
    largest_variance: float = 1.0,
) -> Floats:
    """ln τ_t, real and not negative, from which on every τ satisfies Assumption 3.4.

    β_t depends on τ_t, so the conditions read s ≥ F(s) for s = ln τ, with F increasing. They may
    also hold at small τ, where β_t is nearly 0, and fail above; since p·s − ln β(s) is convex
    (β is affine in s for GP-UCB; for GP-BUCB (ln β)′ is a Mills ratio over the width, which
    falls), they fail on one interval at most. Taken is the end of it, the largest solution of
    s = F(s): it grows with t, and so does β_t, as Lemma A.3 needs. Found by s ← F(s) from the
    closed form downwards: each step satisfies the conditions, so stopping early is safe.
    """
    require_algorithm(algorithm, omega, xi)
    conditions = discretisation_conditions(
        t,
        dimension=dimension,
        budget=budget,
        noise_std=noise_std,
        lipschitz=lipschitz,
        side=side,
        derivative_constants=derivative_constants,
        largest_variance=largest_variance,
    )
    s = log_closed_discretisation_size(t, conditions, dimension=dimension, omega=omega, xi=xi)
    for _ in range(_STEPS):
        beta = confidence_parameter(t, dimension * s, algorithm=algorithm, omega=omega, xi=xi)
        smaller = np.minimum(s, conditions.required(_log(beta)))
        settled = bool(np.all(s - smaller <= 1e-13 * s))
        s = smaller
        if settled:
            break
    return s


def bayesian_discretisation_size(
    t: Any,
    *,
    dimension: int,
    budget: int,
    noise_std: float,
    lipschitz: float,
    side: float,
    derivative_constants: tuple[float, float],
    algorithm: BayesianAlgorithm,
    omega: float | None = None,
    xi: float | None = None,
    largest_variance: float = 1.0,
) -> Floats:
    """τ_t of Assumption 3.4, the smallest whole number of points per dimension, at least 1.

    See :func:`log_bayesian_discretisation_size`. Above 2⁵³, where floats are all whole, the real
    solution; an :class:`~superarm.errors.InputError` where not even a float holds it.
    """
    s = log_bayesian_discretisation_size(
        t,
        dimension=dimension,
        budget=budget,
        noise_std=noise_std,
        lipschitz=lipschitz,
        side=side,
        derivative_constants=derivative_constants,
        algorithm=algorithm,
        omega=omega,
        xi=xi,
        largest_variance=largest_variance,
    )
    if np.any(s > _LOG_LARGEST):
        raise InputError(
            f"tau is e^{float(np.max(s)):.6g}, more than a float holds; "
            "use log_bayesian_discretisation_size"
        )
    return _whole(s)


def log_closed_discretisation_size(
    t: Any,
    conditions: DiscretisationConditions,
    *,
    dimension: int,
    omega: float | None = None,
    xi: float | None = None,
) -> Floats:
    """ln τ_t by the closed forms of Remark A.7, eq. 59 (or eq. 60 with ω and ξ), put right.

    With c = ln(t²/√(2π)) they rest on β = 2(d ln τ + c) ≤ 2τ^{1/e}(d + c), by ln τ ≤ τ^{1/e} and
    1 ≤ τ^{1/e}. The second step needs c ≥ 0, false at t = 1: there eq. 59 can be too small (and
    for d = 1 has almost nothing under its root), so c counts as at least 0 here.

    For GP-BUCB, Lemma A.14 with both its parameters 1 gives β ≤ −2 ln(2η_t) =
    2(dω ln τ + ln(t^ξ/√(2π)^ω)). Eq. 60 prints ln(t^ξ/(2√(2π)^ω)): the 2 of 2η_t cancels that of
    η_t's denominator and has no place there; −ln(4η_t) is no bound, negative as η_t nears ½.
    """
    log_t = np.log(_rounds(t))
    if omega is None or xi is None:
        points, tail = float(dimension), 2.0 * log_t - LOG_ROOT_TWO_PI
    else:
        points, tail = dimension * omega, xi * log_t - omega * LOG_ROOT_TWO_PI
    growth = math.log(2.0) + np.log(points + np.maximum(0.0, tail))
    return np.maximum(
        np.maximum(0.0, conditions.least),
        np.maximum(
            (conditions.ratio + growth) / (1.0 - 1.0 / math.e),
            (conditions.square + growth) / (2.0 - 1.0 / math.e),
        ),
    )


def bayesian_regret_bound_infinite(
    rounds: Any,
    gamma: Gamma,
    *,
    algorithm: BayesianAlgorithm,
    dimension: int,
    budget: int,
    noise_variance: float,
    largest_eigenvalue: float,
    lipschitz: float,
    side: float,
    derivative_constants: tuple[float, float],
    omega: float | None = None,
    xi: float | None = None,
    largest_variance: float = 1.0,
) -> Floats:
    """Theorem 3.6: Theorem 3.2 with |A| = τ_T^d and π²/3 more, for the discretisation.

    GP-UCB π²/2, GP-TS 2π²/3, GP-BUCB π²/3 + Lemma 3.1's term, each with √(C_K T K β_T γ_{TK})
    as there. Needs the derivative bound of eq. 5 and Lipschitz mean and kernel (Matérn from
    ν = 2 on, squared exponential), a compact convex set, finitely many arms offered per round.
    """
    T = _rounds(rounds)
    s = log_bayesian_discretisation_size(
        T,
        dimension=dimension,
        budget=budget,
        noise_std=math.sqrt(as_positive(noise_variance, "noise_variance")),
        lipschitz=lipschitz,
        side=side,
        derivative_constants=derivative_constants,
        algorithm=algorithm,
        omega=omega,
        xi=xi,
        largest_variance=largest_variance,
    )
    exact = math.log(_LARGEST_EXACT)
    points = dimension * np.where(s < exact, np.log(_whole(np.minimum(s, exact))), s)
    beta = confidence_parameter(T, points, algorithm=algorithm, omega=omega, xi=xi)
    return assembled_bound(
        T,
        gamma,
        beta,
        algorithm=algorithm,
        budget=budget,
        noise_variance=noise_variance,
        largest_eigenvalue=largest_eigenvalue,
        omega=omega,
        xi=xi,
        largest_variance=largest_variance,
        extra=math.pi**2 / 3.0,
    )


def _whole(s: Floats) -> Floats:
    """The next whole number from e^s on, up to rounding; e^s itself above 2⁵³."""
    real = np.exp(s)
    near = np.round(real)
    # e^s has about 15 digits: a whole number that it misses by less is meant.
    whole = np.where(np.abs(real - near) <= 1e-14 * np.maximum(s, 1.0) * real, near, np.ceil(real))
    return np.where(real < _LARGEST_EXACT, np.maximum(1.0, whole), real)


def _log(values: Floats) -> Floats:
    """ln, −∞ at 0 without a warning."""
    return np.log(values, out=np.full(np.shape(values), -np.inf), where=values > 0.0)
