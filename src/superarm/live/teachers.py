"""The rewards that taught a bandit most about an arm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Offer, Posterior
from superarm.core.capabilities import HasPriorCovariance
from superarm.policies.exploring import index_policy_of

from .arms import ArmId
from .fold import Fold
from .observations import Observation

EVENTS_SEARCHED = 10_000
"""Events before a decision that are searched for teachers; reading all of a long journal would be slow."""
_TEACHERS = 3
"""Rewards that are named as teachers of an arm."""
_CHUNK = 1000
"""Rewards that are compared at a time."""


class Teacher(NamedTuple):
    """A reward that taught the bandit about an arm."""

    decision: str | None
    """The decision that it belongs to; ``None`` for history."""
    arm: ArmId
    reward: float
    share: float
    """The share of the arm's prior variance that this reward alone explains."""


class _Reward(NamedTuple):
    """A reward that was learned."""

    decision: str | None
    arm: ArmId
    value: float
    noise_variance: float
    key: Any  # what the posterior calls its arm: a number, or a row


class TeacherSearch(NamedTuple):
    """The teachers of some arms, or the reason why there are none."""

    teachers: dict[int, list[Teacher]]
    """By position in the offer."""
    refusal: str | None
    """Why rewards cannot be ranked; ``None`` if they are."""


def find_teachers(fold: Fold, offer: Offer, positions: list[int]) -> TeacherSearch:
    """The rewards that alone explain most of the prior variance of some arms.

    A reward of arm z with noise variance σ² explains k(x, z)² / (k(x, x)(k(z, z) + σ²)) of the variance
    of x. Equal shares are ordered by time, the earliest first.

    Args:
        fold: The bandit just before a decision.
        offer: The offer of the decision.
        positions: The arms in question.
    """
    policy = index_policy_of(fold.policy)
    if policy is None:
        name = type(fold.policy).__name__
        return TeacherSearch({}, f"{name} has no posterior, so rewards are not ranked")
    posterior = policy.posterior
    if not isinstance(posterior, HasPriorCovariance):
        return TeacherSearch({}, _without_prior(posterior))
    ranking = _Ranking(posterior, posterior.keys(offer)[positions])
    chunk: list[_Reward] = []
    for reward in _learned_rewards(fold, posterior):
        chunk.append(reward)
        if len(chunk) == _CHUNK:
            ranking.add(chunk)
            chunk = []
    if chunk:
        ranking.add(chunk)
    return TeacherSearch(dict(zip(positions, ranking.best, strict=True)), None)


def _without_prior(posterior: Posterior) -> str:
    return (
        f"{type(posterior).__name__} does not compute prior covariances, so rewards are not ranked; "
        "superarm.core.capabilities.HasPriorCovariance lists what it needs"
    )


def _learned_rewards(fold: Fold, posterior: Posterior) -> Iterator[_Reward]:
    """The rewards of the latest events that the policy has learned."""
    first = max(0, fold.seq - EVENTS_SEARCHED)
    held_back = {observation.seq for observation in fold.held_back}
    for observation in fold.reader.observations(after=first, last=fold.seq):
        if observation.seq not in held_back:
            yield from _rewards_of(observation, posterior)


def _rewards_of(observation: Observation, posterior: Posterior) -> Iterator[_Reward]:
    feedback = observation.feedback
    observed = posterior.keys(observation.offer)[feedback.positions]
    noise_variances = feedback.noise_variance
    if noise_variances is None:
        noise_variances = np.full(len(observed), posterior.noise_std**2)
    ids: Any = observation.offer.arms.ids
    for place, position in enumerate(feedback.positions.tolist()):
        yield _Reward(
            decision=observation.decision_id,
            arm=ids[position],
            value=float(feedback.rewards[place]),
            noise_variance=float(noise_variances[place]),
            key=observed[place],
        )


class _Ranking:
    """The best teachers of some arms so far.

    Args:
        prior: The posterior, which computes prior covariances.
        keys: Its keys of the arms, one entry or row each.
    """

    def __init__(self, prior: HasPriorCovariance, keys: NDArray[Any]) -> None:
        self._prior = prior
        self._keys = keys
        self._variances = prior.prior_variances(keys)
        self.best: list[list[Teacher]] = [[] for _ in keys]
        """By arm, the best first."""

    def add(self, rewards: list[_Reward]) -> None:
        """Compare further rewards, all later than those before.

        Args:
            rewards: The rewards.
        """
        observed = np.array([reward.key for reward in rewards])  # (n,) or (n, d)
        noise = np.array([reward.noise_variance for reward in rewards])
        covariances = self._prior.prior_covariances(self._keys, observed)  # (m, n)
        observed_variances = self._prior.prior_variances(observed) + noise
        variances = np.outer(self._variances, observed_variances)
        # An arm without prior variance, such as 0 in a linear kernel, has nothing to explain.
        shares = np.zeros_like(covariances)
        np.divide(covariances**2, variances, out=shares, where=variances > 0.0)
        for best, row in zip(self.best, shares, strict=True):
            for place in np.argsort(-row, kind="stable")[:_TEACHERS].tolist():
                reward = rewards[place]
                share = float(row[place])
                best.append(Teacher(reward.decision, reward.arm, reward.value, share))
            best.sort(key=lambda teacher: teacher.share, reverse=True)
            del best[_TEACHERS:]
