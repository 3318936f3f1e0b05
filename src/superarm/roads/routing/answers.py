"""A route: its sums, its charge, its line on the map."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.caching import cached_property
from superarm.oracles import Trip
from superarm.roads.energy import Vehicle, drive_time
from superarm.roads.networks import LineGraph, RoadNetwork
from superarm.roads.networks.geography import COMPLEX, Points, pairs
from superarm.roads.policies.navigation import Routing
from superarm.roads.posterior import TrackRecord
from superarm.roads.problems.road_loading import is_level

from .battery import Charge
from .search import RoutePath

INTERVAL = (
    "if the model is right, 95 of 100 such trips fall inside; the interval covers uncertainty about the roads "
    "and the noise of a single trip"
)
"""What the interval of an energy means."""
_ECCENTRICITY = 0.00669438  # of the earth, squared
_DIGITS = 7  # of a degree: a centimetre


@dataclass(frozen=True, kw_only=True, eq=False)
class Leg:
    """The sums of a route, junctions included; parts of edges count in part.

    Args:
        graph: The roads.
        way: The route.
        energy: Expected energy, Wh.
        spread: Half-width of its 95 % interval, Wh.
        learned_seconds: Expected seconds at the hours along the route, where a fleet has learned them.
        seconds_spread: Half-width of their 95 % interval.
    """

    graph: LineGraph
    way: RoutePath
    energy: float
    spread: float
    learned_seconds: float | None = None
    seconds_spread: float | None = None

    @property
    def edges(self) -> Ints:
        """Numbers in the line graph, (k,)."""
        return self.way.edges

    @property
    def shares(self) -> Floats:
        """How much of each edge is driven, 0 to 1, (k,)."""
        return self.way.shares

    @property
    def metres(self) -> Floats:
        """How many metres of each edge are driven, (k,)."""
        metres: Floats = self.shares * self.graph.length[self.edges]
        return metres

    @property
    def rises(self) -> Floats:
        """Metres of height gained on each edge, (k,)."""
        rises: Floats = self.shares * self.graph.rise[self.edges]
        return rises

    @cached_property
    def length(self) -> float:
        """Metres."""
        turns = self.graph.turn_numbers(self.edges)
        turn_metres = self.graph.turn_length[turns]
        return float(self.metres.sum() + turn_metres.sum())

    @cached_property
    def seconds(self) -> float:
        """On empty roads, with signals as they are on average."""
        return drive_time(self.graph, self.edges, shares=self.shares)

    @property
    def climb(self) -> float:
        """Metres of height gained, not counting what is lost again."""
        return float(np.maximum(self.rises, 0.0).sum())

    def as_json(self) -> dict[str, float]:
        """The sums, as ``superarm route --json`` prints them."""
        sums = {
            "energy_wh": self.energy,
            "energy_low_wh": self.energy - self.spread,
            "energy_high_wh": self.energy + self.spread,
            "length_m": self.length,
            "travel_time_s": self.seconds,
            "climb_m": self.climb,
        }
        if self.learned_seconds is not None and self.seconds_spread is not None:
            least = max(self.learned_seconds - self.seconds_spread, 0.0)
            sums["learned_time_s"] = self.learned_seconds
            sums["learned_time_low_s"] = least
            sums["learned_time_high_s"] = self.learned_seconds + self.seconds_spread
        return sums


class RoutedVehicle(NamedTuple):
    """The vehicle that a route is for."""

    name: str | None
    vehicle: Vehicle
    trips: int | None  # that were learned; None where vehicles are not distinguished

    def as_json(self) -> dict[str, Any]:
        """The vehicle, as ``superarm route --json`` prints it."""
        return {
            "name": self.name,
            "mass_kg": self.vehicle.mass,
            "trips_learned": self.trips,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class RouteAnswer:
    """The best route, and two to compare it with.

    Args:
        graph: The roads.
        trip: The first and last edge.
        vehicle: The vehicle that the route is for.
        places: How start and goal were found; "" where an edge was named by its id.
        routing: How costs were made non-negative.
        positions: Metres along the first edge where the route begins, and along the last where it
            ends.
        means: Expected energy of what is driven of each edge, with the turn into it, Wh, (k,).
        best: The best route.
        compare: Searches the routes to compare it with.
        observations: How many energies of edges were measured; 0 by the model alone.
        cut_edges: How many edges of the whole network are believed to cost less than nothing (with
            potential routing: less than their height potential), and so cost more here than they are
            believed to.
        record: The coverage of the policy's forecasts, where it is known.
        closed: How many edges were closed.
        depart: The time of departure, if one was set.
        timed: Whether the time of departure made a difference.
        charge: The battery along the route, where its charge is known.
    """

    graph: LineGraph
    trip: Trip
    vehicle: RoutedVehicle
    places: tuple[str, str]
    routing: Routing
    positions: tuple[float, float]
    means: Floats
    best: Leg
    compare: Callable[[], Mapping[str, Leg]]
    observations: int
    cut_edges: int
    record: TrackRecord | None
    closed: int
    depart: str | None
    timed: bool
    charge: Charge | None

    @cached_property
    def others(self) -> Mapping[str, Leg]:
        """The fastest and the shortest route, searched on first use."""
        return self.compare()

    @property
    def flat(self) -> bool:
        """Whether all junctions lie at one height, as where the network has no heights."""
        return is_level(self.graph.network)

    def ids(self) -> list[str]:
        """The ids of the route's edges, in order."""
        return [self.graph.ids[edge] for edge in self.best.edges]

    def streets(self) -> list[str]:
        """The names of its streets, in order, each once in a row; those without one are left out."""
        names = self.graph.network.street_names
        if names is None:
            return []
        edges = self.graph.edges[self.best.edges]
        names_along = [names[edge] for edge in edges]
        return [name for name, _ in groupby(names_along) if name]

    def as_json(self) -> dict[str, Any]:
        """The route and the two to compare it with, as ``superarm route --json`` prints them."""
        from_place, to_place = self.places
        from_position, to_position = self.positions
        metres = self.best.metres
        ids = self.ids()
        trips_judged = 0
        trips_inside = None
        if self.record is not None:
            trips_judged = self.record.trips
            trips_inside = self.record.inside
        battery = None
        if self.charge is not None:
            battery = self.charge.as_json(ids)
        compared = {}
        for name, leg in self.others.items():
            compared[name] = leg.as_json()
        return {
            "network": self.graph.network.name,
            "from": self.graph.ids[self.trip.start],
            "to": self.graph.ids[self.trip.goal],
            "from_place": from_place or None,
            "to_place": to_place or None,
            "from_position_m": from_position,
            "to_position_m": to_position,
            "first_edge_m": float(metres[0]),
            "last_edge_m": float(metres[-1]),
            "vehicle": self.vehicle.as_json(),
            "edges": ids,
            "streets": self.streets(),
            **self.best.as_json(),
            "interval": INTERVAL,
            "trips_judged": trips_judged,
            "trips_inside": trips_inside,
            "routing": self.routing,
            "cut_edges": self.cut_edges,
            "flat": self.flat,
            "observations": self.observations,
            "closed_edges": self.closed,
            "depart": self.depart,
            "depart_used": self.timed,
            "battery": battery,
            "compared": compared,
        }

    def as_geojson(self) -> dict[str, Any]:
        """A FeatureCollection: the route as a line, longitude before latitude.

        It follows the bends of the roads where the network has them; elsewhere it goes straight from
        junction to junction. It begins and ends where the places lie on their edges.
        """
        graph = self.graph
        edges = self.best.edges
        begin_metres, end_metres = self.positions
        first_length = float(graph.length[edges[0]])
        last_length = float(graph.length[edges[-1]])
        line = _line(
            graph.network,
            graph.edges[edges],
            begin=begin_metres / first_length,
            end=end_metres / last_length,
        )
        geometry = {"type": "LineString", "coordinates": line}
        feature = {
            "type": "Feature",
            "geometry": geometry,
            "properties": self.as_json(),
        }
        return {"type": "FeatureCollection", "features": [feature]}


def _line(
    network: RoadNetwork, edges: Ints, begin: float, end: float
) -> list[list[float]]:
    """Longitude and latitude along these edges, each place once in a row.

    From the share ``begin`` of the first edge to the share ``end`` of the last.
    """
    lon_lat = network.on_earth(", so it has no GeoJSON; use --json (as_json)")
    last = len(edges) - 1
    courses = []
    for number, edge in enumerate(edges):
        first_share = begin if number == 0 else 0.0
        last_share = end if number == last else 1.0
        courses.append(
            course_in_degrees(network, lon_lat, edge, first_share, last_share)
        )
    degrees = np.round(np.concatenate(courses), _DIGITS)
    places = degrees.tolist()
    line = [places[0]]
    for before, place in pairwise(places):
        if place != before:
            line.append(place)
    if len(line) == 1:
        # A line needs two places, also where nothing is driven.
        line += places[1:2]
    return line


def course_in_degrees(
    network: RoadNetwork,
    lon_lat: Floats,
    edge: int,
    first_share: float,
    last_share: float,
) -> Floats:
    """One edge in degrees, from one share of its course to another, (p, 2).

    Its bends lie as in metres, turned and scaled to where its junctions are.

    Args:
        network: The roads.
        lon_lat: Longitude and latitude of all junctions, degrees, (j, 2).
        edge: Number of the edge in the network.
        first_share: The share of its course where it begins.
        last_share: The share of its course where it ends.
    """
    junctions = [network.tail[edge], network.head[edge]]
    ends = lon_lat[junctions]
    begin, end = network.junctions[junctions, :2] @ COMPLEX
    if network.shapes is None or begin == end:
        straight = ends @ COMPLEX
        return pairs(_cut(straight, first_share, last_share))
    shrinkage = _degree_ratio(latitude=ends[0, 1])
    shrunk = np.array([shrinkage, 1.0])
    first, last = (ends * shrunk) @ COMPLEX
    shape = network.shapes[edge] @ COMPLEX
    along = (shape - begin) / (end - begin)
    places = first + along * (last - first)
    driven = _cut(places, first_share, last_share)
    degrees: Floats = pairs(driven) / shrunk
    return degrees


def _degree_ratio(latitude: float) -> float:
    """Metres of a degree of longitude over those of a degree of latitude, on the ellipsoid."""
    angle = np.radians(latitude)
    curvature = 1.0 - _ECCENTRICITY * np.sin(angle) ** 2
    flatter = curvature / (1.0 - _ECCENTRICITY)
    ratio: float = np.cos(angle) * flatter
    return ratio


def _cut(course: Points, first_share: float, last_share: float) -> Points:
    """The part of a course between two shares: its bends and its two ends."""
    steps = np.abs(np.diff(course))
    along = np.concatenate([[0.0], np.cumsum(steps)])
    total = along[-1]
    is_full_edge = first_share == 0.0 and last_share == 1.0
    if is_full_edge or total == 0.0:
        return course
    along /= total
    is_between = along > first_share
    is_between &= along < last_share
    bends = course[is_between]
    ends = np.array([first_share, last_share])
    x = np.interp(ends, along, course.real)
    y = np.interp(ends, along, course.imag)
    first, last = x + 1j * y
    return np.concatenate([[first], bends, [last]])
