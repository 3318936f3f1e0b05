"""A road network, and its line graph: the graph on which routes are found.

=================  ==================================================================
``j``, ``m``       junctions and edges (road segments, one direction each)
``c``              connections: legal turns from one edge into the next
``n``              edges of a line graph: those one vehicle class can use
``rise``           z of an edge's end minus z of its beginning, metres, of the junctions
``incline``        rise / max(length, distance of the junctions, 1 m): a feature for kernels
=================  ==================================================================

``rise`` telescopes along a route: whatever way is taken, it adds up to the height between its
ends. ``incline`` does not; it is bounded, where a metre-long edge has an absurd rise / length.
"""

from __future__ import annotations

import difflib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.display import Displayable
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    ShapeError,
    UnknownArmError,
)
from superarm.core.graphs import Graph, TurnGraph, as_pairs, sorted_pairs
from superarm.core.inputs import read_only, require_choice
from superarm.roads.energy.junctions import Signal, turn_seconds

VEHICLE_CLASSES = (
    *("passenger", "taxi", "delivery", "truck"),
    *("bus", "emergency", "bicycle", "pedestrian"),
)
"""The classes whose permissions a reader keeps, under SUMO's names."""
LIMITS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "length": (1e-3, 1e6),
        "speed": (1e-2, 1e3),
        "height": (-2e4, 2e4),
        "place": (-1e9, 1e9),
    }
    | {"lon": (-180.0, 180.0), "lat": (-90.0, 90.0)}
    | {"turn_length": (0.0, 1e6), "turn_speed": (0.0, 1e3), "turn_entry": (0.0, 1e3)}
    | {"turn_wait": (0.0, 1e6), "turn_stop": (0.0, 1.0), "phase": (1e-3, 1e6)}
)
"""What a road can be, in metres, m/s and degrees: beyond it a file is wrong, and numbers overflow."""
OF_TURNS = ("turn_length", "turn_speed", "turn_wait", "turn_stop", "turn_entry")
_MOST_COMPARED = 20_000  # ids that are looked through for one like a wrong one: more would take seconds


def limited(text: str, what: str) -> float:
    """The number that a file gives for ``what``; a ``ValueError`` says what it must be."""
    least, most = LIMITS[what]
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not least <= number <= most:
        raise ValueError(f"a number between {least:g} and {most:g}")
    return number


Uturns = bool | Literal["dead-ends"]
"""Whether one may turn back: everywhere, nowhere, or where there is no other way on."""


class Remade:
    """A dataclass whose copies and pickles are made anew of the same values, checked and frozen."""

    def __reduce__(self) -> Any:
        record: Any = self
        values = {
            each.name: getattr(self, each.name) for each in fields(record) if each.init
        }
        plain = {
            key: dict(it) if isinstance(it, Mapping) else it
            for key, it in values.items()
        }
        return _made, (type(self), plain)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoadNetwork(Displayable, Remade):
    """Junctions, edges and connections, checked once and then read-only.

    ``permits`` and ``turn_permits`` say who may use an edge or a connection, by vehicle class;
    a class that is not listed may use none.
    """

    name: str
    junction_ids: tuple[str, ...]
    junctions: Floats  # (j, 3): x, y, z in metres
    edge_ids: tuple[str, ...]
    tail: Ints  # the junction where each edge begins, (m,)
    head: Ints  # the junction where each edge ends, (m,)
    length: Floats  # metres, (m,)
    speed: Floats  # speed limit, m/s, (m,)
    permits: Mapping[str, Bools]  # who may use an edge, class by class, (m,)
    connections: Ints  # (c, 2): from edge, to edge
    turn_permits: Mapping[str, Bools]  # who may make a turn, class by class, (c,)
    lon_lat: Floats | None = (
        None  # longitude and latitude of the junctions, degrees, (j, 2), if known
    )
    shapes: tuple[Floats, ...] | None = None
    """The course of each edge, (p, 2) metres, for drawing; ``None``: straight lines."""
    turn_length: Floats | None = None
    """Of turns, (c,): metres within the junction. Here and below ``None`` or 0: not known."""
    turn_speed: Floats | None = None  # speed limit there, m/s, (c,)
    turn_wait: Floats | None = None  # expected wait at signals, seconds, (c,)
    turn_stop: Floats | None = None  # how likely one has to stop there, 0 to 1, (c,)
    turn_entry: Floats | None = None
    """Where one must give way: the speed to which one brakes before it is seen that nobody comes, m/s,
    (c,)."""
    signals: Mapping[int, Signal] = field(
        default_factory=dict
    )  # by the number of their connection
    street_names: tuple[str, ...] | None = (
        None  # one for each edge, "" where it has none
    )

    def _display_fields(self) -> Mapping[str, Any]:
        counts = {
            "junctions": self.junction_ids,
            "edges": self.edge_ids,
            "turns": self.connections,
        }
        return {"name": self.name, **{name: len(each) for name, each in counts.items()}}

    def __post_init__(self) -> None:
        j, m = len(self.junction_ids), len(self.edge_ids)
        parts: list[tuple[str, Any, tuple[int, ...]]] = [
            ("junctions", np.float64, (j, 3)),
            *((name, np.intp, (m,)) for name in ("tail", "head")),
            *((name, np.float64, (m,)) for name in ("length", "speed")),
            ("connections", np.intp, (*np.shape(self.connections)[:1], 2)),
        ]
        if self.lon_lat is not None:
            parts.append(("lon_lat", np.float64, (j, 2)))
        turns = np.shape(self.connections)[:1]
        parts += [
            (name, np.float64, turns)
            for name in OF_TURNS
            if getattr(self, name) is not None
        ]
        for name, kind, shape in parts:
            object.__setattr__(
                self, name, _frozen(getattr(self, name), kind, shape, name)
            )
        for name, count in (("permits", m), ("turn_permits", len(self.connections))):
            given = getattr(self, name).items()
            flags = {
                who: _frozen(may, np.bool_, (count,), f"{name}[{who!r}]")
                for who, may in given
            }
            object.__setattr__(self, name, MappingProxyType(flags))
        for name in ("shapes", "street_names"):
            if (given := getattr(self, name)) is not None and len(given) != m:
                raise ShapeError(
                    f"{self.name}: {name} has {len(given)} entries for {m} edges"
                )
        if self.shapes is not None:
            courses = (
                _frozen(each, np.float64, (len(each), 2), "a shape")
                for each in self.shapes
            )
            object.__setattr__(self, "shapes", tuple(courses))
        object.__setattr__(self, "signals", MappingProxyType(dict(self.signals)))
        _require_unique(self.junction_ids, "junction")
        _require_unique(self.edge_ids, "edge")
        self._check_values(j, m)

    def _check_values(self, j: int, m: int) -> None:
        x, y, height = self.junctions.T
        columns = {"length": self.length, "speed": self.speed, "height": height}
        columns["place"] = np.maximum(np.abs(x), np.abs(y))
        if self.lon_lat is not None:
            columns |= {"lon": self.lon_lat[:, 0], "lat": self.lon_lat[:, 1]}
        columns |= {
            name: getattr(self, name)
            for name in OF_TURNS
            if getattr(self, name) is not None
        }
        for name, values in columns.items():
            least, most = LIMITS[name]
            bad = np.flatnonzero(~((values >= least) & (values <= most)))
            if len(bad):
                edge = name in ("length", "speed")
                ids: Sequence[object]
                ids, what = (
                    (self.edge_ids, "edge") if edge else (self.junction_ids, "junction")
                )
                if name in OF_TURNS:
                    ids, what = range(len(values)), "connection"
                raise InputError(
                    f"{self.name}: {what} {ids[bad[0]]!r} has {name} {values[bad[0]]}; "
                    f"it must lie between {least:g} and {most:g}"
                )
        for name, count in (("tail", j), ("head", j), ("connections", m)):
            values = getattr(self, name)
            if values.size and not (values.min() >= 0 and values.max() < count):
                raise InputError(
                    f"{self.name}: {name} names a number outside 0 … {count - 1}"
                )
        starts, ends = self.connections.T
        apart = np.flatnonzero(self.head[starts] != self.tail[ends])
        if len(apart):
            first, second = self.connections[apart[0]]
            raise InputError(
                f"{self.name}: the connection from {self.edge_ids[first]!r} to "
                f"{self.edge_ids[second]!r} joins edges that do not meet"
            )

    @property
    def rise(self) -> Floats:
        """Height gained along each edge, metres, (m,)."""
        z: Floats = self.junctions[:, 2]
        return z[self.head] - z[self.tail]

    @property
    def incline(self) -> Floats:
        """Rise over run with the run kept from being absurdly short, (m,)."""
        ends = self.junctions[:, :2]
        apart = np.hypot(*(ends[self.head] - ends[self.tail]).T)
        return self.rise / np.maximum(np.maximum(self.length, apart), 1.0)

    def on_earth(self, advice: str) -> Floats:
        """``lon_lat``, (j, 2), or an error with this advice."""
        if self.lon_lat is None:
            told = f"{self.name} has no geographic reference: it does not say where on Earth it is"
            raise InputError(f"{told}; {advice}")
        return self.lon_lat

    def line_graph(
        self, vehicle_class: str = "passenger", *, uturns: Uturns = True
    ) -> LineGraph:
        """The edges that a vehicle class can use and the turns between them.

        Of these the largest strongly connected component, within which every edge can be reached
        from every other. ``uturns=False`` leaves out turns back to where one came from; "dead-ends"
        keeps them where there is no other way on, or where an edge would be cut off without.
        """
        allowed = self.permits.get(vehicle_class)
        turns_allowed = self.turn_permits.get(vehicle_class)
        if allowed is None or turns_allowed is None:
            raise InputError(
                f"{self.name} has no vehicle class {vehicle_class!r}; "
                f"it has {sorted(set(self.permits) & set(self.turn_permits))}"
            )
        if not isinstance(uturns, bool):
            require_choice(uturns, "uturns", ("dead-ends",))
        first, second = self.connections.T
        usable = turns_allowed & allowed[first] & allowed[second]
        back = self.head[second] == self.tail[first]
        if not uturns:
            usable &= ~back
        edges, count = np.flatnonzero(allowed), len(allowed)
        if uturns == "dead-ends":
            has_other_way = np.isin(first, first[usable & ~back])
            inner, _ = largest_part(
                edges, self.connections[usable & ~(back & has_other_way)], count
            )
            # A turn between edges that are joined without it can go; so no edge is lost.
            usable &= ~(
                back & has_other_way & np.isin(first, inner) & np.isin(second, inner)
            )
        kept, turns = largest_part(edges, self.connections[usable], count)
        if len(kept) == 0:
            raise InfeasibleError(
                f"{self.name} has no edge that {vehicle_class!r} may use"
            )
        return LineGraph(network=self, edges=kept, turns=turns)


@dataclass(frozen=True, kw_only=True, eq=False)
class LineGraph(Graph, Remade):
    """Edges as nodes, legal turns as arcs; its edges are numbered 0 … n−1."""

    network: RoadNetwork
    edges: Ints  # the network's edge numbers, (n,)
    turns: (
        Ints  # (c, 2): from, to, in this graph's own numbers; sorted, without repeats
    )
    ids: tuple[str, ...] = field(init=False)
    length: Floats = field(init=False)  # this and what follows as in the network, (n,)
    speed: Floats = field(init=False)
    rise: Floats = field(init=False)
    incline: Floats = field(init=False)
    turn_length: Floats = field(
        init=False
    )  # this and what follows for each turn, (c,); 0: not known
    turn_speed: Floats = field(init=False)
    turn_wait: Floats = field(init=False)
    turn_stop: Floats = field(init=False)
    turn_entry: Floats = field(init=False)
    signals: Mapping[int, Signal] = field(init=False)  # by the number of their turn

    def __post_init__(self) -> None:
        turns = sorted_pairs(as_pairs(self.turns, "turns").astype(np.intp))
        object.__setattr__(self, "turns", _frozen(turns, np.intp, turns.shape, "turns"))
        object.__setattr__(
            self, "edges", _frozen(self.edges, np.intp, (len(self.edges),), "edges")
        )
        object.__setattr__(
            self, "ids", tuple(self.network.edge_ids[edge] for edge in self.edges)
        )
        for name in ("length", "speed", "rise", "incline"):
            object.__setattr__(
                self, name, read_only(getattr(self.network, name)[self.edges])
            )
        joined, signals = (
            _places(self.edges[turns], self.network.connections),
            self.network.signals,
        )
        for name in OF_TURNS:
            known = getattr(self.network, name)
            values = (
                np.zeros(len(turns))
                if known is None
                else np.where(joined < 0, 0.0, known[joined])
            )
            object.__setattr__(self, name, read_only(values))
        places = np.flatnonzero(np.isin(joined, np.array(list(signals), dtype=np.intp)))
        found = {int(turn): signals[int(joined[turn])] for turn in places}
        object.__setattr__(self, "signals", MappingProxyType(found))

    def __len__(self) -> int:
        return len(self.edges)

    def __repr__(self) -> str:
        return f"LineGraph({self.network.name!r}, edges={len(self)}, turns={len(self.turns)})"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.ids)}

    def __contains__(self, edge_id: object) -> bool:
        return edge_id in self._numbers

    def number(self, edge_id: str) -> int:
        """The number of an edge, or an error that says why it has none."""
        if (number := self._numbers.get(str(edge_id))) is not None:
            return number
        if edge_id in self.network.edge_ids:
            raise UnknownArmError(
                f"edge {edge_id!r} of {self.network.name} cannot be used here: it is closed to this "
                "vehicle class, or cut off from the main part of the network"
            )
        near = difflib.get_close_matches(str(edge_id), self.ids[:_MOST_COMPARED], n=3)
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UnknownArmError(f"{self.network.name} has no edge {edge_id!r:.80}{meant}")

    @cached_property
    def turn_graph(self) -> TurnGraph:
        """What kernels and oracles need of these roads, as data."""
        return TurnGraph(length=self.length, turns=self.turns.astype(np.int32))

    @property
    def successors(self) -> Any:
        """The turns as a sparse (n, n) matrix, in the order of ``turns``."""
        return self.turn_graph.successors

    @cached_property
    def travel_time(self) -> Floats:
        """Seconds at the speed limit."""
        return read_only(self.length / self.speed)

    @cached_property
    def is_uturn(self) -> Bools:
        """Which turns lead back to where one came from, (c,)."""
        first, second = self.edges[self.turns].T
        return read_only(self.network.head[second] == self.network.tail[first])

    @cached_property
    def turn_seconds(self) -> Floats:
        """Seconds that each turn adds to ``travel_time``, (c,).

        For driving through the junction, slowing down before it and accelerating after it, for the
        expected wait at signals, and ``UTURN_SECONDS`` more for turning back.
        """
        return read_only(turn_seconds(self))

    @property
    def street_names(self) -> tuple[str, ...] | None:
        """The names of the edges' streets, "" where there is none; ``None``: no names are known."""
        names = self.network.street_names
        return None if names is None else tuple(names[edge] for edge in self.edges)

    def turn_numbers(self, route: Ints | Sequence[int]) -> Ints:
        """Places in ``turns`` of the turns along a route of k edges, (k − 1,)."""
        numbers = self.turns_between(route)
        if (missing := np.flatnonzero(numbers < 0)).size:
            one, other = (self.ids[route[at]] for at in (missing[0], missing[0] + 1))
            raise InputError(
                f"{self.network.name} has no turn from edge {one!r} into {other!r}"
            )
        return numbers

    def turns_between(self, edges: Ints | Sequence[int]) -> Ints:
        """Places in ``turns`` of the turns from each edge into the next, (k − 1,); −1: none."""
        route = np.asarray(edges, dtype=np.intp)
        edge, after = route[:-1], route[1:]
        pointers, ends = self.successors.indptr, self.successors.indices
        begin, end = pointers[edge], pointers[edge + 1]
        numbers = np.full(len(edge), -1, dtype=np.intp)
        # An edge has a few turns: the first of every edge is looked at, then the second, and so on.
        for place in range(int((end - begin).max(initial=0))):
            number = np.minimum(begin + place, len(ends) - 1)
            found = (begin + place < end) & (ends[number] == after)
            numbers[found] = number[found]
        return numbers

    @cached_property
    def features(self) -> Floats:
        """Length, speed limit and incline, each standardised to mean 0 and variance 1, (n, 3)."""
        columns = np.stack([self.length, self.speed, self.incline], axis=1)
        spread = columns.std(axis=0)
        return read_only(
            (columns - columns.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
        )

    def laplacian(self) -> Any:
        """The incidence Laplacian, sparse (n, n): that of the ``turn_graph``."""
        return self.turn_graph.laplacian()

    def course(self, edge: int) -> Floats:
        """The points of one edge, (p, 2) metres."""
        network, number = self.network, int(self.edges[edge])
        if network.shapes is not None:
            return network.shapes[number]
        straight: Floats = network.junctions[
            [network.tail[number], network.head[number]], :2
        ]
        return straight

    def courses(self) -> tuple[Floats, Ints]:
        """The points of all edges one after another, (p, 2), and how many each edge has, (n,)."""
        network = self.network
        if network.shapes is None:
            ends = np.stack([network.tail, network.head], axis=1)[self.edges]
            return network.junctions[ends, :2].reshape(-1, 2), np.full(len(self), 2)
        shapes = [network.shapes[edge] for edge in self.edges]
        return np.concatenate(shapes), np.array([len(each) for each in shapes])


def components(links: Ints, count: int, *, directed: bool) -> Ints:
    """The number of each node's component, (count,): where directed, the strongly connected one."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array((np.ones(len(links)), tuple(links.T)), shape=(count, count))
    labels = connected_components(graph, directed=directed, connection="strong")[1]
    return np.asarray(labels, dtype=np.intp)


def largest_part(edges: Ints, turns: Ints, count: int) -> tuple[Ints, Ints]:
    """Those of ``edges`` in the largest strongly connected component, and the turns among them.

    Turns come in the numbers that these edges then have. Of equal components it is the first.
    """
    labels = components(turns, count, directed=True)[edges]
    sizes = np.bincount(labels, minlength=1)
    kept: Ints = (
        edges[labels == labels[sizes[labels].argmax()]] if len(edges) else edges
    )
    number = np.full(count, -1, dtype=np.intp)
    number[kept] = np.arange(len(kept))
    inside = number[turns]
    return kept, inside[(inside >= 0).all(axis=1)]


def _places(pairs: Ints, among: Ints) -> Ints:
    """Where each pair stands among other pairs for the first time, (c,); −1: nowhere."""
    base = int(max(pairs.max(initial=0), among.max(initial=0))) + 1
    wanted, keys = (each[:, 0] * base + each[:, 1] for each in (pairs, among))
    if len(keys) == 0:
        return np.full(len(wanted), -1, dtype=np.intp)
    order = np.argsort(keys, kind="stable")
    found = order[np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)]
    return np.where(keys[found] == wanted, found, -1)


def _made(kind: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    return kind(**values)


def _frozen(values: Any, kind: Any, shape: tuple[int, ...], name: str) -> Any:
    try:
        given = np.asarray(values)
    except ValueError:
        raise ShapeError(
            f"{name} has rows of different lengths; it must be {shape}"
        ) from None
    if kind is np.float64 and given.size and given.dtype.kind not in "biuf":
        raise InputError(f"{name} must hold numbers, not {given.dtype} values")
    if kind is np.intp and given.size and given.dtype.kind not in "iu":
        raise InputError(f"{name} must hold whole numbers, not {given.dtype} values")
    array = np.array(given, dtype=kind)
    if array.size == 0 == math.prod(shape):  # an empty list has one axis
        array = array.reshape(shape)
    if array.shape != shape:
        raise ShapeError(f"{name} has shape {array.shape}; it must be {shape}")
    array.flags.writeable = False
    return array


def _require_unique(ids: Sequence[str], what: str) -> None:
    if len(set(ids)) < len(ids):
        name = next(name for name, count in Counter(ids).items() if count > 1)
        raise InputError(
            f"{what} id {name!r} appears more than once; ids must be unique"
        )
