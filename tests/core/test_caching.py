"""A cached property is computed once, and holds no lock while it is."""

from __future__ import annotations

import copy
import os
import signal
import threading

import pytest

from superarm.core.caching import cached_property


class Slow:
    """Counts how often its value is computed; the computation waits for ``go``."""

    def __init__(self, go: threading.Event) -> None:
        self.go = go
        self.started = threading.Semaphore(0)
        self.computed = 0

    @cached_property
    def value(self) -> list[int]:
        """The documentation of the value."""
        self.started.release()
        self.go.wait(timeout=60.0)
        self.computed += 1
        return [self.computed]


def gone_on() -> threading.Event:
    go = threading.Event()
    go.set()
    return go


def test_is_computed_when_first_read_and_then_kept() -> None:
    slow = Slow(gone_on())
    assert slow.computed == 0
    first = slow.value
    assert slow.value is first
    assert slow.computed == 1
    assert copy.copy(slow).value is first


def test_can_be_deleted_and_is_computed_anew() -> None:
    slow = Slow(gone_on())
    assert slow.value == [1]
    del slow.value
    assert slow.value == [2]


def test_the_class_shows_the_property_and_its_documentation() -> None:
    assert isinstance(Slow.value, cached_property)
    assert Slow.value.__doc__ == "The documentation of the value."


def test_an_error_is_not_kept() -> None:
    class Failing:
        attempts = 0

        @cached_property
        def value(self) -> int:
            self.attempts += 1
            if self.attempts == 1:
                raise ValueError("not yet")
            return self.attempts

    failing = Failing()
    with pytest.raises(ValueError, match="not yet"):
        _ = failing.value
    assert failing.value == 2


def test_threads_that_compute_at_once_get_one_value() -> None:
    slow = Slow(threading.Event())
    values: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: values.append(slow.value)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert slow.started.acquire(timeout=60.0)
    slow.go.set()
    for thread in threads:
        thread.join(timeout=60.0)
    assert slow.computed == 2
    assert values[0] is values[1] is slow.value


def test_another_object_does_not_wait() -> None:
    waiting = Slow(threading.Event())
    thread = threading.Thread(target=lambda: waiting.value)
    thread.start()
    assert waiting.started.acquire(timeout=60.0)
    assert Slow(gone_on()).value == [1]
    assert waiting.computed == 0
    waiting.go.set()
    thread.join(timeout=60.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_during_a_computation_can_compute() -> None:
    waiting = Slow(threading.Event())
    thread = threading.Thread(target=lambda: waiting.value)
    thread.start()
    assert waiting.started.acquire(timeout=60.0)
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends a child that waits for ever
        os._exit(Slow(gone_on()).value[0] + 41)
    waiting.go.set()
    thread.join(timeout=60.0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
