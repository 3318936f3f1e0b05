"""One thread writes at a time, and those that read never see half a change.

A posterior has one :class:`ReadWriteLock`, and so has a policy. What changes it holds it: ``with self._turns:
…``. Reading takes no lock: a method under :func:`whole` notices if something was written meanwhile,
and then asks again while nobody writes. One that keeps what it finds for later is under :func:`alone`.

Copies and pickles of what derives from :class:`ThreadSafe` are of one moment, too. A process that forks
first waits until nobody writes: the child's copy is complete, and its locks are free.
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

# Registers its handlers of forks before this module does. Handlers run in reverse order before a fork,
# so that its lock is still free while we wait for threads that may need it to finish writing.
from . import threads as _threads  # noqa: F401
from .errors import InterruptedUpdateError

_PATIENCE = 10.0
"""Seconds that a fork waits for other threads to finish writing."""


class ReadWriteLock:
    """Whose turn it is to write, and how often something was written."""

    __slots__ = ("__weakref__", "lock", "writing", "written")

    def __init__(self, written: int = 0) -> None:
        self.lock: Any = RLock()  # the thread that writes may read
        self.writing = 0
        self.written = written
        """It rises with every attempt to write, so that it tells whether a kept answer holds."""
        _forks.watch(self)

    def __enter__(self) -> None:
        self.lock.acquire()
        self.writing += 1

    def __exit__(self, *_: object) -> None:
        self.written += 1
        self.writing -= 1
        self.lock.release()

    def __reduce__(self) -> Any:
        return ReadWriteLock, (self.written,)  # a copy has a lock of its own

    def give_up(self, message: str) -> None:
        """Refuse every later use: what is guarded was left half written."""
        self.writing = 1  # so that readers turn to the lock
        self.lock = _Refusal(message)


class _Refusal:
    """Stands in for the lock of something that was left half written."""

    def __init__(self, message: str) -> None:
        self._message = message

    def acquire(self, blocking: bool = True, timeout: float = -1) -> NoReturn:
        raise InterruptedUpdateError(self._message)

    def __enter__(self) -> NoReturn:
        raise InterruptedUpdateError(self._message)

    def __exit__(self, *_: object) -> None:
        """Never reached: nobody enters."""

    def release(self) -> None:
        """Whoever left it half written may still hold it."""


# --- forks ---------------------------------------------------------------------------------


class _Forks:
    """Holds every lock while the process forks."""

    def __init__(self) -> None:
        self._known: WeakSet[ReadWriteLock] = WeakSet()
        self._guard = (
            Lock()
        )  # of the set; nobody waits for anything else while holding it
        self._held: list[ReadWriteLock] = []

    def watch(self, turns: ReadWriteLock) -> None:
        with self._guard:
            self._known.add(turns)

    def before(self) -> None:
        with self._guard:
            everyone = list(self._known)
        self._held = _acquired(everyone, _PATIENCE)
        self._guard.acquire()

    def after_in_parent(self) -> None:
        self._guard.release()
        held, self._held = self._held, []
        for turns in held:
            turns.lock.release()

    def after_in_child(self) -> None:
        """Threads that held the other locks do not exist here, and will never release them."""
        self._guard.release()
        held, self._held = self._held, []
        for turns in held:
            turns.lock.release()
        for turns in set(self._known).difference(held):
            if isinstance(turns.lock, _Refusal):
                continue
            if turns.writing:
                turns.give_up(
                    "another thread was still writing to this part when the process forked, so its "
                    "copy in the child is incomplete; fork between two updates, or load the part in "
                    "the child from its saved state"
                )
            else:
                turns.lock = RLock()


def _acquired(
    everyone: Iterable[ReadWriteLock], patience: float
) -> list[ReadWriteLock]:
    """Those whose locks could be acquired within ``patience`` seconds: nearly always everyone.

    Threads take locks one inside the other, in an order that is not known here. So nothing is held
    while waiting: where one lock is taken, all are released, and that one is waited for first.
    """
    order = [turns for turns in everyone if not isinstance(turns.lock, _Refusal)]
    deadline = monotonic() + patience
    while True:
        held: list[ReadWriteLock] = []
        for place, turns in enumerate(order):
            left = deadline - monotonic()
            wait = not held and left > 0.0
            if (
                turns.lock.acquire(timeout=left)
                if wait
                else turns.lock.acquire(blocking=False)
            ):
                held.append(turns)
            elif left > 0.0:
                order.insert(0, order.pop(place))
                break
        else:
            return held
        for turns in held:
            turns.lock.release()


_forks = _Forks()
if sys.platform != "win32":  # which has no forks
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.after_in_parent,
        after_in_child=_forks.after_in_child,
    )


# --- copies --------------------------------------------------------------------------------


class ThreadSafe:
    """Something that several threads may use: its copies and pickles are of one moment.

    No copy shares what can change. ``copy.copy`` and ``pickle`` keep the objects in :meth:`_constant`,
    such as kernels and oracles; ``copy.deepcopy`` copies those, too.
    """

    _lock: ReadWriteLock

    def _constant(self) -> Iterable[object]:
        """What never changes, so that copies may share it."""
        return ()

    def __copy__(self) -> Self:
        return self.__deepcopy__({id(part): part for part in self._constant()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        again = object.__new__(type(self))
        memo[id(self)] = again
        with self._lock.lock:
            # A copy of the dictionary: those that only read may keep answers in it meanwhile.
            held = deepcopy(dict(vars(self)), memo)
        again.__dict__.update(held)
        return again

    def __getstate__(self) -> dict[str, Any]:
        # A pickler asks for this and writes later what it gets, when the lock is free again.
        memo = {id(part): part for part in self._constant()}
        with self._lock.lock:
            return deepcopy(dict(vars(self)), memo)


# --- methods -------------------------------------------------------------------------------

Question = TypeVar("Question", bound=Callable[..., Any])


def consistent_read(question: Question) -> Question:
    """Decorator of a method that reads: its answer is that of one moment between two changes."""

    @wraps(question)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        turns: ReadWriteLock = self._lock
        written = turns.written
        if not turns.writing:
            try:
                answer = question(self, *args, **kwargs)
            except (
                Exception
            ):  # perhaps because arrays of two moments did not go together
                if turns.written == written and not turns.writing:
                    raise
            else:
                if turns.written == written and not turns.writing:
                    return answer
        with turns.lock:
            return question(self, *args, **kwargs)

    return cast(Question, asked)


def exclusive(question: Question) -> Question:
    """Decorator of a method that reads and keeps what it finds: nobody writes or reads so meanwhile."""

    @wraps(question)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock.lock:
            return question(self, *args, **kwargs)

    return cast(Question, asked)
