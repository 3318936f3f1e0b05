"""Heights from tiles: bilinear interpolation, voids, corners, and real tiles."""

import gzip
import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from superarm.core.data_files import search_path
from superarm.core.errors import InputError, MissingDataError
from superarm.roads.networks.elevation import Tile, with_heights
from superarm.roads.networks.road import RoadNetwork
from superarm.roads.networks.sumo_net import read_sumo

SIDE = 1201
VOID = -32768


def plane():
    """10 m per hundredth of a degree to the east, 5 m to the north: a bilinear surface."""
    steps = np.arange(SIDE) / (SIDE - 1)
    return np.rint(1000 * steps[None, :] + 500 * steps[::-1, None]).astype(">i2")


def network(lon_lat):
    count = 2
    return RoadNetwork(
        name="places",
        junction_ids=tuple(f"j{number}" for number in range(count)),
        junctions=np.zeros((count, 3)),
        edge_ids=("e",),
        tail=[0],
        head=[1],
        length=[10.0],
        speed=[10.0],
        permits={"passenger": [True]},
        connections=np.empty((0, 2)),
        turn_permits={"passenger": []},
        lon_lat=lon_lat,
    )


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)]
)
@pytest.mark.parametrize(
    ("name", "west", "south"), [("N49E006", 6, 49), ("s02w070", -70, -2)]
)
def test_tile_position_follows_its_name(tmp_path, suffix, pack, name, west, south):
    path = tmp_path / f"{name}.hgt{suffix}"
    path.write_bytes(pack(plane().tobytes()))
    tile = Tile.read(path)
    assert (tile.west, tile.south) == (west, south)
    corners = tile.height(
        [west, west + 1, west, west + 1], [south, south, south + 1, south + 1]
    )
    assert corners.tolist() == [0.0, 1000.0, 500.0, 1500.0]
    assert tile.height(west + 0.5, south + 0.25) == pytest.approx(625.0)


@given(
    lon=st.floats(0.0, 1.0),
    lat=st.floats(0.0, 1.0),
    heights=st.lists(st.integers(-100, 900) | st.just(VOID), min_size=16, max_size=16),
)
def test_heights_match_a_plain_loop(lon, lat, heights):
    grid = np.array(heights, dtype=np.int16).reshape(4, 4)
    interpolated = Tile(west=0, south=0, heights=grid).height(lon, lat)
    column, row = min(int(lon * 3), 2), min(int((1 - lat) * 3), 2)
    right, below = lon * 3 - column, (1 - lat) * 3 - row
    near = [
        (
            float(grid[row + i, column + j]),
            (below if i else 1 - below) * (right if j else 1 - right),
        )
        for i in (0, 1)
        for j in (0, 1)
        if grid[row + i, column + j] != VOID
    ]
    if not near:
        assert np.isnan(interpolated)
        return
    weight = sum(weight for _, weight in near)
    if weight > 0:
        expected = sum(height * weight for height, weight in near) / weight
    else:
        expected = sum(height for height, _ in near) / len(near)
    assert interpolated == pytest.approx(expected, abs=1e-6)


def test_a_place_outside_is_refused():
    tile = Tile(west=6, south=49, heights=np.zeros((2, 2), dtype=np.int16))
    assert tile.covers([6.0, 7.0, 7.1], 49.5).tolist() == [True, True, False]
    with pytest.raises(InputError, match=r"longitude 7\.1, latitude 49\.5 is outside"):
        tile.height([6.5, 7.1], 49.5)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("N49E006.hgt", b"\0" * 100, "has 100 bytes"),
        ("hills.hgt", b"", "must have a tile's name"),
        ("N49E006.hgt.xz", lzma.compress(plane().tobytes())[:-50], "damaged"),
        ("N49E006.hgt.gz", gzip.compress(plane().tobytes())[:-50], "damaged"),
        ("N49E006.hgt.gz", b"nonsense", "damaged"),
    ],
)
def test_a_bad_tile_is_refused(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words):
        Tile.read(tmp_path / name)


def test_a_missing_tile_is_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"N49E006\.hgt: file not found"):
        Tile.read(tmp_path / "N49E006.hgt")
    with pytest.raises(MissingDataError, match=r"N01E001\.hgt: file not found"):
        with_heights(network([[6.5, 49.5], [6.5, 49.6]]), tmp_path / "N01E001.hgt")


def test_junctions_rise(tmp_path):
    (tmp_path / "N49E006.hgt").write_bytes(plane().tobytes())
    (tmp_path / "N10E006.hgt").write_bytes(b"far away, so never opened")
    (tmp_path / "README").write_text("other things may lie here")
    flat = network([[6.25, 49.0], [6.5, 49.5]])
    for tiles in (
        tmp_path,
        [tmp_path / "N49E006.hgt"],
        Tile.read(tmp_path / "N49E006.hgt"),
    ):
        hilly = with_heights(flat, tiles)
        assert hilly.junctions[:, 2].tolist() == [250.0, 750.0]
        assert hilly.rise.tolist() == [500.0]
    assert flat.rise.tolist() == [0.0]


def test_the_second_tile_fills_the_voids_of_the_first():
    blank = Tile(west=6, south=49, heights=np.full((2, 2), VOID, dtype=np.int16))
    level = Tile(west=6, south=49, heights=np.full((2, 2), 7, dtype=np.int16))
    places = network([[6.25, 49.0], [6.5, 49.5]])
    assert with_heights(places, [blank, level]).junctions[:, 2].tolist() == [7.0, 7.0]
    words = (
        r"2 of 2 junctions lie where the tiles have no height .* 'j0' at longitude 6\.25000.*"
        r"a void-filled version of N49E006, or add another source"
    )
    with pytest.raises(InputError, match=words) as caught:
        with_heights(places, blank)
    assert "needed" not in str(caught.value)  # the tile is there


@pytest.mark.parametrize(
    "name", ["N49E006.SRTMGL1.hgt", "N49E006_v2.hgt", "n49e006-filled.HGT"]
)
def test_names_of_other_editions_are_read(tmp_path, name):
    (tmp_path / name).write_bytes(plane().tobytes())
    places = network([[6.25, 49.0], [6.5, 49.5]])
    for tiles in (tmp_path, tmp_path / name):
        assert with_heights(places, tiles).junctions[:, 2].tolist() == [250.0, 750.0]


@pytest.mark.parametrize("name", ["N49E006.hgt.zip", "N49E006.SRTMGL1.hgt.zip"])
def test_zip_archives_are_refused_with_advice(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK")
    places = network([[6.25, 49.0], [6.5, 49.5]])
    for tiles in (tmp_path, tmp_path / name):
        with pytest.raises(InputError, match=r"ZIP archive.* unpack it"):
            with_heights(places, tiles)
    # Beside the tile that was unpacked from it, an archive does no harm.
    (tmp_path / "N49E006.hgt").write_bytes(plane().tobytes())
    assert with_heights(places, tmp_path).junctions[:, 2].tolist() == [250.0, 750.0]


def test_longer_numbers_are_no_corner(tmp_path):
    (tmp_path / "N49E0061.hgt").write_bytes(plane().tobytes())
    with pytest.raises(InputError, match="must have a tile's name"):
        Tile.read(tmp_path / "N49E0061.hgt")


def test_heights_reject_networks_outside_tiles():
    tile = Tile(west=6, south=49, heights=np.zeros((2, 2), dtype=np.int16))
    words = r"1 of 2 junctions lie outside all tiles; .* 'j1' .*Add the tile S01W070"
    with pytest.raises(InputError, match=words):
        with_heights(network([[6.5, 49.5], [-69.5, -0.5]]), tile)
    with pytest.raises(InputError, match="no geographic reference"):
        with_heights(network(None), tile)
    with pytest.raises(InputError, match="a tile is a square"):
        Tile(west=0, south=0, heights=np.zeros((2, 3), dtype=np.int16))


@pytest.mark.slow
def test_luxembourg_was_made_of_these_tiles():
    for folder in search_path():
        net, tiles = folder / "lust" / "lust3d.net.xml.xz", folder / "elevation"
        if net.is_file() and tiles.is_dir():
            break
    else:
        pytest.skip("lust and elevation are not at hand")
    luxembourg = read_sumo(net)
    apart = np.abs(
        with_heights(luxembourg, tiles).junctions[:, 2] - luxembourg.junctions[:, 2]
    )
    # Written with two digits; ramps that netconvert added lie between their neighbours.
    ramps = np.array(["-Added" in name for name in luxembourg.junction_ids])
    assert apart[~ramps].max() < 0.5
    assert np.quantile(apart, 0.95) < 0.0051
    assert apart.max() < 2.5
