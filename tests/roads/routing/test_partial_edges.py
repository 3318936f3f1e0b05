"""Routes between places: the first and the last edge count in part.

The truth is an explicitly split network: every edge on which a place lies is cut there into pieces,
each a separate edge with its share of length and rise, and Bellman's and Ford's algorithm searches
that.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from superarm.core import AT_95, Arms, Feedback, Floats, Offer
from superarm.core.errors import InfeasibleError
from superarm.core.normal import rectified_mean
from superarm.oracles import Trip
from superarm.policies import wrapped
from superarm.roads.energy import Vehicle, drive_time
from superarm.roads.fleets import vehicle_number
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.networks.geography import from_utm
from superarm.roads.policies import route_greedy
from superarm.roads.posterior import RoadGP, noise_parts
from superarm.roads.problems.fleet import fleet_model, road_rows
from superarm.roads.routing import Battery, Router
from superarm.roads.routing.energy_beliefs import RouteParts
from superarm.roads.routing.search import Ends, RoutePath, Search

OFFSET = np.array([300_000.0, 5_400_000.0])


def on_earth(network: RoadNetwork) -> RoadNetwork:
    return replace(network, lon_lat=from_utm(network.junctions[:, :2] + OFFSET, 32))


def with_bends(network: RoadNetwork) -> RoadNetwork:
    """A bend in every road, the same in both directions."""
    begin, end = (
        network.junctions[network.tail, :2],
        network.junctions[network.head, :2],
    )
    to_the_right = np.where(network.tail < network.head, 0.1, -0.1)[:, None]
    across = (end - begin)[:, ::-1] * [1.0, -1.0] * to_the_right
    return replace(
        network,
        shapes=tuple(np.stack([begin, 0.5 * (begin + end) + across, end], axis=1)),
    )


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return on_earth(with_bends(generate_city(edges=300, seed=1)))


@pytest.fixture(scope="module")
def one_way(city: RoadNetwork) -> RoadNetwork:
    """A third of the streets lead in one direction only."""
    closed = np.zeros(len(city.edge_ids), dtype=bool)
    ends = list(zip(city.tail.tolist(), city.head.tolist(), strict=True))
    pairs = [
        (edge, ends.index(pair[::-1]))
        for edge, pair in enumerate(ends)
        if pair[::-1] in ends
    ]
    for edge, back in pairs[::3]:
        closed[back] = not closed[edge]
    return replace(city, permits={"passenger": city.permits["passenger"] & ~closed})


# --- the truth -----------------------------------------------------------------------------


class Split:
    """A graph whose edges are cut at places; pieces are its nodes."""

    def __init__(self, graph: LineGraph, places: list[tuple[int, float]]) -> None:
        cuts = {edge: [0.0, 1.0] for edge in range(len(graph))}
        for edge, share in places:
            cuts[edge].append(share)
        self.piece: dict[tuple[int, float, float], int] = {}
        self.edge, self.part, arcs, turn = [], [], [], []
        first, last = {}, {}
        for edge, shares in cuts.items():
            for begin, end in pairwise(sorted(set(shares))):
                number = self.piece[edge, begin, end] = len(self.edge)
                self.edge.append(edge)
                self.part.append(end - begin)
                if begin > 0.0:
                    arcs.append((number - 1, number))
                    turn.append(-1)
                first.setdefault(edge, number)
                last[edge] = number
        for number, (one, other) in enumerate(graph.turns.tolist()):
            arcs.append((last[one], first[other]))
            turn.append(number)
        self.arcs, self.turn = np.array(arcs), np.array(turn)

    def least(
        self,
        costs: Floats,
        turn_costs: Floats,
        starts: Ends,
        goals: Ends,
        closed: Any = None,
    ) -> float:
        """The least cost between places, by Bellman and Ford; a part costs its share of ``costs``."""
        edge, part = np.array(self.edge), np.array(self.part)
        cost = part * costs[edge]
        if closed is not None:
            cost = np.where(closed[edge], np.inf, cost)
        first, second = self.arcs.T
        turned = np.where(self.turn < 0, 0.0, np.append(turn_costs, 0.0)[self.turn])
        best = np.inf
        for start, share in zip(*starts, strict=True):
            if closed is not None and closed[start]:
                continue
            total = np.full(len(edge), np.inf)
            if share > 0.0:  # at the end of the piece before it
                total[self.piece_up_to(start, share)] = 0.0
            else:
                total[self.piece_from(start)] = cost[self.piece_from(start)]
            for _ in range(len(edge)):
                before = total.copy()
                np.minimum.at(total, second, total[first] + turned + cost[second])
                if np.array_equal(before, total):
                    break
            for goal, where in zip(*goals, strict=True):
                if closed is not None and closed[goal]:
                    continue
                if where > 0.0:
                    best = min(best, total[self.piece_up_to(goal, where)])
                    continue
                into = np.flatnonzero(second == self.piece_from(goal))
                best = min([best, *(total[first[into]] + turned[into])])
                if goal == start and share == 0.0:
                    best = min(best, 0.0)
        return float(best)

    def piece_from(self, edge: int) -> int:
        """The first piece of an edge."""
        return next(
            number
            for (parent, begin, _), number in self.piece.items()
            if (parent, begin) == (edge, 0.0)
        )

    def piece_up_to(self, edge: int, share: float) -> int:
        """The piece that ends at a place."""
        return next(
            number
            for (parent, _, end), number in self.piece.items()
            if (parent, end) == (edge, share)
        )


def truth(
    graph: LineGraph,
    costs: Floats,
    turn_costs: Floats,
    starts: Ends,
    goals: Ends,
    closed: Any = None,
) -> float:
    places = [*zip(*starts, strict=True), *zip(*goals, strict=True)]
    return Split(graph, places).least(costs, turn_costs, starts, goals, closed)


def ends_of(router: Router, place: Any) -> Ends:
    match = router.places.find(place)
    assert match.shares is not None
    return Ends(np.array(match.edges), np.array(match.shares))


def random_places(graph: LineGraph, rng: Any, count: int) -> list[tuple[float, float]]:
    """Latitudes and longitudes near the roads."""
    edges, shares = rng.integers(len(graph), size=count), rng.random(count)
    places = []
    for edge, share in zip(edges, shares, strict=True):
        begin, bend, end = graph.course(int(edge))
        on_road = (
            begin + 2 * share * (bend - begin)
            if share < 0.5
            else bend + (2 * share - 1) * (end - bend)
        )
        longitude, latitude = from_utm(
            (on_road + rng.normal(0.0, 3.0, size=2) + OFFSET)[None], 32
        )[0]
        places.append((float(latitude), float(longitude)))
    return places


# --- the search ----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["around", "towards", "compiled", "hierarchy"])
def test_the_search_finds_the_cheapest_between_places(
    city: RoadNetwork, form: str
) -> None:
    """With several candidates, some edges closed, some that cost nothing; shares of 0 and 1 too."""
    is_compiled = form in ("compiled", "hierarchy")
    if is_compiled:
        pytest.importorskip("numba")
    graph, rng = city.line_graph(), np.random.default_rng(5)
    costs = rng.gamma(2.0, size=len(graph)) * (rng.random(len(graph)) < 0.9)
    turned = rng.random(len(graph.turns)) * (rng.random(len(graph.turns)) < 0.9)
    search = Search(
        graph,
        costs,
        turned,
        backend="numba" if is_compiled else "numpy",
        form="hierarchy" if form == "hierarchy" else "landmarks",
    )
    if form != "around":
        search.prepare()
    none = one_edge = loops = 0
    for trial in range(60):
        if form == "around":  # as long as there are no landmarks
            search = Search(graph, costs, turned, backend="numpy")
        many = 1 + trial % 3
        starts = Ends(
            rng.choice(len(graph), size=many, replace=False),
            rng.random(many).round(trial % 4),
        )
        goals = Ends(
            rng.choice(len(graph), size=many, replace=False),
            rng.random(many).round(trial % 4),
        )
        if trial % 5 == 0:  # on the same edges
            goals = Ends(starts.edges, goals.shares)
        closed = rng.random(len(graph)) < (0.0, 0.03, 0.4)[trial % 3]
        shut = closed if closed.any() else None
        expected = truth(graph, costs, turned, starts, goals, shut)
        way = search.find(starts, goals, shut)
        if way is None:
            assert expected == np.inf
            none += 1
            continue
        assert search.cost(way) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert not closed[way.edges].any()
        assert (way.shares[1:-1] == 1.0).all()
        start = float(starts.shares[starts.edges == way.edges[0]][0])
        goal = float(goals.shares[goals.edges == way.edges[-1]][0])
        if len(way.edges) == 1:
            assert way.shares[0] == goal - start >= 0.0
            one_edge += 1
        else:
            assert (way.shares[0], way.shares[-1]) == (1.0 - start, goal)
            loops += way.edges[0] == way.edges[-1]
        second = search.find(
            starts, goals, shut, known=way
        )  # a known way, however good, changes nothing
        assert second is not None
        assert search.cost(second) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert none > 0
    assert one_edge > 0
    assert loops > 0


def test_landmarks_are_made_after_some_routes_and_change_none(
    city: RoadNetwork,
) -> None:
    graph, rng = city.line_graph(), np.random.default_rng(2)
    search = Search(graph, graph.length, graph.turn_length, backend="numpy")
    early = Search(graph, graph.length, graph.turn_length, backend="numpy")
    early.prepare()
    for _ in range(20):
        one, other = rng.integers(len(graph), size=(2, 1))
        ends = Ends(one, rng.random(1)), Ends(other, rng.random(1))
        route, prepared = search.find(*ends), early.find(*ends)
        assert route is not None
        assert prepared is not None
        np.testing.assert_array_equal(route.edges, prepared.edges)
    assert "_marks" in vars(search)


def test_the_compiled_search_finds_the_same_routes() -> None:
    """Costs to 1e-10 of each other, and the same edges where no two routes cost the same."""
    pytest.importorskip("numba")
    graph, rng = (
        generate_city(edges=3000, seed=3).line_graph(),
        np.random.default_rng(0),
    )
    costs, turned = rng.gamma(2.0, size=len(graph)), rng.random(len(graph.turns))
    plain, fast = (
        Search(graph, costs, turned, backend=backend) for backend in ("numpy", "numba")
    )
    plain.prepare()
    fast.prepare()
    for trial in range(100):
        edges = rng.choice(len(graph), size=4, replace=False)
        starts, goals = Ends(edges[:2], rng.random(2)), Ends(edges[2:], rng.random(2))
        closed = rng.random(len(graph)) < 0.05 if trial % 2 else None
        one, other = plain.find(starts, goals, closed), fast.find(starts, goals, closed)
        assert (one is None) == (other is None)
        if one is None or other is None:
            continue
        assert abs(plain.cost(one) - plain.cost(other)) <= 1e-10 * plain.cost(one)
        np.testing.assert_array_equal(one.edges, other.edges)
        np.testing.assert_array_equal(one.shares, other.shares)


# --- the router ----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_energies_between_places_are_the_least(
    one_way: RoadNetwork, backend: Any
) -> None:
    """On the energies as they are, negative ones among them, of the network as it is when split."""
    if backend == "numba":
        pytest.importorskip("numba")
    vehicle = Vehicle(mass=2400.0)
    router = Router(one_way, vehicle=vehicle, backend=backend)
    graph, rng = router.graph, np.random.default_rng(1)
    if backend == "numba":
        router.prepare()
    energies, turned = (
        vehicle.energy(graph.length, graph.speed, graph.rise),
        vehicle.turn_energy(graph),
    )
    assert energies.min() < 0.0
    places = random_places(graph, rng, 50)
    for start, goal in zip(places[::2], places[1::2], strict=True):
        answer = router.route(start, goal)
        ends = ends_of(router, start), ends_of(router, goal)
        expected = truth(graph, energies, turned, *ends)
        assert answer.best.energy == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert answer.means.sum() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        shortest = truth(graph, graph.length, graph.turn_length, *ends)
        assert answer.others["shortest"].length == pytest.approx(shortest, rel=1e-9)
        fastest = answer.others["fastest"]
        quickest = fastest.shares @ graph.travel_time[fastest.edges]
        quickest += graph.turn_seconds[graph.turn_numbers(fastest.edges)].sum()
        assert quickest == pytest.approx(
            truth(graph, graph.travel_time, graph.turn_seconds, *ends), rel=1e-9
        )
        shut = np.zeros(len(graph), dtype=bool)
        if len(answer.best.edges) > 2:
            shut[answer.best.edges[1]] = True
            gone = graph.ids[answer.best.edges[1]]
            expected = truth(graph, energies, turned, *ends, closed=shut)
            if expected == np.inf:
                with pytest.raises(InfeasibleError):
                    router.route(start, goal, closed=[gone])
            else:
                around = router.route(start, goal, closed=[gone])
                assert around.best.energy == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_other_routings_count_parts_too(one_way: RoadNetwork) -> None:
    """Rectified costs; and the route that counts on nothing won back, which a full battery takes."""
    router = Router(one_way, routing="rectified")
    plan, graph, rng = router._costs.plan(None), router.graph, np.random.default_rng(4)
    mean, turned = plan.energies.mean, plan.energies.turn_costs
    costs = rectified_mean(mean, plan.energies.noise_std)
    for start, goal in zip(*[iter(random_places(graph, rng, 20))] * 2, strict=True):
        ends = ends_of(router, start), ends_of(router, goal)
        best = router.route(start, goal).best
        cost = (
            best.shares @ costs[best.edges]
            + turned[graph.turn_numbers(best.edges)].sum()
        )
        assert cost == pytest.approx(truth(graph, costs, turned, *ends), rel=1e-9)


def test_a_battery_is_followed_along_parts(one_way: RoadNetwork) -> None:
    """Where it may run empty, the route that counts on nothing won back is tried, in parts too."""
    router = Router(one_way, battery=Battery(capacity=20_000.0))
    plan, graph, rng = router._costs.plan(None), router.graph, np.random.default_rng(4)
    turned, level = plan.energies.turn_costs, np.maximum(plan.energies.mean, 0.0)
    for start, goal in zip(*[iter(random_places(graph, rng, 24))] * 2, strict=True):
        ends = ends_of(router, start), ends_of(router, goal)
        cautious = plan.uncredited.find(*ends)
        assert cautious is not None
        expected = truth(graph, level, turned, *ends)
        assert plan.uncredited.cost(cautious) == pytest.approx(expected, rel=1e-9)
        free = router.route(start, goal, charge=10_000.0)
        assert free.charge is not None
        np.testing.assert_allclose(
            free.charge.level[1:], 10_000.0 - np.cumsum(free.means), rtol=1e-12
        )
        assert free.charge.spread == free.best.spread
        empty = router.route(start, goal, charge=1.0, anyway=True)
        assert empty.charge is not None
        energies = plan.energies.mean[cautious.edges] * cautious.shares
        energies[1:] += turned[graph.turn_numbers(cautious.edges)]
        lowest = [
            1.0 - np.cumsum(consumed).max() for consumed in (free.means, energies)
        ]
        assert empty.charge.level.min() >= min(0.0, *lowest) - 1e-9
        with pytest.raises(InfeasibleError, match="may fall below the reserve"):
            router.route(start, goal, charge=1.0)


def test_a_fleets_belief_is_counted_in_part(city: RoadNetwork) -> None:
    """Means, and variances: α of what is believed of a road, α of the variance of a drive's noise."""
    graph, rng = city.line_graph(), np.random.default_rng(0)
    policy = route_greedy(fleet_model(graph, refit=0), routing="rectified")
    van, number = Vehicle(mass=2000.0), vehicle_number("van")
    rows = road_rows(graph, van, number)
    for start, goal in rng.integers(len(graph), size=(12, 2)):
        edges = Router(city).route(graph.ids[start], graph.ids[goal]).best.edges
        policy.posterior.observe(
            rows[edges], 1.3 * rows[edges, 1] + rng.normal(size=len(edges))
        )
    router = Router(city, state=policy.state(), vehicle=van, vehicle_name="van")
    posterior = policy.posterior
    assert isinstance(posterior, RoadGP)
    reduced, turned = (
        np.maximum(posterior.predict(rows).mean, 0.0),
        van.turn_energy(graph),
    )
    lifted = van.potential(graph.rise)
    for start, goal in zip(*[iter(random_places(graph, rng, 16))] * 2, strict=True):
        answer = router.route(start, goal)
        best, ends = answer.best, (ends_of(router, start), ends_of(router, goal))
        expected = truth(graph, reduced, turned, *ends)
        cost = (
            best.shares @ reduced[best.edges]
            + turned[graph.turn_numbers(best.edges)].sum()
        )
        assert cost == pytest.approx(expected, rel=1e-9)
        believed = posterior.predict(rows[best.edges]).mean + lifted[best.edges]
        turns = turned[graph.turn_numbers(best.edges)].sum()
        assert best.energy == pytest.approx(best.shares @ believed + turns, rel=1e-9)
        # The variance from the covariance of full roads, and their noise, separately.
        scales, route_rows = posterior.fitted, rows[best.edges].copy()
        if best.shares[-1] < 1.0:
            route_rows[-1, 7] = 0.0  # the signals behind the last road are not passed
        cov = posterior.predict(route_rows, return_cov=True).cov
        own = best.shares @ (
            noise_parts(route_rows)[:, [0, 1, 3]] @ scales.noise_scales[[0, 1, 3]] ** 2
        )
        own += route_rows[:, 7].sum() * scales.noise_scales[2] ** 2
        terms = best.shares @ route_rows[:, 2:7]
        variance = (
            best.shares @ cov @ best.shares + own + terms**2 @ np.square(scales.trip)
        )
        width = float(posterior.widths()[1][AT_95])
        assert best.spread == pytest.approx(width * np.sqrt(variance), rel=1e-6)


def test_a_wrapped_fleets_belief_is_counted_in_part(city: RoadNetwork) -> None:
    """Such a posterior has one noise for all roads: α of its variance too."""
    graph, rng = city.line_graph(), np.random.default_rng(0)
    greedy = route_greedy(fleet_model(graph, refit=0), spread="none")
    policy = wrapped(greedy, {"name": "resetting", "block": 400})
    rows = road_rows(graph, Vehicle(), vehicle_number(""))
    arms = Arms(ids=graph.ids, features=rows)
    for step, (start, goal) in enumerate(
        rng.integers(len(graph), size=(5, 2)).tolist(), start=1
    ):
        offer = Offer(step=step, arms=arms, structure=Trip(start=start, goal=goal))
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = 1.3 * rows[decision.positions, 1]
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
    router = Router(city, state=policy.state())
    for start, goal in zip(*[iter(random_places(graph, rng, 10))] * 2, strict=True):
        best = router.route(start, goal).best
        forecast = policy.forecast(Offer(step=6, arms=arms), best.edges)
        cov = best.shares @ forecast.cov @ best.shares
        variance = cov + best.shares.sum() * forecast.noise_std**2
        assert best.spread == pytest.approx(
            forecast.total_widths[-1] * np.sqrt(variance), rel=1e-9
        )


def test_intervals_grow_with_the_share_of_the_edge(city: RoadNetwork) -> None:
    router = Router(city)
    known, edges = router.source.energies(None), router.route("r1", "r20").best.edges
    spreads = []
    for share in (0.0, 1e-9, 0.25, 0.5, 0.75, 1.0):
        shares = np.ones(len(edges))
        shares[-1] = share
        spreads.append(known.spread(RouteParts.of(RoutePath(edges, shares))))
    assert spreads[0] == spreads[1]  # almost nothing is omitted
    assert (np.diff(spreads[1:]) > 0.0).all()
    assert spreads[-1] == router.route("r1", "r20").best.spread
    nowhere = RoutePath(edges[:1], np.zeros(1))
    assert known.spread(RouteParts.of(nowhere)) == 0.0


def test_no_route_revisits_its_start_or_goal(one_way: RoadNetwork) -> None:
    """On any of the edges that the place may mean."""
    router, rng = Router(one_way), np.random.default_rng(6)
    router.prepare()
    places = random_places(router.graph, rng, 400)
    for start, goal in zip(places[::2], places[1::2], strict=True):
        best = router.route(start, goal).best
        assert not set(best.edges[1:-1].tolist()) & set(router.places.find(goal).edges)
        assert not set(best.edges[1:-1].tolist()) & set(router.places.find(start).edges)


# --- on one street -------------------------------------------------------------------------


def street(*, one_way: bool) -> RoadNetwork:
    """A street of 1 km to the east that climbs 40 m, and a way around it."""
    two = [] if one_way else [[1, 0]]
    ends = np.array([[0, 1], [1, 2], [2, 3], [3, 0], *two])
    ids = ("street", "there", "across", "back", *(["-street"] * (not one_way)))
    junctions = np.array(
        [[0.0, 0.0, 0.0], [1000.0, 0.0, 40.0], [1000.0, 500.0, 40.0], [0.0, 500.0, 0.0]]
    )
    turns = [
        [0, 1],
        [1, 2],
        [2, 3],
        [3, 0],
        *([] if one_way else [[3, 0], [4, 0], [0, 4]]),
    ]
    return on_earth(
        RoadNetwork(
            name="street",
            junction_ids=tuple("abcd"),
            junctions=junctions,
            edge_ids=ids,
            tail=ends[:, 0],
            head=ends[:, 1],
            length=np.hypot(*(junctions[ends[:, 1], :2] - junctions[ends[:, 0], :2]).T),
            speed=np.full(len(ids), 14.0),
            permits={"passenger": np.ones(len(ids), dtype=bool)},
            connections=np.unique(turns, axis=0),
            turn_permits={
                "passenger": np.ones(len(np.unique(turns, axis=0)), dtype=bool)
            },
        )
    )


def place_at(x: float, y: float = 2.0) -> tuple[float, float]:
    longitude, latitude = from_utm(np.array([[x, y]]) + OFFSET, 32)[0]
    return float(latitude), float(longitude)


def test_a_goal_ahead_on_the_same_edge_is_just_that_part() -> None:
    for network in (street(one_way=True), street(one_way=False)):
        answer = Router(network).route(place_at(200.0), place_at(700.0))
        assert answer.ids() == ["street"]
        assert answer.best.length == pytest.approx(500.0, abs=0.1)
        energy = float(Vehicle().energy(500.0, 14.0, 20.0))
        assert answer.best.energy == pytest.approx(energy, rel=1e-3)
        assert answer.best.seconds == pytest.approx(500.0 / 14.0, rel=1e-3)
        assert answer.best.climb == pytest.approx(20.0, abs=0.01)
        report = answer.as_json()
        assert (report["from_position_m"], report["to_position_m"]) == pytest.approx(
            (200.0, 700.0), abs=0.1
        )
        assert (
            report["first_edge_m"]
            == report["last_edge_m"]
            == pytest.approx(500.0, abs=0.1)
        )
        assert "edge street, 2 m away, at 200 of its 1000 m" in report["from_place"]
        line = answer.as_geojson()["features"][0]["geometry"]["coordinates"]
        expected = from_utm(np.array([[200.0, 0.0], [700.0, 0.0]]) + OFFSET, 32)
        np.testing.assert_allclose(line, expected, atol=1e-6)


def test_a_goal_behind_is_reached_by_a_loop_or_by_the_other_direction() -> None:
    loop = Router(street(one_way=True)).route(place_at(700.0), place_at(200.0))
    assert loop.ids() == ["street", "there", "across", "back", "street"]
    assert loop.best.shares == pytest.approx([0.3, 1.0, 1.0, 1.0, 0.2], abs=1e-4)
    assert loop.best.length == pytest.approx(
        300.0 + 500.0 + 1000.0 + 500.0 + 200.0, abs=0.1
    )
    assert loop.as_json()["first_edge_m"] == pytest.approx(300.0, abs=0.1)
    assert loop.as_json()["last_edge_m"] == pytest.approx(200.0, abs=0.1)
    line = loop.as_geojson()["features"][0]["geometry"]["coordinates"]
    corners = np.array(
        [[700, 0], [1000, 0], [1000, 500], [0, 500], [0, 0], [200, 0]], dtype=float
    )
    np.testing.assert_allclose(line, from_utm(corners + OFFSET, 32), atol=1e-6)
    turned = Router(street(one_way=False)).route(place_at(700.0), place_at(200.0))
    assert turned.ids() == ["-street"]
    assert turned.best.length == pytest.approx(500.0, abs=0.1)
    assert turned.best.energy == pytest.approx(
        float(Vehicle().energy(500.0, 14.0, -20.0)), rel=1e-3
    )


def test_the_same_place_is_a_route_of_no_length() -> None:
    answer = Router(street(one_way=True)).route(
        place_at(400.0), place_at(400.0), charge=100.0
    )
    assert answer.ids() == ["street"]
    numbers = (
        "energy_wh",
        "energy_low_wh",
        "energy_high_wh",
        "length_m",
        "travel_time_s",
        "climb_m",
    )
    assert [answer.as_json()[name] for name in numbers] == [0.0] * 6
    assert len(answer.as_geojson()["features"][0]["geometry"]["coordinates"]) == 2


def test_edges_by_id_count_in_full() -> None:
    router = Router(street(one_way=True))
    answer = router.route("street", "there")
    assert answer.best.shares.tolist() == [1.0, 1.0]
    report = answer.as_json()
    assert (report["from_position_m"], report["to_position_m"]) == (0.0, 500.0)
    assert (report["first_edge_m"], report["last_edge_m"]) == (1000.0, 500.0)
    half = router.route(place_at(500.0), "there")
    assert half.best.length == pytest.approx(1000.0, abs=0.1)
    assert half.as_json()["to_position_m"] == 500.0
    one = router.route("street", "street")
    assert (one.ids(), one.best.length) == (["street"], 1000.0)


def test_place_has_one_height_for_all_its_edges() -> None:
    """Where courses differ, heights do not: what is gained between two places stays the same."""
    network = street(one_way=False)
    straight = [
        network.junctions[[one, other], :2]
        for one, other in zip(network.tail, network.head, strict=True)
    ]
    straight[4] = np.array([[1000.0, 0.0], [400.0, 8.0], [390.0, -8.0], [0.0, 0.0]])
    network = replace(network, shapes=tuple(straight))
    router = Router(network)
    match = router.places.find(place_at(395.0))
    assert len(match.edges) == 2
    assert abs(sum(match.shares) - 1.0) > 1e-3  # type: ignore[arg-type]
    vehicle, graph = Vehicle(), router.graph
    for start, goal in (
        (place_at(900.0), place_at(395.0)),
        (place_at(395.0), place_at(900.0)),
        (place_at(395.0), place_at(100.0)),
    ):
        answer = router.route(start, goal)
        best, heights = answer.best, []
        for place in (start, goal):
            near = router.places.find(place)
            tail = network.tail[graph.edges[near.edges[0]]]
            heights.append(
                network.junctions[tail, 2] + near.shares[0] * graph.rise[near.edges[0]]
            )
        reduced = vehicle.energy(
            graph.length, graph.speed, graph.rise
        ) - vehicle.potential(graph.rise)
        turns = vehicle.turn_energy(graph)[graph.turn_numbers(best.edges)].sum()
        lifted = float(vehicle.potential(heights[1]) - vehicle.potential(heights[0]))
        assert best.energy == pytest.approx(
            best.shares @ reduced[best.edges] + turns + lifted, rel=1e-12
        )


def test_a_drive_of_parts_takes_its_time() -> None:
    """Against the same roads cut to what is driven of them."""
    network = street(one_way=True)
    graph = network.line_graph()
    edges, shares = np.array([0, 1, 2, 3]), np.array([0.4, 1.0, 1.0, 0.3])
    cut = replace(network, length=network.length * shares).line_graph()
    assert drive_time(graph, edges, shares=shares) == pytest.approx(
        drive_time(cut, edges), rel=1e-12
    )
    assert drive_time(graph, edges, shares=np.ones(4)) == drive_time(graph, edges)
