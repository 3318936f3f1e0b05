"""Whole blocks of rounds in one call, for a fixed arm set and one arm a round.

This is what the papers' long simulations consist of. Optimism and scaled Thompson sampling run in
compiled code where numba is installed; other rules in a loop without the records of the flow. The
outcome is that of ``decide`` and ``learn``, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from superarm.core import Floats, Ints, Offer, Rng, Rule
from superarm.oracles import TopK
from superarm.posteriors import FiniteGP
from superarm.rules import UCB, BayesUCB, Thompson

if TYPE_CHECKING:
    from .index import IndexPolicy

RngAt = Callable[[int], Rng]
_ONE = TopK(k=1)


def play_table(
    policy: IndexPolicy, offer: Offer, rewards: Floats, rng_at: RngAt
) -> Ints | None:
    """Play the table, or ``None`` if it must be played round by round."""
    posterior = policy.posterior
    plain = (
        policy.oracle == _ONE and policy.direction == "maximize" and not policy.stepwise
    )
    free = (
        policy.switching is None and policy.decision_set is None and not policy.awaits
    )
    if not isinstance(posterior, FiniteGP) or not (
        plain and free and offer.available is None
    ):
        return None
    if not posterior.is_whole(offer.arms):
        return None
    rule, steps = policy.rule, range(offer.step, offer.step + len(rewards))
    if posterior.compiled and (widths := _widths(rule, steps)) is not None:
        normals = None
        if isinstance(rule, Thompson):
            normals = np.empty((len(steps), posterior.normals_per_draw))
            for row, step in enumerate(steps):
                rng_at(step).standard_normal(out=normals[row])
        return posterior.play_table(rewards, widths, normals)
    played, rng = np.empty(len(steps), dtype=np.intp), rng_at(offer.step)
    for row, step in enumerate(steps):
        if not rule.deterministic:
            rng = rng_at(step)
        index = rule.desirability(posterior.belief(offer), step, rng)
        arm = _ONE.select(index, None, rng).positions.item()
        posterior.observe([arm], [rewards.item(row, arm)])
        played[row] = arm
    return played


def _widths(rule: Rule, steps: range) -> Floats | None:
    """The rule's width in every round; ``None`` if it has none that can be known in advance."""
    optimistic = isinstance(rule, UCB) and type(rule) in (
        UCB,
        BayesUCB,
    )  # no one's own subclass
    if not optimistic and not (type(rule) is Thompson and rule.mode == "joint"):
        return None
    assert isinstance(rule, UCB | Thompson)
    schedule, gamma = rule.schedule, rule.gamma
    if schedule is None:
        return None
    asked = False

    def unknown(_: int) -> float:
        nonlocal asked
        asked = True  # for the information gained so far, which only a belief knows
        return 0.0

    bound = unknown if gamma is None else gamma
    widths = np.array([schedule.width(step, bound) for step in steps], dtype=np.float64)
    return None if asked else widths
