"""Routes on a road network, by the energy model or by what a run has learned.

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

Edges that are named by their ids are whole. A place lies on an edge: of the first edge the part
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

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core import Bools, Floats, State
from superarm.core.caching import cached_property
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InfeasibleError, InputError, SpecError, StateError
from superarm.core.inputs import require_choice
from superarm.core.latest_task import LatestTask
from superarm.oracles import Trip
from superarm.roads.energy import Vehicle
from superarm.roads.networks import RoadNetwork
from superarm.roads.networks.places import Places
from superarm.roads.policies.navigation import Routing
from superarm.roads.posterior import TrackRecord

from .answers import Leg, RouteAnswer, RoutedVehicle
from .battery import VEHICLE, Battery
from .closures import closed_by
from .costs import Costs
from .energy_beliefs import EnergySource, ModelEnergies, RouteParts, When
from .learned_energies import FleetEnergies, read_learned
from .prices import Plan, PricedRoute, describe_shortfall, shortfall
from .requested_roads import (
    RequestedRoads,
    check_settings,
    find_roads,
    refuse_vehicle_settings,
    require_same_roads,
)
from .search import Ends, Form, RoutePath, Search, require_form
from .trips import (
    Place,
    RequestedTrip,
    TripEnd,
    as_departure,
    describe_closure,
    describe_end,
)

NETWORKS = ("luxembourg", "monaco", "city")
"""Names that stand for a network; anything else is a path."""
_HEIGHT = 2  # column of ``RoadNetwork.junctions``
_NONE: Mapping[str, Any] = {}


class Router:
    """Finds routes for one vehicle on one network; build it once and reuse it.

    Args:
        network: A :class:`~superarm.roads.networks.RoadNetwork`, the path of a file, or one of
            ``NETWORKS``.
        state: What a policy has learned on this network, such as ``RUN/states/CELL.npz``. It contains
            its own vehicle and model; where energies drift, they are those of its next round. A
            fleet's state works for any ``vehicle``.
        vehicle: The vehicle; by default ``Vehicle()``, a car.
        vehicle_class: Vehicle class that the roads must admit.
        battery: Its charge is forecast along every route.
        routing: How negative edge costs are handled.
        elevation: An SRTM tile or a folder of them; their heights replace the network's.
        settings: Parameters of the roads (``uturns``, ``flat``) and, without a state, of the vehicle
            (``mass`` …).
        vehicle_name: The vehicle's name in a fleet's log: forecasts then use its own trips.
        backend: "numpy", "numba", or "auto", which compiles the search where numba is installed.
        search: How searches are prepared: by "landmarks", by a "hierarchy", which must be compiled, or
            "auto": a hierarchy on large networks where the backend compiles.
        record: The coverage of the intervals that the state's policy forecast, where it is known.
            A fleet's state has a record of its own.

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
        search: Form = "auto",
        record: TrackRecord | None = None,
    ) -> None:
        check_settings(settings)
        require_form(search, backend)
        require_choice(routing, "routing", ("rectified", "potential"))
        roads = RequestedRoads(network, vehicle_class, elevation, settings)
        source: EnergySource
        if state is None:
            changes = {key: settings[key] for key in VEHICLE if key in settings}
            changed_vehicle = replace(vehicle or Vehicle(), **changes)
            self.graph = roads.load()
            source = ModelEnergies(self.graph, changed_vehicle)
        else:
            learned = read_learned(state, vehicle, vehicle_name, record)
            self.graph = find_roads(roads, learned)
            source = learned.on(self.graph)
        self.routing = routing
        self.battery = battery or Battery()
        self._settings = settings
        self._given_vehicle = vehicle
        self._vehicle_name = vehicle_name
        self._given_record = record
        self._backend: Backend = backend
        self._form: Form = search
        # Numba is imported when landmarks are computed, not for a single route.
        if backend != "auto":
            # Refuses a backend that is unknown or not installed.
            is_compiled(backend)
        self._costs = self._costs_by(source)
        self._refresh = LatestTask()

    @property
    def source(self) -> EnergySource:
        """The energies by which routes are found now."""
        return self._costs.source

    def refresh(self, state: str | Path | State) -> Future[None]:
        """Replace what the router has learned by another state, in the background.

        Routes, matrices and their comparisons go on meanwhile, by the energies so far. Once those of the new
        state and their landmarks or hierarchies are complete, all calls that begin after that use them. No
        answer mixes the two. During the computation both are in memory.

        Calls of ``refresh`` take effect in their order. One that has not begun when the next one arrives is
        cancelled.

        Args:
            state: The state of a policy, or its file, on the same roads.

        Returns:
            A future, whose ``result()`` waits until the new energies are used. It raises an error if the
            state does not fit; the router then keeps its energies.
        """
        return self._refresh.submit(lambda: self._use(state))

    def _use(self, state: str | Path | State) -> None:
        learned = read_learned(
            state, self._given_vehicle, self._vehicle_name, self._given_record
        )
        refuse_vehicle_settings(self._settings, learned)
        require_same_roads(self.graph, learned)
        costs = self._costs_by(learned.on(self.graph))
        costs.prepare_like(self._costs)
        learned.prepare_intervals()
        self._costs = costs

    def _costs_by(self, source: EnergySource) -> Costs:
        return Costs(self.graph, source, self.routing, self._make_search)

    def prepare(self, *, compared: bool = True) -> None:
        """Compute the landmarks or hierarchies of all searches now.

        By default landmarks are computed after eight routes, and the hierarchy of a large network after
        a thousand.

        Args:
            compared: Whether to compute those of the fastest and the shortest route, too, which
                ``as_json`` needs.
        """
        self._costs.plan(None).search.prepare()
        if compared:
            for search in self._comparisons.values():
                search.prepare()

    @cached_property
    def places(self) -> Places:
        """The network's edges by place and by name."""
        return Places(self.graph)

    def closed_by(self, geojson: Any) -> list[str]:
        """The ids of the edges that GeoJSON closes; see :mod:`superarm.roads.routing.closures`.

        Args:
            geojson: The parsed GeoJSON.
        """
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

        Args:
            start: An edge id, coordinates or the name of a street. An edge that is named by its id is
                driven from end to end; others are places on an edge. Where the road has two
                directions, the better one is taken.
            goal: The same.
            closed: Ids of edges, or names of streets, that are not used.
            depart: "HH:MM", or a date and time; it matters where ``source.timed``. A fleet with hours
                prices each road at the hour at which it is reached.
            charge: What the battery holds at the start, in Wh or as "80%".
            anyway: Whether to return a route on which the charge may fall below the reserve.
        """
        start_end = self._end(start, share_of_edges=0.0)
        goal_end = self._end(goal, share_of_edges=1.0)
        trip = RequestedTrip(
            start_end, goal_end, self._closed(closed), as_departure(depart)
        )
        costs = self._costs  # of the whole answer: a refresh may replace them
        plan = costs.plan_from(trip.start.ends, trip.when)
        try:
            initial_charge = self.battery.charge(charge)
        except ValueError as error:
            raise SpecError(str(error)) from error
        path = self._search(plan.search, trip)
        priced = self._price(costs.source, plan, trip, path, initial_charge)
        if priced.needs_alternative:
            path = self._search(plan.uncredited, trip, path)
            alternative = self._price(costs.source, plan, trip, path, initial_charge)
            priced = min(priced, alternative, key=shortfall)
        if priced.missing > 0.0 and not anyway:
            raise InfeasibleError(describe_shortfall(priced, self.graph, self.battery))
        return self._answer(costs.source, plan, trip, priced)

    def matrix(
        self,
        starts: Sequence[Place],
        goals: Sequence[Place],
        *,
        depart: str | When | None = None,
    ) -> Floats:
        """The energies of the routes of least cost from each start to each goal, Wh, (s, g).

        Each is what a route costs, Σc + Σt, and with potential routing the height between both places.
        With potential routing and without ``cut_edges``, that is the expected energy of :meth:`route`.
        No battery and no closures count. It is infinite where there is no route.

        Args:
            starts: Edge ids, coordinates or names of streets, as in :meth:`route`.
            goals: The same.
            depart: "HH:MM", or a date and time; it matters where ``source.timed``. All roads are priced
                at this hour.

        >>> from superarm.roads.networks import generate_city
        >>> router = Router(generate_city(edges=300, seed=1))
        >>> matrix = router.matrix(["r1", "r20"], ["r7", "r20", "r3"])
        >>> bool(np.isclose(matrix[0, 1], router.route("r1", "r20").best.energy))
        True
        """
        start_ends = [self._end(place, share_of_edges=0.0) for place in starts]
        goal_ends = [self._end(place, share_of_edges=1.0) for place in goals]
        plan = self._costs.plan(as_departure(depart))
        costs = plan.search.least_costs(
            [end.ends for end in start_ends], [end.ends for end in goal_ends]
        )
        start_heights = np.array([self._height(end) for end in start_ends])
        goal_heights = np.array([self._height(end) for end in goal_ends])
        climbs = goal_heights - start_heights[:, None]  # metres
        return np.asarray(costs + plan.per_metre * climbs)

    def _height(self, end: TripEnd) -> float:
        """The height of a place, metres."""
        graph = self.graph
        edge = int(end.ends.edges[0])
        tail = graph.network.tail[graph.edges[edge]]
        height = graph.network.junctions[tail, _HEIGHT]
        return float(height + end.ends.shares[0] * graph.rise[edge])

    def _answer(
        self,
        source: EnergySource,
        plan: Plan,
        trip: RequestedTrip,
        priced: PricedRoute,
    ) -> RouteAnswer:
        graph = self.graph
        best = priced.leg
        first_edge = int(best.edges[0])
        last_edge = int(best.edges[-1])
        start_place = describe_end(trip.start, first_edge, graph)
        goal_place = describe_end(trip.goal, last_edge, graph)
        start_metres = trip.start.metres(graph, first_edge)
        goal_metres = trip.goal.metres(graph, last_edge)
        depart = None
        if trip.when is not None:
            depart = trip.when.isoformat(timespec="minutes")
        return RouteAnswer(
            graph=graph,
            trip=Trip(start=first_edge, goal=last_edge),
            vehicle=RoutedVehicle(self._vehicle_name, source.vehicle, source.trips),
            places=(start_place, goal_place),
            positions=(start_metres, goal_metres),
            routing=self.routing,
            means=priced.means,
            best=best,
            compare=lambda: self._compare(source, plan, trip, best.way),
            observations=plan.energies.observations,
            cut_edges=plan.cut_edges,
            record=source.record,
            closed=trip.closed_count,
            depart=depart,
            timed=trip.when is not None and source.timed,
            charge=priced.charge,
        )

    # --- what is searched ------------------------------------------------------------------

    def _make_search(self, costs: Floats, turn_costs: Floats) -> Search:
        return Search(
            self.graph, costs, turn_costs, backend=self._backend, form=self._form
        )

    def _end(self, place: Place, share_of_edges: float) -> TripEnd:
        """A place on the edges that it may mean; edges named by id have this share before it."""
        graph = self.graph
        network = graph.network
        match = self.places.find(place)
        edges = np.array(match.edges, dtype=np.intp)
        shares = np.full(len(edges), share_of_edges)
        if match.shares is not None:
            shares = np.array(match.shares)
        numbers = graph.edges[edges]  # in the network
        tails = network.tail[numbers]
        tail_heights = network.junctions[tails, _HEIGHT]
        heights = tail_heights + shares * graph.rise[edges]
        steps = heights - heights[0]
        return TripEnd(match, Ends(edges, shares), steps)

    def _closed(self, closed: Iterable[str]) -> Bools | None:
        """Which edges are closed, (n,); ``None``: none of them."""
        if isinstance(closed, str) or not isinstance(closed, Iterable):
            raise InputError(
                f"closed must be a list of edge ids or street names, got {closed!r:.60}"
            )
        edges = [self.places.street(str(name)) for name in closed]
        if not edges:
            return None
        is_closed: Bools = np.zeros(len(self.graph), dtype=bool)
        is_closed[np.concatenate(edges)] = True
        return is_closed

    def _search(
        self, search: Search, trip: RequestedTrip, known: RoutePath | None = None
    ) -> RoutePath:
        """The cheapest path; ``known``: one between these ends, which may not be the cheapest."""
        path = search.find(trip.start.ends, trip.goal.ends, trip.closed, known)
        if path is None:
            raise InfeasibleError(describe_closure(trip, self.graph))
        return path

    # --- what a route costs ----------------------------------------------------------------

    def _price(
        self,
        source: EnergySource,
        plan: Plan,
        trip: RequestedTrip,
        path: RoutePath,
        initial_charge: float | None,
    ) -> PricedRoute:
        """A route's sums, and the battery along it where its charge is known."""
        leg, means = self._leg(source, plan, trip, path)
        if initial_charge is None:
            return PricedRoute(leg, means, None)
        parts = RouteParts.of(path)

        def spread(count: int) -> float:
            return plan.energies.spread(parts.first(count))

        charge = self.battery.follow(initial_charge, means, spread)
        return PricedRoute(leg, means, charge)

    def _leg(
        self, source: EnergySource, plan: Plan, trip: RequestedTrip, path: RoutePath
    ) -> tuple[Leg, Floats]:
        """A route's sums, and the expected energy of each of its edges, Wh, (k,)."""
        energies = plan.energies
        edges = path.edges
        turns = self.graph.turn_numbers(edges)
        parts = RouteParts.of(path)
        means = path.shares * energies.mean[edges]
        seconds = None
        seconds_spread = None
        if energies.along is not None:
            means, seconds, seconds_spread = energies.along(parts)
        means[1:] += energies.turn_costs[turns]
        # From the place's own height to that of this edge there, and back at the goal.
        before = trip.start.step(int(edges[0]))
        after = trip.goal.step(int(edges[-1]))
        means[0] += plan.per_metre * before
        means[-1] -= plan.per_metre * after
        energy = float(means.sum())
        spread = energies.spread(parts)
        rise_of_edges = float(path.shares @ self.graph.rise[edges])
        rise = rise_of_edges + before - after
        learned_log = isinstance(source, FleetEnergies)
        if learned_log and energy < 0.0 <= rise:
            raise StateError(
                f"the state forecasts {energy:.1f} Wh for a route that does not descend, which is "
                "impossible: its log was wrong. Correct the log and learn it into a new state"
            )
        leg = Leg(
            graph=self.graph,
            way=path,
            energy=energy,
            spread=spread,
            learned_seconds=seconds,
            seconds_spread=seconds_spread,
        )
        return leg, means

    def _compare(
        self, source: EnergySource, plan: Plan, trip: RequestedTrip, best: RoutePath
    ) -> dict[str, Leg]:
        """The routes to compare the best one with."""
        legs = {}
        for name, search in self._comparisons.items():
            path = self._search(search, trip, known=best)
            leg, _ = self._leg(source, plan, trip, path)
            legs[name] = leg
        return legs

    @cached_property
    def _comparisons(self) -> dict[str, Search]:
        graph = self.graph
        fastest = self._make_search(graph.travel_time, graph.turn_seconds)
        shortest = self._make_search(graph.length, graph.turn_length)
        return {"fastest": fastest, "shortest": shortest}


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
    """One route: ``Router(network, **router).route(start, goal, …)``; for several, reuse a router.

    Args:
        network: A :class:`~superarm.roads.networks.RoadNetwork`, the path of a file, or one of
            ``NETWORKS``.
        start: An edge id, coordinates or the name of a street.
        goal: The same.
        closed: Ids of edges, or names of streets, that are not used.
        depart: "HH:MM", or a date and time.
        charge: What the battery holds at the start, in Wh or as "80%".
        anyway: Whether to return a route on which the charge may fall below the reserve.
        router: Other arguments of :class:`Router`.

    >>> from superarm.roads.networks import generate_city
    >>> answer = find_route(generate_city(edges=300, seed=1), "r1", "r20", settings={"mass": 2100.0})
    >>> answer.ids()[0], answer.ids()[-1]
    ('r1', 'r20')
    >>> answer.best.energy <= min(leg.energy for leg in answer.others.values())
    True
    >>> answer.as_json()["cut_edges"]
    0
    """
    return Router(network, **router).route(
        start, goal, closed=closed, depart=depart, charge=charge, anyway=anyway
    )
