"""A generated country: towns of all sizes, roads between neighbours, motorways between cities.

Hierarchies of real countries are small because few roads lead from one region to the next. A single city has no
such narrow places: its cuts grow with the root of its size. Here towns are lattices with gaps, whose sizes
follow a power law; roads of many short edges join neighbouring towns; and motorways with ramps, one
carriageway for each direction, join the largest. Heights are a sum of waves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.streams import stream
from superarm.roads.networks import RoadNetwork
from superarm.roads.networks.line_graph import components

_EDGES_PER_TOWN = 700
_STREETS = 0.29  # junctions of towns for each edge of the country
_EXPONENT = 0.8  # the i-th town has i^−0.8 of the first one's junctions
_BLOCK = 95.0  # metres
_GAPS = 0.2  # share of streets that a lattice lacks
_ONE_WAY = 0.15
_MAIN = 5  # every fifth street of a town is a main street
_APART = 14_000.0  # metres between towns
_STEP = 400.0  # metres of a road's edges
_MOTORWAY_STEP = 1500.0
_RAMPS = 6  # a motorway has ramps at every sixth of its edges
_TOWNS_PER_CITY = 40  # only the largest towns have a motorway
_HILL = 120.0  # metres


class Roads(NamedTuple):
    """Roads between places; ``is_one_way`` ones lead from the first to the second."""

    first: Ints
    second: Ints
    speed: Floats  # km/h
    is_one_way: Bools


class _Chains(NamedTuple):
    """Lines of places between two ends each."""

    points: Floats  # of the places between the ends, (p, 2)
    steps: Ints  # (e, 2): pairs of places, the ends among them


class _Towns(NamedTuple):
    """Lattices of ``width`` × ``width`` junctions each, by falling size."""

    centres: Floats  # metres, (t, 2)
    width: Ints  # (t,)
    starts: Ints  # the first junction of each, (t,)


def generate_country(edges: int, seed: int = 1) -> RoadNetwork:
    """A country of about so many edges, all of which can be reached from each other.

    Args:
        edges: Directed edges, from about 2,000 on.
        seed: Of all that is drawn.
    """
    rng = stream(seed, "country", edges)
    towns = _draw_towns(edges, rng)
    streets, points = _draw_streets(towns, rng)
    country_roads = _draw_country_roads(towns, len(points), rng)
    points = np.concatenate([points, country_roads.points])
    regional = roads_both_ways(country_roads.steps, 90.0)
    motorways, ramps, motorway_points = _draw_motorways(towns, points, rng)
    points = np.concatenate([points, motorway_points])
    parts = (streets, regional, motorways, ramps)
    roads = Roads(*[np.concatenate(columns) for columns in zip(*parts, strict=True)])
    return build_network(f"country-{edges}-{seed}", points, roads, rng)


def _draw_towns(edges: int, rng: Any) -> _Towns:
    count = max(edges // _EDGES_PER_TOWN, 3)
    share = np.arange(1, count + 1) ** -_EXPONENT
    junctions = _STREETS * edges * share / share.sum()
    width = np.maximum(np.sqrt(junctions).round(), 2).astype(np.intp)
    across = int(np.ceil(np.sqrt(count)))
    cells = rng.permutation(across * across)[:count]
    lattice = np.stack(np.divmod(cells, across), axis=1)
    centres = _APART * (lattice + rng.uniform(-0.35, 0.35, size=(count, 2)))
    sizes = width**2
    return _Towns(centres, width, np.cumsum(sizes) - sizes)


def _draw_streets(towns: _Towns, rng: Any) -> tuple[Roads, Floats]:
    """The streets of all towns, and the points of their junctions."""
    sizes = towns.width**2
    town = np.repeat(np.arange(len(sizes)), sizes)
    junction = np.arange(len(town))
    width = towns.width[town]
    row, column = np.divmod(junction - towns.starts[town], width)
    offset = np.stack([column, row], axis=1) - 0.5 * (width[:, None] - 1)
    offset = offset + rng.uniform(-0.3, 0.3, size=offset.shape)
    points = towns.centres[town] + _BLOCK * offset
    along = junction[column + 1 < width]
    across = junction[row + 1 < width]
    first = np.concatenate([along, across])
    second = np.concatenate([along + 1, across + width[across]])
    line = np.concatenate([row[along], column[across]])
    is_main = line % _MAIN == 0
    is_there = is_main | (rng.random(len(first)) >= _GAPS)
    is_one_way = ~is_main & (rng.random(len(first)) < _ONE_WAY)
    is_back = rng.random(len(first)) < 0.5
    begin = np.where(is_back, second, first)
    end = np.where(is_back, first, second)
    speed = np.where(is_main, 50.0, 30.0)
    streets = Roads(
        begin[is_there], end[is_there], speed[is_there], is_one_way[is_there]
    )
    return streets, points


def _neighbours(centres: Floats) -> Ints:
    """Pairs of places that are joined: no triangle's longest side, (k, 2)."""
    from scipy.spatial import Delaunay

    if len(centres) < 4:
        return np.array([[0, 1], [1, 2], [0, 2]])[: max(len(centres), 1)]
    corners = Delaunay(centres).simplices
    sides = np.sort(corners[:, [[0, 1], [1, 2], [2, 0]]], axis=2)  # (t, 3, 2)
    length = np.hypot(*(centres[sides[..., 0]] - centres[sides[..., 1]]).T).T
    longest = sides[np.arange(len(sides)), length.argmax(axis=1)]
    base = len(centres)
    keys = np.unique(sides[..., 0] * base + sides[..., 1])
    removed = longest[:, 0] * base + longest[:, 1]
    kept = np.setdiff1d(keys, removed)
    pairs: Ints = np.stack(np.divmod(kept, base), axis=1)
    return pairs


def _gates(towns: _Towns, from_towns: Ints, to_towns: Ints) -> Ints:
    """The junction at the edge of each town that is nearest to another one."""
    heading = towns.centres[to_towns] - towns.centres[from_towns]
    heading = heading / np.abs(heading).max(axis=1, keepdims=True)
    width = towns.width[from_towns]
    place = 0.5 * (width[:, None] - 1) * (1.0 + heading)
    column, row = place.round().astype(np.intp).T
    gates: Ints = towns.starts[from_towns] + row * width + column
    return gates


def _chains(
    first: Ints,
    second: Ints,
    begin: Floats,
    end: Floats,
    step: float,
    number: int,
    rng: Any,
) -> _Chains:
    """Places about every ``step`` metres between two ends, numbered from ``number`` on."""
    distance = np.hypot(*(end - begin).T)
    between = np.maximum((distance / step).astype(np.intp), 1)  # places of each chain
    chain = np.repeat(np.arange(len(between)), between)
    starts = np.cumsum(between) - between
    rank = np.arange(len(chain)) - starts[chain]
    share = ((rank + 1) / (between[chain] + 1))[:, None]
    points = (1.0 - share) * begin[chain] + share * end[chain]
    points += rng.normal(0.0, 0.1 * step, size=points.shape)
    places = number + np.arange(len(chain))
    is_last = rank + 1 == between[chain]
    inner = np.stack([places[~is_last], places[~is_last] + 1], axis=1)
    entries = np.stack([first, number + starts], axis=1)
    exits = np.stack([number + starts + between - 1, second], axis=1)
    return _Chains(points, np.concatenate([entries, inner, exits]))


def _draw_country_roads(towns: _Towns, number: int, rng: Any) -> _Chains:
    first, second = _neighbours(towns.centres).T
    return _chains(
        _gates(towns, first, second),
        _gates(towns, second, first),
        towns.centres[first],
        towns.centres[second],
        _STEP,
        number,
        rng,
    )


def _draw_motorways(
    towns: _Towns, points: Floats, rng: Any
) -> tuple[Roads, Roads, Floats]:
    """Carriageways, ramps, and the points of the carriageways."""
    from scipy.spatial import KDTree

    cities = max(len(towns.width) // _TOWNS_PER_CITY, 3)
    first, second = _neighbours(towns.centres[:cities]).T
    one = _gates(towns, first, second)
    other = _gates(towns, second, first)
    begin = towns.centres[first]
    end = towns.centres[second]
    there = _chains(one, other, begin, end, _MOTORWAY_STEP, len(points), rng)
    number = len(points) + len(there.points)
    back = _chains(other, one, end, begin, _MOTORWAY_STEP, number, rng)
    motorway_points = np.concatenate([there.points, back.points])
    steps = np.concatenate([there.steps, back.steps])
    motorways = Roads(
        first=steps[:, 0],
        second=steps[:, 1],
        speed=np.full(len(steps), 130.0),
        is_one_way=np.ones(len(steps), dtype=bool),
    )
    joined = np.arange(0, len(motorway_points), _RAMPS)
    _, local = KDTree(points).query(motorway_points[joined])
    ramps = roads_both_ways(np.stack([joined + len(points), local], axis=1), 60.0)
    return motorways, ramps, motorway_points


def roads_both_ways(steps: Ints, speed: Floats | float) -> Roads:
    """Roads that lead both ways.

    Args:
        steps: The places that each joins, (r, 2).
        speed: Speed limits, km/h, (r,).
    """
    count = len(steps)
    return Roads(
        first=steps[:, 0],
        second=steps[:, 1],
        speed=np.broadcast_to(speed, count).astype(np.float64),
        is_one_way=np.zeros(count, dtype=bool),
    )


def build_network(
    name: str, points: Floats, roads: Roads, rng: Any, *, length: Floats | None = None
) -> RoadNetwork:
    """The network of roads with heights and legal turns: its largest strongly connected part.

    Args:
        name: Of the network.
        points: Metres east and north of each place, (p, 2).
        roads: Between places.
        rng: Draws the heights.
        length: Metres of each road, (r,); by default a little more than the straight line.
    """
    two_way = ~roads.is_one_way
    tail = np.concatenate([roads.first, roads.second[two_way]])
    head = np.concatenate([roads.second, roads.first[two_way]])
    speed = np.concatenate([roads.speed, roads.speed[two_way]]) / 3.6
    if length is None:
        length = 1.05 * np.hypot(*(points[roads.first] - points[roads.second]).T)
    length = np.concatenate([length, length[two_way]])
    turns = _turns(tail, head, len(points))
    labels = components(turns, len(tail), directed=True)
    largest = np.bincount(labels).argmax()
    is_used = labels == largest
    edges = np.flatnonzero(is_used)
    number = np.cumsum(is_used) - 1
    turns = number[turns[is_used[turns].all(axis=1)]]
    places, ends = np.unique(
        np.concatenate([tail[edges], head[edges]]), return_inverse=True
    )
    tail, head = ends.reshape(2, -1)
    points = points[places]
    junctions = np.column_stack([points, _heights(points, rng)])
    everyone = {"passenger": np.ones(len(edges), dtype=bool)}
    return RoadNetwork(
        name=name,
        junction_ids=tuple(f"j{place}" for place in range(len(places))),
        junctions=junctions.round(2),
        edge_ids=tuple(f"r{edge}" for edge in range(len(edges))),
        tail=tail,
        head=head,
        length=np.maximum(length[edges], 5.0).round(2),
        speed=speed[edges],
        permits=everyone,
        connections=turns,
        turn_permits={"passenger": np.ones(len(turns), dtype=bool)},
    )


def _turns(tail: Ints, head: Ints, places: int) -> Ints:
    """All turns; back to where one came from only where there is no other way, (c, 2)."""
    by_tail = np.argsort(tail, kind="stable")
    leaving = np.bincount(tail, minlength=places)
    starts = np.cumsum(leaving) - leaving
    counts = leaving[head]
    first = np.repeat(np.arange(len(tail)), counts)
    rank = np.arange(len(first)) - np.repeat(np.cumsum(counts) - counts, counts)
    second = by_tail[starts[head[first]] + rank]
    is_uturn = head[second] == tail[first]
    ways_on = np.bincount(first[~is_uturn], minlength=len(tail))
    is_legal = ~is_uturn | (ways_on[first] == 0)
    turns: Ints = np.stack([first, second], axis=1)[is_legal]
    return turns


def _heights(points: Floats, rng: Any) -> Floats:
    """A sum of waves from 3 to 60 kilometres long, the longer the higher, (j,)."""
    height = np.zeros(len(points))
    for wavelength in np.geomspace(3_000.0, 60_000.0, 12):
        angle, phase = rng.uniform(0.0, 2.0 * np.pi, size=2)
        vector = 2.0 * np.pi / wavelength * np.array([np.cos(angle), np.sin(angle)])
        amplitude = _HILL * np.sqrt(wavelength / 60_000.0)
        height += amplitude * np.cos(points @ vector + phase)
    lifted: Floats = height - height.min()
    return lifted
