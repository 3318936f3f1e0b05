"""Real topologies without places: Luxembourg's and San Francisco's roads, with drawn lengths and heights.

The files list pairs of junctions, and nothing else. Places are the numbers of roads from two junctions far
apart; heights are waves over these places; lengths are drawn. All roads lead both ways.
"""

from __future__ import annotations

import lzma
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.data_files import search_path
from superarm.core.errors import MissingDataError
from superarm.core.streams import stream
from superarm.roads.networks import RoadNetwork

from .country import build_network, roads_both_ways

_MEAN_LENGTH = 120.0  # metres


class _File(NamedTuple):
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
    for folder in search_path():
        path = folder / "big_graphs" / file.name
        if path.is_file():
            with lzma.open(path, "rt", encoding="utf-8") as text:
                pairs = np.loadtxt(text, dtype=np.int64) - file.first
            return _network(name, pairs)
    raise MissingDataError(
        f"{file.name} is not in the folder big_graphs of your data; set SUPERARM_DATA"
    )


def _network(name: str, pairs: Ints) -> RoadNetwork:
    rng = stream(1, "topology", len(pairs))
    pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    points = _places(pairs)
    length = rng.gamma(2.0, 0.5 * _MEAN_LENGTH, size=len(pairs))
    speed = rng.choice([30.0, 50.0, 90.0], p=[0.3, 0.5, 0.2], size=len(pairs))
    roads = roads_both_ways(pairs, speed)
    return build_network(name, points, roads, rng, length=length)


def _places(pairs: Ints) -> Floats:
    """The mean length times the number of roads from two junctions, for each junction, (j, 2)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    count = int(pairs.max()) + 1
    links = (np.ones(len(pairs)), tuple(pairs.T))
    graph: Any = coo_array(links, shape=(count, count)).tocsr()

    def roads_from(junction: int) -> Floats:
        found: Floats = dijkstra(graph, directed=False, indices=[junction])[0]
        return np.where(np.isfinite(found), found, 0.0)

    one = int(roads_from(0).argmax())
    from_one = roads_from(one)
    other = int(from_one.argmax())
    return _MEAN_LENGTH * np.stack([from_one, roads_from(other)], axis=1)
