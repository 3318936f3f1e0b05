"""The elements of a SUMO network file, checked one by one as they are read."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from superarm.core.errors import InputError

from ._xml import Attributes, XmlFile
from .road import VEHICLE_CLASSES, parse_limited

_INSIDE_JUNCTIONS = ("internal", "crossing", "walkingarea")
_EVERYBODY = (1 << len(VEHICLE_CLASSES)) - 1


@dataclass(slots=True)
class SumoEdge:
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


class Element(NamedTuple):
    """An element whose attributes can be understood only when the whole file has been read."""

    attributes: Attributes
    line: int


class Phase(NamedTuple):
    """What a signal shows, and for how long."""

    seconds: float
    states: str  # a letter for each link


class Program(NamedTuple):
    """The phases of a signal, which repeat."""

    offset: float
    phases: list[Phase]


class InnerLanes:
    """The lanes inside junctions, in columns of plain numbers: there are millions."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._masks = array("q")
        self._lengths = array("d")
        self._speeds = array("d")

    def add(self, lane: str, mask: int, length: float, speed: float) -> None:
        """Add a lane.

        Args:
            lane: Its id.
            mask: One bit for each class that may use it.
            length: Metres.
            speed: Its limit, m/s.
        """
        self._numbers[lane] = len(self._masks)
        self._masks.append(mask)
        self._lengths.append(length)
        self._speeds.append(speed)

    def __contains__(self, lane: str) -> bool:
        return lane in self._numbers

    def mask(self, lane: str) -> int:
        """Return one bit for each class that may use a lane."""
        return self._masks[self._numbers[lane]]

    def length(self, lane: str) -> float:
        """Return the metres of a lane."""
        return self._lengths[self._numbers[lane]]

    def speed(self, lane: str) -> float:
        """Return the speed limit of a lane, m/s."""
        return self._speeds[self._numbers[lane]]


class SumoFile:
    """The elements of a file.

    Junctions follow the edges that name them, so ids are resolved when the file has been read.

    Args:
        path: A ``.net.xml`` file, plain or packed.
    """

    def __init__(self, path: str | Path) -> None:
        self._file = XmlFile(path, root="net")
        self.edges: dict[str, SumoEdge] = {}
        self.junctions: dict[str, tuple[float, float, float]] = {}  # x, y, z
        self.connections: list[Element] = []
        self.inner_edges: set[str] = set()
        self.inner_lanes = InnerLanes()
        self.next_lanes: dict[str, str] = {}  # of lanes inside junctions
        self.programs: dict[str, Program] = {}
        self.location = Element({}, 0)
        self._open_edge: SumoEdge | None = None
        self._in_inner_edge = False
        self._open_program: Program | None = None
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
        """The path of the file."""
        return self._file.path

    def fault(self, message: str, line: int | None = None) -> InputError:
        """Return an error at a line of the file.

        Args:
            message: What is wrong.
            line: Its line; by default that of the element now being read.
        """
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
        edge = SumoEdge(
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
            mask = permission_mask(attributes)
            lane = attributes["id"]
            length = self._number("length", attributes, "turn_length")
            speed = self._number("speed", attributes, "turn_speed")
            self.inner_lanes.add(lane, mask, length, speed)
        else:
            raise self.fault("a lane is outside any edge")

    def _read_edge_lane(self, edge: SumoEdge, attributes: Attributes) -> None:
        index = attributes["index"]
        if index != str(len(edge.lanes)):
            raise self.fault(
                f"the lane index must be {len(edge.lanes)}, in order, got {index!r}"
            )
        if not edge.lanes:
            edge.length = self._number("length", attributes, "length")
            edge.speed = self._number("speed", attributes, "speed")
            edge.shape = edge.shape or attributes["shape"]
        edge.lanes.append(permission_mask(attributes))

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
        connection = Element(attributes, self._file.line)
        self.connections.append(connection)

    def _read_program(self, attributes: Attributes) -> None:
        offset = 0.0
        if "offset" in attributes:
            offset = self._number("offset", attributes, "signal_time")
        program = Program(offset, [])
        self.programs[attributes["id"]] = program
        self._open_program = program

    def _read_phase(self, attributes: Attributes) -> None:
        if self._open_program is None:
            raise self.fault("a phase is outside any tlLogic")
        seconds = self._number("duration", attributes, "phase")
        phase = Phase(seconds, attributes["state"])
        self._open_program.phases.append(phase)

    def _read_location(self, attributes: Attributes) -> None:
        self.location = Element(attributes, self._file.line)

    def _number(self, key: str, attributes: Attributes, limits: str) -> float:
        """Return the number of an attribute, within the limits of this name."""
        text = attributes[key]
        try:
            return parse_limited(text, limits)
        except ValueError as error:
            raise self.fault(f"{key} must be {error}, got {text!r}") from None


def permission_mask(attributes: Attributes) -> int:
    """Return one bit for each class that may use a lane or a connection.

    Args:
        attributes: Those of the lane or connection.
    """
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
