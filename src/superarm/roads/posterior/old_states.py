"""States of the first version, in which vehicles had slots, too."""

from __future__ import annotations

import numpy as np

from superarm.core import Ints, State
from superarm.core.errors import StateError
from superarm.roads.energy.scales import TERMS

_P = len(TERMS)


def has_vehicle_slots(state: State) -> bool:
    """Whether vehicles have slots in this state."""
    return "first" in state.arrays


def slots_without_vehicles(state: State, size: int, driven: Ints) -> Ints:
    """Slots of fleet and roads in an old state, or :class:`StateError`.

    H over these slots is the same whether vehicles have slots or are eliminated.

    Args:
        state: The saved state.
        size: How many slots it has, those of vehicles included.
        driven: Numbers of the vehicles that its trips name, sorted, (V,).
    """
    vehicles = state.positions("vehicles")
    first = state.positions("first")
    road_slots = state.positions("at")
    fleet_slots = np.arange(_P)
    vehicle_slots = first[:, None] + np.arange(_P)
    slots = np.concatenate([fleet_slots, road_slots, vehicle_slots.ravel()])
    if (
        not np.array_equal(np.sort(vehicles), driven)
        or len(first) != len(vehicles)
        or not np.array_equal(np.sort(slots), np.arange(size))
    ):
        raise not_of_its_trips()
    return slots[: _P + len(road_slots)]


def not_of_its_trips() -> StateError:
    """The error of a state whose arrays do not match its trips."""
    return StateError(
        "this state is damaged: what it has learned is not from its trips"
    )
