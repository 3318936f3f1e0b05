"""A fleet of electric vehicles: many trips, one belief, and feedback when a vehicle has arrived.

Each round is a trip: a vehicle of the fleet departs from one road to another. An offer describes the
vehicle as the fleet knows it, with the energy model's forecast of each road; the vehicle that drives
carries a payload of the day, heats or cools its cabin in the weather of the day, and is a little worn.
What a road cost is known once the vehicle has arrived, which is after later ones have departed; or
only the energy of the whole trip is known.

=================  ====================================================================
``energy``         of a trip, Wh: what the battery gave, less what is then stored in motion
``rewards``        of edges: their energy less what turns are expected to add (``turn_costs``), and
                   less what is stored in height for the vehicle as it is described
``Δh``             of a trip: what it stores in height; the same for all its routes
=================  ====================================================================

A trip's energy is the sum of its edges' rewards, its turn costs and Δh: feedback, metric and
forecast mean the same. Roads and drives are real where there is SUMO (``driven``); otherwise trips are
drawn from the fleet's own model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from superarm.core import Best, Decision, Feedback, Floats, Ints, Offer, Rng
from superarm.core.caching import cached_property
from superarm.core.capabilities import Metric
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.inputs import as_count, as_number, require_choice
from superarm.core.registry import register
from superarm.core.road_map import RoadMap
from superarm.core.streams import Streams, stream
from superarm.models.worlds import store
from superarm.oracles import Trip
from superarm.roads.energy import Vehicle
from superarm.roads.models import FleetModel
from superarm.roads.networks import road_map
from superarm.roads.networks.road import Uturns
from superarm.roads.rows import Column
from superarm.roads.sumo import LONGEST_STEP, Drive

from .fleet_departures import DEPARTURES, departure_times
from .fleet_draws import DrawnTrips, TripCost, cached_round
from .fleet_model import fleet_model, near_kernel, road_rows, road_sizes
from .fleet_vehicles import (
    USUAL_TEMPERATURE,
    Day,
    Factors,
    Journey,
    as_driven,
    draw_fleet,
    draw_wears,
)
from .road_loading import Roads, load_roads
from .road_models import TABLE_2
from .sumo import Driven, drive_of, network_file

__all__ = ["Fleet", "Journey", "fleet_model", "near_kernel", "road_rows", "road_sizes"]

_TRIES = 2000
_MOST_JOURNEYS = 256
"""Journeys that stay in memory: simulations draw a block of rounds before they play it."""


@register("problem", "fleet")
@dataclass(frozen=True, kw_only=True, eq=False)
class Fleet(Driven):
    """Learn the routes of least energy for a fleet of vehicles.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        network: "luxembourg", "monaco", "city" (by default), or the path of a network file.
        edges: About how many edges a generated city has.
        city_seed: Seed of the generated city.
        elevation: An SRTM tile, or a folder of them, whose heights replace those of the network.
        flat: Whether to ignore heights.
        uturns: Whether U-turns are allowed: true, false, or "dead-ends": only where no other turn
            leads on, so that no edge is lost.
        driven: Whether SUMO drives the trips; by default it does, except in a generated city.
        trips: Number of pairs of start and goal; 0: a new pair for every trip.
        least_metres: Length of the shortest trip, along the road, in metres.
        most_metres: Length of the longest trip, along the road, in metres.
        vehicles: Number of vehicles.
        informed: Whether offers describe the vehicle of a trip; otherwise they describe that of Table 2.
        variety: How much vehicles differ, as the fleet knows it: standard deviation, as a share.
        wear: How much each differs from what the fleet knows of it.
        payload: The largest load of a trip, kg; the fleet knows only the mean.
        weather: Standard deviation of the temperature, °C, about 10: cold draws power and thickens
            the air.
        seen: Whether feedback is the energy of every edge, or of the whole trip.
        headway: Seconds between departures, on average.
        late: Seconds after its arrival until a trip's energy is known; by default it is known
            before the next departure.
        traffic: Other cars that depart per hour.
        moments: Number of moments of the traffic, or of the signals' programs, at which trips may begin.
        traffic_reach: Other cars travel between roads within this many metres of the trips' fastest
            routes.
        cache: A file that caches drives for other policies, seeds and runs.
    """

    seed: int
    horizon: int
    network: str | None = None
    edges: int = 2000
    city_seed: int = 0
    elevation: str | None = None
    flat: bool = False
    uturns: Uturns = "dead-ends"
    driven: bool | None = None
    trips: int = 10
    least_metres: float = 1500.0
    most_metres: float = 8000.0
    vehicles: int = 20
    informed: bool = True
    variety: float = 0.2
    wear: float = 0.05
    payload: float = 200.0
    weather: float = 5.0
    seen: Literal["edges", "trips"] = "edges"
    headway: float = 120.0
    late: float | None = None
    traffic: float = 0.0
    moments: int = 8
    traffic_reach: float = 300.0
    cache: str | None = None
    model: FleetModel = field(init=False, repr=False)
    interpretations: Mapping[str, str] = field(init=False, repr=False)
    roads: Roads = field(init=False, repr=False)
    fleet: tuple[Vehicle, ...] = field(init=False, repr=False)
    """The vehicles as the fleet knows them."""
    _drive: Callable[..., Drive] | None = field(init=False, repr=False)
    _draws: DrawnTrips = field(init=False, repr=False)
    _rounds: Streams = field(init=False, repr=False)
    # That of the latest round, which asks for it several times.
    _journeys: dict[int, Journey] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._check_parameters()
        network = "city" if self.network is None else self.network
        driven = self.driven
        if driven is None:
            driven = network != "city"
        if driven and network == "city":
            raise InputError(
                "SUMO does not drive in a generated city; leave driven out"
            )
        file = None
        source = network
        if driven:
            has_heights = self.elevation is None and not self.flat
            file = network_file(network, heights=has_heights)
            # SUMO files contain junctions, as tables do not.
            source = str(file)
        roads = load_roads(
            source,
            uturns=self.uturns,
            edges=self.edges,
            city_seed=self.city_seed,
            elevation=self.elevation,
            flat=self.flat,
        )
        model = fleet_model(roads.graph, horizon=self.horizon)
        fleet = draw_fleet(
            self.seed, self.vehicles, variety=self.variety, payload=self.payload
        )
        store(
            self,
            roads=roads,
            model=model,
            fleet=fleet,
            _rounds=Streams(self.seed, "offer"),
            _draws=DrawnTrips(self.seed, roads.graph, model),
            _drive=None,
        )
        if file is not None:
            store(self, _drive=self._driver(file))
        store(self, interpretations=self._interpret(driven))

    def _check_parameters(self) -> None:
        as_count(self.horizon, "horizon", least=1)
        as_count(self.trips, "trips", 0, 10**6)
        as_count(self.vehicles, "vehicles", 1, 100_000)
        as_count(self.moments, "moments", 1, 10_000)
        require_choice(self.seen, "seen", ("edges", "trips"))
        # Beyond these, vehicles do not exist, and temperatures cannot be as low.
        as_number(self.variety, "variety", 0.0, 1.0)
        as_number(self.wear, "wear", 0.0, 1.0)
        as_number(self.payload, "payload", 0.0, 1e5)
        as_number(self.weather, "weather", 0.0, 40.0)
        as_number(self.traffic, "traffic", 0.0)
        as_number(self.traffic_reach, "traffic_reach", 0.0)
        as_number(self.headway, "headway", 0.1, 1e6)
        if self.late is not None:
            as_number(self.late, "late", 0.0, 1e6)
        least = as_number(self.least_metres, "least_metres")
        most = as_number(self.most_metres, "most_metres")
        if not 0.0 <= least < most:
            raise InputError(
                f"least_metres must be 0 or more and below most_metres, {most:g}, got {least:g}"
            )

    def _driver(self, file: Path) -> Callable[..., Drive]:
        """Drives in SUMO, with other cars where there is traffic."""
        traffic = None
        seed = 0
        moments = self._departures
        if self.traffic:
            traffic = self._traffic_near(map(self._fastest, self._pairs))
            seed = self.seed
            moments = (0.0,)
        return drive_of(file, LONGEST_STEP, traffic, seed, self.cache, moments)

    # --- who drives where ------------------------------------------------------------------

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Start and goal of every trip, by the number of the pair."""
        rng = stream(self.seed, "trips", 0)
        graph = self.graph
        count = self.trips or self.horizon
        pairs: list[tuple[int, int]] = []
        for _ in range(_TRIES):
            start, goal = rng.integers(len(graph), size=2).tolist()
            route = self._fastest((start, goal))
            metres = float(graph.length[route].sum())
            if self.least_metres <= metres <= self.most_metres:
                pairs.append((start, goal))
            if len(pairs) == count:
                return pairs
        raise InfeasibleError(
            f"in {_TRIES} tries only {len(pairs)} pairs of roads were {self.least_metres:g} to "
            f"{self.most_metres:g} m apart; ask for other distances"
        )

    def _fastest(self, pair: tuple[int, int]) -> Ints:
        """The edges of the fastest route, (k,)."""
        start, goal = pair
        graph = self.graph
        trip = Trip(start=start, goal=goal, turn_costs=graph.turn_seconds)
        return self._select_route(-graph.travel_time, trip)

    def _select_route(self, desirability: Floats, trip: object) -> Ints:
        """The edges of the most desirable route, (k,)."""
        rng = np.random.default_rng(0)  # the oracle does not use it
        route = self.model.oracle.select(desirability, trip, rng)
        return route.positions

    @cached_property
    def _wears(self) -> Floats:
        """The :class:`Factors` by which each vehicle differs from its description, (V, 4)."""
        return draw_wears(self.seed, self.vehicles, self.wear)

    @cached_property
    def _departures(self) -> tuple[float, ...]:
        """Seconds after the signals' programs began, on empty roads."""
        rng = stream(self.seed, "moments", 0)
        seconds = rng.uniform(0.0, 90.0, self.moments)
        return tuple(seconds.tolist())

    @cached_property
    def _times(self) -> Floats:
        """When trips depart, seconds, (T,)."""
        return departure_times(self.seed, self.headway, self.horizon)

    def journey(self, step: int) -> Journey:
        """Who drives in a round, and the vehicle as it is on that day.

        Args:
            step: Number of the round, from 1.
        """
        return cached_round(self._journeys, step, self._make_journey, _MOST_JOURNEYS)

    def _make_journey(self, step: int) -> Journey:
        # The order of the draws decides the world of a seed.
        rng = self._rounds.at(step)
        pair = step - 1
        if self.trips:
            pair = int(rng.integers(self.trips))
        number = int(rng.integers(self.vehicles))
        moment = int(rng.integers(self.moments))
        day = self._draw_day(rng)
        wear = Factors(*self._wears[number].tolist())
        vehicle = as_driven(self.fleet[number], wear, day, payload=self.payload)
        return Journey(pair, number, vehicle, moment)

    def _draw_day(self, rng: Rng) -> Day:
        load = float(rng.uniform(0.0, self.payload))
        temperature = float(rng.normal(USUAL_TEMPERATURE, self.weather))
        return Day(load, temperature)

    # --- rounds ----------------------------------------------------------------------------

    def offer(self, step: int) -> Offer:
        journey = self.journey(step)
        number = journey.vehicle
        vehicle = self._described(number)
        departure = DEPARTURES.get(self.graph, vehicle, number)
        start, goal = self._pairs[journey.trip]
        trip = Trip(start=start, goal=goal, turn_costs=departure.turn_costs)
        time = None
        if step <= self.horizon:
            time = float(self._times[step - 1])
        return Offer(step=step, time=time, arms=departure.arms, structure=trip)

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        route = decision.positions
        trip = offer.structure
        assert isinstance(trip, Trip)
        assert trip.turn_costs is not None
        cost = self._cost(offer.step, tuple(route.tolist()))
        journey = self.journey(offer.step)
        vehicle = self._described(journey.vehicle)
        stored = vehicle.potential(self.graph.rise[route])
        rewards = cost.energies - stored
        turns = self.graph.turn_numbers(route)
        rewards[:-1] -= trip.turn_costs[turns]
        delays = self._delays(offer.step, cost.seconds, len(route))
        if self.seen == "edges":
            return Feedback(positions=route, rewards=rewards, delays=delays)
        sums = np.zeros(len(route), dtype=np.intp)
        return Feedback(
            positions=route,
            rewards=rewards.sum(keepdims=True),
            sums=sums,
            delays=delays,
        )

    def _delays(self, step: int, seconds: float, count: int) -> Ints | None:
        """How many rounds later each of so many rewards is known, (k,); ``None``: at once."""
        if self.late is None:
            return None
        times = self._times
        departure = float(times[step - 1])
        known_at = departure + seconds + self.late
        trips = max(step, self.horizon)
        # Also those after the last round: a run that is made longer meets the same delays.
        while len(times) <= step or times[-1] <= known_at:
            trips = 2 * trips
            times = departure_times(self.seed, self.headway, trips)
        later_times = times[step:]
        delay = np.count_nonzero(later_times <= known_at)
        return np.full(count, delay, dtype=np.intp)

    def _described(self, number: int) -> Vehicle:
        """A vehicle as offers describe it."""
        return self.fleet[number] if self.informed else TABLE_2

    def value(self, offer: Offer, decision: Decision) -> float:
        route = tuple(decision.positions.tolist())
        energies = self.energies(offer.step, route)
        return float(energies.sum())

    def energies(self, step: int, route: tuple[int, ...]) -> Floats:
        """Wh that each edge of a route costs the vehicle of a round on that day, (k,).

        Args:
            step: Number of the round, from 1.
            route: Numbers of the edges, in driving order.
        """
        return self._cost(step, route).energies

    def best(self, offer: Offer) -> Best:
        """The cost of the informed route on the same day: nobody knows the best."""
        route = self.informed_route(offer)
        energies = self.energies(offer.step, route)
        return Best(float(energies.sum()))

    def informed_route(self, offer: Offer) -> tuple[int, ...]:
        """The cheapest route by the energy model, for the vehicle as it is described.

        Args:
            offer: The offer of a round.
        """
        expected = offer.arms.features[:, Column.EXPECTED]
        desirability = np.minimum(-expected, 0.0)
        route = self._select_route(desirability, offer.structure)
        return tuple(route.tolist())

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        route = tuple(decision.positions.tolist())
        cost = self._cost(offer.step, route)
        return {
            "true_energy": float(cost.energies.sum()),
            "duration": cost.seconds,
            "stranded": float(not cost.arrived),
        }

    @property
    def measures(self) -> Mapping[str, Metric]:
        regret = Metric("energy above the informed prior's", "Wh", better="down")
        return {**super().measures, "regret": regret}

    def road_map(self) -> RoadMap:
        return road_map(self.graph)

    # --- what trips cost -------------------------------------------------------------------

    def _cost(self, step: int, route: tuple[int, ...]) -> TripCost:
        journey = self.journey(step)
        vehicle = journey.own
        edges = np.array(route, dtype=np.intp)
        if self._drive is None:
            return self._draws.cost(step, vehicle, edges)
        ids = tuple(self.graph.ids[edge] for edge in route)
        drive = self._drive(ids, moment=journey.moment)
        energies = self._driven_energies(drive, vehicle, edges)
        return TripCost(energies, drive.duration, drive.arrived)

    def _driven_energies(self, drive: Drive, vehicle: Vehicle, edges: Ints) -> Floats:
        """The energy of each edge of a drive in SUMO, Wh, (k,)."""
        graph = self.graph
        # Heights are the junctions', whatever lanes of the SUMO file say: what is stored in height then
        # adds up to the same for all routes of a trip.
        spent = drive.energies(vehicle, graph.rise[edges])
        energies = spent - drive.stored(vehicle)
        # Edges that the vehicle did not reach cost what the energy model expects.
        completed = drive.completed
        missing = edges[completed:]
        modelled = vehicle.energy(graph.length, graph.speed, graph.rise)
        energies[completed:] += modelled[missing]
        return energies

    def _interpret(self, driven: bool) -> dict[str, str]:
        """What a report explains about the problem."""
        graph = self.graph
        source = "drawn from the fleet's own model"
        if driven:
            source = "driven in SUMO"
        feedback = "of every edge"
        if self.seen == "trips":
            feedback = "of whole trips"
        delay = "at once"
        if self.late is not None:
            delay = f"{self.late:g} s after arrival"
        traffic = "none"
        if self.traffic:
            traffic = f"{self.traffic:g} cars an hour"
        pairs = self.trips or "ever-new"
        variety = 100.0 * self.variety  # %
        wear = 100.0 * self.wear  # %
        return {
            "data": self.roads.description,
            "network": f"passenger edges: {len(graph)}, {len(graph.turns)} turns",
            "trips": f"{self.vehicles} vehicles between {pairs} pairs of roads, a "
            f"trip every {self.headway:g} s on average",
            "vehicles": f"differ by {variety:g} % in what the fleet knows and by another "
            f"{wear:g} % in what it does not; a trip carries up to {self.payload:g} kg; "
            f"temperatures of 10 ± {self.weather:g} °C",
            "energy": "what the battery gives less what is stored in motion, alike in feedback, metric "
            f"and forecast; {source}",
            "feedback": f"{feedback}, {delay}",
            "traffic": traffic,
            "regret": "energy above that of the informed prior's route, driven on the same day; "
            "negative where less was needed",
        }
