"""Whole blocks of rounds in compiled code, for the policies that allow it.

Optimism and scaled Thompson sampling on a fixed arm set, one arm a round: what the papers' long
simulations consist of. The outcome is that of ``decide`` and ``learn``, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from superarm.core import Floats, Gamma, Ints, Offer, Schedule
from superarm.oracles import TopK
from superarm.posteriors import FiniteGP
from superarm.rules import UCB, BayesUCB, Thompson

if TYPE_CHECKING:
    from .base import IndexPolicy


class _NeedsBeliefError(Exception):
    """The schedule asked for the information gained so far, which only a belief knows."""


def play_table(
    policy: IndexPolicy, offer: Offer, rewards: Floats, rng_at: Callable[[int], np.random.Generator]
) -> Ints | None:
    """Play the table, or ``None`` if it must be played round by round."""
    posterior, rule = policy.posterior, policy.rule
    if (
        not isinstance(posterior, FiniteGP)
        or not posterior.compiled
        or policy.oracle != TopK(k=1)
        or policy.direction != "maximize"
        or policy.pending_aware
        or offer.available is not None
        or not posterior.is_whole(offer.arms)
    ):
        return None
    steps = range(offer.step, offer.step + len(rewards))
    normals = None
    try:
        if isinstance(rule, UCB) and type(rule) in (UCB, BayesUCB):  # no one's own subclass
            widths = _widths(rule.schedule, rule.gamma, steps)
        elif type(rule) is Thompson and rule.mode == "joint" and rule.schedule is not None:
            widths = _widths(rule.schedule, rule.gamma, steps)
            count = posterior.normals_per_draw
            normals = np.empty((len(steps), count))
            for row, step in enumerate(steps):
                normals[row] = rng_at(step).standard_normal(count)
        else:
            return None
    except _NeedsBeliefError:
        return None
    return posterior.play_table(rewards, widths, normals)


def _widths(schedule: Schedule, gamma: Gamma | None, steps: range) -> Floats:
    def unknown(_: int) -> float:
        raise _NeedsBeliefError

    bound = unknown if gamma is None else gamma
    return np.array([schedule.width(step, bound) for step in steps], dtype=np.float64)
