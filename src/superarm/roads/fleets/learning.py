"""Learn from a fleet's own log: each trip once.

:mod:`superarm.roads.fleets.tables` describes logs. Edges of a trip may be missing; nothing is then
learned about them. The energy of a whole trip is learned as the sum of its edges. Potential energy and
the expected cost of turns are subtracted first, and so is the kinetic energy expected in a battery's
own readings: see :mod:`superarm.roads.fleets.reading`. Logs that cannot be right are refused: see
:mod:`superarm.roads.fleets.checks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, get_args

import numpy as np

from superarm.core.errors import InputError, StateError
from superarm.core.inputs import require_choice
from superarm.core.registry import describe, difference
from superarm.policies import IndexPolicy
from superarm.policies.ledger import MOST_ROUNDS
from superarm.roads.energy import HourlyScales, Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.policies.navigation import route_greedy
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet import fleet_model, road_sizes

from .checks import ANYWAY, KNOWN_VEHICLE, Finding, LogFindings, check_log
from .metering import ExaminedTrip, examine_trip, split_trip
from .reading import Energy, Reading, read_as
from .records import LoggedTrip
from .trip_energies import Energies

_LEARNED = 3  # trips after which a vehicle's forecasts are its own


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The result of :func:`learn_trips`.

    Args:
        policy: The policy that has learned.
        trips: How many trips this call learned.
        known: How many trips an earlier call had learned; they were skipped.
        refused: Reasons, by the names of vehicle and trip.
        warnings: What looks wrong with the log.
        raw: How many trips this call learned whose energies include kinetic energy.
        parts: How many trips the posterior gained; a trip that jumps counts as several.
    """

    policy: IndexPolicy
    trips: int
    known: int
    refused: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    raw: int = 0
    parts: int = 0

    @property
    def posterior(self) -> RoadGP:
        """The posterior of the policy."""
        posterior = self.policy.posterior
        assert isinstance(posterior, RoadGP)
        return posterior

    def as_json(self, graph: LineGraph) -> dict[str, Any]:
        """What was learned, as ``superarm learn --json`` prints it.

        Args:
            graph: The roads.
        """
        gp = self.posterior
        record = gp.track_record
        scales = gp.fitted
        scales_wh = {"near": scales.near, "own": scales.own, "noise": scales.noise}
        if isinstance(scales, HourlyScales):
            scales_wh["near_hour"] = scales.near_hour
            scales_wh["own_hour"] = scales.own_hour
        flagged = []
        for outlier in gp.flagged:
            item = {
                "edges": [graph.ids[edge] for edge in outlier.edges.tolist()],
                # Less what is stored in height and what turns add.
                "energy_wh": outlier.reward,
                "standard_deviations": outlier.score,
            }
            flagged.append(item)
        return {
            "trips_learned": self.trips,
            "trips_learned_as_raw": self.raw,
            "trips_known_before": self.known,
            "trips_refused": dict(self.refused),
            "warnings": list(self.warnings),
            "trips_in_all": gp.trips,
            "edges_visited": len(gp.visited),
            "outliers": gp.outlying,
            "flagged": flagged,
            "trips_judged": record.trips,
            "trips_inside": record.inside if record.trips else None,
            "trust": record.holds,
            "scales_wh": scales_wh,
        }


def _step(trip: LoggedTrip) -> int:
    """The number by which a policy remembers a trip; no round of a run has it."""
    name = f"{trip.vehicle}\0{trip.name}"
    digest = sha256(name.encode()).digest()
    number = int.from_bytes(digest[:7], "big") >> 4
    return 1 + MOST_ROUNDS + number


def fleet_policy(
    graph: LineGraph, *, hours: bool | None = None, **options: Any
) -> IndexPolicy:
    """A new policy that chooses the route of least expected energy.

    Args:
        graph: The roads.
        hours: Whether roads have a profile over the day: ``scales`` are then ``HourlyScales()`` unless
            given, and trips need times. By default they have none.
        options: ``scales``, ``refit``, ``outliers`` and ``half_life`` of
            :class:`~superarm.roads.models.FleetModel`.
    """
    if hours:
        options.setdefault("scales", HourlyScales())
    return route_greedy(fleet_model(graph, **options), spread="none")


def road_mismatch(posterior: RoadGP, graph: LineGraph) -> str | None:
    """How these roads differ from those that a fleet has learned on, in words; ``None``: they do not.

    Args:
        posterior: What a fleet has learned.
        graph: The roads.
    """
    ours = describe(graph.turn_graph)
    theirs = describe(posterior.kernel)["network"]
    if len(graph) != len(posterior.sizes):
        return f"that one has {len(posterior.sizes):,} edges, this one {len(graph):,}"
    if difference(ours["turns"], theirs.get("turns")):
        return "the turns between roads differ"
    if difference(ours["length"], theirs.get("length")):
        return "the lengths of roads differ"
    if difference(road_sizes(graph), posterior.sizes):
        return "speed limits or heights differ, or only one network has heights"
    return None


def learn_trips(
    graph: LineGraph,
    trips: Iterable[LoggedTrip],
    *,
    policy: IndexPolicy | None = None,
    vehicles: Mapping[str, Vehicle] | None = None,
    accept_unlikely: bool = False,
    energy: Energy = "auto",
    hours: bool | None = None,
    **options: Any,
) -> Lesson:
    """Learn from trips, into a new policy or into one that has learned before.

    Args:
        graph: The roads.
        trips: As :func:`read_trips` returns them; trips that the policy has learned are skipped.
        policy: The policy to update; a new one by default.
        vehicles: Descriptions of vehicles by name; others are the default vehicle.
        accept_unlikely: Whether to learn trips that look wrong, too (see
            :func:`~superarm.roads.fleets.check_log`).
        energy: Whether energies of edges include kinetic energy ("raw") or not ("net"); by default it
            is detected.
        hours: Whether roads have a profile over the day, learned from the times of the trips; by
            default as in ``policy``, and not in a new one.
        options: As for :func:`fleet_policy`. They must agree with ``policy`` if both are given.
    """
    require_choice(energy, "energy", get_args(Energy))
    if policy is None:
        policy = fleet_policy(graph, hours=hours, **options)
        options = {}
    posterior = _road_posterior(policy, graph, options)
    _check_hours(posterior, hours)
    log = _examine_log(graph, policy, posterior, trips, vehicles or {})
    metered = {step: examined.metered for step, examined in log.examined.items()}
    readings = read_as(posterior, graph, metered, energy)
    findings = _check(log.examined, readings)
    if findings.everywhere and not accept_unlikely:
        raise InputError(f"this log looks wrong: {findings.everywhere}. {ANYWAY}")
    warnings: list[str] = []
    for vehicle, finding in findings.vehicles.items():
        warnings.append(finding.describe(vehicle, accept_unlikely))
    refused = dict(log.refused)
    learned: dict[int, ExaminedTrip] = {}
    for step, examined in log.examined.items():
        trip = examined.trip
        its_finding = findings.vehicles.get(trip.vehicle)
        if its_finding is not None and its_finding.refused and not accept_unlikely:
            refused[trip.label] = its_finding.message
            continue
        learned[step] = examined
        if examined.jump:
            warnings.append(examined.jump)
    parts: list[Trips] = []
    if learned:
        for step, examined in learned.items():
            reading = readings[step]
            parts += split_trip(reading.learned, examined.jumps)
        # Durations first, into a copy: if either fails, nothing was learned.
        durations = _with_durations(posterior, learned.values())
        posterior.observe_trips(Trips.joined(parts))
        posterior.durations = durations
        posterior.name_vehicles(log.vehicles)
        policy.note_steps(list(learned))
    return Lesson(
        policy=policy,
        trips=len(learned),
        known=log.known,
        refused=refused,
        warnings=tuple(warnings),
        raw=sum(readings[step].raw for step in learned),
        parts=len(parts),
    )


def _with_durations(posterior: RoadGP, trips: Iterable[ExaminedTrip]) -> RoadGP | None:
    """The durations of a posterior once it has those of these trips, where the log has seconds."""
    durations = posterior.durations
    known = [trip.durations for trip in trips if trip.durations is not None]
    if durations is None or not known:
        return durations
    durations = copy(durations)
    durations.observe_trips(Trips.joined(known))
    return durations


@dataclass
class _ExaminedLog:
    """The trips of a log that are new."""

    examined: dict[int, ExaminedTrip] = field(default_factory=dict)  # by step
    known: int = 0  # trips that were learned before
    refused: dict[str, str] = field(default_factory=dict)  # reasons, by label
    # Vehicles in the order of the log, and whether forecasts of each are its own.
    vehicles: dict[str, bool] = field(default_factory=dict)


def _examine_log(
    graph: LineGraph,
    policy: IndexPolicy,
    posterior: RoadGP,
    trips: Iterable[LoggedTrip],
    described: Mapping[str, Vehicle],
) -> _ExaminedLog:
    """Prepare all trips that are new for learning."""
    log = _ExaminedLog()
    names = posterior.vehicle_names
    for trip in trips:
        step = _step(trip)
        if policy.has_learned(step) or step in log.examined:
            log.known += 1
            continue
        name = trip.vehicle
        if name not in log.vehicles:
            names = names.having([name])
            was_learned = posterior.trips_of(names.number(name)) >= _LEARNED
            log.vehicles[name] = name in described or was_learned
        try:
            log.examined[step] = examine_trip(
                graph,
                posterior,
                trip,
                described.get(name, Vehicle()),
                names.number(name),
                log.vehicles[name],
            )
        except InputError as error:
            log.refused[trip.label] = str(error)
    return log


def _check(
    trips: Mapping[int, ExaminedTrip],
    readings: Mapping[int, Reading],
) -> LogFindings:
    """What looks wrong with these trips, whether motion is subtracted from their energies or not.

    Motion in raw energies may look like an error; an error that remains without it is one.
    """
    as_metered = [(trip.trip.vehicle, trip.energies) for trip in trips.values()]
    findings = check_log(as_metered)
    has_raw = any(readings[step].raw for step in trips)
    if not findings.vehicles or not has_raw:
        return findings

    without_motion = []
    for step, examined in trips.items():
        metered = readings[step].by_edge.rewards + examined.known
        energies = examined.energies._replace(metered=metered)
        without_motion.append((examined.trip.vehicle, energies))
    remaining = check_log(without_motion).vehicles

    confirmed: dict[str, Finding] = {}
    for vehicle, finding in findings.vehicles.items():
        its_energies = [energies for name, energies in as_metered if name == vehicle]
        if vehicle in remaining or not _is_about_right(its_energies):
            confirmed[vehicle] = finding
    everywhere = None
    if confirmed == findings.vehicles:
        everywhere = findings.everywhere
    return LogFindings(vehicles=confirmed, everywhere=everywhere)


def _is_about_right(trips: list[Energies]) -> bool:
    """Whether the energy of a vehicle's typical trip is plausible as it was metered.

    Along a whole trip motion adds up to little.
    """
    ratios = []
    for trip in trips:
        metered = float(trip.metered.sum())
        ratios.append(metered / (trip.forecast or 1.0))
    typical = np.median(ratios)
    least, most = KNOWN_VEHICLE.refused
    return bool(least < typical < most)


def _check_hours(posterior: RoadGP, hours: bool | None) -> None:
    """Refuse hours that differ from those of a policy that has learned."""
    if hours is None or hours == posterior.has_hours:
        return
    learned, wanted = (
        ("with", "without") if posterior.has_hours else ("without", "with")
    )
    raise StateError(
        f"this state was learned {learned} hours, so you cannot continue it {wanted} them: learn the "
        "whole log into a new state"
    )


def _road_posterior(
    policy: IndexPolicy,
    graph: LineGraph,
    options: Mapping[str, Any],
) -> RoadGP:
    """The posterior of a policy that learned on these roads with these options."""
    posterior = policy.posterior
    if not isinstance(posterior, RoadGP):
        raise StateError("this is not a fleet's state; pass a state from learn_trips")
    mismatch = road_mismatch(posterior, graph)
    if mismatch is not None:
        raise StateError(
            f"this state was learned on another road network ({mismatch}). Pass the same network and "
            "elevation (--net, --elevation)"
        )
    for name, value in options.items():
        learned_with = getattr(posterior, name)
        if value is not None and learned_with != value:
            learned = f"with {name} {learned_with!r}"
            if learned_with is None:
                learned = f"without {name}"
            raise StateError(
                f"this state was learned {learned}, got {value!r}; omit {name}, or start a new state"
            )
    return posterior
