"""What trips contain about roads at each function of the hour, and about terms.

=============  =======================================================================
``B``          functions of the hour, the first of them 1; see :mod:`.hours`
``φ``          their values at the hour of each arm, (N, B)
``Φ``, ``R``   terms of each reward at each function, (M, 5B), and the noise of rewards
=============  =======================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import terms_of

from .hourly_sums import terms_by_hour
from .hours import DayBasis
from .noise import TripNoise
from .trips import Trips

_P = len(TERMS)
_ARMS_AT_ONCE = 10_000
_TRIPS_AT_ONCE = 200


class RoadBlocks(NamedTuple):
    """The information of some arms about the functions of their roads."""

    roads: Ints  # each once, sorted, (u,)
    blocks: Floats  # Σ λ φ φᵀ, (u, B, B)


def road_blocks(edges: Ints, phi: Floats, precision: Floats) -> RoadBlocks:
    """The information of arms about their roads, each arm by itself.

    Args:
        edges: Roads of the arms, (N,).
        phi: φ, (N, B).
        precision: λ: what each arm contains about its own sum of functions, (N,).
    """
    from scipy.sparse import csr_array

    roads, place = np.unique(edges, return_inverse=True)
    functions = phi.shape[1]
    total = np.zeros((len(roads), functions * functions))
    for first in range(0, len(edges), _ARMS_AT_ONCE):
        rows = slice(first, first + _ARMS_AT_ONCE)
        weighted = precision[rows, None] * phi[rows]
        blocks = weighted[:, :, None] * phi[rows, None, :]
        count = len(blocks)
        places = (place[rows], np.arange(count))
        by_road: Any = csr_array((np.ones(count), places), shape=(len(roads), count))
        total += by_road @ blocks.reshape(count, -1)
    return RoadBlocks(roads, total.reshape(-1, functions, functions))


class TermsInformation(NamedTuple):
    """What trips contain about the terms of vehicles and of the fleet."""

    vehicles: Floats  # about w_v, (V, 5, 5)
    cross: Floats  # about w_v and w, (V, 5, 5B)
    fleet: Floats  # about w, Φᵀ R⁻¹ Φ, (5B, 5B)

    @classmethod
    def none(cls, functions: int) -> Self:
        """That of no trips."""
        terms = _P * functions
        return cls(
            vehicles=np.zeros((0, _P, _P)),
            cross=np.zeros((0, _P, terms)),
            fleet=np.zeros((terms, terms)),
        )

    def plus(self, other: TermsInformation) -> TermsInformation:
        """The sum of both; the other one may have more vehicles."""
        added = len(other.vehicles) - len(self.vehicles)
        padding = ((0, added), (0, 0), (0, 0))
        return TermsInformation(
            vehicles=np.pad(self.vehicles, padding) + other.vehicles,
            cross=np.pad(self.cross, padding) + other.cross,
            fleet=self.fleet + other.fleet,
        )

    def times(self, fleet: Floats, vehicles: Floats) -> tuple[Floats, Floats]:
        """The information times w, (5, B), and w_v, (V, 5)."""
        flat = fleet.ravel()
        of_fleet = self.fleet @ flat + np.einsum("vij,vi->j", self.cross, vehicles)
        of_vehicles = self.cross @ flat
        of_vehicles += np.einsum("vij,vj->vi", self.vehicles, vehicles)
        return of_fleet.reshape(fleet.shape), of_vehicles


def terms_information(
    noise: TripNoise, basis: DayBasis, trips: Trips, drivers: Ints, of_vehicles: Floats
) -> TermsInformation:
    """What some trips contain about terms.

    Args:
        noise: The noise of trips.
        basis: Functions of the hour.
        trips: The trips.
        drivers: The place of each arm's vehicle, (N,).
        of_vehicles: What they contain about w_v, (V, 5, 5).
    """
    from scipy.sparse import csr_array

    vehicles = len(of_vehicles)
    total = TermsInformation.none(len(basis))
    fleet = total.fleet
    cross = np.zeros((vehicles * _P, len(fleet)))
    for first in range(0, trips.number, _TRIPS_AT_ONCE):
        part = trips.between(first, min(first + _TRIPS_AT_ONCE, trips.number))
        rewards = len(part.rewards)
        arms = len(part.keys)
        terms = terms_by_hour(part, basis).reshape(rewards, -1)  # Φ
        weighted = noise.solve(part, terms)
        fleet += terms.T @ weighted
        columns = _P * drivers[:arms, None] + np.arange(_P)
        places = (np.repeat(part.reward_of_arm, _P), columns.ravel())
        values = terms_of(part.keys).ravel()
        by_vehicle: Any = csr_array((values, places), shape=(rewards, len(cross)))
        cross += by_vehicle.T @ weighted
        drivers = drivers[arms:]
    return TermsInformation(of_vehicles, cross.reshape(vehicles, _P, -1), fleet)
