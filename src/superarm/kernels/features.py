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
"""Points as (d, n) columns to features as (r, n) rows; it can be pickled."""


class Box(NamedTuple):
    """Where features are wanted, how precise, and how many at most."""

    lower: Floats  # (d,)
    upper: Floats  # (d,)
    tolerance: float
    most: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FeatureMap:
    """Features Φ with |k(x, y) − Φ(x)·Φ(y)| ≤ ``error`` for all x, y in the box.

    Called with (n, d) points it returns (n, ``rank``) float64, C order; points outside the
    box raise :class:`~superarm.core.errors.InputError`, because the error bound ends there.
    """

    error: float  # proven in exact arithmetic, plus an allowance for rounding that is tested alone
    lower: Floats  # (d,)
    upper: Floats  # (d,)
    suprema: (
        Floats  # (rank,), a bound on the largest square of every feature on the box
    )
    largest: float  # a bound on k(x, x) over the box
    evaluate: Evaluate

    def __post_init__(self) -> None:
        for array in (self.suprema, self.lower, self.upper):
            array.flags.writeable = False

    @property
    def rank(self) -> int:
        return len(self.suprema)

    def __call__(self, X: Floats) -> Floats:
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != len(self.lower):
            raise ShapeError(
                f"X has shape {points.shape}; it must be (n, {len(self.lower)})"
            )
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

    def on_columns(
        self, columns: Sequence[int], lower: Floats, upper: Floats
    ) -> FeatureMap:
        """The same features, read from some columns of wider points."""
        evaluate = partial(_on_columns, self.evaluate, np.array(columns, dtype=np.intp))
        return replace(self, lower=lower, upper=upper, evaluate=evaluate)

    def scaled(self, factor: float) -> FeatureMap:
        """Features of ``factor``·k."""
        sizes = {
            name: getattr(self, name) * factor
            for name in ("suprema", "largest", "error")
        }
        return replace(
            self, **sizes, evaluate=partial(_scaled, self.evaluate, math.sqrt(factor))
        )


def _on_columns(inner: Evaluate, at: Ints, columns: Floats) -> Floats:
    return inner(columns[at])


def _scaled(inner: Evaluate, factor: float, columns: Floats) -> Floats:
    return inner(columns) * factor


def truncate(suprema: Floats, budget: float) -> tuple[Ints, float]:
    """Positions of the largest entries, largest first, and the sum of those dropped, ≤ budget."""
    order = np.argsort(-suprema, kind="stable")
    tail = np.cumsum(suprema[order][::-1])
    dropped = min(int(np.searchsorted(tail, budget, side="right")), len(order) - 1)
    return order[: len(order) - dropped], float(tail[dropped - 1]) if dropped else 0.0


# --- exact forms -------------------------------------------------------------------------


def monomial_features(
    box: Box, degree: int, variance: float, bias: float
) -> FeatureMap | None:
    """Features of variance·(x·y + bias)^degree: √(variance · multinomial · bias^{a_0}) x^a."""
    slots = len(box.lower) + (1 if bias > 0.0 else 0)
    if math.comb(slots + degree - 1, degree) > box.most:
        return None
    # Every way to write the degree as an ordered sum of integers ≥ 0, one for each slot.
    factors = np.array(
        list(combinations_with_replacement(range(slots), degree)), dtype=np.intp
    )
    powers: Ints = (factors[:, :, None] == np.arange(slots)).sum(axis=1)
    whole = variance * math.factorial(degree)
    weights = np.array(
        [whole / math.prod(math.factorial(i) for i in row) for row in powers]
    )
    if bias > 0.0:
        weights *= bias ** powers[:, -1]
        powers = powers[:, :-1]
    extent = np.maximum(np.abs(box.lower), np.abs(box.upper))
    largest = variance * (float(extent @ extent) + bias) ** degree
    return FeatureMap(
        suprema=weights * np.prod(extent ** (2 * powers), axis=1),
        largest=largest,
        error=_ROUNDING * EPSILON * max(degree, 1) * largest,
        lower=box.lower.copy(),
        upper=box.upper.copy(),
        evaluate=partial(_monomials, powers, np.sqrt(weights)[:, None], degree),
    )


def _monomials(powers: Ints, roots: Floats, degree: int, columns: Floats) -> Floats:
    """``powers`` (r, d), ``roots`` (r, 1)."""
    table = columns ** np.arange(degree + 1)[:, None, None]  # (degree + 1, d, n)
    rows = np.repeat(roots, columns.shape[1], axis=1)
    for j in range(columns.shape[0]):
        rows *= table[powers[:, j], j]
    return rows


def table_features(box: Box, covariance: Floats) -> FeatureMap:
    """Features of a given covariance over ids, which lie in the one column."""
    values, vectors = np.linalg.eigh(covariance)
    keep = values > box.tolerance
    root = vectors[:, keep] * np.sqrt(values[keep])
    lost = float(
        np.abs(values[~keep]).max(initial=0.0)
    )  # a spectral norm bounds every entry
    largest = float(np.diagonal(covariance).max())
    return FeatureMap(
        suprema=np.square(root).max(axis=0),
        largest=largest,
        error=lost + _ROUNDING * EPSILON * largest,
        # There are no ids beyond the table: the features hold on the part of the box that has some.
        lower=np.maximum(box.lower, 0.0),
        upper=np.minimum(box.upper, len(covariance) - 1.0),
        evaluate=partial(_table_rows, root),
    )


def _table_rows(root: Floats, columns: Floats) -> Floats:
    ids = columns[0].astype(np.intp)
    if (ids != columns[0]).any():
        raise InputError("ids in the column of an Empirical kernel must be integers")
    return np.asarray(root[ids].T)


# --- sums and products -------------------------------------------------------------------


def sum_features(parts: Sequence[FeatureMap]) -> FeatureMap:
    """Features of a sum: those of the parts, side by side."""
    return replace(
        parts[0],
        suprema=np.concatenate([part.suprema for part in parts]),
        largest=sum(part.largest for part in parts),
        error=sum(part.error for part in parts),
        evaluate=partial(_side_by_side, tuple(part.evaluate for part in parts)),
    )


def product_features(left: FeatureMap, right: FeatureMap, budget: float) -> FeatureMap:
    """Features of a product: all products of two, less those that ``budget`` lets go."""
    pairs = np.multiply.outer(left.suprema, right.suprema).ravel()
    keep, lost = truncate(pairs, budget)
    keep = np.sort(keep)
    return replace(
        left,
        suprema=pairs[keep],
        largest=left.largest * right.largest,
        # |k₁k₂ − h₁h₂| ≤ |k₁ − h₁| |k₂| + |h₁| |k₂ − h₂|
        error=left.error * right.largest
        + (left.largest + left.error) * right.error
        + lost,
        evaluate=partial(
            _pairs, left.evaluate, right.evaluate, np.divmod(keep, right.rank)
        ),
    )


def _side_by_side(parts: tuple[Evaluate, ...], columns: Floats) -> Floats:
    return np.concatenate([part(columns) for part in parts])


def _pairs(
    left: Evaluate, right: Evaluate, rows: tuple[Ints, Ints], columns: Floats
) -> Floats:
    product = left(columns).take(rows[0], axis=0)
    product *= right(columns).take(rows[1], axis=0)
    return product
