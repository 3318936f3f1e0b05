"""Whether energies of edges are raw or net: what the log itself tells.

A battery's own reading of an edge is *raw*: it holds what was put into motion there, or won back by
braking. Some meters and simulators give energies from which that was taken out: *net*. The two differ
by tens of Wh an edge, so that given the speeds expected between edges
(:mod:`superarm.roads.posterior.motion`) one is far likelier than the other.

The energies of a first log count as net unless raw is clearly likelier. Later on, and of a single
vehicle, more is needed to decide otherwise than before, or than for the whole fleet.
Raw trips count as from rest to rest unless it is clearly likelier that they were cut from longer
drives. Totals from rest to rest are both raw and net.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP, Trips, sections_of, with_motion
from superarm.roads.rows import Column, edges_of

Energy = Literal["auto", "net", "raw"]
"""What energies of edges hold: see above."""
_ASKED = 20  # trips of a vehicle that tell what its energies hold
_SAYS = (
    20.0  # nats that one trip may say about it: a slip of the meter is not to decide
)
_FARTHEST = 3.0  # standard deviations that a reward may be off, in what it says
_AS_EXPECTED = (
    0.1  # of the usual doubt about speeds: that of roads where cars drive as expected
)
_CLEARLY = 5.0  # nats by which a reading must be likelier than one that is more usual
_BEFORE = 10.0  # nats for what was decided before: less than one trip may say, or nothing would change it
_NET = 2  # its place among readings


class MeteredTrip(NamedTuple):
    """A trip as its log has it."""

    vehicle: Vehicle
    net: Trips  # its energies less what is known of heights and turns
    speeds: Floats  # m/s where each reward begins and ends, NaN where the log has none, (M, 2)

    @property
    def number(self) -> int:
        """The vehicle's, for the posterior."""
        return int(self.net.keys[0, Column.VEHICLE])

    @property
    def tells(self) -> bool:
        """A total from rest to rest is raw and net: only what has edges, or speeds, tells."""
        return len(self.net.rewards) > 1 or not np.isnan(self.speeds).all()

    def less_motion(self, graph: LineGraph, *, at_rest: bool) -> Trips:
        """As it is learned if its energies are raw, edge by edge."""
        route = edges_of(self.net.keys)
        return with_motion(
            graph, self.vehicle, self.net, route, at_rest=at_rest, speeds=self.speeds
        )

    def sections(self, graph: LineGraph) -> Ints:
        """Which of its energies are learned together if they are raw, (M,)."""
        return sections_of(graph, self.net, edges_of(self.net.keys), self.speeds)


class Reading(NamedTuple):
    """A trip as its energies are understood."""

    by_edge: Trips  # one reward for each energy of the log
    learned: Trips  # the same, where energies are raw in sections that are long enough
    raw: bool


def read_as(
    posterior: RoadGP,
    graph: LineGraph,
    trips: Mapping[int, MeteredTrip],
    energy: Energy,
) -> dict[int, Reading]:
    """Each trip as it is learned: as it is if its energies are net, or less motion."""
    net = {step: Reading(trip.net, trip.net, False) for step, trip in trips.items()}
    if energy == "net":
        return net
    sections = {step: trip.sections(graph) for step, trip in trips.items()}

    def less_motion(at_rest: bool) -> dict[int, Reading]:
        found = {
            step: trip.less_motion(graph, at_rest=at_rest)
            for step, trip in trips.items()
        }
        return {
            step: Reading(trip, trip.in_sections(sections[step]), True)
            for step, trip in found.items()
        }

    readings = [less_motion(True), less_motion(False)]
    ahead = np.array([_CLEARLY, 0.0])  # nats that a reading need not show
    if energy == "auto":
        readings.append(net)
        ahead = np.append(ahead, _CLEARLY)
    compared = [  # densities of the same sums
        {
            step: each.by_edge.in_sections(sections[step])
            for step, each in reading.items()
        }
        for reading in readings
    ]
    by_vehicle: dict[int, list[int]] = {}
    for step, trip in trips.items():
        by_vehicle.setdefault(trip.number, []).append(step)
    said = {
        number: _said(posterior, compared, [step for step in mine if trips[step].tells])
        for number, mine in by_vehicle.items()
    }
    of_fleet = posterior.holds_motion()
    if (
        of_fleet is None and energy == "auto" and said
    ):  # the first log: what all its vehicles say
        of_all = ahead + np.sum(list(said.values()), axis=0)
        of_all[_NET] += _CLEARLY
        of_fleet = int(np.argmax(of_all)) != _NET
    taken: dict[int, Reading] = {}
    for number, mine in by_vehicle.items():
        score = ahead + said[number]
        if energy == "auto":
            before = posterior.holds_motion(number)
            raw = of_fleet if before is None else before
            score += [_BEFORE, _BEFORE, 0.0] if raw else [0.0, 0.0, _BEFORE]
        reading = readings[int(np.argmax(score))]
        taken |= {step: reading[step] for step in mine}
    return {step: taken[step] for step in trips}


def _said(
    posterior: RoadGP, readings: list[dict[int, Trips]], telling: list[int]
) -> Floats:
    """Nats by which each reading of a vehicle's trips is behind the likeliest, at most 0.

    No reward and no trip may say much by itself: a slip of the meter would speak for what explains it.
    """
    if not telling:
        return np.zeros(len(readings))
    trips = [
        Trips.joined([each[step] for step in telling[:_ASKED]]) for each in readings
    ]
    densities = np.array([_log_densities(posterior, each) for each in trips])
    return np.asarray(np.maximum(densities - densities.max(axis=0), -_SAYS).sum(axis=1))


def _log_densities(posterior: RoadGP, trips: Trips) -> Floats:
    """The log density of each trip, nats.

    On some roads nearly all speeds are as expected, on others few. Which ones these are is not known
    before: where energies hold motion, each of both counts as a half.
    """
    usual = posterior.log_densities(trips, farthest=_FARTHEST)
    if not trips.borders:
        return usual
    sizes = _AS_EXPECTED * trips.borders.size
    sharp = trips._replace(borders=trips.borders._replace(size=sizes))
    as_expected = posterior.log_densities(sharp, farthest=_FARTHEST)
    return np.asarray(np.logaddexp(usual, as_expected) - np.log(2.0))
