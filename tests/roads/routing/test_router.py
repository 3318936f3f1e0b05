"""Routes for users of the library: networks in memory, objectives, and lines on a map."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import AT_95, Feedback, Floats, Offer
from superarm.core.errors import (
    FileError,
    InfeasibleError,
    InputError,
    SpecError,
    StateError,
    UnknownArmError,
)
from superarm.core.normal import rectified_mean
from superarm.kernels import Constant, Periodic, SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.policies import IndexPolicy, wrapped
from superarm.posteriors import FiniteGP
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import vehicle_number
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.networks.geography import from_utm
from superarm.roads.policies import known_cost, route_greedy
from superarm.roads.problems.fleet import fleet_model, road_rows
from superarm.roads.problems.road_models import road_arms, road_model, with_conditions
from superarm.roads.routing import (
    Battery,
    RouteAnswer,
    Router,
    find_route,
    read_vehicle,
    read_vehicles,
)
from superarm.roads.routing.energy_beliefs import RouteParts
from superarm.roads.routing.search import Ends
from superarm.rules import Greedy

ENDS = ("r1", "r20")


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return generate_city(edges=300, seed=1)


def learned(network: RoadNetwork, energy: float, posterior: Any = "finite") -> Any:
    """A state in which some roads were seen to cost this much."""
    graph = network.line_graph()
    policy = route_greedy(road_model(graph, Vehicle(), horizon=1), posterior=posterior)
    features = road_model(graph, Vehicle(), horizon=1).arms
    seen = np.arange(0, len(graph), 9)
    keys = features[seen] if posterior == "variational" else seen
    policy.posterior.observe(
        keys, np.full(len(seen), energy), rng=np.random.default_rng(0)
    )
    return policy


def cheapest(answer: RouteAnswer, costs: Floats, turn_costs: Any = 0.0) -> float:
    """By Bellman's and Ford's algorithm, first and last edge included."""
    return float(
        least(answer.graph, costs, turn_costs, [answer.trip.start])[answer.trip.goal]
    )


def least(graph: LineGraph, costs: Floats, turn_costs: Any, starts: Any) -> Floats:
    """What it costs to reach every edge from the nearest of the starts."""
    total = np.full(len(graph), np.inf)
    total[starts] = costs[starts]
    first, second = graph.turns.T
    for _ in range(len(graph)):
        np.minimum.at(total, second, total[first] + costs[second] + turn_costs)
    return total


@pytest.mark.parametrize("routing", ["potential", "rectified"])
@pytest.mark.parametrize("energy", [-60.0, 40.0])
def test_minimised_objective(city: RoadNetwork, routing: Any, energy: float) -> None:
    """max(0, m − Δh), or E[max(0, N(m, ς²))]; and the edges where that is not m are counted."""
    policy = learned(city, energy)
    answer = find_route(city, *ENDS, state=policy.state(), routing=routing)
    graph = answer.graph
    model = road_model(graph, Vehicle(), horizon=1)
    mean = policy.posterior.predict(np.arange(len(graph))).mean
    lifted = model.reduction if routing == "potential" else np.zeros(len(graph))
    noise_std = float(np.sqrt(model.noise_variance))
    costs = (
        np.maximum(mean - lifted, 0.0)
        if routing == "potential"
        else rectified_mean(mean, noise_std)
    )
    assert costs[answer.best.edges].sum() == pytest.approx(cheapest(answer, costs))
    assert answer.cut_edges == np.count_nonzero(mean < lifted)
    assert answer.cut_edges > 0 or energy > 0.0
    assert answer.as_json()["cut_edges"] == answer.cut_edges
    np.testing.assert_allclose(answer.means, mean[answer.best.edges])
    assert answer.best.energy == pytest.approx(mean[answer.best.edges].sum())


def test_energy_model_is_never_clipped(city: RoadNetwork) -> None:
    """So that its route is the cheapest itself, though some energies are below zero."""
    answer = find_route(city, *ENDS)
    graph = answer.graph
    energies = Vehicle().energy(graph.length, graph.speed, graph.rise)
    assert answer.cut_edges == 0
    turned = Vehicle().turn_energy(graph)
    assert answer.best.energy == pytest.approx(cheapest(answer, energies, turned))
    turns = graph.turn_numbers(answer.best.edges)
    assert answer.best.energy == pytest.approx(
        energies[answer.best.edges].sum() + turned[turns].sum()
    )
    assert turned[turns].sum() > 0.0


@pytest.mark.parametrize("posterior", ["finite", "independent", "variational"])
def test_states_in_memory(city: RoadNetwork, posterior: Any) -> None:
    policy = learned(city, 40.0, posterior)
    answer = find_route(city, *ENDS, state=policy.state())
    assert answer.observations == policy.posterior.count > 0
    with pytest.raises(
        StateError, match=r"learned on another road network \(that one has \d+ edges"
    ):
        find_route(generate_city(edges=300, seed=2), *ENDS, state=policy.state())
    level = replace(city, junctions=city.junctions * [1.0, 1.0, 0.0])
    with pytest.raises(StateError, match=r"another road network \(heights differ"):
        find_route(level, *ENDS, state=policy.state())
    for settings in ({"mass": 3000.0}, {"gravity": 9.0}):
        with pytest.raises(StateError, match="has its own vehicle and model"):
            find_route(city, *ENDS, state=policy.state(), settings=settings)


@pytest.mark.parametrize(
    ("posterior", "wrapper"),
    [
        ("drifting", None),
        ("finite", {"name": "resetting", "block": 4}),
        ("drifting", {"name": "resetting", "block": 5}),
        ("finite", {"name": "refitting", "every": 1000}),
        ("finite", "change-detecting"),
    ],
)
def test_forgetting_state_predicts_its_next_round(
    city: RoadNetwork, posterior: Any, wrapper: Any
) -> None:
    """As the policy itself would be; step 1 is long ago, or in a block that was forgotten."""
    model = road_model(city.line_graph(), Vehicle(), horizon=9)
    policy = route_greedy(
        replace(model, drift=Temporal(epsilon=0.2)), posterior=posterior
    )
    policy = wrapped(policy, wrapper) if wrapper else policy
    assert policy.last_step == 0
    arms, rng = road_arms(city.line_graph()), np.random.default_rng(0)
    trip = find_route(city, *ENDS).trip
    for step in range(1, 7):
        offer = Offer(step=step, arms=arms, structure=trip)
        decision = policy.decide(offer, rng)
        rewards = np.full(len(decision.positions), 30.0)
        policy.commit(decision)
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
    answer = find_route(city, *ENDS, state=policy.state())
    expected = policy.posterior.belief(Offer(step=7, arms=arms)).mean
    np.testing.assert_allclose(answer.means, expected[answer.best.edges])
    if posterior == "drifting":
        past = policy.posterior.belief(Offer(step=1, arms=arms)).mean
        assert np.abs(past - expected).max() > 1.0


def test_state_restores_its_vehicle_and_turns(city: RoadNetwork) -> None:
    graph, heavy = city.line_graph(uturns=False), Vehicle(mass=3000.0)
    model = road_model(graph, heavy, horizon=1, lengthscale=2.0, noise_scale=0.3)
    state = route_greedy(model).state()
    answer = find_route(city, *ENDS, state=state)
    settings = {"uturns": False, "mass": 3000.0}
    direct = find_route(city, *ENDS, settings=settings)
    energies = heavy.energy(
        graph.length, graph.speed, graph.rise
    )  # as learned: without the turns
    assert answer.best.energy == pytest.approx(cheapest(answer, energies))
    assert direct.best.energy == pytest.approx(
        cheapest(direct, energies, heavy.turn_energy(graph))
    )
    light = find_route(city, *ENDS, settings={"uturns": False})
    assert (
        light.best.spread < 0.9 * direct.best.spread
    )  # roads and vehicles count by mass
    with pytest.raises(StateError, match="edges, this one"):
        find_route(city, *ENDS, state=state, settings={"uturns": True})


def test_states_without_roads_are_rejected(city: RoadNetwork) -> None:
    model = road_model(city.line_graph(), Vehicle(), horizon=1)
    for state in (known_cost(model, cost="length").state(), of_other_arms()):
        with pytest.raises(
            StateError, match="not the state of a policy that finds routes"
        ):
            find_route(city, *ENDS, state=state)
    changing = with_conditions(model, 1)
    policy = route_greedy(changing)
    policy.posterior.observe(np.zeros((1, 5)), [1.0])
    with pytest.raises(StateError, match="conditions that change from trip to trip"):
        find_route(city, *ENDS, state=policy.state())


def of_other_arms() -> Any:
    """The state of a policy on other arms."""
    posterior = FiniteGP(SquaredExponential(), [[0.0], [1.0]], 0.1)
    return IndexPolicy(posterior=posterior, rule=Greedy(), oracle=TopK()).state()


def test_flat_network_is_reported(city: RoadNetwork) -> None:
    level = replace(city, junctions=city.junctions * [1.0, 1.0, 0.0])
    assert find_route(level, *ENDS).flat
    assert not find_route(city, *ENDS).flat


def test_invalid_values_are_rejected_with_advice(city: RoadNetwork) -> None:
    router = Router(city)
    ends = router.graph.ids[0], router.graph.ids[9]
    for closed in ("-00_10", 5, None):
        with pytest.raises(InputError, match=r"closed must be a list of edge ids"):
            router.route(*ends, closed=closed)  # type: ignore[arg-type]
    for depart in (object(), 8, ["08:30"]):
        with pytest.raises(SpecError, match=r"depart must be HH:MM"):
            router.route(*ends, depart=depart)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"a place must be an edge id, .* got None"):
        router.route(None, ends[1])  # type: ignore[arg-type]


def test_invalid_input_is_rejected(city: RoadNetwork) -> None:
    with pytest.raises(UnknownArmError, match="no edge 'r1000000'"):
        find_route(city, "r1000000", "r20")
    with pytest.raises(SpecError, match="did you mean 'mass'"):
        find_route(city, *ENDS, settings={"mas": 1.0})
    with pytest.raises(
        InputError, match="'nowhere' is neither a file nor a known network"
    ):
        find_route("nowhere", *ENDS)
    with pytest.raises(
        InputError, match=r"city' is neither a file nor a known network"
    ):
        find_route(Path("city"), *ENDS)  # a file, not the name
    with pytest.raises(InputError, match="no geographic reference"):
        find_route(city, *ENDS, elevation="N49E006.hgt")


# --- on the map ----------------------------------------------------------------------------


def line_of(answer: RouteAnswer) -> Floats:
    [feature] = answer.as_geojson()["features"]
    return np.array(feature["geometry"]["coordinates"])


@pytest.mark.parametrize(("zone", "south"), [(32, False), (31, False), (19, True)])
def test_lines_follow_shapes_in_utm(city: RoadNetwork, zone: int, south: bool) -> None:
    """Also in the neighbouring zone, and south of the equator."""
    offset = np.array([820_000.0 if zone == 31 else 300_000.0, 5_400_000.0])
    lon_lat = from_utm(city.junctions[:, :2] + offset, zone, south=south)
    begin, end = city.junctions[city.tail, :2], city.junctions[city.head, :2]
    shapes = tuple(np.stack([begin, 0.5 * (begin + end) + 3.0, end], axis=1))
    answer = find_route(replace(city, lon_lat=lon_lat, shapes=shapes), *ENDS)
    metres = np.concatenate(
        [shapes[edge] for edge in answer.graph.edges[answer.best.edges]]
    )
    line = np.round(from_utm(metres + offset, zone, south=south), 7)
    distinct = [0, *(1 + np.flatnonzero(np.diff(line, axis=0).any(axis=1)))]
    np.testing.assert_allclose(line_of(answer), line[distinct], atol=2e-7)


def test_elsewhere_lines_go_from_junction_to_junction(city: RoadNetwork) -> None:
    """In an unknown projection, or without shapes."""
    stretched = city.junctions[:, :2] / 70_000.0 + [6.0, 49.0]
    for network in (
        replace(city, lon_lat=stretched),
        replace(city, lon_lat=stretched, shapes=None),
        replace(
            city, lon_lat=from_utm(city.junctions[:, :2] + [3e5, 54e5], 32), shapes=None
        ),
    ):
        answer = find_route(network, *ENDS)
        edges = answer.graph.edges[answer.best.edges]
        junctions = [network.tail[edges[0]], *network.head[edges]]
        np.testing.assert_allclose(
            line_of(answer), np.round(network.lon_lat[junctions], 7)
        )
    with pytest.raises(InputError, match="no geographic reference"):
        find_route(city, *ENDS).as_geojson()


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("arms", "", np.array(3.0)),
        ("arms", "", np.array([["a", "b"]])),
        ("mean", "", np.zeros(2)),
        ("mean", "rise", np.array(["x"])),
        ("kernel", "", 3.0),
        ("kernel", "kernels", []),
    ],
)
def test_a_damaged_state_is_refused_and_not_a_crash(
    city: RoadNetwork, part: str, name: str, value: Any
) -> None:
    state = learned(city, 40.0).state()
    posterior = state.spec["posterior"]
    broken = {**posterior[part], name: value} if name else value
    spec = {**state.spec, "posterior": {**posterior, part: broken}}
    with pytest.raises(StateError):
        find_route(city, *ENDS, state=replace(state, spec=spec))
    weight = {"weight": np.array([["x"]])}
    inner = replace(state.part("posterior"), arrays=weight)
    with pytest.raises(StateError, match="is damaged"):
        find_route(
            city, *ENDS, state=replace(state, parts={**state.parts, "posterior": inner})
        )


# --- a router with many queries ------------------------------------------------------------


@pytest.fixture(scope="module")
def placed() -> RoadNetwork:
    """A city on Earth, with names."""
    generated = generate_city(edges=900, seed=4)
    lon_lat = from_utm(generated.junctions[:, :2] + [300_000.0, 5_400_000.0], 32)
    names = tuple("Ring" if "ring" in edge else "" for edge in generated.edge_ids)
    return replace(generated, lon_lat=lon_lat, street_names=names)


def test_a_router_is_its_own_one_call_form(city: RoadNetwork) -> None:
    router = Router(city, settings={"mass": 2100.0})
    for ends in (ENDS, ("r20", "r1"), ("r3", "r3"), ENDS):
        direct = find_route(city, *ends, vehicle=Vehicle(mass=2100.0))
        assert router.route(*ends).as_json() == direct.as_json()


def test_spreads_are_those_of_the_forecast_and_grow(city: RoadNetwork) -> None:
    """By the model and as learned: 1.96 standard deviations of the sum, noise included."""
    policy = learned(city, 40.0)
    for options in ({}, {"state": policy.state()}):
        router = Router(city, **options)
        known = router.source.energies(None)
        way = router.route(*ENDS).best.way
        edges, parts = way.edges, RouteParts.of(way)
        spreads = [
            known.spread(parts.first(count)) for count in range(1, len(edges) + 1)
        ]
        assert (np.diff(spreads) > 0.0).all()
    offer = Offer(step=1, arms=road_arms(city.line_graph()))
    assert spreads[-1] == pytest.approx(
        1.959963984540054 * policy.forecast(offer, edges).total()[1]
    )


def test_places_and_streets_take_the_better_direction(placed: RoadNetwork) -> None:
    router = Router(placed)
    graph, rng = router.graph, np.random.default_rng(0)
    turned_round = 0
    for start, goal in rng.integers(len(graph), size=(20, 2)):
        lon_lat = placed.lon_lat[
            [placed.tail[graph.edges[start]], placed.head[graph.edges[start]]]
        ]
        place = tuple(lon_lat.mean(axis=0)[::-1])
        answer = router.route(place, graph.ids[goal])
        ways = router.places.find(place).edges
        search, match = router._costs.plan(None).search, router.places.find(place)
        target = Ends(np.array([goal]), np.ones(1))
        single = [
            Ends(np.array([way]), np.array([share]))
            for way, share in zip(ways, match.shares, strict=True)
        ]
        costs = [search.cost(search.find(start, target)) for start in single]
        assert search.cost(answer.best.way) == pytest.approx(min(costs))
        assert answer.trip.start == ways[int(np.argmin(costs))]
        label = answer.as_json()["from_place"]
        assert label.startswith(
            f"latitude {place[0]:.5f}, longitude {place[1]:.5f}: edge "
        )
        turned_round += answer.trip.start != ways[0]
        assert f": edge {graph.ids[answer.trip.start]}, " in label
        assert answer.as_json()["to_place"] is None
    assert turned_round > 0
    ring = router.route("RING", graph.ids[0])
    assert ring.as_json()["from_place"].startswith("Ring: edge ")
    assert "Ring" in ring.streets()


def test_closed_edges_are_not_driven(placed: RoadNetwork) -> None:
    router = Router(placed)
    ends = (router.graph.ids[5], router.graph.ids[400])
    free = router.route(*ends)
    gone = free.ids()[len(free.ids()) // 2]
    around = router.route(*ends, closed=[gone])
    assert gone not in around.ids()
    assert around.closed == around.as_json()["closed_edges"] == 1
    assert around.best.energy > free.best.energy
    assert all(
        gone not in map(router.graph.ids.__getitem__, leg.edges)
        for leg in around.others.values()
    )
    line = free.as_geojson()["features"][0]["geometry"]
    shut = router.closed_by(line)
    assert set(free.ids()) <= set(shut)
    assert len(shut) < 3 * len(free.ids()) + 10
    middle = free.ids()[1:-1]
    named = {"type": "Feature", "properties": {"edge": middle}, "geometry": None}
    assert router.closed_by(
        {"type": "FeatureCollection", "features": [named]}
    ) == sorted(middle, key=router.graph.number)
    assert not set(middle) & set(router.route(*ends, closed=middle).ids())
    with pytest.raises(
        InfeasibleError, match=f"no open route leads .* edge {ends[0]} is closed"
    ):
        router.route(*ends, closed=[ends[0]])
    around_goal = [
        router.graph.ids[edge] for edge, goal in router.graph.turns if goal == 400
    ]
    with pytest.raises(InfeasibleError, match=f"{len(around_goal)} edges are closed"):
        router.route(*ends, closed=around_goal)
    with pytest.raises(UnknownArmError, match="no edge and no street 'nowhere'"):
        router.route(*ends, closed=["nowhere"])
    assert router.route(*ends).ids() == free.ids()  # nothing is remembered


@pytest.mark.parametrize(
    ("geojson", "words"),
    [
        ([], "closures must be GeoJSON"),
        ({"type": "Point", "coordinates": [6.0, 49.0]}, "closures must be GeoJSON"),
        (
            {"type": "Feature", "geometry": {"type": "Point"}},
            "feature 1: its geometry is 'Point'",
        ),
        ({"type": "LineString", "coordinates": [[6.0, 49.0]]}, "two or more places"),
        ({"type": "LineString", "coordinates": ["12", "34"]}, "two or more places"),
        ({"type": "LineString", "coordinates": [[True, 1], [2, 3]]}, "two or more"),
        (
            {"type": "LineString", "coordinates": [[6.0, 99.0], [6.0, 9.0]]},
            "longitude then latitude",
        ),
        ({"type": "Polygon", "coordinates": []}, "two or more places"),
        ({"type": "MultiPolygon", "coordinates": 3}, "two or more places"),
        (
            {"type": "Feature", "properties": {"edge": "none"}},
            "feature 1: .* no street 'none'",
        ),
    ],
)
def test_closures_that_are_refused(
    placed: RoadNetwork, geojson: Any, words: str
) -> None:
    with pytest.raises(FileError, match=words):
        Router(placed).closed_by(geojson)


def test_areas_and_many_lines_close(placed: RoadNetwork) -> None:
    router = Router(placed)
    place = placed.lon_lat[placed.tail[router.graph.edges[30]]]
    box = [
        [float(place[0] + x), float(place[1] + y)]
        for x, y in ((-1e-4, -1e-4), (1e-4, -1e-4), (0.0, 1e-4))
    ]
    area = {"type": "Polygon", "coordinates": [[*box, box[0]]]}
    closed = router.closed_by(area)
    assert router.graph.ids[30] in closed
    assert (
        router.closed_by({"type": "MultiPolygon", "coordinates": [area["coordinates"]]})
        == closed
    )
    line = router.route("r1", "r200").as_geojson()["features"][0]["geometry"][
        "coordinates"
    ]
    many = {"type": "MultiLineString", "coordinates": [line, line]}
    assert router.closed_by(many) == router.closed_by(
        {"type": "LineString", "coordinates": line}
    )


def test_the_class_of_a_vehicle(city: RoadNetwork) -> None:
    closed = np.ones(len(city.edge_ids), dtype=bool)
    gone = city.edge_ids.index(find_route(city, *ENDS).ids()[3])
    closed[gone] = False
    narrow = replace(city, permits={**city.permits, "delivery": closed})
    assert (
        city.edge_ids[gone]
        not in find_route(narrow, *ENDS, vehicle_class="delivery").ids()
    )
    assert city.edge_ids[gone] in find_route(narrow, *ENDS).ids()
    with pytest.raises(InputError, match="unknown vehicle class 'tank'"):
        find_route(city, *ENDS, vehicle_class="tank")


# --- batteries -----------------------------------------------------------------------------


def test_a_battery_is_lowest_where_it_is_least_certain() -> None:
    """Behind the place of least charge: before it is computed, its spread is taken for the one at arrival."""
    spreads = {1: 1.0, 2: 30.0, 3: 31.0}
    energies = np.array([50.0, -2.0, -28.0])
    course = Battery().follow(100.0, energies, spreads.__getitem__)
    assert course.level.tolist() == [100.0, 50.0, 52.0, 80.0]
    assert course.worst == 2
    assert course.lowest == 52.0 - 30.0


def test_a_battery_is_followed_edge_by_edge() -> None:
    """Against the recursion b ← min(C, b − e), with what did not fit added up."""
    rng = np.random.default_rng(0)
    for capacity in (45.0, 60.0, np.inf):
        for drift in (2.0, -1.0):
            battery = Battery(capacity=capacity, reserve=5.0)
            energies, spreads = (
                rng.normal(drift, 20.0, size=40),
                np.sqrt(np.arange(1, 41)),
            )
            counts: list[int] = []

            def spread(
                count: int, spreads: Floats = spreads, counts: list[int] = counts
            ) -> float:
                counts.append(count)
                return float(spreads[count - 1])

            course = battery.follow(40.0, energies, spread)
            charge, lost, levels = 40.0, 0.0, [40.0]
            for energy in energies:
                charge, lost = (
                    min(charge - energy, capacity),
                    lost + max(0.0, charge - energy - capacity),
                )
                levels.append(charge)
            np.testing.assert_allclose(course.level, levels)
            assert course.lost == pytest.approx(lost)
            low = np.array(levels) - np.concatenate([[0.0], spreads])
            assert course.lowest == pytest.approx(low.min())
            assert course.worst == low.argmin()
            assert course.missing == pytest.approx(max(0.0, 5.0 - low.min()))
            assert course.spread == spreads[-1]
            assert len(counts) < 10


@pytest.mark.parametrize("arrival", [100.0, 20.0])
def test_lowest_charge_includes_climbs_recovered_later(
    arrival: float,
) -> None:
    """Over a hill h is largest at the top, where the charge is least; at arrival it is smaller."""
    energies = np.repeat([50.0, -30.0], 20)
    spreads = np.interp(np.arange(41), [0, 20, 40], [0.0, 60.0, arrival])
    course = Battery(capacity=5000.0).follow(
        2000.0, energies, lambda count: float(spreads[count])
    )
    low = 2000.0 - np.concatenate([[0.0], np.cumsum(energies)]) - spreads
    assert (course.worst, course.lowest) == (20, pytest.approx(low.min()))
    assert course.spread == arrival


def test_a_route_that_may_run_empty_is_refused(city: RoadNetwork) -> None:
    router = Router(city, battery=Battery(capacity=1000.0, reserve=50.0))
    full = router.route(*ENDS)
    assert full.charge is not None
    battery = full.as_json()["battery"]
    assert battery["charge_wh"] == 1000.0
    assert battery["arrival_wh"] == pytest.approx(
        1000.0 - full.best.energy - battery["lost_wh"]
    )
    assert battery["arrival_low_wh"] == pytest.approx(
        battery["arrival_wh"] - full.best.spread
    )
    assert battery["arrival_high_wh"] == pytest.approx(
        min(1000.0, battery["arrival_wh"] + full.best.spread)
    )
    assert battery["missing_wh"] == 0.0
    with pytest.raises(InfeasibleError, match="may fall below the reserve") as caught:
        router.route(*ENDS, charge=60.0)
    anyway = router.route(*ENDS, charge="6%", anyway=True)
    assert anyway.charge is not None
    missing = anyway.charge.missing
    assert (
        f"{50.0 - missing:.0f} Wh. Start with at least {60.0 + missing:.0f} Wh"
        in str(caught.value)
    )
    assert f"edge {anyway.as_json()['battery']['lowest_at']} (" in str(caught.value)
    enough = router.route(*ENDS, charge=60.0 + missing + 1e-6)
    assert enough.ids() == anyway.ids()
    small = Router(city, battery=Battery(capacity=90.0))
    with pytest.raises(InfeasibleError, match="Charge on the way"):
        small.route(*ENDS)


def test_battery_may_be_lowest_on_top_of_a_hill() -> None:
    """Over a hill: what is won back downhill comes too late."""
    hill = over_a_hill(100.0)
    answer = find_route(
        hill, "up", "down", battery=Battery(capacity=5000.0), charge=300.0, anyway=True
    )
    assert answer.charge is not None
    assert answer.charge.worst == 1
    assert answer.as_json()["battery"]["arrival_low_wh"] > answer.charge.lowest
    assert answer.charge.missing > 0.0
    with pytest.raises(InfeasibleError, match=r"after edge up \(1\.00 km\)"):
        find_route(hill, "up", "down", charge=300.0)


def test_battery_report() -> None:
    """Where it is lowest is the edge just driven; above its capacity a battery holds nothing."""
    course = Battery(capacity=1000.0, reserve=400.0).follow(
        900.0, np.array([200.0, 300.0, -250.0]), lambda count: 10.0 * count
    )
    assert course.as_json(["a", "b", "c"]) == {
        "capacity_wh": 1000.0,
        "reserve_wh": 400.0,
        "charge_wh": 900.0,
        "arrival_wh": 650.0,
        "arrival_low_wh": 620.0,
        "arrival_high_wh": 680.0,
        "lowest_wh": 380.0,
        "lowest_at": "b",
        "lost_wh": 0.0,
        "missing_wh": 20.0,
    }
    nearly = (
        Battery(capacity=700.0)
        .follow(690.0, np.array([-5.0]), lambda count: 10.0)
        .as_json(["a"])
    )
    assert (nearly["arrival_wh"], nearly["arrival_high_wh"]) == (695.0, 700.0)


def test_full_battery_cannot_recuperate() -> None:
    down = over_a_hill(-100.0)
    full = find_route(down, "up", "down", battery=Battery(capacity=5000.0))
    half = find_route(
        down, "up", "down", battery=Battery(capacity=5000.0), charge="50%"
    )
    assert full.charge is not None
    assert half.charge is not None
    assert full.means[0] < 0.0
    assert full.charge.lost == pytest.approx(-full.means[0])
    assert half.charge.lost == 0.0
    spent = [5000.0 - full.charge.level[-1], 2500.0 - half.charge.level[-1]]
    assert spent[0] - spent[1] == pytest.approx(full.charge.lost)


def test_lost_recuperation_can_favour_a_flat_route() -> None:
    """Down into a valley and up again, or around it: full, the way around takes less."""
    valley = over_a_hill(-60.0, around=2300.0)
    battery = Battery(capacity=5000.0)
    half = find_route(valley, "start", "goal", battery=battery, charge="50%")
    full = find_route(valley, "start", "goal", battery=battery)
    assert "up" in half.ids()
    assert "around" in full.ids()
    assert full.charge is not None
    assert full.best.energy > half.best.energy
    assert full.charge.lost == 0.0


def over_a_hill(height: float, around: float = 9000.0) -> RoadNetwork:
    """start, up and down (1 km each), goal; or straight around, and back to the start."""
    ids = ("start", "up", "down", "goal", "around", "back")
    return RoadNetwork(
        name="hill",
        junction_ids=tuple("abcde"),
        junctions=[
            [x, 0.0, height if x == 1000.0 else 0.0]
            for x in (0.0, 50.0, 1000.0, 2e3, 2050.0)
        ],
        edge_ids=ids,
        tail=[0, 1, 2, 3, 1, 4],
        head=[1, 2, 3, 4, 3, 0],
        length=[50.0, 1000.0, 1000.0, 50.0, around, 2000.0],
        speed=np.full(6, 14.0),
        permits={"passenger": np.ones(6, dtype=bool)},
        connections=[[0, 1], [1, 2], [2, 3], [0, 4], [4, 3], [3, 5], [5, 0]],
        turn_permits={"passenger": np.ones(7, dtype=bool)},
    )


def test_charges_and_batteries_that_are_refused(city: RoadNetwork) -> None:
    with pytest.raises(SpecError, match="capacity is unknown: set battery_wh"):
        find_route(city, *ENDS, charge="80%")
    for charge in ("much", -1.0, "120%", 2000.0, "nan"):
        with pytest.raises(
            SpecError, match=r"must be Wh \(24000\) or a share .* at most 1000 Wh"
        ):
            find_route(city, *ENDS, battery=Battery(capacity=1000.0), charge=charge)
    with pytest.raises(InputError, match=r"reserve_wh must be .*, got 2000"):
        Battery(capacity=1000.0, reserve=2000.0)
    assert find_route(city, *ENDS).charge is None
    assert (
        find_route(city, *ENDS, charge=5000.0).as_json()["battery"]["capacity_wh"]
        == np.inf
    )


def test_vehicles_as_files(tmp_path: Path) -> None:
    path = tmp_path / "van.toml"
    lines = "mass = 2600\nauxiliary_power = 900.0\nbattery_wh = 58_000\nreserve_wh = 3000.0\n"
    path.write_text(lines)
    van = read_vehicle(path)
    assert van.vehicle == Vehicle(mass=2600.0, auxiliary_power=900.0)
    assert van.battery == Battery(capacity=58_000.0, reserve=3000.0)
    assert van.vehicle_name is None
    path.write_text(f"[van-1]\n{lines}\n['old one']\nbattery_wh = 24_000.0\n")
    assert read_vehicle(f"{path}#van-1") == van._replace(vehicle_name="van-1")
    assert list(read_vehicles(path)) == ["van-1", "old one"]
    assert read_vehicle(f"{path}#old one").vehicle is None
    with pytest.raises(
        SpecError, match=r"describes several vehicles; choose one: .*van.toml#van-1 or"
    ):
        read_vehicle(path)
    with pytest.raises(SpecError, match=r"no vehicle 'van-2'; did you mean 'van-1'"):
        read_vehicle(f"{path}#van-2")
    for count, pattern in ((3, r"#c$"), (4, r"#c, …$")):
        path.write_text("".join(f"[{name}]\n" for name in "abcd"[:count]))
        with pytest.raises(SpecError, match=f"choose one: .*#a or .*#b or .*{pattern}"):
            read_vehicle(path)
    for text, words, kind in (
        ("mas = 1", "unknown key 'mas'; did you mean 'mass'", SpecError),
        ("mass = 'heavy'", "mass must be a number, got 'heavy'", SpecError),
        ("mass = -1", "van.toml: mass must be .*, got -1", SpecError),
        ("reserve_wh = 9\nbattery_wh = 2", "reserve_wh must be .*, got 9", SpecError),
        ("mass = 1\n[van]\nmass = 2", "mass is outside any table", SpecError),
        ("mass", "cannot be read as vehicles", FileError),
    ):
        path.write_text(text)
        with pytest.raises(kind, match=words):
            read_vehicle(path)
    for name in ("none.toml", "none.toml#van-1"):
        with pytest.raises(SpecError, match=r"none.toml: file not found$"):
            read_vehicle(tmp_path / name)


def test_another_vehicle_than_the_states_own_is_refused(city: RoadNetwork) -> None:
    state = learned(city, 40.0).state()
    assert find_route(city, *ENDS, state=state, vehicle=Vehicle()).observations > 0
    with pytest.raises(
        StateError, match="has its own vehicle and model, so you cannot set mass"
    ):
        find_route(city, *ENDS, state=state, vehicle=Vehicle(mass=2600.0))


# --- times of departure --------------------------------------------------------------------


def test_state_with_rush_hours_uses_the_departure_time(
    city: RoadNetwork,
) -> None:
    """The next trip at that hour: the first was at 0 o'clock, and there are 24 a day."""
    graph = city.line_graph()
    drift = Constant(variance=0.5) + Temporal(epsilon=0.002) * Periodic(
        period=24.0, variance=0.5
    )
    model = replace(road_model(graph, Vehicle(), horizon=99), drift=drift)
    policy = route_greedy(model, posterior="drifting")
    arms, rng, trip = (
        road_arms(graph),
        np.random.default_rng(0),
        find_route(city, *ENDS).trip,
    )
    for step in range(1, 30):
        offer = Offer(step=step, arms=arms, structure=trip)
        decision = policy.decide(offer, rng)
        extra = 30.0 * ((step - 1) % 24 == 8)
        rewards = np.full(len(decision.positions), 20.0 + extra)
        policy.commit(decision)
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
    router = Router(city, state=policy.state())
    for depart, step in (
        ("08:00", 33),
        ("8:00:00", None),
        ("2025-03-14", None),
        ("20250314", None),
        ("2025", None),
        ("05:20", 30),
        ("2025-03-14T04:10", 53),
    ):
        if step is None:
            with pytest.raises(SpecError, match="must be HH:MM"):
                router.route(*ENDS, depart=depart)
            continue
        answer = router.route(*ENDS, depart=depart)
        expected = policy.posterior.belief(Offer(step=step, arms=arms)).mean
        np.testing.assert_allclose(answer.means, expected[answer.best.edges])
        assert answer.timed
        assert answer.as_json()["depart"] == depart
    still = router.route(*ENDS)
    assert not still.timed
    assert router.route(*ENDS, depart="08:00").best.energy > still.best.energy
    unused = find_route(city, *ENDS, depart="08:00")
    assert unused.as_json()["depart_used"] is False
    assert unused.ids() == find_route(city, *ENDS).ids()


# --- a fleet's belief ----------------------------------------------------------------------


def of_a_fleet(network: RoadNetwork) -> Any:
    """A policy that has learned from a few trips of the vehicle "van"."""
    graph, rng = network.line_graph(), np.random.default_rng(0)
    policy = route_greedy(fleet_model(graph, refit=0), routing="rectified")
    rows = road_rows(graph, Vehicle(mass=2000.0), vehicle_number("van"))
    router = Router(network)
    for start, goal in rng.integers(len(graph), size=(12, 2)):
        edges = router.route(graph.ids[start], graph.ids[goal]).best.edges
        policy.posterior.observe(
            rows[edges], 1.3 * rows[edges, 1] + rng.normal(size=len(edges))
        )
    return policy


def test_a_fleets_state_answers_for_any_vehicle(city: RoadNetwork) -> None:
    """As the posterior predicts for its rows, with height and turns added for that vehicle."""
    policy = of_a_fleet(city)
    graph = city.line_graph()
    for vehicle, name in (
        (Vehicle(), None),
        (Vehicle(mass=2000.0), "van"),
        (Vehicle(mass=2600.0), "bus"),
    ):
        answer = find_route(
            city, *ENDS, state=policy.state(), vehicle=vehicle, vehicle_name=name
        )
        edges = answer.best.edges
        every = road_rows(graph, vehicle, 77 if name is None else vehicle_number(name))
        rows = every[edges]
        expected = policy.posterior.predict(rows).mean + vehicle.potential(
            graph.rise[edges]
        )
        turned = vehicle.turn_energy(graph)
        expected[1:] += turned[graph.turn_numbers(edges)]
        np.testing.assert_allclose(answer.means, expected)
        std = policy.posterior.total(rows)[1]
        assert answer.best.spread == pytest.approx(
            policy.posterior.widths()[1][AT_95] * std
        )
        costs = np.maximum(policy.posterior.predict(every).mean, 0.0)
        cost = costs[edges].sum() + turned[graph.turn_numbers(edges)].sum()
        assert cost == pytest.approx(cheapest(answer, costs, turned))
        assert answer.observations == policy.posterior.count
        assert answer.record == policy.posterior.track_record
    own, new = (
        find_route(city, *ENDS, state=policy.state(), vehicle_name=name)
        for name in ("van", None)
    )
    assert own.best.spread < new.best.spread
    with pytest.raises(
        StateError,
        match=r"another road network \(.* edges, this one",
    ):
        find_route(generate_city(edges=300, seed=2), *ENDS, state=policy.state())
