"""v² where the rewards of a trip begin and end: expected along the route, or measured."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.drives import border_speeds
from superarm.roads.networks import LineGraph

# Of v² at the limit: doubt about v² where a log begins or ends in motion.
_UNKNOWN = 0.3
_MASS = 0.1  # of s: what is not known of the mass, load included
_SPEEDOMETER = 0.3  # m/s
# Columns of speeds at both ends of a stretch of road.
BEGIN = 0
END = 1


class SquaredSpeeds(NamedTuple):
    """v² at some places, (m/s)²."""

    mean: Floats
    free: Floats  # of cars that need not stop: what ``motion`` multiplies
    variance: Floats  # known beside it, (m/s)⁴

    def take(self, where: Any) -> SquaredSpeeds:
        """The speeds at some of the places."""
        return SquaredSpeeds(
            mean=self.mean[where],
            free=self.free[where],
            variance=self.variance[where],
        )

    def followed_by(self, other: SquaredSpeeds) -> SquaredSpeeds:
        """The speeds at these places and then at others."""
        return SquaredSpeeds(
            mean=np.concatenate([self.mean, other.mean]),
            free=np.concatenate([self.free, other.free]),
            variance=np.concatenate([self.variance, other.variance]),
        )

    def with_measured(self, speeds: Floats) -> SquaredSpeeds:
        """The same, but where a speed was measured, m/s, NaN where none was, (M,)."""
        is_known = ~np.isnan(speeds)
        square = np.square(speeds)
        mass_doubt = np.square(_MASS * square)
        speed_doubt = np.square(2.0 * speeds * _SPEEDOMETER)
        doubt = mass_doubt + speed_doubt
        return SquaredSpeeds(
            mean=np.where(is_known, square, self.mean),
            free=np.where(is_known, 0.0, self.free),
            variance=np.where(is_known, doubt, self.variance),
        )


def expected_speeds(graph: LineGraph, route: Ints, at_rest: bool) -> SquaredSpeeds:
    """v² where each edge begins and ends, (N, 2).

    Args:
        graph: The roads.
        route: The edges, (N,); where one does not lead into the next, edges are missing.
        at_rest: Whether the route starts and stops at rest.
    """
    limit = np.square(graph.speed[route])
    mean = np.column_stack([limit, limit])
    # Where the log has a gap, all doubt is in the variance.
    free = np.zeros_like(mean)
    variance = np.square(_UNKNOWN * mean)
    speeds = SquaredSpeeds(mean, free, variance)

    gaps = np.flatnonzero(graph.turns_between(route) < 0) + 1
    bounds = [0, *gaps.tolist(), len(route)]
    for begin, end in pairwise(bounds):
        from_rest = at_rest and begin == 0
        to_rest = at_rest and end == len(route)
        _fill_in(speeds, graph, route, begin, end, from_rest, to_rest)
    if at_rest:
        for values in speeds:
            values[0, BEGIN] = 0.0
            values[-1, END] = 0.0
    return speeds


def _fill_in(
    speeds: SquaredSpeeds,
    graph: LineGraph,
    route: Ints,
    begin: int,
    end: int,
    from_rest: bool,
    to_rest: bool,
) -> None:
    """Fill in the speeds of edges ``begin`` … ``end`` − 1, between which there is no gap."""
    edges = route[begin:end]
    expected = border_speeds(graph, edges, from_rest=from_rest, to_rest=to_rest)
    ends_before = (slice(begin, end - 1), END)
    begins_after = (slice(begin + 1, end), BEGIN)
    for places in (ends_before, begins_after):
        speeds.mean[places] = expected.mean
        speeds.free[places] = expected.free
        speeds.variance[places] = expected.variance
    speeds.mean[begin, BEGIN] = expected.start
    speeds.mean[end - 1, END] = expected.end
