"""BLAS uses one thread in our calls; the user's limit is restored afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import threads
from superarm.core.threads import (
    LARGE,
    blas_threads_for,
    one_blas_thread,
    pin_blas_threads,
)
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed, Thompson

threadpoolctl = pytest.importorskip("threadpoolctl")
USERS = 3


def counts() -> list[int]:
    """Threads of numpy's and scipy's OpenBLAS, as another library sees them.

    Others may be loaded, too, such as SUMO's: that one is not ours.
    """
    return [
        library["num_threads"]
        for library in threadpoolctl.threadpool_info()
        if library["internal_api"] == "openblas"
        and library["threading_layer"] == "pthreads"
        and any(f"{name}.libs" in library["filepath"] for name in ("numpy", "scipy"))
    ]


@pytest.fixture(autouse=True)
def users_threads() -> Iterator[None]:
    """A user with three threads, whatever this process has."""
    scipy.linalg.cholesky(np.eye(2))
    if not counts():
        pytest.skip("numpy and scipy have another BLAS here")
    with threadpoolctl.threadpool_limits(USERS, user_api="blas"):
        assert set(counts()) == {USERS}
        yield
        assert set(counts()) == {USERS}


def has_one_thread() -> bool:
    return set(counts()) == {1}


def has_users_threads() -> bool:
    return set(counts()) == {USERS}


def test_call_uses_one_thread_and_restores_the_others() -> None:
    @one_blas_thread
    def call(a: int, *, b: int) -> tuple[int, bool]:
        return a + b, has_one_thread()

    assert call(1, b=2) == (3, True)
    assert has_users_threads()
    assert call.__name__ == "call"


def test_error_restores_the_threads() -> None:
    @one_blas_thread
    def call() -> None:
        assert has_one_thread()
        raise LookupError("meant")

    with pytest.raises(LookupError, match="meant"):
        call()
    assert has_users_threads()
    with pytest.raises(LookupError), blas_threads_for(1):
        raise LookupError
    assert has_users_threads()


def test_only_the_outermost_call_restores_threads() -> None:
    @one_blas_thread
    def inner() -> bool:
        return has_one_thread()

    @one_blas_thread
    def outer() -> list[bool]:
        return [has_one_thread(), inner(), has_one_thread()]

    assert outer() == [True, True, True]
    assert has_users_threads()


def test_large_work_keeps_the_users_threads() -> None:
    with blas_threads_for(LARGE):
        assert has_users_threads()
    with blas_threads_for(LARGE / 2):
        assert has_one_thread()
        with blas_threads_for(LARGE):
            assert has_users_threads()
            with blas_threads_for(
                1
            ):  # another thread's, perhaps: the large product is not robbed
                assert has_users_threads()
            with blas_threads_for(2 * LARGE):
                assert has_users_threads()
            assert has_users_threads()
        assert has_one_thread()
    assert has_users_threads()


def test_error_in_large_work_ends_its_thread_limit() -> None:
    with blas_threads_for(1):
        with pytest.raises(LookupError), blas_threads_for(LARGE):
            raise LookupError
        assert has_one_thread()


def test_last_of_several_threads_restores_the_limit() -> None:
    first_in, second_in, first_out = (
        threading.Event(),
        threading.Event(),
        threading.Event(),
    )
    seen = []

    @one_blas_thread
    def first() -> None:
        first_in.set()
        assert second_in.wait(60.0)

    @one_blas_thread
    def second() -> None:
        second_in.set()
        assert first_out.wait(60.0)
        seen.append(has_one_thread())  # the first call is over, this one is not

    def run_first() -> None:
        first()
        first_out.set()

    begun = [threading.Thread(target=run_first)]
    begun[0].start()
    assert first_in.wait(60.0)
    begun.append(threading.Thread(target=second))
    begun[1].start()
    for thread in begun:
        thread.join(60.0)
    assert seen == [True]
    assert has_users_threads()


def test_many_threads_restore_the_users_limit() -> None:
    gp = FiniteGP(
        SquaredExponential(lengthscale=0.3), np.linspace(0.0, 1.0, 30)[:, None], 0.1
    )

    def work() -> None:
        for _ in range(200):
            gp.predict([1, 2], return_cov=True)
            with blas_threads_for(LARGE):
                pass

    begun = [threading.Thread(target=work) for _ in range(4)]
    for thread in begun:
        thread.start()
    for thread in begun:
        thread.join(60.0)
    assert has_users_threads()
    assert (threads._LIMIT.calls, threads._LIMIT.large) == (0, 0)


def test_limits_set_by_the_user_during_a_call_persist() -> None:
    @one_blas_thread
    def call() -> None:
        threadpoolctl.threadpool_limits(2, user_api="blas")

    call()
    assert set(counts()) == {2}
    threadpoolctl.threadpool_limits(USERS, user_api="blas")


def test_limits_are_not_set_with_one_thread_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets: list[int] = []
    libraries = [
        library._replace(get=lambda: 1, set=sets.append)
        for library in threads._LIMIT.libraries
    ]
    monkeypatch.setattr(threads._LIMIT, "libraries", libraries)
    with blas_threads_for(1), blas_threads_for(LARGE):
        one_blas_thread(int)()
    assert libraries
    assert sets == []


def test_openmp_builds_are_pinned_but_not_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets: list[int] = []
    library = threads._Library(get=lambda: 4, set=sets.append, own_threads=False)
    monkeypatch.setattr(threads._LIMIT, "libraries", [library])
    with blas_threads_for(1):
        pass
    assert sets == []
    pin_blas_threads()
    assert sets == [1]


class Library:
    """An OpenBLAS that has so many threads."""

    def __init__(self, *, own_threads: bool = True) -> None:
        self.count = USERS
        self.entry = threads._Library(self.get, self.set, own_threads)

    def get(self) -> int:
        return self.count

    def set(self, count: int) -> None:
        self.count = count


def limit_of(*libraries: Library) -> threads._Limit:
    limit = threads._Limit()
    limit.unseen, limit.libraries = (), [library.entry for library in libraries]
    return limit


def test_large_work_outlasting_a_concurrent_call_keeps_its_threads() -> None:
    library = Library()
    limit = limit_of(library)
    assert limit.begin()  # in one thread
    assert limit.begin_large()  # in another
    limit.end()
    assert library.count == USERS
    assert limit.begin()
    assert library.count == USERS
    limit.end()
    limit.end_large()
    assert library.count == USERS
    assert not limit.begin_large()


def test_only_libraries_with_their_own_threads_are_limited() -> None:
    own, openmp = Library(), Library(own_threads=False)
    limit = limit_of(own, openmp)
    assert limit.begin()
    assert (own.count, openmp.count) == (1, USERS)
    limit.end()
    assert (own.count, openmp.count) == (USERS, USERS)


def test_forked_child_resets_the_parents_limit() -> None:
    library = Library()
    limit = limit_of(library)
    limit.begin()
    limit.lock.acquire()  # as before a fork, by a thread that has no call itself
    limit.forked()
    assert (library.count, limit.calls) == (USERS, 0)


def test_modules_without_openblas_are_ignored(tmp_path: Any) -> None:
    assert threads._library_of(str(tmp_path / "none.so")) is None
    import _ctypes

    assert threads._library_of(_ctypes.__file__) is None


def test_pinning_lasts() -> None:
    with blas_threads_for(1):
        pin_blas_threads()
    assert has_one_thread()
    pin_blas_threads()
    threadpoolctl.threadpool_limits(USERS, user_api="blas")


def test_both_libraries_are_found() -> None:
    with blas_threads_for(1):
        assert [library.get() for library in threads._LIMIT.libraries] == counts()


def assert_runs(command: list[str]) -> None:
    """A subprocess asserts on its own, and exits with 0 where all of that holds."""
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


def test_scipy_is_detected_when_imported_later() -> None:
    code = """
import sys, numpy, threadpoolctl
from superarm.core.threads import blas_threads_for

def counts():
    found = threadpoolctl.threadpool_info()
    return {library["num_threads"] for library in found if library["user_api"] == "blas"}

threadpoolctl.threadpool_limits(3)
with blas_threads_for(1):
    assert counts() == {1}
assert counts() == {3}
assert "scipy" not in sys.modules
import scipy.linalg
threadpoolctl.threadpool_limits(3)
with blas_threads_for(1):
    assert counts() == {1}, counts()
assert counts() == {3}
"""
    assert_runs([sys.executable, "-c", code])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_fork_during_a_call_restores_threads() -> None:
    # In a subprocess: forking one in which pytest has started threads is not safe.
    code = """
import os, threading
import scipy.linalg, threadpoolctl
from superarm.core.threads import _LIMIT, one_blas_thread

def counts():
    found = threadpoolctl.threadpool_info()
    return {library["num_threads"] for library in found if library["user_api"] == "blas"}

threadpoolctl.threadpool_limits(3)
inside, over = threading.Event(), threading.Event()

@one_blas_thread
def elsewhere():
    inside.set()
    over.wait(60.0)

@one_blas_thread
def here():
    child = os.fork()
    if child == 0:
        return
    status = os.waitpid(child, 0)[1]
    assert status == 0, status

thread = threading.Thread(target=elsewhere)
thread.start()
inside.wait(60.0)
parent = os.getpid()
try:
    here()
    if os.getpid() != parent:
        assert counts() == {3}
        one_blas_thread(int)()
        assert counts() == {3} and _LIMIT.calls == 0
        os._exit(0)
except BaseException:
    if os.getpid() != parent:
        os._exit(1)
    raise
over.set()
thread.join()
assert counts() == {3} and _LIMIT.calls == 0
"""
    assert_runs([sys.executable, "-W", "ignore", "-c", code])


# --- what users call ---------------------------------------------------------------------


class Watched(SquaredExponential):
    """A kernel that records whether it is called within one of our calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(has_one_thread())
        return super().__call__(*args, **kwargs)

    def diag(self, X: Any) -> Any:
        SEEN.append(has_one_thread())
        return super().diag(X)


SEEN: list[bool] = []


def test_posteriors_work_on_one_thread() -> None:
    rng = np.random.default_rng(2)
    gp = StreamingGP(Watched(lengthscale=0.3), noise_variance=0.01)
    arms = rng.random((6, 2))
    SEEN.clear()
    gp.observe(arms[:3], [1.0, 2.0, 3.0])
    gp.predict(arms, return_cov=True)
    gp.sample(arms, rng)
    belief = gp.belief(Offer(step=1, arms=Arms.numbered(arms)))
    belief.sample(rng)
    _ = belief.condition(np.array([0])).cov
    assert len(SEEN) >= 6
    assert all(SEEN)
    assert has_users_threads()
    with pytest.raises(ValueError, match="rewards"):
        gp.observe(arms[:2], [1.0])
    assert has_users_threads()


@pytest.mark.parametrize("kind", ["streaming", "finite"])
def test_decisions_are_those_of_one_thread(kind: str) -> None:
    def play() -> list[list[int]]:
        rng = np.random.default_rng(3)
        arms = Arms.numbered(rng.random((40, 2)))
        kernel = SquaredExponential(lengthscale=0.3)
        policy = IndexPolicy(
            posterior=StreamingGP(kernel, 0.01)
            if kind == "streaming"
            else FiniteGP(kernel, arms.features, 0.01),
            rule=UCB(schedule=Fixed(value=2.0)) if kind == "streaming" else Thompson(),
            oracle=TopK(k=3),
        )
        chosen = []
        for step in range(1, 41):
            offer = Offer(step=step, arms=arms)
            decision = policy.decide(offer, rng)
            rewards = np.sin(5.0 * arms.features[decision.positions]).sum(axis=1)
            feedback = Feedback(positions=decision.positions, rewards=rewards)
            policy.commit(decision)
            policy.learn(offer, decision, feedback, rng)
            chosen.append(decision.positions.tolist())
        return chosen

    free = play()
    assert has_users_threads()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert play() == free


def test_a_table_is_played_on_one_thread() -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    rng = np.random.default_rng(4)
    arms = rng.random((20, 1))

    def play() -> list[int]:
        gp = FiniteGP(SquaredExponential(lengthscale=0.3), arms, 0.1)
        return gp.play_table(
            np.random.default_rng(5).random((50, 20)), np.full(50, 2.0)
        ).tolist()

    free = play()
    assert has_users_threads()
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert play() == free
