"""The noise of trips: R = T + F Fᵀ, trip by trip.

=============  =======================================================================
``R``          (M, M) noise of all rewards; 0 between rewards of different trips
``T``          (M, M): own noise of each reward, and what borders take from one and give to the next;
               tridiagonal, and diagonal where no reward holds what is stored in motion
``F``          (M, 5), or (M, 6) with motion: what the rewards of a trip share
``age``        of the trip, in half-lives: 0 unless trips age, see :mod:`.log`. T contains a factor
               2^age and F its root, so that R doubles with every half-life
=============  =======================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Rng
from superarm.roads.energy.scales import TERMS, RoadScales
from superarm.roads.rows import noise_parts

from .trips import Trips

_P = len(TERMS)
# Half-lives from which on a reward ages no more: it has no weight, and floats have room for its noise.
_OLDEST = 60.0
# Diagonals below and above the main one, as scipy counts them.
_LOWER = (1, 0)
_UPPER = (0, 1)


class Woodbury(NamedTuple):
    """The parts of R⁻¹ = W − W F (I + Fᵀ W F)⁻¹ Fᵀ W where T is diagonal."""

    weight: Floats  # diagonal of W = T⁻¹, (M,)
    shared: Floats  # F, (M, 5)
    inner: Floats  # the blocks I + Fᵀ W F, one for each trip, (·, 5, 5)


class TripNoise:
    """R under one choice of scales.

    Args:
        scales: Standard deviations of the model.
    """

    def __init__(self, scales: RoadScales) -> None:
        self._scales = scales

    @property
    def trip_scales(self) -> Floats:
        """Standard deviations of a trip's terms, (5,)."""
        return np.array(self._scales.trip, dtype=np.float64)

    # --- parts of R --------------------------------------------------------------------------

    def own_variance(self, trips: Trips) -> Floats:
        """The variance that each reward has by itself, (M,)."""
        variances = np.square(self._scales.noise_scales)
        of_arms = noise_parts(trips.keys) @ variances  # (N,)
        expected = trips.summed(of_arms)
        was_stated = trips.noise != 0.0
        variance = np.where(was_stated, trips.noise, expected)
        return variance * _growth(trips)

    def border_variance(self, trips: Trips) -> Floats:
        """The variance of what is stored in motion at each border, Wh², (Q,)."""
        borders = trips.borders
        std = self._scales.motion * borders.size
        variance = np.square(std) + borders.variance
        growth = _growth(trips)
        return variance * growth[borders.last]

    def shared(self, trips: Trips) -> Floats:
        """F."""
        shared = trips.terms * self._scales.trip  # (M, 5)
        if trips.borders:
            crossing = trips.crossing(trips.borders.size)
            motion = self._scales.motion_trip * crossing
            shared = np.column_stack([shared, motion])
        return shared * self.share_of_shared(trips)[:, None]

    def share_of_shared(self, trips: Trips) -> Floats:
        """By what each row of F is multiplied, (M,): 0 where a reward shares no noise, else 2^(age/2)."""
        root = np.sqrt(_growth(trips))
        return np.where(trips.unshared, 0.0, root)

    def covariance(self, trips: Trips) -> Floats:
        """R, (M, M)."""
        shared = self.shared(trips)
        same_trip = trips.trip[:, None] == trips.trip
        within_trips = np.where(same_trip, shared @ shared.T, 0.0)
        own_variance = self.own_variance(trips)
        noise = np.diag(own_variance) + within_trips
        if trips.borders:
            border_variance = self.border_variance(trips)
            noise += trips.across(border_variance)
        return noise

    # --- R⁻¹ ---------------------------------------------------------------------------------

    def woodbury(self, trips: Trips) -> Woodbury:
        """The parts of R⁻¹ of trips without borders."""
        weight = 1.0 / self.own_variance(trips)
        shared = self.shared(trips)
        weighted = weight[:, None] * shared
        F_W_F = np.zeros((trips.number, _P, _P))
        products = _outer_by_row(shared, weighted)
        np.add.at(F_W_F, trips.trip, products)
        inner = F_W_F + np.eye(_P)
        return Woodbury(weight, shared, inner)

    def solve(self, trips: Trips, values: Floats) -> Floats:
        """R⁻¹ times values, (M,) or (M, k), trip by trip."""
        if trips.borders:
            return self._solve_with_borders(trips, values)
        weight, shared, inner = self.woodbury(trips)
        weights = weight[:, None]
        columns = values.reshape(len(weight), -1)  # (M, k)
        weighted = weights * columns  # W values
        # Fᵀ W values, trip by trip, (·, 5, k).
        _, k = weighted.shape
        projected = np.zeros((trips.number, _P, k))
        products = _outer_by_row(shared, weighted)
        np.add.at(projected, trips.trip, products)
        solved = np.linalg.solve(inner, projected)
        solved_of_reward = solved[trips.trip]  # (M, 5, k)
        # F (I + Fᵀ W F)⁻¹ Fᵀ W values, (M, k).
        explained = np.einsum("ij,ijk->ik", shared, solved_of_reward)
        weighted -= weights * explained
        return weighted.reshape(values.shape)

    def _solve_with_borders(self, trips: Trips, values: Floats) -> Floats:
        rewards = len(values)
        columns = values.reshape(rewards, -1)
        solved = columns.copy()
        for rows, root in self.roots(trips):
            white = root.whiten(solved[rows])
            solved[rows] = root.whiten(white, transposed=True)
        return solved.reshape(values.shape)

    def roots(self, trips: Trips) -> Iterator[tuple[slice, NoiseRoot]]:
        """The rewards of each trip, and the root of their block of R."""
        from scipy.linalg import cholesky_banded

        band = self.band(trips)
        shared = self.shared(trips)
        numbers = np.arange(trips.number + 1)
        ends = np.searchsorted(trips.trip, numbers)
        for begin, end in pairwise(ends.tolist()):
            rows = slice(begin, end)
            # T = (own noise, positive) + Σ v (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ is positive definite.
            block = band[:, rows]
            lower = cholesky_banded(block, lower=True)
            yield rows, NoiseRoot.build(lower, shared[rows])

    def band(self, trips: Trips) -> Floats:
        """T as its diagonal and, below, its subdiagonal, (2, M)."""
        borders = trips.borders
        variance = self.border_variance(trips)
        diagonal = self.own_variance(trips)
        subdiagonal = np.zeros_like(diagonal)
        for side in borders.sides:
            observed = side.rewards >= 0
            rewards = side.rewards[observed]
            np.add.at(diagonal, rewards, variance[observed])
        is_inner = borders.is_inner
        before = borders.before[is_inner]
        inner_variance = variance[is_inner]
        np.subtract.at(subdiagonal, before, inner_variance)
        return np.stack([diagonal, subdiagonal])

    # --- draws -------------------------------------------------------------------------------

    def draw(self, trips: Trips, rng: Rng) -> Floats:
        """A draw of the noise of all rewards, (M,)."""
        own_std = np.sqrt(self.own_variance(trips))
        own_normals = rng.standard_normal(len(own_std))
        noise = own_std * own_normals

        shared = self.shared(trips)
        columns = shared.shape[1]
        normals = rng.standard_normal((trips.number, columns))
        normals_of_reward = normals[trips.trip]
        noise += (shared * normals_of_reward).sum(axis=1)

        if trips.borders:
            border_std = np.sqrt(self.border_variance(trips))
            border_normals = rng.standard_normal(len(border_std))
            noise += trips.crossing(border_std * border_normals)
        return noise


def _growth(trips: Trips) -> Floats:
    """2^age of each reward, (M,)."""
    if trips.age is None:
        return np.ones(len(trips.rewards))
    return np.exp2(np.minimum(trips.age, _OLDEST))


def _outer_by_row(left: Floats, right: Floats) -> Floats:
    """The outer product of each row of both, (M, a) and (M, b): (M, a, b)."""
    return left[:, :, None] * right[:, None, :]


class NoiseRoot(NamedTuple):
    """A root of the noise T + F Fᵀ of one trip.

    With T = L Lᵀ, G = L⁻¹F and G Gᵀ = U d Uᵀ it is L (I + U d Uᵀ) Lᵀ.
    """

    lower: Floats  # L as its diagonal and subdiagonal, (2, k)
    U: Floats  # (k, 6)
    # 1 − 1/√(1 + d): how much (I + U d Uᵀ)^(−½) shrinks along U, (6,)
    shrinkage: Floats

    @classmethod
    def build(cls, lower: Floats, shared: Floats) -> NoiseRoot:
        """The root of L Lᵀ + F Fᵀ.

        Args:
            lower: L as its diagonal and subdiagonal, (2, k).
            shared: F, (k, 6).
        """
        from scipy.linalg import solve_banded

        G = solve_banded(_LOWER, lower, shared)
        U, singular, _ = np.linalg.svd(G, full_matrices=False)
        d = np.square(singular)
        root = np.sqrt(1.0 + d)
        shrinkage = 1.0 - 1.0 / root
        return cls(lower, U, shrinkage)

    def whiten(self, values: Floats, *, transposed: bool = False) -> Floats:
        """S⁻¹ values with S Sᵀ = T + F Fᵀ, or S⁻ᵀ values, (k, m)."""
        from scipy.linalg import solve_banded

        if not transposed:
            solved = solve_banded(_LOWER, self.lower, values)
            return self._shrink(np.asarray(solved))
        diagonal, subdiagonal = self.lower
        superdiagonal = np.append(0.0, subdiagonal[:-1])
        upper = np.array([superdiagonal, diagonal])
        shrunk = self._shrink(values)
        solved = solve_banded(_UPPER, upper, shrunk)
        return np.asarray(solved)

    def _shrink(self, values: Floats) -> Floats:
        """(I + U d Uᵀ)^(−½) values: symmetric."""
        along_U = self.U.T @ values  # (6, m)
        lost = self.shrinkage[:, None] * along_U
        return values - self.U @ lost
