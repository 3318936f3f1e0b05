"""Trips in SUMO are reproducible, whatever else was driven and in any process."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from compare_drives import assert_same_drive

from superarm.core import Floats, Ints
from superarm.core.data_files import find
from superarm.core.errors import (
    ConflictError,
    InfeasibleError,
    MissingDataError,
    SuperarmError,
)
from superarm.oracles import ShortestPath, Trip
from superarm.roads.energy import Vehicle
from superarm.roads.networks import LineGraph
from superarm.roads.problems.road_models import ROUTES, load_roads
from superarm.roads.sumo import Drive, Driver
from superarm.roads.sumo.isolation import can_copy, in_a_copy
from superarm.roads.sumo.traffic import Departures, Traffic

pytestmark = pytest.mark.slow  # make test does not install SUMO

libsumo = pytest.importorskip("libsumo", reason="libsumo is not installed")
pytest.importorskip("sumo", reason="sumo is not installed")

HILL = ["ab", "bc", "cd", "ds", "s-t1", "t1-t2", "t2-e"]
"""Up and down again: see conftest.py."""

# --- the same trip costs the same --------------------------------------------------------------


def total(drive):
    return float(drive.energies(Vehicle()).sum())


def test_trips_repeat_regardless_of_earlier_drives(build_network, tmp_path):
    """Also past signals that were traffic-actuated in the file."""
    file = build_network(tmp_path, signals=True)
    assert 'type="actuated"' in file.read_text()
    routes = [HILL, ["gb", "ba"], ["ef", "fg", "gb", "bc"], ["dc", "cb", "ba"]]
    with Driver(file) as driver:
        forward = [driver.drive(route) for route in routes]
        backward = [driver.drive(route) for route in reversed(routes)][::-1]
    for one, other in zip(forward, backward, strict=True):
        assert_same_drive(one, other)


def test_two_drivers_take_turns(network):
    with Driver(network) as first, Driver(network, step=0.1) as second:
        first_drive = first.drive(HILL)
        other = second.drive(HILL)
        assert_same_drive(first.drive(HILL), first_drive)
        assert_same_drive(second.drive(HILL), other)
    assert len(other.speeds) > len(first_drive.speeds)


def test_foreign_simulation_is_not_disturbed(network):
    libsumo.start(["sumo", "-n", str(network), "--no-step-log"])
    try:
        with (
            Driver(network) as driver,
            pytest.raises(ConflictError, match="another simulation"),
        ):
            driver.drive(HILL)
        assert libsumo.simulation.isLoaded()
    finally:
        libsumo.close()


@pytest.fixture(scope="module")
def busy():
    return Traffic(vehicles_per_hour=1500.0, warm_up=120.0, moments=2, spacing=30.0)


@pytest.mark.slow
def test_traffic_changes_what_a_trip_costs_and_repeats(network, busy):
    route = ["ef", "fg", "gb"]
    with Driver(network) as driver:
        empty = driver.drive(route)
    with Driver(network, traffic=busy) as driver:
        drives = [driver.drive(route, moment=moment) for moment in range(2)]
        repeated = [driver.drive(route, moment=moment) for moment in (1, 0)][::-1]
    for one, other in zip(drives, repeated, strict=True):
        assert_same_drive(one, other)
    with Driver(network, traffic=busy) as driver:
        assert_same_drive(driver.drive(route, moment=1), drives[1])
    with Driver(network, traffic=busy, seed=1) as driver:
        assert driver.drive(route).duration != drives[0].duration
    assert all(drive.arrived and drive.duration > empty.duration for drive in drives)
    assert len({total(drive) for drive in [empty, *drives]}) == 3


def test_other_cars_depend_only_on_the_seed():
    traffic = Traffic(vehicles_per_hour=3600.0)

    def cars(seed):
        return Departures(
            traffic,
            places=["a", "b", "c"],
            weights=np.array([1.0, 0.0, 3.0]),
            find_route=lambda first, last: [first, last],
            seed=seed,
        )

    one, other = cars(1), cars(1)
    assert one[400] == other[400]
    assert [one[n] for n in range(400)] == [other[n] for n in range(400)]
    assert one[3] != cars(2)[3]
    assert {place for n in range(100) for place in one[n].route} == {"a", "c"}
    # 400 exponential pauses of a second: within five standard errors of their sum.
    assert abs(one[399].time - 400.0) < 5.0 * 20.0


@pytest.mark.slow
def test_a_trip_leaves_no_trace(network, busy):
    """The simulation that is loaded here never moves; trips take place in copies of it."""
    with Driver(network, traffic=busy) as driver:
        driver.drive(["ef", "fg", "gb"], moment=1)
        if can_copy():
            assert libsumo.simulation.getTime() == 0.0
            assert libsumo.vehicle.getIDCount() == 0


@pytest.mark.slow
@pytest.mark.parametrize("with_traffic", [False, True])
def test_reloading_matches_copying(network, busy, with_traffic):
    """As on systems that cannot copy processes."""
    traffic = busy if with_traffic else None
    drives = []
    for copies in (True, False):
        with Driver(network, traffic=traffic) as driver:
            driver._copies = copies and can_copy()
            drives.append(
                [driver.drive(route) for route in (HILL, ["ef", "fg", "gb"], HILL)]
            )
    for one, other in zip(*drives, strict=True):
        assert_same_drive(one, other)


@pytest.mark.slow
def test_another_process_drives_the_same(network):
    code = (
        "import sys; from superarm.roads.sumo import Driver; "
        "print(*Driver(sys.argv[1]).drive(sys.argv[2:]).speeds.tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, network, *HILL],
        check=True,
        capture_output=True,
        text=True,
    )
    with Driver(network) as driver:
        assert (
            list(map(float, done.stdout.split())) == driver.drive(HILL).speeds.tolist()
        )


# --- Monaco, where its roads are at hand -----------------------------------------------------------


class Monaco(NamedTuple):
    file: Path
    graph: LineGraph
    energy: Floats
    """By eq. 8."""
    reduced: Floats
    """The same, less what height stores."""

    def route(self, name: str, costs: Floats) -> Ints:
        """The route of least ``costs`` between the ends of a route of the experiments."""
        _, start, goal = ROUTES[name]
        trip = Trip(start=self.graph.number(start), goal=self.graph.number(goal))
        oracle = ShortestPath(successors=self.graph.successors)
        scores = -np.maximum(costs, 0.0)
        return oracle.select(scores, trip, np.random.default_rng(0)).positions

    def drive(self, driver: Driver, route: Ints) -> Drive:
        return driver.drive([self.graph.ids[edge] for edge in route])


@pytest.fixture(scope="module")
def monaco():
    try:
        file = find("monaco-roads", ending=".net.xml.xz")
    except MissingDataError:
        pytest.skip("the roads of Monaco are not at hand")
    graph, vehicle = load_roads("monaco").graph, Vehicle()
    energy = vehicle.energy(graph.length, graph.speed, graph.rise)
    return Monaco(file, graph, energy, energy - vehicle.potential(graph.rise))


@pytest.mark.slow
def test_trips_repeat_where_lanes_are_many(monaco):
    """A saved state forgets when lanes were last changed, which made trips differ by 0.6 Wh here."""
    rng = np.random.default_rng(0)
    perturbed = np.exp(0.5 * rng.standard_normal((3, len(monaco.graph))))
    routes = [
        monaco.route("monaco-a", monaco.reduced * factors) for factors in perturbed
    ]
    with Driver(monaco.file) as driver:
        forward = [monaco.drive(driver, route) for route in routes]
        backward = [monaco.drive(driver, route) for route in reversed(routes)][::-1]
    with Driver(monaco.file) as driver:
        last = [monaco.drive(driver, routes[number]) for number in (2, 0)]
    for one, other in zip(
        [*forward, forward[2], forward[0]], [*backward, *last], strict=True
    ):
        assert_same_drive(one, other)


@pytest.mark.slow
def test_a_real_trip_in_monaco(monaco):
    """On Monaco B the prior's route by potentials beats the rectified one, in SUMO as by eq. 8.

    Eq. 8 gives the difference. Corners, lights and junctions, which it ignores, may take back
    what they cost: less than the whole ½mv² at every junction of the route, at η⁺ each time.
    """
    routes = {
        "potential": monaco.route("monaco-b", monaco.reduced),
        "rectified": monaco.route("monaco-b", monaco.energy),
    }
    with Driver(monaco.file) as driver:
        drives = {name: monaco.drive(driver, route) for name, route in routes.items()}
    vehicle = Vehicle()
    for name, route in routes.items():
        assert drives[name].arrived
        speed = monaco.graph.speed[route]
        stops = (
            0.5
            * vehicle.mass
            * (speed**2).sum()
            / vehicle.propulsion_efficiency
            / 3600.0
        )
        assert 0.0 < total(drives[name]) - monaco.energy[route].sum() < stops
    assert total(drives["potential"]) < total(drives["rectified"])
    # Regression values, seen with SUMO 1.28 and not derived: 10 to 20 Wh a kilometre for corners and
    # lights, and some 300 Wh between the two routes.
    for name, route in routes.items():
        extra = total(drives[name]) - monaco.energy[route].sum()
        assert 5.0 < extra / monaco.graph.length[route].sum() * 1000.0 < 25.0
    assert total(drives["potential"]) < total(drives["rectified"]) - 250.0


# --- copies of the process ------------------------------------------------------------------------

needs_copies = pytest.mark.skipif(
    not can_copy(), reason="this system cannot copy processes"
)


@needs_copies
def test_work_in_a_copy_returns_its_result_without_side_effects():
    numbers = [1]

    def work():
        numbers.append(2)
        return os.getpid(), numbers

    process, result = in_a_copy(work)
    assert process != os.getpid()
    assert (result, numbers) == ([1, 2], [1])


@needs_copies
def test_errors_in_a_copy_are_raised_in_the_caller():
    def refuse():
        raise InfeasibleError("no way")

    with pytest.raises(InfeasibleError, match="no way"):
        in_a_copy(refuse)
    with pytest.raises(SuperarmError, match="ZeroDivisionError: "):
        in_a_copy(lambda: 1 // 0)
    with pytest.raises(
        SuperarmError, match="ended with exit code 3 before its work was done"
    ):
        in_a_copy(lambda: os._exit(3))
    with pytest.raises(SuperarmError, match=r"ended by signal 15 \(SIGTERM\) before"):
        in_a_copy(lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(
        SuperarmError, match=r"signal 9 \(SIGKILL\), perhaps because memory ran out"
    ):
        in_a_copy(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(SuperarmError, match="TypeError"):
        in_a_copy(lambda: lambda: 0)
