"""``superarm run navigation/sumo --net FILE``: trips driven on a user's network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from superarm.roads.networks import generate_city, suggest_trip
from superarm.roads.networks.netconvert import write_sumo

pytestmark = pytest.mark.slow  # make test does not install SUMO

pytest.importorskip("libsumo", reason="libsumo is not installed")
pytest.importorskip("sumo", reason="sumo is not installed")

Command = Callable[..., Any]
SHORT = (
    "--rounds",
    "2",
    "--seeds",
    "1",
    "--policies",
    "gp-ts,prior-potential,fastest",
    "-q",
)


class Own(NamedTuple):
    """A network file and a trip on it, as the command line takes them."""

    file: Path
    start: str
    goal: str

    def words(self, experiment: str) -> tuple[object, ...]:
        place = ("--net", self.file, "--from", self.start, "--to", self.goal)
        return ("run", experiment, *place, *SHORT)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Own:
    city = generate_city(edges=300, seed=1)
    file = write_sumo(city, tmp_path_factory.mktemp("own") / "own.net.xml")
    return Own(file, *suggest_trip(city.line_graph()))


def cells(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "cells").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["navigation/sumo", "navigation/sumo-traffic"])
def test_results_do_not_depend_on_jobs_or_resuming(
    experiment: str, cli: Command, own: Own, tmp_path: Path
) -> None:
    out = tmp_path / "one"
    summary = cli(*own.words(experiment), "--jobs", "1", "--out", out, "--json").json()
    assert {row["policy"] for row in summary["rows"]} == {
        "gp-ts",
        "prior-potential",
        "fastest",
    }
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert record["settled"][0]["route"] == f"from edge {own.start} to edge {own.goal}"
    assert record["settled"][0]["data"] == "the road network in own.net.xml"
    assert "rolling_resistance 0.012, not 0.01" in record["settled"][0]["vehicle"]
    expected = cells(out)
    assert len(expected) == 3

    two = cli(*own.words(experiment), "--jobs", "2", "--out", tmp_path / "two")
    assert two.code == 0, two.err
    assert cells(tmp_path / "two") == expected

    (out / "cells" / "gp-ts.s0.seed00000.npz").unlink()
    resumed = cli(*own.words(experiment), "--jobs", "1", "--out", out, "--resume")
    assert resumed.code == 0, resumed.err
    assert cells(out) == expected


def test_networks_that_sumo_cannot_drive_are_rejected(
    cli: Command, own: Own, town: Any
) -> None:
    tables = cli("run", "navigation/sumo", "--net", town.tables, *SHORT).fails(2)
    assert "netconvert" in tables
    place = ("--net", own.file, "--from", "nowhere", "--to", own.goal)
    assert "nowhere" in cli("run", "navigation/sumo", *place, *SHORT).fails(2)


def test_a_fleet_drives(cli: Command, own: Own, tmp_path: Path) -> None:
    """The same bytes with one process or two; ``route`` accepts its state."""
    words = (
        "run",
        "navigation/fleet",
        "--net",
        own.file,
        "--rounds",
        "4",
        "--seeds",
        "1",
        "-q",
    )
    short = (
        "--set",
        "trips=2",
        "--set",
        "moments=2",
        "--set",
        "least_metres=300",
        "--set",
        "vehicles=2",
    )
    words = (*words, *short, "--policies", "cautious,thompson,informed")
    summary = cli(*words, "--jobs", "1", "--out", tmp_path / "one", "--json").json()
    assert {row["policy"] for row in summary["rows"]} == {
        "cautious",
        "thompson",
        "informed",
    }
    record = json.loads((tmp_path / "one" / "run.json").read_text(encoding="utf-8"))
    assert "driven in SUMO" in record["settled"][0]["energy"]
    two = cli(*words, "--jobs", "2", "--out", tmp_path / "two")
    assert two.code == 0, two.err
    assert cells(tmp_path / "two") == cells(tmp_path / "one")
    state = tmp_path / "one" / "states" / "cautious.s0.seed00000.npz"
    ends = ("--net", own.file, "--from", own.start, "--to", own.goal)
    assert cli("route", *ends, "--state", state, "--json").json()["observations"] > 0
