"""A fleet's log: reading it, and learning it exactly once."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import superarm
from superarm.core.errors import FileError, InputError, StateError
from superarm.core.states import state_to_bytes
from superarm.kernels import Matern
from superarm.oracles import ShortestPath, TopK, Trip
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    LoggedTrip,
    TripSection,
    fleet_policy,
    learn_trips,
    read_trips,
    vehicle_number,
)
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.policies.navigation import informed
from superarm.roads.posterior import RoadGP
from superarm.roads.problems import Fleet
from superarm.roads.problems.fleet import road_rows
from superarm.rules import Greedy

VAN = Vehicle(mass=2600.0, auxiliary_power=900.0)


@pytest.fixture(scope="module")
def graph() -> LineGraph:
    return generate_city(edges=200, seed=1).line_graph(uturns="dead-ends")


def route_of(graph: LineGraph, start: int, goal: int) -> list[int]:
    oracle = ShortestPath(successors=graph.turn_graph)
    selection = oracle.select(
        -graph.length, Trip(start=start, goal=goal), np.random.default_rng(0)
    )
    return [int(edge) for edge in selection.positions]


def metered(graph: LineGraph, edges: list[int], more: float = 0.0) -> list[float]:
    """Wh of each edge by the energy model for a van, turns included, and so much more."""
    energies = VAN.energy(graph.length, graph.speed, graph.rise)[edges] + more
    energies[:-1] += VAN.turn_energy(graph)[graph.turn_numbers(edges)]
    return [float(energy) for energy in energies]


def by_edges(
    graph: LineGraph, name: str, edges: list[int], more: float = 0.0, **options: Any
) -> LoggedTrip:
    energies = metered(graph, edges, more)
    sections = tuple(
        TripSection((graph.ids[edge],), energy)
        for edge, energy in zip(edges, energies, strict=True)
    )
    return LoggedTrip(name=name, sections=sections, **{"vehicle": "van", **options})


def posterior_of(policy: IndexPolicy) -> RoadGP:
    assert isinstance(policy.posterior, RoadGP)
    return policy.posterior


def keys_of(graph: LineGraph, edges: list[int], vehicle: str = "van") -> Any:
    return road_rows(graph, VAN, vehicle_number(vehicle))[edges]


# --- what trips teach ----------------------------------------------------------------------


def test_edges_teach_their_energies_less_heights_and_turns(graph: LineGraph) -> None:
    """A van that is as the model has it, but for 1 Wh an edge: rewards are what is expected plus 1."""
    edges = route_of(graph, 3, 120)
    lesson = learn_trips(
        graph, [by_edges(graph, "a", edges, 1.0)], vehicles={"van": VAN}, refit=0
    )
    expected = fleet_policy(graph, refit=0)
    keys = keys_of(graph, edges)
    posterior_of(expected).observe(keys, keys[:, 1] + 1.0)
    assert (lesson.trips, lesson.known, lesson.refused) == (1, 0, {})
    np.testing.assert_allclose(
        lesson.posterior.predict(keys).mean,
        posterior_of(expected).predict(keys).mean,
        atol=1e-9,
    )
    np.testing.assert_allclose(
        lesson.posterior.state().array("rewards"), keys[:, 1] + 1.0, atol=1e-9
    )


def test_trip_total_is_learned_as_a_sum(graph: LineGraph) -> None:
    edges = route_of(graph, 3, 120)
    total = sum(metered(graph, edges, 1.0))
    trip = LoggedTrip(
        name="a",
        vehicle="van",
        sections=(TripSection(tuple(graph.ids[e] for e in edges), total),),
    )
    lesson = learn_trips(graph, [trip], vehicles={"van": VAN}, refit=0)
    keys = keys_of(graph, edges)
    state = lesson.posterior.state()
    np.testing.assert_allclose(
        state.array("rewards"), [keys[:, 1].sum() + len(edges)], atol=1e-8
    )
    np.testing.assert_array_equal(state.array("of"), np.zeros(len(edges)))


def test_sections_charge_each_turn_to_the_edge_before_it(graph: LineGraph) -> None:
    edges = route_of(graph, 3, 120)
    assert len(edges) >= 5
    energies = metered(graph, edges)
    sections = (
        TripSection(tuple(graph.ids[e] for e in edges[:2]), sum(energies[:2])),
        TripSection(tuple(graph.ids[e] for e in edges[2:]), sum(energies[2:])),
    )
    lesson = learn_trips(
        graph,
        [LoggedTrip(name="a", vehicle="van", sections=sections)],
        vehicles={"van": VAN},
    )
    keys = keys_of(graph, edges)
    np.testing.assert_allclose(
        lesson.posterior.state().array("rewards"),
        [keys[:2, 1].sum(), keys[2:, 1].sum()],
        atol=1e-9,
    )


def test_edges_may_be_missing_and_may_be_driven_twice(graph: LineGraph) -> None:
    """Behind a gap nothing is known of the turn; what the edge before it is charged stays as it is."""
    edges = route_of(graph, 3, 120)
    energies = metered(graph, edges)
    sections = [
        TripSection((graph.ids[e],), w) for e, w in zip(edges, energies, strict=True)
    ]
    gap = LoggedTrip(name="gap", vehicle="van", sections=(*sections[:2], *sections[3:]))
    turn = VAN.turn_energy(graph)[graph.turn_numbers(edges)][1]
    lesson = learn_trips(graph, [gap], vehicles={"van": VAN})
    keys = keys_of(graph, edges)
    rewards = lesson.posterior.state().array("rewards")
    expected = np.delete(keys[:, 1], 2)
    expected[1] += turn
    np.testing.assert_allclose(rewards, expected, atol=1e-9)
    repeated = LoggedTrip(
        name="twice", vehicle="van", sections=(sections[0], sections[0], sections[1])
    )
    lesson = learn_trips(graph, [repeated], vehicles={"van": VAN})
    assert lesson.trips == 1
    assert len(lesson.posterior.visited) == 2
    assert lesson.posterior.count == 3


def test_a_trip_is_learned_once(graph: LineGraph, tmp_path: Path) -> None:
    first, second = (
        by_edges(graph, name, route_of(graph, 3, 120), 2.0) for name in "ab"
    )
    other = by_edges(
        graph, "a", route_of(graph, 3, 120), 2.0, vehicle="car"
    )  # the car's own "a"
    lesson = learn_trips(graph, [first, second, first, other], vehicles={"van": VAN})
    assert (lesson.trips, lesson.known) == (3, 1)
    before = state_to_bytes(lesson.policy.state())
    repeated = learn_trips(
        graph, [second, first], policy=lesson.policy, vehicles={"van": VAN}
    )
    assert (repeated.trips, repeated.known) == (0, 2)
    assert state_to_bytes(repeated.policy.state()) == before
    lesson.policy.save(tmp_path / "fleet.npz")
    loaded = superarm.load(tmp_path / "fleet.npz")
    assert isinstance(loaded, IndexPolicy)
    third = by_edges(graph, "c", route_of(graph, 10, 90), 2.0)
    more = learn_trips(graph, [first, third], policy=loaded, vehicles={"van": VAN})
    assert (more.trips, more.known) == (1, 1)
    assert more.posterior.trips == 4


def test_in_parts_or_at_once_is_the_same(graph: LineGraph) -> None:
    trips = [
        by_edges(graph, str(n), route_of(graph, 3 + n, 120 - n), 0.1 * n)
        for n in range(6)
    ]
    at_once = learn_trips(graph, trips, vehicles={"van": VAN})
    parts = learn_trips(graph, trips[:2], vehicles={"van": VAN})
    parts = learn_trips(graph, trips, policy=parts.policy, vehicles={"van": VAN})
    assert (parts.trips, parts.known) == (4, 2)
    assert state_to_bytes(parts.posterior.state()) == state_to_bytes(
        at_once.posterior.state()
    )


def test_vehicles_are_distinguished_by_name(graph: LineGraph) -> None:
    edges = route_of(graph, 3, 120)
    trips = [by_edges(graph, "a", edges), by_edges(graph, "b", edges, vehicle="other")]
    lesson = learn_trips(graph, trips, vehicles={"van": VAN})
    who = np.unique(lesson.posterior.state().array("keys")[:, 8])
    assert set(who) == {vehicle_number("van"), vehicle_number("other")}
    numbers = [vehicle_number(name) for name in ("", "a", "b", "van", "Ünïcode")]
    assert len(set(numbers)) == 5
    assert all(0 <= number < 2**31 for number in numbers)
    masses = np.unique(lesson.posterior.state().array("keys")[:, 6])
    np.testing.assert_allclose(masses, [1.0, 2600.0 / 1830.0])  # one without settings


def test_unlearnable_trips_are_reported(graph: LineGraph) -> None:
    good = by_edges(graph, "good", route_of(graph, 3, 120))
    strange = LoggedTrip(name="strange", sections=(TripSection(("nowhere",), 5.0),))
    empty = LoggedTrip(name="empty", sections=())
    lesson = learn_trips(graph, [strange, good, empty], vehicles={"van": VAN})
    assert lesson.trips == 1
    assert set(lesson.refused) == {"strange", "empty"}
    assert "nowhere" in lesson.refused["strange"]
    none = learn_trips(graph, [strange])
    assert (none.trips, none.posterior.trips) == (0, 0)
    summary = none.as_json(graph)
    assert (summary["trips_judged"], summary["trips_inside"], summary["trust"]) == (
        0,
        None,
        True,
    )


def test_outliers_are_reported_by_edge(graph: LineGraph) -> None:
    edges = route_of(graph, 3, 120)
    good = [by_edges(graph, str(n), edges, 0.5) for n in range(5)]
    odd = by_edges(graph, "odd", edges, 0.5)
    far = replace(
        odd,
        sections=(
            *odd.sections[:1],
            odd.sections[1]._replace(energy=900.0),
            *odd.sections[2:],
        ),
    )
    for what in ("keep", "weigh", "refuse"):
        lesson = learn_trips(graph, [*good, far], vehicles={"van": VAN}, outliers=what)
        summary = lesson.as_json(graph)
        assert summary["outliers"] == len(summary["flagged"]) == 1
        assert summary["flagged"][0]["edges"] == [graph.ids[edges[1]]]
        assert summary["flagged"][0]["standard_deviations"] > 6.0


def test_units_are_judged_by_what_heights_and_turns_take_too() -> None:
    """Up steep hills nearly all is stored in height; down them a trip may take anything, or give."""
    level = generate_city(edges=200, seed=1)
    steep = replace(level, junctions=level.junctions * (1.0, 1.0, 10.0)).line_graph(
        uturns="dead-ends"
    )
    downhill = np.argsort(steep.rise / steep.length).tolist()
    log = [by_edges(steep, f"up {edge}", [edge]) for edge in downhill[-5:]]
    vans = {"vehicles": {"van": VAN}, "refit": 0}
    assert learn_trips(steep, log, **vans).trips == 5
    log += [
        by_edges(steep, f"down {edge}", [edge], more=-20.0) for edge in downhill[:9]
    ]
    assert learn_trips(steep, log, **vans).trips == 14
    thousandth = [
        replace(
            trip,
            sections=tuple(
                TripSection(section.edges, section.energy / 1e3)
                for section in trip.sections
            ),
        )
        for trip in log
    ]
    with pytest.raises(InputError, match=r"used 0\.001 times the expected energy"):
        learn_trips(steep, thousandth, **vans)


def test_another_state_is_refused(graph: LineGraph) -> None:
    trip = by_edges(graph, "a", route_of(graph, 3, 120))
    other = generate_city(edges=200, seed=2).line_graph(uturns="dead-ends")
    stranger = IndexPolicy(
        posterior=StreamingGP(Matern(), 0.1), rule=Greedy(), oracle=TopK()
    )
    with pytest.raises(StateError, match="not a fleet's state"):
        learn_trips(graph, [trip], policy=stranger)
    with pytest.raises(StateError, match="another road network"):
        learn_trips(graph, [trip], policy=fleet_policy(other))
    network = graph.network
    flat = replace(network, junctions=network.junctions * (1.0, 1.0, 0.0))
    slower = replace(network, speed=0.9 * network.speed)
    longer = replace(network, length=1.1 * network.length)
    unlike = {
        other_network.line_graph(uturns="dead-ends"): "speed limits or heights"
        for other_network in (flat, slower)
    }
    unlike |= {longer.line_graph(uturns="dead-ends"): "the lengths of roads differ"}
    permits = {
        who: np.arange(len(may)) != 2 for who, may in network.turn_permits.items()
    }
    fewer = replace(network, turn_permits=permits)
    unlike |= {fewer.line_graph(uturns="dead-ends"): "the turns between roads differ"}
    for roads, message in unlike.items():
        with pytest.raises(StateError, match=rf"another road network \({message}"):
            learn_trips(roads, [], policy=fleet_policy(graph))


def test_learning_from_a_log_approaches_learning_online() -> None:
    """Learning a simulated fleet's log edge by edge equals learning online."""
    problem = Fleet(
        seed=3, horizon=30, edges=200, least_metres=300.0, vehicles=3, trips=4
    )
    graph, policy, rng = (
        problem.graph,
        informed(problem.model),
        np.random.default_rng(0),
    )
    logged, online = [], fleet_policy(graph, refit=0)
    for step in range(1, 31):
        offer = problem.offer(step)
        decision = policy.decide(offer, rng)
        route = [int(edge) for edge in decision.positions]
        energies = problem.energies(step, tuple(route))
        sections = tuple(
            TripSection((graph.ids[edge],), float(energy))
            for edge, energy in zip(route, energies, strict=True)
        )
        who = problem.journey(step).vehicle
        logged.append(LoggedTrip(name=str(step), vehicle=f"v{who}", sections=sections))
        seen = problem.feedback(offer, decision, np.zeros(len(offer.arms)))
        keys = offer.arms.features[decision.positions].copy()
        keys[:, 8] = vehicle_number(f"v{who}")
        posterior_of(online).observe(keys, seen.rewards)
    vehicles = {f"v{who}": vehicle for who, vehicle in enumerate(problem.fleet)}
    lesson = learn_trips(graph, logged, vehicles=vehicles, refit=0)
    rows = road_rows(graph, problem.fleet[1], vehicle_number("v1"))
    for what in ("mean", "std"):
        one, other = (
            getattr(posterior.predict(rows), what)
            for posterior in (lesson.posterior, posterior_of(online))
        )
        np.testing.assert_allclose(one, other, atol=1e-8)


# --- reading -------------------------------------------------------------------------------


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_by_edges_and_by_trips(graph: LineGraph, tmp_path: Path) -> None:
    edges = write(
        tmp_path / "edges.csv",
        "trip,vehicle,edge,energy_wh\na,van,r1,1.5\na,van, r2 ,-0.5\nb,,r1,2\n",
    )
    assert read_trips(edges, graph) == [
        LoggedTrip(
            name="a",
            vehicle="van",
            sections=(TripSection(("r1",), 1.5), TripSection(("r2",), -0.5)),
        ),
        LoggedTrip(name="b", vehicle="", sections=(TripSection(("r1",), 2.0),)),
    ]
    trips = write(
        tmp_path / "trips.csv", "energy_wh,edges,trip,weather\n7.25,r1  r2 r3,x,rain\n"
    )
    assert read_trips(trips, graph) == [
        LoggedTrip(name="x", sections=(TripSection(("r1", "r2", "r3"), 7.25),))
    ]


def test_packed_tables_and_other_line_ends(graph: LineGraph, tmp_path: Path) -> None:
    text = "trip,edge,energy_wh\na,r1,1.5\nb,r2,2.5\n"
    expected = read_trips(write(tmp_path / "plain.csv", text), graph)
    packed = tmp_path / "trips.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    bom = tmp_path / "bom.csv"
    bom.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    quoted = write(
        tmp_path / "quoted.csv", 'trip,edge,energy_wh\n"a",r1,"1.5"\nb,r2,2.5\n'
    )
    for path in (packed, bom, quoted):
        assert read_trips(path, graph) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got none"),
        ("trip,edge\na,r1\n", "must name the columns"),
        ("edge,energy_wh\nr1,1\n", "must name the columns"),
        ("trip,edge,edges,energy_wh\na,r1,r1,1\n", "must name the columns"),
        ("trip,energy_wh\na,1\n", "must name the columns"),
        ("trip,time_s,lat,lon\na,1,2,3\n", "counter_wh"),
        ("trip,edge,energy_wh\n", "no rows"),
        ("trip,edge,energy_wh\na,r1,lots\n", "line 2: energy_wh must be .* got 'lots'"),
        ("trip,edge,energy_wh\na,r1,\n", "line 2: energy_wh must be .* got ''"),
        (
            "trip,edge,energy_wh\na,r1,1\nb,r1,nan\n",
            "line 3: energy_wh must be .* got 'nan'",
        ),
        ("trip,edge,energy_wh\na,r1,inf\n", "energy_wh must be .* got 'inf'"),
        ("trip,edge,energy_wh\na,r1,1e30\n", "energy_wh must be .* got '1e30'"),
        ("trip,edge,energy_wh\na,,1\n", "line 2: edge must not be empty"),
        ("trip,edges,energy_wh\na,  ,1\n", "line 2: edges must not be empty"),
        ("trip,edge,energy_wh\n,r1,1\n", "column trip is empty"),
        ("trip,edge,energy_wh\na\n", "line 2"),
        ("trip,edge,energy_wh\na,r1,1\nb,r1,1\na,r2,1\n", "'a' are not contiguous"),
    ],
)
def test_tables_that_cannot_be_read(
    graph: LineGraph, tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(FileError, match=message) as caught:
        read_trips(write(tmp_path / "trips.csv", text), graph)
    assert "trips.csv" in str(caught.value)


def test_files_that_cannot_be_read(graph: LineGraph, tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(
        "trip,edge,energy_wh\na,Straße,1\n".encode("latin-1")
    )
    (tmp_path / "cut.csv.gz").write_bytes(
        gzip.compress(b"trip,edge,energy_wh\n" * 99)[:-9]
    )
    for name in ("latin.csv", "cut.csv.gz", "nowhere.csv", "."):
        with pytest.raises(FileError):
            read_trips(tmp_path / name, graph)
