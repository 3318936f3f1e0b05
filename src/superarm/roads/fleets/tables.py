"""Tables of trips as they were metered.

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
``time``             when the row's first edge begins: HH:MM, HH:MM:SS, or a date and time; empty
                     if unknown. Fleets with hours need it in the first row of every trip
``duration_s``       seconds that the row's edges took; by default those until the next row's time
===================  =================================================================

or one row for each point of a GPS trace (extra ``gps``), in the order of time:

=============  =======================================================================
``time_s``     seconds
``lat``        latitude in degrees; ``lon`` longitude
``counter_wh`` energy drawn from the battery so far: a counter, of which only changes matter
``time``       the time of the point, as above, if the log has it; that of a trip's first point counts
=============  =======================================================================
"""

from __future__ import annotations

import csv
import io
import lzma
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from superarm.core.compressed import open_packed
from superarm.core.errors import FileError, InputError
from superarm.core.inputs import as_time_of_day
from superarm.roads.networks import LineGraph

from .records import LoggedTrip, TripSection

if TYPE_CHECKING:
    from superarm.roads.gps import MatchedTrace, TraceSection

_LARGEST = 1e10
MOST_WH = 1e7
"""The largest energy of an edge or a trip: 10 MWh."""
_MOST_BYTES = 1 << 28  # of one table: 256 MiB, some five million rows
_MOST_LETTERS = 1 << 24  # of one entry: a trip of 100,000 edges has a tenth of it
_TRACE_COLUMNS = ("time_s", "lat", "lon", "counter_wh")
FASTEST = 100.0
"""The largest speed of a vehicle, m/s."""
_MOST_SECONDS = 86_400.0
_HOURS = 24.0
Part = TypeVar("Part")


class _Row(NamedTuple):
    """One line of a table."""

    path: Path
    line: int
    entries: Mapping[str, str]  # by column

    def error(self, message: str) -> FileError:
        """An error that names the line."""
        return FileError(f"{self.path}, line {self.line}: {message}")

    def text(self, column: str) -> str:
        """An entry; "" where there is none."""
        return self.entries.get(column) or ""

    def number(self, column: str, most: float = _LARGEST) -> float:
        """A number from −``most`` to ``most``."""
        text = self.text(column)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or abs(number) > most:
            raise self.error(
                f"{column} must be a number from {-most:,.0f} to {most:,.0f}, got {text!r:.60}"
            )
        return number

    def speed(self, column: str) -> float | None:
        """A speed, m/s; ``None`` where the entry is empty."""
        return self.number(column, FASTEST) if self.text(column) else None

    def hour(self) -> float | None:
        """The time of day in hours; ``None`` where the entry is empty."""
        text = self.text("time").strip()
        if not text:
            return None
        try:
            moment = as_time_of_day(text, "time")
        except InputError as error:
            raise self.error(str(error)) from None
        return moment.hour + moment.minute / 60.0 + moment.second / 3600.0

    def seconds(self) -> float | None:
        """How long the row took; ``None`` where the entry is empty."""
        if not self.text("duration_s"):
            return None
        seconds = self.number("duration_s", _MOST_SECONDS)
        if seconds <= 0.0:
            raise self.error(f"duration_s must be positive, got {seconds:g}")
        return seconds


class _TripName(NamedTuple):
    """How rows name their trip."""

    trip: str
    vehicle: str


class _Point(NamedTuple):
    """A point of a GPS trace."""

    time: float  # s
    lat: float  # degrees
    lon: float
    counter: float  # Wh
    hour: float | None  # of the day


def read_trips(path: str | Path, graph: LineGraph) -> list[LoggedTrip]:
    """Read a table of trips and match GPS traces to the roads.

    The docstring of :mod:`superarm.roads.fleets.tables` describes the columns.

    Args:
        path: A ``.csv`` file, plain or packed.
        graph: The roads.
    """
    path = Path(path)
    lines = _read_lines(path)
    columns = lines[0].entries
    rows = _rows(path, lines)
    is_trace = {"trip", *_TRACE_COLUMNS} <= set(columns)
    if is_trace:
        points = [(_name(row), _point(row)) for row in rows]
        traces = _by_trip(path, points)
        return [_match_trip(name, graph, trace) for name, trace in traces]
    _check_columns(path, columns)
    column = "edge" if "edge" in columns else "edges"
    sections = [(_name(row), _section(row, column)) for row in rows]
    trips = []
    for name, parts in _by_trip(path, sections):
        trip = LoggedTrip(
            name=name.trip,
            vehicle=name.vehicle,
            sections=_with_durations(parts),
        )
        trips.append(trip)
    return trips


# --- the file --------------------------------------------------------------------------------


class _Line(NamedTuple):
    number: int
    entries: list[str]


def _read_text(path: Path) -> str:
    """The unpacked text of a table."""
    try:
        with open_packed(path) as file:
            packed_size = path.stat().st_size  # unpacked it may be more
            data = file.read(_MOST_BYTES + 1) if packed_size <= _MOST_BYTES else b""
        if max(packed_size, len(data)) > _MOST_BYTES:
            raise FileError(
                f"{path} is larger than {_MOST_BYTES:,} bytes, the limit for one table; split it "
                "between trips, and pass each part with --trips"
            )
        return data.decode("utf-8-sig")
    except (OSError, EOFError, lzma.LZMAError, zlib.error, UnicodeDecodeError) as error:
        reason: object = error
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise FileError(
            f"{path} cannot be read as a table of trips: {reason}"
        ) from None


def _read_lines(path: Path) -> list[_Line]:
    """The lines of a table that are not empty, the names of its columns first."""
    text = _read_text(path)
    limit_before = csv.field_size_limit(_MOST_LETTERS)
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        lines = [_Line(reader.line_num, entries) for entries in reader if entries]
    except csv.Error as error:
        raise FileError(f"{path}, line {reader.line_num}: {error}") from None
    finally:
        csv.field_size_limit(limit_before)
    if not lines:
        return [_Line(1, [])]
    for name, count in Counter(lines[0].entries).items():
        if count > 1:
            raise FileError(
                f"{path}: the first line names the column {name!r:.60} twice; remove one"
            )
    return lines


def _check_columns(path: Path, columns: list[str]) -> None:
    has_one_energy = ("energy_wh" in columns) != ("energy_kwh" in columns)
    has_one_place = ("edge" in columns) != ("edges" in columns)
    if not ("trip" in columns and has_one_energy and has_one_place):
        raise FileError(
            f"{path}: the first line must name the columns trip, energy_wh (or energy_kwh) and either "
            "edge (one row for each edge) or edges (one row for each trip), or else trip, time_s, lat, "
            f"lon and counter_wh; got {', '.join(sorted(columns)) or 'none':.200}"
        )


def _rows(path: Path, lines: list[_Line]) -> Iterator[_Row]:
    columns = lines[0].entries
    for number, entries in lines[1:]:
        by_column = dict(zip(columns, entries, strict=False))
        row = _Row(path, number, by_column)
        if len(entries) > len(columns):
            raise row.error(
                f"{len(entries)} entries for {len(columns)} columns; write decimals with a point"
            )
        yield row


def _by_trip(
    path: Path,
    parts: list[tuple[_TripName, Part]],
) -> list[tuple[_TripName, list[Part]]]:
    """The parts of each trip, which must follow one another."""
    if not parts:
        raise FileError(f"{path}: the table has no rows")
    groups = []
    for name, group in groupby(parts, key=lambda named: named[0]):
        groups.append((name, [part for _, part in group]))
    occurrences = Counter(name for name, _ in groups)
    for name, count in occurrences.items():
        if count > 1:
            raise FileError(
                f"{path}: the rows of trip {name.trip!r} are not contiguous; sort the table by trip"
            )
        if not name.trip:
            raise FileError(
                f"{path}: the column trip is empty in a row; give each trip a name"
            )
    return groups


# --- rows ------------------------------------------------------------------------------------


def _name(row: _Row) -> _TripName:
    return _TripName(row.text("trip"), row.text("vehicle"))


def _point(row: _Row) -> _Point:
    return _Point(
        time=row.number("time_s"),
        lat=row.number("lat"),
        lon=row.number("lon"),
        counter=row.number("counter_wh"),
        hour=row.hour(),
    )


def _section(row: _Row, column: str) -> TripSection:
    """What a row meters; ``column`` is "edge" or "edges"."""
    text = row.text(column)
    edges: tuple[str, ...] = (text.strip(),)
    if column == "edges":
        edges = tuple(text.split())
    if not edges or not all(edges):
        raise row.error(f"{column} must not be empty")
    start_speed = row.speed("start_speed_m_s")
    end_speed = row.speed("end_speed_m_s")
    speeds = (start_speed, end_speed)
    if any(speed is not None and speed < 0.0 for speed in speeds):
        raise row.error("speeds must not be negative")
    if "energy_kwh" in row.entries:
        energy = 1000.0 * row.number("energy_kwh", MOST_WH / 1000.0)
    else:
        energy = row.number("energy_wh", MOST_WH)
    return TripSection(edges, energy, start_speed, end_speed, row.hour(), row.seconds())


def _with_durations(sections: list[TripSection]) -> tuple[TripSection, ...]:
    """Sections that take until the next one begins, where the log has no duration."""
    complete = []
    for section, following in pairwise([*sections, None]):
        assert section is not None
        seconds = section.seconds
        if seconds is None and following is not None:
            seconds = _seconds_between(section, following)
        complete.append(section._replace(seconds=seconds))
    return tuple(complete)


def _seconds_between(section: TripSection, following: TripSection) -> float | None:
    if section.hour is None or following.hour is None:
        return None
    hours = (following.hour - section.hour) % _HOURS
    # Times without seconds may be equal; no trip takes half a day for a row.
    if hours == 0.0 or hours > 0.5 * _HOURS:
        return None
    return 3600.0 * hours


# --- traces ----------------------------------------------------------------------------------


def _match_trip(name: _TripName, graph: LineGraph, points: list[_Point]) -> LoggedTrip:
    """A trace as sections, with energies from its counter."""
    from superarm.roads.gps import energies_along, match_trace, pieces_of

    readings = [(point.time, point.lat, point.lon, point.counter) for point in points]
    times, lats, lons, counter = np.array(readings).T
    first_hour = points[0].hour
    places = np.column_stack([lons, lats])
    sections: list[TripSection] = []
    failure = ""  # of the first piece that cannot be matched
    try:
        pieces = pieces_of(graph, places, times)
        for piece in pieces:
            try:
                matched = match_trace(graph, places[piece], times[piece])
            except InputError as error:
                failure = failure or str(error)
                continue
            traced = energies_along(matched, times[piece], counter[piece])
            begins = _begins(matched, traced)
            for section, begin in zip(traced, begins, strict=True):
                edges = tuple(graph.ids[edge] for edge in section.edges)
                hour = None
                if first_hour is not None:
                    hour = (first_hour + (begin - times[0]) / 3600.0) % _HOURS
                sections.append(
                    TripSection(
                        edges, section.energy, hour=hour, seconds=section.seconds
                    )
                )
    except InputError as error:
        sections = []
        failure = str(error)
    if not sections:
        unread = failure or "its points and counter readings do not cover a whole edge"
        return LoggedTrip(
            name=name.trip, vehicle=name.vehicle, sections=(), unread=unread
        )
    jump = ""
    if len(pieces) > 1:
        last_time = times[pieces[1].start - 1]
        jump = f"its clock or position jumps {len(pieces) - 1} times, first after time_s {last_time:g}"
    return LoggedTrip(
        name=name.trip, vehicle=name.vehicle, sections=tuple(sections), jump=jump
    )


def _begins(matched: MatchedTrace, sections: Sequence[TraceSection]) -> list[float]:
    """When each section was entered, seconds on the trace's clock."""
    edges = matched.edges.tolist()
    begins = []
    place = 0
    for section in sections:
        count = len(section.edges)
        while tuple(edges[place : place + count]) != section.edges:
            place += 1
        begins.append(float(matched.enter[place]))
        place += count
    return begins
