"""Several threads on one posterior: no update is lost, no read is torn."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from sample_posteriors import Maker, posterior_makers
from waiting_kernel import WaitingKernel

from superarm.core import Arms, Floats, Offer
from superarm.core.locks import ReadWriteLock, consistent_read
from superarm.kernels import Matern
from superarm.posteriors import (
    FiniteGP,
    SparseVariational,
    StreamingGP,
)

NOISE = 0.05
ARMS = np.random.default_rng(1).random((30, 2))
OFFER = Offer(step=1, arms=Arms.numbered(ARMS))
ROUGH = Matern(nu=1.5, lengthscale=0.6)

EXACT = (
    "streaming, cholesky",
    "streaming, finite-rank",
    "root, numpy",
    "root, compiled",
    "visited",
    "independent",
)
SAMPLES = posterior_makers(ARMS, NOISE, lengthscale=0.6)
MAKERS: dict[str, Maker] = {name: SAMPLES[name] for name in EXACT}


@pytest.fixture
def _many_switches() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run(*works: Callable[[], None]) -> None:
    """All at once; the first error of any is raised here."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120.0)
        assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


def lessons(seed: int, count: int = 40) -> list[tuple[int, float]]:
    rng = np.random.default_rng(seed)
    return list(
        zip(rng.integers(0, len(ARMS), count).tolist(), rng.random(count), strict=True)
    )


@pytest.mark.usefixtures("_many_switches")
@pytest.mark.parametrize("name", MAKERS)
def test_concurrent_writers_lose_no_observations(name: str) -> None:
    gp, serial = MAKERS[name](), MAKERS[name]()
    keys = gp.keys(OFFER)

    def learn(posterior: Any, seed: int) -> None:
        for row, reward in lessons(seed):
            posterior.observe(keys[[row]], [reward])

    run(*(lambda seed=seed: learn(gp, seed) for seed in range(4)))  # type: ignore[misc]
    for seed in range(4):
        learn(serial, seed)
    assert gp.count == serial.count == 160
    np.testing.assert_allclose(
        gp.predict(keys).mean, serial.predict(keys).mean, atol=1e-8
    )
    np.testing.assert_allclose(
        gp.predict(keys).std, serial.predict(keys).std, atol=1e-8
    )
    assert gp.information_gain == pytest.approx(serial.information_gain, abs=1e-8)
    assert gp.incumbent == pytest.approx(serial.incumbent, abs=1e-8)


@pytest.mark.usefixtures("_many_switches")
@pytest.mark.parametrize("name", MAKERS)
def test_readers_see_a_state_between_two_changes(name: str) -> None:
    """Mean and deviation of every moment are known: what is read is that of one of them."""
    gp, twin = MAKERS[name](), MAKERS[name]()
    keys = gp.keys(OFFER)
    moments: list[Floats] = []

    def note() -> None:
        mean, std = twin.predict(keys)
        assert std is not None
        moments.append(np.concatenate([mean, std]))

    note()
    for row, reward in lessons(0, 60):
        twin.observe(keys[[row]], [reward])
        note()
    read: list[Floats] = []
    done = threading.Event()

    def learn() -> None:
        try:
            for row, reward in lessons(0, 60):
                gp.observe(keys[[row]], [reward])
        finally:
            done.set()

    def look() -> None:
        while not done.is_set() and len(read) < 5000:
            belief = gp.belief(OFFER)
            read.append(np.concatenate([belief.mean, belief.std]))
            read.append(np.concatenate(gp.predict(keys)))
            gp.sample(keys[:3], np.random.default_rng(0))
            restored = gp.restored(gp.state())
            read.append(np.concatenate(restored.predict(keys)))

    run(learn, look, look)
    read.append(np.concatenate(gp.predict(keys)))
    known = np.array(moments)
    for answer in read:
        assert np.abs(known - answer).max(axis=1).min() < 1e-7
    np.testing.assert_allclose(read[-1], known[-1], atol=1e-7)


def test_reader_waits_for_the_writer() -> None:
    gate = WaitingKernel(ROUGH)
    gp = StreamingGP(gate, NOISE, form="cholesky")
    gp.observe(ARMS[:2], [1.0, -1.0])
    answers: list[Floats] = []
    gate.armed = True
    writer = threading.Thread(target=lambda: gp.observe(ARMS[5:7], [0.5, 0.25]))
    writer.start()
    assert gate.entered.wait(60.0)  # the writer is in the middle
    reader = threading.Thread(target=lambda: answers.append(gp.predict(ARMS).mean))
    reader.start()
    reader.join(timeout=0.2)
    assert not answers
    gate.go_on.set()
    for thread in (writer, reader):
        thread.join(timeout=60.0)
    plain = StreamingGP(ROUGH, NOISE, form="cholesky")
    plain.observe(ARMS[[0, 1, 5, 6]], [1.0, -1.0, 0.5, 0.25])
    np.testing.assert_allclose(answers[0], plain.predict(ARMS).mean, atol=1e-9)


def test_overtaken_prediction_is_recomputed() -> None:
    gate = WaitingKernel(ROUGH)
    gp = StreamingGP(gate, NOISE, form="cholesky")
    gp.observe(ARMS[:2], [1.0, -1.0])
    answers: list[Floats] = []
    gate.armed = True
    reader = threading.Thread(target=lambda: answers.append(gp.predict(ARMS).mean))
    reader.start()
    assert gate.entered.wait(60.0)  # the reader is in the middle, and holds no lock
    gp.observe(ARMS[5:7], [0.5, 0.25])
    gate.go_on.set()
    reader.join(timeout=60.0)
    np.testing.assert_array_equal(answers[0], gp.predict(ARMS).mean)


@pytest.mark.parametrize("name", ["root, numpy", "root, compiled", "visited"])
def test_belief_overtaken_by_one_reward_is_recomputed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short ways of a belief about all arms, and of one reward that comes in its middle."""
    gp = MAKERS[name]()
    gp.belief(OFFER)
    moments = gp._engine.moments

    def overtaken() -> tuple[Floats, Floats]:
        monkeypatch.undo()
        mean, _ = moments()
        gp.observe([3], [2.0])
        return mean, moments()[1]

    monkeypatch.setattr(gp._engine, "moments", overtaken)
    belief, expected = gp.belief(OFFER), gp.belief(OFFER)
    np.testing.assert_array_equal(belief.mean, expected.mean)
    np.testing.assert_array_equal(belief.std, expected.std)


class _Torn:
    """Something to ask that is written to while it answers."""

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self.asked = 0

    @consistent_read
    def fail(self, overtaken: bool) -> int:
        self.asked += 1
        if overtaken and self.asked == 1:
            with self._lock:
                pass
        if self.asked == 1:
            raise IndexError("torn")
        return self.asked


def test_errors_of_torn_reads_are_not_shown_and_others_are() -> None:
    assert _Torn().fail(True) == 2
    with pytest.raises(IndexError, match="torn"):
        _Torn().fail(False)


class _Pair:
    """Two numbers that are always the same between two changes; a change waits in its middle."""

    def __init__(self) -> None:
        self._lock = ReadWriteLock()
        self.one = self.two = 0
        self.begun, self.go_on = threading.Event(), threading.Event()

    def change(self) -> None:
        with self._lock:
            self.one = 1
            self.begun.set()
            assert self.go_on.wait(60.0)
            self.two = 1

    @consistent_read
    def both(self, writer: threading.Thread) -> tuple[int, int]:
        if not writer.ident:
            writer.start()
        assert self.begun.wait(60.0)
        return self.one, self.two


def test_prediction_overlapping_an_update_is_recomputed() -> None:
    pair = _Pair()
    writer = threading.Thread(target=pair.change)
    later = threading.Timer(0.2, pair.go_on.set)
    later.start()
    assert pair.both(writer) == (1, 1)
    for thread in (writer, later):
        thread.join(timeout=60.0)


@pytest.mark.usefixtures("_many_switches")
@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
def test_tables_are_played_one_at_a_time() -> None:
    gp = FiniteGP(ROUGH, ARMS, NOISE, form="root")
    table = np.random.default_rng(0).random((50, len(ARMS)))
    played: list[Any] = []
    run(*[lambda: played.append(gp.play_table(table, np.full(50, 2.0)))] * 3)
    assert gp.count == 150
    reference = FiniteGP(ROUGH, ARMS, NOISE, form="root")
    for choices in played:  # each in one piece, so that in some order they are these
        assert len(choices) == 50
    serial = [reference.play_table(table, np.full(50, 2.0)).tolist() for _ in range(3)]
    assert sorted(played_table.tolist() for played_table in played) == sorted(serial)
    np.testing.assert_allclose(gp._engine.mean, reference._engine.mean, atol=1e-9)


@pytest.mark.parametrize("name", MAKERS)
def test_copies_have_their_own_lock(name: str) -> None:
    gp = MAKERS[name]()
    keys = gp.keys(OFFER)
    gp.observe(keys[:2], [1.0, 2.0])
    gp.predict(keys)
    for copied in (copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        assert copied._lock is not gp._lock
        with gp._lock:
            thread = threading.Thread(
                target=lambda one=copied: one.observe(keys[:1], [0.5])
            )
            thread.start()
            thread.join(timeout=60.0)
            assert not thread.is_alive()
        expected = MAKERS[name]()
        expected.observe(keys[[0, 1, 0]], [1.0, 2.0, 0.5])
        np.testing.assert_allclose(
            copied.predict(keys).mean, expected.predict(keys).mean, atol=1e-9
        )


def test_copy_does_not_draw_from_a_stale_cache() -> None:
    """A root is cached for draws; a copy that has learned more must not use it."""
    gp = MAKERS["streaming, cholesky"]()
    gp.observe(ARMS[:1], [1.0])
    gp.sample(ARMS, np.random.default_rng(0))
    for copied in (copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        copied.observe(ARMS[1:2], [2.0])
        expected = MAKERS["streaming, cholesky"]()
        expected.observe(ARMS[:2], [1.0, 2.0])
        drawn, known = (
            posterior.sample(ARMS, np.random.default_rng(0))
            for posterior in (copied, expected)
        )
        np.testing.assert_allclose(drawn, known, atol=1e-6)


def test_a_posterior_that_draws_learns_in_turns() -> None:
    gp = SparseVariational(ROUGH, NOISE, inducing=10)

    def learn(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for row, reward in lessons(seed, 5):
            gp.observe(ARMS[[row]], [reward], rng=rng)

    run(lambda: learn(0), lambda: learn(1))
    assert gp.count == len(gp.observed.rewards) == 10
