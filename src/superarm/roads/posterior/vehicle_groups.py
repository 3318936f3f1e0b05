"""All groups of vehicles, each of which is known apart from the others given the slots."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_features
from superarm.roads.energy.scales import TERMS

from .vehicles import VehicleGroup, merge_groups

_P = len(TERMS)
_MANY_ROADS = 8  # a group that touches more than 1/8 of the slots uses dense products
_DAMAGED = 1e-6  # share by which rounding may make an eigenvalue negative


class SlotBlock(NamedTuple):
    """Rows of a matrix at some slots."""

    slots: Ints  # (k,)
    values: Floats  # (k, p)


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
        known = self.groups_of(group.vehicles)
        merged = group
        if known:
            merged = merge_groups([*known, group])
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

    def groups_of(self, vehicles: Iterable[int]) -> list[VehicleGroup]:
        """The groups of these vehicles, each once; vehicles that were not driven yet have none."""
        by_vehicle = self._by_vehicle
        driven = [vehicle for vehicle in vehicles if vehicle in by_vehicle]
        return _distinct(by_vehicle[vehicle] for vehicle in driven)

    # --- all at once ------------------------------------------------------------------------

    def eliminate(
        self,
        prior: Floats,
        information: Floats,
        pull: Floats,
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
        sparse: list[SlotBlock] = []
        for group in self.all():
            slots = group.slots
            S = group.covariance(prior)
            mean = S @ group.pull
            pull[slots] -= group.cross @ mean
            half = group.cross @ np.linalg.cholesky(S)  # C S^½, (k, p)
            # Dense products are faster for a vehicle of many roads.
            if len(slots) > size // _MANY_ROADS:
                information[np.ix_(slots, slots)] -= half @ half.T
            else:
                sparse.append(SlotBlock(slots, half))
        if sparse:
            low_rank = _side_by_side(sparse, size)
            information -= (low_rank @ low_rank.T).toarray()
        return information, pull

    def information(self, prior: Floats) -> float:
        """½ ln det(I + V Φᵀ R⁻¹ Φ) over all groups, nats."""
        total = 0.0
        for group in self.all():
            inner = group.scaled_information(prior).inner
            log_determinant = np.linalg.slogdet(inner).logabsdet
            total += 0.5 * float(log_determinant)
        return total

    # --- as arrays --------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All groups, one after another, by name for a state."""
        groups = self.all()
        vehicles: list[int] = []
        for group in groups:
            vehicles += group.vehicles
        vehicle_counts = [len(group.vehicles) for group in groups]
        slot_counts = [len(group.slots) for group in groups]
        return {
            "vehicles": np.array(vehicles, dtype=np.intp),
            "group_vehicles": np.array(vehicle_counts, dtype=np.intp),
            "group_slots": np.array(slot_counts, dtype=np.intp),
            "slots": _flattened([group.slots for group in groups], np.intp),
            "cross": _flattened([group.cross for group in groups]),
            "of_vehicles": _flattened([group.information for group in groups]),
            "pull": _flattened([group.pull for group in groups]),
        }

    @classmethod
    def from_arrays(cls, state: State, size: int, driven: Ints) -> VehicleGroups:
        """The inverse of :meth:`arrays`, or :class:`StateError`.

        Args:
            state: The saved state.
            size: How many slots there are.
            driven: Numbers of the vehicles that its trips name, sorted, (V,).
        """
        vehicles = state.positions("vehicles")
        vehicle_counts = state.positions("group_vehicles")
        slot_counts = state.positions("group_slots")
        slots = state.positions("slots")
        if len(vehicle_counts) != len(slot_counts):
            raise StateError(
                "this state is damaged: its groups of vehicles differ in number"
            )
        p = _P * vehicle_counts  # the width of each group
        cross = state.vector("cross", int(slot_counts @ p))
        information = state.vector("of_vehicles", int(p @ p))
        pull = state.vector("pull", int(p.sum()))
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
        for part in parts:
            groups.add(_restore_group(*part))
        return groups


def _restore_group(
    width: int,
    vehicles: Ints,
    slots: Ints,
    cross: Floats,
    information: Floats,
    pull: Floats,
) -> VehicleGroup:
    """A group from its flat arrays, or :class:`StateError`."""
    cross_rows = as_features(cross.reshape(-1, width), "cross")
    square = information.reshape(width, width)
    group = VehicleGroup(
        vehicles=tuple(vehicles.tolist()),
        slots=slots.copy(),
        cross=cross_rows.copy(),
        information=square.copy(),
        pull=pull.copy(),
    )
    _check_group(group)
    return group


def _distinct(groups: Iterable[VehicleGroup]) -> list[VehicleGroup]:
    """Each group once, in the order of their first occurrence."""
    by_identity = {id(group): group for group in groups}
    return list(by_identity.values())


def _side_by_side(blocks: list[SlotBlock], size: int) -> Any:
    """Blocks side by side as one sparse (s, Σ p) matrix."""
    from scipy.sparse import csr_array

    rows: list[Ints] = []
    columns: list[Ints] = []
    values: list[Floats] = []
    width = 0
    for block in blocks:
        count, p = block.values.shape
        block_columns = np.arange(width, width + p)
        rows.append(np.repeat(block.slots, p))
        columns.append(np.tile(block_columns, count))
        values.append(block.values.ravel())
        width += p
    places = (np.concatenate(rows), np.concatenate(columns))
    entries = np.concatenate(values)
    return csr_array((entries, places), shape=(size, width))


def _flattened(arrays: list[NDArray[Any]], dtype: Any = np.float64) -> NDArray[Any]:
    """All arrays, flat, one after another."""
    parts = [array.ravel() for array in arrays]
    if not parts:
        return np.empty(0, dtype=dtype)
    return np.concatenate(parts)


def _split(values: NDArray[Any], sizes: Ints) -> list[NDArray[Any]]:
    """Consecutive parts of these sizes."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [values[begin:end] for begin, end in pairwise(ends)]


def _check_group(group: VehicleGroup) -> None:
    """Raise :class:`StateError` where slots do not rise or the information is not positive."""
    information = group.information
    is_rising = (np.diff(group.slots) > 0).all()
    least = np.linalg.eigvalsh(information).min()
    largest = np.abs(information).max()
    if not is_rising or least < -_DAMAGED * largest:
        raise StateError(
            "this state is damaged: its information about a vehicle is impossible"
        )
