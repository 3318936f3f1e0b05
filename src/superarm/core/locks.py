"""Locks with which one thread writes at a time and readers never see half a change.

Every posterior and every policy has one :class:`ReadWriteLock`. Methods that change it hold the lock:
``with self._lock: …``. Methods that only read take no lock: :func:`consistent_read` detects a write in
the meantime and then reads once more while holding the lock. A method that reads and caches its result
is :func:`exclusive`.

Copies and pickles of a :class:`ThreadSafe` object are consistent, too. A process that forks first waits
until no thread writes, so that the child's copy is complete and its locks are free.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import wraps
from threading import Lock, RLock
from time import monotonic
from typing import Any, NoReturn, Self, TypeVar, cast
from weakref import WeakSet

# Registers its fork handlers before this module does. Handlers run in reverse order before a fork, so
# its lock is still free while we wait for threads that may need it to finish writing.
from . import threads as _threads  # noqa: F401
from .errors import InterruptedUpdateError

_FORK_TIMEOUT = 10.0
"""Seconds that a fork waits for other threads to finish writing."""


class ReadWriteLock:
    """A lock for writers, with a count of writes from which readers detect changes.

    Args:
        written: The count to start from.
    """

    __slots__ = ("__weakref__", "lock", "writing", "written")

    def __init__(self, written: int = 0) -> None:
        self.lock: Any = RLock()  # reentrant: the thread that writes may read
        self.writing = 0
        """How many nested writes are under way."""
        self.written = written
        """Grows with every attempt to write, so that a cached result can be checked against it."""
        _forks.watch(self)

    def __enter__(self) -> None:
        self.lock.acquire()
        self.writing += 1

    def __exit__(self, *_: object) -> None:
        self.written += 1
        self.writing -= 1
        self.lock.release()

    def __reduce__(self) -> Any:
        # A copy gets a new lock.
        return ReadWriteLock, (self.written,)

    def give_up(self, message: str) -> None:
        """Refuse every later use: the guarded object was left half written.

        Args:
            message: The text of the error that every use raises.
        """
        self.writing = 1  # so that readers turn to the lock
        self.lock = _Refusal(message)


class _Refusal:
    """Replaces the lock of an object that was left half written."""

    def __init__(self, message: str) -> None:
        self._message = message

    def acquire(self, blocking: bool = True, timeout: float = -1) -> NoReturn:
        raise InterruptedUpdateError(self._message)

    def __enter__(self) -> NoReturn:
        raise InterruptedUpdateError(self._message)

    def __exit__(self, *_: object) -> None:
        """Never reached, because entering raises."""

    def release(self) -> None:
        """Does nothing. The thread that gave up may still be inside the lock and release it."""


# --- forks ---------------------------------------------------------------------------------


class _ForkGuard:
    """Holds every lock while the process forks."""

    def __init__(self) -> None:
        self._locks: WeakSet[ReadWriteLock] = WeakSet()
        # Guards the set. A thread that holds it waits for nothing else.
        self._set_lock = Lock()
        self._acquired: list[ReadWriteLock] = []

    def watch(self, lock: ReadWriteLock) -> None:
        with self._set_lock:
            self._locks.add(lock)

    def before(self) -> None:
        with self._set_lock:
            locks = list(self._locks)
        self._acquired = _acquire_all(locks, _FORK_TIMEOUT)
        self._set_lock.acquire()

    def after_in_parent(self) -> None:
        self._set_lock.release()
        self._release_acquired()

    def after_in_child(self) -> None:
        """Replace locks whose threads do not exist in the child and will never release them."""
        self._set_lock.release()
        acquired = self._release_acquired()
        for lock in set(self._locks).difference(acquired):
            if isinstance(lock.lock, _Refusal):
                continue
            if lock.writing:
                lock.give_up(
                    "another thread was still writing to this part when the process forked, so its "
                    "copy in the child is incomplete; fork between two updates, or load the part in "
                    "the child from its saved state"
                )
            else:
                lock.lock = RLock()

    def _release_acquired(self) -> list[ReadWriteLock]:
        acquired = self._acquired
        self._acquired = []
        for lock in acquired:
            lock.lock.release()
        return acquired


def _acquire_all(locks: Iterable[ReadWriteLock], timeout: float) -> list[ReadWriteLock]:
    """Acquire all locks, or those that are free after ``timeout`` seconds; return them.

    Threads take locks one inside the other, in an order that is unknown here. So no lock is held while
    waiting: where one is taken, all others are released, and that one is waited for first.
    """
    order = [lock for lock in locks if not isinstance(lock.lock, _Refusal)]
    deadline = monotonic() + timeout
    while True:
        acquired: list[ReadWriteLock] = []
        for index, lock in enumerate(order):
            seconds_left = deadline - monotonic()
            may_wait = not acquired and seconds_left > 0.0
            success = lock.lock.acquire(timeout=seconds_left if may_wait else 0.0)
            if success:
                acquired.append(lock)
            elif seconds_left > 0.0:
                order.insert(0, order.pop(index))
                break
        else:
            return acquired
        for lock in acquired:
            lock.lock.release()


_forks = _ForkGuard()
if sys.platform != "win32":  # which has no forks
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.after_in_parent,
        after_in_child=_forks.after_in_child,
    )


# --- copies --------------------------------------------------------------------------------


class ThreadSafe:
    """An object that several threads may use; its copies and pickles are consistent.

    No copy shares what can change. ``copy.copy`` and ``pickle`` share the objects in :meth:`_constant`,
    such as kernels and oracles; ``copy.deepcopy`` copies those, too.
    """

    _lock: ReadWriteLock

    def _constant(self) -> Iterable[object]:
        """Objects that never change, so that copies may share them."""
        return ()

    def __copy__(self) -> Self:
        return self.__deepcopy__({id(part): part for part in self._constant()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        duplicate = object.__new__(type(self))
        memo[id(self)] = duplicate
        with self._lock.lock:
            # A copy of the dictionary: readers may cache results in it at the same time.
            attributes = deepcopy(dict(vars(self)), memo)
        duplicate.__dict__.update(attributes)
        return duplicate

    def __getstate__(self) -> dict[str, Any]:
        # A pickler writes the result later, when the lock is free again; hence the deep copy.
        memo = {id(part): part for part in self._constant()}
        with self._lock.lock:
            return deepcopy(dict(vars(self)), memo)


# --- methods -------------------------------------------------------------------------------

Method = TypeVar("Method", bound=Callable[..., Any])


def consistent_read(method: Method) -> Method:
    """Decorator of a method that reads: its result is of one moment, between two changes.

    Args:
        method: Reads attributes of an object whose ``_lock`` is a :class:`ReadWriteLock`, and sets none.
    """

    @wraps(method)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        lock: ReadWriteLock = self._lock
        written = lock.written
        if not lock.writing:
            try:
                result = method(self, *args, **kwargs)
            except Exception:
                # After a write, arrays of two moments may have clashed: read once more.
                if lock.written == written and not lock.writing:
                    raise
            else:
                if lock.written == written and not lock.writing:
                    return result
        with lock.lock:
            return method(self, *args, **kwargs)

    return cast(Method, read)


def exclusive(method: Method) -> Method:
    """Decorator of a method that reads and caches its result: holds the lock for the whole call.

    Args:
        method: A method of an object whose ``_lock`` is a :class:`ReadWriteLock`.
    """

    @wraps(method)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock.lock:
            return method(self, *args, **kwargs)

    return cast(Method, read)
