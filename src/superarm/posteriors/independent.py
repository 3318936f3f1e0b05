"""Independent Gaussian arms: a baseline that shares nothing between arms."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.capabilities import Resumable
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import as_features, as_vector, read_only, require_scale
from superarm.core.registry import register

from .fixed import INFORMATION, FixedPosterior


@register("posterior", "independent")
class IndependentGaussian(FixedPosterior, Resumable):
    """One conjugate Gaussian per arm, known noise; arms are named by row numbers 0 … n−1.

    Offers name their arms by row number too, or by their features where ``arms`` are given.

    After observations of weight Σ 1/σ² and weighted mean ȳ, an arm with prior N(m, v) has
    precision 1/v + Σ 1/σ² and mean (m/v + Σ y/σ²) / precision.

    Args:
        prior_variance: Prior variance of each arm, (n,).
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number, one per arm, or a function of the features in ``arms``.
        arms: The features of the arms, (n, d); without them, offers name arms by row number.

    >>> arms = IndependentGaussian(prior_variance=[1.0, 1.0], noise_variance=1.0)
    >>> arms.observe([0], [2.0])
    >>> arms.predict([0, 1]).mean.tolist()
    [1.0, 0.0]
    """

    kind = "independent-gaussian"
    schema = 2

    def __init__(
        self,
        prior_variance: Any,
        noise_variance: float,
        mean: Any = 0.0,
        *,
        arms: Any = None,
    ) -> None:
        variance = as_vector(prior_variance, "prior_variance")
        n = len(variance)
        if n == 0 or not (variance > 0.0).all():
            raise InputError(
                "prior_variance must hold one positive number for each arm"
            )
        require_scale(variance, "prior_variance")
        self.arms = None
        if arms is not None:
            self.arms = read_only(as_features(arms, "arms"))
            if len(self.arms) != n:
                raise ShapeError(
                    f"arms has {len(self.arms)} rows, but there are {n} prior variances"
                )
        super().__init__(n, noise_variance, mean, self.arms)
        self.prior_variance = read_only(variance)

    def _variance(self) -> Floats:
        """Posterior variances of all arms, (n,)."""
        precision = 1.0 / self.prior_variance + self._weight
        return 1.0 / precision

    def _moments(self, keys: Ints) -> tuple[Floats, Floats]:
        variance = self._variance()
        prior_shift = self.prior_mean / self.prior_variance
        mean = variance * (prior_shift + self._weighted_rewards)
        return mean[keys], variance[keys]

    def _covariance(self, keys: Ints, positions: Ints | None = None) -> Floats:
        row_keys = keys if positions is None else keys[positions]
        # The same arm asked about twice is one latent reward, not two independent ones.
        is_same_arm = row_keys[:, None] == keys
        variances = self._variance()[keys]
        return np.where(is_same_arm, variances, 0.0)

    def _draw(self, keys: Ints, rng: Rng, size: int) -> Floats:
        n = len(self.prior_variance)
        normals = rng.standard_normal((size, n))
        std = np.sqrt(self._variance())
        draws = normals * std
        return draws[:, keys]

    def _absorb(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        added = self._added_totals(keys, rewards, noise)
        n = len(self.prior_variance)
        weight = added[:n]
        ratios = self._variance() * weight
        information = 0.5 * float(np.log1p(ratios).sum())
        added[INFORMATION] = information
        self._totals = self._totals + added
        return information

    def _prior_scale(self, keys: Ints) -> float:
        return float(np.max(self.prior_variance))
