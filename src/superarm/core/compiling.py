"""How loops are compiled where numba is installed (extra ``[fast]``)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal, TypeVar, get_args

from .errors import require_extra
from .inputs import require_choice

Backend = Literal["auto", "numpy", "numba"]
Loop = TypeVar("Loop", bound=Callable[..., Any])

# No sum is fused or reordered: a loop must give the same bits by itself and inlined in another.
_OPTIONS = {"error_model": "numpy", "fastmath": False}


def is_compiled(backend: Backend) -> bool:
    """Compiled where numba is installed, unless told otherwise."""
    require_choice(backend, "backend", get_args(Backend))
    if backend == "numpy" or (backend == "auto" and find_spec("numba") is None):
        return False
    # Before loops are imported: of several threads that fail at that, only the first is told why.
    require_extra("numba", "fast")
    return True


def compiled(signature: str) -> Callable[[Loop], Loop]:
    """Decorator: compiled for this signature when the module is imported, and cached beside it."""
    numba = require_extra("numba", "fast")

    def decorate(loop: Loop) -> Loop:
        made: Loop
        try:
            made = numba.njit(signature, cache=True, **_OPTIONS)(loop)
        except (
            RuntimeError,
            OSError,
        ):  # nowhere to write the cache, or a full disk: compile anew
            made = numba.njit(signature, **_OPTIONS)(loop)
        return made

    return decorate


def entry_point(loop: Loop) -> Loop:
    """A loop of one signature without numba's look at the types of its arguments.

    That look takes as long as a small loop. The caller answers for the types.
    """
    versions: dict[Any, Any] = getattr(
        loop, "overloads", {}
    )  # none where NUMBA_DISABLE_JIT is set
    made: Loop = next(iter(versions.values())).entry_point if versions else loop
    return made
