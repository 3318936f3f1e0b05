"""The check ``widens``: whether the gap between two running totals grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.lab.results.formats import significant

from .margins import Margin, larger_size, policy_pairs
from .totals import Totals

_MOST_ROUNDS = 10  # at which a gap is measured


class Gaps(NamedTuple):
    """How far two running totals are apart at some rounds."""

    rounds: Ints
    values: Floats
    """The running total of the rival less that of the policy, (seeds, rounds)."""


def compare_gaps(totals: Totals) -> Iterator[Margin]:
    """The change of a gap from the first of these rounds to the last, by least squares.

    Args:
        totals: of the claim, in the settings that are judged together.
    """
    for policy, rival in policy_pairs(totals):
        gaps = _gaps(totals, policy, rival)
        rounds = gaps.rounds
        centred = rounds - rounds.mean()
        span = float(rounds[-1] - rounds[0])
        first_gap = gaps.values[:, :1]
        from_first = gaps.values - first_gap
        squares = max(1.0, float(centred @ centred))
        change = span * (from_first @ centred) / squares
        policy_totals = totals.by_seed(policy)
        rival_totals = totals.by_seed(rival)
        scale = larger_size(policy_totals, rival_totals)
        label = f"trend of the gap {rival} − {policy} over the run"
        yield Margin(label, change, scale)


def gaps_text(totals: Totals, policy: str, rival: str) -> str:
    """The mean gap after each of these rounds.

    Args:
        totals: of the claim, in the settings that are judged together.
        policy: the one that the claim is about.
        rival: the one that it is compared with.
    """
    gaps = _gaps(totals, policy, rival)
    means = gaps.values.mean(axis=0)
    parts = []
    for step, gap in zip(gaps.rounds, means, strict=True):
        parts.append(f"{step}: {significant(gap)}")
    return f"gap {rival} − {policy} after round {', '.join(parts)}"


def _gaps(totals: Totals, policy: str, rival: str) -> Gaps:
    last_round = totals.run.rounds
    count = min(_MOST_ROUNDS, last_round)
    edges = np.linspace(0, last_round, count + 1)
    rounds = np.rint(edges[1:]).astype(np.intp)
    policy_totals = _running_totals(totals, policy, rounds)
    rival_totals = _running_totals(totals, rival, rounds)
    differences = rival_totals - policy_totals
    return Gaps(rounds, differences)


def _running_totals(totals: Totals, policy: str, rounds: Ints) -> Floats:
    """Cumulative totals after these rounds, (seeds, rounds)."""
    sums = totals.run.cumulative(policy, totals.settings[0], totals.metric)
    return np.asarray(sums[:, rounds - 1], dtype=np.float64)
