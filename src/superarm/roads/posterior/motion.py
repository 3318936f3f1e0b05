"""What a battery's own readings hold of motion, and what is left of it once it is expected.

=============  =======================================================================
``s``          Wh stored in motion where one road ends and the next begins: η⁻·½·m·v²/3600
``net``        what a road costs: the battery's reading less what it put into motion and height
=============  =======================================================================

A meter reads, on the stretch of road between borders q − 1 and q,

    reading = net + s_q − s_{q−1}

What one stretch pays for motion, the next one gets; from rest to rest it adds up to nothing. At 50 km/h
a car stores 47 Wh, and a road of 100 m costs 8: readings that are taken for net are mostly motion.

The speed at a border is expected from the limits, curves, rights of way and signals along the route
(:func:`superarm.roads.energy.junctions.border_speeds`). So

    E s = c·E v²                                             c = η⁻·½·m/3600
    v_q = (motion·c·v_free²)² + c²·p(1 − p)(v_free² − v_stopped²)²

where v_q is the variance of s_q, a car stops with probability p, and ``motion`` (of
:class:`RoadScales`, fitted) is how far speeds are from those expected. Readings less E s_q − E s_{q−1}
are net plus noise, with the tridiagonal covariance of :mod:`.log`. What all borders of a trip have in
common (its load, its driver, the day's traffic) is one number more, ``motion_trip``·c·v_free². Where
the log has the speed, s is known but for the vehicle's mass and the speedometer.

Speeds at borders count as independent of each other, which they are not over a few metres: whatever the
speed is, it is nearly the same at both ends. So roads shorter than a braking distance are learned
together with those that follow (:func:`sections_of`), as one reward that is their sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.roads.energy import Vehicle
from superarm.roads.energy.junctions import BRAKING, border_speeds
from superarm.roads.networks import LineGraph

from .log import Borders, Trips

_UNKNOWN = 0.3  # of v² at the limit: speed where the log begins or ends in motion
_MASS = 0.1  # of s: what is not known of the mass, load included
_SPEEDOMETER = 0.3  # m/s


def with_motion(
    graph: LineGraph,
    vehicle: Vehicle,
    trip: Trips,
    route: Ints,
    *,
    at_rest: bool,
    speeds: Floats | None = None,
) -> Trips:
    """A trip whose rewards hold what is stored in motion, less what is expected of it.

    Args:
        graph: the roads.
        vehicle: as it is described; its mass counts.
        trip: one trip; its rewards are readings less what is known of turns and heights.
        route: the edge of each arm, (N,); where one does not lead into the next, edges are missing.
        at_rest: whether the trip starts and stops at rest; otherwise it was cut from a longer one.
        speeds: m/s where each reward begins and ends, NaN where the log has none, (M, 2).
    """
    square, free, variance = _expected(
        graph, route, at_rest
    )  # at the beginning and end of each arm
    first, last = _arms(trip)
    begins = _Ends(*(each[first, 0] for each in (square, free, variance)))
    ends = _Ends(*(each[last, 1] for each in (square, free, variance)))
    follows = _follows(graph, route, last)
    if speeds is not None:
        measured = speeds.copy()
        # A border has one speed, whichever of its two sides names it.
        named_after = follows[:-1] & np.isnan(speeds[:-1, 1])
        measured[:-1, 1] = np.where(named_after, speeds[1:, 0], speeds[:-1, 1])
        begins, ends = (
            begins.where_known(measured[:, 0]),
            ends.where_known(measured[:, 1]),
        )
    numbers = np.arange(len(trip.rewards))
    alone = ~np.append(False, follows[:-1])  # begins where no reward before it ends
    before = np.concatenate([np.full(alone.sum(), -1), numbers])
    after = np.concatenate([numbers[alone], np.where(follows, numbers + 1, -1)])
    all_of = _Ends(
        *(
            np.concatenate([one[alone], two])
            for one, two in zip(begins, ends, strict=True)
        )
    )
    order = np.lexsort([after < 0, np.maximum(before, after)])
    per_square = float(vehicle.motion(1.0))  # c
    mean = per_square * all_of.square[order]
    size = per_square * all_of.free[order]
    borders = Borders(
        before[order], after[order], size, per_square**2 * all_of.variance[order]
    )
    moved = trip._replace(borders=borders)
    moved = moved._replace(rewards=trip.rewards - moved.crossing(mean))
    doubtful = (borders.size > 0.0) | (borders.variance > 0.0)  # not at rest
    return moved._replace(borders=borders.take(doubtful))


def sections_of(
    graph: LineGraph, trip: Trips, route: Ints, speeds: Floats | None = None
) -> Ints:
    """The section that each reward of a trip is learned in where it holds motion, (M,), rising.

    A section is at least a braking distance long, unless the trip has a gap there or the log a speed.

    Args:
        graph: the roads.
        trip: one trip.
        route: the edge of each arm, (N,).
        speeds: m/s where each reward begins and ends, NaN where the log has none, (M, 2).
    """
    braking = np.square(graph.speed[route]) / (2.0 * BRAKING)  # m
    stops = np.bincount(
        trip.of, graph.length[route] / braking
    )  # how often a car can stop, (M,)
    ends = ~_follows(graph, route, _arms(trip)[1])
    if speeds is not None:
        known = ~np.isnan(speeds)
        ends[:-1] |= known[:-1, 1] | known[1:, 0]
    section = np.empty(len(stops), dtype=np.intp)
    number = first = 0  # of this section, and of the first since the last end
    covered = 0.0
    for reward, share in enumerate(stops.tolist()):
        section[reward] = number
        covered += share
        if (
            ends[reward] and covered < 1.0 and number > first
        ):  # too short: part of the one before
            driven = section[: reward + 1]
            driven[driven == number] = number - 1
            number -= 1
        if ends[reward] or covered >= 1.0:
            number += 1
            covered = 0.0
        if ends[reward]:
            first = number
    return section


def _arms(trip: Trips) -> tuple[Ints, Ints]:
    """The first and the last arm of each reward, (M,) both."""
    first = np.searchsorted(trip.of, np.arange(len(trip.rewards)))
    return first, np.append(first[1:], len(trip.of)) - 1


def _follows(graph: LineGraph, route: Ints, last: Ints) -> Bools:
    """Whether the next reward begins where each ends, (M,); ``last`` is its last arm."""
    return np.append(graph.turns_between(route)[last[:-1]] >= 0, False)


class _Ends(NamedTuple):
    """v² at one end of each reward, (m/s)², (M,)."""

    square: Floats  # its mean
    free: Floats  # of who need not stop: what ``motion`` multiplies
    variance: Floats  # known beside it, (m/s)⁴

    def where_known(self, speeds: Floats) -> _Ends:
        """These, but where a speed was measured, (M,)."""
        known, square = ~np.isnan(speeds), np.square(speeds)
        doubt = np.square(_MASS * square) + np.square(2.0 * speeds * _SPEEDOMETER)
        return _Ends(
            np.where(known, square, self.square),
            np.where(known, 0.0, self.free),
            np.where(known, doubt, self.variance),
        )


def _expected(
    graph: LineGraph, route: Ints, at_rest: bool
) -> tuple[Floats, Floats, Floats]:
    """v² where each edge begins and ends: mean, without stops, and variance, each (N, 2)."""
    limit = np.square(graph.speed[route])
    square = np.column_stack([limit, limit])
    free = np.zeros_like(
        square
    )  # where the log has a gap, all doubt is in the variance
    variance = np.square(_UNKNOWN * square)
    gaps = np.flatnonzero(graph.turns_between(route) < 0) + 1
    starts = np.concatenate([[0], gaps, [len(route)]])
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        found = border_speeds(
            graph,
            route[begin:end],
            from_rest=at_rest and begin == 0,
            to_rest=at_rest and end == len(route),
        )
        for edges, side in ((slice(begin, end - 1), 1), (slice(begin + 1, end), 0)):
            square[edges, side] = found.mean
            free[edges, side] = found.free
            variance[edges, side] = found.variance
        square[begin, 0] = found.start
        square[end - 1, 1] = found.end
    if at_rest:
        for each in (square, free, variance):
            each[0, 0] = each[-1, 1] = 0.0
    return square, free, variance
