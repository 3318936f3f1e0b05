"""A console on which text from outside cannot control the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich import box
from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from .common import shown, shown_lines

_UNLIMITED = 10**6  # columns, to measure how wide a table would like to be


def make_console() -> Console:
    """A console that escapes control characters in texts; its own colours and cursor work."""
    console = Console()
    console.push_render_hook(_EscapeHook())
    return console


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    right: int | None = None,
) -> None:
    """Print a table of texts, never of markup.

    Where the columns of numbers are too many for the terminal, several tables follow each other. Names
    in the first column are wrapped where they would take more than half of the width, never cut.

    Args:
        heads: The heads of the columns.
        rows: The cells, row by row.
        title: A title above the table.
        right: The first column that contains numbers; all later ones do, too.
    """
    cells = list(rows)
    table = _make_table(heads, cells, title, right)
    console = make_console()
    unlimited = console.options.update(max_width=_UNLIMITED)
    size = console.measure(table, options=unlimited)
    if size.maximum > console.width and _has_long_names(cells, console.width // 2):
        _wrap_first_column(table, console.width // 2)
        size = console.measure(table, options=unlimited)
    if right is not None and size.maximum > console.width:
        _narrow_numbers(table, heads, right)
    fits = size.minimum <= console.width
    if right is None or len(heads) < right + 2 or fits:
        console.print(table)
        return
    middle = (right + len(heads) + 1) // 2
    first_half = slice(right, middle)
    second_half = slice(middle, None)
    _print_columns(heads, cells, right, first_half, title)
    _print_columns(heads, cells, right, second_half, "")


def _make_table(
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    title: str,
    right: int | None,
) -> Table:
    caption = Text(shown(title), style="bold") if title else None
    table = Table(
        title=caption, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for index, head in enumerate(heads):
        is_number = right is not None and index >= right
        width = None
        if is_number:
            width = max((len(row[index]) for row in cells), default=0)
        table.add_column(
            Text(shown(head)),
            justify="right" if is_number else "left",
            no_wrap=index == 0,
            overflow="fold",
            min_width=width,
        )
    for row in cells:
        table.add_row(*(Text(shown(cell)) for cell in row))
    return table


def _has_long_names(cells: Sequence[Sequence[str]], width: int) -> bool:
    return any(len(shown(row[0])) > width for row in cells)


def _wrap_first_column(table: Table, width: int) -> None:
    column = table.columns[0]
    column.no_wrap = False
    column.max_width = width


def _narrow_numbers(table: Table, heads: Sequence[str], right: int) -> None:
    """Give columns of numbers no more than they need, so that only columns of text give way."""
    for column, head in zip(table.columns[right:], heads[right:], strict=True):
        longest_word = max(map(len, shown(head).split()), default=0)
        column.width = max(column.min_width or 0, longest_word)


def _print_columns(
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    right: int,
    part: slice,
    title: str,
) -> None:
    """Print a table with all columns of text and some of numbers."""
    some_heads = [*heads[:right], *heads[part]]
    some_cells = [[*row[:right], *row[part]] for row in cells]
    print_table(some_heads, some_cells, title=title, right=right)


class _EscapeHook(RenderHook):
    """Escapes control characters in everything that a console prints."""

    def process_renderables(
        self, renderables: list[ConsoleRenderable]
    ) -> list[ConsoleRenderable]:
        return [_Escaped(renderable) for renderable in renderables]


class _Escaped(NamedTuple):
    """Something to print, with control characters in its texts escaped."""

    renderable: RenderableType

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Segment]:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else shown_lines(text), style, control)
