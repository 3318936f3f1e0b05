"""``superarm learn``: from a fleet's log to a state for routing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.states import file_lock, load
from superarm.oracles import ShortestPath, Trip
from superarm.policies import IndexPolicy
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import learn_trips, read_trips
from superarm.roads.networks import LineGraph, read_network

Command = Callable[..., Any]
ENDS = ("--from", "-00_10", "--to", "-34_44")
VAN = Vehicle(mass=2200.0)
SIDE = 5


@pytest.fixture
def graph(town: Any) -> LineGraph:
    return read_network(town.tables).line_graph(uturns="dead-ends")


@pytest.fixture
def log(graph: LineGraph, tmp_path: Path) -> Path:
    """Twelve trips of two vans that need 1.3 Wh more per edge than the model."""
    Path("vans.toml").write_text(
        "[van-1]\nmass = 2200.0\nbattery_wh = 2000\n[van-2]\nmass = 2200.0\n"
    )
    return write_log(tmp_path / "trips.csv", graph, range(12))


def write_log(path: Path, graph: LineGraph, numbers: Any, more: float = 1.3) -> Path:
    rng, lines = np.random.default_rng(0), ["trip,vehicle,edge,energy_wh"]
    energies = VAN.energy(graph.length, graph.speed, graph.rise)
    turns = VAN.turn_energy(graph)
    oracle = ShortestPath(successors=graph.turn_graph)
    for number in range(40):
        start, goal = rng.integers(len(graph), size=2).tolist()
        route = oracle.select(
            -graph.length, Trip(start=start, goal=goal), rng
        ).positions
        spent = energies[route] + more + rng.normal(0.0, 0.3, len(route))
        spent[:-1] += turns[graph.turn_numbers(route)]
        if number in numbers:
            lines += [
                f"t{number},van-{1 + number % 2},{graph.ids[edge]},{energy:.4f}"
                for edge, energy in zip(route, spent, strict=True)
            ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def words(town: Any, *trips: Path, state: str = "fleet.npz") -> tuple[object, ...]:
    options = [word for path in trips for word in ("--trips", path)]
    return ("learn", "--net", town.tables, *options, "--state", state)


def test_a_log_is_learned_once(
    cli: Command, town: Any, graph: LineGraph, log: Path
) -> None:
    known = ("--vehicles", "vans.toml", "--json")
    first = cli(*words(town, log), *known).json()
    assert (
        first["trips_learned"],
        first["trips_known_before"],
        first["trips_in_all"],
    ) == (12, 0, 12)
    assert first["trips_refused"] == {}
    assert 0 < first["edges_visited"] <= len(graph)
    assert (first["outliers"], first["flagged"]) == (0, [])
    assert first["trips_judged"] == 12
    assert 0.0 <= first["trips_inside"] <= 1.0
    assert set(first["scales_wh"]) == {"near", "own", "noise"}
    state = Path("fleet.npz").read_bytes()
    repeated = cli(*words(town, log), *known).json()
    assert (
        repeated["trips_learned"],
        repeated["trips_known_before"],
        repeated["trips_in_all"],
    ) == (0, 12, 12)
    assert Path("fleet.npz").read_bytes() == state
    longer = write_log(Path("longer.csv"), graph, range(15))
    more = cli(*words(town, longer), *known).json()
    assert (
        more["trips_learned"],
        more["trips_known_before"],
        more["trips_in_all"],
    ) == (3, 12, 15)
    twice = cli(*words(town, log, longer, log, state="other.npz"), *known).json()
    assert (twice["trips_learned"], twice["trips_known_before"]) == (15, 24)
    assert (
        cli(*words(town, log, state="other.npz"), *known).json()["trips_in_all"] == 15
    )


def test_a_half_life_belongs_to_the_state(cli: Command, town: Any, log: Path) -> None:
    vans = ("--vehicles", "vans.toml")
    cli(*words(town, log), *vans, "--half-life", "6")
    cli(*words(town, log, state="lasting.npz"), *vans)
    ageing = load("fleet.npz").posterior
    lasting = load("lasting.npz").posterior
    assert ageing.half_life == 6.0
    assert lasting.half_life is None
    roads = ageing._engine.log.view().keys
    assert (ageing.predict(roads).std > lasting.predict(roads).std).all()
    refused = cli(*words(town, log), *vans, "--half-life", "9").fails(1)
    assert "this state was learned with half_life 6.0, got 9.0" in refused
    lasting_log = words(town, log, state="lasting.npz")
    refused = cli(*lasting_log, *vans, "--half-life", "9").fails(1)
    assert "this state was learned without half_life, got 9.0" in refused
    cli(*words(town, log), *vans)  # by default as in the state
    assert load("fleet.npz").posterior.half_life == 6.0


@pytest.mark.thorough
def test_concurrent_learning_is_serialised(
    cli: Command, town: Any, graph: LineGraph, log: Path
) -> None:
    """Who learns into a state while another does waits, and adds to what that wrote."""
    cli(*words(town, log), "--json").json()
    more = words(town, write_log(Path("more.csv"), graph, range(12, 15)))
    with file_lock("fleet.npz"):
        apart = subprocess.Popen(
            [sys.executable, "-m", "superarm", *map(str, more), "--json"],
            stdout=subprocess.PIPE,
        )
        newer = load("fleet.npz")
        assert isinstance(newer, IndexPolicy)
        trips = read_trips(write_log(Path("other.csv"), graph, range(15, 20)), graph)
        learn_trips(graph, trips, policy=newer).policy.save("fleet.npz")
    output, _ = apart.communicate(timeout=120)
    assert json.loads(output)["trips_in_all"] == 20


def test_learn_waits_for_the_file_lock(tmp_path: Path) -> None:
    taken = threading.Event()

    def take() -> None:
        with file_lock(tmp_path / "new" / "fleet.npz"):
            taken.set()

    other = threading.Thread(target=take)
    with file_lock(tmp_path / "new" / "fleet.npz"):
        other.start()
        assert not taken.wait(0.3)
    assert taken.wait(60.0)
    other.join()


def test_failure_leaves_no_lock(cli: Command, town: Any, log: Path) -> None:
    strange = Path("strange.csv")
    strange.write_text("trip,edge,energy_wh\n1,nowhere,5\n", encoding="utf-8")
    before = {path.name for path in Path().iterdir()}
    assert "cannot learn any of" in cli(*words(town, strange, state="none.npz")).fails(
        1
    )
    assert {path.name for path in Path().iterdir()} == before
    os.mkfifo("pipe")
    assert "is a pipe, not a file" in cli(*words(town, log, state="pipe")).fails(1)
    assert {path.name for path in Path().iterdir()} == before | {"pipe"}


def test_waiter_takes_a_new_lock_when_the_old_one_is_removed(tmp_path: Path) -> None:
    """Three threads in turn: each removes the lock file at its end, because no state was written."""
    path, together, most = tmp_path / "fleet.npz", 0, 0
    counting = threading.Lock()

    def take() -> None:
        nonlocal together, most
        for _ in range(50):
            with file_lock(path):
                with counting:
                    together += 1
                    most = max(most, together)
                with counting:
                    together -= 1

    threads = [threading.Thread(target=take) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert not list(tmp_path.iterdir())


def test_trips_without_a_vehicle_belong_to_the_unnamed_vehicle(
    cli: Command, town: Any, log: Path
) -> None:
    rows = [line.split(",") for line in log.read_text().splitlines()]
    column = rows[0].index("vehicle")
    Path("unnamed.csv").write_text(
        "".join(f"{','.join(row[:column] + row[column + 1 :])}\n" for row in rows)
    )
    cli(*words(town, Path("unnamed.csv"), state="new/fleet.npz"), "--json").json()
    route = ("route", "--net", town.tables, *ENDS)
    query = (*route, "--state", "new/fleet.npz")
    assert cli(*query, "--json").json()["vehicle"]["trips_learned"] == 12
    assert (
        "a vehicle of 1,830 kg; the state has 12 trips of this vehicle"
        in cli(*query).out
    )
    assert (
        "a vehicle of 1,830 kg, the default; --vehicle FILE describes another"
        in cli(*route).out
    )


def test_single_trip_is_reported_in_the_singular(
    cli: Command, town: Any, log: Path
) -> None:
    one = words(town, times(log, 1.0, 1), state="one.npz")
    output = cli(*one, "--vehicles", "vans.toml").out
    assert "coverage: the one trip judged fell inside its 95 % interval" in output
    far = words(town, times(log, 20.0, 1), state="far.npz")
    assert "its only trip used 2" in cli(*far).fails(1)
    accepted = cli(*far, "--accept-unlikely").out
    assert (
        "Warning: vehicle 'van-1' was learned, but its log looks wrong: its only trip used 2"
        in accepted
    )
    assert "coverage: the one trip judged fell outside its 95 % interval" in accepted


def test_routes_are_found_by_it(cli: Command, town: Any, log: Path) -> None:
    """Every edge needs 1.3 Wh more than the model, and the fleet's routes include it."""
    cli(*words(town, log), "--vehicles", "vans.toml", "--json").json()
    route = ("route", "--net", town.tables, *ENDS, "--vehicle", "vans.toml#van-1")
    model = cli(*route, "--json").json()
    learned = cli(*route, "--state", "fleet.npz", "--charge", "1000", "--json").json()
    assert model["vehicle"] == {
        "name": "van-1",
        "mass_kg": 2200.0,
        "trips_learned": None,
    }
    assert learned["vehicle"] == {
        "name": "van-1",
        "mass_kg": 2200.0,
        "trips_learned": 6,
    }
    output = cli(*route, "--state", "fleet.npz").out
    assert "vehicle van-1 of 2,200 kg; the state has 6 trips of this vehicle" in output
    Path("new.toml").write_text("[van-9]\nmass = 2200.0\n")
    new = ("--state", "fleet.npz", "--vehicle", "new.toml#van-9")
    output = cli(*route, "--state", "fleet.npz", "--set", "mass=2000").fails(1)
    assert (
        "is a fleet's state, so you cannot set mass; write it into the vehicle's file"
        in output
    )
    output = cli(*route[:-2], *new).out
    assert (
        "the state has no trips of this vehicle, so it uses other vehicles' trips"
        in output
    )
    assert learned["observations"] > 50
    assert learned["trips_judged"] == 12
    edges = len(learned["edges"])
    assert learned["energy_wh"] - model["energy_wh"] == pytest.approx(
        1.3 * edges, abs=0.6 * edges
    )
    spread = [
        answer["energy_high_wh"] - answer["energy_low_wh"]
        for answer in (learned, model)
    ]
    assert spread[0] < spread[1]
    full = learned["battery"]
    assert full["arrival_wh"] == pytest.approx(1000.0 - learned["energy_wh"], abs=0.2)
    assert full["arrival_low_wh"] < full["arrival_wh"] < full["arrival_high_wh"]


def test_for_people(cli: Command, town: Any, graph: LineGraph, log: Path) -> None:
    shown = cli(*words(town, log), "--vehicles", "vans.toml")
    assert shown.code == 0, shown.err
    assert "learned 12 trips; the state now has 12 trips on" in shown.out
    assert f"of {len(graph)} edges" in shown.out
    assert "of the last 12 trips" in shown.out
    assert shown.out.endswith("State: fleet.npz\n")
    repeated = cli(*words(town, log), "--vehicles", "vans.toml").out
    assert "skipped 12 trips, which the state already has by name" in repeated
    of_van_2 = [
        line.partition(",")[0]
        for line in log.read_text().splitlines()
        if ",van-2," in line
    ]
    longest = max(of_van_2, key=of_van_2.count)  # in a short trip one error dominates
    odd = (
        log.read_text()
        .replace(f"{longest},van-2", "u3,van-2")
        .replace("t4,van-1", "u4,van-1")
    )
    lines = odd.splitlines()
    line_number = next(
        number for number, line in enumerate(lines) if line.startswith("u3")
    )
    lines[line_number] = lines[line_number].rpartition(",")[0] + ",2500.0"
    strange = next(number for number, line in enumerate(lines) if line.startswith("u4"))
    lines[strange] = "u4,van-1,nowhere,3.0"
    Path("odd.csv").write_text("\n".join(lines) + "\n")
    result = cli(*words(town, Path("odd.csv")), "--vehicles", "vans.toml")
    assert result.code == 0, result.err
    result = result.out
    assert "learned 1 trip; the state now has 13 trips on" in result
    assert "could not learn 1 trip:\n  " in result
    assert "u4" in result
    assert "nowhere" in result
    assert "1 outlier so far, with less weight" in result
    assert "standard deviations from the forecast" in result


def test_trips_that_cannot_be_learned_leave_no_state(cli: Command, town: Any) -> None:
    Path("odd.csv").write_text("trip,edge,energy_wh\na,nowhere,3.0\n")
    for more in ((), ("--json",)):
        message = cli(*words(town, Path("odd.csv")), *more).fails(1)
        assert "cannot learn any of 1 trip" in message
        assert "nowhere" in message
    assert not Path("fleet.npz").exists()


@pytest.mark.parametrize("outliers", ["keep", "weigh", "refuse"])
def test_outliers(cli: Command, town: Any, log: Path, outliers: str) -> None:
    lines = log.read_text().splitlines()
    lines[-1] = lines[-1].rpartition(",")[0] + ",2500.0"
    log.write_text("\n".join(lines) + "\n")
    summary = cli(
        *words(town, log), "--vehicles", "vans.toml", "--outliers", outliers, "--json"
    ).json()
    assert summary["outliers"] == 1
    assert summary["flagged"][0]["edges"] == [lines[-1].split(",")[2]]
    assert summary["flagged"][0]["energy_wh"] > 2000.0


def test_trip_totals(cli: Command, town: Any, log: Path) -> None:
    trips: dict[str, list[Any]] = {}
    for line in log.read_text().splitlines()[1:]:
        trip, vehicle, edge, energy = line.split(",")
        trips.setdefault(trip, [vehicle, [], 0.0])
        trips[trip][1].append(edge)
        trips[trip][2] += float(energy)
    rows = [
        f"{trip},{who},{' '.join(edges)},{wh}"
        for trip, (who, edges, wh) in trips.items()
    ]
    Path("whole.csv").write_text(
        "\n".join(["trip,vehicle,edges,energy_wh", *rows]) + "\n"
    )
    summary = cli(
        *words(town, Path("whole.csv")), "--vehicles", "vans.toml", "--json"
    ).json()
    assert summary["trips_learned"] == 12
    assert summary["edges_visited"] == len(
        {edge for _, edges, _ in trips.values() for edge in edges}
    )


def times(log: Path, factor: float, trips: int) -> Path:
    """The log's first trips with other energies."""
    head, *lines = log.read_text().splitlines()
    names = list(dict.fromkeys(line.partition(",")[0] for line in lines))[:trips]
    cut = [line.rpartition(",") for line in lines if line.partition(",")[0] in names]
    rows = [f"{before},{factor * float(energy):.6f}" for before, _, energy in cut]
    Path("other.csv").write_text("\n".join([head, *rows]))
    return Path("other.csv")


@pytest.mark.thorough
@pytest.mark.parametrize("trips", [2, 12])
@pytest.mark.parametrize(
    ("factor", "advice"),
    [
        (1e-3, "rename the column energy_wh to energy_kwh"),
        (0.3, "check the unit of energy_wh"),
        (3.0, "if the vehicle is unlike a car"),
        (3600.0, "divide them by 3600"),
        (-1.0, "positive where the battery discharges"),
    ],
)
def test_energies_in_other_units_are_refused(
    cli: Command, town: Any, log: Path, factor: float, advice: str, trips: int
) -> None:
    message = cli(
        *words(town, times(log, factor, trips)), "--vehicles", "vans.toml"
    ).fails(1)
    assert "this log looks wrong: " in message
    assert "times the expected energy; " in message
    assert advice in message
    assert "e+" not in message
    assert not Path("fleet.npz").exists()
    anyway = (
        *words(town, Path("other.csv")),
        "--vehicles",
        "vans.toml",
        "--accept-unlikely",
        "--json",
    )
    assert cli(*anyway).json()["trips_learned"] == trips


def test_only_the_vehicle_in_another_unit_is_rejected(
    cli: Command, town: Any, log: Path
) -> None:
    lines = log.read_text().splitlines()
    wrong = [
        f"{line.rpartition(',')[0]},{float(line.rpartition(',')[2]) / 1e3:.6f}"
        if ",van-2," in line
        else line
        for line in lines
    ]
    Path("mixed.csv").write_text("\n".join(wrong) + "\n")
    mixed = words(town, Path("mixed.csv"), state="mixed.npz")
    summary = cli(*mixed, "--vehicles", "vans.toml", "--json").json()
    assert summary["trips_learned"] == 6
    assert len(summary["trips_refused"]) == 6
    (warning,) = summary["warnings"]
    assert warning.startswith(
        "vehicle 'van-2' was refused: its typical trip (of 6) used 0.001"
    )
    assert "energy_kwh" in warning
    assert "--accept-unlikely" in warning
    kwh = [
        line.replace("energy_wh", "energy_kwh")
        for line in wrong
        if ",van-1," not in line
    ]
    Path("kwh.csv").write_text("\n".join(kwh) + "\n")
    remaining = words(town, Path("kwh.csv"), state="mixed.npz")
    assert (
        cli(*remaining, "--vehicles", "vans.toml", "--json").json()["trips_in_all"]
        == 12
    )


def test_later_calls_are_checked_against_the_state(
    cli: Command, town: Any, log: Path
) -> None:
    """A van that was never described, but learned: its next trip in kWh is refused, one by one."""
    cli(*words(town, log), "--json").json()
    later_log = times(log, 0.3, 2)
    later_log.write_text(
        later_log.read_text().replace("t0,", "later0,").replace("t1,", "later1,")
    )
    message = cli(*words(town, later_log)).fails(1)
    assert "this log looks wrong" in message


def test_bad_input(cli: Command, town: Any, log: Path) -> None:
    assert "file not found" in cli(*words(town, Path("none.csv"))).fails(2)
    Path("bad.csv").write_text("trip,edge,energy_wh\na,-00_10,lots\n")
    assert "line 2" in cli(*words(town, Path("bad.csv"))).fails(1)
    Path("few.toml").write_text("[van-1]\nmass = 2200.0\n")
    assert "does not describe vehicle 'van-2'" in cli(
        *words(town, log), "--vehicles", "few.toml"
    ).fails(2)
    Path("wrong.toml").write_text("[van-1]\nmas = 2200.0\n")
    assert "did you mean 'mass'" in cli(
        *words(town, log), "--vehicles", "wrong.toml"
    ).fails(2)
    cli("learn", "--net", town.tables, "--state", "fleet.npz").fails(2)
    cli(*words(town, log), "--outliers", "ignore").fails(2)
    assert "--net" in cli("learn", "--trips", log, "--state", "fleet.npz").fails(2)
    both = (*words(town, log), "--flat", "--elevation", ".")
    assert cli(*both).code in (1, 2)
    assert "is a folder" in cli(*words(town, log, state=".")).fails(2)
    assert not Path("fleet.npz").exists()


def test_a_state_of_something_else(
    cli: Command, town: Any, log: Path, write_town: Any, tmp_path: Path
) -> None:
    Path("fleet.npz").write_bytes(b"nonsense")
    cli(*words(town, log)).fails(1)
    assert Path("fleet.npz").read_bytes() == b"nonsense"  # it is not written over
    Path("fleet.npz").unlink()
    cli(*words(town, log), "--json").json()
    (tmp_path / "elsewhere").mkdir()
    other = write_town(tmp_path / "elsewhere", SIDE + 1)
    assert "another road network" in cli(*words(other, log)).fails(1)
    assert "another road network" in cli(*words(town, log), "--flat").fails(1)
    run = (
        "run",
        "navigation/network",
        "--net",
        town.tables,
        "--rounds",
        "2",
        "--seeds",
        "1",
    )
    assert cli(*run, "--policies", "gp-ts,prior", "-q", "--out", "run").code == 0
    for name in ("gp-ts", "prior"):
        for state in Path("run", "states").glob(f"{name}.*"):
            assert "is not a fleet's state" in cli(
                *words(town, log, state=str(state))
            ).fails(1)


def test_fleet_run_can_continue_with_a_log(cli: Command, town: Any, log: Path) -> None:
    run = ("run", "navigation/fleet", "--net", town.tables, "--set", "driven=false")
    short = (
        "--rounds",
        "3",
        "--seeds",
        "1",
        "--policies",
        "cautious",
        "-q",
        "--out",
        "run",
    )
    options = ("--set", "least_metres=200", "--set", "trips=2")
    result = cli(*run, *options, *short)
    assert result.code == 0, result.err
    (state,) = Path("run", "states").iterdir()
    summary = cli(
        *words(town, log, state=str(state)), "--vehicles", "vans.toml", "--json"
    ).json()
    assert (summary["trips_learned"], summary["trips_in_all"]) == (12, 15)


def write_times(log: Path) -> Path:
    """The same log with times at all hours."""
    head, *rows = log.read_text(encoding="utf-8").splitlines()
    timed = [f"{head},time,duration_s"]
    begun: set[str] = set()
    for row in rows:
        trip = row.split(",")[0]
        hour = "" if trip in begun else f"{2 * int(trip[1:]) % 24:02d}:30"
        begun.add(trip)
        timed.append(f"{row},{hour},20")
    with_times = Path("timed.csv")
    with_times.write_text("\n".join(timed) + "\n", encoding="utf-8")
    return with_times


def test_hours_of_many_roads_are_learned_in_the_sparse_form(
    cli: Command, town: Any, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with more than 666 visited roads: the same route, and nearly the same intervals."""
    with_times = write_times(log)
    answers = []
    for state, largest in (("dense.npz", 6000), ("sparse.npz", 1)):
        with monkeypatch.context() as patch:
            patch.setattr("superarm.roads.posterior.forms.DENSE_LARGEST", largest)
            lesson = cli(*words(town, with_times, state=state), "--hours", "--json")
            assert lesson.json()["trips_learned"] == 12
        asked = ("route", "--net", town.tables, *ENDS, "--state", state)
        answers.append(cli(*asked, "--depart", "08:00", "--json").json())
    dense, sparse = answers
    assert dense["edges"] == sparse["edges"]
    for mean, low, high in (
        ("energy_wh", "energy_low_wh", "energy_high_wh"),
        ("learned_time_s", "learned_time_low_s", "learned_time_high_s"),
    ):
        # Scales are fitted, and widths taken, from forecasts a per cent of a deviation apart.
        most = 0.02 * (dense[high] - dense[low])
        for number in (mean, low, high):
            assert abs(sparse[number] - dense[number]) <= most


def test_hours_are_learned_from_a_log_with_times(
    cli: Command, town: Any, log: Path
) -> None:
    """The same log with times: `--hours` learns a profile, and `--depart` counts."""
    with_times = write_times(log)
    lesson = cli(*words(town, with_times), "--hours", "--json").json()
    assert (lesson["trips_learned"], lesson["trips_refused"]) == (12, {})
    assert {"near_hour", "own_hour"} < set(lesson["scales_wh"])
    asked = ("route", "--net", town.tables, *ENDS, "--state", "fleet.npz")
    answer = cli(*asked, "--depart", "08:00", "--json").json()
    assert answer["depart_used"]
    assert answer["learned_time_low_s"] < answer["learned_time_s"]
    text = cli(*asked, "--depart", "08:00").out
    assert "min departing at 08:00, 95 % interval" in text
    # A log without times has no hours, and a state without hours does not get them.
    refused = cli(*words(town, log, state="other.npz"), "--hours")
    assert "column time" in refused.fails(1)
    cli(*words(town, log, state="plain.npz"))
    conflict = cli(*words(town, with_times, state="plain.npz"), "--hours")
    assert "without hours" in conflict.fails(1)
    continued = cli(*words(town, with_times)).out
    assert "Over the day, an edge deviates" in continued
    assert "The state has durations of 12 trips" in continued
