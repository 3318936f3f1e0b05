"""A console on which nothing from outside can steer the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

from .common import shown_lines


def make_console() -> Console:
    """A console that shows control characters in texts; its own colours and cursor movements work."""
    console = Console()
    console.push_render_hook(_Shown())
    return console


class _Shown(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_ShownOne(each) for each in renderables]


class _ShownOne(NamedTuple):
    renderable: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else shown_lines(text), style, control)
