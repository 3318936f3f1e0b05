"""The information of trips about slots and vehicles; the notation is that of :mod:`.engine`."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import Column, terms_of, vehicles_of

from .log import Trips
from .noise import TripNoise
from .slots import Slots
from .vehicles import VehicleGroups, group_vehicles

_P = len(TERMS)


def residuals(trips: Trips) -> Floats:
    """y − expected, (M,)."""
    return trips.rewards - trips.summed(trips.keys[:, Column.EXPECTED])


# --- about slots ---------------------------------------------------------------------------


def slot_information(
    slots: Slots, noise: TripNoise, trips: Trips
) -> tuple[Floats, Floats]:
    """A R⁻¹ Aᵀ, (s, s), and A R⁻¹ (y − expected), (s,)."""
    from scipy.sparse import csr_array

    residual = residuals(trips)
    A = slots.sums(trips)
    if trips.borders:
        return _with_borders(A.tocsc(), noise, trips, residual)
    weight, shared, inner = noise.woodbury(trips)
    # W F (I + Fᵀ W F)^(−½), block by block, as a sparse (M, 5·trips) matrix.
    weighted = weight[:, None] * shared  # W F, (M, 5)
    factors = np.linalg.cholesky(inner)[trips.trip]  # (M, 5, 5)
    half = np.linalg.solve(factors, weighted[:, :, None])[:, :, 0]
    rows = np.repeat(np.arange(len(weight)), _P)
    columns = trips.trip[:, None] * _P + np.arange(_P)
    shape = (len(weight), trips.number * _P)
    blocks = csr_array((half.ravel(), (rows, columns.ravel())), shape=shape)
    low_rank = A @ blocks
    information = (A * weight) @ A.T - low_rank @ low_rank.T
    pull = A @ noise.solve(trips, residual)
    return np.asarray(information.toarray()), np.asarray(pull)


def _with_borders(
    A: Any, noise: TripNoise, trips: Trips, residual: Floats
) -> tuple[Floats, Floats]:
    """The same where T is not diagonal: trip by trip, over the slots that it touches."""
    size = A.shape[0]
    information = np.zeros((size, size))
    pull = np.zeros(size)
    for rows, root in noise.roots(trips):
        part = A[:, rows]
        touched = np.unique(part.indices)
        white = root.whiten(part[touched].toarray().T)  # (k, u)
        white_residual = root.whiten(residual[rows, None])[:, 0]
        information[np.ix_(touched, touched)] += white.T @ white
        pull[touched] += white.T @ white_residual
    return information, pull


# --- about vehicles ------------------------------------------------------------------------


def vehicle_information(slots: Slots, noise: TripNoise, trips: Trips) -> VehicleGroups:
    """The groups of the vehicles of these trips; all roads have slots."""
    vehicles, whose = np.unique(vehicles_of(trips.keys), return_inverse=True)
    phi = _by_vehicle(trips.of, whose, terms_of(trips.keys), _shape(trips, vehicles))
    weighted = _weighted_terms(noise, trips, vehicles, whose)  # R⁻¹ Φ
    cross = slots.sums(trips) @ weighted
    pull = np.asarray(weighted.T @ residuals(trips))
    return group_vehicles(vehicles, cross, phi.T @ weighted, pull)


def _weighted_terms(noise: TripNoise, trips: Trips, vehicles: Ints, whose: Ints) -> Any:
    """R⁻¹ Φ, sparse (M, 5 V).

    R⁻¹ mixes the vehicles of a trip. So it is multiplied with the terms of the first vehicle of every
    trip, then of the second, and so on: a few products of five columns.
    """
    from scipy.sparse import csr_array

    V = len(vehicles)
    terms = terms_of(trips.keys)
    pairs, pair = np.unique(trips.trip[trips.of] * V + whose, return_inverse=True)
    trip_of_pair = pairs // V
    vehicle_of_pair = pairs % V
    # Of each pair: how many vehicles of its trip come before.
    rank = np.arange(len(pairs)) - np.searchsorted(trip_of_pair, trip_of_pair)
    weighted = csr_array(_shape(trips, vehicles))
    for number in range(int(rank.max(initial=-1)) + 1):
        arms = rank[pair] == number
        values = noise.solve(trips, trips.summed(terms * arms[:, None]))  # (M, 5)
        vehicle_of_trip = np.full(trips.number, -1, dtype=np.intp)
        chosen = rank == number
        vehicle_of_trip[trip_of_pair[chosen]] = vehicle_of_pair[chosen]
        vehicle_of_reward = vehicle_of_trip[trips.trip]
        rewards = np.flatnonzero(vehicle_of_reward >= 0)
        weighted = weighted + _by_vehicle(
            rewards,
            vehicle_of_reward[rewards],
            values[rewards],
            _shape(trips, vehicles),
        )
    return weighted


def _shape(trips: Trips, vehicles: Ints) -> tuple[int, int]:
    return len(trips.rewards), _P * len(vehicles)


def _by_vehicle(
    rewards: Ints, whose: Ints, values: Floats, shape: tuple[int, int]
) -> Any:
    """Terms of vehicles, (m, 5), as a sparse matrix of rewards by vehicles' terms."""
    from scipy.sparse import csr_array

    rows = np.repeat(rewards, _P)
    columns = _P * whose[:, None] + np.arange(_P)
    return csr_array((values.ravel(), (rows, columns.ravel())), shape=shape)
