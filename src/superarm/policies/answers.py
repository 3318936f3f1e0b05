"""What the parts of a policy answer, checked: parts may be anyone's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Decision, Floats, Ints, Offer, Oracle, Selection, SwitchingCost
from superarm.errors import InputError, ShapeError, UnknownArmError
from superarm.inputs import as_positions


def require_offer(offer: Any) -> None:
    """Refuse what is no offer."""
    if not isinstance(offer, Offer):
        raise InputError(f"decide(offer, rng) takes an Offer, not a {type(offer).__name__}")


def require_decision(decision: Any) -> None:
    """Refuse what is no decision."""
    if not isinstance(decision, Decision):
        raise InputError(f"commit(decision) takes a Decision, not a {type(decision).__name__}")


def scored(by: object, desirability: Any, n: int) -> Floats:
    """Desirabilities by a rule or a score, one per arm; whether they are finite the oracle says."""
    plain = type(desirability) is np.ndarray and desirability.dtype.kind in "fiu"
    if not plain or desirability.shape != (n,):
        shape = getattr(desirability, "shape", None)
        what = f"{shape} desirabilities" if plain else f"a {type(desirability).__name__}"
        raise ShapeError(
            f"{type(by).__name__} returned {what} for {n} arms; return one number per arm, as an array"
        )
    index: Floats = desirability
    return index


def known_costs(switching: SwitchingCost, offer: Offer) -> Floats:
    """What it costs to go on to each arm on offer, (n,); infinity bars an arm."""
    costs: Any = switching.costs(offer)
    name, n = type(switching).__name__, len(offer.arms)
    plain = type(costs) is np.ndarray and costs.dtype.kind in "fiu"
    if not plain or costs.shape != (n,):
        raise ShapeError(f"{name} gave no cost for each of {n} arms; return an array of {n} numbers")
    if not costs.min(initial=0.0) >= 0.0:  # also where it is NaN
        where = int(np.argmin(costs >= 0.0))
        raise InputError(f"{name} gives arm {where} the cost {costs[where]}; it must be 0 or more")
    checked: Floats = costs
    return checked


def selected(oracle: Oracle, selection: Any, desirability: Floats) -> tuple[object, Ints]:
    """The action and the arms that an oracle selected: each on offer, and available."""
    name = type(oracle).__name__
    if not isinstance(selection, tuple) or len(selection) != len(Selection._fields):
        raise InputError(f"{name}.select returned {selection!r:.60}; return a Selection")
    positions = as_positions(selection[1], f"what {name} selected")
    chosen, n = positions.tolist(), len(desirability)
    if chosen and not 0 <= min(chosen) <= max(chosen) < n:
        raise UnknownArmError(f"{name} selected arms {chosen[:9]}; on offer are arms 0 to {n - 1}")
    if chosen and desirability[positions].min() == -np.inf:
        barred = next(each for each in chosen if desirability[each] == -np.inf)
        raise InputError(f"{name} selected arm {barred}, which is not available")
    return selection[0], positions
