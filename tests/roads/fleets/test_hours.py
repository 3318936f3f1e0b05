"""A fleet with hours: logs with times, and routes around a jam that recurs."""

from __future__ import annotations

from dataclasses import replace
from datetime import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import AT_95, Floats
from superarm.core.errors import FileError, StateError
from superarm.core.states import state_to_bytes
from superarm.oracles import ShortestPath, Trip
from superarm.policies import IndexPolicy
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    LoggedTrip,
    TripSection,
    fleet_policy,
    learn_trips,
    read_trips,
)
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet_model import duration_rows, road_rows
from superarm.roads.routing import Router
from superarm.roads.routing.energy_beliefs import RouteParts
from superarm.roads.routing.hourly_energies import HourlyEnergies
from superarm.roads.rows import Column, with_hours

CAR = Vehicle()
JAM_WH = 60.0
JAM_SECONDS = 240.0
ENDS = ("r1", "r20")
HEADER = "trip,edge,energy_wh,time,duration_s\n"


@pytest.fixture(scope="module")
def network() -> RoadNetwork:
    return generate_city(edges=200, seed=1)


@pytest.fixture(scope="module")
def graph(network: RoadNetwork) -> LineGraph:
    return network.line_graph(uturns="dead-ends")


def cheapest(graph: LineGraph, without: int | None = None) -> list[int]:
    """The route of least energy between the ends, perhaps without a road."""
    costs = CAR.energy(graph.length, graph.speed, graph.rise)
    costs = np.maximum(costs - CAR.potential(graph.rise), 0.0)
    if without is not None:
        costs[without] = 1e6
    turns = CAR.turn_energy(graph)
    start, goal = (graph.number(end) for end in ENDS)
    trip = Trip(start=start, goal=goal, turn_costs=turns)
    oracle = ShortestPath(successors=graph.turn_graph)
    rng = np.random.default_rng(0)
    return [int(edge) for edge in oracle.select(-costs, trip, rng).positions]


def jam(hour: float) -> float:
    """How much of the jam there is: from 7 to 9, most at 8."""
    return float(np.exp(-0.5 * ((hour - 8.0) / 0.7) ** 2))


def logged(
    graph: LineGraph, name: str, route: list[int], hour: float, jammed: int, rng: Any
) -> LoggedTrip:
    """A trip as the model expects it, but for the jam and a little noise."""
    energies = CAR.energy(graph.length, graph.speed, graph.rise)[route]
    energies[:-1] += CAR.turn_energy(graph)[graph.turn_numbers(route)]
    seconds = graph.travel_time[route].copy()
    seconds[:-1] += graph.turn_seconds[graph.turn_numbers(route)]
    clock = hour
    sections = []
    for edge, energy, duration in zip(route, energies, seconds, strict=True):
        delayed = jam(clock) * (edge == jammed)
        took = duration * rng.uniform(0.95, 1.05) + JAM_SECONDS * delayed
        spent = energy + JAM_WH * delayed + rng.normal(0.0, 0.3)
        sections.append(
            TripSection((graph.ids[edge],), spent, hour=clock % 24.0, seconds=took)
        )
        clock += took / 3600.0
    return LoggedTrip(name=name, sections=tuple(sections))


class Jammed:
    """A fleet that has driven both ways at all hours."""

    def __init__(
        self, network: RoadNetwork, graph: LineGraph, form: str = "auto"
    ) -> None:
        through = cheapest(graph)
        self.jammed = through[len(through) // 2]
        around = cheapest(graph, without=self.jammed)
        rng = np.random.default_rng(1)
        hours = np.concatenate([np.arange(0.5, 24.0, 1.0), [7.7, 7.9, 8.1, 8.3]])
        trips = []
        for number, hour in enumerate(rng.permutation(hours).tolist()):
            for way, route in (("through", through), ("around", around)):
                name = f"{way} {number}"
                trips.append(logged(graph, name, route, hour, self.jammed, rng))
        # The jam is an outlier until it is known.
        lesson = learn_trips(
            graph,
            trips,
            hours=True,
            outliers="keep",
            accept_unlikely=True,
            energy="net",
            form=form,
        )
        self.policy = lesson.policy
        self.posterior = lesson.posterior
        self.router = Router(network, state=self.policy.state())


@pytest.fixture(scope="module")
def fleet(network: RoadNetwork, graph: LineGraph) -> Jammed:
    return Jammed(network, graph)


def test_the_route_goes_round_a_jam_that_recurs(
    fleet: Jammed, graph: LineGraph
) -> None:
    jammed = graph.ids[fleet.jammed]
    at_eight = fleet.router.route(*ENDS, depart="08:00")
    at_noon = fleet.router.route(*ENDS, depart="12:00")
    assert jammed not in at_eight.ids()
    assert jammed in at_noon.ids()
    assert at_eight.timed
    assert at_eight.best.energy > at_noon.best.energy
    through_at_noon = at_noon.best.learned_seconds
    assert through_at_noon is not None
    # What the way through costs at eight: the jam, to a third.
    source = fleet.router.source
    assert isinstance(source, HourlyEnergies)
    parts = RouteParts.of(at_noon.best.way)
    at_eight_along = source.energies(time(8)).along
    assert at_eight_along is not None
    forecast = at_eight_along(parts)
    assert forecast.seconds is not None
    assert abs(forecast.seconds - through_at_noon - JAM_SECONDS) < JAM_SECONDS / 3.0
    assert abs(forecast.means.sum() - at_noon.best.energy - JAM_WH) < JAM_WH / 3.0


def test_each_road_is_priced_when_it_is_reached(
    fleet: Jammed, graph: LineGraph
) -> None:
    """Against a clock that goes on road by road."""
    source = fleet.router.source
    assert isinstance(source, HourlyEnergies)
    parts = RouteParts.of(fleet.router.route(*ENDS, depart="12:00").best.way)
    durations = fleet.posterior.durations
    assert durations is not None
    turns = graph.turn_numbers(parts.edges)
    for hour, minute in ((7, 40), (23, 58)):
        clock = hour + minute / 60.0
        hours = []
        for place, edge in enumerate(parts.edges.tolist()):
            hours.append(clock % 24.0)
            row = with_hours(road_rows(graph, CAR, 0, np.array([edge])), clock % 24.0)
            timed = duration_rows(graph, row)
            seconds = float(durations.predict(timed, return_std=False).mean[0])
            if place < len(turns):
                seconds += float(graph.turn_seconds[turns[place]])
            clock += seconds / 3600.0
        rows = source._rows_along(parts, time(hour, minute))
        # Three corrections leave less than a second.
        away = (rows[:, Column.HOUR] - hours + 12.0) % 24.0 - 12.0
        assert np.abs(away).max() < 1.0 / 3600.0


def ring_road() -> RoadNetwork:
    """Ten roads of six minutes each, one after another in one direction."""
    count = 10
    roads = np.arange(count)
    following = (roads + 1) % count
    angles = 2.0 * np.pi / count * roads
    places = 9700.0 * np.column_stack([np.cos(angles), np.sin(angles), 0.0 * angles])
    return RoadNetwork(
        name="ring",
        junction_ids=tuple(f"j{road}" for road in roads),
        junctions=places,
        edge_ids=tuple(f"r{road}" for road in roads),
        tail=roads,
        head=following,
        length=np.full(count, 6000.0),
        speed=np.full(count, 6000.0 / 360.0),
        permits={"passenger": [True] * count},
        connections=np.column_stack([roads, following]),
        turn_permits={"passenger": [True] * count},
    )


def test_a_road_driven_twice_is_priced_at_both_hours() -> None:
    """Round a ring of an hour: the same road first, before it is jammed, and last, in the jam."""
    network = ring_road()
    graph = network.line_graph()
    once_round = [graph.number(f"r{road}") for road in range(10)]
    jammed = once_round[0]
    rng = np.random.default_rng(2)
    trips = []
    for number, hour in enumerate(rng.permutation(np.arange(0.1, 24.0, 0.5)).tolist()):
        trips.append(logged(graph, f"t{number}", once_round, hour, jammed, rng))
    lesson = learn_trips(
        graph, trips, hours=True, outliers="keep", accept_unlikely=True, energy="net"
    )
    source = Router(network, state=lesson.policy.state()).source
    assert isinstance(source, HourlyEnergies)
    edges = np.array([*once_round, jammed])
    shares = np.array([0.5, *np.ones(9), 0.3])
    passed = np.append(np.ones(10), 0.0)
    parts = RouteParts(edges, shares, passed)
    depart = time(7, 10)

    rows = source._rows_along(parts, depart)
    hours = rows[:, Column.HOUR]
    assert hours[0] == pytest.approx(7.0 + 10.0 / 60.0)
    # Half of the first road and nine others: 57 minutes, more or less as they were driven.
    assert hours[-1] == pytest.approx(8.1, abs=0.1)

    energies = source.energies(depart)
    assert energies.along is not None
    forecast = energies.along(parts)
    # Each road by itself.
    durations = lesson.posterior.durations
    assert durations is not None
    seconds = float(graph.turn_seconds[graph.turn_numbers(edges)].sum())
    for place, (hour, share) in enumerate(zip(hours, shares, strict=True)):
        road = road_rows(graph, CAR, source._number, edges[[place]])
        row = with_hours(road, float(hour))
        energy = lesson.posterior.predict(row, return_std=False).mean[0]
        # Roundings of a mean below 1e4 Wh or s.
        assert forecast.means[place] == pytest.approx(share * energy, abs=1e-8)
        timed = duration_rows(graph, row)
        seconds += float(share * durations.predict(timed, return_std=False).mean[0])
    assert forecast.seconds == pytest.approx(seconds, abs=1e-8)
    # The log shows little of the jam beside the noise of such long roads, but its direction.
    assert forecast.means[-1] / shares[-1] > forecast.means[0] / shares[0]

    # Of whole roads, the interval is that of the total of all rows.
    whole = RouteParts(edges, np.ones(11), np.ones(11))
    rows = source._rows_along(whole, depart)
    _, std = lesson.posterior.total(rows)
    _, widths = lesson.posterior.widths(rows)
    assert energies.spread(whole) == pytest.approx(widths[AT_95] * std, rel=1e-9)


def test_without_a_departure_the_interval_covers_the_day(fleet: Jammed) -> None:
    router = fleet.router
    through = RouteParts.of(router.route(*ENDS, depart="12:00").best.way)
    any_time = router.source.energies(None)
    spreads = [
        router.source.energies(time(hour)).spread(through) for hour in range(0, 24, 3)
    ]
    assert any_time.spread(through) > np.mean(spreads)
    answer = router.route(*ENDS)
    assert answer.depart is None
    assert np.isfinite(answer.best.energy)
    assert router.matrix([ENDS[0]], [ENDS[1]], depart="08:00").shape == (1, 1)


def test_two_minutes_over_midnight_change_little(fleet: Jammed) -> None:
    before = fleet.router.route(*ENDS, depart="23:59").best
    after = fleet.router.route(*ENDS, depart="00:01").best
    assert abs(before.energy - after.energy) < 0.01 * before.energy
    assert before.learned_seconds is not None
    assert after.learned_seconds is not None
    assert abs(before.learned_seconds - after.learned_seconds) < 1.0


def test_a_saved_fleet_keeps_its_hours(
    fleet: Jammed, network: RoadNetwork, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.npz"
    fleet.policy.save(file)
    router = Router(network, state=file)
    answer = router.route(*ENDS, depart="08:00")
    expected = fleet.router.route(*ENDS, depart="08:00")
    assert answer.ids() == expected.ids()
    assert answer.as_json() == expected.as_json()


def test_a_sparse_fleet_finds_the_same_routes(
    fleet: Jammed, network: RoadNetwork, graph: LineGraph
) -> None:
    sparse = Jammed(network, graph, form="sparse")
    assert (fleet.posterior.form, sparse.posterior.form) == ("dense", "sparse")
    durations = sparse.posterior.durations
    assert durations is not None
    assert durations.form == "sparse"
    for depart in ("08:00", "12:00", None):
        expected = fleet.router.route(*ENDS, depart=depart).as_json()
        answer = sparse.router.route(*ENDS, depart=depart).as_json()
        assert answer["edges"] == expected["edges"]
        for mean, low, high in (
            ("energy_wh", "energy_low_wh", "energy_high_wh"),
            ("learned_time_s", "learned_time_low_s", "learned_time_high_s"),
        ):
            # Scales and widths are fitted to forecasts that are a per cent of a deviation apart.
            most = 0.01 * (expected[high] - expected[low])
            for number in (mean, low, high):
                assert abs(answer[number] - expected[number]) <= most


# --- logs ----------------------------------------------------------------------------------


def write(path: Path, rows: list[str]) -> Path:
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_times_of_a_log_are_read(graph: LineGraph, tmp_path: Path) -> None:
    first, second = graph.ids[:2]
    rows = [
        f"a,{first},10.0,23:59:30,",
        f"a,{second},11.0,2025-03-14T00:00:15,20",
        f"b,{first},10.0,08:00,",
        f"b,{second},11.0,,",
    ]
    one, other = read_trips(write(tmp_path / "log.csv", rows), graph)
    assert [section.seconds for section in one.sections] == [
        pytest.approx(45.0),
        20.0,
    ]
    assert one.sections[1].hour == pytest.approx(15.0 / 3600.0)
    assert other.sections[0].hour == 8.0
    assert [section.seconds for section in other.sections] == [None, None]
    # A date or a year by itself has no time of day, though Python reads one out of it.
    for wrong in ("8h", "25:00", "2025-03-14", "20250314", "2025", "2025-03", "0830"):
        with pytest.raises(FileError, match="time"):
            read_trips(write(tmp_path / "x.csv", [f"a,{first},10.0,{wrong},"]), graph)
    with pytest.raises(FileError, match="duration_s"):
        read_trips(write(tmp_path / "y.csv", [f"a,{first},10.0,08:00,-3"]), graph)


def _hours_learned(policy: IndexPolicy) -> Floats:
    posterior = policy.posterior
    assert isinstance(posterior, RoadGP)
    return posterior._engine.log.view().keys[:, Column.HOUR]


def test_hours_within_a_total_follow_the_expected_times(graph: LineGraph) -> None:
    route = cheapest(graph)
    rng = np.random.default_rng(0)
    by_edge = logged(graph, "t", route, 9.0, -1, rng)
    seconds = sum(section.seconds or 0.0 for section in by_edge.sections)
    edges = tuple(edge for section in by_edge.sections for edge in section.edges)
    energy = sum(section.energy for section in by_edge.sections)
    total = TripSection(edges, energy, hour=9.0, seconds=2.0 * seconds)
    trip = LoggedTrip(name="t", sections=(total,))
    lesson = learn_trips(graph, [trip], hours=True)
    hours = _hours_learned(lesson.policy)
    assert hours[0] == 9.0
    assert (np.diff(hours) > 0.0).all()
    assert 9.0 + 1.5 * seconds / 3600.0 < hours[-1] < 9.0 + 2.0 * seconds / 3600.0
    durations = lesson.posterior.durations
    assert durations is not None
    assert durations.trips == 1


def _in_sections(
    graph: LineGraph, route: list[int], sizes: list[int], seconds: list[float]
) -> LoggedTrip:
    """A trip that begins a minute before midnight, the only time that its log has."""
    names = [graph.ids[edge] for edge in route]
    hours = [24.0 - 1.0 / 60.0] + [None] * (len(sizes) - 1)
    sections = []
    for size, hour, took in zip(sizes, hours, seconds, strict=True):
        edges, names = tuple(names[:size]), names[size:]
        sections.append(TripSection(edges, 10.0 * size, hour=hour, seconds=took))
    return LoggedTrip(name="t", sections=tuple(sections))


def test_hours_go_on_from_section_to_section_over_midnight(graph: LineGraph) -> None:
    route = cheapest(graph)[:5]
    trip = _in_sections(graph, route, [2, 2, 1], [90.0, 60.0, 30.0])
    lesson = learn_trips(graph, [trip], hours=True, accept_unlikely=True)
    hours = _hours_learned(lesson.policy)
    begins = (24.0 - 1.0 / 60.0 + np.array([0.0, 90.0, 150.0]) / 3600.0) % 24.0
    np.testing.assert_allclose(hours[[0, 2, 4]], begins)
    # Within a section, in proportion to the time on empty roads, turns included.
    usual = graph.travel_time[route].copy()
    usual[:-1] += graph.turn_seconds[graph.turn_numbers(route)]
    first, second, third, fourth, _ = usual.tolist()
    inside = (
        begins[:2]
        + np.array([90.0 * first / (first + second), 60.0 * third / (third + fourth)])
        / 3600.0
    )
    np.testing.assert_allclose(hours[[1, 3]], inside % 24.0)
    assert hours.min() >= 0.0
    assert hours.max() < 24.0


def test_durations_are_those_of_roads_and_never_of_parking(graph: LineGraph) -> None:
    """Less the seconds of turns; a section counts as parked from 600 s and five times its time on."""
    route = cheapest(graph)[:6]
    turns = np.append(graph.turn_seconds[graph.turn_numbers(route)], 0.0)
    usual = graph.travel_time[route] + turns
    assert turns[:-1].max() > 0.0
    longest = 600.0 + 5.0 * usual
    seconds = longest + np.array([-1.0, 1.0, -1.0, -1.0, 1.0, -1.0])
    trip = _in_sections(graph, route, [1] * 6, seconds.tolist())
    lesson = learn_trips(graph, [trip], hours=True, accept_unlikely=True)
    durations = lesson.posterior.durations
    assert durations is not None
    learned = durations._engine.log.view()
    is_driven = seconds < longest
    np.testing.assert_array_equal(
        learned.keys[:, Column.EDGE], np.array(route)[is_driven]
    )
    np.testing.assert_allclose(learned.rewards, (seconds - turns)[is_driven])


@pytest.mark.parametrize(
    ("after", "seconds"),
    [("08:20", 1200.0), ("07:50", None), ("08:00", None), ("20:00", 43_200.0)],
)
def test_a_row_takes_until_the_next_unless_that_is_earlier(
    graph: LineGraph, tmp_path: Path, after: str, seconds: float | None
) -> None:
    first, second = graph.ids[:2]
    rows = [f"a,{first},10.0,08:00,", f"a,{second},11.0,{after},"]
    (trip,) = read_trips(write(tmp_path / "log.csv", rows), graph)
    expected = None if seconds is None else pytest.approx(seconds)
    assert trip.sections[0].seconds == expected


def test_trips_without_times_are_refused(graph: LineGraph) -> None:
    rng = np.random.default_rng(0)
    trip = logged(graph, "t", cheapest(graph), 9.0, -1, rng)
    untimed = replace(
        trip, sections=tuple(s._replace(hour=None) for s in trip.sections)
    )
    lesson = learn_trips(graph, [untimed], hours=True)
    assert lesson.trips == 0
    assert "column time" in lesson.refused["t"]
    # Without hours, times make no difference.
    plain = learn_trips(graph, [untimed]).posterior
    timed = learn_trips(graph, [trip]).posterior
    keys = road_rows(graph, CAR, 0)
    np.testing.assert_array_equal(timed.predict(keys).mean, plain.predict(keys).mean)
    assert plain.durations is None


def test_a_state_keeps_to_its_hours(graph: LineGraph) -> None:
    policy = fleet_policy(graph, hours=True)
    with pytest.raises(StateError, match="with hours"):
        learn_trips(graph, [], policy=policy, hours=False)
    with pytest.raises(StateError, match="without hours"):
        learn_trips(graph, [], policy=fleet_policy(graph), hours=True)


@pytest.mark.parametrize("part", ["energies", "durations"])
def test_a_log_that_fails_changes_nothing(
    graph: LineGraph, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    rng = np.random.default_rng(0)
    route = cheapest(graph)
    trips = [logged(graph, name, route, 9.0, -1, rng) for name in ("a", "b")]
    policy = learn_trips(graph, trips[:1], hours=True).policy
    before = state_to_bytes(policy.state())
    observe_trips = RoadGP.observe_trips

    def fail(posterior: RoadGP, new: Trips) -> None:
        if (posterior.durations is None) == (part == "durations"):
            raise InterruptedError
        observe_trips(posterior, new)

    with monkeypatch.context() as patch:
        patch.setattr(RoadGP, "observe_trips", fail)
        with pytest.raises(InterruptedError):
            learn_trips(graph, trips, policy=policy)
    assert state_to_bytes(policy.state()) == before
    lesson = learn_trips(graph, trips, policy=policy)
    assert (lesson.trips, lesson.known) == (1, 1)
    assert lesson.posterior.durations is not None
    assert lesson.posterior.trips == lesson.posterior.durations.trips == 2
