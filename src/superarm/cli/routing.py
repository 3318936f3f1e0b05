"""What ``route`` does: one trip on a network, by the energy model or by what a run has learned."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np

from superarm.core import Arms, Floats, Ints, Offer, State
from superarm.errors import InputError, SpecError, StateError
from superarm.experiments import parse_overrides
from superarm.networks import LineGraph, Vehicle
from superarm.oracles import Trip
from superarm.policies.base import IndexPolicy
from superarm.policies.navigation import Routing, route_greedy
from superarm.problems.base import Model
from superarm.problems.roads import Roads, load_roads, road_model
from superarm.registry import parameters_of
from superarm.simulation.audit import QUANTILES
from superarm.simulation.trace import read_spec
from superarm.states import load_state

NETWORKS = ("luxembourg", "monaco", "city")
"""Names that stand for a network; anything else is a path."""
_HALF_WIDTH = float(QUANTILES[-1])
"""Of the central 95 % interval, in standard deviations."""
_VEHICLE = tuple(field.name for field in dataclasses.fields(Vehicle))
_ROADS = ("uturns", "edges", "city_seed")
_MODEL = ("lengthscale", "normalisation", "prior_scale", "noise_scale")
_POSTERIORS: Mapping[str, Literal["finite", "independent"]] = {
    "finite-gp": "finite",
    "independent-gaussian": "independent",
}
_CELL = re.compile(r"\.s(?P<setting>\d+)\.seed\d+\.npz\Z")
_MOST_ROWS = 24
_COVERS = "95 of 100 such trips, for all that is unknown about the roads and the noise of a trip"
_NONE: Mapping[str, Any] = {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Leg:
    """A way from start to goal, in sums."""

    edges: Ints
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

    @property
    def graph(self) -> LineGraph:
        return self.roads.graph

    def ids(self) -> list[str]:
        return [self.graph.ids[edge] for edge in self.best.edges]

    def as_json(self) -> dict[str, Any]:
        """One flat object, and the two routes to compare with."""
        ends = self.graph.ids[self.trip.start], self.graph.ids[self.trip.goal]
        return {
            "network": self.graph.network.name,
            "from": ends[0],
            "to": ends[1],
            "edges": self.ids(),
            **_numbers(self.best),
            "interval": _COVERS,
            "routing": self.routing,
            "observations": self.observations,
            "compared": {name: _numbers(leg) for name, leg in self.others.items()},
        }

    def as_geojson(self) -> dict[str, Any]:
        """A FeatureCollection: the route as a line through its junctions, longitude before latitude."""
        network = self.graph.network
        if network.lon_lat is None:
            raise InputError(
                f"{network.name} has no geographic reference, so that its roads lie nowhere on earth; "
                "use --json, or a network with longitudes and latitudes"
            )
        edges = self.graph.edges[self.best.edges]
        junctions = [int(network.tail[edges[0]]), *network.head[edges].tolist()]
        line = [[round(float(part), 7) for part in network.lon_lat[place]] for place in junctions]
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


def _numbers(leg: Leg) -> dict[str, float]:
    return {
        "energy_wh": leg.energy,
        "energy_low_wh": leg.energy - leg.spread,
        "energy_high_wh": leg.energy + leg.spread,
        "length_m": leg.length,
        "travel_time_s": leg.seconds,
        "climb_m": leg.climb,
    }


def find_route(
    net: str,
    start: str,
    goal: str,
    *,
    state: Path | None = None,
    routing: Routing = "potential",
    overrides: Sequence[str] = (),
) -> RouteAnswer:
    """The route whose expected energy is least, as far as costs can be made positive.

    The costs are the posterior means themselves. With potential routing they are cut off at
    zero after the height potential is taken out (``spread="none"``): that is exact for the energy
    model, and a learned mean is seldom below it. What an explorer adds for the noise (E[max(0, X)]
    rather than the mean) would only make routes of few long edges look good. Rectified routing is
    Algorithm 2 of paper 000 as it stands, noise and all.
    """
    _require_network(net)
    remembered = None if state is None else load_state(state)
    settings = {**(_NONE if state is None else _settings_of(state)), **_settings(overrides)}
    roads = load_roads(net, **{key: settings[key] for key in _ROADS if key in settings})
    graph = roads.graph
    try:
        trip = Trip(start=graph.number(start), goal=graph.number(goal))
    except InputError as error:  # an argument of the command
        raise SpecError(str(error)) from error
    model = road_model(
        graph,
        Vehicle(**{key: settings[key] for key in _VEHICLE if key in settings}),
        horizon=1,
        **{key: settings[key] for key in _MODEL if key in settings},
    )
    policy = _policy(model, routing, remembered, state)
    offer = Offer(step=1, arms=Arms(ids=graph.ids, features=model.arms), structure=trip)
    rng = np.random.default_rng(0)  # nothing here draws
    chosen = policy.decide(offer, rng).positions
    others = {
        name: model.oracle.select(np.negative(model.costs[cost]), trip, rng).positions
        for name, cost in (("fastest", "travel_time"), ("shortest", "length"))
    }
    return RouteAnswer(
        roads=roads,
        trip=trip,
        routing=routing,
        means=policy.forecast(offer, chosen).mean,
        best=_leg(graph, policy, offer, chosen),
        others={name: _leg(graph, policy, offer, edges) for name, edges in others.items()},
        observations=policy.posterior.count,
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


def _require_network(net: str) -> None:
    if net not in NETWORKS and not Path(net).exists():
        raise SpecError(
            f"there is no network {net!r}; choose {', '.join(NETWORKS)}, or give the path of a "
            "network file"
        )


def _settings(overrides: Sequence[str]) -> dict[str, Any]:
    known = (*_VEHICLE, *_ROADS, *_MODEL)
    given = parse_overrides(overrides)
    for key, value in given.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            raise SpecError(f"--set {key}: a route has {', '.join(known)}" + advice)
        if isinstance(value, list):
            raise SpecError(f"--set {key}: a route takes one value, not a list")
    return given


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
    wanted = (*_ROADS, *_MODEL, "recuperation")  # a run's mass and the like are the driver's
    return {key: problem[key] for key in wanted if key in problem}


def _policy(model: Model, routing: Routing, state: State | None, path: Path | None) -> IndexPolicy:
    spread: Literal["noise", "none"] = "none" if routing == "potential" else "noise"
    if state is None:
        return route_greedy(model, routing=routing, spread=spread)
    memory = state.scalars.get("posterior")
    if not isinstance(memory, Mapping) or memory.get("kind") not in _POSTERIORS:
        kind = memory.get("kind") if isinstance(memory, Mapping) else state.kind
        raise StateError(
            f"{path} holds what a {kind!r} learned; a route can be read from {sorted(_POSTERIORS)}"
        )
    _check_belongs(model, state, memory.get("scalars") or {}, path)
    posterior = _POSTERIORS[memory["kind"]]
    policy = route_greedy(model, posterior=posterior, routing=routing, spread=spread)
    return policy.restored(state)


def _check_belongs(model: Model, state: State, scalars: Mapping[str, Any], path: Path | None) -> None:
    """A memory fits the roads and the energy model that it was made with, and no others."""
    features, arms = np.asarray(model.arms), state.array("arms")
    if len(arms) != len(features):
        raise StateError(
            f"{path} was learned on a network of {len(arms)} usable roads, and this one has "
            f"{len(features)}; give the network of the run with --net"
        )
    if arms.shape != features.shape or not np.allclose(arms, features):
        raise StateError(
            f"{path} was learned on another network with as many roads; give the network of the run "
            "with --net"
        )
    same = np.allclose(state.array("mean"), model.mean) and np.isclose(
        scalars.get("noise_variance", np.nan), model.noise_variance
    )
    if not same:
        raise StateError(
            f"{path} was learned with another energy model; leave out --set, or set what its run set "
            "(its run.json says)"
        )


# --- for reading ---------------------------------------------------------------------------


def print_route(answer: RouteAnswer) -> None:
    """The roads in order, and the sums."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    ids = answer.ids()
    table = Table(title=Text(f"{answer.graph.network.name}: {ids[0]} → {ids[-1]}"))
    table.add_column("road", overflow="fold")
    for name in ("edges", "m", "km/h", "rise, m", "Wh"):
        table.add_column(name, justify="right")
    for row in _shortened(_roads(answer)):
        table.add_row(*map(Text, row))
    console.print(table)
    best = answer.best
    lines = [
        f"{len(ids)} edges, {best.length / 1000:.2f} km, {best.seconds / 60:.1f} min at the speed "
        f"limits, {best.climb:.0f} m of climbing",
        f"expected energy {best.energy:.0f} Wh, 95 % interval {best.energy - best.spread:.0f} to "
        f"{best.energy + best.spread:.0f} Wh",
        f"  (where the model holds: {_COVERS})",
        *(_comparison(name, leg, best) for name, leg in answer.others.items()),
        f"believed from {answer.observations} measurements of edges"
        if answer.observations
        else "believed from the energy model alone; --state FILE uses what a run has learned",
    ]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _comparison(name: str, leg: Leg, best: Leg) -> str:
    if leg.edges.tolist() == best.edges.tolist():
        return f"the {name} route is the same"
    return (
        f"the {name} route: {leg.energy:.0f} Wh ({leg.energy - best.energy:+.0f}), "
        f"{leg.length / 1000:.2f} km, {leg.seconds / 60:.1f} min"
    )


def _roads(answer: RouteAnswer) -> list[list[str]]:
    """Edges in a row that are pieces of one road, ``-123#0`` and ``-123#1``, are one line."""
    graph, rows = answer.graph, []
    pieces = zip(answer.best.edges.tolist(), answer.means.tolist(), strict=True)
    for name, group in groupby(pieces, key=lambda piece: graph.ids[piece[0]].partition("#")[0]):
        members = list(group)
        edges = [edge for edge, _ in members]
        first, last = graph.ids[edges[0]], graph.ids[edges[-1]]
        limits = sorted({f"{3.6 * speed:.0f}" for speed in graph.speed[edges]}, key=float)
        rows.append(
            [
                first if len(edges) == 1 else f"{name} ({first} … {last})",
                str(len(edges)),
                f"{graph.length[edges].sum():.0f}",
                limits[0] if len(limits) == 1 else f"{limits[0]}–{limits[-1]}",
                f"{round(float(graph.rise[edges].sum())):+d}",
                f"{sum(energy for _, energy in members):.1f}",
            ]
        )
    return rows


def _shortened(rows: list[list[str]]) -> list[list[str]]:
    """The ends of a long route; ``--json`` has it whole."""
    if len(rows) <= _MOST_ROWS:
        return rows
    half = _MOST_ROWS // 2
    between = rows[half:-half]
    sums = [sum(float(row[column]) for row in between) for column in (1, 2, 4, 5)]
    told = [f"{sums[0]:.0f}", f"{sums[1]:.0f}", "", f"{sums[2]:+.0f}", f"{sums[3]:.1f}"]
    return [*rows[:half], [f"… {len(between)} more …", *told], *rows[-half:]]
