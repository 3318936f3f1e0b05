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

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from superarm.core import Arms, Best, Decision, Feedback, Floats, Ints, Offer
from superarm.core.capabilities import Metric
from superarm.core.errors import InfeasibleError, InputError
from superarm.core.inputs import as_count, as_number, read_only, require_choice
from superarm.core.registry import register
from superarm.core.road_map import RoadMap
from superarm.core.streams import Streams, stream
from superarm.kernels import GraphMatern
from superarm.models.worlds import store
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.models import FleetModel
from superarm.roads.networks import LineGraph, road_map
from superarm.roads.networks.road import Uturns
from superarm.roads.rows import (
    DISCRETE_COLUMNS,
    Column,
    NoiseColumn,
    build_rows,
    noise_parts,
    term_sizes,
)
from superarm.roads.sumo import LONGEST_STEP, Drive

from .road_models import TABLE_2, Roads, load_roads
from .sumo import Driven, drive_of, network_file

_TRIES = 2000
# Of the vehicles' arms that are cached: 110 vehicles on 100,000 edges.
_MOST_BYTES = 1 << 30
_COMFORT = 20.0  # °C
_USUAL = 10.0  # °C
_WATTS_PER_DEGREE = 60.0
_USUAL_POWER = 500.0  # W, without heating or cooling
_KELVIN = 273.0  # at 0 °C
_DRAWS = 10  # from which the variance of the kernel is estimated
Value = TypeVar("Value")


class Journey(NamedTuple):
    """What a round is about."""

    trip: int  # which pair of roads
    vehicle: int
    own: Vehicle  # the vehicle as it is on that day
    moment: int  # of the traffic, or of the signals


class Factors(NamedTuple):
    """By which a vehicle's parameters are multiplied."""

    mass: float
    drag: float
    rolling: float
    power: float


@lru_cache(maxsize=16)
def _departures(seed: int, headway: float, count: int) -> Floats:
    """When the first ``count`` trips depart, seconds: more of them begin with the same."""
    headways = stream(seed, "headways", 0).exponential(headway, count)
    return read_only(np.cumsum(headways))


def road_rows(
    graph: LineGraph, vehicle: Vehicle, number: int, edges: Ints | None = None
) -> Floats:
    """Feature rows of the roads as this vehicle meets them, (n, 9): the keys of ``RoadGP``.

    Args:
        graph: The roads.
        vehicle: The vehicle as it is described.
        number: The number of the vehicle.
        edges: Numbers of the roads; by default all of them.
    """
    chosen = slice(None) if edges is None else edges
    rise = graph.rise[chosen]
    energies = vehicle.energy(graph.length[chosen], graph.speed[chosen], rise)
    rows = build_rows(
        edges=np.arange(len(graph), dtype=np.float64)[chosen],
        expected=energies - vehicle.potential(rise),
        terms=vehicle.terms(graph, edges),
        mass_ratio=vehicle.mass / TABLE_2.mass,
        stops=vehicle.stop_variance(graph, edges),
        vehicle=number,
    )
    return read_only(rows)


def road_sizes(graph: LineGraph) -> Floats:
    """Wh that each road moves, (n,): for rolling, drag and height.

    Args:
        graph: The roads.
    """
    return term_sizes(TABLE_2.terms(graph))


@lru_cache(maxsize=4)
def near_kernel(graph: LineGraph) -> GraphMatern:
    """k_G with a variance of 1 on average, estimated from ten draws to a few per cent.

    Args:
        graph: The roads.
    """
    raw = GraphMatern(
        graph.turn_graph, nu=2, kappa=1.0, normalisation="raw", cache_megabytes=256.0
    )
    normals = np.random.default_rng(0).standard_normal((len(graph), _DRAWS))
    draws = raw.root_times(normals)
    return replace(raw, variance=1.0 / float(np.square(draws).mean()))


def fleet_model(graph: LineGraph, *, horizon: int = 1, **options: Any) -> FleetModel:
    """What a fleet knows of its roads before the first trip.

    Args:
        graph: The roads.
        horizon: Number of rounds T.
        options: ``scales``, ``refit`` and ``outliers`` of
            :class:`~superarm.roads.models.FleetModel`.
    """
    scales = options.get("scales") or RoadScales()
    return FleetModel(
        kernel=near_kernel(graph),
        sizes=road_sizes(graph),
        noise_variance=scales.noise**2,
        oracle=ShortestPath(successors=graph.turn_graph),
        horizon=horizon,
        energies=road_rows(graph, TABLE_2, 0)[:, Column.EXPECTED],
        direction="minimize",
        most_arms=len(graph),
        costs={"length": graph.length, "travel_time": graph.travel_time},
        turn_costs={
            "length": graph.turn_length,
            "travel_time": graph.turn_seconds,
            "energy": TABLE_2.turn_energy(graph),
        },
        discrete_columns=DISCRETE_COLUMNS,
        **options,
    )


@register("problem", "fleet")
@dataclass(frozen=True, kw_only=True, eq=False)
class Fleet(Driven):
    """Learn the routes of least energy for a fleet of vehicles.

    Args:
        seed: Which random world.
        horizon: Number of rounds T.
        network: "luxembourg", "monaco", "city" (by default), or the path of a network file.
        edges: About how many edges a generated city has.
        city_seed: Which of the generated cities.
        elevation: An SRTM tile, or a folder of them, whose heights replace those of the network.
        flat: Whether heights are left out.
        uturns: Whether U-turns are allowed: true, false, or "dead-ends": only where no other turn
            leads on, so that no edge is lost.
        driven: Whether trips are driven in SUMO; by default they are, except in a generated city.
        trips: How many pairs of roads trips lead between; 0: a new pair for every trip.
        least_metres: The shortest trip, along the road.
        most_metres: The longest trip, along the road.
        vehicles: How many vehicles there are.
        informed: Whether offers describe the vehicle of a trip; otherwise they describe Table 2's.
        variety: How much vehicles differ, as the fleet knows it: standard deviation, as a share.
        wear: How much each differs from what the fleet knows of it.
        payload: The largest load of a trip, kg; the fleet knows only the mean.
        weather: Standard deviation of the temperature, °C, about 10: cold draws power and thickens
            the air.
        seen: Whether the energy of every edge is known afterwards, or that of the whole trip.
        headway: Seconds between departures, on average.
        late: Seconds after its arrival until a trip's energy is known; by default it is known
            before the next departure.
        traffic: Other cars that depart per hour.
        moments: From how many moments of the traffic, or of the signals' programs, trips may begin.
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
    _rounds: Streams = field(init=False, repr=False)
    # Those of the latest round, which asks for them several times.
    _journeys: dict[int, Journey] = field(init=False, repr=False, default_factory=dict)
    _drawn_days: dict[int, _DrawnDay] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._check_parameters()
        network = "city" if self.network is None else self.network
        driven = network != "city" if self.driven is None else self.driven
        if driven and network == "city":
            raise InputError(
                "SUMO does not drive in a generated city; leave driven out"
            )
        has_heights = self.elevation is None and not self.flat
        file = network_file(network, heights=has_heights) if driven else None
        # SUMO files contain junctions, as tables do not.
        source = network if file is None else str(file)
        roads = load_roads(
            source,
            uturns=self.uturns,
            edges=self.edges,
            city_seed=self.city_seed,
            elevation=self.elevation,
            flat=self.flat,
        )
        store(self, roads=roads, model=fleet_model(roads.graph, horizon=self.horizon))
        store(
            self,
            _rounds=Streams(self.seed, "offer"),
            fleet=self._make_fleet(),
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
                f"least_metres is {self.least_metres:g}; it must be below most_metres"
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

    def _make_fleet(self) -> tuple[Vehicle, ...]:
        """Cars and vans: mass, drag, rolling resistance and auxiliaries vary from one to the next."""
        rng = stream(self.seed, "truth", 0)
        usual_heating = _WATTS_PER_DEGREE * (_COMFORT - _USUAL)
        vehicles = []
        for _ in range(self.vehicles):
            factors = np.exp(self.variety * rng.standard_normal(len(Factors._fields)))
            by = Factors(*factors.tolist())
            vehicle = replace(
                TABLE_2,
                mass=TABLE_2.mass * by.mass + self.payload / 2.0,
                air_drag=TABLE_2.air_drag * by.drag,
                rolling_resistance=TABLE_2.rolling_resistance * by.rolling,
                auxiliary_power=_USUAL_POWER * by.power + usual_heating,
            )
            vehicles.append(vehicle)
        return tuple(vehicles)

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Start and goal of every trip, by the number of the pair."""
        rng = stream(self.seed, "trips", 0)
        graph = self.graph
        count = self.trips or self.horizon
        pairs: list[tuple[int, int]] = []
        for _ in range(_TRIES):
            start, goal = rng.integers(len(graph), size=2).tolist()
            metres = float(graph.length[self._fastest((start, goal))].sum())
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
        trip = Trip(start=start, goal=goal, turn_costs=self.graph.turn_seconds)
        rng = np.random.default_rng(0)  # the oracle leaves it alone
        return self.model.oracle.select(-self.graph.travel_time, trip, rng).positions

    @cached_property
    def _wears(self) -> Floats:
        """The :class:`Factors` by which each vehicle differs from its description, (V, 4)."""
        rng = stream(self.seed, "truth", 1)
        shape = (self.vehicles, len(Factors._fields))
        return np.exp(self.wear * rng.standard_normal(shape))

    @cached_property
    def _departures(self) -> tuple[float, ...]:
        """Seconds after the signals' programs began, on empty roads."""
        rng = stream(self.seed, "moments", 0)
        return tuple(rng.uniform(0.0, 90.0, self.moments).tolist())

    @cached_property
    def _times(self) -> Floats:
        """When trips depart, seconds, (T,)."""
        return _departures(self.seed, self.headway, self.horizon)

    def journey(self, step: int) -> Journey:
        """Who drives in a round, and the vehicle as it is on that day.

        Args:
            step: Number of the round, from 1.
        """
        return _cached(self._journeys, step, self._make_journey)

    def _make_journey(self, step: int) -> Journey:
        # The order of the draws decides the world of a seed.
        rng = self._rounds.at(step)
        pair = int(rng.integers(self.trips)) if self.trips else step - 1
        number = int(rng.integers(self.vehicles))
        moment = int(rng.integers(self.moments))
        load = float(rng.uniform(0.0, self.payload))
        degrees = float(rng.normal(_USUAL, self.weather))
        vehicle = self.fleet[number]
        wear = Factors(*self._wears[number].tolist())
        # Degrees of heating or cooling beyond the usual.
        degrees_more = abs(degrees - _COMFORT) - abs(_USUAL - _COMFORT)
        power = vehicle.auxiliary_power * wear.power + _WATTS_PER_DEGREE * degrees_more
        as_driven = replace(
            vehicle,
            mass=(vehicle.mass - self.payload / 2.0) * wear.mass + load,
            air_drag=vehicle.air_drag * wear.drag,
            rolling_resistance=vehicle.rolling_resistance * wear.rolling,
            auxiliary_power=max(0.0, power),
            air_density=vehicle.air_density * (_KELVIN + _USUAL) / (_KELVIN + degrees),
        )
        return Journey(pair, number, as_driven, moment)

    # --- rounds ----------------------------------------------------------------------------

    def offer(self, step: int) -> Offer:
        journey = self.journey(step)
        start, goal = self._pairs[journey.trip]
        vehicle = self._described(journey.vehicle)
        departure = _DEPARTURES.of(self.graph, vehicle, journey.vehicle)
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
        vehicle = self._described(self.journey(offer.step).vehicle)
        rewards = cost.energies - vehicle.potential(self.graph.rise[route])
        rewards[:-1] -= trip.turn_costs[self.graph.turn_numbers(route)]
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
        known_at = float(self._times[step - 1]) + seconds + self.late
        times = self._times
        count_of_times = max(step, self.horizon)
        # Also those after the last round: a run that is made longer meets the same delays.
        while len(times) <= step or times[-1] <= known_at:
            count_of_times = 2 * count_of_times
            times = _departures(self.seed, self.headway, count_of_times)
        later = np.count_nonzero(times[step:] <= known_at)
        return np.full(count, later, dtype=np.intp)

    def _described(self, number: int) -> Vehicle:
        """A vehicle as offers describe it."""
        return self.fleet[number] if self.informed else TABLE_2

    def value(self, offer: Offer, decision: Decision) -> float:
        return float(
            self.energies(offer.step, tuple(decision.positions.tolist())).sum()
        )

    def energies(self, step: int, route: tuple[int, ...]) -> Floats:
        """Wh that each edge of a route costs the vehicle of a round on that day, (k,).

        Args:
            step: Number of the round, from 1.
            route: Numbers of the edges, in driving order.
        """
        return self._cost(step, route).energies

    def best(self, offer: Offer) -> Best:
        """The cost of the informed route on the same day: nobody knows the best."""
        energies = self.energies(offer.step, self.informed_route(offer))
        return Best(float(energies.sum()))

    def informed_route(self, offer: Offer) -> tuple[int, ...]:
        """The cheapest route by the energy model, for the vehicle as it is described.

        Args:
            offer: The offer of a round.
        """
        desirability = np.minimum(-offer.arms.features[:, Column.EXPECTED], 0.0)
        rng = np.random.default_rng(0)  # the oracle leaves it alone
        route = self.model.oracle.select(desirability, offer.structure, rng)
        return tuple(route.positions.tolist())

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        cost = self._cost(offer.step, tuple(decision.positions.tolist()))
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

    def _cost(self, step: int, route: tuple[int, ...]) -> _TripCost:
        journey = self.journey(step)
        graph = self.graph
        vehicle = journey.own
        edges = np.array(route, dtype=np.intp)
        if self._drive is None:
            return self._drawn_cost(step, edges)
        ids = tuple(graph.ids[edge] for edge in route)
        drive = self._drive(ids, moment=journey.moment)
        # Heights are the junctions', whatever lanes of the SUMO file say: what is stored in height then
        # adds up to the same for all routes of a trip.
        energies = drive.energies(vehicle, graph.rise[edges]) - drive.stored(vehicle)
        missing = edges[drive.completed :]
        modelled = vehicle.energy(graph.length, graph.speed, graph.rise)
        energies[drive.completed :] += modelled[missing]
        return _TripCost(energies, drive.duration, drive.arrived)

    @cached_property
    def _drawn_roads(self) -> Floats:
        """f of the fleet's own model, (n,)."""
        rng = stream(self.seed, "truth", 2)
        scales = RoadScales()
        n = len(self.graph)
        near = self.model.kernel.root_times(rng.standard_normal(n))
        road_std = np.hypot(scales.own, scales.share * self.model.sizes)
        return scales.near * near + road_std * rng.standard_normal(n) + 1.0

    def _drawn_cost(self, step: int, edges: Ints) -> _TripCost:
        """A trip of the fleet's own model: roads, the vehicle of the day, and noise of each road."""
        graph = self.graph
        day = _cached(self._drawn_days, step, self._draw_day)
        turns = graph.turn_numbers(edges)
        energies = day.energies[edges]
        energies[:-1] += day.turn_energies[turns]
        seconds = graph.travel_time[edges].sum() + graph.turn_seconds[turns].sum()
        return _TripCost(energies, float(seconds), True)

    def _draw_day(self, step: int) -> _DrawnDay:
        graph = self.graph
        vehicle = self.journey(step).own
        rows = road_rows(graph, vehicle, 0)
        # Terms describe the vehicle of the day exactly, so no noise is a share of sizes.
        scales = RoadScales().noise_scales[: NoiseColumn.SIZE]
        parts = noise_parts(rows)[:, : NoiseColumn.SIZE]
        std = np.sqrt(parts @ np.square(scales))
        normals = Streams(self.seed, "noise-of-roads").at(step)
        noise = normals.standard_normal(len(graph))
        noise *= std
        stored = vehicle.potential(graph.rise)
        of_roads = rows[:, Column.MASS_RATIO] * self._drawn_roads
        energies = rows[:, Column.EXPECTED] + stored + of_roads + noise
        return _DrawnDay(energies, vehicle.turn_energy(graph))

    def _interpret(self, driven: bool) -> dict[str, str]:
        """What a report explains about the problem."""
        graph = self.graph
        source = "driven in SUMO" if driven else "drawn from the fleet's own model"
        feedback = "of every edge" if self.seen == "edges" else "of whole trips"
        delay = "at once" if self.late is None else f"{self.late:g} s after arrival"
        return {
            "data": self.roads.description,
            "network": f"passenger edges: {len(graph)}, {len(graph.turns)} turns",
            "trips": f"{self.vehicles} vehicles between {self.trips or 'ever-new'} pairs of roads, a "
            f"trip every {self.headway:g} s on average",
            "vehicles": f"differ by {100.0 * self.variety:g} % in what the fleet knows and by another "
            f"{100.0 * self.wear:g} % in what it does not; a trip carries up to {self.payload:g} kg; "
            f"temperatures of 10 ± {self.weather:g} °C",
            "energy": "what the battery gives less what is stored in motion, alike in feedback, metric "
            f"and forecast; {source}",
            "feedback": f"{feedback}, {delay}",
            "traffic": f"{self.traffic:g} cars an hour" if self.traffic else "none",
            "regret": "energy above that of the informed prior's route, driven on the same day; "
            "negative where less was needed",
        }


class _DrawnDay(NamedTuple):
    """What roads and turns cost in a round that is drawn from the fleet's own model."""

    energies: Floats  # Wh of each road, (n,)
    turn_energies: Floats  # Wh that each turn adds, (c,)


class _TripCost(NamedTuple):
    """What a trip cost."""

    energies: Floats  # Wh of each edge, less what is stored in motion, (k,)
    seconds: float
    arrived: bool


def _cached(cache: dict[int, Value], step: int, make: Callable[[int], Value]) -> Value:
    """The value of a round; the cache holds the latest round's alone."""
    value = cache.get(step)
    if value is None:
        value = make(step)
        cache.clear()
        cache[step] = value
    return value


class _Departure(NamedTuple):
    """The part of an offer that depends on the vehicle alone."""

    arms: Arms
    turn_costs: Floats  # Wh, (c,)

    @property
    def bytes(self) -> int:
        return self.arms.features.nbytes + self.turn_costs.nbytes


class _Departures:
    """A cache of the vehicles that departed last, as many as fit into ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._known: OrderedDict[tuple[LineGraph, Vehicle, int], _Departure] = (
            OrderedDict()
        )
        self._lock = Lock()

    def of(self, graph: LineGraph, vehicle: Vehicle, number: int) -> _Departure:
        """The departure of a vehicle with this number."""
        key = (graph, vehicle, number)
        with self._lock:
            if key not in self._known:
                return self._add(key)
            self._known.move_to_end(key)
            return self._known[key]

    def _add(self, key: tuple[LineGraph, Vehicle, int]) -> _Departure:
        graph, vehicle, number = key
        arms = Arms(ids=graph.ids, features=road_rows(graph, vehicle, number))
        departure = _Departure(arms, read_only(vehicle.turn_energy(graph)))
        self._known[key] = departure
        self._bytes += departure.bytes
        while self._bytes > self._most and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.bytes
        return departure


_DEPARTURES = _Departures(_MOST_BYTES)
