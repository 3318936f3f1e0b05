"""One trip on a road network: by the energy model, or by what a run has learned.

=================  ====================================================================
``m``              expected energy of each edge, Wh, (n,): by ``Vehicle.energy``, or a posterior mean
``Δh``             what each edge changes in the height potential, Wh; see ``Vehicle.potential``
``ς``              standard deviation of the noise of one edge, Wh
``c``              the cost that a route minimises: max(0, m − Δh) with potential routing,
                   E[max(0, N(m, ς²))] with rectified routing (Algorithm 2 of
                   Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025))
=================  ====================================================================

Δh adds up to the same for every route between two edges. So potential routing finds the route of
least Σm itself, unless some m − Δh is below zero: those are cut off at zero, which makes an
edge cost more than is believed, and ``cut_edges`` counts them. The energy model has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Offer, Oracle, State
from superarm.errors import InputError, SpecError, StateError
from superarm.inputs import require_choice
from superarm.networks import LineGraph, RoadEnergy, RoadNetwork, Vehicle, with_heights
from superarm.networks.elevation import at_one_height
from superarm.normal import rectified_mean
from superarm.oracles import ShortestPath, Trip
from superarm.policies.base import IndexPolicy
from superarm.policies.navigation import Routing
from superarm.posteriors import Wrapping
from superarm.problems.road_models import RoadPrior, Roads, load_roads, road_arms, road_prior
from superarm.registry import Described, describe, difference, kinds_of, require_kind, suggestion
from superarm.core import LEVELS, QUANTILES
from superarm.simulation.trace import Run, cell_name, read_spec
from superarm.states import load_state, loaded

__all__ = ["NETWORKS", "Leg", "RouteAnswer", "TrackRecord", "find_route"]

NETWORKS = ("luxembourg", "monaco", "city")  # names that stand for a network; anything else is a path
INTERVAL = (
    "if the model is right, 95 of 100 such trips fall inside; it covers uncertainty about the roads "
    "and the noise of a single trip"
)
"""What the interval of an energy means."""
_HALF_WIDTH = float(QUANTILES[-1])  # of the central 95 % interval, in standard deviations
_VEHICLE = tuple(field.name for field in dataclasses.fields(Vehicle))
_ROADS = ("uturns", "edges", "city_seed", "flat")
_SCALES = ("prior_scale", "noise_scale")
_PARTS = (RoadPrior.total_variance, road_prior, load_roads, Vehicle)
_KINDS = {name: kind for part in _PARTS for name, kind in kinds_of(part).items()}
_NONE: Mapping[str, Any] = {}
_COMPLEX = np.array([1.0, 1.0j])
_ECCENTRICITY = 0.00669438  # of the earth, squared


@dataclass(frozen=True, kw_only=True, eq=False)
class Leg:
    """A way from start to goal, in sums."""

    edges: Ints  # numbers in the line graph, (k,)
    energy: float  # expected, Wh
    spread: float  # half-width of the 95 % interval, Wh
    length: float  # metres
    seconds: float  # at the speed limits
    climb: float  # metres of height gained, not counting what is lost again

    def as_json(self) -> dict[str, float]:
        return {
            "energy_wh": self.energy,
            "energy_low_wh": self.energy - self.spread,
            "energy_high_wh": self.energy + self.spread,
            "length_m": self.length,
            "travel_time_s": self.seconds,
            "climb_m": self.climb,
        }


class TrackRecord(NamedTuple):
    """How often the 95 % interval of a policy's own trips held, by the record of its run."""

    trips: int
    inside: float  # share of the trips

    @property
    def holds(self) -> bool:
        """Whether the share is at most three standard errors below 95 %."""
        level = LEVELS[-1]
        return self.inside >= level - 3.0 * float(np.sqrt(level * (1.0 - level) / self.trips))


@dataclass(frozen=True, kw_only=True, eq=False)
class RouteAnswer:
    """The route that was asked for, and two to compare it with."""

    roads: Roads
    trip: Trip
    routing: Routing
    means: Floats  # expected energy of the route's edges, Wh, (k,)
    best: Leg
    others: Mapping[str, Leg]  # the fastest and the shortest route
    observations: int  # how many energies of edges were measured; 0: the model alone
    cut_edges: int
    """Edges of the whole network that are believed to cost less than nothing (with potential
    routing: less than their height potential), and so cost more here than they are believed to."""
    record: TrackRecord | None
    """Of the policy whose state it is, where that lies in the directory of its run."""

    @property
    def graph(self) -> LineGraph:
        return self.roads.graph

    @property
    def flat(self) -> bool:
        """All junctions lie at one height: where the file has none, hills were not seen."""
        heights = self.graph.network.junctions[:, 2]
        return bool(heights.min() == heights.max())

    def ids(self) -> list[str]:
        """The ids of the route's edges, in order."""
        return [self.graph.ids[edge] for edge in self.best.edges]

    def as_json(self) -> dict[str, Any]:
        """One flat object, and the two routes to compare with."""
        return {
            "network": self.graph.network.name,
            "from": self.graph.ids[self.trip.start],
            "to": self.graph.ids[self.trip.goal],
            "edges": self.ids(),
            **self.best.as_json(),
            "interval": INTERVAL,
            "trips_judged": 0 if self.record is None else self.record.trips,
            "trips_inside": None if self.record is None else self.record.inside,
            "routing": self.routing,
            "cut_edges": self.cut_edges,
            "flat": self.flat,
            "observations": self.observations,
            "compared": {name: leg.as_json() for name, leg in self.others.items()},
        }

    def as_geojson(self) -> dict[str, Any]:
        """A FeatureCollection: the route as a line, longitude before latitude.

        It follows the bends of the roads where the network has them; elsewhere it goes straight from
        junction to junction.
        """
        line = _line(self.graph.network, self.graph.edges[self.best.edges])
        drawn = {"type": "LineString", "coordinates": line}
        feature = {"type": "Feature", "geometry": drawn, "properties": self.as_json()}
        return {"type": "FeatureCollection", "features": [feature]}


def find_route(
    network: str | Path | RoadNetwork,
    start: str,
    goal: str,
    *,
    state: str | Path | State | None = None,
    routing: Routing = "potential",
    elevation: str | Path | None = None,
    settings: Mapping[str, Any] = _NONE,
) -> RouteAnswer:
    """The route of least cost c (above) from edge ``start`` to edge ``goal``.

    ``network``: one that was read or made, the path of a file, or one of ``NETWORKS``.
    ``state``: what a policy has learned on this network, such as ``RUN/states/CELL.npz``. It brings its
    vehicle and its model with it; where energies drift, they are those of its next round.
    ``elevation``: an SRTM tile or a folder of them, whose heights replace the network's. ``settings``:
    of the roads (``uturns``, ``flat``) and, without a state, of the vehicle (``mass`` …) and the model
    (``noise_scale`` …).

    >>> from superarm.networks import generate_city
    >>> answer = find_route(generate_city(edges=300, seed=1), "r1", "r20", settings={"mass": 2100.0})
    >>> answer.ids()[0], answer.ids()[-1]
    ('r1', 'r20')
    >>> answer.best.energy <= min(leg.energy for leg in answer.others.values())
    True
    >>> answer.as_json()["cut_edges"]
    0
    """
    _check_settings(settings)
    require_choice(routing, "routing", ("rectified", "potential"))
    if state is None:
        roads = _load(network, elevation, settings)
        known = _by_model(roads.graph, settings)
    else:
        roads, known = _learned(network, elevation, settings, state)
    graph = roads.graph
    trip = Trip(start=graph.number(start), goal=graph.number(goal))
    lifted = known.vehicle.potential(graph.rise) if routing == "potential" else np.zeros(len(graph))
    # What the noise adds (E[max(0, X)] rather than the mean) would only make routes of few long edges
    # look good: potential routing does without.
    spread = 0.0 if routing == "potential" else known.noise_std
    costs = rectified_mean(known.mean - lifted, spread)
    oracle, rng = ShortestPath(successors=graph.turn_graph), np.random.default_rng(0)  # unused
    best, fastest, shortest = (
        _leg(graph, known, oracle.select(np.negative(each), trip, rng).positions)
        for each in (costs, graph.travel_time, graph.length)
    )
    return RouteAnswer(
        roads=roads,
        trip=trip,
        routing=routing,
        means=known.mean[best.edges],
        best=best,
        others={"fastest": fastest, "shortest": shortest},
        observations=known.observations,
        cut_edges=int(np.count_nonzero(known.mean < lifted)),
        record=None if state is None or isinstance(state, State) else _record(Path(state).absolute()),
    )


class _Known(NamedTuple):
    """What is believed of all edges, and of the sum of some."""

    vehicle: Vehicle
    mean: Floats
    noise_std: float
    total: Callable[[Ints], tuple[float, float]]
    """Mean and standard deviation of what some edges cost together, on one trip."""
    observations: int


def _leg(graph: LineGraph, known: _Known, edges: Ints) -> Leg:
    mean, std = known.total(edges)
    return Leg(
        edges=edges,
        energy=mean,
        spread=_HALF_WIDTH * std,
        length=float(graph.length[edges].sum()),
        seconds=float(graph.travel_time[edges].sum()),
        climb=float(np.maximum(graph.rise[edges], 0.0).sum()),
    )


# --- what was asked for, and what was learned ----------------------------------------------


def _load(
    network: str | Path | RoadNetwork, elevation: str | Path | None, settings: Mapping[str, Any]
) -> Roads:
    options = {key: settings[key] for key in _ROADS if key in settings}
    if not isinstance(network, RoadNetwork):
        name = network if isinstance(network, str) else str(network.absolute())  # a path is no name
        return load_roads(name, **options, elevation=None if elevation is None else str(elevation))
    roads = network if elevation is None else with_heights(network, elevation)
    roads = at_one_height(roads) if options.get("flat", False) else roads
    told = f"the road network {roads.name}"
    return Roads(roads.line_graph(uturns=options.get("uturns", True)), told)


def _by_model(graph: LineGraph, settings: Mapping[str, Any]) -> _Known:
    """By the energy model alone: the network's kernel is not made, which takes long on a large one."""
    vehicle = Vehicle(**{key: settings[key] for key in _VEHICLE if key in settings})
    prior = road_prior(graph, vehicle, **{key: settings[key] for key in _SCALES if key in settings})
    mean, lengthscale = prior.energies.values, settings.get("lengthscale", 1.0)

    def total(edges: Ints) -> tuple[float, float]:
        variance = prior.total_variance(graph, edges, lengthscale)
        return float(mean[edges].sum()), float(np.sqrt(variance))

    return _Known(vehicle, mean, prior.noise_std, total, observations=0)


def _check_settings(settings: Mapping[str, Any]) -> None:
    known = (*_VEHICLE, *_ROADS, "lengthscale", *_SCALES)
    for key, value in settings.items():
        if key not in known:
            raise SpecError(f"a route has no setting {key!r}; {suggestion(key, known, 'it has')}")
        if isinstance(value, list):
            raise SpecError(f"{key} is {value!r}: a route takes one value, not a list")
        require_kind(value, _KINDS[key], key)


def _learned(
    network: str | Path | RoadNetwork,
    elevation: str | Path | None,
    settings: Mapping[str, Any],
    state: str | Path | State,
) -> tuple[Roads, _Known]:
    """What was learned, on which roads and with which vehicle: the state says all of it."""
    label = "this state" if isinstance(state, State) else str(state)
    if own := [key for key in settings if key not in _ROADS]:
        raise StateError(
            f"{label} brings its own vehicle and model, so {own[0]} cannot be set; leave it out"
        )
    policy = loaded(state if isinstance(state, State) else load_state(state), label)
    posterior: object = policy.posterior if isinstance(policy, IndexPolicy) else None
    while isinstance(posterior, Wrapping):
        posterior = posterior.posterior
    energy = posterior.parameters().get("mean") if isinstance(posterior, Described) else None
    if not isinstance(policy, IndexPolicy) or not isinstance(energy, RoadEnergy):
        raise StateError(f"{label} was not learned by a policy that finds routes on a road network")
    there = _arrays(energy, policy.oracle)
    found: list[str] = []
    for uturns in [settings["uturns"]] if "uturns" in settings else [True, False]:
        roads = _load(network, elevation, {**settings, "uturns": uturns})
        graph = roads.graph
        unlike = difference(_arrays(graph, ShortestPath(successors=graph.turn_graph)), there)
        if unlike is None:
            break
        found.append(unlike)
    else:
        raise StateError(
            f"{label} was learned on roads other than these: {found[0]}; give the network of its run, "
            "and its elevation"
        )
    offer = Offer(step=policy.last_step + 1, arms=road_arms(graph))  # the next: energies may drift
    try:
        mean = policy.posterior.belief(offer).mean
    except InputError as error:
        raise StateError(
            f"{label} was learned where conditions change from trip to trip; a route cannot be found "
            f"without them ({error})"
        ) from error
    return roads, _Known(
        energy.vehicle,
        mean,
        policy.posterior.noise_std,
        lambda edges: policy.forecast(offer, edges).total(),
        policy.posterior.count,
    )


def _record(state: Path) -> TrackRecord | None:
    """What the run that this state lies in says of its policy's forecasts, all seeds together."""
    directory = state.parents[1]
    if state.parent.name != "states" or not (directory / "run.json").is_file():
        return None
    run = Run(directory, read_spec(directory))  # it may still be under way
    for policy in run.policies:
        for index in range(len(run.settings)):
            if state.stem in {cell_name(policy, index, seed) for seed in run.seeds}:
                audits = [run.audit(policy, index, seed) for seed in run.seeds]
                scores = np.concatenate([[], *(each["score"] for each in audits if each is not None)])
                scores = np.abs(scores[np.isfinite(scores)])
                inside = np.count_nonzero(scores <= _HALF_WIDTH)
                return TrackRecord(len(scores), inside / len(scores)) if len(scores) else None
    return None


def _arrays(roads: LineGraph | RoadEnergy, oracle: Oracle) -> dict[str, Any]:
    """What makes two networks the same: the roads, and the turns between them."""
    turns = describe(oracle).get("successors", {}).get("turns")
    return {name: getattr(roads, name) for name in ("length", "speed", "rise")} | {"turns": turns}


# --- on the map ----------------------------------------------------------------------------


def _line(network: RoadNetwork, edges: Ints) -> list[list[float]]:
    """Longitude and latitude along these edges, each place once in a row."""
    if network.lon_lat is None:
        raise InputError(
            f"{network.name} has no geographic reference, so its roads cannot be placed on Earth; "
            "as_json (--json) needs none"
        )
    courses = [_course(network, network.lon_lat, edge) for edge in edges]
    line = np.round(np.concatenate(courses), 7).tolist()
    moved = [place for before, place in pairwise(line) if place != before]
    return [line[0], *(moved or line[1:2])]


def _course(network: RoadNetwork, lon_lat: Floats, edge: int) -> Floats:
    """One edge in degrees. Its bends lie as in metres, turned and scaled to where its junctions are."""
    junctions = [network.tail[edge], network.head[edge]]
    ends, (begin, end) = lon_lat[junctions], network.junctions[junctions, :2] @ _COMPLEX
    if network.shapes is None or begin == end:
        return np.array(ends)
    latitude = np.radians(ends[0, 1])
    # Metres of a degree of longitude beside those of a degree of latitude, on the ellipsoid.
    flatter = (1.0 - _ECCENTRICITY * np.sin(latitude) ** 2) / (1.0 - _ECCENTRICITY)
    shrunk = np.array([np.cos(latitude) * flatter, 1.0])
    first, last = (ends * shrunk) @ _COMPLEX
    places = first + (network.shapes[edge] @ _COMPLEX - begin) / (end - begin) * (last - first)
    degrees: Floats = np.stack([places.real, places.imag], axis=1) / shrunk
    return degrees
