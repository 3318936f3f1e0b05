"""Which arm comes first where desirabilities tie within rounding.

Two processors round differently: the same posterior then differs in its last digits, and two arms that
are worth the same are told apart by them. Choices agree more often where such arms count as tied and
their order in the offer decides, as it does among arms that are exactly equal.
"""

from __future__ import annotations

from math import inf

import numpy as np

from superarm.core import Floats, Ints

TIE = 2.0**-40
"""Desirabilities that differ by at most this share of the larger one are a tie.

A posterior of v visited arms with noise λ and prior variance s is rounded by about v·ε·s/λ of its
scale: 1e-12 for v = 100 and λ = s/40, as the papers have them. Against a fresh solve means and
standard deviations differ by up to 2e-12 after 30,000 rounds (bench/README.md). An arm chosen for its
position is worse by no more than that.
"""


def tie_limit(highest: float) -> float:
    """The least desirability that ties with the highest one."""
    return highest - TIE * abs(highest)


def first_best(desirability: Floats) -> int:
    """The first arm whose desirability ties with the highest; the first NaN, if there is one."""
    best = int(desirability.argmax())
    highest = desirability.item(best)
    if best == 0 or not -inf < highest < inf:
        return best
    # Only arms before it can come first.
    near: Ints = np.flatnonzero(desirability[:best] >= tie_limit(highest))
    return int(near[0]) if len(near) else best


def best_first(desirability: Floats, k: int) -> Ints:
    """All arms by falling desirability, ties in the order of the offer; only the first ``k`` are sure.

    Each arm is the first of those that tie with the best one left, as :func:`first_best` has it.
    """
    # A stable sort of the negated values keeps the first of equals in front.
    order: Ints = (-desirability).argsort(kind="stable")
    high, *following = desirability[order[: k + 1]].tolist() or [0.0]
    for low in following:
        if high - TIE * abs(high) <= low < high:
            break
        high = low
    else:
        return order  # as nearly always
    values = desirability[order].tolist()
    start = 0
    while start < k and values[start] > -inf:
        # A run in which each ties with the one before it.
        stop = start + 1
        while stop < len(values) and values[stop] >= tie_limit(values[stop - 1]):
            stop += 1
        order[start:stop] = _untangled(order[start:stop], desirability)
        start = stop
    return order


def _untangled(run: Ints, desirability: Floats) -> Ints:
    """Arms by falling desirability, each of which ties with the one before it, ties by position."""
    if desirability[run[-1]] >= tie_limit(float(desirability[run[0]])):
        return np.sort(run)  # all tie with each other
    left, sorted_run = np.sort(run), []
    while len(left):
        at = first_best(desirability[left])
        sorted_run.append(left[at])
        left = np.delete(left, at)
    return np.array(sorted_run, dtype=np.intp)
