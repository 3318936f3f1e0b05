"""A fleet's log: learned once; invalid trips are rejected."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import FileError, InputError, StateError
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    LoggedTrip,
    TripSection,
    fleet_policy,
    learn_trips,
    learning,
    metering,
    read_trips,
    vehicle_number,
)
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.posterior import RoadGP
from superarm.roads.problems.fleet import road_rows

VAN = Vehicle(mass=2600.0, auxiliary_power=800.0)


@pytest.fixture(scope="module")
def graph() -> LineGraph:
    """With junctions that are slow to drive through, each in its own way."""
    city, rng = generate_city(edges=200, seed=4), np.random.default_rng(0)
    ranges = {
        "turn_length": (5.0, 30.0),
        "turn_speed": (2.0, 6.0),
        "turn_stop": (0.1, 0.9),
    }
    turns = {
        name: rng.uniform(*ends, len(city.connections)) for name, ends in ranges.items()
    }
    graph = replace(city, **turns).line_graph(uturns="dead-ends")  # type: ignore[arg-type]
    assert VAN.turn_energy(graph).min() > 0.0
    return graph


def route(graph: LineGraph, start: int, count: int) -> list[int]:
    """Edges one after another, none twice."""
    edges = [start]
    while len(edges) < count:
        onward = graph.turns[graph.turns[:, 0] == edges[-1], 1].tolist()
        edges.append(next(edge for edge in onward if edge not in edges))
    return edges


def logged(
    graph: LineGraph, edges: list[int], sizes: list[int], **parts: Any
) -> LoggedTrip:
    """Sections of these sizes, of 10, 11, 12 … Wh."""
    names = [graph.ids[edge] for edge in edges]
    ends = np.cumsum([0, *sizes])
    sections = tuple(
        TripSection(tuple(names[a:b]), 10.0 + index)
        for index, (a, b) in enumerate(pairwise(ends.tolist()))
    )
    return LoggedTrip(**{"name": "one", "sections": sections, **parts})


@pytest.mark.parametrize("sizes", [[1] * 6, [6], [2, 3, 1]], ids=str)
def test_a_trip_teaches_its_energies_less_heights_and_turns(
    graph: LineGraph, sizes: list[int]
) -> None:
    """Of sections; a turn belongs to the edge before it."""
    edges = route(graph, 3, 6)
    trip = logged(graph, edges, sizes, vehicle="van")
    lesson = learn_trips(
        graph, [trip], vehicles={"van": VAN}, accept_unlikely=True, refit=0
    )
    section_of = np.repeat(np.arange(len(sizes)), sizes)
    known = VAN.potential(graph.rise[edges])
    known[:-1] += VAN.turn_energy(graph)[graph.turn_numbers(edges)]
    rewards = 10.0 + np.arange(len(sizes)) - np.bincount(section_of, known)
    rows = road_rows(graph, VAN, vehicle_number("van"))
    expected = fleet_policy(graph, refit=0).posterior
    expected.observe_sums(rows[edges], section_of, rewards)  # type: ignore[attr-defined]
    predicted, right = lesson.posterior.predict(rows), expected.predict(rows)
    np.testing.assert_allclose(predicted.mean, right.mean, rtol=1e-9)
    np.testing.assert_allclose(
        np.asarray(predicted.std), np.asarray(right.std), rtol=1e-6
    )
    assert (lesson.trips, lesson.known, lesson.refused) == (1, 0, {})


def test_rows_of_a_route_are_those_of_all_roads(graph: LineGraph) -> None:
    """Learning a trip costs what its own roads cost, however many the network has."""
    rng = np.random.default_rng(0)
    waits = rng.uniform(0.0, 30.0, len(graph.network.connections))
    graph = replace(graph.network, turn_wait=waits).line_graph(uturns="dead-ends")
    edges = rng.integers(len(graph), size=300)  # some of them twice
    turns = rng.integers(len(graph.turns), size=300)
    every = road_rows(graph, VAN, 7)
    assert (every[:, 7] > 0.0).any()  # signals make drives differ
    np.testing.assert_allclose(
        road_rows(graph, VAN, 7, edges), every[edges], rtol=1e-14
    )
    np.testing.assert_allclose(
        VAN.turn_energy(graph, turns), VAN.turn_energy(graph)[turns], rtol=1e-14
    )
    assert road_rows(graph, VAN, 7, edges[:0]).shape == (0, 9)


def test_edges_that_are_missing_have_no_turn(graph: LineGraph) -> None:
    edges = route(graph, 3, 6)
    apart = [*edges[:2], *edges[4:]]
    lesson = learn_trips(graph, [logged(graph, apart, [1] * 4)], refit=0)
    known = Vehicle().potential(graph.rise[apart])
    turns = Vehicle().turn_energy(graph)[graph.turn_numbers(edges)]
    known[[0, 2]] += turns[[0, 4]]
    rows = road_rows(graph, Vehicle(), vehicle_number(""))
    expected = fleet_policy(graph, refit=0).posterior
    expected.observe(rows[apart], 10.0 + np.arange(4) - known)
    np.testing.assert_allclose(
        lesson.posterior.predict(rows).mean, expected.predict(rows).mean
    )


def test_many_trips_are_learned_like_one_after_another(graph: LineGraph) -> None:
    trips = [
        logged(
            graph, route(graph, start, 4), [1, 3] if start % 2 else [4], name=str(start)
        )
        for start in range(1, 9)
    ]
    unchecked: dict[str, Any] = {"accept_unlikely": True, "energy": "net"}
    at_once, policy = learn_trips(graph, trips, **unchecked), None
    for trip in trips:
        policy = learn_trips(graph, [trip], policy=policy, **unchecked).policy
    assert policy is not None
    rows = road_rows(graph, Vehicle(), vehicle_number(""))
    predicted, expected = (
        at_once.posterior.predict(rows),
        policy.posterior.predict(rows),
    )
    # Equal bits: a log of up to 200 trips is itself learned one after another.
    np.testing.assert_array_equal(predicted.mean, expected.mean)
    assert at_once.posterior.trips == 8


def test_a_trip_is_learned_once_by_name_and_vehicle(graph: LineGraph) -> None:
    edges = route(graph, 3, 3)
    one, twin, other = (
        logged(graph, edges, [3], name=name, vehicle=vehicle)
        for name, vehicle in (("1", "a"), ("1", "b"), ("2", "a"))
    )
    first = learn_trips(graph, [one, one, twin])
    assert (first.trips, first.known) == (2, 1)
    alike = [replace(one, vehicle="van", name="11"), replace(one, vehicle="van1")]
    assert learn_trips(graph, alike).trips == 2  # "van" + "11" is not "van1" + "1"
    second = learn_trips(graph, [one, other, twin], policy=first.policy)
    assert (second.trips, second.known) == (1, 2)
    summary = second.as_json(graph)
    assert (
        summary["trips_learned"],
        summary["trips_known_before"],
        summary["trips_in_all"],
    ) == (1, 2, 3)
    assert summary["edges_visited"] == 3
    assert summary["trips_judged"] == 3


@pytest.mark.parametrize(("learned", "is_own"), [(2, False), (3, True)])
def test_forecasts_are_a_vehicles_own_after_three_trips(
    graph: LineGraph, learned: int, is_own: bool
) -> None:
    trips = [
        logged(graph, route(graph, 3, 3), [3], name=str(number), vehicle="a")
        for number in range(4)
    ]
    policy = learn_trips(graph, trips[:learned]).policy
    posterior = policy.posterior
    assert isinstance(posterior, RoadGP)
    log = learning._examine_log(graph, policy, posterior, trips[3:], {})
    assert log.vehicles == {"a": is_own}


def test_edges_of_another_direction_are_refused_from_two_on(graph: LineGraph) -> None:
    """One edge that ends where the one before it begins may be an edge that is missing."""
    backwards = route(graph, 3, 3)[::-1]
    metering._check_direction(graph, np.array(backwards[:2]))
    with pytest.raises(InputError, match="run backwards"):
        metering._check_direction(graph, np.array(backwards))


def test_the_other_direction_has_the_same_turns(graph: LineGraph) -> None:
    """It is compared with the metered energies, which contain those of the turns."""
    edges = route(graph, 3, 6)
    posterior = fleet_policy(graph, refit=0).posterior
    assert isinstance(posterior, RoadGP)
    trip = logged(graph, edges, [1] * 6)
    examined = metering.examine_trip(graph, posterior, trip, VAN, 0, True)
    reverse = VAN.energy(graph.length[edges], graph.speed[edges], -graph.rise[edges])
    reverse[:-1] += VAN.turn_energy(graph)[graph.turn_numbers(edges)]
    np.testing.assert_allclose(examined.energies.reverse, reverse)


@pytest.mark.parametrize(("gap", "is_refused"), [(49.0, False), (51.0, True)])
def test_one_energy_may_leave_out_fifty_metres(
    graph: LineGraph, gap: float, is_refused: bool
) -> None:
    """Also of a short section, of which five per cent are less."""
    edges = np.array(route(graph, 3, 2))
    assert 0.05 * graph.length[edges].sum() < 49.0
    section = metering._Route(edges, np.zeros(2, dtype=np.intp), 1)
    if is_refused:
        with pytest.raises(InputError, match="gap of 51 m"):
            metering._check_gaps(graph, section, np.array([gap]))
    else:
        metering._check_gaps(graph, section, np.array([gap]))


def test_unlearnable_trips_are_reported(graph: LineGraph) -> None:
    good = logged(graph, route(graph, 3, 3), [3], name="good")
    lost = LoggedTrip(name="lost", sections=(TripSection(("nowhere",), 5.0),))
    empty = LoggedTrip(name="empty", sections=())
    lesson = learn_trips(graph, [lost, good, empty])
    assert lesson.trips == 1
    assert lesson.refused.keys() == {"lost", "empty"}
    assert "nowhere" in lesson.refused["lost"]
    assert lesson.refused["empty"] == "the trip has no edges"
    elsewhere = generate_city(edges=300, seed=4).line_graph(uturns="dead-ends")
    with pytest.raises(StateError, match="another road network"):
        learn_trips(elsewhere, [good], policy=lesson.policy)


def test_vehicles_are_distinguished_by_name() -> None:
    numbers = {vehicle_number(f"van-{number}") for number in range(500)}
    assert len(numbers) == 500
    assert all(0 <= number < 2**31 - 1 for number in numbers)
    assert vehicle_number("van-1") == 665_533_838  # states identify vehicles by it


def test_names_of_one_hash_are_two_vehicles(graph: LineGraph) -> None:
    """van-23680 and van-109998 have the same 31 bits."""
    one, other = "van-23680", "van-109998"
    assert vehicle_number(one) == vehicle_number(other)
    edges = route(graph, 3, 4)
    trips = [
        logged(graph, edges, [1] * 4, name=name, vehicle=name)
        for name in (one, other, one + "b")
    ]
    policy = learn_trips(graph, trips[:2], accept_unlikely=True).policy
    restored = policy.restored(policy.state())
    gp = restored.posterior
    assert isinstance(gp, RoadGP)
    names = gp.vehicle_names
    assert names.number(one) == vehicle_number(one)
    assert names.number(other) == vehicle_number(one) + 1
    assert gp.trips_of(names.number(one)) == gp.trips_of(names.number(other)) == 1
    third = learn_trips(
        graph, trips[2:], policy=restored, accept_unlikely=True
    ).posterior
    assert len(third.vehicle_names) == 3
    # A state without names identifies each vehicle by its hash and continues.
    state = gp.state()
    nameless = {
        name: value for name, value in state.scalars.items() if name != "vehicle_names"
    }
    old = RoadGP.from_state(replace(state, scalars=nameless))
    assert len(old.vehicle_names) == 0
    assert old.trips_of(old.vehicle_names.number(one)) == 1
    for harm in ([], {"a": 1, "b": 1}, {"a": -1}, {"a": 2**31}, {"a": True}):
        with pytest.raises(StateError, match="two vehicles share a number"):
            RoadGP.from_state(
                replace(state, scalars={**nameless, "vehicle_names": harm})
            )


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_tables_of_edges_and_of_trips(
    graph: LineGraph, tmp_path: Path, suffix: str
) -> None:
    import gzip

    def write(text: str) -> Path:
        path = tmp_path / f"trips{suffix}"
        data = text.encode()
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
        return path

    by_edge = "trip,vehicle,edge,energy_wh\nx,van,a,1.5\nx,van,b,-2\ny,,c,3\n"
    assert read_trips(write(by_edge), graph) == [
        LoggedTrip(
            name="x",
            vehicle="van",
            sections=(TripSection(("a",), 1.5), TripSection(("b",), -2.0)),
        ),
        LoggedTrip(name="y", sections=(TripSection(("c",), 3.0),)),
    ]
    by_trip = "\ufefftrip,edges,energy_wh\nx,a b  c,7\n"
    assert read_trips(write(by_trip), graph) == [
        LoggedTrip(name="x", sections=(TripSection(("a", "b", "c"), 7.0),))
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trip,energy_wh\nx,1\n", "first line must name"),
        ("trip,edge,edges,energy_wh\nx,a,a,1\n", "first line must name"),
        ("trip,edge,energy_wh\n", "no rows"),
        ("trip,edge,energy_wh\nx,a,1\ny,a,1\nx,b,1\n", "'x' are not contiguous"),
        ("trip,edge,energy_wh\n,a,1\n", "give each trip a name"),
        (
            "trip,edge,energy_wh\nx,a,1\nx,b,much\n",
            "line 3: energy_wh must be .* got 'much'",
        ),
        ("trip,edge,energy_wh\nx,a,inf\n", "line 2: energy_wh must be .* got 'inf'"),
        ("trip,edge,energy_wh\nx,a,2e10\n", "line 2: energy_wh"),
        ("trip,edge,energy_wh\nx, ,1\n", "line 2: edge must not be empty"),
        ("trip,edges,energy_wh\nx,,1\n", "line 2: edges must not be empty"),
        (
            "trip,time_s,lat,lon,counter_wh\nx,0,north,1,1\n",
            "line 2: lat must be .* got 'north'",
        ),
    ],
)
def test_tables_that_are_refused(
    graph: LineGraph, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "trips.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=words):
        read_trips(path, graph)
