"""Work spread over processes, threads or nothing: the same results, and failures that surface."""

from __future__ import annotations

import importlib
import operator
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from superarm.core.errors import InputError
from superarm.lab.simulation import spread
from superarm.lab.simulation.executors import _defer_interrupts

WORK = """
from superarm.core import registry
from superarm.lab.simulation import simulate

def cell(seed):
    spec = {"name": "rkhs-function", "arms": 25}
    problem = registry.build("problem", spec, seed=seed, horizon=40)
    policies = {
        name: registry.build("policy", {"name": name}, model=problem.model)
        for name in ("igp-ucb", "gp-ts")
    }
    runs = simulate(problem, policies, rounds=40, seed=seed)
    return {name: run.series["regret"].tobytes() + run.choices.tobytes() for name, run in runs.items()}
"""


@pytest.fixture
def cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], dict[str, bytes]]:
    """One seed's regret and choices of two policies, as bytes, in a module that workers find."""
    (tmp_path / "superarm_spread_work.py").write_text(WORK, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "superarm_spread_work", raising=False)
    work: Callable[[int], dict[str, bytes]] = importlib.import_module(
        "superarm_spread_work"
    ).cell
    return work


@pytest.mark.slow
def test_jobs_and_executors_make_no_difference(
    cell: Callable[[int], dict[str, bytes]],
) -> None:
    ways: list[dict[int, dict[str, bytes]]] = [{}, {}, {}]
    serial, threaded, processed = ways
    spread(cell, range(4), finished=serial.__setitem__)
    with ThreadPoolExecutor(2) as pool:
        spread(cell, range(4), executor=pool, finished=threaded.__setitem__)
        assert pool.submit(int, "3").result() == 3  # the caller's pool stays open
    spread(cell, range(4), jobs=2, finished=processed.__setitem__)
    assert sorted(serial) == [0, 1, 2, 3]
    assert len({runs["igp-ucb"] for runs in serial.values()}) == 4
    assert threaded == serial
    assert processed == serial


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_surfaces(jobs: int) -> None:
    seen: list[str] = []
    tasks = ["1", "2", "not a number", "4"]
    with pytest.raises(ValueError, match="not a number"):
        spread(int, tasks, jobs=jobs, finished=lambda task, result: seen.append(task))
    assert "not a number" not in seen


def test_a_failure_in_a_borrowed_executor_surfaces() -> None:
    with ThreadPoolExecutor(2) as pool, pytest.raises(ValueError, match="not a number"):
        spread(int, ["1", "not a number"], executor=pool)


def test_a_failure_of_the_callback_surfaces_and_ends_the_rest() -> None:
    def full(task: int, result: int) -> None:
        raise OSError("disk full")

    with ThreadPoolExecutor(1) as pool, pytest.raises(OSError, match="disk full"):
        spread(operator.neg, range(50), executor=pool, finished=full)


def test_no_tasks_and_no_callback_are_fine() -> None:
    spread(operator.neg, [], jobs=3)
    spread(operator.neg, [1, 2])
    with pytest.raises(InputError, match="jobs is 0"):
        spread(operator.neg, [1], jobs=0)


@pytest.mark.skipif(
    not hasattr(signal, "pthread_kill"), reason="this system has no such signals"
)
def test_an_interrupt_waits_until_workers_have_begun() -> None:
    """Also one that reaches another thread: half-started workers would end in an EOFError."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ours.settimeout(60.0)
    before = signal.getsignal(signal.SIGINT)
    handler = signal.default_int_handler  # the parent process may ignore it
    signal.signal(signal.SIGINT, handler)
    wakeup = signal.set_wakeup_fd(theirs.fileno())
    steps = []

    def interrupted() -> None:
        with _defer_interrupts():
            assert other.ident is not None
            signal.pthread_kill(other.ident, signal.SIGINT)
            assert ours.recv(1) == bytes([signal.SIGINT])  # it has been delivered
            steps.append("workers begin")
        steps.append("not reached")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, before)
        done.set()
        other.join()
        ours.close()
        theirs.close()
    assert steps == ["workers begin"]


def test_executor_is_unchanged_without_an_interrupt() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with _defer_interrupts():
        pass
    assert signal.getsignal(signal.SIGINT) is handler
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(spread, operator.neg, [1, 2]).result() is None
