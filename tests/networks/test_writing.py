"""What is written can be read back: tables exactly, SUMO networks up to six decimals."""

from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.errors import InputError
from superarm.networks import RoadNetwork, generate_city, read_tables
from superarm.networks.road import VEHICLE_CLASSES
from superarm.networks.sumo_net import read_sumo
from superarm.networks.writing import write_sumo, write_sumo_plain, write_tables

ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
finite = st.floats(-90.0, 90.0)
positive = st.floats(1e-2, 1e3)


@st.composite
def networks(draw):
    junction_ids = draw(st.lists(ids, min_size=1, max_size=5, unique=True))
    edge_ids = draw(st.lists(ids, max_size=6, unique=True))
    j, m = len(junction_ids), len(edge_ids)
    place = st.integers(0, j - 1)
    tail, head = (draw(st.lists(place, min_size=m, max_size=m)) for _ in range(2))
    meeting = [(a, b) for a in range(m) for b in range(m) if head[a] == tail[b]]
    turns = draw(st.lists(st.sampled_from(meeting), unique=True)) if meeting else []

    def numbers(strategy, count):
        return draw(st.lists(strategy, min_size=count, max_size=count))

    return RoadNetwork(
        name="drawn",
        junction_ids=tuple(junction_ids),
        junctions=np.array(numbers(finite, 3 * j)).reshape(j, 3),
        edge_ids=tuple(edge_ids),
        tail=np.array(tail, dtype=int),
        head=np.array(head, dtype=int),
        length=np.array(numbers(positive, m)),
        speed=np.array(numbers(positive, m)),
        permits={"passenger": np.array(numbers(st.booleans(), m), dtype=bool)},
        connections=np.array(turns, dtype=int).reshape(-1, 2),
        turn_permits={"passenger": np.array(numbers(st.booleans(), len(turns)), dtype=bool)},
        lon_lat=np.array(numbers(finite, 2 * j)).reshape(j, 2) if draw(st.booleans()) else None,
    )


def assert_equal_as_tables(one, other):
    assert (one.junction_ids, one.edge_ids) == (other.junction_ids, other.edge_ids)
    for name in ("junctions", "tail", "head", "length", "speed", "connections"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert np.array_equal(one.permits["passenger"], other.permits["passenger"])
    assert np.array_equal(one.turn_permits["passenger"], other.turn_permits["passenger"])
    assert (one.lon_lat is None) == (other.lon_lat is None)
    assert one.lon_lat is None or np.array_equal(one.lon_lat, other.lon_lat)


@settings(max_examples=80)
@given(network=networks())
def test_tables_come_back_exactly(tmp_path, network):
    assert_equal_as_tables(read_tables(write_tables(network, tmp_path / "net")), network)


def test_a_city_as_tables(tmp_path):
    city = generate_city(edges=600, seed=1)
    folder = write_tables(city, tmp_path / "deep" / "city")
    assert_equal_as_tables(read_tables(folder), city)
    again = write_tables(city, tmp_path / "again")
    for name in ("nodes", "edges", "connections"):
        assert (folder / f"{name}.csv.gz").read_bytes() == (again / f"{name}.csv.gz").read_bytes()


def without_cars():
    return RoadNetwork(
        name="tracks",
        junction_ids=("a",),
        junctions=np.zeros((1, 3)),
        edge_ids=(),
        tail=np.empty(0),
        head=np.empty(0),
        length=np.empty(0),
        speed=np.empty(0),
        permits={"bus": np.empty(0)},
        connections=np.empty((0, 2)),
        turn_permits={"bus": np.empty(0)},
    )


def test_tables_are_about_cars(tmp_path):
    with pytest.raises(InputError, match="tracks says nothing of vehicle class 'passenger'"):
        write_tables(without_cars(), tmp_path)


# --- SUMO ---------------------------------------------------------------------------------


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
        assert np.allclose(getattr(read, name)[rows], getattr(network, name), rtol=0.0, atol=2e-6), name
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
def test_every_turn_comes_back_from_sumo(tmp_path, suffix):
    pytest.importorskip("sumo", reason="sumo is not installed")
    network = crossroads()
    assert_equal_by_id(read_sumo(write_sumo(network, tmp_path / f"town{suffix}")), network)


def test_a_city_comes_back_from_sumo(tmp_path):
    pytest.importorskip("sumo", reason="sumo is not installed")
    city = generate_city(edges=900, seed=2)
    assert_equal_by_id(read_sumo(write_sumo(city, tmp_path / "city.net.xml")), city)


def test_a_city_can_be_driven(tmp_path):
    """One car from a place to another, in the simulator itself."""
    libsumo = pytest.importorskip("libsumo", reason="libsumo is not installed")
    from superarm.networks.trips import suggest_trip

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


def test_plain_files_need_no_sumo(tmp_path):
    city = generate_city(edges=600, seed=1)
    nodes, edges, connections = (
        ElementTree.parse(path).getroot() for path in write_sumo_plain(city, tmp_path / "new" / "city")
    )
    assert [node.get("id") for node in nodes] == list(city.junction_ids)
    assert [edge.get("id") for edge in edges] == list(city.edge_ids)
    assert len([turn for turn in connections if turn.get("to")]) == len(city.connections)
    bent = [edge for edge in edges if edge.get("shape")]
    number = {name: row for row, name in enumerate(city.edge_ids)}
    for edge in bent:
        points = np.array([list(map(float, point.split(","))) for point in edge.get("shape").split()])
        row = number[edge.get("id")]
        assert np.allclose(points[[0, -1]], city.junctions[[city.tail[row], city.head[row]]], atol=1e-6)


def test_a_wrong_name_or_an_id_sumo_refuses_is_said_so(tmp_path):
    with pytest.raises(InputError, match=r"is named \.net\.xml"):
        write_sumo(crossroads(), tmp_path / "town.xml")
    pytest.importorskip("sumo", reason="sumo is not installed")
    odd = crossroads()
    object.__setattr__(odd, "edge_ids", ('a"b', *odd.edge_ids[1:]))
    with pytest.raises(InputError, match="netconvert can not make"):
        write_sumo(odd, tmp_path / "town.net.xml")
