"""Whether energies of edges are raw or net, by the log itself.

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

from collections import defaultdict
from collections.abc import Mapping
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.posterior import RoadGP, Trips, sections_of, with_motion
from superarm.roads.rows import Column, edges_of

Energy = Literal["auto", "net", "raw"]
"""What energies of edges contain: see above."""
_MOST_TRIPS = 20  # of a vehicle by which readings are compared
# Nats by which one trip may speak for a reading: a slip of the meter must not decide.
_MOST_EVIDENCE = 20.0
_FARTHEST = 3.0  # standard deviations that a reward may be off, in the evidence
# Of the usual doubt about speeds: that of roads where cars drive as expected.
_AS_EXPECTED = 0.1
_CLEARLY = 5.0  # nats by which a reading must be likelier than one that is more usual
# Nats for the earlier decision: less than one trip may count, or nothing would change it.
_BEFORE = 10.0


class _Kind(IntEnum):
    """Readings that are compared, in this order."""

    RAW_FROM_REST = 0
    RAW_IN_MOTION = 1  # cut from a longer drive
    NET = 2


class MeteredTrip(NamedTuple):
    """A trip as its log has it."""

    vehicle: Vehicle
    net: Trips  # its energies less what is known of heights and turns
    speeds: Floats  # m/s where each reward begins and ends, NaN where the log has none, (M, 2)

    @property
    def number(self) -> int:
        """The number of the vehicle."""
        return int(self.net.keys[0, Column.VEHICLE])

    @property
    def is_informative(self) -> bool:
        """Whether it has edges or speeds: a total from rest to rest is raw and net."""
        has_edges = len(self.net.rewards) > 1
        is_missing = np.isnan(self.speeds)
        return has_edges or not is_missing.all()

    def without_motion(self, graph: LineGraph, *, at_rest: bool) -> Trips:
        """The trip as it is learned if its energies are raw, edge by edge.

        Args:
            graph: The roads.
            at_rest: Whether the trip starts and stops at rest.
        """
        route = edges_of(self.net.keys)
        return with_motion(
            graph,
            self.vehicle,
            self.net,
            route,
            at_rest=at_rest,
            speeds=self.speeds,
        )

    def sections(self, graph: LineGraph) -> Ints:
        """Which of its energies are learned together if they are raw, (M,).

        Args:
            graph: The roads.
        """
        route = edges_of(self.net.keys)
        return sections_of(graph, self.net, route, self.speeds)


class Reading(NamedTuple):
    """A trip as its energies are understood."""

    by_edge: Trips  # one reward for each energy of the log
    learned: Trips  # the same, where energies are raw in sections that are long enough
    raw: bool


Readings = dict[int, Reading]
"""One reading of all trips, by step."""


def read_as(
    posterior: RoadGP,
    graph: LineGraph,
    trips: Mapping[int, MeteredTrip],
    energy: Energy,
) -> Readings:
    """Each trip as it is learned: as it is if its energies are net, or less motion.

    Args:
        posterior: What was learned so far.
        graph: The roads.
        trips: The trips by step.
        energy: What their energies contain; with "auto" it is detected for each vehicle.
    """
    net = _read_as_net(trips)
    if energy == "net":
        return net
    sections = {step: trip.sections(graph) for step, trip in trips.items()}
    readings = [
        _read_as_raw(graph, trips, sections, at_rest=True),
        _read_as_raw(graph, trips, sections, at_rest=False),
    ]
    head_start = np.array([_CLEARLY, 0.0])  # nats, by :class:`_Kind`
    if energy == "auto":
        readings.append(net)
        head_start = np.append(head_start, _CLEARLY)
    steps_of = _steps_by_vehicle(trips)
    compared = [_in_sections(reading, sections) for reading in readings]
    evidence: dict[int, Floats] = {}
    for vehicle, steps in steps_of.items():
        informative = [step for step in steps if trips[step].is_informative]
        evidence[vehicle] = _evidence(posterior, compared, informative)

    chosen: Readings = {}
    fleet_is_raw = posterior.holds_motion()
    if fleet_is_raw is None and energy == "auto" and evidence:
        fleet_is_raw = _is_first_log_raw(head_start, evidence)
    for vehicle, steps in steps_of.items():
        score = head_start + evidence[vehicle]
        if energy == "auto":
            was_raw = posterior.holds_motion(vehicle)
            if was_raw is None:
                was_raw = fleet_is_raw
            score += _nats_for_earlier_decision(was_raw)
        likeliest = int(np.argmax(score))
        reading = readings[likeliest]
        for step in steps:
            chosen[step] = reading[step]
    return {step: chosen[step] for step in trips}


def _steps_by_vehicle(trips: Mapping[int, MeteredTrip]) -> dict[int, list[int]]:
    """The steps of each vehicle's trips, by the vehicle's number."""
    steps_of = defaultdict(list)
    for step, trip in trips.items():
        vehicle = trip.number
        steps_of[vehicle].append(step)
    return dict(steps_of)


def _is_first_log_raw(head_start: Floats, evidence: Mapping[int, Floats]) -> bool:
    """Whether a first log is raw: all its vehicles decide together."""
    of_vehicles = list(evidence.values())
    score = head_start + np.sum(of_vehicles, axis=0)
    score[_Kind.NET] += _CLEARLY
    likeliest = int(np.argmax(score))
    return likeliest != _Kind.NET


def _nats_for_earlier_decision(was_raw: bool | None) -> Floats:
    """What an earlier decision adds to the evidence, nats, by :class:`_Kind`."""
    nats = np.zeros(len(_Kind))
    if was_raw:
        nats[_Kind.RAW_FROM_REST] = _BEFORE
        nats[_Kind.RAW_IN_MOTION] = _BEFORE
    else:
        nats[_Kind.NET] = _BEFORE
    return nats


def _read_as_net(trips: Mapping[int, MeteredTrip]) -> Readings:
    readings: Readings = {}
    for step, trip in trips.items():
        readings[step] = Reading(by_edge=trip.net, learned=trip.net, raw=False)
    return readings


def _read_as_raw(
    graph: LineGraph,
    trips: Mapping[int, MeteredTrip],
    sections: Mapping[int, Ints],
    *,
    at_rest: bool,
) -> Readings:
    readings: Readings = {}
    for step, trip in trips.items():
        by_edge = trip.without_motion(graph, at_rest=at_rest)
        learned = by_edge.in_sections(sections[step])
        readings[step] = Reading(by_edge, learned, raw=True)
    return readings


def _in_sections(
    readings: Readings,
    sections: Mapping[int, Ints],
) -> dict[int, Trips]:
    """The same sums of all readings, so that their densities can be compared."""
    trips = {}
    for step, reading in readings.items():
        section = sections[step]
        trips[step] = reading.by_edge.in_sections(section)
    return trips


def _evidence(
    posterior: RoadGP,
    readings: list[dict[int, Trips]],
    informative: list[int],
) -> Floats:
    """Nats by which each reading of a vehicle's trips is behind the likeliest, at most 0.

    The evidence of each reward and of each trip is bounded: a slip of the meter would speak for what
    explains it.
    """
    if not informative:
        return np.zeros(len(readings))
    compared = informative[:_MOST_TRIPS]
    rows = []
    for trips in readings:
        joined = Trips.joined([trips[step] for step in compared])
        rows.append(_log_densities(posterior, joined))
    densities = np.array(rows)  # (readings, trips)
    likeliest = densities.max(axis=0)
    behind = np.maximum(densities - likeliest, -_MOST_EVIDENCE)
    return np.asarray(behind.sum(axis=1))


def _log_densities(posterior: RoadGP, trips: Trips) -> Floats:
    """The log density of each trip, nats.

    On some roads nearly all speeds are as expected, on others few. Which ones these are is not known
    before: where energies hold motion, each of both counts as a half.
    """
    usual = posterior.log_densities(trips, farthest=_FARTHEST)
    if not trips.borders:
        return usual
    sizes = _AS_EXPECTED * trips.borders.size
    sharp_borders = trips.borders._replace(size=sizes)
    sharp = trips._replace(borders=sharp_borders)
    as_expected = posterior.log_densities(sharp, farthest=_FARTHEST)
    both = np.logaddexp(usual, as_expected)
    return np.asarray(both - np.log(2.0))
