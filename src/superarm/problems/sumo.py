"""Navigation in SUMO: every trip is driven, and what each edge cost is the feedback.

The traveller's prior is that of :mod:`superarm.problems.navigation`: eq. 8 of paper 000 with the
vehicle of Table 2, at constant speed on empty roads. The vehicle that drives may be heavier, heat its
cabin or meet wet roads, and it brakes for curves, lights and other cars. None of this is told.

There is no known truth, and no best route to be had: ``means`` is refused, and regret is the
energy above that of the prior's own route (of least energy by potentials), driven in the same
round's traffic. It is below zero where learning has found something better.

A car that brakes wins energy on one edge which it spends again on the next. The feedback books
neither (``motion="stored"``): what is in the car's motion counts as if it were still in the battery,
so that an edge costs what it loses, and rectified costs do not charge for every stop
what was won back before it. ``true_energy``, ``value`` and regret are what the battery gave.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from superarm.capabilities import AdditiveProblem, Measured, Metric
from superarm.core import Arms, Best, Decision, Direction, Feedback, Floats, Offer
from superarm.datasets import find
from superarm.errors import InputError
from superarm.inputs import as_count, as_number, require_choice
from superarm.models import RoadModel
from superarm.networks import LineGraph, RoadMap, Vehicle
from superarm.networks.driving import LONGEST_STEP, Drive, Driver, Traffic
from superarm.networks.road import made_again
from superarm.oracles import Trip
from superarm.registry import register
from superarm.streams import Streams

from .base import Mapped
from .road_models import (
    MEASURES,
    OF_THE_VEHICLE,
    REAL_NETWORKS,
    TABLE_2,
    Normalisation,
    cheapest,
    load_roads,
    named_trip,
    road_arms,
    road_model,
    told_of,
    trip_ends,
)

_FILES = (".net.xml", ".net.xml.gz", ".net.xml.xz")
_DRIVES_KEPT = 4096
"""Of 100 edges each they take some 10 MB."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Garage:
    """A driver and what it drove last: the same route from the same moment costs the same."""

    driver: Driver
    drives: OrderedDict[tuple[int, tuple[str, ...]], Drive] = field(default_factory=OrderedDict)
    """By moment and route, those asked for last at the end."""

    def drive(self, route: tuple[str, ...], moment: int) -> Drive:
        known = self.drives.get((moment, route))
        if known is None:
            known = self.drives[moment, route] = self.driver.drive(route, moment=moment)
            while len(self.drives) > _DRIVES_KEPT:
                self.drives.popitem(last=False)
        self.drives.move_to_end((moment, route))
        return known


@register("problem", "sumo-navigation")
@dataclass(frozen=True, kw_only=True, eq=False)
class SumoNavigation(AdditiveProblem, Measured, Mapped):
    """Learn the route of least energy from ``start`` to ``goal`` by driving it in SUMO."""

    seed: int
    horizon: int
    route: str | None = None
    """A route of the experiments, such as "monaco-a": names network, start and goal."""
    network: str | None = None
    """"luxembourg", "monaco" (where nothing is named), or the path of a SUMO network (.net.xml,
    plain or packed)."""
    start: str | None = None
    """Id of the first edge; without it and ``goal`` a far pair is chosen."""
    goal: str | None = None
    traffic: float = 0.0
    """Other cars that depart per hour; with none, every trip of a route costs the same."""
    traffic_reach: float = 500.0
    """Other cars travel between roads within so many metres of the trip's two reference routes."""
    moments: int = 8
    """From how many states of the traffic rounds begin; which one is redrawn each round."""
    mass: float = TABLE_2.mass
    """kg, of the vehicle that drives; this and what follows may differ from the prior's Table 2."""
    auxiliary_power: float = TABLE_2.auxiliary_power
    """W, for heating and the like."""
    rolling_resistance: float = TABLE_2.rolling_resistance
    """Higher on wet or rough roads."""
    air_drag: float = TABLE_2.air_drag
    air_density: float = TABLE_2.air_density
    """kg/m³; higher in the cold."""
    motion: Literal["stored", "spent"] = "stored"
    """Whether feedback leaves out what an edge put into the car's motion, or counts it as spent."""
    step: float = LONGEST_STEP
    """Seconds of a time step in SUMO."""
    lengthscale: float = 1.0
    normalisation: Normalisation = "mean"
    prior_scale: float = 0.25
    noise_scale: float = 0.02
    """On Monaco, drives over one edge differ by 0.3 to 1 Wh, in traffic by 1.5 to 1.9: 0.02·σ_det is
    1.6. With ``motion="spent"`` it is 6 to 8 Wh, the paper's 0.1."""
    uturns: bool = True
    model: RoadModel = field(init=False, repr=False)
    settled: Mapping[str, str] = field(init=False, repr=False)
    vehicle: Vehicle = field(init=False, repr=False)
    """The vehicle that drives."""
    graph: LineGraph = field(init=False, repr=False)
    trip: Trip = field(init=False, repr=False)
    reference: tuple[int, ...] = field(init=False, repr=False)
    """The prior's route of least energy, by potentials: what regret is measured against."""
    _arms: Arms = field(init=False, repr=False)
    _garage: _Garage = field(init=False, repr=False)
    _moments: Streams = field(init=False, repr=False)
    _unfinished: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        as_count(self.horizon, "horizon", least=1)
        as_count(self.moments, "moments", least=1)
        require_choice(self.motion, "motion", ("stored", "spent"))
        for name in ("traffic", "traffic_reach"):
            as_number(getattr(self, name), name, 0.0)
        named = named_trip(self.route, self.network, self.start, self.goal, otherwise="monaco")
        file = _network_file(named.network)
        roads = load_roads(named.network, uturns=self.uturns)
        graph = roads.graph
        trip = trip_ends(graph, named.start, named.goal)
        model = road_model(
            graph,
            TABLE_2,
            horizon=self.horizon,
            lengthscale=self.lengthscale,
            normalisation=self.normalisation,
            prior_scale=self.prior_scale,
            noise_scale=self.noise_scale,
        )
        vehicle = Vehicle(**{name: getattr(self, name) for name in OF_THE_VEHICLE})
        reduced = model.energies - TABLE_2.potential(graph.rise)
        reference = cheapest(graph, trip, np.maximum(reduced, 0.0))
        traffic = self._traffic(graph, {*reference, *cheapest(graph, trip, graph.travel_time)})
        streams = Streams(self.seed, "offer")
        for name, value in {
            "model": model,
            "vehicle": vehicle,
            "graph": graph,
            "trip": trip,
            "reference": tuple(reference),
            "_arms": road_arms(graph),
            # Empty roads are the same whatever the seed: seeds then share what they have driven.
            "_garage": _garage(file, vehicle, self.step, traffic, self.seed if traffic else 0),
            "_moments": streams,
            "_unfinished": vehicle.energy(graph.length, graph.speed, graph.rise),
            "settled": self._settled(told_of(roads, trip, uturns=self.uturns), vehicle),
        }.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> Any:  # a driver in SUMO is no data: copies drive with one of their own
        return made_again(self)

    def _traffic(self, graph: LineGraph, around: set[int]) -> Traffic | None:
        if self.traffic == 0.0:
            return None
        network = graph.network
        ends = network.junctions[network.head[graph.edges], :2]
        near = np.zeros(len(graph), dtype=bool)
        for edge in sorted(around):
            near |= np.hypot(*(ends - ends[edge]).T) <= self.traffic_reach
        edges = tuple(graph.ids[edge] for edge in np.flatnonzero(near))
        return Traffic(vehicles_per_hour=self.traffic, edges=edges, moments=self.moments)

    def _settled(self, told: dict[str, str], vehicle: Vehicle) -> dict[str, str]:
        different = [
            f"{name} {getattr(vehicle, name):g} for {getattr(TABLE_2, name):g}"
            for name in OF_THE_VEHICLE
            if getattr(vehicle, name) != getattr(TABLE_2, name)
        ]
        return {
            **told,
            "energy": f"driven in SUMO, class Energy/unknown, steps of {self.step:g} s; what is used "
            "inside a junction is charged to the edge just left",
            "motion": "feedback leaves out what is stored in the car's motion"
            if self.motion == "stored"
            else "feedback counts what goes into the car's motion as spent",
            "vehicle": "as in the prior, Table 2" if not different else ", ".join(different),
            "traffic": "none; signals run fixed programs"
            if self.traffic == 0.0
            else f"{self.traffic:g} cars an hour between roads within {self.traffic_reach:g} m of the "
            f"prior's and the fastest route; each round begins at one of {self.moments} moments",
            "regret": "energy above that of the prior's most economical route, driven in the same "
            "round; negative where a better one was found",
            "stranded": "a trip that does not arrive is charged eq. 8 of the vehicle that drives for "
            "every edge not completed, and counted",
        }

    @property
    def direction(self) -> Direction:
        return "minimize"

    @property
    def distinct(self) -> str:
        return "distinct_edges"

    @property
    def measures(self) -> Mapping[str, Metric]:
        return {
            **MEASURES,
            "duration": Metric("duration per trip", "s", "per round"),
            "stranded": Metric("stranded trips", better="down"),
        }

    def road_map(self) -> RoadMap:
        """The roads and the ends of the trip, to draw on."""
        return RoadMap.of(self.graph, self.trip.start, self.trip.goal)

    # --- rounds ----------------------------------------------------------------------------

    def offer(self, step: int) -> Offer:
        return Offer(step=step, arms=self._arms, structure=self.trip)

    def means(self, offer: Offer) -> NoReturn:
        raise InputError(
            "what roads cost in SUMO is measured, not known beforehand: sumo-navigation has no "
            "expected energies, and no policy that needs them can be played there"
        )

    def truth(self, offer: Offer) -> None:
        return None

    def noise(self, offer: Offer, rng: np.random.Generator) -> Floats:
        """None is added: chance is in the traffic, which is the same for every policy."""
        return np.zeros(len(offer.arms))

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        route = self._route(decision)
        energies, drive = self._energies(offer, route)
        if self.motion == "stored":
            energies -= drive.stored
        booked = dict(zip(route, energies.tolist(), strict=True))
        rewards = np.array([booked[arm] for arm in decision.positions.tolist()])
        return Feedback(positions=decision.positions, rewards=rewards + noise[decision.positions])

    def value(self, offer: Offer, decision: Decision) -> float:
        return float(self._energies(offer, self._route(decision))[0].sum())

    def best(self, offer: Offer) -> Best:
        return Best(float(self._energies(offer, self.reference)[0].sum()))

    def metrics(self, offer: Offer, decision: Decision, feedback: Feedback) -> Mapping[str, float]:
        energies, drive = self._energies(offer, self._route(decision))
        return {
            "true_energy": float(energies.sum()),
            "duration": drive.duration,
            "stranded": float(not drive.arrived),
        }

    def _energies(self, offer: Offer, route: tuple[int, ...]) -> tuple[Floats, Drive]:
        """What each edge of a route is charged this round, (k,), and the drive itself."""
        moment = int(self._moments.at(offer.step).integers(self._garage.driver.moments))
        drive = self._garage.drive(tuple(self.graph.ids[edge] for edge in route), moment)
        energies = drive.energy.copy()
        energies[drive.completed :] += self._unfinished[list(route[drive.completed :])]
        return energies, drive

    def _route(self, decision: Decision) -> tuple[int, ...]:
        """The chosen arms as a route: they come in the order of the road, as a rule."""
        given = tuple(decision.positions.tolist())
        turns, ends = self.graph.successors, (self.trip.start, self.trip.goal)
        ways = (turns.indices[turns.indptr[arm] : turns.indptr[arm + 1]] for arm in given)
        joined = all(after in way for way, after in zip(ways, given[1:], strict=False))
        if given and (given[0], given[-1]) == ends and len(set(given)) == len(given) and joined:
            return given
        costs = np.full(len(self.graph), np.inf)
        costs[list(given)] = 1.0
        route = tuple(cheapest(self.graph, self.trip, costs))
        if not given or sorted(route) != sorted(given):
            raise InputError(
                f"the {len(given)} arms chosen are not a route from edge {self.graph.ids[ends[0]]!r} "
                f"to {self.graph.ids[ends[1]]!r}, in the order of the road"
            )
        return route


def _network_file(network: str) -> Path:
    """The SUMO file of a network."""
    if network in REAL_NETWORKS:
        return find(REAL_NETWORKS[network], ending=".net.xml.xz")
    if not network.endswith(_FILES):
        raise InputError(
            f"network is {network!r}; SUMO drives on {', '.join(REAL_NETWORKS)} or the path of a SUMO "
            f"network ({', '.join(_FILES)}). netconvert makes one of OpenStreetMap files"
        )
    return Path(network)


@lru_cache(maxsize=4)
def _garage(file: Path, vehicle: Vehicle, step: float, traffic: Traffic | None, seed: int) -> _Garage:
    return _Garage(driver=Driver(file, vehicle=vehicle, step=step, traffic=traffic, seed=seed))
