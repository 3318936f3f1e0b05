"""Products with the information of all trips where roads have a profile over the day.

=============  =======================================================================
``N``, ``B``   arms of the log, functions of the hour
``φ``          their values at the hour of each arm, (N, B)
``m``, ``Φ``   the mass ratio of each arm, (N,), and its terms, (N, 5)
``w``          terms of the fleet by function, (5, B)
=============  =======================================================================

To a trip, what an arm costs is one number more or less, whichever road and hour it comes from:

    v = φ·f(road) + (Φ/m)·w φ

in place of f in :mod:`.trip_products`. So arms are numbered as if each was a road of its own, and the
products of trips are those without hours.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints
from superarm.core.compiling import Backend
from superarm.core.growing_rows import GrowingRows
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import Column, edges_of, terms_of

from .noise import TripNoise
from .trip_products import RoadsAndVehicles, TripProducts
from .trips import Trips

_P = len(TERMS)


class HourlyValues(NamedTuple):
    """Values of roads, of the fleet and of vehicles: unknowns, or what multiplies them."""

    roads: Floats  # (n, B)
    fleet: Floats  # (5, B)
    vehicles: Floats  # (V, 5)


class HourlyDiagonals(NamedTuple):
    """Diagonal blocks of the information of some trips."""

    arms: Floats  # at least the diagonal over v, (N,)
    vehicles: Floats  # of each vehicle, (V, 5, 5)


class HourlyProducts:
    """Products with Xᵀ R⁻¹ X; the log of trips can only grow.

    Args:
        roads: n.
        functions: B.
        noise: The noise of trips.
        backend: How products with trips are computed.
    """

    def __init__(
        self, roads: int, functions: int, noise: TripNoise, backend: Backend = "auto"
    ) -> None:
        self._roads = roads
        self._functions = functions
        self._trips = TripProducts(0, noise, noise.trip_scales, backend)
        self._phi: GrowingRows[Any] = GrowingRows(np.empty((0, functions)))
        # Where each arm finds its f among the values of all roads, (N, B).
        self._places: GrowingRows[Any] = GrowingRows(
            np.empty((0, functions), dtype=np.int32)
        )
        self._ratios: GrowingRows[Any] = GrowingRows(np.empty((0, _P)))  # Φ/m

    def copy(self) -> HourlyProducts:
        """Products that can grow by themselves; both share the rows that they have in common."""
        other = copy(self)
        other._trips = self._trips.copy()
        return other

    def append(
        self, trips: Trips, phi: Floats, drivers: Ints, vehicles: int
    ) -> HourlyDiagonals:
        """Add trips; returns the diagonal blocks of their information.

        Args:
            trips: The trips.
            phi: φ of their arms, (N, B).
            drivers: The place of each arm's vehicle, (N,).
            vehicles: V, those of these trips included.
        """
        keys = trips.keys
        before = len(self._phi)
        total = before + len(keys)
        numbered = keys.copy()
        numbered[:, Column.EDGE] = np.arange(before, total)
        self._trips.grow(total)
        diagonals = self._trips.append(trips._replace(keys=numbered), drivers, vehicles)
        first_places = edges_of(keys)[:, None] * self._functions
        places = first_places + np.arange(self._functions)
        self._phi = self._phi.extended(phi)
        self._places = self._places.extended(places.astype(np.int32))
        ratios = terms_of(keys) / keys[:, [Column.MASS_RATIO]]
        self._ratios = self._ratios.extended(ratios)
        return HourlyDiagonals(diagonals.roads[before:], diagonals.vehicles)

    def times(self, values: HourlyValues) -> HourlyValues:
        """Xᵀ R⁻¹ X times values."""
        phi: Floats = self._phi.rows
        ratios: Floats = self._ratios.rows
        from_roads = self._from_roads
        of_fleet = np.einsum("ij,ij->i", ratios @ values.fleet, phi)
        of_arms = from_roads @ values.roads.ravel() + of_fleet
        product = self._trips.times(RoadsAndVehicles(of_arms, values.vehicles))
        roads = from_roads.T @ product.roads
        return HourlyValues(
            roads=roads.reshape(values.roads.shape),
            fleet=ratios.T @ (phi * product.roads[:, None]),
            vehicles=product.vehicles,
        )

    @property
    def _from_roads(self) -> Any:
        """φ as a sparse matrix of arms by functions of roads, (N, nB)."""
        from scipy.sparse import csr_array

        phi: NDArray[Any] = self._phi.rows
        arms = len(phi)
        starts = np.arange(0, phi.size + 1, self._functions, dtype=np.int32)
        places: NDArray[Any] = self._places.rows
        return csr_array(
            (phi.ravel(), places.ravel(), starts),
            shape=(arms, self._roads * self._functions),
        )
