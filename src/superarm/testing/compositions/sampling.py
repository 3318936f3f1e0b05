"""Few compositions that show what every pair of parts does together."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from .composition import AT_ONCE, FREE, STATIC, Composition, Dimensions
from .playing import Outcome, play

COMMON = Composition("streaming", "ucb", "top-k", STATIC, FREE, AT_ONCE)
"""Values that run with nearly all others."""

_Value = tuple[int, str]  # the number of a dimension, and one of its values
_Pair = tuple[_Value, _Value]  # of two dimensions, the first one first


def play_sample(values: Dimensions) -> dict[Composition, Outcome]:
    """Play enough compositions that every pair of values runs, or is refused even with common values.

    This plays :func:`pairwise_sample` first. A refusal because of one pair hides whether the other
    pairs run, so each pair that has not run yet is then played with common values for the rest.

    Args:
        values: The values of every dimension.
    """
    outcomes = {
        composition: play(composition) for composition in pairwise_sample(values)
    }
    ran: set[_Pair] = set()
    for composition, outcome in outcomes.items():
        if outcome.runs:
            ran.update(_pairs_of(composition))
    common = [
        value if value in choices else choices[0]
        for value, choices in zip(COMMON, values, strict=True)
    ]
    for pair in _pairs_among(values):
        if pair in ran:
            continue
        chosen = common.copy()
        for dimension, value in pair:
            chosen[dimension] = value
        composition = Composition(*chosen)
        if composition in outcomes:
            continue
        outcomes[composition] = play(composition)
        if outcomes[composition].runs:
            ran.update(_pairs_of(composition))
    return outcomes


def pairwise_sample(values: Dimensions) -> list[Composition]:
    """Few compositions in which every value of a dimension meets every value of every other one.

    Each step takes the next missing pair and fills in the other dimensions with the values that
    complete most missing pairs; ties go to the value used least. This is deterministic.

    Args:
        values: The values of every dimension.
    """
    missing = dict.fromkeys(_pairs_among(values))
    use_counts: Counter[_Value] = Counter()
    compositions = []
    while missing:
        chosen = dict(next(iter(missing)))
        for dimension, choices in enumerate(values):
            if dimension in chosen:
                continue
            ranks = {
                value: (
                    _count_missing((dimension, value), chosen, missing),
                    -use_counts[dimension, value],
                )
                for value in choices
            }
            chosen[dimension] = max(choices, key=ranks.__getitem__)
        items = sorted(chosen.items())
        for pair in itertools.combinations(items, 2):
            missing.pop(pair, None)
        use_counts.update(items)
        compositions.append(Composition(*(value for _, value in items)))
    return compositions


def _count_missing(
    value: _Value, chosen: Mapping[int, str], missing: Collection[_Pair]
) -> int:
    """How many missing pairs a value completes with those already chosen."""
    return sum(_pair(value, other) in missing for other in chosen.items())


def _pairs_of(composition: Composition) -> Iterable[_Pair]:
    return itertools.combinations(enumerate(composition), 2)


def _pairs_among(values: Dimensions) -> Iterable[_Pair]:
    for first, second in itertools.combinations(range(len(values)), 2):
        for pair in itertools.product(values[first], values[second]):
            yield (first, pair[0]), (second, pair[1])


def _pair(value: _Value, other: _Value) -> _Pair:
    return (value, other) if value < other else (other, value)
