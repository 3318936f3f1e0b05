"""Finite-rank forms: k(x, y) ≈ Φ(x)·Φ(y) on a box, with a stated error.

A smooth kernel in few dimensions has a numerical rank far below the number of observations. Its
feature map turns an N-sized posterior into an r-sized one.

Notation

=============  =========================================================================
``Φ``          (n, r) features of n points
``φ_k``        the k-th feature; its *supremum* bounds sup φ_k² on the box
``largest``    a bound on sup k(x, x); by Cauchy–Schwarz it bounds Σ_k |φ_k(x) φ_k(y)| too
=============  =========================================================================

Truncation. Dropping the features in a set D changes k(x, y) by
|Σ_{k∈D} φ_k(x) φ_k(y)| ≤ Σ_{k∈D} sup φ_k². So the smallest suprema go first, as long as their sum
stays below the tolerance. Features of a product are products of features, and so are their suprema.

Inside this module features are rows, (r, n): gathering rows is a memory copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError, ShapeError

EPSILON = float(np.finfo(np.float64).eps)
_ROUNDING = 64.0  # rounding allowance of the exact forms, in units of ε·``largest``

Evaluate = Callable[[Floats], Floats]
"""Maps points as (d, n) columns to features as (r, n) rows; it can be pickled."""


class Box(NamedTuple):
    """The box on which features are needed, their precision and their largest number."""

    lower: Floats  # (d,)
    upper: Floats  # (d,)
    tolerance: float
    max_rank: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureMap:
    """Features Φ with |k(x, y) − Φ(x)·Φ(y)| ≤ ``error`` for all x, y in the box.

    Calling it with (n, d) points returns (n, ``rank``) float64 numbers in C order. Points outside the
    box raise :class:`~superarm.core.errors.InputError`, because the error bound ends there.

    Args:
        error: Bound on the error: proven in exact arithmetic, plus a tested allowance for rounding.
        lower: Lower ends of the box, (d,).
        upper: Upper ends of the box, (d,).
        suprema: Bounds on the largest square of every feature on the box, (rank,).
        largest: Bound on k(x, x) over the box.
        evaluate: Maps points, (d, n), to features, (rank, n).
    """

    error: float
    lower: Floats
    upper: Floats
    suprema: Floats
    largest: float
    evaluate: Evaluate

    def __post_init__(self) -> None:
        self.suprema.flags.writeable = False
        self.lower.flags.writeable = False
        self.upper.flags.writeable = False

    @property
    def rank(self) -> int:
        """The number of features."""
        return len(self.suprema)

    def __call__(self, X: Floats) -> Floats:
        """The features of points, (n, rank).

        Args:
            X: Points in the box, (n, d).
        """
        points = np.asarray(X, dtype=np.float64)
        width = len(self.lower)
        if points.ndim != 2 or points.shape[1] != width:
            raise ShapeError(f"X must have shape (n, {width}), got {points.shape}")
        columns = np.ascontiguousarray(points.T)
        above = columns >= self.lower[:, None]
        below = columns <= self.upper[:, None]
        inside = above & below
        if not inside.all():
            column, row = np.argwhere(~inside)[0].tolist()
            raise InputError(
                f"X[{row}, {column}] is {points[row, column]!r}, outside the box "
                f"[{self.lower[column]!r}, {self.upper[column]!r}] that the features were made for; "
                "make them for a larger box"
            )
        rows = self.evaluate(columns)  # (rank, n)
        return np.ascontiguousarray(rows.T)

    def covers(self, X: Floats) -> bool:
        """Whether every point lies in the box.

        Args:
            X: Points, (n, d).
        """
        if not (self.lower <= X).all():
            return False
        return bool((self.upper >= X).all())

    def on_columns(
        self, columns: Sequence[int], lower: Floats, upper: Floats
    ) -> FeatureMap:
        """The same features, read from some columns of wider points.

        Args:
            columns: The columns to read.
            lower: Lower ends of the wider box.
            upper: Upper ends of the wider box.
        """
        positions = np.array(columns, dtype=np.intp)
        evaluate = partial(_on_columns, self.evaluate, positions)
        return replace(self, lower=lower, upper=upper, evaluate=evaluate)

    def scaled(self, factor: float) -> FeatureMap:
        """Features of ``factor``·k.

        Args:
            factor: What the kernel is multiplied by, above 0.
        """
        evaluate = partial(_scaled, self.evaluate, math.sqrt(factor))
        return replace(
            self,
            suprema=self.suprema * factor,
            largest=self.largest * factor,
            error=self.error * factor,
            evaluate=evaluate,
        )


def _on_columns(inner: Evaluate, positions: Ints, columns: Floats) -> Floats:
    return inner(columns[positions])


def _scaled(inner: Evaluate, factor: float, columns: Floats) -> Floats:
    return inner(columns) * factor


class Truncation(NamedTuple):
    """Features that remain, and the error of dropping the others."""

    positions: Ints  # by falling supremum
    dropped: float  # sum of the dropped suprema


def truncate(suprema: Floats, budget: float) -> Truncation:
    """Drops the smallest suprema while their sum is at most ``budget``; at least one remains."""
    order = np.argsort(-suprema, kind="stable")
    rising = suprema[order][::-1]
    sums = np.cumsum(rising)  # of the smallest suprema
    affordable = int(np.searchsorted(sums, budget, side="right"))
    count = min(affordable, len(order) - 1)
    if count == 0:
        return Truncation(order, 0.0)
    dropped = float(sums[count - 1])
    return Truncation(order[:-count], dropped)


def pairs_fit(count: int, max_rank: int) -> bool:
    """Whether that many products of two features are few enough to be truncated."""
    return count <= 100 * max_rank + 10_000


# --- exact forms -------------------------------------------------------------------------


def monomial_features(
    box: Box, degree: int, variance: float, bias: float
) -> FeatureMap | None:
    """Features of variance·(x·y + bias)^degree: √(variance · multinomial · bias^{a_0}) x^a."""
    has_bias = bias > 0.0
    slots = len(box.lower) + int(has_bias)
    rank = math.comb(slots + degree - 1, degree)
    if rank > box.max_rank:
        return None
    powers = _exponents(slots, degree)  # (r, slots)
    numerator = variance * math.factorial(degree)
    denominators = [_factorials(row) for row in powers]
    weights = numerator / np.array(denominators, dtype=np.float64)  # (r,)
    if has_bias:
        bias_powers = powers[:, -1]
        weights *= bias**bias_powers
        powers = powers[:, :-1]
    lower_extent = np.abs(box.lower)
    upper_extent = np.abs(box.upper)
    extent = np.maximum(lower_extent, upper_extent)
    squared_extent = float(extent @ extent)
    largest = variance * (squared_extent + bias) ** degree
    column_squares = extent ** (2 * powers)
    squares = np.prod(column_squares, axis=1)  # largest (x^a)²
    roots = np.sqrt(weights)[:, None]
    return FeatureMap(
        suprema=weights * squares,
        largest=largest,
        error=_ROUNDING * EPSILON * max(degree, 1) * largest,
        lower=box.lower.copy(),
        upper=box.upper.copy(),
        evaluate=partial(_monomials, powers, roots, degree),
    )


def _exponents(slots: int, degree: int) -> Ints:
    """Every way to write the degree as an ordered sum of integers ≥ 0, one for each slot."""
    choices = list(combinations_with_replacement(range(slots), degree))
    slot_of_factor = np.array(choices, dtype=np.intp)  # (r, degree)
    all_slots = np.arange(slots)
    is_in_slot = slot_of_factor[:, :, None] == all_slots  # (r, degree, slots)
    counts: Ints = is_in_slot.sum(axis=1)
    return counts


def _factorials(exponents: Ints) -> int:
    return math.prod(math.factorial(exponent) for exponent in exponents)


def _monomials(powers: Ints, roots: Floats, degree: int, columns: Floats) -> Floats:
    """``powers`` (r, d), ``roots`` (r, 1)."""
    dimensions, n = columns.shape
    degrees = np.arange(degree + 1)
    table = columns ** degrees[:, None, None]  # (degree + 1, d, n)
    rows = np.repeat(roots, n, axis=1)
    for j in range(dimensions):
        exponents = powers[:, j]
        rows *= table[exponents, j]
    return rows


def table_features(box: Box, covariance: Floats) -> FeatureMap:
    """Features of a covariance matrix over ids, which are in the only column."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    is_large = eigenvalues > box.tolerance
    scales = np.sqrt(eigenvalues[is_large])
    root = vectors[:, is_large] * scales
    # The spectral norm of what is dropped bounds its every entry.
    others = np.abs(eigenvalues[~is_large])
    dropped = float(others.max(initial=0.0))
    variances = np.diagonal(covariance)
    largest = float(variances.max())
    rounding = _ROUNDING * EPSILON * largest
    last_id = len(covariance) - 1.0
    return FeatureMap(
        suprema=np.square(root).max(axis=0),
        largest=largest,
        error=dropped + rounding,
        # There are no ids beyond the table: the features hold on the part of the box that has some.
        lower=np.maximum(box.lower, 0.0),
        upper=np.minimum(box.upper, last_id),
        evaluate=partial(_table_rows, root),
    )


def _table_rows(root: Floats, columns: Floats) -> Floats:
    numbers = columns[0]
    ids = numbers.astype(np.intp)
    if (ids != numbers).any():
        raise InputError("ids in the column of an Empirical kernel must be integers")
    rows = root[ids]
    return np.asarray(rows.T)


# --- sums and products -------------------------------------------------------------------


def sum_features(parts: Sequence[FeatureMap]) -> FeatureMap:
    """Features of a sum: those of the parts, side by side."""
    evaluations = tuple(part.evaluate for part in parts)
    suprema = [part.suprema for part in parts]
    return replace(
        parts[0],
        suprema=np.concatenate(suprema),
        largest=sum(part.largest for part in parts),
        error=sum(part.error for part in parts),
        evaluate=partial(_side_by_side, evaluations),
    )


def product_features(left: FeatureMap, right: FeatureMap, budget: float) -> FeatureMap:
    """Features of a product: all products of two, except those that ``budget`` allows to drop."""
    pairs = np.multiply.outer(left.suprema, right.suprema).ravel()
    positions, dropped = truncate(pairs, budget)
    positions = np.sort(positions)
    left_rows, right_rows = np.divmod(positions, right.rank)
    # |k₁k₂ − h₁h₂| ≤ |k₁ − h₁| |k₂| + |h₁| |k₂ − h₂|
    left_error = left.error * right.largest
    left_size = left.largest + left.error
    right_error = left_size * right.error
    evaluate = partial(_pairs, left.evaluate, right.evaluate, left_rows, right_rows)
    return replace(
        left,
        suprema=pairs[positions],
        largest=left.largest * right.largest,
        error=left_error + right_error + dropped,
        evaluate=evaluate,
    )


def _side_by_side(parts: tuple[Evaluate, ...], columns: Floats) -> Floats:
    blocks = [part(columns) for part in parts]
    return np.concatenate(blocks)


def _pairs(
    left: Evaluate,
    right: Evaluate,
    left_rows: Ints,
    right_rows: Ints,
    columns: Floats,
) -> Floats:
    product = left(columns).take(left_rows, axis=0)
    product *= right(columns).take(right_rows, axis=0)
    return product
