"""Navigation in SUMO: every trip is driven, and what each edge cost is the feedback.

The traveller's prior is that of :mod:`superarm.roads.problems.navigation`. The vehicle that drives may
be heavier, heat its cabin or meet wet roads, and it brakes for curves, lights and other cars; the
traveller does not know this. Neither the truth nor the best route is known: ``means`` is refused, and
regret is the energy above that of the prior's own route, driven in the same round's traffic.

A car that brakes wins energy on one edge which it spends again on the next. A trip's energy counts
neither (``motion="stored"``): what is in the car's motion counts as if it were still in the battery,
so that rectified costs do not charge for every stop what was won back before it, and nobody pays for
the speed at which a car leaves the last edge. Feedback, ``true_energy``, ``value`` and regret all are
this energy; with ``motion="spent"`` all are what the battery gave.

Heights are those of the SUMO network, lane by lane. With ``elevation`` they come from tiles, with
``flat`` there are none: every edge then climbs evenly by what its junctions differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np

from superarm.core import Best, Decision, Feedback, Floats, Offer, Rng
from superarm.core.capabilities import HorizonFree, Metric
from superarm.core.data_files import find, search_path
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, require_choice
from superarm.core.registry import register
from superarm.core.streams import Streams
from superarm.models.worlds import store
from superarm.roads.energy import Vehicle
from superarm.roads.networks.openstreetmap import OSM_FILES, kept_osm
from superarm.roads.networks.reading import SUMO_FILES
from superarm.roads.networks.records import Rebuildable
from superarm.roads.sumo import LONGEST_STEP, Drive, Driver, Traffic

from .road_loading import REAL_NETWORKS, load_roads
from .road_models import TABLE_2
from .road_problem import MEASURES, RoadProblem, RoadWorld

_MOST_DRIVES = 1024  # in memory: of 20 minutes each they take some 100 MB


class Driven(RoadWorld, Rebuildable, HorizonFree):
    """Trips are driven, and what roads cost is measured: nobody knows it beforehand.

    A driver in SUMO cannot be copied: copies drive with one of their own.
    """

    traffic: float
    traffic_reach: float
    moments: int

    def _traffic_near(self, routes: Iterable[Iterable[int]]) -> Traffic:
        """Other cars, between roads that end within ``traffic_reach`` of where one of these ends."""
        network = self.graph.network
        ends = network.head[self.graph.edges]  # junctions, (n,)
        x, y = network.junctions[ends, :2].T
        driven: set[int] = set()
        for route in routes:
            driven.update(int(edge) for edge in route)
        is_near = np.zeros(len(ends), dtype=bool)
        for edge in sorted(driven):
            distance = np.hypot(x - x[edge], y - y[edge])
            is_near |= distance <= self.traffic_reach
        near = np.flatnonzero(is_near)
        return Traffic(
            vehicles_per_hour=self.traffic,
            edges=tuple(self.graph.ids[edge] for edge in near),
            moments=self.moments,
        )

    @property
    def measures(self) -> Mapping[str, Metric]:
        return {
            **MEASURES,
            "duration": Metric("duration per trip", "s", "per round"),
            "stranded": Metric("stranded trips", better="down"),
        }

    def means(self, offer: Offer) -> NoReturn:
        raise InputError(
            "what roads cost here is measured, not known beforehand: there are no expected energies, "
            "and no policy that needs them can be played"
        )

    def truth(self, offer: Offer) -> None:
        return None

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        """None is added: chance is in vehicles, weather and traffic, the same for every policy."""
        return np.zeros(len(offer.arms))


@register("problem", "sumo-navigation")
@dataclass(frozen=True, kw_only=True, eq=False)
class SumoNavigation(RoadProblem, Driven):
    """Learn the route of least energy from ``start`` to ``goal`` by driving it in SUMO.

    Args:
        network: "luxembourg", "monaco" (by default), or the path of a SUMO network (.net.xml) or an
            OpenStreetMap extract (.osm), plain or packed.
        noise_scale: Standard deviation of the noise, in units of σ_det, that of all edges'
            energies. On Monaco, drives over one edge differ by 0.3 to 1 Wh, in traffic by 1.5 to
            1.9; 0.02·σ_det is 1.6. With ``motion="spent"`` they differ by 6 to 8 Wh, about
            0.1·σ_det.
        traffic: Other cars that depart per hour; with none, every trip of a route costs the same.
        traffic_reach: Other cars travel between roads within this many metres of the trip's two
            reference routes.
        moments: Number of states of the traffic in which rounds may begin; each round draws one of them.
        motion: Whether energy excludes what an edge put into the car's motion, or counts it as spent.
        cache: A file that caches drives for other policies, seeds and runs.
        step: Seconds of a time step in SUMO.
    """

    network: str | None = None
    traffic: float = 0.0
    traffic_reach: float = 500.0
    moments: int = 8
    motion: Literal["stored", "spent"] = "stored"
    cache: str | None = None
    step: float = LONGEST_STEP
    noise_scale: float = 0.02
    reference: tuple[int, ...] = field(init=False, repr=False)
    """The prior's route of least energy, by potentials: what regret is measured against."""
    _drive: Callable[..., Drive] = field(init=False, repr=False)
    _moments: Streams = field(init=False, repr=False)
    _unfinished: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        as_count(self.moments, "moments", least=1)
        require_choice(self.motion, "motion", ("stored", "spent"))
        as_number(self.traffic, "traffic", 0.0)
        as_number(self.traffic_reach, "traffic_reach", 0.0)
        named = self._named(otherwise="monaco")
        file = network_file(named.network, heights=not self._replaces_heights)
        source = named.network if named.network in REAL_NETWORKS else str(file)
        roads = load_roads(
            source, uturns=self.uturns, elevation=self.elevation, flat=self.flat
        )
        vehicle = self._own_vehicle()
        self._set_up(roads, named, vehicle, vehicle=TABLE_2)
        graph = self.graph
        reduced = self.model.energies - TABLE_2.potential(graph.rise)
        reference = self.cheapest(np.maximum(reduced, 0.0))
        fastest = self.cheapest(graph.travel_time)
        traffic = None
        # Empty roads are the same whatever the seed: seeds then share their drives.
        seed = 0
        if self.traffic:
            traffic = self._traffic_near([reference, fastest])
            seed = self.seed
        drive = drive_of(file, self.step, traffic, seed, self.cache)
        store(
            self,
            reference=tuple(reference),
            _drive=drive,
            _moments=Streams(self.seed, "offer"),
        )
        store(self, _unfinished=vehicle.energy(graph.length, graph.speed, graph.rise))
        store(self, interpretations=self._interpret())

    @property
    def _replaces_heights(self) -> bool:
        """Whether heights are not those of the SUMO network."""
        return self.elevation is not None or self.flat

    def _interpret(self) -> dict[str, str]:
        """What a report explains about the problem."""
        motion = (
            "energy counts what goes into the car's motion as spent, in feedback, metrics and "
            "regret alike"
        )
        if self.motion == "stored":
            motion = (
                "energy leaves out what is stored in the car's motion, in feedback, metrics and "
                "regret alike"
            )
        traffic = "none; signals run fixed programs"
        if self.traffic != 0.0:
            traffic = (
                f"{self.traffic:g} cars an hour between roads within {self.traffic_reach:g} m of the "
                f"prior's and the fastest route; each round begins at one of {self.moments} moments"
            )
        return {
            **self._interpret_roads(),
            "energy": f"driven in SUMO, class Energy/unknown, steps of {self.step:g} s; what is used "
            "inside a junction is charged to the edge just left",
            "motion": motion,
            "vehicle": _differences(self.vehicle) or "the one that the prior assumes",
            "traffic": traffic,
            "regret": "energy above that of the prior's most economical route, driven in the same "
            "round; negative where a better one was found",
            "stranded": "a trip that does not arrive is counted, and charged the energy model's value "
            "(for the vehicle that drives) on every edge not completed",
        }

    def offer(self, step: int) -> Offer:
        return Offer(step=step, arms=self._arms, structure=self.trip)

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        route = self._route(decision)
        energies, _ = self._energies(offer, route)
        energy_by_edge = dict(zip(route, energies.tolist(), strict=True))
        # The route is in the order of driving, positions in that of the choice.
        positions = decision.positions
        energies_as_chosen = [energy_by_edge[edge] for edge in positions.tolist()]
        rewards = np.array(energies_as_chosen)
        rewards += noise[positions]
        return Feedback(positions=positions, rewards=rewards)

    def value(self, offer: Offer, decision: Decision) -> float:
        route = self._route(decision)
        energies, _ = self._energies(offer, route)
        return float(energies.sum())

    def best(self, offer: Offer) -> Best:
        energies, _ = self._energies(offer, self.reference)
        return Best(float(energies.sum()))

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        route = self._route(decision)
        energies, drive = self._energies(offer, route)
        return {
            "true_energy": float(energies.sum()),
            "duration": drive.duration,
            "stranded": float(not drive.arrived),
        }

    def _energies(self, offer: Offer, route: tuple[int, ...]) -> tuple[Floats, Drive]:
        """What each edge of a route is charged this round, (k,), and the drive itself."""
        ids = tuple(self.graph.ids[edge] for edge in route)
        drive = self._drive(ids, moment=self._moment(offer.step))
        rise = None  # that of the SUMO network, lane by lane
        if self._replaces_heights:
            rise = self.graph.rise[list(route)]
        energies = drive.energies(self.vehicle, rise)
        if self.motion == "stored":
            energies -= drive.stored(self.vehicle)
        completed = drive.completed
        missing = list(route[completed:])
        energies[completed:] += self._unfinished[missing]
        return energies, drive

    def _moment(self, step: int) -> int:
        """The moment of the traffic at which a round begins."""
        rng = self._moments.at(step)
        count = self.moments if self.traffic else 1
        return int(rng.integers(count))

    def _route(self, decision: Decision) -> tuple[int, ...]:
        """The chosen arms as a route; as a rule they are in driving order."""
        chosen = tuple(decision.positions.tolist())
        if self._is_route(chosen):
            return chosen
        costs = np.full(len(self.graph), np.inf)
        costs[list(chosen)] = 1.0
        route = tuple(self.cheapest(costs))
        if not chosen or sorted(route) != sorted(chosen):
            start = self.graph.ids[self.trip.start]
            goal = self.graph.ids[self.trip.goal]
            raise InputError(
                f"the {len(chosen)} arms chosen are not a route from edge {start!r} "
                f"to {goal!r}, in the order of the road"
            )
        return route

    def _is_route(self, edges: tuple[int, ...]) -> bool:
        """Whether these edges lead from start to goal in this order, each driven once."""
        if not edges:
            return False
        has_repeats = len(set(edges)) < len(edges)
        starts_there = edges[0] == self.trip.start
        ends_there = edges[-1] == self.trip.goal
        if has_repeats or not (starts_there and ends_there):
            return False
        turns = self.graph.turns_between(edges)
        return bool((turns >= 0).all())


def _differences(vehicle: Vehicle) -> str:
    """How a vehicle differs from Table 2's, in words."""
    assumed = vars(TABLE_2)
    differences = []
    for name, value in vars(vehicle).items():
        if value != assumed[name]:
            differences.append(f"{name} {value:g}, not {assumed[name]:g}")
    return "; ".join(differences)


def network_file(network: str, *, heights: bool) -> Path:
    """The SUMO file of a network; one that is made of an OpenStreetMap extract is cached.

    Args:
        network: The name of a network, or the path of a file.
        heights: Whether a file that is made includes the heights of the extract.
    """
    if network in REAL_NETWORKS:
        return find(REAL_NETWORKS[network], ending=".net.xml.xz")
    if network.lower().endswith(OSM_FILES):
        return kept_osm(network, search_path()[-1] / "networks", heights=heights)
    if not network.endswith(SUMO_FILES):
        raise InputError(
            f"network is {network!r}; SUMO drives on {', '.join(REAL_NETWORKS)} or the path of a "
            f"SUMO network ({', '.join(SUMO_FILES)}) or an OpenStreetMap extract "
            f"({', '.join(OSM_FILES)}). netconvert makes a SUMO network of other files, and `osmium "
            "cat` an extract of .osm.pbf"
        )
    return Path(network)


@lru_cache(maxsize=4)
def drive_of(
    file: Path,
    step: float,
    traffic: Traffic | None,
    seed: int,
    cache: str | None,
    departures: tuple[float, ...] = (0.0,),
) -> Callable[..., Drive]:
    """A driver with a cache: the same route from the same moment is the same drive.

    Args:
        file: A SUMO network.
        step: Seconds of a time step.
        traffic: Other cars; ``None`` for empty roads.
        seed: Seed of the traffic.
        cache: A file that caches drives; ``None`` for none.
        departures: Seconds after the signals' programs began, one for each moment.
    """
    driver = Driver(
        file, step=step, traffic=traffic, seed=seed, departures=departures, cache=cache
    )
    return lru_cache(maxsize=_MOST_DRIVES)(driver.drive)
