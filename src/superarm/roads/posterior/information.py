"""The information of trips about slots and vehicles; the notation is that of :mod:`.engine`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import Column, terms_of

from .grouping import group_vehicles
from .noise import TripNoise, Woodbury
from .slots import Slots
from .trips import Drivers, Trips
from .vehicle_groups import VehicleGroups

_P = len(TERMS)
_OFFSETS = np.arange(_P)  # of the columns of a trip's or a vehicle's terms


def residuals(trips: Trips) -> Floats:
    """y − expected, (M,)."""
    expected = trips.summed(trips.keys[:, Column.EXPECTED])
    return trips.rewards - expected


# --- about slots ---------------------------------------------------------------------------


class SlotInformation(NamedTuple):
    """What trips contain about the slots."""

    matrix: Floats  # A R⁻¹ Aᵀ, (s, s)
    pull: Floats  # A R⁻¹ (y − expected), (s,)


def slot_information(slots: Slots, noise: TripNoise, trips: Trips) -> SlotInformation:
    """The information of trips about slots; all their roads have slots."""
    A = slots.sums(trips)
    residual = residuals(trips)
    if trips.borders:
        return _with_borders(A.tocsc(), noise, trips, residual)
    woodbury = noise.woodbury(trips)
    # R⁻¹ = W − W F (I + Fᵀ W F)⁻¹ Fᵀ W
    low_rank = A @ _half_correction(woodbury, trips)
    weighted = A * woodbury.weight
    matrix = weighted @ A.T - low_rank @ low_rank.T
    pull = A @ noise.solve(trips, residual)
    return SlotInformation(
        matrix=np.asarray(matrix.toarray()),
        pull=np.asarray(pull),
    )


def _half_correction(woodbury: Woodbury, trips: Trips) -> Any:
    """W F (I + Fᵀ W F)^(−½), block by block, as a sparse (M, 5·trips) matrix."""
    from scipy.sparse import csr_array

    weight, shared, inner = woodbury
    count = len(weight)
    weighted = weight[:, None] * shared  # W F, (M, 5)
    factors = np.linalg.cholesky(inner)
    factor_of_reward = factors[trips.trip]  # (M, 5, 5)
    columns = weighted[:, :, None]
    half = np.linalg.solve(factor_of_reward, columns)
    values = half.ravel()
    rewards = np.arange(count)
    places = _places_of_terms(rewards, trips.trip)
    shape = (count, trips.number * _P)
    return csr_array((values, places), shape=shape)


def _with_borders(
    A: Any,
    noise: TripNoise,
    trips: Trips,
    residual: Floats,
) -> SlotInformation:
    """The same where T is not diagonal: trip by trip, over the slots that it touches."""
    size = A.shape[0]
    matrix = np.zeros((size, size))
    pull = np.zeros(size)
    for rows, root in noise.roots(trips):
        part = A[:, rows]
        touched = np.unique(part.indices)
        weights = part[touched].toarray().T  # (k, u)
        white = root.whiten(weights)
        white_residual = root.whiten(residual[rows, None])[:, 0]
        block = np.ix_(touched, touched)
        matrix[block] += white.T @ white
        pull[touched] += white.T @ white_residual
    return SlotInformation(matrix, pull)


# --- about vehicles ------------------------------------------------------------------------


def vehicle_information(slots: Slots, noise: TripNoise, trips: Trips) -> VehicleGroups:
    """The groups of the vehicles of these trips; all roads have slots."""
    drivers = trips.drivers
    terms = terms_of(trips.keys)
    shape = _shape(trips, drivers)
    phi = _by_vehicle(trips.reward_of_arm, drivers.of_arm, terms, shape)
    weighted = _weighted_terms(noise, trips, drivers)  # R⁻¹ Φ
    A = slots.sums(trips)
    residual = residuals(trips)
    return group_vehicles(
        drivers.vehicles,
        cross=A @ weighted,
        information=phi.T @ weighted,
        pull=np.asarray(weighted.T @ residual),
    )


def _weighted_terms(noise: TripNoise, trips: Trips, drivers: Drivers) -> Any:
    """R⁻¹ Φ, sparse (M, 5 V).

    R⁻¹ mixes the vehicles of a trip. So it is multiplied with the terms of the first vehicle of every
    trip, then of the second where there is one, and so on: a few products of five columns.
    """
    pairs = _trip_vehicle_pairs(trips, drivers)
    vehicles_of_trip = np.bincount(pairs.trip, minlength=trips.number)
    rewards_by_rank = []
    vehicles_by_rank = []
    values_by_rank = []
    for rank in range(int(vehicles_of_trip.max(initial=0))):
        has_rank = vehicles_of_trip > rank
        rewards = np.flatnonzero(has_rank[trips.trip])
        vehicle_of_trip = pairs.vehicles_of_rank(rank, trips.number)
        rewards_by_rank.append(rewards)
        vehicles_by_rank.append(vehicle_of_trip[trips.trip[rewards]])
        values_by_rank.append(_weighted_of_rank(noise, trips, pairs, rank, has_rank))
    no_numbers = np.empty(0, np.intp)
    no_values = np.empty((0, _P))
    return _by_vehicle(
        np.concatenate([no_numbers, *rewards_by_rank]),
        np.concatenate([no_numbers, *vehicles_by_rank]),
        np.concatenate([no_values, *values_by_rank]),
        _shape(trips, drivers),
    )


def _weighted_of_rank(
    noise: TripNoise,
    trips: Trips,
    pairs: _TripVehiclePairs,
    rank: int,
    has_rank: Bools,
) -> Floats:
    """R⁻¹ times the terms of the vehicle of this rank of each trip that has one, (m, 5).

    Args:
        noise: R.
        trips: All trips.
        pairs: Their vehicles.
        rank: Which of its vehicles.
        has_rank: Whether a trip has so many, (t,).
    """
    is_driven = pairs.rank[pairs.pair_of_arm] == rank
    if not has_rank.all():
        trip_of_arm = trips.trip[trips.reward_of_arm]
        is_driven = is_driven[has_rank[trip_of_arm]]
        trips = trips.chosen(has_rank)
    terms = terms_of(trips.keys)
    summed = trips.summed(terms * is_driven[:, None])
    return noise.solve(trips, summed)


class _TripVehiclePairs(NamedTuple):
    """Pairs of a trip and one of its vehicles, sorted, P of them."""

    trip: Ints  # (P,)
    vehicle: Ints  # (P,)
    rank: Ints  # how many vehicles of its trip come before, (P,)
    pair_of_arm: Ints  # (N,)

    def vehicles_of_rank(self, rank: int, trips: int) -> Ints:
        """The vehicle of this rank of each trip, −1 where it has none, (trips,)."""
        vehicle_of_trip = np.full(trips, -1, dtype=np.intp)
        chosen = self.rank == rank
        chosen_trips = self.trip[chosen]
        vehicle_of_trip[chosen_trips] = self.vehicle[chosen]
        return vehicle_of_trip


def _trip_vehicle_pairs(trips: Trips, drivers: Drivers) -> _TripVehiclePairs:
    trip_of_arm = trips.trip[trips.reward_of_arm]
    vehicles = len(drivers.vehicles)
    codes = trip_of_arm * vehicles + drivers.of_arm
    pairs, pair_of_arm = np.unique(codes, return_inverse=True)
    trip = pairs // vehicles
    vehicle = pairs % vehicles
    numbers = np.arange(len(pairs))
    first_of_trip = np.searchsorted(trip, trip)
    rank = numbers - first_of_trip
    return _TripVehiclePairs(trip, vehicle, rank, pair_of_arm)


def _shape(trips: Trips, drivers: Drivers) -> tuple[int, int]:
    """Of a matrix of rewards by vehicles' terms."""
    rewards = len(trips.rewards)
    vehicles = len(drivers.vehicles)
    return rewards, _P * vehicles


def _by_vehicle(
    rewards: Ints,
    vehicles: Ints,
    values: Floats,
    shape: tuple[int, int],
) -> Any:
    """Terms of vehicles, (m, 5), as a sparse matrix of rewards by vehicles' terms."""
    from scipy.sparse import csr_array

    places = _places_of_terms(rewards, vehicles)
    return csr_array((values.ravel(), places), shape=shape)


def _places_of_terms(rows: Ints, blocks: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of five terms each, in a matrix of blocks of five columns, (5 m,) each."""
    repeated_rows = np.repeat(rows, _P)
    first_columns = _P * blocks[:, None]
    columns = first_columns + _OFFSETS
    return repeated_rows, columns.ravel()
