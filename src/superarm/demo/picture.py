"""The learning as one animated SVG: the city with each trip, and what the trips cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from superarm.core import Floats, Ints
from superarm.networks import RoadMap
from superarm.results.curves import spread_labels

from .learning import City, Frame

_FRAMES = 24
_TURN, _REST = 0.35, 1.5
"""Seconds that a frame is shown, and for which the last one stays."""
_WIDTH, _HEIGHT = 900, 520
_MAP = (20.0, 44.0, 540.0, 456.0)
"""Left, top, width and height of the map."""
_CHART = (630.0, 60.0, 180.0, 250.0)
_HEIGHTS = ("#a9bfa0", "#b9c29c", "#c5bd96", "#c2ab86", "#b39374")
"""Colours of roads from low to high."""
_WIDTHS = ((24.0, 2.4), (13.0, 1.3), (0.0, 0.7))
"""Least speed limit in m/s, and how wide such a road is drawn."""
_INK, _FAINT, _ROUTE, _TRIED, _BAND = "#1f2328", "#6a737d", "#0969da", "#e8590c", "#9ec5f5"
_KNOWN = {"fastest": "#8250df", "shortest": "#6a737d", "prior": "#9a6700", "best": "#1a7f37"}
_LABELS = {"prior": "model alone", "best": "best route"}


def animated_svg(city: City, frames: Sequence[Frame]) -> str:
    """The map on the left, the energy of every trip on the right; a still shows the last frame."""
    chosen = _spread_frames(frames)
    place = _Places(city.roads)
    chart = _Chart(city, frames)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" class="chart" '
        'role="img" font-family="system-ui,sans-serif" font-size="13">',
        "<title>A car learns the route of least energy through a city, trip by trip</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff" rx="8"/>',
        _heading(_MAP[0], "The city, and the trip of the day"),
        _heading(_CHART[0] - 50.0, "What each trip took"),
        _background(city.roads, place),
        chart.background(),
    ]
    seconds = _TURN * len(chosen) + _REST
    before = 0
    for index, frame in enumerate(chosen):
        since = frames[before : frame.step]
        fresh = np.concatenate([each.fresh for each in since])
        tried = place.path(city.roads.course(edge) for edge in fresh)
        stays = f'<path d="{tried}" stroke="{_TRIED}" stroke-width="2" fill="none" opacity=".55"/>'
        parts.append(_timed(stays + chart.trips(since), index, len(chosen), seconds, stays=True))
        before = frame.step
    for index, frame in enumerate(chosen):
        body = _route(city.roads, frame.route, place) + _captions(frame, city, frames[-1].step)
        parts.append(_timed(body, index, len(chosen), seconds, stays=False))
    parts.append(_ends(city.roads, place) + _legend() + "</svg>")
    return "".join(parts)


def _timed(body: str, index: int, count: int, seconds: float, *, stays: bool) -> str:
    """A group that shows from its turn on, or in its turn alone; where nothing moves, the end."""
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


def _spread_frames(frames: Sequence[Frame]) -> list[Frame]:
    """More frames early on, when most is learned."""
    steps = np.unique(np.geomspace(1, len(frames), min(_FRAMES, len(frames))).round().astype(int))
    return [frames[step - 1] for step in steps]


# --- the map -----------------------------------------------------------------------------


class _Places:
    """From metres to places in the picture."""

    def __init__(self, roads: RoadMap) -> None:
        left, top, width, height = _MAP
        low, high = roads.points.min(axis=0), roads.points.max(axis=0)
        span = np.maximum(high - low, 1.0)
        self._scale = float(min(width / span[0], height / span[1]))
        self._low = low
        spare = np.array([width, height]) - span * self._scale
        self._left, self._bottom = left + spare[0] / 2.0, top + height - spare[1] / 2.0

    def of(self, points: Floats) -> Ints:
        """Tenths of a pixel, (p, 2)."""
        x, y = ((points - self._low) * self._scale).T
        tenths = np.stack([self._left + x, self._bottom - y], axis=1) * 10.0
        return np.rint(tenths).astype(np.intp)

    def path(self, courses: Iterable[Floats]) -> str:
        """SVG path data of some lines, each relative to its first point: short numbers."""
        parts = []
        for course in courses:
            points = self.of(course)
            steps = np.diff(points, axis=0)
            steps = steps[np.any(steps != 0, axis=1)]
            moves = "".join(f"{_pair(*step)}" for step in steps.tolist())
            if moves:
                parts.append(f"M{_pair(*points[0].tolist())}l{moves.lstrip()}")
        return "".join(parts) or "M0 0"


def _pair(x: int, y: int) -> str:
    """Two numbers in tenths, with no more letters than needed.

    >>> _pair(-15, 20)
    '-1.5 2'
    """
    first, second = _tenths(x), _tenths(y)
    lead = "" if first.startswith("-") else " "
    return f"{lead}{first}{'' if second.startswith('-') else ' '}{second}"


def _tenths(value: int) -> str:
    return f"{value / 10.0:g}"


def _background(roads: RoadMap, place: _Places) -> str:
    """Every road once, in the colour of its height and the width of its class."""
    bounds = np.quantile(roads.height, np.linspace(0.0, 1.0, len(_HEIGHTS) + 1)[1:-1])
    level = np.searchsorted(bounds, roads.height)
    seen: set[tuple[tuple[int, int], ...]] = set()
    groups: dict[tuple[float, int], list[Floats]] = {}
    for edge in range(len(roads)):
        course = roads.course(edge)
        points = tuple((int(x), int(y)) for x, y in place.of(course))
        if points in seen or points[::-1] in seen:
            continue  # the other direction of a road
        seen.add(points)
        width = next(wide for least, wide in _WIDTHS if roads.speed[edge] >= least)
        groups.setdefault((width, int(level[edge])), []).append(course)
    lines = "".join(
        f'<path d="{place.path(groups[key])}" stroke="{_HEIGHTS[key[1]]}" stroke-width="{key[0]}"/>'
        for key in sorted(groups)
    )
    return f'<g fill="none" stroke-linecap="round">{lines}</g>'


def _route(roads: RoadMap, route: Ints, place: _Places) -> str:
    course = np.concatenate([roads.course(edge) for edge in route])
    return (
        f'<path d="{place.path([course])}" fill="none" stroke="{_ROUTE}" stroke-width="4" '
        'stroke-linecap="round" stroke-linejoin="round" opacity=".85"/>'
    )


def _ends(roads: RoadMap, place: _Places) -> str:
    start = place.of(roads.course(roads.start)[:1])[0] / 10.0
    goal = place.of(roads.course(roads.goal)[-1:])[0] / 10.0
    return (
        f'<circle cx="{start[0]:.1f}" cy="{start[1]:.1f}" r="6.5" fill="#1a7f37" stroke="#fff" '
        'stroke-width="2"/>'
        f'<path d="M{goal[0]:.1f} {goal[1] - 8.5:.1f}l8.5 8.5-8.5 8.5-8.5-8.5z" fill="#cf222e" '
        'stroke="#fff" stroke-width="2"/>'
    )


# --- numbers -----------------------------------------------------------------------------


class _Chart:
    """The energy of each trip within what was forecast, and routes that need no learning."""

    def __init__(self, city: City, frames: Sequence[Frame]) -> None:
        self._known = dict(city.known)
        self._rounds = len(frames)
        ends = [frame.forecast + sign * frame.spread for frame in frames for sign in (-1.0, 1.0)]
        values = [*self._known.values(), *(frame.energy for frame in frames), *ends]
        margin = 0.04 * (max(values) - min(values)) or 1.0
        self._low, self._high = min(values) - margin, max(values) + margin

    def _x(self, step: float) -> float:
        left, _, width, _ = _CHART
        return left + width * (step - 0.5) / self._rounds

    def _y(self, energy: float) -> float:
        _, top, _, height = _CHART
        return top + height * (self._high - energy) / (self._high - self._low)

    def background(self) -> str:
        left, top, width, height = _CHART
        right = left + width
        names = sorted(self._known, key=lambda name: -self._known[name])
        heights = [self._y(self._known[name]) for name in names]
        apart = spread_labels(heights, 14.0, top + 6.0, top + height - 6.0)
        parts = [
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="#f6f8fa"/>',
            _text(left, top + height + 18.0, "trip 1"),
            _text(right, top + height + 18.0, f"{self._rounds}", anchor="end"),
            _text(left - 6.0, top + 10.0, f"{self._high:.0f}", anchor="end"),
            _text(left - 6.0, top + height, f"{self._low:.0f}", anchor="end"),
            _text(left - 6.0, top + height / 2.0, "Wh", anchor="end"),
        ]
        for name, y, label in zip(names, heights, apart, strict=True):
            colour = _KNOWN[name]
            said = _LABELS.get(name, name)
            parts.append(
                f'<path d="M{left} {y:.1f}H{right}" stroke="{colour}" stroke-width="1.5" '
                f'stroke-dasharray="5 3"/><text x="{right + 5.0}" y="{label + 4.0:.1f}" '
                f'fill="{colour}" font-size="12">{said}</text>'
            )
        return "".join(parts)

    def trips(self, frames: Sequence[Frame]) -> str:
        """A bar for the forecast's interval and a dot for what the trip took, each."""
        thick = max(0.6, min(4.0, 0.7 * _CHART[2] / self._rounds))
        bars = "".join(
            f"M{self._x(frame.step):.1f} {self._y(frame.forecast - frame.spread):.1f}"
            f"V{self._y(frame.forecast + frame.spread):.1f}"
            for frame in frames
        )
        # A line of no length with round ends is a dot, and shorter to write.
        dots = "".join(f"M{self._x(frame.step):.1f} {self._y(frame.energy):.1f}h0" for frame in frames)
        return (
            f'<path d="{bars}" stroke="{_BAND}" stroke-width="{thick:.1f}"/>'
            f'<path d="{dots}" stroke="{_INK}" stroke-width="3.2" stroke-linecap="round"/>'
        )


def _captions(frame: Frame, city: City, rounds: int) -> str:
    lines = (
        f"round {frame.step} of {rounds}: {frame.energy:.0f} Wh",
        f"forecast {frame.forecast:.0f} ± {frame.spread:.0f} Wh (95 %)",
        f"{frame.tried} of {len(city.roads)} roads tried",
    )
    left, top, _, height = _CHART
    return "".join(
        _text(left - 50.0, top + height + 50.0 + 20.0 * row, line, colour=_INK)
        for row, line in enumerate(lines)
    )


def _legend() -> str:
    left, top, _, height = _CHART
    x, y = left - 50.0, top + height + 118.0
    marks = (
        (f'<path d="M{x} {y - 4}h18" stroke="{_ROUTE}" stroke-width="4"/>', "the trip of the day"),
        (
            f'<path d="M{x} {y + 15}h18" stroke="{_TRIED}" stroke-width="2" opacity=".55"/>',
            "roads tried before",
        ),
        (
            "".join(
                f'<path d="M{x + 3.6 * place} {y + 34}h3.6" stroke="{colour}" stroke-width="4"/>'
                for place, colour in enumerate(_HEIGHTS)
            ),
            "roads, from low to high",
        ),
        (
            f'<path d="M{x + 9} {y + 46}v14" stroke="{_BAND}" stroke-width="4"/>'
            f'<circle cx="{x + 9}" cy="{y + 53}" r="1.6" fill="{_INK}"/>',
            "a trip in its 95 % forecast",
        ),
    )
    return "".join(
        mark + _text(x + 26.0, y + 19.0 * row, words) for row, (mark, words) in enumerate(marks)
    )


def _heading(x: float, words: str) -> str:
    return f'<text x="{x}" y="28" font-weight="600" font-size="15" fill="{_INK}">{words}</text>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = _FAINT) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{words}</text>'
