"""Ctrl-C during an update of ``FiniteGP``: the update is atomic."""

from __future__ import annotations

import copy
import dis
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

from superarm.core import Floats
from superarm.kernels import Matern
from superarm.posteriors import FiniteGP
from superarm.testing.helpers import Interrupt

NOISE = 0.05
KERNEL = Matern(nu=2.5, lengthscale=0.3)
_CHECKED = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "RESUME")
"""Operations after which CPython looks whether a signal has come."""


def points_of_interrupts(code: CodeType) -> set[int]:
    """Offsets of operations before which CPython may raise what a signal's handler raises."""
    offsets: set[int] = set()
    checked = False
    for step in dis.get_instructions(code):
        if checked or step.opname == "JUMP_BACKWARD":
            offsets.add(step.offset)
        checked = step.opname in _CHECKED
    return offsets


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Raise :class:`Interrupt` at this point of those where an update may be interrupted.

    Yields the points so far: fewer than ``number`` where none was interrupted.
    """
    passed: list[str] = []
    points: dict[CodeType, set[int]] = {}

    def watch(frame: FrameType, event: str, _: object) -> Any:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("superarm.posteriors"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            code = frame.f_code
            if code not in points:
                points[code] = points_of_interrupts(code)
            if frame.f_lasti in points[code]:
                passed.append(f"{module}.{code.co_name}, line {frame.f_lineno}")
                if len(passed) == number:
                    raise Interrupt(passed[-1])
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield passed
    except Interrupt:
        pass
    finally:
        sys.settrace(before)


class Lesson(NamedTuple):
    """The observations of one update."""

    rows: list[int]
    rewards: list[float]


LESSONS = {
    "one": Lesson([3], [0.7]),
    "new": Lesson([11], [-0.4]),
    "some": Lesson([3, 11, 5, 3], [0.7, -0.4, 0.1, 0.3]),
    "many": Lesson(list(range(0, 18, 2)), np.linspace(-1.0, 1.0, 9).tolist()),
}


def taught(n: int, settings: dict[str, Any], rows: list[int]) -> FiniteGP:
    arms = np.random.default_rng(0).random((n, 2))
    gp = FiniteGP(KERNEL, arms, NOISE, **settings)
    for row in rows:
        gp.observe([row], [0.1 * row])
    return gp


def due_for_a_fold(n: int, settings: dict[str, Any], rows: list[int]) -> FiniteGP:
    gp = taught(n, settings, rows)
    engine: Any = gp._engine
    if gp.form == "root":
        engine._counts[1] = 1
    else:
        engine._refresh_at = engine._updates + 1
    return gp


def backends() -> list[str]:
    return ["numpy"] if find_spec("numba") is None else ["numpy", "numba"]


FEW, FULL, ANY = [3, 5, 7], list(range(12, 44)), list(range(35))
ROOTS: dict[str, Callable[[dict[str, Any]], FiniteGP]] = {
    "few arms": lambda settings: taught(20, settings, FEW),
    "no room left": lambda settings: taught(260, settings, FULL),
    "all arms": lambda settings: taught(40, settings, ANY),
    "fold, few arms": lambda settings: due_for_a_fold(20, settings, FEW),
    "fold, all arms": lambda settings: due_for_a_fold(40, settings, ANY),
    "little noise": lambda settings: taught(20, settings, FEW),
}
QUICK = [
    ("few arms", "new"), ("few arms", "some"), ("no room left", "new"), ("all arms", "one"),
    ("fold, all arms", "one"),
]  # fmt: skip
ENGINES = [{"form": "root", "backend": backend} for backend in backends()]
CASES = [(name, lesson, settings) for name, lesson in QUICK for settings in ENGINES]
CASES += [("few arms", lesson, {"form": "visited"}) for lesson in ("one", "new")]
ALL = [
    (name, lesson, settings)
    for name in ROOTS
    for lesson in LESSONS
    for settings in [*ENGINES, {"form": "visited"}]
    if name != "little noise"
    or settings["form"] == "root"  # the visited form refuses it
]


class Known(NamedTuple):
    """What a posterior has learned."""

    count: int
    weight: Floats
    weighted_rewards: Floats
    information_gain: float
    mean: Floats
    cov: Floats
    variance: Floats


def known_to(gp: FiniteGP) -> Known:
    everything = np.arange(len(gp.arms))
    joint, std = gp.predict(everything, return_cov=True), gp.predict(everything).std
    assert std is not None
    sums = (gp._weight.copy(), gp._weighted_rewards.copy())
    return Known(
        gp.count, *sums, gp.information_gain, joint.mean, joint.cov, np.square(std)
    )


def assert_alike(actual: Known, expected: Known) -> None:
    """Up to rounding: an interrupt may leave arms pending, or a fold to the next update."""
    assert actual.count == expected.count
    assert np.array_equal(actual.weight, expected.weight)
    assert np.array_equal(actual.weighted_rewards, expected.weighted_rewards)
    for one, other in zip(actual[3:], expected[3:], strict=True):
        assert np.abs(np.subtract(one, other)).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lesson", "settings"), CASES)
def test_update_is_atomic_under_any_interrupt(
    name: str, lesson: str, settings: dict[str, Any]
) -> None:
    assert_atomic_everywhere(name, lesson, settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lesson", "settings"), [case for case in ALL if case not in CASES]
)
def test_every_update_is_atomic_under_any_interrupt(
    name: str, lesson: str, settings: dict[str, Any]
) -> None:
    assert_atomic_everywhere(name, lesson, settings)


def assert_atomic_everywhere(name: str, lesson: str, settings: dict[str, Any]) -> None:
    observed = LESSONS[lesson]
    noise = [1e-7] * len(observed.rows) if name == "little noise" else None
    before = ROOTS[name](settings)
    after = copy.copy(before)
    after.observe(*observed, noise)
    first, learned = known_to(before), known_to(after)
    after.observe([5, 6], [0.2, 0.3])
    later = known_to(after)
    outcomes: list[bool] = []
    while True:
        gp = copy.copy(before)
        number = len(outcomes) + 1
        with interrupted_at(number) as passed:
            gp.observe(*observed, noise)
        if len(passed) < number:
            break
        outcomes.append(gp.count == learned.count)
        assert_alike(known_to(gp), learned if outcomes[-1] else first)
        assert not gp._lock.writing, passed[-1]
        if not outcomes[-1]:  # what was prepared does no harm
            gp.observe(*observed, noise)
        gp.observe([5, 6], [0.2, 0.3])
        assert_alike(known_to(gp), later)
    assert set(outcomes) == {False, True}


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no timers")
@pytest.mark.parametrize("name", ["few arms", "all arms"])
@pytest.mark.parametrize("backend", backends())
def test_updates_are_atomic_under_signals(name: str, backend: str) -> None:
    gp = ROOTS[name]({"form": "root", "backend": backend})
    twin = copy.copy(gp)
    rng = np.random.default_rng(0)

    def stop(*_: object) -> None:
        raise Interrupt

    handler = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(1_000):
            row, reward = int(rng.integers(len(gp.arms))), float(rng.standard_normal())
            wait, count = float(rng.uniform(1e-6, 2e-5)), gp.count
            try:
                signal.setitimer(signal.ITIMER_REAL, wait)
                gp.observe([row], [reward])
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except Interrupt:
                pass
            if gp.count > count:
                twin.observe([row], [reward])
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
    assert_alike(known_to(gp), known_to(twin))
