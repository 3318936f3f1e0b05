"""The arithmetic of :class:`RoadGP`: exact, and without any matrix over all roads.

=============  =======================================================================
``x``          what is unknown: w of the fleet, then f of every road; w of vehicles is eliminated, see
               :mod:`.vehicles`
``each``       by how much f of a road counts for a vehicle: column 6 of a key
``S``          the slots: those entries of x that some reward depended on, s of them
``K``          prior covariance of x: near²·k_G + D over roads, a diagonal over w
``D``          own² + (share · size)² of each road, its size in Wh: a diagonal
``A``          (s, M): column j says which sum of slots reward j is, given what its vehicle has driven
``R``          (M, M) noise: T, and what rewards of a trip share
``T``          (M, M): own noise of each reward, and what borders take from one and give to the next;
               tridiagonal, and a diagonal where no reward holds what is stored in motion
``H``          (s, s), with which the posterior covariance of x is K − K_·S H K_S·
``alpha``      (s,), with which the posterior mean of x is K_·S alpha
=============  =======================================================================

New rewards y with B = C⁻¹(A − H K A)ᵀ, C Cᵀ = Aᵀ K A − (K A)ᵀ H (K A) + R, z = C⁻¹(y − mean):
H gains BᵀB and alpha Bᵀz. So a sum of a hundred roads is one row, whatever it is a sum of, and
nothing grows with the number of trips but their log. K_·S times a vector is two sparse solves, so that
the means of all roads, or a joint draw of them, cost as much as one column of K.

A joint draw is x = u − K_·S (H u_S + r − H K r), u a draw of the prior and r one of N(0, A R⁻¹ Aᵀ).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints, Rng, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_positions, as_vector
from superarm.core.linalg import cholesky, psd_root, solve_lower
from superarm.core.threads import blas_threads_for
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import TERMS, RoadScales

from .log import Log, Trips
from .vehicles import VehicleGroups, grouped

EDGE, EXPECTED, TIME, EACH, STOPS, VEHICLE = 0, 1, 3, 6, 7, 8
COLUMNS = 9
_TERMS = slice(2, 7)
_SIZES = [2, 4, 5]  # rolling, drag and climb: the Wh that a road moves
_P = len(TERMS)
_OFFSETS = np.arange(_P)  # of a vehicle's terms from the first


def terms_of(keys: Floats) -> Floats:
    """The terms of each arm, (N, 5)."""
    return keys[:, _TERMS]


def noise_parts(keys: Floats) -> Floats:
    """What each scale of the noise multiplies, squared: a road, its time, stops and size, (N, 4)."""
    each, sizes = np.square(keys[:, EACH]), np.abs(keys[:, _SIZES]).sum(axis=1)
    parts = [
        each,
        each * np.maximum(keys[:, TIME], 0.0),
        keys[:, STOPS],
        np.square(sizes),
    ]
    return np.column_stack(parts)


def edges_of(keys: Floats) -> Ints:
    return keys[:, EDGE].astype(np.intp)


class ExpectedRoads(NamedTuple):
    """What is expected of some rewards before they are seen."""

    mean: Floats  # (M,)
    cov: Floats  # of what they are without noise, (M, M)
    noise: Floats  # R
    known: Floats  # H K A and what is known of the vehicles, (s, M): what is learned is A less this

    def only(self, rewards: Bools, noise: Floats) -> ExpectedRoads:
        """Of some of the rewards, (M,), with another noise."""
        at = np.flatnonzero(rewards)
        return ExpectedRoads(
            self.mean[at], self.cov[np.ix_(at, at)], noise, self.known[:, at]
        )


class DrawOrder(NamedTuple):
    """Which of a draw's normals belong to the terms of the fleet and of each vehicle.

    There is one for each slot of an engine whose vehicles have slots, too, in the order in which they
    were first driven: 5 of the fleet, then with every update 5 of each new vehicle and one (unused, as
    roads are drawn by themselves) of each new road.
    """

    size: int = _P
    vehicles: Mapping[int, int] = {}  # the first place of each; never changed in place

    def __deepcopy__(self, memo: dict[int, Any]) -> DrawOrder:
        return self

    def after(self, vehicles: list[int], roads: int) -> DrawOrder:
        """The order once these vehicles and so many new roads are driven."""
        fresh = [vehicle for vehicle in vehicles if vehicle not in self.vehicles]
        places = {
            vehicle: self.size + _P * number for number, vehicle in enumerate(fresh)
        }
        vehicles_placed = {**self.vehicles, **places} if fresh else self.vehicles
        return DrawOrder(self.size + _P * len(fresh) + roads, vehicles_placed)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Places by vehicle, in the order of their numbers."""
        return {
            "places": np.array(
                [self.vehicles[each] for each in sorted(self.vehicles)], dtype=np.intp
            )
        }

    @classmethod
    def from_arrays(cls, state: State, driven: Ints, roads: int) -> DrawOrder:
        """What :meth:`arrays` gave, of these vehicles, (V,), or :class:`StateError`."""
        places = as_positions(state.array("places"), "places")
        size = _P + _P * len(driven) + roads
        ordered = np.sort(places)
        apart = (np.diff(ordered, prepend=0, append=size) >= _P).all()
        if len(places) != len(driven) or not apart:
            raise StateError(
                "this state is damaged: its vehicles' places in a draw overlap"
            )
        return cls(size, dict(zip(driven.tolist(), places.tolist(), strict=True)))

    @classmethod
    def of_slots(cls, state: State, size: int) -> DrawOrder:
        """That of a state whose vehicles had slots; :func:`_slots_without_vehicles` has checked it."""
        vehicles = state.array("vehicles").tolist()
        return cls(
            size, dict(zip(vehicles, state.array("first").tolist(), strict=True))
        )


class RoadEngine:
    """What was learned under one choice of scales."""

    def __init__(self, kernel: GraphMatern, sizes: Floats, scales: RoadScales) -> None:
        self.kernel, self.sizes, self.scales = kernel, sizes, scales
        self._own = scales.own**2 + np.square(scales.share * sizes)  # D
        self.log = Log(COLUMNS)
        self._slot = np.full(len(kernel), -1, dtype=np.intp)
        self.visited = np.empty(0, dtype=np.intp)  # roads, in the order of their slots
        self._order = DrawOrder()
        self._vehicles = VehicleGroups()
        self._fleet = np.square(
            scales.fleet
        )  # prior variances of the first slots, (5,)
        self._near = np.empty((0, 0))  # k_G between visited roads
        self._H, self._alpha = np.zeros((_P, _P)), np.zeros(_P)
        self.information = (
            0.0  # ½ ln det(I + K A R⁻¹ Aᵀ), nats: what all trips have told
        )
        self._means: Floats | None = None  # of f, until something is learned
        self._left: Floats | None = (
            None  # the variances of f, but for what is in ``_told``
        )
        self._told: list[
            Floats
        ] = []  # rows over visited roads whose squares are still to be taken off

    @property
    def size(self) -> int:
        return len(self._alpha)

    @property
    def _known(self) -> Floats:
        """H; what lies beyond it is room to grow."""
        return self._H[: self.size, : self.size]

    @property
    def has_variances(self) -> bool:
        """Whether those of all roads are kept up to date."""
        return self._left is not None

    # --- slots -----------------------------------------------------------------------------

    def _visit(self, keys: Floats) -> None:
        """Slots for roads that are new; nothing is learned of them yet."""
        edges, size = np.unique(edges_of(keys)), self.size
        fresh = edges[self._slot[edges] < 0]
        self._order = self._order.after(_numbers(keys[:, VEHICLE]), len(fresh))
        if not len(fresh):
            return
        grown = size + len(fresh)
        self._slot[fresh] = np.arange(size, grown)
        self._alpha = np.concatenate([self._alpha, np.zeros(len(fresh))])
        self._H = _grown(self._H, size, grown)
        v, total = len(self.visited), len(self.visited) + len(fresh)
        self.visited = np.concatenate([self.visited, fresh])
        self._near = _grown(self._near, v, total)
        numbers = self.visited[:, None].astype(np.float64)
        for place in range(
            v, total
        ):  # of two roads the later is solved for: solves differ in rounding
            row = self.kernel(numbers[[place]], numbers[: place + 1])[0]
            self._near[place, : place + 1] = self._near[: place + 1, place] = row
        self._told = [np.pad(rows, ((0, 0), (0, len(fresh)))) for rows in self._told]

    def _sums(self, trips: Trips) -> Any:
        """What rewards are sums of beside vehicles' terms, sparse (s, M); all roads have slots."""
        from scipy.sparse import csr_array

        terms = terms_of(trips.keys)
        fleet = np.broadcast_to(np.arange(_P), terms.shape)
        rows = [self._slot[edges_of(trips.keys)], fleet.ravel()]
        values = [trips.keys[:, EACH], terms.ravel()]
        columns = [trips.of, np.repeat(trips.of, _P)]
        shape = (self.size, len(trips.rewards))
        places = (np.concatenate(rows), np.concatenate(columns))
        return csr_array((np.concatenate(values), places), shape=shape)

    def _prior_times(self, values: Floats) -> Floats:
        """K over the slots times values, (s, k)."""
        v = len(self.visited)
        product = np.empty_like(values)
        product[:_P] = self._fleet[:, None] * values[:_P]
        of_roads = values[_P:]
        product[_P:] = self.scales.near**2 * (self._near[:v, :v] @ of_roads)
        product[_P:] += self._own[self.visited, None] * of_roads
        return product

    def _prior_of(self, trips: Trips) -> tuple[Floats, Floats]:
        """K A over the slots, (s, M), and Aᵀ K A, (M, M), of rewards that may be of new roads.

        Both without what vehicles do otherwise than the fleet.
        """
        scales = self.scales
        edges, counts = _counted(trips)
        to_visited, between = self._near_of(edges, counts)
        K_A = np.zeros((self.size, len(trips.rewards)))
        K_A[_P:] = scales.near**2 * to_visited
        slots = self._slot[edges]
        own = self._own[edges, None] * counts
        K_A[slots[slots >= 0]] += own[slots >= 0]
        of_all = trips.summed(terms_of(trips.keys))
        K_A[:_P] = self._fleet[:, None] * of_all.T
        corner = scales.near**2 * between + counts.T @ own
        corner += (of_all * self._fleet) @ of_all.T
        return K_A, corner

    def _of_vehicles(self, trips: Trips) -> tuple[Floats, Floats, Floats]:
        """What rewards owe to what is known of their vehicles.

        The sums of slots that are taken off each, (s, M); what is added, (M,); and the covariance of
        what is left unknown of the vehicles, (M, M).
        """
        prior = np.square(self.scales.vehicle)
        terms, who = terms_of(trips.keys), trips.keys[:, VEHICLE]
        count = len(trips.rewards)
        taken, added, left = (
            np.zeros((self.size, count)),
            np.zeros(count),
            np.zeros((count, count)),
        )
        vehicles = _numbers(who)
        for vehicle in vehicles:
            if self._vehicles.get(vehicle) is None:
                own = trips.summed(terms * (who == vehicle)[:, None])  # (M, 5)
                left += (own * prior) @ own.T
        for group in self._vehicles.of(vehicles):
            phi = np.zeros((count, len(group.pull)))  # (M, p)
            for vehicle in group.vehicles:
                phi[:, group.place(vehicle)] = trips.summed(
                    terms * (who == vehicle)[:, None]
                )
            spread = group.covariance(prior) @ phi.T  # S φ, (p, M)
            taken[group.slots] += group.cross @ spread
            added += group.pull @ spread
            left += phi @ spread
        return taken, added, left

    def _groups_of(self, trips: Trips) -> VehicleGroups:
        """What these trips say of their vehicles; all roads have slots."""
        from scipy.sparse import csr_array

        terms = terms_of(trips.keys)
        vehicles, who = np.unique(
            trips.keys[:, VEHICLE].astype(np.intp), return_inverse=True
        )
        count, V = len(trips.rewards), len(vehicles)

        def by_vehicle(rewards: Ints, whose: Ints, values: Floats) -> Any:
            """Rows (m, 5) as a sparse (M, 5 V) matrix."""
            columns = _P * whose[:, None] + np.arange(_P)
            places = (np.repeat(rewards, _P), columns.ravel())
            return csr_array((values.ravel(), places), shape=(count, _P * V))

        # R⁻¹ mixes the vehicles of a trip: multiply it with the first of each trip, then the second, …
        pairs, pair = np.unique(trips.trip[trips.of] * V + who, return_inverse=True)
        trip_of_pair = pairs // V
        rank = np.arange(len(pairs)) - np.searchsorted(trip_of_pair, trip_of_pair)
        weighted = csr_array((count, _P * V))
        for number in range(int(rank.max(initial=-1)) + 1):
            mine = rank[pair] == number
            values = self._weighted(
                trips, trips.summed(terms * mine[:, None])
            )  # (M, 5)
            whose = np.full(trips.number, -1, dtype=np.intp)
            whose[trip_of_pair[rank == number]] = pairs[rank == number] % V
            rewards = np.flatnonzero(whose[trips.trip] >= 0)
            weighted = weighted + by_vehicle(
                rewards, whose[trips.trip[rewards]], values[rewards]
            )
        phi = by_vehicle(trips.of, who, terms)
        residual = trips.rewards - trips.summed(trips.keys[:, EXPECTED])
        cross = self._sums(trips) @ weighted
        return grouped(
            vehicles, cross, phi.T @ weighted, np.asarray(weighted.T @ residual)
        )

    def _near_of(self, edges: Ints, counts: Floats) -> tuple[Floats, Floats]:
        """k_G of sums of roads with visited roads, (v, M), and with each other, (M, M)."""
        seen = self._slot[edges] >= 0
        if (
            np.count_nonzero(~seen) > counts.shape[1]
        ):  # fewer sums than new roads: spread each over all
            spread = np.zeros((len(self.kernel), counts.shape[1]))
            spread[edges] = counts
            spread = self.kernel.times(spread)
            return spread[self.visited], counts.T @ spread[edges]
        numbers, known = (
            edges[:, None].astype(np.float64),
            self.visited[:, None].astype(np.float64),
        )
        place = np.full(len(self.kernel), -1, dtype=np.intp)
        place[self.visited] = np.arange(len(self.visited))
        rows = np.empty((len(edges), len(known)))
        rows[seen] = self._near[place[edges[seen]], : len(known)]
        corner = np.empty((len(edges), len(edges)))
        corner[:, seen] = rows[:, place[edges[seen]]] if seen.any() else 0.0
        if not seen.all():
            rows[~seen] = self.kernel(numbers[~seen], known) if len(known) else 0.0
            corner[~seen] = self.kernel(numbers[~seen], numbers)
            corner[:, ~seen] = corner[~seen].T
        return rows.T @ counts, counts.T @ corner @ counts

    def near_between(self, trips: Trips) -> tuple[Floats, Floats, Floats]:
        """How much each reward counts each road, (u, M); k_G between these visited roads, (u, u); their
        sizes, (u,)."""
        edges, counts = _counted(trips)
        by_edge = np.argsort(self.visited)
        places = by_edge[np.searchsorted(self.visited, edges, sorter=by_edge)]
        return counts, self._near[np.ix_(places, places)], self.sizes[edges]

    # --- noise -----------------------------------------------------------------------------

    def own_noise(self, trips: Trips) -> Floats:
        """The variance that each reward has by itself, (M,)."""
        model = trips.summed(noise_parts(trips.keys) @ np.square(self.scales.of_noise))
        return np.where(trips.noise == 0.0, model, trips.noise)

    def _shared(self, trips: Trips) -> Floats:
        """F: rows by whose products rewards of one trip covary, (M, 5), or (M, 6) with motion."""
        shared = trips.summed(terms_of(trips.keys)) * self.scales.trip
        if trips.borders:
            motion = self.scales.motion_trip * trips.crossing(trips.borders.size)
            shared = np.column_stack([shared, motion])
        return np.where(trips.alone[:, None], 0.0, shared)

    def noise(self, trips: Trips) -> Floats:
        """R"""
        shared = self._shared(trips)
        together = trips.trip[:, None] == trips.trip
        noise = np.diag(self.own_noise(trips)) + np.where(
            together, shared @ shared.T, 0.0
        )
        if trips.borders:
            noise += trips.across(self.border_variance(trips))
        return noise

    def border_variance(self, trips: Trips) -> Floats:
        """Of what is stored in motion at each border, Wh², (Q,)."""
        borders = trips.borders
        return np.square(self.scales.motion * borders.size) + borders.variance

    def _band(self, trips: Trips) -> Floats:
        """T as its diagonal and, below, what lies under it, (2, M)."""
        borders, variance = trips.borders, self.border_variance(trips)
        band = np.zeros((2, len(trips.rewards)))
        band[0] = self.own_noise(trips)
        for side in (borders.before, borders.after):
            seen = side >= 0
            np.add.at(band[0], side[seen], variance[seen])
        inner = (borders.before >= 0) & (borders.after >= 0)
        np.subtract.at(band[1], borders.before[inner], variance[inner])
        return band

    def _noise_parts(self, trips: Trips) -> tuple[Floats, Floats, Floats]:
        """What R⁻¹ = W − W F (I + Fᵀ W F)⁻¹ Fᵀ W is made of where T is diagonal, F block by block.

        The diagonal of W = T⁻¹, (M,); F, (M, 5); the blocks I + Fᵀ W F, one for each trip, (·, 5, 5).
        """
        weight, shared = 1.0 / self.own_noise(trips), self._shared(trips)
        inner = np.zeros((trips.number, _P, _P))
        np.add.at(
            inner,
            trips.trip,
            shared[:, :, None] * (weight[:, None] * shared)[:, None, :],
        )
        return weight, shared, inner + np.eye(_P)

    def _weighted(self, trips: Trips, values: Floats) -> Floats:
        """R⁻¹ times values, (M,) or (M, k): trip by trip by Woodbury's identity."""
        if trips.borders:
            columns = values.reshape(len(trips.rewards), -1).copy()
            for rows, root in self._noise_roots(trips):
                columns[rows] = root.whiten(root.whiten(columns[rows]), transposed=True)
            return columns.reshape(values.shape)
        weight, shared, inner = self._noise_parts(trips)
        columns = weight[:, None] * values.reshape(len(weight), -1)
        pulled = np.zeros((trips.number, _P, columns.shape[1]))
        np.add.at(pulled, trips.trip, shared[:, :, None] * columns[:, None, :])
        back = np.linalg.solve(inner, pulled)[trips.trip]
        columns -= weight[:, None] * np.einsum("ij,ijk->ik", shared, back)
        return columns.reshape(values.shape)

    def _noise_roots(self, trips: Trips) -> Iterator[tuple[slice, _NoiseRoot]]:
        """The rewards of each trip, and the root of their block of R."""
        from scipy.linalg import cholesky_banded

        band, shared = self._band(trips), self._shared(trips)
        ends = np.searchsorted(trips.trip, np.arange(trips.number + 1))
        for begin, end in pairwise(ends.tolist()):
            rows = slice(begin, end)
            # T = (own noise, positive) + Σ v (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ is positive definite.
            lower = cholesky_banded(band[:, rows], lower=True)
            yield rows, _NoiseRoot.of(lower, shared[rows])

    # --- learning --------------------------------------------------------------------------

    def expect(self, trips: Trips) -> ExpectedRoads:
        """Of rewards of any roads; theirs are not looked at."""
        K_A, corner = self._prior_of(trips)
        taken, added, left = self._of_vehicles(trips)
        if (
            taken.any()
        ):  # what is known of a vehicle depends on what is unknown of its roads
            across = taken.T @ K_A
            K_taken = self._prior_times(taken)
            corner += taken.T @ K_taken - across - across.T
            K_A -= K_taken
        pulled = self._known @ K_A
        mean = trips.summed(trips.keys[:, EXPECTED]) + added + K_A.T @ self._alpha
        cov = corner - K_A.T @ pulled + left
        return ExpectedRoads(mean, cov, self.noise(trips), pulled + taken)

    def absorb(self, trips: Trips, expected: ExpectedRoads | None = None) -> float:
        """Learn from trips; returns the information gained, nats.

        ``expected`` is what :meth:`expect` has said of them, where that is known.
        """
        if expected is None:
            expected = self.expect(trips)
        C = cholesky(expected.cov + expected.noise, "the covariance of the rewards")
        own = cholesky(expected.noise, "the noise of the rewards")
        gained = float(np.log(np.diagonal(C)).sum() - np.log(np.diagonal(own)).sum())
        z = solve_lower(C, trips.rewards - expected.mean)
        before = self.visited, self._alpha, self._told
        try:
            self._visit(trips.keys)
            sums = self._sums(trips).toarray()
            sums[: len(expected.known)] -= (
                expected.known
            )  # nothing is known of roads that are new
            B = solve_lower(C, sums.T)
            groups = self._groups_of(trips)
            with blas_threads_for(float(self.size) ** 2 * len(z)):
                more = B.T @ B
        except (
            BaseException
        ):  # such as an interrupt: roads that taught nothing have no slots
            self.visited, self._alpha, self._told = before
            self._slot[self._slot >= self.size] = -1
            raise
        # From here on nothing can fail.
        self._known[...] += more
        self._alpha = self._alpha + B.T @ z
        for group in groups.all():
            self._vehicles.add(group)
        if self.has_variances:
            self._told.append(B[:, _P:])
        self._means = None
        self.log.append(trips)
        self.information += gained
        return gained

    @classmethod
    def of(
        cls, kernel: GraphMatern, sizes: Floats, scales: RoadScales, trips: Trips
    ) -> RoadEngine:
        """What these trips teach."""
        engine = cls(kernel, sizes, scales)
        if len(trips.rewards):
            engine._visit(trips.keys)
            engine.log.append(trips)
            engine._settle(trips)
        return engine

    # --- as arrays -------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What cannot be had again from the log without much work."""
        known = self._H[np.tril_indices(self.size)]
        near = self._near[np.tril_indices(len(self.visited))]
        learned = {
            "edges": self.visited,
            "known": known,
            "near": near,
            "alpha": self._alpha,
        }
        return {**learned, **self._vehicles.arrays(), **self._order.arrays()}

    def remember(self, trips: Trips, state: State) -> None:
        """Take in what :meth:`arrays` gave, and the trips that it came from, or :class:`StateError`."""
        edges = as_positions(state.array("edges"), "edges")
        alpha = as_vector(state.array("alpha"), "alpha")
        size = len(alpha)
        H = _full(
            as_vector(state.array("known"), "known", size * (size + 1) // 2), size
        )
        near = as_vector(
            state.array("near"), "near", len(edges) * (len(edges) + 1) // 2
        )
        driven = np.unique(trips.keys[:, VEHICLE]).astype(np.intp)
        of_old_form = "first" in state.arrays  # in which vehicles had slots, too
        slots = (
            _slots_without_vehicles(state, size, driven)
            if of_old_form
            else np.arange(size)
        )
        if not np.array_equal(np.sort(edges), np.unique(edges_of(trips.keys))) or len(
            slots
        ) != _P + len(edges):
            raise StateError(
                "this state is damaged: what it has learned is not from its trips"
            )
        self.visited = edges.copy()
        self._slot[edges] = _P + np.arange(len(edges))
        self._H, self._alpha = H[np.ix_(slots, slots)], alpha[slots]
        self._near = _full(near, len(edges))
        if of_old_form:
            self._vehicles = self._groups_of(trips)
            self._order = DrawOrder.of_slots(state, size)
        else:
            self._vehicles = VehicleGroups.from_arrays(state, size, driven)
            self._order = DrawOrder.from_arrays(state, driven, len(edges))
        self.log.append(trips)

    def with_all(self, trips: Trips) -> RoadEngine:
        """This engine after many more trips, all of them computed at once."""
        log = self.log.copy()
        log.append(trips)
        return RoadEngine.of(self.kernel, self.sizes, self.scales, log.view())

    def _root(self) -> Floats:
        """L, with L Lᵀ = K over the slots: lower triangular."""
        v = len(self.visited)
        near = self.scales.near**2 * self._near[:v, :v]
        near[np.diag_indices_from(near)] += self._own[self.visited]
        root = np.zeros((self.size, self.size))
        root[:_P, :_P] = np.diag(np.sqrt(self._fleet))
        root[_P:, _P:] = cholesky(near, "the prior covariance of visited roads")
        return root

    def supposing(self, keys: Floats, noise: Floats) -> RoadEngine:
        """The engine once these roads are observed with this noise: less variance, the same means."""
        other = copy(self)
        for name in ("_slot", "_H", "_near"):
            setattr(other, name, getattr(self, name).copy())
        other._vehicles, other._told = self._vehicles.copy(), list(self._told)
        other.log = self.log.copy()
        trips = Trips.of_one(keys, noise=noise)
        other.absorb(trips._replace(rewards=other.expect(trips).mean))
        return other

    def rebuild(self, scales: RoadScales) -> RoadEngine:
        """What was learned from the same trips, under other scales, without rounding of the past.

        With Λ = A R⁻¹ Aᵀ, K = L Lᵀ and G = Lᵀ Λ L, H = L⁻ᵀ (I − (I + G)⁻¹) L⁻¹.
        """
        fresh, trips = RoadEngine(self.kernel, self.sizes, scales), self.log.view()
        for name in ("_slot", "visited", "_near", "log", "_order"):
            setattr(fresh, name, getattr(self, name))
        fresh._H, fresh._alpha = np.zeros((self.size, self.size)), np.zeros(self.size)
        fresh._settle(trips)
        return fresh

    def _settle(self, trips: Trips) -> None:
        """H and alpha of all trips at once, and what they say of vehicles."""
        self._vehicles = self._groups_of(trips)
        information, pull = self._information(trips)
        of_vehicle = np.square(self.scales.vehicle)
        information, pull = self._vehicles.taken_off(of_vehicle, information, pull)
        root = self._root()
        with blas_threads_for(float(self.size) ** 3):
            inner = root.T @ information @ root
            inner[np.diag_indices_from(inner)] += 1.0
            factor = cholesky(inner, "the information about visited roads")
            self.information = float(np.log(np.diagonal(factor)).sum())
            self.information += self._vehicles.information(of_vehicle)
            left = solve_lower(factor, np.eye(self.size))
            kept = np.eye(self.size) - left.T @ left  # I − (I + G)⁻¹
            half = solve_lower(root, kept, transposed=True)
            H = solve_lower(root, np.ascontiguousarray(half.T), transposed=True)
        self._H = 0.5 * (H + H.T)
        self._alpha = pull - self._H @ (root @ (root.T @ pull))
        self._means = self._left = None
        self._told = []

    def _information(self, trips: Trips) -> tuple[Floats, Floats]:
        """A R⁻¹ Aᵀ, (s, s), and A R⁻¹ (y − expected), (s,)."""
        from scipy.sparse import csr_array

        residual = trips.rewards - trips.summed(trips.keys[:, EXPECTED])
        A = self._sums(trips)
        if trips.borders:
            return self._information_with_borders(trips, A.tocsc(), residual)
        weight, shared, inner = self._noise_parts(trips)
        scaled = (weight[:, None] * shared)[:, :, None]
        half = np.linalg.solve(np.linalg.cholesky(inner)[trips.trip], scaled)[:, :, 0]
        rows = np.repeat(np.arange(len(weight)), _P)
        at = (trips.trip[:, None] * _P + np.arange(_P)).ravel()
        F = csr_array(
            (half.ravel(), (rows, at)), shape=(len(weight), trips.number * _P)
        )
        low = A @ F
        information = (A * weight) @ A.T - low @ low.T
        return np.asarray(information.toarray()), np.asarray(
            A @ self._weighted(trips, residual)
        )

    def _information_with_borders(
        self, trips: Trips, A: Any, residual: Floats
    ) -> tuple[Floats, Floats]:
        """The same where R is not diagonal and a low rank: trip by trip, over the slots it touches."""
        information, pull = np.zeros((self.size, self.size)), np.zeros(self.size)
        for rows, root in self._noise_roots(trips):
            part = A[:, rows]
            slots = np.unique(part.indices)
            white = root.whiten(part[slots].toarray().T)  # (k, u)
            information[np.ix_(slots, slots)] += white.T @ white
            pull[slots] += white.T @ root.whiten(residual[rows, None])[:, 0]
        return information, pull

    # --- all roads -------------------------------------------------------------------------

    def _spread(self, values: Floats) -> Floats:
        """K_·S times values at the slots, for roads: (s,) or (s, k) become (n,) or (n, k)."""
        scattered = np.zeros((len(self.kernel), *values.shape[1:]))
        scattered[self.visited] = values[_P:]
        return (
            self.scales.near**2 * self.kernel.times(scattered)
            + (self._own * scattered.T).T
        )

    def means(self) -> Floats:
        """Of f, (n,)."""
        if self._means is None:
            self._means = self._spread(self._alpha)
        return self._means

    def _by_vehicle(
        self, keys: Floats
    ) -> Iterator[tuple[Bools, Floats, Floats, Floats]]:
        """Of each vehicle: which keys are its own, (m,); the sums of slots in its w, (s, 5); what is
        known to be added, (5,); and the covariance of w that is in none of them, (5, 5)."""
        prior = np.square(self.scales.vehicle)
        for vehicle in _numbers(keys[:, VEHICLE]):
            chosen = np.zeros((self.size, _P))
            chosen[:_P] = np.eye(_P)
            added, more = np.zeros(_P), np.diag(prior)
            group = self._vehicles.get(vehicle)
            if group is not None:
                at = group.place(vehicle)
                S = group.covariance(prior)[at]  # (5, p)
                chosen[group.slots] -= group.cross @ S.T
                added, more = S @ group.pull, S[:, at]
            yield keys[:, VEHICLE] == vehicle, chosen, added, more

    def _at_slots(self, of_roads: Floats, values: Floats) -> Floats:
        """K_SS times values, (s,), given K_·S times values over all roads, (n,)."""
        return np.concatenate([self._fleet * values[:_P], of_roads[self.visited]])

    def mean_of(self, keys: Floats) -> Floats:
        """(m,)"""
        mean = keys[:, EXPECTED] + keys[:, EACH] * self.means()[edges_of(keys)]
        terms = terms_of(keys)
        of_slots = self._at_slots(self.means(), self._alpha)
        for mine, chosen, added, _ in self._by_vehicle(keys):
            mean[mine] += terms[mine] @ (chosen.T @ of_slots + added)
        return mean

    def variance_of(self, keys: Floats) -> Floats:
        """(m,)"""
        edges, terms = edges_of(keys), terms_of(keys)
        variance = np.square(keys[:, EACH]) * self.variances()[edges]
        H = self._known
        for mine, chosen, _, more in self._by_vehicle(keys):
            K_w = self._prior_times(chosen)
            of_w = chosen.T @ K_w + more - K_w.T @ H @ K_w
            with_f = (
                keys[mine, EACH, None] * self._spread(chosen - H @ K_w)[edges[mine]]
            )
            variance[mine] += np.einsum("ij,jk,ik->i", terms[mine], of_w, terms[mine])
            variance[mine] += 2.0 * np.einsum("ij,ij->i", terms[mine], with_f)
        return variance

    def variances(self) -> Floats:
        """Of f, (n,)."""
        if self._left is None:
            numbers = np.arange(len(self.kernel), dtype=np.float64)[:, None]
            self._left = self.scales.near**2 * self.kernel.diag(numbers) + self._own
            known = self._known[_P:, _P:]
            scale = 1.0 / self.scales.own**2
            self._told = [psd_root(known, "what is known of roads", scale=scale).root.T]
        for rows in self._told:
            full = np.zeros((self.size, len(rows)))
            full[_P:] = rows.T
            self._left = self._left - np.square(self._spread(full)).sum(axis=1)
        self._told = []
        return self._left

    def draw(self, keys: Floats, rng: Rng) -> Floats:
        """A joint draw about zero, (m,).

        With z a draw of the prior and e one of the noise, Σ (K⁻¹ z − A R⁻¹ e) is a draw of the
        posterior, whose covariance is Σ. Random numbers are drawn in an order that does not depend on
        what is eliminated, so that a saved state gives the same draws for ever.
        """
        n, scales, trips = len(self.kernel), self.scales, self.log.view()
        roads = scales.near * self.kernel.root_times(rng.standard_normal(n))
        roads += np.sqrt(self._own) * rng.standard_normal(n)
        normals = rng.standard_normal(self._order.size)
        fleet = np.sqrt(self._fleet) * normals[:_P]
        of_vehicles: dict[
            int, Floats
        ] = {}  # w of each vehicle, less what depends on the slots
        if len(trips.rewards):
            r, of_vehicles = self._noise_draw(trips, normals, rng)
            covered = self._at_slots(self._spread(r), r)  # K r at the slots
            u = np.concatenate([fleet, roads[self.visited]])
            eta = self._known @ (u - covered) + r
            roads -= self._spread(eta)
            fleet = fleet - self._fleet * eta[:_P]
        drawn, terms = keys[:, EACH] * roads[edges_of(keys)], terms_of(keys)
        x = np.concatenate([fleet, roads[self.visited]])
        for mine, chosen, _, _ in self._by_vehicle(keys):
            new = scales.vehicle * rng.standard_normal(
                _P
            )  # for a vehicle that was never driven
            apart = of_vehicles.get(int(keys[mine, VEHICLE][0]), new)
            drawn[mine] += terms[mine] @ (chosen.T @ x + apart)
        return drawn

    def _noise_draw(
        self, trips: Trips, normals: Floats, rng: Rng
    ) -> tuple[Floats, dict[int, Floats]]:
        """A R⁻¹ e of a draw e of the noise, with vehicles eliminated.

        Eliminating w from Σ⁻¹ (x, w) = (K⁻¹ z − A R⁻¹ e, V⁻¹ z_w − Φᵀ R⁻¹ e) leaves for the slots
        A R⁻¹ e + C t, (s,), with t = S (V⁻¹ z_w − Φᵀ R⁻¹ e) and C = A R⁻¹ Φ; and w = t − S Cᵀ x.
        Returns the former, and t of each vehicle, (5,).
        """
        noise = np.sqrt(self.own_noise(trips)) * rng.standard_normal(len(trips.rewards))
        shared = self._shared(trips)
        of_trips = rng.standard_normal((trips.number, shared.shape[1]))
        noise += (shared * of_trips[trips.trip]).sum(axis=1)
        if trips.borders:
            motion = np.sqrt(self.border_variance(trips))
            noise += trips.crossing(motion * rng.standard_normal(len(motion)))
        weighted = self._weighted(trips, noise)
        vehicles, who = np.unique(
            trips.keys[:, VEHICLE].astype(np.intp), return_inverse=True
        )
        pulls = np.zeros((len(vehicles), _P))  # Φᵀ R⁻¹ e
        np.add.at(pulls, who, terms_of(trips.keys) * weighted[trips.of][:, None])
        pull_of = dict(zip(vehicles.tolist(), pulls, strict=True))

        of_slots = np.asarray(self._sums(trips) @ weighted)
        prior = np.square(self.scales.vehicle)
        of_vehicles: dict[int, Floats] = {}
        for group in self._vehicles.all():
            places = np.concatenate(
                [self._order.vehicles[each] + _OFFSETS for each in group.vehicles]
            )
            pull = np.concatenate([pull_of[each] for each in group.vehicles])
            t = group.pulled(prior, normals[places], pull)
            of_slots[group.slots] += group.cross @ t
            of_vehicles |= {
                vehicle: t[group.place(vehicle)] for vehicle in group.vehicles
            }
        return of_slots, of_vehicles


class _NoiseRoot(NamedTuple):
    """With T = L Lᵀ, G = L⁻¹F and G Gᵀ = U d Uᵀ, the noise T + F Fᵀ of a trip is L (I + U d Uᵀ) Lᵀ."""

    lower: Floats  # L as its diagonal and the one under it, (2, k)
    U: Floats  # (k, 6)
    shrunk: Floats  # 1 − 1/√(1 + d): by how much (I + U d Uᵀ)^(−½) shrinks what lies along U, (6,)

    @classmethod
    def of(cls, lower: Floats, shared: Floats) -> _NoiseRoot:
        from scipy.linalg import solve_banded

        U, singular, _ = np.linalg.svd(
            solve_banded((1, 0), lower, shared), full_matrices=False
        )
        return cls(lower, U, 1.0 - 1.0 / np.sqrt(1.0 + np.square(singular)))

    def whiten(self, values: Floats, *, transposed: bool = False) -> Floats:
        """S⁻¹ values with S Sᵀ = T + F Fᵀ, or S⁻ᵀ values, (k, m)."""
        from scipy.linalg import solve_banded

        if transposed:
            upper = np.array([np.append(0.0, self.lower[1, :-1]), self.lower[0]])
            return np.asarray(solve_banded((0, 1), upper, self._along(values)))
        return self._along(np.asarray(solve_banded((1, 0), self.lower, values)))

    def _along(self, values: Floats) -> Floats:
        """(I + U d Uᵀ)^(−½) values: symmetric."""
        return values - self.U @ (self.shrunk[:, None] * (self.U.T @ values))


def _counted(trips: Trips) -> tuple[Ints, Floats]:
    """The roads of these trips, (u,), and how much each reward counts each of them, (u, M)."""
    edges, place = np.unique(edges_of(trips.keys), return_inverse=True)
    counts = np.zeros((len(edges), len(trips.rewards)))
    np.add.at(counts, (place, trips.of), trips.keys[:, EACH])
    return edges, counts


def _grown(matrix: Floats, used: int, size: int) -> Floats:
    """A square array with room for ``size``, zeros beyond what is used."""
    if len(matrix) >= size:
        return matrix
    bigger = np.zeros((max(size, len(matrix) * 3 // 2),) * 2)
    bigger[:used, :used] = matrix[:used, :used]
    return bigger


def _full(lower: Floats, size: int) -> Floats:
    """The symmetric matrix with this lower triangle, row by row."""
    matrix = np.zeros((size, size))
    matrix[np.tril_indices(size)] = lower
    return matrix + np.tril(matrix, -1).T


def _numbers(vehicles: Floats) -> list[int]:
    """Each vehicle once."""
    return [int(each) for each in np.unique(vehicles)]


def _slots_without_vehicles(state: State, size: int, driven: Ints) -> Ints:
    """Slots of fleet and roads in a state whose vehicles had slots, too: H over them is the same."""
    vehicles, first, at = (
        as_positions(state.array(name), name) for name in ("vehicles", "first", "at")
    )
    slots = np.concatenate(
        [np.arange(_P), at, (first[:, None] + np.arange(_P)).ravel()]
    )
    if (
        not np.array_equal(np.sort(vehicles), driven)
        or len(first) != len(vehicles)
        or not np.array_equal(np.sort(slots), np.arange(size))
    ):
        raise StateError(
            "this state is damaged: what it has learned is not from its trips"
        )
    return slots[: _P + len(at)]
