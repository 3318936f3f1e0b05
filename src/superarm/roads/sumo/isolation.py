"""Work done in a copy of this process, so that nothing of it stays behind."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any, NoReturn

from superarm.core import errors
from superarm.core.errors import SuperarmError


def can_copy() -> bool:
    """Return whether this system can copy a running process (fork): all but Windows can."""
    return getattr(os, "fork", None) is not None


def in_a_copy(work: Callable[[], Any]) -> Any:
    """Return what ``work`` returns, or raise what it raises; other changes end with the copy.

    A copy that is ended from outside, or by a fault of the library it calls, is an error here and does
    not end this process.

    Args:
        work: Returns plain data, which comes back as JSON: numbers to the last digit.
    """
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        # Python warns of copies of a process with threads, of which only this one continues there.
        # The copy waits for none of them: it calls one library, answers and ends.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(receiver)
        _answer(work, sender)
    os.close(sender)
    try:
        with os.fdopen(receiver, "rb") as pipe:
            answer = pipe.read()
    except BaseException:  # Ctrl-C, say
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status = os.waitpid(child, 0)
    if status != 0 or not answer:
        raise SuperarmError(
            f"a copy of this process {_describe_end(status)} before its work was done"
        )
    outcome = json.loads(answer)
    if "error" in outcome:
        error_class = getattr(errors, outcome["error"])
        raise error_class(outcome["text"])
    return outcome["result"]


def _describe_end(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    number = -code
    names = {item.value: item.name for item in signal.Signals}
    name = names.get(number, "unknown")
    reason = ""
    if number == signal.SIGKILL:
        reason = ", perhaps because memory ran out,"
    return f"was ended by signal {number} ({name}){reason}"


def _answer(work: Callable[[], Any], sender: int) -> NoReturn:
    """Do the work, write its outcome as JSON and end this process."""
    code = 1
    try:
        answer = _run(work)
        with os.fdopen(sender, "wb") as pipe:
            pipe.write(answer.encode())
        code = 0
    finally:
        # Nothing that this process has registered for its own end may run here.
        os._exit(code)


def _run(work: Callable[[], Any]) -> str:
    try:
        return json.dumps({"result": work()})
    except SuperarmError as error:
        name = type(error).__name__
        text = str(error)
    except Exception as error:
        name = "SuperarmError"
        text = f"{type(error).__name__}: {error}"
    return json.dumps({"error": name, "text": text})
