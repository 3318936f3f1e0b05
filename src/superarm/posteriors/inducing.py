"""Gaussian-process regression summed up in inducing points that are drawn anew: SO'CLOK-UCB's.

Learning costs N s² + s³ and a question m s²; the formulas are in ``summaries.py``. Of more than a
thousand rewards learned at once, what blocks of them tell about each other is counted twice in the
information gained.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints, Rng, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_count, as_flag, as_number, as_positions
from superarm.core.registry import register

from .base import Memory
from .rows import KernelPosterior, MeanFunction, Observed, information_in
from .summaries import BLOCK, PointSummary
from .variances import prior_variance


class _Fit(NamedTuple):
    """The inducing points as rows of the observed arms, (s,), and what all observations say there."""

    points: Ints
    summary: PointSummary


@register("posterior", "inducing")
class InducingGP(KernelPosterior):
    """Titsias' sparse posterior, with inducing points drawn anew from everything observed.

    ``observe`` draws min(N, ``inducing``) of the observed arms without replacement. ``jitter`` is
    added to their prior covariance, as a share of the largest prior variance.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function.
        inducing: How many inducing points, at most.
        jitter: Added to the covariance of the inducing points, as a share of the prior variance.
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
        """Which observations are the inducing points now, (s,)."""
        return (
            np.zeros(0, dtype=np.intp) if self._fit is None else self._fit.points.copy()
        )

    def _fitted(self, data: Observed, points: Ints) -> _Fit:
        arms = data.arms[points]
        jitter = self.jitter * self._prior_scale(arms)
        summary = PointSummary(self.kernel, arms, jitter, measures_lost=False)
        summary.add(data.arms, data.rewards - self._prior_mean(data.arms), data.noise)
        return _Fit(points, summary)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        prior, variance, fit = (
            self._prior_mean(keys),
            prior_variance(self.kernel, keys),
            self._fit,
        )
        if fit is None:
            return np.zeros(len(keys)) + prior, variance
        prior_rows, rows = self._once("solved", keys, fit.summary.ask)
        variance -= np.einsum("ij,ij->j", prior_rows, prior_rows)
        variance += np.einsum("ij,ij->j", rows, rows)
        return fit.summary.weights.dot(rows) + prior, variance

    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        some = slice(None) if at is None else at
        covariance = np.array(self.kernel(keys[some], keys), dtype=np.float64)
        if self._fit is not None:
            prior_rows, rows = self._once("solved", keys, self._fit.summary.ask)
            covariance += rows[:, some].T @ rows - prior_rows[:, some].T @ prior_rows
        return covariance

    def _prior_or_known(self, keys: Floats) -> Floats:
        """The covariance of arms to be observed, without keeping what was made for it."""
        covariance = np.array(self.kernel(keys), dtype=np.float64)
        if self._fit is not None:
            prior_rows, rows = self._fit.summary.ask(keys)
            covariance += rows.T @ rows
            covariance -= prior_rows.T @ prior_rows
        return covariance

    def _take_in(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        assert rng is not None  # ``draws``
        blocks = [slice(begin, begin + BLOCK) for begin in range(0, len(keys), BLOCK)]
        information = sum(
            information_in(self._prior_or_known(keys[b]), noise[b]) for b in blocks
        )
        data = self._data.extended(keys, rewards, noise)
        size = min(len(data), self.inducing)
        fit = self._fitted(data.view(), rng.choice(len(data), size=size, replace=False))
        self._commit(len(keys), information, _data=data, _fit=fit, _kept={})

    def _memory(self) -> Memory:
        memory = super()._memory()
        return memory._replace(arrays={**memory.arrays, "points": self.points})

    def _remember(self, state: State) -> None:
        super()._remember(state)
        points = as_positions(state.array("points"), "points")
        possible = (
            len(points) == len(set(points.tolist())) == min(self.count, self.inducing)
        )
        if not possible or (
            len(points) and not 0 <= points.min() <= points.max() < self.count
        ):
            raise StateError(
                "this state is damaged: its inducing points are impossible"
            )
        self._fit = self._fitted(self.observed, points) if self.count else None
