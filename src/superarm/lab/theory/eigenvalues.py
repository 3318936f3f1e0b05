"""λ*_K from above, for a finite set of arms: sandberg2025bayesian, Lemma A.12.

======================  ================================================================
``K``                   (n, n) prior covariance of the arms; never held for large n
``budget``              the most arms a decision may hold (the papers' K)
======================  ================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_features

# Arms up to which the whole covariance is decomposed (a second or two).
DENSE_LARGEST = 1500
_BLOCK = 256


class NamedBound(NamedTuple):
    """An upper bound and which argument gave it."""

    value: float
    name: str


def prior_eigenvalue_bounds(
    kernel: Covariance, features: Any, budget: int
) -> list[NamedBound]:
    """Upper bounds on λ*_K, each valid for every history and every choice of ``budget`` arms.

    A posterior covariance is the prior's minus a positive semi-definite matrix (eq. 3), so its
    eigenvalues, and those of its principal submatrices S, are at most the prior's. Of the prior:

    - ``trace``: the largest eigenvalue of S is at most its trace, at most K·max k(a, a).
    - ``rows``: it is at most the largest absolute row sum of S (Gershgorin), at most k(a, a) plus
      the K − 1 largest |k(a, b)|, b ≠ a, for the worst a.
    - ``whole``: S is a principal submatrix, so by interlacing it is at most that of all arms
      (for at most ``DENSE_LARGEST`` arms).

    The matrix is visited in blocks of rows: O(n²) kernel values, O(n) of them held.

    Args:
        kernel: the prior covariance.
        features: of the arms, (n, d).
        budget: K, the most arms that a decision holds.
    """
    rows = as_arms(features)
    size = min(as_count(budget, "budget"), len(rows))
    diagonal = np.asarray(kernel.diag(rows), dtype=np.float64)
    trace = size * float(diagonal.max())
    row_sum = max(_row_sums(kernel, rows, diagonal, size))
    bounds = [
        NamedBound(trace, "trace"),
        NamedBound(row_sum, "rows"),
    ]
    if len(rows) <= DENSE_LARGEST:
        eigenvalues = np.linalg.eigvalsh(kernel(rows))
        largest = float(eigenvalues[-1])
        bounds.append(NamedBound(largest, "whole"))
    return bounds


def prior_eigenvalue_bound(
    kernel: Covariance, features: Any, budget: int
) -> NamedBound:
    """The smallest of :func:`prior_eigenvalue_bounds`.

    Args:
        kernel: the prior covariance.
        features: of the arms, (n, d).
        budget: K, the most arms that a decision holds.

    >>> from superarm.kernels import SquaredExponential
    >>> kernel = SquaredExponential(lengthscale=0.1)
    >>> bound = prior_eigenvalue_bound(kernel, [[0.0], [0.1], [0.2], [0.3]], budget=2)
    >>> round(bound.value, 4), bound.name
    (1.6065, 'rows')
    """
    return min(prior_eigenvalue_bounds(kernel, features, budget))


def _row_sums(
    kernel: Covariance, rows: Floats, diagonal: Floats, size: int
) -> Iterator[float]:
    """For each block of rows, the largest k(a, a) plus the K − 1 largest |k(a, b)|, b ≠ a."""
    first_summed = len(rows) - (size - 1)  # in ascending order
    for start in range(0, len(rows), _BLOCK):
        stop = start + _BLOCK
        variances = diagonal[start:stop]
        block = np.abs(kernel(rows[start:stop], rows))  # (block, n)
        within = np.arange(len(block))
        block[within, start + within] = 0.0
        if size > 1:
            ordered = np.partition(block, first_summed, axis=1)
            largest = ordered[:, first_summed:]
        else:
            largest = block[:, :0]
        sums = variances + largest.sum(axis=1)
        yield float(sums.max())


def as_arms(features: Any) -> Floats:
    """Features of one arm or more, (n, d).

    Args:
        features: of the arms.
    """
    rows = as_features(features, "features")
    if len(rows) == 0:
        raise InputError("features has no rows; give at least one arm")
    return rows
