"""Few compositions that show what every pair of parts does together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from .composition import AT_ONCE, FREE, STATIC, Composition, Dimensions
from .playing import Outcome, play

COMMON = Composition("streaming", "ucb", "top-k", STATIC, FREE, AT_ONCE)
"""Values that go with nearly all others."""

_Value = tuple[int, str]  # the number of a dimension, and one of its values
_Pair = tuple[_Value, _Value]  # of two dimensions, the first one first


def play_sample(values: Dimensions) -> dict[Composition, Outcome]:
    """Play so many compositions that every pair of values runs, or is refused among common parts.

    First those of :func:`pairwise_sample`. Many of them are refused for one of their pairs, which
    hides what the others do: so pairs that did not run yet are played with common values otherwise.

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

    Every step takes the next pair that has not met, and fills in the other dimensions so that most
    further pairs meet; between equals, the value that has been used least. It is deterministic.

    Args:
        values: The values of every dimension.
    """
    missing = dict.fromkeys(_pairs_among(values))
    used: dict[tuple[int, str], int] = {}
    compositions = []
    while missing:
        chosen = dict(next(iter(missing)))
        for dimension, choices in enumerate(values):
            if dimension in chosen:
                continue
            chosen[dimension] = max(
                choices,
                key=lambda value, place=dimension: (  # type: ignore[misc]
                    sum(
                        _pair((place, value), other) in missing
                        for other in chosen.items()
                    ),
                    -used.get((place, value), 0),
                ),
            )
        items = sorted(chosen.items())
        for pair in itertools.combinations(items, 2):
            missing.pop(pair, None)
        for item in items:
            used[item] = used.get(item, 0) + 1
        compositions.append(Composition(*(value for _, value in items)))
    return compositions


def _pairs_of(composition: Composition) -> Iterable[_Pair]:
    return itertools.combinations(enumerate(composition), 2)


def _pairs_among(values: Dimensions) -> Iterable[_Pair]:
    for first, second in itertools.combinations(range(len(values)), 2):
        for pair in itertools.product(values[first], values[second]):
            yield (first, pair[0]), (second, pair[1])


def _pair(one: _Value, other: _Value) -> _Pair:
    return (one, other) if one < other else (other, one)
