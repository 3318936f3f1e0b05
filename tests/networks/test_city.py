"""Generated cities: what a driver, a planner and a bandit would notice if it were wrong."""

import numpy as np
import pytest
from scipy.sparse.csgraph import dijkstra

from superarm.errors import InfeasibleError, InputError
from superarm.networks import RoadNetwork, Vehicle
from superarm.networks.city import generate_city, plan_city
from superarm.networks.road import VEHICLE_CLASSES
from superarm.networks.trips import suggest_trip

CITIES = [{"seed": 0}, {"seed": 1, "rivers": 2}, {"seed": 2, "rivers": 0}, {"seed": 3, "edges": 5000}]


@pytest.fixture(scope="module", params=CITIES, ids=str)
def case(request):
    options = {"edges": 2000, **request.param}
    return options, generate_city(**options)


def kinds(network):
    return np.array([name.lstrip("-").rstrip("0123456789") for name in network.edge_ids])


def crosses(a, b, c, d):
    """Do the segments a–b and c–d cross? Arrays of points, broadcast against each other."""

    def turn(p, q, r):
        return (q[..., 0] - p[..., 0]) * (r[..., 1] - p[..., 1]) - (q[..., 1] - p[..., 1]) * (
            r[..., 0] - p[..., 0]
        )

    return (turn(a, b, c) * turn(a, b, d) < 0) & (turn(c, d, a) * turn(c, d, b) < 0)


def test_the_same_seed_gives_the_same_city():
    first, second = generate_city(edges=1000, seed=5), generate_city(edges=1000, seed=5)
    assert first.edge_ids == second.edge_ids
    assert first.junction_ids == second.junction_ids
    for name in ("junctions", "tail", "head", "length", "speed", "connections"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert all(map(np.array_equal, first.shapes, second.shapes))
    other = generate_city(edges=1000, seed=6)
    assert not np.array_equal(first.junctions[:50], other.junctions[:50])


@pytest.mark.parametrize(
    ("edges", "seed"), [(200, 0), (200, 1), (500, 1), (1000, 0), (1000, 3), (7000, 2), (20_000, 1)]
)
def test_a_city_has_about_the_edges_asked_for(edges, seed):
    city = generate_city(edges=edges, seed=seed)
    assert abs(len(city.line_graph()) - edges) <= 0.1 * edges


def test_all_that_cars_may_use_is_strongly_connected(case):
    _, city = case
    graph = city.line_graph()
    assert len(graph) == city.permits["passenger"].sum()
    assert len(city.line_graph(uturns=False)) > 0.8 * len(graph)


def test_ids_can_be_read(case):
    options, city = case
    assert set(kinds(city)) <= {"r", "bridge", "ring", "ramp"}
    assert ("bridge" in kinds(city)) == (options.get("rivers", 1) > 0)
    number = {name: row for row, name in enumerate(city.edge_ids)}
    for name, row in number.items():
        if name.startswith("-"):
            forward = number.get(name[1:])
            if forward is not None:
                assert (city.tail[forward], city.head[forward]) == (city.head[row], city.tail[row])
                assert np.array_equal(city.shapes[forward], city.shapes[row][::-1])


def test_lengths_speeds_and_courses_fit(case):
    _, city = case
    ends = city.junctions[:, :2]
    apart = np.hypot(*(ends[city.head] - ends[city.tail]).T)
    assert (city.length >= apart - 1e-9).all()
    assert city.length.min() >= 20.0
    assert city.length.max() <= 600.0
    for row, shape in enumerate(city.shapes):
        assert np.array_equal(shape[0], ends[city.tail[row]])
        assert np.array_equal(shape[-1], ends[city.head[row]])
        assert np.hypot(*np.diff(shape, axis=0).T).sum() == pytest.approx(city.length[row], abs=0.011)
    limits = set((city.speed * 3.6).round().astype(int).tolist())
    assert {30, 50, 70} <= limits <= {30, 50, 60, 70, 90, 100, 110}


def test_no_two_edges_join_the_same_junctions_in_the_same_direction(case):
    _, city = case
    assert len(set(zip(city.tail.tolist(), city.head.tolist(), strict=True))) == len(city.edge_ids)
    assert (city.tail != city.head).all()


def test_rivers_are_crossed_on_bridges_only(case):
    options, city = case
    plan = plan_city(**options)
    kind = kinds(city)
    crossing = np.zeros(len(city.edge_ids), dtype=bool)
    courses = [course[:, None] for course in city.shapes]
    for river in plan.rivers:
        for row, course in enumerate(courses):
            near = np.hypot(*(river - course[0]).T) < 600.0
            near[1:] &= near[:-1]
            after = np.flatnonzero(near[1:]) + 1
            hits = crosses(course[:-1], course[1:], river[after - 1], river[after])
            crossing[row] |= bool(hits.any())
    assert set(kind[crossing]) <= {"bridge", "ring", "ramp"}
    assert crossing[kind == "bridge"].all()
    if plan.rivers:
        assert 2 <= len({city.edge_ids[row].lstrip("-") for row in np.flatnonzero(crossing)}) <= 40


def test_hills_make_driving_interesting_but_roads_stay_drivable(case):
    """What ``generate_city`` promises of hills, and no road steeper than its class may be."""
    _, city = case
    graph, vehicle = city.line_graph(), Vehicle()
    energy = vehicle.energy(graph.length, graph.speed, graph.rise)
    assert 1 / 5 < (energy < 0.0).mean() < 1 / 3
    assert (energy - vehicle.potential(graph.rise)).min() > 0.0
    assert np.ptp(city.junctions[:, 2]) > 100.0
    steepest = np.where(kinds(city) == "ring", 0.06, 0.12)
    rounded = 0.01  # both ends' heights to the centimetre
    assert (np.abs(city.rise) <= steepest * city.length + rounded).all()


def test_the_land_is_low_at_rivers_and_roads_never_lie_above_it():
    city, plan = generate_city(seed=1), plan_city(seed=1)
    at = city.junctions[:, :2]
    z, land, away = city.junctions[:, 2], plan.height(at), plan.river_distance(at)
    assert (z <= land + 0.011).all()
    assert z[away < 100.0].mean() < 0.3 * z[away > 500.0].mean()
    assert np.ptp(generate_city(edges=500, hills=0.0).junctions[:, 2]) == 0.0


def test_motorways_are_one_way_and_joined_by_ramps(case):
    _, city = case
    kind = kinds(city)
    names = set(city.edge_ids)
    for which in ("ring", "ramp"):
        chosen = np.flatnonzero(kind == which)
        assert len(chosen) >= 8
        assert not any(f"-{city.edge_ids[row]}" in names for row in chosen)
        assert not city.permits["pedestrian"][chosen].any()
    first, second = city.connections.T
    # From a motorway one gets to motorway or ramp, from a ramp anywhere but never the wrong way.
    assert set(kind[second[kind[first] == "ring"]]) == {"ring", "ramp"}
    assert set(kind[first[kind[second] == "ring"]]) == {"ring", "ramp"}
    assert set(kind[second[kind[first] == "ramp"]]) > {"ring"}
    assert city.speed[kind == "ring"].min() >= 25.0 - 1e-9


def test_one_way_streets_turn_restrictions_and_closed_streets_are_there(case):
    _, city = case
    street = np.isin(kinds(city), ["r", "bridge"])
    pairs = set(zip(city.tail.tolist(), city.head.tolist(), strict=True))
    alone = np.array(
        [(head, tail) not in pairs for tail, head in zip(city.tail, city.head, strict=True)]
    )
    assert 0.02 < alone[street].mean() < 0.2
    turns = set(map(tuple, city.connections.tolist()))
    assert len(turns) == len(city.connections)
    leaving = [[] for _ in city.junction_ids]
    for row, tail in enumerate(city.tail):
        leaving[tail].append(row)
    cars = city.permits["passenger"]
    missing, uturns = 0, 0
    for first, head in enumerate(city.head):
        for second in leaving[head]:
            back = city.head[second] == city.tail[first]
            missing += (not back) and (first, second) not in turns
            if back and (first, second) in turns and cars[first]:
                uturns += sum(cars[other] for other in leaving[head]) > 1  # not at a dead end
    assert missing > 10
    assert uturns < 0.06 * cars.sum()
    assert 0 < (~cars).sum() < 0.05 * len(cars)
    assert set(city.permits) == set(VEHICLE_CLASSES)
    assert city.permits["bus"][~cars].any() or city.permits["pedestrian"][~cars].any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"edges": 100}, "edges is 100; it must be a whole number from 200 to 2,000,000"),
        ({"edges": 3_000_000}, "edges is 3000000"),
        ({"edges": 1e4}, "edges is 10000.0"),
        ({"rivers": 9}, "rivers is 9"),
        ({"rivers": 3}, "2000 edges leave room for 2"),
        ({"hills": -1.0}, "hills is -1.0"),
        ({"rings": 7}, "rings is 7"),
        ({"one_way": 0.9}, "one_way is 0.9; it is a share"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_bad_parameters_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        generate_city(**options)


def test_parameters_do_what_they_say():
    plain = generate_city(edges=1500, seed=4, rings=0, one_way=0.0, rivers=0, no_left=0.0)
    assert set(kinds(plain)) == {"r"}
    names = set(plain.edge_ids)
    assert np.mean([f"-{name}" in names or name[1:] in names for name in names]) > 0.97
    many = generate_city(edges=1500, seed=4, one_way=0.4)
    assert abs(len(many.line_graph()) - 1500) <= 150


# --- trips --------------------------------------------------------------------------------


def times(graph, source):
    weight = graph.successors.copy()
    weight.data = graph.travel_time[graph.turns[:, 1]]
    return dijkstra(weight, indices=[source])[0]


def test_a_trip_is_far_and_the_same_every_time(case):
    _, city = case
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


def test_no_trip_is_said_so():
    lonely = ring_road(3, closed=False).line_graph()
    assert len(lonely) == 1
    with pytest.raises(InfeasibleError, match="no two edges"):
        suggest_trip(lonely)


@pytest.mark.slow
def test_a_large_city():
    city = generate_city(edges=100_000, seed=1, rivers=2)
    graph = city.line_graph()
    assert abs(len(graph) - 100_000) <= 5_000
    vehicle = Vehicle()
    energy = vehicle.energy(graph.length, graph.speed, graph.rise)
    assert 0.2 < (energy < 0.0).mean() < 0.34
    assert (energy - vehicle.potential(graph.rise)).min() > 0.0
    assert np.abs(city.rise / city.length).max() < 0.1215
    start, goal = suggest_trip(graph)
    assert start != goal
