"""External text cannot control the terminal."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import superarm.cli
from superarm.cli.common import say, shown, shown_lines
from superarm.cli.visible import make_console, print_table

Command = Callable[..., Any]
ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e\x9b"
"""Sets the title of a window, clears it, and turns the direction of writing."""
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")

OWN = """
id = "tiny ESC"
title = "A ESC landscape"
rounds = 3
seeds = 1
[problem]
name = "landscape"
side = 4
[policies."greedy ESC"]
policy = "gp-greedy"
[policies.random]
[[claims]]
text = "greedy ESC beats chance"
check = "below"
policy = "greedy ESC"
versus = "random"
ratio = 1.0
"""


def test_text_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown("a\tb\n\x1b[1mc\u202eé → 東") == r"a\tb\n\x1b[1mc\u202eé → 東"
    assert shown_lines("a\x1b\nb") == "a\\x1b\nb"
    say(Path("a\x1b"))
    say("b\x07", err=True)
    assert capfd.readouterr() == ("a\\x1b\n", "b\\x07\n")


def test_console_escapes_text_and_keeps_its_own_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(
        "superarm.cli.visible.Console",
        lambda: Console(
            file=out, force_terminal=True, color_system="standard", width=80
        ),
    )
    make_console().print(f"[red]a{ESCAPE}b[/red]\n[bold]c", highlight=False)
    printed = shown(ESCAPE.replace("\x07", ""))  # rich itself leaves out bells
    assert out.getvalue() == f"\x1b[31ma{printed}b\x1b[0m\n\x1b[1mc\x1b[0m\n"


def test_cli_prints_from_one_module() -> None:
    for path in Path(superarm.cli.__file__).parent.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.count("click.echo(") == (2 if path.name == "common.py" else 0), (
            path.name
        )
        assert ("Console(" in text) == (path.name in ("common.py", "visible.py")), (
            path.name
        )


def test_names_of_an_experiment(cli: Command, tmp_path: Path) -> None:
    escaped = "".join(f"\\u{ord(character):04x}" for character in ESCAPE)
    (tmp_path / "own.toml").write_text(OWN.replace("ESC", escaped), encoding="utf-8")
    result = cli("run", "own.toml", "--jobs", "1", "--out", "a")
    assert result.code == 0, result.err
    assert not STEERING.search(result.out + result.err)
    assert shown(ESCAPE) in result.out.replace("\n", "")
    result = cli("run", "own.toml", "--policies", f"x{ESCAPE}")
    assert result.code == 2
    assert not STEERING.search(result.out + result.err)


def test_ids_of_a_network(cli: Command, town: Any) -> None:
    for path in town.tables.iterdir():
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("-00_10", f"-00{ESCAPE}_10"), encoding="utf-8")
    # A file system that is said to be ASCII cannot hold all of them in a name.
    steering = ESCAPE.encode(sys.getfilesystemencoding(), "ignore").decode()
    folder = town.tables.rename(town.tables.with_name(f"town{steering}"))
    result = cli(
        "route", "--net", folder, "--from", f"-00{ESCAPE}_10", "--to", "-34_44"
    )
    assert result.code == 0, result.err
    assert shown(ESCAPE) in result.out
    assert not STEERING.search(result.out + result.err)
    for end in (f"-00{ESCAPE}_1", "-00"):
        result = cli("route", "--net", folder, "--from", end, "--to", "-34_44")
        assert result.code == 2
        assert not STEERING.search(result.err)
    result = cli(
        "run",
        "navigation/network",
        "--net",
        folder,
        "--rounds",
        3,
        "--seeds",
        1,
        "--jobs",
        1,
    )
    assert result.code == 0, result.err
    assert not STEERING.search(result.out + result.err)


def test_narrow_terminals_show_every_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    heads = ["policy", *(f"metric {number}" for number in range(9)), "time per round"]
    print_table(
        heads,
        [["mine", *(f"{number},000 ± 10" for number in range(9)), "7 ms"]],
        right=1,
    )
    output = " ".join(capsys.readouterr().out.split())
    assert all(f"{number},000 ± 10" in output for number in range(9))
    assert "7 ms" in output
    assert output.count("policy") == output.count("mine") > 1


@pytest.mark.parametrize("columns", [60, 74, 80, 84, 100])
def test_numbers_are_never_cut(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is little room, texts and heads wrap, and numbers keep their units."""
    monkeypatch.setenv("COLUMNS", str(columns))
    heads = [
        "policy",
        "setting",
        "cumulative regret",
        "cumulative reward",
        "average regret",
        "time per round",
    ]
    numbers = ["53.6 ± 24.6", "384 ± 51", "0.268 ± 0.123", "16.8 µs"]
    print_table(heads, [["gp-ucb-static", "epsilon = 0.001", *numbers]], right=2)
    printed = capsys.readouterr().out
    assert all(number in printed for number in numbers)
    assert max(map(len, printed.splitlines())) <= columns


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_names_are_never_cut(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that would take more than half of the room are broken, and numbers stay whole."""
    monkeypatch.setenv("COLUMNS", str(columns))
    name = "".join(f"-{number:03d}abc" for number in range(15))  # 105 letters, no space
    heads = ["policy", "setting", "cumulative regret", "time per round"]
    for right, cells in (
        (2, [name, "epsilon = 0.001", "53.6 ± 24.6", "16.8 µs"]),
        (None, [name, "words"]),
    ):
        print_table(heads[: len(cells)], [cells, ["short", *cells[1:]]], right=right)
        printed = capsys.readouterr().out
        assert max(map(len, printed.splitlines())) <= columns
        column = "".join(
            line.split()[0] for line in printed.splitlines() if line.strip()
        )
        assert name in column
        assert all(number in printed for number in cells[2:])
    print_table(
        ["name", "m"], [["a" * (columns - 8), "17"]], right=1
    )  # it fits as it is
    assert "a" * (columns - 8) in capsys.readouterr().out
