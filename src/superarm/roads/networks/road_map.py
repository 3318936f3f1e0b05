"""The map of a line graph."""

from __future__ import annotations

import numpy as np

from superarm.core.road_map import RoadMap

from .line_graph import LineGraph


def road_map(graph: LineGraph, start: int = -1, goal: int = -1) -> RoadMap:
    """Return the map of all edges of a line graph.

    Args:
        graph: The roads.
        start: The edge where the trip starts; −1 where there are several trips.
        goal: The edge where it ends; −1 where there are several trips.
    """
    network = graph.network
    points, counts = graph.courses()
    offsets = np.concatenate([[0], np.cumsum(counts)])
    z = network.junctions[:, 2]
    tail_height = z[network.tail[graph.edges]]
    head_height = z[network.head[graph.edges]]
    height = 0.5 * (tail_height + head_height)
    return RoadMap(
        points=points,
        offsets=offsets,
        speed=graph.speed,
        height=height,
        start=int(start),
        goal=int(goal),
    )
