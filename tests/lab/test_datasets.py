"""Data sets: search path and rejected files. Real files where available."""

from __future__ import annotations

import lzma
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from superarm.core import data_files
from superarm.core.errors import InputError, MissingDataError
from superarm.lab import datasets

NAMES = [dataset.name for dataset in data_files.describe()]
LOADERS: dict[str, Callable[[], object]] = {
    "intel-temperature": datasets.load_intel_temperature,
    "cmu-light": datasets.load_cmu_light,
    "metr-la-week": datasets.load_metr_la,
    "tokyo-checkins": datasets.load_tokyo_checkins,
    "movielens": datasets.load_movielens,
    "movielens-25m": datasets.load_movielens_25m,
    "wind-profiles": datasets.load_lidar_winds,
    # read by superarm.roads.networks, found here
    "luxembourg-roads": lambda: data_files.find("luxembourg-roads"),
    "monaco-roads": lambda: data_files.find("monaco-roads"),
}


def require(name: str) -> None:
    try:
        data_files.find(name)
    except MissingDataError:
        pytest.skip(f"{name} is not at hand")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder that is the only one looked into."""
    monkeypatch.setattr(data_files, "search_path", lambda: [tmp_path])
    for dataset in data_files.describe():
        for file in dataset.files:
            (tmp_path / file).parent.mkdir(exist_ok=True)
    return tmp_path


def write_xz(path: Path, text: str) -> Path:
    path.write_bytes(lzma.compress(text.encode()))
    return path


# --- the catalogue -----------------------------------------------------------------------


def test_every_set_states_origin_and_terms() -> None:
    assert set(NAMES) == set(LOADERS)
    for dataset in data_files.describe():
        assert dataset.origin
        assert dataset.terms
        assert all(not Path(file).is_absolute() for file in dataset.files)


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUPERARM_DATA", str(tmp_path / "mine"))
    with pytest.raises(
        InputError, match=r"SUPERARM_DATA is .*mine, but there is no such folder"
    ):
        data_files.search_path()
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = data_files.search_path()
    assert path[0] == tmp_path / "mine"
    assert path[-1] == tmp_path / "cache" / "superarm"
    for folder in path[1:-1]:
        assert folder.parts[-2:] == ("shared", "data")

    file = "cmu_light/iw_data_all.mat"
    for folder in reversed([path[0], path[-1]]):
        (folder / file).parent.mkdir(parents=True)
        (folder / file).touch()
        monkeypatch.setattr(data_files, "search_path", lambda: [path[0], path[-1]])
        assert data_files.find("cmu-light") == folder / file


def test_files_are_those_of_the_sets_own_list(folder: Path) -> None:
    net = folder / "most" / "most.net.xml.xz"
    net.touch()
    (folder / "most" / "another.net.xml.xz").touch()
    assert data_files.find("monaco-roads", ending=".net.xml.xz") == net
    with pytest.raises(InputError, match=r"no file of monaco-roads ends in '\.osm'"):
        data_files.find("monaco-roads", ending=".osm")


def test_the_cache_without_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("SUPERARM_DATA", raising=False)
    assert data_files.search_path()[-1] == Path("~/.cache/superarm").expanduser()


@pytest.mark.parametrize("name", NAMES)
def test_missing_data_raise_with_advice(name: str, folder: Path) -> None:
    dataset = next(item for item in data_files.describe() if item.name == name)
    with pytest.raises(MissingDataError) as caught:
        LOADERS[name]()
    message = str(caught.value)
    for part in (
        dataset.files[0],
        dataset.command or dataset.origin,
        dataset.terms,
        "SUPERARM_DATA",
        str(folder),
    ):
        assert part in message


def test_unknown_name() -> None:
    with pytest.raises(InputError, match="unknown data set 'lust'; choose one of"):
        data_files.find("lust")


# --- damaged files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 3\n", "line 1: 3 numbers, but 52"),
        (
            " ".join(["20"] * 52) + "\n" + " ".join(["20"] * 51) + " x\n",
            "line 2: could not convert",
        ),
        (
            " ".join(["20"] * 52) + "\n" + " ".join(["20"] * 51) + " nan\n",
            "line 2: every number",
        ),
        (" ".join(["20"] * 52) + "\n", "1 rows, but 14400"),
        ("", "0 rows, but 14400"),
    ],
)
def test_damaged_temperatures(folder: Path, text: str, message: str) -> None:
    path = write_xz(folder / "intel_lab/intel_temp_30s_52x14400.txt.xz", text)
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_intel_temperature()
    assert str(path) in str(caught.value)


SENSORS = ",".join(map(str, range(207))) + "\n"
SPEEDS = ",".join(["60"] * 207) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: 0 different sensors, but 207"),
        (SPEEDS, "line 1: 1 different sensors, but 207"),
        (SENSORS + SPEEDS + "1,2\n", "line 3: 2 numbers, but 207"),
        (SENSORS + SPEEDS + SPEEDS.replace("60", "x", 1), "line 3: could not convert"),
        (SENSORS + SPEEDS.replace("60", "inf", 1), "line 2: every number"),
        (SENSORS + SPEEDS, "1 rows, but 2016"),
        (
            SENSORS + SPEEDS * 9 + SPEEDS.replace("60", "0", 1) + SPEEDS * 2006,
            "line 11: 0 means",
        ),
        (SENSORS + SPEEDS * 2016, "all rows are equal"),
    ],
)
def test_damaged_speeds(folder: Path, text: str, message: str) -> None:
    path = write_xz(folder / "traffic/metr_la_los_speed_1week.csv.xz", text)
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_metr_la()
    assert str(path) in str(caught.value)


COMPRESSED = lzma.compress(b"userId,latitude,longitude\n" + b"1,35,139\n" * 1000)


@pytest.mark.parametrize(
    "content",
    [b"not xz", COMPRESSED[:-30], lzma.compress(b"\xff")],
    ids=["no xz", "cut short", "no utf-8"],
)
def test_files_that_cannot_be_unpacked(folder: Path, content: bytes) -> None:
    (folder / "foursquare/tky_first_checkins.csv.xz").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        datasets.load_tokyo_checkins()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header has no latitude, longitude"),
        ("userId,latitude\n", "line 1: the header has no longitude"),
        ("userId,latitude,longitude\n", "no check-ins"),
        ("userId,latitude,longitude\n1,35,139\n1,35\n", "line 3: "),
        ("userId,latitude,longitude\n1,35,139\n1,x,139\n", "line 3: could not convert"),
        ("userId,latitude,longitude\n1,nan,139\n", "line 2: not a place on Earth"),
        ("userId,latitude,longitude\n1,139,35\n", "line 2: not a place on Earth"),
    ],
)
def test_damaged_checkins(folder: Path, text: str, message: str) -> None:
    write_xz(folder / "foursquare/tky_first_checkins.csv.xz", text)
    with pytest.raises(InputError, match=message):
        datasets.load_tokyo_checkins()


def test_checkins_are_read_by_column_name(folder: Path) -> None:
    write_xz(
        folder / "foursquare/tky_first_checkins.csv.xz",
        'longitude,userId,note,latitude\n139.5,7,"a, b",35.5\n139.75,8,,35.25\n',
    )
    places = datasets.load_tokyo_checkins()
    np.testing.assert_array_equal(places, [[139.5, 35.5], [139.75, 35.25]])


def test_damaged_light(folder: Path) -> None:
    from scipy.io import savemat

    path = folder / "cmu_light/iw_data_all.mat"
    path.write_bytes(b"not a MATLAB file")
    with pytest.raises(InputError, match="not the expected MATLAB structure"):
        datasets.load_cmu_light()
    part = {"sensordata": np.zeros((3, 2))}
    savemat(path, {"data": {"train": part, "test": part, "coords": np.zeros((2, 2))}})
    with pytest.raises(
        InputError, match=r"train.sensordata must be a finite array \(601, 41\)"
    ):
        datasets.load_cmu_light()


PARTS = [
    f"{height}m {axis}-wind (m/s)" for height in range(40, 201, 20) for axis in "XY"
]
COLUMNS = ",".join(["Timestamp", "Position", *PARTS]) + "\n"
WINDS = ",".join(["", "4", *["3", "4"] * 8]) + "\n"
STAMPS = [
    f"2020-{1 + day // 28:02}-{1 + day % 28:02} {hour:02}:00:00"
    for day in range(90)
    for hour in range(24)
]
LIDAR = [
    f"{stamp},135.0,{place % 5}" + WINDS for place, stamp in enumerate(STAMPS[:2148])
]


def wind_files(
    folder: Path, lidar: str = "", shapes: str = "", levels: str = ""
) -> list[Path]:
    """The three files, which are looked for together."""
    (plain := folder / "wind/era5_levels_10-1600m.txt").write_text(
        levels, encoding="utf-8"
    )
    return [
        write_xz(folder / "wind/fgw_lidar_hourly_40-200m.csv.xz", lidar),
        write_xz(folder / "wind/era5_52N4E_2011_clusters_10-500m.yml.xz", shapes),
        plain,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header has no 100m X-wind"),
        (
            COLUMNS.replace(",80m Y", ",81m Y"),
            r"line 1: the header has no 80m Y-wind \(m/s\)",
        ),
        (COLUMNS + LIDAR[0] + "2020-01-01,135\n", "line 3: 2 of 20 entries"),
        (COLUMNS + LIDAR[0].replace("3", "x"), "line 2: could not convert"),
        (COLUMNS + LIDAR[0].replace(",4", ",nan"), "line 2: every number"),
        (COLUMNS + "".join(LIDAR[:-1]), "2147 rows, but 2148"),
        (COLUMNS + "".join([*LIDAR[:-1], "yesterday,135.0,1" + WINDS]), "yesterday"),
        (
            COLUMNS + "".join([*LIDAR[:9], LIDAR[7], *LIDAR[9:-1]]),
            "line 11: it is earlier",
        ),
    ],
)
def test_damaged_winds(folder: Path, text: str, message: str) -> None:
    path, *_ = wind_files(folder, text)
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_lidar_winds()
    assert str(path) in str(caught.value)


def listed(numbers: Sequence[float]) -> str:
    return "".join(f"  - {number!r}\n" for number in numbers)


def shapes_text(**changed: Sequence[float]) -> str:
    """Shapes as the file has them: lists of numbers under keys, three deep for the shares."""
    parts: dict[str, Sequence[float]] = {
        "altitudes": [10.0 * step for step in range(1, 51)],
        "along": [3.0] * 400,
        "across": [-4.0] * 400,
        "speeds": [0.5 * step for step in range(1, 52)],
        "directions": [36.0 * step for step in range(11)],
        "data": [float(step % 7) for step in range(4000)],
        **changed,
    }
    text = "metadata:\n  name: ERA5\n  altitude_range:\n  - 10\n  - 500\n"
    text += "altitudes:\n" + listed(parts["altitudes"])
    text += "wind_speed_bins:\n  bin_edges:\n" + listed(parts["speeds"])
    text += (
        "wind_direction_bins:\n  bin_edges:\n"
        + listed(parts["directions"])
        + "profiles:\n"
    )
    for first in range(0, 400, 50):
        text += f"- id: {first}\n  u_normalized:\n" + listed(
            parts["along"][first : first + 50]
        )
        text += "  v_normalized:\n" + listed(parts["across"][first : first + 50])
    text += "probability_matrix:\n  description: how often\n    (% of all)\n  data:\n"
    for place, number in enumerate(parts["data"]):
        dashes = "- " * (1 + (place % 10 == 0) + (place % 500 == 0))
        text += f"  {dashes}{number!r}\n"
    return text


LEVELS = "# heights\n" + "".join(f"{10 * number}\n" for number in range(1, 26))


def test_wind_shapes_are_read_from_their_lists(folder: Path) -> None:
    wind_files(folder, "", shapes_text(), LEVELS)
    shapes = datasets.load_wind_shapes()
    np.testing.assert_array_equal(shapes.heights, 10.0 * np.arange(1, 51))
    np.testing.assert_array_equal(shapes.speeds, np.full((8, 50), 5.0))
    np.testing.assert_array_equal(shapes.bins, 0.5 * np.arange(1, 52))
    np.testing.assert_array_equal(shapes.shares.ravel(), np.arange(4000) % 7)
    np.testing.assert_array_equal(shapes.levels, 10.0 * np.arange(1, 26))
    assert shapes.shares.shape == (8, 50, 10)


@pytest.mark.parametrize(
    ("shapes", "levels", "message"),
    [
        ("", LEVELS, "altitudes must be 50 finite numbers"),
        (
            shapes_text(altitudes=[1.0] * 49),
            LEVELS,
            "altitudes must be 50 finite numbers",
        ),
        (
            shapes_text(altitudes=[1.0] * 50),
            LEVELS,
            "heights and speeds must be above 0 and rise",
        ),
        (
            shapes_text(along=[float("nan")] * 400),
            LEVELS,
            "u_normalized must be 400 finite numbers",
        ),
        (
            shapes_text(along=[0.0] * 400, across=[0.0] * 400),
            LEVELS,
            "speeds must be above 0",
        ),
        (
            shapes_text(speeds=[1.0] * 51),
            LEVELS,
            "heights and speeds must be above 0 and rise",
        ),
        (shapes_text(data=[-1.0] * 4000), LEVELS, "shares 0 or more, not all 0"),
        (shapes_text(data=[0.0] * 4000), LEVELS, "shares 0 or more, not all 0"),
        (
            shapes_text().replace("- 490.0", "- low"),
            LEVELS,
            "line 55: could not convert",
        ),
        (shapes_text(), LEVELS.replace("250\n", ""), "24 rows, but 25"),
        (shapes_text(), LEVELS.replace("250", "high"), "line 26: could not convert"),
        (
            shapes_text(),
            LEVELS.replace("250", "200"),
            "heights and speeds must be above 0 and rise",
        ),
    ],
)
def test_damaged_wind_shapes(
    folder: Path, shapes: str, levels: str, message: str
) -> None:
    _, first, second = wind_files(folder, "", shapes, levels)
    with pytest.raises(InputError, match=message) as caught:
        datasets.load_wind_shapes()
    assert str(second if levels != LEVELS else first) in str(caught.value)


# --- the real files ----------------------------------------------------------------------


def test_intel_temperature() -> None:
    require("intel-temperature")
    data = datasets.load_intel_temperature()
    assert data.shape == (14_400, len(datasets.INTEL_MOTES))
    assert not {5, 15} & set(datasets.INTEL_MOTES)
    assert np.count_nonzero(data < 5.0) == 20
    assert not data.flags.writeable


def test_metr_la() -> None:
    """Days 3 and 4 have no morning rush: the week starts on a Thursday, as 1 March 2012 was."""
    require("metr-la-week")
    data = datasets.load_metr_la()
    assert data.speeds.shape == (2016, 207)
    assert len(data.ids) == 207
    assert not data.speeds.flags.writeable
    assert data.speeds.min() > 0.0
    assert data.speeds.max() == 70.0
    at_eight = data.speeds.reshape(7, 24, 12, 207)[:, 8].mean(axis=(1, 2))
    assert sorted(np.argsort(at_eight)[-2:]) == [2, 3]
    assert min(at_eight[2:4]) > 11.0 + max(np.delete(at_eight, [2, 3]))


def test_cmu_light() -> None:
    require("cmu-light")
    data = datasets.load_cmu_light()
    assert data.train.shape == (601, 41)
    assert data.test.shape == (192, 41)
    assert data.train.dtype == np.float64


def test_tokyo_checkins() -> None:
    require("tokyo-checkins")
    data = datasets.load_tokyo_checkins()
    assert data.shape == (8261, 2)
    longitude, latitude = data.T
    assert 139 < longitude.min() < longitude.max() < 140
    assert 35 < latitude.min() < latitude.max() < 36


def test_movielens() -> None:
    require("movielens")
    film, viewer, stars, genres = datasets.load_movielens()
    assert len(film) == 100_836
    assert viewer.max() + 1 == 610
    assert genres.shape == (9742, 20)
    assert genres.sum(axis=1).max() == 10
    assert (stars.min(), stars.max()) == (0.5, 5.0)


def test_lidar_winds() -> None:
    require("wind-profiles")
    data = datasets.load_lidar_winds()
    assert data.speeds.shape == (2148, len(datasets.LIDAR_HEIGHTS))
    assert (str(data.hours[0]), str(data.hours[-1])) == (
        "2020-01-01T00",
        "2020-03-31T23",
    )
    assert len(np.unique(data.hours)) == 2142
    means = data.speeds.mean(axis=0)
    assert (np.diff(means) > 0.0).all()
    assert means[3] == pytest.approx(7.71, abs=0.01)
    assert not data.speeds.flags.writeable


def test_wind_shapes() -> None:
    """Shapes are relative to 200 m, and their shares are percentages of all hours."""
    require("wind-profiles")
    data = datasets.load_wind_shapes()
    assert data.shares.sum() == pytest.approx(100.0)
    np.testing.assert_allclose(data.speeds[:, data.heights == 200.0], 1.0)
    assert (data.levels[0], data.levels[-1]) == (10.0, 1600.04)
    assert data.heights[-1] == 500.0
