"""One reader for all formats, chosen by file name."""

import numpy as np
import pytest

from superarm.core.errors import InputError, MissingDataError
from superarm.roads.networks.elevation import Tile
from superarm.roads.networks.reading import read_network

NET = """<net>
 <location netOffset="-285448.66,-5492398.13" projParameter="+proj=utm +zone=32 +ellps=WGS84"/>
 <edge id="ab" from="a" to="b"><lane index="0" id="ab_0" speed="9" length="9" shape="0,0 9,0"/></edge>
 <junction id="a" x="0" y="0"/><junction id="b" x="9" y="0"/>
</net>
"""
OSM = """<osm>
 <node id="1" lat="49.60" lon="6.10"/><node id="2" lat="49.60" lon="6.11"/>
 <node id="3" lat="49.60" lon="6.12"/>
 <way id="10"><nd ref="1"/><nd ref="2"/><tag k="highway" v="primary"/></way>
 <way id="11"><nd ref="2"/><nd ref="3"/><tag k="highway" v="residential"/></way>
</osm>
"""


def test_a_folder_of_tables(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "id,x,y,z,lon,lat\na,0,0,1,6.1,49.6\nb,9,0,3,6.2,49.6\n"
    )
    (tmp_path / "edges.csv").write_text(
        "id,from,to,length_m,speed_mps,passenger\nab,a,b,9,9,1\n"
    )
    (tmp_path / "connections.csv").write_text("from,to,passenger\n")
    assert read_network(tmp_path).rise.tolist() == [2.0]
    tile = Tile(west=6, south=49, heights=np.full((2, 2), 250, dtype=np.int16))
    assert read_network(tmp_path, elevation=tile).junctions[:, 2] == pytest.approx(
        250.0
    )


@pytest.mark.parametrize("name", ["town.net.xml", "TOWN.NET.XML"])
def test_a_sumo_network(tmp_path, name):
    path = tmp_path / name
    path.write_text(NET)
    assert read_network(str(path)).edge_ids == ("ab",)
    tile = Tile(west=6, south=49, heights=np.full((2, 2), 250, dtype=np.int16))
    assert read_network(path, elevation=tile).junctions[:, 2] == pytest.approx(250.0)


def test_flat_roads(tmp_path):
    (tmp_path / "town.net.xml").write_text(NET.replace('id="b"', 'id="b" z="5"'))
    assert read_network(tmp_path / "town.net.xml").rise.tolist() == [5.0]
    flat = read_network(tmp_path / "town.net.xml", flat=True)
    assert flat.rise.tolist() == [0.0]
    assert flat.junctions[:, :2].tolist() == [[0.0, 0.0], [9.0, 0.0]]
    tile = Tile(west=6, south=49, heights=np.full((2, 2), 250, dtype=np.int16))
    with pytest.raises(InputError, match="not both"):
        read_network(tmp_path / "town.net.xml", flat=True, elevation=tile)


@pytest.mark.parametrize("name", ["town.osm", "town.osm.xml"])
def test_a_map(tmp_path, name):
    pytest.importorskip("sumo", reason="sumo is not installed")
    (tmp_path / name).write_text(OSM)
    assert set(read_network(tmp_path / name).edge_ids) == {"10", "-10", "11", "-11"}


def test_unknown_formats_are_rejected_with_the_list_of_formats(tmp_path):
    (tmp_path / "town.xml").write_text(NET)
    with pytest.raises(
        InputError, match=r"town\.xml cannot be read .*nodes\.csv.*\.net\.xml.*\.osm"
    ):
        read_network(tmp_path / "town.xml")
    with pytest.raises(MissingDataError, match=r"none\.net\.xml"):
        read_network(tmp_path / "none.net.xml")
    with pytest.raises(MissingDataError, match=r"holds no nodes\.csv"):
        read_network(tmp_path)
