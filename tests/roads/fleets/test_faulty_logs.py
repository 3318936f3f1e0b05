"""Faulty logs: which are rejected, which warn, and which are learned."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from bench import wronglogs as wrong

from superarm.core.errors import InputError, StateError
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    LoggedTrip,
    TripSection,
    checks,
    learn_trips,
    learning,
)
from superarm.roads.fleets.checks import check_log
from superarm.roads.fleets.metering import gaps_between
from superarm.roads.fleets.shifts import Evidence, evidence
from superarm.roads.fleets.trip_energies import Energies, Ratio, typical_ratio
from superarm.roads.routing import Router


@pytest.fixture(scope="module")
def city() -> wrong.City:
    """Sixteen trips of four vehicles in a hilly city."""
    return wrong.drive("city", 16, 1, edges=400)


def of_city(city: wrong.City, reading: str) -> list[LoggedTrip]:
    by_vehicle = city.trips_by_vehicle(reading)
    return [trip for trips in by_vehicle.values() for trip in trips]


def reported(city: wrong.City, log: list[LoggedTrip], **options: Any) -> str:
    """The diagnosis by ``learn``: its error, or its warnings and rejections."""
    try:
        lesson = learn_trips(city.graph, log, vehicles=city.fleet, refit=0, **options)
    except InputError as error:
        return f"refused: {error}"
    return " ".join([*lesson.warnings, *lesson.refused.values()])


TABLE = {  # the log, its reading: a pattern for the diagnosis
    ("right", "rest"): "",
    ("right", "raw"): "",
    ("right", "total"): "",
    ("all in kWh", "raw"): "refused: .*used 0.0011? times.*energy_kwh",
    (
        "one vehicle in kWh",
        "rest",
    ): "^vehicle 'van-.' was refused: .*energy_kwh.*--accept-unlikely",
    ("all in joules", "total"): "refused: .*divide them by 3600",
    ("sign flipped", "rest"): "refused: .*positive where the battery discharges",
    ("all × 3", "rest"): "refused: .*check the unit",
    ("all × 0.3", "total"): "refused: .*check the unit",
    ("one vehicle × 3", "raw"): "^vehicle 'van-.' was refused: .*check the unit",
    ("one edge late", "rest"): "refused: .*one row late. Move energy_wh one row up",
    ("one edge late", "raw"): "refused: .*one row late. Move energy_wh one row up",
    ("one edge early", "rest"): "refused: .*one row early. Move energy_wh one row down",
    ("edges of the other direction", "rest"): "run backwards",
    (
        "trips in the other direction",
        "rest",
    ): "refused: .*edge ids of the direction driven",
    (
        "rows from goal to start",
        "rest",
    ): "run backwards: .*Sort the rows in driving order",
    ("halves of two trips", "rest"): "jumps .* km from edge .* rename one",
    ("halves of two trips", "total"): "edges with a gap of .*List all edges",
}


@pytest.mark.parametrize(("name", "reading"), TABLE, ids=str)
def test_faulty_logs_are_diagnosed(city: wrong.City, name: str, reading: str) -> None:
    log, _ = wrong.WAYS[name](city.graph, of_city(city, reading))
    message = reported(city, log)
    if TABLE[name, reading]:
        assert re.search(TABLE[name, reading], message), message
    else:
        assert message == ""


def test_unlikely_logs_are_learned_on_request(city: wrong.City) -> None:
    log, _ = wrong.WAYS["one edge late"](city.graph, of_city(city, "rest"))
    lesson = learn_trips(
        city.graph, log, vehicles=city.fleet, refit=0, accept_unlikely=True
    )
    assert lesson.trips == len(log)
    assert (
        "was learned, but its log looks wrong: energies fit the previous edge"
        in lesson.warnings[0]
    )
    assert lesson.as_json(city.graph)["warnings"] == list(lesson.warnings)


def test_a_trip_that_jumps_is_learned_as_two(city: wrong.City) -> None:
    one, two = of_city(city, "rest")[:2]
    sections = (*one.sections[:5], *two.sections[-5:])
    lesson = learn_trips(
        city.graph,
        [replace(one, sections=sections)],
        vehicles=city.fleet,
        refit=0,
        accept_unlikely=True,
    )
    assert lesson.trips == 1
    assert lesson.posterior.trips == 2  # their weather and payload are not the same
    second = learn_trips(
        city.graph, [replace(one, sections=sections)], policy=lesson.policy
    )
    assert (second.trips, second.known) == (0, 1)


def test_the_energy_of_a_section_with_a_hole_is_learned_once(city: wrong.City) -> None:
    """A hole of more than 500 m, and of less than 5 % of what is driven, is no second trip."""
    graph, rng = city.graph, np.random.default_rng(0)
    route = [0]
    while graph.length[route].sum() < 16_000.0:
        onward = graph.turns[graph.turns[:, 0] == route[-1], 1]
        route.append(int(rng.choice(onward)))
    holes = [
        route[:first] + route[last:]
        for first in range(3, len(route) - 12)
        for last in range(first + 2, first + 12)
    ]
    with_hole = next(
        hole
        for hole in holes
        if 500.0 < gaps_between(graph, np.array(hole)).max() < 700.0
    )
    vehicle = Vehicle()
    lengths, speeds = graph.length[with_hole], graph.speed[with_hole]
    energy = float(vehicle.energy(lengths, speeds, graph.rise[with_hole]).sum())
    section = TripSection(tuple(graph.ids[edge] for edge in with_hole), energy)
    trip = LoggedTrip(name="long", sections=(section,))
    lesson = learn_trips(graph, [trip], energy="net", refit=0)
    assert lesson.posterior.count == 1
    assert lesson.warnings == ()


def test_edges_missing_from_a_log_by_edge_are_not_an_error(city: wrong.City) -> None:
    trip = max(of_city(city, "rest"), key=lambda candidate: len(candidate.sections))
    fewer = replace(trip, sections=trip.sections[:4] + trip.sections[5:])
    assert reported(city, [fewer]) == ""


def energies(metered: Any, model: Any, reverse: Any = None, **options: Any) -> Energies:
    expected = np.array(model, dtype=float)
    defaults = {"forecast": float(expected.sum()), "stored": np.zeros(len(expected))}
    other = expected if reverse is None else np.array(reverse, dtype=float)
    return Energies(
        np.array(metered, dtype=float),
        expected,
        other,
        known_vehicle=True,
        **{**defaults, **options},
    )


def test_evidence_is_the_standardised_sum_of_savings() -> None:
    """t = Σ D / √ΣD², D = |metered − own| − |metered − other|, by hand."""
    trip = energies(
        [5.0, 10.0, 20.0, 5.0, 10.0, 20.0], [10.0, 20.0, 5.0, 10.0, 20.0, 30.0]
    )
    own, other = trip.model[1:], trip.model[:-1]
    D = np.abs(trip.metered[1:] - own) - np.abs(trip.metered[1:] - other)
    result = evidence([[trip]], [1.0], "late")
    assert result.t == pytest.approx(D.sum() / np.sqrt(np.square(D).sum()))
    assert result.better == pytest.approx(
        D.sum() / np.abs(trip.metered[1:] - own).sum()
    )
    assert evidence([[trip]], [1.0], "reversed") == Evidence(
        0.0, 0.0
    )  # nothing differs on flat roads


def test_t_is_standard_normal_where_neither_explains_energies_better() -> None:
    """The worst case of a right log: two directions that are equally likely. P(t > 3.5) < 2.4e-4.

    Self-normalised sums of symmetric numbers have lighter tails than a normal (Efron 1969), so that at
    least so few of 4,000 lie beyond 2.5: 25 expected, and at most 25 + 3·5.
    """
    rng = np.random.default_rng(0)
    model, beyond = np.full(30, 10.0), 0
    for _ in range(4000):
        away = rng.normal(0.0, 3.0, 30)
        trip = energies(model + rng.normal(0.0, 2.0, 30), model + away, model - away)
        beyond += evidence([[trip]], [1.0], "reversed").t > 2.5
    assert beyond <= 40


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (Evidence(t=3.5, better=0.15), True),
        (Evidence(t=3.49, better=0.15), False),
        (Evidence(t=2.5, better=0.15), False),
        (Evidence(t=2.49, better=0.15), None),
        (Evidence(t=9.0, better=0.149), None),
    ],
)
def test_limits_of_evidence(
    found: Evidence, refused: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 3.5 standard errors it is refused, beyond 2.5 it warns, if it explains 15 % better."""
    monkeypatch.setattr(checks, "evidence", lambda *_: found)
    finding = checks._check_shifts([], [])
    assert (None if finding is None else finding.refused) == refused


def test_ratio_is_robust_to_a_single_error() -> None:
    model = np.full(10, 20.0)
    slip = model.copy()
    slip[3] = 5000.0
    assert typical_ratio([energies(slip, model)]).value == pytest.approx(1.0)
    assert typical_ratio([energies(model / 1e3, model)]).value == pytest.approx(1e-3)
    assert typical_ratio([energies([7000.0], [20.0])]).value == pytest.approx(350.0)
    downhill = energies([-400.0], [-20.0])
    assert downhill.ratio is None
    assert typical_ratio([downhill]).value == 1.0
    hilly = energies([-80.0, 20.0, 20.0, 20.0], [-40.0, 10.0, 10.0, 10.0])
    assert hilly.ratio == Ratio(2.0, full_trip=False)  # of the edges that climb
    assert typical_ratio([hilly, energies(model, model)]) == Ratio(1.0, full_trip=True)
    learned = energies([20.0, 20.0], [10.0, 10.0], forecast=40.0)
    assert learned.ratio == Ratio(1.0, full_trip=True)
    # Without the largest energy, nothing would be expected of the others: it counts.
    mostly_one = energies([10.0, -5.0, -5.0, -5.0], [120.0, -5.0, -5.0, -5.0])
    assert mostly_one.ratio == pytest.approx(Ratio(-5.0 / 105.0, full_trip=True))
    assert typical_ratio([hilly, hilly]) == Ratio(2.0, full_trip=False)
    assert check_log([]).everywhere is None


@pytest.mark.parametrize(
    ("known", "full_trip", "accepted", "refused"),
    [
        (True, True, (0.66, 1.59), (0.49, 2.01)),
        (False, True, (0.61, 2.99), (0.39, 4.01)),
        (True, False, (0.41, 2.99), (0.24, 4.01)),
    ],
)
def test_limits_of_ratios(
    known: bool,
    full_trip: bool,
    accepted: tuple[float, float],
    refused: tuple[float, float],
) -> None:
    """Of vehicles that are described, of any others, and of climbs alone."""
    trips = [energies([10.0], [10.0])._replace(known_vehicle=known)]
    for value in accepted:
        assert checks._check_ratio(Ratio(value, full_trip), trips) is None
    for value in refused:
        finding = checks._check_ratio(Ratio(value, full_trip), trips)
        assert finding is not None
        assert finding.refused


def test_a_vehicle_without_a_ratio_does_not_vouch_for_a_log() -> None:
    """All others are refused, so the log is: of a trip that only descends nothing can be said."""
    model = np.linspace(10.0, 40.0, 12)
    descending = energies([-400.0], [-20.0])
    assert descending.ratio is None
    verdict = check_log([("b", energies(model / 1e3, model)), ("c", descending)])
    assert verdict.everywhere is not None


@pytest.mark.parametrize(("ratio", "is_kept"), [(1.0, False), (3.0, True)])
def test_motion_does_not_excuse_a_wrong_unit(
    ratio: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks wrong only with motion is right, unless whole trips are off, in which it adds up to little."""
    finding = checks.Finding("looks wrong", refused=True)
    verdicts = iter([checks.LogFindings(vehicles={"a": finding}), checks.LogFindings()])
    monkeypatch.setattr(learning, "check_log", lambda _: next(verdicts))
    model = np.array([20.0, 30.0])
    examined: Any = SimpleNamespace(
        trip=SimpleNamespace(vehicle="a"),
        energies=energies(ratio * model, model),
        known=np.zeros(2),
    )
    reading: Any = SimpleNamespace(
        raw=True, by_edge=SimpleNamespace(rewards=ratio * model)
    )
    findings = learning._check({1: examined}, {1: reading})
    assert findings.vehicles == ({"a": finding} if is_kept else {})


def test_two_trips_are_enough_and_each_vehicle_is_its_own() -> None:
    model = np.linspace(10.0, 40.0, 12)
    right, kwh = energies(model, model), energies(model / 1e3, model)
    verdict = check_log(
        [("a", right), ("a", right), ("b", kwh), ("b", kwh), ("c", right)]
    )
    assert verdict.everywhere is None
    assert verdict.vehicles.keys() == {"b"}
    assert verdict.vehicles["b"].refused
    single = check_log([("b", kwh), ("b", kwh)])
    assert single.everywhere is not None
    assert "0.001" in single.everywhere
    unusual = check_log([("d", energies(1.8 * model, model))])
    assert not unusual.vehicles["d"].refused


def test_a_shift_of_all_vehicles_is_found_together() -> None:
    """One short trip per vehicle is too little evidence."""
    rng = np.random.default_rng(3)
    trips = []
    for number in range(12):
        model = rng.uniform(5.0, 60.0, 5)
        trips.append(
            (f"v{number}", energies(np.roll(model, 1) + rng.normal(0.0, 2.0, 5), model))
        )
    assert check_log(trips[:1]).vehicles == {}
    together = check_log(trips)
    assert together.everywhere is not None
    assert "one row late" in together.everywhere


def test_faulty_logs_are_faulty_as_named(city: wrong.City) -> None:
    """The table is about logs that are wrong in the way it names."""
    log = of_city(city, "rest")
    late, vehicles = wrong.shifted(city.graph, log, rows=1)
    assert vehicles == {trip.vehicle for trip in log}
    assert late[0].sections[1] == TripSection(
        log[0].sections[1].edges, log[0].sections[0].energy
    )


def test_a_negative_forecast_without_descent_is_refused(
    city: wrong.City, tmp_path: Path
) -> None:
    """A state that learned a flipped sign on request."""
    graph, log = city.graph, of_city(city, "rest")
    flipped, _ = wrong.WAYS["sign flipped"](graph, log)
    lesson = learn_trips(
        graph, flipped, vehicles=city.fleet, refit=0, accept_unlikely=True
    )
    lesson.policy.save(tmp_path / "fleet.npz")

    def climbed(trip: LoggedTrip) -> float:
        edges = [
            graph.number(edge) for section in trip.sections for edge in section.edges
        ]
        return float(graph.rise[edges].sum())

    uphill = max(log, key=climbed)
    router = Router(graph.network, state=tmp_path / "fleet.npz")
    with pytest.raises(StateError, match="Wh for a route that does not descend"):
        router.route(uphill.sections[0].edges[0], uphill.sections[-1].edges[-1])


def test_without_motion_whole_trips_have_the_energy_that_was_metered(
    city: wrong.City, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From rest to rest, what is put into motion comes back: only single edges differ."""
    log, _ = wrong.WAYS["one vehicle × 3"](city.graph, of_city(city, "raw"))
    calls: list[list[tuple[str, Energies]]] = []

    def record(trips: Any) -> Any:
        calls.append(list(trips))
        return check_log(calls[-1])

    monkeypatch.setattr(learning, "check_log", record)
    reported(city, log, energy="raw")
    as_metered, without_motion = calls
    is_changed = False
    for (vehicle, one), (same_vehicle, other) in zip(
        as_metered, without_motion, strict=True
    ):
        assert vehicle == same_vehicle
        moved = np.abs(one.metered).sum()
        assert abs(one.metered.sum() - other.metered.sum()) <= 1e-9 * moved
        is_changed |= not np.allclose(one.metered, other.metered)
    assert is_changed


@pytest.mark.parametrize("ratio", [1.0, 1.8])
def test_a_likely_shift_of_a_log_warns_of_each_vehicle(ratio: float) -> None:
    """Unless there is a warning about its ratio already."""
    rng = np.random.default_rng(3)
    trips = []
    warned = 0
    for number in range(12):
        model = rng.uniform(20.0, 35.0, 5)
        late = np.roll(model, 1) + rng.normal(0.0, 4.0, 5)
        late *= ratio * model.sum() / late.sum()
        trips.append((f"v{number}", energies(late, model)))
        scales = [ratio] * len(trips)
        together = evidence([[trip] for _, trip in trips], scales, "late")
        if not checks.LIKELY <= together.t < checks.SURE:
            continue
        warned += 1
        verdict = check_log(trips)
        assert verdict.everywhere is None
        assert verdict.vehicles.keys() == {name for name, _ in trips}
        expected = "used 1.8 times" if ratio > 1.0 else "one row late"
        for finding in verdict.vehicles.values():
            assert not finding.refused
            assert expected in finding.message
    assert warned > 0


@pytest.mark.parametrize("ratio", [0.2, 3.0])
def test_evidence_does_not_depend_on_the_unit(ratio: float) -> None:
    rng = np.random.default_rng(0)
    model = rng.uniform(5.0, 60.0, 12)
    metered = np.roll(model, 1) + rng.normal(0.0, 3.0, 12)
    usual = evidence([[energies(metered, model)]], [1.0], "late")
    scaled = evidence([[energies(ratio * metered, model)]], [ratio], "late")
    assert scaled == pytest.approx(usual)
    # Of a ratio beyond all plausible ones, the nearest plausible one counts.
    beyond = evidence([[energies(metered, model)]], [1000.0], "late")
    assert beyond == evidence([[energies(metered, model)]], [10.0], "late")
