"""Exact posterior over a fixed arm set that is played many times.

Notation

=============  ==================================================================
``E``          all n arms; ``V`` those observed so far; ``S`` those observed now
``K``          prior covariance over E; ``P`` the posterior's
``weight``     Σ 1/noise variance of each arm's observations: repeats are merged
=============  ==================================================================

Two forms behind one class, both exact: ``root.py`` stores a square root R of P, (n, r), r the
numerical rank of K (for a smooth kernel far below n), so that P cannot lose positive
semi-definiteness; ``visited.py`` computes only columns of K that belong to visited arms, for sets too
large for an n × n matrix. Neither grows with the number of rounds: an arm seen before adds no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from superarm.core import Arms, Covariance, Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import (
    ExpectsRewards,
    HasPriorCovariance,
    Resumable,
)
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
from superarm.core.locks import consistent_read
from superarm.core.registry import register
from superarm.core.threads import blas_threads_for, one_blas_thread
from superarm.kernels.base import as_covariance
from superarm.posteriors.base import Memory, is_empty
from superarm.posteriors.beliefs import GaussianBelief, distinct
from superarm.posteriors.fixed import COUNT, INFORMATION, FixedArms, FixedPosterior
from superarm.posteriors.variances import prior_variance

from .batch import Batch
from .root import RootEngine
from .visited import LARGEST_SAVED, VisitedEngine

FormName = Literal["root", "visited"]
FormChoice = Literal["auto", FormName]
# Arms up to which "auto" may store a square root of the full covariance.
ROOT_LARGEST = 2048
# Numbers in a root, n·r, up to which "auto" prefers it: 4 MB, which stay in a cache.
_SMALL_ROOT = 2**19
# What the columns counted as r may omit, relative to the largest prior variance.
_ROOT_ERROR = 1e-14
# Arms that the visited form learns at once when it is computed again.
_RESTORED_AT_ONCE = 128
# Arms up to which BLAS uses no threads for an observation: rank-1 updates below 2¹⁵ numbers.
_NO_THREADS = 1000
# Types of row numbers on the fast path; others get the full checks.
_ROW_NUMBERS = frozenset([int, np.int32, np.int64, np.intp])
# The smallest reward there.
_LOWEST = -LARGEST


@register("posterior", "finite")
class FiniteGP(FixedPosterior, Resumable, HasPriorCovariance, ExpectsRewards):
    """Exact posterior over fixed arms, which are named by their row numbers.

    Args:
        kernel: The kernel over arms.
        arms: The fixed arms, one row of features each.
        noise_variance: Variance of the noise of one observation, in squared units of the reward.
        mean: The prior mean: a number, one number per arm, or a function of the arms' features.
        form: Which of the equivalent forms to use: "root" stores a square root of the
            covariance, "visited" an inverse over visited arms; "auto" chooses by cost.
        backend: "numba" runs compiled loops, "numpy" none; "auto" uses numba if it is installed.

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
        form: FormChoice = "auto",
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
        self._all_rows = self._fixed.all_rows
        self.backend: Backend = backend
        self._choice: FormChoice = form
        self._use(self._new_visited_engine())
        if form == "root" or (form == "auto" and self._root_is_better()):
            self._use(self._new_root_engine())
        self._check_noise(self.noise_variance)

    def _use(self, engine: RootEngine | VisitedEngine) -> None:
        """Learn with this engine from now on."""
        totals = engine.as_totals(self._totals)
        root_engine = engine if isinstance(engine, RootEngine) else None
        # From here on there is no call, and so no interrupt: see ``loops.py``.
        self._totals: Any = totals
        self._root_engine: RootEngine | None = root_engine  # the engine, in root form
        self._engine: RootEngine | VisitedEngine = engine

    def _new_root_engine(self) -> RootEngine:
        return RootEngine(self.kernel, self.arms, self.prior_mean, self.backend)

    def _new_visited_engine(self) -> VisitedEngine:
        return VisitedEngine(self.kernel, self.arms, self.prior_mean)

    def _root_is_better(self) -> bool:
        """Whether "auto" chooses the root form.

        An arm that is not pending costs a pass over its root, n·r numbers, and later a fold of as many;
        the visited form reads v·n of v visited arms. Measured with Matérn-5/2 in three dimensions:
        with 300 arms the two cost the same in every use; with 2,000 of full rank the root form took
        50 µs a round where one of a few arms was played, the visited form 130, but 2.7 ms against 0.7
        where any arm was, and 47 ms against 10 for seventy of them. The root must be small for that
        not to show.
        """
        if self._size > ROOT_LARGEST:
            return False
        if self._size**2 <= _SMALL_ROOT:
            return True
        if self.noise_variance < self._engine.least_noise:
            return True
        prior_variances = self._engine.variance
        most_columns = int(_SMALL_ROOT // self._size)
        allowed = _ROOT_ERROR * float(prior_variances.max())
        leading = leading_root(
            self._prior_column, prior_variances, most_columns, allowed
        )
        return float(leading.rest.max()) <= allowed

    def _prior_column(self, arm: int) -> Floats:
        features = self.arms[arm : arm + 1]
        covariances = self.kernel(features, self.arms)
        rows = np.asarray(covariances, dtype=np.float64)  # (1, n)
        column: Floats = rows[0]
        return column

    # --- the form in use -------------------------------------------------------------------

    @property
    def form(self) -> FormName:
        """The name of the form in use."""
        return "visited" if self._root_engine is None else "root"

    @property
    def rank(self) -> int:
        """Columns of the root, or number of visited arms."""
        return self._engine.rank

    @property
    def tolerance(self) -> float:
        """Largest error of the prior covariance as used, relative to its largest variance."""
        return self._engine.tolerance

    @property
    def compiled(self) -> bool:
        """Whether :meth:`play_table` can be used: the root form, numba, and noise that is not tiny."""
        engine = self._root_engine
        return engine is not None and engine.plays_with(self.noise_variance)

    @property
    def same_bits(self) -> bool:
        """Whether a restored posterior repeats this one bit for bit.

        It does, unless very many arms were visited in the visited form, or are pending in a very large
        set: a state holds no such H, and no such rows.
        """
        engine = self._engine
        return not isinstance(engine, VisitedEngine) or engine.is_saved_completely

    def has_all_arms(self, arms: Arms) -> bool:
        """Whether these are all arms of the set, in its order.

        Args:
            arms: Arms on offer.
        """
        return self._fixed.locate(arms).is_complete

    @property
    def normals_per_draw(self) -> int:
        """Standard normals that a joint draw takes."""
        return self._engine.normals_per_draw

    # --- answers ---------------------------------------------------------------------------

    def _moments(self, keys: Ints) -> tuple[Floats, Floats]:
        return self._engine.mean[keys], self._engine.variance[keys]

    def belief(
        self, offer: Offer, pending: NDArray[Any] | None = None
    ) -> GaussianBelief:
        """The belief about the arms on offer.

        Args:
            offer: The arms on offer.
            pending: Row numbers that were chosen and not yet seen, (p,), or ``None``.
        """
        if type(offer) is Offer and offer.arms is self._fixed.complete_arms:
            if pending is None:
                # The fast path of most rounds: nothing to gather, no use for BLAS, and no call that
                # ``consistent_read`` would take.
                lock = self._lock
                written = lock.written
                if not lock.writing:
                    try:
                        mean, std = self._engine.moments()
                        version = self._totals[COUNT]
                    except Exception:
                        # After a write, arrays of two moments may have clashed: read once more.
                        if lock.written == written and not lock.writing:
                            raise
                    else:
                        if lock.written == written and not lock.writing:
                            return GaussianBelief(
                                self, self._all_rows, mean, std, 1.0, version
                            )
            elif self._root_engine is None and not is_empty(pending):
                return self._conditioned_belief_of_all(pending)
        return super().belief(offer, pending)

    @consistent_read
    def _conditioned_belief_of_all(self, pending: NDArray[Any]) -> GaussianBelief:
        """The belief about all arms after pending ones are observed."""
        rows = self._as_keys(pending)  # which are positions among all arms, too
        return self._belief(self._all_rows).condition(rows)

    def _belief(self, keys: Ints) -> GaussianBelief:
        if keys is self._all_rows:
            mean, std = self._engine.moments()
            return GaussianBelief(self, keys, mean, std)
        return super()._belief(keys)

    def _covariance(self, keys: Ints, positions: Ints | None = None) -> Floats:
        if positions is None:
            return self._engine.cross(keys, keys)
        chosen = keys[positions]
        if keys is self._all_rows and self._root_engine is None:
            return self._cached("rows", chosen, self._rows_of)
        return self._engine.cross(chosen, keys)

    def _rows_of(self, arms: Ints) -> Floats:
        """Covariances of some arms with all arms, read-only, (k, n)."""
        rows = self._engine.cross(arms, self._all_rows)
        rows.flags.writeable = False  # a belief and ``expect`` share them
        return rows

    def _draw(self, keys: Ints, rng: Rng, size: int) -> Floats:
        engine = self._engine
        count = engine.normals_per_draw
        # The same numbers either way, but a shape of one dimension is drawn faster.
        shape = count if size == 1 else (size, count)
        normals = rng.standard_normal(shape)
        normals = normals.reshape(size, count)
        draws = (
            engine.draw(normals)  # weights take time to gather
            if isinstance(engine, RootEngine)
            else engine.draw(normals, self._weight)
        )
        return draws if keys is self._all_rows else draws[:, keys]

    def _prior_scale(self, keys: Ints) -> float:
        return float(np.max(self.kernel.diag(self.arms)))

    def prior_variances(self, keys: Ints) -> Floats:
        return prior_variance(self.kernel, self.arms[keys])

    def prior_covariances(self, keys: Ints, others: Ints) -> Floats:
        covariances = self.kernel(self.arms[keys], self.arms[others])
        return np.array(covariances, dtype=np.float64)

    # --- learning --------------------------------------------------------------------------

    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards. After an error the posterior is what it was before.

        Args:
            arms: Row numbers of arms, (m,).
            rewards: Their rewards, (m,).
            noise_variance: Noise variances of the rewards, (m,); ``None``: the model's own.
            rng: Not used.
        """
        # The fast path of most rounds: one arm, checked without arrays, in one call.
        if noise_variance is not None:
            return super().observe(arms, rewards, noise_variance, rng)
        row = arms[0] if type(arms) is list and len(arms) == 1 else _only(arms)
        reward = (
            rewards[0]
            if type(rewards) is list and len(rewards) == 1
            else _only(rewards)
        )
        if type(row) not in _ROW_NUMBERS or not isinstance(reward, float):
            return super().observe(arms, rewards, noise_variance, rng)
        if type(row) is not int:
            row = int(row)
        if type(reward) is not float:
            reward = float(reward)
        if not 0 <= row < self._size or not _LOWEST <= reward <= LARGEST:  # or NaN
            return super().observe(arms, rewards, noise_variance, rng)
        lock = self._lock
        with lock.lock:  # as ``with lock`` does, in half the time
            lock.writing += 1
            try:
                if self._size <= _NO_THREADS:
                    self._engine.absorb_one(
                        row, reward, self.noise_variance, self._totals
                    )
                else:
                    self._absorb_threadless(row, reward)
            finally:
                lock.written += 1
                lock.writing -= 1
        return None

    def _absorb_threadless(self, row: int, reward: float) -> None:
        with blas_threads_for(1):
            self._engine.absorb_one(row, reward, self.noise_variance, self._totals)

    def _check_noise(self, noise: float) -> None:
        if noise < self._engine.least_noise:
            raise InputError(
                f"noise_variance {noise:.3g} is too small for the visited form, which stores an "
                f"inverse: it needs at least {self._engine.least_noise:.3g} here; use form='root'"
            )

    def _absorb(
        self, keys: Ints, rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        least_noise = noise.item(noise.argmin())
        may_switch = self._choice == "auto" and self._size <= ROOT_LARGEST
        if may_switch and least_noise < self._engine.least_noise:
            # The root form has the digits for any noise.
            root_engine = self._new_root_engine()
            self._refit(root_engine)
            self._use(root_engine)
        self._check_noise(least_noise)
        batch = Batch.of(self._added_totals(keys, rewards, noise))
        self._engine.absorb(batch, self._totals)
        return float(batch.added[INFORMATION])

    def _after_observing(self) -> None:
        self._engine.maintain(self._totals)

    def expect(self, pending: NDArray[Any] | None) -> None:
        engine = self._engine
        if not isinstance(engine, VisitedEngine):
            return  # a row of the root form costs little
        if pending is None and not len(engine.expected):
            return
        with self._lock:
            rows = self._as_keys([] if pending is None else pending)
            arms = distinct(self._all_rows, rows).positions
            if not np.array_equal(arms, engine.expected):
                # The same as those of the belief that was conditioned on these arms.
                engine.expect(arms, self._cached("rows", arms, self._rows_of))

    # --- many rounds at once ---------------------------------------------------------------

    @one_blas_thread
    def play_table(self, rewards: Any, widths: Any, normals: Any = None) -> Ints:
        """Play many rounds at once against a table of rewards; only where :attr:`compiled`.

        Round t plays the arm of largest mean + widths[t]·std, or, with ``normals``, of largest
        mean + widths[t]·(joint draw); then it learns from ``rewards[t, arm]`` and from nothing else in
        the table. The outcome is that of asking, choosing and observing round by round, ten times
        faster. Rounds played before an error stay learned.

        Args:
            rewards: The reward of every arm in every round, (T, n).
            widths: The width in every round, (T,).
            normals: Standard normals of every round's draw, (T, ``normals_per_draw``), or ``None``.

        Returns:
            The arm played in every round, (T,).
        """
        table = self._as_table(rewards)
        widths = as_vector(widths, "widths", len(table))
        widths = np.require(widths, requirements=["C", "W"])
        if normals is not None:
            normals = as_features(normals, "normals", self.normals_per_draw)
            normals = np.require(normals, requirements=["C", "W"])
            if len(normals) != len(table):
                raise ShapeError(
                    f"normals has {len(normals)} rows, but rewards has {len(table)}"
                )
        if self._root_engine is None or not self.compiled:
            raise InputError(
                f"play_table needs compiled code ({install_line('fast')}), form='root' and a "
                "noise_variance above 1e-5 of the prior's; play round by round instead"
            )
        with self._lock:
            return self._root_engine.play(
                table, widths, normals, self.noise_variance, self._totals
            )

    def _as_table(self, rewards: Any) -> Floats:
        """Checked rewards, (T, n)."""
        n = len(self.arms)
        is_plain = type(rewards) is np.ndarray and rewards.dtype == np.float64
        if is_plain and rewards.size and rewards.shape[1:] == (n,):
            # The fast path: two passes without a temporary.
            highest = rewards.max().item()
            lowest = rewards.min().item()
            if max(highest, -lowest) <= LARGEST:
                return np.require(rewards, requirements=["C", "W"])
        table = as_features(rewards, "rewards", n)
        require_size(table, "rewards")
        return np.require(table, requirements=["C", "W"])

    # --- state -----------------------------------------------------------------------------

    def parameters(self) -> Mapping[str, Any]:
        """All parameters but the backend, which is the machine's business.

        A form that was chosen here is named as if size alone decided, because states are compared.
        """
        parameters = dict(super().parameters())
        del parameters["backend"]
        form = self._choice
        if form == "auto":
            form = "root" if self._size <= ROOT_LARGEST else "visited"
        parameters["form"] = form
        return parameters

    def _clone(self, **changes: Any) -> Self:
        options = {"backend": self.backend, "form": self._choice}
        return super()._clone(**{**options, **changes})

    def _memory(self) -> Memory:
        scalars = {}
        if self.backend != "auto":
            scalars["backend"] = self.backend
        parts = {}
        engine_state = self._engine.state()
        if engine_state is not None:
            parts["engine"] = engine_state
        return super()._memory()._replace(scalars=scalars, parts=parts)

    def _with_state(self, state: State) -> Self:
        """Restore on the saved backend, unless another is chosen here.

        A machine without numba continues with numpy.
        """
        backend = state.scalars.get("backend", "auto")
        if not isinstance(backend, str) or backend not in get_args(Backend):
            raise StateError(
                f"this state is damaged: there is no backend {backend!r:.40}"
            )
        is_available = backend != "numba" or find_spec("numba") is not None
        if self.backend == "auto" and backend != "auto" and is_available:
            other = self._clone(backend=backend)
            return super(FiniteGP, other)._with_state(state)
        return super()._with_state(state)

    def _remember(self, state: State) -> None:
        """Resume with the stored numbers, where :attr:`same_bits` holds.

        Otherwise, and with another kernel, they are computed again from the merged observations.
        """
        super()._remember(state)
        may_lack_engine = self._root_engine is None or len(self.visited) > LARGEST_SAVED
        if "engine" not in state.parts and may_lack_engine:
            # Only the visited form leaves it out.
            self._use(self._new_visited_engine())
            self._refit(self._engine)
            return
        engine_state = state.part("engine")
        # An earlier version may have chosen the other form for a set of this size.
        if self._size <= ROOT_LARGEST and engine_state.kind != self._engine.kind:
            if engine_state.kind == RootEngine.kind:
                self._use(self._new_root_engine())
            else:
                self._use(self._new_visited_engine())
        if not self._engine.resume(engine_state, self._weight):
            self._refit(self._engine)

    def _refit(self, engine: RootEngine | VisitedEngine) -> None:
        """Give all merged observations to an engine that has learned nothing."""
        visited = self.visited
        weight = self._weight[visited]
        noise = 1.0 / weight
        means = self._weighted_rewards[visited] * noise
        require_size(means, "weighted_rewards / weight")
        totals_size = 2 * self._size + 2
        # Not those of the posterior, which count these observations already.
        totals: Any = engine.as_totals(np.zeros(totals_size))
        count = len(visited)
        at_once = max(1, count)
        if isinstance(engine, VisitedEngine):
            # It would need large matrices for all at once.
            at_once = _RESTORED_AT_ONCE
        for start in range(0, count, at_once):
            part = slice(start, start + at_once)
            rows = visited[part]
            added = np.zeros(totals_size)
            added[rows] = weight[part]
            batch = Batch(rows, means[part], noise[part], added)
            engine.absorb(batch, totals)


def _only(values: Any) -> Any:
    """The entry of a list or array of one; ``None`` for anything else."""
    kind = type(values)
    if kind is list:
        return values[0] if len(values) == 1 else None
    if kind is np.ndarray and values.shape == (1,):  # not a masked one
        return values.item()
    return None
