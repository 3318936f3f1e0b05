"""The learning as one animated SVG: the city with each trip, and what the trips cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from itertools import pairwise

import numpy as np

from superarm.core import Ints
from superarm.core.road_map import RoadMap
from superarm.lab.report.svg import Plane
from superarm.lab.results.axes import spread_labels
from superarm.lab.results.maps import window_around

from .learning import City, Frame

_FRAMES = 24
_TURN, _REST = (
    0.35,
    1.5,
)  # seconds that a frame is shown, and for which the last one stays
_WIDTH, _HEIGHT = 900, 520
_MAP = (20, 44, 540, 456)  # left, top, width and height of the map
_CHART = (630.0, 60.0, 180.0, 250.0)
_HALVES = 2  # roads are written in half pixels: whole numbers are short
_STYLE = "".join(
    files(__package__).joinpath("learning.css").read_text(encoding="utf-8").splitlines()
)
_LEVELS = 5  # classes of height, from low to high: h0 … h4 in learning.css
_WIDTHS = (
    (24.0, 2.4),
    (13.0, 1.3),
    (0.0, 0.7),
)  # least speed limit in m/s, and how wide it is drawn
_LABELS = {"prior": "model alone", "best": "best route"}


def animated_svg(city: City, frames: Sequence[Frame], seed: int, seeds: int) -> str:
    """The map on the left, the energy of every trip on the right; a still shows the last frame.

    It says which of how many seeds it is about, because tables beside it have the mean of all.
    """
    chosen, drawn, chart = (
        _telling_frames(frames),
        _Map(city.roads),
        _Chart(city, frames),
    )
    tried, routes, trips, before = "", "", "", 0
    for index, frame in enumerate(chosen):
        since, before = frames[before : frame.step], frame.step
        fresh = drawn.path(np.concatenate([each.fresh for each in since]), "tried")
        tried += _timed(fresh, index, len(chosen), stays=True)
        routes += _timed(drawn.route(frame.route), index, len(chosen), stays=False)
        trips += _timed(chart.trips(since), index, len(chosen), stays=True)
        trips += _timed(
            _captions(frame, city, frames[-1].step), index, len(chosen), stays=False
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'class="chart learning" role="img" font-family="system-ui,sans-serif" font-size="13">'
        "<title>A car learns the route of least energy through a city, trip by trip</title>"
        f'<style>{_STYLE}</style><rect class="paper" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
        + _heading(_MAP[0], "The city, and today's trip")
        + _heading(_CHART[0] - 50.0, f"What each trip took (seed {seed})")
        + _text(_CHART[0] - 50.0, 46.0, f"one of {seeds} seeds; their energies differ")
        + f"{drawn.inside(drawn.background() + tried + routes + drawn.ends())}"
        f"{chart.background()}{trips}{_legend()}</svg>"
    )


def _timed(body: str, index: int, count: int, *, stays: bool) -> str:
    """A group that shows from its turn on, or in its turn alone; where nothing moves, the end."""
    seconds = _TURN * count + _REST
    step = _TURN / seconds
    start, end, last = index * step, (index + 1) * step, index == count - 1
    if index == 0:
        values, times = ("1", "0") if stays or last else ("1;0", f"0;{end:.4f}")
    elif stays or last:
        values, times = "0;1", f"0;{start:.4f}"
    else:
        values, times = "0;1;0", f"0;{start:.4f};{end:.4f}"
    return (
        f'<g opacity="{int(stays or last)}">{body}<animate attributeName="opacity" calcMode="discrete" '
        f'values="{values}" keyTimes="{times}" dur="{seconds:.2f}s" '
        # Under way when it appears, so that a preview of the first moment shows the end.
        f'begin="-{seconds - _REST:.2f}s" repeatCount="indefinite"/></g>'
    )


def _telling_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Trips that went another way than the one before, some of them where there are many; the last."""
    pairs = pairwise(frames)
    kept = [
        frames[0],
        *(now for before, now in pairs if not np.array_equal(before.route, now.route)),
    ]
    kept += [frames[-1]] if kept[-1] is not frames[-1] else []
    places = np.unique(
        np.linspace(0, len(kept) - 1, min(_FRAMES, len(kept))).round().astype(int)
    )
    return [kept[place] for place in places]


class _Map:
    """The roads, in a drawing of its own."""

    def __init__(self, roads: RoadMap) -> None:
        _, _, width, height = _MAP
        self._roads = roads
        window = window_around(roads, np.arange(len(roads)), margin=0.02)
        self._plane = Plane(window, min(width, height * window.aspect), _HALVES)

    def inside(self, body: str) -> str:
        left, top, width, height = _MAP
        box = f'x="{left}" y="{top}" width="{width}" height="{height}"'
        size = f"{_HALVES * self._plane.width:.0f} {_HALVES * self._plane.height:.0f}"
        return f'<svg {box} viewBox="0 0 {size}">{body}</svg>'

    def path(self, edges: Ints, name: str, width: float = 2.0) -> str:
        drawn = self._plane.path(self._roads.course(edge) for edge in edges.tolist())
        return f'<path class="{name}" d="{drawn}" stroke-width="{_HALVES * width:g}"/>'

    def background(self) -> str:
        """Every road, in the colour of its height and the width of its class."""
        roads = self._roads
        bounds = np.quantile(roads.height, np.linspace(0.0, 1.0, _LEVELS + 1)[1:-1])
        level = np.searchsorted(bounds, roads.height)
        kind = np.array(
            [next(wide for least, wide in _WIDTHS if v >= least) for v in roads.speed]
        )
        return "".join(
            self.path(
                np.flatnonzero((kind == wide) & (level == step)), f"h{step}", wide
            )
            for _, wide in reversed(_WIDTHS)
            for step in range(_LEVELS)
        )

    def route(self, route: Ints) -> str:
        course = np.concatenate([self._roads.course(edge) for edge in route])
        return f'<path class="route" d="{self._plane.path([course])}" stroke-width="{4 * _HALVES}"/>'

    def ends(self) -> str:
        roads = self._roads
        ends = np.array([roads.course(roads.start)[0], roads.course(roads.goal)[-1]])
        (a, b), (x, y) = _HALVES * self._plane.place(ends)
        return (
            f'<circle cx="{a:.0f}" cy="{b:.0f}" r="12" style="fill:var(--best)"/>'
            f'<path d="M{x:.0f} {y - 20:.0f}l20 20-20 20-20-20z" style="fill:var(--goal)"/>'
        )


class _Chart:
    """The energy of each trip within what was forecast, and routes that need no learning."""

    def __init__(self, city: City, frames: Sequence[Frame]) -> None:
        self._known, self._rounds = city.known, len(frames)
        ends = [
            frame.forecast + sign * frame.spread
            for frame in frames
            for sign in (-1.0, 1.0)
        ]
        values = [*self._known.values(), *(frame.energy for frame in frames), *ends]
        margin = 0.04 * (max(values) - min(values)) or 1.0
        self._low, self._high = min(values) - margin, max(values) + margin

    def _y(self, energy: float) -> float:
        return _CHART[1] + _CHART[3] * (self._high - energy) / (self._high - self._low)

    def background(self) -> str:
        left, top, width, height = _CHART
        right = left + width
        names = sorted(self._known, key=lambda name: -self._known[name])
        heights = [self._y(self._known[name]) for name in names]
        apart = spread_labels(heights, 14.0, top + 6.0, top + height - 6.0)
        frame = f'x="{left}" y="{top}" width="{width}" height="{height}"'
        parts = [
            f'<rect {frame} style="fill:var(--panel)"/>',
            _text(left, top + height + 18.0, "trip 1"),
            _text(right, top + height + 18.0, f"{self._rounds}", "end"),
            _text(left - 6.0, top + 10.0, f"{self._high:.0f}", "end"),
            _text(left - 6.0, top + height, f"{self._low:.0f}", "end"),
            _text(left - 6.0, top + height / 2.0, "Wh", "end"),
        ]
        for name, y, label in zip(names, heights, apart, strict=True):
            parts.append(
                f'<path class="{name}" d="M{left} {y:.1f}H{right}" stroke-width="1.5" '
                f'stroke-dasharray="5 3"/><text x="{right + 5.0}" y="{label + 4.0:.1f}" '
                f'style="fill:var(--{name})" font-size="12">{_LABELS.get(name, name)}</text>'
            )
        return "".join(parts)

    def trips(self, frames: Iterable[Frame]) -> str:
        """A bar for the forecast's interval and a dot for what the trip took, each."""
        thick = max(0.6, min(4.0, 0.7 * _CHART[2] / self._rounds))
        bars = dots = ""
        for frame in frames:
            x = _CHART[0] + _CHART[2] * (frame.step - 0.5) / self._rounds
            low, high = (
                self._y(frame.forecast + sign * frame.spread) for sign in (-1.0, 1.0)
            )
            bars += f"M{x:.1f} {low:.1f}V{high:.1f}"
            # A line of no length with round ends is a dot, and shorter to write.
            dots += f"M{x:.1f} {self._y(frame.energy):.1f}h0"
        return (
            f'<path class="band" d="{bars}" stroke-width="{thick:.1f}"/>'
            f'<path class="ink" d="{dots}" stroke-width="3.2" stroke-linecap="round"/>'
        )


def _captions(frame: Frame, city: City, rounds: int) -> str:
    lines = (
        f"round {frame.step} of {rounds}: {frame.energy:.0f} Wh",
        f"forecast {frame.forecast:.0f} ± {frame.spread:.0f} Wh (95 %)",
        f"{frame.tried} of {len(city.roads)} roads tried",
    )
    left, top, _, height = _CHART
    return "".join(
        _text(left - 50.0, top + height + 50.0 + 20.0 * row, line, name="told")
        for row, line in enumerate(lines)
    )


def _legend() -> str:
    left, top, _, height = _CHART
    x, y = left - 50.0, top + height + 118.0
    heights = "".join(
        f'<path class="h{step}" d="M{x + 3.6 * step} {y + 34}h3.6" stroke-width="4"/>'
        for step in range(_LEVELS)
    )
    marks = (
        (f'<path class="route" d="M{x} {y - 4}h18" stroke-width="4"/>', "today's trip"),
        (
            f'<path class="tried" d="M{x} {y + 15}h18" stroke-width="2"/>',
            "roads tried before",
        ),
        (heights, "roads, from low to high"),
        (
            f'<path class="band" d="M{x + 9} {y + 46}v14" stroke-width="4"/><path class="ink" '
            f'd="M{x + 9} {y + 53}h0" stroke-width="3.2" stroke-linecap="round"/>',
            "a trip and its 95 % forecast",
        ),
    )
    return "".join(
        mark + _text(x + 26.0, y + 19.0 * at, told)
        for at, (mark, told) in enumerate(marks)
    )


def _heading(x: float, words: str) -> str:
    return f'<text class="told" x="{x}" y="28" font-weight="600" font-size="15">{words}</text>'


def _text(x: float, y: float, words: str, anchor: str = "start", name: str = "") -> str:
    look = f' class="{name}"' if name else ""
    return f'<text{look} x="{x:g}" y="{y:g}" text-anchor="{anchor}">{words}</text>'
