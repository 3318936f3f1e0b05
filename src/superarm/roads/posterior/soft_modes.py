"""Directions in which a preconditioner overestimates a precision, and their correction.

=============  =======================================================================
``Q``, ``M``   the precision and its preconditioner, symmetric and positive definite, (p, p)
``θ``, ``v``   Ritz values and vectors: M⁻¹ Q v ≈ θ v, with vᵀ M v = 1
=============  =======================================================================

What all roads of all trips have in common is learned from their differences alone, as each trip has
terms of its own. M counts such directions as known, road by road: there θ is far below 1. Each of them
would cost conjugate gradients a step or more. So M⁻¹ is corrected in the few with θ below a half:

    M⁻¹ + Σ (1/θ − 1) v vᵀ

which is positive definite whatever v is, and has θ = 1 there if v is an eigenvector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from superarm.core import Floats

_STEPS = 100
_SOFT = 0.5  # θ below which a direction is corrected


class SoftModes(NamedTuple):
    """Directions that are corrected."""

    weights: Floats  # 1/θ − 1, (k,)
    vectors: Floats  # v, (k, p)
    smallest: float  # the smallest θ of all others

    @classmethod
    def none(cls) -> SoftModes:
        """No directions."""
        return cls(np.empty(0), np.empty((0, 0)), np.inf)

    def times(self, values: Floats) -> Floats:
        """Σ (1/θ − 1) v vᵀ times values, (p,), whose last entries may be newer than v."""
        known = self.vectors.shape[1]
        product = np.zeros_like(values)
        along = self.vectors @ values[:known]
        product[:known] = (self.weights * along) @ self.vectors
        return product


def soft_modes(
    times: Callable[[Floats], Floats],
    precondition: Callable[[Floats], Floats],
    size: int,
) -> SoftModes:
    """The directions of the smallest θ, by Lanczos' method in the inner product of M.

    Args:
        times: Q times a vector.
        precondition: M⁻¹ times a vector.
        size: p.
    """
    from scipy.linalg import eigh_tridiagonal

    most = min(_STEPS, size)
    residual = np.random.default_rng(0).standard_normal(size)
    z = precondition(residual)
    norm = np.sqrt(residual @ z)
    basis = np.empty((most, size))  # v, orthonormal in M
    duals = np.empty((most, size))  # M v
    diagonal: list[float] = []
    below: list[float] = []
    for step in range(most):
        v = z / norm
        basis[step] = v
        duals[step] = residual / norm
        residual = times(v)
        diagonal.append(float(v @ residual))
        known = slice(step + 1)
        # Twice, or rounding lets vectors return that are already there.
        for _ in range(2):
            residual = residual - (basis[known] @ residual) @ duals[known]
        z = precondition(residual)
        squared = float(residual @ z)
        norm = np.sqrt(max(squared, 0.0))
        if norm <= 1e-10 * max(diagonal):
            break
        below.append(norm)
    count = len(diagonal)
    ritz, vectors = eigh_tridiagonal(np.array(diagonal), np.array(below[: count - 1]))
    is_soft = ritz < _SOFT
    if not is_soft.any():
        return SoftModes.none()._replace(smallest=float(ritz[0]))
    modes = np.asarray(vectors[:, is_soft].T @ basis[:count], dtype=np.float64)
    weights = np.asarray(1.0 / ritz[is_soft] - 1.0, dtype=np.float64)
    others = ritz[~is_soft]
    return SoftModes(weights, modes, float(others.min(initial=_SOFT)))
