"""The root form of :class:`superarm.posteriors.FiniteGP`; notation as in ``posterior.py``.

P = R Rᵀ once R is up to date. A policy plays a few arms again and again, so their observations
stay *pending* and are folded into R together:

=============  ==================================================================
``V``          the pending arms, v of them: at most ``PENDING``, or all arms
``base``       rows of R Rᵀ for V: their covariance columns when R was last up to date
``columns``    the same columns now, (v, n)
``weight``     Σ 1/noise of each pending arm's observations since then, (v,)
=============  ==================================================================

An observation then costs v·n instead of n·r. Mean and variance are always up to date.

A policy that still explores plays more arms than that. Where arms are few and nobody draws, all of
them then count as pending: ``columns`` is P itself, and an observation of any arm is a rank-one update
of it, n². (A draw takes a normal for every pending arm, so that at most ``PENDING`` may be pending.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InputError, NotPositiveDefiniteError, StateError
from superarm.core.inputs import SMALLEST
from superarm.core.linalg import PSD_ERROR_LIMIT, psd_root, root_update, solve_lower
from superarm.posteriors.fixed import INFORMATION, Totals, as_rows
from superarm.posteriors.variances import SURE_NOISE, check_means, prior_variance

from .batch import Batch
from .loops import (
    MEAN,
    PENDING,
    PENDING_ARMS,
    PENDING_COUNT,
    PLACE_OF,
    UNTIL_FOLD,
    VARIANCE,
    Loops,
    loops_of,
)

# Arms up to which all may be pending: one update of P costs n², which stays small.
MOST_ALL_PENDING = 256
# Arms up to which all are pending from the start, where loops are not compiled.
MOST_AT_ONCE = 160
# Noise, relative to the largest prior variance, below which nothing stays pending: columns of
# nearly noiseless arms would lose their digits to subtraction, which the root does not.
LEAST_NOISE = 1e-5
# Observations after which pending arms are folded in, so that rounding cannot build up.
FOLD_EVERY = 2048
# Difference, relative to the largest prior variance, that is too large for rounding.
_DAMAGED = 1e-4
_SCHEMA = 1
# Attributes that :meth:`RootEngine._link` sets.
_LINKED = ("mean", "_variance", "_diagonal", "_pending", "_slot", "_loops", "_learn")


class RootEngine:
    """A square root of the covariance, and the observations since its last update."""

    kind = "root-engine"
    least_noise = 0.0  # the form has the digits for any noise

    def __init__(
        self, kernel: Covariance, arms: Floats, mean: Floats, backend: Backend
    ) -> None:
        # The kernel's own variances, not the root's: a flat prior must tie exactly, or rounding
        # would choose the first arm.
        variance = prior_variance(kernel, arms)
        largest = float(variance.max())
        if 0.0 < largest < SMALLEST:
            raise InputError(
                f"the largest prior variance of the arms is {largest:g}; squares must fit a float: "
                f"choose units in which it is at least {SMALLEST:g}"
            )
        prior = np.asarray(kernel(arms))
        factor = psd_root(prior, "the prior covariance of the arms")
        differences = np.abs(np.diagonal(prior) - variance)
        if differences.max() > PSD_ERROR_LIMIT * largest:
            arm = int(differences.argmax())
            raise NotPositiveDefiniteError(
                f"the kernel's diag gives arm {arm} the variance {variance[arm]:g}, but its "
                f"matrix has {prior[arm, arm]:g} there; they must be the same"
            )
        n = len(arms)
        # Identifies the prior, so that a state is resumed only with the same one.
        probe_weights = np.cos(np.arange(n))
        self._probe = prior @ probe_weights
        self.root = factor.root
        self.tolerance = factor.error
        self.normals_per_draw = self.rank + PENDING
        self._compiled = is_compiled(backend)
        self._all_arms = np.arange(n)
        self._zeros = np.zeros(n)
        self._drawn = False  # whether joint draws were ever asked for
        # The arrays of ``loops.py``.
        capacity = n if n <= MOST_ALL_PENDING else PENDING
        self._moments = np.stack([mean, variance])  # (2, n)
        self._base = np.zeros((capacity, n))
        self._columns = np.zeros((capacity, n))
        self._pending_weight = np.zeros(capacity)
        self._places = np.zeros((2, n), dtype=np.int64)
        self._places[PLACE_OF] = -1
        self._counts: Any = [0, FOLD_EVERY]
        if self._compiled:
            self._counts = np.array(self._counts, dtype=np.int64)
        # Without compiled loops a call costs more than n² does: all arms are pending from the start.
        self._at_once = not self._compiled and PENDING < n <= MOST_AT_ONCE
        self._least_noise = LEAST_NOISE * largest
        self._largest = largest  # prior variance
        # ‖z‖² of observations with next to no noise: see ``variances.py``.
        self._misfit = 0.0
        self._smallest_noise = np.inf
        self._warned = False
        self._link()

    def _link(self) -> None:
        """Look up what every round needs: making a view costs as much as reading it."""
        self._loops: Loops = loops_of("numba" if self._compiled else "numpy")
        self._learn = self._loops.learn
        self.mean: Floats = self._moments[MEAN]
        self._variance: Floats = self._moments[VARIANCE]
        self._pending = self._places[PENDING_ARMS]  # V, and room behind it
        self._slot = self._places[PLACE_OF]  # the place of an arm in V
        self._diagonal = self._columns.diagonal()

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()
        for name in _LINKED:
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._link()  # a copied view would be an array of its own

    @property
    def _count(self) -> int:
        """How many arms are pending."""
        return int(self._counts[PENDING_COUNT])

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State:
        """All that the engine holds. Draws depend on the root, which data do not determine."""
        count = self._count
        until_fold = int(self._counts[UNTIL_FOLD])
        arrays = {
            "pending": self._pending[:count].copy(),
            "pending_weight": self._pending_weight[:count].copy(),
            "base": self._base[:count].copy(),
            "columns": self._pending_columns().copy(),
            "root": self.root.copy(),
            "mean": self.mean.copy(),
            "variance": self.variance.copy(),
            "probe": self._probe.copy(),
        }
        scalars = {"until_fold": until_fold}
        return State(kind=self.kind, schema=_SCHEMA, scalars=scalars, arrays=arrays)

    def resume(self, state: State, weight: Floats) -> bool:
        """Resume from a state; ``False``, without any change, if its prior is another.

        Args:
            state: What :meth:`state` returned.
            weight: Σ 1/noise of every arm's observations, (n,).
        """
        state.require(self.kind, _SCHEMA, "the root form")
        n = len(self.mean)
        scale = float(self.variance.max())
        probe = state.vector("probe", n)
        if not np.allclose(probe, self._probe, rtol=0.0, atol=1e-9 * n * scale):
            return False
        saved_root = state.matrix("root")
        root = np.array(saved_root, order="C")
        mean = state.vector("mean", n).copy()
        variance = state.vector("variance", n).copy()
        pending = as_rows(state.array("pending"), n)
        size = len(pending)
        pending_weight = state.vector("pending_weight", size)
        base = state.matrix("base", n)
        columns = state.matrix("columns", n)
        until_fold = state.scalar("until_fold")
        has_root = len(root) == n and root.shape[1] <= n
        has_rows = len(base) == size and len(columns) == size
        all_pending = size == n and PENDING < n <= MOST_ALL_PENDING
        is_distinct = len(set(pending.tolist())) == size
        has_room = size <= PENDING or all_pending
        # Where all arms are pending, some may not have been seen.
        is_weight = pending_weight >= 0.0 if all_pending else pending_weight > 0.0
        most_weight = (1.0 + 1e-9) * weight[pending]
        is_within = pending_weight <= most_weight
        has_weight = is_weight.all() and is_within.all()
        is_due_later = type(until_fold) is int and 0 < until_fold <= FOLD_EVERY
        has_pending = is_distinct and has_room and has_weight
        if not (has_root and has_rows and has_pending and is_due_later):
            raise StateError(
                "this state is damaged: it holds impossible values for the root form"
            )
        explained = pending_weight @ (base * columns)
        expected = _row_squares(root) - explained
        difference = np.abs(expected - variance).max()
        if variance.min() < 0.0 or difference > _DAMAGED * scale:
            raise StateError(
                "this state is damaged: its root and its variances do not agree"
            )
        self.root = root
        self.normals_per_draw = self.rank + PENDING
        self._moments[MEAN] = mean
        self._moments[VARIANCE] = variance
        self._base[:size] = base
        self._columns[:size] = columns
        self._pending[:size] = pending
        self._pending_weight[:size] = pending_weight
        self._slot[pending] = np.arange(size)
        self._counts[PENDING_COUNT] = size
        self._counts[UNTIL_FOLD] = until_fold
        return True

    # --- moments ---------------------------------------------------------------------------

    @property
    def variance(self) -> Floats:
        """Posterior variances, (n,), a view or a new array."""
        if self._compiled or self._count <= PENDING:
            return self._variance
        # The diagonal of P has them: see ``loops.learn_numpy``.
        return np.maximum(self._diagonal, 0.0)

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (n,) each, new arrays."""
        mean = self.mean.copy()
        if self._compiled or self._counts[PENDING_COUNT] <= PENDING:
            return mean, np.sqrt(self._variance)
        # An array of zeros, because numpy would have to make one of 0.0.
        variance = np.maximum(self._diagonal, self._zeros)
        std = np.sqrt(variance, variance)  # in place
        return mean, std

    def as_totals(self, totals: Totals) -> Totals:
        """Totals in the type that :meth:`absorb` and :meth:`absorb_one` need: see ``loops.py``.

        Args:
            totals: The totals of the posterior, (2n + 2,).
        """
        return np.array(totals) if self._compiled else list(map(float, totals))

    @property
    def rank(self) -> int:
        """Columns of the root."""
        return int(self.root.shape[1])

    def _pending_columns(self) -> Floats:
        """Covariance columns of the pending arms, (v, n), a view or a new array."""
        count = self._count
        if not self._compiled or count <= PENDING:
            return np.asarray(self._columns[:count])
        lower = np.tril(self._columns)  # see ``_compiled._condition``
        return np.asarray(lower + np.tril(lower, -1).T)

    def plays_with(self, noise: float) -> bool:
        """Whether rounds can be played in compiled code.

        Args:
            noise: The noise variance.
        """
        return self._loops.play is not None and noise >= self._least_noise

    # --- learning --------------------------------------------------------------------------

    def absorb(self, batch: Batch, totals: Any) -> None:
        """Learn from distinct arms and count it in the totals, all or nothing.

        Args:
            batch: The observations.
            totals: The totals of the posterior, as from :meth:`as_totals`.
        """
        rows = batch.rows
        self._limit_pending()
        is_large = len(rows) > PENDING // 4
        least_noise = batch.noise.item(batch.noise.argmin())
        if is_large or least_noise < self._least_noise:
            self._update_root(batch, totals)
            return
        places = self._slot[rows]
        new = (places < 0).nonzero()[0]
        new_count = len(new)
        if new_count and self._count + new_count > PENDING:
            self._make_room()
            places = self._slot[rows]
            new = (places < 0).nonzero()[0]
            new_count = len(new)
        places[new] = self._count + np.arange(new_count)
        for number in new.tolist():
            row = rows.item(number)
            place = places.item(number)
            self._add(row, place)
        self._loops.learn_some(
            self._columns, self._moments, totals, self._pending_weight, self._places, self._counts,
            places, rows, batch.rewards, batch.noise, batch.added,
        )  # fmt: skip

    def _update_root(self, batch: Batch, totals: Any) -> None:
        """Learn by an update of the root; nothing stays pending."""
        self._fold()
        rows = batch.rows
        observed = self.root[rows]
        update = root_update(self.root, observed, batch.noise)
        innovation = batch.rewards - self.mean[rows]
        least_noise = float(batch.noise.min())
        self._check_digits(update.factor, innovation, least_noise)
        root = self.root - update.downdate @ observed
        variance = _row_squares(root)
        mean = self.mean + update.gain @ innovation
        moments = np.stack([mean, variance])
        batch.added[INFORMATION] = update.information
        sums = self.as_totals(batch.added + totals)
        # From here on there is no call, and so no interrupt: see ``loops.py``.
        self.root = root
        self._moments[:] = moments
        totals[:] = sums

    def absorb_one(self, row: int, reward: float, noise: float, totals: Any) -> None:
        """Learn one reward of an arm and count it in the totals, all or nothing.

        Args:
            row: Row number of the arm.
            reward: The reward.
            noise: Its noise variance.
            totals: The totals of the posterior, as from :meth:`as_totals`.
        """
        if noise < self._least_noise:
            batch = Batch.of_one(row, reward, noise, len(self.mean))
            self.absorb(batch, totals)
            return
        place = self._slot.item(row)
        if place < 0 or (self._drawn and self._counts[PENDING_COUNT] > PENDING):
            place = self._place_for(row)
        until_fold = self._learn(
            self._columns, self._moments, totals, self._pending_weight, self._places, self._counts,
            place, row, reward, noise,
        )  # fmt: skip
        if until_fold <= 0:
            self._fold()

    def _place_for(self, row: int) -> int:
        """The place of an arm among the pending, now or from now on, with its column there."""
        self._limit_pending()
        place: int = self._slot.item(row)
        if place < 0:
            if self._count >= PENDING or self._at_once:
                self._make_room()
            place = self._slot.item(row)
        if place < 0:
            place = self._count
            self._add(row, place)
        return place

    def _add(self, row: int, place: int) -> None:
        self._loops.add(
            self.root, self._base, self._columns, self._pending_weight, self._places, self._count,
            place, row,
        )  # fmt: skip

    def _check_digits(self, factor: Floats, innovation: Floats, noise: float) -> None:
        """Warn, once and before anything changes, where means lose their digits for lack of noise."""
        if noise >= SURE_NOISE * self._largest:
            return
        z = solve_lower(factor, innovation)
        misfit = self._misfit + float(z @ z)
        smallest_noise = min(self._smallest_noise, noise)
        if not self._warned:
            largest_mean = float(np.abs(self.mean).max())
            self._warned = check_means(
                misfit, smallest_noise, self._largest, largest_mean
            )
        self._misfit = misfit
        self._smallest_noise = smallest_noise

    def _make_room(self) -> None:
        """Make room among the pending: fold all of them in, or let all arms be pending."""
        self._fold()
        n = len(self._slot)
        if not PENDING < n <= MOST_ALL_PENDING or self._drawn:
            return
        np.matmul(self.root, self.root.T, out=self._base)
        self._columns[:] = self._base
        # Both rows: every arm is pending, at its own place.
        self._places[:] = self._all_arms
        self._counts[PENDING_COUNT] = n

    def _limit_pending(self) -> None:
        """Fold if more arms are pending than joint draws have normals for."""
        if self._drawn and self._count > PENDING:
            self._fold()

    def maintain(self, totals: Any) -> None:
        """Clear rounding now and then. Called after several arms were learned.

        Args:
            totals: The totals of the posterior.
        """
        if self._counts[UNTIL_FOLD] <= 0:
            self._fold()

    def _fold(self) -> None:
        """Bring the root up to date; nothing is pending afterwards."""
        if not self._count:
            self._counts[UNTIL_FOLD] = FOLD_EVERY
            return
        root = self._folded_root()
        variance = _row_squares(root)
        # From here on there is no call, and so no interrupt: see ``loops.py``.
        self.root = root
        self._moments[VARIANCE] = variance
        self._slot[:] = -1
        self._pending_weight[:] = 0.0
        self._counts[PENDING_COUNT] = 0
        self._counts[UNTIL_FOLD] = FOLD_EVERY

    def _folded_root(self) -> Floats:
        """The root, conditioned on pending observations, a new array."""
        weight = self._pending_weight[: self._count]
        seen = np.flatnonzero(weight)  # not all, where all arms count as pending
        noise = 1.0 / weight[seen]
        arms = self._pending[seen]
        observed = self.root[arms]
        update = root_update(self.root, observed, noise)
        return np.asarray(self.root - update.downdate @ observed)

    # --- answers ---------------------------------------------------------------------------

    def cross(self, left: Ints, right: Ints) -> Floats:
        """Covariance of some arms with others, (a, b), a new array.

        Args:
            left: Row numbers, (a,).
            right: Row numbers, (b,); the same object as ``left`` for a symmetric matrix.
        """
        # R Rᵀ − base (…)⁻¹ baseᵀ, where base (…)⁻¹ is columns × weight (see ``loops.py``).
        left_root = self.root[left]
        right_root = left_root if right is left else self.root[right]
        cross: Floats = left_root @ right_root.T
        size = self._count
        if size:
            # Half of it each way round, so that the result is symmetric.
            half_weight = 0.5 * self._pending_weight[:size, None]
            base = self._base[:size]
            columns = self._pending_columns()
            weighted_right = half_weight * columns[:, right]
            cross -= base[:, left].T @ weighted_right
            weighted_left = half_weight * columns[:, left]
            cross -= weighted_left.T @ base[:, right]
        return cross

    def draw(self, normals: Floats) -> Floats:
        """Joint draws about zero of all arms, (m, n).

        Args:
            normals: Standard normals, (m, ``normals_per_draw``).
        """
        self._drawn = True
        root = self.root
        count = self._count
        if count > PENDING:
            # The first draws, while all arms are pending: there are too few normals for them.
            root = self._folded_root()
            count = 0
        return self._loops.draw(
            root, normals, self._columns, self._pending_weight, self._pending, count
        )

    # --- many rounds at once ---------------------------------------------------------------

    def play(
        self,
        rewards: Floats,
        widths: Floats,
        normals: Floats | None,
        noise: float,
        totals: Any,
    ) -> Ints:
        """Play rounds against a table of rewards; only where :meth:`plays_with` this noise.

        Round t plays the arm of largest mean + width·std, or, with ``normals``, of largest
        mean + width·(joint draw).

        Args:
            rewards: The reward of every arm in every round, (T, n).
            widths: The width in every round, (T,).
            normals: Standard normals of every round's draw, (T, ``normals_per_draw``), or ``None``.
            noise: The noise variance.
            totals: The totals of the posterior, as from :meth:`as_totals`.

        Returns:
            The arm played in every round, (T,).
        """
        assert self._loops.play is not None
        choices = np.zeros(len(rewards), dtype=np.int64)
        if normals is None:
            normals = np.empty((0, 0))  # compiled code has no ``None``
        else:
            self._drawn = True
        self._limit_pending()
        step = 0
        while step < len(rewards):
            room = max(PENDING, self._count)
            step = self._loops.play(
                self.root, self._base, self._columns, self._moments, totals, self._pending_weight,
                self._places, self._counts, room, rewards, widths, normals, noise, choices, step,
            )  # fmt: skip
            if self._counts[UNTIL_FOLD] <= 0:
                self._fold()
            elif step < len(rewards):
                # There was no room among the pending for the arm of this round.
                self._make_room()
                row = choices.item(step)
                self.absorb_one(row, rewards.item(step, row), noise, totals)
                step += 1
        return choices


def _row_squares(root: Floats) -> Floats:
    """The squared norm of every row, (n,)."""
    return np.asarray(np.einsum("ij,ij->i", root, root))
