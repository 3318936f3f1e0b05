"""Preconditioned conjugate gradients that stop on a bound of the error itself.

=============  =======================================================================
``Q``          symmetric and positive definite: the posterior precision of the unknowns
``M``          what Q is preconditioned with, symmetric and positive definite
``x_k``        the approximation of Q⁻¹ b after k steps; ``e_k`` = Q⁻¹ b − x_k
``‖e‖_Q``      the energy norm, √(eᵀ Q e)
``r``, ``ρ``   b − Q x_k, and rᵀ M⁻¹ r
``γ_k``        length of step k
``μ``          a number below the smallest eigenvalue of M⁻¹ Q
=============  =======================================================================

Where Q is a posterior precision, the energy norm is the error that matters: by Cauchy and Schwarz,
any linear function a of the unknowns is off by at most

    |aᵀ e| ≤ √(aᵀ Q⁻¹ a) · ‖e‖_Q,

its posterior standard deviation times ‖e‖_Q. And from x_0 = 0 with b = a, the variance aᵀ Q⁻¹ a exceeds
aᵀ x_k by exactly ‖e_k‖²_Q. The Gauss–Radau rule bounds it from above (Meurant and Tichý, On computing
quadrature-based bounds for the A-norm of the error in conjugate gradients, Numerical Algorithms 62,
2013):

    ‖e_k‖²_Q ≤ γ^μ_k ρ_k,   γ^μ_0 = 1/μ,   γ^μ_{k+1} = (γ^μ_k − γ_k) / (μ (γ^μ_k − γ_k) + ρ_{k+1}/ρ_k)

μ is measured: half of the smallest Ritz value of this solve and of those before with the same M.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from superarm.core import Floats

CAUTION = 0.5
"""μ over the smallest Ritz value."""


class Solution(NamedTuple):
    """An approximation of Q⁻¹ b."""

    x: Floats
    residual: Floats  # b − Q x
    error: float  # bound of the energy norm of Q⁻¹ b − x
    gained: float  # what the steps took off the squared energy norm of the error
    steps: int
    smallest: float  # the smallest Ritz value, or that of earlier solves
    converged: bool


class _RadauBound:
    """The Gauss–Radau bound of the error as steps are taken.

    Args:
        smallest: The smallest Ritz value of earlier solves.
    """

    def __init__(self, smallest: float) -> None:
        self.smallest = smallest
        self._lengths: list[float] = []
        self._ratios: list[float] = []

    def after(self, length: float, ratio: float) -> None:
        """Note a step γ_k and the ratio ρ_{k+1}/ρ_k that it led to."""
        self._lengths.append(length)
        self._ratios.append(ratio)

    def squared(self, rho: float) -> float:
        """A bound of ‖e_k‖²_Q after the steps so far, of which the last led to ``rho``."""
        if rho <= 0.0:
            return 0.0
        if self._lengths:
            self.smallest = min(self.smallest, self._smallest_ritz())
        if not np.isfinite(self.smallest):
            return np.inf
        mu = CAUTION * self.smallest
        bound = 1.0 / mu
        for length, ratio in zip(self._lengths, self._ratios, strict=True):
            rest = bound - length
            # Positive for every μ below the Ritz values, but for rounding; 1/μ is always a bound.
            bound = rest / (mu * rest + ratio) if rest > 0.0 else 1.0 / mu
        return bound * rho

    def _smallest_ritz(self) -> float:
        """The smallest eigenvalue of the Lanczos matrix that belongs to the steps."""
        from scipy.linalg import eigh_tridiagonal

        lengths = np.array(self._lengths)
        ratios = np.array(self._ratios[:-1])
        diagonal = 1.0 / lengths
        diagonal[1:] += ratios / lengths[:-1]
        below = np.sqrt(ratios) / lengths[:-1]
        values = eigh_tridiagonal(
            diagonal, below, eigvals_only=True, select="i", select_range=(0, 0)
        )
        return float(values[0])


def conjugate_gradients(
    times: Callable[[Floats], Floats],
    precondition: Callable[[Floats], Floats],
    right: Floats,
    *,
    start: Floats | None,
    is_enough: Callable[[float, float], bool],
    smallest: float,
    most: int,
) -> Solution:
    """Solve Q x = b.

    Args:
        times: Q times a vector.
        precondition: M⁻¹ times a vector.
        right: b.
        start: Where to start; 0 by default.
        is_enough: Whether to stop, given the bound of ‖e_k‖²_Q and the sum of γ ρ so far, which is
            bᵀ x_k where it starts from 0.
        smallest: The smallest Ritz value of earlier solves with the same M; infinity if there are none.
        most: How many steps to take at most.
    """
    x = np.zeros_like(right) if start is None else start.copy()
    r = right.copy() if start is None else right - times(x)
    bound = _RadauBound(smallest)
    z = precondition(r)
    rho = float(r @ z)
    direction = z
    gained = 0.0
    squared = bound.squared(rho)
    steps = 0
    while rho > 0.0 and steps < most and not is_enough(squared, gained):
        product = times(direction)
        length = rho / float(direction @ product)
        x += length * direction
        r -= length * product
        gained += length * rho
        z = precondition(r)
        next_rho = max(float(r @ z), 0.0)
        ratio = next_rho / rho
        bound.after(length, ratio)
        steps += 1
        rho = next_rho
        squared = bound.squared(rho)
        direction = z + ratio * direction
    return Solution(
        x=x,
        residual=r,
        error=float(np.sqrt(squared)),
        gained=gained,
        steps=steps,
        smallest=bound.smallest,
        converged=is_enough(squared, gained),
    )
