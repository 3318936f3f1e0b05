"""The demo: in a pipe, in a terminal, twice, and never over someone else's files."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from summary_keys import SUMMARY_KEYS

from superarm.core.errors import ConflictError
from superarm.lab import demo
from superarm.lab.demo import picture
from superarm.lab.demo.learning import City, Frame, describe_city, learn, make_world
from superarm.lab.demo.result import Outcome, Row
from superarm.lab.demo.terminal import Canvas, Screen, display
from superarm.lab.experiments import Plan, execute, load_experiment

CALL = [sys.executable, "-c", "from superarm.cli import main; main()", "demo"]
SHORT = ["--rounds", "10", "--delay", "0"]


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One demo in a pipe, for several tests to look at."""
    here = tmp_path_factory.mktemp("demo")
    done = subprocess.run(
        [*CALL, *SHORT], cwd=here, capture_output=True, text=True, check=True
    )
    return here / "demo", done


@pytest.mark.thorough
def test_in_a_pipe(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = finished
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert len(re.findall(r"^round +\d+/10 ", done.stdout, re.MULTILINE)) == 2
    for word in (
        "gp-ts",
        "bi-ts",
        "prior",
        "fastest",
        "shortest",
        "10 trips, 10 seeds",
    ):
        assert word in done.stdout
    assert "In its last 5 trips, on average over 10 seeds, gp-ts" in done.stdout
    words = " ".join(done.stdout.split())
    assert "The table shows means over 10 seeds (± standard error)." in words
    assert "The animation shows seed 0: " in words
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "The animation shows seed 0: " in page
    assert "one of 10 seeds; their energies differ" in page
    assert "a generated city (city seed 5)" in page
    assert "Lowest energy per trip, mean of all 10:" in page
    assert "demo/report.html" in done.stdout
    names = {path.name for path in out.iterdir()}
    assert names == demo._OURS - {"figures"}
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["rounds"], summary["seeds"]) == (10, 10)


@pytest.mark.slow
def test_quiet_prints_only_the_result(
    finished: tuple[Path, subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    _, loud = finished
    call = [*CALL, *SHORT, "-q"]
    done = subprocess.run(
        call, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert loud.stdout.endswith(done.stdout.lstrip("\n"))
    assert done.stdout.count("gp-ts") >= 2
    assert "round" not in done.stdout.splitlines()[0]


def test_demo_picture_is_complete_and_self_contained(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, _ = finished
    text = (out / "learning.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [
        name
        for node in root.iter()
        for name in node.attrib
        if name.endswith(("href", "src"))
    ]
    assert len(text) < 300_000
    assert not re.search(r"url\(|@import|<script|<foreignObject| on\w+=", text)
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert text in (out / "report.html").read_text(encoding="utf-8")
    moving = [element for element in root.iter() if element.tag.endswith("animate")]
    frames = len(moving) // 4  # of each, map and numbers: what stays and what passes
    assert frames >= 6
    # All start together, at the moment when the last frame has come: a preview shows that one.
    assert {element.get("begin") for element in moving} == {f"-{0.35 * frames:.2f}s"}
    groups = [node for node in root.iter() if any(child in moving for child in node)]
    shown = [node.get("opacity") for node in groups]
    assert shown.count("1") == 2 * frames + 2  # all that stays, and the last trip
    assert shown.count("0") == 2 * frames - 2
    assert "prefers-color-scheme:dark" in text
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "How the paper was read" not in page
    assert "Smaller than the full experiment: 10 of 50 rounds." in page


def test_the_documented_picture_is_the_demos_own() -> None:
    """docs/demo.svg is what ``superarm demo`` draws."""
    documented = Path(__file__).parents[2] / "docs" / "demo.svg"
    experiment = load_experiment(demo.EXPERIMENT)
    problem = make_world(experiment, rounds=demo.ROUNDS, seed=0)
    frames = learn(experiment, problem, rounds=demo.ROUNDS, seed=0)
    drawn = picture.animated_svg(describe_city(problem), frames, 0, 10)
    if drawn == documented.read_text(encoding="utf-8"):
        return

    def structure(text: str) -> tuple[Any, ...]:
        titles = re.findall(r'font-weight="600"[^>]*>([^<]+)<', text)
        captions = [
            re.sub(r"[-\d.]+", "#", label)
            for label in re.findall(r">(round [^<]+)<", text)
        ]
        return (
            titles,
            text.count("<animate "),
            captions,
            re.findall(r'viewBox="([^"]+)"', text),
        )

    # Another BLAS may round differently and then choose another road; the drawing is the same.
    advice = "run `superarm demo` and copy demo/learning.svg to docs/demo.svg"
    assert structure(drawn) == structure(documented.read_text(encoding="utf-8")), advice


def test_every_frame_but_the_last_shows_another_route(
    learned: tuple[City, list[Frame]],
) -> None:
    """Nothing stands still while trips repeat."""
    _, frames = learned
    chosen = picture._select_frames(frames)
    assert (chosen[0], chosen[-1]) == (frames[0], frames[-1])
    steps = [frame.step for frame in chosen]
    assert steps == sorted(set(steps))
    for frame in chosen[1:-1]:
        assert not np.array_equal(frame.route, frames[frame.step - 2].route)


@pytest.mark.slow
def test_a_second_demo_replaces_the_first(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, _ = finished
    cells = {path.name: path.read_bytes() for path in (out / "cells").iterdir()}
    (out / "figures").mkdir()  # superarm report makes these
    (out / ".summary.json.0123abcd.tmp").write_bytes(b"left behind")
    done = subprocess.run(
        [*CALL, *SHORT, "--json", "--seed", "1"],
        cwd=out.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")
    summary = json.loads(done.stdout)
    assert list(summary) == [*SUMMARY_KEYS, "trips", "conclusion"]
    assert [row["energy_wh"] for row in summary["trips"]] == sorted(
        row["energy_wh"] for row in summary["trips"]
    )
    names = {path.name for path in out.iterdir()}
    assert names == demo._OURS - {"figures"}
    now = {path.name: path.read_bytes() for path in (out / "cells").iterdir()}
    shared = [name for name in now if name in cells]
    assert len(shared) == 5 * 9  # seeds 1 … 9 of 0 … 9 and 1 … 10: the same worlds
    assert all(now[name] == cells[name] for name in shared)


def small_plan(out: Path) -> Plan:
    experiment = load_experiment(demo.EXPERIMENT).with_policies(["prior"])
    return Plan.make(experiment, out=out, rounds=3, seeds=1)


def test_only_demos_are_replaced(tmp_path: Path) -> None:
    """A run with the same kinds of files may have cost hours."""
    out = tmp_path / "out"
    execute(small_plan(out))
    before = sorted(out.rglob("*"))
    with pytest.raises(ConflictError, match="files that are not from a demo"):
        demo.run_demo(out=out, quiet=True)
    assert sorted(out.rglob("*")) == before
    (out / "learning.svg").touch()
    spec = json.loads((out / "run.json").read_text(encoding="utf-8"))
    (out / "run.json").write_text(
        json.dumps({**spec, "experiment": "mine"}), encoding="utf-8"
    )
    with pytest.raises(ConflictError):
        demo._make_room(out)
    (out / "run.json").write_text(json.dumps(spec), encoding="utf-8")
    (out / "precious.txt").touch()
    with pytest.raises(ConflictError):
        demo._make_room(out)
    (out / "precious.txt").unlink()
    demo._make_room(out)
    assert list(out.iterdir()) == []


def test_interrupted_demo_keeps_the_previous_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    execute(small_plan(out))
    (out / "learning.svg").touch()
    before = sorted(out.rglob("*"))

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "learn", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo.run_demo(out=out, silent=True)
    assert sorted(out.rglob("*")) == before


@pytest.mark.parametrize("spec", [None, "{", "[]", "{}"])
def test_files_without_a_run_are_rejected(spec: str | None, tmp_path: Path) -> None:
    (tmp_path / "learning.svg").touch()
    if spec is not None:
        (tmp_path / "run.json").write_text(spec, encoding="utf-8")
    with pytest.raises(ConflictError):
        demo._make_room(tmp_path)
    with pytest.raises(ConflictError, match="is a file"):
        demo._make_room(tmp_path / "learning.svg")


def test_conflict_exits_3(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "notes.txt").touch()
    done = subprocess.run(
        [*CALL, *SHORT, "--json"], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"Traceback" not in done.stderr


# --- in a terminal -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned() -> tuple[City, list[Frame]]:
    """Twenty-five trips of the demo's own learner."""
    experiment = load_experiment(demo.EXPERIMENT)
    problem = make_world(experiment, rounds=25, seed=0)
    return describe_city(problem), learn(experiment, problem, rounds=25, seed=0)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "height"),
    [(20, 10), (40, 24), (58, 24), (60, 24), (80, 24), (120, 40), (300, 80)],
)
def test_the_live_display_fits(
    width: int,
    height: int,
    learned: tuple[City, list[Frame]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    city, frames = learned
    stream = StringIO()
    console = Console(
        file=stream,
        force_terminal=True,
        width=width,
        height=height,
        color_system="truecolor",
    )
    console.print(Screen(city, 25, width, height).draw(frames[0]))
    lines = plain(stream.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert text.count("◆") == 1 + (
        width >= 59
    )  # the goal, and the legend where there is room
    assert "trip 1 of 25" in text
    assert sum(0x2800 < ord(sign) < 0x2900 for sign in text) > 4 * height
    assert ("tried: once, often" in text) == (width >= 59)
    console.file = stream = StringIO()
    with display(console, city, 25, 0.0) as show:
        for frame in frames:
            show(frame)
    text = plain(stream.getvalue())
    assert "trip 25 of 25" in text
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width


def test_dots_follow_the_roads(learned: tuple[City, list[Frame]]) -> None:
    """Every dot of an edge is near its course, and every point of the course near a dot."""
    city, _ = learned
    canvas = Canvas(city.roads, 60, 30)
    low, span = city.roads.points.min(axis=0), np.ptp(city.roads.points, axis=0)
    scale = (np.array([119, 119]) / span).min()
    for edge in range(0, len(city.roads), 97):
        dots = canvas._dots[canvas._offsets[edge] : canvas._offsets[edge + 1]].astype(
            float
        )
        course = (city.roads.course(edge) - low) * scale + (119 - span * scale) / 2.0
        course[:, 1] = 119 - course[:, 1]
        for point in course:
            assert np.abs(dots - point).max(axis=1).min() <= 0.51
        steps = [np.linspace(a, b, 200) for a, b in itertools.pairwise(course)]
        dense = np.concatenate(steps)
        for dot in dots:
            assert np.hypot(*(dense - dot).T).min() <= 1.0
        letters = canvas.letters(np.array([edge]))
        assert np.unpackbits(letters).sum() == len(np.unique(dots, axis=0))
    assert canvas.letters(np.array([], dtype=np.intp)).sum() == 0


def test_frames_show_the_trips(learned: tuple[City, list[Frame]]) -> None:
    """Displayed numbers add up, and forecasts precede the trip."""
    city, frames = learned
    tried: set[int] = set()
    for step, frame in enumerate(frames, start=1):
        assert frame.step == step
        assert set(frame.new_edges.tolist()) == set(frame.route.tolist()) - tried
        tried |= set(frame.route.tolist())
        assert frame.tried == len(tried)
        assert frame.regret >= -1e-9
        assert (frame.route[0], frame.route[-1]) == (city.roads.start, city.roads.goal)
    assert frames[0].spread > 2.0 * frames[-1].spread
    assert set(city.known) == {"fastest", "shortest", "prior", "best"}


# --- conclusions ---------------------------------------------------------------------------


def outcome(times: int = 5, **energies: list[float]) -> Outcome:
    """These seeds, so many times."""
    per_policy = {
        "gp-ts": [100.0, 101.0],
        "bi-ts": [110.0, 112.0],
        "prior": [120.0, 122.0],
    }
    per_policy |= {"fastest": [200.0, 204.0], **energies}
    rows = [
        Row(
            policy=name,
            energy=np.array(values * times),
            regret=10.0 * np.array(values * times),
        )
        for name, values in per_policy.items()
    ]
    return Outcome(rows=tuple(rows), latest=20, rounds=50, first_seed=0)


def test_the_conclusion_follows_from_the_numbers() -> None:
    conclusion = outcome().conclusion()
    assert "needed 100 Wh per trip" in conclusion
    assert "102 Wh less than the fastest route" in conclusion
    assert "20 Wh less than the energy model's route" in conclusion
    assert conclusion.endswith("its regret is the lowest, 105 Wh below that of bi-ts.")
    lost = outcome(**{"gp-ts": [300.0, 302.0]}).conclusion()
    assert "99 Wh more than the fastest route" in lost
    assert lost.endswith("trips bi-ts has lower regret.")
    unsure = outcome(**{"gp-ts": [90.0, 130.0]}).conclusion()
    assert "about as much as learning road by road (−1 Wh, within noise)" in unsure
    assert unsure.endswith("its regret is within noise of that of bi-ts.")
    same = outcome(**{"gp-ts": [120.0, 122.0]}).conclusion()
    assert "about as much as the energy model's route (+0 Wh, within noise)" in same


def test_two_seeds_are_inconclusive() -> None:
    conclusion = outcome(times=1).conclusion()
    assert "−102 Wh against the fastest route (2 seeds: too few to tell)" in conclusion
    assert conclusion.endswith("over all 50 trips 2 seeds cannot rank it by regret.")


def test_savings_require_a_baseline() -> None:
    saved = {row["policy"]: row["saved_percent"] for row in outcome().as_json()}
    assert saved["fastest"] == 0.0
    assert saved["gp-ts"] == pytest.approx(100.0 * (1.0 - 100.5 / 202.0))
    downhill = outcome(fastest=[-5.0, -6.0]).as_json()
    assert all(row["saved_percent"] is None for row in downhill)


# --- in a real terminal --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "width",
    [
        60,
        80,
        120,
    ],
)
def test_in_a_real_terminal(width: int, tmp_path: Path) -> None:
    code, output = in_terminal([*CALL, *SHORT], width, tmp_path)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    assert code == 0, text
    assert "Traceback" not in text
    assert "\x1b[38;2;" in output or "\x1b[38;5;" in output
    assert len(re.findall(r"trip \d+ of 10", text)) >= 10  # redrawn every round
    assert "◆" in text
    assert ("what it does" in text) == (width >= 80)
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.slow
def test_a_terminal_without_colours_gets_plain_lines(
    variable: dict[str, str], tmp_path: Path
) -> None:
    code, output = in_terminal([*CALL, *SHORT], 80, tmp_path, variable)
    assert code == 0, output
    assert "◆" not in output
    assert len(re.findall(r"round +\d+/10 ", output)) == 2


def in_terminal(
    command: list[str], width: int, cwd: Path, variables: dict[str, str] | None = None
) -> tuple[int, str]:
    """Run a command in a pseudo-terminal; what it drew, and how it ended."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env: dict[str, Any] = {
        **os.environ,
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }
    env["PYTHONIOENCODING"] = (
        "utf-8"  # a terminal that has the signs, whatever the locale here
    )
    for variable in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
        env.pop(variable, None)
    env |= variables or {}
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # Linux raises EIO once the other side is closed
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    return process.wait(), b"".join(parts).decode(errors="replace")
