"""The contraction hierarchy finds what Dijkstra's algorithm finds, to rounding.

A cost is a sum of at most 2k numbers, those of k edges and their turns, in any order: its relative error is
at most 2k·2⁻⁵³. Two such sums are compared when a route is chosen, so that the cost of a route is within
4k·2⁻⁵³ of the least; and costs are added up in yet another order here. No route has more than 1,000 edges:
8·1000·2⁻⁵³ is below ``ROUNDING``.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats, Ints
from superarm.core.dissection import Separators
from superarm.core.errors import InputError, MissingExtraError
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.routing import Router
from superarm.roads.routing.search import Ends, Search

pytest.importorskip("numba")

from superarm.roads.routing import hierarchy as hierarchies

ROUNDING = 1e-12


def network_of(tail: list[int], head: list[int], turns: Any) -> RoadNetwork:
    """Roads between junctions, all of one length."""
    count = max([*tail, *head]) + 1
    edges = len(tail)
    return RoadNetwork(
        name="random",
        junction_ids=tuple(f"j{number}" for number in range(count)),
        junctions=np.zeros((count, 3)),
        edge_ids=tuple(f"e{number}" for number in range(edges)),
        tail=np.array(tail),
        head=np.array(head),
        length=np.full(edges, 100.0),
        speed=np.full(edges, 10.0),
        permits={"passenger": np.ones(edges, dtype=bool)},
        connections=turns,
        turn_permits={"passenger": np.ones(len(turns), dtype=bool)},
    )


def random_roads(rng: Any, junctions: int, edges: int, share: float) -> LineGraph:
    """The largest connected part of random roads, with a share of their turns."""
    tail = rng.integers(junctions, size=edges)
    head = rng.integers(junctions, size=edges)
    meets = head[:, None] == tail[None]
    allowed = meets & (rng.random(meets.shape) < share)
    network = network_of(tail.tolist(), head.tolist(), np.argwhere(allowed))
    return network.line_graph()


def random_ends(rng: Any, graph: LineGraph, most: int = 3) -> Ends:
    many = min(int(rng.integers(1, most + 1)), len(graph))
    edges = rng.choice(len(graph), size=many, replace=False)
    return Ends(edges, rng.choice([0.0, 0.25, 1.0, rng.random()], size=many))


def searches(graph: LineGraph, costs: Floats, turned: Floats) -> tuple[Search, Search]:
    """By a hierarchy, and by scipy's Dijkstra without any preparation."""
    fast = Search(graph, costs, turned, form="hierarchy")
    fast.prepare()
    plain = Search(graph, costs, turned, backend="numpy", form="landmarks")
    return fast, plain


def cost_alike(
    fast: Search, plain: Search, starts: Ends, goals: Ends, closed: Any = None
) -> bool:
    """Whether both find a route of the same cost over open edges, or neither finds one."""
    route = fast.find(starts, goals, closed)
    plain._routes = 0  # scipy's search in all directions
    expected = plain.find(starts, goals, closed)
    if route is None or expected is None:
        return route is expected
    if closed is not None and closed[route.edges].any():
        return False
    return bool(fast.cost(route) == pytest.approx(plain.cost(expected), rel=ROUNDING))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    junctions=st.integers(1, 9),
    edges=st.integers(2, 40),
)
def test_random_graphs_have_the_routes_of_dijkstra(
    seed: int, junctions: int, edges: int
) -> None:
    """With costs of zero, equal costs, missing turns, closures, several ends and loops."""
    rng = np.random.default_rng(seed)
    graph = random_roads(rng, junctions, edges, share=rng.choice([0.5, 1.0]))
    costs = rng.choice([0.0, 1.0, rng.random()], size=len(graph))
    turned = rng.choice([0.0, 1.0, rng.random()], size=len(graph.turns))
    fast, plain = searches(graph, costs, turned)
    for _ in range(6):
        starts, goals = random_ends(rng, graph), random_ends(rng, graph)
        assert cost_alike(fast, plain, starts, goals)
        closed = rng.random(len(graph)) < 0.2
        assert cost_alike(fast, plain, starts, goals, closed)


@pytest.fixture(scope="module")
def graph() -> LineGraph:
    return generate_city(edges=3000, seed=3).line_graph()


def test_a_city_has_the_routes_of_dijkstra(graph: LineGraph) -> None:
    rng = np.random.default_rng(1)
    costs, turned = rng.gamma(2.0, size=len(graph)), rng.random(len(graph.turns))
    fast, plain = searches(graph, costs, turned)
    closed = rng.random(len(graph)) < 0.02
    for trial in range(60):
        starts, goals = random_ends(rng, graph), random_ends(rng, graph)
        assert cost_alike(fast, plain, starts, goals, closed if trial % 2 else None)


def test_closures_that_come_again_are_customised_and_change_nothing(
    graph: LineGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hierarchies.search, "_RARE", 3)
    rng = np.random.default_rng(2)
    costs, turned = rng.gamma(2.0, size=len(graph)), rng.random(len(graph.turns))
    fast, plain = searches(graph, costs, turned)
    for share in (0.02, 0.2):
        closed = rng.random(len(graph)) < share
        for _ in range(25):
            starts, goals = random_ends(rng, graph), random_ends(rng, graph)
            assert cost_alike(fast, plain, starts, goals, closed)
        closure = fast._hierarchy._closure
        assert closure.routes > 3
        assert closure.metric is not None


def test_closures_that_change_in_place_are_other_closures(
    graph: LineGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hierarchies.search, "_RARE", 3)
    rng = np.random.default_rng(5)
    costs, turned = rng.gamma(2.0, size=len(graph)), rng.random(len(graph.turns))
    fast, plain = searches(graph, costs, turned)
    ends = [(random_ends(rng, graph), random_ends(rng, graph)) for _ in range(25)]
    closed = np.zeros(len(graph), dtype=bool)
    for _ in range(2):
        closed[:] = rng.random(len(graph)) < 0.1
        for starts, goals in ends:
            assert cost_alike(fast, plain, starts, goals, closed)
        assert fast._hierarchy._closure.metric is not None


def test_arcs_are_the_entries_of_the_factors(graph: LineGraph) -> None:
    """By elimination with sets: of L and U, and of the symmetric factor's tree."""
    topology = hierarchies.contract(graph)
    n = len(graph)
    np.testing.assert_array_equal(np.sort(topology.order), np.arange(n))
    rank = np.empty(n, dtype=int)
    rank[topology.order] = np.arange(n)
    ups: list[set[int]] = [set() for _ in range(n)]  # where rising arcs lead
    downs: list[set[int]] = [set() for _ in range(n)]  # where falling ones come from
    later: list[set[int]] = [set() for _ in range(n)]  # without directions
    for one, other in rank[graph.turns].tolist():
        if one < other:
            ups[one].add(other)
        if one > other:
            downs[other].add(one)
        if one != other:
            later[min(one, other)].add(max(one, other))
    for node in range(n):
        begin, end = topology.up_pointers[node : node + 2]
        assert topology.up_heads[begin:end].tolist() == sorted(ups[node])
        begin, end = topology.down_pointers[node : node + 2]
        assert topology.down_heads[begin:end].tolist() == sorted(downs[node])
        for one in downs[node]:
            ups[one] |= {other for other in ups[node] if other > one}
        for other in ups[node]:
            downs[other] |= {one for one in downs[node] if one > other}
        parent = min(later[node], default=n)
        assert topology.parents[node] == parent
        if later[node]:
            later[parent] |= later[node] - {parent}


def test_roads_of_a_cut_that_are_sorted_by_direction_have_fewer_arcs(
    graph: LineGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = hierarchies.contract(graph)

    def unsorted(cells: Separators) -> Ints:
        return np.lexsort((cells.stop - cells.start, cells.stop))

    monkeypatch.setattr(Separators, "order", unsorted)
    other = hierarchies.contract(generate_city(edges=3000, seed=3).line_graph())
    arcs = len(topology.up_heads) + len(topology.down_heads)
    assert arcs < len(other.up_heads) + len(other.down_heads)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_customising_again_is_customising(graph: LineGraph, count: int) -> None:
    """To the last bit: raised, lowered, closed and opened turns."""
    rng = np.random.default_rng(count)
    arcs = hierarchies.Hierarchy(graph, hierarchies.contract(graph))
    weights = rng.gamma(2.0, size=len(graph.turns))
    metric = hierarchies.customised(arcs, weights)
    copies = [part.copy() for part in metric]
    for factor in (3.0, 0.1, np.inf):
        changed = weights.copy()
        turns = rng.choice(len(weights), size=count, replace=False)
        changed[turns] *= factor
        before = metric
        for target in (changed, weights):  # there and back again
            partly = hierarchies.recustomised(arcs, before, target)
            fully = hierarchies.customised(arcs, target)
            for part, whole in zip(partly, fully, strict=True):
                np.testing.assert_array_equal(part, whole)
            before = partly
            # Other searches may still use the first one.
            for part, part_before in zip(metric, copies, strict=True):
                np.testing.assert_array_equal(part, part_before)


def test_costs_between_many_places_are_those_of_routes(graph: LineGraph) -> None:
    rng = np.random.default_rng(4)
    costs, turned = rng.gamma(2.0, size=len(graph)), rng.random(len(graph.turns))
    fast, plain = searches(graph, costs, turned)
    starts = [random_ends(rng, graph) for _ in range(7)]
    goals = [random_ends(rng, graph) for _ in range(5)] + starts[:2]
    matrix = fast.least_costs(starts, goals)
    np.testing.assert_allclose(matrix, plain.least_costs(starts, goals), rtol=ROUNDING)
    for row, start in zip(matrix, starts, strict=True):
        for cost, goal in zip(row, goals, strict=True):
            path = fast.find(start, goal)
            assert path is not None
            assert cost == pytest.approx(fast.cost(path), rel=ROUNDING)
    assert fast.least_costs([], goals).shape == (0, len(goals))
    assert fast.least_costs(starts, []).shape == (len(starts), 0)


def test_a_router_has_the_same_answers_with_both_searches() -> None:
    city = generate_city(edges=1500, seed=5)
    forms: Any = ("landmarks", "hierarchy")
    routers = [Router(city, search=form) for form in forms]
    rng = np.random.default_rng(6)
    ids = np.array(routers[0].graph.ids)
    for router in routers:
        router.prepare()
    for _ in range(10):
        start, goal, closed = rng.choice(ids, size=3, replace=False).tolist()
        for options in ({}, {"closed": [closed]}, {"charge": 5e5}):
            one, other = (
                router.route(start, goal, anyway=True, **options).as_json()
                for router in routers
            )
            assert one["energy_wh"] == pytest.approx(other["energy_wh"], rel=1e-9)
    names = rng.choice(ids, size=5, replace=False).tolist()
    slow, fast = (router.matrix(names, names[:3]) for router in routers)
    np.testing.assert_allclose(slow, fast, rtol=1e-9, atol=1e-9)
    for row, start in zip(fast, names, strict=True):
        for energy, goal in zip(row, names[:3], strict=True):
            answer = routers[0].route(start, goal)
            assert answer.cut_edges == 0
            assert energy == pytest.approx(answer.best.energy, rel=1e-9)


def test_threads_share_a_search(graph: LineGraph) -> None:
    rng = np.random.default_rng(8)
    costs, turned = rng.gamma(2.0, size=len(graph)), rng.random(len(graph.turns))
    search, _ = searches(graph, costs, turned)
    trips = [(random_ends(rng, graph), random_ends(rng, graph)) for _ in range(40)]

    def energies() -> list[float]:
        paths = [search.find(*trip) for trip in trips]
        return [search.cost(path) for path in paths if path is not None]

    expected = energies()
    results: list[list[float]] = []
    threads = [Thread(target=lambda: results.append(energies())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 3


def test_a_hierarchy_is_chosen_by_size(
    graph: LineGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from superarm.roads.routing import search as module

    turn_costs = graph.turn_length
    small = Search(graph, graph.length, turn_costs)
    assert small._hierarchy is None
    monkeypatch.setattr(module, "_LEAST_EDGES", len(graph))
    assert Search(graph, graph.length, turn_costs)._hierarchy is not None
    without = Search(graph, graph.length, turn_costs, backend="numpy")
    assert without._hierarchy is None
    landmarks = Search(graph, graph.length, turn_costs, form="landmarks")
    assert landmarks._hierarchy is None


def test_a_hierarchy_replaces_landmarks_after_many_routes(
    graph: LineGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from superarm.roads.routing import search as module

    monkeypatch.setattr(module, "_LEAST_EDGES", len(graph))
    monkeypatch.setattr(module, "_MANY_ROUTES", 20)
    rng = np.random.default_rng(9)
    search = Search(graph, graph.length, graph.turn_length)
    plain = Search(graph, graph.length, graph.turn_length, backend="numpy")
    stages = []
    for _ in range(22):
        assert cost_alike(
            search, plain, random_ends(rng, graph), random_ends(rng, graph)
        )
        stages.append((search._guided, search._climbs))
    assert stages == [(False, False)] * 8 + [(True, False)] * 11 + [(True, True)] * 3
    few = Search(graph, graph.length, graph.turn_length)
    places = [random_ends(rng, graph) for _ in range(50)]
    some = few.least_costs(places[:3], places[:2])
    assert not few._climbs
    many = few.least_costs(places, places[:2])
    assert few._climbs
    np.testing.assert_allclose(some, many[:3], rtol=ROUNDING)


def test_a_hierarchy_must_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    city = generate_city(edges=300, seed=1)
    with pytest.raises(InputError, match="needs compiled loops"):
        Router(city, backend="numpy", search="hierarchy")
    with monkeypatch.context() as context:
        context.setitem(sys.modules, "numba", None)
        with pytest.raises(MissingExtraError, match="numba is not installed; run: pip"):
            Router(city, search="hierarchy")
    wrong: Any = "fast"
    with pytest.raises(InputError, match="search"):
        Router(city, search=wrong)


def test_routes_on_one_way_streets_keep_their_heights() -> None:
    """The matrix counts heights between places as routes do."""
    city = generate_city(edges=300, seed=1)
    lifted = replace(city, junctions=city.junctions * [1.0, 1.0, 3.0])
    router = Router(lifted, search="hierarchy")
    matrix = router.matrix(["r1", "r3"], ["r20", "r7"])
    for row, start in zip(matrix, ["r1", "r3"], strict=True):
        for energy, goal in zip(row, ["r20", "r7"], strict=True):
            answer = router.route(start, goal)
            if answer.cut_edges == 0:
                assert energy == pytest.approx(answer.best.energy, rel=1e-9)
