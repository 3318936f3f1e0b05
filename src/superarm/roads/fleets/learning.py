"""A fleet's own log: trips as they were metered, learned from once.

A log is a table with one row for each edge or for each trip:

=============  =======================================================================
``trip``       a name, unique among all trips of the vehicle in all logs; each trip is learned once
``vehicle``    its name, if there are several; unnamed trips belong to one vehicle
``edge``       the edge's id, in driving order; or
``edges``      the ids of all edges of the trip, separated by spaces
``energy_wh``  energy drawn from the battery on the edge, or on the whole trip; or ``energy_kwh``
=============  =======================================================================

and, where the log has them,

===================  =================================================================
``start_speed_m_s``  the vehicle's speed where the row's first edge begins; empty if unknown
``end_speed_m_s``    its speed where the row's last edge ends
===================  =================================================================

or one row for each point of a GPS trace (extra ``gps``), in the order of time:

=============  =======================================================================
``time_s``     seconds
``lat``        latitude in degrees; ``lon`` longitude
``counter_wh`` energy drawn from the battery so far: a counter, of which only changes matter
=============  =======================================================================

Edges of a trip may be missing; nothing is then learned about them. The energy of a whole trip is
learned as the sum of its edges. Potential energy and the expected cost of turns are subtracted first,
and so is the kinetic energy expected in a battery's own readings: see
:mod:`superarm.roads.fleets.reading`.
Logs that cannot be right are refused: see :mod:`superarm.roads.fleets.checks`.
"""

from __future__ import annotations

import csv
import io
import lzma
import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compressed import open_packed
from superarm.core.errors import FileError, InputError, StateError
from superarm.core.inputs import as_number, require_choice
from superarm.core.registry import describe, difference
from superarm.policies.base import IndexPolicy
from superarm.policies.ledger import MOST_ROUNDS
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.policies.navigation import route_greedy
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet import fleet_model, road_rows, road_sizes
from superarm.roads.rows import Column

from .checks import ANYWAY, KNOWN_VEHICLE, Energies, Finding, LogFindings, check_log
from .reading import Energy, Metered, Reading, read_as

_LARGEST = 1e10
_MOST_WH = 1e7  # of an edge or a trip: 10 MWh
_MOST_BYTES = 1 << 28  # of one table: 256 MiB, some five million rows
_JUMP = 500.0  # metres between edges that follow one another, above which a trip is learned as two
_LEARNED = 3  # trips after which a vehicle's forecasts are its own
_GAP = 0.05  # share of a section that may be missing between its edges
_MOST_LETTERS = 1 << 24  # of one entry: a trip of 100,000 edges has a tenth of it
_TRACE = ("time_s", "lat", "lon", "counter_wh")
_SPEEDS = ("start_speed_m_s", "end_speed_m_s")
_FASTEST = 100.0  # m/s


class TripSection(NamedTuple):
    """Edges in a row, and what they cost together."""

    edges: tuple[str, ...]
    energy: float  # Wh
    start_speed: float | None = None  # m/s where they begin, if the log has it
    end_speed: float | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedTrip:
    """A trip as it was metered."""

    name: str
    vehicle: str = ""
    sections: tuple[TripSection, ...]
    unread: str = ""
    """Why nothing can be learned from it."""
    jump: str = ""
    """Where its trace was split, in words."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """The result of :func:`learn_trips`."""

    policy: IndexPolicy
    trips: int  # learned by this call
    known: int  # learned by an earlier call, and skipped
    refused: Mapping[str, str] = field(
        default_factory=dict
    )  # reasons, by name of the trip
    warnings: tuple[str, ...] = ()  # what looks wrong with the log
    raw: int = 0  # trips learned by this call whose energies include kinetic energy

    @property
    def posterior(self) -> RoadGP:
        posterior = self.policy.posterior
        assert isinstance(posterior, RoadGP)
        return posterior

    def as_json(self, graph: LineGraph) -> dict[str, Any]:
        gp = self.posterior
        held, scales = gp.held, gp.fitted
        flagged = [
            {
                "edges": [graph.ids[edge] for edge in each.edges.tolist()],
                "energy_wh": each.reward,  # less what is stored in height and what turns add
                "standard_deviations": each.score,
            }
            for each in gp.flagged
        ]
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
            "trips_judged": held.trips,
            "trips_inside": held.inside if held.trips else None,
            "trust": held.holds,
            "scales_wh": {
                name: getattr(scales, name) for name in ("near", "own", "noise")
            },
        }


def _step(trip: LoggedTrip) -> int:
    """By which a policy knows that it has learned from a trip: no round of a run has this number."""
    digest = sha256(f"{trip.vehicle}\0{trip.name}".encode()).digest()
    return 1 + MOST_ROUNDS + (int.from_bytes(digest[:7], "big") >> 4)


def fleet_policy(graph: LineGraph, **options: Any) -> IndexPolicy:
    """A new policy that chooses the route of least expected energy.

    ``options``: ``scales``, ``refit`` and ``outliers`` of :class:`~superarm.roads.models.FleetModel`.
    """
    return route_greedy(fleet_model(graph, **options), spread="none")


def road_mismatch(posterior: RoadGP, graph: LineGraph) -> str | None:
    """How these roads differ from those that a fleet has learned on, in words."""
    ours, theirs = describe(graph.turn_graph), describe(posterior.kernel)["network"]
    if len(graph) != len(posterior.sizes):
        return f"this network has {len(graph):,} edges, the state's has {len(posterior.sizes):,}"
    names = {"turns": "the turns between roads", "length": "the lengths of roads"}
    for name, what in names.items():
        if difference(ours[name], theirs.get(name)):
            return f"{what} differ"
    told = "speed limits or heights differ, or only one network has heights"
    return told if difference(road_sizes(graph), posterior.sizes) else None


def learn_trips(
    graph: LineGraph,
    trips: Iterable[LoggedTrip],
    *,
    policy: IndexPolicy | None = None,
    vehicles: Mapping[str, Vehicle] | None = None,
    accept_unlikely: bool = False,
    energy: Energy = "auto",
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
        options: As for :func:`fleet_policy`. They must agree with ``policy`` if both are given.
    """
    require_choice(energy, "energy", get_args(Energy))
    if policy is None:
        policy, options = fleet_policy(graph, **options), {}
    posterior = _road_posterior(policy, graph, options)
    described = vehicles or {}
    names = posterior.vehicle_names
    familiar: dict[str, bool] = {}  # whether forecasts of a vehicle are its own
    known, refused = 0, {}
    metered: dict[int, _Metered] = {}
    for trip in trips:
        if policy.knows(step := _step(trip)) or step in metered:
            known += 1
            continue
        name = trip.vehicle
        if name not in familiar:
            names = names.having([name])
            learned = posterior.trips_of(names.number(name)) >= _LEARNED
            familiar[name] = name in described or learned
        try:
            vehicle = described.get(name, Vehicle())
            number = names.number(name)
            metered[step] = _metered(
                graph, posterior, trip, vehicle, number, familiar[name]
            )
        except InputError as error:
            refused[_name(trip)] = str(error)
    read = read_as(
        posterior, graph, {step: each.metered for step, each in metered.items()}, energy
    )
    found = _check(metered, read)
    if found.everywhere and not accept_unlikely:
        raise InputError(f"this log looks wrong: {found.everywhere}. {ANYWAY}")
    warnings = [
        finding.said_of(vehicle, accept_unlikely)
        for vehicle, finding in found.vehicles.items()
    ]
    for step, each in list(metered.items()):
        finding = found.vehicles.get(each.trip.vehicle)
        if finding is not None and finding.refused and not accept_unlikely:
            refused[_name(each.trip)] = finding.message
            del metered[step], read[step]
        elif each.jump:
            warnings.append(each.jump)
    if metered:
        parts = [
            part
            for step, each in metered.items()
            for part in _split(read[step].learned, each.jumps)
        ]
        posterior.observe_trips(Trips.joined(parts))
        posterior.name_vehicles(familiar)
        policy.note_steps(list(metered))
    return Lesson(
        policy=policy,
        trips=len(metered),
        known=known,
        refused=refused,
        warnings=tuple(warnings),
        raw=sum(read[step].raw for step in metered),
    )


def _check(metered: Mapping[int, _Metered], read: Mapping[int, Reading]) -> LogFindings:
    """What looks wrong with these trips, whether motion is taken off their energies or not.

    Motion in raw energies may look like an error; an error that stays when it is taken off is one.
    """
    found = check_log((each.trip.vehicle, each.energies) for each in metered.values())
    if not found.vehicles or not any(read[step].raw for step in metered):
        return found
    less_motion = check_log(
        (
            each.trip.vehicle,
            each.energies._replace(metered=read[step].by_edge.rewards + each.known),
        )
        for step, each in metered.items()
    )
    least, most = KNOWN_VEHICLE.refused
    kept: dict[str, Finding] = {}
    for name, finding in found.vehicles.items():
        mine = [each.energies for each in metered.values() if each.trip.vehicle == name]
        # Along a whole trip motion adds up to little: its energy must be about right as it is.
        typical = np.median(
            [float(each.metered.sum()) / (each.forecast or 1.0) for each in mine]
        )
        if name in less_motion.vehicles or not least < typical < most:
            kept[name] = finding
    return LogFindings(
        vehicles=kept, everywhere=found.everywhere if kept == found.vehicles else None
    )


def _road_posterior(
    policy: IndexPolicy, graph: LineGraph, options: Mapping[str, Any]
) -> RoadGP:
    """The posterior of a policy that learned on these roads with these options."""
    posterior = policy.posterior
    if not isinstance(posterior, RoadGP):
        raise StateError("this is not a fleet's state; pass one that learn_trips made")
    if unlike := road_mismatch(posterior, graph):
        message = f"this state was learned on another road network: {unlike}"
        raise StateError(
            f"{message}; pass the network and elevation that it was learned on"
        )
    for name, value in options.items():
        if value is not None and (held := getattr(posterior, name)) != value:
            raise StateError(
                f"this state was learned with {name} {held!r}, got {value!r}; omit {name}, or start a "
                "new state"
            )
    return posterior


def _name(trip: LoggedTrip) -> str:
    return " ".join(filter(None, (trip.vehicle, trip.name)))


class _Metered(NamedTuple):
    """A trip as it is learned."""

    trip: LoggedTrip
    metered: Metered
    energies: Energies
    known: Floats  # Wh of each energy that are stored in height, and that turns add
    jumps: list[int]  # arms before which it jumps: there it is learned as another trip
    jump: str  # the first of them, in words


def _metered(
    graph: LineGraph,
    posterior: RoadGP,
    trip: LoggedTrip,
    vehicle: Vehicle,
    number: int,
    known_vehicle: bool,
) -> _Metered:
    """What a trip teaches: its energies less what is known of turns and heights."""
    if (
        trip.unread
        or not trip.sections
        or not all(section.edges for section in trip.sections)
    ):
        raise InputError(trip.unread or "it has no edges")
    for section in trip.sections:
        as_number(section.energy, "energy_wh", -_MOST_WH, _MOST_WH)
    route = np.array(
        [graph.number(edge) for section in trip.sections for edge in section.edges]
    )
    of = np.repeat(
        np.arange(len(trip.sections)), [len(section.edges) for section in trip.sections]
    )
    gaps = _gaps(graph, route)
    _check_sections(graph, route, of, gaps)
    turns = graph.turns_between(route.tolist())  # −1 where edges between are missing
    costs = np.where(turns < 0, 0.0, vehicle.turn_energy(graph, turns))
    known = np.zeros(len(trip.sections))  # what is stored in height, and what turns add
    np.add.at(known, of, vehicle.potential(graph.rise[route]))
    np.add.at(known, of[:-1], costs)
    energies = np.array([section.energy for section in trip.sections])
    keys = road_rows(graph, vehicle, number, route)
    expected = np.zeros(len(trip.sections))
    np.add.at(expected, of, keys[:, Column.EXPECTED])
    forecast = posterior.total(keys)[0] if posterior.trips else float(expected.sum())
    backwards = vehicle.energy(
        graph.length[route], graph.speed[route], -graph.rise[route]
    )
    reverse = np.zeros(len(trip.sections))
    np.add.at(reverse, of, backwards)
    np.add.at(reverse, of[:-1], costs)
    checked = Energies(
        metered=energies,
        model=expected + known,
        reverse=reverse,
        forecast=forecast + float(known.sum()),
        stored=known,
        known_vehicle=known_vehicle,
    )
    # One energy is not split: a hole in its section is small beside it, or it was refused above.
    jumps = np.flatnonzero((gaps > _JUMP) & (of[1:] != of[:-1]))
    whole = Trips.of_one(keys, of, energies - known)
    jump = ""
    if trip.jump:
        jump = f"trip {_name(trip)!r} was matched in parts: {trip.jump}"
    if len(jumps):
        first = int(jumps[0])
        before, after = graph.ids[route[first]], graph.ids[route[first + 1]]
        jump = (
            f"trip {_name(trip)!r} jumps {gaps[first] / 1000.0:.1f} km from edge {before} to edge "
            f"{after} and was learned as {len(jumps) + 1} trips; if two trips share this name, "
            "rename one"
        )
    speeds = np.array([section[2:] for section in trip.sections], dtype=np.float64)
    return _Metered(
        trip,
        Metered(vehicle, whole, speeds),
        checked,
        known,
        (jumps + 1).tolist(),
        jump,
    )


def _gaps(graph: LineGraph, route: Ints) -> Floats:
    """Metres from the end of each edge to the beginning of the next, (k − 1,), in a straight line."""
    network, edges = graph.network, graph.edges[route]
    ends = network.junctions[network.head[edges], :2]
    starts = network.junctions[network.tail[edges], :2]
    return np.asarray(np.hypot(*(starts[1:] - ends[:-1]).T))


def _check_sections(graph: LineGraph, route: Ints, of: Ints, gaps: Floats) -> None:
    """Refuse edges that run backwards, and one energy of edges that are apart."""
    network, edges = graph.network, graph.edges[route]
    tail, head = network.tail[edges], network.head[edges]
    forward = np.count_nonzero(head[:-1] == tail[1:])
    backward = np.count_nonzero(tail[:-1] == head[1:])
    both = np.count_nonzero(
        (head[:-1] == tail[1:]) & (tail[:-1] == head[1:])
    )  # turned round
    if backward - both >= 2 and backward > 2 * forward:
        raise InputError(
            "its edges run backwards: each ends where the previous one begins. Sort its rows in "
            "driving order, or use the edge ids of the direction driven"
        )
    inside = of[:-1] == of[1:]
    missing = np.bincount(of[1:][inside], gaps[inside], int(of[-1]) + 1)
    too_long = missing > np.maximum(_GAP * np.bincount(of, graph.length[route]), 50.0)
    if too_long.any():
        metres = missing[too_long][0]
        raise InputError(
            f"one of its energies covers edges with a gap of {metres:,.0f} m, and so includes edges "
            "that are missing. List all edges that were driven"
        )


def _split(trip: Trips, arms: list[int]) -> list[Trips]:
    """A trip as several that share no noise, each from one of these arms on."""
    parts = []
    for begin, end in pairwise([0, *arms, len(trip.of)]):
        first = int(trip.of[begin])
        of = trip.of[begin:end] - first
        rewards = slice(first, first + int(of[-1]) + 1)
        numbers = np.full(len(trip.rewards), -1)
        numbers[rewards] = np.arange(int(of[-1]) + 1)
        borders = trip.borders.of_rewards(numbers)
        parts.append(
            Trips.of_one(
                trip.keys[begin:end], of, trip.rewards[rewards], borders=borders
            )
        )
    return parts


# --- reading -------------------------------------------------------------------------------


def read_trips(path: str | Path, graph: LineGraph) -> list[LoggedTrip]:
    """Read a table of trips, ``.csv`` plain or packed, and match GPS traces to the roads.

    The module's docstring describes the columns.
    """
    path = Path(path)
    try:
        with open_packed(path) as file:
            stated = path.stat().st_size  # unpacked it may be more
            data = file.read(_MOST_BYTES + 1) if stated <= _MOST_BYTES else b""
        if max(stated, len(data)) > _MOST_BYTES:
            raise FileError(
                f"{path} is larger than {_MOST_BYTES:,} bytes, the limit for one table; split it "
                "between trips, and pass each part with --trips"
            )
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        reason = (
            error.strerror if isinstance(error, OSError) and error.strerror else error
        )
        raise FileError(
            f"{path} cannot be read as a table of trips: {reason}"
        ) from None
    rows = _rows(path, text)
    names = set(rows[0].entries)
    traced = {"trip", *_TRACE} <= names
    one_energy = ("energy_wh" in names) != ("energy_kwh" in names)
    one_place = ("edge" in names) != ("edges" in names)
    if not traced and not ("trip" in names and one_energy and one_place):
        raise FileError(
            f"{path}: the first line must name the columns trip, energy_wh (or energy_kwh) and either "
            "edge (one row for each edge) or edges (one row for each trip), or else trip, time_s, lat, "
            f"lon and counter_wh; got {', '.join(sorted(names)) or 'none':.200}"
        )
    column = "edge" if "edge" in names else "edges"
    read: Callable[[Path, int, Mapping[str, Any]], Any] = (
        _point if traced else lambda path, line, row: _section(path, line, row, column)
    )
    found = []
    for line, entries in rows[1:]:
        if len(entries) > len(rows[0].entries):
            raise FileError(
                f"{path}, line {line}: {len(entries)} entries for {len(rows[0].entries)} columns; "
                "write decimals with a point"
            )
        row = dict(zip(rows[0].entries, entries, strict=False))
        found.append(
            (row.get("trip") or "", row.get("vehicle") or "", read(path, line, row))
        )
    if not found:
        raise FileError(f"{path}: the table has no rows")
    by_trip = groupby(found, key=lambda row: row[:2])
    groups = [(key, [each for *_, each in group]) for key, group in by_trip]
    for (name, _), count in Counter(key for key, _ in groups).items():
        if count > 1:
            raise FileError(
                f"{path}: the rows of trip {name!r} are not contiguous; sort the table by trip"
            )
        if not name:
            raise FileError(
                f"{path}: a row does not name its trip; give each trip a name"
            )
    return [
        _matched(name, vehicle, graph, each)
        if traced
        else LoggedTrip(name=name, vehicle=vehicle, sections=tuple(each))
        for (name, vehicle), each in groups
    ]


class _Row(NamedTuple):
    line: int
    entries: list[str]


def _rows(path: Path, text: str) -> list[_Row]:
    """The rows of a table that are not empty, the names of its columns first."""
    most = csv.field_size_limit(_MOST_LETTERS)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = [_Row(reader.line_num, entries) for entries in reader if entries] or [
            _Row(1, [])
        ]
    except csv.Error as error:
        raise FileError(f"{path}, line {reader.line_num}: {error}") from None
    finally:
        csv.field_size_limit(most)
    counts = Counter(rows[0].entries)
    for name, count in counts.items():
        if count > 1:
            raise FileError(
                f"{path}: the first line names the column {name!r:.60} twice; remove one"
            )
    return rows


def _matched(
    name: str, vehicle: str, graph: LineGraph, points: list[Any]
) -> LoggedTrip:
    """A trace as sections whose energies its counter tells."""
    from superarm.roads.gps import energies_along, match_trace, pieces_of

    times, lats, lons, counter = np.array(points).T
    places = np.column_stack([lons, lats])
    sections: list[TripSection] = []
    unread = ""
    try:
        pieces = pieces_of(graph, places, times)
        for piece in pieces:
            try:
                matched = match_trace(graph, places[piece], times[piece])
            except InputError as error:
                unread = unread or str(error)
                continue
            for found in energies_along(matched, times[piece], counter[piece]):
                edges = tuple(graph.ids[edge] for edge in found.edges)
                sections.append(TripSection(edges, found.energy))
    except InputError as error:
        return LoggedTrip(name=name, vehicle=vehicle, sections=(), unread=str(error))
    if sections:
        jump = ""
        if len(pieces) > 1:
            at = times[pieces[1].start - 1]
            jump = f"its clock or position jumps {len(pieces) - 1} times, first after time_s {at:g}"
        return LoggedTrip(
            name=name, vehicle=vehicle, sections=tuple(sections), jump=jump
        )
    unread = unread or "its points and counter readings do not cover a whole edge"
    return LoggedTrip(name=name, vehicle=vehicle, sections=(), unread=unread)


def _point(path: Path, line: int, row: Mapping[str, Any]) -> list[float]:
    return [_number(path, line, row, column) for column in _TRACE]


def _number(
    path: Path, line: int, row: Mapping[str, Any], column: str, most: float = _LARGEST
) -> float:
    text = row.get(column) or ""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or abs(number) > most:
        wanted = f"{column} must be a number from {-most:,.0f} to {most:,.0f}"
        raise FileError(f"{path}, line {line}: {wanted}, got {text!r:.60}")
    return number


def _section(path: Path, line: int, row: Mapping[str, Any], column: str) -> TripSection:
    given = row.get(column) or ""
    edges = tuple(given.split()) if column == "edges" else (given.strip(),)
    if not edges or not all(edges):
        raise FileError(f"{path}, line {line}: {column} must not be empty")
    speeds = [
        _number(path, line, row, name, _FASTEST) if row.get(name) else None
        for name in _SPEEDS
    ]
    if min(speed or 0.0 for speed in speeds) < 0.0:
        raise FileError(f"{path}, line {line}: speeds must not be negative")
    if "energy_kwh" in row:
        energy = 1000.0 * _number(path, line, row, "energy_kwh", _MOST_WH / 1000.0)
    else:
        energy = _number(path, line, row, "energy_wh", _MOST_WH)
    return TripSection(edges, energy, *speeds)
