"""One trip on a road network: by the energy model, or by what a run has learned.

=================  ====================================================================
``m``              expected energy of each edge, Wh, (n,): eq. 8 of paper 000, or a posterior mean
``Δh``             what each edge changes in the height potential, Wh; see ``Vehicle.potential``
``ς``              standard deviation of the noise of one edge, Wh
``c``              the cost that a route minimises: max(0, m − Δh) with potential routing,
                   E[max(0, N(m, ς²))] with rectified routing (Algorithm 2 of paper 000)
=================  ====================================================================

Δh adds up to the same for every route between two edges. So potential routing finds the route of
least Σm itself, unless some m − Δh is below zero: those are cut off at zero, which makes an
edge dearer than it is believed to be, and ``cut_edges`` counts them. The energy model has none.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Ints, Offer, State
from superarm.errors import InputError, SpecError, StateError
from superarm.networks import LineGraph, RoadNetwork, Vehicle, with_heights
from superarm.networks.geography import from_utm, to_utm
from superarm.oracles import Trip
from superarm.policies.base import IndexPolicy
from superarm.policies.navigation import Routing, route_greedy
from superarm.problems.base import Model
from superarm.problems.roads import Roads, load_roads, road_model
from superarm.registry import kinds_of, parameters_of, require_kind
from superarm.simulation.audit import QUANTILES
from superarm.simulation.trace import read_spec
from superarm.states import load_state

__all__ = ["NETWORKS", "Leg", "RouteAnswer", "find_route"]

NETWORKS = ("luxembourg", "monaco", "city")
"""Names that stand for a network; anything else is a path."""
INTERVAL = "95 of 100 such trips, for all that is unknown about the roads and the noise of a trip"
"""What the interval of an energy covers, where the model holds."""
_HALF_WIDTH = float(QUANTILES[-1])
"""Of the central 95 % interval, in standard deviations."""
_VEHICLE = tuple(field.name for field in dataclasses.fields(Vehicle))
_ROADS = ("uturns", "edges", "city_seed")
_MODEL = ("lengthscale", "normalisation", "prior_scale", "noise_scale")
_KINDS = {**kinds_of(road_model), **kinds_of(load_roads), **kinds_of(Vehicle)}
_POSTERIORS: Mapping[str, Literal["finite", "independent", "variational"]] = {
    "finite-gp": "finite",
    "independent-gaussian": "independent",
    "sparse-variational": "variational",
}
_CELL = re.compile(r"\.s(?P<setting>\d+)\.seed\d+\.npz\Z")
_NONE: Mapping[str, Any] = {}
_SAME_PLACE = 0.5
"""Metres by which rounded longitudes and latitudes may miss their junctions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Leg:
    """A way from start to goal, in sums."""

    edges: Ints
    """Numbers in the line graph, (k,)."""
    energy: float
    """Expected, Wh."""
    spread: float
    """Half-width of the 95 % interval, Wh."""
    length: float
    """Metres."""
    seconds: float
    """At the speed limits."""
    climb: float
    """Metres of height gained, not counting what is lost again."""

    def as_json(self) -> dict[str, float]:
        return {
            "energy_wh": self.energy,
            "energy_low_wh": self.energy - self.spread,
            "energy_high_wh": self.energy + self.spread,
            "length_m": self.length,
            "travel_time_s": self.seconds,
            "climb_m": self.climb,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class RouteAnswer:
    """The route that was asked for, and two to compare it with."""

    roads: Roads
    trip: Trip
    routing: Routing
    means: Floats
    """Expected energy of the route's edges, Wh, (k,)."""
    best: Leg
    others: Mapping[str, Leg]
    """The fastest and the shortest route."""
    observations: int
    """How many energies of edges were measured; 0: the model alone."""
    cut_edges: int
    """Edges of the whole network that are believed to cost less than nothing (with potential
    routing: less than their height potential), and so cost more here than they are believed to."""

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
            "routing": self.routing,
            "cut_edges": self.cut_edges,
            "flat": self.flat,
            "observations": self.observations,
            "compared": {name: leg.as_json() for name, leg in self.others.items()},
        }

    def as_geojson(self) -> dict[str, Any]:
        """A FeatureCollection: the route as a line, longitude before latitude.

        It follows the bends of the roads where the network has them and is in UTM; elsewhere it
        goes straight from junction to junction.
        """
        line = _line(self.graph.network, self.graph.edges[self.best.edges])
        return {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "geometry": {"type": "LineString", "coordinates": line},
                    "properties": self.as_json(),
                }
            ],
        }


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
    ``state``: what a run on this network has learned, ``RUN/states/CELL.npz``. How that run saw its
    roads (lengthscale, U-turns, heights and the like) is read from its ``run.json``, if that
    is there. ``elevation``: an SRTM tile or a folder of them, whose heights replace the network's.
    ``settings``: of the vehicle (``mass`` …), the model (``noise_scale`` …) and the roads (``uturns``).

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
    label = "this state" if isinstance(state, State) else str(state)
    told: Mapping[str, Any] = _NONE
    if state is not None and not isinstance(state, State):
        told = _settings_of(Path(state))
        state = load_state(state)
    if elevation is None:
        elevation = told.get("elevation")
    given = {**told, **settings}
    roads = _load(network, elevation, {key: given[key] for key in _ROADS if key in given})
    graph = roads.graph
    trip = Trip(start=graph.number(start), goal=graph.number(goal))
    model = road_model(
        graph,
        Vehicle(**{key: given[key] for key in _VEHICLE if key in given}),
        horizon=1,
        **{key: given[key] for key in _MODEL if key in given},
    )
    policy = _policy(model, routing, state, label)
    offer = Offer(step=1, arms=Arms(ids=graph.ids, features=model.arms), structure=trip)
    rng = np.random.default_rng(0)  # nothing here draws
    chosen = policy.decide(offer, rng).positions
    believed = policy.beliefs(offer).mean
    lifted = model.reduction if routing == "potential" else None
    others = {
        name: model.oracle.select(np.negative(model.costs[cost]), trip, rng).positions
        for name, cost in (("fastest", "travel_time"), ("shortest", "length"))
    }
    return RouteAnswer(
        roads=roads,
        trip=trip,
        routing=routing,
        means=believed[chosen],
        best=_leg(graph, policy, offer, chosen),
        others={name: _leg(graph, policy, offer, edges) for name, edges in others.items()},
        observations=policy.posterior.count,
        cut_edges=int(np.count_nonzero(believed < (0.0 if lifted is None else lifted))),
    )


def _leg(graph: LineGraph, policy: IndexPolicy, offer: Offer, edges: Ints) -> Leg:
    mean, std = policy.forecast(offer, edges).total()
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
    network: str | Path | RoadNetwork, elevation: str | Path | None, options: Mapping[str, Any]
) -> Roads:
    if not isinstance(network, RoadNetwork):
        name = network if isinstance(network, str) else str(network.absolute())  # a path is no name
        heights = None if elevation is None else str(elevation)
        return load_roads(name, **options, elevation=heights)
    roads = network if elevation is None else with_heights(network, elevation)
    graph = roads.line_graph(uturns=options.get("uturns", True))
    return Roads(graph, f"the road network {roads.name}")


def _check_settings(settings: Mapping[str, Any]) -> None:
    known = (*_VEHICLE, *_ROADS, *_MODEL)
    for key, value in settings.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            raise SpecError(f"a route has no setting {key!r}; it has {', '.join(known)}" + advice)
        if isinstance(value, list):
            raise SpecError(f"{key} is {value!r}: a route takes one value, not a list")
        require_kind(value, _KINDS[key], key)


def _settings_of(state: Path) -> dict[str, Any]:
    """How the run that wrote the state saw its roads; by default where no run is around it."""
    cell = _CELL.search(state.name)
    if state.parent.name != "states" or cell is None or not (state.parent.parent / "run.json").exists():
        return {}
    spec = read_spec(state.parent.parent)
    problem = dict((spec.get("parameters") or {}).get("problem") or {})
    if "name" in problem:  # what a run does not say is the default of its problem
        problem = {**parameters_of("problem", problem["name"]), **problem}
    index = int(cell["setting"])
    if index < len(spec["settings"]):
        swept = spec["settings"][index]
        problem |= {key.removeprefix("problem."): value for key, value in swept.items()}
    if problem.get("model_lengthscale") is not None:
        problem["lengthscale"] = problem["model_lengthscale"]
    # Of a run in SUMO, mass and the like are the driver's: its traveller believes in Table 2.
    vehicle = () if problem.get("name") == "sumo-navigation" else _VEHICLE
    found = {key: problem[key] for key in (*_ROADS, *_MODEL, *vehicle) if key in problem}
    heights = problem.get("elevation")
    try:
        _check_settings(found)
        require_kind(heights, str | None, "elevation")
    except SpecError as error:
        raise StateError(f"{state.parent.parent / 'run.json'}: {error}") from None
    return {**found, "elevation": heights}


def _policy(model: Model, routing: Routing, state: State | None, label: str) -> IndexPolicy:
    """Greedy, with no more spread than the routing asks for.

    What an explorer adds for the noise (E[max(0, X)] rather than the mean) would only make routes
    of few long edges look good.
    """
    spread: Literal["noise", "none"] = "none" if routing == "potential" else "noise"
    if state is None:
        return route_greedy(model, routing=routing, spread=spread)
    memory = state.scalars.get("posterior")
    if not isinstance(memory, Mapping) or memory.get("kind") not in _POSTERIORS:
        kind = memory.get("kind") if isinstance(memory, Mapping) else state.kind
        raise StateError(
            f"{label} holds what a {kind!r} learned; a route can be read from {sorted(_POSTERIORS)}"
        )
    _check_belongs(model, state, memory, label)
    _check_model(model, state, label)
    posterior = _POSTERIORS[memory["kind"]]
    policy = route_greedy(model, posterior=posterior, routing=routing, spread=spread)
    return policy.restored(state)


def _check_belongs(model: Model, state: State, memory: Mapping[str, Any], label: str) -> None:
    """A memory fits the roads and the energy model that it was made with, and no others."""
    features, arms = np.asarray(model.arms), state.array("arms")
    scalars = memory.get("scalars")
    if arms.ndim != 2 or arms.dtype.kind != "f" or not isinstance(scalars, Mapping):
        raise StateError(f"{label} is damaged: it does not say which roads it is about")
    whole = memory["kind"] != "sparse-variational"  # which keeps the roads that were driven alone
    if whole and len(arms) != len(features):
        raise StateError(
            f"{label} was learned on a network of {len(arms)} usable roads, and this one has "
            f"{len(features)}; give the network of its run"
        )
    if len(arms) and not _are_rows(arms, features, whole):
        raise StateError(
            f"{label} was learned on another network, or one whose conditions change from trip to "
            "trip; give the network of its run"
            if not whole
            else f"{label} was learned on another network with as many roads; give the network of "
            "its run"
        )
    noise = scalars.get("noise_variance")
    # A prior mean that is a function is not kept; its scale is that of the noise.
    mean = state.array("mean") if whole else np.asarray(model.mean)
    same_mean = (
        mean.shape == np.shape(model.mean) and mean.dtype.kind == "f" and np.allclose(mean, model.mean)
    )
    same_noise = isinstance(noise, float) and bool(np.isclose(noise, model.noise_variance))
    if not (same_mean and same_noise):
        raise StateError(
            f"{label} was learned with another energy model; use the settings of its run (its run.json "
            "says) and no others"
        )


def _check_model(model: Model, state: State, label: str) -> None:
    """The kernel's settings and the turns, of which a run leaves a sign in its states."""
    if state.scalars.get("model", model.fingerprint) != model.fingerprint:
        raise StateError(
            f"{label} was learned with other turns or other settings of the model (lengthscale, "
            "normalisation, prior_scale, uturns); use those of its run, which its run.json says"
        )


def _are_rows(arms: Floats, features: Floats, whole: bool) -> bool:
    """Whether the arms are those of the model: all in order, or each at its number."""
    if arms.ndim != 2 or arms.shape[1] != features.shape[1]:
        return False
    if whole:
        return np.allclose(arms, features)
    numbers = arms[:, 0]
    if not ((numbers >= 0) & (numbers < len(features))).all():
        return False
    return np.allclose(arms, features[numbers.astype(np.intp)])


# --- on the map ----------------------------------------------------------------------------


def _line(network: RoadNetwork, edges: Ints) -> list[list[float]]:
    """Longitude and latitude along these edges, each place once in a row."""
    if network.lon_lat is None:
        raise InputError(
            f"{network.name} has no geographic reference, so that its roads lie nowhere on earth; "
            "as_json (--json) needs none"
        )
    projection = _Projection.of(network.junctions, network.lon_lat)
    if network.shapes is None or projection is None:
        junctions = [int(network.tail[edges[0]]), *network.head[edges].tolist()]
        places = network.lon_lat[junctions]
    else:
        metres = np.concatenate([network.shapes[edge] for edge in edges])
        places = from_utm(metres + projection.offset, projection.zone)
    line = np.round(places, 7).tolist()
    moved = [place for before, place in pairwise(line) if place != before]
    return [line[0], *(moved or line[1:2])]


class _Projection(NamedTuple):
    """UTM, shifted: metres of the network plus ``offset`` are eastings and northings of ``zone``."""

    zone: int
    offset: Floats

    @classmethod
    def of(cls, junctions: Floats, lon_lat: Floats) -> _Projection | None:
        """As the junctions say, whose places are known in metres and in degrees; or none.

        In the right zone they differ by one offset, in which a false northing of the south is
        included. A network may be drawn in the zone beside its own.
        """
        middle = int((float(np.median(lon_lat[:, 0])) + 180.0) // 6.0) % 60 + 1
        for zone in (middle, middle % 60 + 1, (middle - 2) % 60 + 1):
            offsets = to_utm(lon_lat, zone) - junctions[:, :2]
            offset = np.median(offsets, axis=0)
            if np.abs(offsets - offset).max() <= _SAME_PLACE:
                return cls(zone, offset)
        return None
