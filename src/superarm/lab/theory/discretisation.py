"""What a grid on a compact set costs: Lemmas 3.5 and A.8 to A.11 of sandberg2025bayesian, as numbers.

======================  ================================================================
``reach``               D = d·C₁/τ, from any arm to the nearest of τ^d grid points in the 1-norm
``log_size``            ln τ, as :meth:`~superarm.lab.theory.CompactSet.log_size` returns it
======================  ================================================================

The set is a box: then the nearest grid point is within C₁/τ in every coordinate. L bounds how fast the
kernel changes in either argument.

Eq. 82 of the paper takes the difference of two quadratic forms for the form of a difference, which it
is not, and eq. 84 has LD where |k(x, x) − k(y, y)| may be 2LD. Lemma A.11 does not need them. The
posterior standard deviation is a norm of the random variable, and a posterior variance is at most the
prior's, so that ::

    σ(x) − σ(y) ≤ sd(f(x) − f(y)) ≤ √(k(x, x) − k(x, y) + k(y, y) − k(x, y)) ≤ √(2LD).

With eq. 6b alone this gives what eq. 105 says: K√β_t·√(2LD) ≤ 1/(2t²). Eq. 6c is not needed.

Eq. 67, to which eqs. 82 to 85 should lead, is true all the same. With M = (K + ς²I)⁻¹, u = k(x),
v = k(y) and features φ, the posterior covariance of f(x) and f(y) is the inner product of
X = (φ(x) − ΦᵀMu, ςMu) and Y, likewise. Let δ = σ(x) − σ(y) > 0, S = σ(x) + σ(y) and e = (u − v)/ς, and
let T₂ = ςM(u + v) and Δ₂ = ς²Me be the second parts of T = X + Y and Δ = X − Y. Then ⟨Δ, T⟩ = δS,
‖T‖ ≤ S, and ::

    2(k(x, x) − k(x, y)) = δS + T₂·e + ‖Δ‖² + ς²eᵀMe.                                             (∗)

If ‖e‖ ≥ δ, eq. 67 is clear. Else let a = ‖T₂‖/S, b = ‖e‖/δ and h = (‖T₂‖‖e‖ + T₂·e)/(2δS), so that
0 ≤ h ≤ ab < 1. As 0 ≤ ς²M ≤ I, Δ₂ lies in the ball that has e as a diameter, hence Δ₂·T₂ ≤ hδS and
‖Δ₁‖ ≥ (1 − h)δS/√(S² − ‖T₂‖²). With S ≥ δ the right side of (∗) is at least ::

    δ²(1 + 2h − ab) + δ²(1 − h)²/(1 − a²) ≥ δ²(2 − ab + h² + a²(1 − h)²)
                                          ≥ δ²(2 − ab + a²/2) ≥ δ²(2 − b²/2),

so that δ² ≤ LD + ‖e‖²/4 there, and δ² ≤ LD + ‖e‖² ≤ LD + N·L²D²/ς² always.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.inputs import as_count, as_number, as_positive, as_vector

from .arguments import as_rounds
from .compact_sets import CompactSet, confidence_parameter


class DiscretisationErrors(NamedTuple):
    """What the lemmas allow in each round, (n,), and what that adds up to over all rounds."""

    path: Floats
    """K·E sup(f(a) − f([a])), at most 1/t², in sum π²/6: Lemma A.8."""
    mean: Floats
    """K·L·D·(1 + tK/ς), at most 1/(2t²), in sum π²/12: Lemma A.10."""
    std: Floats
    """K·√β_t·√(2LD), at most 1/(2t²), in sum π²/12: Lemma A.11."""

    @property
    def of_index(self) -> Floats:
        """Of the index U_t, at most 1/t², in sum π²/6: Lemma 3.5, eq. 7."""
        return np.asarray(self.mean + self.std)


def discretisation_errors(
    arms: CompactSet,
    rounds: Any,
    *,
    budget: int,
    noise_variance: float,
    omega: float | None = None,
    xi: float | None = None,
) -> DiscretisationErrors:
    """Lemmas A.8, A.10, A.11 and 3.5, round by round, at the τ_t that Assumption 3.4 asks for.

    Args:
        arms: the compact set, whose kernel is at most 1.
        rounds: t, one or several.
        budget: K, the most arms a decision may hold.
        noise_variance: ς².
        omega: ω of GP-BUCB; leave it out for GP-UCB and GP-TS.
        xi: ξ of GP-BUCB.

    >>> box = CompactSet(dimension=1, side=1.0, lipschitz=2.0, derivative_constants=(1.0, 1.0))
    >>> errors = discretisation_errors(box, range(1, 1001), budget=3, noise_variance=0.1)
    >>> bool(errors.of_index.sum() <= math.pi**2 / 6)
    True
    """
    t = as_rounds(rounds)
    K = as_count(budget, "budget")
    noise = math.sqrt(as_positive(noise_variance, "noise_variance"))
    s = arms.log_size(t, budget=K, noise_variance=noise_variance, omega=omega, xi=xi)
    beta = confidence_parameter(t, arms.dimension * s, omega, xi)
    change = arms.lipschitz * _reach(arms, s)  # L·D
    path = K * path_error_bound(arms, s)  # eqs. 62–64
    mean = K * change * (1.0 + t * K / noise)  # eq. 94
    std = K * np.sqrt(beta) * np.sqrt(2.0 * change)  # in place of eq. 103
    return DiscretisationErrors(
        path=np.asarray(path),
        mean=np.asarray(mean),
        std=np.asarray(std),
    )


def path_error_bound(arms: CompactSet, log_size: Any) -> Floats:
    """E sup(f(a) − f([a])) ≤ D·C₃(√ln(C₂d) + √π/2): Lemma A.8, from eq. 5.

    sup|f(a) − f([a])| is at most D times the steepest slope, whose mean is at most the integral over l
    of min(1, C₂d·exp(−l²/C₃²)). Where C₂d < 1, ln(C₂d) counts as 0.

    Args:
        arms: the compact set.
        log_size: ln τ, one or several, at least 0.
    """
    c2, c3 = arms.derivative_constants
    log_directions = max(0.0, math.log(c2 * arms.dimension))
    spread = math.sqrt(log_directions)
    steepest = c3 * (spread + 0.5 * math.sqrt(math.pi))
    sizes = _as_log_size(log_size)
    reach = _reach(arms, sizes)
    return np.asarray(reach * steepest)


def _reach(arms: CompactSet, log_size: Floats) -> Floats:
    """D = d·C₁/τ."""
    return np.asarray(arms.dimension * arms.side * np.exp(-log_size))


def _as_log_size(log_size: Any) -> Floats:
    shape = np.shape(log_size)
    values = as_vector(np.ravel(log_size), "log_size")
    for value in values:
        as_number(value, "log_size", 0.0)
    return values.reshape(shape)
