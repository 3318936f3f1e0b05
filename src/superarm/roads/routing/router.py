"""Trips on a road network: by the energy model, or by what a run has learned.

=================  ====================================================================
``m``              expected energy of each edge, Wh, (n,): by ``Vehicle.energy``, or a posterior mean
``t``              what each turn adds, Wh, (c,): by ``Vehicle.turn_energy``, or 0 where it was learned
``Δh``             what each edge changes in the height potential, Wh; see ``Vehicle.potential``
``ς``              standard deviation of the noise of one edge, Wh
``c``              the cost that a route minimises, t apart: max(0, m − Δh) with potential routing,
                   E[max(0, N(m, ς²))] with rectified routing (Algorithm 2 of
                   Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025))
=================  ====================================================================

Δh adds up to the same for every route between two places. So potential routing finds the route of
least Σm + Σt itself, unless some m − Δh is below zero: those are cut off at zero, which makes an
edge cost more than is believed, and ``cut_edges`` counts them. The energy model has none.

Edges that are named by their ids count whole. A place lies on an edge: of the first edge the part
behind the start counts, and of the last the part before the goal, in proportion to length. A place has
one height, that of its nearest edge there. So its other ways, whose courses may differ a little, are
chosen by their costs c alone, none of which is negative: no route passes its goal and comes back to it.
The height that another way has there is made up for in its energy.

A battery that is full cannot take what is won downhill, so that what an edge costs depends on the way
before it. The route is chosen as if it could, and then charged what is lost. Where something is
lost, or the battery may run empty, the route of least Σ max(0, m) + Σt, which counts on nothing that is
won back, is charged too, and the better of the two is taken: other routes may be better still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, time
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, State
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InfeasibleError, InputError, SpecError, StateError
from superarm.core.inputs import require_choice
from superarm.core.normal import rectified_mean
from superarm.core.registry import kinds_of, require_kind, suggestion
from superarm.oracles import Trip
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph, RoadNetwork, with_heights
from superarm.roads.networks.elevation import at_one_height
from superarm.roads.networks.places import PlaceMatch, Places
from superarm.roads.policies.navigation import Routing
from superarm.roads.posterior import TrackRecord
from superarm.roads.problems.road_models import load_roads

from .answers import Leg, RouteAnswer, RoutedVehicle
from .battery import VEHICLE, Battery, Charge
from .closures import closed_by
from .energy_beliefs import (
    ByModel,
    EdgeEnergies,
    LearnedEnergies,
    OfFleet,
    Parts,
    Source,
    When,
    own_model,
    read_learned,
)
from .search import Ends, RoutePath, Search

NETWORKS = (
    "luxembourg",
    "monaco",
    "city",
)  # names that stand for a network; anything else is a path
_ROADS = ("uturns", "edges", "city_seed", "flat")
_KINDS = {**kinds_of(load_roads), **kinds_of(Vehicle)}
_NONE: Mapping[str, Any] = {}
_MOST_PLANS = 32  # times of departure for which costs are kept

Place = str | tuple[float, float]
"""An edge id, "latitude,longitude" in degrees or a pair of these, or the name of a street."""


class Router:
    """Finds routes for one vehicle on one network; build it once and reuse it.

    Args:
        network: A :class:`~superarm.roads.networks.RoadNetwork`, the path of a file, or one of
        ``NETWORKS``.
        state: What a policy has learned on this network, such as ``RUN/states/CELL.npz``. It contains
            its own vehicle and model; where energies drift, they are those of its next round. A
            fleet's state works for any ``vehicle``.
        vehicle: The vehicle; by default ``Vehicle()``, a car.
        vehicle_class: Whose roads are used.
        battery: Its charge is forecast along every route.
        routing: How costs are made non-negative.
        elevation: An SRTM tile or a folder of them; their heights replace the network's.
        settings: Parameters of the roads (``uturns``, ``flat``) and, without a state, of the vehicle
            (``mass`` …).
        vehicle_name: The vehicle's name in a fleet's log: forecasts then use its own trips.
        backend: "numpy", "numba", or "auto", which compiles the search where numba is installed.
        record: How often intervals held that the state's policy forecast, where that is known. A
            fleet's state has a record of its own.

    >>> from superarm.roads.networks import generate_city
    >>> router = Router(generate_city(edges=300, seed=1), vehicle=Vehicle(mass=2100.0))
    >>> [router.route("r1", goal).ids()[-1] for goal in ("r20", "r7")]
    ['r20', 'r7']
    """

    def __init__(
        self,
        network: str | Path | RoadNetwork,
        *,
        state: str | Path | State | None = None,
        vehicle: Vehicle | None = None,
        vehicle_class: str = "passenger",
        battery: Battery | None = None,
        routing: Routing = "potential",
        elevation: str | Path | None = None,
        settings: Mapping[str, Any] = _NONE,
        vehicle_name: str | None = None,
        backend: Backend = "auto",
        record: TrackRecord | None = None,
    ) -> None:
        _check_settings(settings)
        require_choice(routing, "routing", ("rectified", "potential"))
        where = (network, vehicle_class, elevation)
        source: Source
        if state is None:
            own = {key: settings[key] for key in VEHICLE if key in settings}
            self.graph = _load(*where, settings)
            source = ByModel(self.graph, replace(vehicle or Vehicle(), **own))
        else:
            learned = read_learned(state, vehicle, vehicle_name, record)
            self.graph, source = _learned(*where, settings, learned)
        self.source, self.routing, self.battery = source, routing, battery or Battery()
        self._vehicle = RoutedVehicle(vehicle_name, source.vehicle, source.trips)
        self._plans: dict[When | None, _Plan] = {}
        self._backend: Backend = backend
        if (
            backend != "auto"
        ):  # numba is imported when landmarks are made, not for a single route
            is_compiled(backend)  # which refuses what is unknown or not installed

    def prepare(self, *, compared: bool = True) -> None:
        """Compute the landmarks of all searches now; by default this happens after eight routes.

        Args:
            compared: Whether to compute those of the fastest and the shortest route, too, which
                ``as_json`` needs.
        """
        self._plan(None).search.prepare()
        if compared:
            for search in self._comparisons.values():
                search.prepare()

    @cached_property
    def places(self) -> Places:
        """The network's edges by place and by name."""
        return Places(self.graph)

    def closed_by(self, geojson: Any) -> list[str]:
        """The ids of the edges that GeoJSON closes; see :mod:`superarm.roads.routing.closures`."""
        return [self.graph.ids[edge] for edge in closed_by(geojson, self.places)]

    def route(
        self,
        start: Place,
        goal: Place,
        *,
        closed: Iterable[str] = (),
        depart: str | When | None = None,
        charge: float | str | None = None,
        anyway: bool = False,
    ) -> RouteAnswer:
        """The route of least cost c (above) from ``start`` to ``goal``.

        An edge that is named by its id counts whole; coordinates and streets are places on an edge. Of
        a place or a street whose road has two directions, the better one is taken. ``closed``: ids
        of edges, or names of streets, that are not used. ``depart``: "HH:MM", or a date and time; it
        matters where ``source.timed``. ``charge``: what the battery holds at the start, in Wh or as
        "80%". A route on which it may run empty is refused, unless it is wanted ``anyway``.
        """
        ends = self._end(start, whole=0.0), self._end(goal, whole=1.0)
        shut = self._shut(closed)
        when = _when(depart)
        plan = self._plan(when)
        try:
            held = self.battery.charge(charge)
        except ValueError as error:
            raise SpecError(str(error)) from error
        found = self._charged(plan, ends, self._found(plan.search, ends, shut), held)
        way = found.leg.way
        if found.charge is not None and (
            found.charge.lost > 0.0 or found.charge.missing > 0.0
        ):
            other = self._charged(
                plan, ends, self._found(plan.uncredited, ends, shut, way), held
            )
            found = min(found, other, key=_worse)
        if found.charge is not None and found.charge.missing > 0.0 and not anyway:
            raise InfeasibleError(self._runs_empty(found, found.charge))
        trip = Trip(start=int(found.leg.edges[0]), goal=int(found.leg.edges[-1]))
        return RouteAnswer(
            graph=self.graph,
            trip=trip,
            vehicle=self._vehicle,
            places=(self._told(ends[0], trip.start), self._told(ends[1], trip.goal)),
            positions=(
                ends[0].metres(self.graph, trip.start),
                ends[1].metres(self.graph, trip.goal),
            ),
            routing=self.routing,
            means=found.means,
            best=found.leg,
            compare=lambda: self._compared(plan, ends, shut, found.leg.way),
            observations=plan.known.observations,
            cut_edges=plan.cut_edges,
            record=self.source.record,
            closed=0 if shut is None else int(np.count_nonzero(shut)),
            depart=None if when is None else when.isoformat(timespec="minutes"),
            timed=when is not None and self.source.timed,
            charge=found.charge,
        )

    # --- costs -----------------------------------------------------------------------------

    def _plan(self, when: When | None) -> _Plan:
        """What is believed at this time, and its costs: made once."""
        key = when if self.source.timed else None
        if key not in self._plans:
            known, graph = self.source.known(key), self.graph
            potential = self.routing == "potential"
            per_metre = float(self.source.vehicle.potential(1.0)) if potential else 0.0
            lifted = per_metre * graph.rise  # Δh, (n,)
            # What the noise adds (E[max(0, X)] rather than the mean) would only make routes of few long
            # edges look good: potential routing does without.
            costs = rectified_mean(
                known.mean - lifted, 0.0 if potential else known.noise_std
            )
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = _Plan(
                known,
                Search(graph, costs, known.turn_costs, backend=self._backend),
                Search(
                    graph,
                    np.maximum(known.mean, 0.0),
                    known.turn_costs,
                    backend=self._backend,
                ),
                int(np.count_nonzero(known.mean < lifted)),
                per_metre,
            )
        return self._plans[key]

    def _end(self, place: Place, whole: float) -> _End:
        """A place on the edges that it may mean; ``whole``: its share on edges that count whole."""
        found, graph = self.places.find(place), self.graph
        edges = np.array(found.edges, dtype=np.intp)
        shares = (
            np.full(len(edges), whole)
            if found.shares is None
            else np.array(found.shares)
        )
        tails = graph.network.tail[graph.edges[edges]]
        heights = graph.network.junctions[tails, 2] + shares * graph.rise[edges]
        return _End(found, Ends(edges, shares), heights - heights[0])

    def _shut(self, closed: Iterable[str]) -> Bools | None:
        """Which edges are closed, (n,)."""
        if isinstance(closed, str) or not isinstance(closed, Iterable):
            raise InputError(
                f"closed is {closed!r:.60}; give a list of edge ids or street names"
            )
        edges = [self.places.street(str(each)) for each in closed]
        if not edges:
            return None
        shut: Bools = np.zeros(len(self.graph), dtype=bool)
        shut[np.concatenate(edges)] = True
        return shut

    def _found(
        self,
        search: Search,
        ends: tuple[_End, _End],
        shut: Bools | None,
        known: RoutePath | None = None,
    ) -> RoutePath:
        """The cheapest way; ``known``: one between these ends, which may not be the cheapest."""
        way = search.find(ends[0].ends, ends[1].ends, shut, known)
        if way is None:
            one, other = (self.graph.ids[end.found.edges[0]] for end in ends)
            assert shut is not None
            gone = [end.found.edges[0] for end in ends if shut[end.ends.edges].all()]
            why = (
                f"edge {self.graph.ids[gone[0]]} is"
                if gone
                else f"{np.count_nonzero(shut)} edges are"
            )
            raise InfeasibleError(
                f"no open route leads from edge {one} to edge {other}: {why} closed"
            )
        return way

    # --- what a route costs ----------------------------------------------------------------

    def _charged(
        self, plan: _Plan, ends: tuple[_End, _End], way: RoutePath, held: float | None
    ) -> _Priced:
        """A route's sums, and the battery along it where its charge is known."""
        leg, means = self._leg(plan, ends, way)
        if held is None:
            return _Priced(leg, means, None)
        parts = Parts.of(way)
        charge = self.battery.follow(
            held, means, lambda count: plan.known.spread(parts.first(count))
        )
        return _Priced(leg, means, charge)

    def _leg(
        self, plan: _Plan, ends: tuple[_End, _End], way: RoutePath
    ) -> tuple[Leg, Floats]:
        known, turns = plan.known, self.graph.turn_numbers(way.edges)
        means = way.shares * known.mean[way.edges]
        means[1:] += known.turn_costs[turns]
        # From the place's own height to that of this edge there, and back at the goal.
        before, after = (
            ends[0].step(int(way.edges[0])),
            ends[1].step(int(way.edges[-1])),
        )
        means[0] += plan.per_metre * before
        means[-1] -= plan.per_metre * after
        energy, spread = float(means.sum()), known.spread(Parts.of(way))
        rise = float(way.shares @ self.graph.rise[way.edges]) + before - after
        if energy < 0.0 <= rise and isinstance(
            self.source, OfFleet
        ):  # which learned a log
            raise StateError(
                f"the state forecasts {energy:.1f} Wh for a route that does not descend, which is "
                "impossible: its log was wrong. Correct the log and learn it into a new state"
            )
        return Leg(graph=self.graph, way=way, energy=energy, spread=spread), means

    def _compared(
        self, plan: _Plan, ends: tuple[_End, _End], shut: Bools | None, best: RoutePath
    ) -> dict[str, Leg]:
        searches = self._comparisons.items()
        found = {
            name: self._found(search, ends, shut, best) for name, search in searches
        }
        return {name: self._leg(plan, ends, way)[0] for name, way in found.items()}

    @cached_property
    def _comparisons(self) -> dict[str, Search]:
        graph, backend = self.graph, self._backend
        return {
            "fastest": Search(
                graph, graph.travel_time, graph.turn_seconds, backend=backend
            ),
            "shortest": Search(graph, graph.length, graph.turn_length, backend=backend),
        }

    # --- in words --------------------------------------------------------------------------

    def _told(self, end: _End, edge: int) -> str:
        """What an end is, which edge was taken for it, and where on that edge it lies."""
        if not end.found.place:
            return ""
        how = f", {end.found.how}" if end.found.how else ""
        along, length = end.metres(self.graph, edge), float(self.graph.length[edge])
        where = f"at {along:.0f} of its {length:.0f} m"
        return f"{end.found.place}: edge {self.graph.ids[edge]}{how}, {where}"

    def _runs_empty(self, found: _Priced, charge: Charge) -> str:
        edges, battery, ids = found.leg.edges, self.battery, self.graph.ids
        driven = RoutePath(edges[: charge.worst], found.leg.shares[: charge.worst])
        metres = replace(found.leg, way=driven).length
        missing, held = charge.missing, float(charge.level[0])
        last = ids[edges[max(charge.worst - 1, 0)]]
        more = held + missing <= battery.capacity and charge.lost == 0.0
        advice = f"start with {held + missing:.0f} Wh" if more else "charge on the way"
        return (
            f"the battery may run empty from edge {ids[edges[0]]} to edge {ids[edges[-1]]}: after "
            f"edge {last}, {metres / 1000.0:.2f} km from the start, its expected charge is "
            f"{charge.level[charge.worst]:.0f} Wh, and at 95 % as little as {charge.lowest:.0f} Wh, "
            f"{missing:.0f} Wh below the reserve of {battery.reserve:.0f} Wh; {advice}, or print the "
            "route anyway (--anyway)"
        )


def find_route(
    network: str | Path | RoadNetwork,
    start: Place,
    goal: Place,
    *,
    closed: Iterable[str] = (),
    depart: str | When | None = None,
    charge: float | str | None = None,
    anyway: bool = False,
    **router: Any,
) -> RouteAnswer:
    """One route: ``Router(network, **router).route(start, goal, …)``; for several, make it once.

    >>> from superarm.roads.networks import generate_city
    >>> answer = find_route(generate_city(edges=300, seed=1), "r1", "r20", settings={"mass": 2100.0})
    >>> answer.ids()[0], answer.ids()[-1]
    ('r1', 'r20')
    >>> answer.best.energy <= min(leg.energy for leg in answer.others.values())
    True
    >>> answer.as_json()["cut_edges"]
    0
    """
    asked: dict[str, Any] = {
        "closed": closed,
        "depart": depart,
        "charge": charge,
        "anyway": anyway,
    }
    return Router(network, **router).route(start, goal, **asked)


class _End(NamedTuple):
    """A start or goal: how it was found, and where it lies on each edge that it may mean."""

    found: PlaceMatch
    ends: Ends
    steps: Floats  # how much higher it lies on each edge than on the first of them, metres, (e,)

    def share(self, edge: int) -> float:
        """How much of one of its edges lies before it."""
        return float(self.ends.shares[self.ends.edges == edge][0])

    def metres(self, graph: LineGraph, edge: int) -> float:
        """How far it lies from the beginning of one of its edges."""
        return self.share(edge) * float(graph.length[edge])

    def step(self, edge: int) -> float:
        return float(self.steps[self.ends.edges == edge][0])


class _Plan(NamedTuple):
    known: EdgeEnergies
    search: Search
    uncredited: Search  # that counts on nothing that is won back
    cut_edges: int
    per_metre: float  # Wh of potential in a metre of height; 0 with rectified routing


class _Priced(NamedTuple):
    leg: Leg
    means: Floats
    charge: Charge | None


def _worse(route: _Priced) -> tuple[float, float]:
    """How much is missing; then, how little is left at arrival."""
    assert route.charge is not None
    return route.charge.missing, -float(route.charge.level[-1])


def _when(depart: str | When | None) -> When | None:
    if depart is None or isinstance(depart, time | datetime):
        return depart
    for kind in (time, datetime):
        try:
            return kind.fromisoformat(depart)
        except (TypeError, ValueError):
            continue
    raise SpecError(
        f"depart is {depart!r:.60}; write HH:MM, or a date and time such as 2025-03-14T08:30"
    ) from None


# --- what was asked for --------------------------------------------------------------------


def _load(
    network: str | Path | RoadNetwork,
    vehicle_class: str,
    elevation: str | Path | None,
    settings: Mapping[str, Any],
) -> LineGraph:
    options = {
        "uturns": "dead-ends",
        **{key: settings[key] for key in _ROADS if key in settings},
    }
    if not isinstance(network, RoadNetwork):
        name = (
            network if isinstance(network, str) else str(network.absolute())
        )  # a path is no name
        options["elevation"] = None if elevation is None else str(elevation)
        return load_roads(
            name, vehicle_class=vehicle_class, junctions=True, **options
        ).graph
    roads = network if elevation is None else with_heights(network, elevation)
    roads = at_one_height(roads) if options.get("flat", False) else roads
    return roads.line_graph(vehicle_class, uturns=options["uturns"])


def _check_settings(settings: Mapping[str, Any]) -> None:
    known = (*VEHICLE, *_ROADS)
    for key, value in settings.items():
        if key not in known:
            raise SpecError(
                f"a route has no setting {key!r}; {suggestion(key, known, 'it has')}"
            )
        if isinstance(value, list):
            raise SpecError(f"{key} is {value!r}: a route takes one value, not a list")
        require_kind(value, _KINDS[key], key)


def _learned(
    network: str | Path | RoadNetwork,
    vehicle_class: str,
    elevation: str | Path | None,
    settings: Mapping[str, Any],
    source: LearnedEnergies,
) -> tuple[LineGraph, Source]:
    """The roads on which it was learned, among those that the network may mean."""
    if own := [key for key in settings if key not in _ROADS]:
        if isinstance(source, OfFleet):
            told = f"{source.label} is a fleet's, so {own[0]} cannot be set"
            raise StateError(
                f"{told}; write it into the vehicle's file (--vehicle FILE)"
            )
        raise StateError(own_model(source.label, own[0]))
    found: list[str] = []
    first, *rest = [settings["uturns"]] if "uturns" in settings else source.uturns
    graph = _load(network, vehicle_class, elevation, {**settings, "uturns": first})
    for uturns in (first, *rest):
        if uturns != first:
            graph = graph.network.line_graph(vehicle_class, uturns=uturns)
        mismatch = source.mismatch(graph)
        if mismatch is None:
            return graph, source.on(graph)
        found.append(mismatch)
    raise StateError(
        f"{source.label} was learned on another road network: {found[0]}; pass the network and "
        "elevation that it was learned on"
    )
