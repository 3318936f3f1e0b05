"""Choices of O'CLOK-UCB, replayed with an exact posterior."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superarm.core import Belief, Floats, Ints, Offer, Schedule
from superarm.lab.theory import variance_sum_bound
from superarm.models.worlds import World
from superarm.posteriors import StreamingGP

from .judging import share_of
from .recorded import RecordedRun, Round

LEVELS = (1.5, 2.0, 2.5, 3.0)
"""√β of eq. 6: widths, in standard deviations."""


class Replay(NamedTuple):
    """What a seed of O'CLOK-UCB used of what Lemmas 1 to 3 and Theorem 1 allow; shares above 1 fail."""

    variance_share: float
    """Lemma 1: Σσ² of all chosen arms over 2(λ* + σ²) times the information gained."""
    arms: int
    """Arms on offer in all rounds."""
    outside: int
    """Lemma 2: those whose true mean lies outside mean ± √β_t std."""
    beyond: Floats
    """Eq. 6: the share of arms whose mean is further away than each of the levels, in std."""
    rounds_inside: int
    """Rounds with a choice in which no mean lies outside: Lemma 3 is about these."""
    gap_share: float
    """Lemma 3: the largest α-gap of these rounds over 2B√β_t Σσ; −∞ where none is inside."""
    regret_share: float
    """Theorem 1: the largest α-regret after t rounds over √(8B²(λ* + σ²) K β_t t I), for any t."""

    @property
    def all_inside(self) -> bool:
        """F of Lemma 2: no mean lies outside in any round."""
        return self.outside == 0


class _ReplayTotals:
    """Adds up, round by round, what a replay reports.

    Args:
        world: the problem as the seed met it.
        regret: cumulative α-regret, (T,).
        schedule: the widths √β_t.
    """

    def __init__(self, world: World, regret: Floats, schedule: Schedule) -> None:
        model = world.model
        self.world = world
        self.regret = regret
        self.gaps = np.diff(regret, prepend=0.0)
        self.schedule = schedule
        self.lipschitz = model.reward.lipschitz
        self.noise_variance = model.noise_variance
        self.posterior = StreamingGP(model.kernel, model.noise_variance, mean=0.0)
        self.largest_eigenvalue = 0.0
        self.variance_sum = 0.0
        self.most_chosen = 0
        self.arms = 0
        self.outside = 0
        self.beyond_counts = np.zeros(len(LEVELS))
        self.rounds_inside = 0
        self.gap_share = -math.inf
        self.regret_share = -math.inf

    def add(self, played: Round) -> None:
        """Check a round, then observe its rewards.

        Args:
            played: the round.
        """
        offer = played.offer
        chosen = played.positions
        keys = self.posterior.keys(offer)
        belief = self.posterior.belief(offer)
        width = self.schedule.width(
            offer.step, lambda _: self.posterior.information_gain
        )
        is_inside = self._count_outside(offer, belief, width)
        if not len(chosen):
            return
        chosen_stds = belief.std[chosen]
        if is_inside:
            self._check_gap(offer.step, width, chosen_stds)
        covariance = self.posterior.predict(keys[chosen], return_cov=True).cov
        eigenvalue = float(np.linalg.eigvalsh(covariance)[-1])
        self.largest_eigenvalue = max(self.largest_eigenvalue, eigenvalue)
        self.variance_sum += float(np.sum(chosen_stds**2))
        self.most_chosen = max(self.most_chosen, len(chosen))
        self.posterior.observe(keys[chosen], played.rewards)
        self._check_regret(offer.step, width)

    def _count_outside(self, offer: Offer, belief: Belief, width: float) -> bool:
        """Lemma 2 and eq. 6; whether all means on offer lie within their widths."""
        available = _available(offer)
        all_errors = np.abs(self.world.means(offer) - belief.mean)
        errors = all_errors[available]
        stds = belief.std[available]
        outside = int(np.count_nonzero(errors > width * stds))
        self.arms += len(available)
        self.outside += outside
        for place, level in enumerate(LEVELS):
            self.beyond_counts[place] += np.count_nonzero(errors > level * stds)
        return outside == 0

    def _check_gap(self, step: int, width: float, chosen_stds: Floats) -> None:
        """Lemma 3."""
        self.rounds_inside += 1
        std_sum = float(chosen_stds.sum())
        allowed = 2.0 * self.lipschitz * width * std_sum
        gap = float(self.gaps[step - 1])
        share = share_of(gap, allowed)
        self.gap_share = float(np.maximum(self.gap_share, share))

    def _check_regret(self, step: int, width: float) -> None:
        """Eq. 26: Theorem 1 with what was gained in place of γ, and λ* and K as met up to round t."""
        gained = self.posterior.information_gain
        spread = self.largest_eigenvalue + self.noise_variance
        constant = 8.0 * self.lipschitz**2 * spread
        square = constant * self.most_chosen * width**2 * step * gained
        bound = math.sqrt(square)
        regret = float(self.regret[step - 1])
        share = share_of(regret, bound)
        self.regret_share = float(np.maximum(self.regret_share, share))

    def variance_share(self) -> float:
        """Lemma 1 over all rounds."""
        if not self.variance_sum:
            return 0.0
        allowed = variance_sum_bound(
            self.posterior.information_gain,
            largest_eigenvalue=self.largest_eigenvalue,
            noise_variance=self.noise_variance,
        )
        return self.variance_sum / float(allowed)


def replay(
    recorded: RecordedRun,
    policy: str,
    seed: int,
    index: int,
    world: World,
    schedule: Schedule,
) -> Replay:
    """Observe the recorded choices with an exact posterior, and check each round beforehand.

    Args:
        recorded: the run.
        policy: whose choices are replayed; Lemma 3 and Theorem 1 are about those of O'CLOK-UCB.
        seed: of the totals.
        index: of the setting.
        world: the problem as this seed met it.
        schedule: the widths √β_t.
    """
    regret = _alpha_regret(recorded, policy, seed, index)
    totals = _ReplayTotals(world, regret, schedule)
    for played in recorded.rounds(policy, seed, index, world):
        totals.add(played)
    return Replay(
        variance_share=totals.variance_share(),
        arms=totals.arms,
        outside=totals.outside,
        beyond=totals.beyond_counts / totals.arms,
        rounds_inside=totals.rounds_inside,
        gap_share=totals.gap_share,
        regret_share=totals.regret_share,
    )


def _alpha_regret(recorded: RecordedRun, policy: str, seed: int, index: int) -> Floats:
    """Against the promised share of the optimum where it is recorded, else the optimum, (T,)."""
    run = recorded.run
    metric = "regret"
    if "alpha_regret" in run.metrics_at(index):
        metric = "alpha_regret"
    row = run.seeds.index(seed)
    regret: Floats = run.cumulative(policy, index, metric)[row]
    return regret


def _available(offer: Offer) -> Ints:
    if offer.available is None:
        return np.arange(len(offer.arms))
    return np.flatnonzero(offer.available)
