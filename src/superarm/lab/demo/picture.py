"""The learning as one animated SVG: the city with each trip, and the energy of the trips."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from superarm.core import Ints
from superarm.core.road_map import RoadMap
from superarm.lab.report.svg import Plane
from superarm.lab.results.axes import spread_labels
from superarm.lab.results.maps import window_around

from .learning import City, Frame


class _Box(NamedTuple):
    """A part of the picture, in pixels."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height


_FRAMES = 24  # at most
_TURN = 0.35  # seconds that a frame is shown
_PAUSE = 1.5  # more seconds for the last one
_WIDTH = 900  # pixels
_HEIGHT = 520
_MAP = _Box(20, 44, 540, 456)
_CHART = _Box(630.0, 60.0, 180.0, 250.0)
_TEXT_LEFT = _CHART.left - 50.0  # of all texts above and below the chart
_HALVES = 2  # roads are written in half pixels: whole numbers are short
_STYLE = "".join(
    files(__package__).joinpath("learning.css").read_text(encoding="utf-8").splitlines()
)
_LEVELS = 5  # classes of height, from low to high: h0 … h4 in learning.css


class _RoadClass(NamedTuple):
    least_speed: float  # its least speed limit, in m/s
    width: float  # of its line, in pixels


_ROAD_CLASSES = (_RoadClass(24.0, 2.4), _RoadClass(13.0, 1.3), _RoadClass(0.0, 0.7))
_LABELS = {"prior": "model alone", "best": "best route"}


def animated_svg(city: City, frames: Sequence[Frame], seed: int, seeds: int) -> str:
    """Draw the map on the left, the energy of every trip on the right.

    A still shows the last frame. The picture names its seed, because tables beside it have the
    mean of all.

    Args:
        city: The city.
        frames: All trips.
        seed: The seed of the trips.
        seeds: The number of seeds in the tables.
    """
    chosen = _select_frames(frames)
    count = len(chosen)
    city_map = _Map(city.roads)
    chart = _Chart(city, frames)
    tried = ""
    routes = ""
    trips = ""
    previous = 0  # the trip of the frame before
    for index, frame in enumerate(chosen):
        since = frames[previous : frame.step]
        previous = frame.step
        new_edges = np.concatenate([trip.new_edges for trip in since])
        new_roads = city_map.path(new_edges, "tried")
        route = city_map.route(frame.route)
        captions = _captions(frame, city, frames[-1].step)
        tried += _animate(new_roads, index, count, stays=True)
        routes += _animate(route, index, count, stays=False)
        trips += _animate(chart.trips(since), index, count, stays=True)
        trips += _animate(captions, index, count, stays=False)
    roads = city_map.background() + tried + routes + city_map.ends()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'class="chart learning" role="img" font-family="system-ui,sans-serif" font-size="13">'
        "<title>A car learns the route of least energy through a city, trip by trip</title>"
        f'<style>{_STYLE}</style><rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
        + _heading(_MAP.left, "The city, and today's trip")
        + _heading(_TEXT_LEFT, f"What each trip took (seed {seed})")
        + _text(_TEXT_LEFT, 46.0, f"one of {seeds} seeds; their energies differ")
        + f"{city_map.inside(roads)}{chart.background()}{trips}{_legend()}</svg>"
    )


def _animate(body: str, index: int, count: int, *, stays: bool) -> str:
    """A group that shows from its turn on, or only in its turn.

    Where nothing moves, the end shows.

    Args:
        body: What the group contains.
        index: The turn.
        count: The number of turns.
        stays: Whether it shows after its turn.
    """
    seconds = _TURN * count + _PAUSE
    step = _TURN / seconds
    start = f"{index * step:.4f}"
    end = f"{(index + 1) * step:.4f}"
    shows_at_end = stays or index == count - 1
    if index == 0 and shows_at_end:
        values, times = "1", "0"
    elif index == 0:
        values, times = "1;0", f"0;{end}"
    elif shows_at_end:
        values, times = "0;1", f"0;{start}"
    else:
        values, times = "0;1;0", f"0;{start};{end}"
    return (
        f'<g opacity="{int(shows_at_end)}">{body}<animate attributeName="opacity" calcMode="discrete" '
        f'values="{values}" keyTimes="{times}" dur="{seconds:.2f}s" '
        # Under way when it appears, so that a preview of the first moment shows the end.
        f'begin="-{seconds - _PAUSE:.2f}s" repeatCount="indefinite"/></g>'
    )


def _select_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Trips on another route than the one before, and the last; some of them if many."""
    first = frames[0]
    last = frames[-1]
    changes = [first]
    for previous, frame in pairwise(frames):
        if not np.array_equal(previous.route, frame.route):
            changes.append(frame)
    if changes[-1] is not last:
        changes.append(last)
    count = min(_FRAMES, len(changes))
    places = np.linspace(0, len(changes) - 1, count)
    numbers = np.unique(places.round().astype(int))
    return [changes[number] for number in numbers]


class _Map:
    """The roads, in a drawing of its own."""

    def __init__(self, roads: RoadMap) -> None:
        self._roads = roads
        every_edge = np.arange(len(roads))
        window = window_around(roads, every_edge, margin=0.02)
        width = min(_MAP.width, _MAP.height * window.aspect)
        self._plane = Plane(window, width, _HALVES)

    def inside(self, body: str) -> str:
        """A drawing with the coordinates of the map."""
        box = f'x="{_MAP.left}" y="{_MAP.top}" width="{_MAP.width}" height="{_MAP.height}"'
        size = f"{_HALVES * self._plane.width:.0f} {_HALVES * self._plane.height:.0f}"
        return f'<svg {box} viewBox="0 0 {size}">{body}</svg>'

    def path(self, edges: Ints, name: str, width: float = 2.0) -> str:
        """Some edges, in the look that learning.css has for ``name``."""
        drawn = self._plane.path(self._roads.course(edge) for edge in edges.tolist())
        return f'<path class="{name}" d="{drawn}" stroke-width="{_HALVES * width:g}"/>'

    def background(self) -> str:
        """Every road, in the colour of its height and the width of its class."""
        roads = self._roads
        shares = np.linspace(0.0, 1.0, _LEVELS + 1)
        bounds = np.quantile(roads.height, shares[1:-1])
        level = np.searchsorted(bounds, roads.height)
        width = np.array([_road_width(speed) for speed in roads.speed])
        paths = []
        for road_class in reversed(_ROAD_CLASSES):
            for number in range(_LEVELS):
                shown = (width == road_class.width) & (level == number)
                edges = np.flatnonzero(shown)
                paths.append(self.path(edges, f"h{number}", road_class.width))
        return "".join(paths)

    def route(self, route: Ints) -> str:
        """Today's trip."""
        course = np.concatenate([self._roads.course(edge) for edge in route])
        return f'<path class="route" d="{self._plane.path([course])}" stroke-width="{4 * _HALVES}"/>'

    def ends(self) -> str:
        """Start and goal."""
        roads = self._roads
        start = roads.course(roads.start)[0]
        goal = roads.course(roads.goal)[-1]
        points = np.array([start, goal])
        places = _HALVES * self._plane.place(points)
        (start_x, start_y), (goal_x, goal_y) = places
        return (
            f'<circle cx="{start_x:.0f}" cy="{start_y:.0f}" r="12" style="fill:var(--best)"/>'
            f'<path d="M{goal_x:.0f} {goal_y - 20:.0f}l20 20-20 20-20-20z" style="fill:var(--goal)"/>'
        )


def _road_width(speed: float) -> float:
    """The width of a road with a speed limit in m/s."""
    for road_class in _ROAD_CLASSES:
        if speed >= road_class.least_speed:
            return road_class.width
    raise ValueError(f"a speed limit must not be negative, got {speed}")


class _Chart:
    """The energy of each trip with its forecast, and routes that need no learning."""

    def __init__(self, city: City, frames: Sequence[Frame]) -> None:
        self._known = city.known
        self._rounds = len(frames)
        values = [*self._known.values()]
        for frame in frames:
            lower, upper = _interval(frame)
            values += [frame.energy, lower, upper]
        low = min(values)
        high = max(values)
        margin = 0.04 * (high - low) or 1.0
        self._low = low - margin
        self._high = high + margin

    def _y(self, energy: float) -> float:
        span = self._high - self._low
        height = _CHART.height * (self._high - energy) / span
        return _CHART.top + height

    def background(self) -> str:
        """The axes, and the routes that need no learning."""
        left, top, width, height = _CHART
        right = _CHART.right
        bottom = _CHART.bottom
        middle = top + height / 2.0
        box = f'x="{left}" y="{top}" width="{width}" height="{height}"'
        below = bottom + 18.0
        beside = left - 6.0
        parts = [
            f'<rect {box} style="fill:var(--panel)"/>',
            _text(left, below, "trip 1"),
            _text(right, below, f"{self._rounds}", "end"),
            _text(beside, top + 10.0, f"{self._high:.0f}", "end"),
            _text(beside, bottom, f"{self._low:.0f}", "end"),
            _text(beside, middle, "Wh", "end"),
        ]
        names = sorted(self._known, key=lambda name: -self._known[name])
        heights = [self._y(self._known[name]) for name in names]
        labels = spread_labels(heights, 14.0, top + 6.0, bottom - 6.0)
        for name, y, label in zip(names, heights, labels, strict=True):
            text = _LABELS.get(name, name)
            parts.append(
                f'<path class="{name}" d="M{left} {y:.1f}H{right}" stroke-width="1.5" '
                f'stroke-dasharray="5 3"/><text x="{right + 5.0}" y="{label + 4.0:.1f}" '
                f'style="fill:var(--{name})" font-size="12">{text}</text>'
            )
        return "".join(parts)

    def trips(self, frames: Iterable[Frame]) -> str:
        """For each trip a bar for the forecast's interval and a dot for its energy."""
        thick = max(0.6, min(4.0, 0.7 * _CHART.width / self._rounds))
        bars = ""
        dots = ""
        for frame in frames:
            x = _CHART.left + _CHART.width * (frame.step - 0.5) / self._rounds
            lower, upper = _interval(frame)
            bars += f"M{x:.1f} {self._y(lower):.1f}V{self._y(upper):.1f}"
            # A line of no length with round ends is a dot, and shorter to write.
            dots += f"M{x:.1f} {self._y(frame.energy):.1f}h0"
        return (
            f'<path class="band" d="{bars}" stroke-width="{thick:.1f}"/>'
            f'<path class="ink" d="{dots}" stroke-width="3.2" stroke-linecap="round"/>'
        )


def _interval(frame: Frame) -> tuple[float, float]:
    """Both ends of a forecast's interval, in Wh."""
    return frame.forecast - frame.spread, frame.forecast + frame.spread


def _captions(frame: Frame, city: City, rounds: int) -> str:
    lines = (
        f"round {frame.step} of {rounds}: {frame.energy:.0f} Wh",
        f"forecast {frame.forecast:.0f} ± {frame.spread:.0f} Wh (95 %)",
        f"{frame.tried} of {len(city.roads)} roads tried",
    )
    texts = []
    for row, line in enumerate(lines):
        y = _CHART.bottom + 50.0 + 20.0 * row
        texts.append(_text(_TEXT_LEFT, y, line, name="note"))
    return "".join(texts)


def _legend() -> str:
    x = _TEXT_LEFT
    y = _CHART.bottom + 118.0
    route = f'<path class="route" d="M{x} {y - 4}h18" stroke-width="4"/>'
    tried = f'<path class="tried" d="M{x} {y + 15}h18" stroke-width="2"/>'
    heights = ""
    for level in range(_LEVELS):
        left = x + 3.6 * level
        heights += f'<path class="h{level}" d="M{left} {y + 34}h3.6" stroke-width="4"/>'
    trip = (
        f'<path class="band" d="M{x + 9} {y + 46}v14" stroke-width="4"/><path class="ink" '
        f'd="M{x + 9} {y + 53}h0" stroke-width="3.2" stroke-linecap="round"/>'
    )
    rows = (
        (route, "today's trip"),
        (tried, "roads tried before"),
        (heights, "roads, from low to high"),
        (trip, "a trip and its 95 % forecast"),
    )
    legend = ""
    for number, (mark, label) in enumerate(rows):
        legend += mark + _text(x + 26.0, y + 19.0 * number, label)
    return legend


def _heading(x: float, words: str) -> str:
    return f'<text class="note" x="{x}" y="28" font-weight="600" font-size="15">{words}</text>'


def _text(x: float, y: float, words: str, anchor: str = "start", name: str = "") -> str:
    look = f' class="{name}"' if name else ""
    return f'<text{look} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>'
