"""Runs on a Dask cluster: workers in processes of their own, one of which is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

Command = Callable[..., Any]

PATIENCE_SECONDS = 120.0
POLICY = '''
import os
from pathlib import Path
from time import sleep

from superarm.core.registry import register
from superarm.policies.from_model import index_policy
from superarm.rules import Greedy


@register("policy", "gated")
def gated(model):
    """Greedy; of all workers with a gate, the first one waits there until it is killed."""
    gate = os.environ.get("GATE")
    if gate is not None:
        try:
            with Path(gate).open("x") as file:
                file.write(f"{os.getpid()}\\n")
        except FileExistsError:
            pass
        else:
            while True:
                sleep(1.0)
    return index_policy(model, Greedy())
'''
EXPERIMENT = """
id = "gated"
title = "A small landscape"
rounds = 12
seeds = 4
[problem]
name = "landscape"
side = 6
k = 2
[policies.gated]
[policies.random]
"""


@contextmanager
def dask_process(
    folder: Path, *words: str, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dask, in another folder than the run; it ends with the block."""
    log = folder / f"{words[0]}.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]],
            cwd=folder,
            stdout=errors,
            stderr=errors,
            env={**os.environ, **variables, "NO_PROXY": "*"},
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def text_of(path: Path, *alive: subprocess.Popen[bytes]) -> str:
    """The content of a file, once there is some."""
    end = monotonic() + PATIENCE_SECONDS
    while not (path.exists() and path.read_text().endswith("\n")):
        assert monotonic() < end, path
        assert all(process.poll() is None for process in alive), path
        sleep(0.05)
    return path.read_text()


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def cells(folder: Path) -> dict[str, bytes]:
    """The bytes of every file under ``cells``, hidden ones too."""
    return {path.name: path.read_bytes() for path in (folder / "cells").iterdir()}


@pytest.mark.slow
def test_a_run_survives_a_killed_worker(cli: Command, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    (tmp_path / "gated.py").write_text(POLICY)
    (tmp_path / "gated.toml").write_text(EXPERIMENT)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    gate = elsewhere / "gate"
    address = f"tcp://127.0.0.1:{free_port()}"
    own = ("run", tmp_path / "gated.toml", "--import", tmp_path / "gated.py", "-q")
    scheduler_words = ("--host", address, "--no-dashboard")
    worker_words = (
        *("worker", address, "--host", "127.0.0.1", "--no-nanny"),
        *("--nthreads", "1", "--no-dashboard"),
    )
    with (
        dask_process(elsewhere, "scheduler", *scheduler_words),
        dask_process(elsewhere, *worker_words, GATE=str(gate)) as first,
        dask_process(elsewhere, *worker_words, GATE=str(gate)) as second,
    ):
        on_cluster = ("--executor", "dask", "--scheduler", address, "--out", "cluster")
        words = [str(word) for word in (*own, *on_cluster, "--json")]
        run = subprocess.Popen(
            [sys.executable, "-m", "superarm", *words],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            env={**os.environ, "NO_PROXY": "*"},
        )
        try:
            victim = int(text_of(gate, run, first, second))
            by_pid = {first.pid: first, second.pid: second}
            killed = by_pid.pop(victim)
            (survivor,) = by_pid.values()
            os.kill(victim, signal.SIGKILL)
            assert killed.wait(PATIENCE_SECONDS) == -signal.SIGKILL
            output, _ = run.communicate(timeout=PATIENCE_SECONDS)
            assert survivor.poll() is None
        finally:
            run.kill()
            run.wait()
    assert run.returncode == 0
    summary = json.loads(output)
    assert summary["out"] == "cluster"
    assert {row["policy"] for row in summary["rows"]} == {"gated", "random"}

    cli(*own, "--jobs", 1, "--executor", "local", "--out", "local", "--json").json()
    on_this_machine = cells(tmp_path / "local")
    assert len(on_this_machine) == 8
    assert cells(tmp_path / "cluster") == on_this_machine
    assert not (elsewhere / "cluster").exists()


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer(
    cli: Command, tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the extra cluster is not installed")
    monkeypatch.setattr("superarm.cli.clusters._CONNECT_SECONDS", 0.5)
    address = f"tcp://127.0.0.1:{free_port()}"
    on_cluster = ("run", tiny, "-q", "--executor", "dask", "--scheduler")
    message = cli(*on_cluster, address).fails(1)
    assert f"no Dask scheduler answers at {address}" in message
    assert "`dask scheduler`" in message
    monkeypatch.setenv("DASK_SCHEDULER_ADDRESS", address)
    assert address in cli("run", tiny, "-q", "--executor", "dask").fails(1)
    message = cli(*on_cluster, "carrier-pigeon://roof").fails(1)
    assert "is not the address of a Dask scheduler" in message


def test_a_scheduler_needs_the_executor(cli: Command, tiny: str) -> None:
    message = cli("run", tiny, "-q", "--scheduler", "tcp://127.0.0.1:1").fails(2)
    assert "--scheduler needs --executor dask" in message
