"""The lemmas behind the bound of O'CLOK-UCB, checked on what a run recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from superarm.core import Decision, Floats, Ints, Offer, Schedule
from superarm.posteriors import StreamingGP
from superarm.problems.base import World
from superarm.simulation import Run
from superarm.streams import Streams
from superarm.theory import variance_sum_bound


class Lemmas(NamedTuple):
    """What Lemmas 1 to 3 of nika2022oclok allow, and how much of it one cell used."""

    variances: float  # Lemma 1: Σσ² over what the information gained allows; it holds for any choices
    outside: int  # Lemma 2: arms on offer, in all rounds, with a true mean outside mean ± width · std
    arms: int
    gap: float  # Lemma 3: the largest α-gap of a round over 2B width Σσ


def check_lemmas(run: Run, policy: str, seed: int, world: World, schedule: Schedule) -> Lemmas:
    """Give an exact posterior the recorded choices, and look at every round before it is learned."""
    model = world.model
    posterior = StreamingGP(model.kernel, model.noise_variance, mean=0.0)
    metric = "alpha_regret" if "alpha_regret" in run.metrics_at(0) else "regret"
    totals = run.cumulative(policy, 0, metric)
    gaps = np.diff(totals[run.seeds.index(seed)], prepend=0.0)
    variances = eigenvalue = gap = 0.0
    outside = arms = 0
    for offer, chosen, rewards in _replayed(run, policy, seed, world):
        keys, truth = posterior.keys(offer), world.means(offer)
        belief = posterior.belief(offer)
        mean, std = belief.mean, belief.std
        width = schedule.width(offer.step, lambda _: posterior.information_gain)
        on_offer = slice(None) if offer.available is None else offer.available
        off = np.abs(truth - mean) > width * std
        outside, arms = outside + int(off[on_offer].sum()), arms + len(off[on_offer])
        if not len(chosen):
            continue
        allowed = 2.0 * model.reward.lipschitz * width * float(std[chosen].sum())
        gap = max(gap, float(gaps[offer.step - 1]) / allowed)
        covariance = posterior.predict(keys[chosen], return_cov=True).cov
        eigenvalue = max(eigenvalue, float(np.linalg.eigvalsh(covariance)[-1]))
        variances += float(np.sum(std[chosen] ** 2))
        posterior.observe(keys[chosen], rewards)
    gained, noise = posterior.information_gain, model.noise_variance
    bound = variance_sum_bound(gained, largest_eigenvalue=eigenvalue, noise_variance=noise)
    return Lemmas(variances / float(bound), outside, arms, gap)


def _replayed(run: Run, policy: str, seed: int, world: World) -> Iterator[tuple[Offer, Ints, Floats]]:
    """Every round of a cell in the first setting: the offer, what was chosen and the rewards."""
    streams = Streams(seed, "noise")
    for step, row in enumerate(run.choices(policy, 0, seed), start=1):
        offer, chosen = world.offer(step), row[row >= 0].astype(np.intp)
        decision = Decision(step=step, action=chosen, positions=chosen)
        feedback = world.feedback(offer, decision, world.noise(offer, streams.at(step)))
        yield offer, feedback.positions, feedback.rewards


def in_words(found: list[Lemmas]) -> str:
    """What all seeds of a policy say, as a sentence without its full stop."""
    outside, arms = sum(each.outside for each in found), sum(each.arms for each in found)
    variances, gap = max(each.variances for each in found), max(each.gap for each in found)
    return (
        f"In this run the variances add up to at most {variances:.3g} of what Lemma 1 allows; "
        f"{outside:,} of {arms:,} true means lie outside the widths of Lemma 2; gaps "
        f"are at most {gap:.3g} of what Lemma 3 allows"
    )
