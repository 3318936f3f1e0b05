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
_Y = 1  # the column of points with their distance to the north
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
_LEAST_ROWS = 4  # of a map
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
        places = _place_dots(roads, 2 * columns, 4 * rows)
        raster = _rasterise(places, roads.offsets)
        self._dots = raster.dots
        self._offsets = raster.offsets
        start = roads.offsets[roads.start]  # the first point of the first edge
        goal = roads.offsets[roads.goal + 1] - 1  # the last point of the last edge
        self._start = _letter_at(places[start])
        self._goal = _letter_at(places[goal])
        self._background = self._draw_roads(roads)

    def _draw_roads(self, roads: RoadMap) -> NDArray[np.uint8]:
        """The dots of all roads, or of the main ones where that would be too many."""
        every_edge = np.arange(len(roads))
        letters = self.letters(every_edge)
        filled = np.unpackbits(letters).mean()
        if filled > _CROWDED:
            main_edges = np.flatnonzero(roads.speed > _LOCAL)
            letters = self.letters(main_edges)
        return letters

    def letters(self, edges: Ints) -> NDArray[np.uint8]:
        """The dots of some edges as bits of letters, (rows, columns).

        Args:
            edges: Numbers of the edges.
        """
        letters = np.zeros((self.rows, self.columns), dtype=np.uint8)
        if len(edges) == 0:
            return letters
        dots = []
        for edge in edges:
            start = self._offsets[edge]
            stop = self._offsets[edge + 1]
            dots.append(self._dots[start:stop])
        x, y = np.concatenate(dots).T
        place = (y // 4, x // 2)
        bits = _BITS[y % 4, x % 2]
        np.bitwise_or.at(letters, place, bits)
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
        tried = visits > 0
        level = np.searchsorted(_OFTEN, visits, side="right")
        for number, style in enumerate(_TRIED_STYLES):
            edges = np.flatnonzero(tried & (level == number))
            self._draw_edges(bits, styles, edges, style)
        self._draw_edges(bits, styles, route, _ROUTE_STYLE)
        letters = [[_braille(int(dots)) for dots in row] for row in bits]
        ends = (
            (self._start, _START, _START_STYLE),
            (self._goal, _GOAL, _GOAL_STYLE),
        )
        for place, sign, style in ends:
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


def _place_dots(roads: RoadMap, columns: int, rows: int) -> NDArray[np.float64]:
    """Places of all points of roads among dots, north up, (p, 2).

    Args:
        roads: The roads.
        columns: Dots from left to right.
        rows: Dots from top to bottom.
    """
    south_west = roads.points.min(axis=0)  # metres, (2,)
    north_east = roads.points.max(axis=0)
    span = np.maximum(north_east - south_west, 1.0)
    last_column = columns - 1
    last_row = rows - 1
    last_dot = np.array([last_column, last_row])
    # One scale for both axes keeps the roads' shape; the map is centred along the other axis.
    dots_per_metre = float((last_dot / span).min())
    drawn = span * dots_per_metre
    margin = (last_dot - drawn) / 2.0
    from_corner = roads.points - south_west
    places: NDArray[np.float64] = from_corner * dots_per_metre + margin
    places[:, _Y] = last_row - places[:, _Y]  # rows count from the top
    return places


def _braille(dots: int) -> str:
    """The letter with some dots, by their bits; a space for none."""
    return chr(_BLANK + dots) if dots else " "


def _letter_at(point: NDArray[np.float64]) -> _Place:
    """The letter with the dot nearest to a point."""
    x, y = np.rint(point)
    return _Place(int(y) // 4, int(x) // 2)


def _append_letters(
    text: Text, letters: Sequence[str], styles: NDArray[np.object_]
) -> None:
    """Append a row, in pieces of one style each."""
    pairs = zip(letters, styles, strict=True)
    for style, pieces in groupby(pairs, key=lambda pair: pair[1]):
        word = "".join(letter for letter, _ in pieces)
        text.append(word, style)


class _Raster(NamedTuple):
    """The dots that edges cover."""

    dots: Ints  # columns and rows of dots, edge by edge, (d, 2)
    offsets: Ints  # where the dots of each edge begin, (n + 1,)


def _first_points(offsets: Ints) -> Ints:
    """Points at which a straight piece of an edge begins: all but the last of each edge."""
    count = offsets[-1]
    last_points = offsets[1:] - 1
    begins = np.ones(count, dtype=bool)
    begins[last_points] = False
    return np.flatnonzero(begins)


def _rasterise(places: NDArray[np.float64], offsets: Ints) -> _Raster:
    """Return the dots along each edge's course.

    Args:
        places: Points of all edges one after another, in dots, (p, 2).
        offsets: Where the points of each edge begin, (n + 1,).
    """
    # Straight pieces: from each point of an edge to the next.
    first = _first_points(offsets)  # (pieces,)
    step = places[first + 1] - places[first]  # (pieces, 2)
    # A piece has so many intervals that none is longer than a dot along either axis.
    longer_side = np.abs(step).max(axis=1)
    intervals = np.ceil(longer_side).astype(np.intp)
    # Its dots, both ends included: d of all pieces.
    piece, number = repeated(intervals + 1)  # (d,) each
    begin = first[piece]
    # A piece without length has one dot and no interval.
    divisor = np.maximum(intervals[piece], 1)
    share = number / divisor  # of the way along the piece
    positions = places[begin] + share[:, None] * step[piece]
    dots = np.rint(positions).astype(np.intp)
    edge = np.searchsorted(offsets, begin, side="right") - 1
    every_edge = np.arange(len(offsets))
    return _Raster(dots, np.searchsorted(edge, every_edge))


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
        self._canvas = _fit_canvas(city.roads, room, most_rows)

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
        numbers = self._numbers(frame, _PANEL)
        panel = lines.join([*numbers, *_legend()])
        grid.add_row(drawn, panel)
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
            Text("with full knowledge", style="bold"),
            Text(f"best      {known['best']:6.0f} Wh"),
        ]
        for row in rows:
            row.truncate(width)
        return rows


def _fit_canvas(roads: RoadMap, most_columns: int, most_rows: int) -> Canvas:
    """The largest canvas of the roads' shape; a letter is about twice as high as wide."""
    spans = np.ptp(roads.points, axis=0)
    width, height = np.maximum(spans, 1.0)  # metres
    # Columns that the roads need to fill all rows, if there is room for them.
    filling_columns = np.ceil(2.0 * most_rows * width / height)
    columns = int(min(most_columns, filling_columns))
    # Rows that the roads need to fill these columns.
    filling_rows = int(np.ceil(columns * height / width / 2.0))
    enough_rows = max(_LEAST_ROWS, filling_rows)
    rows = min(most_rows, enough_rows)
    return Canvas(roads, columns, rows)


def _legend() -> tuple[Text, ...]:
    """What the signs and colours of the map mean."""
    start = (_START, _START_STYLE)
    goal = (_GOAL, _GOAL_STYLE)
    route = ("━━", _ROUTE_STYLE)
    once = ("━", _TRIED_STYLES[0])
    often = ("━", _TRIED_STYLES[-1])
    return (
        Text(""),
        Text.assemble(start, " start  ", goal, " goal"),
        Text.assemble(route, " this trip"),
        Text.assemble(once, often, " tried: once, often"),
    )


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
        is_end = frame.step in (1, rounds)
        if not is_end and frame.step % 10 != 0:
            return
        text = (
            f"round {frame.step:3d}/{rounds}   trip {frame.energy:5.0f} Wh   "
            f"forecast {frame.forecast:5.0f} ± {frame.spread:3.0f}   regret "
        )
        room = console.width - len(text)
        length = max(5, min(40, room))
        text += spark(regrets, length)
        console.print(text, highlight=False, soft_wrap=True)

    return show
