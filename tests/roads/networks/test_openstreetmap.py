"""OpenStreetMap through netconvert: a small map, heights, failures, real maps."""

import gzip
import lzma
import subprocess
import sys
import types
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from superarm.core.data_files import search_path
from superarm.core.errors import InputError, MissingDataError, MissingExtraError
from superarm.roads.networks.elevation import Tile
from superarm.roads.networks.openstreetmap import kept_osm, read_osm

# A square with a diagonal one-way street; node 5 is a bend, the footway is not for cars.
PLACES = {
    1: (49.600, 6.100),
    2: (49.600, 6.110),
    3: (49.610, 6.110),
    4: (49.610, 6.100),
    5: (49.605, 6.111),
    6: (49.620, 6.120),
}
WAYS = """
 <way id="10"><nd ref="1"/><nd ref="2"/><tag k="highway" v="primary"/></way>
 <way id="11"><nd ref="2"/><nd ref="5"/><nd ref="3"/><tag k="highway" v="residential"/></way>
 <way id="12"><nd ref="3"/><nd ref="4"/><nd ref="1"/><tag k="highway" v="residential"/></way>
 <way id="13"><nd ref="1"/><nd ref="3"/><tag k="highway" v="tertiary"/><tag k="oneway" v="yes"/></way>
 <way id="14"><nd ref="3"/><nd ref="6"/><tag k="highway" v="footway"/></way>
"""
HEIGHTS = {1: "300", 2: "310.5", 3: "330 m", 4: "320", 5: "317"}


@pytest.fixture
def sumo():
    return pytest.importorskip("sumo", reason="sumo is not installed")


def osm(heights=None, ways=WAYS, places=PLACES):
    nodes = "".join(
        f' <node id="{node}" lat="{lat}" lon="{lon}"><tag k="name" v="caf&#233; &amp; &quot;x&quot;"/>'
        + (f'<tag k="ele" v="{heights[node]}"/>' if heights and node in heights else "")
        + "</node>\n"
        for node, (lat, lon) in places.items()
    )
    return f'<?xml version="1.0"?>\n<osm version="0.6">\n{nodes}{ways}</osm>\n'


def write(folder, text, name="town.osm"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def heights_of(network):
    return dict(
        zip(
            network.junction_ids, network.junctions[:, 2].round(2).tolist(), strict=True
        )
    )


def test_a_small_map(tmp_path, sumo):
    town = read_osm(write(tmp_path, osm(HEIGHTS)))
    assert town.name == "town"
    assert heights_of(town) == {"1": 300.0, "2": 310.5, "3": 330.0}  # 4 and 5 are bends
    for node, place in zip(town.junction_ids, town.lon_lat, strict=True):
        assert place == pytest.approx(PLACES[int(node)][::-1], abs=1e-6)
    assert sorted(town.edge_ids) == [
        "-10",
        "-11",
        "-12",
        "10",
        "11",
        "12",
        "13",
    ]  # no footway, no -13
    graph = town.line_graph()
    assert len(graph) == 7
    assert graph.speed[graph.number("13")] > graph.speed[graph.number("11")]
    assert len(town.shapes[town.edge_ids.index("11")]) == 3
    assert town.street_names is None
    named = WAYS.replace(
        'v="primary"/>', 'v="primary"/><tag k="name" v="Rue de l&#201;glise"/>'
    )
    town = read_osm(write(tmp_path, osm(HEIGHTS, named)))
    names = dict(zip(town.edge_ids, town.street_names, strict=True))
    assert names["10"] == names["-10"] == "Rue de lÉglise"
    assert names["11"] == ""
    # Turns have lanes within the junctions; who comes from the side gives way.
    assert (town.turn_length > 0.0).all()
    assert (town.turn_entry > 0.0).any()


@pytest.mark.parametrize(
    ("name", "pack"),
    [("town.osm.gz", gzip.compress), ("town.osm.xml.xz", lzma.compress)],
)
def test_packed_maps(tmp_path, sumo, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(osm(HEIGHTS).encode()))
    town = read_osm(path)
    assert (town.name, heights_of(town)["3"]) == ("town", 330.0)
    path.write_bytes(pack(osm(HEIGHTS).encode())[:-10])
    with pytest.raises(InputError, match="the file is damaged"):
        read_osm(path)


def test_heights_from_tiles_replace_the_tags(tmp_path, sumo):
    tile = Tile(west=6, south=49, heights=np.full((2, 2), 250, dtype=np.int16))
    town = read_osm(write(tmp_path, osm({1: "300"})), elevation=tile)
    assert set(heights_of(town).values()) == {250.0}


def test_a_map_without_heights_is_flat(tmp_path, sumo):
    assert set(heights_of(read_osm(write(tmp_path, osm()))).values()) == {0.0}


def test_a_map_with_some_heights_is_refused(tmp_path, sumo):
    with pytest.raises(
        InputError, match=r"town\.osm: only 1 of 5 road nodes have a height.*elevation="
    ):
        read_osm(write(tmp_path, osm({1: "300", 6: "400"})))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (osm().replace("<way id", "<way id="), "line 10: not XML"),
        (
            osm().replace("<osm", "<net").replace("</osm", "</net"),
            "line 2: the file contains <net>, not <osm>",
        ),
        (osm().replace('ref="5"', ""), "line 11: <nd> lacks the attribute 'ref'"),
        ("<osm/>", "the map contains no roads for cars"),
        (
            '<!DOCTYPE osm [<!ENTITY a "aa">]>\n<osm>&a;</osm>',
            "line 1: a document type",
        ),
        (
            osm().replace('lat="49.6"', 'lat="north"'),
            r"netconvert failed \(exit code \d+\) with this output:\n.*lat",
        ),
    ],
)
def test_bad_maps_are_refused(tmp_path, sumo, text, words):
    with pytest.raises(InputError, match=rf"town\.osm: {words}"):
        read_osm(write(tmp_path, text))


def test_a_map_that_is_not_there(tmp_path, sumo):
    with pytest.raises(MissingDataError, match=r"none\.osm: file not found"):
        read_osm(tmp_path / "none.osm")


def test_netconvert_has_a_timeout(tmp_path, sumo, monkeypatch):
    def late(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", late)
    with pytest.raises(InputError, match="had not finished after 2 s"):
        read_osm(write(tmp_path, osm()), timeout=2.0)


def test_a_map_is_converted_once(sumo, tmp_path, monkeypatch):
    """Once with its heights and once without, until it changes."""
    from superarm.roads.networks import openstreetmap

    path = write(tmp_path, osm(HEIGHTS))
    first, level = read_osm(path), read_osm(path, flat=True)

    def refuse(*_):
        raise AssertionError("it is converted again")

    monkeypatch.setattr(openstreetmap, "convert", refuse)
    assert heights_of(read_osm(path)) == heights_of(first)
    assert heights_of(read_osm(path, flat=True)) == heights_of(level)
    assert heights_of(first) != heights_of(level)
    for changed in (
        lambda: read_osm(path, cache=False),
        lambda: read_osm(write(tmp_path, osm())),
    ):
        with pytest.raises(AssertionError, match="converted again"):
            changed()


def test_missing_sumo_names_the_pip_command(tmp_path, monkeypatch):
    path = write(tmp_path, osm())
    monkeypatch.setitem(sys.modules, "sumo", None)
    for read in (read_osm, lambda path: kept_osm(path, tmp_path)):
        with pytest.raises(MissingExtraError, match=r"pip install 'eclipse-sumo>="):
            read(path)
    empty = types.ModuleType("sumo")
    empty.SUMO_HOME = str(tmp_path)
    monkeypatch.setitem(sys.modules, "sumo", empty)

    def missing(name):
        raise PackageNotFoundError(name)

    for lookup, what in (
        (missing, "eclipse-sumo"),
        (lambda name: "1.28", "netconvert"),
    ):
        monkeypatch.setattr("superarm.roads.networks.openstreetmap.version", lookup)
        with pytest.raises(
            MissingExtraError, match=rf"{what}.* is missing.*; run: pip install .*sumo"
        ):
            read_osm(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "tiles", "low", "high"),
    [
        ("most/most.network.osm.xz", False, 0.0, 700.0),
        ("lust/lust.legacy.scenario.osm.xz", True, 200.0, 450.0),
    ],
)
def test_real_maps(sumo, file, tiles, low, high):
    for folder in search_path():
        if (folder / file).is_file() and (folder / "elevation").is_dir():
            break
    else:
        pytest.skip(f"{file} is not at hand")
    town = read_osm(folder / file, elevation=folder / "elevation" if tiles else None)
    graph = town.line_graph()
    assert len(graph) > 2000
    assert len(graph.turns) > 5000
    z = town.junctions[:, 2]
    assert low < z.min() < z.max() < high
    assert np.quantile(np.abs(graph.incline), 0.99) < 0.3
