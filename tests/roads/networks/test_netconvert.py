"""Networks written for SUMO read back to six decimals and can be driven."""

import numpy as np
import pytest

from superarm.core.errors import InputError
from superarm.roads.networks import RoadNetwork, generate_city
from superarm.roads.networks.netconvert import write_sumo
from superarm.roads.networks.road import VEHICLE_CLASSES
from superarm.roads.networks.sumo_net import read_sumo

pytestmark = pytest.mark.slow  # make test does not install SUMO


def crossroads():
    """A town with everything that a converter likes to change: dead ends without U-turn, bans."""
    permits = {who: np.ones(6, dtype=bool) for who in VEHICLE_CLASSES}
    permits["truck"][4:] = permits["bicycle"][4:] = False
    turns = np.array([[0, 2], [0, 1], [3, 1], [4, 1], [4, 5]])
    first, second = turns.T
    turn_permits = {who: may[first] & may[second] for who, may in permits.items()}
    turn_permits["bus"][0] = False
    for who, may in turn_permits.items():
        may[3] = who == "bus"
    return RoadNetwork(
        name="crossroads",
        junction_ids=("a", "b", "c", "d"),
        junctions=np.array([[0, 0, 0], [100, 0, 5.25], [200, 10, -3], [100, 100, 9]]),
        edge_ids=("ab", "-ab", "bc", "-bc", "db#1", "-db#1"),
        tail=np.array([0, 1, 1, 2, 3, 1]),
        head=np.array([1, 0, 2, 1, 1, 3]),
        length=np.array([150.0, 150.0, 101.5, 101.5, 120.0, 120.0]),
        speed=np.array([50, 50, 30, 30, 100, 100]) / 3.6,
        permits=permits,
        connections=turns,
        turn_permits=turn_permits,
    )


def turn_table(network):
    names = network.edge_ids
    return {
        (names[first], names[second]): {
            who for who in VEHICLE_CLASSES if network.turn_permits[who][row]
        }
        for row, (first, second) in enumerate(network.connections)
    }


def assert_equal_by_id(read, network):
    assert set(read.edge_ids) == set(network.edge_ids)
    assert set(read.junction_ids) == set(network.junction_ids)
    number = {name: row for row, name in enumerate(read.edge_ids)}
    rows = np.array([number[name] for name in network.edge_ids])
    for name in ("length", "speed", "rise"):
        assert np.allclose(
            getattr(read, name)[rows], getattr(network, name), rtol=0.0, atol=2e-6
        ), name
    for ends in ("tail", "head"):
        wanted = [network.junction_ids[end] for end in getattr(network, ends)]
        assert [read.junction_ids[end] for end in getattr(read, ends)[rows]] == wanted
    place = {name: row for row, name in enumerate(read.junction_ids)}
    places = np.array([place[name] for name in network.junction_ids])
    assert np.allclose(read.junctions[places], network.junctions, rtol=0.0, atol=2e-6)
    for who in VEHICLE_CLASSES:
        assert np.array_equal(read.permits[who][rows], network.permits[who]), who
    assert turn_table(read) == turn_table(network)


@pytest.mark.parametrize("suffix", [".net.xml", ".net.xml.gz"])
def test_every_turn_round_trips_through_sumo(tmp_path, suffix):
    pytest.importorskip("sumo", reason="sumo is not installed")
    network = crossroads()
    assert_equal_by_id(
        read_sumo(write_sumo(network, tmp_path / f"town{suffix}")), network
    )


def test_city_round_trips_through_sumo(tmp_path):
    pytest.importorskip("sumo", reason="sumo is not installed")
    city = generate_city(edges=900, seed=2)
    assert_equal_by_id(read_sumo(write_sumo(city, tmp_path / "city.net.xml")), city)


def test_a_city_can_be_driven(tmp_path):
    """One car from a place to another, in the simulator itself."""
    libsumo = pytest.importorskip("libsumo", reason="libsumo is not installed")
    from superarm.roads.networks.trips import suggest_trip

    city = generate_city(edges=900, seed=2)
    net = write_sumo(city, tmp_path / "city.net.xml")
    start, goal = suggest_trip(city.line_graph())
    libsumo.start(["sumo", "-n", str(net), "--no-step-log", "--no-warnings"])
    try:
        route = libsumo.simulation.findRoute(start, goal).edges
        assert (route[0], route[-1]) == (start, goal)
        libsumo.route.add("trip", route)
        libsumo.vehicle.add("car", "trip")
        for _ in range(2000):
            libsumo.simulationStep()
            if libsumo.simulation.getMinExpectedNumber() == 0:
                break
        assert libsumo.simulation.getArrivedNumber() == 1
    finally:
        libsumo.close()


def test_invalid_file_names_and_ids_are_rejected(tmp_path):
    with pytest.raises(InputError, match=r"is named \.net\.xml"):
        write_sumo(crossroads(), tmp_path / "town.xml")
    pytest.importorskip("sumo", reason="sumo is not installed")
    odd = crossroads()
    object.__setattr__(odd, "edge_ids", ('a"b', *odd.edge_ids[1:]))
    with pytest.raises(InputError, match="netconvert failed"):
        write_sumo(odd, tmp_path / "town.net.xml")
