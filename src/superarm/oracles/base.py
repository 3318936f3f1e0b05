"""What oracles share: checks, and super arms that are built arm by arm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm.core import Bools, Floats, Ints, Rescore
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    NotFiniteError,
    ShapeError,
    UnknownArmError,
)

from .ties import first_best

_MOST_DESIRABILITY = 1e290


def require_numbers(values: object, name: str, length: int | None = None) -> None:
    """Refuse what is not a plain array of one number per arm."""
    plain = (
        type(values) is np.ndarray and values.ndim == 1 and values.dtype.kind in "fiu"
    )
    if not plain:
        shape = f" of shape {values.shape}" if isinstance(values, np.ndarray) else ""
        message = f"{name} is a {type(values).__name__}{shape}"
        raise ShapeError(f"{message}; it must be an array with one number for each arm")
    assert isinstance(values, np.ndarray)
    if length is not None and len(values) != length:
        raise ShapeError(
            f"{name} has {len(values)} entries, but there are {length} arms"
        )


def rescored(rescore: Rescore, chosen: Ints, n: int) -> Floats:
    """The desirabilities of all ``n`` arms once these are chosen, checked."""
    again = rescore(chosen)
    require_numbers(again, "what rescore returned", n)
    return again


def check_desirability(desirability: Floats) -> None:
    """Refuse empty offers, NaN and +inf; −inf marks an arm that is not available."""
    require_numbers(desirability, "desirability")
    if len(desirability) == 0:
        raise InputError("the offer has no arms; offer at least one")
    # A NaN or +inf maximum shows in the maximum itself: one pass, no temporary.
    if not desirability.item(desirability.argmax()) < np.inf:
        where = int(np.argmax(~(desirability < np.inf)))
        raise NotFiniteError(
            f"desirability[{where}] is {desirability[where]}; "
            "it must be finite, or -inf for an arm that is not available"
        )


def check_sums(desirability: Floats) -> None:
    """Refuse desirabilities so large that their sums overflow."""
    if (
        max(desirability.max(initial=0.0), -desirability.min(initial=0.0))
        > _MOST_DESIRABILITY
    ):
        raise InputError(
            f"sums of desirabilities above {_MOST_DESIRABILITY:g} overflow"
        )


def check_chosen(by: str, positions: Ints, desirability: Floats) -> None:
    """Refuse a choice that names what is not on offer or not available, or one arm twice."""
    chosen, n = positions.tolist(), len(desirability)
    for arm in chosen:
        if not 0 <= arm < n:
            raise UnknownArmError(
                f"{by} chose arm {arm}; on offer are arms 0 to {n - 1}"
            )
        if desirability.item(arm) == -np.inf:
            raise InputError(f"{by} chose arm {arm}, which is not available")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{by} chose {chosen[:9]}, one arm twice; choose each once")


def one_by_one(
    k: int, current: Floats, rescore: Rescore, closed: Callable[[Ints], Bools]
) -> Ints:
    """``k`` arms, each the best when it is chosen; ``closed`` (n,) depends on those before it."""
    chosen = np.empty(0, dtype=np.intp)
    while True:
        chosen = np.append(chosen, first_best(current))
        if len(chosen) == k:
            return chosen
        current = np.where(
            closed(chosen), -np.inf, rescored(rescore, chosen, len(current))
        )
        current[chosen] = -np.inf
        check_desirability(current)
        if current.max() == -np.inf:
            told = (
                f"after {len(chosen)} of {k} arms every other one is rescored to −inf"
            )
            raise InfeasibleError(told)
