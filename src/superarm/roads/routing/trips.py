"""What a route is requested for: its ends, the closed edges, and the time of departure."""

from __future__ import annotations

from datetime import datetime, time
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats
from superarm.core.errors import InputError, SpecError
from superarm.core.inputs import as_time_of_day
from superarm.roads.networks import LineGraph
from superarm.roads.networks.places import PlaceMatch

from .energy_beliefs import When
from .search import Ends

Place = str | tuple[float, float]
"""An edge id, "latitude,longitude" in degrees or a pair of these, or the name of a street."""


class TripEnd(NamedTuple):
    """A start or goal: how it was found, and where it lies on each edge that it may mean."""

    match: PlaceMatch
    ends: Ends
    steps: Floats  # how much higher it lies on each edge than on the first of them, metres, (e,)

    def share(self, edge: int) -> float:
        """How much of one of its edges lies before it.

        Args:
            edge: The edge.
        """
        is_edge = self.ends.edges == edge
        return float(self.ends.shares[is_edge][0])

    def metres(self, graph: LineGraph, edge: int) -> float:
        """How far it lies from the beginning of one of its edges, metres.

        Args:
            graph: The roads.
            edge: The edge.
        """
        return self.share(edge) * float(graph.length[edge])

    def step(self, edge: int) -> float:
        """How much higher it lies on one of its edges than on the first, metres.

        Args:
            edge: The edge.
        """
        is_edge = self.ends.edges == edge
        return float(self.steps[is_edge][0])


class RequestedTrip(NamedTuple):
    """What one route was asked for."""

    start: TripEnd
    goal: TripEnd
    closed: Bools | None  # which edges are closed, (n,); None: none of them
    when: When | None  # the time of departure

    @property
    def closed_count(self) -> int:
        """How many edges are closed."""
        if self.closed is None:
            return 0
        return int(np.count_nonzero(self.closed))


def as_departure(depart: str | When | None) -> When | None:
    """A time of departure, or an error.

    Args:
        depart: "HH:MM", or a date and time; ``None``: at any time.
    """
    if depart is None or isinstance(depart, time | datetime):
        return depart
    try:
        return as_time_of_day(depart, "depart")
    except InputError as error:
        raise SpecError(str(error)) from None


def describe_closure(trip: RequestedTrip, graph: LineGraph) -> str:
    """Why no route is open.

    Args:
        trip: The trip, with closed edges.
        graph: The roads.
    """
    assert trip.closed is not None
    ids = graph.ids
    start_edge = ids[trip.start.match.edges[0]]
    goal_edge = ids[trip.goal.match.edges[0]]
    if trip.closed[trip.start.ends.edges].all():
        reason = f"edge {start_edge} is closed"
    elif trip.closed[trip.goal.ends.edges].all():
        reason = f"edge {goal_edge} is closed"
    else:
        reason = f"{trip.closed_count} edges are closed"
    return f"no open route leads from edge {start_edge} to edge {goal_edge}: {reason}"


def describe_end(end: TripEnd, edge: int, graph: LineGraph) -> str:
    """What an end is, which edge was taken for it, and where on that edge it lies.

    Args:
        end: The end.
        edge: The edge that was taken.
        graph: The roads.
    """
    match = end.match
    if not match.place:
        return ""
    how = ""
    if match.how:
        how = f", {match.how}"
    metres = end.metres(graph, edge)
    length = float(graph.length[edge])
    where = f"at {metres:.0f} of its {length:.0f} m"
    return f"{match.place}: edge {graph.ids[edge]}{how}, {where}"
