"""Kinetic energy in a battery's own readings, and its remainder once the mean is subtracted.

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

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.roads.energy import Vehicle
from superarm.roads.energy.junctions import BRAKING, border_speeds
from superarm.roads.networks import LineGraph

from .log import Borders, Trips

_UNKNOWN = (
    0.3  # of v² at the limit: doubt about v² where a log begins or ends in motion
)
_MASS = 0.1  # of s: what is not known of the mass, load included
_SPEEDOMETER = 0.3  # m/s
_BEGIN = 0  # columns of speeds at both ends of a stretch of road
_END = 1


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
        graph: The roads.
        vehicle: The vehicle as it is described; its mass counts.
        trip: One trip; its rewards are readings less what is known of turns and heights.
        route: The edge of each arm, (N,); where one does not lead into the next, edges are missing.
        at_rest: Whether the trip starts and stops at rest; otherwise it was cut from a longer one.
        speeds: Speeds where each reward begins and ends, m/s, NaN where the log has none, (M, 2).
    """
    begins, ends = _speeds_at_rewards(graph, trip, route, at_rest, speeds)
    follows = _follows(graph, route, _last_arms(trip))
    numbers = np.arange(len(trip.rewards))
    # Rewards that begin where no reward before them ends have a border of their own there.
    is_first = ~np.append(False, follows[:-1])
    before = np.concatenate([np.full(is_first.sum(), -1), numbers])
    after = np.concatenate([numbers[is_first], np.where(follows, numbers + 1, -1)])
    squares = begins.take(is_first).followed_by(ends)
    order = np.lexsort([after < 0, np.maximum(before, after)])
    squares = squares.take(order)
    per_square = float(vehicle.motion(1.0))  # c
    borders = Borders(
        before=before[order],
        after=after[order],
        size=per_square * squares.free,
        variance=per_square**2 * squares.variance,
    )
    crossing = trip._replace(borders=borders)
    expected = crossing.crossing(per_square * squares.mean)
    is_moving = (borders.size > 0.0) | (borders.variance > 0.0)
    return trip._replace(
        rewards=trip.rewards - expected, borders=borders.take(is_moving)
    )


def sections_of(
    graph: LineGraph, trip: Trips, route: Ints, speeds: Floats | None = None
) -> Ints:
    """The section that each reward of a trip is learned in where it holds motion, (M,), rising.

    A section is at least a braking distance long, unless the trip has a gap there or the log a speed.

    Args:
        graph: The roads.
        trip: One trip.
        route: The edge of each arm, (N,).
        speeds: Speeds where each reward begins and ends, m/s, NaN where the log has none, (M, 2).
    """
    braking_distances = np.square(graph.speed[route]) / (2.0 * BRAKING)  # m
    # How often a car can stop on each reward, (M,).
    stops: Floats = np.bincount(
        trip.of, graph.length[route] / braking_distances
    ).astype(np.float64)
    must_end = ~_follows(graph, route, _last_arms(trip))
    if speeds is not None:
        is_known = ~np.isnan(speeds)
        must_end[:-1] |= is_known[:-1, _END] | is_known[1:, _BEGIN]
    return _sections(stops, must_end)


def _sections(stops: Floats, must_end: Bools) -> Ints:
    """Consecutive sections in which a car can stop at least once where that is possible, (M,)."""
    section = np.empty(len(stops), dtype=np.intp)
    number = 0
    first = 0  # section since the last one that had to end
    covered = 0.0
    for reward, share in enumerate(stops.tolist()):
        section[reward] = number
        covered += share
        too_short = covered < 1.0 and number > first
        if must_end[reward] and too_short:
            # Too short by itself: part of the section before.
            driven = section[: reward + 1]
            driven[driven == number] = number - 1
            number -= 1
        if must_end[reward] or covered >= 1.0:
            number += 1
            covered = 0.0
        if must_end[reward]:
            first = number
    return section


def _first_arms(trip: Trips) -> Ints:
    """The first arm of each reward, (M,)."""
    return np.searchsorted(trip.of, np.arange(len(trip.rewards)))


def _last_arms(trip: Trips) -> Ints:
    """The last arm of each reward, (M,)."""
    return np.append(_first_arms(trip)[1:], len(trip.of)) - 1


def _follows(graph: LineGraph, route: Ints, last_arms: Ints) -> Bools:
    """Whether the next reward begins where each ends, (M,)."""
    turns = graph.turns_between(route)
    return np.append(turns[last_arms[:-1]] >= 0, False)


# --- speeds ----------------------------------------------------------------------------------


class _SquaredSpeeds(NamedTuple):
    """v² at some places, (m/s)²."""

    mean: Floats
    free: Floats  # of cars that need not stop: what ``motion`` multiplies
    variance: Floats  # known beside it, (m/s)⁴

    def take(self, where: Any) -> _SquaredSpeeds:
        """The speeds at some of the places."""
        return _SquaredSpeeds(self.mean[where], self.free[where], self.variance[where])

    def followed_by(self, other: _SquaredSpeeds) -> _SquaredSpeeds:
        """The speeds at these places and then at others."""
        return _SquaredSpeeds(
            np.concatenate([self.mean, other.mean]),
            np.concatenate([self.free, other.free]),
            np.concatenate([self.variance, other.variance]),
        )

    def with_measured(self, speeds: Floats) -> _SquaredSpeeds:
        """The same, but where a speed was measured, m/s, NaN where none was, (M,)."""
        is_known = ~np.isnan(speeds)
        square = np.square(speeds)
        mass_doubt = np.square(_MASS * square)
        speed_doubt = np.square(2.0 * speeds * _SPEEDOMETER)
        doubt = mass_doubt + speed_doubt
        return _SquaredSpeeds(
            np.where(is_known, square, self.mean),
            np.where(is_known, 0.0, self.free),
            np.where(is_known, doubt, self.variance),
        )


def _speeds_at_rewards(
    graph: LineGraph,
    trip: Trips,
    route: Ints,
    at_rest: bool,
    speeds: Floats | None,
) -> tuple[_SquaredSpeeds, _SquaredSpeeds]:
    """v² where each reward begins, and where it ends, (M,) each."""
    last_arms = _last_arms(trip)
    expected = _expected_speeds(graph, route, at_rest)  # of each arm
    begins = expected.take((_first_arms(trip), _BEGIN))
    ends = expected.take((last_arms, _END))
    if speeds is None:
        return begins, ends
    end_speeds = speeds[:, _END].copy()
    # A border has one speed, whichever of its two sides names it.
    named_after = _follows(graph, route, last_arms)[:-1] & np.isnan(end_speeds[:-1])
    end_speeds[:-1] = np.where(named_after, speeds[1:, _BEGIN], end_speeds[:-1])
    return begins.with_measured(speeds[:, _BEGIN]), ends.with_measured(end_speeds)


def _expected_speeds(graph: LineGraph, route: Ints, at_rest: bool) -> _SquaredSpeeds:
    """v² where each edge begins and ends, (N, 2)."""
    limit = np.square(graph.speed[route])
    mean = np.column_stack([limit, limit])
    # Where the log has a gap, all doubt is in the variance.
    free = np.zeros_like(mean)
    variance = np.square(_UNKNOWN * mean)
    gaps = np.flatnonzero(graph.turns_between(route) < 0) + 1
    bounds = [0, *gaps.tolist(), len(route)]
    for begin, end in pairwise(bounds):
        speeds = border_speeds(
            graph,
            route[begin:end],
            from_rest=at_rest and begin == 0,
            to_rest=at_rest and end == len(route),
        )
        behind = (slice(begin, end - 1), _END)
        ahead = (slice(begin + 1, end), _BEGIN)
        for places in (behind, ahead):
            mean[places] = speeds.mean
            free[places] = speeds.free
            variance[places] = speeds.variance
        mean[begin, _BEGIN] = speeds.start
        mean[end - 1, _END] = speeds.end
    if at_rest:
        for values in (mean, free, variance):
            values[0, _BEGIN] = 0.0
            values[-1, _END] = 0.0
    return _SquaredSpeeds(mean, free, variance)
