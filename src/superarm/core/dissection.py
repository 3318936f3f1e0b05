"""An elimination order for a road network's line graph, by nested dissection.

=================  ====================================================================
``n``, ``c``       roads, and turns from one into the next
``j``              junctions: where the end of a road meets the beginning of another
``k``              streets: pairs of junctions that one or more roads join
``D``              directions in which junctions are sorted
cell               junctions that no cut has separated so far
=================  ====================================================================

Roads are the nodes of the line graph and turns its links. Where junctions are divided into two sides, the
roads from one side to the other separate the roads of the sides: no turn leads from one into the other
[buchhold2020customizable]. So a small cut of streets is a small separator of roads. Both sides come before
their separator, and are divided in turn, until each has a single junction.

*Directions.* A graph has no coordinates. In their place are distances from landmarks, junctions far from
each other: the difference of two of them sorts junctions from one landmark to the other.

*Cuts.* A cell is cut between two neighbours of a direction, where few streets cross and neither side is too
small [schild2015balanced]. A minimal cut between the first and the last junctions of that direction then
replaces it if it is smaller. All cells of a level are cut at once.

The order depends on turns and lengths alone. It is the same on every machine.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from .arrays import Bools, Floats, Ints

_LANDMARKS = 4
_LEAST_SHARE = 0.25  # of a cell's junctions on either side of a cut
# Junctions of a cell from which a minimal cut is sought: below, it gains little.
_LEAST_FLOW = 64
_BATCH = 4096  # junctions of cells whose minimal cuts are sought together


class Separators(NamedTuple):
    """Where each road is cut from the others.

    Cells are stretches of junctions that are sorted so that every cell is one: the sides of a cell are
    its parts. A road that begins and ends at one junction is its own cell.
    """

    start: Ints  # first junction of the cell that the road separates, (n,)
    stop: Ints  # the junction behind the cell's last, (n,)
    is_leftward: Bools  # whether the road leads from the right to the left side, (n,)

    def order(self) -> Ints:
        """The roads in order of elimination, (n,): those of both sides before their separator."""
        size = self.stop - self.start
        order: Ints = np.lexsort((self.is_leftward, size, self.stop))
        return order


class _Streets(NamedTuple):
    """Pairs of junctions that roads join."""

    ends: Ints  # (k, 2)
    roads: Ints  # how many roads join them, (k,)
    length: Floats  # of the shortest of them, (k,)

    def some(self, chosen: Any) -> _Streets:
        return _Streets(self.ends[chosen], self.roads[chosen], self.length[chosen])


def elimination_order(length: Floats, turns: Ints) -> Ints:
    """The roads in order of elimination, (n,).

    Args:
        length: Metres of each road, (n,).
        turns: From which road to which, (c, 2).
    """
    return dissect(length, turns).order()


def dissect(length: Floats, turns: Ints) -> Separators:
    """Divide a road network again and again.

    Args:
        length: Metres of each road, (n,).
        turns: From which road to which, (c, 2).
    """
    ends = junctions_of(len(length), turns)  # (n, 2)
    junctions = int(ends.max(initial=-1)) + 1
    road_street, streets = _streets_of(ends, length, junctions)
    is_loop = road_street < 0
    cells = _divide(streets, junctions)
    start = np.empty(len(length), dtype=np.intp)
    stop = np.empty(len(length), dtype=np.intp)
    start[~is_loop] = cells.start[road_street[~is_loop]]
    stop[~is_loop] = cells.stop[road_street[~is_loop]]
    start[is_loop] = cells.place[ends[is_loop, 0]]
    stop[is_loop] = start[is_loop] + 1
    tail, head = ends.T
    is_leftward = cells.place[head] < cells.place[tail]
    return Separators(start, stop, is_leftward)


def squared_order(order: Ints, turns: Ints) -> Ints:
    """The roads in an order of elimination for the square of a matrix of the line graph, (n,).

    In the square roads are linked that have a neighbour in common, so that the roads of a cut no longer
    separate its sides. All roads at one end of each of them do: they come after both sides, too.

    Args:
        order: The roads in order of elimination, (n,).
        turns: From which road to which, (c, 2).
    """
    n = len(order)
    rank = np.empty(n, dtype=np.intp)
    rank[order] = np.arange(n)
    ends = junctions_of(n, turns)  # (n, 2)
    tail, head = ends.T
    junctions = int(ends.max(initial=-1)) + 1
    # One side of a cut comes before the other, which tells junctions of both apart.
    first = np.full(junctions, n, dtype=np.intp)
    np.minimum.at(first, tail, rank)
    np.minimum.at(first, head, rank)
    cut_end = np.where(first[tail] < first[head], head, tail)
    # The last of the roads that have this end of a cut at the junction.
    last = np.zeros(junctions, dtype=np.intp)
    np.maximum.at(last, cut_end, rank)
    later = np.maximum(last[tail], last[head])
    squared: Ints = np.lexsort((rank, np.maximum(rank, later)))
    return squared


def junctions_of(roads: int, turns: Ints) -> Ints:
    """The junctions where each road begins and ends, (n, 2).

    Roads into and out of a junction belong together where turns join them. A junction in which no turn
    joins two groups of roads counts as two.

    Args:
        roads: How many roads there are.
        turns: From which road to which, (c, 2).
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Two nodes for each road: its beginning, and its end.
    first, second = turns.T
    links = (
        np.ones(len(turns), dtype=np.bool_),
        (first.astype(np.int64) + roads, second),
    )
    graph = coo_array(links, shape=(2 * roads, 2 * roads)).tocsr()
    _, labels = connected_components(graph, directed=False)
    ends: Ints = labels.astype(np.intp).reshape(2, roads).T
    return ends


def _streets_of(ends: Ints, length: Floats, junctions: int) -> tuple[Ints, _Streets]:
    """The street of each road, (n,), −1 where it ends at the junction where it began; and the streets."""
    tail, head = ends.T
    lower = np.minimum(tail, head)
    upper = np.maximum(tail, head)
    is_loop = lower == upper
    keys = lower * junctions + upper
    distinct, street = np.unique(keys[~is_loop], return_inverse=True)
    road_street = np.full(len(ends), -1, dtype=np.intp)
    road_street[~is_loop] = street
    shortest = np.full(len(distinct), np.inf)
    np.minimum.at(shortest, street, length[~is_loop])
    pairs = np.stack(np.divmod(distinct, max(junctions, 1)), axis=1)
    counts = np.bincount(street, minlength=len(distinct))
    return road_street, _Streets(pairs, counts, shortest)


# --- directions ----------------------------------------------------------------------------


def _directions(streets: _Streets, junctions: int, parts: Ints) -> list[Floats]:
    """Numbers by which the junctions of every connected part are sorted, (j,) each."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    lower, upper = streets.ends.T
    entries = (streets.length, (lower, upper))
    graph = coo_array(entries, shape=(junctions, junctions)).tocsr()
    by_part = np.argsort(parts, kind="stable")
    starts = np.flatnonzero(np.diff(parts[by_part], prepend=-1))

    def distances(sources: Ints) -> Floats:
        found: Floats = dijkstra(graph, directed=False, indices=sources, min_only=True)
        return found

    def farthest(values: Floats) -> Ints:
        """The junction of every part where ``values`` are largest."""
        order = np.lexsort((values, parts))
        stops = np.append(starts[1:], junctions)
        chosen: Ints = order[stops - 1]
        return chosen

    first = distances(by_part[starts])
    landmark = farthest(first)
    nearest = np.full(junctions, np.inf)
    marks = []
    for _ in range(_LANDMARKS):
        mark = distances(landmark)
        marks.append(mark)
        nearest = np.minimum(nearest, mark)
        landmark = farthest(nearest)
    return [one - other for one, other in combinations(marks, 2)]


# --- cells ---------------------------------------------------------------------------------


class _Cells(NamedTuple):
    """Where each street is cut, and each junction's place in the order of all cells."""

    start: Ints  # (k,)
    stop: Ints  # (k,)
    place: Ints  # (j,)


def _divide(streets: _Streets, junctions: int) -> _Cells:
    """Cut all cells of a level at once, until each has one junction."""
    parts = _parts(streets, junctions)
    directions = _directions(streets, junctions, parts) if junctions else []
    # Junctions sorted by cell, then along each direction, (D, j).
    sorted_by = np.array(
        [np.lexsort((values, parts)) for values in directions], dtype=np.intp
    ).reshape(len(directions), junctions)
    sizes = np.bincount(parts) if junctions else np.zeros(0, dtype=np.intp)
    offsets = np.cumsum(sizes) - sizes  # where each cell begins in the order of all
    cut_start = np.zeros(len(streets.roads), dtype=np.intp)
    cut_stop = np.zeros(len(streets.roads), dtype=np.intp)
    place = np.zeros(junctions, dtype=np.intp)
    numbers = np.arange(len(streets.roads))  # of the streets that are not cut
    while True:
        # Cells of one junction are done.
        is_single = sizes == 1
        cell = np.repeat(np.arange(len(sizes)), sizes)
        done = is_single[cell]
        if done.any():
            place[sorted_by[0][done]] = offsets[is_single]
            sorted_by = sorted_by[:, ~done]
            sizes = sizes[~is_single]
            offsets = offsets[~is_single]
        if not len(sizes):
            return _Cells(cut_start, cut_stop, place)
        level = _Level(sorted_by, sizes, junctions, streets.some(numbers))
        is_right = level.best_sides()
        lower, upper = level.streets.ends.T
        is_cut = is_right[lower] != is_right[upper]
        cells = level.cell_of[lower[is_cut]]
        cut = numbers[is_cut]
        cut_start[cut] = offsets[cells]
        cut_stop[cut] = offsets[cells] + sizes[cells]
        numbers = numbers[~is_cut]
        sorted_by, left = level.parted(is_right)
        sizes = np.stack([left, sizes - left], axis=1).ravel()
        offsets = np.stack([offsets, offsets + left], axis=1).ravel()


def _source_side(links: Ints, roads: Ints, count: int) -> Ints:
    """The nodes on the source's side of a minimal cut between node 0, the source, and node 1.

    Of all minimal cuts, it is the one with the fewest nodes, whichever maximum flow is found.

    Args:
        links: Pairs of nodes, (k, 2).
        roads: How many roads join each pair, (k,).
        count: How many nodes there are.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    one, other = links.T
    rows = np.concatenate([one, other])
    columns = np.concatenate([other, one])
    entries = (np.concatenate([roads, roads]), (rows, columns))
    capacity = coo_array(entries, shape=(count, count)).tocsr()
    capacity.sum_duplicates()
    flow = maximum_flow(capacity, 0, 1, method="dinic").flow
    residual = capacity - flow
    residual.data[residual.data < 0] = 0
    residual.eliminate_zeros()
    reached = breadth_first_order(residual, 0, return_predecessors=False)
    return reached.astype(np.intp)


def _parts(streets: _Streets, junctions: int) -> Ints:
    """The connected part of each junction, (j,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    lower, upper = streets.ends.T
    links = (np.ones(len(lower), dtype=np.bool_), (lower, upper))
    graph = coo_array(links, shape=(junctions, junctions)).tocsr()
    _, labels = connected_components(graph, directed=False)
    return labels.astype(np.intp)


class _Level:
    """The cells of one level, with two junctions or more each.

    Args:
        sorted_by: Their junctions sorted by cell and along each direction, (D, m).
        sizes: Junctions of each cell, (cells,).
        junctions: How many junctions there are in all, j.
        streets: Those within cells.
    """

    def __init__(
        self, sorted_by: Ints, sizes: Ints, junctions: int, streets: _Streets
    ) -> None:
        self._sorted_by = sorted_by
        self._sizes = sizes
        self._stops = np.cumsum(sizes)
        self._starts = self._stops - sizes
        self._cell = np.repeat(np.arange(len(sizes)), sizes)  # of each place, (m,)
        self._junctions = junctions
        self.streets = streets
        # Contiguous: they are used for every direction.
        self._lower = np.ascontiguousarray(streets.ends[:, 0])
        self._upper = np.ascontiguousarray(streets.ends[:, 1])
        self._weights = streets.roads.astype(np.float64)
        self.cell_of: Ints = np.zeros(junctions, dtype=np.intp)  # of each junction
        self.cell_of[sorted_by[0]] = self._cell

    def best_sides(self) -> Bools:
        """Which junctions are on the right of the best cut of their cell, (j,)."""
        size = self._sizes[self._cell]
        left = np.arange(len(self._cell)) - self._starts[self._cell] + 1
        smaller = np.minimum(left, size - left)
        least = np.maximum(np.floor(_LEAST_SHARE * size), 1.0)
        is_allowed = smaller >= least
        # Of equal cuts the more even one: it adds less than one road.
        unevenness = 0.5 - smaller / size
        best = np.full(len(self._sizes), np.inf)
        direction = np.zeros(len(self._sizes), dtype=np.intp)
        split = np.zeros(len(self._sizes), dtype=np.intp)
        for number, order in enumerate(self._sorted_by):
            score = self._crossing(order) * (1.0 + unevenness) + unevenness
            score[~is_allowed] = np.inf
            lowest = np.minimum.reduceat(score, self._starts)
            better = lowest < best
            is_best = score == lowest[self._cell]
            places = np.flatnonzero(is_best & better[self._cell])
            cells, first = np.unique(self._cell[places], return_index=True)
            split[cells] = places[first]
            direction[cells] = number
            best[cells] = lowest[cells]
        along = self._sorted_by[direction[self._cell], np.arange(len(self._cell))]
        is_right = np.zeros(self._junctions, dtype=np.bool_)
        is_right[along] = np.arange(len(self._cell)) > split[self._cell]
        return self._refined(along, is_right)

    def _crossing(self, order: Ints) -> Floats:
        """How many roads cross the cut behind each place of a direction, (m,)."""
        place = np.zeros(self._junctions, dtype=np.intp)
        place[order] = np.arange(len(order))
        one = place[self._lower]
        other = place[self._upper]
        opened = np.bincount(np.minimum(one, other), self._weights, len(order))
        closed = np.bincount(np.maximum(one, other), self._weights, len(order))
        crossing: Floats = np.cumsum(opened - closed)
        return crossing

    def _refined(self, along: Ints, is_right: Bools) -> Bools:
        """The sides of minimal cuts between the first and the last junctions of each cell."""
        size = self._sizes[self._cell]
        is_large = size >= _LEAST_FLOW
        if not is_large.any():
            return is_right
        rank = np.arange(len(along)) - self._starts[self._cell]
        share = np.floor(_LEAST_SHARE * size)
        # Nodes: the source, the sink, and the junctions in between.
        source, sink = 0, 1
        node = np.full(self._junctions, -1, dtype=np.int32)
        is_first = is_large & (rank < share)
        is_last = is_large & (rank >= size - share)
        between = is_large & ~is_first & ~is_last
        node[along[is_first]] = source
        node[along[is_last]] = sink
        count = int(between.sum()) + 2
        node[along[between]] = np.arange(2, count, dtype=np.int32)
        one = node[self._lower]
        other = node[self._upper]
        used = (one != other) & (one >= 0) & (other >= 0)
        batch_of = self._batches()
        batch = batch_of[self.cell_of[self._lower[used]]]
        by_batch = np.argsort(batch, kind="stable")
        links = np.stack([one[used], other[used]], axis=1)[by_batch]
        roads = self.streets.roads[used].astype(np.int32)[by_batch]
        batches = np.arange(batch_of[-1] + 2)
        bounds = np.searchsorted(batch[by_batch], batches)
        # Nodes are numbered by cell, so those of a batch are next to each other.
        firsts = 2 + np.searchsorted(batch_of[self._cell[between]], batches)
        is_reached = np.zeros(count, dtype=np.bool_)
        is_reached[source] = True
        for number in batches[:-1]:
            here = slice(bounds[number], bounds[number + 1])
            first, behind = firsts[number : number + 2]
            inner = links[here] - (first - 2)
            local = np.where(links[here] < 2, links[here], inner)
            reached = _source_side(local, roads[here], behind - first + 2)
            is_reached[reached[reached >= 2] + (first - 2)] = True
        flowing = is_right.copy()
        flowing[along[is_large]] = ~is_reached[node[along[is_large]]]
        # Cell by cell, the smaller cut.
        before = self._cut_roads(is_right)
        after = self._cut_roads(flowing)
        is_better = after < before
        junctions = along[is_better[self._cell]]
        is_right[junctions] = flowing[junctions]
        return is_right

    def _batches(self) -> Ints:
        """The batch of each cell, (cells,): those that begin within the same ``_BATCH`` junctions.

        The flows of a batch are sought together. A search for one takes as many passes over the batch as
        the hardest of its cells needs, so that batches are small, and large cells by themselves.
        """
        window = self._starts // _BATCH
        is_new = np.diff(window, prepend=window[0]) > 0
        return np.cumsum(is_new)

    def _cut_roads(self, is_right: Bools) -> Ints:
        """How many roads cross the cut of each cell, (cells,)."""
        is_cut = is_right[self._lower] != is_right[self._upper]
        cells = self.cell_of[self._lower[is_cut]]
        roads = self.streets.roads[is_cut]
        counts = np.bincount(cells, roads, len(self._sizes))
        return counts.astype(np.intp)

    def parted(self, is_right: Bools) -> tuple[Ints, Ints]:
        """Junctions sorted by their new cells, (D, m), and how many are on the left, (cells,).

        Args:
            is_right: Which junctions are on the right, (j,).
        """
        left = np.bincount(self._cell, ~is_right[self._sorted_by[0]], len(self._sizes))
        left = left.astype(np.intp)
        parted = np.empty_like(self._sorted_by)
        right_start = self._starts + left
        for number, order in enumerate(self._sorted_by):
            right = is_right[order]
            lefts = np.cumsum(~right) - ~right  # before each place
            rights = np.cumsum(right) - right
            lefts -= lefts[self._starts][self._cell]
            rights -= rights[self._starts][self._cell]
            to_left = self._starts[self._cell] + lefts
            to_right = right_start[self._cell] + rights
            parted[number, np.where(right, to_right, to_left)] = order
        return parted, left
