"""A run that is killed and resumed, or split over workers, leaves the same bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from superarm.lab.experiments import Plan, execute, load_experiment

LONG = """
id = "long"
rounds = 600
seeds = 4
[problem]
name = "landscape"
side = 12
[policies.gp-ts]
scaled = false
[policies.gp-bucb]
[[claims]]
text = "t"
check = "below"
policy = "gp-ts"
versus = ["gp-bucb"]
"""


MOMENTS = (0, 1, 1, 2)
"""After how many more cells a run may be killed."""


def content(directory: Path) -> dict[str, Any]:
    """All files but timings and the page that shows them; the summary without its times."""
    files: dict[str, Any] = {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
        and path.parent.name != "timings"
        and path.name != "report.html"
    }
    summary = json.loads(files["summary.json"])
    rows = [{**row, "seconds_per_round": None} for row in summary["rows"]]
    spec = json.loads(
        files["run.json"]
    )  # another test of this process may have imported parts
    records = {
        "summary.json": {**summary, "rows": rows, "out": None},
        "run.json": {**spec, "imports": []},
    }
    return {**files, **records}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same run, never killed, in one process."""
    directory = tmp_path_factory.mktemp("undisturbed")
    (directory / "long.toml").write_text(LONG, encoding="utf-8")
    execute(
        Plan.make(load_experiment(str(directory / "long.toml")), out=directory / "a")
    )
    return content(directory / "a")


def group_members(group: int) -> list[int]:
    """Processes of a process group that are not just waiting to be reaped."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, pgrp = (
                    (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                )
            except (OSError, ValueError):
                continue
            if int(pgrp) == group and state != "Z":
                members.append(int(entry.name))
    return members


def gone(group: int) -> bool:
    """Whether a process group ends; ten minutes is far more than any machine takes."""
    for _ in range(30_000):
        if not group_members(group):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("jobs", "kills"),
    [
        pytest.param(1, 12, marks=pytest.mark.full),
        (2, 12),
    ],
)
def test_killed_and_resumed(
    jobs: int,
    kills: int,
    program: list[str],
    tmp_path: Path,
    undisturbed: dict[str, Any],
) -> None:
    (tmp_path / "long.toml").write_text(LONG, encoding="utf-8")
    command = [*program, "run", "long.toml", "--json", "-q"]
    moments = random.Random(f"{jobs} {kills}")
    resumed = [*command, "--jobs", str(jobs), "--out", "b", "--resume"]
    out, killed = tmp_path / "b", 0
    for kill in range(kills):
        before = len(list(out.glob("cells/*.npz")))
        process = subprocess.Popen(
            resumed,
            cwd=tmp_path,
            start_new_session=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        more = moments.choice(MOMENTS) if kill else 2  # the first time surely half-way
        wait_for_work(out, before + more, process)
        process.send_signal(signal.SIGKILL)  # only the parent: its workers must notice
        process.communicate()
        killed += process.returncode == -signal.SIGKILL
        try:
            assert gone(process.pid), "workers outlive their parent"
        finally:
            for orphan in group_members(process.pid):
                os.kill(orphan, signal.SIGKILL)
    assert killed >= 1
    (out / "cells").mkdir(exist_ok=True)
    (out / "cells" / ".gp-ts.s0.seed00003.npz.0123abcd.tmp").write_bytes(b"half a file")
    done = subprocess.run(resumed, cwd=tmp_path, capture_output=True, check=True)
    assert content(out) == undisturbed
    assert json.loads(done.stdout)["seeds"] == 4


def wait_for_work(out: Path, cells: int, process: subprocess.Popen[str]) -> None:
    """Until the run has begun and so many of its cells are there, or it has ended."""
    while process.poll() is None:
        if (out / "run.json").exists() and len(list(out.glob("cells/*.npz"))) >= cells:
            return
        time.sleep(0.002)
