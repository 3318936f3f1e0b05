"""Options, errors and progress that every command shares."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from superarm.core.errors import (
    ConflictError,
    SpecError,
    SuperarmError,
    UnknownPartError,
)

Command = TypeVar("Command", bound=Callable[..., Any])

# Exit codes.
_FAILURE = 1
_USAGE = 2
_CONFLICT = 3


class Commands(click.Group):
    """A group of commands that prints every error as one line on stderr and exits with its code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command and exit.

        Args:
            args: Arguments for click.
            extra: Further arguments for click.
        """
        extra["standalone_mode"] = False  # errors are handled here
        code: Any = _FAILURE
        try:
            code = super().main(*args, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.ClickException as error:
            say(f"superarm: {_usage_message(error)}", err=True)
            code = error.exit_code
        except (SuperarmError, OSError) as error:
            say(f"superarm: {_message(error)}", err=True)
            code = _exit_code(error)
        except click.Abort:
            say("superarm: interrupted", err=True)
        except MemoryError as error:
            say(f"superarm: not enough memory: {error}", err=True)
        sys.exit(code if isinstance(code, int) else 0)


def _exit_code(error: Exception) -> int:
    if isinstance(error, ConflictError):
        return _CONFLICT
    if isinstance(error, SpecError):
        return _USAGE
    return _FAILURE


def _usage_message(error: click.ClickException) -> str:
    message = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    return f"{message} (see `{context.command_path} --help`)"


def _message(error: Any) -> str:
    """The text and the notes of an error; for one of the system, the file and the reason."""
    message = str(error)
    of_system = isinstance(error, OSError) and not isinstance(error, SuperarmError)
    if of_system and error.filename is not None and error.strerror is not None:
        message = f"{error.filename}: {error.strerror}"
    if _names_unknown_part(error):
        message += " (--import FILE.py adds your own)"
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{message} ({notes})" if notes else message


def _names_unknown_part(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is about a name that is not registered."""
    while error is not None:
        if isinstance(error, UnknownPartError):
            return True
        error = error.__cause__
    return False


def common_options(command: Command) -> Command:
    """Add ``--json`` and ``-q``, which every command has.

    Args:
        command: The command.
    """
    add_quiet = click.option(
        "-q", "--quiet", is_flag=True, help="Show no progress on stderr."
    )
    add_json = click.option(
        "--json", "as_json", is_flag=True, help="Print one line of JSON on stdout."
    )
    return add_json(add_quiet(command))


seeded = click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="The first seed.",
)
"""``--seed``, for the commands that draw random numbers."""


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
"""``--import``: registers the user's own parts before the command runs."""


def check_network(net: str) -> None:
    """Refuse a network that does not exist.

    Args:
        net: The name of a network, or its file.
    """
    from superarm.roads.routing import NETWORKS

    if net not in NETWORKS and not Path(net).exists():
        raise SpecError(
            f"{net!r} is neither a file nor a known network ({', '.join(NETWORKS)})"
        )


def check_elevation(path: Path | None) -> None:
    """Refuse heights that do not exist.

    Args:
        path: What ``--elevation`` names.
    """
    check_file("--elevation", path, "pass an SRTM tile (.hgt) or a folder of tiles")


def check_file(option: str, path: Path | None, advice: str = "") -> None:
    """Refuse a path that does not exist.

    Args:
        option: The option that names it.
        path: The path; ``None`` without the option.
        advice: What to pass instead, for the error.
    """
    if path is not None and not path.exists():
        message = f"{option} {path}: file not found"
        raise SpecError(f"{message}; {advice}" if advice else message)


def print_json(value: object) -> None:
    """Print one line of JSON, in ASCII for terminals of any encoding; NaN and infinity are null.

    Args:
        value: Plain values, arrays and containers of these.
    """
    from superarm.core.inputs import as_plain

    click.echo(json.dumps(as_plain(value), allow_nan=False))


@contextlib.contextmanager
def progress_bar(
    label: str, quiet: bool, *, unit: str = "rounds"
) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr with the remaining time.

    Yields a function of the units done and all units; ``None`` when quiet.

    Args:
        label: The text beside the bar.
        quiet: Whether to show nothing.
        unit: What is counted.
    """
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

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    task = bar.add_task(shown(label), total=None)

    def update(done: int, total: int) -> None:
        if total == 0:  # nothing left to run
            return
        bar.start()  # not earlier: a command that is refused shows no bar
        bar.update(task, completed=done, total=total)

    try:
        yield update
    finally:
        if bar.live.is_started:
            bar.stop()


def say(text: object, *, err: bool = False) -> None:
    """Print for people, with control characters escaped.

    Args:
        text: What to print.
        err: Whether to print on stderr.
    """
    click.echo(shown_lines(str(text)), err=err)


def shown_lines(text: str) -> str:
    """:func:`shown`, line by line.

    Args:
        text: Any text.
    """
    return "\n".join(map(shown, text.split("\n")))


def shown(text: str) -> str:
    r"""Text that cannot control a terminal: other than printable characters are escaped.

    Args:
        text: Any text, such as from a file.

    >>> print(shown("a\tb"))
    a\tb
    """
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()
