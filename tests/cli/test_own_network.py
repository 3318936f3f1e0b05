"""``superarm run … --net FILE``: one command on roads that nobody has seen."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SHORT = ("--rounds", "4", "--seeds", "2", "-q")
ENDS = ("--from", "-00_10", "--to", "-34_44")
Command = Callable[..., Any]


def spec_of(out: str) -> Any:
    return json.loads((Path(out) / "run.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["net", "tables"])
def test_one_command(kind: str, cli: Command, town: Any) -> None:
    """Start and goal are suggested, and the report says where all this was."""
    path = getattr(town, kind)
    summary = cli(
        "run", "navigation/network", "--net", path.name, *SHORT, "--jobs", "1", "--out", "run", "--json"
    ).json()
    assert {row["policy"] for row in summary["rows"]} >= {"gp-ts", "bi-ts", "fastest"}
    spec = spec_of("run")
    assert spec["settled"]["data"] == f"the road network in {path.name}"
    assert "from edge -" in spec["settled"]["route"]
    assert spec["parameters"]["problem"]["network"] == str(path.resolve())
    page = (Path("run") / "report.html").read_text(encoding="utf-8")
    assert f"the road network in {path.name}" in page


def test_start_and_goal(cli: Command, town: Any) -> None:
    words = ("run", "navigation/network", "--net", town.net, *ENDS, *SHORT, "--policies", "gp-ts")
    assert cli(*words, "--jobs", "1", "--out", "run").code == 0
    assert spec_of("run")["settled"]["route"] == "from edge -00_10 to edge -34_44"


def test_workers_and_resuming_find_the_same_file(
    cli: Command, town: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("run", "navigation/network", *ENDS, *SHORT, "--policies", "gp-ts,prior")
    out = tmp_path / "run"
    assert cli(*words, "--net", town.net.name, "--jobs", "2", "--out", out).code == 0
    before = {path.name: path.read_bytes() for path in (out / "cells").iterdir()}
    (out / "cells" / "gp-ts.s0.seed00001.npz").unlink()
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    nearer = os.path.relpath(town.net)
    again = cli(*words, "--net", nearer, "--jobs", "1", "--out", out, "--resume")
    assert again.code == 0, again.err
    assert {path.name: path.read_bytes() for path in (out / "cells").iterdir()} == before
    shutil.copy(town.net, tmp_path / "copy.net.xml")
    other = cli(*words, "--net", tmp_path / "copy.net.xml", "--out", out, "--resume").fails(3)
    assert "holds another run" in other


def test_a_named_route_makes_way(cli: Command, town: Any, tmp_path: Path) -> None:
    """An experiment that names a route of its own runs elsewhere when told so."""
    own = tmp_path / "own.toml"
    own.write_text(
        'id = "own"\nrounds = 3\nseeds = 1\n[problem]\nname = "navigation"\nroute = "monaco-a"\n'
        "[policies.prior]\n",
        encoding="utf-8",
    )
    assert cli("run", own, "--net", town.net, "--jobs", "1", "-q", "--out", "run").code == 0
    problem = spec_of("run")["parameters"]["problem"]
    assert problem["route"] is None
    assert problem["network"] == str(town.net)


def test_ends_of_another_network_are_forgotten(cli: Command, town: Any, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'id = "own"\nrounds = 3\nseeds = 1\n[problem]\nname = "navigation"\nnetwork = "city"\n'
        'start = "r1"\ngoal = "r2"\n[policies.prior]\n',
        encoding="utf-8",
    )
    assert cli("run", own, "--net", town.net, "--jobs", "1", "-q", "--out", "run").code == 0
    assert "from edge -" in spec_of("run")["settled"]["route"]


def test_what_is_refused(cli: Command, town: Any, tiny: str) -> None:
    run = ("run", "navigation/network", *SHORT)
    assert "for problems on roads" in cli("run", tiny, "--net", town.net).fails(2)
    assert "for problems on roads" in cli("run", tiny, *ENDS).fails(2)
    assert "go together" in cli(*run, "--net", town.net, "--from", "-00_10").fails(2)
    words = cli(*run, "--net", town.net, *ENDS, "--set", "start=r1").fails(2)
    assert "given twice" in words
    assert "there is no network 'nowhere'" in cli(*run, "--net", "nowhere").fails(2)
    wrong = cli(*run, "--net", town.net, "--from", "-00_11", "--to", "-34_44").fails(2)
    assert "did you mean" in wrong
    assert not (Path("runs")).exists()


def test_sumo_navigation_takes_the_same_options(town: Any) -> None:
    import superarm.problems.sumo  # noqa: F401 - registers it
    from superarm.cli.running import Place
    from superarm.experiments import load_experiment

    experiment = load_experiment("navigation/network")
    driven = experiment.with_setting({"problem.name": "sumo-navigation", "problem.network": "monaco"})
    replaced = Place(str(town.net), "-00_10", "-34_44").parameters(driven)
    assert replaced == {
        "problem.network": str(town.net.resolve()),
        "problem.start": "-00_10",
        "problem.goal": "-34_44",
    }
    assert driven.with_setting(replaced).problem["goal"] == "-34_44"
