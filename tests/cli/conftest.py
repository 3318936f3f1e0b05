"""The command line, called in this process or as a process of its own."""

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
check = "ratio-at-most"
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
        """The error message, which must be there, without a traceback, and alone."""
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


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Calls a command in this process, in an empty directory."""
    from superarm.cli.commands import superarm

    monkeypatch.chdir(tmp_path)
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
    """Runs the installed command as a process of its own, in an empty directory."""

    def call(*args: object, env: Mapping[str, str] | None = None) -> Result:
        done = subprocess.run(
            [*program(), *map(str, args)],
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            timeout=120,
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
