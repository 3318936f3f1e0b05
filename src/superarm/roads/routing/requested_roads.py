"""The roads that the parameters of a router name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from superarm.core.errors import SpecError, StateError
from superarm.core.registry import kinds_of, require_kind, suggestion
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph, RoadNetwork, with_heights
from superarm.roads.networks.elevation import at_one_height
from superarm.roads.networks.road import Uturns
from superarm.roads.problems.road_loading import load_roads

from .battery import VEHICLE
from .learned_energies import FleetEnergies, LearnedEnergies, fixed_by_state

_ROADS = ("uturns", "edges", "city_seed", "flat")
_KINDS = {**kinds_of(load_roads), **kinds_of(Vehicle)}


class RequestedRoads(NamedTuple):
    """The roads that the parameters of a router name."""

    network: str | Path | RoadNetwork
    vehicle_class: str
    elevation: str | Path | None
    settings: Mapping[str, Any]

    def load(self, default_uturns: Uturns = "dead-ends") -> LineGraph:
        """The line graph of the roads.

        Args:
            default_uturns: Whether U-turns are allowed, where settings do not say.
        """
        settings: dict[str, Any] = {"uturns": default_uturns}
        for key in _ROADS:
            if key in self.settings:
                settings[key] = self.settings[key]
        if isinstance(self.network, RoadNetwork):
            return self._of_network(self.network, settings)
        # A path is not a name: "city" may be a folder.
        name = self.network
        if isinstance(name, Path):
            name = str(name.absolute())
        elevation = None if self.elevation is None else str(self.elevation)
        roads = load_roads(
            name,
            vehicle_class=self.vehicle_class,
            junctions=True,
            elevation=elevation,
            **settings,
        )
        return roads.graph

    def _of_network(
        self, network: RoadNetwork, settings: Mapping[str, Any]
    ) -> LineGraph:
        if self.elevation is not None:
            network = with_heights(network, self.elevation)
        if settings.get("flat", False):
            network = at_one_height(network)
        return network.line_graph(self.vehicle_class, uturns=settings["uturns"])


def find_roads(roads: RequestedRoads, learned: LearnedEnergies) -> LineGraph:
    """The roads on which energies were learned, among those that the network may mean.

    Args:
        roads: The roads that were asked for.
        learned: The energies.
    """
    refuse_vehicle_settings(roads.settings, learned)
    candidates: list[Uturns] = list(learned.uturns)
    if "uturns" in roads.settings:
        candidates = [roads.settings["uturns"]]
    first = candidates[0]
    graph = roads.load(default_uturns=first)
    mismatches: list[str] = []
    for uturns in candidates:
        if uturns != first:
            graph = graph.network.line_graph(roads.vehicle_class, uturns=uturns)
        mismatch = learned.mismatch(graph)
        if mismatch is None:
            return graph
        mismatches.append(mismatch)
    raise _other_roads(learned, mismatches[0])


def require_same_roads(graph: LineGraph, learned: LearnedEnergies) -> None:
    """Refuse energies that were learned on other roads.

    Args:
        graph: The roads.
        learned: The energies.
    """
    mismatch = learned.mismatch(graph)
    if mismatch is not None:
        raise _other_roads(learned, mismatch)


def _other_roads(learned: LearnedEnergies, mismatch: str) -> StateError:
    return StateError(
        f"{learned.label} was learned on another road network ({mismatch}). Pass the same network "
        "and elevation (--net, --elevation)"
    )


def refuse_vehicle_settings(
    settings: Mapping[str, Any], learned: LearnedEnergies
) -> None:
    """Refuse parameters of the vehicle, which a state fixes.

    Args:
        settings: Parameters of the roads and of the vehicle.
        learned: The energies of the state.
    """
    for key in settings:
        if key in _ROADS:
            continue
        if isinstance(learned, FleetEnergies):
            raise StateError(
                f"{learned.label} is a fleet's state, so you cannot set {key}; write it into the "
                "vehicle's file (--vehicle FILE)"
            )
        raise StateError(fixed_by_state(learned.label, key))


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that neither roads nor vehicles have, and values of another kind.

    Args:
        settings: Parameters of the roads and of the vehicle.
    """
    known = (*VEHICLE, *_ROADS)
    for key, value in settings.items():
        if key not in known:
            raise SpecError(
                f"a route has no setting {key!r}; {suggestion(key, known, 'it has')}"
            )
        if isinstance(value, list):
            raise SpecError(f"{key} must be one value, not a list, got {value!r}")
        require_kind(value, _KINDS[key], key)
