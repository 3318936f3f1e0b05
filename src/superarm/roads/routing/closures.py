"""Closed roads as GeoJSON.

A feature closes:

- With a property ``edge`` (an id, a street's name, or a list of these): those; its geometry is ignored.
- As a LineString or MultiLineString: the edges that run along it, in both directions.
- As a Polygon or MultiPolygon: the edges of which some part lies in it.

Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Ints
from superarm.core.display import shorten
from superarm.core.errors import FileError, InputError
from superarm.core.files import read_json
from superarm.roads.networks.pieces import Budget
from superarm.roads.networks.places import Places

_KINDS = ("LineString", "MultiLineString", "Polygon", "MultiPolygon")
_MOST_BYTES = 1 << 25  # 32 MiB: a million corners


def read_closures(path: str | Path) -> Any:
    """The GeoJSON of a file.

    Args:
        path: The file.
    """
    return read_json(path, most=_MOST_BYTES, content="GeoJSON")


def closed_by(geojson: Any, places: Places, budget: Budget | None = None) -> Ints:
    """The numbers of the edges that GeoJSON closes, sorted.

    Args:
        geojson: The parsed GeoJSON.
        places: The network's edges by place and by name.
        budget: Bounds the work for all features.
    """
    budget = budget or Budget()
    no_edges: Ints = np.empty(0, dtype=np.intp)
    edges = [no_edges]
    features = _features(geojson)
    for number, feature in enumerate(features, start=1):
        try:
            edges += _closed_by_feature(feature, places, budget)
        except InputError as error:
            raise FileError(f"closures, feature {number}: {error}") from None
    return np.unique(np.concatenate(edges))


class _Feature(NamedTuple):
    properties: Any
    geometry: Any


def _features(geojson: Any) -> Iterator[_Feature]:
    """The features of GeoJSON, nested collections included."""
    waiting = [geojson]  # the next one last
    while waiting:
        value = waiting.pop()
        kind = value.get("type") if isinstance(value, dict) else None
        if kind == "FeatureCollection" and isinstance(value.get("features"), list):
            waiting += reversed(value["features"])
        elif kind == "Feature":
            yield _Feature(value.get("properties") or {}, value.get("geometry"))
        elif kind in _KINDS:
            yield _Feature({}, value)
        else:
            raise FileError(
                "closures must be GeoJSON: a FeatureCollection, a Feature, or one of "
                f"{', '.join(_KINDS)}; got {shorten(value)}"
            )


def _closed_by_feature(
    feature: _Feature, places: Places, budget: Budget
) -> Iterator[Ints]:
    """The edges that a feature closes, part by part."""
    properties, geometry = feature
    names = None
    if isinstance(properties, dict):
        names = properties.get("edge")
    if names is not None:
        if not isinstance(names, list):
            names = [names]
        for name in names:
            yield places.street(str(name))
        return
    kind = None
    if isinstance(geometry, dict):
        kind = geometry.get("type")
    if kind not in _KINDS:
        raise InputError(
            f"its geometry is {kind!r}; give one of {', '.join(_KINDS)}, or a property 'edge'"
        )
    coordinates = geometry.get("coordinates")
    parts = [coordinates]
    if kind.startswith("Multi"):
        parts = _as_list(coordinates)
    for part in parts:
        if kind.endswith("Polygon"):
            rings = [_line(ring) for ring in _as_list(part)]
            yield places.within(rings, budget)
        else:
            yield places.along(_line(part), budget)


def _as_list(value: Any) -> list[Any]:
    """A list that is not empty; anything else becomes an item, which is then refused."""
    return value if isinstance(value, list) and value else [value]


def _is_place(place: Any) -> bool:
    """Whether a value is a list that begins with two numbers."""
    if not isinstance(place, list) or len(place) < 2:
        return False
    return all(
        type(number) in (int, float) and abs(number) < 1e9 for number in place[:2]
    )


def _line(coordinates: Any) -> list[list[float]]:
    """Longitudes and latitudes; a height that follows them is left out."""
    line: list[list[float]] = []
    if isinstance(coordinates, list) and all(map(_is_place, coordinates)):
        line = [[float(place[0]), float(place[1])] for place in coordinates]
    is_on_earth = True
    for longitude, latitude in line:
        if not (abs(longitude) <= 180.0 and abs(latitude) <= 90.0):
            is_on_earth = False
    if len(line) < 2 or not is_on_earth:
        raise InputError(
            "its coordinates must be two or more places, each longitude then latitude in degrees, "
            f"got {shorten(coordinates)}"
        )
    return line
