"""SUMO networks: a small one, real ones, and broken files."""

import csv
import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core.data_files import search_path
from superarm.core.errors import InputError, MissingDataError
from superarm.roads.energy.junctions import Signal, yielding_speed
from superarm.roads.networks.road import VEHICLE_CLASSES, RoadNetwork
from superarm.roads.networks.sumo_net import read_sumo

NET = """<?xml version="1.0" encoding="UTF-8"?>
<net version="1.20">
    <location netOffset="-285448.66,-5492398.13" projParameter="+proj=utm +zone=32 +ellps=WGS84"/>
    <type id="road" priority="1" disallow="passenger"/>
    <edge id=":b_0" function="internal">
        <lane id=":b_0_0" index="0" speed="5.00" length="4.00" shape="98,0 102,0"/>
    </edge>
    <edge id=":b_1" function="internal">
        <lane id=":b_1_0" index="0" allow="bus" speed="5.00" length="4.00" shape="98,0 102,0"/>
    </edge>
    <edge id=":b_c0" function="crossing" crossingEdges="ab">
        <lane id=":b_c0_0" index="0" allow="pedestrian" speed="1" length="4.00" shape="98,0 102,0"/>
    </edge>
    <edge id="ab" from="a" to="b" type="road" shape="0.00,0.00,3.00 50.00,5.00 100.00,0.00,5.00">
        <lane id="ab_0" index="0" allow="pedestrian" speed="13.89" length="99.50" shape="0,-3 100,-3"/>
        <lane id="ab_1" index="1" disallow="pedestrian bicycle" speed="20" length="98" shape="0,0 1,1"/>
    </edge>
    <edge id="bc" from="b" to="c">
        <lane id="bc_0" index="0" speed="10.00" length="90.00" shape="102,-1 198,-1,7.5"/>
    </edge>
    <edge id="cb" from="c" to="b" function="connector">
        <lane id="cb_0" index="0" disallow="all" speed="10.00" length="90.00" shape="198,1 102,1"/>
    </edge>
    <edge id="bus" from="a" to="b" function="normal">
        <lane id="x_0" index="0" allow="bus taxi" disallow="bus" speed="10" length="9" shape="0,1 9,1"/>
    </edge>
    <junction id="a" type="dead_end" x="0.00" y="0.00" z="3.00" incLanes="" intLanes="" shape=""/>
    <junction id="b" type="priority" x="100.00" y="0.00" z="5.00" incLanes="" intLanes="" shape=""/>
    <junction id="c" type="priority" x="200.00" y="0.00" incLanes="" intLanes="" shape=""/>
    <junction id=":b_0_1" type="internal" x="100.00" y="0.00" z="5.00"/>
    <connection from="ab" to="bc" fromLane="0" toLane="0" dir="s" state="M"/>
    <connection from="ab" to="bc" fromLane="1" toLane="0" via=":b_0_0" dir="s" state="M"/>
    <connection from="bus" to="bc" fromLane="0" toLane="0" via=":b_1_0" dir="s" state="M"/>
    <connection from="bc" to="cb" fromLane="0" toLane="0" dir="t" state="M"/>
    <connection from=":b_0" to="bc" fromLane="0" toLane="0" dir="s" state="M"/>
    <connection from="ab" to=":b_c0" fromLane="0" toLane="0" dir="s" state="M"/>
</net>
"""
LINES = NET.splitlines()


def write(folder, text=NET, name="town.net.xml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def changed(number, old, new):
    """The network with something else in one of its lines, which are counted from 1."""
    lines = list(LINES)
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new)
    return "\n".join(lines)


def line_of(start):
    return next(
        number for number, line in enumerate(LINES, 1) if line.strip().startswith(start)
    )


def test_a_small_network(tmp_path):
    town = read_sumo(write(tmp_path))
    assert town.name == "town"
    assert town.junction_ids == ("a", "b", "c")
    assert town.junctions.tolist() == [[0, 0, 3], [100, 0, 5], [200, 0, 0]]
    assert town.edge_ids == ("ab", "bc", "cb", "bus")
    assert (town.tail.tolist(), town.head.tolist()) == ([0, 1, 2, 0], [1, 2, 1, 1])
    assert town.length.tolist() == [99.5, 90.0, 90.0, 9.0]
    assert town.speed.tolist() == [13.89, 10.0, 10.0, 10.0]
    assert town.rise.tolist() == [2.0, -5.0, 5.0, 2.0]
    assert town.shapes[0].tolist() == [[0, 0], [50, 5], [100, 0]]
    assert town.shapes[1].tolist() == [[102, -1], [198, -1]]


def test_permissions_of_vehicle_classes(tmp_path):
    town = read_sumo(write(tmp_path))
    assert set(town.permits) == set(town.turn_permits) == set(VEHICLE_CLASSES)
    edges = {
        who: town.permits[who].tolist()
        for who in ("passenger", "bus", "taxi", "pedestrian")
    }
    assert edges == {
        "passenger": [True, True, False, False],
        "bus": [True, True, False, True],
        "taxi": [True, True, False, True],
        "pedestrian": [True, True, False, False],
    }
    assert town.permits["bicycle"].tolist() == [False, True, False, False]
    assert [tuple(town.edge_ids[end] for end in pair) for pair in town.connections] == [
        ("ab", "bc"),
        ("bus", "bc"),
        ("bc", "cb"),
    ]
    # Of the two ways from ab to bc one is for pedestrians; the way from bus to bc is for buses.
    assert town.turn_permits["passenger"].tolist() == [True, False, False]
    assert town.turn_permits["pedestrian"].tolist() == [True, False, False]
    assert town.turn_permits["bicycle"].tolist() == [False, False, False]
    assert town.turn_permits["bus"].tolist() == [True, True, False]
    assert town.turn_permits["taxi"].tolist() == [True, False, False]


SIGNAL = """    <tlLogic id="b" type="static" programID="old"><phase duration="9" state="rr"/></tlLogic>
    <tlLogic id="b" type="actuated" programID="new" offset="7">
        <phase duration="30" state="Gr"/>
        <phase duration="3" state="yr"/>
        <phase duration="27" state="rg"/>
    </tlLogic>
"""


def with_signal(text, attributes):
    """The small network with a signal that its first connection for cars obeys."""
    text = text.replace('via=":b_0_0" dir="s" state="M"', f'via=":b_0_0" {attributes}')
    return text.replace(
        '    <connection from="ab"', SIGNAL + '    <connection from="ab"', 1
    )


def test_speeds_through_a_junction(tmp_path):
    """The first connection from ab is for pedestrians; the one for cars leads over 4 m at 5 m/s."""
    town = read_sumo(write(tmp_path))
    assert town.turn_length.tolist() == [4.0, 4.0, 0.0]
    assert town.turn_speed.tolist() == [5.0, 5.0, 0.0]
    for none in (town.turn_wait, town.turn_stop, town.turn_entry):
        assert none.tolist() == [0.0, 0.0, 0.0]
    assert town.signals == {}
    assert town.street_names is None
    # The lane leads on over another one, of 12 m at 2 m/s.
    longer = NET.replace(
        '<connection from=":b_0" to="bc" fromLane="0"',
        '<connection from=":b_0" to="bc" fromLane="0" via=":b_2_0"',
    ).replace(
        '    <edge id=":b_c0"',
        '<edge id=":b_2" function="internal">'
        '<lane id=":b_2_0" index="0" speed="2" length="12"/></edge>\n'
        '    <edge id=":b_c0"',
    )
    town = read_sumo(write(tmp_path, longer))
    assert town.turn_length[0] == 16.0
    assert town.turn_speed[0] == pytest.approx(16.0 / (4.0 / 5.0 + 12.0 / 2.0))
    assert town.turn_length[1] == 4.0


def test_a_connection_may_be_for_some_classes_only(tmp_path):
    """The turn from ab to bc then has no connection for cars: its first one counts."""
    text = NET.replace('via=":b_0_0"', 'via=":b_0_0" allow="bus"')
    town = read_sumo(write(tmp_path, text))
    assert town.turn_permits["passenger"].tolist() == [False, False, False]
    assert town.turn_permits["bus"].tolist() == [True, True, False]
    assert town.turn_length.tolist() == [0.0, 4.0, 0.0]


def test_cars_do_not_obey_a_signal_for_pedestrians(tmp_path):
    obeys = 'tl="b" linkIndex="0" '
    text = with_signal(NET, 'dir="s" state="M"').replace(
        'fromLane="0" toLane="0" dir="s"', f'fromLane="0" toLane="0" {obeys}dir="s"', 1
    )
    assert obeys in text
    assert read_sumo(write(tmp_path, text)).signals == {}


@pytest.mark.parametrize(
    ("state", "entry"),
    [
        ('state="M"', 0.0),
        ('state="Z"', 0.0),
        ('state="m"', yielding_speed(4.5)),
        ('state="="', yielding_speed(4.5)),
        ('state="m" visibility="9.00"', yielding_speed(9.0)),
        ('state="s"', 0.1),
        ('state="w"', 0.1),
    ],
)
def test_yielding_turns_are_entered_slowly(tmp_path, state, entry):
    text = NET.replace(
        'via=":b_0_0" dir="s" state="M"', f'via=":b_0_0" dir="s" {state}'
    )
    assert read_sumo(write(tmp_path, text)).turn_entry.tolist() == [entry, 0.0, 0.0]


def test_signals_run_their_last_program(tmp_path):
    town = read_sumo(
        write(tmp_path, with_signal(NET, 'tl="b" linkIndex="0" state="O"'))
    )
    # At 13.89 m/s one cannot stop for the first half of the yellow.
    red = 30.0 - 13.89 / 9.0
    assert town.signals == {0: Signal(60.0, 7.0, ((60.0 - red, 60.0),), False)}
    assert town.turn_wait.tolist() == pytest.approx([red**2 / 120.0, 0.0, 0.0])
    assert town.turn_stop.tolist() == pytest.approx([red / 60.0, 0.0, 0.0])
    assert town.turn_entry[0] == 0.0
    town = read_sumo(
        write(tmp_path, with_signal(NET, 'tl="b" linkIndex="1" state="O"'))
    )
    assert town.signals[0].reds == ((60.0, 93.0),)
    assert town.turn_entry[0] == yielding_speed(4.5)


def test_street_names(tmp_path):
    town = read_sumo(
        write(
            tmp_path,
            NET.replace('id="bc" from', 'id="bc" name="Rue de l\'Église" from'),
        )
    )
    assert town.street_names == ("", "Rue de l'Église", "", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            with_signal(NET, 'tl="b" linkIndex="2" state="O"'),
            "linkIndex is '2'; signal 'b' has states for 2",
        ),
        (with_signal(NET, 'tl="b" state="O"'), "linkIndex is ''; signal 'b'"),
        (
            with_signal(NET, "").replace('duration="27"', 'duration="x"'),
            "duration must be a number between .*, got 'x'",
        ),
        (
            with_signal(NET, "").replace('duration="27" ', ""),
            "<phase> lacks the attribute 'duration'",
        ),
        (
            NET.replace("<type", '<phase duration="1" state="r"/><type'),
            "a phase is outside any tlLogic",
        ),
        (
            NET.replace('via=":b_0_0"', 'via=":b_0_0" visibility="far"'),
            "visibility must be .*, got 'far'",
        ),
        (
            NET.replace('length="4.00"', 'length="-4.00"', 1),
            "length must be a number between 0 and .*, got '-4.00'",
        ),
        (
            NET.replace('fromLane="1"', f'fromLane="{"0" * 5000}"'),
            "fromLane is '000",
        ),
        (
            NET.replace('shape="98,0 102,0"/>', '/><edge id="x" from="a" to="b"/>', 1),
            "edge 'x' begins within another edge",
        ),
    ],
)
def test_invalid_turns_are_rejected(tmp_path, text, words):
    with pytest.raises(InputError, match=words):
        read_sumo(write(tmp_path, text))


@pytest.mark.parametrize(
    ("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)]
)
def test_packed_files(tmp_path, suffix, pack):
    path = tmp_path / f"town.net.xml{suffix}"
    path.write_bytes(pack(NET.encode()))
    assert read_sumo(path).edge_ids == ("ab", "bc", "cb", "bus")
    assert read_sumo(path, "elsewhere").name == "elsewhere"
    path.write_bytes(pack(NET.encode())[:-20])
    with pytest.raises(InputError, match=f"town.net.xml{suffix}: the file is damaged"):
        read_sumo(path)


@pytest.mark.parametrize(
    ("projection", "known"),
    [
        ("+proj=utm +zone=32 +ellps=WGS84", True),
        ("+proj=utm +zone=32 +south +ellps=WGS84", True),
        ("!", False),
        ("-", False),
        ("+proj=utm +zone=61 +ellps=WGS84", False),
        ("+proj=utm +zone=32 +ellps=intl", False),
        ("+proj=tmerc +lat_0=0 +lon_0=9", False),
    ],
)
def test_places_on_earth(tmp_path, projection, known):
    text = changed(3, "+proj=utm +zone=32 +ellps=WGS84", projection)
    town = read_sumo(write(tmp_path, text))
    assert (town.lon_lat is not None) == known
    if known and "south" not in projection:
        # x = 6710.05, y = 8514.47 is at 6.122036, 49.624969 in the same projection (LuST).
        place = changed(
            line_of('<junction id="a"'), 'x="0.00" y="0.00"', 'x="6710.05" y="8514.47"'
        )
        assert np.allclose(
            read_sumo(write(tmp_path, place)).lon_lat[0],
            [6.122036, 49.624969],
            atol=6e-7,
            rtol=0,
        )
    if known and "south" in projection:
        assert town.lon_lat[0, 1] < 0.0


AB, BC, A = (
    line_of('<edge id="ab"'),
    line_of('<edge id="bc"'),
    line_of('<junction id="a"'),
)
TURN = line_of('<connection from="ab" to="bc" fromLane="1"')


@pytest.mark.parametrize(
    ("line", "old", "new", "words"),
    [
        (
            BC,
            'to="c"',
            'to="q"',
            "edge 'bc' names junction 'q', which is not in the file",
        ),
        (BC, 'to="c"', "", "<edge> lacks the attribute 'to'"),
        (BC, 'id="bc"', 'id="ab"', "edge id 'ab' appears more than once"),
        (BC, 'id="bc"', 'id=":b_0"', "edge id ':b_0' appears more than once"),
        (BC, ' to="c">', ' to="c" shape="1,2 3">', "the shape of edge 'bc' is not"),
        (BC, ' to="c">', ' to="c" shape="1,2">', "the shape of edge 'bc' is not"),
        (BC, ' to="c">', ' to="c" shape="1,2 3,inf">', "the shape of edge 'bc' is not"),
        (
            BC + 1,
            '"10.00"',
            '"fast"',
            "speed must be a number between 0.01 and 1000, got 'fast'",
        ),
        (
            BC + 1,
            '"10.00"',
            '"nan"',
            "speed must be a number between 0.01 and 1000, got 'nan'",
        ),
        (
            BC + 1,
            '"10.00"',
            '"0"',
            "speed must be a number between 0.01 and 1000, got '0'",
        ),
        (
            BC + 1,
            '"90.00"',
            '"-1"',
            "length must be a number between 0.001 and 1e+06, got '-1'",
        ),
        (BC + 1, 'length="90.00"', "", "<lane> lacks the attribute 'length'"),
        (
            BC + 1,
            'index="0"',
            'index="1"',
            "the lane index must be 0, in order, got '1'",
        ),
        (BC + 2, "</edge>", "</edge><lane/>", "a lane is outside any edge"),
        (A, 'x="0.00"', "", "<junction> lacks the attribute 'x'"),
        (
            A,
            'z="3.00"',
            'z="high"',
            "z must be a number between -20000 and 20000, got 'high'",
        ),
        (A, 'id="a"', 'id="b"', "junction id 'b' appears more than once"),
        (
            TURN,
            'to="bc"',
            'to="zz"',
            "a connection names edge 'zz', which is not in the file",
        ),
        (TURN, 'to="bc"', 'to="cb"', "from 'ab' to 'cb' joins edges that do not meet"),
        (
            TURN,
            'fromLane="1"',
            'fromLane="2"',
            "fromLane is '2'; edge 'ab' has 2 lanes",
        ),
        (TURN, 'toLane="0"', 'toLane="-1"', "toLane is '-1'; edge 'bc' has 1 lanes"),
        (TURN, 'toLane="0"', "", "toLane is 'missing'; edge 'bc' has 1 lanes"),
        (TURN, ":b_0_0", ":x_0_0", "via names lane ':x_0_0', which is not in the file"),
        (
            3,
            "-285448.66,-5492398.13",
            "0",
            "netOffset must be two numbers x,y, got '0'",
        ),
        (
            3,
            "-285448.66",
            "1e300",
            "netOffset '1e300,-5492398.13' places a junction nowhere",
        ),
        (BC, 'id="bc"', "id=bc", "not XML: not well-formed"),
        (2, "<net ", "<routes ", "the file contains <routes>, not <net>"),
        (1, '"UTF-8"', '"UTF-88"', "not XML: unknown encoding"),
    ],
)
def test_invalid_network_is_rejected_entirely(tmp_path, line, old, new, words):
    path = write(tmp_path, changed(line, old, new))
    with pytest.raises(InputError) as caught:
        read_sumo(path)
    assert str(caught.value).startswith(f"{path}: line ")
    assert words in str(caught.value)
    number = int(str(caught.value).removeprefix(f"{path}: line ").partition(":")[0])
    # A duplicate is noticed where it stands: at junction b, after a has taken its name.
    assert number in ((line, line + 1) if "more than once" in words else (line,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: not XML: no element found"),
        ("PK\3\4", "line 1: not XML"),
        ("<net/>", "line 1: the network ends here without any edges"),
        (
            "<net>\n<edge id='e' from='a' to='b'/></net>",
            "line 2: the edge that ends here has no lanes",
        ),
        (
            "<net>\n<edge id='e' from='a' to='b'>\n<edge id='f'/>",
            "line 3: edge 'f' begins within another",
        ),
        (NET[:-20], "not XML"),
        (
            '<!DOCTYPE net [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]>\n<net>&b;</net>',
            r"line 1: a document type \(net\) is declared",
        ),
        (
            '<!DOCTYPE net SYSTEM "file:///etc/hostname">\n<net/>',
            "line 1: a document type",
        ),
    ],
)
def test_files_without_a_network_are_rejected(tmp_path, text, words):
    with pytest.raises(
        InputError, match=f"town.net.xml: {words}|town.net.xml: line .*{words}"
    ):
        read_sumo(write(tmp_path, text))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(MissingDataError, match=r"none\.net\.xml: file not found"):
        read_sumo(tmp_path / "none.net.xml")
    with pytest.raises(InputError, match="is not a file"):
        read_sumo(tmp_path)


def test_endless_element_is_rejected_early(tmp_path):
    long = NET.replace('id="ab_0"', f'id="{"x" * 5_000_000}"')
    with pytest.raises(
        InputError, match=r"line 15: an element of more than 1048576 bytes"
    ):
        read_sumo(write(tmp_path, long))
    legal = NET.replace('id="ab_0"', f'id="{"x" * 1_000_000}"')
    assert read_sumo(write(tmp_path, legal)).edge_ids == ("ab", "bc", "cb", "bus")


def test_nesting_depth_of_elements_is_limited(tmp_path: Path) -> None:
    """A parser keeps every open one: 15 KB that unpack to five million took a gigabyte."""
    path = tmp_path / "deep.net.xml"
    path.write_text("<net>" + "<a>" * 40 + "</a>" * 40 + "</net>")
    with pytest.raises(
        InputError, match="line 1: <a> is nested more than 32 levels deep"
    ):
        read_sumo(path)
    path.write_text("<net>" + "<a></a>" * 40 + "</net>")
    with pytest.raises(InputError, match="without any edges"):
        read_sumo(path)  # many siblings, none nested: it has no roads


def test_an_error_quotes_no_more_than_a_few_words(tmp_path):
    path = write(
        tmp_path,
        NET.replace(
            'index="0" allow="pedestrian" speed="13', f'index="{"9" * 9000}" s="'
        ),
    )
    with pytest.raises(
        InputError, match=r"the lane index must be 0, in order, got .*9999 … 9999"
    ) as caught:
        read_sumo(path)
    assert len(str(caught.value)) < 500 + len(str(path))


def test_connections_may_come_before_the_edges_they_name(tmp_path):
    turns = [line for line in LINES if "<connection" in line]
    others = [line for line in LINES if "<connection" not in line]
    usual = read_sumo(write(tmp_path))
    other = read_sumo(write(tmp_path, "\n".join(others[:3] + turns + others[3:])))
    assert np.array_equal(usual.connections, other.connections)


def assert_reads_or_refuses(path):
    try:
        network = read_sumo(path)
    except InputError:
        return
    assert isinstance(network, RoadNetwork)
    assert len(network.shapes) == len(network.edge_ids) > 0


@settings(max_examples=150)
@given(data=st.data())
def test_damage_is_refused_or_harmless(tmp_path, data):
    raw = bytearray(NET.encode())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(raw)) | st.just(len(raw)))
    path = tmp_path / "town.net.xml"
    path.write_bytes(raw[:end])
    assert_reads_or_refuses(path)


@settings(max_examples=60)
@given(
    data=st.data(),
    packed=st.sampled_from([(".gz", gzip.compress), (".xz", lzma.compress)]),
)
def test_damage_to_packed_files_is_refused_or_harmless(tmp_path, data, packed):
    suffix, pack = packed
    raw = bytearray(pack(NET.encode()))
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / f"town.net.xml{suffix}"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))])
    assert_reads_or_refuses(path)


def table(folder, name):
    with gzip.open(
        folder / f"{name}.csv.gz", "rt", encoding="utf-8", newline=""
    ) as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("name", "file"), [("lust", "lust3d"), ("most", "most")])
@pytest.mark.slow
def test_the_real_networks_agree_with_their_tables(name, file):
    for root in search_path():
        folder = root / name
        if (folder / f"{file}.net.xml.xz").is_file() and (
            folder / "edges.csv.gz"
        ).is_file():
            break
    else:
        pytest.skip(f"{name} is not at hand")
    network = read_sumo(folder / f"{file}.net.xml.xz")
    nodes, edges, turns = (
        table(folder, part) for part in ("nodes", "edges", "connections")
    )
    junctions = dict(zip(network.junction_ids, network.junctions.tolist(), strict=True))
    assert junctions == {row["id"]: [float(row[key]) for key in "xyz"] for row in nodes}
    places = [[float(row["lon"]), float(row["lat"])] for row in nodes]
    assert [row["id"] for row in nodes] == list(network.junction_ids)
    assert np.abs(network.lon_lat - places).max() < 6e-7  # the tables have six digits
    z = network.junctions[:, 2]
    measured = {
        key: (
            network.junction_ids[network.tail[row]],
            network.junction_ids[network.head[row]],
            network.length[row],
            network.speed[row],
            z[network.tail[row]],
            z[network.head[row]],
            network.permits["passenger"][row],
        )
        for row, key in enumerate(network.edge_ids)
    }
    assert measured == {
        row["id"]: (
            row["from"],
            row["to"],
            *(float(row[key]) for key in ("length_m", "speed_mps", "z_from", "z_to")),
            row["passenger"] == "1",
        )
        for row in edges
    }
    ids = network.edge_ids
    pairs = zip(
        network.connections.tolist(), network.turn_permits["passenger"], strict=True
    )
    assert {
        (ids[first], ids[second]): allowed for (first, second), allowed in pairs
    } == {(row["from"], row["to"]): row["passenger"] == "1" for row in turns}
    # A shape runs from near the one junction to near the other.
    begins = np.array([shape[0] for shape in network.shapes])
    near = np.hypot(*(begins - network.junctions[network.tail, :2]).T)
    assert np.median(near) < 10.0


@pytest.mark.slow
def test_the_networks_that_come_with_sumo_agree_with_sumolib():
    sumo = pytest.importorskip("sumo", reason="sumo is not installed")
    sumolib = pytest.importorskip("sumolib", reason="sumolib is not installed")
    paths = sorted(Path(sumo.SUMO_HOME, "tools", "game").rglob("*.net.xml*"))
    assert len(paths) > 5
    for path in paths:
        network, peer = read_sumo(path), sumolib.net.readNet(str(path))
        edges = {edge.getID(): edge for edge in peer.getEdges(withInternal=False)}
        assert set(network.edge_ids) == set(edges)
        for row, key in enumerate(network.edge_ids):
            edge = edges[key]
            assert (network.length[row], network.speed[row]) == (
                edge.getLength(),
                edge.getSpeed(),
            )
            assert network.junction_ids[network.tail[row]] == edge.getFromNode().getID()
            assert network.junction_ids[network.head[row]] == edge.getToNode().getID()
            permitted = {who for who in VEHICLE_CLASSES if network.permits[who][row]}
            assert permitted == {who for who in VEHICLE_CLASSES if edge.allows(who)}
        wanted = {
            (edge.getID(), onward.getID()): {
                who
                for who in VEHICLE_CLASSES
                for turn in turns
                if turn.getFromLane().allows(who) and turn.getToLane().allows(who)
            }
            for edge in edges.values()
            for onward, turns in edge.getOutgoing().items()
            if onward.getID() in edges
        }
        assert wanted == {
            (network.edge_ids[first], network.edge_ids[second]): {
                who for who in VEHICLE_CLASSES if network.turn_permits[who][row]
            }
            for row, (first, second) in enumerate(network.connections)
        }
