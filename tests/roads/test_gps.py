"""GPS traces against the drives they came from: routes, times, gaps, energies."""

import dataclasses
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra

from superarm.core.errors import InfeasibleError, InputError, MissingExtraError
from superarm.roads.fleets import read_trips
from superarm.roads.gps import (
    MatchedTrace,
    energies_along,
    match_trace,
    pieces_of,
)
from superarm.roads.gps.matching import _estimate_noise
from superarm.roads.gps.street_map import street_map
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.networks.geography import from_utm

pytest.importorskip("leuvenmapmatching", reason="leuvenmapmatching is not installed")

ORIGIN = np.array([420_000.0, 5_300_000.0])
STANDING = 20.0  # seconds before the middle of every fifth edge


@pytest.fixture(scope="module")
def city():
    return generate_city(edges=800, seed=1)


@pytest.fixture(scope="module")
def graph(city):
    return city.line_graph()


def drawn_route(graph, seed, least=12):
    """A shortest way by random weights, which is no shortest way by metres."""
    rng = np.random.default_rng([seed, 1])
    turns = graph.successors.astype(float)
    while True:
        turns.data = (graph.length * np.exp(0.4 * rng.standard_normal(len(graph))))[
            turns.indices
        ]
        start, goal = rng.integers(len(graph), size=2)
        came, way = (
            dijkstra(turns, indices=start, return_predecessors=True)[1],
            [int(goal)],
        )
        while way[-1] != start:
            way.append(int(came[way[-1]]))
        if len(way) >= least:
            return way[::-1]


class Driven:
    """A car that keeps to the limits and stands now and then, from one middle of an edge to another."""

    def __init__(self, graph, route):
        network = graph.network
        ends = np.stack([network.tail, network.head], axis=1)[graph.edges[route]]
        self.route, self.corners = (
            route,
            network.junctions[np.append(ends[:, 0], ends[-1, 1]), :2],
        )
        metres = np.hypot(*np.diff(self.corners, axis=0).T)
        self.bounds = np.concatenate([[0.0], np.cumsum(metres)])
        half = 0.5 * metres / graph.speed[route]
        stands = STANDING * (np.arange(len(route)) % 5 == 3)
        clock = np.concatenate(
            [[0.0], np.cumsum(np.stack([half, stands, half], axis=1).ravel())]
        )
        middle = self.bounds[:-1] + 0.5 * metres
        stops = np.stack([self.bounds[:-1], middle, middle], axis=1).ravel()
        self.clock = clock - clock[2]  # it starts in the middle of the first edge
        self.places = np.append(stops, self.bounds[-1])
        self.crossed = self.clock[::3]

    def trace(self, every=1.0, noise=0.0, seed=0):
        times = np.arange(0.0, self.clock[-3], every)
        along = np.interp(times, self.clock, self.places)
        xy = np.stack(
            [np.interp(along, self.bounds, axis) for axis in self.corners.T], axis=1
        )
        return times, xy + noise * np.random.default_rng([seed, 2]).standard_normal(
            xy.shape
        )


def legal(graph, edges):
    turns = set(map(tuple, graph.turns.tolist()))
    return all(
        pair in turns
        for pair in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    )


def common(one, other):
    """Length of the longest common subsequence."""
    best = np.zeros(len(other) + 1, dtype=int)
    for edge in one:
        longer = best[:-1] + (np.asarray(other) == edge)
        best[1:] = np.maximum.accumulate(np.maximum(longer, best[1:]))
    return best[-1]


@pytest.mark.parametrize("seed", range(4))
def test_a_trace_without_noise_is_the_route_at_its_times(graph, seed):
    driven = Driven(graph, drawn_route(graph, seed))
    times, places = driven.trace()
    matched = match_trace(graph, places, times)
    assert matched.edges.tolist() == driven.route
    assert legal(graph, matched.edges)
    assert not matched.guessed.any()
    assert matched.complete.tolist() == [False] + [True] * (len(driven.route) - 2) + [
        False
    ]
    # Between readings one second apart a crossing is off by less than that.
    np.testing.assert_array_less(np.abs(matched.leave[:-1] - driven.crossed[1:-1]), 1.0)
    np.testing.assert_array_equal(matched.enter[1:], matched.leave[:-1])
    assert (matched.enter[0], matched.leave[-1]) == (times[0], times[-1])
    assert matched.missed == 0
    assert matched.worst < 1e-6


# Measured: 0.99 of the edges up to 5 s and 0.94 at 15 s, none of those found wrong; Monaco's are in the
# guide.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "every", "least"),
    [
        (0, 5, 0.95),
        (5, 1, 0.95),
        (5, 5, 0.95),
        (10, 1, 0.95),
        (10, 5, 0.95),
        (5, 15, 0.85),
        (10, 15, 0.85),
    ],
)
def test_edges_are_found_through_noise_and_sparseness(graph, noise, every, least):
    right = wanted = returned = 0
    for seed in range(3):
        driven = Driven(graph, drawn_route(graph, seed))
        times, places = driven.trace(every, noise, seed)
        matched = match_trace(graph, places, times, noise=max(noise, 5.0))
        assert legal(graph, matched.edges)
        assert (np.diff(matched.enter) >= 0.0).all()
        edges = matched.edges[matched.complete].tolist()
        right += common(driven.route, edges)
        wanted, returned = wanted + len(driven.route) - 2, returned + len(edges)
    assert right >= least * wanted
    assert right >= 0.95 * returned


def test_longitudes_and_latitudes_are_found_like_metres(city, graph):
    east_north = city.junctions[:, :2] + ORIGIN
    placed = dataclasses.replace(
        city, lon_lat=from_utm(east_north, zone=32)
    ).line_graph()
    times, places = Driven(graph, drawn_route(graph, 0)).trace(5.0, 5.0)
    on_earth = from_utm(places + ORIGIN, zone=32)
    expected = match_trace(graph, places, times)
    for match in (
        match_trace(placed, on_earth, times),
        match_trace(placed, places, times, metres=True),
    ):
        np.testing.assert_array_equal(match.edges, expected.edges)
        np.testing.assert_allclose(match.enter, expected.enter, atol=1e-3)
    with pytest.raises(
        InputError, match=r"within 500 m .* are longitude and latitude swapped"
    ):
        match_trace(placed, on_earth[:, ::-1], times)
    askew = dataclasses.replace(
        city, lon_lat=from_utm(east_north * 1.1, zone=32) * [1.0, 0.9]
    )
    with pytest.raises(InputError, match="m off its x and y; give places in metres"):
        match_trace(askew.line_graph(), on_earth, times)


def test_points_away_from_roads_are_dropped(graph):
    driven = Driven(graph, drawn_route(graph, 2))
    times, places = driven.trace()
    places[[5, 40, 41]] += 1e5
    matched = match_trace(graph, places, times)
    assert matched.edges.tolist() == driven.route
    assert matched.missed == 3


def test_a_gap_is_bridged_by_the_shortest_way_and_marked(graph):
    driven = Driven(graph, drawn_route(graph, 3, least=20))
    times, places = driven.trace()
    begin, end = np.searchsorted(times, driven.crossed[[5, 15]])
    seen = np.concatenate([np.arange(begin), np.arange(end, len(times))])
    assert np.hypot(*(places[end] - places[begin - 1])) > 500.0
    matched = match_trace(graph, places[seen], times[seen])
    assert legal(graph, matched.edges)
    assert matched.guessed.any()
    assert not (matched.guessed & matched.complete).any()
    edges = matched.edges[matched.complete].tolist()
    assert edges == [
        *driven.route[1:4],
        *driven.route[16:-1],
    ]  # all but the ends of both parts


def test_without_times_the_clock_counts_points(graph):
    times, places = Driven(graph, drawn_route(graph, 1)).trace()
    with_times = match_trace(graph, places, times)
    np.testing.assert_array_equal(match_trace(graph, places).enter, with_times.enter)


def small(**changes):
    """Two roads from b to c, straight or around; from the straight one only d may be reached, not e."""
    parts = {
        "name": "small",
        "junction_ids": tuple("abcde"),
        "junctions": np.array(
            [[0, 0, 0], [300, 0, 0], [600, 0, 0], [900, 0, 0], [600, 300, 0.0]]
        ),
        "edge_ids": ("ab", "ba", "straight", "around", "cd", "ce", "dc", "ec", "cb"),
        "tail": np.array([0, 1, 1, 1, 2, 2, 3, 4, 2]),
        "head": np.array([1, 0, 2, 2, 3, 4, 2, 2, 1]),
        "length": np.array([300, 300, 300, 420, 300, 300, 300, 300, 300.0]),
        "speed": np.full(9, 10.0),
        "connections": np.array(
            [
                [0, 2],
                [0, 3],
                [2, 4],
                [3, 4],
                [3, 5],
                [4, 6],
                [5, 7],
                [6, 8],
                [7, 8],
                [8, 1],
                [1, 0],
            ]
        ),
    } | changes
    ones = (
        {"passenger": np.ones(9, dtype=bool)},
        {"passenger": np.ones(len(parts["connections"]), dtype=bool)},
    )
    return RoadNetwork(**parts, permits=ones[0], turn_permits=ones[1])


def walked(*corners):
    points = [np.linspace(begin, end, 31)[:-1] for begin, end in pairwise(corners)]
    return np.concatenate([*points, [corners[-1]]]).astype(float)


def test_a_gap_that_no_route_joins_is_an_error():
    network = small()
    leaves_ab = network.connections[:, 0] == network.edge_ids.index("ab")
    graph = LineGraph(
        network=network,
        edges=np.arange(len(network.edge_ids)),
        turns=network.connections[~leaves_ab],
    )
    places = np.concatenate([walked((20, 0), (200, 0)), walked((720, 0), (850, 0))])
    with pytest.raises(InfeasibleError, match="gap between edges ab and cd"):
        match_trace(graph, places)


def test_turns_that_are_forbidden_are_not_driven():
    graph = small().line_graph()
    straight_on = walked((20, 0), (600, 0), (850, 0))
    assert [graph.ids[edge] for edge in match_trace(graph, straight_on).edges][1] in (
        "straight",
        "around",
    )
    to_e = walked((20, 0), (600, 0), (600, 250))
    assert [graph.ids[edge] for edge in match_trace(graph, to_e).edges] == [
        "ab",
        "around",
        "ce",
    ]
    back = walked((850, 0), (300, 0), (20, 0))
    assert [graph.ids[edge] for edge in match_trace(graph, back).edges] == [
        "dc",
        "cb",
        "ba",
    ]


def test_a_junction_belongs_to_the_edge_before_it():
    """Courses meet in its middle: half of its metres later one leaves the edge."""
    turns = len(small().connections)
    places = walked((850, 0), (20, 0))
    times = np.hypot(*(places - places[0]).T) / 10.0  # at 10 m/s
    without = match_trace(small().line_graph(), places, times)
    long = match_trace(
        small(turn_length=np.full(turns, 16.0)).line_graph(), places, times
    )
    np.testing.assert_allclose(without.leave[:-1], [25.0, 55.0], atol=1e-6)
    np.testing.assert_allclose(long.leave[:-1], [25.8, 55.8], atol=1e-6)
    np.testing.assert_array_equal(long.enter[1:], long.leave[:-1])


def test_of_two_roads_between_the_same_junctions_the_one_driven_is_found():
    network = small()
    places = network.junctions[:, :2]
    shapes = [places[[i, j]] for i, j in zip(network.tail, network.head, strict=True)]
    shapes[3] = np.array(
        [[300, 0], [350, -100], [450, -100.4], [550, -100], [600, 0.0]]
    )
    graph = small(shapes=tuple(shapes)).line_graph()
    for middle, name in (((450, 0), "straight"), ((450, -100), "around")):
        corners = [(350, middle[1]), (550, middle[1])]
        matched = match_trace(
            graph, walked((20, 0), (300, 0), *corners, (600, 0), (850, 0))
        )
        assert [graph.ids[edge] for edge in matched.edges] == ["ab", name, "cd"]


def matched_at(crossings, *, guessed=()):
    count = len(crossings) - 1
    unsure = np.isin(np.arange(count), guessed)
    complete = ~unsure & (np.arange(count) > 0) & (np.arange(count) < count - 1)
    return MatchedTrace(
        edges=np.arange(100, 100 + count), enter=crossings[:-1], leave=crossings[1:], complete=complete,
        guessed=unsure, median=0.0, worst=0.0, missed=0,
    )  # fmt: skip


@pytest.mark.parametrize("every", [0.5, 2.0, 10.0, 40.0])
@pytest.mark.parametrize("seed", range(3))
def test_energies_are_off_by_no_more_than_the_bound(every, seed):
    rng = np.random.default_rng([seed, 3])
    crossings = np.cumsum(rng.uniform(2.0, 30.0, 60))
    matched = matched_at(crossings, guessed=(20, 21))
    knots = np.arange(0.0, crossings[-1] + 50.0, 0.25)
    power = rng.uniform(
        -5.0, 20.0, len(knots) - 1
    )  # Wh a second, redrawn every quarter of one
    counter = np.concatenate([[0.0], np.cumsum(0.25 * power)])
    times = np.arange(0.0, knots[-1], every)
    sections = energies_along(matched, times, np.interp(times, knots, counter))
    true = np.interp(crossings, knots, counter)
    last = 0
    for edges, energy, seconds in sections:
        begin, end = edges[0] - 100, edges[-1] - 99
        assert list(edges) == list(range(100 + begin, 100 + end))
        assert begin >= max(last, 1)
        assert end <= 59 - 1
        assert not {120, 121} & set(edges)
        last = end
        assert seconds == pytest.approx(crossings[end] - crossings[begin])
        assert abs(energy - (true[end] - true[begin])) <= 0.1 * seconds * 25.0 + 1e-9
    if (
        every == 0.5
    ):  # (t − a)(b − t)/(b − a) is at most 1/8 s, twice, and edges above 2.5 s are fine
        assert sum(len(edges) == 1 for edges, *_ in sections) >= 54
    covered = sum(len(edges) for edges, *_ in sections)
    assert covered >= (55 if every <= 2.0 else 30)


def test_a_reading_at_every_boundary_gives_every_edge_exactly():
    crossings = np.cumsum(np.random.default_rng(4).uniform(2.0, 30.0, 20))
    counter = np.random.default_rng(5).uniform(size=20).cumsum()
    sections = energies_along(matched_at(crossings), crossings, counter, doubt=0.0)
    assert [edges for edges, *_ in sections] == [(100 + edge,) for edge in range(1, 18)]
    np.testing.assert_allclose(
        [section.energy for section in sections], np.diff(counter)[1:-1], rtol=1e-12
    )


def test_sections_grow_until_their_ends_are_a_tenth_of_them():
    """Edges of 16 s that end in the middle between readings, each unsure by 2 · 2 / 4 seconds."""
    crossings, times = 2.0 + 16.0 * np.arange(20), np.arange(0.0, 400.0, 4.0)
    for doubt, edges in (
        ({}, 2),
        ({"doubt": 0.1}, 2),
        ({"doubt": 0.05}, 3),
        ({"doubt": 0.125}, 1),
    ):
        sections = energies_along(matched_at(crossings), times, 2.0 * times, **doubt)
        assert {len(section.edges) for section in sections[:-1]} == {edges}


def test_coarse_counters_give_longer_sections():
    crossings = np.arange(0.0, 400.0, 10.0)
    times = np.arange(0.0, 400.0)
    smooth = energies_along(matched_at(crossings), times, 2.0 * times)
    coarse = energies_along(
        matched_at(crossings), times, np.floor(2.0 * times / 50.0) * 50.0
    )
    assert len(smooth) == 37
    assert 5 <= len(coarse) < 30
    for (
        section
    ) in coarse:  # by a counter that reports 2 Wh/s at every 50 Wh, which is 25 s
        assert section.energy == pytest.approx(2.0 * section.seconds)
    assert energies_along(matched_at(crossings), times, np.zeros(400)) == ()
    outside = energies_along(matched_at(crossings), times[:100], 2.0 * times[:100])
    assert max(edge for section in outside for edge in section.edges) == 108


def test_bad_input_is_refused(graph, city, monkeypatch):
    times, places = Driven(graph, drawn_route(graph, 0)).trace()
    with pytest.raises(
        InputError, match="times must rise, but 0 follows 1; sort the log"
    ):
        match_trace(graph, places[:3], [0.0, 1.0, 0.0])
    with pytest.raises(InputError, match="times has 3 entries"):
        match_trace(graph, places, times[:3])
    with pytest.raises(InputError, match="places has 3 columns"):
        match_trace(graph, np.zeros((4, 3)))
    with pytest.raises(
        InputError, match="no geographic reference; pass places in metres"
    ):
        match_trace(graph, places, times, metres=False)
    with pytest.raises(InputError, match="no point of the trace is within 500 m"):
        match_trace(graph, places + 1e6, times)
    with pytest.raises(InputError, match=r"noise must be .*, got 0"):
        match_trace(graph, places, times, noise=0.0)
    with pytest.raises(InputError, match="cumulative_wh has 2 entries"):
        energies_along(match_trace(graph, places, times), times, [0.0, 1.0])
    monkeypatch.setitem(sys.modules, "leuvenmapmatching.util.dist_euclidean", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'leuvenmapmatching<2,>="):
        match_trace(city.line_graph(), places, times)


def test_matching_recovers_sumo_drives(network):
    from superarm.roads.networks import read_sumo
    from superarm.roads.sumo import Driver

    route = ["bc", "cd", "ds", "s-t1", "t1-t2", "t2-e", "ef", "fg"]
    with Driver(network) as driver:
        drive = driver.drive(route)
    graph = read_sumo(network).line_graph()
    matched = match_trace(
        graph, drive.positions[:, 1:], drive.positions[:, 0], metres=True
    )
    assert [graph.ids[edge] for edge in matched.edges] == route
    assert matched.worst < 5.0  # the lane is off the middle of the road
    # Seconds inside a junction belong to the edge before it. Points are 1 s apart, and half a second is
    # as far as the lane, the car's own length and the middle of a junction put them off.
    assert np.abs(matched.leave - np.cumsum(drive.seconds))[:-1].max() < 1.5


def test_traces_are_split_where_clock_or_places_jump() -> None:
    graph = generate_city(edges=200, seed=1).line_graph(uturns="dead-ends")
    start = (
        graph.network.lon_lat[0] if graph.network.lon_lat is not None else (0.0, 0.0)
    )
    places = np.asarray(start) + np.arange(60)[:, None] * np.array([[1e-5, 0.0]])
    if graph.network.lon_lat is None:
        places = np.arange(60)[:, None] * np.array([[5.0, 0.0]])
    times = np.arange(60.0)
    assert pieces_of(graph, places, times) == [slice(0, 60)]
    ahead = times + 3600.0 * (times >= 20.0)
    assert pieces_of(graph, places, ahead) == [slice(0, 20), slice(20, 60)]
    away = places.copy()
    away[40:] += 3000.0 if graph.network.lon_lat is None else 0.1
    assert pieces_of(graph, away, times) == [slice(0, 40), slice(40, 60)]
    sparse = 60.0 * times  # a point a minute is no jump
    assert pieces_of(graph, places, sparse) == [slice(0, 60)]
    with pytest.raises(InputError, match="must rise"):
        pieces_of(graph, places, times - 100.0 * (times >= 20.0))
    with pytest.raises(InputError, match="at most 100,000"):
        match_trace(graph, np.zeros((100_001, 2)))


def test_noise_is_estimated_from_the_trace() -> None:
    """One long straight road: the median distance from it is 0.674 σ; 5 m is the least."""
    graph = generate_city(edges=200, seed=1).line_graph(uturns="dead-ends")
    streets = street_map(graph)
    rng = np.random.default_rng(0)
    parts = rng.integers(len(streets.begin), size=2000)
    places = (
        streets.begin[parts]
        + rng.uniform(size=(2000, 1)) * (streets.end - streets.begin)[parts]
    )
    assert _estimate_noise(streets, places) == 5.0
    noisy = places + rng.normal(0.0, 12.0, places.shape)
    assert 8.0 < _estimate_noise(streets, noisy) < 13.0
    assert _estimate_noise(streets, noisy) < _estimate_noise(
        streets, places + rng.normal(0.0, 25.0, places.shape)
    )


def test_hours_of_a_trace_begin_with_its_first_point(city, graph, tmp_path):
    """Whatever its clock counts from."""
    driven = Driven(graph, drawn_route(graph, 0))
    times, places = driven.trace()
    east_north = city.junctions[:, :2] + ORIGIN
    referenced = dataclasses.replace(city, lon_lat=from_utm(east_north, zone=32))
    rows = [
        f"a,{100_000.0 + time},{lat},{lon},{time},08:30"
        for time, (lon, lat) in zip(
            times.tolist(), from_utm(places + ORIGIN, zone=32).tolist(), strict=True
        )
    ]
    path = tmp_path / "trace.csv"
    path.write_text("trip,time_s,lat,lon,counter_wh,time\n" + "\n".join(rows))
    (trip,) = read_trips(path, referenced.line_graph())
    hours = [section.hour for section in trip.sections]
    edges = [edge for section in trip.sections for edge in section.edges]
    first = [graph.ids[edge] for edge in driven.route].index(edges[0])
    # Between points one second apart a crossing is off by less than that.
    entered = driven.crossed[first]
    assert abs(3600.0 * (hours[0] - 8.5) - entered) < 1.0
    assert all(one < other for one, other in pairwise(hours))
    assert hours[-1] < 8.5 + times[-1] / 3600.0
