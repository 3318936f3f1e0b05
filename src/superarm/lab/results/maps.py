"""The maps of a run on roads: the network with its trips, where policies drove, what they know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints
from superarm.core.road_map import RoadMap
from superarm.lab.simulation.run import Run

from .axes import ticks
from .formats import count_text, significant
from .pictures import Layer, Map, Picture, Window
from .roads import best_policy, trip_key, trip_name, trip_settings, usual_route, visits
from .styles import shade

_CLASSES = (
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
)  # least visits of classes told apart by colour
_ROUTES = (
    "#0060c8",
    "#d62728",
    "#009e73",
    "#b0409f",
)  # A and B blue and red, as in the paper
_ENDS = "#d55e00"


def networks_picture(runs: Sequence[Run]) -> Picture | None:
    """Every network of some runs once, with all trips on it and the best route that was found.

    That is the one driven most often in the last tenth of the rounds by the policy that had least
    regret there. A trip that several runs make is drawn with the route of the first of them.
    """
    networks: dict[bytes, dict[tuple[int, int], tuple[str, RoadMap, Ints]]] = {}
    trips = [
        (run, at) for run in runs for at in trip_settings(run) if _roads(run, at).ends
    ]
    for run, index in sorted(trips, key=lambda trip: trip_name(*trip)):
        roads = _roads(run, index)
        network, start, goal = trip_key(roads)
        found = networks.setdefault(network, {})
        if (start, goal) not in found:
            route = usual_route(run, best_policy(run, index), index, run.seeds[0])
            found[start, goal] = trip_name(run, index), roads, route
    if not networks:
        return None
    panels, key = [], dict[str, str]()
    for found in networks.values():
        names, maps, routes = zip(*found.values(), strict=True)
        colours = [_ROUTES[place % len(_ROUTES)] for place in range(len(names))]
        key |= dict(zip(names, colours, strict=True))
        window = window_around(maps[0], np.arange(len(maps[0])), margin=0.02)
        layers = tuple(
            Layer(route, each, 4.0) for route, each in zip(routes, colours, strict=True)
        )
        ends = tuple((*trip, each) for trip, each in zip(found, colours, strict=True))
        note = count_text(len(maps[0]), "edge")
        panels.append(Map(", ".join(names), note, maps[0], window, layers, ends))
    caption = "The best routes that were found; a disc is a start, a square a goal."
    told = tuple((colour, name) for name, colour in key.items())
    return Picture(
        name="networks", panels=tuple(panels), caption=caption, columns=2, key=told
    )


def visit_pictures(run: Run, policies: Sequence[str]) -> list[Picture]:
    """For every trip, where policies drove in the first seed."""
    return [_visits(run, index, policies) for index in trip_settings(run)]


def doubt_pictures(run: Run) -> list[Picture]:
    """For every trip, what learners are still unsure of after the first seed."""
    pictures = []
    for index in trip_settings(run):
        audits = {
            policy: run.audit(policy, index, run.seeds[0]) for policy in run.policies
        }
        known = {
            policy: each for policy, each in audits.items() if each and "std" in each
        }
        if doubts := {
            policy: each["std"].astype(np.float64) for policy, each in known.items()
        }:
            pictures.append(_doubts(run, index, doubts))
    return pictures


def _visits(run: Run, index: int, policies: Sequence[str]) -> Picture:
    roads, seed = _roads(run, index), run.seeds[0]
    counts = {each: visits(run, each, index, seed, len(roads)) for each in policies}
    most = max(int(each.max(initial=0)) for each in counts.values())
    limits = [float(least) for least in _CLASSES if least <= max(most, 1)]
    window = window_around(roads, np.flatnonzero(sum(counts.values())))
    panels = {
        (policy, f"distinct edges: {np.count_nonzero(count):,}"): _layers(
            count, limits, (1.25, 4.0)
        )
        for policy, count in counts.items()
    }
    key = []
    for least, limit in zip(limits, [*limits[1:], np.inf], strict=True):
        last = limit - 1.0
        key.append(
            f"{least:g}+"
            if np.isinf(limit)
            else f"{least:g}" + f"–{last:g}" * (last > least)
        )
    ends = "; the disc is the start, the square the goal" * bool(roads.ends)
    caption = f"Visits in {run.rounds:,} rounds of seed {seed}{ends}. Grey roads were never used."
    return _trip_picture(run, index, "exploration", window, panels, key, caption)


def _doubts(run: Run, index: int, doubts: Mapping[str, Floats]) -> Picture:
    roads = _roads(run, index)
    # A few edges are far more uncertain than all others; they take the last colour.
    highest = max(
        float(np.quantile(np.concatenate(list(doubts.values())), 0.98)), 1e-12
    )
    limits = [0.0, *(tick for tick in ticks(0.0, highest)[1:] if tick < highest)]
    window = window_around(roads, np.arange(len(roads)), margin=0.02)
    panels = {}
    for policy, std in doubts.items():
        layers = _layers(std, limits, (1.2, 1.2))[::-1]  # what is known lies on top
        panels[policy, f"median {significant(float(np.median(std)))} Wh"] = layers
    key = [f"from {significant(limit)} Wh" for limit in limits]
    caption = f"Standard deviation of each edge's energy after {run.rounds:,} rounds, seed {run.seeds[0]}."
    return _trip_picture(run, index, "uncertainty", window, panels, key, caption)


def _layers(
    values: NDArray[np.generic], limits: Sequence[float], widths: tuple[float, float]
) -> tuple[Layer, ...]:
    """Edges in classes; those below the first limit are in none."""
    classes, count = np.searchsorted(limits, values, side="right") - 1, len(limits)
    wide = np.linspace(*widths, count)
    return tuple(
        Layer(np.flatnonzero(classes == place), shade(place, count), float(wide[place]))
        for place in range(count)
        if np.any(classes == place)
    )


def _trip_picture(
    run: Run,
    index: int,
    name: str,
    window: Window,
    panels: Mapping[tuple[str, str], tuple[Layer, ...]],
    key: Sequence[str],
    caption: str,
) -> Picture:
    """Maps of one trip; ``panels`` has the layers of each by its title and note."""
    name += f"-{index}" if len(run.settings) > 1 else ""
    roads, heading = _roads(run, index), trip_name(run, index)
    ends = ((roads.start, roads.goal, _ENDS),) if roads.ends else ()
    maps = tuple(
        Map(*told, roads, window, layers, ends) for told, layers in panels.items()
    )
    shades = tuple((shade(place, len(key)), text) for place, text in enumerate(key))
    return Picture(
        name=name, panels=maps, heading=heading, caption=caption, columns=3, key=shades
    )


def _roads(run: Run, index: int) -> RoadMap:
    roads = run.road_map(index)
    assert roads is not None  # ``trip_settings`` names settings with roads alone
    return roads


# --- geometry ----------------------------------------------------------------------------


def window_around(roads: RoadMap, driven: Ints, margin: float = 0.06) -> Window:
    """Around the edges driven on and the trip's ends, at most three times as wide as high or
    the reverse, so that panels keep a useful shape."""
    edges = np.unique(
        np.concatenate([np.asarray(driven, dtype=np.intp), roads.ends])
    ).astype(np.intp)
    shown = (
        edges if len(edges) else np.arange(len(roads))
    )  # nothing was driven: all roads
    points = np.concatenate([roads.course(edge) for edge in shown])
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.maximum(high - low, 1.0)
    size = np.maximum(size, size[::-1] / 3.0) * (1.0 + 2.0 * margin)
    left, bottom = (low + high - size) / 2.0
    return Window(float(left), float(bottom), float(size[0]), float(size[1]))


def in_window(roads: RoadMap, window: Window) -> Ints:
    """Edges whose bounding box meets the window."""
    low, high = (
        of.reduceat(roads.points, roads.offsets[:-1]) for of in (np.minimum, np.maximum)
    )
    corner = np.array([window.left, window.bottom])
    reach = corner + np.array([window.width, window.height])
    return np.flatnonzero((high >= corner).all(axis=1) & (low <= reach).all(axis=1))


def middle(course: Floats) -> tuple[float, float]:
    """The point half-way along a course."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(course, axis=0).T))])
    half = along[-1] / 2.0
    return float(np.interp(half, along, course[:, 0])), float(
        np.interp(half, along, course[:, 1])
    )


def round_length(longest: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is not above ``longest`` metres.

    >>> round_length(730.0)
    500.0
    """
    power = 10.0 ** np.floor(np.log10(longest))
    return float(
        power
        * next(step for step in (5.0, 2.0, 1.0) if step * power <= longest * (1 + 1e-9))
    )


def length_text(metres: float) -> str:
    return f"{metres / 1000:g} km" if metres >= 1000 else f"{metres:g} m"
