"""Fit the hyper-parameters of a live bandit to everything that it was told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.registry import build, spec_of
from superarm.core.streams import stream
from superarm.policies import IndexPolicy
from superarm.policies.exploring import index_policy_of
from superarm.posteriors.fitting import FitResult, fit_kernel

from .fold import Lesson
from .spec import BanditSpec

_ROLE = "refit"
"""The role of the random stream of fits, by event."""


class Refit(NamedTuple):
    """The result of a fit, and the spec with it."""

    result: FitResult
    spec: BanditSpec


def fit_policy(
    policy: object, spec: BanditSpec, lessons: Iterable[Lesson], seq: int
) -> Refit:
    """Fit kernel, noise and, where it is a number, the mean of a policy's posterior.

    Args:
        policy: The policy.
        spec: The bandit's spec.
        lessons: Everything that was learned.
        seq: The number of the event that will record the fit.
    """
    learner = index_policy_of(policy)
    if learner is None:
        raise InputError(f"{type(policy).__name__} has no hyper-parameters to fit")
    posterior: Any = learner.posterior
    parameters = posterior.parameters()
    if "kernel" not in parameters:
        raise InputError(f"{type(posterior).__name__} has no kernel to fit")
    rows, rewards = _data(learner, lessons)
    mean = parameters.get("mean", 0.0)
    has_constant_mean = isinstance(mean, int | float)
    if not has_constant_mean:
        rewards = rewards - np.asarray(mean(rows), dtype=np.float64)
    result = fit_kernel(
        parameters["kernel"],
        rows,
        rewards,
        noise_variance=parameters["noise_variance"],
        mean=float(mean) if has_constant_mean else 0.0,
        fit_mean=has_constant_mean,
        rng=stream(spec.seed, _ROLE, seq),
    )
    fitted: dict[str, Any] = {
        "kernel": spec_of(result.kernel),
        "noise_variance": result.noise_variance,
    }
    if has_constant_mean:
        fitted["mean"] = result.mean
    posterior_spec = {**spec_of(posterior), **fitted}
    build("posterior", posterior_spec)  # raises before anything changes
    policy_spec = {**spec_of(learner), "posterior": posterior_spec}
    if learner is not policy:
        policy_spec = {**spec_of(policy), "policy": policy_spec}
    return Refit(result, replace(spec, policy=policy_spec))


def _data(policy: IndexPolicy, lessons: Iterable[Lesson]) -> tuple[Floats, Floats]:
    """Feature rows and rewards of everything that was learned."""
    posterior: Any = policy.posterior
    fixed_arms = posterior.parameters().get("arms")
    rows: list[Floats] = []
    rewards: list[Floats] = []
    for lesson in lessons:
        keys = posterior.keys(lesson.offer)[lesson.feedback.positions]
        rows.append(keys if fixed_arms is None else np.asarray(fixed_arms)[keys])
        rewards.append(lesson.feedback.rewards)
    if not rows:
        raise InputError("nothing was told yet; a fit needs rewards")
    return np.concatenate(rows), np.concatenate(rewards)
