"""The order of the normals of a joint draw, which saved states preserve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Ints, State
from superarm.core.errors import StateError
from superarm.roads.energy.scales import TERMS

_P = len(TERMS)
_OFFSETS = np.arange(_P)  # of a vehicle's terms from its first place


class DrawOrder(NamedTuple):
    """Places of the fleet's and of each vehicle's terms among the normals of a draw.

    Vehicles once had slots of their own. Draws still follow that order, so that a saved state gives
    the same draws: first 5 places for the fleet; then, with every update, 5 for each new vehicle and
    one (unused, as roads are drawn separately) for each new road.
    """

    size: int = _P
    first_places: Mapping[int, int] = {}  # by vehicle; never changed in place

    def __deepcopy__(self, memo: dict[int, Any]) -> DrawOrder:
        return self

    def places(self, vehicle: int) -> Ints:
        """Places of the terms of a vehicle, (5,)."""
        return self.first_places[vehicle] + _OFFSETS

    def after(self, vehicles: list[int], new_roads: int) -> DrawOrder:
        """The order after an update with these vehicles and so many new roads."""
        size = self.size
        new_places: dict[int, int] = {}
        for vehicle in vehicles:
            if vehicle not in self.first_places:
                new_places[vehicle] = size
                size += _P
        first_places = self.first_places
        if new_places:
            first_places = {**first_places, **new_places}
        return DrawOrder(size + new_roads, first_places)

    # --- as arrays --------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The first places, in the order of the vehicles' numbers."""
        by_vehicle = self.first_places
        vehicles = sorted(by_vehicle)
        first_places = [by_vehicle[vehicle] for vehicle in vehicles]
        places = np.array(first_places, dtype=np.intp)
        return {"places": places}

    @classmethod
    def from_arrays(cls, state: State, driven: Ints, roads: int) -> DrawOrder:
        """The inverse of :meth:`arrays`, or :class:`StateError`.

        Args:
            state: The saved state.
            driven: Numbers of the vehicles, sorted, (V,).
            roads: How many roads were visited.
        """
        places = state.positions("places")
        vehicles = len(driven)
        size = _P + _P * vehicles + roads
        gaps = np.diff(np.sort(places), prepend=0, append=size)
        has_room = gaps >= _P
        if len(places) != vehicles or not has_room.all():
            raise StateError(
                "this state is damaged: its vehicles' places in a draw overlap"
            )
        return cls(size, _by_vehicle(driven, places))

    @classmethod
    def from_slots(cls, state: State, size: int) -> DrawOrder:
        """The order of an old state, in which vehicles had slots; the caller has checked it."""
        vehicles = state.array("vehicles")
        first_places = state.array("first")
        return cls(size, _by_vehicle(vehicles, first_places))


def _by_vehicle(vehicles: Ints, places: Ints) -> dict[int, int]:
    pairs = zip(vehicles.tolist(), places.tolist(), strict=True)
    return dict(pairs)
