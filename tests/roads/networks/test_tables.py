"""Networks from csv tables: their columns, and errors with file and line."""

import gzip

import numpy as np
import pytest

from superarm.core.data_files import search_path
from superarm.core.errors import InputError, MissingDataError
from superarm.roads.energy import Vehicle
from superarm.roads.networks import read_tables

NODES = (
    "id,x,y,z,lon,lat\na,0,0,0,6.0,49.0\nb,100,0,5,6.001,49.0\nc,200,0,0,6.002,49.0\n"
)
EDGES = (
    "id,from,to,length_m,speed_mps,passenger\n"
    "ab,a,b,100,10,1\nba,b,a,100,10,1\nbc,b,c,100,10,1\ncb,c,b,100,10,1\nbus,a,b,100,10,0\n"
)
TURNS = "from,to,passenger\nab,bc,1\nab,ba,1\nba,ab,1\nbc,cb,1\ncb,ba,1\nbus,bc,1\n"


def write(folder, nodes=NODES, edges=EDGES, connections=TURNS):
    for name, text in (
        ("nodes", nodes),
        ("edges", edges),
        ("connections", connections),
    ):
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write(text)
    return folder


def data_folder(name):
    for folder in search_path():
        if (folder / name / "edges.csv.gz").is_file():
            return folder / name
    pytest.skip(f"{name} is not at hand")


def test_tables_become_a_network(tmp_path):
    network = read_tables(write(tmp_path))
    graph = network.line_graph()
    assert graph.ids == ("ab", "ba", "bc", "cb")
    assert graph.rise.tolist() == [5.0, -5.0, -5.0, 5.0]
    assert network.lon_lat.shape == (3, 2)
    assert graph.successors.toarray()[graph.number("ab")].tolist() == [0, 1, 1, 0]


def test_optional_columns_of_turns_and_streets(tmp_path):
    lines = TURNS.splitlines()
    turns = [f"{lines[0]},length_m,wait_s,entry_mps"]
    turns += [
        f"{line},{number},{2 * number},{3 * number}"
        for number, line in enumerate(lines[1:])
    ]
    names = [
        f"{line},{'name' if number == 0 else f'road {number}'}"
        for number, line in enumerate(EDGES.splitlines())
    ]
    network = read_tables(
        write(tmp_path, edges="\n".join(names), connections="\n".join(turns))
    )
    assert network.turn_length.tolist() == [0, 1, 2, 3, 4, 5]
    assert network.turn_wait.tolist() == [0, 2, 4, 6, 8, 10]
    assert network.turn_entry.tolist() == [0, 3, 6, 9, 12, 15]
    assert network.turn_speed is None
    assert network.street_names == tuple(f"road {number}" for number in range(1, 6))
    plain = read_tables(write(tmp_path))
    assert plain.turn_length is None
    assert plain.street_names is None
    turns[2] = turns[2].replace(",1,2,3", ",-1,2,3")
    with pytest.raises(
        InputError,
        match=r"line 3: length_m must be a number between 0 and .*, got '-1'",
    ):
        read_tables(write(tmp_path, connections="\n".join(turns)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"edges": EDGES.replace("bc,b,c,100", "bc,b,c,x")},
            "edges.csv.gz: line 4: length_m must be .*, got 'x'",
        ),
        (
            {"edges": EDGES.replace("bc,b,c", "bc,b,q")},
            "line 4: to must be a known node, got 'q'",
        ),
        ({"edges": EDGES + "ab,a,b,1,1,1\n"}, "line 7: id 'ab' appears more than once"),
        ({"edges": EDGES + "zz,a\n"}, "line 7 has 2 values for 6 columns"),
        (
            {"connections": TURNS + "ab,cb,1\n"},
            "connections.csv.gz: line 8: .* joins edges that do not meet",
        ),
        ({"connections": "from,to\n"}, "line 1 lacks the columns"),
        (
            {"edges": EDGES.replace("ab,a,b,100,10", "ab,a,b,0,10")},
            "line 2: length_m must be a number between .*, got '0'",
        ),
        (
            {"nodes": NODES.replace("b,100,0,5", "b,100,0,nan")},
            "nodes.csv.gz: line 3: z must be .*, got 'nan'",
        ),
    ],
)
def test_invalid_table_is_rejected_entirely(tmp_path, changes, words):
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        read_tables(write(tmp_path, **changes))


def test_a_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"holds no nodes\.csv"):
        read_tables(tmp_path)
    write(tmp_path)
    (tmp_path / "edges.csv.gz").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(InputError, match=r"edges.csv.gz: not a readable table"):
        read_tables(tmp_path)


@pytest.mark.parametrize(
    ("name", "edges", "connections", "usable", "turns"),
    [("lust", 5965, 16450, 5895, 16346), ("most", 4407, 6321, 3475, 5656)],
)
def test_the_real_networks(name, edges, connections, usable, turns):
    network = read_tables(data_folder(name))
    assert (len(network.edge_ids), len(network.connections)) == (edges, connections)
    graph = network.line_graph()
    assert (len(graph), len(graph.turns)) == (usable, turns)
    # Heights telescope and cost is never won back in full: no reduced cost is negative.
    vehicle = Vehicle()
    reduced = vehicle.energy(graph.length, graph.speed, graph.rise) - vehicle.potential(
        graph.rise
    )
    assert reduced.min() > 0.0
    assert np.allclose(graph.features.std(axis=0), 1.0)


def test_a_network_can_not_be_changed(tmp_path):
    network = read_tables(write(tmp_path))
    graph = network.line_graph()
    with pytest.raises(TypeError):
        network.permits["passenger"] = None
    for array in (
        *(
            getattr(network, name)
            for name in ("junctions", "length", "speed", "tail", "connections")
        ),
        *(
            getattr(graph, name)
            for name in ("edges", "turns", "length", "speed", "rise", "incline")
        ),
        graph.features,
        graph.travel_time,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
