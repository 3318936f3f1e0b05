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
import sys
import warnings
from types import ModuleType


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


def require_extra(module: str, extra: str) -> ModuleType:
    """Import ``module``, or say which extra brings it.

    >>> require_extra("math", "plot").sqrt(4.0)
    2.0
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        root = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != root:
            raise
        told = f"{root} is not installed; run: pip install 'superarm[{extra}]'"
        raise MissingExtraError(told) from error


def warn(message: str, kind: type[Warning]) -> None:
    """Warn whoever called superarm, however deep inside it this is."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("superarm."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)
