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

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_features, as_positions, as_vector
from superarm.roads.energy.scales import TERMS

_P = len(TERMS)
_MANY_ROADS = 8  # a group that touches more than 1/8 of the slots uses dense products
_DAMAGED = 1e-6  # share by which rounding may make an eigenvalue negative


class VehicleGroup(NamedTuple):
    """What the rewards of some vehicles contain about their terms.

    Groups are never changed, only replaced, so copies of a posterior share them.
    :meth:`VehicleGroups.add` makes their arrays read-only.
    """

    vehicles: tuple[int, ...]
    slots: Ints  # (k,), rising
    cross: Floats  # A R⁻¹ Φ at these slots, (k, p)
    information: Floats  # Φᵀ R⁻¹ Φ, (p, p)
    pull: Floats  # Φᵀ R⁻¹ (y − expected), (p,)

    def scaled_information(self, prior: Floats) -> tuple[Floats, Floats]:
        """√V, (p,), and I + √V Φᵀ R⁻¹ Φ √V, (p, p)."""
        root = np.sqrt(np.tile(prior, len(self.vehicles)))
        inner = root[:, None] * self.information * root
        inner[np.diag_indices_from(inner)] += 1.0
        return root, inner

    def covariance(self, prior: Floats) -> Floats:
        """S, (p, p); ``prior`` are the variances of one vehicle's terms, (5,)."""
        root, inner = self.scaled_information(prior)
        S: Floats = root[:, None] * np.linalg.inv(inner) * root
        return np.asarray(0.5 * (S + S.T))

    def draw(self, prior: Floats, normals: Floats, pull: Floats) -> Floats:
        """S (V⁻¹ z − pull), (p,), for the prior draw z = √V · normals; some of V may be 0."""
        root, inner = self.scaled_information(prior)
        drawn: Floats = root * np.linalg.solve(inner, normals - root * pull)
        return drawn

    def freeze(self) -> VehicleGroup:
        """Make the arrays read-only; returns the group itself."""
        for values in (self.slots, self.cross, self.information, self.pull):
            values.setflags(write=False)
        return self

    def place(self, vehicle: int) -> slice:
        """Where this vehicle's terms are among the group's."""
        first = _P * self.vehicles.index(vehicle)
        return slice(first, first + _P)


def merge_groups(groups: Sequence[VehicleGroup]) -> VehicleGroup:
    """One group of several that share vehicles: their sum."""
    vehicles: dict[int, None] = {}  # each once, in order
    for group in groups:
        vehicles |= dict.fromkeys(group.vehicles)
    slots = groups[0].slots
    for group in groups[1:]:
        slots = np.union1d(slots, group.slots)
    p = _P * len(vehicles)
    merged = VehicleGroup(
        vehicles=tuple(vehicles),
        slots=slots,
        cross=np.zeros((len(slots), p)),
        information=np.zeros((p, p)),
        pull=np.zeros(p),
    )
    for group in groups:
        places = [np.arange(p)[merged.place(vehicle)] for vehicle in group.vehicles]
        columns = np.concatenate(places)
        rows = np.searchsorted(slots, group.slots)
        merged.cross[np.ix_(rows, columns)] += group.cross
        merged.information[np.ix_(columns, columns)] += group.information
        merged.pull[columns] += group.pull
    return merged


class VehicleGroups:
    """The groups of all vehicles that were driven.

    Args:
        groups: Groups to begin with.
    """

    def __init__(self, groups: Iterable[VehicleGroup] = ()) -> None:
        self._by_vehicle: dict[int, VehicleGroup] = {}
        for group in groups:
            self.add(group)

    def get(self, vehicle: int) -> VehicleGroup | None:
        """The group of a vehicle; ``None`` if it was not driven yet."""
        return self._by_vehicle.get(vehicle)

    def add(self, group: VehicleGroup) -> None:
        """Add the information of more rewards."""
        known = self.of(group.vehicles)
        merged = merge_groups([*known, group]) if known else group
        merged.freeze()
        for vehicle in merged.vehicles:
            self._by_vehicle[vehicle] = merged

    def copy(self) -> VehicleGroups:
        """Another collection of the same groups."""
        other = VehicleGroups()
        other._by_vehicle = dict(self._by_vehicle)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> VehicleGroups:
        # Each trip is learned by a copy of the posterior: it must not cost more with every vehicle.
        return self.copy()

    def all(self) -> list[VehicleGroup]:
        """Each group once, in the order of their first vehicles' first trips."""
        return _distinct(self._by_vehicle.values())

    def of(self, vehicles: Iterable[int]) -> list[VehicleGroup]:
        """The groups of these vehicles, each once; vehicles that were not driven yet have none."""
        driven = [vehicle for vehicle in vehicles if vehicle in self._by_vehicle]
        return _distinct(self._by_vehicle[vehicle] for vehicle in driven)

    # --- all at once ------------------------------------------------------------------------

    def eliminate(
        self, prior: Floats, information: Floats, pull: Floats
    ) -> tuple[Floats, Floats]:
        """The information about slots where vehicles' terms are unknown, (s, s) and (s,).

        A R⁻¹ Aᵀ − Σ C S Cᵀ and A R⁻¹ (y − expected) − Σ C S pull, with C = A R⁻¹ Φ.

        Args:
            prior: Variances of one vehicle's terms, (5,).
            information: A R⁻¹ Aᵀ, (s, s).
            pull: A R⁻¹ (y − expected), (s,).
        """
        size = len(pull)
        information = information.copy()
        pull = pull.copy()
        sparse: list[tuple[Ints, Floats]] = []
        for group in self.all():
            S = group.covariance(prior)
            pull[group.slots] -= group.cross @ (S @ group.pull)
            half = group.cross @ np.linalg.cholesky(S)  # C S^½, (k, p)
            # Dense products are faster for a vehicle of many roads.
            if len(group.slots) > size // _MANY_ROADS:
                information[np.ix_(group.slots, group.slots)] -= half @ half.T
            else:
                sparse.append((group.slots, half))
        if sparse:
            low_rank = _side_by_side(sparse, size)
            information -= (low_rank @ low_rank.T).toarray()
        return information, pull

    def information(self, prior: Floats) -> float:
        """½ ln det(I + V Φᵀ R⁻¹ Φ) over all groups, nats."""
        total = 0.0
        for group in self.all():
            _, inner = group.scaled_information(prior)
            total += 0.5 * float(np.linalg.slogdet(inner)[1])
        return total

    # --- as arrays --------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All groups, one after another, by name for a state."""
        groups = self.all()
        vehicles = [vehicle for group in groups for vehicle in group.vehicles]
        vehicle_counts = [len(group.vehicles) for group in groups]
        slot_counts = [len(group.slots) for group in groups]
        return {
            "vehicles": np.array(vehicles, dtype=np.intp),
            "group_vehicles": np.array(vehicle_counts, dtype=np.intp),
            "group_slots": np.array(slot_counts, dtype=np.intp),
            "slots": _joined([group.slots for group in groups], np.intp),
            "cross": _joined([group.cross for group in groups], np.float64),
            "of_vehicles": _joined([group.information for group in groups], np.float64),
            "pull": _joined([group.pull for group in groups], np.float64),
        }

    @classmethod
    def from_arrays(cls, state: State, size: int, driven: Ints) -> VehicleGroups:
        """The inverse of :meth:`arrays`, or :class:`StateError`.

        Args:
            state: The saved state.
            size: How many slots there are.
            driven: Numbers of the vehicles that its trips name, sorted, (V,).
        """
        vehicles = as_positions(state.array("vehicles"), "vehicles")
        vehicle_counts = as_positions(state.array("group_vehicles"), "group_vehicles")
        slot_counts = as_positions(state.array("group_slots"), "group_slots")
        slots = as_positions(state.array("slots"), "slots")
        if len(vehicle_counts) != len(slot_counts):
            raise StateError(
                "this state is damaged: its groups of vehicles differ in number"
            )
        p = _P * vehicle_counts
        cross = as_vector(state.array("cross"), "cross", int(slot_counts @ p))
        information = as_vector(state.array("of_vehicles"), "of_vehicles", int(p @ p))
        pull = as_vector(state.array("pull"), "pull", int(p.sum()))
        if (
            not np.array_equal(np.sort(vehicles), driven)
            or (vehicle_counts < 1).any()
            or int(vehicle_counts.sum()) != len(vehicles)
            or int(slot_counts.sum()) != len(slots)
            or slots.max(initial=-1) >= size
        ):
            raise StateError(
                "this state is damaged: its vehicles are not those of its trips"
            )
        parts = zip(
            p.tolist(),
            _split(vehicles, vehicle_counts),
            _split(slots, slot_counts),
            _split(cross, slot_counts * p),
            _split(information, p * p),
            _split(pull, p),
            strict=True,
        )
        groups = cls()
        for width, members, its_slots, its_cross, its_information, its_pull in parts:
            group = VehicleGroup(
                vehicles=tuple(members.tolist()),
                slots=its_slots.copy(),
                cross=as_features(its_cross.reshape(-1, width), "cross").copy(),
                information=its_information.reshape(width, width).copy(),
                pull=its_pull.copy(),
            )
            _check_group(group)
            groups.add(group)
        return groups


def _distinct(groups: Iterable[VehicleGroup]) -> list[VehicleGroup]:
    """Each group once, in the order of their first occurrence."""
    by_identity = {id(group): group for group in groups}
    return list(by_identity.values())


def _side_by_side(blocks: list[tuple[Ints, Floats]], size: int) -> Any:
    """Blocks at some slots each, (k, p), as one sparse (s, Σ p) matrix."""
    from scipy.sparse import csr_array

    rows: list[Ints] = []
    columns: list[Ints] = []
    width = 0
    for slots, block in blocks:
        count, p = block.shape
        rows.append(np.repeat(slots, p))
        columns.append(np.tile(np.arange(width, width + p), count))
        width += p
    values = np.concatenate([block.ravel() for _, block in blocks])
    places = (np.concatenate(rows), np.concatenate(columns))
    return csr_array((values, places), shape=(size, width))


def _joined(arrays: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    """All arrays, flat, one after another."""
    empty = np.empty(0, dtype=dtype)
    return np.concatenate([empty, *(array.ravel() for array in arrays)])


def _split(values: NDArray[Any], sizes: Ints) -> list[NDArray[Any]]:
    """Consecutive parts of these sizes."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [values[begin:end] for begin, end in pairwise(ends)]


def _check_group(group: VehicleGroup) -> None:
    """Raise :class:`StateError` where slots do not rise or the information is not positive."""
    rising = (np.diff(group.slots) > 0).all()
    least = np.linalg.eigvalsh(group.information).min()
    if not rising or least < -_DAMAGED * np.abs(group.information).max():
        raise StateError(
            "this state is damaged: what it says of a vehicle is impossible"
        )


# --- building groups -----------------------------------------------------------------------


class _Membership(NamedTuple):
    """Which vehicle belongs to which group."""

    groups: int
    group: Ints  # of each vehicle, (V,)
    place: Ints  # of each vehicle among those of its group, (V,)
    sizes: Ints  # vehicles of each group, (groups,)
    order: Ints  # vehicles, group by group, (V,)

    def group_of(self, columns: Ints) -> Ints:
        """The group of each of the 5 V columns."""
        return self.group[columns // _P]

    def column_in_group(self, columns: Ints) -> Ints:
        """Where each of the 5 V columns is among those of its group."""
        return _P * self.place[columns // _P] + columns % _P


def group_vehicles(
    vehicles: Ints, cross: Any, information: Any, pull: Floats
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
    widest = _P * int(members.sizes.max(initial=0))

    blocks = np.zeros((members.groups, widest, widest))
    places = (members.column_in_group(rows), members.column_in_group(columns))
    blocks[members.group_of(rows), *places] = entries.data[linked]

    pulls = np.zeros((members.groups, widest))
    all_columns = np.arange(_P * len(vehicles))
    pulls[members.group_of(all_columns), members.column_in_group(all_columns)] = pull

    # Pairs of a group and a slot, each once, sorted.
    entries = cross.tocoo()
    size = cross.shape[0]
    pairs = members.group_of(entries.col).astype(np.int64) * size + entries.row
    distinct, pair = np.unique(pairs, return_inverse=True)
    values = np.zeros((len(distinct), widest))  # (P, p)
    values[pair, members.column_in_group(entries.col)] = entries.data
    slots = (distinct % size).astype(np.intp)
    first_pairs = np.arange(members.groups + 1, dtype=np.int64) * size
    ends = np.searchsorted(distinct, first_pairs).tolist()

    names = np.split(vehicles[members.order], np.cumsum(members.sizes)[:-1])
    groups = []
    for number, width in enumerate((_P * members.sizes).tolist()):
        of_group = slice(ends[number], ends[number + 1])
        groups.append(
            VehicleGroup(
                vehicles=tuple(names[number].tolist()),
                slots=slots[of_group].copy(),
                cross=values[of_group, :width].copy(),
                information=blocks[number, :width, :width].copy(),
                pull=pulls[number, :width].copy(),
            )
        )
    return VehicleGroups(groups)


def _membership(first: Ints, second: Ints, count: int) -> _Membership:
    """Groups of vehicles 0 … ``count`` − 1, linked in pairs of first and second."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    links = csr_array((np.ones(len(first)), (first, second)), shape=(count, count))
    groups, labels = connected_components(links, directed=False)
    group: Ints = labels.astype(np.intp)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group, minlength=groups)
    first_of_group = np.repeat(np.cumsum(sizes) - sizes, sizes)
    place = np.empty(count, dtype=np.intp)
    place[order] = np.arange(count) - first_of_group
    return _Membership(groups, group, place, sizes, order)
