"""Logs whose energies include kinetic energy: its expectation, and what is learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from superarm.core import Floats, Ints
from superarm.core.errors import FileError, InputError
from superarm.roads.energy import Vehicle
from superarm.roads.energy.drives import border_speeds
from superarm.roads.energy.junctions import ACCELERATION, BRAKING
from superarm.roads.fleets import (
    Lesson,
    LoggedTrip,
    TripSection,
    learn_trips,
    read_trips,
    reading,
    vehicle_number,
)
from superarm.roads.fleets.metering import split_trip
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.posterior import Borders, Trips, sections_of, with_motion
from superarm.roads.posterior.squared_speeds import SquaredSpeeds
from superarm.roads.problems import Fleet
from superarm.roads.problems.fleet import road_rows

VAN = Vehicle(mass=2400.0)


@pytest.fixture(scope="module")
def graph() -> LineGraph:
    """With junctions of their own speeds, lines of sight and stops."""
    city, rng = generate_city(edges=300, seed=2), np.random.default_rng(1)
    ends = {
        "turn_length": (5.0, 30.0),
        "turn_speed": (3.0, 12.0),
        "turn_entry": (0.0, 9.0),
        "turn_stop": (0.0, 0.8),
    }
    count = len(city.connections)
    turns = {name: rng.uniform(*limits, count) for name, limits in ends.items()}
    turns["turn_stop"][::2] = 0.0
    return replace(city, **turns).line_graph(uturns="dead-ends")  # type: ignore[arg-type]


def walk(graph: LineGraph, start: int, count: int) -> Ints:
    edges, rng = [start], np.random.default_rng(start)
    while len(edges) < count:
        onward = graph.turns[graph.turns[:, 0] == edges[-1], 1]
        edges.append(int(rng.choice(onward)))
    return np.array(edges)


# --- speeds at borders ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "ends", [(False, False), (True, True), (True, False), (False, True)]
)
def test_speeds_are_the_highest_that_limits_and_brakes_allow(
    graph: LineGraph, ends: tuple[bool, bool]
) -> None:
    """Where edges end and where one looks, squares of speeds u are a linear programme: maximise Σ u
    with u ≤ limit², uₙₑₓₜ − u ≤ 2a·metres and u − uₙₑₓₜ ≤ 2b·metres."""
    for start in (1, 40, 77):
        route = walk(graph, start, 9)
        turns = graph.turn_numbers(route)
        metres: list[float] = []
        caps = [np.inf]
        for edge, turn in zip(route[:-1], turns, strict=True):
            look, limit = graph.turn_entry[turn], graph.speed[edge]
            inside = graph.turn_speed[turn]
            sight = min(look**2 / (2.0 * BRAKING), graph.length[edge])
            metres += [graph.length[edge] - sight, sight, graph.turn_length[turn]]
            caps[-1] = min(caps[-1], limit)
            caps += [min(limit, look), min(limit, inside), inside]  # at its end
        caps[-1] = min(caps[-1], graph.speed[route[-1]])
        metres.append(graph.length[route[-1]])
        caps.append(graph.speed[route[-1]])
        caps[0] = 0.0 if ends[0] else caps[0]
        caps[-1] = 0.0 if ends[1] else caps[-1]
        n = len(caps)
        step = np.diff(np.eye(n), axis=0)
        rows = np.vstack([step, -step])
        most = np.concatenate(
            [2.0 * ACCELERATION * np.array(metres), 2.0 * BRAKING * np.array(metres)]
        )
        bounds = [(0.0, cap**2) for cap in caps]
        best = np.asarray(linprog(-np.ones(n), A_ub=rows, b_ub=most, bounds=bounds).x)
        speeds = border_speeds(graph, route, from_rest=ends[0], to_rest=ends[1])
        np.testing.assert_allclose(speeds.free, best[3:-1:3], rtol=1e-7, atol=1e-7)
        assert speeds.start == pytest.approx(best[0], abs=1e-7)
        p = np.maximum(graph.turn_stop, graph.is_uturn)[turns[-1]]
        stopped = min(
            speeds.free[-1], 2.0 * ACCELERATION * graph.turn_length[turns[-1]]
        )
        after_stop = min(best[-1], stopped + 2.0 * ACCELERATION * metres[-1])
        assert speeds.end == pytest.approx(
            (1.0 - p) * best[-1] + p * after_stop, abs=1e-7
        )


def test_stopped_vehicles_leave_the_junction_from_rest(graph: LineGraph) -> None:
    route = walk(graph, 5, 12)
    turns = graph.turn_numbers(route)
    speeds = border_speeds(graph, route)
    p = np.maximum(graph.turn_stop, graph.is_uturn)[turns]
    assert 0.0 < p.min(initial=1.0, where=p > 0.0) < 1.0
    stopped = np.minimum(speeds.free, 2.0 * ACCELERATION * graph.turn_length[turns])
    draws = np.where(
        np.random.default_rng(0).random((200_000, len(p))) < p, stopped, speeds.free
    )
    spread = np.sqrt(speeds.variance)
    error = 6.0 * spread / np.sqrt(len(draws)) + 1e-9  # six standard errors
    assert (np.abs(draws.mean(axis=0) - speeds.mean) < error).all()
    np.testing.assert_allclose(draws.std(axis=0), spread, rtol=0.03, atol=1e-6)


def test_one_edge_has_no_borders(graph: LineGraph) -> None:
    assert len(border_speeds(graph, [3], from_rest=True).mean) == 0


# --- roads too short for separate borders --------------------------------------------------


def sections(
    graph: LineGraph, route: Ints, metres: list[float], **options: Floats
) -> list[int]:
    """Of roads so long, in braking distances."""
    length = graph.network.length.copy()
    braking = np.square(graph.speed[route]) / (2.0 * BRAKING)
    length[graph.edges[route]] = np.array(metres) * braking
    roads = replace(graph.network, length=length).line_graph(uturns="dead-ends")
    trip = Trips.of_one(road_rows(roads, VAN, 0, route))
    return sections_of(roads, trip, route, **options).tolist()


def test_sections_are_a_braking_distance_long(graph: LineGraph) -> None:
    route = walk(graph, 11, 6)
    assert len(set(route.tolist())) == 6
    assert sections(graph, route, [1.1] * 6) == [0, 1, 2, 3, 4, 5]
    assert sections(graph, route, [0.4] * 6) == [0, 0, 0, 1, 1, 1]
    assert sections(graph, route, [2.0, 0.1, 2.0, 0.6, 0.6, 0.1]) == [0, 1, 1, 2, 2, 2]
    assert sections(graph, route, [0.1] * 6) == [0] * 6
    between = sections(graph, np.concatenate([route[:3], route[4:]]), [0.1] * 5)
    assert between == [
        0,
        0,
        0,
        1,
        1,
    ]  # the fourth was not observed: a gap ends a section


def test_a_speed_in_the_log_ends_a_section(graph: LineGraph) -> None:
    route = walk(graph, 11, 6)
    for side in ((2, 1), (3, 0)):  # where the third ends, or the fourth begins
        speeds = np.full((6, 2), np.nan)
        speeds[side] = 7.0
        assert sections(graph, route, [0.4] * 6, speeds=speeds) == [0, 0, 0, 1, 1, 1]
        assert sections(graph, route, [0.1] * 6, speeds=speeds) == [0, 0, 0, 1, 1, 1]
        assert sections(graph, route, [0.6] * 6, speeds=speeds) == [0, 0, 0, 1, 1, 1]


# --- readings less motion ------------------------------------------------------------------


def read(trip: Trips, stored: Floats, begins: Ints, ends: Ints) -> Trips:
    """Rewards as a battery reads them: with what is stored where each ends, less where it begins."""
    return trip._replace(rewards=trip.rewards + stored[ends] - stored[begins])


@pytest.mark.parametrize("sizes", [[1] * 8, [3, 1, 4], [8]], ids=str)
@pytest.mark.parametrize("at_rest", [True, False])
def test_motion_that_is_as_expected_is_taken_off(
    graph: LineGraph, sizes: list[int], at_rest: bool
) -> None:
    route = walk(graph, 11, 8)
    section_of = np.repeat(np.arange(len(sizes)), sizes)
    net = Trips.of_one(
        road_rows(graph, VAN, 0, route), section_of, np.linspace(1.0, 5.0, len(sizes))
    )
    speeds = border_speeds(graph, route, from_rest=at_rest, to_rest=at_rest)
    squares = np.array([speeds.start, *speeds.mean, speeds.end])
    assert not at_rest or speeds.start == speeds.end == 0.0
    stored = (
        0.5 * VAN.mass * VAN.recuperation_efficiency * squares / 3600.0
    )  # at borders 0 … 8
    place = np.cumsum([0, *sizes])
    trip = with_motion(
        graph, VAN, read(net, stored, place[:-1], place[1:]), route, at_rest=at_rest
    )
    np.testing.assert_allclose(trip.rewards, net.rewards, atol=1e-9)
    assert trip.is_consistent()
    free = border_speeds(graph, route, from_rest=at_rest, to_rest=at_rest).free
    inside = place[1:-1] - 1
    inner = (trip.borders.before >= 0) & (trip.borders.after >= 0)
    np.testing.assert_allclose(
        trip.borders.size[inner], VAN.motion(np.sqrt(free[inside]))
    )
    assert len(trip.borders.size) == len(inside) + (
        0 if at_rest else 2
    )  # rest is known


def test_speeds_of_the_log_are_used_where_it_has_them(graph: LineGraph) -> None:
    """Whatever was expected; a border may be named by either side."""
    route, rng = walk(graph, 23, 6), np.random.default_rng(3)
    net = Trips.of_one(road_rows(graph, VAN, 0, route), None, np.arange(6.0))
    speeds = rng.uniform(0.0, 20.0, 7)
    raw = read(net, VAN.motion(speeds), np.arange(6), np.arange(1, 7))
    both = np.column_stack([speeds[:-1], speeds[1:]])
    one_side = both.copy()
    one_side[1:, 0] = np.nan  # only the beginning of the trip, and ends
    other_side = both.copy()
    other_side[:-1, 1] = np.nan
    for logged_speeds in (both, one_side, other_side):
        trip = with_motion(graph, VAN, raw, route, at_rest=True, speeds=logged_speeds)
        np.testing.assert_allclose(trip.rewards, net.rewards, atol=1e-9)
        assert (
            trip.borders.size == 0.0
        ).all()  # they are not as far off as the model may be
        assert trip.borders.variance.max() < VAN.motion(20.0) ** 2 * 0.03


def test_a_measured_speed_is_as_uncertain_as_mass_and_speedometer() -> None:
    """v² is off by a tenth, and by 2 v times 0.3 m/s."""
    expected = SquaredSpeeds(
        mean=np.array([4.0, 9.0]), free=np.ones(2), variance=np.ones(2)
    )
    measured = expected.with_measured(np.array([np.nan, 10.0]))
    np.testing.assert_array_equal(measured.mean, [4.0, 100.0])
    np.testing.assert_array_equal(measured.free, [1.0, 0.0])
    np.testing.assert_allclose(measured.variance, [1.0, 10.0**2 + 6.0**2])


def test_where_edges_are_missing_speeds_are_the_highest_possible(
    graph: LineGraph,
) -> None:
    full_route = walk(graph, 31, 9)
    route = np.delete(full_route, [4, 5])
    assert graph.turns_between(route.tolist())[3] < 0
    net = Trips.of_one(road_rows(graph, VAN, 0, route), None, np.zeros(7))
    trip = with_motion(graph, VAN, net, route, at_rest=True)
    assert trip.is_consistent()
    apart = (trip.borders.before < 0) | (trip.borders.after < 0)
    pairs = list(
        zip(
            trip.borders.before[apart].tolist(),
            trip.borders.after[apart].tolist(),
            strict=True,
        )
    )
    assert pairs == [(3, -1), (-1, 4)]  # the ends are at rest
    first = border_speeds(graph, route[:4], from_rest=True)
    stored = VAN.motion(np.sqrt([*first.mean, first.end]))
    np.testing.assert_allclose(
        trip.rewards[:4], -np.diff(stored, prepend=0.0), atol=1e-9
    )
    second = border_speeds(graph, route[4:], to_rest=True)
    stored = VAN.motion(np.sqrt([second.start, *second.mean]))
    np.testing.assert_allclose(
        trip.rewards[4:], -np.diff(stored, append=0.0), atol=1e-9
    )


# --- logs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(seed=3, horizon=40, vehicles=3, edges=400)


def trips_of(
    fleet: Fleet, count: int, *, raw: bool, at_rest: bool = True, off: float = 0.15
) -> list[LoggedTrip]:
    """Trips of the fleet's own model; speeds at borders are off by that share."""
    graph, rng, trips = fleet.graph, np.random.default_rng(8), []
    for step in range(1, count + 1):
        route = np.array(fleet.informed_route(fleet.offer(step)))
        energies = fleet.energies(step, tuple(route.tolist()))
        if raw:
            own = fleet.journey(step).own
            square = np.square(graph.speed[route[[0, *range(len(route))]]])
            square[1:-1] = border_speeds(
                graph, route, from_rest=at_rest, to_rest=at_rest
            ).mean
            stored = own.motion(
                np.sqrt(square * rng.uniform(1.0 - off, 1.0 + off, len(square)))
            )
            if at_rest:
                stored[[0, -1]] = 0.0
            energies = energies + np.diff(stored)
        sections = tuple(
            TripSection((graph.ids[edge],), float(wh))
            for edge, wh in zip(route, energies, strict=True)
        )
        who = fleet.journey(step).vehicle
        trips.append(
            LoggedTrip(name=str(step), vehicle=f"van-{who}", sections=sections)
        )
    return trips


def learned(fleet: Fleet, trips: list[LoggedTrip], energy: str = "auto") -> Lesson:
    vans = {f"van-{who}": van for who, van in enumerate(fleet.fleet)}
    return learn_trips(fleet.graph, trips, vehicles=vans, refit=0, energy=energy)  # type: ignore[arg-type]


def test_raw_or_net_energies_are_detected_from_the_log(fleet: Fleet) -> None:
    for count in (1, 12):
        assert learned(fleet, trips_of(fleet, count, raw=False)).raw == 0
        assert learned(fleet, trips_of(fleet, count, raw=True)).raw == count
    assert learned(fleet, trips_of(fleet, 12, raw=True, at_rest=False)).raw == 12
    lesson = learned(fleet, trips_of(fleet, 12, raw=False), "raw")
    assert lesson.raw == 12  # an explicit option is trusted
    assert lesson.as_json(fleet.graph)["trips_learned_as_raw"] == 12
    assert learned(fleet, trips_of(fleet, 12, raw=True), "net").raw == 0


def test_meter_error_does_not_make_a_log_raw(fleet: Fleet) -> None:
    trips = trips_of(fleet, 12, raw=False)
    for number in range(12):
        sections = list(trips[number].sections)
        sections[1] = sections[1]._replace(
            energy=sections[1].energy + (900.0 if number % 2 else 40.0)
        )
        trips[number] = replace(trips[number], sections=tuple(sections))
    assert learned(fleet, trips).raw == 0
    assert learned(fleet, trips[:1]).raw == 0


def test_only_clear_evidence_changes_the_detected_kind(fleet: Fleet) -> None:
    """A trip with little evidence does not change it; several clear ones do."""
    vans = {f"van-{who}": van for who, van in enumerate(fleet.fleet)}
    net, raw = trips_of(fleet, 15, raw=False), trips_of(fleet, 15, raw=True)
    for first, second, becomes_raw in ((net, raw, True), (raw, net, False)):
        lesson = learned(fleet, first[:6])
        assert lesson.posterior.holds_motion() is not becomes_raw
        short = replace(second[6], name="short", sections=second[6].sections[4:6])
        one = learn_trips(
            fleet.graph,
            [short],
            policy=lesson.policy,
            vehicles=vans,
            accept_unlikely=True,
        )
        assert one.raw == (not becomes_raw)
        more = [
            replace(trip, name=f"again-{trip.name}")
            for trip in second
            if trip.vehicle == "van-2"
        ]
        several = learn_trips(
            fleet.graph, more, policy=one.policy, vehicles=vans, accept_unlikely=True
        )
        assert several.raw == (len(more) if becomes_raw else 0)
        assert several.posterior.holds_motion(vehicle_number("van-2")) is becomes_raw
    assert learned(fleet, []).posterior.holds_motion() is None


def test_totals_are_raw_and_net(fleet: Fleet) -> None:
    trips = [
        replace(trip, sections=(TripSection(
            tuple(edge for section in trip.sections for edge in section.edges),
            sum(section.energy for section in trip.sections),
        ),))
        for trip in trips_of(fleet, 12, raw=True)
    ]  # fmt: skip
    lessons = [learned(fleet, trips, energy) for energy in ("auto", "net", "raw")]
    assert lessons[0].raw == 0
    rows = road_rows(fleet.graph, fleet.fleet[0], vehicle_number("van-0"))
    means = [lesson.posterior.predict(rows).mean for lesson in lessons]
    np.testing.assert_array_equal(means[0], means[1])
    np.testing.assert_allclose(means[0], means[2], atol=1e-9)


@pytest.mark.thorough
def test_forecasts_from_raw_readings_are_those_from_net_ones(fleet: Fleet) -> None:
    """Far nearer than from raw readings that are taken for net: of trips, as motion adds up to nothing
    along them."""
    rows = {
        who: road_rows(fleet.graph, van, vehicle_number(f"van-{who}"))
        for who, van in enumerate(fleet.fleet)
    }

    def forecasts(lesson: Lesson) -> Floats:
        by_reading = []
        for step in range(31, 41):
            route = list(fleet.informed_route(fleet.offer(step)))
            by_reading.append(
                lesson.posterior.total(rows[fleet.journey(step).vehicle][route])
            )
        return np.array(by_reading)

    net = forecasts(learned(fleet, trips_of(fleet, 30, raw=False)))
    raw = forecasts(learned(fleet, trips_of(fleet, 30, raw=True)))
    mistaken = forecasts(learned(fleet, trips_of(fleet, 30, raw=True), "net"))
    away = np.sqrt(np.mean(np.square(raw[:, 0] - net[:, 0])))
    assert away < 0.5 * net[:, 1].mean()  # a fraction of what trips differ by
    assert away < 0.5 * np.sqrt(np.mean(np.square(mistaken[:, 0] - net[:, 0])))


def test_state_contains_motion(fleet: Fleet) -> None:
    trips = trips_of(fleet, 12, raw=True)
    half = learned(fleet, trips[:6])
    restored = half.posterior.restored(half.posterior.state())
    rows = road_rows(fleet.graph, fleet.fleet[0], vehicle_number("van-0"))
    np.testing.assert_array_equal(
        restored.predict(rows).mean, half.posterior.predict(rows).mean
    )
    assert len(restored._engine.log.view().borders.size) == len(
        half.posterior._engine.log.view().borders.size
    )


# --- tables --------------------------------------------------------------------------------


def test_tables_may_have_speeds(graph: LineGraph, tmp_path: Path) -> None:
    one, two = graph.ids[walk(graph, 3, 2)[0]], graph.ids[walk(graph, 3, 2)[1]]
    table = tmp_path / "trips.csv"
    table.write_text(
        f"trip,edge,energy_wh,start_speed_m_s,end_speed_m_s\na,{one},12.5,0,8.25\na,{two},-3,,0\n"
    )
    assert read_trips(table, graph)[0].sections == (
        TripSection((one,), 12.5, 0.0, 8.25),
        TripSection((two,), -3.0, None, 0.0),
    )
    for wrong in ("-1", "x", "1000", "nan"):
        table.write_text(f"trip,edge,energy_wh,end_speed_m_s\na,{one},12.5,{wrong}\n")
        with pytest.raises(FileError, match="line 2"):
            read_trips(table, graph)


def test_kind_of_energies_must_be_one_of_three(fleet: Fleet) -> None:
    with pytest.raises(InputError, match="energy"):
        learned(fleet, [], "gross")


def test_raw_energies_are_detected_at_expected_speeds() -> None:
    """Each trip by itself: few borders have other speeds, by which alone raw differs from net."""
    graph = generate_city(edges=300, seed=2).line_graph(uturns="dead-ends")
    for start in range(3, 100, 12):
        route = walk(graph, start, 30)
        speeds = border_speeds(graph, route)
        square = np.concatenate([[speeds.start], speeds.mean, [speeds.end]])
        energies = road_rows(graph, VAN, 0, route)[:, 1] + VAN.potential(
            graph.rise[route]
        )
        energies[:-1] += VAN.turn_energy(graph, graph.turn_numbers(route))
        energies += np.diff(np.asarray(VAN.motion(1.0)) * square)
        sections = tuple(
            TripSection((graph.ids[edge],), float(wh))
            for edge, wh in zip(route, energies, strict=True)
        )
        trip = LoggedTrip(name="a", vehicle="van", sections=sections)
        lesson = learn_trips(
            graph, [trip], vehicles={"van": VAN}, refit=0, accept_unlikely=True
        )
        assert lesson.raw == 1


def test_parts_of_a_trip_have_the_borders_of_their_own_rewards() -> None:
    """The border where a trip is split is the end of one part and the beginning of the next."""
    inner = np.arange(3)
    borders = Borders(
        before=np.concatenate([[-1], inner, [3]]),
        after=np.concatenate([[0], inner + 1, [-1]]),
        size=np.arange(5.0),
        variance=10.0 + np.arange(5.0),
    )
    keys = np.tile(np.array([0.0, 5.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0]), (4, 1))
    trip = Trips.of_one(keys, np.arange(4), np.arange(4.0), borders=borders)
    one, other = split_trip(trip, [1])
    assert one.borders.before.tolist() == [-1, 0]
    assert one.borders.after.tolist() == [0, -1]
    assert one.borders.size.tolist() == [0.0, 1.0]
    assert other.borders.before.tolist() == [-1, 0, 1, 2]
    assert other.borders.after.tolist() == [0, 1, 2, -1]
    assert other.borders.size.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert other.borders.variance.tolist() == [11.0, 12.0, 13.0, 14.0]
    assert other.rewards.tolist() == [1.0, 2.0, 3.0]


def test_one_trip_speaks_for_a_reading_by_a_bounded_amount(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three readings of two trips: of one, by which they hardly differ, and of a slip of the meter."""
    densities = iter([[-10.0, -3.0], [-12.0, -5000.0], [-11.0, -4.0]])
    monkeypatch.setattr(reading, "_log_densities", lambda *_: np.array(next(densities)))
    monkeypatch.setattr(reading.Trips, "joined", lambda trips: trips)
    readings: Any = [{0: None, 1: None}] * 3
    posterior: Any = None
    evidence = reading._evidence(posterior, readings, [0, 1])
    np.testing.assert_allclose(evidence, [0.0, -2.0 - 20.0, -1.0 - 1.0])
