"""The maps of a run on roads: the network with its trips, where policies drove, their beliefs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints
from superarm.core.road_map import RoadMap
from superarm.lab.simulation.run import Run

from .axes import ticks
from .formats import count_text, significant
from .pictures import Layer, Map, Picture, TripEnds, Window
from .roads import (
    TripKey,
    best_policy,
    trip_key,
    trip_name,
    trip_settings,
    usual_route,
    visits,
)
from .styles import shade

# The least visits of each class of roads; classes differ in colour.
_CLASSES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
# A and B are blue and red, as in the paper.
_ROUTES = ("#0060c8", "#d62728", "#009e73", "#b0409f")
_ENDS = "#d55e00"
_MOST_ASPECT = 3.0  # of a window, so that panels keep a useful shape


class _Trip(NamedTuple):
    """A trip on a network, and the best route found for it."""

    name: str
    roads: RoadMap
    route: Ints


def networks_picture(runs: Sequence[Run]) -> Picture | None:
    """Draw every network of some runs once, with all trips on it and their best routes.

    The best route is the one driven most often in the last tenth of the rounds by the
    policy that had least regret there. A trip that several runs make is drawn with the
    route of the first of them.

    Args:
        runs: The runs.
    """
    panels = []
    colours: dict[str, str] = {}  # of trips, by name
    for trips in _trips_by_network(runs):
        for position, trip in enumerate(trips):
            colours[trip.name] = _ROUTES[position % len(_ROUTES)]
        panels.append(_network_panel(trips))
    if not panels:
        return None
    return Picture(
        name="networks",
        panels=tuple(panels),
        caption="The best routes found; a disc marks a first road, a square a last one.",
        columns=2,
        key=tuple((colour, name) for name, colour in colours.items()),
    )


def _trips_by_network(runs: Sequence[Run]) -> Iterator[list[_Trip]]:
    settings = []
    for run in runs:
        settings += [(run, index) for index in trip_settings(run)]
    settings.sort(key=lambda setting: trip_name(*setting))
    networks: dict[bytes, dict[TripKey, _Trip]] = {}
    for run, index in settings:
        roads = _roads(run, index)
        if not roads.ends:
            continue
        key = trip_key(roads)
        trips = networks.setdefault(key.network, {})
        if key not in trips:
            policy = best_policy(run, index)
            route = usual_route(run, policy, index, run.seeds[0])
            trips[key] = _Trip(trip_name(run, index), roads, route)
    for trips in networks.values():
        yield [*trips.values()]


def _network_panel(trips: Sequence[_Trip]) -> Map:
    roads = trips[0].roads
    layers = []
    ends = []
    for position, trip in enumerate(trips):
        colour = _ROUTES[position % len(_ROUTES)]
        layers.append(Layer(trip.route, colour, 4.0))
        ends.append(TripEnds(trip.roads.start, trip.roads.goal, colour))
    return Map(
        title=", ".join(trip.name for trip in trips),
        note=count_text(len(roads), "edge"),
        roads=roads,
        window=window_around(roads, np.arange(len(roads)), margin=0.02),
        layers=tuple(layers),
        ends=tuple(ends),
    )


def visit_pictures(run: Run, policies: Sequence[str]) -> list[Picture]:
    """For every trip, draw where policies drove in the first seed.

    Args:
        run: The run.
        policies: Names of the policies to draw.
    """
    return [_visits(run, index, policies) for index in trip_settings(run)]


def uncertainty_pictures(run: Run) -> list[Picture]:
    """For every trip, draw what learners are still unsure of after the first seed.

    Args:
        run: The run.
    """
    pictures = []
    for index in trip_settings(run):
        stds_by_policy = {}
        for policy in run.policies:
            audit = run.audit(policy, index, run.seeds[0])
            if audit and "std" in audit:
                stds_by_policy[policy] = audit["std"].astype(np.float64)
        if stds_by_policy:
            pictures.append(_uncertainty_picture(run, index, stds_by_policy))
    return pictures


class _Panel(NamedTuple):
    """One policy's map of a trip."""

    title: str
    note: str
    layers: tuple[Layer, ...]


def _visits(run: Run, index: int, policies: Sequence[str]) -> Picture:
    roads = _roads(run, index)
    seed = run.seeds[0]
    counts = {
        policy: visits(run, policy, index, seed, len(roads)) for policy in policies
    }
    most = max(int(count.max(initial=0)) for count in counts.values())
    limits = [float(least) for least in _CLASSES if least <= max(most, 1)]
    panels = []
    for policy, count in counts.items():
        note = f"distinct edges: {np.count_nonzero(count):,}"
        panels.append(_Panel(policy, note, _layers(count, limits, (1.25, 4.0))))
    ends = "; the disc marks the first road, the square the last" if roads.ends else ""
    return _trip_picture(
        run,
        index,
        "exploration",
        window_around(roads, np.flatnonzero(sum(counts.values()))),
        panels,
        _class_labels(limits),
        f"Visits in {run.rounds:,} rounds of seed {seed}{ends}. Grey roads were never used.",
    )


def _class_labels(limits: Sequence[float]) -> list[str]:
    """``1``, ``2–4``, ``5+``: the numbers of visits in each class."""
    labels = []
    for least, next_least in pairwise(limits):
        last = next_least - 1.0
        labels.append(f"{least:g}–{last:g}" if last > least else f"{least:g}")
    return [*labels, f"{limits[-1]:g}+"]


def _uncertainty_picture(
    run: Run, index: int, stds_by_policy: Mapping[str, Floats]
) -> Picture:
    roads = _roads(run, index)
    # A few edges are far more uncertain than all others; they take the last colour.
    stds = np.concatenate(list(stds_by_policy.values()))
    high = float(np.quantile(stds, 0.98))
    highest = max(high, 1e-12)
    limits = [0.0]
    limits += [tick for tick in ticks(0.0, highest)[1:] if tick < highest]
    panels = []
    for policy, std in stds_by_policy.items():
        median = float(np.median(std))
        note = f"median {significant(median)} Wh"
        # The most certain roads lie on top.
        layers = _layers(std, limits, (1.2, 1.2))[::-1]
        panels.append(_Panel(policy, note, layers))
    return _trip_picture(
        run,
        index,
        "uncertainty",
        window_around(roads, np.arange(len(roads)), margin=0.02),
        panels,
        [f"from {significant(limit)} Wh" for limit in limits],
        f"Standard deviation of each edge's energy after {run.rounds:,} rounds, seed {run.seeds[0]}.",
    )


def _layers(
    values: NDArray[np.generic], limits: Sequence[float], widths: tuple[float, float]
) -> tuple[Layer, ...]:
    """Edges in classes; those below the first limit are in none."""
    count = len(limits)
    classes = np.searchsorted(limits, values, side="right") - 1
    class_widths = np.linspace(*widths, count)
    layers = []
    for position in range(count):
        edges = np.flatnonzero(classes == position)
        if len(edges):
            width = float(class_widths[position])
            layers.append(Layer(edges, shade(position, count), width))
    return tuple(layers)


def _trip_picture(
    run: Run,
    index: int,
    name: str,
    window: Window,
    panels: Sequence[_Panel],
    labels: Sequence[str],
    caption: str,
) -> Picture:
    """Maps of one trip; ``labels`` explain the shades, from light to dark."""
    roads = _roads(run, index)
    ends: tuple[TripEnds, ...] = ()
    if roads.ends:
        ends = (TripEnds(roads.start, roads.goal, _ENDS),)
    maps = [
        Map(panel.title, panel.note, roads, window, panel.layers, ends)
        for panel in panels
    ]
    key = [
        (shade(position, len(labels)), label) for position, label in enumerate(labels)
    ]
    return Picture(
        name=f"{name}-{index}" if len(run.settings) > 1 else name,
        panels=tuple(maps),
        heading=trip_name(run, index),
        caption=caption,
        columns=3,
        key=tuple(key),
    )


def _roads(run: Run, index: int) -> RoadMap:
    roads = run.road_map(index)
    assert roads is not None  # ``trip_settings`` returns settings with roads only
    return roads


# --- geometry ----------------------------------------------------------------------------


def window_around(roads: RoadMap, driven: Ints, margin: float = 0.06) -> Window:
    """Return the window around some edges and the trip's ends.

    Args:
        roads: All roads.
        driven: The edges; if there are none and no ends, the window shows all roads.
        margin: Room on each side, as a share of the window's size.
    """
    driven = np.asarray(driven, dtype=np.intp)
    shown = np.concatenate([driven, roads.ends])
    edges = np.unique(shown).astype(np.intp)
    if len(edges) == 0:
        edges = np.arange(len(roads))
    courses = [roads.course(edge) for edge in edges]
    points = np.concatenate(courses)  # (p, 2)
    low = points.min(axis=0)
    high = points.max(axis=0)
    size = np.maximum(high - low, 1.0)  # width and height
    height_and_width = size[::-1]
    size = np.maximum(size, height_and_width / _MOST_ASPECT)
    size = size * (1.0 + 2.0 * margin)
    width, height = size
    left, bottom = (low + high - size) / 2.0
    return Window(
        left=float(left),
        bottom=float(bottom),
        width=float(width),
        height=float(height),
    )


def in_window(roads: RoadMap, window: Window) -> Ints:
    """Return the edges whose bounding box meets the window.

    Args:
        roads: All roads.
        window: The window.
    """
    starts = roads.offsets[:-1]
    low = np.minimum.reduceat(roads.points, starts)  # (n, 2)
    high = np.maximum.reduceat(roads.points, starts)
    lower_left = np.array([window.left, window.bottom])
    size = np.array([window.width, window.height])
    upper_right = lower_left + size
    not_before = (high >= lower_left).all(axis=1)
    not_beyond = (low <= upper_right).all(axis=1)
    return np.flatnonzero(not_before & not_beyond)


def middle(course: Floats) -> tuple[float, float]:
    """Return the point half-way along a course.

    Args:
        course: Its points in metres, (q, 2).
    """
    x, y = course.T
    x_steps = np.diff(x)
    y_steps = np.diff(y)
    lengths = np.hypot(x_steps, y_steps)  # of its straight pieces
    ends = np.cumsum(lengths)
    along = np.append(0.0, ends)  # the way to each point
    half = along[-1] / 2.0
    middle_x = np.interp(half, along, x)
    middle_y = np.interp(half, along, y)
    return float(middle_x), float(middle_y)


def round_length(longest: float) -> float:
    """Return the largest of 1, 2 or 5 times a power of ten that is not above a length.

    Args:
        longest: The length in metres.

    >>> round_length(730.0)
    500.0
    """
    power = 10.0 ** np.floor(np.log10(longest))
    for factor in (5.0, 2.0):
        if factor * power <= longest * (1 + 1e-9):
            return float(power * factor)
    return float(power)


def length_text(metres: float) -> str:
    """``500 m``, ``2 km``.

    Args:
        metres: The length.
    """
    return f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
