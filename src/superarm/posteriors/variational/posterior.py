"""Sparse variational Gaussian process for long histories.

Algorithm 3 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025). A Gaussian
q(u) = N(m, S) over the rewards u of M inducing arms sums up the history (Hensman et al. 2013); a
prediction of n arms costs M²n however long the history is. Each ``observe``

1. adds the rewards to the history,
2. makes the M most visited arms the inducing ones,
3. takes ``steps`` steps on a random batch of the history: a natural gradient step on q(u)
   (Salimbeni et al. 2018) and, at the same time, an Adam step on the continuous columns of the
   inducing points, both uphill on the evidence lower bound.

With ``noise_rate`` each step also moves the noise ς_t (line 7): a factor c of all noise variances takes
a natural gradient step c ← (1 − ρ)c + ρĉ on the same bound, where ĉ is the best factor for the batch.

It is an approximation: after a step at rate ρ, only the fraction ρ of what is new has been learned.
The algorithm leaves two questions open. Here:

* An inducing arm starts at the row in which it was last observed: in every ``observe``, as in line 2 of
  the algorithm, or with ``restart=False`` only when it enters. Adam's moments of an arm that stays
  inducing survive either way.
* When Adam moves the points, and when they are reset, the *whitened* q stays, at which the gradient was
  taken. When the inducing arms change, or the rows in which they were last observed, q(u) there is what
  the current q predicts. ``distribution.py`` and ``steps.py`` have notation and formulas.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats, Ints, Rng, State
from superarm.core.errors import InputError, StateError, UnknownArmError
from superarm.core.inputs import (
    as_count,
    as_features,
    as_flag,
    as_number,
    as_positive,
    as_vector,
)
from superarm.core.linalg import solve_lower_in_place
from superarm.core.registry import register
from superarm.kernels.factoring import with_common_factor
from superarm.posteriors.base import Memory
from superarm.posteriors.fixed import as_rows
from superarm.posteriors.rows import KernelPosterior, MeanFunction, information_in
from superarm.posteriors.variances import prior_variance

from .adam import Adam
from .distribution import (
    VariationalDistribution,
    WhitenedBatch,
    inducing_factor,
    prior_at,
    transfer,
)
from .history import Batch, History
from .steps import natural_step, noise_ratio, point_gradient

# Arms predicted at a time, so that predicting a complete network takes little memory.
_BLOCK = 8192
# Arms up to which their covariance is cached.
_CACHED_COVARIANCE = 512
# Arms per inducing point from which a prediction first computes a triangular root: both ways then
# take about the same time.
_MANY = 2


class _Fit(NamedTuple):
    """Everything that ``observe`` changes besides the history."""

    q: VariationalDistribution
    adam: Adam
    arms: Ints  # (M,) which arms of the history are inducing
    noise_factor: float = 1.0  # c, of all noise variances
    # L before Adam moved the points; None in a restored state, which does not contain it.
    first_factor: Floats | None = None


@register("posterior", "variational")
class SparseVariational(KernelPosterior):
    """Sparse variational posterior with natural gradients and inducing points at the most visited arms.

    ``discrete_columns`` identify the arm of a row (an edge number, say) and never move; without them
    every different row is an arm and every column is continuous. With a ``noise_rate`` above 0 the
    noise is estimated: ``noise_variance`` is then its first value, variances of single observations
    count relative to it, and ``noise_std`` is the current estimate ς_t.

    ``information_gain`` is the chain rule Σ ½ ln det(I + D^{-½} Σ_{s−1} D^{-½}) with the variational
    covariance Σ_{s−1} of the arms just before they are observed: exact where q is.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function of the feature rows.
        inducing: The largest number of inducing points.
        batch: The largest number of observations in one step.
        steps: Optimisation steps after every ``observe``.
        natural_rate: Learning rate of the natural gradient, above 0 and at most 1.
        adam_rate: Learning rate of the inducing points, in feature units; with 0 they stay at the arms.
        discrete_columns: Columns that identify the arm of a row, counted from 0; they never move.
        restart: Whether every ``observe`` first puts the inducing points back to the arms
            (Algorithm 3); otherwise they remain where Adam moved them.
        noise_rate: Step size of the noise estimate, 0 to 1; with 0 the noise counts as known.

    >>> from superarm.kernels import SquaredExponential
    >>> kernel = SquaredExponential(lengthscale=0.3)
    >>> gp = SparseVariational(kernel, noise_variance=0.01, natural_rate=1.0, adam_rate=0.0)
    >>> gp.observe([[0.0], [0.5]], [1.0, -1.0], rng=np.random.default_rng(0))
    >>> gp.predict([[0.0], [0.4]]).mean.round(2).tolist()
    [0.99, -0.7]
    """

    kind = "sparse-variational"
    schema = 2
    exchangeable = False
    draws = True
    _data: History

    def __init__(
        self,
        kernel: Covariance,
        noise_variance: float,
        mean: MeanFunction = 0.0,
        *,
        inducing: int = 1000,
        batch: int = 2500,
        steps: int = 1,
        natural_rate: float = 0.1,
        adam_rate: float = 0.01,
        discrete_columns: Any = (),
        restart: bool = True,
        noise_rate: float = 0.0,
    ) -> None:
        super().__init__(kernel, noise_variance, mean)
        # The same function, in the form that is evaluated fastest.
        self._evaluated = with_common_factor(self.kernel)
        self.inducing = as_count(inducing, "inducing")
        self.batch = as_count(batch, "batch")
        self.steps = as_count(steps, "steps")
        self.natural_rate = as_positive(natural_rate, "natural_rate")
        if self.natural_rate > 1.0:
            raise InputError(f"natural_rate must lie in (0, 1], got {natural_rate!r}")
        self.adam_rate = as_number(adam_rate, "adam_rate", 0.0)
        columns = discrete_columns
        if not isinstance(discrete_columns, list | tuple):
            columns = (discrete_columns,)
        self.discrete_columns = tuple(
            as_count(column, "discrete_columns", 0) for column in columns
        )
        self.restart = as_flag(restart, "restart")
        self.noise_rate = as_number(noise_rate, "noise_rate", 0.0, 1.0)
        self._data = History(self.discrete_columns)
        self._fit: _Fit | None = None

    @property
    def inducing_points(self) -> Floats:
        """The current inducing points, (M, d)."""
        if self._fit is None:
            return np.empty((0, 0))
        return self._fit.q.points.copy()

    # --- hooks -----------------------------------------------------------------------------

    def _check_columns(self, features: Floats) -> Floats:
        if max(self.discrete_columns, default=-1) >= features.shape[1]:
            raise InputError(
                f"arms have {features.shape[1]} feature columns, but discrete_columns is "
                f"{list(self.discrete_columns)}; columns are counted from 0"
            )
        return super()._check_columns(features)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        mean, variance = self._cached("solved", keys, self._solve)
        return mean.copy(), variance.copy()

    def _solve(self, keys: Floats) -> tuple[Floats, Floats]:
        """Mean and variance, both (m,): k(X, Z) L⁻ᵀm and k − ‖T k(Z, X)‖²."""
        count = len(keys)
        mean = np.zeros(count) + self._prior_mean(keys)
        variance = prior_variance(self.kernel, keys)
        if self._fit is None:
            return mean, variance
        q = self._fit.q
        many = count > _MANY * len(q.points)
        for start in range(0, count, _BLOCK):
            block = slice(start, start + _BLOCK)
            moments = q.moments(self._evaluated, keys[block], many)
            mean[block] += moments.mean
            variance[block] -= moments.reduction
        return mean, variance

    def _covariance(self, keys: Floats, positions: Ints | None = None) -> Floats:
        if positions is not None or len(keys) > _CACHED_COVARIANCE:
            return self._solve_covariance(keys, positions)
        # Those who forecast a choice ask about it before it is learned from.
        return self._cached("covariance", keys, self._solve_covariance).copy()

    def _solve_covariance(self, keys: Floats, positions: Ints | None = None) -> Floats:
        covariance = self._prior_covariance(keys, positions)
        if self._fit is None:
            return covariance
        q = self._fit.q
        chosen = slice(None) if positions is None else positions
        A = q.whitened(self._evaluated, keys)
        chosen_columns = A[:, chosen]
        covariance -= chosen_columns.T @ A
        solved = solve_lower_in_place(q.root, A)  # R⁻¹A, which overwrites A
        chosen_columns = solved[:, chosen]
        covariance += chosen_columns.T @ solved
        return covariance

    def _absorb(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        assert rng is not None  # because ``draws`` is True
        noise_factor = 1.0 if self._fit is None else self._fit.noise_factor
        covariance = self._covariance(keys)
        information = information_in(covariance, noise_factor * noise)
        size_before = len(self._data)
        fit = self._with_points_reset()
        self._data.append(keys, rewards, noise)  # Algorithm 3, line 1
        try:
            fit = self._with_inducing_arms(fit)
            fit = self._optimise(fit, rng)
        except BaseException:
            self._data.truncate(size_before)
            raise
        self._adopt(fit)
        return information

    def _adopt(self, fit: _Fit) -> None:
        """Set the new fit, and the noise with it, in one step."""
        noise_std = math.sqrt(fit.noise_factor * self.noise_variance)
        vars(self).update(_fit=fit, noise_std=noise_std, _cache={})

    # --- Algorithm 3 -----------------------------------------------------------------------

    def _with_points_reset(self) -> _Fit | None:
        """The fit with its points where they were before Adam moved them."""
        fit = self._fit
        if fit is None or not (self.restart and self.adam_rate):
            return fit
        points = self._data.latest_rows(fit.arms)
        factor = fit.first_factor
        if factor is None:
            factor = inducing_factor(self._evaluated, points)
        return fit._replace(q=fit.q.moved(points, factor))

    def _with_inducing_arms(self, fit: _Fit | None) -> _Fit:
        """Line 2: the most visited arms become inducing, with what q predicts for them."""
        arms = self._data.most_visited(self.inducing)
        points = self._data.latest_rows(arms)
        if fit is None:
            moving_count = points.shape[1] - len(set(self.discrete_columns))
            return _Fit(
                q=prior_at(self._evaluated, points),
                adam=Adam.zeros(len(arms), moving_count),
                arms=arms,
            )
        # Both are ascending; an arm beyond the last old one is compared with that.
        nearest = np.searchsorted(fit.arms, arms)
        nearest = np.minimum(nearest, len(fit.arms) - 1)
        stays = fit.arms[nearest] == arms
        old_index = np.where(stays, nearest, -1)
        adam = fit.adam.selected(old_index)
        old_points = fit.q.points[nearest]
        if self.restart:
            has_moved = (points != old_points).any(axis=1)
            old_index[has_moved] = -1
        else:
            points[stays] = old_points[stays]
        if np.array_equal(old_index, np.arange(len(fit.arms))):
            return fit
        q = transfer(fit.q, self._evaluated, points, old_index)
        return _Fit(q, adam, arms, fit.noise_factor)

    def _optimise(self, fit: _Fit, rng: Rng) -> _Fit:
        """Lines 3 to 7: natural gradient on q, Adam on the points, the noise, from one batch a step."""
        q = fit.q
        adam = fit.adam
        noise_factor = fit.noise_factor
        first_factor = q.factor
        columns = np.arange(q.points.shape[1])
        moving = np.setdiff1d(columns, self.discrete_columns)
        points_move = self.adam_rate and len(moving)
        for _ in range(self.steps):
            batch = self._draw_batch(rng, noise_factor)
            whitened = q.whitened_batch(self._evaluated, batch.rows)
            A = whitened.A
            stepped = natural_step(q, A, batch, self.natural_rate)
            if points_move:
                gradient = self._gradient(q, whitened, batch, moving)
                gradient_per_observation = gradient / len(self._data)
                adam = adam.advanced(gradient_per_observation)
                points = q.points.copy()
                points[:, moving] += self.adam_rate * adam.direction()
                factor = inducing_factor(self._evaluated, points)
                stepped = stepped.moved(points, factor)
            q = stepped
            if self.noise_rate:
                # At the new q(v), which does not change when the points move.
                prior = prior_variance(self.kernel, batch.rows)
                best = noise_ratio(q, A, batch, prior)
                noise_factor *= 1.0 - self.noise_rate + self.noise_rate * best
        # Factorise now, so that a failure comes before anything changes.
        _ = q.mean
        return _Fit(q, adam, fit.arms, noise_factor, first_factor)

    def _gradient(
        self,
        q: VariationalDistribution,
        whitened: WhitenedBatch,
        batch: Batch,
        moving: Ints,
    ) -> Floats:
        try:
            return point_gradient(q, self._evaluated, whitened, batch, moving)
        except UnknownArmError as error:
            raise InputError(
                "the kernel refuses to move an inducing point: name the columns that hold ids in "
                f"discrete_columns, which is {list(self.discrete_columns)} ({error})"
            ) from error

    def _draw_batch(self, rng: Rng, noise_factor: float) -> Batch:
        """A random batch of the history, or all of it, with equal rows merged."""
        history = self.observed
        count = len(history.rewards)
        chosen = history
        scale = 1.0
        if count > self.batch:
            drawn = rng.choice(count, self.batch, replace=False)
            chosen = history.part(drawn)
            scale = count / self.batch
        batch = Batch(
            rows=chosen.arms,
            residual=chosen.rewards - self._prior_mean(chosen.arms),
            noise=noise_factor * chosen.noise,
            scale=scale,
        )
        return batch.merged()

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        arrays: dict[str, Any] = dict(super()._memory().arrays)
        fit = self._fit
        if fit is not None:
            arrays["inducing_arms"] = fit.arms.astype(np.int64)
            arrays["points"] = fit.q.points
            arrays["precision"] = fit.q.precision
            arrays["shift"] = fit.q.shift
            arrays["adam_first"] = fit.adam.first
            arrays["adam_second"] = fit.adam.second
            arrays["adam_age"] = fit.adam.age
            if self.noise_rate:
                arrays["noise_factor"] = np.array([fit.noise_factor])
        return Memory(arrays)

    def _remember(self, state: State) -> None:
        """Restore the fit bit for bit, without repeating its steps."""
        super()._remember(state)
        if not self.count:
            return
        width = self._data.columns
        points = state.matrix("points", width)
        size = len(points)
        precision = state.matrix("precision", size)
        adam = self._saved_adam(state, size)
        arms = as_rows(state.array("inducing_arms"), self.count)
        lengths = {len(precision), len(adam.first), len(adam.second), len(arms)}
        if (np.diff(arms) <= 0).any() or lengths != {size}:
            raise StateError(
                "this state is damaged: its inducing points are not all there"
            )
        q = VariationalDistribution(
            points=points,
            factor=inducing_factor(self._evaluated, points),
            precision=precision,
            shift=state.vector("shift", size),
        )
        _ = q.mean  # factorise now: a failure means damage
        noise_factor = 1.0
        if self.noise_rate:
            saved_factor = state.vector("noise_factor", 1)
            noise_factor = as_positive(float(saved_factor[0]), "noise_factor")
        self._adopt(_Fit(q, adam, arms, noise_factor))

    def _saved_adam(self, state: State, size: int) -> Adam:
        """Adam's moments of ``size`` points in a state."""
        moving_count = self._data.columns - len(set(self.discrete_columns))
        first = state.array("adam_first")
        second = state.array("adam_second")
        age = state.array("adam_age")
        return Adam(
            first=as_features(first, "adam_first", moving_count),
            second=as_features(second, "adam_second", moving_count),
            age=as_vector(age, "adam_age", size),
        )
