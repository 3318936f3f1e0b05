"""Compilation of loops where numba is installed (extra ``[fast]``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal, TypeVar, get_args

from .errors import require_extra
from .inputs import require_choice

Backend = Literal["auto", "numpy", "numba"]
Loop = TypeVar("Loop", bound=Callable[..., Any])

# No sum is fused or reordered: a loop must give the same bits on its own and inlined in another.
_OPTIONS = {"error_model": "numpy", "fastmath": False}


def is_compiled(backend: Backend) -> bool:
    """Whether a backend uses compiled loops.

    Args:
        backend: "numba" or "numpy"; "auto" is numba where it is installed.
    """
    require_choice(backend, "backend", get_args(Backend))
    if backend == "numpy" or (backend == "auto" and find_spec("numba") is None):
        return False
    # Before loops are imported: if that fails in several threads, only the first gets the reason.
    require_extra("numba", "fast")
    return True


def compiled(signature: str, *, nogil: bool = False) -> Callable[[Loop], Loop]:
    """Decorator: compile a loop when its module is imported, and cache the result beside the module.

    Args:
        signature: The types of its arguments, as numba writes them.
        nogil: Whether other threads run meanwhile. They must not change its arguments.
    """
    numba = require_extra("numba", "fast")

    def decorate(loop: Loop) -> Loop:
        compiled_loop: Loop
        try:
            compiled_loop = numba.njit(signature, cache=True, nogil=nogil, **_OPTIONS)(
                loop
            )
        except (RuntimeError, OSError):
            # No place for the cache, or a full disk: compile without it.
            compiled_loop = numba.njit(signature, nogil=nogil, **_OPTIONS)(loop)
        return compiled_loop

    return decorate


def entry_point(loop: Loop) -> Loop:
    """A compiled loop without numba's check of its arguments, which takes as long as a small loop.

    The caller must pass the right types.

    Args:
        loop: A loop compiled for one signature.
    """
    # Empty where NUMBA_DISABLE_JIT is set.
    versions: dict[Any, Any] = getattr(loop, "overloads", {})
    if not versions:
        return loop
    only_version = next(iter(versions.values()))
    unchecked: Loop = only_version.entry_point
    return unchecked
