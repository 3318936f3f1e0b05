"""Checks shared by oracles, and super arms that are built arm by arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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


def require_numbers(values: Any, name: str, length: int | None = None) -> None:
    """Refuse what is not a plain array of one number per arm.

    Args:
        values: What should be such an array.
        name: Its name, for the error message.
        length: Number of arms, if known.
    """
    is_plain = type(values) is np.ndarray and values.ndim == 1
    if not is_plain or values.dtype.kind not in "fiu":
        message = f"{name} must be an array with one number for each arm, got a "
        message += type(values).__name__
        if isinstance(values, np.ndarray):
            message += f" of shape {values.shape}"
        raise ShapeError(message)
    if length is not None and len(values) != length:
        raise ShapeError(
            f"{name} has {len(values)} entries, but there are {length} arms"
        )


def call_rescore(rescore: Rescore, chosen: Ints, n: int) -> Floats:
    """The desirabilities of all arms once some are chosen, checked.

    Args:
        rescore: Computes them.
        chosen: Positions of the chosen arms.
        n: Number of all arms.
    """
    updated = rescore(chosen)
    require_numbers(updated, "what rescore returned", n)
    return updated


def check_desirability(desirability: Floats) -> None:
    """Refuse empty offers, NaN and +inf; −inf marks an arm that is not available.

    Args:
        desirability: One number per arm, (n,).
    """
    require_numbers(desirability, "desirability")
    if len(desirability) == 0:
        raise InputError("the offer has no arms; offer at least one")
    # NaN and +inf show in the maximum: one pass, no temporary array.
    highest = desirability.item(desirability.argmax())
    if not highest < np.inf:
        is_wrong = ~(desirability < np.inf)
        arm = int(np.argmax(is_wrong))
        raise NotFiniteError(
            f"desirability[{arm}] is {desirability[arm]}; "
            "it must be finite, or -inf for an arm that is not available"
        )


def refuse_rescore(rescore: Rescore | None, way: str) -> None:
    """Refuse to choose arm by arm.

    Args:
        rescore: What the caller passed.
        way: How the oracle chooses instead, as in "Knapsack packs all arms at once".
    """
    if rescore is not None:
        raise InputError(f"{way}, not arm by arm: leave stepwise out")


def check_sums(desirability: Floats) -> None:
    """Refuse desirabilities so large that their sums overflow.

    Args:
        desirability: One number per arm, (n,).
    """
    if not len(desirability):
        return
    # In a quarter of the time that ``max`` and ``min`` take.
    highest = desirability.item(desirability.argmax())
    lowest = desirability.item(desirability.argmin())
    if max(highest, -lowest) > _MOST_DESIRABILITY:
        raise InputError(
            f"sums of desirabilities above {_MOST_DESIRABILITY:g} overflow"
        )


def check_chosen(by: str, positions: Ints, desirability: Floats) -> None:
    """Refuse a choice that names an unknown or unavailable arm, or one arm twice.

    Args:
        by: Who chose, for the error message.
        positions: The chosen arms.
        desirability: One number per arm, −inf where it is not available, (n,).
    """
    chosen = positions.tolist()
    n = len(desirability)
    for arm in chosen:
        if not 0 <= arm < n:
            raise UnknownArmError(
                f"{by} chose arm {arm}; on offer are arms 0 to {n - 1}"
            )
        if desirability.item(arm) == -np.inf:
            raise InputError(f"{by} chose arm {arm}, which is not available")
    if len(set(chosen)) < len(chosen):
        raise InputError(f"{by} chose {chosen[:9]}, one arm twice; choose each once")


def choose_one_by_one(
    k: int, current: Floats, rescore: Rescore, closed: Callable[[Ints], Bools]
) -> Ints:
    """Choose ``k`` arms one after another, each the best at its time.

    Args:
        k: How many arms to choose.
        current: The first desirabilities, (n,).
        rescore: Computes those after some arms are chosen.
        closed: Computes which arms cannot be chosen any more, (n,).
    """
    n = len(current)
    chosen = np.empty(0, dtype=np.intp)
    while True:
        chosen = np.append(chosen, first_best(current))
        if len(chosen) == k:
            return chosen
        is_closed = closed(chosen)
        updated = call_rescore(rescore, chosen, n)
        current = np.where(is_closed, -np.inf, updated)
        current[chosen] = -np.inf
        check_desirability(current)
        if current.max() == -np.inf:
            raise InfeasibleError(
                f"after {len(chosen)} of {k} arms every other one is rescored to −inf"
            )
