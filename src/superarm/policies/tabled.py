"""Many rounds in one call, for a fixed arm set and one arm a round.

The papers' long simulations consist of such rounds. UCB and scaled Thompson sampling run in compiled
code where numba is installed; other rules in a loop that creates no offers, decisions or feedback.
The outcome is that of ``decide`` and ``learn``, bit for bit.
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
_ONE_ARM = TopK(k=1)


def play_table(
    policy: IndexPolicy, offer: Offer, rewards: Floats, rng_at: RngAt
) -> Ints | None:
    """Play one round for each row of a table of rewards.

    Args:
        policy: The policy; its posterior learns.
        offer: The offer of the first round; the others have the same arms.
        rewards: The reward of every arm in every round, (T, n).
        rng_at: Returns the random generator of a step.

    Returns:
        The arm played in every round, (T,); ``None`` if rounds must be played one by one.
    """
    posterior = policy.posterior
    if not isinstance(posterior, FiniteGP):
        return None
    if not _is_plain(policy) or offer.available is not None:
        return None
    if not posterior.has_all_arms(offer.arms):
        return None
    rule = policy.rule
    steps = range(offer.step, offer.step + len(rewards))
    if posterior.compiled:
        widths = _widths(rule, steps)
        if widths is not None:
            normals = None
            if isinstance(rule, Thompson):
                normals = _draw_normals(steps, posterior.normals_per_draw, rng_at)
            return posterior.play_table(rewards, widths, normals)
    return _play_rounds(rule, posterior, offer, rewards, rng_at)


def _is_plain(policy: IndexPolicy) -> bool:
    """Whether the policy maximises over single arms, with nothing pending and no extras."""
    return (
        policy.oracle == _ONE_ARM
        and policy.direction == "maximize"
        and not policy.stepwise
        and policy.switching is None
        and policy.decision_set is None
        and not policy.awaits
    )


def _draw_normals(steps: range, count: int, rng_at: RngAt) -> Floats:
    """The standard normals of every round's joint draw, (T, count)."""
    normals = np.empty((len(steps), count))
    for row, step in enumerate(steps):
        rng = rng_at(step)
        rng.standard_normal(out=normals[row])
    return normals


def _play_rounds(
    rule: Rule, posterior: FiniteGP, offer: Offer, rewards: Floats, rng_at: RngAt
) -> Ints:
    """Play round by round: ``decide`` and ``learn`` without their records."""
    arms_played = np.empty(len(rewards), dtype=np.intp)
    rng = rng_at(offer.step)
    for row in range(len(rewards)):
        step = offer.step + row
        if not rule.deterministic:
            rng = rng_at(step)
        belief = posterior.belief(offer)
        index = rule.desirability(belief, step, rng)
        selection = _ONE_ARM.select(index, None, rng)
        arm = selection.positions.item()
        reward = rewards.item(row, arm)
        posterior.observe([arm], [reward])
        arms_played[row] = arm
    return arms_played


def _widths(rule: Rule, steps: range) -> Floats | None:
    """The rule's width in every round, (T,); ``None`` if it depends on what will be learned."""
    # Exact types: a user's subclass may do something else.
    is_optimistic = type(rule) in (UCB, BayesUCB)
    is_joint_thompson = type(rule) is Thompson and rule.mode == "joint"
    if not is_optimistic and not is_joint_thompson:
        return None
    assert isinstance(rule, UCB | Thompson)
    schedule = rule.schedule
    if schedule is None:
        return None
    needs_realised_gain = False

    def realised_gain(_: int) -> float:
        nonlocal needs_realised_gain
        needs_realised_gain = True  # only a belief has the information gained so far
        return 0.0

    gamma = realised_gain if rule.gamma is None else rule.gamma
    widths = [schedule.width(step, gamma) for step in steps]
    return None if needs_realised_gain else np.array(widths, dtype=np.float64)
