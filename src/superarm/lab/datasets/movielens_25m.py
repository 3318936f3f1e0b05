"""Ratings and genres of MovieLens 25M."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Ints
from superarm.core.data_files import find
from superarm.core.errors import FileError, InputError
from superarm.core.inputs import read_only

from .movielens import FilmList, Ratings, read_films
from .reading import open_text

_RATING = np.dtype(
    [
        ("userId", np.int32),
        ("movieId", np.int32),
        ("rating", np.float32),
        ("timestamp", np.int64),
    ]
)
_HEADER = "userId,movieId,rating,timestamp"
_BLOCK = 500_000  # lines read at a time: about 60 MB
_SHOWN = 60  # characters of a line that an error shows


def load_movielens_25m(first_year: int = 1995) -> Ratings:
    """Ratings and genres of MovieLens 25M, as ``ml-25m.zip`` unpacks.

    The file has 25 million lines and is read in blocks, so that only ratings from
    ``first_year`` on stay in memory.

    Args:
        first_year: The first year (UTC) whose ratings are read; the oldest are from 1995.
    """
    ratings = find("movielens-25m")
    movies = find("movielens-25m", ending="movies.csv")
    if not 1970 <= first_year <= 2100:
        raise InputError(f"first_year must lie between 1970 and 2100, got {first_year}")
    film_list = read_films(movies)
    numbers = _film_numbers(movies, film_list)
    table = _read_since(ratings, first_year)
    film = _film_indices(ratings, movies, numbers, table["movieId"])
    viewers, viewer = np.unique(table["userId"], return_inverse=True)
    pairs = np.sort(viewer * len(numbers) + film)
    repeated = pairs[1:] == pairs[:-1]
    if repeated.any():
        pair = pairs[1:][repeated.argmax()]
        number = int(viewers[pair // len(numbers)])
        raise FileError(
            f"{ratings}: viewer {number} has rated a film twice; download it again"
        )
    return Ratings(
        film=read_only(film),
        viewer=read_only(viewer.astype(np.intp)),
        stars=read_only(table["rating"].astype(np.float64)),
        genres=read_only(film_list.genres),
    )


def _film_numbers(movies: Path, film_list: FilmList) -> NDArray[np.int64]:
    """Every movieId as a number, in the order of the file."""
    try:
        integers = [int(number) for number in film_list.numbers]
        numbers = np.array(integers, dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise FileError(
            f"{movies}: a movieId is not a whole number, or is too large ({error}); download it again"
        ) from None
    if len(np.unique(numbers)) < len(numbers):
        raise FileError(
            f"{movies}: a film is there twice, with its number spelled differently"
        )
    return numbers


def _read_since(ratings: Path, first_year: int) -> NDArray[Any]:
    """Ratings from a year on, as a structured array."""
    new_year = np.datetime64(f"{first_year}-01-01", "s")
    start = int(new_year.astype(np.int64))  # seconds since 1970
    tables = [np.empty(0, _RATING)]
    for block in _rating_blocks(ratings):
        recent = block["timestamp"] >= start
        tables.append(block[recent])
    table = np.concatenate(tables)
    if not len(table):
        raise FileError(f"{ratings}: no ratings from {first_year} on; lower first_year")
    return table


def _film_indices(
    ratings: Path, movies: Path, numbers: NDArray[np.int64], rated: NDArray[np.int32]
) -> Ints:
    """Positions of the rated films in the list of films."""
    order = np.argsort(numbers)
    places = np.searchsorted(numbers[order], rated)
    film = order[np.minimum(places, len(numbers) - 1)]
    unknown = numbers[film] != rated
    if unknown.any():
        number = int(rated[unknown.argmax()])
        raise FileError(
            f"{ratings}: {movies.name} has no film {number}; download both again"
        )
    return film


def _rating_blocks(path: Path) -> Iterator[NDArray[Any]]:
    """The ratings as structured arrays, in the order of the file."""
    with open_text(path) as lines:
        header = next(lines, "").strip()
        if header != _HEADER:
            raise FileError(
                f"{path}, line 1: the header must be {_HEADER}, got {header!r}; download it again"
            )
        first = 2  # the number of the block's first line
        while block := list(islice(lines, _BLOCK)):
            yield _parse_block(path, first, block)
            first += len(block)


def _parse_block(path: Path, first: int, lines: Sequence[str]) -> NDArray[Any]:
    """Parse and check lines, of which the first has the number ``first``."""
    try:
        table = _rating_table(lines)
    except ValueError:
        index = _first_unreadable(lines)
        text = lines[index].strip()[:_SHOWN]
        raise FileError(
            f"{path}, line {first + index}: {_HEADER} must be four numbers, got {text!r}; "
            "download it again"
        ) from None
    if len(table) != len(lines):
        blank = [index for index, line in enumerate(lines) if not line.strip()]
        raise FileError(
            f"{path}, line {first + blank[0]}: it is empty; download it again"
        )
    if not lines[-1].endswith("\n"):
        last = first + len(lines) - 1
        raise FileError(
            f"{path}, line {last}: cut off, as no new line follows; download it again"
        )
    stars = table["rating"]
    wrong = ~((stars > 0.0) & (stars <= 5.0))
    if wrong.any():
        index = int(wrong.argmax())
        raise FileError(
            f"{path}, line {first + index}: stars must be above 0 and at most 5, got {stars[index]:g}"
        )
    return table


def _rating_table(lines: Sequence[str]) -> NDArray[Any]:
    return np.loadtxt(lines, delimiter=",", dtype=_RATING, ndmin=1, comments=None)


def _first_unreadable(lines: Sequence[str]) -> int:
    """The position of the first line that is no rating: there is one."""
    readable = 0  # so many lines at the beginning can be read
    unreadable = len(lines)  # so many cannot
    while unreadable - readable > 1:
        middle = (readable + unreadable) // 2
        try:
            _rating_table(lines[readable:middle])
        except ValueError:
            unreadable = middle
        else:
            readable = middle
    return readable
