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
(:func:`superarm.roads.energy.drives.border_speeds`). So

    E s = c·E v²                                             c = η⁻·½·m/3600
    v_q = (motion·c·v_free²)² + c²·p(1 − p)(v_free² − v_stopped²)²

where v_q is the variance of s_q, a car stops with probability p, and ``motion`` (of
:class:`RoadScales`, fitted) is how far speeds are from those expected. Readings less E s_q − E s_{q−1}
are net plus noise, with the tridiagonal covariance of :mod:`.borders`. What all borders of a trip have in
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
from superarm.roads.energy.junctions import BRAKING
from superarm.roads.networks import LineGraph

from .borders import Borders
from .squared_speeds import BEGIN, END, SquaredSpeeds, expected_speeds
from .trips import Trips


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
    at_rewards = _speeds_at_rewards(graph, trip, route, at_rest, speeds)
    follows = _follows(graph, route, _last_arms(trip))
    # Rewards that begin where no reward before them ends have a border of their own there.
    is_first = ~np.append(False, follows[:-1])
    squares = at_rewards.begins.take(is_first).followed_by(at_rewards.ends)

    numbers = np.arange(len(trip.rewards))
    no_rewards = np.full(is_first.sum(), -1)
    next_rewards = np.where(follows, numbers + 1, -1)
    before = np.concatenate([no_rewards, numbers])
    after = np.concatenate([numbers[is_first], next_rewards])
    # By their later reward; where that is the same, the border that it begins with comes first.
    order = np.lexsort([after < 0, np.maximum(before, after)])
    squares = squares.take(order)

    per_square = float(vehicle.motion(1.0))  # c
    borders = Borders(
        before=before[order],
        after=after[order],
        size=per_square * squares.free,
        variance=per_square**2 * squares.variance,
    )
    expected_motion = per_square * squares.mean  # E s
    with_borders = trip._replace(borders=borders)
    net = trip.rewards - with_borders.crossing(expected_motion)
    is_moving = (borders.size > 0.0) | (borders.variance > 0.0)
    return trip._replace(rewards=net, borders=borders.take(is_moving))


def sections_of(
    graph: LineGraph,
    trip: Trips,
    route: Ints,
    speeds: Floats | None = None,
) -> Ints:
    """The section that each reward of a trip is learned in where it holds motion, (M,), rising.

    A section is at least a braking distance long, unless the trip has a gap there or the log a speed.

    Args:
        graph: The roads.
        trip: One trip.
        route: The edge of each arm, (N,).
        speeds: Speeds where each reward begins and ends, m/s, NaN where the log has none, (M, 2).
    """
    squared_speeds = np.square(graph.speed[route])
    braking_distances = squared_speeds / (2.0 * BRAKING)  # m
    stops_of_arm = graph.length[route] / braking_distances
    # How often a car can stop on each reward, (M,).
    stops = np.bincount(trip.reward_of_arm, stops_of_arm)
    must_end = ~_follows(graph, route, _last_arms(trip))
    if speeds is not None:
        is_known = ~np.isnan(speeds)
        known_at_end = is_known[:-1, END]
        known_at_next_begin = is_known[1:, BEGIN]
        must_end[:-1] |= known_at_end | known_at_next_begin
    return _sections(stops.astype(np.float64), must_end)


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
    rewards = np.arange(len(trip.rewards))
    return np.searchsorted(trip.reward_of_arm, rewards)


def _last_arms(trip: Trips) -> Ints:
    """The last arm of each reward, (M,)."""
    arms = len(trip.keys)
    next_first_arms = np.append(_first_arms(trip)[1:], arms)
    return next_first_arms - 1


def _follows(graph: LineGraph, route: Ints, last_arms: Ints) -> Bools:
    """Whether the next reward begins where each ends, (M,)."""
    turns = graph.turns_between(route)
    turn_behind = turns[last_arms[:-1]]
    return np.append(turn_behind >= 0, False)


# --- speeds ----------------------------------------------------------------------------------


class _SpeedsAtRewards(NamedTuple):
    """v² at both ends of each reward, (M,) each."""

    begins: SquaredSpeeds
    ends: SquaredSpeeds


def _speeds_at_rewards(
    graph: LineGraph,
    trip: Trips,
    route: Ints,
    at_rest: bool,
    speeds: Floats | None,
) -> _SpeedsAtRewards:
    """v² that is expected where each reward begins and ends, or that was measured there."""
    first_arms = _first_arms(trip)
    last_arms = _last_arms(trip)
    expected = expected_speeds(graph, route, at_rest)  # of each arm
    begins = expected.take((first_arms, BEGIN))
    ends = expected.take((last_arms, END))
    if speeds is not None:
        begin_speeds = speeds[:, BEGIN]
        end_speeds = speeds[:, END].copy()
        # A border has one speed, whichever of its two sides names it.
        follows = _follows(graph, route, last_arms)
        is_unnamed = np.isnan(end_speeds[:-1])
        named_after = follows[:-1] & is_unnamed
        end_speeds[:-1] = np.where(named_after, begin_speeds[1:], end_speeds[:-1])
        begins = begins.with_measured(begin_speeds)
        ends = ends.with_measured(end_speeds)
    return _SpeedsAtRewards(begins, ends)
