"""Pictures as data: what is to be seen. ``report`` draws them as SVG, ``plotting`` with matplotlib."""

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

_FLOOR = 300.0  # how far below the lowest end a log axis of totals begins: first rounds may be tiny


class Shape(NamedTuple):
    """A curve and its band, without what cannot be drawn."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


class Series(NamedTuple):
    """One curve, labelled at its end unless its label is empty."""

    label: str
    x: Floats | Ints
    y: Floats
    style: PolicyStyle = PolicyStyle(0)
    half: Floats | None = None  # half the height of the band around the curve
    marked: tuple[int, ...] = ()  # points that get a dot
    notes: tuple[tuple[int, str], ...] = ()  # points that get a text beside them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """Curves over one pair of axes."""

    series: tuple[Series, ...]
    x_label: str = "round"
    y_label: str
    title: str = ""
    log_x: bool = False
    log_y: bool = False
    totals: bool = False  # whether a logarithmic axis may leave out first rounds, far below every end
    seconds: bool = False  # whether heights are written as times
    from_zero: bool = (
        True  # whether heights count from 0; else only their differences matter
    )
    markers: bool = False  # whether every point gets a dot
    marks: Mapping[str, float] = field(default_factory=dict)
    """Places on the x-axis to be pointed out, by what is said of them."""

    @property
    def description(self) -> str:
        """In words, for those who cannot see it."""
        told = ", ".join(
            " ".join(series.label.split()) for series in self.series if series.label
        )
        return " ".join(
            f"{self.title} {self.y_label} against {self.x_label}: {told}".split()
        )

    def shapes(self) -> list[Shape]:
        floor = 0.0
        if self.log_y and self.totals:
            ends = [float(series.y[-1]) for series in self.series if series.y[-1] > 0.0]
            floor = min(ends, default=0.0) / _FLOOR
        return [self._shape(series, floor) for series in self.series]

    def _shape(self, series: Series, floor: float) -> Shape:
        x, y = (np.asarray(part, dtype=np.float64) for part in (series.x, series.y))
        half = np.zeros_like(y) if series.half is None else series.half
        shown = np.isfinite(y) & ((y > floor) | (not self.log_y))
        x, y, half = x[shown], y[shown], half[shown]
        x = np.where((x == 0.0) & self.log_x, self._zero()[0], x)
        # A band that reaches below zero cannot be drawn on a log axis; a tenth of the mean can.
        low = (
            np.maximum(y - half, np.maximum(y / 10.0, floor))
            if self.log_y
            else y - half
        )
        return Shape(x, y, low, y + half)

    def _zero(self) -> tuple[float, float]:
        """Where 0 stands on a logarithmic axis, which has no place for it: a step below the least of
        the others, which is told too. NaN where no 0 is drawn."""
        every = np.unique(
            np.concatenate([*(each.x for each in self.series), np.empty(0)])
        )
        positive = every[every > 0.0]
        if not self.log_x or 0.0 not in every or len(positive) < 2:
            return np.nan, np.nan
        return float(positive[0] * min(positive[0] / positive[1], 0.5)), float(
            positive[0]
        )

    def x_ticks(self) -> dict[float, str]:
        zero, least = self._zero()
        low, high = self.x_range()
        if np.isnan(zero):
            whole = all(
                np.all(np.mod(each.x, 1.0) == 0.0) for each in self.series
            )  # rounds, days
            every = ticks(low, high, self.log_x)
            return {at: significant(at) for at in every if at % 1.0 == 0.0 or not whole}
        every = ticks(low / 10.0, high, log=True)  # fewer than usual: 0 takes room
        return {zero: "0", **{at: significant(at) for at in every if at >= least}}

    def y_ticks(self) -> dict[float, str]:
        write = readable_seconds if self.seconds else significant
        return {at: write(at) for at in ticks(*self.y_range(), self.log_y)}

    def x_range(self) -> tuple[float, float]:
        return _range((shape.x for shape in self.shapes()), self.log_x, tight=True)

    def y_range(self) -> tuple[float, float]:
        edges = (
            edge for shape in self.shapes() for edge in (shape.low, shape.y, shape.high)
        )
        low, high = _range(edges, self.log_y, tight=not self.from_zero)
        room = 0.0 if self.from_zero else 0.04 * (high - low)
        return low - room, high + room


def _range(parts: Iterable[Floats], log: bool, *, tight: bool) -> tuple[float, float]:
    values = np.concatenate([*parts, np.empty(0)])
    values = values[(np.abs(values) <= LARGEST) & ((values > 0.0) | (not log))]
    low, high = (
        (float(values.min()), float(values.max())) if len(values) else (1.0, 10.0)
    )
    if log:
        return (low, high) if high > low else (low / 2.0, high * 2.0)
    if not tight:
        low, high = min(low, 0.0), high + 0.04 * (high - min(low, 0.0))
    return low, high if high > low else low + max(
        1.0, 1e-6 * abs(low)
    )  # 1 is nothing beside 1e17


class Window(NamedTuple):
    """The part of a map that is shown, in metres."""

    left: float
    bottom: float
    width: float
    height: float

    @property
    def aspect(self) -> float:
        return self.width / self.height


class Layer(NamedTuple):
    """Edges in one colour, over those of earlier layers."""

    edges: Ints
    colour: str
    width: float  # in pixels of a map of 420


class Map(NamedTuple):
    """Roads in grey, some of them in colour, and the ends of trips."""

    title: str
    note: str
    roads: RoadMap
    window: Window
    layers: tuple[Layer, ...]
    ends: tuple[
        tuple[int, int, str], ...
    ]  # first and last edge of each trip, and its colour

    @property
    def description(self) -> str:
        return f"Map: {self.title}, {self.note}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """Panels that belong together: one file, or one figure on a page."""

    name: str  # of its files
    panels: tuple[Chart | Map, ...]
    heading: str = ""  # which of the run's settings it shows
    caption: str
    columns: int = 1
    key: tuple[
        tuple[str, str], ...
    ] = ()  # colours that all panels share, and what they mean
