"""The arithmetic of :class:`RoadGP`: exact, and without any matrix over all roads.

=============  =======================================================================
``x``          what is unknown: w of the fleet, then f of every road; w of vehicles is eliminated, see
               :mod:`.vehicles`
``S``, ``K``   the slots, which are those entries of x that some reward depended on, s of them, and the
               prior covariance of x; see :mod:`.slots`
``A``          (s, M): column j holds the weights of the slots in the sum that reward j is, given what
               its vehicle has driven
``R``          (M, M) noise; see :mod:`.noise`
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

from collections.abc import Iterator
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Rng, State
from superarm.core.linalg import cholesky, psd_root, solve_lower
from superarm.core.threads import blas_threads_for
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import TERMS, RoadScales
from superarm.roads.rows import COLUMNS, Column, edges_of, terms_of, vehicles_of

from .draw_order import DrawOrder
from .forecasts import (
    ExpectedRewards,
    NoiseDraw,
    RoadDraw,
    VehicleShare,
    VehicleTerms,
)
from .information import slot_information, vehicle_information
from .log import Log
from .matrices import from_lower, half_log_det, triangle_size, with_zeros
from .noise import TripNoise
from .old_states import has_vehicle_slots, not_of_its_trips, slots_without_vehicles
from .slots import CountedRoads, Slots
from .trips import Trips
from .vehicle_groups import VehicleGroups
from .vehicles import VehicleGroup

_P = len(TERMS)


class RoadEngine:
    """What was learned under one choice of scales.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
        half_life: Later trips after which a trip counts half; ``None``: trips do not age.
    """

    def __init__(
        self,
        kernel: GraphMatern,
        sizes: Floats,
        scales: RoadScales,
        half_life: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.sizes = sizes
        self.scales = scales
        self.log = Log(COLUMNS, half_life)
        self.noise = TripNoise(scales)
        self.slots = Slots(kernel, sizes, scales)
        self._vehicles = VehicleGroups()
        self._draw_order = DrawOrder()
        self._H_buffer = np.zeros((_P, _P))  # H, with room to grow
        self._alpha = np.zeros(_P)
        # ½ ln det(I + K A R⁻¹ Aᵀ), nats: the information of all trips.
        self.information = 0.0
        # Means of f, until something is learned.
        self._means: Floats | None = None
        # Variances of f, but for the rows that are not subtracted yet.
        self._variances: Floats | None = None
        # Rows over visited roads whose squares are still to be subtracted.
        self._unsubtracted: list[Floats] = []

    @property
    def size(self) -> int:
        """The number of slots."""
        return len(self._alpha)

    @property
    def visited(self) -> Ints:
        """Roads that were driven on, in the order of their slots."""
        return self.slots.visited

    @property
    def _H(self) -> Floats:  # noqa: N802 - as in the formulas
        """H, a view of its buffer, (s, s)."""
        return self._H_buffer[: self.size, : self.size]

    @property
    def has_variances(self) -> bool:
        """Whether variances of all roads are kept up to date."""
        return self._variances is not None

    @property
    def _vehicle_prior(self) -> Floats:
        """Prior variances of a vehicle's terms, (5,)."""
        return np.square(self.scales.vehicle)

    # --- forecasts ---------------------------------------------------------------------------

    def expect(self, trips: Trips) -> ExpectedRewards:
        """Forecast rewards of any roads; ``trips.rewards`` is not read."""
        K_A, cov = self.slots.prior_of(trips)
        known = self._vehicle_share(trips)
        if known.slots.any():
            # What is known of a vehicle depends on what is unknown of its roads.
            known_slots = known.slots
            K_known = self.slots.prior_times(known_slots)
            across = known_slots.T @ K_A
            cov += known_slots.T @ K_known - across - across.T
            K_A -= K_known
        H_K_A = self._H @ K_A
        expected = trips.summed(trips.keys[:, Column.EXPECTED])
        return ExpectedRewards(
            mean=expected + known.mean + K_A.T @ self._alpha,
            cov=cov - K_A.T @ H_K_A + known.cov,
            noise=self.noise.covariance(trips),
            explained=H_K_A + known.slots,
        )

    def expect_total(self, trips: Trips) -> ExpectedRewards:
        """Forecast rewards of which only the sum counts: here as :meth:`expect`."""
        return self.expect(trips)

    def judge(self, trips: Trips) -> ExpectedRewards:
        """Forecast trips that are learned next: here as :meth:`expect`."""
        return self.expect(trips)

    def judge_all(self, trips: Trips) -> Iterator[ExpectedRewards]:
        """Forecast each of many trips by what is known before the first of them."""
        for trip in trips.each():
            yield self.expect(trip)

    def _vehicle_share(self, trips: Trips) -> VehicleShare:
        prior = self._vehicle_prior
        count = len(trips.rewards)
        slots = np.zeros((self.size, count))
        mean = np.zeros(count)
        cov = np.zeros((count, count))
        vehicles = _distinct_vehicles(trips.keys)
        for vehicle in vehicles:
            if self._vehicles.get(vehicle) is None:
                phi = _terms_of_vehicle(trips, vehicle)
                cov += (phi * prior) @ phi.T
        for group in self._vehicles.groups_of(vehicles):
            phi = _terms_of_group(trips, group)  # (M, p)
            S = group.covariance(prior)
            S_phi = S @ phi.T  # (p, M)
            slots[group.slots] += group.cross @ S_phi
            mean += group.pull @ S_phi
            cov += phi @ S_phi
        return VehicleShare(slots, mean, cov)

    # --- learning ----------------------------------------------------------------------------

    def absorb(self, trips: Trips, expected: ExpectedRewards | None = None) -> float:
        """Learn from trips; returns the information gained, nats.

        Args:
            trips: What was observed.
            expected: What :meth:`expect` forecasts for them, where that is known already.
        """
        if expected is None:
            expected = self.expect(trips)
        C = cholesky(expected.total_cov, "the covariance of the rewards")
        noise_root = cholesky(expected.noise, "the noise of the rewards")
        gained = float(half_log_det(C) - half_log_det(noise_root))
        residual = trips.rewards - expected.mean
        z = solve_lower(C, residual)
        visited = self.visited
        alpha = self._alpha
        unsubtracted = self._unsubtracted
        draw_order = self._draw_order
        try:
            self._visit(trips.keys)
            learned = self.slots.sums(trips).toarray()
            # Nothing is explained of roads that are new.
            learned[: len(expected.explained)] -= expected.explained
            B = solve_lower(C, learned.T)
            groups = vehicle_information(self.slots, self.noise, trips)
            operations = float(self.size) ** 2 * len(z)
            with blas_threads_for(operations):
                B_B = B.T @ B
        except BaseException:
            # Such as an interrupt: roads of which nothing was learned have no slots.
            self._alpha = alpha
            self._unsubtracted = unsubtracted
            self._draw_order = draw_order
            self.slots.roll_back(visited)
            raise
        # From here on nothing can fail.
        H = self._H
        H += B_B
        self._alpha = self._alpha + B.T @ z
        for group in groups.all():
            self._vehicles.add(group)
        if self.has_variances:
            self._unsubtracted.append(B[:, _P:])
        self._means = None
        self.log.append(trips)
        self.information += gained
        return gained

    def _visit(self, keys: Floats) -> None:
        """Give slots to roads that are new; nothing is learned of them yet."""
        new_roads = self.slots.unvisited(keys)
        count = len(new_roads)
        vehicles = _distinct_vehicles(keys)
        self._draw_order = self._draw_order.after(vehicles, count)
        if not count:
            return
        size_before = self.size
        self.slots.add(new_roads)
        zeros = np.zeros(len(self.slots) - size_before)
        self._alpha = np.concatenate([self._alpha, zeros])
        self._H_buffer = with_zeros(self._H_buffer, size_before, self.size)
        # Rows that are still to be subtracted have nothing of new roads.
        new_columns = ((0, 0), (0, count))
        self._unsubtracted = [np.pad(rows, new_columns) for rows in self._unsubtracted]

    def supposing(self, keys: Floats, noise: Floats) -> RoadEngine:
        """The engine once these roads are observed with this noise: less variance, the same means.

        Args:
            keys: The roads, (m, 9).
            noise: Variance of each observation, (m,).
        """
        other = copy(self)
        other.slots = self.slots.copy()
        other.log = self.log.copy()
        other._H_buffer = self._H_buffer.copy()
        other._vehicles = self._vehicles.copy()
        other._unsubtracted = list(self._unsubtracted)
        trips = Trips.of_one(keys, noise=noise)
        means = other.expect(trips).mean
        as_expected = trips._replace(rewards=means)
        other.absorb(as_expected)
        return other

    # --- learning all at once ----------------------------------------------------------------

    @classmethod
    def from_trips(
        cls,
        kernel: GraphMatern,
        sizes: Floats,
        scales: RoadScales,
        trips: Trips,
        half_life: float | None = None,
    ) -> Self:
        """An engine that has learned from these trips."""
        engine = cls(kernel, sizes, scales, half_life)
        if len(trips.rewards):
            engine._visit(trips.keys)
            engine.log.append(trips)
            engine._solve_anew()
        return engine

    def with_all(self, trips: Trips) -> Self:
        """This engine after many more trips, all of them computed at once."""
        log = self.log.copy()
        log.append(trips)
        return self.from_trips(
            self.kernel,
            self.sizes,
            self.scales,
            log.view(),
            log.half_life,
        )

    def rebuild(self, scales: RoadScales) -> Self:
        """What was learned from the same trips under other scales, free of accumulated rounding."""
        size = self.size
        engine = type(self)(self.kernel, self.sizes, scales, self.log.half_life)
        engine.slots = self.slots.with_scales(scales)
        engine.log = self.log
        engine._draw_order = self._draw_order
        engine._H_buffer = np.zeros((size, size))
        engine._alpha = np.zeros(size)
        engine._solve_anew()
        return engine

    def _solve_anew(self) -> None:
        """Compute everything from the log, with ages as they are now."""
        self.log = self.log.dated()
        self._solve(self.log.as_learned())

    def _solve(self, trips: Trips) -> None:
        """Compute H, alpha and the vehicles' groups from all trips.

        With Λ = A R⁻¹ Aᵀ, K = L Lᵀ and G = Lᵀ Λ L, H = L⁻ᵀ (I − (I + G)⁻¹) L⁻¹.
        """
        slots = self.slots
        noise = self.noise
        prior = self._vehicle_prior
        self._vehicles = vehicle_information(slots, noise, trips)
        information, pull = slot_information(slots, noise, trips)
        information, pull = self._vehicles.eliminate(prior, information, pull)
        L = slots.prior_root()
        operations = float(self.size) ** 3
        with blas_threads_for(operations):
            inner = L.T @ information @ L  # I + G
            diagonal = np.diag_indices_from(inner)
            inner[diagonal] += 1.0
            factor = cholesky(inner, "the information about visited roads")
            H = _reduce_prior(L, factor)
        self._H_buffer = 0.5 * (H + H.T)
        K_pull = L @ (L.T @ pull)
        self._alpha = pull - self._H_buffer @ K_pull
        self.information = float(half_log_det(factor))
        self.information += self._vehicles.information(prior)
        self._means = None
        self._variances = None
        self._unsubtracted = []

    # --- as arrays ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What takes long to compute from the log again."""
        return {
            "edges": self.visited,
            "known": self._H_buffer[np.tril_indices(self.size)],
            "near": self.slots.near_lower(),
            "alpha": self._alpha,
            **self._vehicles.arrays(),
            **self._draw_order.arrays(),
        }

    def remember(self, trips: Trips, state: State) -> None:
        """Restore what :meth:`arrays` saved, or raise :class:`StateError`.

        Args:
            trips: The trips that it was learned from.
            state: The saved state.
        """
        edges = state.positions("edges")
        alpha = state.vector("alpha")
        size = len(alpha)
        roads = len(edges)
        known = state.vector("known", triangle_size(size))
        near = state.vector("near", triangle_size(roads))
        H = from_lower(known, size)
        driven = np.unique(vehicles_of(trips.keys))
        is_old_form = has_vehicle_slots(state)
        slots = np.arange(size)
        if is_old_form:
            slots = slots_without_vehicles(state, size, driven)
        roads_of_trips = np.unique(edges_of(trips.keys))
        has_same_roads = np.array_equal(np.sort(edges), roads_of_trips)
        if not has_same_roads or len(slots) != _P + roads:
            raise not_of_its_trips()
        self.slots.restore(edges, from_lower(near, roads))
        block = np.ix_(slots, slots)
        self._H_buffer = H[block]
        self._alpha = alpha[slots]
        if is_old_form:
            self._vehicles = vehicle_information(self.slots, self.noise, trips)
            self._draw_order = DrawOrder.from_slots(state, size)
        else:
            self._vehicles = VehicleGroups.from_arrays(state, size, driven)
            self._draw_order = DrawOrder.from_arrays(state, driven, roads)
        self.log.append(trips)

    def counted_roads(self, trips: Trips) -> CountedRoads:
        """The roads of these trips, to which scales are fitted."""
        return self.slots.counted_roads(trips)

    # --- all roads ---------------------------------------------------------------------------

    def means(self) -> Floats:
        """The mean of f of every road, (n,)."""
        if self._means is None:
            self._means = self.slots.spread(self._alpha)
        return self._means

    def prepare_variances(self) -> None:
        """Compute variances of all roads, from which copies continue."""
        self.variances()

    def variances(self) -> Floats:
        """The variance of f of every road, (n,)."""
        if self._variances is None:
            self._variances = self.slots.prior_variances()
            H_of_roads = self._H[_P:, _P:]
            scale = 1.0 / self.scales.own**2
            root = psd_root(H_of_roads, "what is known of roads", scale=scale)
            self._unsubtracted = [root.root.T]
        for rows in self._unsubtracted:
            at_slots = np.zeros((self.size, len(rows)))
            at_slots[_P:] = rows.T
            spread = self.slots.spread(at_slots)
            reduction = np.square(spread).sum(axis=1)
            self._variances = self._variances - reduction
        self._unsubtracted = []
        return self._variances

    def mean_of(self, keys: Floats) -> Floats:
        """The mean of each reward, (m,)."""
        mean_of_roads = self.means()
        f = mean_of_roads[edges_of(keys)]
        mean_at_slots = self.slots.at_slots(mean_of_roads, self._alpha)
        expected = keys[:, Column.EXPECTED]
        mass_ratios = keys[:, Column.MASS_RATIO]
        mean = expected + mass_ratios * f
        terms = terms_of(keys)
        for w in self._vehicle_terms(keys):
            phi = terms[w.rows]
            mean_of_w = w.slots.T @ mean_at_slots + w.mean
            mean[w.rows] += phi @ mean_of_w
        return mean

    def variance_of(self, keys: Floats) -> Floats:
        """The variance of each reward without noise, (m,)."""
        H = self._H
        edges = edges_of(keys)
        terms = terms_of(keys)
        mass_ratios = keys[:, Column.MASS_RATIO]
        variance_of_f = self.variances()[edges]
        variance = np.square(mass_ratios) * variance_of_f
        for w in self._vehicle_terms(keys):
            rows = w.rows
            phi = terms[rows]
            K_w = self.slots.prior_times(w.slots)
            prior_cov = w.slots.T @ K_w + w.cov
            cov = prior_cov - K_w.T @ H @ K_w
            cov_with_f = self.slots.spread(w.slots - H @ K_w)  # (n, 5)
            of_rows = mass_ratios[rows, None] * cov_with_f[edges[rows]]
            variance[rows] += np.einsum("ij,jk,ik->i", phi, cov, phi)
            variance[rows] += 2.0 * np.einsum("ij,ij->i", phi, of_rows)
        return variance

    def _vehicle_terms(self, keys: Floats) -> Iterator[VehicleTerms]:
        """The terms of each vehicle of these keys."""
        prior = self._vehicle_prior
        for vehicle in _distinct_vehicles(keys):
            rows = keys[:, Column.VEHICLE] == vehicle
            slots = self._fleet_terms()
            mean = np.zeros(_P)
            cov = np.diag(prior)
            group = self._vehicles.get(vehicle)
            if group is not None:
                place = group.place(vehicle)
                S = group.covariance(prior)[place]  # (5, p)
                slots[group.slots] -= group.cross @ S.T
                mean = S @ group.pull
                cov = S[:, place]
            yield VehicleTerms(vehicle, rows, slots, mean, cov)

    def _fleet_terms(self) -> Floats:
        """What the slots add to the terms of any vehicle, (s, 5)."""
        slots = np.zeros((self.size, _P))
        slots[:_P] = np.eye(_P)
        return slots

    # --- draws -------------------------------------------------------------------------------

    def draw(self, keys: Floats, rng: Rng) -> Floats:
        """A joint draw about zero, (m,).

        With z a draw of the prior and e one of the noise, Σ (K⁻¹ z − A R⁻¹ e) is a draw of the
        posterior, whose covariance is Σ. The order of the random numbers does not depend on what is
        eliminated, so that a saved state always gives the same draws.
        """
        trips = self.log.as_learned()
        roads = self._draw_roads(rng)
        normals = rng.standard_normal(self._draw_order.size)
        fleet_std = np.sqrt(self.slots.fleet_variance)
        drawn = RoadDraw(fleet_std * normals[:_P], roads)
        vehicles: dict[int, Floats] = {}
        if len(trips.rewards):
            noise = self._draw_noise(trips, normals, rng)
            drawn = self._to_posterior(drawn, noise.slots)
            vehicles = noise.vehicles

        x = self._at_slots(drawn)
        f = drawn.roads[edges_of(keys)]
        rewards = keys[:, Column.MASS_RATIO] * f
        terms = terms_of(keys)
        for w in self._vehicle_terms(keys):
            # Drawn for every vehicle, used for those that were never driven.
            new = self.scales.vehicle * rng.standard_normal(_P)
            apart = vehicles.get(w.vehicle, new)
            terms_of_vehicle = w.slots.T @ x + apart
            rewards[w.rows] += terms[w.rows] @ terms_of_vehicle
        return rewards

    def _draw_roads(self, rng: Rng) -> Floats:
        """A draw of f from the prior, (n,)."""
        n = len(self.kernel)
        near_normals = rng.standard_normal(n)
        own_normals = rng.standard_normal(n)
        own_std = np.sqrt(self.slots.own_variance)
        roads = self.scales.near * self.kernel.root_times(near_normals)
        roads += own_std * own_normals
        return roads

    def _to_posterior(self, prior: RoadDraw, r: Floats) -> RoadDraw:
        """The posterior draw u − K_·S (H u_S + r − H K r) of a prior draw u."""
        slots = self.slots
        u = self._at_slots(prior)
        K_r = slots.at_slots(slots.spread(r), r)
        eta = self._H @ (u - K_r) + r
        return RoadDraw(
            fleet=prior.fleet - slots.fleet_times(eta),
            roads=prior.roads - slots.spread(eta),
        )

    def _at_slots(self, drawn: RoadDraw) -> Floats:
        """A draw at the slots, (s,)."""
        return np.concatenate([drawn.fleet, drawn.roads[self.visited]])

    def _draw_noise(self, trips: Trips, normals: Floats, rng: Rng) -> NoiseDraw:
        """A R⁻¹ e of a draw e of the noise, with vehicles eliminated.

        Eliminating w from Σ⁻¹ (x, w) = (K⁻¹ z − A R⁻¹ e, V⁻¹ z_w − Φᵀ R⁻¹ e) leaves for the slots
        A R⁻¹ e + C t, (s,), with t = S (V⁻¹ z_w − Φᵀ R⁻¹ e) and C = A R⁻¹ Φ; and w = t − S Cᵀ x.
        """
        prior = self._vehicle_prior
        noise = self.noise.draw(trips, rng)  # e
        weighted = self.noise.solve(trips, noise)  # R⁻¹ e
        pull_of_vehicle = _pulls(trips, weighted)
        slots = np.asarray(self.slots.sums(trips) @ weighted)
        vehicles: dict[int, Floats] = {}
        for group in self._vehicles.all():
            places: list[Ints] = []
            pulls: list[Floats] = []
            for vehicle in group.vehicles:
                places.append(self._draw_order.places(vehicle))
                pulls.append(pull_of_vehicle[vehicle])
            normals_of_group = normals[np.concatenate(places)]
            pull = np.concatenate(pulls)
            t = group.draw(prior, normals_of_group, pull)
            slots[group.slots] += group.cross @ t
            for vehicle in group.vehicles:
                place = group.place(vehicle)
                vehicles[vehicle] = t[place]
        return NoiseDraw(slots, vehicles)


# --- vehicles of keys and trips ------------------------------------------------------------


def _distinct_vehicles(keys: Floats) -> list[int]:
    """Numbers of the vehicles, each once, sorted."""
    vehicles: list[int] = np.unique(vehicles_of(keys)).tolist()
    return vehicles


def _pulls(trips: Trips, weighted: Floats) -> dict[int, Floats]:
    """Φᵀ times values of all rewards, (M,), by vehicle, (5,) each."""
    vehicles, driver_of_arm = trips.drivers
    terms = terms_of(trips.keys)
    weighted_of_arm = weighted[trips.reward_of_arm]
    weighted_terms = terms * weighted_of_arm[:, None]  # (N, 5)
    pulls = np.zeros((len(vehicles), _P))
    np.add.at(pulls, driver_of_arm, weighted_terms)
    by_vehicle = zip(vehicles.tolist(), pulls, strict=True)
    return dict(by_vehicle)


def _terms_of_vehicle(trips: Trips, vehicle: int) -> Floats:
    """Φ: the terms of one vehicle in each reward, (M, 5)."""
    keys = trips.keys
    is_driven = keys[:, Column.VEHICLE] == vehicle
    terms = terms_of(keys)
    return trips.summed(terms * is_driven[:, None])


def _terms_of_group(trips: Trips, group: VehicleGroup) -> Floats:
    """Φ: the terms of a group's vehicles in each reward, (M, p)."""
    phi = np.zeros((len(trips.rewards), len(group.pull)))
    for vehicle in group.vehicles:
        place = group.place(vehicle)
        phi[:, place] = _terms_of_vehicle(trips, vehicle)
    return phi


def _reduce_prior(L: Floats, factor: Floats) -> Floats:
    """H = L⁻ᵀ (I − (I + G)⁻¹) L⁻¹, given a Cholesky factor of I + G."""
    identity = np.eye(len(L))
    factor_inverse = solve_lower(factor, identity)
    inverse = factor_inverse.T @ factor_inverse  # (I + G)⁻¹
    half = solve_lower(L, identity - inverse, transposed=True)
    half_transposed = np.ascontiguousarray(half.T)
    return solve_lower(L, half_transposed, transposed=True)
