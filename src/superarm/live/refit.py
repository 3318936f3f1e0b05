"""Fit the hyper-parameters of a live bandit to all rewards recorded so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Rng
from superarm.core.errors import InputError
from superarm.core.registry import build, spec_of
from superarm.core.streams import stream
from superarm.policies.exploring import index_policy_of
from superarm.posteriors.fitting import fit_kernel

from .observations import Observation
from .spec import BanditSpec

_ROLE = "refit"
"""The role of the random stream of fits, by event."""


class Refit(NamedTuple):
    """The result of a fit."""

    log_marginal_likelihood: float
    """Of the rewards that were fitted, nats."""
    spec: BanditSpec
    """The spec with the fitted kernel, noise and mean."""

    def as_body(self) -> dict[str, Any]:
        """The body of the event that records it."""
        return {
            "spec": self.spec.as_json(),
            "log_marginal_likelihood": self.log_marginal_likelihood,
        }

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Self:
        """The fit that an event recorded.

        Args:
            body: What :meth:`as_body` returned.
        """
        return cls(body["log_marginal_likelihood"], BanditSpec.from_json(body["spec"]))


def fit_policy(
    policy: object, spec: BanditSpec, observations: Iterable[Observation], seq: int
) -> Refit:
    """Fit kernel, noise and, where it is a number, the mean of a policy's posterior.

    Args:
        policy: The policy.
        spec: The bandit's spec.
        observations: Everything that was learned.
        seq: The number of the event that will record the fit.
    """
    learner = index_policy_of(policy)
    if learner is None:
        raise InputError(f"{type(policy).__name__} has no hyper-parameters to fit")
    posterior: Any = learner.posterior
    fit = _fit_posterior(posterior, observations, stream(spec.seed, _ROLE, seq))
    build("posterior", fit.posterior)  # raises before anything changes
    policy_spec = {**spec_of(learner), "posterior": fit.posterior}
    if learner is not policy:
        policy_spec = {**spec_of(policy), "policy": policy_spec}
    return Refit(fit.log_marginal_likelihood, spec.with_policy(policy_spec))


class _PosteriorFit(NamedTuple):
    log_marginal_likelihood: float
    posterior: dict[str, Any]
    """The spec of the fitted posterior."""


def _fit_posterior(
    posterior: Any, observations: Iterable[Observation], rng: Rng
) -> _PosteriorFit:
    parameters = posterior.parameters()
    _check_fittable(posterior, parameters)
    keys, rewards = _data(posterior, observations)
    fixed_arms = parameters.get("arms")
    rows = keys if fixed_arms is None else np.asarray(fixed_arms)[keys]
    mean = parameters.get("mean", 0.0)
    has_constant_mean = isinstance(mean, int | float)
    if not has_constant_mean:
        means = mean(rows) if callable(mean) else np.asarray(mean)[keys]
        rewards = rewards - np.asarray(means, dtype=np.float64)
    result = fit_kernel(
        parameters["kernel"],
        rows,
        rewards,
        noise_variance=parameters["noise_variance"],
        mean=float(mean) if has_constant_mean else 0.0,
        fit_mean=has_constant_mean,
        rng=rng,
    )
    posterior_spec = dict(spec_of(posterior))
    posterior_spec["kernel"] = spec_of(result.kernel)
    posterior_spec["noise_variance"] = result.noise_variance
    if has_constant_mean:
        posterior_spec["mean"] = result.mean
    return _PosteriorFit(result.log_marginal_likelihood, posterior_spec)


def _check_fittable(posterior: Any, parameters: Mapping[str, Any]) -> None:
    if "kernel" not in parameters:
        raise InputError(f"{type(posterior).__name__} has no kernel to fit")
    if "drift" in parameters:
        raise InputError(
            f"{type(posterior).__name__} has a drift, which must be fitted with the kernel; "
            "wrap the posterior in Refitting"
        )


def _data(
    posterior: Any, observations: Iterable[Observation]
) -> tuple[NDArray[Any], Floats]:
    """Keys and rewards of everything that was learned."""
    keys: list[NDArray[Any]] = []
    rewards: list[Floats] = []
    for observation in observations:
        feedback = observation.feedback
        offered_keys = posterior.keys(observation.offer)
        keys.append(offered_keys[feedback.positions])
        rewards.append(feedback.rewards)
    if not keys:
        raise InputError(
            "no rewards are recorded yet; call tell() or observe() before refit()"
        )
    return np.concatenate(keys), np.concatenate(rewards)
