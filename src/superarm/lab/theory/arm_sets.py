"""Numbers that a given, finite set of arms puts into the bounds: λ*_K and γ_N from above.

======================  ================================================================
``K``                   (n, n) prior covariance of the arms; never held for large n
``ς²``                  ``noise_variance``
``budget``              the most arms a decision may hold (the papers' K)
``N``, ``n_e``          observations in all, and of arm e; D = diag(n_e), Σ n_e = N
``γ_N``                 max over n_e of ½ ln det(I + D^½ K D^½/ς²), in nats (arms may repeat)
======================  ================================================================

Growth rates hide a constant. These are upper bounds with none hidden, so that a regret bound
drawn with them is one. sandberg2025bayesian, Lemma A.12; srinivas2010gaussian, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_features, as_positive
from superarm.core.linalg import cholesky, solve_lower
from superarm.rules.information import GREEDY_SHARE, GreedyGain, greedy_information_gain

DENSE_LARGEST = (
    1500  # arms up to which the whole covariance is decomposed (a second or two)
)
_BLOCK = 256
_MATRIX_WORK, _COLUMNS_WORK = (
    5e8,
    8e9,
)  # multiplications a greedy run may cost, in either form
_MOST_STEPS = 4096
_JITTER = 1e-8
_SMALLEST_RATE = (
    1e-100  # below it a rate is 0: its share of any bound is below rounding
)


class NamedBound(NamedTuple):
    """An upper bound and which argument gave it."""

    value: float
    name: str


# --- λ*_K ---------------------------------------------------------------------------------


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
    """
    rows = _arms(features)
    size = min(as_count(budget, "budget"), len(rows))
    diagonal = np.asarray(kernel.diag(rows), dtype=np.float64)
    bounds = [NamedBound(size * float(diagonal.max()), "trace")]
    bounds.append(NamedBound(max(_row_sums(kernel, rows, diagonal, size)), "rows"))
    if len(rows) <= DENSE_LARGEST:
        bounds.append(NamedBound(float(np.linalg.eigvalsh(kernel(rows))[-1]), "whole"))
    return bounds


def prior_eigenvalue_bound(
    kernel: Covariance, features: Any, budget: int
) -> NamedBound:
    """The smallest of :func:`prior_eigenvalue_bounds`.

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
    for start in range(0, len(rows), _BLOCK):
        block = np.abs(kernel(rows[start : start + _BLOCK], rows))  # (block, n)
        within = np.arange(len(block))
        block[within, start + within] = 0.0
        others = len(rows) - (size - 1)
        largest = (
            np.partition(block, others, axis=1)[:, others:]
            if size > 1
            else block[:, :0]
        )
        yield float((diagonal[start : start + len(block)] + largest.sum(axis=1)).max())


# --- γ_N ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class ArmSetGrowth:
    """γ_N of these arms from above, for N up to ``horizon``: a ``gamma`` for regret bounds.

    ``growth(N)`` is the smallest of the bounds below, ``growth.bound(N)`` also its name. What they
    share is computed once; 6,000 arms take some seconds, then any N is quick. W(r, N) stands for
    max ½ Σ ln(1 + r_i m_i) over m_i ≥ 0, Σ m_i = N: water-filling.

    - ``hadamard``: a determinant is at most the product of its diagonal, so
      γ_N ≤ W(k(e, e)/ς², N).
    - ``spectral``: with K = UΛUᵀ the determinant is also that of I + Λ^½UᵀDUΛ^½/ς², whose
      diagonal is 1 + λ_i m_i/ς² with m_i = Σ_e n_e U²_ei. So Σ m_i = N, m_i ≤ N·max_e U²_ei, and
      γ_N ≤ W(λ/ς², N) with these caps. For at most ``DENSE_LARGEST`` arms.
    - ``greedy``: greedy reaches 1 − 1/e of γ_N (nemhauser1978analysis): N steps, if affordable.
    - ``prefix``: for any observations S, γ_N ≤ I(S) + max I(A | S), and Hadamard's bound of the
      second with the variances after S. S are the first greedy choices, in several numbers.
    - ``nystrom``: for K = Q + R, both positive semi-definite, det(I + Q + R) ≤ det(I + Q)·det(I + R).
      Q is K seen through some arms, of low rank, and takes ``spectral``; the rest R ``hadamard``.
    """

    kernel: Covariance
    features: Any
    noise_variance: float
    horizon: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", _arms(self.features))
        as_positive(self.noise_variance, "noise_variance")
        as_count(self.horizon, "horizon")

    def __call__(self, t: int) -> float:
        return self.bound(t).value

    def bound(self, count: int) -> NamedBound:
        """The smallest bound on γ for ``count`` observations, and its name."""
        return min(self.bounds(count))

    def bounds(self, count: int) -> list[NamedBound]:
        """Every bound that can be had for ``count`` observations."""
        if not 0 <= count <= self.horizon:
            raise InputError(
                f"count is {count}; this growth was asked for 0 … {self.horizon}"
            )
        found = [NamedBound(self._hadamard(count), "hadamard")]
        if self._spectrum is not None:
            found.append(NamedBound(self._spectrum(count), "spectral"))
        if count < len(self._greedy.gains):
            found.append(
                NamedBound(float(self._greedy.gains[count]) / GREEDY_SHARE, "greedy")
            )
        found += [
            NamedBound(gain + rest(count), "prefix") for gain, rest in self._prefixes
        ]
        found += [
            NamedBound(low(count) + rest(count), "nystrom")
            for low, rest in self._nystrom
        ]
        return found

    @cached_property
    def _variances(self) -> Floats:
        return np.asarray(self.kernel.diag(self.features), dtype=np.float64)

    @cached_property
    def _hadamard(self) -> _Water:
        return _Water(self._variances / self.noise_variance)

    @cached_property
    def _spectrum(self) -> _CappedWater | None:
        if len(self.features) > DENSE_LARGEST:
            return None
        values, vectors = np.linalg.eigh(self.kernel(self.features))
        # rounding moves eigenvalues by about n·eps·λ_max: added, so that the bound stays one
        values = (
            np.maximum(0.0, values)
            + len(values) * np.finfo(np.float64).eps * values[-1]
        )
        return _CappedWater(values / self.noise_variance, (vectors**2).max(axis=0))

    @cached_property
    def _greedy(self) -> GreedyGain:
        n = len(self.features)
        affordable = max(
            _MATRIX_WORK / n**2, min(n - 1.0, math.sqrt(_COLUMNS_WORK / n)), 1.0
        )
        steps = min(self.horizon, int(affordable), _MOST_STEPS)
        return greedy_information_gain(
            self.kernel, self.features, steps, self.noise_variance
        )

    @cached_property
    def _prefixes(self) -> list[tuple[float, _Water]]:
        found = []
        for steps in _halves(len(self._greedy.positions)):
            pivots, counts = np.unique(
                self._greedy.positions[:steps], return_counts=True
            )
            root = self._root(pivots, self.noise_variance / counts)
            rest = np.maximum(0.0, self._variances - np.einsum("ij,ij->j", root, root))
            found.append(
                (float(self._greedy.gains[steps]), _Water(rest / self.noise_variance))
            )
        return found

    @cached_property
    def _nystrom(self) -> list[tuple[_CappedWater, _Water]]:
        if self._spectrum is not None:
            return []  # the same, without a rest
        _, first = np.unique(self._greedy.positions, return_index=True)
        pivots = self._greedy.positions[np.sort(first)]
        # any jitter leaves Q ⪯ K, so the split stays one into positive semi-definite parts
        jitter = np.full(len(pivots), _JITTER * float(self._variances.max()))
        whole = self._root(pivots, jitter)
        found = []
        for rank in _halves(len(pivots)):
            root = whole[:rank]  # of the first arms: Q = rootᵀ root
            rest = np.maximum(0.0, self._variances - np.einsum("ij,ij->j", root, root))
            values, vectors = np.linalg.eigh(root @ root.T)
            values = np.maximum(values, np.finfo(np.float64).eps * rank * values[-1])
            shares = ((vectors.T @ root) ** 2).max(axis=1) / values  # max_e U²_ei
            low = _CappedWater(values / self.noise_variance, np.minimum(1.0, shares))
            found.append((low, _Water(rest / self.noise_variance)))
        return found

    def _root(self, pivots: Ints, noise: Floats) -> Floats:
        """L⁻¹k(pivots, all) with LLᵀ = k(pivots, pivots) + diag(noise), (pivots, n)."""
        cross = np.asarray(
            self.kernel(self.features[pivots], self.features), dtype=np.float64
        )
        L = cholesky(cross[:, pivots] + np.diag(noise))
        return solve_lower(L, cross)


class _Water:
    """max ½ Σ ln(1 + r_i m_i), Σ m_i = N: m_i = (θ − 1/r_i)₊, exact, O(ln n) for each N."""

    def __init__(self, rates: Floats) -> None:
        rates = np.sort(rates[rates > _SMALLEST_RATE])[::-1]
        heights = 1.0 / rates
        self._filled = np.cumsum(heights)
        self._logs = np.cumsum(np.log(rates))
        # the amount at which the water reaches the next height
        self._amounts = np.arange(1, len(rates)) * heights[1:] - self._filled[:-1]

    def __call__(self, total: float) -> float:
        if total == 0 or len(self._logs) == 0:
            return 0.0
        wet = int(np.searchsorted(self._amounts, total))  # this one and all before
        level = (total + self._filled[wet]) / (wet + 1)
        return 0.5 * ((wet + 1) * math.log(level) + float(self._logs[wet]))


class _CappedWater:
    """The same with m_i ≤ N·share_i, by its dual.

    ½Σ ln(1 + r_i m_i) + (N − Σm_i)/(2θ) at m_i = clip(θ − 1/r_i, 0, N·share_i) is an upper bound
    for *every* θ > 0 (weak duality), so bisection for the best one need not be exact.
    """

    def __init__(self, rates: Floats, shares: Floats) -> None:
        kept = rates > _SMALLEST_RATE
        self._rates = rates[kept]
        self._heights = 1.0 / self._rates
        self._shares = shares[kept]

    def __call__(self, total: float) -> float:
        if total == 0 or len(self._rates) == 0:
            return 0.0
        caps = total * self._shares
        if float(caps.sum()) <= total:
            return 0.5 * float(np.log1p(self._rates * caps).sum())
        low, high = float(self._heights.min()), float((self._heights + caps).max())
        for _ in range(60):
            level = math.sqrt(low * high)
            if float(np.clip(level - self._heights, 0.0, caps).sum()) < total:
                low = level
            else:
                high = level
        amounts = np.clip(high - self._heights, 0.0, caps)
        value = 0.5 * float(np.log1p(self._rates * amounts).sum())
        return value + 0.5 * (total - float(amounts.sum())) / high


def _halves(count: int) -> list[int]:
    """count, count/2, … down to 1."""
    return [count >> shift for shift in range(count.bit_length())]


def _arms(features: Any) -> Floats:
    rows = as_features(features, "features")
    if len(rows) == 0:
        raise InputError("features has no rows; give at least one arm")
    return rows
