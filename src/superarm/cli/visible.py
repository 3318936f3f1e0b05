"""A console on which nothing from outside can steer the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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


def make_console() -> Console:
    """A console that shows control characters in texts; its own colours and cursor movements work."""
    console = Console()
    console.push_render_hook(_Shown())
    return console


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    right: int | None = None,
) -> None:
    """A table of texts, never of markup; columns from number ``right`` on hold numbers.

    Where these are too many for the terminal, tables of some of them follow each other. The first
    column holds names: they are broken where they would take more than half of the room, never cut.
    """
    caption = Text(shown(title), style="bold") if title else None
    table = Table(
        title=caption, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    cells = list(rows)
    for at, head in enumerate(heads):
        number = right is not None and at >= right
        side: Any = "right" if number else "left"
        width = max((len(row[at]) for row in cells), default=0) if number else None
        table.add_column(
            Text(shown(head)),
            justify=side,
            no_wrap=not at,
            overflow="fold",
            min_width=width,
        )
    for row in cells:
        table.add_row(*(Text(shown(cell)) for cell in row))
    console = make_console()
    wide = console.options.update(max_width=10**6)
    needed, natural = console.measure(table, options=wide)
    longest = max((len(shown(row[0])) for row in cells), default=0)
    if natural > console.width and longest > console.width // 2:
        table.columns[0].no_wrap, table.columns[0].max_width = False, console.width // 2
        needed, natural = console.measure(table, options=wide)
    if right is not None and natural > console.width:
        for column, head in zip(table.columns[right:], heads[right:], strict=True):
            # Else heads keep the room that numbers need: only texts may give way.
            column.width = max(column.min_width or 0, *map(len, shown(head).split()))
    if right is None or len(heads) < right + 2 or needed <= console.width:
        console.print(table)
        return
    middle = (right + len(heads) + 1) // 2
    for part, told in ((slice(right, middle), title), (slice(middle, None), "")):
        some = [[*row[:right], *row[part]] for row in cells]
        print_table([*heads[:right], *heads[part]], some, title=told, right=right)


class _Shown(RenderHook):
    def process_renderables(
        self, renderables: list[ConsoleRenderable]
    ) -> list[ConsoleRenderable]:
        return [_ShownOne(each) for each in renderables]


class _ShownOne(NamedTuple):
    renderable: RenderableType

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Segment]:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else shown_lines(text), style, control)
