"""Checks of what parts return: rules, scores, oracles and switching costs may be a user's own."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from superarm.core import (
    Floats,
    Guarantee,
    Ints,
    Offer,
    Oracle,
    Policy,
    Rescore,
    Rng,
    Selection,
    SwitchingCost,
)
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_positions, frozen
from superarm.oracles.base import check_chosen


def one_per_arm(part: object, values: Any, n: int) -> Floats:
    """Check that a part returned one number per arm. The oracle checks that they are finite.

    Args:
        part: The part that returned the values.
        values: What it returned.
        n: Number of arms on offer.
    """
    is_array = type(values) is np.ndarray
    is_numeric = is_array and values.dtype.kind in "fiu"
    if not is_numeric or values.shape != (n,):
        description = f"a {type(values).__name__}"
        if is_array:
            description = f"an array of {values.dtype} of shape {values.shape}"
        raise ShapeError(
            f"{type(part).__name__} returned {description} for {n} arms; return one number per arm, "
            "as an array"
        )
    return np.asarray(values)


def switching_costs(switching: SwitchingCost, offer: Offer) -> Floats:
    """What it costs to switch to each arm on offer, (n,); infinity bars an arm.

    Args:
        switching: The switching cost.
        offer: The arms on offer, and the previous action.
    """
    answer = switching.costs(offer)
    costs = one_per_arm(switching, answer, len(offer.arms))
    if not costs.min(initial=0.0) >= 0.0:  # also where it is NaN
        arm = int(np.argmin(costs >= 0.0))
        name = type(switching).__name__
        raise InputError(
            f"{name}: the cost of arm {arm} must be 0 or more, got {costs[arm]}"
        )
    return costs


def select(
    oracle: Oracle,
    desirability: Floats,
    offer: Offer,
    rng: Rng,
    rescore: Rescore | None = None,
) -> tuple[object, Ints, Guarantee]:
    """The action, the positions and the guarantee of the oracle's selection, checked.

    All arms are on offer and available. No record is made of the three: every decision unpacks them.

    Args:
        oracle: The oracle.
        desirability: One number per arm on offer, (n,); larger is better.
        offer: The arms on offer.
        rng: Where the oracle draws its random numbers.
        rescore: Returns desirabilities given the arms chosen so far, for oracles that choose arm
            by arm; ``None``: they do not change.
    """
    if offer.available is not None:
        desirability = np.where(offer.available, desirability, -np.inf)
    selection: Any = oracle.select(desirability, offer.structure, rng, rescore)
    name = type(oracle).__name__
    if type(selection) is not Selection:
        selection = _as_selection(selection, name)
    action, selected, guarantee = selection
    positions = frozen(as_positions(selected, f"what {name} selected"))
    check_chosen(name, positions, desirability)
    if action is selected:
        # The arms are the action: one array, so that both can only change together.
        action = positions
    return action, positions, guarantee


def _as_selection(answer: Any, oracle: str) -> Selection:
    """A user's oracle may return a plain tuple."""
    if not isinstance(answer, tuple) or len(answer) != len(Selection._fields):
        raise InputError(f"{oracle}.select returned {answer!r:.60}; return a Selection")
    return Selection(*answer)


# --- super arms of k arms --------------------------------------------------------------------


def available_arms(offer: Offer) -> Ints:
    """Positions of the arms that may be chosen, ascending.

    Args:
        offer: The arms on offer.
    """
    if offer.available is None:
        return np.arange(len(offer.arms))
    return np.flatnonzero(offer.available)


def count_available(offer: Offer) -> int:
    """How many arms may be chosen.

    Args:
        offer: The arms on offer.
    """
    if offer.available is None:
        return len(offer.arms)
    return int(np.count_nonzero(offer.available))


def certain_choice(policy: Policy, offer: Offer) -> Ints:
    """Positions of the arms that a policy without chance chooses, (k,).

    Args:
        policy: The policy, which draws no random numbers.
        offer: The arms on offer.
    """
    unused = np.random.default_rng(0)
    return policy.decide(offer, unused).positions


def same_arms(first: Ints, second: Ints) -> bool:
    """Whether two super arms contain the same arms, in any order.

    Args:
        first: Positions of the arms of one.
        second: Positions of the arms of the other.
    """
    return set(first.tolist()) == set(second.tolist())


def uniform_propensity(
    offer: Offer, positions: Ints, k: int, chance: float = 1
) -> float:
    """Probability of exactly these arms where all sets of ``k`` arms are equally likely.

    Args:
        offer: The arms on offer.
        positions: Positions of the arms.
        k: How many arms a super arm has.
        chance: Probability that the super arm is drawn at all, which all sets share.
    """
    if not is_feasible(offer, positions, k):
        return 0.0
    count = count_super_arms(offer, k)
    if count > sys.float_info.max:
        return 0.0  # less than any float
    return chance / count


def uniform_inclusion(offer: Offer, k: int, chance: float = 1) -> Floats:
    """Probability that each arm is chosen where all sets of ``k`` arms are equally likely, (n,).

    Args:
        offer: The arms on offer.
        k: How many arms a super arm has.
        chance: Probability that the super arm is drawn at all, which all sets share.
    """
    available = available_arms(offer)
    probabilities = np.zeros(len(offer.arms))
    probabilities[available] = chance * k / len(available)
    return probabilities


def is_feasible(offer: Offer, positions: Ints, k: int) -> bool:
    """Whether these are ``k`` different arms that are on offer and available.

    Args:
        offer: The arms on offer.
        positions: Positions of the arms.
        k: How many arms a super arm has.
    """
    chosen = set(positions.tolist())
    return len(positions) == len(chosen) == k and chosen.issubset(
        available_arms(offer).tolist()
    )


def count_super_arms(offer: Offer, k: int) -> int:
    """The number of sets of ``k`` available arms: an integer, so that it cannot overflow.

    Args:
        offer: The arms on offer.
        k: How many arms a super arm has.
    """
    return math.comb(count_available(offer), k)
