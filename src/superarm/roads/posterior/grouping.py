"""Groups of vehicles that were part of one trip, or of one sum; see :mod:`.vehicles` for the notation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS

from .vehicle_groups import VehicleGroups
from .vehicles import VehicleGroup

_TERMS_PER_VEHICLE = len(TERMS)


class _Membership(NamedTuple):
    """Which vehicle belongs to which group."""

    group: Ints  # of each vehicle, (V,)
    place: Ints  # of each vehicle among those of its group, (V,)
    sizes: Ints  # vehicles of each group, (groups,)
    order: Ints  # vehicles, group by group, (V,)

    @property
    def widths(self) -> Ints:
        """The number of columns of each group, (groups,)."""
        return _TERMS_PER_VEHICLE * self.sizes

    def group_of(self, columns: Ints) -> Ints:
        """The group of each column; a vehicle has one column for each of its terms."""
        vehicle = columns // _TERMS_PER_VEHICLE
        return self.group[vehicle]

    def column_in_group(self, columns: Ints) -> Ints:
        """Where each column is among those of its group."""
        vehicle = columns // _TERMS_PER_VEHICLE
        term = columns % _TERMS_PER_VEHICLE
        return _TERMS_PER_VEHICLE * self.place[vehicle] + term

    def split_by_group(self, vehicles: Ints) -> list[Ints]:
        """The numbers of the vehicles of each group."""
        bounds = np.cumsum(self.sizes)
        return np.split(vehicles[self.order], bounds[:-1])


class _Blocks:
    """One matrix for each group, in a row: groups may differ in size by orders of magnitude.

    Args:
        heights: Rows of each matrix, (groups,).
        widths: Columns of each matrix, (groups,).
    """

    def __init__(self, heights: Ints, widths: Ints) -> None:
        self._heights = heights
        self._widths = widths
        sizes = heights * widths
        self._bounds = np.concatenate([[0], np.cumsum(sizes)])
        self._values = np.zeros(self._bounds[-1])

    def set(self, group: Ints, row: Ints, column: Ints, values: Floats) -> None:
        """Set entries of the groups' matrices."""
        places = self._bounds[group] + row * self._widths[group] + column
        self._values[places] = values

    def of(self, group: int) -> Floats:
        """A copy of one group's matrix."""
        values = self._values[self._bounds[group] : self._bounds[group + 1]]
        shape = (int(self._heights[group]), int(self._widths[group]))
        return values.reshape(shape).copy()


class _CrossBlocks(NamedTuple):
    """A R⁻¹ Φ of all groups, over the pairs of a group and one of its slots."""

    blocks: _Blocks
    slots: Ints  # of all pairs, group by group
    bounds: list[int]  # pairs bounds[i] … bounds[i + 1] − 1 are those of group i

    def slots_of(self, group: int) -> Ints:
        """The slots of one group."""
        return self.slots[self.bounds[group] : self.bounds[group + 1]].copy()


def group_vehicles(
    vehicles: Ints,
    cross: Any,
    information: Any,
    pull: Floats,
) -> VehicleGroups:
    """Groups of vehicles that depend on each other; each vehicle has five columns.

    Args:
        vehicles: Numbers of the vehicles, (V,).
        cross: A R⁻¹ Φ, sparse (s, 5 V).
        information: Φᵀ R⁻¹ Φ, sparse (5 V, 5 V).
        pull: Φᵀ R⁻¹ (y − expected), (5 V,).
    """
    entries = information.tocoo()
    linked = entries.data != 0.0
    rows = entries.row[linked]
    columns = entries.col[linked]
    members = _membership(
        rows // _TERMS_PER_VEHICLE, columns // _TERMS_PER_VEHICLE, len(vehicles)
    )
    informations = _Blocks(members.widths, members.widths)
    informations.set(
        group=members.group_of(rows),
        row=members.column_in_group(rows),
        column=members.column_in_group(columns),
        values=entries.data[linked],
    )
    pulls = _Blocks(np.ones_like(members.sizes), members.widths)
    all_columns = np.arange(len(pull))
    pulls.set(
        group=members.group_of(all_columns),
        row=np.zeros_like(all_columns),
        column=members.column_in_group(all_columns),
        values=pull,
    )
    crosses = _cross_blocks(cross, members)
    groups = []
    for number, vehicle_numbers in enumerate(members.split_by_group(vehicles)):
        group = VehicleGroup(
            vehicles=tuple(vehicle_numbers.tolist()),
            slots=crosses.slots_of(number),
            cross=crosses.blocks.of(number),
            information=informations.of(number),
            pull=pulls.of(number)[0],
        )
        groups.append(group)
    return VehicleGroups(groups)


def _cross_blocks(cross: Any, members: _Membership) -> _CrossBlocks:
    entries = cross.tocoo()
    size, _ = cross.shape
    group = members.group_of(entries.col)
    codes = group.astype(np.int64) * size + entries.row
    # Pairs of a group and a slot, each once, sorted.
    pairs, pair = np.unique(codes, return_inverse=True)
    numbers = np.arange(len(members.sizes) + 1, dtype=np.int64)
    bounds = np.searchsorted(pairs, numbers * size)
    blocks = _Blocks(np.diff(bounds), members.widths)
    blocks.set(
        group=group,
        row=pair - bounds[group],
        column=members.column_in_group(entries.col),
        values=entries.data,
    )
    slots = pairs % size
    return _CrossBlocks(blocks, slots.astype(np.intp), bounds.tolist())


def _membership(first: Ints, second: Ints, count: int) -> _Membership:
    """Groups of vehicles 0 … ``count`` − 1, linked in pairs of first and second."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(first))
    places = (first, second)
    links = csr_array((ones, places), shape=(count, count))
    groups, labels = connected_components(links, directed=False)
    group: Ints = labels.astype(np.intp)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group, minlength=groups)
    begins = np.cumsum(sizes) - sizes  # of each group in ``order``
    begin_of_vehicle = np.repeat(begins, sizes)
    place = np.empty(count, dtype=np.intp)
    place[order] = np.arange(count) - begin_of_vehicle
    return _Membership(
        group=group,
        place=place,
        sizes=sizes,
        order=order,
    )
