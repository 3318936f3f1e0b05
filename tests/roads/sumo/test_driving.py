"""Trips in SUMO: energies against eq. 8, their edges, and rejected input."""

import gzip
import lzma
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from compare_drives import assert_same_drive

from superarm.core.errors import InputError, MissingDataError, UnknownArmError
from superarm.roads.energy import Vehicle
from superarm.roads.sumo import Drive, Driver
from superarm.roads.sumo.edge_times import passing
from superarm.roads.sumo.plain_network import plain_text
from superarm.roads.sumo.traffic import Traffic

pytestmark = pytest.mark.slow  # make test does not install SUMO

libsumo = pytest.importorskip("libsumo", reason="libsumo is not installed")
sumo = pytest.importorskip("sumo", reason="sumo is not installed")

HILL = ["ab", "bc", "cd", "ds", "s-t1", "t1-t2", "t2-e"]
"""Up and down again: see conftest.py."""
SPEED = 13.9


@pytest.fixture
def driver(network):
    with Driver(network) as one:
        yield one


def energies(drive, vehicle=None):
    return drive.energies(Vehicle() if vehicle is None else vehicle)


def total(drive, vehicle=None):
    return float(energies(drive, vehicle).sum())


def lanes(file):
    """Lengths of all lanes, by id, and shapes' rises."""
    elements = ElementTree.parse(file).iter("lane")
    return {lane.get("id"): float(lane.get("length")) for lane in elements}


# --- against eq. 8 ----------------------------------------------------------------------------


def test_level_straight_road_matches_eq_8(network):
    """At constant speed SUMO's model is eq. 8. Steps of 0.25 s book up to 3.5 m to a neighbour."""
    road = ["fg"]
    with Driver(network) as driver:
        drive = driver.drive(road)
    length = lanes(network)["fg_0"]
    assert drive.arrived
    assert drive.duration == pytest.approx(length / SPEED, abs=1e-6)
    assert total(drive) == pytest.approx(
        float(Vehicle().energy(length, SPEED, 0.0)), abs=2e-3
    )


@pytest.mark.parametrize(
    "other",
    [
        {"mass": 2400.0},
        {"auxiliary_power": 1500.0},
        {"air_density": 1.35},
        {"rolling_resistance": 0.015},
        {
            "gravity": 9.7,
            "front_area": 3.0,
            "air_drag": 0.5,
            "propulsion_efficiency": 0.8,
        },
    ],
    ids=str,
)
def test_every_parameter_of_the_vehicle_counts(driver, network, other):
    vehicle = Vehicle(**other)
    measured = total(driver.drive(["fg"]), vehicle)
    length = lanes(network)["fg_0"]
    assert measured == pytest.approx(
        float(vehicle.energy(length, SPEED, 0.0)), rel=1e-4
    )
    assert measured > Vehicle().energy(length, SPEED, 0.0)


def test_hill_matches_eq_8(driver, network):
    """Up and down 50 m without braking: cos α = 0.9988 is the only systematic difference.

    SUMO takes the slope between the car's front and rear, so that at the foot and at the top
    5 m are driven at a slope in between, and a step of 3.5 m may be booked at the next slope: both
    move up to 8.5 m · m·g·0.05 ≈ 2.1 Wh from one edge to the other.
    """
    drive = driver.drive(HILL)
    length = lanes(network)
    vehicle = Vehicle()
    assert drive.completed == len(HILL)
    up = vehicle.energy(length["bc_0"], SPEED, 50.0)
    down = vehicle.energy(length["cd_0"], SPEED, -50.0)
    assert energies(drive)[1] == pytest.approx(float(up), abs=2.5)
    assert energies(drive)[2] == pytest.approx(float(down), abs=2.5)
    assert energies(drive)[2] < -100.0  # more is won back than spent
    expected = sum(
        float(
            vehicle.energy(
                length[f"{edge}_0"], SPEED, {"bc": 50.0, "cd": -50.0}.get(edge, 0.0)
            )
        )
        for edge in HILL
    )
    assert total(drive) == pytest.approx(expected, abs=2.5)


def test_braking_for_a_corner_is_mostly_recuperated(driver):
    """Braking wins energy on the edge before the corner; accelerating costs it behind."""
    straight, turning = driver.drive(["t2-e"]), driver.drive(["t2-e", "ef"])
    assert energies(turning)[0] < energies(straight)[0]
    level = Vehicle().energy(900.0, SPEED, 0.0)
    assert energies(turning)[1] > level
    kinetic = 0.5 * 1830.0 * SPEED**2 / 3600.0
    assert (
        0.0
        < total(turning) - total(driver.drive(["ef"])) - total(straight)
        < 0.2 * kinetic
    )


def test_net_energies_without_motion_are_not_negative(network):
    """With height and motion taken out, no edge costs less than nothing, corner or not."""
    vehicle = Vehicle()
    with Driver(network) as driver:
        drive = driver.drive([*HILL, "ef", "fg", "gb", "ba"])
    stored = drive.stored(vehicle)
    net = energies(drive) - stored
    rise = np.array(
        [
            {"bc": 50.0, "cd": -50.0}.get(edge, 0.0)
            for edge in [*HILL, "ef", "fg", "gb", "ba"]
        ]
    )
    # Up to 8.5 m at the foot and at the top of the hill may be booked to the neighbour.
    assert (
        net - vehicle.potential(rise) > [0, -2.5, -2.5, -2.5, 0, 0, 0, 0, 0, 0, 0]
    ).all()
    full = vehicle.recuperation_efficiency * 0.5 * vehicle.mass * SPEED**2 / 3600.0
    assert stored.min() < -0.3 * full  # it brakes for the corners
    assert stored.sum() == pytest.approx(
        0.0, abs=0.02 * full
    )  # and ends as fast as it began


# --- against SUMO's own energy -------------------------------------------------------------------


def vehicle_type(vehicle):
    """A type for SUMO, with the vehicle's own gravity in its mass and its air in its drag."""
    parameters = {
        "frontSurfaceArea": vehicle.front_area,
        "airDragCoefficient": vehicle.air_drag * vehicle.air_density / 1.2041,
        "rollDragCoefficient": vehicle.rolling_resistance,
        "radialDragCoefficient": 0.0,
        "rotatingMass": 0.0,
        "propulsionEfficiency": vehicle.propulsion_efficiency,
        "recuperationEfficiency": vehicle.recuperation_efficiency,
        "constantPowerIntake": vehicle.auxiliary_power,
    }
    attributes = "".join(
        f'<param key="{key}" value="{value!r}"/>' for key, value in parameters.items()
    )
    steady = 'vClass="passenger" sigma="0" speedFactor="1" speedDev="0"'
    mass = vehicle.mass * vehicle.gravity / 9.80665
    return (
        f'<additional><vType id="driven" {steady} mass="{mass!r}" emissionClass="Energy/unknown">'
        f"{attributes}</vType></additional>"
    )


def counted_by_sumo(network, route, vehicle, folder):
    """Wh on each edge, and of these in motion: booked step by step, as SUMO states the rates."""
    (folder / "types.add.xml").write_text(vehicle_type(vehicle))
    files = ["-n", str(network), "-a", str(folder / "types.add.xml")]
    libsumo.start(
        ["sumo", *files, "--step-length", "0.25", "--no-step-log", "--no-warnings"]
    )
    try:
        libsumo.route.add("r", route)
        how = {
            "departPos": "0",
            "departSpeed": "max",
            "arrivalPos": "max",
            "arrivalSpeed": "current",
        }
        libsumo.vehicle.add("v", "r", typeID="driven", departLane="best", **how)
        libsumo.simulation.step()
        one = libsumo.vehicle
        booked = Booked([libsumo.lane.getLength(f"{edge}_0") for edge in route])
        inertia = (
            vehicle.recuperation_efficiency
            * 0.5
            * vehicle.mass
            * vehicle.gravity
            / 9.80665
            / 3600.0
        )
        speed = one.getSpeed("v")
        while True:
            libsumo.simulation.step()
            if "v" in libsumo.simulation.getArrivedIDList():
                booked.arrive(0.25, speed)
                return booked
            before, speed = speed, one.getSpeed("v")
            rates = (
                one.getElectricityConsumption("v"),
                inertia * (speed**2 - before**2) / 0.25,
            )
            inside = one.getRoadID("v").startswith(":")
            place = None if inside else one.getLanePosition("v")
            booked.book(
                rates, 0.25, one.getRouteIndex("v"), place, one.getDistance("v")
            )
    finally:
        libsumo.close()


class Booked:
    """The obvious way: the seconds of every step, divided by the metres driven on each edge."""

    def __init__(self, lengths):
        self.lengths, self.index, self.place, self.odometer = lengths, 0, 0.0, 0.0
        self.rates, self.steps = (0.0, 0.0), 0
        self.seconds, self.energy, self.stored = (
            np.zeros(len(lengths)) for _ in range(3)
        )

    def book(self, rates, seconds, index, place, odometer):
        self.rates, self.steps = rates, self.steps + 1
        place = self.lengths[index] if place is None else place
        self.divide(seconds, index, place, odometer - self.odometer)
        self.index, self.place, self.odometer = index, place, odometer

    def arrive(self, step, speed):
        remaining = max(0.0, sum(self.lengths[self.index :]) - self.place)
        seconds = min(step, remaining / speed) if speed > 0.0 else step
        self.divide(seconds, len(self.lengths) - 1, self.lengths[-1], remaining)
        return seconds

    def divide(self, seconds, index, place, metres):
        remaining = metres
        for edge in range(index, self.index, -1):
            driven = min(remaining, place if edge == index else self.lengths[edge])
            self.add(edge, seconds * driven / metres if metres > 0.0 else 0.0)
            remaining -= driven
        self.add(self.index, seconds * remaining / metres if metres > 0.0 else seconds)

    def add(self, edge, seconds):
        self.seconds[edge] += seconds
        self.energy[edge] += self.rates[0] * seconds
        self.stored[edge] += self.rates[1] * seconds


VEHICLES = [
    Vehicle(),
    Vehicle(mass=2600.0, auxiliary_power=2500.0),
    Vehicle(mass=900.0, air_density=1.35, rolling_resistance=0.015, front_area=3.1),
    Vehicle(
        gravity=9.7,
        air_drag=0.6,
        propulsion_efficiency=0.8,
        recuperation_efficiency=0.5,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("signals", [False, True])
def test_energies_are_those_that_sumo_states(build_network, tmp_path, signals):
    """One drive, many vehicles, up a hill and around corners, against one simulation for each.

    Every step adds and multiplies some twenty numbers no larger than the power of full braking, so
    that rounding may move its energy by 20·ε times the kinetic energy; and n of them are added up.
    """
    network, route = (
        build_network(tmp_path, signals=signals),
        [*HILL, "ef", "fg", "gb", "ba"],
    )
    with Driver(network) as driver:
        drive = driver.drive(route)
    network.write_bytes(plain_text(network))  # its signals run fixed programs
    for vehicle in VEHICLES:
        count_text = counted_by_sumo(network, route, vehicle, tmp_path)
        assert len(drive.speeds) == count_text.steps + 1
        largest = vehicle.mass * SPEED**2 + vehicle.auxiliary_power
        close = (
            20.0
            * np.finfo(float).eps
            * count_text.steps
            * largest
            / 3600.0
            * count_text.steps
        )
        assert close < 1e-4
        np.testing.assert_allclose(
            drive.energies(vehicle), count_text.energy, rtol=0.0, atol=close
        )
        np.testing.assert_allclose(
            drive.stored(vehicle), count_text.stored, rtol=0.0, atol=close
        )
        np.testing.assert_allclose(
            drive.seconds, count_text.seconds, rtol=0.0, atol=1e-9
        )


def test_a_vehicle_that_divides_cannot_be_driven(driver):
    with pytest.raises(InputError, match="cannot be driven"):
        driver.drive(["fg"]).energies(Vehicle(recuperation="divide"))


# --- heights from elsewhere ------------------------------------------------------------------------

AROUND = [*HILL, "ef", "fg", "gb", "ba"]


def test_all_of_a_rise_is_climbed_on_its_own_edge(driver):
    """Without losses an edge costs what height and motion took, and nothing else."""
    ideal = Vehicle(
        rolling_resistance=0.0,
        air_drag=0.0,
        propulsion_efficiency=1.0,
        recuperation_efficiency=1.0,
    )
    rise = np.random.default_rng(0).normal(0.0, 10.0, len(AROUND))
    drive = driver.drive(AROUND)
    expected = ideal.potential(rise) + drive.stored(ideal)
    np.testing.assert_allclose(
        drive.energies(ideal, rise), expected, rtol=0.0, atol=1e-7
    )
    part = driver.drive(AROUND, longest=100.0)
    expected = ideal.potential(rise * part.driven) + part.stored(ideal)
    np.testing.assert_allclose(
        part.energies(ideal, rise), expected, rtol=0.0, atol=1e-7
    )


def test_net_energies_are_not_negative(driver):
    """Edge by edge, whatever the heights: see energy.py for the proof."""
    rng, drive = np.random.default_rng(1), driver.drive(AROUND)
    for vehicle in VEHICLES:
        rise = rng.normal(0.0, 20.0, len(AROUND))
        net = (
            drive.energies(vehicle, rise)
            - drive.stored(vehicle)
            - vehicle.potential(rise)
        )
        assert net.min() > -1e-9


def test_even_climb_matches_eq_8(driver, network):
    """At constant speed, but for cos α = 0.9998 and what a junction of 15 m takes at most."""
    length, vehicle = lanes(network)["fg_0"], Vehicle()
    climbed = driver.drive(["fg"]).energies(vehicle, np.array([60.0]))
    assert climbed.sum() == pytest.approx(
        float(vehicle.energy(length, SPEED, 60.0)), rel=1e-4
    )
    with pytest.raises(InputError, match="rise"):
        driver.drive(["fg"]).energies(vehicle, np.zeros(2))


def test_heights_given_replace_those_of_the_network(driver):
    drive, level = driver.drive(HILL), np.zeros(len(HILL))
    hill = np.array([{"bc": 50.0, "cd": -50.0}.get(edge, 0.0) for edge in HILL])
    flat, hilly, own = (drive.energies(Vehicle(), rise) for rise in (level, hill, None))
    np.testing.assert_allclose(hilly, own, rtol=0.0, atol=2.5)  # see the hill above
    assert flat.min() > 0.0 > hilly.min()


# --- the rest of the motion ------------------------------------------------------------------------


def test_the_odometer_counts_junctions(driver, network):
    drive, length = driver.drive(AROUND), lanes(network)
    net = ElementTree.parse(network)
    turns = {
        (connection.get("from"), connection.get("to")): connection
        for connection in net.iter("connection")
    }
    inside = 0.0
    for pair in pairwise(AROUND):
        lane = turns[pair].get("via")
        while lane is not None:  # a turn may wait in the middle of a junction
            inside += length[lane]
            edge = lane.rpartition("_")[0]
            behind = [
                connection
                for connection in net.iter("connection")
                if connection.get("from") == edge
            ]
            lane = behind[0].get("via")
    # The file states lengths to a centimetre.
    expected = sum(length[f"{edge}_0"] for edge in AROUND) + inside
    assert drive.metres == pytest.approx(expected, abs=0.01 * 3 * len(AROUND))
    assert drive.seconds.sum() == pytest.approx(drive.duration)
    assert (drive.reached <= drive.left).all()
    assert (np.diff(drive.left) >= 0.0).all()


def test_positions_are_reported_once_a_second(driver):
    drive = driver.drive(HILL)
    seconds, x, y = drive.positions.T
    np.testing.assert_allclose(seconds, np.arange(len(seconds)))
    assert 0.0 <= drive.duration - seconds[-1] < 1.0 + driver.step
    assert (
        np.abs(y).max() < 5.0
    )  # the road is straight, its lanes a few metres beside its middle
    np.testing.assert_allclose(np.hypot(np.diff(x), np.diff(y))[:20], SPEED, rtol=1e-3)


def test_departures_meet_signals_in_other_phases(build_network, tmp_path):
    file, times = build_network(tmp_path, signals=True), (0.0, 20.0, 40.0, 60.0)
    with Driver(file) as driver:
        first = driver.drive(HILL)
    with Driver(file, departures=times) as driver:
        assert driver.moments == 4
        drives = [driver.drive(HILL, moment=moment) for moment in range(4)]
        repeated = driver.drive(HILL, moment=2)
    assert_same_drive(drives[0], first)
    assert_same_drive(drives[2], repeated)
    assert len({drive.duration for drive in drives}) > 1


def test_drives_are_written_and_read_to_the_last_bit(driver):
    drive = driver.drive(AROUND)
    restored = Drive.from_bytes(drive.to_bytes())
    assert_same_drive(drive, restored)
    assert (drive.step, drive.metres) == (restored.step, restored.metres)
    data = drive.to_bytes()
    changed = (
        data[: len(data) // 2]
        + bytes([data[len(data) // 2] ^ 1])
        + data[len(data) // 2 + 1 :]
    )
    for damaged in (b"", data[:-20], changed):
        with pytest.raises(InputError):
            Drive.from_bytes(damaged)
    other = replace(drive, left=drive.left[:3])
    with pytest.raises(InputError, match="not those of a drive"):
        Drive.from_bytes(other.to_bytes())


# --- booking ----------------------------------------------------------------------------------


def test_the_edges_add_up_to_what_sumo_counted(driver, network, tmp_path):
    """Against SUMO's own device, which counts the step of departure and not the last fraction."""
    drive = driver.drive([*HILL, "ef", "fg"])
    driver.close()
    (tmp_path / "types.add.xml").write_text(vehicle_type(Vehicle()))
    how = 'depart="0" departPos="0" departSpeed="max" arrivalSpeed="current"'
    trip = f'<vehicle id="v" type="driven" {how}>'
    route = f'<route edges="{" ".join([*HILL, "ef", "fg"])}"/>'
    (tmp_path / "trip.rou.xml").write_text(f"<routes>{trip}{route}</vehicle></routes>")
    program = Path(sumo.SUMO_HOME) / "bin" / "sumo"
    subprocess.run(
        [program, "-n", network, "-a", "types.add.xml", "-r", "trip.rou.xml", "--step-length", "0.25",
         "--tripinfo-output", "out.xml", "--device.emissions.probability", "1",
         "--no-step-log", "--no-warnings"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    count_text = next(ElementTree.parse(tmp_path / "out.xml").iter("emissions"))
    one_step = 0.25 * 1.2  # Wh: 1.13 Wh per second at the speed limit
    assert total(drive) == pytest.approx(
        float(count_text.get("electricity_abs")), abs=2 * one_step
    )


def test_edges_too_short_to_be_seen_get_their_share(driver, network):
    """A step is 3.5 m long: the edges of 1.5 m are passed between two of them."""
    drive = driver.drive(HILL)
    length = lanes(network)
    assert length["t1-t2_0"] < 3.0
    per_metre = energies(drive)[6] / length["t2-e_0"]
    for edge in (4, 5):
        share = per_metre * length[f"{HILL[edge]}_0"]
        # The junctions between them are a few metres long and belong to the edge just left.
        assert energies(drive)[edge] == pytest.approx(share, abs=3.5 * per_metre)
        assert energies(drive)[edge] > 0.0


def test_seconds_per_edge_match_a_plain_implementation():
    """Any sequence of steps, with edges skipped and junctions between them; nothing is lost."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.uniform(0.5, 20.0, size=12)
        gaps = rng.uniform(0.0, 6.0, size=12) * (rng.random(12) < 0.7)
        begins = np.concatenate([[0.0], np.cumsum(lengths + gaps)[:-1]])
        booked, rows = Booked(lengths.tolist()), [(0.0, 0, 0.0, False, 0.0)]
        odometer = 0.0
        while True:
            odometer += rng.uniform(0.0, 8.0) * (
                rng.random() < 0.9
            )  # and at times it stands
            if odometer >= begins[-1] + lengths[-1]:
                break
            index = int(np.searchsorted(begins, odometer, side="right")) - 1
            place = odometer - begins[index]
            inside = bool(place > lengths[index])
            booked.book((1.0, 0.0), 0.25, index, None if inside else place, odometer)
            rows.append(
                (
                    rows[-1][0] + 0.25,
                    index,
                    lengths[index] if inside else place,
                    inside,
                    odometer,
                )
            )
        last = rows[-1]
        seconds = booked.arrive(0.25, 8.0)
        remaining = max(0.0, float(lengths[last[1] :].sum() - last[2]))
        rows.append((last[0] + seconds, 11, lengths[-1], False, last[4] + remaining))
        times, index, place, inside, meter = map(np.array, zip(*rows, strict=True))
        passed = passing(lengths, times, index, place, inside, meter)
        np.testing.assert_allclose(
            np.diff(passed.left, prepend=0.0), booked.seconds, atol=1e-12
        )
        assert booked.seconds.sum() == pytest.approx(times[-1])
        begun = np.concatenate([[0.0], passed.left[:-1]])
        assert (begun <= passed.reached + 1e-12).all()
        assert (passed.reached <= passed.left).all()


def test_a_step_across_edges_is_divided_by_metres():
    """8 m on the first edge; then 2 m there, 2 m across the second, 4 m on the third."""
    lengths = np.array([10.0, 2.0, 10.0])
    times, odometer = np.array([0.0, 0.25, 0.5, 0.75]), np.array([0.0, 8.0, 16.0, 24.0])
    index, inside = np.array([0, 0, 2, 2]), np.array([False, False, False, True])
    passed = passing(
        lengths, times, index, np.array([0.0, 8.0, 4.0, 10.0]), inside, odometer
    )
    np.testing.assert_allclose(passed.left, [0.25 + 0.0625, 0.25 + 0.125, 0.75])
    np.testing.assert_allclose(
        passed.reached, [0.25 + 0.0625, 0.25 + 0.125, 0.5 + 0.25 * 6 / 8]
    )


# --- what cannot be driven ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "error", "message"),
    [
        ([], InputError, "at least one edge"),
        ("ab", InputError, "list of at least one edge"),
        (["ab", "nowhere"], UnknownArmError, "no edge 'nowhere'"),
        (["ab", "cd"], InputError, "from edge 'ab' to 'cd'.*'bc'"),
        (["bus"], InputError, "'bus' .* closed to passenger cars"),
        ([":b_0"], UnknownArmError, "no edge ':b_0'"),
    ],
)
def test_bad_routes(driver, route, error, message):
    with pytest.raises(error, match=message):
        driver.drive(route)
    assert driver.drive(["ab"]).arrived  # and the driver is as good as before


def test_a_trip_may_begin_and_end_on_an_edge(driver, network):
    """On a level road at constant speed it costs its part; elsewhere only its ends are shorter."""
    length = lanes(network)["fg_0"]
    part = driver.drive(["fg"], between=(0.25 * length, 0.75 * length))
    assert part.arrived
    assert part.metres == pytest.approx(0.5 * length, abs=1e-6)
    assert part.duration == pytest.approx(0.5 * length / SPEED, abs=1e-6)
    assert total(part) == pytest.approx(
        float(Vehicle().energy(0.5 * length, SPEED, 0.0)), abs=2e-3
    )
    first, last = (lanes(network)[f"{edge}_0"] for edge in (HILL[0], HILL[-1]))
    full, ends = (
        driver.drive(HILL),
        driver.drive(HILL, between=(0.6 * first, 0.3 * last)),
    )
    assert ends.metres == pytest.approx(
        full.metres - 0.6 * first - 0.7 * last, abs=1e-3
    )
    np.testing.assert_allclose(ends.seconds[1:-1], full.seconds[1:-1], atol=driver.step)
    assert_same_drive(driver.drive(HILL, between=(0.0, last)), full)
    assert driver.drive(HILL, between=(first, 0.0)).arrived
    for bad in (
        (2.0 * length, length),
        (0.0, 2.0 * length),
        (0.5 * length, 0.4 * length),
    ):
        with pytest.raises(InputError, match="must lie on the first edge"):
            driver.drive(["fg"], between=bad)
    with pytest.raises(InputError, match=r"between must be .*, got -1"):
        driver.drive(["fg"], between=(-1.0, 3.0))


def test_trip_that_exceeds_its_time_limit_is_stopped(driver):
    drive = driver.drive(HILL, longest=100.0)
    full = driver.drive(HILL)
    assert not drive.arrived
    assert drive.completed == 1
    there, all_the_way = energies(drive), energies(full)
    assert there[0] == pytest.approx(all_the_way[0], rel=1e-12)
    assert 0.0 < there[1] < all_the_way[1]
    assert not there[2:].any()
    assert drive.driven[0] == 1.0
    assert 0.0 < drive.driven[1] < 1.0
    assert not drive.driven[2:].any()
    assert_same_drive(driver.drive(HILL), full)


def test_bad_drivers(network, tmp_path):
    with pytest.raises(MissingDataError, match="file not found"):
        Driver(tmp_path / "none.net.xml")
    with pytest.raises(InputError, match=r"step must be .*, got 1\.0"):
        Driver(network, step=1.0)
    for bad in ((), (-1.0,), (float("nan"),)):
        with pytest.raises(InputError, match="departures"):
            Driver(network, departures=bad)
    with pytest.raises(InputError, match="moments of its own"):
        Driver(network, departures=(0.0, 5.0), traffic=Traffic(vehicles_per_hour=10.0))
    broken = tmp_path / "broken.net.xml"
    lane = '<lane id="ab_0" index="0" speed="9" length="9" shape="0,0 9,0"/>'
    for text, message in [
        ("<net><edge", "line 1"),
        ("<net></net>", "states no version"),
        ("<nothing/>", "not <net>"),
        (
            f'<net version="1.20"><edge id="ab" from="a" to="b">{lane}</edge></net>',
            "SUMO cannot load",
        ),
    ]:
        broken.write_text(text)
        with Driver(broken) as driver, pytest.raises(InputError, match=message):
            driver.drive(["ab"])
    packed = tmp_path / "broken.net.xml.xz"
    packed.write_bytes(b"no such thing")
    with (
        Driver(packed) as driver,
        pytest.raises(InputError, match=r"broken\.net\.xml\.xz"),
    ):
        driver.drive(["ab"])
    with Driver(network) as driver, pytest.raises(InputError, match="moment is 1"):
        driver.drive(["ab"], moment=1)
    with Driver(network) as driver:
        driver.close()
        with pytest.raises(InputError, match="closed"):
            driver.drive(["ab"])


@pytest.mark.parametrize(
    "bad", [{"vehicles_per_hour": 0.0}, {"moments": 0}, {"spacing": -1.0}], ids=str
)
def test_bad_traffic(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        Traffic(**({"vehicles_per_hour": 10.0} | bad))


@pytest.mark.slow
def test_packed_networks(network, tmp_path):
    text = network.read_bytes()
    (tmp_path / "small.net.xml.gz").write_bytes(gzip.compress(text))
    (tmp_path / "small.net.xml.xz").write_bytes(lzma.compress(text))
    with Driver(network) as plain:
        expected = plain.drive(HILL)
    for name in ("small.net.xml.gz", "small.net.xml.xz"):
        with Driver(tmp_path / name) as driver:
            assert_same_drive(driver.drive(HILL), expected)
