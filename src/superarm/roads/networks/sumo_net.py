"""SUMO networks, ``.net.xml`` plain or packed, in one pass and without SUMO.

What becomes of the file:

- *Edges* are those one can drive on: of ``function`` "normal" (or none) and "connector", which is
  a road that stands for many. What lies inside a junction (internal, crossing, walkingarea) is not.
- *Length and speed limit* are those of lane 0, as everywhere in SUMO.
- *Heights* are the junctions' ``z``; SUMO leaves it out where it is 0.
- *Who may drive*: an edge permits a class if one of its lanes does. A turn permits it if, for
  one of its connections, the lane it leaves, the lane it enters and the lane between do. SUMO
  repeats the defaults of a ``<type>`` in every lane, so that types need not be read.
- *Turns* lead over the lanes within the junction, one after another: lengths add up, and the speed is
  that of driving each at its limit. Where several lanes lead from one edge into another, it is the
  first that passenger cars may use: SUMO's cars keep to the right.
- *Signals* run the last of their programs, with the durations that it states.
- *Shapes* are the edge's own, or else lane 0's; *street names* are the edges' ``name``.
- *Longitude and latitude* are known where the network is in UTM; otherwise there are none.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.errors import InputError
from superarm.roads.energy.junctions import STANDSTILL, Signal, yielding_speed

from ._xml import Attributes, XmlFile, bare_name
from .geography import from_utm
from .road import VEHICLE_CLASSES, RoadNetwork, parse_limited

_INSIDE_JUNCTIONS = ("internal", "crossing", "walkingarea")
_STOP_SIGNS = ("s", "w")
_EVERYBODY = (1 << len(VEHICLE_CLASSES)) - 1
_PASSENGER = 1 << VEHICLE_CLASSES.index("passenger")
# Lanes that a turn leads over; SUMO's lead over two.
_MOST_LANES = 8
# Metres before a junction from which SUMO's cars see who comes, by default.
_VISIBILITY = "4.5"


def read_sumo(path: str | Path, name: str | None = None) -> RoadNetwork:
    """Read a SUMO network.

    Args:
        path: A ``.net.xml``, ``.net.xml.gz`` or ``.net.xml.xz`` file.
        name: The network's name; by default that of the file.
    """
    return _build_network(_SumoFile(path), name)


# --- element by element --------------------------------------------------------------------


@dataclass(slots=True)
class _Edge:
    """An edge as it stands in the file; ``lanes`` holds one bit per vehicle class for each lane."""

    line: int
    tail: str
    head: str
    shape: str | None
    name: str
    length: float = 0.0
    speed: float = 0.0
    lanes: list[int] = field(default_factory=list)

    def permits(self) -> int:
        """Return one bit for each class that may use a lane of this edge."""
        mask = 0
        for lane in self.lanes:
            mask |= lane
        return mask


class _Element(NamedTuple):
    """An element whose attributes can be understood only when the whole file has been read."""

    attributes: Attributes
    line: int


class _Phase(NamedTuple):
    seconds: float
    states: str  # a letter for each link


class _Program(NamedTuple):
    """The phases of a signal, which repeat."""

    offset: float
    phases: list[_Phase]


class _InnerLanes:
    """The lanes inside junctions. Columns of plain numbers: there are millions."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._masks = array("q")
        self._lengths = array("d")
        self._speeds = array("d")

    def add(self, lane: str, mask: int, length: float, speed: float) -> None:
        self._numbers[lane] = len(self._masks)
        self._masks.append(mask)
        self._lengths.append(length)
        self._speeds.append(speed)

    def __contains__(self, lane: str) -> bool:
        return lane in self._numbers

    def mask(self, lane: str) -> int:
        return self._masks[self._numbers[lane]]

    def length(self, lane: str) -> float:
        return self._lengths[self._numbers[lane]]

    def speed(self, lane: str) -> float:
        return self._speeds[self._numbers[lane]]


class _SumoFile:
    """The elements of a file.

    Junctions follow the edges that name them, so ids are resolved when the file has been read.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = XmlFile(path, root="net")
        self.edges: dict[str, _Edge] = {}
        self.junctions: dict[str, tuple[float, float, float]] = {}  # x, y, z
        self.connections: list[_Element] = []
        self.inner_edges: set[str] = set()
        self.inner_lanes = _InnerLanes()
        self.next_lanes: dict[str, str] = {}  # of lanes inside junctions
        self.programs: dict[str, _Program] = {}
        self.location = _Element({}, 0)
        self._open_edge: _Edge | None = None
        self._in_inner_edge = False
        self._open_program: _Program | None = None
        self._handlers = {
            "edge": self._read_edge,
            "lane": self._read_lane,
            "junction": self._read_junction,
            "connection": self._read_connection,
            "location": self._read_location,
            "tlLogic": self._read_program,
            "phase": self._read_phase,
        }
        self._file.read(self._start, self._end)
        if not self.edges:
            raise self.fault("the network ends here without any edges")

    @property
    def path(self) -> Path:
        return self._file.path

    def fault(self, message: str, line: int | None = None) -> InputError:
        """Return an error at a line of the file; by default where reading is now."""
        return self._file.fault(message, line)

    def _start(self, tag: str, attributes: Attributes) -> None:
        if tag in self._handlers:
            self._handlers[tag](attributes)

    def _end(self, tag: str) -> None:
        if tag != "edge":
            return
        edge = self._open_edge
        if edge is not None and not edge.lanes:
            raise self.fault("the edge that ends here has no lanes", edge.line)
        self._open_edge = None
        self._in_inner_edge = False

    def _read_edge(self, attributes: Attributes) -> None:
        key = attributes["id"]
        if self._open_edge is not None or self._in_inner_edge:
            raise self.fault(f"edge {key!r} begins within another edge")
        if key in self.edges or key in self.inner_edges:
            raise self.fault(f"edge id {key!r} appears more than once")
        if attributes.get("function") in _INSIDE_JUNCTIONS:
            self.inner_edges.add(key)
            self._in_inner_edge = True
            return
        edge = _Edge(
            line=self._file.line,
            tail=attributes["from"],
            head=attributes["to"],
            shape=attributes.get("shape"),
            name=attributes.get("name", ""),
        )
        self.edges[key] = edge
        self._open_edge = edge

    def _read_lane(self, attributes: Attributes) -> None:
        if self._open_edge is not None:
            self._read_edge_lane(self._open_edge, attributes)
        elif self._in_inner_edge:
            mask = _permission_mask(attributes)
            lane = attributes["id"]
            length = self._number("length", attributes, "turn_length")
            speed = self._number("speed", attributes, "turn_speed")
            self.inner_lanes.add(lane, mask, length, speed)
        else:
            raise self.fault("a lane is outside any edge")

    def _read_edge_lane(self, edge: _Edge, attributes: Attributes) -> None:
        index = attributes["index"]
        if index != str(len(edge.lanes)):
            raise self.fault(
                f"lane index {index!r} is out of order; it must be {len(edge.lanes)}"
            )
        if not edge.lanes:
            edge.length = self._number("length", attributes, "length")
            edge.speed = self._number("speed", attributes, "speed")
            edge.shape = edge.shape or attributes["shape"]
        edge.lanes.append(_permission_mask(attributes))

    def _read_junction(self, attributes: Attributes) -> None:
        if attributes.get("type") == "internal":
            return
        key = attributes["id"]
        if key in self.junctions:
            raise self.fault(f"junction id {key!r} appears more than once")
        z = 0.0
        if "z" in attributes:
            z = self._number("z", attributes, "height")
        x = self._number("x", attributes, "place")
        y = self._number("y", attributes, "place")
        self.junctions[key] = (x, y, z)

    def _read_connection(self, attributes: Attributes) -> None:
        first = attributes["from"]
        via = attributes.get("via")
        if first in self.inner_edges and via is not None:
            lane = f"{first}_{attributes.get('fromLane')}"
            self.next_lanes[lane] = via
        if "visibility" in attributes:
            self._number("visibility", attributes, "turn_length")  # checks it
        if first in self.inner_edges or attributes["to"] in self.inner_edges:
            return
        connection = _Element(attributes, self._file.line)
        self.connections.append(connection)

    def _read_program(self, attributes: Attributes) -> None:
        offset = 0.0
        if "offset" in attributes:
            offset = self._number("offset", attributes, "place")
        program = _Program(offset, [])
        self.programs[attributes["id"]] = program
        self._open_program = program

    def _read_phase(self, attributes: Attributes) -> None:
        if self._open_program is None:
            raise self.fault("a phase is outside any tlLogic")
        seconds = self._number("duration", attributes, "phase")
        phase = _Phase(seconds, attributes["state"])
        self._open_program.phases.append(phase)

    def _read_location(self, attributes: Attributes) -> None:
        self.location = _Element(attributes, self._file.line)

    def _number(self, key: str, attributes: Attributes, limits: str) -> float:
        """Return the number of an attribute, within the limits of this name."""
        text = attributes[key]
        try:
            return parse_limited(text, limits)
        except ValueError as error:
            raise self.fault(f"{key} is {text!r}; it must be {error}") from None


# --- turns ---------------------------------------------------------------------------------


class _Turns:
    """Pairs of edges that connections join; turn by turn in the order of ``masks``."""

    def __init__(self, file: _SumoFile) -> None:
        self._file = file
        # One bit per class for each pair of edges.
        self.masks: dict[tuple[int, int], int] = {}
        self.length = array("d")  # metres
        self.speed = array("d")  # m/s
        self.entry = array("d")  # m/s
        self.signals: dict[int, Signal] = {}
        # Numbers of turns whose connections so far are not for passenger cars.
        self._not_for_cars: dict[tuple[int, int], int] = {}
        numbers = {key: number for number, key in enumerate(file.edges)}
        for connection in file.connections:
            first = connection.attributes["from"]
            second = connection.attributes["to"]
            if first in file.inner_edges or second in file.inner_edges:
                continue  # an edge that the file named after its connection
            self._check_ends(first, second, connection.line)
            pair = (numbers[first], numbers[second])
            self._add(pair, connection)

    def _add(self, pair: tuple[int, int], connection: _Element) -> None:
        """Add a connection to the turn between two edges: cars decide how it is driven."""
        mask = self._mask(connection)
        is_for_cars = bool(mask & _PASSENGER)
        is_first = pair not in self.masks
        if is_first or (pair in self._not_for_cars and is_for_cars):
            number = self._not_for_cars.pop(pair, len(self.masks))
            self._set_turn(number, connection)
            if not is_for_cars:
                self._not_for_cars[pair] = number
        earlier_mask = self.masks.get(pair, 0)
        self.masks[pair] = earlier_mask | mask

    def _check_ends(self, first: str, second: str, line: int) -> None:
        edges = self._file.edges
        for key in (first, second):
            if key not in edges:
                raise self._file.fault(
                    f"a connection names edge {key!r}, which is not in the file", line
                )
        if edges[first].head != edges[second].tail:
            raise self._file.fault(
                f"the connection from {first!r} to {second!r} joins edges that do not meet",
                line,
            )

    def _mask(self, connection: _Element) -> int:
        """Return who may use both lanes, the lane between them and the connection itself."""
        attributes = connection.attributes
        mask = self._lane_mask(attributes["from"], "fromLane", connection)
        mask &= self._lane_mask(attributes["to"], "toLane", connection)
        via = attributes.get("via")
        if via is not None:
            if via not in self._file.inner_lanes:
                raise self._file.fault(
                    f"via names lane {via!r}, which is not in the file", connection.line
                )
            mask &= self._file.inner_lanes.mask(via)
        return mask & _permission_mask(attributes)

    def _lane_mask(self, edge: str, key: str, connection: _Element) -> int:
        lanes = self._file.edges[edge].lanes
        text = connection.attributes.get(key, "missing")
        is_number = text.isdecimal() and len(text) < 4
        if not is_number or int(text) >= len(lanes):
            raise self._file.fault(
                f"{key} is {text!r}; edge {edge!r} has {len(lanes)} lanes",
                connection.line,
            )
        return lanes[int(text)]

    def _set_turn(self, number: int, connection: _Element) -> None:
        """Set how one drives over a connection; a turn that is known is replaced."""
        via = connection.attributes.get("via")
        length, seconds = self._drive_through(via)
        speed = length / seconds if seconds else 0.0
        self.signals.pop(number, None)
        signal = self._find_signal(connection)
        if signal is not None:
            self.signals[number] = signal
        entry = _entry_speed(connection.attributes, signal)
        if number == len(self.length):
            self.length.append(length)
            self.speed.append(speed)
            self.entry.append(entry)
        else:
            self.length[number] = length
            self.speed[number] = speed
            self.entry[number] = entry

    def _drive_through(self, lane: str | None) -> tuple[float, float]:
        """Return metres and seconds over the lanes inside a junction, from this one on."""
        lanes = self._file.inner_lanes
        length = 0.0
        seconds = 0.0
        for _ in range(_MOST_LANES):
            if lane is None or lane not in lanes:
                break
            metres = lanes.length(lane)
            speed = lanes.speed(lane)
            length += metres
            if speed:
                seconds += metres / speed
            lane = self._file.next_lanes.get(lane)
        return length, seconds

    def _find_signal(self, connection: _Element) -> Signal | None:
        attributes = connection.attributes
        name = attributes.get("tl", "")
        program = self._file.programs.get(name)
        if program is None or not program.phases:
            return None
        index = attributes.get("linkIndex", "")
        links = min(len(phase.states) for phase in program.phases)
        is_number = index.isdecimal() and len(index) < 6
        if not is_number or int(index) >= links:
            raise self._file.fault(
                f"linkIndex is {index!r}; signal {name!r} has states for {links} links",
                connection.line,
            )
        link = int(index)
        phases = [(phase.seconds, phase.states[link]) for phase in program.phases]
        edge = self._file.edges[attributes["from"]]
        return Signal.from_phases(phases, offset=program.offset, speed=edge.speed)


def _entry_speed(attributes: Attributes, signal: Signal | None) -> float:
    """Return the speed to which one brakes to give way, m/s; 0: one need not."""
    state = attributes.get("state", "M")
    if signal is not None:
        must_yield = signal.yields
    elif state in _STOP_SIGNS:
        return STANDSTILL
    else:
        must_yield = not state.isupper()
    if not must_yield:
        return 0.0
    visibility = attributes.get("visibility", _VISIBILITY)
    return yielding_speed(float(visibility))


# --- the network ---------------------------------------------------------------------------


def _build_network(file: _SumoFile, name: str | None) -> RoadNetwork:
    edges = list(file.edges.values())
    tail, head = _find_ends(file)
    lengths = [edge.length for edge in edges]
    speeds = [edge.speed for edge in edges]
    masks = [edge.permits() for edge in edges]
    street_names = tuple(edge.name for edge in edges)
    turns = _Turns(file)
    connections = np.array(list(turns.masks), dtype=np.intp)
    turn_masks = np.array(list(turns.masks.values()), dtype=np.intp)
    wait = np.zeros(len(turns.masks))
    stop = np.zeros(len(turns.masks))
    for number, signal in turns.signals.items():
        wait[number] = signal.wait
        stop[number] = signal.stop
    junctions = np.array(list(file.junctions.values()))
    return RoadNetwork(
        name=name or bare_name(file.path),
        junction_ids=tuple(file.junctions),
        junctions=junctions,
        edge_ids=tuple(file.edges),
        tail=tail,
        head=head,
        length=np.array(lengths),
        speed=np.array(speeds),
        permits=_by_class(np.array(masks)),
        connections=connections.reshape(-1, 2),
        turn_permits=_by_class(turn_masks),
        lon_lat=_find_lon_lat(file, junctions[:, :2]),
        shapes=_parse_shapes(file),
        turn_length=np.array(turns.length),
        turn_speed=np.array(turns.speed),
        turn_wait=wait,
        turn_stop=stop,
        turn_entry=np.array(turns.entry),
        signals=turns.signals,
        street_names=street_names if any(street_names) else None,
    )


def _find_ends(file: _SumoFile) -> tuple[Ints, Ints]:
    """Return the numbers of the junctions where each edge begins and ends, (m,) each."""
    numbers = {key: number for number, key in enumerate(file.junctions)}
    tail = np.empty(len(file.edges), dtype=np.intp)
    head = np.empty(len(file.edges), dtype=np.intp)
    for row, (key, edge) in enumerate(file.edges.items()):
        for junction in (edge.tail, edge.head):
            if junction not in numbers:
                raise file.fault(
                    f"edge {key!r} names junction {junction!r}, which is not in the file",
                    edge.line,
                )
        tail[row] = numbers[edge.tail]
        head[row] = numbers[edge.head]
    return tail, head


def _parse_shapes(file: _SumoFile) -> tuple[Floats, ...]:
    courses: list[Floats] = []
    for key, edge in file.edges.items():
        shape = edge.shape or ""
        points = [point.split(",") for point in shape.split()]
        course = _parse_pairs([coordinates[:2] for coordinates in points])
        if len(course) < 2:
            raise file.fault(
                f"the shape of edge {key!r} is not a list of two or more points x,y or x,y,z",
                edge.line,
            )
        courses.append(course)
    return tuple(courses)


def _find_lon_lat(file: _SumoFile, places: Floats) -> Floats | None:
    """Return where the junctions are on Earth; ``None`` for a network that is not in UTM."""
    attributes, line = file.location
    zone = _utm_zone(attributes.get("projParameter", "!"))
    if zone is None:
        return None
    text = attributes.get("netOffset", "missing")
    offset = _parse_pairs([text.split(",")])
    if offset.shape != (1, 2):
        raise file.fault(f"netOffset is {text!r}; it must be two numbers x,y", line)
    try:
        return from_utm(places - offset, abs(zone), south=zone < 0)
    except InputError as error:
        raise file.fault(
            f"netOffset {text!r} places a junction nowhere: {error}", line
        ) from None


def _parse_pairs(pairs: list[list[str]]) -> Floats:
    """Return pairs of finite numbers, (k, 2); nothing if one of them is something else."""
    try:
        numbers = np.array([[float(x), float(y)] for x, y in pairs])
    except ValueError:
        return np.empty(0)
    if not np.isfinite(numbers).all():
        return np.empty(0)
    return numbers


def _permission_mask(attributes: Attributes) -> int:
    """Return who may use a lane or a connection."""
    allow = attributes.get("allow", "")
    disallow = attributes.get("disallow", "")
    return _parse_mask(allow, disallow)


@lru_cache(maxsize=1024)  # only a few texts occur
def _parse_mask(allow: str, disallow: str) -> int:
    """Return one bit per vehicle class; ``allow`` wins, and neither means everybody."""
    classes = (allow or disallow).split()
    mask = 0
    for bit, vehicle_class in enumerate(VEHICLE_CLASSES):
        if vehicle_class in classes or "all" in classes:
            mask |= 1 << bit
    if allow:
        return mask
    return _EVERYBODY & ~mask


def _by_class(masks: Ints) -> dict[str, Bools]:
    flags = {}
    for bit, vehicle_class in enumerate(VEHICLE_CLASSES):
        bits = masks >> bit & 1
        flags[vehicle_class] = bits.astype(bool)
    return flags


def _utm_zone(projection: str) -> int | None:
    """Return the zone of a PROJ string, negative in the south; ``None`` if it is not UTM on WGS 84."""
    words = {}
    for word in projection.split():
        key, _, value = word.partition("=")
        words[key] = value
    ellipsoid = words.get("+ellps", words.get("+datum", "WGS84"))
    is_utm = words.get("+proj") == "utm" and ellipsoid in ("WGS84", "GRS80")
    is_metric = words.get("+units", "m") == "m"
    zone = words.get("+zone", "")
    is_number = zone.isascii() and zone.isdigit()
    if not (is_utm and is_metric and is_number and 1 <= int(zone[:3]) <= 60):
        return None
    number = int(zone)
    if "+south" in words:
        return -number
    return number
