"""Closed roads as GeoJSON: what a feature closes.

- A property ``edge``: an id, a street's name, or a list of these; the geometry is then not looked at.
- A LineString or MultiLineString: the edges that run along it, in both directions.
- A Polygon or MultiPolygon: the edges of which some part lies in it.

Anything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core import Ints
from superarm.core.errors import FileError, InputError
from superarm.core.files import read_text
from superarm.roads.networks.pieces import Budget
from superarm.roads.networks.places import Places

_KINDS = ("LineString", "MultiLineString", "Polygon", "MultiPolygon")
_MOST_BYTES = 1 << 25  # 32 MiB: a million corners


def read_closures(path: str | Path) -> Any:
    """The GeoJSON of a file."""
    try:
        return json.loads(read_text(path, most=_MOST_BYTES))
    except FileError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileError(f"{path} cannot be read as GeoJSON: {reason}") from None


def closed_by(geojson: Any, places: Places, budget: Budget | None = None) -> Ints:
    """The numbers of the edges that it closes, sorted; ``budget`` bounds the work for all of it."""
    found: list[Ints] = [np.empty(0, dtype=np.intp)]
    budget = budget or Budget()
    for number, (properties, geometry) in enumerate(_features(geojson), start=1):
        try:
            found += _closed(properties, geometry, places, budget)
        except InputError as error:
            raise FileError(f"closures, feature {number}: {error}") from None
    return np.unique(np.concatenate(found))


def _features(geojson: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [geojson]  # the next one last
    while waiting:
        each = waiting.pop()
        kind = each.get("type") if isinstance(each, dict) else None
        if kind == "FeatureCollection" and isinstance(each.get("features"), list):
            waiting += reversed(each["features"])
        elif kind == "Feature":
            yield each.get("properties") or {}, each.get("geometry")
        elif kind in _KINDS:
            yield {}, each
        else:
            raise FileError(
                "closures must be GeoJSON: a FeatureCollection, a Feature, or one of "
                f"{', '.join(_KINDS)}; got {_shortly(each)}"
            )


def _shortly(value: Any) -> str:
    """The beginning of a value from a file, which may be large or nested beyond what Python shows."""
    try:
        return f"{value!r:.60}"
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"


def _closed(
    properties: Any, geometry: Any, places: Places, budget: Budget
) -> Iterator[Ints]:
    named = properties.get("edge") if isinstance(properties, dict) else None
    if named is not None:
        yield from (
            places.street(str(each))
            for each in (named if isinstance(named, list) else [named])
        )
        return
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in _KINDS:
        raise InputError(
            f"its geometry is {kind!r}; give one of {', '.join(_KINDS)}, or a property 'edge'"
        )
    area = kind.endswith("Polygon")
    given = geometry.get("coordinates")
    for part in _several(given) if kind.startswith("Multi") else [given]:
        if area:
            yield places.within([_line(ring) for ring in _several(part)], budget)
        else:
            yield places.along(_line(part), budget)


def _several(given: Any) -> list[Any]:
    return (
        given if isinstance(given, list) and given else [given]
    )  # which is then refused


def _line(given: Any) -> list[list[float]]:
    """Longitudes and latitudes; a height that follows them is left out."""
    try:
        line = [[float(place[0]), float(place[1])] for place in given]
    except (TypeError, ValueError, OverflowError, IndexError, KeyError):
        line = []
    if len(line) < 2 or not all(
        abs(lon) <= 180.0 and abs(lat) <= 90.0 for lon, lat in line
    ):
        raise InputError(
            "its coordinates must be two or more places, each longitude then latitude in degrees, "
            f"got {_shortly(given)}"
        )
    return line
