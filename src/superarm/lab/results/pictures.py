"""Pictures as data. ``report`` draws them as SVG, on pages and in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.inputs import LARGEST
from superarm.core.road_map import RoadMap

from .axes import ticks
from .formats import readable_seconds, significant
from .styles import PolicyStyle

# How far below the lowest end a log axis of totals begins: first rounds may be tiny.
_FLOOR = 300.0
_MARGIN = 0.04  # room beyond the curves, as a share of an axis


class Shape(NamedTuple):
    """The points of a curve and its band that can be drawn."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


class _LogZero(NamedTuple):
    """Where 0 stands on a logarithmic axis, which has no place for it."""

    place: float  # a step below the least positive number
    least: float  # the least positive number


class Series(NamedTuple):
    """One curve.

    Args:
        label: Words at its end.
        x: Places along the x-axis, (n,).
        y: Heights, (n,).
        style: The look of the curve.
        half: Half the height of the band around the curve, (n,).
        marked: Points that get a dot.
        notes: Points that get a text beside them, and the texts.
    """

    label: str
    x: Floats | Ints
    y: Floats
    style: PolicyStyle = PolicyStyle(0)
    half: Floats | None = None
    marked: tuple[int, ...] = ()
    notes: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """Curves over one pair of axes.

    Args:
        series: The curves.
        x_label: Words along the x-axis.
        y_label: Words along the y-axis.
        title: Words above the chart.
        log_x: Whether the x-axis is logarithmic.
        log_y: Whether the y-axis is logarithmic.
        totals: Whether a logarithmic y-axis may leave out first rounds, far below every
            end.
        seconds: Whether heights are formatted as times.
        from_zero: Whether heights count from 0; else only their differences matter.
        markers: Whether every point gets a dot.
        marks: Places on the x-axis to point out, by their labels.
        x_places: Places of ticks on a linear x-axis; by default they are round numbers.
    """

    series: tuple[Series, ...]
    x_label: str = "round"
    y_label: str
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    totals: bool = False
    seconds: bool = False
    from_zero: bool = True
    markers: bool = False
    marks: Mapping[str, float] = field(default_factory=dict)
    x_places: tuple[float, ...] = ()

    @property
    def description(self) -> str:
        """The chart in words, for those who cannot see it."""
        labels = ", ".join(
            _single_spaced(series.label) for series in self.series if series.label
        )
        axes = f"{self.y_label} against {self.x_label}"
        return _single_spaced(f"{self.title} {axes}: {labels}")

    def shapes(self) -> list[Shape]:
        """What can be drawn of each curve."""
        floor = 0.0
        if self.log_y and self.totals:
            ends = [float(series.y[-1]) for series in self.series if len(series.y)]
            positive = [end for end in ends if end > 0.0]
            floor = min(positive, default=0.0) / _FLOOR
        return [self._shape(series, floor) for series in self.series]

    def _shape(self, series: Series, floor: float) -> Shape:
        x = np.asarray(series.x, dtype=np.float64)
        y = np.asarray(series.y, dtype=np.float64)
        half = np.zeros_like(y) if series.half is None else series.half
        shown = np.isfinite(y)
        if self.log_y:
            shown &= y > floor
        x = x[shown]
        y = y[shown]
        half = half[shown]
        if self.log_x:
            zero = self._log_zero()
            place = np.nan if zero is None else zero.place
            x = np.where(x == 0.0, place, x)
        low = y - half
        high = y + half
        if self.log_y:
            # A log axis cannot show a band that reaches below zero: it ends at a tenth of
            # the mean.
            lowest = np.maximum(y / 10.0, floor)
            low = np.maximum(low, lowest)
        return Shape(x, y, low, high)

    def _log_zero(self) -> _LogZero | None:
        """The place of 0 on a logarithmic x-axis; ``None`` where no 0 is drawn."""
        if not self.log_x:
            return None
        x = np.unique(_join(series.x for series in self.series))
        positive = x[x > 0.0]
        if 0.0 not in x or len(positive) < 2:
            return None
        least = positive[0]
        second = positive[1]
        step = min(least / second, 0.5)
        return _LogZero(place=float(least * step), least=float(least))

    def x_ticks(self) -> dict[float, str]:
        """Labels of the x-axis by their places."""
        if self.x_places:
            return {place: significant(place) for place in self.x_places}
        low, high = self.x_range()
        zero = self._log_zero()
        labels: dict[float, str] = {}
        if zero is not None:
            labels[zero.place] = "0"
            # Fewer than usual: 0 takes room.
            places = ticks(low / 10.0, high, log=True)
            places = [place for place in places if place >= zero.least]
        else:
            places = ticks(low, high, self.log_x)
            if self._has_integers():
                places = [place for place in places if place % 1.0 == 0.0]
        for place in places:
            labels[place] = significant(place)
        return labels

    def _has_integers(self) -> bool:
        """Whether all places on the x-axis are integers: rounds, days."""
        return all(np.all(np.mod(series.x, 1.0) == 0.0) for series in self.series)

    def y_ticks(self) -> dict[float, str]:
        """Labels of the y-axis by their places."""
        low, high = self.y_range()
        places = ticks(low, high, self.log_y)
        write = readable_seconds if self.seconds else significant
        return {place: write(place) for place in places}

    def x_range(self) -> tuple[float, float]:
        """Both ends of the x-axis."""
        places = _join(shape.x for shape in self.shapes())
        return _range(places, self.log_x, tight=True)

    def y_range(self) -> tuple[float, float]:
        """Both ends of the y-axis."""
        heights: list[Floats] = []
        for shape in self.shapes():
            heights += [shape.low, shape.y, shape.high]
        tight = not self.from_zero
        low, high = _range(_join(heights), self.log_y, tight=tight)
        if self.from_zero:
            return low, high
        room = _MARGIN * (high - low)
        return low - room, high + room


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _join(parts: Iterable[Floats | Ints]) -> Floats:
    """All numbers one after another; no parts are no numbers."""
    return np.concatenate([*parts, np.empty(0)])


def _range(values: Floats, log: bool, *, tight: bool) -> tuple[float, float]:
    """Both ends of an axis; one that is not ``tight`` contains 0 and has room above."""
    values = values[np.abs(values) <= LARGEST]
    if log:
        values = values[values > 0.0]
    if len(values):
        low = float(values.min())
        high = float(values.max())
    else:
        low = 1.0
        high = 10.0
    if log:
        return (low, high) if high > low else (low / 2.0, high * 2.0)
    if not tight:
        low = min(low, 0.0)
        high += _MARGIN * (high - low)
    if high > low:
        return low, high
    # 1 is nothing beside 1e17.
    return low, low + max(1.0, 1e-6 * abs(low))


class Window(NamedTuple):
    """The part of a map that is shown.

    Args:
        left: The x-coordinate of its left edge, in metres.
        bottom: The y-coordinate of its lower edge, in metres.
        width: Its width in metres.
        height: Its height in metres.
    """

    left: float
    bottom: float
    width: float
    height: float

    @property
    def aspect(self) -> float:
        """Width over height."""
        return self.width / self.height


class Layer(NamedTuple):
    """Edges in one colour, over those of earlier layers."""

    edges: Ints
    colour: str
    width: float  # in pixels of a map of 420


class TripEnds(NamedTuple):
    """The ends of a trip on a map."""

    start: int  # its first edge
    goal: int  # its last edge
    colour: str


class Map(NamedTuple):
    """Roads in grey, some of them in colour, and the ends of trips.

    Args:
        title: Words above the map.
        note: More words beside the title.
        roads: All roads.
        window: The part that is shown.
        layers: Roads in colour, from the lowest layer up.
        ends: The ends of trips.
    """

    title: str
    note: str
    roads: RoadMap
    window: Window
    layers: tuple[Layer, ...]
    ends: tuple[TripEnds, ...]

    @property
    def description(self) -> str:
        """The map in words, for those who cannot see it."""
        return f"Map: {self.title}, {self.note}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """Panels that belong together: one file, or one figure on a page.

    Args:
        name: The name of its file, without the suffix.
        panels: Charts and maps.
        heading: Which of the run's settings it shows.
        caption: Words below it.
        columns: The number of panels side by side.
        key: Colours that all panels share, and their meanings.
    """

    name: str
    panels: tuple[Chart | Map, ...]
    heading: str = ""
    caption: str
    columns: int = 1
    key: tuple[tuple[str, str], ...] = ()
