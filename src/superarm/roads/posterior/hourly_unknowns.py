"""The unknowns of the sparse form with hours, and what multiplies them in rewards.

=============  =======================================================================
``B``          functions of the hour, the first of them 1; see :mod:`.hours`
``f``, ``g``   what roads do to all vehicles and the part of it that is carried along the network, by
               function of the hour, (n, B); see :mod:`.mixed_equations`
``w``          terms of the fleet by function of the hour, (5, B)
``w_v``        terms of each vehicle beyond them, the same at all hours, (V, 5)
=============  =======================================================================
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS

_P = len(TERMS)


class HourlyUnknowns(NamedTuple):
    """Values of all unknowns, or what multiplies them."""

    f: Floats  # (n, B)
    g: Floats  # (n, B)
    fleet: Floats  # w, (5, B)
    vehicles: Floats  # w_v, (V, 5)

    @classmethod
    def zeros(cls, roads: int, functions: int, vehicles: int) -> Self:
        """All zero."""
        return cls(
            f=np.zeros((roads, functions)),
            g=np.zeros((roads, functions)),
            fleet=np.zeros((_P, functions)),
            vehicles=np.zeros((vehicles, _P)),
        )

    @classmethod
    def from_flat(cls, flat: Floats, roads: int, functions: int) -> Self:
        """The inverse of :meth:`flat`, as views.

        Args:
            flat: All in one vector.
            roads: n.
            functions: B.
        """
        of_roads = roads * functions
        terms = 2 * of_roads
        of_vehicles = terms + _P * functions
        return cls(
            f=flat[:of_roads].reshape(roads, functions),
            g=flat[of_roads:terms].reshape(roads, functions),
            fleet=flat[terms:of_vehicles].reshape(_P, functions),
            vehicles=flat[of_vehicles:].reshape(-1, _P),
        )

    def flat(self) -> Floats:
        """All in one vector, (2nB + 5B + 5V,)."""
        return np.concatenate([values.ravel() for values in self])


class HourlyArms(NamedTuple):
    """What multiplies the unknowns in the rewards of single arms."""

    edges: Ints  # (m,)
    weights: Floats  # the mass ratio times the functions of the hour: what multiplies f, (m, B)
    phi: Floats  # the functions of the hour, (m, B)
    terms: Floats  # what multiplies w_v, and at each function w, (m, 5)
    places: Ints  # of the vehicle; −1 where it was never driven, (m,)

    def sums(self, x: HourlyUnknowns) -> Floats:
        """Each arm's reward of unknowns, (m,); vehicles that were never driven have w_v = 0."""
        of_vehicles = np.vstack([x.vehicles, np.zeros(_P)])  # the last for place −1
        u = self.phi @ x.fleet.T + of_vehicles[self.places]
        of_roads = np.einsum("ij,ij->i", self.weights, x.f[self.edges])
        return np.asarray(of_roads + np.einsum("ij,ij->i", self.terms, u))

    def gather(self, values: Floats, roads: int, vehicles: int) -> HourlyUnknowns:
        """The transpose: what values of the arms, (m,), put on the unknowns."""
        gathered = HourlyUnknowns.zeros(roads, self.phi.shape[1], vehicles)
        weighted = self.terms * values[:, None]
        np.add.at(gathered.f, self.edges, self.weights * values[:, None])
        gathered.fleet[:] = weighted.T @ self.phi
        is_known = self.places >= 0
        np.add.at(gathered.vehicles, self.places[is_known], weighted[is_known])
        return gathered

    def one(self, arm: int) -> HourlyArms:
        """One of the arms."""
        return self.some(slice(arm, arm + 1))

    def some(self, rows: slice) -> HourlyArms:
        """Some of the arms.

        Args:
            rows: Which of them.
        """
        return HourlyArms(
            edges=self.edges[rows],
            weights=self.weights[rows],
            phi=self.phi[rows],
            terms=self.terms[rows],
            places=self.places[rows],
        )


class HourlySums(NamedTuple):
    """What some rewards are sums of."""

    edges: Ints  # distinct roads, (u,)
    # how much each reward counts each of them at each function, (u, M, B)
    counts: Floats
    fleet_terms: Floats  # terms of each reward at each function, (M, 5 B)
    places: Ints  # distinct vehicles that were driven before, (c,)
    vehicle_terms: Floats  # terms of each reward that each of them drove, (M, c, 5)

    def of_rows(self, rows: Floats, roads: int) -> Floats:
        """X times unknowns in rows, which may be from before the latest vehicles: (k, M).

        Args:
            rows: Unknowns, (k, ·).
            roads: n.
        """
        rewards, fleet_terms = self.fleet_terms.shape
        if not len(rows):
            return np.zeros((0, rewards))
        functions = self.counts.shape[2]
        of_roads = roads * functions
        f = rows[:, :of_roads].reshape(len(rows), roads, functions)[:, self.edges]
        after_roads = rows[:, 2 * of_roads :]
        total = np.einsum("kub,umb->km", f, self.counts, optimize=True)
        total += after_roads[:, :fleet_terms] @ self.fleet_terms.T
        of_vehicles = after_roads[:, fleet_terms:].reshape(len(rows), -1, _P)
        is_older = self.places < of_vehicles.shape[1]
        older = of_vehicles[:, self.places[is_older]]
        total += np.einsum("kvi,mvi->km", older, self.vehicle_terms[:, is_older])
        return np.asarray(total)
