"""Margins: by how much a claim is true, and the checks that compare totals in one setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.lab.results.verdicts import LEAST_SEEDS, Lead, Sharing, lead_of

from .tables import names_in
from .totals import Totals

ABOVE = 1.0
BELOW = -1.0


class Margin(NamedTuple):
    """By how much a claim is true, seed by seed: ``sign`` × ``values``; shown as ``values``."""

    label: str
    values: Floats
    scale: float
    """The size of the totals that are compared, or of the larger."""
    sign: float = ABOVE
    tie_holds: bool = False

    def lead(self, sharing: Sharing) -> Lead:
        """The mean of the margin with what decides whether it is above zero.

        Args:
            sharing: what seeds have in common.
        """
        return lead_of(self.sign * self.values, scale=self.scale, sharing=sharing)

    def strength(self, sharing: Sharing, comparisons: int) -> float:
        """Beyond 1 it is decidedly true, beyond −1 decidedly false.

        Args:
            sharing: what seeds have in common.
            comparisons: how many margins decide together.
        """
        lead = self.lead(sharing)
        if lead.tied and lead.seeds >= LEAST_SEEDS:
            # A tie is no lead.
            return float("inf") if self.tie_holds else float("-inf")
        return lead.strength(comparisons)


class Limit(NamedTuple):
    """A multiple of the rival's total, and the side of it that the policy must be on."""

    factor_key: str
    """The key of the claim that holds the factor."""
    sign: float


def policy_pairs(totals: Totals) -> Iterator[tuple[str, str]]:
    """Every policy with every rival: a claim is about all of these pairs.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    policies = names_in(totals.claim["policy"])
    rivals = names_in(totals.claim["versus"])
    return product(policies, rivals)


def larger_size(totals: Floats, other_totals: Floats) -> float:
    """The size of the larger of two mean totals.

    Args:
        totals: (seeds,).
        other_totals: (seeds,).
    """
    size = abs(totals.mean())
    other_size = abs(other_totals.mean())
    return float(max(size, other_size))


def larger_of(totals: Floats, other_totals: Floats) -> Floats:
    """The totals whose mean is larger in size.

    Args:
        totals: (seeds,).
        other_totals: (seeds,).
    """
    return max(totals, other_totals, key=lambda values: abs(float(values.mean())))


def compare(totals: Totals, limits: Sequence[Limit]) -> Iterator[Margin]:
    """Every policy against multiples of every rival.

    Args:
        totals: of the claim, in the settings that are judged together.
        limits: the multiples.
    """
    for policy, rival in policy_pairs(totals):
        for factor_key, sign in limits:
            factor = float(totals.claim.get(factor_key, 1.0))
            yield margin_against(totals, policy, rival, factor, sign)


def margin_against(
    totals: Totals,
    policy: str,
    rival: str,
    factor: float,
    sign: float,
    position: int = 0,
) -> Margin:
    """The total of a policy less ``factor`` times that of a rival.

    Args:
        totals: of the claim, in the settings that are judged together.
        policy: the one that the claim is about.
        rival: the one that it is compared with.
        factor: of the rival's total.
        sign: 1 where the policy must be above, −1 where below.
        position: of the setting among those that are judged together.
    """
    # A product, not the quotient: right also where totals are zero or negative.
    values = totals.by_seed(policy, position)
    limit = factor * totals.by_seed(rival, position)
    factor_text = "" if factor == 1.0 else f"{factor:g} × "
    label = f"{policy} − {factor_text}{rival}"
    scale = larger_size(values, limit)
    return Margin(label, values - limit, scale, sign)


def compare_with_number(totals: Totals, sign: float) -> Iterator[Margin]:
    """The total of every policy, less the number that limits it.

    Args:
        totals: of the claim, in the settings that are judged together.
        sign: 1 where the policy must be above, −1 where below.
    """
    limit = float(totals.claim["limit"])
    for policy in names_in(totals.claim["policy"]):
        values = totals.by_seed(policy)
        size = abs(float(values.mean()))
        scale = max(size, abs(limit))
        label = f"{policy} − {limit:g}"
        yield Margin(label, values - limit, scale, sign)


def compare_similarity(totals: Totals) -> Iterator[Margin]:
    """The difference of two totals, within ``tolerance`` of the larger.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    for policy, rival in policy_pairs(totals):
        values = totals.by_seed(policy)
        rival_values = totals.by_seed(rival)
        level = larger_of(values, rival_values)
        difference = values - rival_values
        label = f"{policy} − {rival}"
        yield from margins_of_tolerance(totals, label, difference, "the larger", level)


def margins_of_tolerance(
    totals: Totals, label: str, difference: Floats, level_label: str, level: Floats
) -> Iterator[Margin]:
    """``difference`` is less than ``tolerance`` × ``level``, on both sides.

    Args:
        totals: of the claim, in the settings that are judged together.
        label: of the difference.
        difference: (seeds,).
        level_label: of the level.
        level: what the tolerance is relative to, (seeds,).
    """
    tolerance = float(totals.claim["tolerance"])
    mean_level = level.mean()
    allowed = tolerance * np.sign(mean_level) * level
    scale = abs(float(mean_level))
    for sign, operator in ((1.0, "−"), (-1.0, "+")):
        inside = allowed - sign * difference
        if np.any(inside) or np.any(level):
            text = f"{100 * tolerance:g} % of {level_label} {operator} ({label})"
            yield Margin(text, inside, scale)
        else:
            # Where everything is zero, the totals are the same.
            yield Margin(label, difference, scale, tie_holds=True)
