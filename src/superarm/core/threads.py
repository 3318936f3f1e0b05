"""How many threads BLAS uses: one for our own products, the user's number for everything else.

OpenBLAS divides even small products among threads that wait for each other by spinning. If another
process occupies the core of one of them, all wait for the scheduler: a product of 0.1 ms then takes 10
or 20. OpenBLAS has one number for the whole process, so it is lowered when the first of our calls
begins and restored when the last one ends. OpenMP builds share their threads with the user's OpenMP, and
other BLAS libraries work differently: both stay untouched.
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

On a busy core, threads wait milliseconds for each other, once or several times in a product. Measured
on two such cores: up to 4·10⁷ multiplications two threads took 2 to 100 times as long as one; from 10⁹
on, 0.7 to 0.8 of the time; Cholesky factors of up to 2000 rows never gained. On idle cores threads may
pay earlier, but a call cannot detect whether cores are idle."""

# Modules linked with the BLAS of numpy and of scipy: each brings its own. Numba uses scipy's.
_LINKED = ("numpy.linalg._umath_linalg", "scipy.linalg.cython_blas")
# Prefixes and suffixes that wheels and distributions add to ``openblas_…``.
_AFFIXES = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", ""))
# ``openblas_get_parallel`` returns 1 for OpenBLAS's own threads, 2 for OpenMP, 0 for none.
_PTHREADS = 1


class _Library(NamedTuple):
    """A loaded OpenBLAS."""

    get: Callable[[], int]
    set: Callable[[int], None]
    own_threads: bool  # not those of OpenMP


def _library_of(path: str) -> _Library | None:
    """The OpenBLAS that the extension module at ``path`` is linked with; ``None`` for other BLAS."""
    try:
        # PyDLL keeps the GIL: for calls as short as these that is faster.
        module = ctypes.PyDLL(path)
    except OSError:
        return None
    # Names are looked up in everything that the module is linked with.
    for prefix, suffix in _AFFIXES:
        get = getattr(module, f"{prefix}openblas_get_num_threads{suffix}", None)
        set_number = getattr(module, f"{prefix}openblas_set_num_threads{suffix}", None)
        if get is None or set_number is None:
            continue
        set_number.argtypes = [ctypes.c_int]
        set_number.restype = None
        parallel = getattr(module, f"{prefix}openblas_get_parallel{suffix}", None)
        own_threads = parallel is not None and parallel() == _PTHREADS
        return _Library(get, set_number, own_threads)
    return None


class _Limit:
    """The calls that need one thread now, and the numbers of threads to restore afterwards.

    ``calls`` counts calls that need one thread, ``large`` products that need the user's number; the
    latter win. In a process that has one thread anyway neither is counted.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: a signal handler may call us, too
        self.calls = 0
        self.large = 0
        self.before: list[tuple[_Library, int]] = []
        self.libraries: list[_Library] = []
        self.unseen: tuple[str, ...] = _LINKED

    def find(self) -> None:
        """Find the libraries of modules that were imported since the last call."""
        if not any(name in sys.modules for name in self.unseen):
            return
        with self.lock:
            imported = [name for name in self.unseen if name in sys.modules]
            for name in imported:
                library = _library_of(str(sys.modules[name].__file__))
                if library is not None:
                    self.libraries.append(library)
            self.unseen = tuple(name for name in self.unseen if name not in imported)

    def begin(self) -> bool:
        """Use one thread from now on; returns whether ``end`` must be called."""
        if not self.calls and not self._above_one() and not self.calls:
            return False  # without the lock, which takes as long as everything else
        with self.lock:
            self.calls += 1
            if self.calls == 1 and not self.large:
                self._take()
            return True

    def _above_one(self) -> bool:
        if self.unseen:
            self.find()
        for library in self.libraries:  # noqa: SIM110 (a generator would cost as much again)
            if library.get() > 1 and library.own_threads:
                return True
        return False

    def end(self) -> None:
        with self.lock:
            self.calls = max(0, self.calls - 1)  # in a forked child it may be 0
            if not self.calls and not self.large:
                self._give_back()

    def begin_large(self) -> bool:
        """Use all threads from now on; returns whether ``end_large`` must be called."""
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
        before = self.before
        self.before = []
        for library, count in before:
            # Any other number was set by somebody else in the meantime, and stays.
            if library.get() == 1:
                library.set(count)

    def pin(self) -> None:
        with self.lock:
            self.find()
            self.before = []
            for library in self.libraries:
                library.set(1)

    def forked(self) -> None:
        """In a child, calls of threads that it does not have will never end."""
        self.calls = 0
        self.large = 0
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
    """Decorator: BLAS uses one thread while the function runs.

    Args:
        function: Any function.
    """

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
    """Context manager: one BLAS thread for small work, the user's number for large.

    Args:
        multiplications: How many the work inside takes; :data:`LARGE` is the limit.

    >>> with blas_threads_for(100**3):
    ...     pass
    """

    __slots__ = ("_begun", "_large")

    def __init__(self, multiplications: float) -> None:
        self._large = multiplications >= LARGE

    def __enter__(self) -> None:
        self._begun = _LIMIT.begin_large() if self._large else _LIMIT.begin()

    def __exit__(self, *exception: object) -> None:
        if not self._begun:
            return
        if self._large:
            _LIMIT.end_large()
        else:
            _LIMIT.end()


def pin_blas_threads() -> None:
    """Limit every OpenBLAS of numpy and scipy to one thread, permanently.

    Results must not depend on how many cores a machine has, and seeds fan out over processes
    anyway. ``OPENBLAS_NUM_THREADS=1`` in the environment before Python starts does the same.
    """
    import scipy.linalg.cython_blas  # noqa: F401  (loads scipy's BLAS, so that it is found)

    _LIMIT.pin()
