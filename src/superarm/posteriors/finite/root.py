"""The root form of :class:`superarm.posteriors.FiniteGP`; notation as in ``posterior.py``.

P = R Rᵀ once R is up to date. A policy plays a few arms again and again, so their observations
are kept *pending* and folded into R together:

=============  ==================================================================
``V``          the pending arms, v of them: at most ``PENDING``, or all arms
``base``       rows of R Rᵀ for V: their covariance columns when R was last up to date
``columns``    the same columns now, (v, n)
``weight``     Σ 1/noise of what each pending arm was seen since then, (v,)
=============  ==================================================================

An observation then costs v·n instead of n·r. Mean and variance are always up to date.

A policy that has not settled plays more arms than that. Where arms are few and nobody draws, all of
them then count as pending: ``columns`` is P itself, and an observation of any arm is a rank-one update
of it, n². (A draw takes a normal for every pending arm, of which there are ``PENDING``.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import InputError, NotPositiveDefiniteError, StateError
from superarm.core.inputs import SMALLEST, as_features, as_vector
from superarm.core.linalg import PSD_ERROR_LIMIT, psd_root, root_update, solve_lower
from superarm.posteriors.fixed import INFORMATION, Totals, as_rows
from superarm.posteriors.variances import SURE_NOISE, check_means, prior_variance

from .batch import Batch
from .loops import PENDING, Loops, loops_of

MOST_WHOLE = 256  # arms up to which all may be pending: what one update of P costs, n², stays small
# Noise, relative to the largest prior variance, below which nothing is kept pending: columns of nearly
# noiseless arms would lose their digits to subtraction, which the root does not.
LEAST_NOISE = 1e-5
MOST_AT_ONCE = (
    160  # arms up to which all are pending from the start, where loops are not compiled
)
FOLD_EVERY = 2048  # observations after which what is pending is folded in: rounding cannot build up
_DAMAGED = 1e-4  # difference, relative to the largest prior variance, that rounding does not make
_SCHEMA = 1
_LINKED = ("mean", "_variance", "_diagonal", "_pending", "_slot", "_loops", "_learn")


class RootEngine:
    """A square root of the covariance, and what came since it was last brought up to date."""

    kind = "root-engine"
    least_noise = 0.0  # it has the digits for any noise

    def __init__(
        self, kernel: Covariance, arms: Floats, mean: Floats, backend: Backend
    ) -> None:
        # The kernel's own variances, not the root's: a flat prior must tie exactly, or rounding
        # would choose the first arm.
        variance = prior_variance(kernel, arms)
        largest = float(variance.max())
        if 0.0 < largest < SMALLEST:
            advice = f"squares must fit a float: choose units in which it is at least {SMALLEST:g}"
            raise InputError(
                f"the largest prior variance of the arms is {largest:g}; {advice}"
            )
        prior = np.asarray(kernel(arms))
        factor = psd_root(prior, "the prior covariance of the arms")
        apart = np.abs(np.diagonal(prior) - variance)
        if apart.max() > PSD_ERROR_LIMIT * largest:
            where = int(apart.argmax())
            raise NotPositiveDefiniteError(
                f"the kernel's diag gives arm {where} the variance {variance[where]:g}, but its "
                f"matrix has {prior[where, where]:g} there; they must be the same"
            )
        # By this a state knows whether it belongs to the same prior.
        self._probe = prior @ np.cos(np.arange(len(arms)))
        self.root, self.tolerance = factor.root, factor.error
        self._moments = np.stack([mean, variance])  # (2, n)
        self.normals_per_draw = self.rank + PENDING
        self._compiled = is_compiled(backend)
        n = len(arms)
        self._everyone, self._zeros = np.arange(n), np.zeros(n)
        self._drawn = False  # whether draws were asked for since the last observation
        capacity = n if n <= MOST_WHOLE else PENDING
        self._base, self._columns = np.zeros((capacity, n)), np.zeros((capacity, n))
        self._pending_weight = np.zeros(capacity)
        self._places = np.zeros((2, n), dtype=np.int64)
        self._places[1] = -1
        counts = [0, FOLD_EVERY]
        self._counts: Any = (
            np.array(counts, dtype=np.int64) if self._compiled else counts
        )
        # Without compiled loops a call costs more than n² does: all arms are pending from the start.
        self._at_once = not self._compiled and PENDING < n <= MOST_AT_ONCE
        self._least_noise = LEAST_NOISE * largest
        self._largest = largest  # prior variance
        self._misfit = (
            0.0  # ‖z‖² of what was observed with next to no noise: see ``variances.py``
        )
        self._smallest_noise = np.inf
        self._warned = False
        self._link()

    def _link(self) -> None:
        """Look up what every round needs: to make a view costs as much as to read it."""
        self._loops: Loops = loops_of("numba" if self._compiled else "numpy")
        self._learn = self._loops.learn
        self.mean: Floats = self._moments[0]
        self._pending = self._places[0]  # V, and room behind it
        self._slot = self._places[1]  # where an arm stands in V
        self._variance: Floats = self._moments[1]
        self._diagonal = self._columns.diagonal()

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name not in _LINKED
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._link()  # views of its own arrays: a copied view is an array by itself

    @property
    def _count(self) -> int:
        """How many arms are pending."""
        return int(self._counts[0])

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State:
        """All that is kept: draws depend on the root, and the data have more than one."""
        count, until_fold = map(int, self._counts)
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
        """Go on from this state; ``False``, and nothing is done, if it is that of another prior.

        ``weight`` is Σ 1/noise of every arm's observations, (n,).
        """
        state.require(self.kind, _SCHEMA, "the root form")
        n = len(self.mean)
        scale = float(self.variance.max())
        probe = as_vector(state.array("probe"), "probe", n)
        if not np.allclose(probe, self._probe, rtol=0.0, atol=1e-9 * n * scale):
            return False
        root = np.array(as_features(state.array("root"), "root"), order="C")
        mean = as_vector(state.array("mean"), "mean", n).copy()
        variance = as_vector(state.array("variance"), "variance", n).copy()
        pending = as_rows(state.array("pending"), n)
        size = len(pending)
        held = as_vector(state.array("pending_weight"), "pending_weight", size)
        base = as_features(state.array("base"), "base", n)
        columns = as_features(state.array("columns"), "columns", n)
        until_fold = state.scalar("until_fold")
        shapes = (len(root), len(base), len(columns)) == (n, size, size) and root.shape[
            1
        ] <= n
        whole = size == n and PENDING < n <= MOST_WHOLE
        distinct = len(set(pending.tolist())) == size and (size <= PENDING or whole)
        seen = (((held > 0.0) | whole) & (held >= 0.0)).all()
        seen &= (held <= (1.0 + 1e-9) * weight[pending]).all()
        due = type(until_fold) is int and 0 < until_fold <= FOLD_EVERY
        if not (shapes and distinct and seen and due):
            raise StateError(
                "this state is damaged: it holds impossible values for the root form"
            )
        left = np.einsum("ij,ij->i", root, root) - held @ (base * columns)
        if variance.min() < 0.0 or np.abs(left - variance).max() > _DAMAGED * scale:
            raise StateError(
                "this state is damaged: its root and its variances do not agree"
            )
        self.root = root
        self._moments[:] = mean, variance
        self.normals_per_draw = self.rank + PENDING
        self._base[:size], self._columns[:size] = base, columns
        self._pending[:size], self._pending_weight[:size] = pending, held
        self._slot[pending] = np.arange(size)
        self._counts[:] = size, until_fold
        return True

    @property
    def variance(self) -> Floats:
        """(n,), a view or a new array."""
        variance = self._variance
        if not self._compiled and self._count > PENDING:  # see ``loops.learn_numpy``
            variance = np.maximum(self._diagonal, 0.0)
        return variance

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (n,) each, that nobody else has."""
        if self._compiled or self._counts[0] <= PENDING:
            return self.mean.copy(), np.sqrt(self._variance)
        variance = np.maximum(
            self._diagonal, self._zeros
        )  # zeros: numpy would make an array of 0.0
        return self.mean.copy(), np.sqrt(variance, variance)

    def as_totals(self, totals: Totals) -> Totals:
        """The totals as :meth:`absorb` and :meth:`absorb_one` take them: see ``loops.py``."""
        return np.array(totals) if self._compiled else list(map(float, totals))

    @property
    def rank(self) -> int:
        return int(self.root.shape[1])

    def _pending_columns(self) -> Floats:
        """(v, n), a view or a new array."""
        count = self._count
        if not self._compiled or count <= PENDING:
            return np.asarray(self._columns[:count])
        lower = np.tril(self._columns)  # see ``_compiled._condition``
        return np.asarray(lower + np.tril(lower, -1).T)

    def plays_with(self, noise: float) -> bool:
        """Whether whole rounds can be played in compiled code."""
        return self._loops.play is not None and noise >= self._least_noise

    # --- learning --------------------------------------------------------------------------

    def absorb(self, batch: Batch, totals: Any) -> None:
        """Learn from distinct arms and count it in the totals, all or nothing."""
        rows, noise = batch.rows, batch.noise
        self._forget_whole()
        if len(rows) > PENDING // 4 or noise.min() < self._least_noise:
            self._absorb_at_once(batch, totals)
            return
        at = self._slot[rows]
        fresh = np.flatnonzero(at < 0)
        if len(fresh):
            if self._count + len(fresh) > PENDING:
                self._make_room()
                at = self._slot[rows]
                fresh = np.flatnonzero(at < 0)
            at[fresh] = self._count + np.arange(len(fresh))
            for place in fresh.tolist():
                self._add(rows.item(place), at.item(place))
        self._loops.learn_some(
            self._columns, self._moments, totals, self._pending_weight, self._places, self._counts,
            at, rows, batch.rewards, noise, batch.added,
        )  # fmt: skip

    def _absorb_at_once(self, batch: Batch, totals: Any) -> None:
        """Learn by an update of the root."""
        self._fold()
        observed = self.root[batch.rows]
        update = root_update(self.root, observed, batch.noise)
        innovation = batch.rewards - self.mean[batch.rows]
        self._check_digits(update.factor, innovation, float(batch.noise.min()))
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
        """Learn one reward of an arm and count it in the totals, all or nothing."""
        if noise < self._least_noise:
            self.absorb(Batch.of_one(row, reward, noise, len(self.mean)), totals)
            return
        place = self._slot.item(row)
        if place < 0 or (self._drawn and self._counts[0] > PENDING):
            place = self._place_for(row)
        left = self._learn(
            self._columns, self._moments, totals, self._pending_weight, self._places, self._counts,
            place, row, reward, noise,
        )  # fmt: skip
        if left <= 0:
            self._fold()

    def _place_for(self, row: int) -> int:
        """Where an arm stands or will stand among the pending, with its column there."""
        self._forget_whole()
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
        misfit, least = self._misfit + float(z @ z), min(self._smallest_noise, noise)
        if not self._warned:
            largest_mean = float(np.abs(self.mean).max())
            self._warned = check_means(misfit, least, self._largest, largest_mean)
        self._misfit, self._smallest_noise = misfit, least

    def _make_room(self) -> None:
        """More than ``PENDING`` arms are played: room for the next ones, or for all of them."""
        self._fold()
        n = len(self._slot)
        if not PENDING < n <= MOST_WHOLE or self._drawn:
            return
        np.matmul(self.root, self.root.T, out=self._base)
        self._columns[:] = self._base
        self._places[:] = self._everyone
        self._counts[0] = n

    def _forget_whole(self) -> None:
        """Once draws are asked for, no more arms may be pending than they have normals for."""
        if self._drawn and self._count > PENDING:
            self._fold()

    def maintain(self, totals: Any) -> None:
        """Clear rounding now and then: called after several arms were learned, with all merged data."""
        if self._counts[1] <= 0:
            self._fold()

    def _fold(self) -> None:
        """Bring the root up to date; nothing is pending afterwards."""
        if not self._count:
            self._counts[1] = FOLD_EVERY
            return
        root = self._folded_root()
        variance = _row_squares(root)
        # From here on there is no call, and so no interrupt: see ``loops.py``.
        self.root = root
        self._moments[1] = variance
        self._slot[:] = -1
        self._pending_weight[:] = 0.0
        self._counts[0] = 0
        self._counts[1] = FOLD_EVERY

    def _folded_root(self) -> Floats:
        """The root with what is pending taken in, a new array."""
        weight = self._pending_weight[: self._count]
        seen = np.flatnonzero(weight)  # not all, where all arms count as pending
        observed = self.root[self._pending[seen]]
        update = root_update(self.root, observed, 1.0 / weight[seen])
        return np.asarray(self.root - update.downdate @ observed)

    # --- asking ----------------------------------------------------------------------------

    def cross(self, left: Ints, right: Ints) -> Floats:
        """Covariance of these rows with those, (a, b), a new array."""
        # R Rᵀ − base (…)⁻¹ baseᵀ, where base (…)⁻¹ is columns × weight (see ``loops``).
        size = self._count
        roots = [self.root[left]]
        roots.append(roots[0] if right is left else self.root[right])
        cross: Floats = roots[0] @ roots[1].T
        if size:
            half = 0.5 * self._pending_weight[:size, None]
            base, columns = self._base[:size], self._pending_columns()
            cross -= base[:, left].T @ (half * columns[:, right])
            cross -= (half * columns[:, left]).T @ base[:, right]
        return cross

    def draw(self, normals: Floats, weight: Floats) -> Floats:
        """Joint draws about zero of all arms, (m, n), from normals (m, ``normals_per_draw``)."""
        self._drawn = True
        root, count = self.root, self._count
        if (
            count > PENDING
        ):  # drawn for the first time: there are too few normals for them
            root, count = self._folded_root(), 0
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
        """Rounds against a table of rewards (T, n), where :meth:`plays_with` this noise.

        Round t plays the arm of largest mean + width·std, or, with ``normals`` (T, …), of largest
        mean + width·(joint draw). Returns the arms (T,).
        """
        assert self._loops.play is not None
        choices = np.zeros(len(rewards), dtype=np.int64)
        table = np.empty((0, 0)) if normals is None else normals
        if normals is not None:
            self._drawn = True
        self._forget_whole()
        step = 0
        while step < len(rewards):
            room = max(PENDING, self._count)
            step = self._loops.play(
                self.root, self._base, self._columns, self._moments, totals, self._pending_weight,
                self._places, self._counts, room, rewards, widths, table, noise, choices, step,
            )  # fmt: skip
            if self._counts[1] <= 0:
                self._fold()
            elif step < len(
                rewards
            ):  # the arm of this round found no room among the pending
                self._make_room()
                row = choices.item(step)
                self.absorb_one(row, rewards.item(step, row), noise, totals)
                step += 1
        return choices


def _row_squares(root: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", root, root))
