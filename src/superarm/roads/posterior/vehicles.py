"""How vehicles differ from the fleet, given what is unknown of roads and fleet.

Vehicles are many, and each is driven on few roads. So their terms w_v are no slots of the engine: they
are eliminated, which is exact. With Φ the terms of a vehicle's rewards, V the prior variance of w_v and
R the noise, w_v given the slots x and the rewards y is normal, with

    covariance  S = (V⁻¹ + Φᵀ R⁻¹ Φ)⁻¹   and   mean  S (Φᵀ R⁻¹ (y − expected) − (A R⁻¹ Φ)ᵀ x).

A new reward φ·w_v + … is therefore a sum of slots, a known number and noise of variance φᵀ S φ: what a
trip costs to learn does not depend on how many vehicles there are.

=============  =======================================================================
``g``, ``p``   vehicles of a group and its terms, p = 5 g
``k``          slots that the group's rewards depended on
``P``          pairs of a group and one of its slots, over all groups
=============  =======================================================================

Vehicles that were part of one trip, or of one sum, depend on each other: they are a group. As a rule
each vehicle is a group by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS

_P = len(TERMS)


class ScaledInformation(NamedTuple):
    """The information of a group about its terms as multiples of their prior."""

    root: Floats  # √V, (p,)
    inner: Floats  # I + √V Φᵀ R⁻¹ Φ √V, (p, p)


class VehicleGroup(NamedTuple):
    """What the rewards of some vehicles contain about their terms.

    Groups are never changed, only replaced, so copies of a posterior share them.
    ``VehicleGroups.add`` makes their arrays read-only.
    """

    vehicles: tuple[int, ...]
    slots: Ints  # (k,), rising
    cross: Floats  # A R⁻¹ Φ at these slots, (k, p)
    information: Floats  # Φᵀ R⁻¹ Φ, (p, p)
    pull: Floats  # Φᵀ R⁻¹ (y − expected), (p,)

    def scaled_information(self, prior: Floats) -> ScaledInformation:
        """The information given the variances of one vehicle's terms, (5,)."""
        V = np.tile(prior, len(self.vehicles))
        root = np.sqrt(V)
        inner = root[:, None] * self.information * root
        diagonal = np.diag_indices_from(inner)
        inner[diagonal] += 1.0
        return ScaledInformation(root, inner)

    def covariance(self, prior: Floats) -> Floats:
        """S, (p, p); ``prior`` are the variances of one vehicle's terms, (5,)."""
        root, inner = self.scaled_information(prior)
        inverse = np.linalg.inv(inner)
        S: Floats = root[:, None] * inverse * root
        symmetric = 0.5 * (S + S.T)
        return np.asarray(symmetric)

    def draw(self, prior: Floats, normals: Floats, pull: Floats) -> Floats:
        """S (V⁻¹ z − pull), (p,), for the prior draw z = √V · normals; some of V may be 0."""
        root, inner = self.scaled_information(prior)
        scaled = normals - root * pull
        solved = np.linalg.solve(inner, scaled)
        drawn: Floats = root * solved
        return drawn

    def freeze(self) -> VehicleGroup:
        """Make the arrays read-only; returns the group itself."""
        arrays = (self.slots, self.cross, self.information, self.pull)
        for values in arrays:
            values.setflags(write=False)
        return self

    def place(self, vehicle: int) -> slice:
        """Where this vehicle's terms are among the group's."""
        first = _P * self.vehicles.index(vehicle)
        return slice(first, first + _P)


def merge_groups(groups: Sequence[VehicleGroup]) -> VehicleGroup:
    """One group of several that share vehicles: their sum."""
    merged = _empty_union(groups)
    all_columns = np.arange(len(merged.pull))
    for group in groups:
        places = [merged.place(vehicle) for vehicle in group.vehicles]
        columns = np.concatenate([all_columns[place] for place in places])
        rows = np.searchsorted(merged.slots, group.slots)
        cross_block = np.ix_(rows, columns)
        information_block = np.ix_(columns, columns)
        merged.cross[cross_block] += group.cross
        merged.information[information_block] += group.information
        merged.pull[columns] += group.pull
    return merged


def _empty_union(groups: Sequence[VehicleGroup]) -> VehicleGroup:
    """A group of all their vehicles and slots without any information."""
    vehicles: dict[int, None] = {}  # each once, in order
    for group in groups:
        vehicles |= dict.fromkeys(group.vehicles)
    slots = groups[0].slots
    for group in groups[1:]:
        slots = np.union1d(slots, group.slots)
    p = _P * len(vehicles)
    return VehicleGroup(
        vehicles=tuple(vehicles),
        slots=slots,
        cross=np.zeros((len(slots), p)),
        information=np.zeros((p, p)),
        pull=np.zeros(p),
    )
