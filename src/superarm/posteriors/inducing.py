"""Gaussian-process regression on inducing points that are redrawn at every update: SO'CLOK-UCB's.

Learning costs N s² + s³ and a prediction m s²; the formulas are in ``summaries.py``. When more than a
thousand rewards are learned at once, the information gain adds up that of blocks, and so counts twice
what the blocks share.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints, Rng, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_count, as_flag, as_number
from superarm.core.registry import register

from .base import Memory
from .observations import Observations
from .rows import KernelPosterior, MeanFunction, information_in
from .summaries import BLOCK, PointSummary
from .variances import prior_variance


class _Fit(NamedTuple):
    """The inducing points and the summary of all observations at them."""

    points: Ints  # (s,) rows of the observed arms
    summary: PointSummary


@register("posterior", "inducing")
class InducingGP(KernelPosterior):
    """Titsias' sparse posterior, with inducing points redrawn from all observations at every update.

    ``observe`` draws min(N, ``inducing``) of the observed arms without replacement, so it needs ``rng``.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function of the feature rows.
        inducing: The largest number of inducing points.
        jitter: Added to the diagonal of their prior covariance, relative to the largest prior variance.
        timed: Whether the offer's time becomes the last feature.

    >>> from superarm.kernels import SquaredExponential
    >>> gp = InducingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01, inducing=2)
    >>> gp.observe([[0.0], [0.5]], [1.0, -1.0], rng=np.random.default_rng(0))
    >>> gp.predict([[0.0], [0.4]]).mean.round(2).tolist()
    [0.99, -0.7]
    """

    kind = "inducing-gp"
    draws = True
    exchangeable = False

    def __init__(
        self,
        kernel: Covariance,
        noise_variance: float,
        mean: MeanFunction = 0.0,
        *,
        inducing: int = 50,
        jitter: float = 1e-6,
        timed: bool = False,
    ) -> None:
        super().__init__(kernel, noise_variance, mean)
        self.inducing = as_count(inducing, "inducing")
        self.jitter = as_number(jitter, "jitter", 0.0, 1.0)
        self.timed = as_flag(timed, "timed")
        self._fit: _Fit | None = None

    @property
    def points(self) -> Ints:
        """Which observations are the current inducing points, (s,)."""
        if self._fit is None:
            return np.zeros(0, dtype=np.intp)
        return self._fit.points.copy()

    def _fit_points(self, data: Observations, points: Ints) -> _Fit:
        """Sum up all observations at these inducing points."""
        arms, rewards, noise = data
        inducing_arms = arms[points]
        jitter = self.jitter * self._prior_scale(inducing_arms)
        summary = PointSummary(self.kernel, inducing_arms, jitter, measures_lost=False)
        residual = rewards - self._prior_mean(arms)
        summary.add(arms, residual, noise)
        return _Fit(points, summary)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        prior_mean = self._prior_mean(keys)
        variance = prior_variance(self.kernel, keys)
        if self._fit is None:
            mean = np.zeros(len(keys)) + prior_mean
            return mean, variance
        summary = self._fit.summary
        prior_rows, rows = self._cached("solved", keys, summary.solve)
        # k − PᵀP + RᵀR, the diagonal only.
        variance -= np.einsum("ij,ij->j", prior_rows, prior_rows)
        variance += np.einsum("ij,ij->j", rows, rows)
        mean = summary.weights.dot(rows) + prior_mean
        return mean, variance

    def _covariance(self, keys: Floats, positions: Ints | None = None) -> Floats:
        chosen = slice(None) if positions is None else positions
        prior = self.kernel(keys[chosen], keys)
        covariance = np.array(prior, dtype=np.float64)
        if self._fit is None:
            return covariance
        summary = self._fit.summary
        prior_rows, rows = self._cached("solved", keys, summary.solve)
        chosen_prior_rows = prior_rows[:, chosen]
        chosen_rows = rows[:, chosen]
        added = chosen_rows.T @ rows  # RᵀR
        explained = chosen_prior_rows.T @ prior_rows  # PᵀP
        covariance += added - explained
        return covariance

    def _uncached_covariance(self, keys: Floats) -> Floats:
        """The covariance of arms to be observed; nobody asks about them twice, so not cached."""
        covariance = np.array(self.kernel(keys), dtype=np.float64)
        if self._fit is not None:
            prior_rows, rows = self._fit.summary.solve(keys)
            covariance += rows.T @ rows
            covariance -= prior_rows.T @ prior_rows
        return covariance

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        assert rng is not None  # because ``draws`` is True
        information = self._information(keys, noise)
        data = self._data.extended(keys, rewards, noise)
        count = len(data)
        size = min(count, self.inducing)
        points = rng.choice(count, size=size, replace=False)
        fit = self._fit_points(data.view(), points)
        self._commit(len(keys), information, _data=data, _fit=fit, _cache={})

    def _information(self, keys: Floats, noise: Floats) -> float:
        """The information that rewards of these arms give, block by block, nats."""
        information: float = 0
        for begin in range(0, len(keys), BLOCK):
            block = slice(begin, begin + BLOCK)
            covariance = self._uncached_covariance(keys[block])
            information += information_in(covariance, noise[block])
        return information

    def _memory(self) -> Memory:
        memory = super()._memory()
        return memory._replace(arrays={**memory.arrays, "points": self.points})

    def _remember(self, state: State) -> None:
        super()._remember(state)
        points = state.positions("points")
        size = len(points)
        are_distinct = size == len(set(points.tolist()))
        are_complete = size == min(self.count, self.inducing)
        are_rows = (points >= 0) & (points < self.count)
        if not (are_distinct and are_complete and are_rows.all()):
            message = "this state is damaged: its inducing points are impossible"
            raise StateError(message)
        if self.count:
            self._fit = self._fit_points(self.observed, points)
