"""The parts of :class:`superarm.posteriors.SparseVariational`: history, belief, steps.

Notation

============  =====================================================================
``Z``         inducing points, (M, d); ``X`` a batch of B of the N rows observed
``L``         chol(k(Z, Z)), lower
``A``         L⁻¹ k(Z, X), (M, B): whitened covariances, one column per row of X
``v``         whitened inducing variables, f(Z) = mean(Z) + L v; v ~ N(0, I) a priori
``P, h``      q(v) ∝ N(v; 0, I)·exp(−½ vᵀPv + hᵀv): what the data add to the prior
``R``         chol(I + P): q(v) has covariance (I + P)⁻¹ and mean (I + P)⁻¹h
``D, s``      noise variances of the batch; s = N/B, its scale
``c``         factor of all noise variances, 1 where the noise is known: ς_t² = c·ς²
============  =====================================================================

A natural gradient does not change under a linear change of variables (Salimbeni et al. 2018), so
whitening changes nothing but the rounding. The natural parameters of q are I + P and h, of which I
is the prior's own and never moves: the steps are taken on P and h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.linalg import (
    cholesky,
    psd_root,
    solve_lower,
    solve_lower_in_place,
    with_room,
)
from superarm.core.threads import blas_threads_for
from superarm.kernels import Kernel
from superarm.posteriors.rows import ObservedData

_STEP = 6e-6  # cube root of the machine precision: where central differences are most accurate
_DECAY_FIRST, _DECAY_SECOND, _ADAM_EPSILON = 0.9, 0.999, 1e-8


class History(ObservedData):
    """Everything observed, and which arm each row belongs to; arms are numbered as first met."""

    def __init__(self, discrete_columns: tuple[int, ...]) -> None:
        super().__init__()
        self._discrete = discrete_columns
        self._numbers: dict[bytes, int] = {}
        self._arm_of = np.empty(0, dtype=np.intp)  # (capacity,)

    def append(self, arms: Floats, rewards: Floats, noise: Floats) -> None:
        first = len(self)
        super().append(arms, rewards, noise)
        self._arm_of = with_room(self._arm_of, first, len(self))
        named = (
            arms[:, list(self._discrete)] if self._discrete else arms
        ) + 0.0  # −0.0 becomes 0.0
        numbers = self._numbers
        for at, row in enumerate(named, start=first):
            self._arm_of[at] = numbers.setdefault(row.tobytes(), len(numbers))

    def truncate(self, size: int) -> None:
        """Forget all but the first ``size`` observations."""
        known = int(self._arm_of[:size].max(initial=-1)) + 1
        self._numbers = {
            name: number for name, number in self._numbers.items() if number < known
        }
        self._size = size

    def most_visited(self, count: int) -> Ints:
        """The ``count`` most visited arms, ascending; of equals those that were met first."""
        return np.sort(
            np.argsort(-np.bincount(self._arm_of[: len(self)]), kind="stable")[:count]
        )

    def latest_rows(self, arms: Ints) -> Floats:
        """The rows in which these arms were observed last."""
        last = np.zeros(len(self._numbers), dtype=np.intp)
        last[self._arm_of[: len(self)]] = np.arange(
            len(self)
        )  # the last of repeats stays
        return self.view().arms[last[arms]]


class Batch(NamedTuple):
    """Some of the observations, standing for all of them."""

    rows: Floats  # (B, d)
    residual: Floats  # (B,) rewards less the prior mean
    noise: Floats  # (B,) variances
    scale: float  # N / B
    repeats: int = 0  # observations merged into rows of others: there are B + repeats
    scatter: float = 0.0  # Σ (y − ȳ)²/d within rows that were merged

    def merged(self) -> Batch:
        """Observations of equal rows as one of their weighted mean.

        The steps are the same, because they depend on Σ 1/d and Σ y/d of each row alone; the bound
        is not, because it has a term for every observation.
        """
        rows, where = np.unique(self.rows, axis=0, return_inverse=True)
        where = where.reshape(-1)  # some versions of numpy return a column
        noise = 1.0 / np.bincount(where, 1.0 / self.noise)
        residual = np.bincount(where, self.residual / self.noise) * noise
        scatter = float((np.square(self.residual - residual[where]) / self.noise).sum())
        repeats = self.repeats + len(self.rows) - len(rows)
        return Batch(rows, residual, noise, self.scale, repeats, self.scatter + scatter)


# --- what is believed --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Variational:
    """q(v) at its inducing points; immutable, so that a failed step leaves nothing half done."""

    points: Floats  # Z, (M, d)
    factor: Floats  # L, (M, M)
    precision: Floats  # P, (M, M)
    shift: Floats  # h, (M,)

    @cached_property
    def root(self) -> Floats:
        """R, (M, M)."""
        return cholesky(
            np.eye(len(self.shift)) + self.precision, "the precision of q(u)"
        )

    @cached_property
    def mean(self) -> Floats:
        """Mean of q(v), (M,)."""
        return solve_lower(
            self.root, solve_lower(self.root, self.shift), transposed=True
        )

    def whitened(self, kernel: Covariance, rows: Floats) -> Floats:
        """A, (M, B), a new array."""
        return solve_lower_in_place(
            self.factor, new_covariance(kernel, self.points, rows)
        )

    def moved(self, points: Floats, factor: Floats) -> Variational:
        """The same q(v) at other points, of which ``factor`` is L; R and the mean stay."""
        other = replace(self, points=points, factor=factor)
        vars(other).update(root=self.root, mean=self.mean)
        return other


def new_covariance(kernel: Covariance, points: Floats, rows: Floats) -> Floats:
    """k(Z, X), (M, B), an array that may be overwritten: a foreign kernel may keep its own."""
    K = kernel(points, rows)
    if isinstance(kernel, Kernel) and K.flags.writeable:
        return K
    return np.array(K, dtype=np.float64)


def factor_of(kernel: Covariance, points: Floats) -> Floats:
    """L for these inducing points."""
    return cholesky(kernel(points), "the covariance of the inducing points")


def prior_at(kernel: Covariance, points: Floats) -> Variational:
    """q is the prior."""
    none, shift = np.zeros((len(points), len(points))), np.zeros(len(points))
    return Variational(
        points=points, factor=factor_of(kernel, points), precision=none, shift=shift
    )


# --- steps -------------------------------------------------------------------------------


def natural_step(q: Variational, A: Floats, batch: Batch, rate: float) -> Variational:
    """θ ← (1 − ρ)θ + ρθ̂: the natural gradient step of a conjugate model (Hensman et al. 2013, eq. 12).

    θ̂ = (s·A D⁻¹Aᵀ, s·A D⁻¹y) is the optimum for this batch, so that ρ = 1 with all observations
    is Titsias' (2009) closed form in one step.
    """
    weighted = A / np.sqrt(batch.noise)
    with blas_threads_for(len(weighted) * weighted.size):
        precision = weighted @ weighted.T
    precision *= rate * batch.scale
    precision += (1.0 - rate) * q.precision
    shift = (1.0 - rate) * q.shift
    shift += (rate * batch.scale) * (A @ (batch.residual / batch.noise))
    return replace(q, precision=precision, shift=shift)


def noise_ratio(q: Variational, A: Floats, batch: Batch, prior: Floats) -> float:
    """By how much the batch's noise variances must be multiplied to maximise the bound at this q.

    ``prior`` are the prior variances of the rows, (B,). Of the bound (Hensman et al. 2013, eq. 4)
    only the expected log likelihood depends on a common factor c of the noise variances::

        −½ Σ ln(2π c d) − Σ ((y − m)² + v)/(2 c d),   m = Aᵀ mean of q,   v = k − ‖A‖² + ‖R⁻¹A‖²

    Its derivative in c is N/(2c²)·(ĉ − c) with ĉ the mean of ((y − m)² + v)/d: the value returned.
    The Fisher information of N Gaussian observations in c is N/(2c²), so that the natural gradient is
    ĉ − c.
    """
    mean = A.T @ q.mean
    variance = (
        prior - np.square(A).sum(axis=0) + np.square(solve_lower(q.root, A)).sum(axis=0)
    )
    squares = np.square(batch.residual - mean) + np.maximum(0.0, variance)
    total = batch.scatter + float((squares / batch.noise).sum())
    return total / (len(batch.rows) + batch.repeats)


def point_gradient(
    q: Variational, kernel: Covariance, A: Floats, batch: Batch, moving: Ints
) -> Floats:
    """∂ELBO/∂Z in the moving columns at fixed q(v), (M, c).

    Exact through the whitening, by matrix calculus::

        Ā = s·(m rᵀ + A − S A) D⁻¹,   ∂/∂k(Z, X) = L⁻ᵀĀ,   ∂/∂k(Z, Z) = −sym(L⁻ᵀ Φ(ĀAᵀ) L⁻¹)

    with r = y − Aᵀm and Φ the lower triangle with half its diagonal (reverse-mode Cholesky).
    """
    of_A = A.copy()
    of_A = solve_lower_in_place(q.root, of_A)
    of_A = solve_lower_in_place(q.root, of_A, transposed=True)  # S A
    np.subtract(A, of_A, out=of_A)
    of_A += np.outer(q.mean, batch.residual - A.T @ q.mean)
    of_A *= batch.scale / batch.noise
    with blas_threads_for(len(A) * A.size):
        lower = np.tril(of_A @ A.T)
    np.fill_diagonal(lower, 0.5 * np.diagonal(lower))
    half = solve_lower_in_place(q.factor, lower, transposed=True)  # L⁻ᵀ Φ
    of_points = solve_lower_in_place(q.factor, half.T, transposed=True)  # L⁻ᵀ Φᵀ L⁻¹
    size = len(q.points)
    weights = np.empty((size, size + len(batch.rows)))
    # Twice the symmetric part: z stands on both sides.
    np.add(of_points, of_points.T, out=weights[:, :size])
    np.negative(weights[:, :size], out=weights[:, :size])
    weights[:, size:] = solve_lower_in_place(q.factor, of_A, transposed=True)
    others = np.vstack([q.points, batch.rows])
    return _pulled_back(kernel, q.points, others, weights, moving)


def _pulled_back(
    kernel: Covariance, points: Floats, others: Floats, weights: Floats, moving: Ints
) -> Floats:
    """Σ_x weights·∂k(z, x)/∂z in the moving columns, (M, c).

    The kernel's own derivative where it has one; else central differences, two kernel evaluations per
    column, because a kernel need not have derivatives in its inputs.
    """
    if isinstance(kernel, Kernel):
        gradient = kernel.input_gradient(points, others, weights, moving.tolist())
        if gradient is not None:
            return gradient
    slopes = (central_slope(kernel, points, others, column) for column in moving)
    return np.column_stack([np.einsum("mn,mn->m", weights, slope) for slope in slopes])


def central_slope(
    kernel: Covariance, points: Floats, others: Floats, column: int
) -> Floats:
    """∂k(z, x)/∂z in one column, (M, n), by central differences."""
    values = others[:, column]
    spread = float(np.ptp(values)) or max(1.0, float(np.abs(values).max()))
    step = max(_STEP * spread, 1e-9 * float(np.abs(values).max()))
    above, below = points.copy(), points.copy()
    above[:, column] += step
    below[:, column] -= step
    slope = np.asarray(kernel(above, others)) - kernel(below, others)
    slope /= (above[:, column] - below[:, column])[
        :, None
    ]  # the step as rounding left it
    return slope


@dataclass(frozen=True, kw_only=True, eq=False)
class Adam:
    """Kingma and Ba's running moments, one row per inducing point, each with an age of its own."""

    first: Floats  # (M, c)
    second: Floats  # (M, c)
    age: Floats  # (M,) steps taken

    @classmethod
    def fresh(cls, size: int, columns: int) -> Adam:
        shape = (size, columns)
        return cls(first=np.zeros(shape), second=np.zeros(shape), age=np.zeros(size))

    def selected(self, where: Ints) -> Adam:
        """Rows of another set of points; −1 begins anew."""
        old = where >= 0
        chosen = Adam.fresh(len(where), self.first.shape[1])
        chosen.first[old], chosen.second[old] = (
            self.first[where[old]],
            self.second[where[old]],
        )
        chosen.age[old] = self.age[where[old]]
        return chosen

    def advanced(self, gradient: Floats) -> Adam:
        return Adam(
            first=_DECAY_FIRST * self.first + (1.0 - _DECAY_FIRST) * gradient,
            second=_DECAY_SECOND * self.second
            + (1.0 - _DECAY_SECOND) * np.square(gradient),
            age=self.age + 1.0,
        )

    def direction(self) -> Floats:
        """Uphill, about 1 in every column, (M, c)."""
        first = self.first / (1.0 - _DECAY_FIRST**self.age)[:, None]
        second = self.second / (1.0 - _DECAY_SECOND**self.age)[:, None]
        return first / (np.sqrt(second) + _ADAM_EPSILON)


# --- other inducing points ---------------------------------------------------------------


def carried(
    q: Variational, kernel: Covariance, points: Floats, where: Ints
) -> Variational:
    """q at other inducing points: the prediction of ``q`` there, so that nothing learned is reset.

    ``where`` says which old point each new one is, −1 for none. With v the old and w the new
    whitened variables, v | w ~ N(B w, C), B = L⁻¹ k(Z, Z′) L′⁻ᵀ and C = I − BBᵀ. Integrating v out
    of exp(−½vᵀPv + hᵀv) leaves the same form in w::

        P′ = Bᵀ (I + P C)⁻¹ P B,   h′ = Bᵀ (I + P C)⁻¹ h

    If every old point stays then C = 0 and nothing is lost; if new ones follow all old ones, then
    B = (I 0). The inverse is taken through a root of P, so that P′ is positive semi-definite by
    construction.
    """
    fresh = prior_at(kernel, points)
    old = np.flatnonzero(where >= 0)
    size = len(q.points)
    if np.array_equal(where[:size], np.arange(size)):
        fresh.precision[:size, :size] = q.precision
        fresh.shift[:size] = q.shift
        return fresh
    if len(old) == size:
        rows = np.empty_like(fresh.factor[: len(old)])
        rows[where[old]] = fresh.factor[old]  # k(Z, Z′) L′⁻ᵀ are rows of L′
        B = solve_lower(q.factor, rows)
        precision, shift = B.T @ (q.precision @ B), B.T @ q.shift
    else:
        B = solve_lower(fresh.factor, q.whitened(kernel, points).T).T
        C = np.eye(len(B)) - B @ B.T
        root = psd_root(
            q.precision, "the precision that the data add"
        ).root  # F, P = F Fᵀ
        inner = cholesky(
            np.eye(root.shape[1]) + root.T @ C @ root, "the precision carried over"
        )
        half = solve_lower(inner, root.T)  # J⁻¹Fᵀ with JJᵀ = I + FᵀCF
        lost = half.T @ (half @ (C @ q.shift))
        half = half @ B
        precision, shift = half.T @ half, B.T @ (q.shift - lost)
    symmetric = 0.5 * (precision + precision.T)
    return Variational(
        points=points, factor=fresh.factor, precision=symmetric, shift=shift
    )
