"""One thread writes at a time, and those that read never see half a change.

A posterior has one :class:`Turns`, and so has a policy. What changes it holds it: ``with self._turns:
…``. Reading takes no lock: a method under :func:`whole` notices if something was written meanwhile,
and then asks again while nobody writes. One that keeps what it finds for later is under :func:`alone`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import Any, TypeVar, cast


class Turns:
    """Whose turn it is to write, and how often something was written."""

    __slots__ = ("lock", "writing", "written")

    def __init__(self, written: int = 0) -> None:
        self.lock = RLock()  # the thread that writes may read
        self.writing = 0
        self.written = written
        """It rises with every attempt to write, so that it tells whether a kept answer holds."""

    def __enter__(self) -> None:
        self.lock.acquire()
        self.writing += 1

    def __exit__(self, *_: object) -> None:
        self.written += 1
        self.writing -= 1
        self.lock.release()

    def __reduce__(self) -> Any:
        return Turns, (self.written,)  # a copy has a lock of its own


Question = TypeVar("Question", bound=Callable[..., Any])


def whole(question: Question) -> Question:
    """Decorator of a method that reads: its answer is that of one moment between two changes."""

    @wraps(question)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        turns: Turns = self._turns
        written = turns.written
        if not turns.writing:
            try:
                answer = question(self, *args, **kwargs)
            except Exception:  # perhaps because arrays of two moments did not go together
                if turns.written == written and not turns.writing:
                    raise
            else:
                if turns.written == written and not turns.writing:
                    return answer
        with turns.lock:
            return question(self, *args, **kwargs)

    return cast(Question, asked)


def alone(question: Question) -> Question:
    """Decorator of a method that reads and keeps what it finds: nobody writes or reads so meanwhile."""

    @wraps(question)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._turns.lock:
            return question(self, *args, **kwargs)

    return cast(Question, asked)
