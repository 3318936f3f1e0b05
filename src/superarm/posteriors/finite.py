"""Exact posterior over a fixed arm set that is played many times.

Notation

=============  ==================================================================
``E``          all n arms; ``V`` those observed so far; ``S`` those observed now
``K``          prior covariance over E; ``P`` the posterior's
``weight``     Σ 1/noise variance of each arm's observations: repeats are merged
=============  ==================================================================

Two forms behind one class, both exact:

``root``
    keeps a square root of the posterior covariance, R Rᵀ with R (n, r), r the numerical rank of
    K (for a smooth kernel far below n), and the columns of arms observed since R was last brought
    up to date. An observation of one of those v arms costs v·n, a joint sample n·r, and the
    covariance cannot lose positive semi-definiteness. See ``root_engine.py``.
``visited``
    keeps P = K − K_EV H K_VE with H = (K_VV + diag(1/weight))⁻¹, so that only columns of K
    that belong to visited arms are ever made. For sets too large for an n × n matrix.

Neither grows with the number of rounds: an arm seen before adds no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from superarm.core import Arms, Floats, Ints, Offer, State
from superarm.errors import InputError, ShapeError
from superarm.inputs import LARGEST, as_features, as_vector, require_choice, require_size
from superarm.kernels import Covariance
from superarm.registry import Described, describe, register
from superarm.states import check_spec
from superarm.threads import blas_threads_for, one_blas_thread

from .base import GaussianPosterior, as_kernel
from .beliefs import GaussianBelief
from .fixed import FixedArms, as_rows, as_weights, mean_parameter, prior_mean_at
from .root_engine import Backend, RootEngine
from .turns import whole
from .visited_engine import FiniteEngine, VisitedEngine

Form = Literal["auto", "root", "visited"]
ROOT_LARGEST = 2048
"""Arms up to which ``auto`` keeps the square root of the whole covariance."""
_RESTORED_AT_ONCE = 128
_NO_THREADS = 1000
"""Arms up to which BLAS takes no threads for one observation by itself: rank-1 updates of 32 columns
below 2¹⁵ numbers."""


@register("posterior", "finite")
class FiniteGP(GaussianPosterior, Described):
    """Exact posterior over fixed arms, which are named by their row numbers.

    >>> from superarm.kernels import SquaredExponential
    >>> gp = FiniteGP(SquaredExponential(lengthscale=0.3), [[0.0], [0.5], [0.4]], noise_variance=0.01)
    >>> gp.observe([0, 1], [1.0, -1.0])
    >>> gp.predict([0, 2]).mean.round(2).tolist()
    [0.99, -0.7]
    """

    kind = "finite-gp"
    schema = 2

    def __init__(
        self,
        kernel: Covariance,
        arms: Any,
        noise_variance: float,
        mean: Any = 0.0,
        *,
        form: Form = "auto",
        backend: Backend = "auto",
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        require_choice(form, "form", ("auto", "root", "visited"))
        self.kernel = kernel = as_kernel(kernel)
        self.arms = as_features(arms, "arms").copy()
        self.arms.flags.writeable = False
        n = len(self.arms)
        if n == 0:
            raise InputError("the arm set is empty; give at least one arm")
        self.prior_mean = prior_mean_at(mean, self.arms, n)
        self._mean = mean_parameter(mean, self.prior_mean)
        self._backend: Backend = backend
        self.form: Literal["root", "visited"] = (
            form if form != "auto" else "root" if n <= ROOT_LARGEST else "visited"
        )
        self._engine: FiniteEngine = (
            RootEngine(kernel, self.arms, self.prior_mean, backend)
            if self.form == "root"
            else VisitedEngine(kernel, self.arms, self.prior_mean)
        )
        self._weight = np.zeros(n)
        self._weighted_rewards = np.zeros(n)
        self._engine.check_noise(np.array([self.noise_variance]))
        self._seen: Ints | None = None  # the visited arms, until there is a new one
        self._fixed = FixedArms(self.arms)
        self._everything = self._fixed.everything

    # --- what it is now --------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Columns of the root, or arms visited."""
        return self._engine.rank

    @property
    def tolerance(self) -> float:
        """Largest error of the prior covariance as used, relative to its largest variance."""
        return self._engine.tolerance

    @property
    def compiled(self) -> bool:
        """Whether :meth:`play_table` runs in compiled code."""
        return isinstance(self._engine, RootEngine) and self._engine.compiled

    def is_whole(self, arms: Arms) -> bool:
        """Whether these are all arms of the set, in its order."""
        return self._fixed.locate(arms).whole

    @property
    def normals_per_draw(self) -> int:
        """Standard normals that a joint draw takes."""
        return self._engine.normals_per_draw

    @property
    def visited(self) -> Ints:
        """Row numbers of the arms observed so far."""
        return np.flatnonzero(self._weight)

    # --- hooks -----------------------------------------------------------------------------

    def keys(self, offer: Offer) -> Ints:
        return self._fixed.locate(offer.arms).keys

    def _as_keys(self, arms: Any) -> Ints:
        return as_rows(arms, len(self.arms))

    def _moments(self, keys: Ints) -> tuple[Floats, Floats]:
        return self._engine.mean[keys], self._engine.variance[keys]

    def _belief(self, keys: Ints) -> GaussianBelief:
        if keys is self._everything:  # nothing to gather
            engine = self._engine
            return GaussianBelief(self, keys, engine.mean.copy(), np.sqrt(engine.variance))
        return super()._belief(keys)

    def _covariance(self, keys: Ints) -> Floats:
        return self._engine.cross(keys, keys)

    def _cross(self, keys: Ints, at: Ints) -> Floats:
        return self._engine.cross(keys[at], keys)

    def _draw(self, keys: Ints, rng: np.random.Generator, size: int) -> Floats:
        count = self._engine.normals_per_draw
        # The same numbers either way; a shape of one dimension is drawn faster.
        normals = rng.standard_normal(count)[None] if size == 1 else rng.standard_normal((size, count))
        drawn = self._engine.draw(normals, self._weight)
        return drawn if keys is self._everything else drawn[:, keys]

    def _incumbent(self, sign: float) -> float:
        if self._seen is None:
            with self._turns.lock:  # kept, so that it must not be of an earlier moment
                self._seen = self.visited
        means = self._engine.mean[self._seen]
        return float(means.max() if sign > 0.0 else -means.min())

    def _prior_scale(self, keys: Ints) -> float:
        return float(np.max(self.kernel.diag(self.arms)))

    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        if noise_variance is None and _is_single(arms) and _is_single(rewards):
            # One arm, as in most rounds: the checks of the general way without its arrays.
            row, reward = arms[0], rewards[0]
            if (
                isinstance(row, int | np.integer)
                and not isinstance(row, bool)
                and 0 <= row < len(self.arms)
                and isinstance(reward, float)
                and abs(reward) <= LARGEST
            ):
                with self._turns:
                    if len(self.arms) <= _NO_THREADS:
                        self._observe_one(int(row), float(reward))
                    else:
                        with blas_threads_for(1):
                            self._observe_one(int(row), float(reward))
                return
        super().observe(arms, rewards, noise_variance, rng)

    def _observe_one(self, row: int, reward: float) -> None:
        noise, engine = self.noise_variance, self._engine
        if not self._weight[row]:
            self._seen = None
        self.information_gain += engine.absorb_one(row, reward, noise, self._weight)
        self._weight[row] += 1.0 / noise
        self._weighted_rewards[row] += reward / noise
        self.count += 1
        self.version += 1
        engine.maintain(self._weight, self._weighted_rewards)

    @one_blas_thread
    def play_table(self, rewards: Any, widths: Any, normals: Any = None) -> Ints:
        """Play many rounds at once against a table of rewards (T, n); returns the arms played (T,).

        Round t plays the arm of largest mean + widths[t]·std, or, with ``normals`` (T, …), of
        largest mean + widths[t]·(joint draw); then it learns from ``rewards[t, arm]`` and from
        nothing else in the table. The same as asking, choosing and observing round by round, and
        with numba ten times faster. Rounds played before an error stay learned.
        """
        table = self._as_table(rewards)
        scales = np.require(as_vector(widths, "widths", len(table)), requirements=["C", "W"])
        draws = None
        if normals is not None:
            draws = as_features(normals, "normals", self.normals_per_draw)
            draws = np.require(draws, requirements=["C", "W"])
            if len(draws) != len(table):
                raise ShapeError(f"normals has {len(draws)} rows, but rewards has {len(table)}")
        with self._turns:
            if isinstance(self._engine, RootEngine):
                totals = (self._weight, self._weighted_rewards)
                played = self._engine.play(table, scales, draws, self.noise_variance, totals)
                if played is not None:
                    choices, information = played
                    self._seen = None
                    self.information_gain += information
                    self.count += len(choices)
                    self.version += 1
                    return choices
            return self._play_slowly(table, scales, draws)

    def _as_table(self, rewards: Any) -> Floats:
        """Rewards (T, n)."""
        plain = type(rewards) is np.ndarray and rewards.dtype == np.float64
        if plain and rewards.ndim == 2 and rewards.shape[1] == len(self.arms) and len(rewards):
            # Largest and smallest entry say whether all is well, in two passes without a temporary.
            largest = max(rewards.max().item(), -rewards.min().item())
            if largest <= LARGEST:
                return np.require(rewards, requirements=["C", "W"])
        table = as_features(rewards, "rewards", len(self.arms))
        require_size(table, "rewards")
        return np.require(table, requirements=["C", "W"])

    def _play_slowly(self, table: Floats, scales: Floats, draws: Floats | None) -> Ints:
        choices = np.zeros(len(table), dtype=np.intp)
        for step, (rewards, width) in enumerate(zip(table, scales.tolist(), strict=True)):
            mean = self._engine.mean
            if draws is None:
                index = np.sqrt(self._engine.variance) * width + mean
            else:
                drawn = self._engine.draw(draws[step : step + 1], self._weight)[0]
                index = ((mean + drawn) - mean) * width + mean
            row = int(index.argmax())
            choices[step] = row
            self.observe([row], [rewards[row]])
        return choices

    def _absorb(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: np.random.Generator | None
    ) -> float:
        # Observations of one arm merge into one of their weighted mean: exact, and it keeps
        # every block at most as large as the arm set.
        weight = np.bincount(keys, 1.0 / noise, len(self.arms))
        weighted = np.bincount(keys, rewards / noise, len(self.arms))
        distinct = np.flatnonzero(weight)
        merged_noise = 1.0 / weight[distinct]
        merged = weighted[distinct] * merged_noise
        self._engine.check_noise(noise)
        information = self._engine.absorb(distinct, merged, merged_noise, self._weight)
        self._weight += weight
        self._weighted_rewards += weighted
        self._seen = None
        return information

    def _after_observing(self) -> None:
        self._engine.maintain(self._weight, self._weighted_rewards)

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        """All but the backend, which is the machine's business."""
        names = ("kernel", "arms", "noise_variance", "form")
        return {"mean": self._mean, **{name: getattr(self, name) for name in names}}

    @whole
    def state(self) -> State:
        return State(
            kind=self.kind,
            schema=self.schema,
            scalars={"count": self.count, "information_gain": self.information_gain},
            arrays={
                "weight": self._weight.copy(),
                "weighted_rewards": self._weighted_rewards.copy(),
            },
            parts={"engine": self._engine.state()} if isinstance(self._engine, RootEngine) else {},
            spec=describe(self),
        )

    @classmethod
    def from_state(
        cls, state: State, kernel: Covariance | None = None, backend: Backend = "auto"
    ) -> FiniteGP:
        """The posterior that ``state`` was taken from.

        The root form goes on with the same numbers. The visited form, or the root form with another
        kernel, is computed anew from the merged observations.
        """
        cls._check_state(state, cls.kind)
        posterior = cls._made(state, kernel=kernel, backend=backend)
        n = len(posterior.arms)
        weight = as_weights(state.array("weight"), n)
        weighted = as_vector(state.array("weighted_rewards"), "weighted_rewards", n)
        engine = posterior._engine
        if isinstance(engine, RootEngine) and engine.resume(state.part("engine"), weight):
            posterior._weight[:] = weight
        else:
            posterior._absorb_merged(weight, weighted)
        posterior._weighted_rewards[:] = weighted
        return posterior._restore_counts(state)

    def _absorb_merged(self, weight: Floats, weighted: Floats) -> None:
        """Learn Σ 1/noise and Σ reward/noise of every arm, nothing being known yet."""
        visited = np.flatnonzero(weight)
        noise = 1.0 / weight[visited]
        means = weighted[visited] * noise
        require_size(means, "weighted_rewards / weight")
        # The visited form has large blocks in pieces, each as small as an observation.
        most = _RESTORED_AT_ONCE if self.form == "visited" else max(1, len(visited))
        for start in range(0, len(visited), most):
            part = slice(start, start + most)
            self._engine.absorb(visited[part], means[part], noise[part], self._weight)
            self._weight[visited[part]] = weight[visited[part]]

    def restored(self, state: State) -> FiniteGP:
        self._check_state(state, self.kind)
        check_spec(state, self)
        return type(self).from_state(state, kernel=self.kernel, backend=self._backend)


def _is_single(values: Any) -> bool:
    """Whether this is a list or array of one entry; scalars and other things are not."""
    if type(values) is np.ndarray:  # not a masked one
        return bool(values.shape == (1,))
    return isinstance(values, list) and len(values) == 1
