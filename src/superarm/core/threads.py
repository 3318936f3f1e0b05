"""How many threads BLAS takes: one for our own products, and for everything else what the user has.

OpenBLAS divides even small products among threads that wait for each other by spinning. Where
another process has the core of one of them, all wait until the scheduler takes turns: a product
of 0.1 ms then takes 10 or 20. OpenBLAS has one number for the whole process, so that it is
lowered when the first of our calls begins and given back when the last one ends. Threads of OpenMP
builds belong to the user's OpenMP as well, and other BLAS have other means: both are left alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LARGE = 5e8
"""Multiplications from which a product keeps the user's threads: about 20 ms of one core.

On a core that others use, threads wait milliseconds for each other, once or several times in a product.
Measured on two such cores: up to 4·10⁷ multiplications two threads took 2 to 100 times as long as one;
from 10⁹ on, 0.7 to 0.8 of the time; Cholesky factors of up to 2000 rows never gained. On idle cores
threads may pay earlier, but a call cannot know whether they are idle."""

# Modules linked with the BLAS of numpy and of scipy: each brings its own. Numba takes scipy's.
_LINKED = ("numpy.linalg._umath_linalg", "scipy.linalg.cython_blas")
# What wheels and distributions put before and behind ``openblas_…``.
_NAMES = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", ""))
_PTHREADS = (
    1  # what ``openblas_get_parallel`` says of threads of its own; 2 is OpenMP, 0 none
)


class _Library(NamedTuple):
    """A loaded OpenBLAS."""

    get: Callable[[], int]
    set: Callable[[int], None]
    own_threads: bool  # not those of OpenMP


def _library_of(path: str) -> _Library | None:
    """The OpenBLAS that the extension module at ``path`` is linked with, if it is one."""
    try:
        module = ctypes.PyDLL(
            path
        )  # keeps the GIL: calls as short as these are faster with it
    except OSError:
        return None
    names = ("get_num_threads", "set_num_threads", "get_parallel")
    for (
        prefix,
        suffix,
    ) in _NAMES:  # looked up in everything that the module is linked with
        whole = (f"{prefix}openblas_{name}{suffix}" for name in names)
        get, put, parallel = (getattr(module, name, None) for name in whole)
        if get is not None and put is not None:
            put.argtypes, put.restype = [ctypes.c_int], None
            return _Library(get, put, parallel is not None and parallel() == _PTHREADS)
    return None


class _Limit:
    """Who needs one thread now, and what to give back afterwards.

    ``calls`` counts calls that want one thread, ``large`` products that want the user's own
    number; the latter win. In a process that has one thread anyway neither counts anything.
    """

    def __init__(self) -> None:
        self.lock = (
            threading.RLock()
        )  # reentrant: a signal handler may ask us something, too
        self.calls = self.large = 0
        self.before: list[tuple[_Library, int]] = []
        self.libraries: list[_Library] = []
        self.unseen: tuple[str, ...] = _LINKED

    def find(self) -> None:
        """Look at modules that were imported since."""
        if any(name in sys.modules for name in self.unseen):
            with self.lock:
                found = [name for name in self.unseen if name in sys.modules]
                libraries = [
                    _library_of(str(sys.modules[name].__file__)) for name in found
                ]
                self.libraries += [
                    library for library in libraries if library is not None
                ]
                self.unseen = tuple(name for name in self.unseen if name not in found)

    def begin(self) -> bool:
        """One thread from now on; says whether ``end`` must be called."""
        if not self.calls and not self._above_one() and not self.calls:
            return False  # without the lock, which costs as much as the rest
        with self.lock:
            self.calls += 1
            if self.calls == 1 and not self.large:
                self._take()
            return True

    def _above_one(self) -> bool:
        if self.unseen:
            self.find()
        for library in self.libraries:  # noqa: SIM110 (a generator would cost as much again)
            if library.own_threads and library.get() > 1:
                return True
        return False

    def end(self) -> None:
        with self.lock:
            self.calls = max(0, self.calls - 1)  # in a forked child it may be 0
            if not self.calls and not self.large:
                self._give_back()

    def begin_large(self) -> bool:
        """All threads from now on, where they were taken; says whether ``end_large`` must be called."""
        with self.lock:
            if not self.calls:
                return False
            if not self.large:
                self._give_back()
            self.large += 1
            return True

    def end_large(self) -> None:
        with self.lock:
            self.large = max(0, self.large - 1)
            if self.calls and not self.large:
                self._take()

    def _take(self) -> None:
        counts = [
            (library, library.get())
            for library in self.libraries
            if library.own_threads
        ]
        self.before = [(library, count) for library, count in counts if count > 1]
        for library, _ in self.before:
            library.set(1)

    def _give_back(self) -> None:
        before, self.before = self.before, []
        for library, count in before:
            if (
                library.get() == 1
            ):  # else somebody has changed it meanwhile: theirs stands
                library.set(count)

    def pin(self) -> None:
        with self.lock:
            self.find()
            self.before = []
            for library in self.libraries:
                library.set(1)

    def forked(self) -> None:
        """In a child, calls of threads that it does not have will never end."""
        self.calls = self.large = 0
        self._give_back()
        self.lock.release()


_LIMIT = _Limit()
if sys.platform != "win32":  # which has no forks
    os.register_at_fork(
        before=_LIMIT.lock.acquire,
        after_in_parent=_LIMIT.lock.release,
        after_in_child=_LIMIT.forked,
    )


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function with BLAS held to one thread while it runs; afterwards all is as it was."""

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _LIMIT.begin():
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            _LIMIT.end()

    return limited


class blas_threads_for:  # noqa: N801 (a context manager, used like a function)
    """Within: one BLAS thread for small work, the user's own number for large.

    >>> with blas_threads_for(100**3):
    ...     pass
    """

    __slots__ = ("_begun", "_large")

    def __init__(self, multiplications: float) -> None:
        self._large = multiplications >= LARGE

    def __enter__(self) -> None:
        self._begun = _LIMIT.begin_large() if self._large else _LIMIT.begin()

    def __exit__(self, *exception: object) -> None:
        if self._begun:
            (_LIMIT.end_large if self._large else _LIMIT.end)()


def pin_blas_threads() -> None:
    """Hold every OpenBLAS of numpy and scipy to one thread for good.

    Results must not depend on how many cores a machine has, and seeds fan out over processes
    anyway. ``OPENBLAS_NUM_THREADS=1`` in the environment before Python starts does the same.
    """
    import scipy.linalg.cython_blas  # noqa: F401  (loads scipy's BLAS, so that it is found)

    _LIMIT.pin()
