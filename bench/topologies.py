"""Real topologies without places: Luxembourg's and San Francisco's roads, with drawn lengths and heights.

The files list pairs of junctions, and nothing else. Places are the numbers of roads from two junctions far
apart; heights are waves over these places; lengths are drawn. All roads lead both ways.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.data_files import search_path
from superarm.core.errors import MissingDataError
from superarm.core.streams import stream
from superarm.roads.networks import RoadNetwork

from .country import build_network, roads_both_ways

_MEAN_LENGTH = 120.0  # metres
_SPEEDS = (30.0, 50.0, 90.0)  # km/h
_SPEED_SHARES = (0.3, 0.5, 0.2)


class _File(NamedTuple):
    """A file of pairs of junctions."""

    name: str
    first: int  # the number of the first junction


TOPOLOGIES = {
    "luxembourg": _File("luxembourg_osm.mtx.xz", 1),
    "san-francisco": _File("sf_road_223001.txt.xz", 0),
}


def read_topology(name: str) -> RoadNetwork:
    """A network of real topology.

    Args:
        name: One of ``TOPOLOGIES``.
    """
    file = TOPOLOGIES[name]
    path = _find(file)
    with lzma.open(path, "rt", encoding="utf-8") as text:
        numbers = np.loadtxt(text, dtype=np.int64)
    return _network(name, numbers - file.first)


def _find(file: _File) -> Path:
    for folder in search_path():
        path = folder / "big_graphs" / file.name
        if path.is_file():
            return path
    raise MissingDataError(
        f"{file.name} is not in the folder big_graphs of your data; set SUPERARM_DATA"
    )


def _network(name: str, pairs: Ints) -> RoadNetwork:
    rng = stream(1, "topology", len(pairs))
    pairs = _without_repeats(pairs)
    points = _places(pairs)
    length = rng.gamma(2.0, 0.5 * _MEAN_LENGTH, size=len(pairs))
    speed = rng.choice(_SPEEDS, p=_SPEED_SHARES, size=len(pairs))
    roads = roads_both_ways(pairs, speed)
    return build_network(name, points, roads, rng, length=length)


def _without_repeats(pairs: Ints) -> Ints:
    """Each pair of different junctions once, in either order, (r, 2)."""
    either_order = np.sort(pairs, axis=1)
    unique: Ints = np.unique(either_order, axis=0)
    is_loop = unique[:, 0] == unique[:, 1]
    without_loops: Ints = unique[~is_loop]
    return without_loops


def _places(pairs: Ints) -> Floats:
    """The mean length times the number of roads from two junctions, for each junction, (j, 2)."""
    from scipy.sparse import coo_array

    count = int(pairs.max()) + 1
    ends = tuple(pairs.T)
    links = np.ones(len(pairs))
    graph = coo_array((links, ends), shape=(count, count)).tocsr()
    first_corner = int(_roads_from(graph, 0).argmax())
    from_first = _roads_from(graph, first_corner)
    second_corner = int(from_first.argmax())
    from_second = _roads_from(graph, second_corner)
    return _MEAN_LENGTH * np.stack([from_first, from_second], axis=1)


def _roads_from(graph: Any, junction: int) -> Floats:
    """How many roads each junction is away; 0 where none leads to it, (j,)."""
    from scipy.sparse.csgraph import dijkstra

    roads: Floats = dijkstra(graph, directed=False, indices=[junction])[0]
    return np.where(np.isfinite(roads), roads, 0.0)
