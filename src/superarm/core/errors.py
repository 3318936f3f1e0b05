"""Errors and warnings, as a tree.

::

    SuperarmError
    ├── InputError (ValueError)            an argument is wrong; names it and advises
    │   ├── ShapeError                     … its shape
    │   ├── NotFiniteError                 … it holds NaN or infinity
    │   ├── UnknownArmError                … an arm id or row that is not there
    │   ├── ForgottenError                 … a time of which nothing is remembered
    │   ├── NotFoundError                  … a bandit or a decision that is not there
    │   ├── FileError                      … a file that it names is not what it should be
    │   └── SpecError                      … a name or parameter in a spec, a TOML file or ``--set``
    │       └── UnknownPartError           … a name that nothing is registered under
    ├── InfeasibleError (ValueError)       the oracle has no feasible super arm
    ├── NotPositiveDefiniteError (ArithmeticError)
    ├── StaleBeliefError (RuntimeError)    a belief was used after its posterior had moved on
    ├── InterruptedUpdateError (RuntimeError)  an update was left half done
    ├── StateError (ValueError)            a saved state is damaged, or another part's
    ├── ConflictError (RuntimeError)       something is already there, learned already or out of order
    │   │                                  (the command line exits with 3)
    │   └── RepeatedRewardError            … a reward that was learned already
    ├── MissingDataError (FileNotFoundError)
    └── MissingExtraError (ImportError)    an optional dependency is absent; names the pip line

Warnings: :class:`JitterWarning` before a diagonal is raised to make a matrix factorisable,
:class:`PrecisionWarning` when results have lost digits.

No error here derives from ``KeyError``, which would print its message in quotes.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings
from types import FrameType, ModuleType

_PINNED = {"torch": "torch==2.13.0"}
"""Requirements that are named by their tested version: a bare torch pulls in CUDA."""


class SuperarmError(Exception):
    """Root of every error that superarm raises on purpose."""


class InputError(SuperarmError, ValueError):
    """An argument is wrong."""


class ShapeError(InputError):
    """An array has the wrong shape."""


class NotFiniteError(InputError):
    """An array or number holds NaN or infinity."""


class UnknownArmError(InputError):
    """An arm id or row number that the receiver does not know."""


class ForgottenError(InputError):
    """A time of which a posterior no longer remembers anything."""


class NotFoundError(InputError):
    """A storage has no bandit or decision of this name."""


class FileError(InputError):
    """A file exists, but its content is not what it should be."""


class SpecError(InputError):
    """A spec names something unknown or leaves something out.

    Args:
        message: What is wrong, and what to do.
        command_advice: The part of the message that names a command of the command line.
        plain_advice: What to read in its place without a command line; see :func:`text_without_commands`.
    """

    def __init__(
        self, message: str, command_advice: str = "", plain_advice: str = ""
    ) -> None:
        super().__init__(message)
        self.command_advice = command_advice
        self.plain_advice = plain_advice


class UnknownPartError(SpecError):
    """A spec names a part that is not registered; the command line advises how to add one."""


class InfeasibleError(SuperarmError, ValueError):
    """No feasible super arm exists for this offer."""


class NotPositiveDefiniteError(SuperarmError, ArithmeticError):
    """A covariance matrix cannot be factorised, even with the jitter allowed."""


class StaleBeliefError(SuperarmError, RuntimeError):
    """A lazy attribute of a belief was read after the posterior had changed."""


class InterruptedUpdateError(SuperarmError, RuntimeError):
    """An update was interrupted, so that the part cannot be used; the message advises."""


class StateError(SuperarmError, ValueError):
    """A saved state is of another kind, another schema, or damaged."""


class ConflictError(SuperarmError, RuntimeError):
    """Something is already there and must not be overwritten."""


class RepeatedRewardError(ConflictError):
    """A reward was learned already.

    Args:
        message: What is wrong, and what to do.
        position: The position of its arm in the offer, where one is known.
    """

    def __init__(self, message: str, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class MissingDataError(SuperarmError, FileNotFoundError):
    """A data file was not found; the message explains how to get it."""


class MissingExtraError(SuperarmError, ImportError):
    """An optional dependency is not installed.

    Args:
        message: What is missing.
        command: The command that installs it, which the text then advises.
    """

    def __init__(self, message: str, command: str = "") -> None:
        self.command_advice = f"run: {command}" if command else ""
        self.plain_advice = "ask the operator to install it"
        advice = f"; {self.command_advice}" if command else ""
        super().__init__(f"{message}{advice}")


class JitterWarning(UserWarning):
    """A diagonal is about to be raised a little so that a matrix can be factorised."""


class PrecisionWarning(UserWarning):
    """Results have lost digits to rounding; the message states how many and advises."""


def text_without_commands(error: BaseException) -> str:
    """The text of an error for somebody without a command line, such as a client of a service.

    Args:
        error: The error. Its text may contain that of the error that caused it.

    >>> text_without_commands(SpecError("no x; run `list`", "run `list`", "take y"))
    'no x; take y'
    """
    text = str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SpecError | MissingExtraError) and cause.command_advice:
            text = text.replace(cause.command_advice, cause.plain_advice)
        cause = cause.__cause__
    return text


def install_line(extra: str) -> str:
    """The command that installs an extra.

    It names the requirements themselves, as the installed package states them: superarm is on no
    package index, so that ``pip install 'superarm[fast]'`` would find nothing.

    Args:
        extra: The name of the extra.

    >>> install_line("fast")
    "pip install 'numba>=0.61.2'"
    """
    from importlib import metadata

    try:
        lines = metadata.requires("superarm") or []
    except metadata.PackageNotFoundError:  # superarm is on the path but not installed
        lines = []
    extra_marker = re.compile(rf"""extra\s*==\s*["']{re.escape(extra)}["']""")
    requirements = []
    for line in lines:
        requirement, _, marker = line.partition(";")
        name = re.match(r"[\w.-]*", requirement)
        if name and extra_marker.search(marker):
            requirements.append(_PINNED.get(name[0], requirement.strip()))
    if not requirements:
        return f"pip install -e '.[{extra}]' in a checkout of superarm"
    arguments = [text if "==" in text else f"'{text}'" for text in requirements]
    return f"pip install {' '.join(arguments)}"


def require_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an extra, or raise an error with the command that installs it.

    Args:
        module: The module.
        extra: The extra that provides it.

    >>> require_extra("math", "fast").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        message = f"{root} is not installed"
        raise MissingExtraError(message, install_line(extra)) from error


def warn(message: str, kind: type[Warning]) -> None:
    """Warn at the line outside superarm that called it, however deep inside this is.

    Args:
        message: The text.
        kind: The class of the warning.
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_inside_superarm(frame):
        level += 1
        frame = frame.f_back
    warnings.warn(message, kind, stacklevel=level)


def _is_inside_superarm(frame: FrameType) -> bool:
    module: str = frame.f_globals.get("__name__", "")
    return module.startswith("superarm.")
