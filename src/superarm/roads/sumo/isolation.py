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
    """Whether this system can copy a running process (fork): all but Windows can."""
    return getattr(os, "fork", None) is not None


def in_a_copy(work: Callable[[], Any]) -> Any:
    """What ``work`` returns or raises; whatever else it changes, ends with the copy.

    The result is plain data, which comes back as JSON: numbers to the last digit. A copy that is
    ended from outside, or by a fault of the library it calls, is an error here and does not end
    this process.
    """
    receiver, sender = os.pipe()
    with warnings.catch_warnings():
        # Python warns of copies of a process with threads, of which only this one goes on there.
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
        status = os.waitpid(child, 0)[1]
    if status != 0 or not answer:
        raise SuperarmError(
            f"a copy of this process {_end(status)} before its work was done"
        )
    told = json.loads(answer)
    if "error" in told:
        raise getattr(errors, told["error"])(told["text"])
    return told["result"]


def _end(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    names = {each.value: each.name for each in signal.Signals}
    why = ", perhaps because memory ran out," if -code == signal.SIGKILL else ""
    return f"was ended by signal {-code} ({names.get(-code, 'unknown')}){why}"


def _answer(work: Callable[[], Any], sender: int) -> NoReturn:
    code = 1
    try:
        try:
            told = json.dumps({"result": work()})
        except SuperarmError as error:
            told = json.dumps({"error": type(error).__name__, "text": str(error)})
        except Exception as error:
            told = json.dumps(
                {"error": "SuperarmError", "text": f"{type(error).__name__}: {error}"}
            )
        with os.fdopen(sender, "wb") as pipe:
            pipe.write(told.encode())
        code = 0
    finally:
        # Nothing that this process has registered for its own end may run here.
        os._exit(code)
