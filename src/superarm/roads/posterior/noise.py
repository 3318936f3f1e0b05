"""The noise of trips: R = T + F Fᵀ, trip by trip.

=============  =======================================================================
``R``          (M, M) noise of all rewards; 0 between rewards of different trips
``T``          (M, M): own noise of each reward, and what borders take from one and give to the next;
               tridiagonal, and diagonal where no reward holds what is stored in motion
``F``          (M, 5), or (M, 6) with motion: what the rewards of a trip share
=============  =======================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Rng
from superarm.roads.energy.scales import TERMS, RoadScales
from superarm.roads.rows import noise_parts, terms_of

from .log import Trips

_P = len(TERMS)


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

    # --- parts of R --------------------------------------------------------------------------

    def own_variance(self, trips: Trips) -> Floats:
        """The variance that each reward has by itself, (M,)."""
        squared_scales = np.square(self._scales.of_noise)
        expected = trips.summed(noise_parts(trips.keys) @ squared_scales)
        return np.where(trips.noise == 0.0, expected, trips.noise)

    def border_variance(self, trips: Trips) -> Floats:
        """The variance of what is stored in motion at each border, Wh², (Q,)."""
        borders = trips.borders
        return np.square(self._scales.motion * borders.size) + borders.variance

    def _shared(self, trips: Trips) -> Floats:
        """F."""
        shared = trips.summed(terms_of(trips.keys)) * self._scales.trip
        if trips.borders:
            motion = self._scales.motion_trip * trips.crossing(trips.borders.size)
            shared = np.column_stack([shared, motion])
        return np.where(trips.alone[:, None], 0.0, shared)

    def covariance(self, trips: Trips) -> Floats:
        """R, (M, M)."""
        shared = self._shared(trips)
        same_trip = trips.trip[:, None] == trips.trip
        within_trips = np.where(same_trip, shared @ shared.T, 0.0)
        noise = np.diag(self.own_variance(trips)) + within_trips
        if trips.borders:
            noise += trips.across(self.border_variance(trips))
        return noise

    # --- R⁻¹ ---------------------------------------------------------------------------------

    def woodbury(self, trips: Trips) -> Woodbury:
        """The parts of R⁻¹ of trips without borders."""
        weight = 1.0 / self.own_variance(trips)
        shared = self._shared(trips)
        weighted = weight[:, None] * shared
        inner = np.zeros((trips.number, _P, _P))
        np.add.at(inner, trips.trip, shared[:, :, None] * weighted[:, None, :])
        return Woodbury(weight, shared, inner + np.eye(_P))

    def solve(self, trips: Trips, values: Floats) -> Floats:
        """R⁻¹ times values, (M,) or (M, k), trip by trip."""
        if trips.borders:
            return self._solve_with_borders(trips, values)
        weight, shared, inner = self.woodbury(trips)
        weights = weight[:, None]
        weighted = weights * values.reshape(len(weight), -1)  # W values, (M, k)
        # Fᵀ W values, trip by trip, (·, 5, k).
        projected = np.zeros((trips.number, _P, weighted.shape[1]))
        products = shared[:, :, None] * weighted[:, None, :]
        np.add.at(projected, trips.trip, products)
        solved = np.linalg.solve(inner, projected)
        solved_of_reward = solved[trips.trip]  # (M, 5, k)
        weighted -= weights * np.einsum("ij,ijk->ik", shared, solved_of_reward)
        return weighted.reshape(values.shape)

    def _solve_with_borders(self, trips: Trips, values: Floats) -> Floats:
        columns = values.reshape(len(trips.rewards), -1).copy()
        for rows, root in self.roots(trips):
            white = root.whiten(columns[rows])
            columns[rows] = root.whiten(white, transposed=True)
        return columns.reshape(values.shape)

    def roots(self, trips: Trips) -> Iterator[tuple[slice, NoiseRoot]]:
        """The rewards of each trip, and the root of their block of R."""
        from scipy.linalg import cholesky_banded

        band = self._band(trips)
        shared = self._shared(trips)
        ends = np.searchsorted(trips.trip, np.arange(trips.number + 1))
        for begin, end in pairwise(ends.tolist()):
            rows = slice(begin, end)
            # T = (own noise, positive) + Σ v (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ is positive definite.
            lower = cholesky_banded(band[:, rows], lower=True)
            yield rows, NoiseRoot.of(lower, shared[rows])

    def _band(self, trips: Trips) -> Floats:
        """T as its diagonal and, below, its subdiagonal, (2, M)."""
        borders = trips.borders
        variance = self.border_variance(trips)
        diagonal = self.own_variance(trips)
        subdiagonal = np.zeros(len(trips.rewards))
        for side in (borders.before, borders.after):
            observed = side >= 0
            np.add.at(diagonal, side[observed], variance[observed])
        inner = borders.is_inner
        np.subtract.at(subdiagonal, borders.before[inner], variance[inner])
        return np.stack([diagonal, subdiagonal])

    # --- draws -------------------------------------------------------------------------------

    def draw(self, trips: Trips, rng: Rng) -> Floats:
        """A draw of the noise of all rewards, (M,)."""
        own_std = np.sqrt(self.own_variance(trips))
        noise = own_std * rng.standard_normal(len(trips.rewards))
        shared = self._shared(trips)
        normals = rng.standard_normal((trips.number, shared.shape[1]))
        noise += (shared * normals[trips.trip]).sum(axis=1)
        if trips.borders:
            border_std = np.sqrt(self.border_variance(trips))
            noise += trips.crossing(border_std * rng.standard_normal(len(border_std)))
        return noise


class NoiseRoot(NamedTuple):
    """A root of the noise T + F Fᵀ of one trip.

    With T = L Lᵀ, G = L⁻¹F and G Gᵀ = U d Uᵀ it is L (I + U d Uᵀ) Lᵀ.
    """

    lower: Floats  # L as its diagonal and subdiagonal, (2, k)
    U: Floats  # (k, 6)
    shrinkage: (
        Floats  # 1 − 1/√(1 + d): how much (I + U d Uᵀ)^(−½) shrinks along U, (6,)
    )

    @classmethod
    def of(cls, lower: Floats, shared: Floats) -> NoiseRoot:
        """The root of L Lᵀ + F Fᵀ.

        Args:
            lower: L as its diagonal and subdiagonal, (2, k).
            shared: F, (k, 6).
        """
        from scipy.linalg import solve_banded

        G = solve_banded((1, 0), lower, shared)
        U, singular, _ = np.linalg.svd(G, full_matrices=False)
        return cls(lower, U, 1.0 - 1.0 / np.sqrt(1.0 + np.square(singular)))

    def whiten(self, values: Floats, *, transposed: bool = False) -> Floats:
        """S⁻¹ values with S Sᵀ = T + F Fᵀ, or S⁻ᵀ values, (k, m)."""
        from scipy.linalg import solve_banded

        if not transposed:
            solved = solve_banded((1, 0), self.lower, values)
            return self._shrink(np.asarray(solved))
        diagonal, subdiagonal = self.lower
        superdiagonal = np.append(0.0, subdiagonal[:-1])
        upper = np.array([superdiagonal, diagonal])
        return np.asarray(solve_banded((0, 1), upper, self._shrink(values)))

    def _shrink(self, values: Floats) -> Floats:
        """(I + U d Uᵀ)^(−½) values: symmetric."""
        return values - self.U @ (self.shrinkage[:, None] * (self.U.T @ values))
