"""Readers of the data sets that :mod:`superarm.core.data_files` finds.

They return what a file says, unrepaired; a damaged file is refused with its name and line.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, wraps
from io import TextIOWrapper
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.compressed import open_packed
from superarm.core.data_files import find
from superarm.core.errors import FileError, InputError
from superarm.core.inputs import read_only

Data = TypeVar("Data")


def _of(
    name: str, *endings: str
) -> Callable[[Callable[..., Data]], Callable[[], Data]]:
    """Decorator of a reader: it is given these files of a data set, and asked once for each place."""

    def found(read: Callable[..., Data]) -> Callable[[], Data]:
        kept = lru_cache(maxsize=1)(read)

        @wraps(read)
        def load() -> Data:
            return kept(*(find(name, ending=ending) for ending in endings or ("",)))

        return load

    return found


# --- Intel Berkeley lab ------------------------------------------------------------------

INTEL_MOTES = tuple(
    mote for mote in range(1, 55) if mote not in (5, 15)
)  # the 52 sensors' own numbers


@_of("intel-temperature")  # parsing takes about 0.2 s; experiments ask once per seed
def load_intel_temperature(path: Path) -> Floats:
    """The Intel lab's temperatures in °C as recorded (a few are glitches near 0), (14400, 52).

    One row every 30 seconds, 2880 a day; a column for each of ``INTEL_MOTES``.
    """
    with _open_text(path) as lines:
        words = ((number, line.split()) for number, line in enumerate(lines, start=1))
        return _number_table(path, words, columns=len(INTEL_MOTES), rows=14_400)


def _number_table(
    path: Path, told: Iterable[tuple[int, list[str]]], columns: int, rows: int
) -> Floats:
    """The numbers in lines of words, each with its number, (rows, columns)."""
    table: list[list[float]] = []
    for number, words in told:
        row = [_number(path, number, word) for word in words]
        if len(row) != columns:
            raise FileError(
                f"{path}, line {number}: {len(row)} numbers, but {columns} are expected"
            )
        if not all(map(isfinite, row)):
            raise FileError(f"{path}, line {number}: every number must be finite")
        table.append(row)
    if len(table) != rows:
        raise FileError(
            f"{path}: {len(table)} rows, but {rows} are expected; download it again"
        )
    if all(row == table[0] for row in table):
        raise FileError(
            f"{path}: all rows are equal, so that no reading varies; download it again"
        )
    return read_only(np.array(table))


# --- METR-LA -----------------------------------------------------------------------------


class TrafficSpeeds(NamedTuple):
    """Speeds on the motorways of Los Angeles, in miles an hour."""

    ids: tuple[str, ...]  # the 207 sensors' own numbers
    speeds: Floats  # (2016, 207), a row every 5 minutes, 288 a day


@_of("metr-la-week")
def load_metr_la(path: Path) -> TrafficSpeeds:
    """One week of the METR-LA speeds. 0 means a missing reading there; these were filled in before."""
    with _open_text(path) as lines:
        rows = csv.reader(lines)
        ids = tuple(next(rows, []))
        if len(set(ids)) != 207:
            raise FileError(
                f"{path}, line 1: {len(set(ids))} different sensors, but 207 are expected"
            )
        speeds = _number_table(
            path, ((rows.line_num, row) for row in rows), columns=207, rows=2016
        )
    if (speeds <= 0.0).any():
        line = int(np.argmax((speeds <= 0.0).any(axis=1))) + 2
        raise FileError(
            f"{path}, line {line}: 0 means a missing reading, and none is expected"
        )
    return TrafficSpeeds(ids, speeds)


# --- CMU light ---------------------------------------------------------------------------


class LightReadings(NamedTuple):
    """Readings of the CMU light sensors, in the data's own units."""

    train: Floats  # (601, 41)
    test: Floats  # (192, 41)


@_of("cmu-light")
def load_cmu_light(path: Path) -> LightReadings:
    """Read the CMU light sensors."""
    from scipy.io import loadmat

    try:
        data: Any = loadmat(path, squeeze_me=True, struct_as_record=False)["data"]
        arrays = (np.array(part.sensordata, float) for part in (data.train, data.test))
        readings = LightReadings(*map(read_only, arrays))
    except (
        Exception
    ) as error:  # a damaged MATLAB file fails in many ways, with many types
        raise FileError(
            f"{path}: not the expected MATLAB structure data.train, data.test "
            f"({type(error).__name__}: {error}); download it again"
        ) from error
    for name, array, rows in (
        ("train", readings.train, 601),
        ("test", readings.test, 192),
    ):
        if array.shape != (rows, 41) or not np.isfinite(array).all():
            raise FileError(
                f"{path}: data.{name}.sensordata must be a finite array {(rows, 41)}; download it again"
            )
    return readings


# --- Tokyo check-ins ---------------------------------------------------------------------


@_of("tokyo-checkins")
def load_tokyo_checkins(path: Path) -> Floats:
    """Longitude and latitude of the Tokyo check-ins in degrees, in the order of the file, (n, 2)."""
    places: list[tuple[float, float]] = []
    for line, longitude, latitude in _rows(path, "longitude", "latitude"):
        place = _number(path, line, longitude), _number(path, line, latitude)
        if not (abs(place[0]) <= 180.0 and abs(place[1]) <= 90.0):  # NaN fails as well
            raise FileError(f"{path}, line {line}: not a place on Earth: {place}")
        places.append(place)
    if not places:
        raise FileError(f"{path}: no check-ins; download it again")
    return read_only(np.array(places))


# --- MovieLens ---------------------------------------------------------------------------


class Ratings(NamedTuple):
    """Who gave which film how many stars; films and viewers are numbered from 0."""

    film: Ints  # (r,)
    viewer: Ints  # (r,)
    stars: Floats  # (r,), from 0.5 to 5
    genres: Bools  # (films, genres)


@_of("movielens", "", "movies.csv.xz")
def load_movielens(ratings: Path, movies: Path) -> Ratings:
    """Ratings and genres of the small MovieLens set."""
    catalogue = _read_films(movies)
    films = {number: place for place, number in enumerate(catalogue.numbers)}
    viewers: dict[str, int] = {}
    table: dict[tuple[int, int], float] = {}
    for line, viewer, film, stars in _rows(ratings, "userId", "movieId", "rating"):
        if film not in films:
            raise FileError(f"{ratings}, line {line}: {movies.name} has no film {film}")
        pair = films[film], viewers.setdefault(viewer, len(viewers))
        given = _number(ratings, line, stars)
        if not 0.0 < given <= 5.0:
            raise FileError(
                f"{ratings}, line {line}: stars must be above 0 and at most 5, got {stars}"
            )
        if pair in table:
            raise FileError(
                f"{ratings}, line {line}: viewer {viewer} has rated film {film} already"
            )
        table[pair] = given
    if not table:
        raise FileError(f"{ratings}: no ratings; download it again")
    film_of, viewer_of = np.array(list(table), dtype=np.intp).T
    stars_of = np.array(list(table.values()))
    return Ratings(*map(read_only, (film_of, viewer_of, stars_of, catalogue.genres)))


def load_movielens_25m(first_year: int = 1995) -> Ratings:
    """Ratings and genres of MovieLens 25M, as ``ml-25m.zip`` unpacks.

    The file has 25 million lines and is read in blocks: only ratings that are wanted stay in memory.

    Args:
        first_year: the first year (UTC) whose ratings are read; the oldest are from 1995.
    """
    ratings, movies = find("movielens-25m"), find("movielens-25m", ending="movies.csv")
    if not 1970 <= first_year <= 2100:
        raise InputError(f"first_year must lie between 1970 and 2100, got {first_year}")
    start = int(np.datetime64(f"{first_year}-01-01", "s").astype(np.int64))
    catalogue = _read_films(movies)
    try:
        numbers = np.array(
            [int(number) for number in catalogue.numbers], dtype=np.int64
        )
    except (ValueError, OverflowError) as error:
        raise FileError(
            f"{movies}: a movieId is not a whole number, or is too large ({error}); download it again"
        ) from None
    if len(np.unique(numbers)) < len(numbers):
        raise FileError(
            f"{movies}: a film is there twice, with its number spelled differently"
        )
    wanted = [block[block["timestamp"] >= start] for block in _rating_blocks(ratings)]
    table = np.concatenate(wanted) if wanted else np.empty(0, _RATING)
    if not len(table):
        raise FileError(f"{ratings}: no ratings from {first_year} on; lower first_year")
    order = np.argsort(numbers)
    place = np.minimum(
        np.searchsorted(numbers[order], table["movieId"]), len(numbers) - 1
    )
    film = order[place]
    unknown = numbers[film] != table["movieId"]
    if unknown.any():
        number = int(table["movieId"][unknown.argmax()])
        raise FileError(
            f"{ratings}: {movies.name} has no film {number}; download both again"
        )
    viewers, viewer = np.unique(table["userId"], return_inverse=True)
    pairs = np.sort(viewer * len(numbers) + film)
    repeated = pairs[1:] == pairs[:-1]
    if repeated.any():
        twice = int(viewers[pairs[1:][repeated.argmax()] // len(numbers)])
        raise FileError(
            f"{ratings}: viewer {twice} has rated a film twice; download it again"
        )
    stars = table["rating"].astype(np.float64)
    return Ratings(
        *map(read_only, (film, viewer.astype(np.intp), stars, catalogue.genres))
    )


_RATING = np.dtype(
    [
        ("userId", np.int32),
        ("movieId", np.int32),
        ("rating", np.float32),
        ("timestamp", np.int64),
    ]
)
_BLOCK = 500_000  # lines read at a time: about 60 MB
_SHOWN = 60  # letters of a line that an error shows


def _rating_blocks(path: Path) -> Iterator[NDArray[Any]]:
    """The ratings of MovieLens 25M, in the order of the file."""
    with _open_text(path) as lines:
        header = next(lines, "").strip()
        if header != ",".join(_RATING.names or ()):
            names = ",".join(_RATING.names or ())
            message = f"the header must be {names}, got {header!r}"
            raise FileError(f"{path}, line 1: {message}; download it again")
        first = 2
        while block := list(islice(lines, _BLOCK)):
            try:
                table = _rating_table(block)
            except ValueError:
                line = first + _first_unreadable(block)
                wanted = ",".join(_RATING.names or ())
                text = block[line - first].strip()[:_SHOWN]
                message = f"{wanted} must be four numbers, got {text!r}"
                raise FileError(
                    f"{path}, line {line}: {message}; download it again"
                ) from None
            if len(table) != len(block):
                line = first + next(
                    place for place, text in enumerate(block) if not text.strip()
                )
                raise FileError(f"{path}, line {line}: it is empty; download it again")
            if not block[-1].endswith("\n"):
                line = first + len(block) - 1
                raise FileError(
                    f"{path}, line {line}: cut off, as no new line follows; download it again"
                )
            stars = table["rating"]
            wrong = ~((stars > 0.0) & (stars <= 5.0))
            if wrong.any():
                where = int(wrong.argmax())
                message = f"stars must be above 0 and at most 5, got {stars[where]:g}"
                raise FileError(f"{path}, line {first + where}: {message}")
            yield table
            first += len(block)


def _rating_table(lines: Sequence[str]) -> NDArray[Any]:
    return np.loadtxt(lines, delimiter=",", dtype=_RATING, ndmin=1, comments=None)


def _first_unreadable(lines: Sequence[str]) -> int:
    """Which of the lines is the first that is no rating: there is one."""
    fine, upper = (
        0,
        len(lines),
    )  # the first `fine` lines can be read, the first `upper` cannot
    while upper - fine > 1:
        middle = (fine + upper) // 2
        try:
            _rating_table(lines[fine:middle])
        except ValueError:
            upper = middle
        else:
            fine = middle
    return fine


class _Films(NamedTuple):
    """The films that MovieLens lists."""

    numbers: tuple[str, ...]  # movieId, in the order of the file
    genres: Bools  # (films, genres)


def _read_films(path: Path) -> _Films:
    marks: dict[str, list[str]] = {}
    for line, number, genres in _rows(path, "movieId", "genres"):
        if number in marks:
            raise FileError(
                f"{path}, line {line}: film {number} is listed twice; download it again"
            )
        marks[number] = genres.split("|")
    if not marks:
        raise FileError(f"{path}: no films; download it again")
    names = sorted({name for each in marks.values() for name in each})
    has = np.array(
        [[name in each for name in names] for each in marks.values()], np.bool_
    )
    return _Films(tuple(marks), has)


# --- wind --------------------------------------------------------------------------------


LIDAR_HEIGHTS = tuple(range(40, 201, 20))  # in m


class LidarWinds(NamedTuple):
    """Wind speeds over one place, in m/s; some hours are missing, some are there twice."""

    hours: NDArray[np.datetime64]  # (2148,), one after another
    speeds: Floats  # (2148, 9), a column for each of ``LIDAR_HEIGHTS``


class WindShapes(NamedTuple):
    """Typical profiles of the wind, and how often each of them occurs."""

    heights: Floats  # (50,), in m
    speeds: Floats  # (8, 50), relative to the speed at 200 m
    bins: Floats  # (51,), edges of the classes of the speed at 200 m, in m/s
    shares: Floats  # (8, 50, 10), of shape, speed and direction: percent of all hours
    levels: Floats  # (25,), heights of the lowest levels of the model, in m


@_of("wind-profiles")
def load_lidar_winds(path: Path) -> LidarWinds:
    """Hourly winds at nine heights."""
    parts = [
        f"{height}m {axis}-wind (m/s)" for height in LIDAR_HEIGHTS for axis in "XY"
    ]
    rows = list(_rows(path, "Timestamp", *parts))
    table = _number_table(
        path, ((line, words) for line, _, *words in rows), len(parts), rows=2148
    )
    try:
        hours = np.array([stamp for _, stamp, *_ in rows], dtype="datetime64[h]")
    except ValueError as error:
        raise FileError(f"{path}: {error}; download it again") from None
    if (back := hours[1:] < hours[:-1]).any():
        raise FileError(
            f"{path}, line {rows[int(back.argmax()) + 1][0]}: it is earlier than the line above"
        )
    return LidarWinds(
        read_only(hours), read_only(np.hypot(table[:, ::2], table[:, 1::2]))
    )


@_of("wind-profiles", ".yml.xz", ".txt")
def load_wind_shapes(path: Path, levels: Path) -> WindShapes:
    """Eight shapes of wind profiles from 10 to 500 m, and 25 levels from 10 to 1600 m."""
    # Of YAML it has only "key: …" and lists of numbers; those of one key follow each other.
    found: dict[str, list[float]] = {}
    values: list[float] = []
    with _open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            key, colon, _ = line.partition(":")
            if colon:
                values = found.setdefault(key.strip("- "), [])
            elif line.lstrip().startswith("- "):
                values.append(_number(path, number, line.replace("- ", "")))
    sizes = {
        "altitudes": 50,
        "u_normalized": 400,
        "v_normalized": 400,
        "bin_edges": 62,
        "data": 4000,
    }
    for key, size in sizes.items():
        if len(found.get(key, ())) != size or not all(map(isfinite, found[key])):
            raise FileError(
                f"{path}: {key} must be {size} finite numbers; download it again"
            )
    heights, along, across, edges, shares = (np.array(found[key]) for key in sizes)
    with _open_text(levels) as lines:
        words = ((number, line.split()) for number, line in enumerate(lines, start=1))
        table = _number_table(
            levels, (each for each in words if each[1][:1] != ["#"]), 1, 25
        )
    for file, rising in ((path, heights), (path, edges[:51]), (levels, table[:, 0])):
        if rising[0] <= 0.0 or (np.diff(rising) <= 0.0).any():
            raise FileError(
                f"{file}: heights and speeds must be above 0 and rise; download it again"
            )
    speeds = np.hypot(along, across).reshape(8, 50)
    if speeds.min() <= 0.0 or shares.min() < 0.0 or not shares.any():
        told = "speeds must be above 0, and shares 0 or more, not all 0"
        raise FileError(f"{path}: {told}; download it again")
    parts = (heights, speeds, edges[:51], shares.reshape(8, 50, 10), table[:, 0])
    return WindShapes(*map(read_only, parts))


# --- reading -----------------------------------------------------------------------------


@contextmanager
def _open_text(path: Path) -> Iterator[TextIOWrapper]:
    """A text file, plain or ``.xz``; what cannot be unpacked or decoded is a file error."""
    with open_packed(path) as raw, TextIOWrapper(raw, encoding="utf-8-sig") as lines:
        try:
            yield lines
        except (lzma.LZMAError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise FileError(
                f"{path}: cannot be read ({error}); download it again"
            ) from error


def _number(path: Path, line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise FileError(f"{path}, line {line}: {error}") from None


def _rows(path: Path, *names: str) -> Iterator[tuple[Any, ...]]:
    """Number of every line after the header, and its entries in the columns of these names."""
    with _open_text(path) as lines:
        rows = csv.reader(lines)
        header = next(rows, [])
        if missing := set(names) - set(header):
            raise FileError(
                f"{path}, line 1: the header has no {', '.join(sorted(missing))}"
            )
        columns = [header.index(name) for name in names]
        for row in rows:
            if len(row) < len(header):
                raise FileError(
                    f"{path}, line {rows.line_num}: {len(row)} of {len(header)} entries"
                )
            yield rows.line_num, *(row[column] for column in columns)
