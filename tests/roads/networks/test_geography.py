"""UTM: published places, the meridian's length, and round trips."""

import csv
import gzip

import numpy as np
import pytest

from superarm.core.data_files import search_path
from superarm.core.errors import InputError
from superarm.roads.networks.geography import from_utm


def test_published_places():
    # The CN Tower, 43° 38′ 33.24″ N 79° 23′ 13.7″ W, is 17T 630084 4833438 (to the metre).
    tower = [[-(79 + 23 / 60 + 13.7 / 3600), 43 + 38 / 60 + 33.24 / 3600]]
    assert np.allclose(from_utm([[630_084, 4_833_438]], 17), tower, atol=1e-5, rtol=0)


def test_length_of_the_meridian():
    # The quarter meridian of WGS 84 is 10 001 965.729 m; half a metre in 1250 less in UTM.
    ((_, lat),) = from_utm([[500_000.0, 0.9996 * 10_001_965.729]], 32)
    assert lat == pytest.approx(90.0, abs=1e-7)


@pytest.mark.parametrize("south", [False, True])
def test_the_equator_of_the_zone_has_its_own_published_corner(south):
    # At the equator a zone is 166 021.44 m … 833 978.56 m wide.
    north = 10_000_000.0 if south else 0.0
    places = from_utm([[166_021.44, north], [833_978.56, north]], 32, south=south)
    assert np.allclose(places, [[6.0, 0.0], [12.0, 0.0]], atol=1e-7, rtol=0)


def test_a_slow_numerical_projection_agrees():
    """Northing on the middle meridian is 0.9996 times the arc, integrated here step by step."""
    f = 1 / 298.257223563
    e2 = f * (2 - f)
    phi = np.linspace(0.0, np.radians(49.6), 20_001)
    curve = 6_378_137.0 * (1 - e2) / (1 - e2 * np.sin(phi) ** 2) ** 1.5
    arc = ((curve[1:] + curve[:-1]) / 2 * np.diff(phi)).sum()
    assert np.allclose(
        from_utm([[500_000.0, 0.9996 * arc]], 32), [[9.0, 49.6]], atol=1e-7, rtol=0
    )


def test_wrong_zones_and_places_are_refused():
    with pytest.raises(InputError, match="zones 1 … 60"):
        from_utm([[0.0, 0.0]], 61)
    with pytest.raises(
        InputError, match=r"easting 1e\+20, northing 0.0 is outside UTM"
    ):
        from_utm([[5e5, 0.0], [1e20, 0.0]], 32)


@pytest.mark.parametrize("name", ["lust", "most"])
def test_real_places(name):
    candidates = [folder / name / "nodes.csv.gz" for folder in search_path()]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        pytest.skip(f"{name} is not at hand")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    # Both networks lie in zone 32; the tables give six digits, about 0.1 m.
    offset = {"lust": (-285448.66, -5492398.13), "most": (-368142.40, -4841896.61)}[
        name
    ]
    places = np.array([[float(row["lon"]), float(row["lat"])] for row in rows])
    grid = np.array([[float(row["x"]), float(row["y"])] for row in rows]) - offset
    assert np.abs(from_utm(grid, 32) - places).max() < 6e-7
