"""Exact posterior over a fixed arm set that is played many times.

Notation

=============  ==================================================================
``E``          all n arms; ``V`` those observed so far; ``S`` those observed now
``K``          prior covariance over E; ``P`` the posterior's
``weight``     Σ 1/noise variance of each arm's observations: repeats are merged
=============  ==================================================================

Two forms behind one class, both exact: ``root.py`` keeps a square root R of P, (n, r), r the numerical
rank of K (for a smooth kernel far below n), so that P cannot lose positive semi-definiteness;
``visited.py`` makes only columns of K that belong to visited arms, for sets too large for an n × n
matrix. Neither grows with the number of rounds: an arm seen before adds no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from superarm.core import Arms, Covariance, Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import Resumable
from superarm.core.compiling import Backend
from superarm.core.errors import InputError, ShapeError, StateError, install_line
from superarm.core.inputs import (
    LARGEST,
    as_features,
    as_vector,
    read_only,
    require_choice,
    require_size,
)
from superarm.core.linalg import leading_root
from superarm.core.registry import register
from superarm.core.threads import blas_threads_for, one_blas_thread
from superarm.kernels.base import as_covariance
from superarm.posteriors.base import Memory
from superarm.posteriors.beliefs import GaussianBelief
from superarm.posteriors.fixed import COUNT, INFORMATION, FixedArms, FixedPosterior

from .batch import Batch
from .root import RootEngine
from .visited import LARGEST_SAVED, VisitedEngine

Form = Literal["auto", "root", "visited"]
ROOT_LARGEST = (
    2048  # arms up to which ``auto`` may keep the square root of the whole covariance
)
_SMALL_ROOT = (
    2**19
)  # numbers of a root, n·r, up to which ``auto`` prefers it: 4 MB, which stay in a cache
_ROOT_ERROR = (
    1e-14  # of the largest prior variance: what the columns counted as r leave out
)
_RESTORED_AT_ONCE = 128
# Arms up to which BLAS by itself takes no threads for an observation: rank-1 updates below 2¹⁵ numbers.
_NO_THREADS = 1000
_ROW_NUMBERS = frozenset(
    [int, np.int32, np.int64, np.intp]
)  # others are checked in the general way


@register("posterior", "finite")
class FiniteGP(FixedPosterior, Resumable):
    """Exact posterior over fixed arms, which are named by their row numbers.

    Args:
        kernel: The kernel.
        arms: The fixed arms, one row of features each.
        noise_variance: Variance of the noise of one observation.
        mean: The prior mean: a number or a function.
        form: Which of the equivalent engines does the algebra; auto chooses.
        backend: Compiled with numba or plain numpy; auto takes numba where it is installed.

    >>> from superarm.kernels import SquaredExponential
    >>> gp = FiniteGP(SquaredExponential(lengthscale=0.3), [[0.0], [0.5], [0.4]], noise_variance=0.01)
    >>> gp.observe([0, 1], [1.0, -1.0])
    >>> gp.predict([0, 2]).mean.round(2).tolist()
    [0.99, -0.7]
    """

    kind = "finite-gp"
    schema = 2
    _fixed: FixedArms

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
        require_choice(form, "form", ("auto", "root", "visited"))
        self.kernel = as_covariance(kernel, "kernel")
        self.arms = read_only(as_features(arms, "arms"))
        n = len(self.arms)
        if n == 0:
            raise InputError("the arm set is empty; give at least one arm")
        super().__init__(n, noise_variance, mean, self.arms)
        self._size = n
        self._everything = self._fixed.everything
        self.backend: Backend = backend
        self._wanted: Form = form
        self._use(self._visited_engine())
        if form == "root" or (form == "auto" and self._root_is_better()):
            self._use(self._root_engine())
        self._check_noise(self.noise_variance)

    def _use(self, engine: RootEngine | VisitedEngine) -> None:
        """Learn with this engine from now on."""
        totals = engine.as_totals(self._totals)
        rooted = engine if isinstance(engine, RootEngine) else None
        # From here on there is no call, and so no interrupt: see ``loops.py``.
        self._totals: Any = totals
        self._rooted: RootEngine | None = rooted  # the engine, in root form
        self._engine: RootEngine | VisitedEngine = engine

    def _root_engine(self) -> RootEngine:
        return RootEngine(self.kernel, self.arms, self.prior_mean, self.backend)

    def _visited_engine(self) -> VisitedEngine:
        return VisitedEngine(self.kernel, self.arms, self.prior_mean)

    def _root_is_better(self) -> bool:
        """Whether the root form is to be chosen.

        An arm that is not pending costs a pass over its root, n·r numbers, and later a fold of as many;
        the visited form reads v·n of v visited arms. Measured with Matérn-5/2 in three dimensions: with
        300 arms the two cost the same in every use; with 2,000 of full rank the root form took 50 µs a
        round where one of a few arms was played, the visited form 130, but 2.7 ms against 0.7 where any
        arm was, and 47 ms against 10 for seventy of them. The root must be small for that not to show.
        """
        if self._size > ROOT_LARGEST:
            return False
        if (
            self._size**2 <= _SMALL_ROOT
            or self.noise_variance < self._engine.least_noise
        ):
            return True
        prior = self._engine.variance
        most = int(_SMALL_ROOT // self._size)
        enough = _ROOT_ERROR * float(prior.max())
        left = leading_root(self._prior_column, prior, most, enough).rest
        return float(left.max()) <= enough

    def _prior_column(self, arm: int) -> Floats:
        rows = np.asarray(
            self.kernel(self.arms[arm : arm + 1], self.arms), dtype=np.float64
        )
        column: Floats = rows[0]
        return column

    # --- what it is now --------------------------------------------------------------------

    @property
    def form(self) -> Literal["root", "visited"]:
        """Which form is in use."""
        return "visited" if self._rooted is None else "root"

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
        """Whether :meth:`play_table` can be used: the root form, numba, and noise that is not tiny."""
        return self._rooted is not None and self._rooted.plays_with(self.noise_variance)

    @property
    def same_bits(self) -> bool:
        """Unless very many arms were visited in the visited form: a state does not hold all of that."""
        return self._rooted is not None or self.rank <= LARGEST_SAVED

    def is_whole(self, arms: Arms) -> bool:
        """Whether these are all arms of the set, in its order."""
        return self._fixed.locate(arms).whole

    @property
    def normals_per_draw(self) -> int:
        """Standard normals that a joint draw takes."""
        return self._engine.normals_per_draw

    # --- hooks -----------------------------------------------------------------------------

    def _moments(self, keys: Ints) -> tuple[Floats, Floats]:
        return self._engine.mean[keys], self._engine.variance[keys]

    def belief(
        self, offer: Offer, pending: NDArray[Any] | None = None
    ) -> GaussianBelief:
        # The whole set, as in most rounds: nothing to gather, and nothing that BLAS would do.
        if pending is None and type(offer) is Offer and offer.arms is self._fixed.whole:
            turns = self._lock
            written = turns.written
            if not turns.writing:
                # As under ``whole``: an answer counts where nobody wrote meanwhile.
                try:
                    engine = self._engine
                    mean, std = engine.moments()
                    version = self._totals[COUNT]
                except Exception:
                    if turns.written == written and not turns.writing:
                        raise
                else:
                    if turns.written == written and not turns.writing:
                        return GaussianBelief(
                            self, self._everything, mean, std, 1.0, version
                        )
        return super().belief(offer, pending)

    def _belief(self, keys: Ints) -> GaussianBelief:
        if keys is self._everything:
            return GaussianBelief(self, keys, *self._engine.moments())
        return super()._belief(keys)

    def _covariance(self, keys: Ints, at: Ints | None = None) -> Floats:
        return self._engine.cross(keys if at is None else keys[at], keys)

    def _draw(self, keys: Ints, rng: Rng, size: int) -> Floats:
        count = self._engine.normals_per_draw
        # The same numbers either way; a shape of one dimension is drawn faster.
        normals = (
            rng.standard_normal(count)[None]
            if size == 1
            else rng.standard_normal((size, count))
        )
        drawn = self._engine.draw(normals, self._weight)
        return drawn if keys is self._everything else drawn[:, keys]

    def _prior_scale(self, keys: Ints) -> float:
        return float(np.max(self.kernel.diag(self.arms)))

    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        if noise_variance is None:
            # One arm, as in most rounds: the checks of the general way without its arrays.
            row = arms[0] if type(arms) is list and len(arms) == 1 else _only(arms)
            reward = (
                rewards[0]
                if type(rewards) is list and len(rewards) == 1
                else _only(rewards)
            )
            if type(row) in _ROW_NUMBERS and isinstance(reward, float):
                if type(row) is not int:
                    row = int(row)
                if type(reward) is not float:
                    reward = float(reward)
                if 0 <= row < self._size and -LARGEST <= reward <= LARGEST:  # no NaN
                    turns = self._lock
                    with turns.lock:  # as ``with turns`` does, in half the time
                        turns.writing += 1
                        try:
                            if self._size <= _NO_THREADS:
                                self._engine.absorb_one(
                                    row, reward, self.noise_variance, self._totals
                                )
                            else:
                                self._absorb_threadless(row, reward)
                        finally:
                            turns.written += 1
                            turns.writing -= 1
                    return
        super().observe(arms, rewards, noise_variance, rng)

    def _absorb_threadless(self, row: int, reward: float) -> None:
        with blas_threads_for(1):
            self._engine.absorb_one(row, reward, self.noise_variance, self._totals)

    def _check_noise(self, noise: float) -> None:
        if noise < self._engine.least_noise:
            raise InputError(
                f"noise_variance {noise:.3g} is too small for the visited form, which keeps an "
                f"inverse: it needs at least {self._engine.least_noise:.3g} here; use form='root'"
            )

    def _absorb(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        least = float(noise.min())
        chosen = self._wanted == "auto" and self._size <= ROOT_LARGEST
        if (
            chosen and least < self._engine.least_noise
        ):  # which the root form has the digits for
            rooted = self._root_engine()
            self._refit(rooted)
            self._use(rooted)
        self._check_noise(least)
        batch = Batch.of(self._merged(keys, rewards, noise))
        self._engine.absorb(batch, self._totals)
        return float(batch.added[INFORMATION])

    def _after_observing(self) -> None:
        self._engine.maintain(self._totals)

    # --- many rounds at once ---------------------------------------------------------------

    @one_blas_thread
    def play_table(self, rewards: Any, widths: Any, normals: Any = None) -> Ints:
        """Play many rounds at once against a table of rewards (T, n); returns the arms played (T,).

        Round t plays the arm of largest mean + widths[t]·std, or, with ``normals`` (T, …), of
        largest mean + widths[t]·(joint draw); then it learns from ``rewards[t, arm]`` and from
        nothing else in the table. The same as asking, choosing and observing round by round, ten
        times faster. It is there where :attr:`compiled` says so. Rounds played before an error stay
        learned.
        """
        table = self._as_table(rewards)
        scales = np.require(
            as_vector(widths, "widths", len(table)), requirements=["C", "W"]
        )
        draws = None
        if normals is not None:
            draws = as_features(normals, "normals", self.normals_per_draw)
            draws = np.require(draws, requirements=["C", "W"])
            if len(draws) != len(table):
                raise ShapeError(
                    f"normals has {len(draws)} rows, but rewards has {len(table)}"
                )
        if self._rooted is None or not self.compiled:
            raise InputError(
                f"play_table needs compiled code ({install_line('fast')}), form='root' and a "
                "noise_variance above 1e-5 of the prior's; play round by round instead"
            )
        with self._lock:
            return self._rooted.play(
                table, scales, draws, self.noise_variance, self._totals
            )

    def _as_table(self, rewards: Any) -> Floats:
        """Rewards (T, n)."""
        plain = type(rewards) is np.ndarray and rewards.dtype == np.float64
        if (
            plain
            and rewards.ndim == 2
            and rewards.shape[1] == len(self.arms)
            and len(rewards)
        ):
            # Largest and smallest entry say whether all is well, in two passes without a temporary.
            largest = max(rewards.max().item(), -rewards.min().item())
            if largest <= LARGEST:
                return np.require(rewards, requirements=["C", "W"])
        table = as_features(rewards, "rewards", len(self.arms))
        require_size(table, "rewards")
        return np.require(table, requirements=["C", "W"])

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        """All but the backend, which is the machine's business.

        A form that is chosen here is named as it was when size alone decided: states are compared.
        """
        stated = {
            name: value
            for name, value in super().parameters().items()
            if name != "backend"
        }
        by_size = "root" if self._size <= ROOT_LARGEST else "visited"
        return {**stated, "form": by_size if self._wanted == "auto" else self._wanted}

    def _like(self, **changes: Any) -> Self:
        return super()._like(
            **{"backend": self.backend, "form": self._wanted, **changes}
        )

    def _memory(self) -> Memory:
        engine = self._engine.state()
        chosen = {} if self.backend == "auto" else {"backend": self.backend}
        parts = {} if engine is None else {"engine": engine}
        return super()._memory()._replace(scalars=chosen, parts=parts)

    def _with_memory_of(self, state: State) -> Self:
        """On the backend that was chosen when it was saved, unless another is chosen here.

        A state may come to a machine without numba: then it goes on with numpy.
        """
        chosen = state.scalars.get("backend", "auto")
        if not isinstance(chosen, str) or chosen not in get_args(Backend):
            raise StateError(
                f"this state is damaged: there is no backend {chosen!r:.40}"
            )
        there = chosen != "numba" or find_spec("numba") is not None
        if self.backend == "auto" and chosen != "auto" and there:
            return super(FiniteGP, self._like(backend=chosen))._with_memory_of(state)
        return super()._with_memory_of(state)

    def _remember(self, state: State) -> None:
        """It goes on with the same numbers, where :attr:`same_bits` says so.

        Otherwise, and with another kernel, it is computed anew from the merged observations.
        """
        super()._remember(state)
        many = self._rooted is None or len(self.visited) > LARGEST_SAVED
        if "engine" not in state.parts and many:  # only the visited form leaves it out
            self._use(self._visited_engine())
            self._refit(self._engine)
            return
        held = state.part("engine")
        # Which form a set of this size has may have been chosen otherwise when the state was saved.
        if self._size <= ROOT_LARGEST and held.kind != self._engine.kind:
            rooted = held.kind == RootEngine.kind
            self._use(self._root_engine() if rooted else self._visited_engine())
        if not self._engine.resume(held, self._weight):
            self._refit(self._engine)

    def _refit(self, engine: RootEngine | VisitedEngine) -> None:
        """Give all merged observations to an engine that has learned nothing."""
        visited = self.visited
        noise = 1.0 / self._weight[visited]
        means = self._weighted_rewards[visited] * noise
        require_size(means, "weighted_rewards / weight")
        totals: Any = engine.as_totals(
            np.zeros(2 * self._size + 2)
        )  # not ours: it only learns
        # The visited form has large blocks in pieces, each as small as an observation.
        most = (
            _RESTORED_AT_ONCE
            if isinstance(engine, VisitedEngine)
            else max(1, len(visited))
        )
        for start in range(0, len(visited), most):
            part = slice(start, start + most)
            added = np.zeros(2 * self._size + 2)
            added[visited[part]] = self._weight[visited[part]]
            engine.absorb(Batch(visited[part], means[part], noise[part], added), totals)


def _only(values: Any) -> Any:
    """The entry of a list or array of one; ``None`` for anything else."""
    kind = type(values)
    if kind is list:
        return values[0] if len(values) == 1 else None
    if kind is np.ndarray and values.shape == (1,):  # not a masked one
        return values.item()
    return None
