"""What all problems on roads share: their parameters, roads, trip and model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from superarm.core import Arms, Direction, Floats
from superarm.core.capabilities import REGRET, AdditiveProblem, HasMetrics, Metric
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, require_choice
from superarm.core.road_map import RoadMap
from superarm.models.worlds import HasRoadMap, store
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import Vehicle
from superarm.roads.energy.vehicle import Recuperation
from superarm.roads.models import RoadModel
from superarm.roads.networks import LineGraph, road_map
from superarm.roads.networks.road import Uturns

from .road_loading import ROUTES, NamedTrip, Roads, is_level, trip_ends
from .road_models import TABLE_2, Normalisation, road_arms, road_model

MEASURES = {
    "regret": REGRET._replace(unit="Wh"),
    "true_energy": Metric("energy per trip", "Wh", "per round", "down", headline=True),
    "distinct_edges": Metric("distinct edges"),
}
"""What is measured on all roads."""
_UTURNS = {
    True: "",
    False: ", no U-turns",
    "dead-ends": ", U-turns where there is no other way on",
}


@lru_cache(maxsize=4)
def _oracle(graph: LineGraph) -> ShortestPath:
    return ShortestPath(successors=graph.turn_graph, on_no_path="empty")


class RoadWorld(AdditiveProblem, HasMetrics, HasRoadMap):
    """Arms are roads, and what they cost is minimised."""

    direction: ClassVar[Direction] = "minimize"
    distinct: ClassVar[str] = "distinct_edges"
    roads: Roads

    @property
    def graph(self) -> LineGraph:
        return self.roads.graph


@dataclass(frozen=True, kw_only=True, eq=False)
class RoadProblem(RoadWorld):
    """Trips between two edges, again and again.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        route: A route of the experiments, such as "monaco-a"; it sets network, start and goal.
        start: Id of the first edge; without it and ``goal``, two edges far apart are chosen.
        goal: Id of the last edge; without start and goal, two edges far apart are chosen.
        elevation: An SRTM tile, or a folder of them, whose heights replace those of the network.
        flat: Whether all roads are at one height, even if the network has heights.
        mass: Mass of the vehicle that drives, kg.
        auxiliary_power: Power for heating and the like, W.
        rolling_resistance: Coefficient of rolling resistance; higher on wet or rough roads.
        air_drag: Drag coefficient of the vehicle.
        air_density: Air density, kg/m³; higher in the cold.
        lengthscale: Lengthscale of the feature kernels, in the model and, if the truth is drawn, in the
            truth.
        normalisation: How the variance of the graph kernel is scaled: mean, unit or raw.
        prior_scale: Prior standard deviation, as a multiple of the standard deviation of all edges'
            energies.
        noise_scale: Standard deviation of the noise, as a multiple of the standard deviation of all
            edges' energies.
        uturns: Whether U-turns are allowed: true, false, or "dead-ends": only where no other turn
            leads on, so that no edge is lost.
    """

    seed: int
    horizon: int
    route: str | None = None
    network: str | None = None
    start: str | None = None
    goal: str | None = None
    elevation: str | None = None
    flat: bool = False
    mass: float = TABLE_2.mass
    auxiliary_power: float = TABLE_2.auxiliary_power
    rolling_resistance: float = TABLE_2.rolling_resistance
    air_drag: float = TABLE_2.air_drag
    air_density: float = TABLE_2.air_density
    lengthscale: float = 1.0
    normalisation: Normalisation = "mean"
    prior_scale: float = 0.25
    noise_scale: float = 0.1
    uturns: Uturns = True
    model: RoadModel = field(init=False, repr=False)
    interpretations: Mapping[str, str] = field(init=False, repr=False)
    vehicle: Vehicle = field(init=False, repr=False)  # that drives
    roads: Roads = field(init=False, repr=False)
    trip: Trip = field(init=False, repr=False)
    _arms: Arms = field(init=False, repr=False)

    def _named(self, otherwise: str) -> NamedTrip:
        """The trip that the parameters name, on the network ``otherwise`` where they name none."""
        if self.route is None:
            network = otherwise if self.network is None else self.network
            return NamedTrip(network, self.start, self.goal)
        require_choice(self.route, "route", tuple(ROUTES))
        named = (self.network, self.start, self.goal)
        if named != (None, None, None):
            raise InputError(
                f"route {self.route!r} names network, start and goal; leave these out"
            )
        return ROUTES[self.route]

    def _own_vehicle(self, recuperation: Recuperation = "multiply") -> Vehicle:
        """The vehicle that drives."""
        return Vehicle(
            mass=self.mass,
            auxiliary_power=self.auxiliary_power,
            rolling_resistance=self.rolling_resistance,
            air_drag=self.air_drag,
            air_density=self.air_density,
            recuperation=recuperation,
        )

    def _set_up(
        self, roads: Roads, named: NamedTrip, own: Vehicle, **model_options: Any
    ) -> None:
        """Store roads, trip and model; ``own`` drives, and options override the model's own."""
        as_count(self.horizon, "horizon", least=1)
        options: dict[str, Any] = {
            "vehicle": own,
            "horizon": self.horizon,
            "lengthscale": self.lengthscale,
            "normalisation": self.normalisation,
            "prior_scale": self.prior_scale,
            "noise_scale": self.noise_scale,
        }
        model = road_model(roads.graph, **(options | model_options))
        trip = trip_ends(roads.graph, named.start, named.goal)
        store(
            self,
            model=model,
            vehicle=own,
            roads=roads,
            trip=trip,
            _arms=road_arms(roads.graph),
        )

    def _interpret_roads(self) -> dict[str, str]:
        """What a report explains about the roads and the trip."""
        graph = self.graph
        start = graph.ids[self.trip.start]
        goal = graph.ids[self.trip.goal]
        if self.flat:
            heights = "flat: heights are left out"
        elif is_level(graph.network):
            heights = "flat: the network has no heights"
        else:
            heights = (
                "energies use the heights of the junctions, unclipped; the kernel's incline is "
                "rise / max(length, distance, 1 m)"
            )
        return {
            "data": self.roads.description,
            "route": f"from edge {start} to edge {goal}",
            "network": f"passenger edges, largest strongly connected part: {len(graph)} edges, "
            f"{len(graph.turns)} turns{_UTURNS[self.uturns]}",
            "heights": heights,
        }

    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, to draw on."""
        return road_map(self.graph, self.trip.start, self.trip.goal)

    def cheapest(self, costs: Floats, trip: Trip | None = None) -> list[int]:
        """The route of least cost; empty where there is none.

        Args:
            costs: Cost of each road, (n,); roads of infinite cost are closed.
            trip: The trip; by default that of the problem.
        """
        rng = np.random.default_rng(0)  # the oracle does not use it
        oracle = _oracle(self.graph)
        desirability = np.negative(costs)
        route = oracle.select(desirability, trip or self.trip, rng)
        return [int(edge) for edge in route.positions]
