"""The city in a terminal: roads as dots of braille letters, the trip of the day on top."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from superarm.core import Ints
from superarm.core.arrays import repeated
from superarm.core.road_map import RoadMap

from .learning import City, Frame

_SPARKS = "▁▂▃▄▅▆▇█"
_BLANK = 0x2800
# The bit of each dot of a braille letter: four rows of two.
_BITS = np.array(
    [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8
)
_ROAD, _ROUTE = "rgb(105,110,118)", "bold rgb(30,160,255)"
_TRIED = (
    "rgb(160,105,50)",
    "rgb(215,130,40)",
    "rgb(255,160,60)",
)  # used once, a few times, often
_OFTEN = (2, 6)
_START, _GOAL = ("●", "bold rgb(0,190,90)"), ("◆", "bold rgb(235,60,70)")
_PANEL = 27
_LEAST_MAP = (
    30  # columns below which the numbers stand under the map instead of beside it
)
_CROWDED = 0.45  # share of dots from which on local streets are left out: all would show nothing
_LOCAL = 9.0  # m/s: streets with a limit of 30 km/h


class Canvas:
    """A map on ``columns`` × ``rows`` letters, each of 2 × 4 dots."""

    def __init__(self, roads: RoadMap, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        low, high = roads.points.min(axis=0), roads.points.max(axis=0)
        span = np.maximum(high - low, 1.0)
        size = np.array([2 * columns - 1, 4 * rows - 1])
        scale = float((size / span).min())
        places = (roads.points - low) * scale + (size - span * scale) / 2.0
        places[:, 1] = size[1] - places[:, 1]  # north is up
        self._dots, self._offsets = _dotted(places, roads.offsets)
        ends = places[[roads.offsets[roads.start], roads.offsets[roads.goal + 1] - 1]]
        self._ends = [(int(y) // 4, int(x) // 2) for x, y in np.rint(ends)]
        letters = self.letters(np.arange(len(roads)))
        if np.unpackbits(letters).mean() > _CROWDED:
            letters = self.letters(np.flatnonzero(roads.speed > _LOCAL))
        self._background = letters

    def letters(self, edges: Ints) -> NDArray[np.uint8]:
        """The dots of these edges as bits of letters, (rows, columns)."""
        letters = np.zeros((self.rows, self.columns), dtype=np.uint8)
        if len(edges):
            parts = [
                self._dots[self._offsets[edge] : self._offsets[edge + 1]]
                for edge in edges
            ]
            x, y = np.concatenate(parts).T
            np.bitwise_or.at(letters, (y // 4, x // 2), _BITS[y % 4, x % 2])
        return letters

    def draw(self, route: Ints, visits: NDArray[np.int64]) -> Text:
        """The roads, those tried before in warm colours, and the route in a bright one."""
        shown = self._background.copy()
        style = np.where(shown > 0, 1, 0)
        used = np.searchsorted(_OFTEN, visits, side="right")
        tried = [
            np.flatnonzero((visits > 0) & (used == level))
            for level in range(len(_TRIED))
        ]
        for place, edges in enumerate((*tried, route)):
            letters = self.letters(edges)
            shown[letters > 0] = letters[letters > 0]
            style[letters > 0] = 2 + place
        styles = ("", _ROAD, *_TRIED, _ROUTE, _START[1], _GOAL[1])
        signs = [
            [chr(_BLANK + int(bits)) if bits else " " for bits in row] for row in shown
        ]
        for place, (row, column) in enumerate(self._ends):
            signs[row][column] = (_START, _GOAL)[place][0]
            style[row, column] = 6 + place
        text = Text(no_wrap=True)
        for row in range(self.rows):
            pairs = zip(signs[row], style[row].tolist(), strict=True)
            for number, run in groupby(pairs, key=lambda pair: pair[1]):
                text.append("".join(sign for sign, _ in run), styles[number])
            if row < self.rows - 1:
                text.append("\n")
        return text


def _dotted(places: NDArray[np.float64], offsets: Ints) -> tuple[Ints, Ints]:
    """The dots (x, y) that each edge's course runs through, and where each edge's begin."""
    begins = np.ones(len(places), dtype=bool)
    begins[offsets[1:] - 1] = False  # an edge's last point begins no piece
    first = np.flatnonzero(begins)
    step = places[first + 1] - places[first]
    count = np.ceil(np.abs(step).max(axis=1)).astype(np.intp) + 1
    piece, within = repeated(count)
    share = within / np.maximum(count[piece] - 1, 1)
    dots = np.rint(places[first[piece]] + share[:, None] * step[piece]).astype(np.intp)
    edge = np.searchsorted(offsets, first[piece], side="right") - 1
    return dots, np.searchsorted(edge, np.arange(len(offsets)))


class Screen:
    """Draws frames, each with what came before it."""

    def __init__(self, city: City, rounds: int, width: int, height: int) -> None:
        self._city, self._rounds, self._width = city, rounds, width
        self._visits = np.zeros(len(city.roads), dtype=np.int64)
        self._regrets: list[float] = []
        self._beside = width >= _LEAST_MAP + _PANEL + 2
        room = width - _PANEL - 2 if self._beside else width
        rows = max(6, height - (2 if self._beside else 6))
        span = np.maximum(np.ptp(city.roads.points, axis=0), 1.0)
        columns = int(min(room, np.ceil(2.0 * rows * span[0] / span[1])))
        rows = int(min(rows, max(4, np.ceil(columns * span[1] / span[0] / 2.0))))
        self._canvas = Canvas(city.roads, columns, rows)

    def draw(self, frame: Frame) -> RenderableType:
        self._regrets.append(frame.regret)
        drawn = self._canvas.draw(frame.route, self._visits)
        self._visits[frame.route] += 1
        if not self._beside:
            return Text("\n", no_wrap=True).join(
                [drawn, *self._numbers(frame, self._width)[:4]]
            )
        grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
        legend = (
            Text(""),
            Text.assemble(_START, " start  ", _GOAL, " goal"),
            Text.assemble(("━━", _ROUTE), " this trip"),
            Text.assemble(("━", _TRIED[0]), ("━", _TRIED[2]), " tried: once, often"),
        )
        grid.add_row(
            drawn,
            Text("\n", no_wrap=True).join([*self._numbers(frame, _PANEL), *legend]),
        )
        return grid

    def _numbers(self, frame: Frame, width: int) -> list[Text]:
        known = self._city.known
        rows = [
            Text(f"trip {frame.step} of {self._rounds}", style="bold"),
            Text(f"took      {frame.energy:6.0f} Wh"),
            Text(f"forecast  {frame.forecast:6.0f} ± {frame.spread:.0f} Wh"),
            Text("regret    " + spark(self._regrets, max(4, width - 10))),
            Text(f"roads     {frame.tried:6d} of {len(self._city.roads)}"),
            Text(""),
            Text("expected without learning", style="bold"),
            *(
                Text(f"{name:9} {known[name]:6.0f} Wh")
                for name in ("fastest", "shortest", "prior")
            ),
            Text("if everything were known", style="bold"),
            Text(f"best      {known['best']:6.0f} Wh"),
        ]
        for row in rows:
            row.truncate(width)
        return rows


def spark(regrets: list[float], length: int) -> str:
    """The regret of the last rounds as a small curve."""
    top = max(regrets, default=0.0) or 1.0
    return "".join(
        _SPARKS[min(7, int(8 * max(0.0, each) / top))] for each in regrets[-length:]
    )


@contextmanager
def display(
    console: Console, city: City, rounds: int, delay: float
) -> Iterator[Callable[[Frame], None]]:
    """A live map in a terminal with colours; a line every ten rounds elsewhere."""
    if console.quiet:
        yield lambda frame: None
        return
    if not console.is_terminal or console.is_dumb_terminal or console.no_color:
        regrets: list[float] = []

        def note(frame: Frame) -> None:
            regrets.append(frame.regret)
            if frame.step in (1, rounds) or frame.step % 10 == 0:
                text = (
                    f"round {frame.step:3d}/{rounds}   trip {frame.energy:5.0f} Wh   "
                    f"forecast {frame.forecast:5.0f} ± {frame.spread:3.0f}   regret "
                )
                text += spark(regrets, max(5, min(40, console.width - len(text))))
                console.print(text, highlight=False, soft_wrap=True)

        yield note
        return
    screen = Screen(city, rounds, console.width, console.height)
    with Live(console=console, auto_refresh=False) as live:

        def draw(frame: Frame) -> None:
            live.update(screen.draw(frame), refresh=True)
            time.sleep(delay)

        yield draw
