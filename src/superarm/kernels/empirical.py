"""A kernel from a covariance matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError, NotPositiveDefiniteError, ShapeError
from superarm.core.inputs import as_features, as_numbers
from superarm.core.registry import register

from .features import Box, FeatureMap, table_features
from .single_column import SingleColumn

# Allowed error of symmetry and of eigenvalues, relative to the largest entry.
_SLACK = 1e-8


@register("kernel", "empirical")
@dataclass(frozen=True, kw_only=True, eq=False)
class Empirical(SingleColumn):
    """k(x, y) = covariance[x_column, y_column]: a covariance matrix over ids 0 … n−1.

    The matrix must be symmetric and positive semi-definite, both up to 1e-8 of its largest entry. The
    kernel stores its symmetric part, read-only. There is nothing to fit.

    Args:
        covariance: The covariance matrix over all ids, (n, n).
        column: The column of ``X`` that contains ids.
    """

    covariance: Floats
    column: int = 0

    def __post_init__(self) -> None:
        matrix = as_features(self.covariance, "Empirical.covariance")
        rows, columns = matrix.shape
        if rows != columns or rows == 0:
            raise ShapeError(
                f"Empirical.covariance must be square, got shape {matrix.shape}"
            )
        sizes = np.abs(matrix)
        slack = _SLACK * float(sizes.max())
        _require_symmetric(matrix, slack)
        matrix = 0.5 * (matrix + matrix.T)
        eigenvalues = np.linalg.eigvalsh(matrix)  # rising
        smallest = float(eigenvalues[0])
        if smallest < -slack:
            raise NotPositiveDefiniteError(
                f"Empirical.covariance has the eigenvalue {smallest:.3g}, so it is not a covariance; "
                "project it first (set negative eigenvalues to 0) or use more samples"
            )
        matrix.flags.writeable = False
        object.__setattr__(self, "covariance", matrix)
        super().__post_init__()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Empirical):
            return False
        if self.column != other.column:
            return False
        return np.array_equal(self.covariance, other.covariance)

    def __hash__(self) -> int:
        content = self.covariance.tobytes()
        return hash((self.column, content))

    def _covariance(self, X: Floats, Y: Floats | None) -> Floats:
        rows = self._ids(X)
        columns = rows if Y is None else self._ids(Y)
        entries = np.ix_(rows, columns)
        return self.covariance[entries]

    def _diagonal(self, X: Floats) -> Floats:
        ids = self._ids(X)
        return self.covariance[ids, ids]

    def _ids(self, X: Floats) -> Ints:
        numbers = X[:, 0]
        count = len(self.covariance)
        return as_numbers(numbers, count, "the ids of this table", self.column)

    def _features(self, box: Box) -> FeatureMap | None:
        return table_features(box, self.covariance)


def _require_symmetric(matrix: Floats, slack: float) -> None:
    gaps = np.abs(matrix - matrix.T)
    if gaps.max() <= slack:
        return
    worst = int(gaps.argmax())
    i, j = divmod(worst, len(matrix))
    values = f"[{i}, {j}] is {matrix[i, j]:g} but [{j}, {i}] is {matrix[j, i]:g}"
    raise InputError(f"Empirical.covariance is not symmetric: {values}")
