"""The information of trips about slots and vehicles; the notation is that of :mod:`.engine`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import Column, terms_of, vehicles_of

from .grouping import group_vehicles
from .noise import TripNoise, Woodbury
from .slots import Slots
from .trips import Trips
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
    return SlotInformation(np.asarray(matrix.toarray()), np.asarray(pull))


def _half_correction(woodbury: Woodbury, trips: Trips) -> Any:
    """W F (I + Fᵀ W F)^(−½), block by block, as a sparse (M, 5·trips) matrix."""
    from scipy.sparse import csr_array

    weight, shared, inner = woodbury
    count = len(weight)
    weighted = weight[:, None] * shared  # W F, (M, 5)
    factors = np.linalg.cholesky(inner)
    factor_of_reward = factors[trips.trip]  # (M, 5, 5)
    half = np.linalg.solve(factor_of_reward, weighted[:, :, None])[:, :, 0]
    rows = np.repeat(np.arange(count), _P)
    columns = trips.trip[:, None] * _P + _OFFSETS
    places = (rows, columns.ravel())
    shape = (count, trips.number * _P)
    return csr_array((half.ravel(), places), shape=shape)


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
    vehicles, whose = np.unique(vehicles_of(trips.keys), return_inverse=True)
    terms = terms_of(trips.keys)
    shape = (len(trips.rewards), _P * len(vehicles))
    phi = _by_vehicle(trips.reward_of_arm, whose, terms, shape)
    weighted = _weighted_terms(noise, trips, len(vehicles), whose)  # R⁻¹ Φ
    cross = slots.sums(trips) @ weighted
    information = phi.T @ weighted
    pull = np.asarray(weighted.T @ residuals(trips))
    return group_vehicles(vehicles, cross, information, pull)


def _weighted_terms(noise: TripNoise, trips: Trips, vehicles: int, whose: Ints) -> Any:
    """R⁻¹ Φ, sparse (M, 5 V), of V vehicles; ``whose`` is the vehicle of each arm, (N,).

    R⁻¹ mixes the vehicles of a trip. So it is multiplied with the terms of the first vehicle of every
    trip, then of the second, and so on: a few products of five columns.
    """
    from scipy.sparse import csr_array

    terms = terms_of(trips.keys)
    pairs = _trip_vehicle_pairs(trips, vehicles, whose)
    rank_of_arm = pairs.rank[pairs.pair_of_arm]
    most_vehicles = int(pairs.rank.max(initial=-1)) + 1  # of one trip
    shape = (len(trips.rewards), _P * vehicles)
    weighted = csr_array(shape)
    for rank in range(most_vehicles):
        is_driven = rank_of_arm == rank
        summed = trips.summed(terms * is_driven[:, None])
        values = noise.solve(trips, summed)  # (M, 5)
        vehicle_of_trip = pairs.vehicles_of_rank(rank, trips.number)
        vehicle_of_reward = vehicle_of_trip[trips.trip]
        rewards = np.flatnonzero(vehicle_of_reward >= 0)
        drivers = vehicle_of_reward[rewards]
        weighted = weighted + _by_vehicle(rewards, drivers, values[rewards], shape)
    return weighted


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
        vehicle_of_trip[self.trip[chosen]] = self.vehicle[chosen]
        return vehicle_of_trip


def _trip_vehicle_pairs(trips: Trips, vehicles: int, whose: Ints) -> _TripVehiclePairs:
    trip_of_arm = trips.trip[trips.reward_of_arm]
    codes = trip_of_arm * vehicles + whose
    pairs, pair_of_arm = np.unique(codes, return_inverse=True)
    trip = pairs // vehicles
    vehicle = pairs % vehicles
    first_pair_of_trip = np.searchsorted(trip, trip)
    rank = np.arange(len(pairs)) - first_pair_of_trip
    return _TripVehiclePairs(trip, vehicle, rank, pair_of_arm)


def _by_vehicle(
    rewards: Ints,
    whose: Ints,
    values: Floats,
    shape: tuple[int, int],
) -> Any:
    """Terms of vehicles, (m, 5), as a sparse matrix of rewards by vehicles' terms."""
    from scipy.sparse import csr_array

    rows = np.repeat(rewards, _P)
    first_columns = _P * whose[:, None]
    columns = first_columns + _OFFSETS
    places = (rows, columns.ravel())
    return csr_array((values.ravel(), places), shape=shape)
