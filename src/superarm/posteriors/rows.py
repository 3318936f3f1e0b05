"""Base classes of posteriors whose keys are feature rows: data, validation, prior means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Covariance, Floats, Ints, Offer, State
from superarm.core.capabilities import HasPriorCovariance
from superarm.core.errors import InputError, ShapeError, StateError
from superarm.core.inputs import (
    LARGEST,
    as_features,
    as_number,
    require_type,
)
from superarm.core.linalg import add_to_diagonal, cholesky
from superarm.kernels.base import as_covariance

from .base import GaussianPosterior, Memory
from .observations import ObservationBuffer, Observations
from .variances import largest_variance, prior_variance

MeanFunction = float | Callable[[Floats], Floats]
"""A constant prior mean, or a function of the feature rows (m, d) that returns the means (m,)."""


class RowPosterior(GaussianPosterior):
    """A posterior whose keys are feature rows, all of one width.

    With ``timed`` the last column of a key is the time of its offer (the step if the offer has no
    time), for kernels under which observations age.

    Args:
        noise_variance: Variance of the noise of one observation.
    """

    timed: bool = False
    forget: float | None = None

    def __init__(self, *, noise_variance: float) -> None:
        super().__init__(noise_variance=noise_variance)
        self._data = ObservationBuffer()

    @property
    def observed(self) -> Observations:
        """Everything observed so far: arms (N, d), rewards (N,), noise variances (N,)."""
        return self._data.view()

    def keys(self, offer: Offer) -> Floats:
        require_type(offer, Offer, "offer")
        features = offer.arms.features
        if self.timed:
            times = np.full(len(features), offer.moment)
            features = np.column_stack([features, times])
        return self._check_columns(features)

    def _as_keys(self, arms: Any) -> Floats:
        return self._check_columns(as_features(arms, "arms"))

    def _check_columns(self, features: Floats) -> Floats:
        if self.count and features.shape[1] != self._data.columns:
            raise ShapeError(
                f"arms have {features.shape[1]} feature columns, but those observed before "
                f"have {self._data.columns}"
            )
        return features

    def _root(self, keys: Floats) -> Floats:
        # Cached, because many draws of one belief are usual.
        return self._cached("root", keys, super()._root)

    def _incumbent(self, sign: float) -> float:
        observed = self.observed
        different_arms = np.unique(observed.arms, axis=0)
        mean, _ = self._moments(different_arms)
        return float(np.max(sign * mean))

    def _memory(self) -> Memory:
        return Memory(self.observed._asdict())

    def _remember(self, state: State) -> None:
        arms = state.matrix("arms")
        observations = Observations.from_state(state, arms)
        count = len(observations.rewards)
        if count > self.count or (self.forget is None and count < self.count):
            raise StateError(
                "this state is damaged: its count differs from the observations it holds"
            )
        if count:
            self._data.append(*observations)


class KernelPosterior(RowPosterior, HasPriorCovariance):
    """A posterior with a kernel, and a prior mean that is a number or a function of the arms.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function.
    """

    def __init__(
        self, kernel: Covariance, noise_variance: float, mean: MeanFunction
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        self.kernel = as_covariance(kernel, "kernel")
        if not callable(mean):
            mean = as_number(mean, "mean", -LARGEST, LARGEST)
        self.mean: MeanFunction = mean

    def prior_variances(self, keys: Floats) -> Floats:
        return prior_variance(self.kernel, keys)

    def prior_covariances(self, keys: Floats, others: Floats) -> Floats:
        return np.array(self.kernel(keys, others), dtype=np.float64)

    def _prior_mean(self, keys: Floats) -> Floats | float:
        """The prior mean of these arms, one number or (m,)."""
        if not callable(self.mean):
            return self.mean
        values = np.array(self.mean(keys), dtype=np.float64)
        if values.shape != (len(keys),) or not np.isfinite(values).all():
            raise InputError("the mean function must return one finite number per arm")
        return values

    def _prior_covariance(self, keys: Floats, positions: Ints | None) -> Floats:
        """Prior covariance of the keys at these positions, or of all, (k, m), a new array."""
        if positions is None:
            return np.array(self.kernel(keys), dtype=np.float64)
        covariance = self.kernel(keys[positions], keys)
        return np.array(covariance, dtype=np.float64)

    def _prior_scale(self, keys: Floats) -> float:
        return largest_variance(self.kernel, keys)


def information_in(covariance: Floats, noise: Floats) -> float:
    """Information gain of observing arms, ½ ln det(I + D^{-½} Σ D^{-½}), nats.

    Args:
        covariance: Σ of the arms, (m, m).
        noise: D, the noise variances of their observations, (m,).
    """
    weight = 1.0 / np.sqrt(noise)
    scaled = covariance * weight
    scaled *= weight[:, None]
    add_to_diagonal(scaled, 1.0)
    factor = cholesky(scaled, "the covariance of the observed arms")
    log_diagonal = np.log(factor.diagonal())
    information = float(log_diagonal.sum())
    return max(0.0, information)  # rounding may bring it below 0
