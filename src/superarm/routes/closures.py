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
from superarm.errors import FileError, InputError
from superarm.files import read_text
from superarm.networks.places import Places

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


def closed_by(geojson: Any, places: Places) -> Ints:
    """The numbers of the edges that it closes, sorted."""
    found: list[Ints] = [np.empty(0, dtype=np.intp)]
    for at, (properties, geometry) in enumerate(_features(geojson), start=1):
        try:
            found += _closed(properties, geometry, places)
        except InputError as error:
            raise FileError(f"closures, feature {at}: {error}") from None
    return np.unique(np.concatenate(found))


def _features(geojson: Any) -> Iterator[tuple[Any, Any]]:
    kind = geojson.get("type") if isinstance(geojson, dict) else None
    if kind == "FeatureCollection" and isinstance(geojson.get("features"), list):
        for feature in geojson["features"]:
            yield from _features(feature)
    elif kind == "Feature":
        yield geojson.get("properties") or {}, geojson.get("geometry")
    elif kind in _KINDS:
        yield {}, geojson
    else:
        raise FileError(
            f"closures must be GeoJSON: a FeatureCollection, a Feature, or one of {', '.join(_KINDS)}; "
            f"not {geojson!r:.60}"
        )


def _closed(properties: Any, geometry: Any, places: Places) -> Iterator[Ints]:
    named = properties.get("edge") if isinstance(properties, dict) else None
    if named is not None:
        yield from (
            places.street(str(each)) for each in (named if isinstance(named, list) else [named])
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
        yield places.within(list(map(_line, _several(part)))) if area else places.along(_line(part))


def _several(given: Any) -> list[Any]:
    return given if isinstance(given, list) and given else [given]  # which is then refused


def _line(given: Any) -> list[list[float]]:
    """Longitudes and latitudes; a height that follows them is left out."""
    try:
        line = [[float(place[0]), float(place[1])] for place in given]
    except (TypeError, ValueError, OverflowError, IndexError, KeyError):
        line = []
    if len(line) < 2 or not all(abs(lon) <= 180.0 and abs(lat) <= 90.0 for lon, lat in line):
        raise InputError(
            f"its coordinates are {given!r:.60}; a line needs two or more places, each longitude and "
            "latitude in degrees (GeoJSON has longitude first)"
        )
    return line
