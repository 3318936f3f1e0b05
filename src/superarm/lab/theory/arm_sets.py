"""γ_N from above, for a finite set of arms: a number that enters the bounds.

======================  ================================================================
``K``                   (n, n) prior covariance of the arms; never held for large n
``ς²``                  ``noise_variance``
``N``, ``n_e``          observations in all, and of arm e; D = diag(n_e), Σ n_e = N
``γ_N``                 max over n_e of ½ ln det(I + D^½ K D^½/ς²), in nats (arms may repeat)
======================  ================================================================

Growth rates hide a constant. These are upper bounds with none hidden, so that a regret bound
drawn with them is one. sandberg2025bayesian, Lemma A.12; srinivas2010gaussian, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_positive
from superarm.core.linalg import cholesky, solve_lower
from superarm.rules.information import GREEDY_SHARE, GreedyGain, greedy_information_gain

from .eigenvalues import DENSE_LARGEST, NamedBound, as_arms
from .water_filling import CappedWater, Water

# Multiplications that a greedy run may cost, in either form.
_MATRIX_WORK = 5e8
_COLUMNS_WORK = 8e9
_MOST_STEPS = 4096
_JITTER = 1e-8


class _Prefix(NamedTuple):
    """The first greedy choices S."""

    gain: float
    """I(S)."""
    remainder: Water
    """Bounds max I(A | S)."""


class _NystromSplit(NamedTuple):
    """K = Q + R, with bounds for both."""

    low_rank: CappedWater
    remainder: Water


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
        arms = as_arms(self.features)
        object.__setattr__(self, "features", arms)
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
        value = self._hadamard(count)
        bounds = [NamedBound(value, "hadamard")]
        if self._spectrum is not None:
            value = self._spectrum(count)
            bounds.append(NamedBound(value, "spectral"))
        if count < len(self._greedy.gains):
            greedy_gain = float(self._greedy.gains[count])
            value = greedy_gain / GREEDY_SHARE
            bounds.append(NamedBound(value, "greedy"))
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
    def _hadamard(self) -> Water:
        rates = self._variances / self.noise_variance
        return Water(rates)

    @cached_property
    def _spectrum(self) -> CappedWater | None:
        if len(self.features) > DENSE_LARGEST:
            return None
        K = self.kernel(self.features)
        values, vectors = np.linalg.eigh(K)
        # Rounding moves eigenvalues by about n·eps·λ_max: added, so that the bound stays one.
        epsilon = np.finfo(np.float64).eps
        rounding = len(values) * epsilon * values[-1]
        values = np.maximum(0.0, values) + rounding
        shares = (vectors**2).max(axis=0)  # max_e U²_ei
        rates = values / self.noise_variance
        return CappedWater(rates, shares)

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
            chosen = greedy.positions[:steps]
            pivots, counts = np.unique(chosen, return_counts=True)
            mean_noise = self.noise_variance / counts
            root = self._root(pivots, mean_noise)
            gain = float(greedy.gains[steps])
            prefixes.append(_Prefix(gain, self._remainder(root)))
        return prefixes

    @cached_property
    def _nystrom(self) -> list[_NystromSplit]:
        if self._spectrum is not None:
            return []  # the same, without a remainder
        positions = self._greedy.positions
        _, first_uses = np.unique(positions, return_index=True)
        pivots = positions[np.sort(first_uses)]
        # Any jitter leaves Q ⪯ K, so the split stays one into positive semi-definite parts.
        jitter = _JITTER * float(self._variances.max())
        full_root = self._root(pivots, np.full(len(pivots), jitter))
        splits = []
        for rank in _halves(len(pivots)):
            root = full_root[:rank]  # of the first arms: Q = rootᵀ root
            split = _NystromSplit(self._low_rank(root), self._remainder(root))
            splits.append(split)
        return splits

    def _low_rank(self, root: Floats) -> CappedWater:
        """The bound ``spectral`` for Q = rootᵀ root."""
        rank = len(root)
        values, vectors = np.linalg.eigh(root @ root.T)
        epsilon = np.finfo(np.float64).eps
        rounding = epsilon * rank * values[-1]
        values = np.maximum(values, rounding)
        projections = vectors.T @ root  # (rank, n)
        shares = (projections**2).max(axis=1) / values  # max_e U²_ei
        rates = values / self.noise_variance
        return CappedWater(rates, np.minimum(1.0, shares))

    def _remainder(self, root: Floats) -> Water:
        """The bound ``hadamard`` for what rootᵀ root leaves of the prior variances."""
        explained: Floats = np.einsum("ij,ij->j", root, root)
        residuals = np.maximum(0.0, self._variances - explained)  # (n,)
        rates = residuals / self.noise_variance
        return Water(rates)

    def _root(self, pivots: Ints, noise: Floats) -> Floats:
        """L⁻¹k(pivots, all) with LLᵀ = k(pivots, pivots) + diag(noise), (pivots, n)."""
        pivot_features = self.features[pivots]
        covariance = self.kernel(pivot_features, self.features)
        cross = np.asarray(covariance, dtype=np.float64)  # (pivots, n)
        observed = cross[:, pivots] + np.diag(noise)
        L = cholesky(observed)
        return solve_lower(L, cross)


def _halves(count: int) -> list[int]:
    """count, count/2, … down to 1."""
    return [count >> shift for shift in range(count.bit_length())]
