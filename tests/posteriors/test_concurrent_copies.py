"""Copies, pickles and forks during concurrent updates: each is consistent.

The posterior after every update is computed beforehand. A copy that is taken while another
thread writes must equal the posterior at its number of updates, and continue from there.
"""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from sample_posteriors import Maker, posterior_makers
from scipy.sparse import csc_array
from waiting_kernel import WaitingKernel

from superarm.core import Arms, Floats, Offer
from superarm.core.errors import InterruptedUpdateError
from superarm.kernels import Matern, SquaredExponential
from superarm.posteriors import (
    ChangeDetecting,
    Refitting,
    SparseVariational,
    StreamingGP,
)

N = 40
FEATURES = np.random.default_rng(0).random((N, 2))
ROUGH = Matern(nu=1.5, lengthscale=0.4)
SMOOTH = SquaredExponential(lengthscale=0.8)
LINKS = np.eye(N, k=1) + np.eye(N, k=-1)
ROADS = csc_array(np.diag(LINKS.sum(axis=0)) - LINKS)
ARMS = {
    "roads": np.column_stack(
        [np.arange(N), np.ones((N, 6)), np.zeros(N), np.arange(N) % 3]
    ),
    "separate": np.column_stack([FEATURES, np.arange(N) % 2]),
}
MAKERS: dict[str, Maker] = posterior_makers(
    FEATURES, 0.1, lengthscale=0.4, inducing=8, block=30
) | {
    # A fit or an alarm would take longer than the copies that are tested.
    "refitting": lambda: Refitting(StreamingGP(ROUGH, 0.1), every=500, most=500),
    "change-detecting": lambda: ChangeDetecting(
        StreamingGP(ROUGH, 0.1), run_length=1e6
    ),
    "variational": lambda: SparseVariational(ROUGH, 0.1, inducing=10, batch=20),
}
del MAKERS["root, compiled"]
del MAKERS["streaming, inducing"]  # it warns that it is approximate
UPDATES = 25
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda part: pickle.loads(pickle.dumps(part)),
}


PAIRS = [(name, way) for name in MAKERS for way in WAYS]


class Lesson(NamedTuple):
    """The observations of one update."""

    keys: Any
    rewards: Floats


class Moment(NamedTuple):
    """The posterior after so many updates."""

    mean: Floats
    std: Floats
    information_gain: float


def lessons_for(name: str, posterior: Any) -> list[Lesson]:
    rng, lessons = np.random.default_rng(1), []
    arms = Arms.numbered(ARMS.get(name, FEATURES))
    for step in range(1, UPDATES + 1):
        keys = posterior.keys(Offer(step=step, arms=arms, time=float(step)))
        chosen = rng.choice(N, size=3, replace=False)
        lessons.append(Lesson(keys[chosen], rng.standard_normal(3)))
    return lessons


def query_keys(name: str, posterior: Any) -> Any:
    arms = Arms.numbered(ARMS.get(name, FEATURES))
    return posterior.keys(Offer(step=UPDATES + 1, arms=arms, time=float(UPDATES + 1)))[
        ::4
    ]


def moment_of(posterior: Any, keys: Any) -> Moment:
    mean, std = posterior.predict(keys)
    return Moment(mean, std, posterior.information_gain)


def teach(posterior: Any, lesson: Lesson, number: int) -> None:
    posterior.observe(*lesson, rng=np.random.default_rng(number))


class World:
    """A posterior that a thread updates repeatedly, and its valid states."""

    def __init__(self, name: str) -> None:
        self.make = MAKERS[name]
        twin = self.make()
        self.lessons, self.keys = lessons_for(name, twin), query_keys(name, twin)
        self.moments = {0: moment_of(twin, self.keys)}
        for number, lesson in enumerate(self.lessons):
            teach(twin, lesson, number)
            self.moments[twin.count] = moment_of(twin, self.keys)
        self.posterior = self.make()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._write)
        self.error: BaseException | None = None

    def _write(self) -> None:
        try:
            while not self.done.is_set():
                posterior = self.make()
                self.posterior = (
                    posterior  # those that copy take the new one from now on
                )
                for number, lesson in enumerate(self.lessons):
                    teach(posterior, lesson, number)
                    if self.done.is_set():
                        return
        except BaseException as error:
            self.error = error

    def __enter__(self) -> World:
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)  # threads take turns as often as they can
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join(timeout=60.0)
        sys.setswitchinterval(self._interval)
        assert not self.thread.is_alive(), "the writing thread waits for ever"
        assert self.error is None, self.error

    def problem_with(self, taken: Any) -> str | None:
        """The problem of a copy, or ``None`` if it is consistent."""
        known, expected = moment_of(taken, self.keys), self.moments.get(taken.count)
        if expected is None:
            return f"it has seen {taken.count} rewards, as after no update"
        pairs: Any = zip(Moment._fields, known, expected, strict=True)
        for name, ours, theirs in pairs:
            if not np.allclose(ours, theirs, rtol=0.0, atol=1e-7):
                return f"its {name} is that of no moment"
        number = taken.count // 3
        if number < len(self.lessons):
            teach(taken, self.lessons[number], number)
            learned, expected = moment_of(taken, self.keys), self.moments[taken.count]
            if not np.allclose(learned.mean, expected.mean, rtol=0.0, atol=1e-6):
                return "it does not learn on as the original does"
        return None


def torn_copies(
    name: str, way: Callable[[Any], Any], copies: int, seconds: float
) -> list[str]:
    """Problems of copies taken during concurrent writes."""
    problems, over = [], time.monotonic() + seconds
    with World(name) as world:
        for _ in range(copies):
            try:
                problem = world.problem_with(way(world.posterior))
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is not None:
                problems.append(problem)
            if time.monotonic() > over:
                break
    return problems


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), PAIRS)
def test_thousands_of_copies_are_consistent(name: str, way: str) -> None:
    assert torn_copies(name, WAYS[way], copies=5000, seconds=1.0) == []


# --- forks ---------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")


def in_child(work: Callable[[], str | None], seconds: float = 30.0) -> str | None:
    """What ``work`` finds wrong in a forked child, which may hang."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # forking with threads is the point here
        child = os.fork()
    if not child:
        try:
            problem = work()
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"
        os.write(writer, (problem or "").encode()[:4000])
        os._exit(0)
    os.close(writer)
    over = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > over:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            return "the child hangs"
        time.sleep(0.001)
    with os.fdopen(reader, "rb") as file:
        return file.read().decode() or None


def torn_forks(name: str, count: int, seconds: float) -> list[str]:
    problems, over = [], time.monotonic() + seconds
    with World(name) as world:
        for _ in range(count):
            posterior = world.posterior
            problem = in_child(
                lambda posterior=posterior: world.problem_with(posterior)
            )  # type: ignore[misc]
            if problem is not None:
                problems.append(problem)
            if time.monotonic() > over:
                break
    return problems


@forks
@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
def test_hundreds_of_forked_children_have_consistent_copies(name: str) -> None:
    assert torn_forks(name, count=300, seconds=2.0) == []


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks that wait for no thread."""
    monkeypatch.setattr("superarm.core.locks._FORK_TIMEOUT", 0.05)


@forks
@pytest.mark.usefixtures("_impatient")
def test_forked_child_rejects_a_half_written_posterior() -> None:
    """A thread writes for longer than a fork waits."""
    gate = WaitingKernel(ROUGH)
    busy, idle = StreamingGP(gate, 0.1, form="cholesky"), StreamingGP(ROUGH, 0.1)
    for posterior in (busy, idle):
        posterior.observe(FEATURES[:2], [1.0, 2.0])
    expected = idle.predict(FEATURES).mean
    gate.armed = True
    thread = threading.Thread(target=lambda: busy.observe(FEATURES[5:6], [0.5]))
    thread.start()
    assert gate.entered.wait(60.0)

    def work() -> str | None:
        for use in (
            lambda: busy.predict(FEATURES),
            lambda: busy.observe(FEATURES[:1], [0.0]),
            busy.state,
            lambda: copy.deepcopy(busy),
            lambda: pickle.dumps(busy),
        ):
            try:
                use()
            except InterruptedUpdateError as error:
                if "forked" not in str(error):
                    return f"it does not say why: {error}"
            else:
                return "it answers"
        return (
            None
            if np.array_equal(idle.predict(FEATURES).mean, expected)
            else "the other is wrong"
        )

    try:
        assert in_child(work) is None
        # A child of a child has the same memory.
        assert in_child(lambda: in_child(work)) is None
    finally:
        gate.go_on.set()
        thread.join(timeout=60.0)
    assert busy.count == 3  # in the parent all is well
    assert idle.predict(FEATURES[:1]).mean.shape == (1,)


@forks
def test_thread_that_forks_while_writing_continues_in_the_child() -> None:
    outcomes: list[str | None] = []

    class Forking(WaitingKernel):
        def __call__(self, X: Any, Y: Any = None) -> Floats:
            if self.armed:
                self.armed = False
                outcomes.append(in_child(lambda: None))
            return self.kernel(X, Y)

    kernel = Forking(ROUGH)
    posterior = StreamingGP(kernel, 0.1, form="cholesky")
    posterior.observe(FEATURES[:1], [1.0])
    kernel.armed = True
    posterior.observe(FEATURES[1:2], [2.0])
    assert outcomes == [None]
    assert posterior.count == 2
