"""The demo: in a pipe, in a terminal, twice, and never over someone else's files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from superarm import demo
from superarm.errors import ConflictError
from superarm.experiments import Plan, execute, load_experiment
from superarm.problems import FiniteProblem

CALL = [sys.executable, "-c", "from superarm.cli import main; main()", "demo"]
SHORT = ["--rounds", "10", "--delay", "0"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One demo in a pipe, for several tests to look at."""
    here = tmp_path_factory.mktemp("demo")
    done = subprocess.run([*CALL, *SHORT], cwd=here, capture_output=True, text=True, check=True)
    return here / "demo", done


def test_in_a_pipe(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    out, done = finished
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert len(re.findall(r"^round +\d+/10 ", done.stdout, re.MULTILINE)) == 2
    for word in ("gp-ts", "independent-ts", "random", "Regret after 10 rounds"):
        assert word in done.stdout
    assert "demo/report.html" in done.stdout
    names = {path.name for path in out.iterdir()}
    assert names == demo._OURS - {"figures"}
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["rounds"], summary["seeds"]) == (10, 5)


def test_the_picture_is_whole_and_loads_nothing(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    out, _ = finished
    text = (out / "learning.svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    links = [
        value
        for element in root.iter()
        for name, value in element.attrib.items()
        if name.rpartition("}")[2] in ("href", "src")
    ]
    assert links
    assert all(link.startswith("data:image/png;base64,") for link in links)
    assert not re.search(r"url\(|@import|<script|<foreignObject| on\w+=", text)
    assert set(re.findall(r"https?://[^\"' <]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert text in (out / "report.html").read_text(encoding="utf-8")
    moving = [element for element in root.iter() if element.tag.endswith("animate")]
    assert len(moving) >= 2
    # All start together, at the moment when the last frame has come: a preview shows that one.
    assert {element.get("begin") for element in moving} == {f"-{0.35 * len(moving):.2f}s"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "How the paper was read" not in page
    assert "Reduced: 10 of 80 rounds." in page


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
    assert list(summary) == ["experiment", "rounds", "seeds", "rows", "claims", "out"]
    names = {path.name for path in out.iterdir()}
    assert names == demo._OURS - {"figures"}
    now = {path.name: path.read_bytes() for path in (out / "cells").iterdir()}
    shared = [name for name in now if name in cells]
    assert len(shared) == 5 * 4  # seeds 1 … 4 of 0 … 4 and 1 … 5: the same worlds
    assert all(now[name] == cells[name] for name in shared)


def small_plan(out: Path) -> Plan:
    experiment = load_experiment("demo/landscape").with_policies(["random"])
    return Plan.make(experiment, out=out, rounds=3, seeds=1)


def test_only_demos_are_replaced(tmp_path: Path) -> None:
    """A run with the same kinds of files may have cost hours."""
    out = tmp_path / "out"
    execute(small_plan(out))
    before = sorted(out.rglob("*"))
    with pytest.raises(ConflictError, match="other than an earlier demo"):
        demo.run_demo(out=out, quiet=True)
    assert sorted(out.rglob("*")) == before
    (out / "learning.svg").touch()
    spec = json.loads((out / "run.json").read_text(encoding="utf-8"))
    (out / "run.json").write_text(json.dumps({**spec, "experiment": "mine"}), encoding="utf-8")
    with pytest.raises(ConflictError):
        demo._make_room(out)
    (out / "run.json").write_text(json.dumps(spec), encoding="utf-8")
    (out / "precious.txt").touch()
    with pytest.raises(ConflictError):
        demo._make_room(out)
    (out / "precious.txt").unlink()
    demo._make_room(out)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("spec", [None, "{", "[]", "{}"])
def test_files_that_are_no_run(spec: str | None, tmp_path: Path) -> None:
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
    done = subprocess.run([*CALL, *SHORT, "--json"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"Traceback" not in done.stderr


# --- in a terminal -----------------------------------------------------------------------


def frames(rounds: int) -> Iterator[tuple[FiniteProblem, demo.Frame]]:
    problem = load_experiment("demo/landscape").build_problem(seed=0, horizon=rounds)
    assert isinstance(problem, FiniteProblem)
    side = demo._side(problem)
    for step in range(1, rounds + 1):
        grid = problem.truth.reshape(side, side) * step / rounds
        chosen = demo.np.array([0, side, side * side - 1])
        yield problem, demo.Frame(step=step, mean=grid, std=abs(grid), chosen=chosen, regret=1.0 / step)


@pytest.mark.parametrize(("width", "panels"), [(20, 1), (40, 1), (60, 3), (80, 3), (120, 3), (300, 3)])
def test_the_live_display_fits(width: int, panels: int) -> None:
    stream = StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system="truecolor")
    for problem, frame in frames(1):
        console.print(demo._picture(problem, frame, width))
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert sum(title in text for title in ("believed", "unsure", "hidden truth")) == panels
    assert "●" in text
    assert max(map(len, text.splitlines())) <= width
    console.file = stream = StringIO()
    with demo._display(console, problem, 25, 0.0) as show:
        for _, frame in frames(25):
            show(frame)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
    assert "round  25/25" in text
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(
    "width",
    [80, pytest.param(60, marks=pytest.mark.slow), pytest.param(120, marks=pytest.mark.slow)],
)
def test_in_a_real_terminal(width: int, tmp_path: Path) -> None:
    code, output = in_terminal([*CALL, *SHORT], width, tmp_path)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    assert code == 0, text
    assert "Traceback" not in text
    assert "\x1b[38;2;" in output or "\x1b[38;5;" in output
    assert output.count("believed") >= 10  # drawn anew every round
    assert "hidden truth" in text
    assert ("what it is" in text) == (width >= 80)
    assert max(map(len, re.split(r"[\r\n]+", text))) <= width


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_without_colours_gets_plain_lines(variable: dict[str, str], tmp_path: Path) -> None:
    code, output = in_terminal([*CALL, *SHORT], 80, tmp_path, variable)
    assert code == 0, output
    assert "believed" not in output
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
    env: dict[str, Any] = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for variable in ("COLUMNS", "LINES", "NO_COLOR", "CI"):
        env.pop(variable, None)
    env |= variables or {}
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    )
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # Linux says EIO once the other side is closed
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    return process.wait(timeout=60), b"".join(parts).decode(errors="replace")
