"""What can go wrong, as a tree.

::

    SuperarmError
    ├── InputError (ValueError)            an argument is wrong; says which, where, what to do
    │   ├── ShapeError                     … its shape
    │   ├── NotFiniteError                 … it holds NaN or infinity
    │   ├── UnknownArmError                … an arm id or row that is not there
    │   ├── ForgottenError                 … a time of which nothing is remembered
    │   ├── FileError                      … a file that it names is not what it should be
    │   └── SpecError                      … a name or parameter in a spec, a TOML file or ``--set``
    ├── InfeasibleError (ValueError)       the oracle has no feasible super arm
    ├── NotPositiveDefiniteError (ArithmeticError)
    ├── StaleBeliefError (RuntimeError)    a belief was used after its posterior had moved on
    ├── InterruptedUpdateError (RuntimeError)  an update was left half done
    ├── StateError (ValueError)            a saved state is damaged, or another part's
    ├── ConflictError (RuntimeError)       something is already there, learned already or out of order
    │                                      (the command line exits with 3)
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
from types import ModuleType

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
    """A time that is asked about, of which a posterior remembers nothing any more."""


class FileError(InputError):
    """A file cannot be read as what it should be; whoever named it made no slip."""


class SpecError(InputError):
    """A spec names something unknown or leaves something out."""


class InfeasibleError(SuperarmError, ValueError):
    """No feasible super arm exists for this offer."""


class NotPositiveDefiniteError(SuperarmError, ArithmeticError):
    """A covariance matrix cannot be factorised, even with the jitter allowed."""


class StaleBeliefError(SuperarmError, RuntimeError):
    """A lazy part of a belief was asked for after the posterior had changed."""


class InterruptedUpdateError(SuperarmError, RuntimeError):
    """Something was left half updated, so that it cannot be used; the message says what to do."""


class StateError(SuperarmError, ValueError):
    """A saved state is of another kind, another schema, or damaged."""


class ConflictError(SuperarmError, RuntimeError):
    """Something is already there and must not be overwritten."""


class MissingDataError(SuperarmError, FileNotFoundError):
    """A data file was not found; the message says how to get it."""


class MissingExtraError(SuperarmError, ImportError):
    """An optional dependency is not installed."""


class JitterWarning(UserWarning):
    """A diagonal is about to be raised a little so that a matrix can be factorised."""


class PrecisionWarning(UserWarning):
    """Results have lost digits to rounding; the message says how many and what to do."""


def install_line(extra: str) -> str:
    """The command that installs what an extra needs, wherever superarm itself came from.

    It names the requirements themselves, as the installed package states them: superarm is on no
    package index, so that ``pip install 'superarm[plot]'`` would find nothing.

    >>> install_line("plot")
    "pip install 'matplotlib>=3.9.0'"
    """
    from importlib import metadata

    try:
        stated = metadata.requires("superarm") or []
    except metadata.PackageNotFoundError:  # the sources alone are on the path
        stated = []
    found = []
    for line in stated:
        requirement, _, marker = line.partition(";")
        name = re.match(r"[\w.-]*", requirement)
        if re.search(rf"""extra\s*==\s*["']{re.escape(extra)}["']""", marker) and name:
            found.append(_PINNED.get(name[0], requirement.strip()))
    if not found:
        return f"pip install -e '.[{extra}]' in a checkout of superarm"
    quoted = [each if "==" in each else f"'{each}'" for each in found]
    return f"pip install {' '.join(quoted)}"


def require_extra(module: str, extra: str) -> ModuleType:
    """Import ``module``, or say which command installs it.

    >>> require_extra("math", "plot").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        message = f"{root} is not installed; run: {install_line(extra)}"
        raise MissingExtraError(message) from error


def warn(message: str, kind: type[Warning]) -> None:
    """Warn whoever called superarm, however deep inside it this is."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "superarm."
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
