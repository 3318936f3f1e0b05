"""Trips in SUMO: what they cost against eq. 8, what is booked where, and what is refused."""

import gzip
import lzma
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from superarm.errors import InputError, MissingDataError, UnknownArmError
from superarm.networks import Vehicle
from superarm.networks.driving import Driver
from superarm.networks.driving.ledger import Ledger
from superarm.networks.driving.traffic import Traffic

libsumo = pytest.importorskip("libsumo", reason="libsumo is not installed")
sumo = pytest.importorskip("sumo", reason="sumo is not installed")

HILL = ["ab", "bc", "cd", "ds", "s-t1", "t1-t2", "t2-e"]
"""Up and down again: see conftest.py."""
SPEED = 13.9


@pytest.fixture
def driver(network):
    with Driver(network) as one:
        yield one


def same(one, other):
    np.testing.assert_array_equal(one.energy, other.energy)
    assert (one.duration, one.arrived, one.completed) == (
        other.duration,
        other.arrived,
        other.completed,
    )


def lanes(file):
    """Lengths of all lanes, by id, and shapes' rises."""
    found = ElementTree.parse(file).iter("lane")
    return {lane.get("id"): float(lane.get("length")) for lane in found}


# --- against eq. 8 ----------------------------------------------------------------------------


def test_a_level_straight_road_costs_what_eq_8_says(network):
    """At constant speed SUMO's model is eq. 8. Steps of 0.25 s book up to 3.5 m to a neighbour."""
    road = ["fg"]
    with Driver(network) as driver:
        drive = driver.drive(road)
    length = lanes(network)["fg_0"]
    assert drive.arrived
    assert drive.duration == pytest.approx(length / SPEED, abs=1e-6)
    assert drive.total == pytest.approx(float(Vehicle().energy(length, SPEED, 0.0)), abs=2e-3)


@pytest.mark.parametrize(
    "other",
    [
        {"mass": 2400.0},
        {"auxiliary_power": 1500.0},
        {"air_density": 1.35},
        {"rolling_resistance": 0.015},
        {"gravity": 9.7, "front_area": 3.0, "air_drag": 0.5, "propulsion_efficiency": 0.8},
    ],
    ids=str,
)
def test_every_parameter_of_the_vehicle_reaches_sumo(network, other):
    vehicle = Vehicle(**other)
    with Driver(network, vehicle=vehicle) as driver:
        measured = driver.drive(["fg"]).total
    length = lanes(network)["fg_0"]
    assert measured == pytest.approx(float(vehicle.energy(length, SPEED, 0.0)), rel=1e-4)
    assert measured > Vehicle().energy(length, SPEED, 0.0)


def test_a_hill_costs_what_eq_8_says(driver, network):
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
    assert drive.energy[1] == pytest.approx(float(up), abs=2.5)
    assert drive.energy[2] == pytest.approx(float(down), abs=2.5)
    assert drive.energy[2] < -100.0  # more is won back than spent
    whole = sum(
        float(vehicle.energy(length[f"{edge}_0"], SPEED, {"bc": 50.0, "cd": -50.0}.get(edge, 0.0)))
        for edge in HILL
    )
    assert drive.total == pytest.approx(whole, abs=2.5)


def test_a_corner_is_braked_for_and_most_of_it_won_back(driver):
    """Braking wins energy on the edge before the corner; accelerating costs it behind."""
    straight, turning = driver.drive(["t2-e"]), driver.drive(["t2-e", "ef"])
    assert turning.energy[0] < straight.energy[0]
    level = Vehicle().energy(900.0, SPEED, 0.0)
    assert turning.energy[1] > level
    kinetic = 0.5 * 1830.0 * SPEED**2 / 3600.0
    assert 0.0 < turning.total - driver.drive(["ef"]).total - straight.total < 0.2 * kinetic


def test_what_motion_stores_is_a_potential(network):
    """With height and motion taken out, no edge costs less than nothing, corner or not."""
    vehicle = Vehicle()
    with Driver(network) as driver:
        drive = driver.drive([*HILL, "ef", "fg", "gb", "ba"])
    net = drive.energy - drive.stored
    rise = np.array(
        [{"bc": 50.0, "cd": -50.0}.get(edge, 0.0) for edge in [*HILL, "ef", "fg", "gb", "ba"]]
    )
    # Up to 8.5 m at the foot and at the top of the hill may be booked to the neighbour.
    assert (net - vehicle.potential(rise) > [0, -2.5, -2.5, -2.5, 0, 0, 0, 0, 0, 0, 0]).all()
    full = vehicle.recuperation_efficiency * 0.5 * vehicle.mass * SPEED**2 / 3600.0
    assert drive.stored.min() < -0.3 * full  # it brakes for the corners
    assert drive.stored.sum() == pytest.approx(0.0, abs=0.02 * full)  # and ends as fast as it began


# --- booking ----------------------------------------------------------------------------------


def test_the_edges_add_up_to_what_sumo_counted(driver, network, tmp_path):
    """Against SUMO's own device, which counts the step of departure and not the last fraction."""
    drive = driver.drive([*HILL, "ef", "fg"])
    driver.close()
    (tmp_path / "types.add.xml").write_text(driver._types())
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
    counted = next(ElementTree.parse(tmp_path / "out.xml").iter("emissions"))
    one_step = 0.25 * 1.2  # Wh: 1.13 Wh per second at the speed limit
    assert drive.total == pytest.approx(float(counted.get("electricity_abs")), abs=2 * one_step)


def test_edges_too_short_to_be_seen_get_their_share(driver, network):
    """A step is 3.5 m long: the edges of 1.5 m are passed between two of them."""
    drive = driver.drive(HILL)
    length = lanes(network)
    assert length["t1-t2_0"] < 3.0
    per_metre = drive.energy[6] / length["t2-e_0"]
    for edge in (4, 5):
        share = per_metre * length[f"{HILL[edge]}_0"]
        # The junctions between them are a few metres long and belong to the edge just left.
        assert drive.energy[edge] == pytest.approx(share, abs=3.5 * per_metre)
        assert drive.energy[edge] > 0.0


def test_nothing_is_lost_in_the_ledger():
    """Any sequence of steps, with edges skipped: the bookings add up to the energy of the steps."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.uniform(0.5, 20.0, size=12)
        ledger = Ledger(lengths=lengths, speed=8.0, inertia=0.1)
        ends = np.cumsum(lengths)
        odometer, spent = 0.0, 0.0
        while True:
            odometer += rng.uniform(0.0, 8.0)
            if odometer >= ends[-1]:
                break
            index = int(np.searchsorted(ends, odometer, side="right"))
            rate = rng.normal()
            inside = rng.random() < 0.2
            place = None if inside else odometer - (ends[index] - lengths[index])
            ledger.book(rate=rate, seconds=0.25, index=index, place=place, odometer=odometer, speed=8.0)
            spent += 0.25 * rate
        if odometer < ends[-1] or ledger.index > 0:
            spent += rate * ledger.arrive(0.25)
            assert sum(ledger.energy) == pytest.approx(spent)
            assert not any(ledger.stored)


def test_a_step_across_edges_is_divided_by_metres():
    ledger = Ledger(lengths=np.array([10.0, 2.0, 10.0]), speed=30.0, inertia=0.5)
    ledger.book(rate=4.0, seconds=0.25, index=0, place=8.0, odometer=8.0, speed=30.0)
    ledger.book(rate=8.0, seconds=0.25, index=2, place=4.0, odometer=16.0, speed=32.0)
    np.testing.assert_allclose(ledger.energy, [1.0 + 0.5, 0.5, 1.0])
    np.testing.assert_allclose(ledger.stored, [0.25 * 62.0, 0.25 * 62.0, 0.5 * 62.0])
    assert ledger.arrive(0.25) == pytest.approx(6.0 / 32.0)
    np.testing.assert_allclose(ledger.energy, [1.5, 0.5, 1.0 + 8.0 * 6.0 / 32.0])


# --- what cannot be driven ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "error", "says"),
    [
        ([], InputError, "at least one edge"),
        ("ab", InputError, "list of at least one edge"),
        (["ab", "nowhere"], UnknownArmError, "no edge 'nowhere'"),
        (["ab", "cd"], InputError, "from edge 'ab' to 'cd'.*'bc'"),
        (["bus"], InputError, "'bus' .* closed to passenger cars"),
        ([":b_0"], UnknownArmError, "no edge ':b_0'"),
    ],
)
def test_bad_routes(driver, route, error, says):
    with pytest.raises(error, match=says):
        driver.drive(route)
    assert driver.drive(["ab"]).arrived  # and the driver is as good as before


def test_a_trip_that_takes_too_long_is_given_up(driver):
    drive = driver.drive(HILL, longest=100.0)
    whole = driver.drive(HILL)
    assert not drive.arrived
    assert drive.completed == 1
    assert drive.energy[0] == whole.energy[0]
    assert 0.0 < drive.energy[1] < whole.energy[1]
    assert not drive.energy[2:].any()
    same(driver.drive(HILL), whole)


def test_bad_drivers(network, tmp_path):
    with pytest.raises(MissingDataError, match="does not exist"):
        Driver(tmp_path / "none.net.xml")
    with pytest.raises(InputError, match=r"step is 1\.0"):
        Driver(network, step=1.0)
    with pytest.raises(InputError, match="cannot be driven"):
        Driver(network, vehicle=Vehicle(recuperation="divide"))
    broken = tmp_path / "broken.net.xml"
    lane = '<lane id="ab_0" index="0" speed="9" length="9" shape="0,0 9,0"/>'
    for text, says in [
        ("<net><edge", "line 1"),
        ("<net></net>", "states no version"),
        ("<nothing/>", "not <net>"),
        (f'<net version="1.20"><edge id="ab" from="a" to="b">{lane}</edge></net>', "SUMO cannot load"),
    ]:
        broken.write_text(text)
        with Driver(broken) as driver, pytest.raises(InputError, match=says):
            driver.drive(["ab"])
    packed = tmp_path / "broken.net.xml.xz"
    packed.write_bytes(b"no such thing")
    with Driver(packed) as driver, pytest.raises(InputError, match=r"broken\.net\.xml\.xz"):
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


def test_packed_networks(network, tmp_path):
    text = network.read_bytes()
    (tmp_path / "small.net.xml.gz").write_bytes(gzip.compress(text))
    (tmp_path / "small.net.xml.xz").write_bytes(lzma.compress(text))
    with Driver(network) as plain:
        expected = plain.drive(HILL)
    for name in ("small.net.xml.gz", "small.net.xml.xz"):
        with Driver(tmp_path / name) as driver:
            same(driver.drive(HILL), expected)
