"""Maps: they show the network, and damaged ones are rejected."""

import numpy as np
import pytest

from superarm.core.errors import StateError
from superarm.core.road_map import RoadMap
from superarm.roads.networks import generate_city, road_map

GRAPH = generate_city(edges=250, seed=3).line_graph()


def test_map_round_trip_is_accurate_to_a_centimetre():
    drawn = road_map(GRAPH, 3, 5)
    restored = RoadMap.from_arrays(drawn.as_arrays())
    assert (restored.start, restored.goal, len(restored)) == (3, 5, len(GRAPH))
    assert np.abs(restored.points - drawn.points).max() <= 0.0051
    for edge in (0, 7, len(GRAPH) - 1):
        course = drawn.course(edge)
        ends = GRAPH.network.junctions[:, :2]
        network_edge = GRAPH.edges[edge]
        assert np.allclose(course[0], ends[GRAPH.network.tail[network_edge]], atol=25.0)
        assert np.allclose(
            course[-1], ends[GRAPH.network.head[network_edge]], atol=25.0
        )


@pytest.mark.parametrize(
    "change",
    [
        {"trip": np.array([1])},
        {"trip": np.array([0, 10**6])},
        {"trip": np.array(["a", "b"])},
        {"trip": np.array([-1, 1])},
        {"trip": np.array([-2, -2])},
        {"speed": np.array(3.0)},
        {"height": np.ones(4)},
        {"points": np.ones(8)},
        {"offsets": np.zeros(len(GRAPH) + 1, dtype=int)},
        {"speed": np.full(len(GRAPH), np.nan)},
    ],
)
def test_a_damaged_map_is_refused(change):
    arrays = {**road_map(GRAPH, 0, 1).as_arrays(), **change}
    with pytest.raises(StateError, match="the map"):
        RoadMap.from_arrays(arrays)


def test_a_map_of_several_trips_has_no_ends():
    several = road_map(GRAPH)
    assert several.ends == RoadMap.from_arrays(several.as_arrays()).ends == ()
    assert road_map(GRAPH, 0, 1).ends == (0, 1)


def test_a_map_that_lacks_something_is_refused():
    arrays = road_map(GRAPH, 0, 1).as_arrays()
    del arrays["height"]
    with pytest.raises(StateError, match="lacks"):
        RoadMap.from_arrays(arrays)
