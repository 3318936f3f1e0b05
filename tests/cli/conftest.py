"""Fixtures that call the command line in this process or in a subprocess."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

TINY = """
id = "tiny"
title = "A small landscape"
rounds = 12
seeds = 2
[problem]
name = "landscape"
side = 6
k = 2
[policies.gp-greedy]
[policies.random]
[[claims]]
text = "greedy beats chance"
check = "below"
policy = "gp-greedy"
versus = "random"
ratio = 1.0
"""


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Stdout, which must be one line with one object of finite numbers."""
        assert self.code == 0, self.err
        assert self.out.endswith("\n")
        assert len(self.out.splitlines()) == 1
        value = json.loads(self.out, parse_constant=_refuse)
        assert isinstance(value, dict)
        _check_finite(value)
        return value

    def fails(self, code: int) -> str:
        """The error message: required, without a traceback, and the only output."""
        assert (self.code, self.out) == (code, ""), (self.code, self.out, self.err)
        assert "Traceback" not in self.err
        assert self.err.strip()
        return self.err


Command = Callable[..., Result]


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """An experiment of the user's own that takes milliseconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return str(path)


class Town(NamedTuple):
    """A hilly grid of streets, the same as csv tables and as a SUMO network."""

    tables: Path
    net: Path


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return write_town(tmp_path, 5)


@pytest.fixture(name="write_town")
def write_town_fixture() -> Callable[[Path, int], Town]:
    return write_town


def write_town(folder: Path, side: int) -> Town:
    """Streets ``-a_b`` and the like between ``side``² junctions; the minus is part of the id."""
    places = [(x, y) for x in range(side) for y in range(side)]
    height = {
        (x, y): 12.0 * math.sin(1.3 * x) + 9.0 * math.cos(0.9 * y) for x, y in places
    }
    name = {place: f"{place[0]}{place[1]}" for place in places}
    streets = [
        (here, there)
        for here in places
        for there in (
            (here[0] + dx, here[1] + dy)
            for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))
        )
        if there in name
    ]
    ids = {street: f"-{name[street[0]]}_{name[street[1]]}" for street in streets}
    metres = {
        street: 90.0 + 7.0 * ((3 * index) % 11) for index, street in enumerate(streets)
    }
    limits = {
        street: (8.33, 13.89)[index % 3 == 0] for index, street in enumerate(streets)
    }
    turns = [
        (first, second)
        for first in streets
        for second in streets
        if first[1] == second[0] and first[0] != second[1]
    ]
    tables = folder / "tables"
    tables.mkdir()
    rows = [
        f"{name[x, y]},{100 * x},{100 * y},{z},{6 + x / 700},{49.6 + y / 1100}"
        for (x, y), z in height.items()
    ]
    _write_table(tables / "nodes.csv", "id,x,y,z,lon,lat", rows)
    rows = [
        f"{ids[s]},{name[s[0]]},{name[s[1]]},{metres[s]},{limits[s]},1" for s in streets
    ]
    _write_table(tables / "edges.csv", "id,from,to,length_m,speed_mps,passenger", rows)
    rows = [f"{ids[first]},{ids[second]},1" for first, second in turns]
    _write_table(tables / "connections.csv", "from,to,passenger", rows)
    lines = ["<net>", '<location netOffset="0.00,0.00" projParameter="!"/>']
    for s in streets:
        shape = " ".join(f"{100 * x},{100 * y},{height[x, y]}" for x, y in s)
        size = f'speed="{limits[s]}" length="{metres[s]}"'
        lane = f'<lane id="{ids[s]}_0" index="0" {size} shape="{shape}"/>'
        lines.append(
            f'<edge id="{ids[s]}" from="{name[s[0]]}" to="{name[s[1]]}">{lane}</edge>'
        )
    for (x, y), z in height.items():
        lines.append(
            f'<junction id="{name[x, y]}" type="priority" x="{100 * x}" y="{100 * y}" z="{z}"/>'
        )
    for first, second in turns:
        ends = f'from="{ids[first]}" to="{ids[second]}"'
        lines.append(f'<connection {ends} fromLane="0" toLane="0" dir="s" state="M"/>')
    net = folder / "town.net.xml"
    net.write_text("\n".join([*lines, "</net>\n"]), encoding="utf-8")
    return Town(tables, net)


def _write_table(path: Path, head: str, rows: list[str]) -> None:
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")


@pytest.fixture
def cli(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Calls a command in this process, in an empty directory; only ``--jobs`` spreads work."""
    from superarm.cli.commands import superarm

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("superarm.cli.running.available_cores", lambda: 1)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*args: object) -> Result:
        capfd.readouterr()
        code: Any = 0
        try:
            superarm.main([str(arg) for arg in args], prog_name="superarm")
        except SystemExit as end:
            code = end.code
        captured = capfd.readouterr()
        return Result(int(code or 0), captured.out, captured.err)

    return call


@pytest.fixture
def shell(tmp_path: Path) -> Command:
    """Runs the installed command in a subprocess, in an empty directory."""

    def call(*args: object, env: Mapping[str, str] | None = None) -> Result:
        done = subprocess.run(
            [
                *program(),
                *(str(arg).encode() for arg in args),
            ],  # also where the locale is ASCII
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def program() -> list[str]:
    """What the installed script does, without relying on where pip put it."""
    return [sys.executable, "-c", "from superarm.cli import main; main()"]


@pytest.fixture(name="program")
def program_fixture() -> list[str]:
    return program()


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def _check_finite(value: Any) -> None:
    if isinstance(value, float):
        assert math.isfinite(value)
    elif isinstance(value, dict):
        for item in value.values():
            _check_finite(item)
    elif isinstance(value, list):
        for item in value:
            _check_finite(item)
