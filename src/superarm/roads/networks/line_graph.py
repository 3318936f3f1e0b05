"""The line graph of a road network: the graph on which routes are found.

=================  ==================================================================
``n``              edges of a line graph: those one vehicle class can use
``c``              turns: legal ways from one edge into the next
=================  ==================================================================
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.caching import cached_property
from superarm.core.errors import InputError, UnknownArmError
from superarm.core.graphs import Graph, TurnGraph, as_pairs, sorted_pairs
from superarm.core.inputs import read_only
from superarm.roads.energy.junctions import Signal, turn_seconds

from .records import Rebuildable, freeze, set_fields
from .stored import read_stored, store

if TYPE_CHECKING:
    from .road import RoadNetwork

# Ids that a wrong one is compared with: more would take seconds.
_MOST_COMPARED = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class LineGraph(Graph, Rebuildable):
    """Edges as nodes, legal turns as arcs; its edges are numbered 0 … n−1.

    Args:
        network: The roads.
        edges: The network's numbers of these edges, (n,).
        turns: From and to, in this graph's own numbers, (c, 2). They become sorted, without repeats.
    """

    network: RoadNetwork
    edges: Ints
    turns: Ints
    ids: tuple[str, ...] = field(init=False)
    # As in the network, (n,).
    length: Floats = field(init=False)
    speed: Floats = field(init=False)
    rise: Floats = field(init=False)
    incline: Floats = field(init=False)
    # As in the network, for each turn, (c,); 0: not known.
    turn_length: Floats = field(init=False)
    turn_speed: Floats = field(init=False)
    turn_wait: Floats = field(init=False)
    turn_stop: Floats = field(init=False)
    turn_entry: Floats = field(init=False)
    # By the number of their turn.
    signals: Mapping[int, Signal] = field(init=False)

    def __post_init__(self) -> None:
        network = self.network
        turns = sorted_pairs(as_pairs(self.turns, "turns").astype(np.intp))
        turns = freeze(turns, np.intp, turns.shape, "turns")
        edges = freeze(self.edges, np.intp, (len(self.edges),), "edges")
        connection = _find_pairs(edges[turns], network.connections)  # (c,)
        set_fields(
            self,
            edges=edges,
            turns=turns,
            ids=tuple(map(network.edge_ids.__getitem__, edges.tolist())),
            length=read_only(network.length[edges]),
            speed=read_only(network.speed[edges]),
            rise=read_only(network.rise[edges]),
            incline=read_only(network.incline[edges]),
            turn_length=_turn_column(network.turn_length, connection),
            turn_speed=_turn_column(network.turn_speed, connection),
            turn_wait=_turn_column(network.turn_wait, connection),
            turn_stop=_turn_column(network.turn_stop, connection),
            turn_entry=_turn_column(network.turn_entry, connection),
            signals=_turn_signals(network.signals, connection),
        )

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
        """Return the number of an edge, or raise an error with the reason why it has none."""
        number = self._numbers.get(str(edge_id))
        if number is not None:
            return number
        if edge_id in self.network.edge_ids:
            raise UnknownArmError(
                f"edge {edge_id!r} of {self.network.name} is closed to this vehicle class, or cut off "
                "from the main part of the network; use another edge"
            )
        message = f"network {self.network.name} has no edge {edge_id!r:.80}"
        compared = self.ids[:_MOST_COMPARED]
        alike = difflib.get_close_matches(str(edge_id), compared, n=3)
        if alike:
            suggestions = " or ".join(repr(other_id) for other_id in alike)
            message += f"; did you mean {suggestions}?"
        elif not any(self.network.street_names or ()):
            message += " and no street names; use an edge id"
            if self.network.lon_lat is not None:
                message += " or latitude,longitude"
        raise UnknownArmError(message)

    @cached_property
    def turn_graph(self) -> TurnGraph:
        """These roads as data, as kernels and oracles need them."""
        return TurnGraph(length=self.length, turns=self.turns.astype(np.int32))

    @cached_property
    def elimination_order(self) -> Ints:
        """The edges in the order of a nested dissection, (n,); see :mod:`superarm.core.dissection`.

        That of a large network is stored beside its file. The ``turn_graph`` then has it too.
        """
        n = len(self)
        order = None
        stored = read_stored(self, "order")
        if stored is not None and len(stored) == 1 and is_permutation(stored[0], n):
            order = read_only(stored[0].astype(np.intp))
            # A property of its own, which would compute the same.
            vars(self.turn_graph).setdefault("elimination_order", order)
        if order is None:
            order = self.turn_graph.elimination_order
            store(self, "order", [order.astype(np.int32)])
        return order

    @property
    def squared_order(self) -> Ints:
        """The edges in an order for the square of the Laplacian, (n,)."""
        return self.turn_graph.squared_order

    @property
    def successors(self) -> Any:
        """The turns as a sparse (n, n) matrix, in the order of ``turns``."""
        return self.turn_graph.successors

    @cached_property
    def travel_time(self) -> Floats:
        """Seconds at the speed limit, (n,)."""
        return read_only(self.length / self.speed)

    @cached_property
    def is_uturn(self) -> Bools:
        """Which turns lead back to where one came from, (c,)."""
        network = self.network
        first, second = self.edges[self.turns].T
        is_uturn = network.head[second] == network.tail[first]
        return read_only(is_uturn)

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
        if names is None:
            return None
        return tuple(names[edge] for edge in self.edges)

    def turn_numbers(self, route: Ints | Sequence[int]) -> Ints:
        """Return places in ``turns`` of the turns along a route, (k − 1,).

        Args:
            route: Numbers of k edges, each of which leads into the next.
        """
        numbers = self.turns_between(route)
        missing = np.flatnonzero(numbers < 0)
        if missing.size:
            place = missing[0]
            before = self.ids[route[place]]
            after = self.ids[route[place + 1]]
            raise InputError(
                f"{self.network.name} has no turn from edge {before!r} into {after!r}"
            )
        return numbers

    def turns_between(self, edges: Ints | Sequence[int]) -> Ints:
        """Return places in ``turns`` of the turns from each edge into the next, (k − 1,); −1: none.

        Args:
            edges: Numbers of k edges.
        """
        route = np.asarray(edges, dtype=np.intp)
        before = route[:-1]
        after = route[1:]
        pointers = self.successors.indptr
        targets = self.successors.indices
        begin = pointers[before]
        end = pointers[before + 1]
        numbers = np.full(len(before), -1, dtype=np.intp)
        # An edge has a few turns: compare the first turn of every edge, then the second, and so on.
        most_turns = int((end - begin).max(initial=0))
        for offset in range(most_turns):
            turn = begin + offset
            candidate = np.minimum(turn, len(targets) - 1)
            is_match = turn < end
            is_match &= targets[candidate] == after
            numbers[is_match] = candidate[is_match]
        return numbers

    @cached_property
    def features(self) -> Floats:
        """Length, speed limit and incline, each standardised to mean 0 and variance 1, (n, 3)."""
        columns = np.stack([self.length, self.speed, self.incline], axis=1)
        mean = columns.mean(axis=0)
        spread = columns.std(axis=0)
        divisor = np.where(spread > 0.0, spread, 1.0)
        standardised = (columns - mean) / divisor
        return read_only(standardised)

    def laplacian(self) -> Any:
        """Return the incidence Laplacian of the ``turn_graph``, sparse (n, n)."""
        return self.turn_graph.laplacian()

    def course(self, edge: int) -> Floats:
        """Return the points of one edge, (p, 2) metres."""
        network = self.network
        number = int(self.edges[edge])
        if network.shapes is not None:
            return network.shapes[number]
        ends = [network.tail[number], network.head[number]]
        straight: Floats = network.junctions[ends, :2]
        return straight

    def courses(self) -> tuple[Floats, Ints]:
        """Return the points of all edges one after another, (p, 2), and how many each has, (n,)."""
        network = self.network
        if network.shapes is not None:
            shapes = [network.shapes[edge] for edge in self.edges]
            counts = np.array([len(shape) for shape in shapes])
            return np.concatenate(shapes), counts
        tail = network.tail[self.edges]
        head = network.head[self.edges]
        ends = np.stack([tail, head], axis=1)
        points = network.junctions[ends, :2]  # (n, 2, 2)
        counts = np.full(len(self), 2)
        return points.reshape(-1, 2), counts


class ConnectedPart(NamedTuple):
    """A strongly connected component."""

    edges: Ints  # (n,)
    turns: Ints  # in the numbers that these edges then have, (c, 2)


def largest_part(edges: Ints, turns: Ints, count: int) -> ConnectedPart:
    """Return the largest strongly connected component; of equal ones the first.

    Args:
        edges: The edges that may be part of it, (n,).
        turns: From and to, (c, 2).
        count: How many edges there are in all.
    """
    all_labels = components(turns, count, directed=True)
    labels = all_labels[edges]
    part: Ints = edges
    if len(edges):
        sizes = np.bincount(labels)
        size_by_edge = sizes[labels]
        in_largest = size_by_edge.argmax()
        part = edges[labels == labels[in_largest]]
    number = np.full(count, -1, dtype=np.intp)
    number[part] = np.arange(len(part))
    part_turns = number[turns]
    is_inside = (part_turns >= 0).all(axis=1)
    return ConnectedPart(part, part_turns[is_inside])


def components(links: Ints, count: int, *, directed: bool) -> Ints:
    """Return the number of each node's component, (count,).

    Args:
        links: Pairs of nodes, (c, 2).
        count: Number of nodes.
        directed: Whether components are the strongly connected ones.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    first, second = links.T
    ones = np.ones(len(links))
    entries = (ones, (first, second))
    graph = csr_array(entries, shape=(count, count))
    _, labels = connected_components(graph, directed=directed, connection="strong")
    return np.asarray(labels, dtype=np.intp)


def is_permutation(numbers: Ints | NDArray[np.int32], count: int) -> bool:
    """Whether an array holds each number from 0 once.

    Args:
        numbers: The numbers.
        count: How many there must be.
    """
    if len(numbers) != count or not count:
        return len(numbers) == count
    if numbers.min() < 0 or numbers.max() >= count:
        return False
    is_met = np.zeros(count, dtype=np.bool_)
    is_met[numbers] = True
    return bool(is_met.all())


def _find_pairs(pairs: Ints, among: Ints) -> Ints:
    """Return where each pair first stands among other pairs, (c,); −1: nowhere."""
    if len(among) == 0:
        return np.full(len(pairs), -1, dtype=np.intp)
    largest = max(pairs.max(initial=0), among.max(initial=0))
    base = int(largest) + 1
    keys = _pair_keys(pairs, base)
    among_keys = _pair_keys(among, base)
    order = np.argsort(among_keys, kind="stable")
    sorted_keys = among_keys[order]
    place = np.searchsorted(sorted_keys, keys)
    last_place = len(among_keys) - 1
    candidate = order[np.minimum(place, last_place)]
    is_match = among_keys[candidate] == keys
    return np.where(is_match, candidate, -1)


def _pair_keys(pairs: Ints, base: int) -> Ints:
    """Return one number for each pair of numbers below ``base``, (c,)."""
    first, second = pairs.T
    keys: Ints = first * base + second
    return keys


def _turn_column(values: Floats | None, connection: Ints) -> Floats:
    """Return the values of a network's connections for each turn, (c,); 0: not known."""
    if values is None:
        return read_only(np.zeros(len(connection)))
    is_unknown = connection < 0
    column = np.where(is_unknown, 0.0, values[connection])
    return read_only(column)


def _turn_signals(
    signals: Mapping[int, Signal], connection: Ints
) -> Mapping[int, Signal]:
    """Return the signals of a network's connections by the number of their turn."""
    signalled = np.array(list(signals), dtype=np.intp)
    has_signal = np.isin(connection, signalled)
    turns = np.flatnonzero(has_signal)
    by_turn = {}
    for turn in turns.tolist():
        by_turn[turn] = signals[int(connection[turn])]
    return MappingProxyType(by_turn)
