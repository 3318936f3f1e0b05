"""Requests are tried again if another process has appended to the bandit in between."""

from __future__ import annotations

import time as clock
from collections.abc import Callable
from functools import wraps
from random import uniform
from typing import ParamSpec, TypeVar

from .journal import StaleOwnerError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_MOST_TRIES = 20
_LONGEST_PAUSE = 0.02  # seconds


def retry_if_stale(
    method: Callable[Arguments, Result],
) -> Callable[Arguments, Result]:
    """A method of a bandit that is called again if the bandit was out of date.

    Nothing of a call that failed is in the journal, and the bandit has been read again: so the next
    call is the first that counts.

    Args:
        method: The method.
    """

    @wraps(method)
    def call(*args: Arguments.args, **extra: Arguments.kwargs) -> Result:
        for _ in range(_MOST_TRIES - 1):
            try:
                return method(*args, **extra)
            except StaleOwnerError:
                # Two owners that compete should not try again at the same moment.
                clock.sleep(uniform(0.0, _LONGEST_PAUSE))
        return method(*args, **extra)

    return call
