"""Options, errors and progress that every command shares."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from superarm.core.errors import ConflictError, SpecError, SuperarmError

Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """A group that says every error in one line on stderr, and ends with its code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        code: Any = 1
        try:
            code = super().main(*args, **extra | {"standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            message = " ".join(error.format_message().split())
            context = getattr(error, "ctx", None)
            advice = (
                f" (see `{context.command_path} --help`)" if context is not None else ""
            )
            say(f"superarm: {message}{advice}", err=True)
            code = error.exit_code
        except (SuperarmError, OSError) as error:
            notes = "; ".join(getattr(error, "__notes__", ()))
            say(
                f"superarm: {_message(error)}" + (f" ({notes})" if notes else ""),
                err=True,
            )
            code = (
                3
                if isinstance(error, ConflictError)
                else 2
                if isinstance(error, SpecError)
                else 1
            )
        except click.Abort:
            say("superarm: interrupted", err=True)
        except MemoryError as error:
            say(f"superarm: not enough memory: {error}", err=True)
        sys.exit(code if isinstance(code, int) else 0)


def _message(error: Exception) -> str:
    """The text of an error; of one that the system raised, the file and the reason."""
    if isinstance(error, SuperarmError) or not isinstance(error, OSError):
        return str(error)
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}"


def common_options(command: Command) -> Command:
    """``--json`` and ``-q``, of every command."""
    for option in (
        click.option("-q", "--quiet", is_flag=True, help="No progress on stderr."),
        click.option(
            "--json", "as_json", is_flag=True, help="Print one line of JSON on stdout."
        ),
    ):
        command = option(command)
    return command


seeded = click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The first seed.",
)
"""``--seed``, of the commands that draw random numbers."""


def _import(
    context: click.Context, option: click.Parameter, sources: tuple[str, ...]
) -> None:
    if sources:
        from superarm.core.plugins import import_parts

        for source in sources:
            import_parts(source)


importing = click.option(
    "--import",
    multiple=True,
    expose_value=False,
    callback=_import,
    metavar="FILE.py|MODULE",
    help="Import parts of your own first; may be repeated.",
)
"""``--import``: parts of the user's own, registered before the command begins."""


def check_network(net: str) -> None:
    """A network that is not there is a slip in the command."""
    from superarm.roads.routing import NETWORKS

    if net not in NETWORKS and not Path(net).exists():
        raise SpecError(
            f"there is no network {net!r}; choose {', '.join(NETWORKS)}, or give the path of a "
            "network file"
        )


def check_elevation(path: Path | None) -> None:
    check_file("--elevation", path, "file or folder; give an SRTM tile (.hgt)")


def check_file(option: str, path: Path | None, kind: str = "file") -> None:
    """A path that is not there is a slip in the command."""
    if path is not None and not path.exists():
        raise SpecError(f"{option} {path}: there is no such {kind}")


def print_json(value: object) -> None:
    """One line of ASCII, whatever the terminal's encoding; what is not finite is null."""
    from superarm.core.inputs import as_plain

    click.echo(json.dumps(as_plain(value), allow_nan=False))


@contextlib.contextmanager
def progress_bar(
    label: str, quiet: bool
) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on stderr with the time that is left; nothing when quiet."""
    if quiet:
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    told, rounds = TextColumn("{task.description}", markup=False), TextColumn("rounds")
    columns = (told, BarColumn(), MofNCompleteColumn(), rounds, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True))
    task = bar.add_task(shown(label), total=None)

    def update(done: int, total: int) -> None:
        bar.start()  # not before: what is refused has no progress
        bar.update(task, completed=done, total=total or 1)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


def say(text: object, *, err: bool = False) -> None:
    """Print for people: whatever is said, on stdout or stderr, goes through here or a console."""
    click.echo(shown_lines(str(text)), err=err)


def shown_lines(text: str) -> str:
    """:func:`shown`, line by line."""
    return "\n".join(map(shown, text.split("\n")))


def shown(text: str) -> str:
    r"""Text from a file for a terminal: what would steer the terminal is escaped.

    >>> print(shown("a\tb"))
    a\tb
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in text
    )
