"""Help, ``doctor`` and ``data``, and the few modules they load."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from superarm.cli.commands import superarm
from superarm.cli.doctor import _EXTRAS

Command = Callable[..., Any]


def commands(
    group: click.Group = superarm, prefix: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with its full name."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from commands(command, (*prefix, name))
        else:
            yield (*prefix, name), command


COMMANDS = dict(commands())
DRAWING = [("run",), ("reproduce",), ("demo",)]
NAMES = [pytest.param(name, id=" ".join(name)) for name in COMMANDS]


@pytest.mark.parametrize("name", NAMES)
def test_help(name: tuple[str, ...], cli: Command) -> None:
    for option in ("--help", "-h"):
        result = cli(*name, option)
        assert result.code == 0
        assert f"Usage: superarm {' '.join(name)}" in result.out
    assert COMMANDS[name].help


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_json_and_quiet_and_those_that_draw_a_seed(
    name: tuple[str, ...],
) -> None:
    options = {
        option for parameter in COMMANDS[name].params for option in parameter.opts
    }
    assert {"--json", "-q", "--quiet"} <= options
    assert ("--seed" in options) == (name in DRAWING)


@pytest.mark.parametrize("name", DRAWING, ids=" ".join)
def test_a_negative_seed_is_a_usage_error(name: tuple[str, ...], cli: Command) -> None:
    assert "--seed" in cli(*name, "--seed", "-1").fails(2)


def test_the_options_of_run() -> None:
    options = {
        option for parameter in COMMANDS["run",].params for option in parameter.opts
    }
    promised = [
        "seeds",
        "rounds",
        "policies",
        "jobs",
        "executor",
        "set",
        "out",
        "resume",
        "json",
    ]
    assert {f"--{name}" for name in promised} <= options


def test_groups_and_version(cli: Command) -> None:
    from superarm import __version__

    assert __version__ in cli("--version").out
    assert "run" in cli("--help").out
    assert "list" in cli("data", "--help").out
    assert "No such command" in cli("nope").fails(2)


def loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code}\nimport sys; print('\\n' + ' '.join(sys.modules))",
        ],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_superarm_loads_no_large_package() -> None:
    modules = loaded("import superarm")
    assert "superarm" in modules
    assert not {"numpy", "scipy", "click", "rich"} & modules


HELP = """
from superarm.cli import main
import sys
sys.argv = ["superarm", {words}]
try:
    main()
except SystemExit as end:
    assert not end.code
"""


LARGE = {"scipy", "numpy", "rich", "fastapi", "httpx", "uvicorn", "sqlite3", "psycopg"}


@pytest.mark.parametrize(
    "words",
    ['"--help"', '"run", "--help"', '"serve", "--help"', '"ask", "--help"'],
)
def test_help_loads_no_large_package(words: str) -> None:
    modules = loaded(HELP.format(words=words))
    assert not {name.partition(".")[0] for name in modules} & LARGE


def test_blas_is_held_to_one_thread() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            HELP.format(words='"--help"')
            + "import os; print(os.environ['OMP_NUM_THREADS'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "1"


# --- doctor ------------------------------------------------------------------------------


def test_doctor(cli: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    report = cli("doctor", "--json").json()
    project = tomllib.loads(
        Path(__file__).parents[2].joinpath("pyproject.toml").read_text()
    )["project"]
    internal = {"test", "dev", "bench"}
    assert {*_EXTRAS.values()} == {*project["optional-dependencies"]} - internal
    assert {*report["extras"]} == {*_EXTRAS}
    assert report["sound"] is True
    assert report["largest_disagreement"] < 1e-8
    assert set(report["versions"]) == {"numpy", "scipy", "click", "rich"}
    text = cli("doctor")
    assert text.code == 0
    assert "The engines agree" in text.out
    monkeypatch.setattr("superarm.cli.doctor._largest_disagreement", lambda: 1.0)
    assert cli("doctor").code == 1
    broken = cli("doctor", "--json")
    assert (broken.code, json.loads(broken.out)["sound"]) == (1, False)


@pytest.mark.parametrize("version", ["3.40.1", "3.51.2", "3.51.3", "4.0.0"])
def test_doctor_names_releases_of_sqlite_that_can_corrupt_a_wal(
    cli: Command, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    numbers = tuple(map(int, version.split(".")))
    monkeypatch.setattr("sqlite3.sqlite_version", version)
    monkeypatch.setattr("sqlite3.sqlite_version_info", numbers)
    report = cli("doctor", "--json").json()
    assert report["sqlite"] == version
    text = cli("doctor").out
    assert f"  SQLite {version}\n" in text
    note = "can corrupt a WAL that two connections write; superarm writes with one."
    is_old = version in ("3.40.1", "3.51.2")
    assert (note in text) == is_old
    assert [note in line for line in report["notes"]] == [True] * is_old


# --- data --------------------------------------------------------------------------------


@pytest.fixture
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("superarm.core.data_files.search_path", lambda: [tmp_path])
    return tmp_path


def test_data_that_are_not_here(cli: Command, no_data: Path) -> None:
    rows = cli("data", "list", "--json").json()["data"]
    assert {row["path"] for row in rows} == {None}
    assert all(row["origin"] and row["terms"] for row in rows)
    listed = cli("data", "list").out
    assert "not found" in listed
    large = next(row for row in rows if row["name"] == "movielens-25m")
    assert "ml-25m.zip" in large["command"]
    assert f"size: {large['size']}" in listed
    assert f"command: {large['command']}" in listed
    message = cli("data", "path", rows[0]["name"]).fails(1)
    assert str(no_data) in message
    assert "Terms" in message


def test_data_that_are_here(cli: Command, no_data: Path) -> None:
    from superarm.core.data_files import describe

    for dataset in describe():
        for file in dataset.files:
            (no_data / file).parent.mkdir(parents=True, exist_ok=True)
            (no_data / file).touch()
    name = describe()[0].name
    expected = str(no_data / describe()[0].files[0])
    assert cli("data", "path", name).out.strip() == expected
    assert cli("data", "path", name, "--json").json() == {
        "name": name,
        "path": expected,
    }
    assert None not in {
        row["path"] for row in cli("data", "list", "--json").json()["data"]
    }


def test_unknown_data_sets_are_rejected(cli: Command) -> None:
    assert "choose one of" in cli("data", "path", "nope").fails(2)
    cli("data", "path").fails(2)
