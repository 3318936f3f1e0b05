"""λ*_K and γ_N from above, for a finite set of arms: numbers that enter the bounds.

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

# Arms up to which the whole covariance is decomposed (a second or two).
DENSE_LARGEST = 1500
_BLOCK = 256
# Multiplications that a greedy run may cost, in either form.
_MATRIX_WORK = 5e8
_COLUMNS_WORK = 8e9
_MOST_STEPS = 4096
_BISECTIONS = 60
_JITTER = 1e-8
# Below it a rate is 0: its share of any bound is below rounding.
_SMALLEST_RATE = 1e-100


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

    Args:
        kernel: the prior covariance.
        features: of the arms, (n, d).
        budget: K, the most arms that a decision holds.
    """
    rows = _arms(features)
    size = min(as_count(budget, "budget"), len(rows))
    diagonal = np.asarray(kernel.diag(rows), dtype=np.float64)
    trace = size * float(diagonal.max())
    row_sum = max(_row_sums(kernel, rows, diagonal, size))
    bounds = [NamedBound(trace, "trace"), NamedBound(row_sum, "rows")]
    if len(rows) <= DENSE_LARGEST:
        eigenvalues = np.linalg.eigvalsh(kernel(rows))
        bounds.append(NamedBound(float(eigenvalues[-1]), "whole"))
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
        block = np.abs(kernel(rows[start : start + _BLOCK], rows))  # (block, n)
        within = np.arange(len(block))
        block[within, start + within] = 0.0
        if size > 1:
            ordered = np.partition(block, first_summed, axis=1)
            largest = ordered[:, first_summed:]
        else:
            largest = block[:, :0]
        variances = diagonal[start : start + len(block)]
        sums = variances + largest.sum(axis=1)
        yield float(sums.max())


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

    Args:
        kernel: the prior covariance.
        features: of the arms, (n, d).
        noise_variance: ς².
        horizon: the largest N.
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
        """The smallest bound on γ, and its name.

        Args:
            count: N, observations in all.
        """
        return min(self.bounds(count))

    def bounds(self, count: int) -> list[NamedBound]:
        """Every bound on γ that is known.

        Args:
            count: N, observations in all.
        """
        if not 0 <= count <= self.horizon:
            raise InputError(
                f"count is {count}; this growth was asked for 0 … {self.horizon}"
            )
        bounds = [NamedBound(self._hadamard(count), "hadamard")]
        if self._spectrum is not None:
            bounds.append(NamedBound(self._spectrum(count), "spectral"))
        if count < len(self._greedy.gains):
            greedy_gain = float(self._greedy.gains[count])
            bounds.append(NamedBound(greedy_gain / GREEDY_SHARE, "greedy"))
        for prefix in self._prefixes:
            value = prefix.gain + prefix.remainder(count)
            bounds.append(NamedBound(value, "prefix"))
        for split in self._nystrom:
            value = split.low_rank(count) + split.remainder(count)
            bounds.append(NamedBound(value, "nystrom"))
        return bounds

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
        # Rounding moves eigenvalues by about n·eps·λ_max: added, so that the bound stays one.
        rounding = len(values) * np.finfo(np.float64).eps * values[-1]
        values = np.maximum(0.0, values) + rounding
        shares = (vectors**2).max(axis=0)  # max_e U²_ei
        return _CappedWater(values / self.noise_variance, shares)

    @cached_property
    def _greedy(self) -> GreedyGain:
        n = len(self.features)
        by_matrix = _MATRIX_WORK / n**2
        by_columns = min(n - 1.0, math.sqrt(_COLUMNS_WORK / n))
        affordable = max(by_matrix, by_columns, 1.0)
        steps = min(self.horizon, int(affordable), _MOST_STEPS)
        return greedy_information_gain(
            self.kernel, self.features, steps, self.noise_variance
        )

    @cached_property
    def _prefixes(self) -> list[_Prefix]:
        greedy = self._greedy
        prefixes = []
        for steps in _halves(len(greedy.positions)):
            pivots, counts = np.unique(greedy.positions[:steps], return_counts=True)
            root = self._root(pivots, self.noise_variance / counts)
            remainder = _Water(self._residuals(root) / self.noise_variance)
            prefixes.append(_Prefix(float(greedy.gains[steps]), remainder))
        return prefixes

    @cached_property
    def _nystrom(self) -> list[_NystromSplit]:
        if self._spectrum is not None:
            return []  # the same, without a remainder
        positions = self._greedy.positions
        _, first_uses = np.unique(positions, return_index=True)
        pivots = positions[np.sort(first_uses)]
        # Any jitter leaves Q ⪯ K, so the split stays one into positive semi-definite parts.
        jitter = np.full(len(pivots), _JITTER * float(self._variances.max()))
        full_root = self._root(pivots, jitter)
        splits = []
        for rank in _halves(len(pivots)):
            root = full_root[:rank]  # of the first arms: Q = rootᵀ root
            remainder = _Water(self._residuals(root) / self.noise_variance)
            values, vectors = np.linalg.eigh(root @ root.T)
            rounding = np.finfo(np.float64).eps * rank * values[-1]
            values = np.maximum(values, rounding)
            projections = vectors.T @ root  # (rank, n)
            shares = (projections**2).max(axis=1) / values  # max_e U²_ei
            rates = values / self.noise_variance
            low_rank = _CappedWater(rates, np.minimum(1.0, shares))
            splits.append(_NystromSplit(low_rank, remainder))
        return splits

    def _residuals(self, root: Floats) -> Floats:
        """What rootᵀ root leaves of the prior variances, (n,)."""
        explained: Floats = np.einsum("ij,ij->j", root, root)
        return np.maximum(0.0, self._variances - explained)

    def _root(self, pivots: Ints, noise: Floats) -> Floats:
        """L⁻¹k(pivots, all) with LLᵀ = k(pivots, pivots) + diag(noise), (pivots, n)."""
        covariance = self.kernel(self.features[pivots], self.features)
        cross = np.asarray(covariance, dtype=np.float64)  # (pivots, n)
        L = cholesky(cross[:, pivots] + np.diag(noise))
        return solve_lower(L, cross)


class _Water:
    """max ½ Σ ln(1 + r_i m_i), Σ m_i = N: m_i = (θ − 1/r_i)₊, exact, O(ln n) for each N."""

    def __init__(self, rates: Floats) -> None:
        rates = np.sort(rates[rates > _SMALLEST_RATE])[::-1]
        heights = 1.0 / rates
        self._filled = np.cumsum(heights)
        self._logs = np.cumsum(np.log(rates))
        # The amount at which the water reaches the next height.
        self._amounts = np.arange(1, len(rates)) * heights[1:] - self._filled[:-1]

    def __call__(self, total: float) -> float:
        if total == 0 or len(self._logs) == 0:
            return 0.0
        last_wet = int(np.searchsorted(self._amounts, total))
        wet_count = last_wet + 1
        level = (total + self._filled[last_wet]) / wet_count
        return 0.5 * (wet_count * math.log(level) + float(self._logs[last_wet]))


class _CappedWater:
    """The same with m_i ≤ N·share_i, by its dual.

    ½Σ ln(1 + r_i m_i) + (N − Σm_i)/(2θ) at m_i = clip(θ − 1/r_i, 0, N·share_i) is an upper bound
    for *every* θ > 0 (weak duality), so bisection for the best one need not be exact.
    """

    def __init__(self, rates: Floats, shares: Floats) -> None:
        is_positive = rates > _SMALLEST_RATE
        self._rates = rates[is_positive]
        self._heights = 1.0 / self._rates
        self._shares = shares[is_positive]

    def __call__(self, total: float) -> float:
        if total == 0 or len(self._rates) == 0:
            return 0.0
        caps = total * self._shares
        if float(caps.sum()) <= total:
            return 0.5 * float(np.log1p(self._rates * caps).sum())
        low = float(self._heights.min())
        high = float((self._heights + caps).max())
        for _ in range(_BISECTIONS):
            level = math.sqrt(low * high)
            amounts = np.clip(level - self._heights, 0.0, caps)
            if float(amounts.sum()) < total:
                low = level
            else:
                high = level
        amounts = np.clip(high - self._heights, 0.0, caps)
        value = 0.5 * float(np.log1p(self._rates * amounts).sum())
        unused = total - float(amounts.sum())
        return value + 0.5 * unused / high


class _Prefix(NamedTuple):
    """The first greedy choices S."""

    gain: float
    """I(S)."""
    remainder: _Water
    """Bounds max I(A | S)."""


class _NystromSplit(NamedTuple):
    """K = Q + R, with bounds for both."""

    low_rank: _CappedWater
    remainder: _Water


def _halves(count: int) -> list[int]:
    """count, count/2, … down to 1."""
    return [count >> shift for shift in range(count.bit_length())]


def _arms(features: Any) -> Floats:
    rows = as_features(features, "features")
    if len(rows) == 0:
        raise InputError("features has no rows; give at least one arm")
    return rows
