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
        centred = gaps.rounds - gaps.rounds.mean()
        span = float(gaps.rounds[-1] - gaps.rounds[0])
        from_first = gaps.values - gaps.values[:, :1]
        squares = max(1.0, float(centred @ centred))
        change = span * (from_first @ centred) / squares
        scale = larger_size(totals.by_seed(policy), totals.by_seed(rival))
        yield Margin(f"trend of the gap {rival} − {policy} over the run", change, scale)


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
    edges = np.linspace(0, last_round, min(_MOST_ROUNDS, last_round) + 1)
    rounds = np.rint(edges[1:]).astype(np.intp)
    policy_totals = _running_totals(totals, policy, rounds)
    rival_totals = _running_totals(totals, rival, rounds)
    return Gaps(rounds, rival_totals - policy_totals)


def _running_totals(totals: Totals, policy: str, rounds: Ints) -> Floats:
    """Cumulative totals after these rounds, (seeds, rounds)."""
    sums = totals.run.cumulative(policy, totals.settings[0], totals.metric)
    return np.asarray(sums[:, rounds - 1], dtype=np.float64)
