"""Which arm comes first where desirabilities tie within rounding.

Two processors round differently: the same posterior then differs in its last digits, which would decide
between two arms that are worth the same. Choices agree more often where such arms count as tied and
their order in the offer decides, as it does among arms that are exactly equal.
"""

from __future__ import annotations

from itertools import pairwise
from math import inf

import numpy as np

from superarm.core import Floats, Ints

TIE = 2.0**-40
"""Desirabilities that differ by at most this share of the larger one are a tie.

A posterior of v visited arms with noise λ and prior variance s is rounded by about v·ε·s/λ of its
scale: 1e-12 for v = 100 and λ = s/40, as in the papers. Against a new solve, means and standard
deviations differ by up to 2e-12 after 30,000 rounds (bench/README.md). An arm chosen for its position is
worse by no more than that.
"""


def tie_limit(highest: float) -> float:
    """The least desirability that ties with the highest one.

    Args:
        highest: The highest desirability.
    """
    return highest - TIE * abs(highest)


def first_best(desirability: Floats) -> int:
    """The first arm whose desirability ties with the highest; the first NaN, if there is one.

    Args:
        desirability: One number per arm, (n,).
    """
    best = int(desirability.argmax())
    highest = desirability.item(best)
    if best == 0 or not -inf < highest < inf:
        return best
    # Only arms before it can come first.
    ties = desirability[:best] >= tie_limit(highest)
    tied: Ints = np.flatnonzero(ties)
    if len(tied) == 0:
        return best
    return int(tied[0])


def best_first(desirability: Floats, k: int) -> Ints:
    """All arms by falling desirability, ties in the order of the offer.

    Each arm is the first of those that tie with the best remaining one, as :func:`first_best` has it.

    Args:
        desirability: One number per arm, (n,).
        k: How many arms must be in this order; later ones may be out of it.
    """
    # A stable sort of the negated values puts the first of equals in front.
    order: Ints = (-desirability).argsort(kind="stable")
    leading = order[: k + 1]
    if not _has_ties(desirability[leading].tolist()):
        return order  # as nearly always
    values = desirability[order].tolist()
    end = min(k, len(values))
    start = 0
    while start < end and values[start] > -inf:
        # A run in which each ties with the one before it.
        stop = start + 1
        while stop < len(values) and values[stop] >= tie_limit(values[stop - 1]):
            stop += 1
        run = order[start:stop]
        order[start:stop] = _order_run(run, desirability)
        start = stop
    return order


def _has_ties(falling: list[float]) -> bool:
    """Whether two unequal neighbours tie."""
    # A loop, and tie_limit(high) written out, because this runs in every round.
    for high, low in pairwise(falling):  # noqa: SIM110  any() takes longer
        if high - TIE * abs(high) <= low < high:
            return True
    return False


def _order_run(run: Ints, desirability: Floats) -> Ints:
    """Arms by falling desirability, each of which ties with the one before it, ties by position."""
    values = desirability[run]
    lowest = values[-1]
    highest = float(values[0])
    remaining = np.sort(run)
    if lowest >= tie_limit(highest):
        return remaining  # all tie with each other
    ordered = []
    while len(remaining):
        place = first_best(desirability[remaining])
        ordered.append(remaining[place])
        remaining = np.delete(remaining, place)
    return np.array(ordered, dtype=np.intp)
