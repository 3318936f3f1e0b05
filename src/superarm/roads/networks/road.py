"""A road network: junctions, edges and the legal turns between them.

=================  ==================================================================
``j``, ``m``       junctions and edges (road segments, one direction each)
``c``              connections: legal turns from one edge into the next
``rise``           z of an edge's end minus z of its beginning, metres, of the junctions
``incline``        rise / max(length, distance of the junctions, 1 m): a feature for kernels
=================  ==================================================================

``rise`` telescopes along a route: on every way it adds up to the height between its ends.
``incline`` does not; it is bounded, where a metre-long edge has an absurd rise / length.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.display import Displayable
from superarm.core.errors import InfeasibleError, InputError, ShapeError, SpecError
from superarm.core.inputs import require_choice
from superarm.core.registry import suggestion
from superarm.roads.energy.junctions import Signal

from .line_graph import LineGraph, largest_part
from .records import Rebuildable, freeze, set_fields

VEHICLE_CLASSES = (
    "passenger",
    "taxi",
    "delivery",
    "truck",
    "bus",
    "emergency",
    "bicycle",
    "pedestrian",
)
"""The classes whose permissions a reader keeps, under SUMO's names."""
LIMITS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "length": (1e-3, 1e6),
        "speed": (1e-2, 1e3),
        "height": (-2e4, 2e4),
        "place": (-1e9, 1e9),
        "lon": (-180.0, 180.0),
        "lat": (-90.0, 90.0),
        "turn_length": (0.0, 1e6),
        "turn_speed": (0.0, 1e3),
        "turn_entry": (0.0, 1e3),
        "turn_wait": (0.0, 1e6),
        "turn_stop": (0.0, 1.0),
        "phase": (1e-3, 1e6),
        "signal_time": (-1e9, 1e9),
    }
)
"""What a road can be, in metres, m/s, seconds and degrees: beyond it a file is wrong, and numbers overflow."""
TURN_COLUMNS = ("turn_length", "turn_speed", "turn_wait", "turn_stop", "turn_entry")
"""The optional columns of connections."""

Uturns = bool | Literal["dead-ends"]
"""Whether one may turn back: everywhere, nowhere, or where there is no other way on."""


def parse_limited(text: str, what: str) -> float:
    """Return the number that a file contains for ``what``, or raise ``ValueError``.

    Args:
        text: The number as it stands in the file.
        what: A key of ``LIMITS``; the error describes its range.
    """
    least, most = LIMITS[what]
    number = math.nan
    # Python also reads 1_000, and digits of other scripts.
    is_plain = text.isascii() and "_" not in text
    if is_plain:
        with suppress(ValueError):
            number = float(text)
    if not least <= number <= most:
        raise ValueError(f"a number between {least:g} and {most:g}")
    return number


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoadNetwork(Displayable, Rebuildable):
    """Junctions, edges and connections, checked once and then read-only.

    A vehicle class that ``permits`` and ``turn_permits`` do not list may use no edge. In optional
    columns of turns, ``None`` or 0 means that nothing is known.

    Args:
        name: What messages call the network.
        junction_ids: Unique ids.
        junctions: x, y and z in metres, (j, 3).
        edge_ids: Unique ids.
        tail: The junction where each edge begins, (m,).
        head: The junction where each edge ends, (m,).
        length: Metres, (m,).
        speed: Speed limit, m/s, (m,).
        permits: Who may use each edge, by vehicle class, (m,).
        connections: From edge, to edge, (c, 2).
        turn_permits: Who may make each turn, by vehicle class, (c,).
        lon_lat: Longitude and latitude of the junctions, degrees, (j, 2), if known.
        shapes: The course of each edge, (p, 2) metres, for drawing; ``None``: straight lines.
        turn_length: Metres of each turn within the junction, (c,).
        turn_speed: Speed limit there, m/s, (c,).
        turn_wait: Expected wait at signals, seconds, (c,).
        turn_stop: Probability of having to stop there, (c,).
        turn_entry: Where one must give way: the speed to which one brakes before it is seen that
            nobody comes, m/s, (c,).
        signals: Signals by the number of their connection.
        street_names: One for each edge, "" where it has none.
        source: The file beside which the network is cached; ``None`` where it is not.
    """

    name: str
    junction_ids: tuple[str, ...]
    junctions: Floats
    edge_ids: tuple[str, ...]
    tail: Ints
    head: Ints
    length: Floats
    speed: Floats
    permits: Mapping[str, Bools]
    connections: Ints
    turn_permits: Mapping[str, Bools]
    lon_lat: Floats | None = None
    shapes: tuple[Floats, ...] | None = None
    turn_length: Floats | None = None
    turn_speed: Floats | None = None
    turn_wait: Floats | None = None
    turn_stop: Floats | None = None
    turn_entry: Floats | None = None
    signals: Mapping[int, Signal] = field(default_factory=dict)
    street_names: tuple[str, ...] | None = None
    source: Path | None = None

    def _display_fields(self) -> Mapping[str, Any]:
        return {
            "name": self.name,
            "junctions": len(self.junction_ids),
            "edges": len(self.edge_ids),
            "turns": len(self.connections),
        }

    def __post_init__(self) -> None:
        j = len(self.junction_ids)
        m = len(self.edge_ids)
        c = np.shape(self.connections)[:1]  # empty if it is not a list at all
        set_fields(
            self,
            junctions=freeze(self.junctions, np.float64, (j, 3), "junctions"),
            tail=freeze(self.tail, np.intp, (m,), "tail"),
            head=freeze(self.head, np.intp, (m,), "head"),
            length=freeze(self.length, np.float64, (m,), "length"),
            speed=freeze(self.speed, np.float64, (m,), "speed"),
            connections=freeze(self.connections, np.intp, (*c, 2), "connections"),
        )
        if self.lon_lat is not None:
            lon_lat = freeze(self.lon_lat, np.float64, (j, 2), "lon_lat")
            set_fields(self, lon_lat=lon_lat)
        for name, values in self.known_turn_columns().items():
            column = freeze(values, np.float64, c, name)
            set_fields(self, **{name: column})
        turns = len(self.connections)
        set_fields(
            self,
            permits=_freeze_permits(self.permits, m, "permits"),
            turn_permits=_freeze_permits(self.turn_permits, turns, "turn_permits"),
        )
        self._require_one_per_edge(self.shapes, "shapes")
        self._require_one_per_edge(self.street_names, "street_names")
        if self.shapes is not None:
            set_fields(self, shapes=_freeze_shapes(self.shapes))
        set_fields(self, signals=MappingProxyType(dict(self.signals)))
        _require_unique(self.junction_ids, "junction")
        _require_unique(self.edge_ids, "edge")
        self._check_limits()
        self._check_numbers(self.tail, "tail", j)
        self._check_numbers(self.head, "head", j)
        self._check_numbers(self.connections, "connections", m)
        self._check_connections()

    def _require_one_per_edge(self, values: Sequence[Any] | None, name: str) -> None:
        m = len(self.edge_ids)
        if values is not None and len(values) != m:
            raise ShapeError(
                f"{self.name}: {name} has {len(values)} entries for {m} edges"
            )

    def _check_limits(self) -> None:
        edges = self.edge_ids
        self._check_limit(self.length, "length", "edge", edges)
        self._check_limit(self.speed, "speed", "edge", edges)
        junctions = self.junction_ids
        x, y, height = self.junctions.T
        farthest = np.maximum(np.abs(x), np.abs(y))
        self._check_limit(height, "height", "junction", junctions)
        self._check_limit(farthest, "place", "junction", junctions)
        if self.lon_lat is not None:
            longitude, latitude = self.lon_lat.T
            self._check_limit(longitude, "lon", "junction", junctions)
            self._check_limit(latitude, "lat", "junction", junctions)
        connections = range(len(self.connections))
        for name, values in self.known_turn_columns().items():
            self._check_limit(values, name, "connection", connections)

    def _check_limit(
        self, values: Floats, name: str, owner: str, ids: Sequence[object]
    ) -> None:
        least, most = LIMITS[name]
        is_possible = (values >= least) & (values <= most)
        wrong = np.flatnonzero(~is_possible)
        if len(wrong):
            first = wrong[0]
            raise InputError(
                f"{self.name}: {owner} {ids[first]!r} has {name} {values[first]}; "
                f"it must lie between {least:g} and {most:g}"
            )

    def _check_numbers(self, numbers: Ints, name: str, count: int) -> None:
        is_known = (numbers >= 0) & (numbers < count)
        if not is_known.all():
            raise InputError(
                f"{self.name}: {name} names a number outside 0 … {count - 1}"
            )

    def _check_connections(self) -> None:
        before, after = self.connections.T
        is_apart = self.head[before] != self.tail[after]
        apart = np.flatnonzero(is_apart)
        if len(apart):
            first, second = self.connections[apart[0]]
            raise InputError(
                f"{self.name}: the connection from {self.edge_ids[first]!r} to "
                f"{self.edge_ids[second]!r} joins edges that do not meet"
            )

    def known_turn_columns(self) -> dict[str, Floats]:
        """Return the columns of ``TURN_COLUMNS`` that are known, (c,) each."""
        columns = {
            "turn_length": self.turn_length,
            "turn_speed": self.turn_speed,
            "turn_wait": self.turn_wait,
            "turn_stop": self.turn_stop,
            "turn_entry": self.turn_entry,
        }
        return {name: values for name, values in columns.items() if values is not None}

    @property
    def rise(self) -> Floats:
        """Height gained along each edge, metres, (m,)."""
        z: Floats = self.junctions[:, 2]
        return z[self.head] - z[self.tail]

    @property
    def incline(self) -> Floats:
        """Rise over run, the run being at least a metre, (m,)."""
        places = self.junctions[:, :2]
        steps = places[self.head] - places[self.tail]
        x_step, y_step = steps.T
        distance = np.hypot(x_step, y_step)
        longer = np.maximum(self.length, distance)
        run = np.maximum(longer, 1.0)
        incline: Floats = self.rise / run
        return incline

    def on_earth(self, advice: str) -> Floats:
        """Return ``lon_lat``, (j, 2), or raise an error if it is not known.

        Args:
            advice: The end of the error message: what needs the reference, or what to do.
        """
        if self.lon_lat is None:
            raise InputError(f"{self.name} has no geographic reference{advice}")
        return self.lon_lat

    def line_graph(
        self, vehicle_class: str = "passenger", *, uturns: Uturns = True
    ) -> LineGraph:
        """Return the edges that a vehicle class can use and the turns between them.

        Of these it takes the largest strongly connected component, within which every edge can be
        reached from every other.

        Args:
            vehicle_class: One of the classes of ``permits``.
            uturns: ``False`` leaves out turns back to where one came from; "dead-ends" keeps them
                where there is no other way on, or where an edge would be cut off without.
        """
        allowed = self.permits.get(vehicle_class)
        turns_allowed = self.turn_permits.get(vehicle_class)
        if allowed is None or turns_allowed is None:
            classes = sorted(set(self.permits) & set(self.turn_permits))
            advice = suggestion(vehicle_class, classes)
            if vehicle_class in VEHICLE_CLASSES:
                message = f"{self.name} has no vehicle class {vehicle_class!r}"
            else:
                message = f"unknown vehicle class {vehicle_class!r}"
            raise SpecError(f"{message}; {advice}")
        if not isinstance(uturns, bool):
            require_choice(uturns, "uturns", ("dead-ends",))
        first, second = self.connections.T
        usable = turns_allowed & allowed[first] & allowed[second]
        is_uturn = self.head[second] == self.tail[first]
        if not uturns:
            usable &= ~is_uturn
        edges = np.flatnonzero(allowed)
        if uturns == "dead-ends":
            usable &= ~self._needless_uturns(edges, usable, is_uturn)
        part = largest_part(edges, self.connections[usable], len(allowed))
        if len(part.edges) == 0:
            raise InfeasibleError(
                f"{self.name} has no edge that {vehicle_class!r} may use"
            )
        return LineGraph(network=self, edges=part.edges, turns=part.turns)

    def _needless_uturns(self, edges: Ints, usable: Bools, is_uturn: Bools) -> Bools:
        """Return the U-turns without which every edge can still be reached, (c,)."""
        first, second = self.connections.T
        is_other_way = usable & ~is_uturn
        has_other_way = np.isin(first, first[is_other_way])
        is_spare = is_uturn & has_other_way
        connections = self.connections[usable & ~is_spare]
        inner = largest_part(edges, connections, len(self.edge_ids)).edges
        # A turn between edges that are connected without it can go: no edge is lost.
        begins_inside = np.isin(first, inner)
        ends_inside = np.isin(second, inner)
        return is_spare & begins_inside & ends_inside


def _freeze_permits(
    permits: Mapping[str, Any], count: int, name: str
) -> Mapping[str, Bools]:
    flags = {}
    for vehicle_class, may_use in permits.items():
        label = f"{name}[{vehicle_class!r}]"
        flags[vehicle_class] = freeze(may_use, np.bool_, (count,), label)
    return MappingProxyType(flags)


def _freeze_shapes(shapes: Sequence[Any]) -> tuple[Floats, ...]:
    courses = []
    for shape in shapes:
        course = freeze(shape, np.float64, (len(shape), 2), "a shape")
        courses.append(course)
    return tuple(courses)


def _require_unique(ids: Sequence[str], what: str) -> None:
    if len(set(ids)) == len(ids):
        return
    for name, count in Counter(ids).items():
        if count > 1:
            raise InputError(
                f"{what} id {name!r} appears more than once; ids must be unique"
            )
