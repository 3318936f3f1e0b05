"""Generated cities: properties that drivers, planners and bandits rely on."""

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra

from superarm.core.errors import InfeasibleError, InputError
from superarm.roads.energy import Vehicle
from superarm.roads.networks import RoadNetwork, generate_city, suggest_trip
from superarm.roads.networks.road import VEHICLE_CLASSES

CITIES = [{"seed": 0}, {"seed": 1}, {"seed": 3, "edges": 5000}]


@pytest.fixture(scope="module", params=CITIES, ids=str)
def city(request):
    return generate_city(**request.param)


def kinds(network):
    return np.array(
        [name.lstrip("-").rstrip("0123456789") for name in network.edge_ids]
    )


def crossings(network):
    """Pairs of roads that cross without a junction, by a sweep over all pairs of near ones."""
    forward = np.array([not name.startswith("-") for name in network.edge_ids])
    coordinates = network.junctions[:, :2]
    a, b = coordinates[network.tail[forward]], coordinates[network.head[forward]]
    names = np.array(network.edge_ids)[forward]

    def turn(p, q, r):
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (
            q[..., 1] - p[..., 1]
        ) * (r[..., 0] - p[..., 0])

    pairs = []
    for row in range(len(a)):
        near = (
            np.flatnonzero(np.abs(a[row + 1 :] - a[row]).max(axis=1) < 800.0) + row + 1
        )
        hit = turn(a[row], b[row], a[near]) * turn(a[row], b[row], b[near]) < -1e-6
        hit &= turn(a[near], b[near], a[row]) * turn(a[near], b[near], b[row]) < -1e-6
        pairs += [(names[row], names[other]) for other in near[hit]]
    return pairs


def test_the_same_seed_gives_the_same_city():
    first, second = generate_city(edges=1000, seed=5), generate_city(edges=1000, seed=5)
    assert first.edge_ids == second.edge_ids
    assert first.junction_ids == second.junction_ids
    for name in ("junctions", "tail", "head", "length", "speed", "connections"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    other = generate_city(edges=1000, seed=6)
    assert not np.array_equal(first.junctions[:50], other.junctions[:50])


@pytest.mark.parametrize(
    ("edges", "seed"),
    [(200, 0), (200, 1), (500, 1), (1000, 0), (1000, 3), (7000, 2), (20_000, 1)],
)
def test_city_has_about_the_requested_number_of_edges(edges, seed):
    city = generate_city(edges=edges, seed=seed)
    assert abs(len(city.line_graph()) - edges) <= 0.05 * edges


def test_everything_is_strongly_connected(city):
    graph = city.line_graph()
    assert len(graph) == len(city.edge_ids)
    assert len(city.line_graph(uturns=False)) > 0.8 * len(graph)


def test_ids_can_be_read(city):
    assert set(kinds(city)) == {"r", "bridge", "ring"}
    number = {name: row for row, name in enumerate(city.edge_ids)}
    for name, row in number.items():
        forward = number.get(name[1:]) if name.startswith("-") else None
        if forward is not None:
            assert (city.tail[forward], city.head[forward]) == (
                city.head[row],
                city.tail[row],
            )


def test_lengths_and_speeds_fit(city):
    ends = city.junctions[:, :2]
    apart = np.hypot(*(ends[city.head] - ends[city.tail]).T)
    assert (city.length >= apart - 1e-9).all()
    assert (city.length <= apart + 0.011).all()
    assert city.length.min() >= 20.0
    assert city.length.max() <= 600.0
    assert set((city.speed * 3.6).round().astype(int).tolist()) == {30, 50, 70, 90}
    fast = city.speed > 24.0
    assert set(kinds(city)[fast]) == {"ring", "bridge"}
    assert fast[kinds(city) == "ring"].all()


def test_roads_meet_at_junctions_only_and_once(city):
    """Which also says that nothing but bridges crosses the river between its embankments."""
    assert len(set(zip(city.tail.tolist(), city.head.tolist(), strict=True))) == len(
        city.edge_ids
    )
    assert (city.tail != city.head).all()
    assert crossings(city) == []


def test_a_river_parts_the_city_but_for_its_bridges(city):
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    land = kinds(city) != "bridge"
    assert 6 <= (~land).sum() <= 40
    count = len(city.junction_ids)
    links = csr_array(
        (np.ones(land.sum()), (city.tail[land], city.head[land])), shape=(count, count)
    )
    label = connected_components(links, directed=False)[1]
    banks = np.sort(np.bincount(label))[::-1]
    assert banks[1] > 0.1 * count
    assert banks[:2].sum() > 0.98 * count
    assert (label[city.tail[~land]] != label[city.head[~land]]).all()


def test_hills_make_driving_interesting_but_roads_stay_drivable(city):
    graph, vehicle = city.line_graph(), Vehicle()
    energy = vehicle.energy(graph.length, graph.speed, graph.rise)
    assert 0.15 < (energy < 0.0).mean() < 0.35
    assert (energy - vehicle.potential(graph.rise)).min() > 0.0
    assert np.ptp(city.junctions[:, 2]) > 50.0
    grade = np.abs(city.rise) / city.length
    assert 0.07 < np.quantile(grade, 0.98) < 0.09
    assert grade.max() < 0.25
    z, bridge = city.junctions[:, 2], kinds(city) == "bridge"
    assert z[city.tail[bridge]].mean() < 0.2 * z.mean()
    assert np.ptp(generate_city(edges=500, hills=0.0).junctions[:, 2]) == 0.0


def test_one_way_streets_and_turn_restrictions_are_there(city):
    pairs = set(zip(city.tail.tolist(), city.head.tolist(), strict=True))
    one_way = np.array(
        [
            (head, tail) not in pairs
            for tail, head in zip(city.tail, city.head, strict=True)
        ]
    )
    assert 0.02 < one_way.mean() < 0.2
    assert not one_way[kinds(city) == "ring"].any()
    turns = set(map(tuple, city.connections.tolist()))
    assert len(turns) == len(city.connections)
    leaving = [[] for _ in city.junction_ids]
    for row, tail in enumerate(city.tail):
        leaving[tail].append(row)
    missing = 0
    for first, head in enumerate(city.head):
        others = [row for row in leaving[head] if city.head[row] != city.tail[first]]
        missing += sum((first, second) not in turns for second in others)
        back = [row for row in leaving[head] if city.head[row] == city.tail[first]]
        if others:  # one turns back only at dead ends
            assert not any((first, second) in turns for second in back)
    assert missing > 10
    assert set(city.permits) == set(VEHICLE_CLASSES)
    assert np.array_equal(city.permits["pedestrian"], city.speed < 24.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"edges": 100},
            "edges must be a whole number from 200 to 2,000,000, got 100",
        ),
        ({"edges": 3_000_000}, "edges must be .*, got 3000000"),
        ({"edges": 1e4}, "edges must be .*, got 10000.0"),
        ({"hills": -1.0}, "hills must be .*, got -1.0"),
        ({"seed": -1}, "seed must be .*, got -1"),
    ],
)
def test_bad_parameters_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        generate_city(**options)


# --- trips --------------------------------------------------------------------------------


def times(graph, source):
    weight = graph.successors.copy()
    weight.data = graph.travel_time[graph.turns[:, 1]]
    return dijkstra(weight, indices=[source])[0]


def test_a_trip_is_far_and_the_same_every_time(city):
    graph = city.line_graph()
    start, goal = suggest_trip(graph, seed=1)
    assert (start, goal) == suggest_trip(graph, seed=1)
    assert len({suggest_trip(graph, seed=seed) for seed in range(4)}) > 1
    since = times(graph, graph.number(start))
    far = times(graph, int(since.argmax())).max()
    assert 0.45 * far < since[graph.number(goal)] < 0.95 * far


def ring_road(count, *, closed=True):
    angle = 2.0 * np.pi * np.arange(count) / count
    turns = [[k, (k + 1) % count] for k in range(count if closed else count - 1)]
    return RoadNetwork(
        name="loop",
        junction_ids=tuple(f"j{k}" for k in range(count)),
        junctions=np.column_stack([np.cos(angle), np.sin(angle), np.zeros(count)]),
        edge_ids=tuple(f"e{k}" for k in range(count)),
        tail=np.arange(count),
        head=(np.arange(count) + 1) % count,
        length=np.ones(count),
        speed=np.ones(count),
        permits={"passenger": np.ones(count, dtype=bool)},
        connections=np.array(turns),
        turn_permits={"passenger": np.ones(len(turns), dtype=bool)},
    )


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_trip_exists_on_the_smallest_loops(count):
    graph = ring_road(count).line_graph()
    start, goal = suggest_trip(graph)
    assert start != goal


def test_network_without_trips_raises():
    lonely = ring_road(3, closed=False).line_graph()
    assert len(lonely) == 1
    with pytest.raises(InfeasibleError, match="no two edges"):
        suggest_trip(lonely)


@pytest.mark.slow
def test_a_large_city():
    city = generate_city(edges=100_000, seed=1)
    graph = city.line_graph()
    assert abs(len(graph) - 100_000) <= 5_000
    vehicle = Vehicle()
    energy = vehicle.energy(graph.length, graph.speed, graph.rise)
    assert 0.15 < (energy < 0.0).mean() < 0.35
    assert (energy - vehicle.potential(graph.rise)).min() > 0.0
    assert np.abs(city.rise / city.length).max() < 0.25
    start, goal = suggest_trip(graph)
    assert start != goal
