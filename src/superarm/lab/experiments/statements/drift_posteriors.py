"""Eqs. 28 and 29 and Lemma D.1 of *Time-Varying Gaussian Process Bandit Optimization (2016)*.

Both are judged on posteriors that observe the recorded choices again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from superarm.core.errors import InputError
from superarm.kernels import Temporal
from superarm.lab.experiments.claims import Verdict
from superarm.lab.problems import DriftingFunction
from superarm.lab.results.formats import bound_text, count_text, significant
from superarm.lab.theory import Mismatch, mismatch_bounds
from superarm.models import Model
from superarm.models.worlds import World
from superarm.policies import IndexPolicy
from superarm.posteriors import DriftingGP, Resetting
from superarm.rules import SrinivasFinite

from .drift_policies import has_true_drift
from .judging import failure_tails, word_of_share
from .recorded import RecordedRun

_REPLAYED = 5  # seeds, as a replay of 500 rounds on 2,500 arms takes seconds
_MISMATCH_CELLS = 15  # replayed in all settings together
_CHANCE = 0.05  # of a wrong verdict on eq. 29, on one side
_DELTA = 0.5  # five seeds without a failure then have a probability of 3 % at most, if eq. 29 is false

# --- eqs. 28 and 29 -------------------------------------------------------------------------


def judge_confidence(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """Every arm of every round within √β_t posterior standard deviations, with probability 1 − δ.

    Args:
        recorded: a finished run.
        index: of the setting.
        world: the problem in that setting.
    """
    run = recorded.run
    seeds = run.seeds[:_REPLAYED]
    schedule = SrinivasFinite(arms=len(world.offer(1).arms), delta=_DELTA)
    for policy in run.policies:
        if not has_true_drift(recorded, policy, index, world):
            continue
        shares = [
            _largest_error(recorded, policy, seed, index, schedule) for seed in seeds
        ]
        failures = sum(share > 1.0 for share in shares)
        tails = failure_tails(failures, len(seeds), _DELTA)
        evidence = (
            f"{recorded.where(index)}{policy}: in {failures} of "
            f"{count_text(len(seeds), 'replayed seed')} an arm's value lies outside; the largest error is "
            f"{significant(max(shares))} of the width. If failures had a probability of δ = {_DELTA:g} "
            f"or more, so few of them would have a probability of at most "
            f"{significant(tails.as_few, 2)} (T = {run.rounds})"
        )
        yield Verdict(
            "Eq. 29: with probability 1 − δ, |f_t(x) − μ̃_{t−1}(x)| ≤ √β_t σ̃_{t−1}(x) for all rounds "
            "and arms",
            tails.word(_CHANCE),
            evidence,
        )


def _largest_error(
    recorded: RecordedRun, policy: str, seed: int, index: int, schedule: SrinivasFinite
) -> float:
    """The largest |f_t − μ̃| over √β_t σ̃, over rounds and arms of one seed."""
    world = recorded.world(seed, index)
    assert isinstance(world, DriftingFunction)
    posterior = _posterior(world.model, world.epsilon)
    largest = 0.0
    for offer, chosen, rewards in recorded.rounds(policy, seed, index, world, arms=1):
        belief = posterior.belief(offer)
        width = schedule.width(offer.step, float)
        means = world.means(offer)
        errors = np.abs(means - belief.mean)
        allowed = width * belief.std
        shares = errors / allowed
        largest = max(largest, float(shares.max()))
        keys = posterior.keys(offer)
        posterior.observe(keys[chosen], rewards)
    return largest


def _posterior(model: Model, epsilon: float) -> DriftingGP:
    """The posterior of eqs. 7 and 8."""
    drift = Temporal(epsilon=epsilon)
    assert model.arms is not None
    return DriftingGP(model.kernel, model.arms, model.noise_variance, drift=drift)


# --- Lemma D.1 ------------------------------------------------------------------------------


def judge_mismatch(
    recorded: RecordedRun, index: int, world: DriftingFunction
) -> Iterator[Verdict]:
    """Lemma D.1, for any choices, with the largest |y| of a block in place of eq. 65.

    Args:
        recorded: a finished run.
        index: of the setting.
        world: the problem in that setting.
    """
    run = recorded.run
    seeds_affordable = _MISMATCH_CELLS // len(run.settings)
    seeds = run.seeds[: max(1, min(_REPLAYED, seeds_affordable))]
    for policy in run.policies:
        if recorded.algorithm(policy) != "r-gp-ucb":
            continue
        if "wrapped" in recorded.options(policy, index):
            continue
        block = _block_of(recorded, policy, index, world)
        if block is None:
            continue
        used = [mismatch_used(recorded, policy, seed, index, block) for seed in seeds]
        mean = max(share.mean for share in used)
        std = max(share.std for share in used)
        evidence = (
            f"{recorded.where(index)}{policy}, N = {block}: without forgetting since the last reset, "
            f"means differ by at most {bound_text(mean, 2)}, and standard "
            f"deviations by at most {bound_text(std, 2)}"
        )
        # Standard deviations are between 0 and the prior's, and so are their differences.
        features = world.offer(1).arms.features
        largest_variance = float(world.model.kernel.diag(features).max())
        largest_std = math.sqrt(largest_variance)
        allowed = mismatch_bounds(block, world.epsilon, world.model.noise_variance, 1.0)
        if float(allowed.std) >= largest_std:
            evidence += (
                f" of {significant(float(allowed.std))}, which is more than they can differ by: no run "
                f"with this N, ε and σ² can contradict that part"
            )
        evidence += f" ({count_text(len(seeds), 'seed')} replayed, T = {run.rounds})"
        yield Verdict(
            "Lemma D.1: Δμ ≤ (σ⁻² + σ⁻⁴)N³ε max|y| and Δσ ≤ √((3σ⁻² + σ⁻⁴)N³ε), as in eqs. 82 and 87",
            word_of_share(max(mean, std)),
            evidence,
        )


def _block_of(
    recorded: RecordedRun, policy: str, index: int, world: World
) -> int | None:
    """N of R-GP-UCB in a setting."""
    learner = recorded.in_setting(index).build_policy(policy, world)
    if not isinstance(learner, IndexPolicy):
        return None
    posterior = learner.posterior
    return posterior.block if isinstance(posterior, Resetting) else None


def mismatch_used(
    recorded: RecordedRun, policy: str, seed: int, index: int, block: int
) -> Mismatch:
    """The largest share of what Lemma D.1 allows that a cell used, in means and standard deviations.

    Two posteriors observe what R-GP-UCB did since its last reset: one that drifts by ε as the truth
    does, and one that forgets nothing.

    Args:
        recorded: a run of a :class:`~superarm.lab.problems.DriftingFunction`.
        policy: whose choices are replayed.
        seed: of the cell.
        index: of the setting.
        block: N, the rounds from one reset to the next.
    """
    world = recorded.world(seed, index)
    if not isinstance(world, DriftingFunction):
        raise InputError(
            f"Lemma D.1 is about functions that drift, got {type(world).__name__}"
        )
    model = world.model
    drifting = Resetting(_posterior(model, world.epsilon), block=block)
    static = Resetting(_posterior(model, 0.0), block=block)
    mean = 0.0
    std = 0.0
    largest = 0.0  # |y| since the last reset
    count = 0  # rewards since then
    for offer, chosen, rewards in recorded.rounds(policy, seed, index, world, arms=1):
        if (offer.step - 1) % block == 0:
            largest = 0.0
            count = 0
        if count:
            true = drifting.belief(offer)
            stale = static.belief(offer)
            allowed = mismatch_bounds(
                block, world.epsilon, model.noise_variance, largest
            )
            mean_error = np.abs(true.mean - stale.mean).max()
            std_error = np.abs(true.std - stale.std).max()
            mean = max(mean, float(mean_error / allowed.mean))
            std = max(std, float(std_error / allowed.std))
        for posterior in (drifting, static):
            posterior.observe(posterior.keys(offer)[chosen], rewards)
        largest = float(np.abs(rewards).max(initial=largest))
        count += len(rewards)
    return Mismatch(mean, std)
