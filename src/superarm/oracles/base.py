"""What oracles share: checks, and super arms that are built arm by arm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm.core import Bools, Floats, Ints, Rescore
from superarm.errors import InfeasibleError, InputError, NotFiniteError, UnknownArmError

_MOST_DESIRABILITY = 1e290


def check_desirability(desirability: Floats) -> None:
    """Refuse empty offers, NaN and +inf; −inf marks an arm that is not available."""
    if len(desirability) == 0:
        raise InputError("the offer has no arms; offer at least one")
    # A NaN or +inf maximum shows in the maximum itself: one pass, no temporary.
    if not desirability.max() < np.inf:
        where = int(np.argmax(~(desirability < np.inf)))
        raise NotFiniteError(
            f"desirability[{where}] is {desirability[where]}; "
            "it must be finite, or -inf for an arm that is not available"
        )


def check_sums(desirability: Floats) -> None:
    """Refuse desirabilities so large that their sums overflow."""
    if max(desirability.max(initial=0.0), -desirability.min(initial=0.0)) > _MOST_DESIRABILITY:
        raise InputError(f"sums of desirabilities above {_MOST_DESIRABILITY:g} overflow")


def check_chosen(by: str, positions: Ints, desirability: Floats) -> None:
    """Refuse a choice that names what is not on offer or not available, or one arm twice."""
    chosen, n = positions.tolist(), len(desirability)
    for arm in chosen:
        if not 0 <= arm < n:
            raise UnknownArmError(f"{by} chose arm {arm}; on offer are arms 0 to {n - 1}")
        if desirability[arm] == -np.inf:
            raise InputError(f"{by} chose arm {arm}, which is not available")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{by} chose {chosen[:9]}, one arm twice; choose each once")


def one_by_one(k: int, current: Floats, rescore: Rescore, closed: Callable[[Ints], Bools]) -> Ints:
    """``k`` arms, each the best when it is chosen; ``closed`` (n,) depends on those before it."""
    chosen = np.empty(0, dtype=np.intp)
    while True:
        chosen = np.append(chosen, current.argmax())
        if len(chosen) == k:
            return chosen
        current = np.where(closed(chosen), -np.inf, rescore(chosen))
        current[chosen] = -np.inf
        check_desirability(current)
        if current.max() == -np.inf:
            told = f"after {len(chosen)} of {k} arms every other one is rescored to −inf"
            raise InfeasibleError(told)
