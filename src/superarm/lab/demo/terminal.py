"""The city in a terminal: roads as dots of braille letters, today's trip on top."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import NamedTuple

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
_ROAD_STYLE = "rgb(105,110,118)"
_ROUTE_STYLE = "bold rgb(30,160,255)"
# Roads used once, a few times, and often.
_TRIED_STYLES = ("rgb(160,105,50)", "rgb(215,130,40)", "rgb(255,160,60)")
_OFTEN = (2, 6)  # visits from which the second and the third of them are used
_START = "●"
_START_STYLE = "bold rgb(0,190,90)"
_GOAL = "◆"
_GOAL_STYLE = "bold rgb(235,60,70)"
_PANEL = 27  # columns of the numbers beside the map
_GAP = 2  # columns between map and numbers
# Columns of the map below which the numbers stand under it instead of beside it.
_LEAST_MAP = 30
_UNDER_MAP = 4  # lines of numbers under the map
# Share of dots from which local streets are left out: all roads would show nothing.
_CROWDED = 0.45
_LOCAL = 9.0  # m/s: streets with a limit of 30 km/h


class Canvas:
    """A map of braille letters, each of 2 × 4 dots.

    Args:
        roads: The roads.
        columns: Letters from left to right.
        rows: Letters from top to bottom.
    """

    def __init__(self, roads: RoadMap, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        low = roads.points.min(axis=0)
        high = roads.points.max(axis=0)
        span = np.maximum(high - low, 1.0)  # metres
        size = np.array([2 * columns - 1, 4 * rows - 1])  # dots
        scale = float((size / span).min())
        margin = (size - span * scale) / 2.0
        places = (roads.points - low) * scale + margin
        places[:, 1] = size[1] - places[:, 1]  # north is up
        self._dots, self._offsets = _rasterise(places, roads.offsets)
        start = roads.offsets[roads.start]  # the first point of the first edge
        goal = roads.offsets[roads.goal + 1] - 1  # the last point of the last edge
        self._start = _letter_at(places[start])
        self._goal = _letter_at(places[goal])
        letters = self.letters(np.arange(len(roads)))
        if np.unpackbits(letters).mean() > _CROWDED:
            letters = self.letters(np.flatnonzero(roads.speed > _LOCAL))
        self._background = letters

    def letters(self, edges: Ints) -> NDArray[np.uint8]:
        """The dots of some edges as bits of letters, (rows, columns).

        Args:
            edges: Numbers of the edges.
        """
        letters = np.zeros((self.rows, self.columns), dtype=np.uint8)
        if len(edges) == 0:
            return letters
        dots = [
            self._dots[self._offsets[edge] : self._offsets[edge + 1]] for edge in edges
        ]
        x, y = np.concatenate(dots).T
        np.bitwise_or.at(letters, (y // 4, x // 2), _BITS[y % 4, x % 2])
        return letters

    def draw(self, route: Ints, visits: NDArray[np.int64]) -> Text:
        """Draw all roads, those tried before in warm colours, and the route in a bright one.

        Args:
            route: Numbers of the edges of today's trip.
            visits: How often earlier trips used each edge, (n,).
        """
        bits = self._background.copy()
        styles = np.full(bits.shape, "", dtype=object)
        styles[bits > 0] = _ROAD_STYLE
        level = np.searchsorted(_OFTEN, visits, side="right")
        for number, style in enumerate(_TRIED_STYLES):
            tried = np.flatnonzero((visits > 0) & (level == number))
            self._draw_edges(bits, styles, tried, style)
        self._draw_edges(bits, styles, route, _ROUTE_STYLE)
        letters = [
            [chr(_BLANK + int(dots)) if dots else " " for dots in row] for row in bits
        ]
        for place, sign, style in (
            (self._start, _START, _START_STYLE),
            (self._goal, _GOAL, _GOAL_STYLE),
        ):
            letters[place.row][place.column] = sign
            styles[place.row, place.column] = style
        text = Text(no_wrap=True)
        for row in range(self.rows):
            if row > 0:
                text.append("\n")
            _append_letters(text, letters[row], styles[row])
        return text

    def _draw_edges(
        self,
        bits: NDArray[np.uint8],
        styles: NDArray[np.object_],
        edges: Ints,
        style: str,
    ) -> None:
        """Draw edges over all that lies below them."""
        letters = self.letters(edges)
        drawn = letters > 0
        bits[drawn] = letters[drawn]
        styles[drawn] = style


class _Place(NamedTuple):
    """The place of a letter."""

    row: int
    column: int


def _letter_at(point: NDArray[np.float64]) -> _Place:
    """The letter with the dot nearest to a point."""
    x, y = np.rint(point)
    return _Place(int(y) // 4, int(x) // 2)


def _append_letters(
    text: Text, letters: Sequence[str], styles: NDArray[np.object_]
) -> None:
    """Append a row, in pieces of one style each."""
    pairs = zip(letters, styles, strict=True)
    for style, run in groupby(pairs, key=lambda pair: pair[1]):
        text.append("".join(letter for letter, _ in run), style)


def _rasterise(places: NDArray[np.float64], offsets: Ints) -> tuple[Ints, Ints]:
    """The dots (x, y) along each edge's course, and where those of each edge begin.

    Args:
        places: Points of all edges one after another, in dots, (p, 2).
        offsets: Where the points of each edge begin, (n + 1,).
    """
    begins = np.ones(len(places), dtype=bool)
    begins[offsets[1:] - 1] = False  # an edge's last point begins no piece
    first = np.flatnonzero(begins)  # the first point of each straight piece
    step = places[first + 1] - places[first]
    count = np.ceil(np.abs(step).max(axis=1)).astype(np.intp) + 1  # dots of a piece
    piece, within = repeated(count)  # of each dot
    share = within / np.maximum(count[piece] - 1, 1)  # of the way along the piece
    positions = places[first[piece]] + share[:, None] * step[piece]
    dots = np.rint(positions).astype(np.intp)
    edge = np.searchsorted(offsets, first[piece], side="right") - 1
    return dots, np.searchsorted(edge, np.arange(len(offsets)))


class Screen:
    """Draws frames, each with the roads tried before it.

    Args:
        city: The city.
        rounds: The number of trips.
        width: Columns of the terminal.
        height: Rows of the terminal.
    """

    def __init__(self, city: City, rounds: int, width: int, height: int) -> None:
        self._city = city
        self._rounds = rounds
        self._width = width
        self._visits = np.zeros(len(city.roads), dtype=np.int64)
        self._regrets: list[float] = []
        self._beside = width >= _LEAST_MAP + _PANEL + _GAP
        if self._beside:
            room = width - _PANEL - _GAP
            most_rows = max(6, height - 2)
        else:
            room = width
            most_rows = max(6, height - 6)
        # A letter is about twice as high as wide.
        across, up = np.maximum(np.ptp(city.roads.points, axis=0), 1.0)
        columns = int(min(room, np.ceil(2.0 * most_rows * across / up)))
        rows = int(min(most_rows, max(4, np.ceil(columns * up / across / 2.0))))
        self._canvas = Canvas(city.roads, columns, rows)

    def draw(self, frame: Frame) -> RenderableType:
        """Draw the map and the numbers of a trip.

        Args:
            frame: The trip.
        """
        self._regrets.append(frame.regret)
        drawn = self._canvas.draw(frame.route, self._visits)
        self._visits[frame.route] += 1
        lines = Text("\n", no_wrap=True)
        if not self._beside:
            numbers = self._numbers(frame, self._width)
            return lines.join([drawn, *numbers[:_UNDER_MAP]])
        grid = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        start = (_START, _START_STYLE)
        goal = (_GOAL, _GOAL_STYLE)
        once = ("━", _TRIED_STYLES[0])
        often = ("━", _TRIED_STYLES[-1])
        legend = (
            Text(""),
            Text.assemble(start, " start  ", goal, " goal"),
            Text.assemble(("━━", _ROUTE_STYLE), " this trip"),
            Text.assemble(once, often, " tried: once, often"),
        )
        numbers = self._numbers(frame, _PANEL)
        grid.add_row(drawn, lines.join([*numbers, *legend]))
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
            Text(f"fastest   {known['fastest']:6.0f} Wh"),
            Text(f"shortest  {known['shortest']:6.0f} Wh"),
            Text(f"prior     {known['prior']:6.0f} Wh"),
            Text("if everything were known", style="bold"),
            Text(f"best      {known['best']:6.0f} Wh"),
        ]
        for row in rows:
            row.truncate(width)
        return rows


def spark(regrets: list[float], length: int) -> str:
    """The regret of the last rounds as a small curve.

    Args:
        regrets: The regret of every round so far.
        length: The number of rounds to show.
    """
    top = max(regrets, default=0.0) or 1.0
    curve = ""
    for regret in regrets[-length:]:
        level = int(8 * max(0.0, regret) / top)
        curve += _SPARKS[min(7, level)]
    return curve


@contextmanager
def display(
    console: Console, city: City, rounds: int, delay: float
) -> Iterator[Callable[[Frame], None]]:
    """Show trips: a live map in a terminal with colours, elsewhere a line every ten rounds.

    Args:
        console: The console.
        city: The city.
        rounds: The number of trips.
        delay: Seconds to wait after each frame of the map.
    """
    if console.quiet:
        yield lambda frame: None
        return
    if not console.is_terminal or console.is_dumb_terminal or console.no_color:
        yield _line_printer(console, rounds)
        return
    screen = Screen(city, rounds, console.width, console.height)
    with Live(console=console, auto_refresh=False) as live:

        def draw(frame: Frame) -> None:
            live.update(screen.draw(frame), refresh=True)
            time.sleep(delay)

        yield draw


def _line_printer(console: Console, rounds: int) -> Callable[[Frame], None]:
    """Return a function that prints a line for the first, the last and every tenth round."""
    regrets: list[float] = []

    def show(frame: Frame) -> None:
        regrets.append(frame.regret)
        if frame.step not in (1, rounds) and frame.step % 10 != 0:
            return
        text = (
            f"round {frame.step:3d}/{rounds}   trip {frame.energy:5.0f} Wh   "
            f"forecast {frame.forecast:5.0f} ± {frame.spread:3.0f}   regret "
        )
        room = console.width - len(text)
        text += spark(regrets, max(5, min(40, room)))
        console.print(text, highlight=False, soft_wrap=True)

    return show
