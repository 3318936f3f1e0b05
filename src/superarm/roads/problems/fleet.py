"""A fleet of electric vehicles: many trips, one belief, and feedback when a vehicle has arrived.

Each round is a trip: a vehicle of the fleet departs from one road to another. The traveller is told the
vehicle as the fleet knows it, and of each road what the energy model says for it; the vehicle that
drives carries a payload of the day, heats or cools its cabin in the weather of the day, and is a
little worn. What a road cost is known once the vehicle has arrived, which is after later ones have
departed; or only the energy of the whole trip is known.

=================  ====================================================================
``energy``         of a trip, Wh: what the battery gave, less what is then stored in motion
``rewards``        of edges: their energy less what turns are expected to add (``turn_costs``), and
                   less what is stored in height for the vehicle as it was told
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
from threading import Lock
from typing import Any, Literal, NamedTuple

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
from superarm.roads.sumo import LONGEST_STEP, Drive

from .road_models import TABLE_2, Roads, load_roads
from .sumo import Driven, drive_of, network_file

_TRIES = 2000
_MOST_BYTES = (
    1 << 30
)  # of the vehicles' arms that are cached: 110 vehicles on 100,000 edges
_COMFORT, _WATTS_PER_DEGREE = 20.0, 60.0


class Journey(NamedTuple):
    """What a round is about."""

    trip: int  # which pair of roads
    vehicle: int
    own: Vehicle  # as it is on that day
    moment: int  # of the traffic, or of the signals


@lru_cache(maxsize=16)
def _departures(seed: int, headway: float, count: int) -> Floats:
    """When the first ``count`` trips depart, seconds: more of them begin with the same."""
    return read_only(np.cumsum(stream(seed, "headways", 0).exponential(headway, count)))


def road_rows(
    graph: LineGraph, vehicle: Vehicle, number: int, edges: Ints | None = None
) -> Floats:
    """The roads as this vehicle meets them, (n, 9): the keys of ``posteriors.RoadGP``.

    ``edges`` are the numbers of the roads wanted; by default all of them.
    """
    at = slice(None) if edges is None else edges
    rise = graph.rise[at]
    energies = vehicle.energy(
        graph.length[at], graph.speed[at], rise
    ) - vehicle.potential(rise)
    numbers = np.arange(len(graph), dtype=np.float64)[at]
    each = np.full(len(numbers), vehicle.mass / TABLE_2.mass)
    who = np.full(len(numbers), number, dtype=np.float64)
    terms, stops = vehicle.terms(graph, edges), vehicle.stop_variance(graph, edges)
    return read_only(np.column_stack([numbers, energies, terms, each, stops, who]))


def road_sizes(graph: LineGraph) -> Floats:
    """Wh that each road moves, (n,): for rolling, drag and height."""
    return np.asarray(np.abs(TABLE_2.terms(graph)[:, [0, 2, 3]]).sum(axis=1))


@lru_cache(maxsize=4)
def near_kernel(graph: LineGraph) -> GraphMatern:
    """k_G with a variance of 1 on average, which ten draws tell to a few per cent."""
    raw = GraphMatern(
        graph.turn_graph, nu=2, kappa=1.0, normalisation="raw", cache_megabytes=256.0
    )
    draws = raw.root_times(np.random.default_rng(0).standard_normal((len(graph), 10)))
    return replace(raw, variance=1.0 / float(np.square(draws).mean()))


def fleet_model(graph: LineGraph, *, horizon: int = 1, **options: Any) -> FleetModel:
    """What a fleet knows of its roads before the first trip."""
    scales = options.get("scales") or RoadScales()
    return FleetModel(
        kernel=near_kernel(graph),
        sizes=road_sizes(graph),
        noise_variance=scales.noise**2,
        oracle=ShortestPath(successors=graph.turn_graph),
        horizon=horizon,
        energies=road_rows(graph, TABLE_2, 0)[:, 1],
        direction="minimize",
        most_arms=len(graph),
        costs={"length": graph.length, "travel_time": graph.travel_time},
        turn_costs={
            "length": graph.turn_length,
            "travel_time": graph.turn_seconds,
            "energy": TABLE_2.turn_energy(graph),
        },
        discrete_columns=(0, 8),
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
        driven: Whether trips are driven in SUMO; ``None``: yes, but in a generated city.
        trips: How many pairs of roads trips lead between; 0: a new pair for every trip.
        least_metres: The shortest trip, along the road.
        most_metres: The longest trip, along the road.
        vehicles: How many vehicles there are.
        informed: Whether the traveller is told the vehicle of a trip; otherwise it takes all for
            Table 2's.
        variety: How much vehicles differ, as the fleet knows it: standard deviation, as a share.
        wear: How much each differs from what the fleet knows of it.
        payload: The largest load of a trip, kg; the fleet knows only the mean.
        weather: Standard deviation of the temperature, °C, about 10: cold draws power and thickens
            the air.
        seen: Whether the energy of every edge is known afterwards, or that of the whole trip.
        headway: Seconds between departures, on average.
        late: Seconds after its arrival until a trip's energy is known; ``None``: before the next
            departure.
        traffic: Other cars that depart per hour.
        moments: From how many moments of the traffic, or of the signals' programs, trips may begin.
        traffic_reach: Other cars travel between roads within this many metres of the trips' fastest
            routes.
        cache: A file in which drives are kept, for other policies, seeds and runs.
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

    def __post_init__(self) -> None:
        as_count(self.horizon, "horizon", least=1)
        as_count(self.trips, "trips", 0, 10**6)
        as_count(self.vehicles, "vehicles", 1, 100_000)
        as_count(self.moments, "moments", 1, 10_000)
        require_choice(self.seen, "seen", ("edges", "trips"))
        # Beyond these, vehicles are none, and it may be colder than it can be.
        for name, most in {
            "variety": 1.0,
            "wear": 1.0,
            "payload": 1e5,
            "weather": 40.0,
        }.items():
            as_number(getattr(self, name), name, 0.0, most)
        for name in ("traffic", "traffic_reach"):
            as_number(getattr(self, name), name, 0.0)
        as_number(self.headway, "headway", 0.1, 1e6)
        if self.late is not None:
            as_number(self.late, "late", 0.0, 1e6)
        least, most = (
            as_number(getattr(self, name), name)
            for name in ("least_metres", "most_metres")
        )
        if not 0.0 <= least < most:
            raise InputError(
                f"least_metres is {self.least_metres:g}; it must be below most_metres"
            )
        network = "city" if self.network is None else self.network
        driven = network != "city" if self.driven is None else self.driven
        if driven and network == "city":
            raise InputError(
                "SUMO does not drive in a generated city; leave driven out"
            )
        heights = self.elevation is None and not self.flat
        file = network_file(network, heights=heights) if driven else None
        read = (
            network if file is None else str(file)
        )  # which knows junctions, as tables do not
        names = ("uturns", "edges", "city_seed", "elevation", "flat")
        roads = load_roads(read, **{name: getattr(self, name) for name in names})
        store(self, roads=roads, model=fleet_model(roads.graph, horizon=self.horizon))
        store(
            self,
            _rounds=Streams(self.seed, "offer"),
            fleet=self._make_fleet(),
            _drive=None,
        )
        if file is not None:
            traffic = (
                self._traffic_near(map(self._fastest, self._pairs))
                if self.traffic
                else None
            )
            moments = (0.0,) if traffic else self._departures
            seed = self.seed if traffic else 0
            store(
                self,
                _drive=drive_of(file, LONGEST_STEP, traffic, seed, self.cache, moments),
            )
        store(self, interpretations=self._settled(driven))

    # --- who drives where ------------------------------------------------------------------

    def _make_fleet(self) -> tuple[Vehicle, ...]:
        """Cars and vans: mass, drag, rolling resistance and auxiliaries vary from one to the next."""
        rng, made = stream(self.seed, "truth", 0), []
        for _ in range(self.vehicles):
            mass, drag, rolling, power = np.exp(
                self.variety * rng.standard_normal(4)
            ).tolist()
            made.append(
                replace(
                    TABLE_2,
                    mass=TABLE_2.mass * mass + self.payload / 2.0,
                    air_drag=TABLE_2.air_drag * drag,
                    rolling_resistance=TABLE_2.rolling_resistance * rolling,
                    auxiliary_power=500.0 * power + _WATTS_PER_DEGREE * 10.0,
                )
            )
        return tuple(made)

    @cached_property
    def _pairs(self) -> list[tuple[int, int]]:
        """Start and goal of every trip, by the number of the pair."""
        rng, graph, found = stream(self.seed, "trips", 0), self.graph, []
        for _ in range(_TRIES):
            start, goal = rng.integers(len(graph), size=2).tolist()
            metres = float(graph.length[self._fastest((start, goal))].sum())
            if self.least_metres <= metres <= self.most_metres:
                found.append((start, goal))
            if len(found) == (self.trips or self.horizon):
                return found
        raise InfeasibleError(
            f"in {_TRIES} tries only {len(found)} pairs of roads were {self.least_metres:g} to "
            f"{self.most_metres:g} m apart; ask for other distances"
        )

    def _fastest(self, pair: tuple[int, int]) -> Ints:
        """The edges of the fastest route, (k,)."""
        trip = Trip(start=pair[0], goal=pair[1], turn_costs=self.graph.turn_seconds)
        rng = np.random.default_rng(0)  # the oracle leaves it alone
        return self.model.oracle.select(-self.graph.travel_time, trip, rng).positions

    @cached_property
    def _wears(self) -> Floats:
        """By which factor each vehicle's mass, drag, rolling resistance and auxiliaries are off."""
        rng = stream(self.seed, "truth", 1)
        return np.exp(self.wear * rng.standard_normal((self.vehicles, 4)))

    @cached_property
    def _departures(self) -> tuple[float, ...]:
        """Seconds after the signals' programs began, on empty roads."""
        return tuple(
            stream(self.seed, "moments", 0).uniform(0.0, 90.0, self.moments).tolist()
        )

    @cached_property
    def _times(self) -> Floats:
        """When trips depart, seconds, (T,)."""
        return _departures(self.seed, self.headway, self.horizon)

    def journey(self, step: int) -> Journey:
        """Who drives in a round, and what is so on that day."""
        rng = self._rounds.at(step)
        pair = int(rng.integers(self.trips)) if self.trips else step - 1
        number, moment = (
            int(rng.integers(self.vehicles)),
            int(rng.integers(self.moments)),
        )
        load, degrees = (
            float(rng.uniform(0.0, self.payload)),
            float(rng.normal(10.0, self.weather)),
        )
        told, off = self.fleet[number], self._wears[number].tolist()
        warmer = abs(degrees - _COMFORT) - abs(10.0 - _COMFORT)
        own = replace(
            told,
            mass=(told.mass - self.payload / 2.0) * off[0] + load,
            air_drag=told.air_drag * off[1],
            rolling_resistance=told.rolling_resistance * off[2],
            auxiliary_power=max(
                0.0, told.auxiliary_power * off[3] + _WATTS_PER_DEGREE * warmer
            ),
            air_density=told.air_density * 283.0 / (273.0 + degrees),
        )
        return Journey(pair, number, own, moment)

    # --- rounds ----------------------------------------------------------------------------

    def offer(self, step: int) -> Offer:
        journey, graph = self.journey(step), self.graph
        told, (start, goal) = self._told(journey.vehicle), self._pairs[journey.trip]
        departure = _DEPARTURES.of(graph, told, journey.vehicle)
        trip = Trip(start=start, goal=goal, turn_costs=departure.turn_costs)
        time = float(self._times[step - 1]) if step <= self.horizon else None
        return Offer(step=step, time=time, arms=departure.arms, structure=trip)

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        route, trip = decision.positions, offer.structure
        assert isinstance(trip, Trip)
        assert trip.turn_costs is not None
        spent = self._spent(offer.step, tuple(route.tolist()))
        told = self._told(self.journey(offer.step).vehicle)
        rewards = spent.energies - told.potential(self.graph.rise[route])
        rewards[:-1] -= trip.turn_costs[self.graph.turn_numbers(route)]
        delays = self._delays(offer.step, spent.seconds, len(route))
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
        if self.late is None:
            return None
        known = float(self._times[step - 1]) + seconds + self.late
        many, times = max(step, self.horizon), self._times
        # Also those after the last round: a run that is made longer meets the same delays.
        while len(times) <= step or times[-1] <= known:
            times = _departures(self.seed, self.headway, many := 2 * many)
        later = np.count_nonzero(times[step:] <= known)
        return np.full(count, later, dtype=np.intp)

    def _told(self, number: int) -> Vehicle:
        return self.fleet[number] if self.informed else TABLE_2

    def value(self, offer: Offer, decision: Decision) -> float:
        return float(
            self.energies(offer.step, tuple(decision.positions.tolist())).sum()
        )

    def energies(self, step: int, route: tuple[int, ...]) -> Floats:
        """Wh that each edge of a route costs the vehicle of a round on that day, (k,)."""
        return self._spent(step, route).energies

    def best(self, offer: Offer) -> Best:
        """What the route of the model told the vehicle costs on the same day: nobody knows the best."""
        return Best(float(self.energies(offer.step, self.informed_route(offer)).sum()))

    def informed_route(self, offer: Offer) -> tuple[int, ...]:
        """The cheapest by the energy model, told the vehicle."""
        expected = np.minimum(-offer.arms.features[:, 1], 0.0)
        found = self.model.oracle.select(
            expected, offer.structure, np.random.default_rng(0)
        )
        return tuple(found.positions.tolist())

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        spent = self._spent(offer.step, tuple(decision.positions.tolist()))
        energy = float(spent.energies.sum())
        return {
            "true_energy": energy,
            "duration": spent.seconds,
            "stranded": float(not spent.arrived),
        }

    @property
    def measures(self) -> Mapping[str, Metric]:
        regret = Metric("energy above the informed prior's", "Wh", better="down")
        return {**super().measures, "regret": regret}

    def road_map(self) -> RoadMap:
        return road_map(self.graph)

    # --- what trips cost -------------------------------------------------------------------

    def _spent(self, step: int, route: tuple[int, ...]) -> _Spent:
        journey, graph = self.journey(step), self.graph
        own, edges = journey.own, np.array(route, dtype=np.intp)
        if self._drive is None:
            return self._drawn(step, journey, edges)
        drive = self._drive(
            tuple(graph.ids[edge] for edge in route), moment=journey.moment
        )
        # Heights are the junctions', whatever lanes of the SUMO file say: what is stored in height then
        # adds up to the same for all routes of a trip.
        energies = drive.energies(own, graph.rise[edges]) - drive.stored(own)
        missing = edges[drive.completed :]
        energies[drive.completed :] += own.energy(
            graph.length, graph.speed, graph.rise
        )[missing]
        return _Spent(energies, drive.duration, drive.arrived)

    @cached_property
    def _drawn_roads(self) -> Floats:
        """f of the fleet's own model, (n,)."""
        rng, scales, n = stream(self.seed, "truth", 2), RoadScales(), len(self.graph)
        near = self.model.kernel.root_times(rng.standard_normal(n))
        own = np.hypot(scales.own, scales.share * self.model.sizes)
        return scales.near * near + own * rng.standard_normal(n) + 1.0

    def _drawn(self, step: int, journey: Journey, edges: Ints) -> _Spent:
        """A trip of the fleet's own model: roads, the vehicle of the day, and noise of each road."""
        graph, own, scales = self.graph, journey.own, RoadScales()
        rows, turning = _of_the_day(graph, own)
        noise = (
            Streams(self.seed, "noise-of-roads").at(step).standard_normal(len(graph))
        )
        each = np.square(rows[:, 6])
        parts = np.column_stack(
            [each, each * rows[:, 3], rows[:, 7]]
        )  # of noise, as posteriors.RoadGP
        noise *= np.sqrt(
            parts @ np.square(scales.of_noise[:3])
        )  # terms tell all: no share of sizes
        energies = (
            rows[:, 1]
            + own.potential(graph.rise)
            + rows[:, 6] * self._drawn_roads
            + noise
        )[edges]
        turns = graph.turn_numbers(edges)
        energies[:-1] += turning[turns]
        seconds = float(
            graph.travel_time[edges].sum() + graph.turn_seconds[turns].sum()
        )
        return _Spent(energies, seconds, True)

    def _settled(self, driven: bool) -> dict[str, str]:
        graph = self.graph
        return {
            "data": self.roads.told,
            "network": f"passenger edges: {len(graph)}, {len(graph.turns)} turns",
            "trips": f"{self.vehicles} vehicles between {self.trips or 'ever-new'} pairs of roads, a "
            f"trip every {self.headway:g} s on average",
            "vehicles": f"differ by {100.0 * self.variety:g} % in what the fleet knows and by another "
            f"{100.0 * self.wear:g} % in what it does not; a trip carries up to {self.payload:g} kg; "
            f"temperatures of 10 ± {self.weather:g} °C",
            "energy": "what the battery gives less what is stored in motion, alike in feedback, metric "
            "and forecast"
            + ("; driven in SUMO" if driven else "; drawn from the fleet's own model"),
            "feedback": ("of every edge" if self.seen == "edges" else "of whole trips")
            + (
                ", at once" if self.late is None else f", {self.late:g} s after arrival"
            ),
            "traffic": f"{self.traffic:g} cars an hour" if self.traffic else "none",
            "regret": "energy above that of the informed prior's route, driven on the same day; "
            "negative where less was needed",
        }


class _Spent(NamedTuple):
    """What a trip cost."""

    energies: Floats  # Wh of each edge, less what is stored in motion, (k,)
    seconds: float
    arrived: bool


@lru_cache(maxsize=1)
def _of_the_day(graph: LineGraph, own: Vehicle) -> tuple[Floats, Floats]:
    """``road_rows`` and ``turn_energy`` of a vehicle that is so only once."""
    return road_rows(graph, own, 0), own.turn_energy(graph)


class _Departure(NamedTuple):
    """What an offer holds that depends on the vehicle alone."""

    arms: Arms
    turn_costs: Floats  # Wh, (c,)

    @property
    def bytes(self) -> int:
        return self.arms.features.nbytes + self.turn_costs.nbytes


class _Departures:
    """The vehicles asked for last, as many as fit into ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._known: OrderedDict[tuple[LineGraph, Vehicle, int], _Departure] = (
            OrderedDict()
        )
        self._lock = Lock()

    def of(self, graph: LineGraph, vehicle: Vehicle, number: int) -> _Departure:
        key = (graph, vehicle, number)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
            return self._add(key)

    def _add(self, key: tuple[LineGraph, Vehicle, int]) -> _Departure:
        graph, vehicle, number = key
        arms = Arms(ids=graph.ids, features=road_rows(graph, vehicle, number))
        found = _Departure(arms, read_only(vehicle.turn_energy(graph)))
        self._known[key] = found
        self._bytes += found.bytes
        while self._bytes > self._most and len(self._known) > 1:
            _, oldest = self._known.popitem(last=False)
            self._bytes -= oldest.bytes
        return found


_DEPARTURES = _Departures(_MOST_BYTES)
