"""The rewards that taught a bandit most about an arm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Offer
from superarm.kernels import Columns
from superarm.policies.exploring import index_policy_of
from superarm.posteriors.drifting.keys import rows_of, times_of

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
    row: Floats  # what the kernel sees of its arm, (d,)


def find_teachers(
    fold: Fold, offer: Offer, positions: list[int]
) -> dict[int, list[Teacher]]:
    """The rewards that alone explain most of the prior variance of some arms, by position.

    A reward at row z with noise variance σ² explains k(x, z)² / (k(x, x)(k(z, z) + σ²)) of the variance
    at x. Equal shares are ordered by time, the earliest first.

    Args:
        fold: The bandit just before a decision.
        offer: The offer of the decision.
        positions: The arms in question.
    """
    policy = index_policy_of(fold.policy)
    if policy is None:
        return {}
    rows = _KernelRows(policy.posterior)
    if rows.kernel is None:
        return {}
    ranking = _Ranking(rows.kernel, rows.of(offer)[positions])
    chunk: list[_Reward] = []
    for reward in _learned_rewards(fold, rows):
        chunk.append(reward)
        if len(chunk) == _CHUNK:
            ranking.add(chunk)
            chunk = []
    if chunk:
        ranking.add(chunk)
    return dict(zip(positions, ranking.best, strict=True))


def _learned_rewards(fold: Fold, rows: _KernelRows) -> Iterator[_Reward]:
    """The rewards of the latest events that the policy has learned."""
    first = max(0, fold.seq - EVENTS_SEARCHED)
    held_back = {observation.seq for observation in fold.held_back}
    for observation in fold.reader.observations(after=first, last=fold.seq):
        if observation.seq not in held_back:
            yield from _rewards_of(observation, rows)


def _rewards_of(observation: Observation, rows: _KernelRows) -> Iterator[_Reward]:
    feedback = observation.feedback
    observed = rows.of(observation.offer)[feedback.positions]
    noise_variances = feedback.noise_variance
    if noise_variances is None:
        noise_variances = np.full(len(observed), rows.noise_variance)
    ids: Any = observation.offer.arms.ids
    for place, position in enumerate(feedback.positions.tolist()):
        yield _Reward(
            decision=observation.decision_id,
            arm=ids[position],
            value=float(feedback.rewards[place]),
            noise_variance=float(noise_variances[place]),
            row=observed[place],
        )


class _Ranking:
    """The best teachers of some arms so far.

    Args:
        kernel: The prior covariance.
        rows: What it sees of the arms, (m, d).
    """

    def __init__(self, kernel: Any, rows: Floats) -> None:
        self._kernel = kernel
        self._rows = rows
        self._variances = kernel.diag(rows)
        self.best: list[list[Teacher]] = [[] for _ in rows]
        """By arm, the best first."""

    def add(self, rewards: list[_Reward]) -> None:
        """Compare further rewards, all later than those before.

        Args:
            rewards: The rewards.
        """
        observed = np.array([reward.row for reward in rewards])  # (n, d)
        noise = np.array([reward.noise_variance for reward in rewards])
        covariances = np.asarray(self._kernel(self._rows, observed))  # (m, n)
        observed_variances = self._kernel.diag(observed) + noise
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


class _KernelRows:
    """What the kernel of a posterior sees of arms.

    Args:
        posterior: The posterior.
    """

    def __init__(self, posterior: Any) -> None:
        parameters = posterior.parameters()
        self._posterior = posterior
        self._features: Floats | None = None  # of fixed arms, which are known by number
        if parameters.get("arms") is not None:
            self._features = np.asarray(parameters["arms"])
        self.kernel = _prior_kernel(parameters)
        """The prior covariance of these rows; ``None`` if the posterior has no kernel."""
        self.noise_variance = posterior.noise_std**2
        """Of rewards without one of their own."""

    def of(self, offer: Offer) -> Floats:
        """The rows of the arms on offer, (n, d); the time comes last.

        Args:
            offer: The offer.
        """
        keys = self._posterior.keys(offer)
        rows: Floats
        if self._features is None:
            rows = keys
            return rows
        if keys.ndim == 1:
            rows = self._features[keys]
            return rows
        return np.column_stack([self._features[rows_of(keys)], times_of(keys)])


def _prior_kernel(parameters: dict[str, Any]) -> Any:
    kernel = parameters.get("kernel")
    if "drift" not in parameters or kernel is None:
        return kernel
    width = np.shape(parameters["arms"])[1]
    space = Columns(kernel=kernel, columns=tuple(range(width)))
    return space * Columns(kernel=parameters["drift"], columns=(width,))
