"""The points and clocks of GPS traces: checked, in metres, and split where they jump."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_features, as_vector
from superarm.roads.networks.geography import COMPLEX, mercator, pairs
from superarm.roads.networks.line_graph import LineGraph
from superarm.roads.networks.road import RoadNetwork

# Seconds without a point, above which a trace is split.
_PAUSE = 120.0
# m/s and metres between points, above both of which a trace is split.
_FASTEST = 70.0
_FAR = 200.0
# Terms of a cubic: its powers 0 to 3.
_CUBIC = 4
# Metres by which longitudes and latitudes may disagree with x and y.
_FITS = 1.0


def pieces_of(graph: LineGraph, places: Any, times: Any) -> list[slice]:
    """Split a trace at jumps of its clock or of its places.

    A clock jumps where the time between two points is above two minutes and ten times the usual: what
    happened meanwhile is not known, and a counter must not be interpolated there. Places jump where the
    vehicle would have been faster than 250 km/h over more than 200 m.

    Args:
        graph: The roads.
        places: Longitudes and latitudes in degrees, (p, 2); x and y in metres if the network has no
            geographic reference.
        times: Rising, in seconds, (p,).
    """
    clock = as_rising(times, "times")
    points = as_features(places, "places", columns=2)
    if graph.network.lon_lat is not None:
        points = to_metres(graph.network, points)
    seconds = np.diff(clock)
    if not len(seconds):
        return [slice(0, len(clock))]
    steps = np.diff(points, axis=0)
    metres = norms(steps)
    usual_pause = np.median(seconds)
    longest_pause = np.maximum(_PAUSE, 10.0 * usual_pause)
    is_late = seconds > longest_pause
    is_far = metres > _FAR
    is_too_fast = metres > _FASTEST * seconds
    is_jump = is_late | (is_far & is_too_fast)
    jumps = np.flatnonzero(is_jump) + 1
    ends = [0, *jumps.tolist(), len(clock)]
    return [slice(begin, end) for begin, end in pairwise(ends)]


def as_rising(values: Any, name: str, length: int | None = None) -> Floats:
    """Return a vector of rising numbers, or raise an error if they are none.

    Args:
        values: The numbers.
        name: What errors call them.
        length: How many there must be; by default any number.
    """
    vector = as_vector(values, name, length)
    falls = np.flatnonzero(np.diff(vector) <= 0.0)
    if len(falls):
        first = falls[0]
        before = vector[first]
        after = vector[first + 1]
        raise InputError(
            f"{name} must rise, but {after:g} follows {before:g}; sort the log by time"
        )
    return vector


def to_metres(network: RoadNetwork, lon_lat: Floats) -> Floats:
    """Return x and y of longitudes and latitudes on the network's own map, (p, 2).

    Both this map and Mercator's are conformal: one is an analytic function of the other. A cubic
    through the junctions is right to a centimetre over 100 km of UTM.

    Args:
        network: The roads.
        lon_lat: Degrees, (p, 2).
    """
    known = mercator(network.on_earth("; pass places in metres"))  # (j,)
    target = network.junctions[:, :2] @ COMPLEX  # (j,)
    middle = known.mean()
    offsets = known - middle
    scale = np.abs(offsets).max() or 1.0
    terms_used = min(_CUBIC, len(known))
    powers = np.arange(terms_used)
    unit = offsets / scale
    terms = unit[:, None] ** powers
    factors, *_ = np.linalg.lstsq(terms, target)
    errors = np.abs(terms @ factors - target)
    error = errors.max()
    if error > _FITS:
        raise InputError(
            f"{network.name}: longitudes and latitudes are up to {error:.1f} m off its x and y; "
            "give places in metres"
        )
    points = mercator(lon_lat)
    point_unit = (points - middle) / scale
    point_terms = point_unit[:, None] ** powers
    return pairs(point_terms @ factors)


def norms(vectors: Floats) -> Floats:
    """Return the lengths of vectors, (…, 2)."""
    x = vectors[..., 0]
    y = vectors[..., 1]
    lengths: Floats = np.hypot(x, y)
    return lengths
