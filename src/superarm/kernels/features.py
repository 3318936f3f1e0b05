"""Finite-rank forms: k(x, y) ≈ Φ(x)·Φ(y) on a box, with an error that is stated.

A smooth kernel in few dimensions has a numerical rank far below the number of observations.
Its feature map turns an N-sized posterior into an r-sized one.

Notation

=============  =========================================================================
``Φ``          (n, r) features of n points
``φ_k``        the k-th feature; *supremum* bounds sup φ_k² on the box
``largest``    a bound on sup k(x, x); by Cauchy–Schwarz it bounds Σ_k |φ_k(x) φ_k(y)| too
=============  =========================================================================

Truncation. Dropping the features in a set D changes k(x, y) by
|Σ_{k∈D} φ_k(x) φ_k(y)| ≤ Σ_{k∈D} sup φ_k², so that the smallest suprema go first, as long as
their sum stays below the tolerance. Features of a product are products of features, and so
are their suprema.

Inside this module features lie as rows, (r, n): gathering rows is a memory copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints
from superarm.errors import InputError, ShapeError

EPSILON = float(np.finfo(np.float64).eps)
_ROUNDING = 64.0
"""Rounding allowance of the exact forms, in units of ε·``largest``."""

Evaluate = Callable[[Floats], Floats]
"""Points as (d, n) columns to features as (r, n) rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureMap:
    """Features Φ with |k(x, y) − Φ(x)·Φ(y)| ≤ ``error`` for all x, y in the box.

    Called with (n, d) points it returns (n, ``rank``) float64, C order; points outside the
    box raise :class:`~superarm.errors.InputError`, because the error bound ends there.
    """

    rank: int
    error: float
    """Proven in exact arithmetic, plus an allowance for rounding that is tested, not proven."""
    lower: Floats
    """(d,)"""
    upper: Floats
    """(d,)"""
    suprema: Floats
    """(rank,), a bound on the largest square of every feature on the box"""
    largest: float
    """A bound on k(x, x) over the box."""
    evaluate: Evaluate

    def __call__(self, X: Floats) -> Floats:
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != len(self.lower):
            raise ShapeError(f"X has shape {points.shape}; it must be (n, {len(self.lower)})")
        columns = np.ascontiguousarray(points.T)
        inside = (columns >= self.lower[:, None]) & (columns <= self.upper[:, None])
        if not inside.all():
            column, row = (int(i) for i in np.argwhere(~inside)[0])
            raise InputError(
                f"X[{row}, {column}] is {points[row, column]!r}, outside the box "
                f"[{self.lower[column]!r}, {self.upper[column]!r}] that the features were made for; "
                "make them for a larger box"
            )
        return np.ascontiguousarray(self.evaluate(columns).T)

    def covers(self, X: Floats) -> bool:
        """Whether every point lies in the box."""
        return bool((self.lower <= X).all() and (self.upper >= X).all())

    def on_columns(self, columns: Sequence[int], lower: Floats, upper: Floats) -> FeatureMap:
        """The same features, read from some columns of wider points."""
        evaluate = _OnColumns(inner=self.evaluate, columns=np.array(columns, dtype=np.intp))
        return record(
            suprema=self.suprema,
            largest=self.largest,
            error=self.error,
            lower=lower,
            upper=upper,
            evaluate=evaluate,
        )

    def scaled(self, factor: float) -> FeatureMap:
        """Features of ``factor``·k."""
        return record(
            suprema=self.suprema * factor,
            largest=self.largest * factor,
            error=self.error * factor,
            lower=self.lower,
            upper=self.upper,
            evaluate=_Scaled(inner=self.evaluate, factor=math.sqrt(factor)),
        )


def record(
    *,
    suprema: Floats,
    largest: float,
    error: float,
    lower: Floats,
    upper: Floats,
    evaluate: Evaluate,
) -> FeatureMap:
    for array in (suprema, lower, upper):
        array.flags.writeable = False
    return FeatureMap(
        rank=len(suprema),
        error=error,
        lower=lower,
        upper=upper,
        suprema=suprema,
        largest=largest,
        evaluate=evaluate,
    )


def truncate(suprema: Floats, budget: float) -> tuple[Ints, float]:
    """Positions of the largest entries, largest first, and the sum of those dropped, ≤ budget."""
    order = np.argsort(-suprema, kind="stable")
    tail = np.cumsum(suprema[order][::-1])
    dropped = int(np.searchsorted(tail, budget, side="right"))
    dropped = min(dropped, len(order) - 1)
    return order[: len(order) - dropped], float(tail[dropped - 1]) if dropped else 0.0


# --- exact forms -------------------------------------------------------------------------


def monomial_features(
    *, lower: Floats, upper: Floats, degree: int, variance: float, bias: float, max_rank: int
) -> FeatureMap | None:
    """Features of variance·(x·y + bias)^degree: √(variance · multinomial · bias^{a_0}) x^a."""
    dimensions = len(lower)
    slots = dimensions + (1 if bias > 0.0 else 0)
    if math.comb(slots + degree - 1, degree) > max_rank:
        return None
    powers = np.array(list(_compositions(degree, slots)), dtype=np.intp).reshape(-1, slots)
    factorial = [math.factorial(i) for i in range(degree + 1)]
    weights = np.array(
        [variance * factorial[degree] / math.prod(factorial[i] for i in row) for row in powers]
    )
    if bias > 0.0:
        weights *= bias ** powers[:, -1]
        powers = powers[:, :-1]
    extent = np.maximum(np.abs(lower), np.abs(upper))
    suprema = weights * np.prod(extent ** (2 * powers), axis=1)
    largest = variance * (float(extent @ extent) + bias) ** degree
    error = _ROUNDING * EPSILON * max(degree, 1) * largest
    evaluate = _Monomials(powers=powers, roots=np.sqrt(weights)[:, None], degree=degree)
    return record(
        suprema=suprema,
        largest=largest,
        error=error,
        lower=lower.copy(),
        upper=upper.copy(),
        evaluate=evaluate,
    )


def _compositions(total: int, slots: int) -> list[tuple[int, ...]]:
    """Every way to write ``total`` as an ordered sum of ``slots`` integers ≥ 0."""
    if slots == 1:
        return [(total,)]
    return [
        (first, *rest)
        for first in range(total, -1, -1)
        for rest in _compositions(total - first, slots - 1)
    ]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Monomials:
    powers: Ints  # (r, d)
    roots: Floats  # (r, 1)
    degree: int

    def __call__(self, columns: Floats) -> Floats:
        table = columns ** np.arange(self.degree + 1)[:, None, None]  # (degree + 1, d, n)
        rows = np.repeat(self.roots, columns.shape[1], axis=1)
        for j in range(columns.shape[0]):
            rows *= table[self.powers[:, j], j]
        return rows


def root_features(
    *, root: Floats, lost: float, largest: float, lower: Floats, upper: Floats
) -> FeatureMap:
    """Features of a covariance ``root @ rootᵀ`` over ids, which lie in the one column."""
    error = lost + _ROUNDING * EPSILON * largest
    suprema = np.square(root).max(axis=0)
    return record(
        suprema=suprema,
        largest=largest,
        error=error,
        lower=lower.copy(),
        upper=upper.copy(),
        evaluate=_Rows(root=root),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Rows:
    root: Floats  # (ids, r)

    def __call__(self, columns: Floats) -> Floats:
        ids = columns[0].astype(np.intp)
        if (ids != columns[0]).any():
            raise InputError("ids in the column of an Empirical kernel must be integers")
        rows: Floats = self.root[ids].T
        return rows


# --- sums and products -------------------------------------------------------------------


def sum_features(parts: Sequence[FeatureMap]) -> FeatureMap:
    """Features of a sum: those of the parts, side by side."""
    return record(
        suprema=np.concatenate([part.suprema for part in parts]),
        largest=sum(part.largest for part in parts),
        error=sum(part.error for part in parts),
        lower=parts[0].lower,
        upper=parts[0].upper,
        evaluate=_SideBySide(parts=tuple(part.evaluate for part in parts)),
    )


def product_features(left: FeatureMap, right: FeatureMap, budget: float) -> FeatureMap:
    """Features of a product: all products of two, less those that ``budget`` lets go."""
    pairs = np.multiply.outer(left.suprema, right.suprema).ravel()
    keep, lost = truncate(pairs, budget)
    keep = np.sort(keep)
    rows = np.divmod(keep, right.rank)
    # |k₁k₂ − h₁h₂| ≤ |k₁ − h₁| |k₂| + |h₁| |k₂ − h₂|
    error = left.error * right.largest + (left.largest + left.error) * right.error + lost
    evaluate = _Pairs(left=left.evaluate, right=right.evaluate, rows=rows)
    largest = left.largest * right.largest
    return record(
        suprema=pairs[keep],
        largest=largest,
        error=error,
        lower=left.lower,
        upper=left.upper,
        evaluate=evaluate,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _SideBySide:
    parts: tuple[Evaluate, ...]

    def __call__(self, columns: Floats) -> Floats:
        return np.concatenate([part(columns) for part in self.parts])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    left: Evaluate
    right: Evaluate
    rows: tuple[Ints, Ints]

    def __call__(self, columns: Floats) -> Floats:
        product = self.left(columns).take(self.rows[0], axis=0)
        product *= self.right(columns).take(self.rows[1], axis=0)
        return product


@dataclass(frozen=True, kw_only=True, eq=False)
class _OnColumns:
    inner: Evaluate
    columns: Ints

    def __call__(self, columns: Floats) -> Floats:
        return self.inner(columns[self.columns])


@dataclass(frozen=True, kw_only=True, eq=False)
class _Scaled:
    inner: Evaluate
    factor: float

    def __call__(self, columns: Floats) -> Floats:
        return self.inner(columns) * self.factor
