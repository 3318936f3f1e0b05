"""Groups of vehicles that were part of one trip, or of one sum; see :mod:`.vehicles` for the notation."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS

from .vehicle_groups import VehicleGroups
from .vehicles import VehicleGroup

_P = len(TERMS)


class _Membership(NamedTuple):
    """Which vehicle belongs to which group."""

    groups: int
    group: Ints  # of each vehicle, (V,)
    place: Ints  # of each vehicle among those of its group, (V,)
    sizes: Ints  # vehicles of each group, (groups,)
    order: Ints  # vehicles, group by group, (V,)

    @property
    def widths(self) -> list[int]:
        """The number of columns of each group."""
        widths: list[int] = (_P * self.sizes).tolist()
        return widths

    def group_of(self, columns: Ints) -> Ints:
        """The group of each of the 5 V columns."""
        vehicle = columns // _P
        return self.group[vehicle]

    def column_in_group(self, columns: Ints) -> Ints:
        """Where each of the 5 V columns is among those of its group."""
        vehicle = columns // _P
        term = columns % _P
        return _P * self.place[vehicle] + term

    def split_by_group(self, vehicles: Ints) -> list[Ints]:
        """The numbers of the vehicles of each group."""
        ends = np.cumsum(self.sizes)
        return np.split(vehicles[self.order], ends[:-1])


class _CrossBlocks(NamedTuple):
    """A R⁻¹ Φ of all groups, over the P pairs of a group and one of its slots."""

    values: Floats  # (P, p) with p the width of the widest group
    slots: Ints  # (P,)
    ends: list[int]  # pairs ends[i] … ends[i + 1] − 1 are those of group i


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
    members = _membership(rows // _P, columns // _P, len(vehicles))
    widest = max(members.widths, default=0)

    information_blocks = np.zeros((members.groups, widest, widest))
    row_places = members.column_in_group(rows)
    column_places = members.column_in_group(columns)
    places = (members.group_of(rows), row_places, column_places)
    information_blocks[places] = entries.data[linked]

    pulls = np.zeros((members.groups, widest))
    all_columns = np.arange(len(pull))
    pull_places = members.column_in_group(all_columns)
    pulls[members.group_of(all_columns), pull_places] = pull

    cross_blocks = _cross_blocks(cross, members, widest)
    names = members.split_by_group(vehicles)
    groups = []
    for number, width in enumerate(members.widths):
        begin = cross_blocks.ends[number]
        end = cross_blocks.ends[number + 1]
        block = information_blocks[number, :width, :width]
        group = VehicleGroup(
            vehicles=tuple(names[number].tolist()),
            slots=cross_blocks.slots[begin:end].copy(),
            cross=cross_blocks.values[begin:end, :width].copy(),
            information=block.copy(),
            pull=pulls[number, :width].copy(),
        )
        groups.append(group)
    return VehicleGroups(groups)


def _cross_blocks(cross: Any, members: _Membership, widest: int) -> _CrossBlocks:
    entries = cross.tocoo()
    size, _ = cross.shape
    group_of_entry = members.group_of(entries.col)
    codes = group_of_entry.astype(np.int64) * size + entries.row
    # Pairs of a group and a slot, each once, sorted.
    pairs, pair = np.unique(codes, return_inverse=True)
    values = np.zeros((len(pairs), widest))
    columns = members.column_in_group(entries.col)
    values[pair, columns] = entries.data
    slots = pairs % size
    groups = np.arange(members.groups + 1, dtype=np.int64)
    ends = np.searchsorted(pairs, groups * size)
    return _CrossBlocks(
        values=values,
        slots=slots.astype(np.intp),
        ends=ends.tolist(),
    )


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
        groups=groups,
        group=group,
        place=place,
        sizes=sizes,
        order=order,
    )
