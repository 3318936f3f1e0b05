"""Products with the information of all trips, trip by trip, in time linear in the log.

=============  =======================================================================
``N, M, t``    arms, rewards and trips of the log
``f``, ``u``   values of all roads, (n,), and terms of each vehicle, those of the fleet included, (V, 5)
``X``          what multiplies f and u in each reward: X (f, u) is (M,)
``R``          (M, M) noise T + F Fᵀ; see :mod:`.noise`
``q``          columns of F: five terms of a trip, and its motion
=============  =======================================================================

Xᵀ R⁻¹ X is multiplied with, and never built. R⁻¹ of a trip takes time linear in its rewards:

    R⁻¹ y = T⁻¹ (y − F c),   c = (I + Fᵀ T⁻¹ F)⁻¹ Fᵀ T⁻¹ y

T is tridiagonal: T = L D Lᵀ with a unit lower bidiagonal L, one number for each reward. Trips of one
vehicle with a reward for each road are faster: see :mod:`.plain_trips`.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints
from superarm.core.compiling import Backend, is_compiled
from superarm.core.growing_rows import GrowingRows
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import edges_of, terms_of

from .noise import TripNoise
from .plain_trips import PlainTripProducts, are_plain, plain_arrays, plain_diagonals
from .trips import Trips

_P = len(TERMS)
SHARED = _P + 1
"""q."""
_CHUNK = 1000  # trips whose noise is factorised together


class RoadsAndVehicles(NamedTuple):
    """Values of roads and of vehicles: unknowns, or what multiplies them."""

    roads: Floats  # (n,)
    vehicles: Floats  # (V, 5)


class ProductArrays(NamedTuple):
    """What a product reads of trips that are not plain."""

    edges: NDArray[np.int32]  # road of each arm, (N,)
    drivers: NDArray[np.int32]  # place of its vehicle among all, (N,)
    terms: Floats  # its terms, of which the last also multiplies f, (N, 5)
    arm_stops: NDArray[np.int64]  # where the arms of each reward end, (M,)
    reward_stops: NDArray[np.int64]  # where the rewards of each trip end, (t,)
    pivots: Floats  # diagonal of D, (M,)
    lower: Floats  # subdiagonal of L at each row; 0 at the first of a trip, (M,)
    share: Floats  # by what F is multiplied: 0 if a reward shares no noise with its trip, (M,)
    motion: Floats  # last column of F, (M,)
    inner: Floats  # (I + Fᵀ T⁻¹ F)⁻¹, (t, 6, 6)


def _no_rows() -> list[NDArray[Any]]:
    """The fields of no trips."""
    return [
        np.empty(0, np.int32),
        np.empty(0, np.int32),
        np.empty((0, _P)),
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0),
        np.empty(0),
        np.empty(0),
        np.empty(0),
        np.empty((0, SHARED, SHARED)),
    ]


class TripDiagonals(NamedTuple):
    """Diagonal blocks of Xᵀ R⁻¹ X of some trips, by which systems are preconditioned."""

    roads: Floats  # at least the diagonal over roads, (n,)
    vehicles: Floats  # of each vehicle, (V, 5, 5)


class TripProducts:
    """Products with Xᵀ R⁻¹ X; the log of trips can only grow.

    Args:
        roads: n.
        noise: The noise of trips.
        trip_scales: Standard deviations of a trip's terms, (5,).
        backend: "numba" for compiled loops, "numpy" for sparse matrices; both give the same to rounding.
    """

    def __init__(
        self,
        roads: int,
        noise: TripNoise,
        trip_scales: Floats,
        backend: Backend = "auto",
    ) -> None:
        self._roads = roads
        self._noise = noise
        self._trip_scales = np.array(trip_scales, dtype=np.float64)
        self._is_compiled = is_compiled(backend)
        self._plain_trips = PlainTripProducts(roads, is_compiled=self._is_compiled)
        # Of each field of ``ProductArrays``.
        self._rows = [GrowingRows(rows) for rows in _no_rows()]
        self._arms = 0
        self._rewards = 0
        self._trips = 0
        self._most_rewards = 0  # of one trip
        self._sparse: _SparseProduct | None = None

    def copy(self) -> TripProducts:
        """Products that can grow by themselves; both share the rows that they have in common."""
        other = copy(self)
        other._plain_trips = self._plain_trips.copy()
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> TripProducts:
        return self.copy()

    @property
    def arrays(self) -> ProductArrays:
        """What a product reads of all trips that are not plain."""
        return ProductArrays(*(grown.rows for grown in self._rows))

    def grow(self, roads: int) -> None:
        """Make room for more roads.

        Args:
            roads: n.
        """
        self._roads = roads
        self._plain_trips.grow(roads)
        self._sparse = None

    # --- trips ---------------------------------------------------------------------------------

    def append(self, trips: Trips, drivers: Ints, vehicles: int) -> TripDiagonals:
        """Add trips; returns the diagonal blocks of their information.

        Args:
            trips: The trips.
            drivers: The place of each arm's vehicle, (N,).
            vehicles: V, those of these trips included.
        """
        of_roads = np.zeros(self._roads)
        of_vehicles = np.zeros((vehicles, _P, _P))
        for first in range(0, trips.number, _CHUNK):
            stop = min(first + _CHUNK, trips.number)
            rewards = np.searchsorted(trips.trip, [first, stop])
            arms = slice(*np.searchsorted(trips.reward_of_arm, rewards))
            part = trips.between(first, stop)
            for diagonals in self._append(part, drivers[arms], vehicles):
                of_roads += diagonals.roads
                of_vehicles += diagonals.vehicles
        self._sparse = None
        return TripDiagonals(of_roads, of_vehicles)

    def _append(
        self, trips: Trips, drivers: Ints, vehicles: int
    ) -> Iterator[TripDiagonals]:
        is_plain = are_plain(trips, drivers)
        if is_plain.all():
            yield self._append_plain(trips, drivers, vehicles)
            return
        if is_plain.any():
            of_plain = is_plain[trips.trip[trips.reward_of_arm]]
            plain = trips.chosen(is_plain)
            yield self._append_plain(plain, drivers[of_plain], vehicles)
            trips = trips.chosen(~is_plain)
            drivers = drivers[~of_plain]
        self._append_other(trips, drivers)
        yield trip_diagonals(self._noise, trips, drivers, self._roads, vehicles)

    def _append_plain(
        self, trips: Trips, drivers: Ints, vehicles: int
    ) -> TripDiagonals:
        arrays = plain_arrays(self._noise, trips, drivers)
        diagonals = plain_diagonals(arrays, trips, self._noise, self._roads, vehicles)
        self._plain_trips.append(arrays, diagonals.unshared)
        return TripDiagonals(diagonals.roads, diagonals.vehicles)

    def _append_other(self, trips: Trips, drivers: Ints) -> None:
        noise = factorise_noise(self._noise, trips)
        rewards = np.arange(1, len(trips.rewards) + 1)
        numbers = np.arange(1, trips.number + 1)
        arm_stops = np.searchsorted(trips.reward_of_arm, rewards)
        reward_stops = np.searchsorted(trips.trip, numbers)
        new = ProductArrays(
            edges=edges_of(trips.keys).astype(np.int32),
            drivers=drivers.astype(np.int32),
            terms=terms_of(trips.keys),
            arm_stops=self._arms + arm_stops,
            reward_stops=self._rewards + reward_stops,
            pivots=noise.pivots,
            lower=noise.lower,
            share=self._noise.share_of_shared(trips),
            motion=noise.shared[:, _P],
            inner=noise.inner,
        )
        self._rows = [
            grown.extended(np.asarray(rows))
            for grown, rows in zip(self._rows, new, strict=True)
        ]
        counts = np.diff(reward_stops, prepend=0)
        self._arms += len(new.edges)
        self._rewards += len(new.pivots)
        self._trips += trips.number
        self._most_rewards = max(self._most_rewards, int(counts.max(initial=0)))

    # --- products ------------------------------------------------------------------------------

    def times(self, values: RoadsAndVehicles) -> RoadsAndVehicles:
        """Xᵀ R⁻¹ X times values."""
        roads = np.ascontiguousarray(values.roads)
        vehicles = np.ascontiguousarray(values.vehicles)
        product = RoadsAndVehicles(np.zeros(self._roads), np.zeros(vehicles.shape))
        self._plain_trips.add_times(roads, vehicles, *product)
        if not self._arms:
            return product
        if not self._is_compiled:
            if self._sparse is None:
                self._sparse = _SparseProduct(
                    self.arrays, self._roads, self._trip_scales
                )
            self._sparse.add_times(roads, vehicles, product)
            return product
        from ._compiled import add_information

        workspace = np.empty((self._most_rewards, 2 + SHARED))
        add_information(
            *self.arrays,
            self._trip_scales,
            roads,
            vehicles,
            product.roads,
            product.vehicles,
            workspace,
            np.empty(SHARED),
        )
        return product


class _SparseProduct:
    """The product by sparse matrices."""

    def __init__(self, arrays: ProductArrays, roads: int, trip_scales: Floats) -> None:
        from scipy.sparse import csr_array

        arms = len(arrays.edges)
        rewards = len(arrays.pivots)
        starts = np.concatenate([[0], arrays.arm_stops])
        reward_of_arm = np.repeat(np.arange(rewards), np.diff(starts))
        places = (reward_of_arm, np.arange(arms))
        self._sums: Any = csr_array((np.ones(arms), places), shape=(rewards, arms))
        self._arrays = arrays
        self._roads = roads
        terms = self._sums @ arrays.terms
        shared = terms * trip_scales * arrays.share[:, None]
        self._shared = np.column_stack([shared, arrays.motion])  # F
        starts = np.concatenate([[0], arrays.reward_stops])
        self._trip_starts = starts[:-1]
        self._trip_of_reward = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        self._subdiagonal = np.append(arrays.lower[1:], 0.0)  # of L

    def _solve_own(self, y: Floats) -> Floats:
        """T⁻¹ y."""
        from scipy.linalg import solve_banded

        if not self._arrays.lower.any():
            return y / self._arrays.pivots
        diagonal = np.ones_like(y)
        lower = np.stack([diagonal, self._subdiagonal])
        half = solve_banded((1, 0), lower, y)
        superdiagonal = np.append(0.0, self._subdiagonal[:-1])
        upper = np.stack([superdiagonal, diagonal])
        return np.asarray(solve_banded((0, 1), upper, half / self._arrays.pivots))

    def add_times(
        self, roads: Floats, vehicles: Floats, product: RoadsAndVehicles
    ) -> None:
        """Add Xᵀ R⁻¹ X times values."""
        arrays = self._arrays
        mass = arrays.terms[:, -1]
        of_vehicles = np.einsum("ij,ij->i", arrays.terms, vehicles[arrays.drivers])
        y = self._sums @ (mass * roads[arrays.edges] + of_vehicles)
        half = self._shared * self._solve_own(y)[:, None]
        projected = np.add.reduceat(half, self._trip_starts)  # Fᵀ T⁻¹ y, (t, 6)
        c = np.einsum("ijk,ik->ij", arrays.inner, projected)
        explained = np.einsum("ij,ij->i", self._shared, c[self._trip_of_reward])
        weighted = self._sums.T @ self._solve_own(y - explained)
        np.add.at(product.roads, arrays.edges, mass * weighted)
        np.add.at(product.vehicles, arrays.drivers, arrays.terms * weighted[:, None])


# --- the noise of some trips -----------------------------------------------------------------


class NoiseFactors(NamedTuple):
    """R of some trips as T = L D Lᵀ, F and (I + Fᵀ T⁻¹ F)⁻¹."""

    pivots: Floats  # diagonal of D, (M,)
    lower: Floats  # subdiagonal of L at each row, (M,)
    shared: Floats  # F, (M, 6)
    inner: Floats  # (t, 6, 6)


def factorise_noise(noise: TripNoise, trips: Trips) -> NoiseFactors:
    """The noise of trips as products need it."""
    from scipy.linalg import cho_solve_banded, cholesky_banded

    rewards = len(trips.rewards)
    shared = np.zeros((rewards, SHARED))
    of_trips = noise.shared(trips)
    shared[:, : of_trips.shape[1]] = of_trips
    if trips.borders:
        root = cholesky_banded(noise.band(trips), lower=True)
        diagonal, subdiagonal = root
        pivots = np.square(diagonal)
        lower = np.zeros(rewards)
        lower[1:] = subdiagonal[:-1] / diagonal[:-1]
        weighted = cho_solve_banded((root, True), shared)
    else:
        pivots = noise.own_variance(trips)
        lower = np.zeros(rewards)
        weighted = shared / pivots[:, None]
    products = shared[:, :, None] * weighted[:, None, :]
    numbers = np.arange(trips.number)
    starts = np.searchsorted(trips.trip, numbers)
    inner = np.add.reduceat(products, starts) + np.eye(SHARED)
    symmetric = 0.5 * (inner + inner.transpose(0, 2, 1))
    inverse = np.asarray(np.linalg.inv(symmetric), dtype=np.float64)
    return NoiseFactors(pivots, lower, shared, inverse)


def trip_diagonals(
    noise: TripNoise, trips: Trips, drivers: Ints, roads: int, vehicles: int
) -> TripDiagonals:
    """Diagonal blocks of the information of some trips.

    Args:
        noise: The noise of trips.
        trips: The trips.
        drivers: The place of each arm's vehicle, (N,).
        roads: n.
        vehicles: V.
    """
    from scipy.sparse import csr_array

    of_roads = np.zeros(roads)
    of_vehicles = np.zeros((vehicles, _P, _P))
    for first in range(0, trips.number, _CHUNK):
        part = trips.between(first, min(first + _CHUNK, trips.number))
        arms = len(part.keys)
        its_drivers = drivers[:arms]
        drivers = drivers[arms:]
        terms = terms_of(part.keys)
        # (R⁻¹)ᵢᵢ of each reward; an arm of a sum counts as if it were the whole reward.
        precision = _inverse_diagonal(noise, part)
        mass_squared = np.square(terms[:, -1])
        np.add.at(
            of_roads, edges_of(part.keys), mass_squared * precision[part.reward_of_arm]
        )
        # Vehicles of a trip are weighed one after another: as a rule it has one.
        rank = _ranks_in_trip(part, its_drivers)
        for number in range(int(rank.max(initial=-1)) + 1):
            chosen = np.flatnonzero(rank == number)
            phi = part.summed_of(terms[chosen], chosen)  # (M, 5)
            weighted = noise.solve(part, phi)[part.reward_of_arm[chosen]]
            blocks = terms[chosen][:, :, None] * weighted[:, None, :]
            ones = np.ones(len(chosen))
            places = (its_drivers[chosen], np.arange(len(chosen)))
            by_vehicle: Any = csr_array((ones, places), shape=(vehicles, len(chosen)))
            summed = by_vehicle @ blocks.reshape(len(chosen), -1)
            of_vehicles += summed.reshape(vehicles, _P, _P)
    symmetric = 0.5 * (of_vehicles + of_vehicles.transpose(0, 2, 1))
    return TripDiagonals(of_roads, symmetric)


def _inverse_diagonal(noise: TripNoise, trips: Trips) -> Floats:
    """The diagonal of R⁻¹, (M,)."""
    factors = factorise_noise(noise, trips)
    pivots = factors.pivots
    shared = factors.shared
    if trips.borders:
        # With pivots from either end, (T⁻¹)ᵢᵢ = 1 / (forwardᵢ + backwardᵢ − Tᵢᵢ).
        from scipy.linalg import cho_solve_banded, cholesky_banded

        band = noise.band(trips)
        reverse = np.stack([band[0, ::-1], np.append(band[1, -2::-1], 0.0)])
        backward = np.square(cholesky_banded(reverse, lower=True)[0])[::-1]
        own = 1.0 / (pivots + backward - band[0])
        root = cholesky_banded(band, lower=True)
        weighted = cho_solve_banded((root, True), shared)
    else:
        own = 1.0 / pivots
        weighted = shared / pivots[:, None]
    inner = factors.inner[trips.trip]
    explained = np.einsum("ij,ijk,ik->i", weighted, inner, weighted)
    return np.asarray(own - explained)


def _ranks_in_trip(trips: Trips, drivers: Ints) -> Ints:
    """How many vehicles of its trip come before the vehicle of each arm, (N,)."""
    trip_of_arm = trips.trip[trips.reward_of_arm].astype(np.int64)
    vehicles = int(drivers.max(initial=0)) + 1
    codes = trip_of_arm * vehicles + drivers  # of pairs of trip and vehicle
    pairs, pair_of_arm = np.unique(codes, return_inverse=True)
    trip_of_pair = pairs // vehicles
    first_pairs = np.searchsorted(trip_of_pair, trip_of_pair)
    rank_of_pair = np.arange(len(pairs)) - first_pairs
    ranks: Ints = rank_of_pair[pair_of_arm]
    return ranks
