"""Sparse variational Gaussian process for long histories.

Algorithm 3 of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025). The
history is summed up in a Gaussian q(u) = N(m, S) over the rewards u of M inducing arms
(Hensman et al. 2013); a question about n arms costs M²n however long the history is. Each ``observe``

1. adds the rewards to the history,
2. makes the M most visited arms the inducing ones,
3. takes ``steps`` steps on a random batch of the history: a natural gradient step on q(u)
   (Salimbeni et al. 2018) and, at the same time, an Adam step on the continuous columns of the
   inducing points, both uphill on the evidence lower bound.

With ``noise_rate`` each step also moves the noise ς_t (line 7): a factor c of all noise variances takes
a natural gradient step c ← (1 − ρ)c + ρĉ on the same bound, where ĉ is the best factor for the batch.

It is an approximation: after a step at rate ρ, only the fraction ρ of what is new has been learned.
What that algorithm leaves open, and what is done here:

* An inducing arm starts at the row in which it was observed last: in every ``observe``, as line 2 of
  the algorithm says, or with ``restart=False`` only when it enters. Adam's moments of an arm that
  stays inducing are kept either way.
* When Adam moves the points, and when they are put back, the *whitened* q stays, at which the gradient
  was taken. When the inducing arms change, or the rows in which they were observed last, q(u) there is
  what the current q predicts. ``steps.py`` has notation and formulas.
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
from superarm.posteriors.base import Memory
from superarm.posteriors.fixed import as_rows
from superarm.posteriors.rows import KernelPosterior, MeanFunction, information_in
from superarm.posteriors.variances import prior_variance

from .steps import (
    Adam,
    Batch,
    History,
    Variational,
    carried,
    factor_of,
    natural_step,
    noise_ratio,
    point_gradient,
    prior_at,
)

_BLOCK = 2048  # arms asked about at a time: a question about a whole network takes little memory


class _Learned(NamedTuple):
    """All that ``observe`` changes besides the history."""

    q: Variational
    adam: Adam
    arms: Ints  # (M,) which arms of the history are inducing
    noise_factor: float = 1.0  # c, of all noise variances
    first_factor: Floats | None = (
        None  # L before Adam moved the points; unknown in a restored state
    )


@register("posterior", "variational")
class SparseVariational(KernelPosterior):
    """Sparse variational posterior with natural gradients, inducing points at the most visited arms.

    ``discrete_columns`` say which arm a row belongs to (an edge number, say) and never move; without
    them every different row is an arm and every column is continuous. ``adam_rate`` 0 leaves
    the inducing points where the arms are. With ``restart`` every ``observe`` begins by putting them
    back there (Algorithm 3); without, they stay where Adam has moved them. With a ``noise_rate`` above
    0 the noise is estimated: ``noise_variance`` is then its first value, variances stated for single
    observations count relative to it, and ``noise_std`` is the current estimate ς_t.

    ``information_gain`` is the chain rule Σ ½ ln det(I + D^{-½} Σ_{s−1} D^{-½}) with the variational
    covariance Σ_{s−1} of the arms just before they are observed: exact where q is.

    Args:
        kernel: The kernel.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function.
        inducing: How many inducing points, at most.
        batch: How many observations one step looks at.
        steps: Optimisation steps after every observation.
        natural_rate: Learning rate of the natural gradient.
        adam_rate: Learning rate for the inducing points; 0 leaves them where the arms are.
        discrete_columns: Columns that say which arm a row belongs to; they are never moved.
        restart: Whether inducing points go back to the most visited arms in every round.
        noise_rate: Step size of the noise estimate, 0 to 1; with 0 the noise is taken as known.

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
        self.inducing = as_count(inducing, "inducing")
        self.batch = as_count(batch, "batch")
        self.steps = as_count(steps, "steps")
        self.natural_rate = as_positive(natural_rate, "natural_rate")
        if self.natural_rate > 1.0:
            raise InputError(f"natural_rate is {natural_rate!r}; it must lie in (0, 1]")
        self.adam_rate = as_number(adam_rate, "adam_rate", 0.0)
        several = isinstance(discrete_columns, list | tuple)
        columns = discrete_columns if several else (discrete_columns,)
        self.discrete_columns = tuple(
            as_count(each, "discrete_columns", 0) for each in columns
        )
        self.restart = as_flag(restart, "restart")
        self.noise_rate = as_number(noise_rate, "noise_rate", 0.0, 1.0)
        self._data = History(self.discrete_columns)
        self._learned: _Learned | None = None

    @property
    def inducing_points(self) -> Floats:
        """Where the inducing points are, (M, d)."""
        return (
            np.empty((0, 0)) if self._learned is None else self._learned.q.points.copy()
        )

    # --- hooks -----------------------------------------------------------------------------

    def _check_columns(self, features: Floats) -> Floats:
        if max(self.discrete_columns, default=-1) >= features.shape[1]:
            raise InputError(
                f"arms have {features.shape[1]} feature columns, but discrete_columns is "
                f"{list(self.discrete_columns)}; columns are counted from 0"
            )
        return super()._check_columns(features)

    def _moments(self, keys: Floats) -> tuple[Floats, Floats]:
        mean, variance = self._once("solved", keys, self._solve)
        return mean.copy(), variance.copy()

    def _solve(self, keys: Floats) -> tuple[Floats, Floats]:
        mean = np.zeros(len(keys)) + self._prior_mean(keys)
        variance = prior_variance(self.kernel, keys)
        if self._learned is None:
            return mean, variance
        q = self._learned.q
        for start in range(0, len(keys), _BLOCK):
            block = slice(start, start + _BLOCK)
            A = q.whitened(self.kernel, keys[block])
            mean[block] += A.T @ q.mean
            variance[block] -= np.einsum("ij,ij->j", A, A)
            A = solve_lower_in_place(q.root, A)
            variance[block] += np.einsum("ij,ij->j", A, A)
        return mean, variance

    def _covariance(self, keys: Floats, at: Ints | None = None) -> Floats:
        prior = self.kernel(keys) if at is None else self.kernel(keys[at], keys)
        covariance = np.array(prior, dtype=np.float64)
        if self._learned is not None:
            some = slice(None) if at is None else at
            A = self._learned.q.whitened(self.kernel, keys)
            covariance -= A[:, some].T @ A
            A = solve_lower_in_place(self._learned.q.root, A)
            covariance += A[:, some].T @ A
        return covariance

    def _absorb(
        self, keys: Floats, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        assert rng is not None  # ``draws`` says so
        factor = 1.0 if self._learned is None else self._learned.noise_factor
        information = information_in(self._covariance(keys), factor * noise)
        before, learned = len(self._data), self._put_back()
        self._data.append(keys, rewards, noise)  # Algorithm 3, line 1
        try:
            optimised = self._optimised(self._with_inducing_arms(learned), rng)
        except BaseException:
            self._data.truncate(before)
            raise
        self._adopt(optimised)
        return information

    def _adopt(self, learned: _Learned) -> None:
        """Take over what was learned, and the noise with it, in one step."""
        noise_std = math.sqrt(learned.noise_factor * self.noise_variance)
        vars(self).update(_learned=learned, noise_std=noise_std, _kept={})

    # --- Algorithm 3 -----------------------------------------------------------------------

    def _put_back(self) -> _Learned | None:
        """What was learned, its points where they were before Adam moved them."""
        learned = self._learned
        if learned is None or not (self.restart and self.adam_rate):
            return learned
        points = self._data.latest_rows(learned.arms)
        factor = learned.first_factor
        if factor is None:
            factor = factor_of(self.kernel, points)
        return learned._replace(q=learned.q.moved(points, factor))

    def _with_inducing_arms(self, learned: _Learned | None) -> _Learned:
        """Line 2: the most visited arms become inducing, with what is known of them."""
        arms = self._data.most_visited(self.inducing)
        points = self._data.latest_rows(arms)
        if learned is None:
            width = points.shape[1] - len(set(self.discrete_columns))
            return _Learned(
                prior_at(self.kernel, points), Adam.fresh(len(arms), width), arms
            )
        at = np.minimum(np.searchsorted(learned.arms, arms), len(learned.arms) - 1)
        stays = learned.arms[at] == arms
        where = np.where(stays, at, -1)
        adam = learned.adam.selected(where)
        old = learned.q.points[at]
        if self.restart:
            where[(points != old).any(axis=1)] = -1
        else:
            points[stays] = old[stays]
        if np.array_equal(where, np.arange(len(learned.arms))):
            return learned
        q = carried(learned.q, self.kernel, points, where)
        return _Learned(q, adam, arms, learned.noise_factor)

    def _optimised(self, learned: _Learned, rng: Rng) -> _Learned:
        """Lines 3 to 6: natural gradient on q, Adam on the points, from the same batch."""
        q = learned.q
        adam = learned.adam
        noise_factor = learned.noise_factor
        first_factor = q.factor
        moving = np.setdiff1d(np.arange(q.points.shape[1]), self.discrete_columns)
        for _ in range(self.steps):
            batch = self._batch(rng, noise_factor)
            A = q.whitened(self.kernel, batch.rows)
            stepped = natural_step(q, A, batch, self.natural_rate)
            if self.adam_rate and len(moving):
                gradient = self._gradient(q, A, batch, moving)
                adam = adam.advanced(
                    gradient / len(self._data)
                )  # of the bound per observation
                points = q.points.copy()
                points[:, moving] += self.adam_rate * adam.direction()
                stepped = stepped.moved(points, factor_of(self.kernel, points))
            q = stepped
            if (
                self.noise_rate
            ):  # at the new q(v), which moving the points does not change
                prior = prior_variance(self.kernel, batch.rows)
                best = noise_ratio(q, A, batch, prior)
                noise_factor *= 1.0 - self.noise_rate + self.noise_rate * best
        _ = (
            q.mean
        )  # factorised now, so that what cannot be is refused before anything changes
        return _Learned(q, adam, learned.arms, noise_factor, first_factor)

    def _gradient(
        self, q: Variational, A: Floats, batch: Batch, moving: Ints
    ) -> Floats:
        try:
            return point_gradient(q, self.kernel, A, batch, moving)
        except UnknownArmError as error:
            raise InputError(
                "the kernel refuses to move an inducing point: name the columns that hold ids in "
                f"discrete_columns, which is {list(self.discrete_columns)} ({error})"
            ) from error

    def _batch(self, rng: Rng, noise_factor: float) -> Batch:
        arms, rewards, noise = self.observed
        scale = 1.0
        if len(rewards) > self.batch:
            drawn = rng.choice(len(rewards), self.batch, replace=False)
            scale = len(rewards) / self.batch
            arms, rewards, noise = arms[drawn], rewards[drawn], noise[drawn]
        residual = rewards - self._prior_mean(arms)
        return Batch(arms, residual, noise_factor * noise, scale).merged()

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        arrays: dict[str, Any] = dict(super()._memory().arrays)
        if self._learned is not None:
            q = self._learned.q
            adam = self._learned.adam
            arrays["inducing_arms"] = self._learned.arms.astype(np.int64)
            arrays |= {
                name: getattr(q, name) for name in ("points", "precision", "shift")
            }
            arrays |= {
                f"adam_{name}": getattr(adam, name)
                for name in ("first", "second", "age")
            }
            if self.noise_rate:
                arrays["noise_factor"] = np.array([self._learned.noise_factor])
        return Memory(arrays)

    def _remember(self, state: State) -> None:
        """To the bit: the steps are not made again."""
        super()._remember(state)
        if not self.count:
            return
        points = as_features(state.array("points"), "points", self._data.columns)
        size, width = len(points), self._data.columns - len(set(self.discrete_columns))
        precision = as_features(state.array("precision"), "precision", size)
        names = ("adam_first", "adam_second")
        first, second = (as_features(state.array(name), name, width) for name in names)
        age = as_vector(state.array("adam_age"), "adam_age", size)
        adam = Adam(first=first, second=second, age=age)
        inducing = as_rows(state.array("inducing_arms"), self.count)
        lengths = {len(each) for each in (precision, adam.first, adam.second, inducing)}
        if (np.diff(inducing) <= 0).any() or lengths != {size}:
            raise StateError(
                "this state is damaged: its inducing points are not all there"
            )
        shift, factor = (
            as_vector(state.array("shift"), "shift", size),
            factor_of(self.kernel, points),
        )
        q = Variational(points=points, factor=factor, precision=precision, shift=shift)
        _ = q.mean  # factorised now: what cannot be is damage
        noise_factor = 1.0
        if self.noise_rate:
            noise_factor = float(
                as_vector(state.array("noise_factor"), "noise_factor", 1)[0]
            )
            as_positive(noise_factor, "noise_factor")
        self._adopt(_Learned(q, adam, inducing, noise_factor))
