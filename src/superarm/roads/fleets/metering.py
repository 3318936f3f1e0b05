"""What a logged trip teaches: its energies less what is known of turns and heights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import InputError
from superarm.core.inputs import as_number
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet_model import duration_rows, road_rows
from superarm.roads.rows import Column, with_hours

from .reading import MeteredTrip
from .records import LoggedTrip
from .tables import FASTEST, MOST_WH
from .trip_energies import Energies

_JUMP = 500.0  # metres between consecutive edges, above which a trip is learned as two
_GAP = 0.05  # share of a section that may be missing between its edges
_HOURS = 24.0
_PARKED = 600.0  # seconds beyond a multiple of those on empty roads: no jam, but a stop
_SLOWEST = 5.0
_LEAST_GAP = 50.0  # metres that may be missing from any section


class ExaminedTrip(NamedTuple):
    """A trip as it is learned, and what is expected of it."""

    trip: LoggedTrip
    metered: MeteredTrip
    energies: Energies
    known: Floats  # Wh of each energy that are stored in height, and that turns add
    jumps: list[int]  # arms before which it jumps: there it is learned as another trip
    jump: str  # the first of them, in words
    durations: (
        Trips | None
    )  # seconds of its sections, where the fleet has hours and the log seconds


class _Route(NamedTuple):
    """The edges of a trip, and the section that each belongs to."""

    edges: Ints  # (k,)
    section: Ints  # (k,), rising
    sections: int

    def summed(self, values: Floats) -> Floats:
        """Σ of what the edges of each section cost, (k,) or (k − 1,) becomes (r,)."""
        section = self.section[: len(values)]
        total = np.zeros(self.sections)
        np.add.at(total, section, values)
        return total


def examine_trip(
    graph: LineGraph,
    posterior: RoadGP,
    trip: LoggedTrip,
    vehicle: Vehicle,
    number: int,
    known_vehicle: bool,
) -> ExaminedTrip:
    """Prepare a trip for learning, or raise :class:`InputError`.

    Args:
        graph: The roads.
        posterior: What forecasts the trip once it has learned.
        trip: The trip as it was metered.
        vehicle: The vehicle as it is described.
        number: The number of the vehicle.
        known_vehicle: Whether the vehicle is described, or was learned.
    """
    _check_trip(trip)
    route = _route_of(graph, trip)
    gaps = gaps_between(graph, route.edges)
    _check_direction(graph, route.edges)
    _check_gaps(graph, route, gaps)

    turn_costs = _turn_costs(graph, vehicle, route)
    known = _known_energies(graph, vehicle, route, turn_costs)
    keys = road_rows(graph, vehicle, number, route.edges)
    durations = None
    if posterior.has_hours:
        keys = with_hours(keys, _hours_of(graph, trip, route))
        durations = _durations(graph, trip, route, keys)
    expected = route.summed(keys[:, Column.EXPECTED])
    forecast = float(expected.sum())
    if posterior.trips:
        forecast, _ = posterior.total(keys)
    metered = np.array([section.energy for section in trip.sections])
    energies = Energies(
        metered=metered,
        model=expected + known,
        reverse=_reverse_energies(graph, vehicle, route, turn_costs),
        forecast=forecast + float(known.sum()),
        stored=known,
        known_vehicle=known_vehicle,
    )
    net = Trips.of_one(keys, route.section, metered - known)
    jumps = _find_jumps(route, gaps)
    return ExaminedTrip(
        trip=trip,
        metered=MeteredTrip(vehicle, net, _speeds_of(trip)),
        energies=energies,
        known=known,
        jumps=(jumps + 1).tolist(),
        jump=_describe_jumps(graph, trip, route.edges, gaps, jumps),
        durations=durations,
    )


def _check_trip(trip: LoggedTrip) -> None:
    if trip.unread:
        raise InputError(trip.unread)
    has_edges = [bool(section.edges) for section in trip.sections]
    if not has_edges or not all(has_edges):
        raise InputError("the trip has no edges")
    for section in trip.sections:
        as_number(section.energy, "energy_wh", -MOST_WH, MOST_WH)
        _check_optional(section.hour, "hour", _HOURS)
        _check_optional(section.seconds, "seconds", np.inf)
        _check_optional(section.start_speed, "start_speed", FASTEST)
        _check_optional(section.end_speed, "end_speed", FASTEST)


def _check_optional(value: float | None, name: str, most: float) -> None:
    """Refuse a number below 0 or above ``most``, where the log has one."""
    if value is not None:
        as_number(value, name, 0.0, most)


def _route_of(graph: LineGraph, trip: LoggedTrip) -> _Route:
    edges: list[int] = []
    counts: list[int] = []
    for section in trip.sections:
        edges += [graph.number(edge) for edge in section.edges]
        counts.append(len(section.edges))
    numbers = np.arange(len(counts))
    section_of_edge = np.repeat(numbers, counts)
    return _Route(np.array(edges), section_of_edge, len(counts))


def _speeds_of(trip: LoggedTrip) -> Floats:
    """Speeds where each section begins and ends, m/s, NaN where the log has none, (r, 2)."""
    speeds = [(section.start_speed, section.end_speed) for section in trip.sections]
    return np.array(speeds, dtype=np.float64)


def _expected_seconds(graph: LineGraph, route: _Route) -> Floats:
    """Seconds of each edge and of the turn behind it on empty roads, (k,)."""
    seconds = graph.travel_time[route.edges].copy()
    seconds[:-1] += _turn_seconds(graph, route)
    return seconds


def _turn_seconds(graph: LineGraph, route: _Route) -> Floats:
    """Seconds of the turn behind each edge but the last, 0 where edges are missing, (k − 1,)."""
    turns = graph.turns_between(route.edges)
    return np.where(turns < 0, 0.0, graph.turn_seconds[turns])


def _hours_of(graph: LineGraph, trip: LoggedTrip, route: _Route) -> Floats:
    """The hour at which each edge begins, (k,).

    By the log where it has the time; within a section, and after one without the next one's time, in
    proportion to the seconds on empty roads.
    """
    seconds = _expected_seconds(graph, route)
    hours = np.empty(len(seconds))
    clock = trip.sections[0].hour
    if clock is None:
        raise InputError(
            "the trip has no time of day, which a state with hours needs: add the column time to the "
            "log, or learn into a state without hours"
        )
    for number, section in enumerate(trip.sections):
        if section.hour is not None:
            clock = section.hour
        is_inside = route.section == number
        of_edges = seconds[is_inside]
        if section.seconds is not None:
            of_edges = of_edges * (section.seconds / of_edges.sum())
        ends = clock + np.cumsum(of_edges) / 3600.0
        hours[is_inside] = np.append(clock, ends[:-1])
        clock = float(ends[-1])
    return hours % _HOURS


def _durations(
    graph: LineGraph, trip: LoggedTrip, route: _Route, keys: Floats
) -> Trips | None:
    """The seconds of sections less those of turns; ``None`` where the log has none."""
    seconds = [section.seconds for section in trip.sections]
    measured = np.array(seconds, dtype=np.float64)  # NaN where unknown
    expected = route.summed(_expected_seconds(graph, route))
    # Longer ones were parked; NaN is not less than anything.
    is_known = measured < _PARKED + _SLOWEST * expected
    if not is_known.any():
        return None
    of_turns = np.zeros(route.sections)
    np.add.at(of_turns, route.section[:-1], _turn_seconds(graph, route))
    rows = duration_rows(graph, keys)
    durations = Trips.of_one(rows, route.section, measured - of_turns)
    return durations.without(~is_known)


def _turn_costs(graph: LineGraph, vehicle: Vehicle, route: _Route) -> Floats:
    """Wh of the turn behind each edge but the last, (k − 1,)."""
    turns = graph.turns_between(route.edges)
    energies = vehicle.turn_energy(graph, turns)
    is_missing = turns < 0  # edges between are missing
    return np.where(is_missing, 0.0, energies)


def _known_energies(
    graph: LineGraph,
    vehicle: Vehicle,
    route: _Route,
    turn_costs: Floats,
) -> Floats:
    """Wh of each section that are stored in height, and that turns add, (r,)."""
    rise = graph.rise[route.edges]
    known = route.summed(vehicle.potential(rise))
    np.add.at(known, route.section[:-1], turn_costs)
    return known


def _find_jumps(route: _Route, gaps: Floats) -> Ints:
    """Edges behind which a trip jumps.

    One energy is not split: a hole in its section is small beside it, or it was refused.
    """
    section = route.section
    is_between_sections = section[1:] != section[:-1]
    is_far = gaps > _JUMP
    return np.flatnonzero(is_far & is_between_sections)


def _reverse_energies(
    graph: LineGraph,
    vehicle: Vehicle,
    route: _Route,
    turn_costs: Floats,
) -> Floats:
    """Wh that the model expects of each section in the other direction, (r,)."""
    edges = route.edges
    backwards = vehicle.energy(
        graph.length[edges], graph.speed[edges], -graph.rise[edges]
    )
    reverse = route.summed(backwards)
    np.add.at(reverse, route.section[:-1], turn_costs)
    return reverse


def _describe_jumps(
    graph: LineGraph,
    trip: LoggedTrip,
    edges: Ints,
    gaps: Floats,
    jumps: Ints,
) -> str:
    """A warning about the first jump of a trip; "" if there is none."""
    if len(jumps):
        first = int(jumps[0])
        before = graph.ids[edges[first]]
        after = graph.ids[edges[first + 1]]
        return (
            f"trip {trip.label!r} jumps {gaps[first] / 1000.0:.1f} km from edge {before} to edge "
            f"{after}, so it counts as {len(jumps) + 1} trips; if two trips share this name, "
            "rename one"
        )
    if trip.jump:
        return f"trip {trip.label!r} was matched in parts: {trip.jump}"
    return ""


# --- gaps ------------------------------------------------------------------------------------


def gaps_between(graph: LineGraph, route: Ints) -> Floats:
    """Metres from the end of each edge to the beginning of the next, (k − 1,), in a straight line.

    Args:
        graph: The roads.
        route: Numbers of the edges, (k,).
    """
    network = graph.network
    edges = graph.edges[route]
    heads = network.head[edges[:-1]]
    tails = network.tail[edges[1:]]
    ends = network.junctions[heads, :2]
    starts = network.junctions[tails, :2]
    dx, dy = (starts - ends).T
    return np.asarray(np.hypot(dx, dy))


def _check_direction(graph: LineGraph, route: Ints) -> None:
    """Refuse edges that run backwards."""
    edges = graph.edges[route]
    tail = graph.network.tail[edges]
    head = graph.network.head[edges]
    is_forward = head[:-1] == tail[1:]
    is_backward = tail[:-1] == head[1:]
    forward = np.count_nonzero(is_forward)
    backward = np.count_nonzero(is_backward)
    uturns = np.count_nonzero(is_forward & is_backward)
    if backward - uturns >= 2 and backward > 2 * forward:
        raise InputError(
            "the edges run backwards: each ends where the previous one begins. Sort the rows in "
            "driving order, or use the edge ids of the direction driven"
        )


def _check_gaps(graph: LineGraph, route: _Route, gaps: Floats) -> None:
    """Refuse one energy of edges that are far apart."""
    section = route.section
    is_within = section[:-1] == section[1:]
    section_of_gap = section[1:][is_within]
    missing = np.bincount(section_of_gap, gaps[is_within], route.sections)
    edge_lengths = graph.length[route.edges]
    lengths = np.bincount(section, edge_lengths)
    most_missing = np.maximum(_GAP * lengths, _LEAST_GAP)
    too_long = missing > most_missing
    if too_long.any():
        metres = missing[too_long][0]
        raise InputError(
            f"one energy covers edges with a gap of {metres:,.0f} m, so edges are missing. List all "
            "edges that the vehicle drove"
        )


# --- parts -----------------------------------------------------------------------------------


def split_trip(trip: Trips, arms: list[int]) -> list[Trips]:
    """A trip as several that share no noise.

    Args:
        trip: One trip.
        arms: The first arm of each part but the first, rising.
    """
    parts = []
    begins = [0, *arms]
    ends = [*arms, len(trip.keys)]
    for begin, end in zip(begins, ends, strict=True):
        first_reward = int(trip.reward_of_arm[begin])
        reward_of_arm = trip.reward_of_arm[begin:end] - first_reward
        count = int(reward_of_arm[-1]) + 1
        rewards = slice(first_reward, first_reward + count)
        numbers = np.full(len(trip.rewards), -1)
        numbers[rewards] = np.arange(count)
        part = Trips.of_one(
            trip.keys[begin:end],
            reward_of_arm,
            trip.rewards[rewards],
            borders=trip.borders.of_rewards(numbers),
        )
        parts.append(part)
    return parts
