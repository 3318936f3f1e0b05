"""Ratings and genres of the small MovieLens set, and the list of films of both sets."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.data_files import find
from superarm.core.errors import FileError
from superarm.core.inputs import read_only

from .reading import csv_rows, parse_number


class Ratings(NamedTuple):
    """Who gave which film how many stars; films and viewers are numbered from 0."""

    film: Ints  # (r,)
    viewer: Ints  # (r,)
    stars: Floats  # (r,), from 0.5 to 5
    genres: Bools  # (films, genres)


class FilmList(NamedTuple):
    """The films that MovieLens lists."""

    numbers: tuple[str, ...]  # movieId, in the order of the file
    genres: Bools  # (films, genres)


def load_movielens() -> Ratings:
    """Ratings and genres of the small MovieLens set."""
    ratings = find("movielens")
    movies = find("movielens", ending="movies.csv.xz")
    return _read_ratings(ratings, movies)


@lru_cache(maxsize=1)
def _read_ratings(ratings: Path, movies: Path) -> Ratings:
    film_list = read_films(movies)
    films = {number: index for index, number in enumerate(film_list.numbers)}
    viewers: dict[str, int] = {}  # numbered in the order of the file
    stars_of: dict[tuple[int, int], float] = {}  # by film and viewer
    for line, words in csv_rows(ratings, "userId", "movieId", "rating"):
        viewer, film, text = words
        if film not in films:
            raise FileError(f"{ratings}, line {line}: {movies.name} has no film {film}")
        pair = (films[film], viewers.setdefault(viewer, len(viewers)))
        stars = parse_number(ratings, line, text)
        if not 0.0 < stars <= 5.0:
            raise FileError(
                f"{ratings}, line {line}: stars must be above 0 and at most 5, got {text}"
            )
        if pair in stars_of:
            raise FileError(
                f"{ratings}, line {line}: viewer {viewer} has rated film {film} already"
            )
        stars_of[pair] = stars
    if not stars_of:
        raise FileError(f"{ratings}: no ratings; download it again")
    film_indices, viewer_indices = np.array(list(stars_of), dtype=np.intp).T
    return Ratings(
        film=read_only(film_indices),
        viewer=read_only(viewer_indices),
        stars=read_only(np.array(list(stars_of.values()))),
        genres=read_only(film_list.genres),
    )


def read_films(path: Path) -> FilmList:
    """Read the numbers and genres of films.

    Args:
        path: The file ``movies.csv``, plain or packed.
    """
    genres_of: dict[str, list[str]] = {}  # by movieId
    for line, words in csv_rows(path, "movieId", "genres"):
        number, names_of_genres = words
        if number in genres_of:
            raise FileError(
                f"{path}, line {line}: film {number} is listed twice; download it again"
            )
        genres_of[number] = names_of_genres.split("|")
    if not genres_of:
        raise FileError(f"{path}: no films; download it again")
    distinct: set[str] = set()
    for genres in genres_of.values():
        distinct.update(genres)
    names = sorted(distinct)
    table = [[name in genres for name in names] for genres in genres_of.values()]
    return FilmList(tuple(genres_of), np.array(table, np.bool_))
