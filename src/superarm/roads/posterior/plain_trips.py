"""Products with the information of plain trips: one vehicle, and a reward for each road.

Most logs hold little else. Noise is W⁻¹ + Φ S² Φᵀ, so R⁻¹ has a closed form in five numbers of the trip:

=============  =======================================================================
``f``, ``u``   values of roads, (n,), and terms of the trip's vehicle, those of the fleet included, (5,)
``m``, ``Φ``   the mass ratio of each arm, (N,), and its terms, (N, 5)
``W``, ``S``   precision of each arm's own noise; standard deviations of each trip's terms, (t, 5)
``Ψ``          m W Φ, (N, 5); ``A`` = Φᵀ W Φ, (5, 5); ``G`` = S (I + S A S)⁻¹ S, (5, 5)
=============  =======================================================================

With p = Ψᵀ f and v = u − G (p + A u), the information times (f, u) is

    m² W f + Ψ v   over roads,   p + A v   over the vehicle's terms.

m² W is summed over all trips once; what is left to read of an arm is its road and five numbers.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.growing_rows import GrowingRows
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import Column, edges_of, terms_of

from .noise import TripNoise
from .trips import Trips

_P = len(TERMS)


class PlainArrays(NamedTuple):
    """What a product reads of plain trips."""

    edges: NDArray[np.int32]  # road of each arm, (N,)
    psi: Floats  # Ψ, (N, 5)
    stops: NDArray[np.int64]  # where the arms of each trip end, (t,)
    drivers: NDArray[np.int32]  # place of the vehicle of each trip, (t,)
    information: Floats  # A, (t, 5, 5)
    shrinkage: Floats  # G, (t, 5, 5)

    @classmethod
    def none(cls) -> PlainArrays:
        """No trips."""
        return cls(
            edges=np.empty(0, np.int32),
            psi=np.empty((0, _P)),
            stops=np.empty(0, np.int64),
            drivers=np.empty(0, np.int32),
            information=np.empty((0, _P, _P)),
            shrinkage=np.empty((0, _P, _P)),
        )


class PlainDiagonals(NamedTuple):
    """Diagonal blocks of the information of some plain trips."""

    unshared: Floats  # Σ m² W, (n,): what it would be without noise that trips share
    roads: Floats  # the diagonal over roads, (n,)
    vehicles: Floats  # A − A G A, (V, 5, 5)


def are_plain(trips: Trips, drivers: Ints) -> Bools:
    """Which trips are plain, (t,).

    Args:
        trips: The trips.
        drivers: The place of each arm's vehicle, (N,).
    """
    count = trips.number
    is_plain = np.ones(count, dtype=np.bool_)
    trip_of_arm = trips.trip[trips.reward_of_arm]
    same_reward = np.diff(trips.reward_of_arm) == 0
    same_trip = np.diff(trip_of_arm) == 0
    other_driver = same_trip & (np.diff(drivers) != 0)
    is_plain[trip_of_arm[1:][same_reward | other_driver]] = False
    is_plain[trips.trip[trips.unshared]] = False
    is_plain[trips.trip[trips.borders.last]] = False
    return is_plain


def plain_arrays(noise: TripNoise, trips: Trips, drivers: Ints) -> PlainArrays:
    """What a product reads of these trips, all of them plain.

    Args:
        noise: The noise of trips.
        trips: The trips.
        drivers: The place of each arm's vehicle, (N,).
    """
    terms = terms_of(trips.keys)
    precision = 1.0 / noise.own_variance(trips)
    psi = terms * (trips.keys[:, Column.MASS_RATIO] * precision)[:, None]
    stops = np.searchsorted(trips.trip, np.arange(1, trips.number + 1))
    starts = np.concatenate([[0], stops[:-1]])
    weighted = terms * precision[:, None]
    information = np.empty((trips.number, _P, _P))
    for k in range(_P):
        information[:, k] = np.add.reduceat(terms[:, k, None] * weighted, starts)
    share = noise.share_of_shared(trips)[starts]
    S = share[:, None] * noise.trip_scales
    rows = S[:, :, None]
    columns = S[:, None, :]
    scaled = rows * information * columns + np.eye(_P)
    inverse = np.linalg.inv(0.5 * (scaled + scaled.transpose(0, 2, 1)))
    return PlainArrays(
        edges=edges_of(trips.keys).astype(np.int32),
        psi=psi,
        stops=stops,
        drivers=drivers[starts].astype(np.int32),
        information=information,
        shrinkage=rows * inverse * columns,
    )


def plain_diagonals(
    arrays: PlainArrays, trips: Trips, noise: TripNoise, roads: int, vehicles: int
) -> PlainDiagonals:
    """Diagonal blocks of the information of these trips.

    Args:
        arrays: What :func:`plain_arrays` returns for the trips.
        trips: The trips.
        noise: The noise of trips.
        roads: n.
        vehicles: V.
    """
    squared_masses = np.square(trips.keys[:, Column.MASS_RATIO])
    unshared = squared_masses / noise.own_variance(trips)
    G_of_arm = arrays.shrinkage[trips.trip]
    explained = np.einsum("ij,ijk,ik->i", arrays.psi, G_of_arm, arrays.psi)
    A = arrays.information
    of_trips = A - A @ arrays.shrinkage @ A
    of_vehicles = np.zeros((vehicles, _P, _P))
    np.add.at(of_vehicles, arrays.drivers, of_trips)
    return PlainDiagonals(
        unshared=_summed_by_road(arrays.edges, unshared, roads),
        roads=_summed_by_road(arrays.edges, unshared - explained, roads),
        vehicles=0.5 * (of_vehicles + of_vehicles.transpose(0, 2, 1)),
    )


def _summed_by_road(edges: Any, values: Floats, roads: int) -> Floats:
    return np.bincount(edges, values, roads).astype(np.float64, copy=False)


class PlainTripProducts:
    """Products with the information of plain trips; the log of trips can only grow.

    Args:
        roads: n.
        is_compiled: Whether loops are compiled; otherwise they are sparse matrices.
    """

    def __init__(self, roads: int, *, is_compiled: bool) -> None:
        self._roads = roads
        self._is_compiled = is_compiled
        # Of each field of ``PlainArrays``.
        self._rows: list[GrowingRows[Any]] = [
            GrowingRows(rows) for rows in PlainArrays.none()
        ]
        self._unshared = np.zeros(roads)  # Σ m² W
        self._psi: Any = None  # Ψ as a sparse matrix, (5 t, n)

    def copy(self) -> PlainTripProducts:
        """Products that can grow by themselves; both share the rows that they have in common."""
        return copy(self)

    def grow(self, roads: int) -> None:
        """Make room for more roads.

        Args:
            roads: n.
        """
        added = roads - self._roads
        self._unshared = np.pad(self._unshared, (0, added))
        self._roads = roads
        self._psi = None

    @property
    def arrays(self) -> PlainArrays:
        """What a product reads."""
        return PlainArrays(*(grown.rows for grown in self._rows))

    def append(self, arrays: PlainArrays, unshared: Floats) -> None:
        """Add trips.

        Args:
            arrays: What a product reads of them.
            unshared: Their Σ m² W, (n,).
        """
        arms_before = len(self._rows[0])
        new = arrays._replace(stops=arrays.stops + arms_before)
        self._rows = [
            grown.extended(np.asarray(rows))
            for grown, rows in zip(self._rows, new, strict=True)
        ]
        self._unshared = self._unshared + unshared
        self._psi = None

    def add_times(
        self, f: Floats, terms: Floats, out_f: Floats, out_terms: Floats
    ) -> None:
        """Add the information times values to two arrays.

        Args:
            f: Values of roads, (n,).
            terms: Terms of each vehicle, those of the fleet included, (V, 5).
            out_f: Receives those of roads, (n,).
            out_terms: Receives those of vehicles, (V, 5).
        """
        out_f += self._unshared * f
        if not len(self._rows[0]):
            return
        if self._is_compiled:
            from ._compiled import add_plain_information

            add_plain_information(*self.arrays, f, terms, out_f, out_terms)
        else:
            self._add_plainly(f, terms, out_f, out_terms)

    def _add_plainly(
        self, f: Floats, terms: Floats, out_f: Floats, out_terms: Floats
    ) -> None:
        """The same by a sparse matrix."""
        arrays = self.arrays
        if self._psi is None:
            self._psi = self._sparse_psi(arrays)
        p = (self._psi @ f).reshape(-1, _P)
        u = terms[arrays.drivers]
        A = arrays.information
        all_terms = p + np.einsum("tij,tj->ti", A, u)
        v = u - np.einsum("tij,tj->ti", arrays.shrinkage, all_terms)
        out_f += self._psi.T @ v.ravel()
        of_trips = p + np.einsum("tij,tj->ti", A, v)
        np.add.at(out_terms, arrays.drivers, of_trips)

    def _sparse_psi(self, arrays: PlainArrays) -> Any:
        from scipy.sparse import csr_array

        trips = len(arrays.stops)
        counts = np.diff(arrays.stops, prepend=0)
        trip_of_arm = np.repeat(np.arange(trips), counts)
        rows = _P * trip_of_arm[:, None] + np.arange(_P)
        columns = np.repeat(arrays.edges, _P)
        shape = (_P * trips, self._roads)
        return csr_array((arrays.psi.ravel(), (rows.ravel(), columns)), shape=shape)
