"""``superarm run … --net FILE``: one command on a new network."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SHORT = ("--rounds", "4", "--seeds", "2", "-q")
ENDS = ("--from", "-00_10", "--to", "-34_44")
Command = Callable[..., Any]


def spec_of(out: str) -> Any:
    return json.loads((Path(out) / "run.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["net", "tables"])
def test_one_command(kind: str, cli: Command, town: Any) -> None:
    """Start and goal are suggested, and the report names the network."""
    path = getattr(town, kind)
    summary = cli(
        "run",
        "navigation/network",
        "--net",
        path.name,
        *SHORT,
        "--jobs",
        "1",
        "--out",
        "run",
        "--json",
    ).json()
    assert {row["policy"] for row in summary["rows"]} >= {"gp-ts", "bi-ts", "fastest"}
    spec = spec_of("run")
    assert spec["settled"][0]["data"] == f"the road network in {path.name}"
    assert "from edge -" in spec["settled"][0]["route"]
    assert spec["parameters"]["problem"]["network"] == str(path.resolve())
    page = (Path("run") / "report.html").read_text(encoding="utf-8")
    assert f"the road network in {path.name}" in page


def test_start_and_goal(cli: Command, town: Any) -> None:
    words = (
        "run",
        "navigation/network",
        "--net",
        town.net,
        *ENDS,
        *SHORT,
        "--policies",
        "gp-ts",
    )
    assert cli(*words, "--jobs", "1", "--out", "run").code == 0
    assert spec_of("run")["settled"][0]["route"] == "from edge -00_10 to edge -34_44"


@pytest.mark.slow
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
    resumed = cli(*words, "--net", nearer, "--jobs", "1", "--out", out, "--resume")
    assert resumed.code == 0, resumed.err
    assert {
        path.name: path.read_bytes() for path in (out / "cells").iterdir()
    } == before
    shutil.copy(town.net, tmp_path / "copy.net.xml")
    other = cli(
        *words, "--net", tmp_path / "copy.net.xml", "--out", out, "--resume"
    ).fails(3)
    assert "contains a different run" in other


def write_experiment(folder: Path, problem: str) -> Path:
    """An experiment on roads with these lines about its problem."""
    path = folder / "own.toml"
    path.write_text(
        'id = "own"\nrounds = 3\nseeds = 1\n[problem]\nname = "navigation"\n'
        f"{problem}\n[policies.prior]\n",
        encoding="utf-8",
    )
    return path


def test_a_named_route_makes_way(cli: Command, town: Any, tmp_path: Path) -> None:
    """An experiment with its own route runs on another network on request."""
    own = write_experiment(tmp_path, 'route = "monaco-a"')
    run = cli("run", own, "--net", town.net, "--jobs", "1", "-q", "--out", "run")
    assert run.code == 0
    problem = spec_of("run")["parameters"]["problem"]
    assert spec_of("run")["title"] == "town.net.xml: own"
    assert "<h1>town.net.xml: own</h1>" in Path("run/report.html").read_text(
        encoding="utf-8"
    )
    assert problem.get("route") is None
    assert problem["network"] == str(town.net)


def test_ends_of_another_network_are_forgotten(
    cli: Command, town: Any, tmp_path: Path
) -> None:
    ends = 'network = "city"\nstart = "r1"\ngoal = "r2"'
    own = write_experiment(tmp_path, ends)
    run = cli("run", own, "--net", town.net, "--jobs", "1", "-q", "--out", "run")
    assert run.code == 0
    assert "from edge -" in spec_of("run")["settled"][0]["route"]


@pytest.mark.parametrize("how", ["--net", "--set"])
def test_a_swept_route_makes_way(how: str, cli: Command, town: Any) -> None:
    """An experiment with four routes runs on the one network that is named."""
    named = (
        ("--net", town.net) if how == "--net" else ("--set", f'network="{town.net}"')
    )
    words = (
        "--rounds",
        "2",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "-q",
        "--out",
        "run",
        "--json",
    )
    summary = cli("run", "navigation/betas", *named, *words).json()
    assert {row["policy"] for row in summary["rows"]} == {
        "gp-ucb",
        "gp-ucb-half",
        "gp-bucb",
        "gp-bucb-half",
    }
    assert all(row["setting"] == {} for row in summary["rows"])
    spec = spec_of("run")
    assert spec["settings"] == [{}]
    assert spec["settled"][0]["data"] == "the road network in town.net.xml"
    assert "route" not in spec["parameters"]["problem"]


def test_the_rest_of_a_sweep_stays(cli: Command, town: Any) -> None:
    words = (
        "--net",
        town.net,
        *ENDS,
        "--policies",
        "gp-ts",
        "--rounds",
        "2",
        "--seeds",
        "1",
    )
    done = cli(
        "run", "navigation/lengthscale", *words, "--jobs", "1", "-q", "--out", "run"
    )
    assert done.code == 0, done.err
    spec = spec_of("run")
    assert [list(setting) for setting in spec["settings"]] == [["lengthscale"]] * 5
    assert spec["settled"][0]["route"] == "from edge -00_10 to edge -34_44"


def test_users_network_must_be_named(cli: Command) -> None:
    run = ("run", "navigation/network", *SHORT, "--jobs", "1")
    assert "needs a road network: pass --net" in cli(*run).fails(2)
    assert "needs a road network: pass --net" in cli(*run, *ENDS).fails(2)
    city = ("--set", "network=city", "--set", "edges=200", "--policies", "prior")
    assert cli(*run, *city, "--out", "run").code == 0
    assert "a generated city" in spec_of("run")["settled"][0]["data"]


def test_broken_network_is_not_a_usage_error(cli: Command, town: Any) -> None:
    """As for ``route``: a broken file is not the caller's mistake."""
    text = town.net.read_text(encoding="utf-8")
    town.net.write_text(text.replace('length="', 'length="x', 1), encoding="utf-8")
    for named in (("--net", town.net), ("--set", f'network="{town.net}"')):
        words = cli("run", "navigation/network", *named, *SHORT).fails(1)
        assert "town.net.xml" in words
        assert "line 3" in words
    assert (
        cli("route", "--net", town.net, *ENDS).fails(1).partition("town.net.xml")[2]
        in words
    )


# --- heights from elsewhere ----------------------------------------------------------------


@pytest.fixture
def tile(tmp_path: Path) -> Path:
    """Heights that rise to the north-east over the town."""
    side = 1201
    row, column = np.indices((side, side))
    folder = tmp_path / "srtm"
    folder.mkdir()
    heights = (40.0 * np.sin(row * 1.5) + 30.0 * np.cos(column * 2.5)).astype(">i2")
    (folder / "N49E006.hgt").write_bytes(heights.tobytes())
    return folder / "N49E006.hgt"


def test_elevation(cli: Command, town: Any, tile: Path) -> None:
    """The run and a route from its state use the tile's heights, not the file's."""
    from superarm.roads.networks import read_network

    net = ("--net", town.tables, *ENDS)
    plain = cli("route", *net, "--json").json()
    raised = cli("route", *net, "--elevation", tile, "--json").json()
    assert cli("route", *net, "--elevation", tile.parent, "--json").json() == raised
    assert (plain["flat"], raised["flat"]) == (False, False)
    graph = read_network(town.tables, elevation=tile).line_graph()
    edges = [graph.number(edge) for edge in raised["edges"]]
    assert raised["climb_m"] == pytest.approx(graph.rise[edges].clip(min=0.0).sum())
    words = (
        "--elevation",
        tile.name,
        "--policies",
        "gp-ts",
        *SHORT,
        "--jobs",
        "1",
        "--out",
        "run",
    )
    os.chdir(tile.parent)
    ran = cli("run", "navigation/network", *net, *words)
    assert spec_of("run")["parameters"]["problem"]["elevation"] == str(tile)
    state = Path("run/states/gp-ts.s0.seed00000.npz")
    learned = cli("route", *net, "--elevation", tile, "--state", state, "--json").json()
    assert learned["observations"] > 0
    shown = re.search(r"has learned:\n  superarm (.*)\n", ran.out)
    assert shown is not None, ran.out
    assert cli(*shlex.split(shown[1]), "--json").json() == learned
    words = cli("route", *net, "--state", state).fails(1)
    assert "learned on another road network (heights differ" in words
    assert "Pass the same network and elevation" in words


def test_flat(cli: Command, town: Any, tile: Path, tiny: str) -> None:
    """All roads at one height: in a run, in its state and in a route."""
    net = ("--net", town.tables, *ENDS)
    level = cli("route", *net, "--flat", "--json").json()
    assert level["flat"] is True
    assert cli("route", *net, "--set", "flat=true", "--json").json() == level
    assert "or you passed --flat" in cli("route", *net, "--flat").out
    short = ("--flat", "--policies", "gp-ts", *SHORT, "--jobs", "1", "--out", "run")
    assert cli("run", "navigation/network", *net, *short).code == 0
    assert spec_of("run")["parameters"]["problem"]["flat"] is True
    state = Path("run") / "states" / "gp-ts.s0.seed00000.npz"
    assert (
        cli("route", *net, "--flat", "--state", state, "--json").json()["flat"] is True
    )
    words = cli("route", *net, "--state", state).fails(1)
    assert "learned on another road network (heights differ" in words
    assert "for problems on roads" in cli("run", tiny, "--flat").fails(2)
    both = ("--flat", "--elevation", tile)
    assert "not both" in cli("route", *net, *both).fails(1)


def test_elevation_that_is_refused(
    cli: Command, town: Any, tile: Path, tiny: str
) -> None:
    run = ("run", "navigation/network", *SHORT, "--net", town.tables)
    for command in (run, ("route", "--net", town.tables, *ENDS)):
        assert "file not found" in cli(*command, "--elevation", "nothing.hgt").fails(2)
    assert "for problems on roads" in cli("run", tiny, "--elevation", tile).fails(2)
    twice = cli(*run, "--elevation", tile, "--set", f'elevation="{tile}"').fails(2)
    assert "both set" in twice
    tile.write_bytes(b"junk")
    for command in (run, ("route", "--net", town.tables, *ENDS)):
        assert "has 4 bytes" in cli(*command, "--elevation", tile).fails(1)
        placeless = (
            (*command[:-1], town.net)
            if command is run
            else ("route", "--net", town.net, *ENDS)
        )
        assert "no geographic reference" in cli(*placeless, "--elevation", tile).fails(
            1
        )


# --- refusals ------------------------------------------------------------------------------


def test_invalid_input_is_rejected(cli: Command, town: Any, tiny: str) -> None:
    run = ("run", "navigation/network", *SHORT)
    assert "for problems on roads" in cli("run", tiny, "--net", town.net).fails(2)
    assert "for problems on roads" in cli("run", tiny, *ENDS).fails(2)
    assert "go together" in cli(*run, "--net", town.net, "--from", "-00_10").fails(2)
    words = cli(*run, "--net", town.net, *ENDS, "--set", "start=r1").fails(2)
    assert "both set" in words
    route = cli(
        "run", "navigation/betas", "--net", town.net, "--set", "route=monaco-a"
    ).fails(2)
    assert "omit --net, --from and --to" in route
    where = cli("run", "navigation/betas", *ENDS).fails(2)
    assert "luxembourg and monaco; pass --net with the network" in where
    assert "'nowhere' is neither a file nor a known network" in cli(
        *run, "--net", "nowhere"
    ).fails(2)
    wrong = cli(*run, "--net", town.net, "--from", "-00_11", "--to", "-34_44").fails(2)
    assert "did you mean" in wrong
    assert not (Path("runs")).exists()


def test_sumo_navigation_takes_the_same_options(town: Any) -> None:
    import superarm.roads.problems.sumo  # noqa: F401 - registers it
    from superarm.cli.places import Place
    from superarm.lab.experiments import load_experiment

    experiment = load_experiment("navigation/network")
    driven = experiment.with_setting(
        {"problem.name": "sumo-navigation", "problem.network": "monaco"}
    )
    placed, parameters = Place(str(town.net), "-00_10", "-34_44").applied(driven, {})
    assert parameters == {
        "problem.network": str(town.net.resolve()),
        "problem.start": "-00_10",
        "problem.goal": "-34_44",
    }
    assert placed.with_setting(parameters).problem["goal"] == "-34_44"
