"""The variational distribution of a sparse posterior, whitened, and its move to other points.

Notation

============  =====================================================================
``Z``         inducing points, (M, d); ``X`` a batch of B of the N rows observed
``L``         chol(k(Z, Z)), lower
``A``         L⁻¹ k(Z, X), (M, B): whitened covariances, one column per row of X
``v``         whitened inducing variables, f(Z) = mean(Z) + L v; v ~ N(0, I) a priori
``P, h``      q(v) ∝ N(v; 0, I)·exp(−½ vᵀPv + hᵀv): what the data add to the prior
``R``         chol(I + P): q(v) has covariance (I + P)⁻¹ and mean (I + P)⁻¹h
============  =====================================================================

A natural gradient does not change under a linear change of variables (Salimbeni et al. 2018), so
whitening changes nothing but the rounding. The natural parameters of q are I + P and h, of which I
is the prior's and never moves: the steps in ``steps.py`` change P and h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.linalg import (
    cholesky,
    psd_root,
    solve_lower,
    solve_lower_in_place,
)
from superarm.kernels import Kernel


@dataclass(frozen=True, kw_only=True, eq=False)
class VariationalDistribution:
    """q(v) at its inducing points; immutable, so that a failed step leaves nothing half done."""

    points: Floats  # Z, (M, d)
    factor: Floats  # L, (M, M)
    precision: Floats  # P, (M, M)
    shift: Floats  # h, (M,)

    @cached_property
    def root(self) -> Floats:
        """R, (M, M)."""
        total_precision = np.eye(len(self.shift)) + self.precision
        return cholesky(total_precision, "the precision of q(u)")

    @cached_property
    def mean(self) -> Floats:
        """Mean of q(v), (M,)."""
        half_solved = solve_lower(self.root, self.shift)
        return solve_lower(self.root, half_solved, transposed=True)

    def whitened(self, kernel: Covariance, rows: Floats) -> Floats:
        """A, (M, B), a new array.

        Args:
            kernel: The kernel.
            rows: Feature rows X, (B, d).
        """
        cross = _new_covariance(kernel, self.points, rows)
        return solve_lower_in_place(self.factor, cross)

    def moved(self, points: Floats, factor: Floats) -> VariationalDistribution:
        """The same q(v) at other points; R and the mean are the same.

        Args:
            points: The new inducing points, (M, d).
            factor: L of the new points.
        """
        other = replace(self, points=points, factor=factor)
        vars(other).update(root=self.root, mean=self.mean)
        return other


def _new_covariance(kernel: Covariance, points: Floats, rows: Floats) -> Floats:
    """k(Z, X), (M, B), an array that may be overwritten: a foreign kernel may reuse its own."""
    K = kernel(points, rows)
    if isinstance(kernel, Kernel) and K.flags.writeable:
        return K
    return np.array(K, dtype=np.float64)


def inducing_factor(kernel: Covariance, points: Floats) -> Floats:
    """L, the Cholesky factor of k(Z, Z).

    Args:
        kernel: The kernel.
        points: The inducing points Z, (M, d).
    """
    return cholesky(kernel(points), "the covariance of the inducing points")


def prior_at(kernel: Covariance, points: Floats) -> VariationalDistribution:
    """The prior as q, before any data.

    Args:
        kernel: The kernel.
        points: The inducing points Z, (M, d).
    """
    size = len(points)
    return VariationalDistribution(
        points=points,
        factor=inducing_factor(kernel, points),
        precision=np.zeros((size, size)),
        shift=np.zeros(size),
    )


def transfer(
    q: VariationalDistribution, kernel: Covariance, points: Floats, old_index: Ints
) -> VariationalDistribution:
    """q at other inducing points: the prediction of ``q`` there, so that nothing learned is reset.

    With v the old and w the new whitened variables, v | w ~ N(B w, C), B = L⁻¹ k(Z, Z′) L′⁻ᵀ and
    C = I − BBᵀ. Integrating v out of exp(−½vᵀPv + hᵀv) leaves the same form in w::

        P′ = Bᵀ (I + P C)⁻¹ P B,   h′ = Bᵀ (I + P C)⁻¹ h

    If every old point stays then C = 0 and nothing is lost; if new ones follow all old ones, then
    B = (I 0).

    Args:
        q: The distribution at the old points Z.
        kernel: The kernel.
        points: The new inducing points Z′, (M′, d).
        old_index: Which old point each new one is, (M′,); −1 for none.
    """
    prior = prior_at(kernel, points)
    size = len(q.points)
    all_old = np.arange(size)
    if np.array_equal(old_index[:size], all_old):
        # B = (I 0)
        prior.precision[:size, :size] = q.precision
        prior.shift[:size] = q.shift
        return prior
    staying = np.flatnonzero(old_index >= 0)
    if len(staying) == size:
        rows = np.empty_like(prior.factor[:size])
        # k(Z, Z′) L′⁻ᵀ are rows of L′.
        rows[old_index[staying]] = prior.factor[staying]
        B = solve_lower(q.factor, rows)
        precision = B.T @ (q.precision @ B)
        shift = B.T @ q.shift
    else:
        cross = q.whitened(kernel, points)  # L⁻¹ k(Z, Z′)
        B = solve_lower(prior.factor, cross.T).T
        precision, shift = _integrate_out(q, B)
    symmetric = 0.5 * (precision + precision.T)
    return VariationalDistribution(
        points=points, factor=prior.factor, precision=symmetric, shift=shift
    )


def _integrate_out(q: VariationalDistribution, B: Floats) -> tuple[Floats, Floats]:
    """P′ and h′ where old points leave.

    The inverse goes through a root F of P = F Fᵀ, so that P′ is positive semi-definite by
    construction.
    """
    C = np.eye(len(B)) - B @ B.T
    decomposition = psd_root(q.precision, "the precision that the data add")
    F = decomposition.root
    inner = np.eye(F.shape[1]) + F.T @ C @ F  # I + FᵀCF
    J = cholesky(inner, "the precision carried over")  # JJᵀ = I + FᵀCF
    half = solve_lower(J, F.T)  # J⁻¹Fᵀ
    unexplained_shift = C @ q.shift
    lost = half.T @ (half @ unexplained_shift)
    shift = B.T @ (q.shift - lost)
    half_of_new = half @ B
    precision = half_of_new.T @ half_of_new
    return precision, shift
