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
- *Longitude and latitude* are found where the network is in UTM; otherwise there are none.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import or_
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
_EVERYBODY = (1 << len(VEHICLE_CLASSES)) - 1
_PASSENGER = 1 << VEHICLE_CLASSES.index("passenger")
_MOST_LANES = 8  # that a turn leads over; SUMO knows two
_VISIBILITY = (
    "4.5"  # metres before a junction from which SUMO's cars see who comes, if not said
)


def read_sumo(path: str | Path, name: str | None = None) -> RoadNetwork:
    """The network of a ``.net.xml``, ``.net.xml.gz`` or ``.net.xml.xz`` file, whole or not at all."""
    return _SumoNet(path).network(name)


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


class _Program(NamedTuple):
    """What a signal shows: seconds and the states of all links, again and again."""

    offset: float
    phases: list[tuple[float, str]]


class _SumoNet:
    """What was found so far; junctions follow the edges that name them, so ids wait for the end."""

    def __init__(self, path: str | Path) -> None:
        self._file = XmlFile(path, root="net")
        self._edges: dict[str, _Edge] = {}
        self._open: _Edge | None = None
        self._inside = False
        self._inner_edges: set[str] = set()
        self._inner_lanes: dict[str, int] = {}  # numbers of …
        self._inner = array(
            "d"
        )  # … mask, metres and speed limit of each, in a row: there are millions
        self._onward: dict[str, str] = {}
        self._driven = array("d")  # metres, speed and entry of each turn, in a row
        self._signals: dict[int, Signal] = {}
        self._programs: dict[str, _Program] = {}
        self._showing: _Program | None = None
        self._junctions: dict[str, tuple[float, float, float]] = {}
        self._connections: list[tuple[Attributes, int]] = []
        self._location: tuple[Attributes, int] = {}, 0
        self._handlers = {
            "edge": self._edge,
            "lane": self._lane,
            "junction": self._junction,
        }
        self._handlers |= {"connection": self._connection, "location": self._at}
        self._handlers |= {"tlLogic": self._program, "phase": self._phase}
        self._file.read(self._start, self._end)
        if not self._edges:
            raise self._file.fault("the network ends here without any edges")

    def network(self, name: str | None) -> RoadNetwork:
        edges = self._edges
        numbers = {key: number for number, key in enumerate(self._junctions)}
        ends = np.empty((len(edges), 2), dtype=np.intp)
        for row, (key, edge) in enumerate(edges.items()):
            for column, junction in enumerate((edge.tail, edge.head)):
                if junction not in numbers:
                    raise self._file.fault(
                        f"edge {key!r} names junction {junction!r}, which is not in the file",
                        edge.line,
                    )
                ends[row, column] = numbers[junction]
        masks = np.array([reduce(or_, edge.lanes) for edge in edges.values()])
        turns = self._lock()
        pairs = np.array(list(turns), dtype=np.intp).reshape(-1, 2)
        length, speed, entry = np.array(self._driven).reshape(-1, 3).T
        wait, stop = np.zeros((2, len(turns)))
        for number, signal in self._signals.items():
            wait[number], stop[number] = signal.wait, signal.stop
        names = tuple(edge.name for edge in edges.values())
        junctions = np.array(list(self._junctions.values()))
        return RoadNetwork(
            name=name or bare_name(self._file.path),
            junction_ids=tuple(numbers),
            junctions=junctions,
            edge_ids=tuple(edges),
            tail=ends[:, 0],
            head=ends[:, 1],
            length=np.array([edge.length for edge in edges.values()]),
            speed=np.array([edge.speed for edge in edges.values()]),
            permits=_by_class(masks),
            connections=pairs,
            turn_permits=_by_class(np.array(list(turns.values()), dtype=np.intp)),
            lon_lat=self._lon_lat(junctions[:, :2]),
            shapes=self._shapes(),
            turn_length=length,
            turn_speed=speed,
            turn_wait=wait,
            turn_stop=stop,
            turn_entry=entry,
            signals=self._signals,
            street_names=names if any(names) else None,
        )

    # --- element by element ----------------------------------------------------------------

    def _start(self, tag: str, attributes: Attributes) -> None:
        if tag in self._handlers:
            self._handlers[tag](attributes)

    def _end(self, tag: str) -> None:
        if tag != "edge":
            return
        if self._open is not None and not self._open.lanes:
            raise self._file.fault(
                "the edge that ends here has no lanes", self._open.line
            )
        self._open, self._inside = None, False

    def _edge(self, attributes: Attributes) -> None:
        key = attributes["id"]
        if self._open is not None or self._inside:
            raise self._file.fault(f"edge {key!r} begins within another edge")
        if key in self._edges or key in self._inner_edges:
            raise self._file.fault(f"edge id {key!r} appears more than once")
        if attributes.get("function") in _INSIDE_JUNCTIONS:
            self._inner_edges.add(key)
            self._inside = True
            return
        self._open = self._edges[key] = _Edge(
            self._file.line,
            attributes["from"],
            attributes["to"],
            attributes.get("shape"),
            attributes.get("name", ""),
        )

    def _lane(self, attributes: Attributes) -> None:
        mask = self._permitted(attributes)
        edge = self._open
        if edge is None:
            if not self._inside:
                raise self._file.fault("a lane is outside any edge")
            self._inner_lanes[attributes["id"]] = len(self._inner)
            self._inner.append(mask)
            self._inner.append(self._limited("length", attributes, "turn_length"))
            self._inner.append(self._limited("speed", attributes, "turn_speed"))
            return
        if attributes["index"] != str(len(edge.lanes)):
            raise self._file.fault(
                f"lane index {attributes['index']!r} is out of order; it must be {len(edge.lanes)}"
            )
        if not edge.lanes:
            edge.length = self._limited("length", attributes, "length")
            edge.speed = self._limited("speed", attributes, "speed")
            edge.shape = edge.shape or attributes["shape"]
        edge.lanes.append(mask)

    def _junction(self, attributes: Attributes) -> None:
        if attributes.get("type") == "internal":
            return
        key = attributes["id"]
        if key in self._junctions:
            raise self._file.fault(f"junction id {key!r} appears more than once")
        height = self._limited("z", attributes, "height") if "z" in attributes else 0.0
        x, y = (self._limited(axis, attributes, "place") for axis in "xy")
        self._junctions[key] = (x, y, height)

    def _connection(self, attributes: Attributes) -> None:
        first, via = attributes["from"], attributes.get("via")
        if first in self._inner_edges and via is not None:
            self._onward[f"{first}_{attributes.get('fromLane')}"] = via
        if "visibility" in attributes:
            self._limited("visibility", attributes, "turn_length")
        if first not in self._inner_edges and attributes["to"] not in self._inner_edges:
            self._connections.append((attributes, self._file.line))

    def _program(self, attributes: Attributes) -> None:
        offset = self._limited("offset", {"offset": "0", **attributes}, "place")
        self._showing = self._programs[attributes["id"]] = _Program(offset, [])

    def _phase(self, attributes: Attributes) -> None:
        if self._showing is None:
            raise self._file.fault("a phase is outside any tlLogic")
        self._showing.phases.append(
            (self._limited("duration", attributes, "phase"), attributes["state"])
        )

    def _at(self, attributes: Attributes) -> None:
        self._location = (attributes, self._file.line)

    def _limited(self, key: str, attributes: Attributes, what: str) -> float:
        try:
            return parse_limited(attributes[key], what)
        except ValueError as error:
            raise self._file.fault(
                f"{key} is {attributes[key]!r}; it must be {error}"
            ) from None

    # --- when all is known -----------------------------------------------------------------

    def _lock(self) -> dict[tuple[int, int], int]:
        """One bit per class for each pair of edges that a connection joins."""
        numbers = {key: number for number, key in enumerate(self._edges)}
        turns: dict[tuple[int, int], int] = {}
        late: dict[
            tuple[int, int], int
        ] = {}  # pairs whose first connection is not for passenger cars
        for attributes, line in self._connections:
            first, second = attributes["from"], attributes["to"]
            if first in self._inner_edges or second in self._inner_edges:
                continue  # an edge that the file named after its connection
            for key in (first, second):
                if key not in numbers:
                    raise self._file.fault(
                        f"a connection names edge {key!r}, which is not in the file",
                        line,
                    )
            if self._edges[first].head != self._edges[second].tail:
                raise self._file.fault(
                    f"the connection from {first!r} to {second!r} joins edges that do not meet",
                    line,
                )
            mask = self._lane_mask(first, "fromLane", attributes, line)
            mask &= self._lane_mask(second, "toLane", attributes, line)
            mask &= self._between(attributes, line)
            pair = (numbers[first], numbers[second])
            known = turns.get(pair)
            if known is None or (pair in late and mask & _PASSENGER):
                number = late.pop(pair, len(turns))
                self._drive(number, attributes, self._edges[first].speed, line)
                if not mask & _PASSENGER:
                    late[pair] = number
            turns[pair] = (known or 0) | mask
        return turns

    def _lane_mask(self, edge: str, key: str, attributes: Attributes, line: int) -> int:
        lanes = self._edges[edge].lanes
        text = attributes.get(key, "missing")
        number = int(text) if text.isdecimal() and len(text) < 4 else len(lanes)
        if number >= len(lanes):
            raise self._file.fault(
                f"{key} is {text!r}; edge {edge!r} has {len(lanes)} lanes", line
            )
        return lanes[number]

    def _between(self, attributes: Attributes, line: int) -> int:
        """Who may use the lane within the junction, if there is one, and the connection itself."""
        via = attributes.get("via")
        if via is not None and via not in self._inner_lanes:
            raise self._file.fault(
                f"via names lane {via!r}, which is not in the file", line
            )
        lane = _EVERYBODY if via is None else int(self._inner[self._inner_lanes[via]])
        return lane & self._permitted(attributes)

    def _drive(
        self, number: int, attributes: Attributes, limit: float, line: int
    ) -> None:
        """Keep how one drives over a connection from an edge with this speed limit."""
        lane, length, seconds = attributes.get("via"), 0.0, 0.0
        for _ in range(_MOST_LANES):
            if lane is None or (place := self._inner_lanes.get(lane)) is None:
                break
            _, metres, speed = self._inner[place : place + 3]
            length += metres
            seconds += metres / speed if speed else 0.0
            lane = self._onward.get(lane)
        self._signals.pop(number, None)
        state = attributes.get("state", "M")
        yields, entry = not state.isupper(), 0.0
        if (
            program := self._programs.get(attributes.get("tl", ""))
        ) is not None and program.phases:
            index, least = (
                attributes.get("linkIndex", ""),
                min(len(each) for _, each in program.phases),
            )
            if not (index.isdecimal() and len(index) < 6 and int(index) < least):
                told = f"signal {attributes['tl']!r} has states for {least} links"
                raise self._file.fault(f"linkIndex is {index!r}; {told}", line)
            phases = [(time, states[int(index)]) for time, states in program.phases]
            signal = Signal.of(phases, offset=program.offset, speed=limit)
            self._signals[number], yields = signal, signal.yields
        elif state in ("s", "w"):  # a stop sign
            yields, entry = False, STANDSTILL
        if yields:
            entry = yielding_speed(float(attributes.get("visibility", _VISIBILITY)))
        speed = length / seconds if seconds else 0.0
        self._driven[3 * number : 3 * number + 3] = array("d", (length, speed, entry))

    def _permitted(self, attributes: Attributes) -> int:
        """Who may use a lane or a connection: the few texts that occur are read once."""
        return _mask(attributes.get("allow", ""), attributes.get("disallow", ""))

    def _shapes(self) -> tuple[Floats, ...]:
        courses: list[Floats] = []
        for key, edge in self._edges.items():
            course = _numbers(
                [point.split(",")[:2] for point in (edge.shape or "").split()]
            )
            if len(course) < 2:
                raise self._file.fault(
                    f"the shape of edge {key!r} is not a list of two or more points x,y or x,y,z",
                    edge.line,
                )
            courses.append(course)
        return tuple(courses)

    def _lon_lat(self, places: Floats) -> Floats | None:
        """Where the junctions are on Earth; ``None`` for a network in no projection or another one."""
        attributes, line = self._location
        zone = _utm_zone(attributes.get("projParameter", "!"))
        if zone is None:
            return None
        text = attributes.get("netOffset", "missing")
        offset = _numbers([text.split(",")])
        if offset.shape != (1, 2):
            raise self._file.fault(
                f"netOffset is {text!r}; it must be two numbers x,y", line
            )
        try:
            return from_utm(places - offset, abs(zone), south=zone < 0)
        except InputError as error:
            raise self._file.fault(
                f"netOffset {text!r} places a junction nowhere: {error}", line
            ) from None


def _numbers(pairs: list[list[str]]) -> Floats:
    """Pairs of finite numbers, (k, 2); none where one of them is something else."""
    try:
        found = np.array([[float(x), float(y)] for x, y in pairs])
    except ValueError:
        return np.empty(0)
    return found if np.isfinite(found).all() else np.empty(0)


@lru_cache(maxsize=1024)
def _mask(allow: str, disallow: str) -> int:
    """One bit per vehicle class; ``allow`` wins over ``disallow``, and neither means everybody."""
    named = (allow or disallow).split()
    mask = sum(
        1 << bit
        for bit, who in enumerate(VEHICLE_CLASSES)
        if who in named or "all" in named
    )
    return mask if allow else _EVERYBODY & ~mask


def _by_class(masks: Ints) -> dict[str, Bools]:
    return {
        who: (masks >> bit & 1).astype(bool) for bit, who in enumerate(VEHICLE_CLASSES)
    }


def _utm_zone(projection: str) -> int | None:
    """The zone of a PROJ string, negative in the south; ``None`` if it is not UTM on WGS 84."""
    words = dict(word.partition("=")[::2] for word in projection.split())
    ellipsoid = words.get("+ellps", words.get("+datum", "WGS84"))
    zone = words.get("+zone", "")
    known = words.get("+proj") == "utm" and ellipsoid in ("WGS84", "GRS80")
    metres = words.get("+units", "m") == "m"
    if not (
        known
        and metres
        and zone.isascii()
        and zone.isdigit()
        and 1 <= int(zone[:3]) <= 60
    ):
        return None
    return -int(zone) if "+south" in words else int(zone)
