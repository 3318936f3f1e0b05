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
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Covariance, Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.linalg import (
    add_to_diagonal,
    cholesky,
    factor_if_positive,
    inverse_of_factored,
    multiply_lower_in_place,
    psd_root,
    solve_lower,
    solve_lower_in_place,
    solve_lower_right,
)
from superarm.kernels import Kernel


class Moments(NamedTuple):
    """What the data change in the prior's moments at some rows."""

    mean: Floats  # (B,), added to the prior mean
    reduction: Floats  # (B,), subtracted from the prior variance


class WhitenedBatch(NamedTuple):
    """A of some rows, and which of them are inducing points."""

    A: Floats  # (M, B)
    point_of: Ints  # (B,) the inducing point that equals a row, each once; −1 for none


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

    @cached_property
    def mean_weights(self) -> Floats:
        """L⁻ᵀ times the mean of q(v), (M,): the mean of f(X) is k(X, Z) times it."""
        return solve_lower(self.factor, self.mean, transposed=True)

    @cached_property
    def reduction_root(self) -> Floats | None:
        """T, (M, M), lower: TᵀT = L⁻ᵀ(I − (I + P)⁻¹)L⁻¹, by which q reduces the prior's variance.

        ``None`` where the data add so little in some direction that rounding makes I − (I + P)⁻¹
        indefinite.
        """
        inverse = inverse_of_factored(self.root)
        reduction = -inverse
        add_to_diagonal(reduction, 1.0)
        # GᵀG = I − (I + P)⁻¹ with G lower: the Cholesky factor in reverse order.
        reverse = np.asfortranarray(reduction[::-1, ::-1])
        reverse_factor = factor_if_positive(reverse)
        if reverse_factor is None:
            return None
        G = np.asfortranarray(reverse_factor[::-1, ::-1].T)
        return solve_lower_right(self.factor, G)  # G L⁻¹

    def whitened(self, kernel: Covariance, rows: Floats) -> Floats:
        """A, (M, B), a new array.

        Args:
            kernel: The kernel.
            rows: Feature rows X, (B, d).
        """
        cross = _new_covariance(kernel, self.points, rows)
        return solve_lower_in_place(self.factor, cross)

    def whitened_batch(self, kernel: Covariance, rows: Floats) -> WhitenedBatch:
        """A, (M, B), and which rows are inducing points: those have their columns of A in L.

        Args:
            kernel: The kernel.
            rows: Feature rows X, (B, d).
        """
        point_of = _positions_in(self.points, rows)
        elsewhere = point_of < 0
        if elsewhere.all():
            return WhitenedBatch(self.whitened(kernel, rows), point_of)
        A = np.empty((len(self.points), len(rows)))
        shared_points = point_of[~elsewhere]
        A[:, ~elsewhere] = self.factor[shared_points].T  # L⁻¹ k(Z, z) is a row of L
        if elsewhere.any():
            A[:, elsewhere] = self.whitened(kernel, rows[elsewhere])
        return WhitenedBatch(A, point_of)

    def moments(self, kernel: Covariance, rows: Floats, many: bool) -> Moments:
        """What q adds to the prior mean of some rows, and takes from their prior variance.

        Args:
            kernel: The kernel.
            rows: Feature rows X, (B, d).
            many: Whether so many rows are asked about that T, which takes as long to compute as
                about 2M rows, saves time: a row then takes M² multiplications in place of 2M².
        """
        root = self.reduction_root if many else None
        K = _new_covariance(kernel, self.points, rows)
        if root is not None:
            mean = K.T @ self.mean_weights
            reduced = multiply_lower_in_place(root, K)  # T k(Z, X), which overwrites K
            return Moments(mean, _column_squares(reduced))
        A = solve_lower_in_place(self.factor, K)
        mean = A.T @ self.mean
        explained = _column_squares(A)
        solved = solve_lower_in_place(self.root, A)  # R⁻¹A, which overwrites A
        return Moments(mean, explained - _column_squares(solved))

    def moved(self, points: Floats, factor: Floats) -> VariationalDistribution:
        """The same q(v) at other points; R and the mean are the same.

        Args:
            points: The new inducing points, (M, d).
            factor: L of the new points.
        """
        other = replace(self, points=points, factor=factor)
        vars(other).update(root=self.root, mean=self.mean)
        return other


def _positions_in(points: Floats, rows: Floats) -> Ints:
    """Which point equals each row bit for bit, (B,), each point once; −1 for none."""
    numbers = {point.tobytes(): number for number, point in enumerate(points)}
    found = [numbers.pop(row.tobytes(), -1) for row in rows]
    return np.array(found, dtype=np.intp)


def _column_squares(matrix: Floats) -> Floats:
    """The squared length of every column, (n,)."""
    return np.asarray(np.einsum("ij,ij->j", matrix, matrix))


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

    Usually few arms come and go in a round, and three things make that cheap. Where the first points
    of both sets are the same, so are the first variables: B is the identity there, and C is 0. A
    point that stays has its row of k(Z, Z′) L′⁻ᵀ in L′. And given w only the k points that leave are
    uncertain: C = E Eᵀ with E = L⁻¹[:, leaving]·chol(their covariance given Z′), (M, k), so that::

        (I + P C)⁻¹ P = P − V (I + EᵀV)⁻¹ Vᵀ,   (I + P C)⁻¹ h = h − V (I + EᵀV)⁻¹ Eᵀh,   V = P E

    Args:
        q: The distribution at the old points Z.
        kernel: The kernel.
        points: The new inducing points Z′, (M′, d).
        old_index: Which old point each new one is, (M′,); −1 for none.
    """
    prior = prior_at(kernel, points)
    same = _leading_matches(old_index)
    trailing = slice(same, None)
    leaves = np.ones(len(q.points), dtype=bool)
    leaves[old_index[old_index >= 0]] = False
    rows = _rows_in_new_variables(q, kernel, prior, old_index, leaves)
    # In the trailing variables: L₂₂⁻¹ k(Z₂, Z′) L′⁻ᵀ, as the leading columns of the rows cancel.
    old_factor = np.asfortranarray(q.factor[trailing, trailing])
    B = solve_lower(old_factor, rows.trailing)
    precision = q.precision
    shift = q.shift
    if leaves.any():
        selected = np.zeros((len(old_factor), rows.root.shape[1]))
        selected[leaves[trailing]] = rows.root
        E = solve_lower(old_factor, selected)
        precision, shift = _integrate_out(precision, shift, E, same)
    new_precision = prior.precision
    new_shift = prior.shift
    cross = precision[:same, trailing] @ B
    new_precision[:same, :same] = precision[:same, :same]
    new_precision[:same, trailing] = cross
    new_precision[trailing, :same] = cross.T
    corner = B.T @ (precision[trailing, trailing] @ B)
    new_precision[trailing, trailing] = 0.5 * (corner + corner.T)
    new_shift[:same] = shift[:same]
    new_shift[trailing] = B.T @ shift[trailing]
    return prior


def _leading_matches(old_index: Ints) -> int:
    """How many points at the beginning are the same as before."""
    differs = old_index != np.arange(len(old_index))
    return int(np.argmax(differs)) if differs.any() else len(old_index)


class _NewRows(NamedTuple):
    """The old points in terms of the new whitened variables."""

    trailing: Floats  # k(Z₂, Z′) L′⁻ᵀ from the first difference on, (g, g′)
    root: Floats  # of the covariance, given Z′, of the points that leave, (k, r)


def _rows_in_new_variables(
    q: VariationalDistribution,
    kernel: Covariance,
    prior: VariationalDistribution,
    old_index: Ints,
    leaves: Bools,
) -> _NewRows:
    """The old points' rows of k(Z, Z′) L′⁻ᵀ, and how uncertain they remain given Z′."""
    same = _leading_matches(old_index)
    size = len(q.points)
    rows = np.empty((size - same, len(prior.points) - same))
    staying = np.flatnonzero(old_index >= 0)
    staying = staying[old_index[staying] >= same]
    rows[old_index[staying] - same] = prior.factor[staying, same:]
    if not leaves.any():
        return _NewRows(rows, np.empty((0, 0)))
    leaving_points = q.points[leaves]
    solved = prior.whitened(kernel, leaving_points)  # L′⁻¹ k(Z′, leaving), (M′, k)
    rows[leaves[same:]] = solved[same:].T
    covariance = np.array(kernel(leaving_points), dtype=np.float64)
    scale = float(np.mean(np.diagonal(covariance)))
    covariance -= solved.T @ solved
    decomposition = psd_root(
        covariance, "the covariance of arms that are no longer inducing", scale
    )
    return _NewRows(rows, decomposition.root)


class _Added(NamedTuple):
    """What the data add, in the old variables, once the leaving points are integrated out."""

    precision: Floats
    shift: Floats


def _integrate_out(precision: Floats, shift: Floats, E: Floats, same: int) -> _Added:
    """(I + P C)⁻¹P and (I + P C)⁻¹h with C = E Eᵀ, E given from row ``same`` on, (g, r)."""
    V = precision[:, same:] @ E
    inner = E.T @ V[same:]
    add_to_diagonal(inner, 1.0)
    J = cholesky(inner, "the precision carried over")  # JJᵀ = I + EᵀPE
    half = solve_lower(J, V.T)  # J⁻¹Vᵀ, (r, M)
    seen = solve_lower(J, E.T @ shift[same:])
    return _Added(precision - half.T @ half, shift - half.T @ seen)
