"""The visited form of :class:`superarm.posteriors.FiniteGP`.

Notation

=============  ==================================================================
``E``, ``V``   all n arms; those observed so far, in the order of their first visit
``S``          the arms observed now, s of them
``K``          prior covariance; ``K_VE`` its rows of visited arms, (v, n)
``H``          (K_VV + diag(1/weight))⁻¹, (v, v)
``P``          the posterior covariance, K − K_EV H K_VE
=============  ==================================================================

An observation costs one product, (s, v) by (v, n), computed in strips of columns. ``K_VE`` is by
far the largest array. It is stored in blocks of rows, so that it grows without being copied;
everything else is computed in pieces that stay in the cache.

Arms that were chosen and not yet observed condition every belief, which takes their rows of P. Where
several decisions await rewards, these rows are stored, and every observation updates them. The rewards
of such arms are then learned without that product: W = C⁻¹ P_SE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.caching import cached_property
from superarm.core.errors import (
    NotPositiveDefiniteError,
    PrecisionWarning,
    warn,
)
from superarm.core.linalg import cholesky, solve_lower, solve_lower_in_place
from superarm.core.threads import blas_threads_for
from superarm.kernels import PriorRoot, prior_root
from superarm.posteriors.fixed import COUNT, INFORMATION, Totals
from superarm.posteriors.variances import check_posterior_variance, prior_variance

from .batch import Batch
from .block_rows import BlockRows, spans
from .expected_rows import ExpectedRows
from .saved_visited import SavedVisited

_SCHEMA = 1
# Visited arms whose H a state holds, 8 MB; for more it is computed again.
LARGEST_SAVED = 1024
# Difference, relative to the largest prior variance, that is too large for rounding.
_DAMAGED = 1e-6
# Numbers in the rows of expected rewards that a state holds, 16 MB; others are computed again.
_MOST_SAVED_NUMBERS = 2**21
# Noise, relative to the largest prior variance, below which digits go within a few observations.
_LEAST_NOISE = 1e-4
# Observations between two fresh solutions: at first, or where digits go fast, and at most.
_FIRST_REFRESH = 8
_REFRESH_EVERY = 256
# Relative drift of the mean, up to which the interval doubles, and beyond which a warning is due.
_DRIFT_SMALL = 1e-11
_DRIFT_ALLOWED = 1e-9
# Arms treated together, so that intermediate results stay in the cache.
_STRIP = 2048
# Covariances that a kernel computes at once; meanwhile it takes several times that.
_PIECE_BYTES = 2**20


class _ArmsAfter(NamedTuple):
    """What an observation changes for all arms."""

    mean: Floats  # (n,)
    variance: Floats  # (n,)
    expected: ExpectedRows


class VisitedEngine:
    """P = K − K_EV H K_VE over the arms visited so far; columns of K are computed on demand.

    Its methods do what those of :class:`~superarm.posteriors.finite.root.RootEngine` do.
    """

    kind = "visited-engine"

    def __init__(self, kernel: Covariance, arms: Floats, mean: Floats) -> None:
        self.tolerance = 0.0
        self._kernel = kernel
        self._arms = arms  # (n, d)
        self.mean = mean.copy()  # (n,)
        self.variance = prior_variance(kernel, arms)  # (n,)
        self._prior_mean = mean.copy()
        self._prior_variance = self.variance.copy()
        self.least_noise = _LEAST_NOISE * float(self.variance.max())
        self._visited = np.empty(0, dtype=np.intp)  # V
        # How many arms were added at once, each time: a kernel's rounding may depend on it.
        self._batch_sizes: list[int] = []
        self._slot = np.full(len(arms), -1, dtype=np.intp)  # the place of an arm in V
        self._rows = BlockRows(len(arms))  # K_VE
        self._precision = np.empty((0, 0))  # H in its corner, 0 beside it
        self._expected = ExpectedRows.none(len(arms))
        self._updates = 0
        self._interval = _FIRST_REFRESH
        self._refresh_at = _FIRST_REFRESH
        self._warned = False
        self._late_warning: str | None = None  # for the next observation

    def __getstate__(self) -> dict[str, Any]:
        # A copy: another thread may be computing a cached property.
        return dict(vars(self))

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (n,) each, new arrays."""
        return self.mean.copy(), np.sqrt(self.variance)

    def as_totals(self, totals: Totals) -> Totals:
        """Totals in the type that :meth:`absorb` and :meth:`absorb_one` need.

        Args:
            totals: The totals of the posterior, (2n + 2,).
        """
        return np.array(totals)

    @property
    def rank(self) -> int:
        """Number of visited arms."""
        return len(self._visited)

    # --- learning --------------------------------------------------------------------------

    def absorb_one(self, row: int, reward: float, noise: float, totals: Floats) -> None:
        """Learn one reward of an arm and count it in the totals: vectors instead of matrices.

        Args:
            row: Row number of the arm.
            reward: The reward.
            noise: Its noise variance.
            totals: The totals of the posterior.
        """
        self._warn_late()
        n = len(self._arms)
        slot = self._slot.item(row)
        if slot < 0:
            batch = Batch.of_one(row, reward, noise, n)
            self.absorb(batch, totals)
            self.maintain(totals)
            return
        # As in ``absorb``, for an arm seen before.
        size = len(self._visited)
        weight = totals.item(row)
        Q = self._precision[slot, :size] / weight
        K_SV = self._rows.row(slot)[self._visited]
        total = float(Q.dot(K_SV)) + noise
        std = math.sqrt(total)
        B = np.zeros(len(self._precision))
        B[:size] = Q / std
        W = np.empty_like(self.mean)
        for strip in spans(n, _STRIP):
            W[strip] = self._product(B[:size], strip)
        expected = self._expected
        if len(expected.arms):
            expected = expected.after(W)
        innovation = (reward - self.mean.item(row)) / std
        mean = self.mean + W * innovation
        np.multiply(W, W, out=W)
        variance = np.subtract(self.variance, W, out=W)
        if not variance.item(variance.argmin()) >= 0.0:
            self._clip_variance(variance)
        information = 0.5 * math.log(total / noise)
        dger, _ = _blas()
        try:  # from here on nothing can fail, and interrupts wait: see ``loops.py``
            dger(1.0, B, B, 1, 1, self._precision.T, 1, 1, 1)
        finally:
            self.mean = mean
            self.variance = variance
            self._expected = expected
            totals[row] += 1.0 / noise
            totals[n + row] += reward / noise
            totals[INFORMATION] += information
            totals[COUNT] += 1.0
        self.maintain(totals)

    def _warn_late(self) -> None:
        """Give the warning that was due after the last observation.

        It came too late then: a user who turns warnings into errors may observe the same again, because
        after an error a posterior is what it was.
        """
        message = self._late_warning
        self._late_warning = None
        if message is not None:
            warn(message, PrecisionWarning)

    def absorb(self, batch: Batch, totals: Floats) -> None:
        """Learn from distinct arms and count it in the totals, all or nothing.

        Args:
            batch: The observations.
            totals: The totals of the posterior.
        """
        # Q = I_S − K_SV H, C = chol(Q K_VS + D), B = C⁻¹Q, W = B K_VE, z = C⁻¹(y − m_S);
        # H gains BᵀB.
        self._warn_late()
        rows, rewards, noise, added = batch
        new_arms = rows[self._slot[rows] < 0]
        old_size = len(self._visited)
        size = old_size + len(new_arms)
        visited = np.concatenate([self._visited, new_arms])
        precision = self._with_room(size)
        # Beyond the rows in use, so that nothing has changed yet.
        self._write_rows(old_size, new_arms)
        new_slots = np.arange(old_size, size)
        slots = self._slot[rows].copy()
        slots[slots < 0] = new_slots
        H = precision[:size, :size]  # a view
        K_SV = self._rows.take(slots, visited)
        weight = totals[rows]
        Q = self._residual_weights(H, K_SV, slots, weight, old_size)
        covariance = Q @ K_SV.T + np.diag(noise)
        C = cholesky(covariance, "the covariance of the observed arms")
        B = np.zeros((len(rows), len(precision)))
        B[:, :size] = solve_lower(C, Q)
        z = solve_lower(C, rewards - self.mean[rows])
        after = self._arms_after(rows, C, B[:, :size], z)
        log_root_determinant = np.log(np.diagonal(C)).sum()
        information = log_root_determinant - 0.5 * np.log(noise).sum()
        added[INFORMATION] = float(information)
        batch_sizes = self._batch_sizes
        if len(new_arms):
            batch_sizes = [*batch_sizes, len(new_arms)]
        _, dgemm = _blas()
        try:  # from here on nothing can fail, and interrupts wait: see ``loops.py``
            dgemm(1.0, B.T, B, 1.0, precision.T, 0, 0, 1)
        finally:
            self.mean = after.mean
            self.variance = after.variance
            self._slot[new_arms] = new_slots
            self._visited = visited
            self._batch_sizes = batch_sizes
            self._precision = precision
            self._expected = after.expected
            totals += added

    def _arms_after(self, rows: Ints, C: Floats, B: Floats, z: Floats) -> _ArmsAfter:
        """Moments of all arms and rows of P after an observation, as new arrays.

        Args:
            rows: S, (s,).
            C: The Cholesky factor of P_SS + noise, (s, s).
            B: What multiplies K_VE in W = C⁻¹ P_SE, (s, v).
            z: C⁻¹ (rewards − mean), (s,).
        """
        mean = self.mean.copy()
        variance = self.variance.copy()
        expected = self._expected
        if len(expected.arms):
            if expected.include(rows):
                W = solve_lower_in_place(C, expected.take(rows))  # C⁻¹ P_SE
            else:
                W = self._product(B, slice(None))
            mean += z @ W
            variance -= np.einsum("ij,ij->j", W, W)
            expected = expected.after(W)
        else:
            for strip in spans(len(mean), _STRIP):
                W = self._product(B, strip)
                mean[strip] += z @ W
                variance[strip] -= np.einsum("ij,ij->j", W, W)
        if not variance.min() >= 0.0:
            self._clip_variance(variance)
        return _ArmsAfter(mean, variance, expected)

    def _clip_variance(self, variance: Floats) -> None:
        """Raise negative variances to 0, in place; an error where they are more than rounding."""
        largest = float(self._prior_variance.max())
        check_posterior_variance(variance, largest)
        np.maximum(variance, 0.0, out=variance)

    @staticmethod
    def _residual_weights(
        H: Floats, K_SV: Floats, slots: Ints, weight: Floats, old_size: int
    ) -> Floats:
        """Q = I_S − K_SV H, (s, v).

        For an arm seen before, Q is the arm's row of H over its weight, because
        (K_VV + diag(1/weight)) H = I: the same number without its cancellation.
        """
        seen = weight > 0.0
        new = ~seen
        Q = H[slots]
        Q[seen] /= weight[seen, None]
        covariances = K_SV[new, :old_size]
        Q[new] = -(covariances @ H[:old_size])
        Q[new, slots[new]] += 1.0
        return Q

    def _write_rows(self, first: int, arms: Ints) -> None:
        """Write the rows of K_VE for these arms, from row ``first`` on."""
        for part in spans(len(arms), self._rows_at_once):
            features = self._arms[arms[part]]
            covariances = self._kernel(features, self._arms)
            self._rows.write(first + part.start, covariances)

    @property
    def _rows_at_once(self) -> int:
        """Rows of K that are computed in one call of the kernel."""
        row_bytes = 8 * len(self._arms)
        return max(1, _PIECE_BYTES // row_bytes)

    def _product(self, left: Floats, strip: slice) -> Floats:
        """``left`` (s, k) or (k,) times the first k rows of K_VE, for a strip of arms."""
        size = left.shape[-1]
        parts = self._rows.parts(size)
        _, stop, rows = next(parts)
        W: Floats = left[..., :stop] @ rows[:, strip]
        for start, stop, rows in parts:
            coefficients = left[..., start:stop]
            W += coefficients @ rows[:, strip]
        return W

    def _with_room(self, size: int) -> Floats:
        """The array of H, or a larger one if needed, with zeros for new arms."""
        old_capacity = len(self._precision)
        if size <= old_capacity:
            return self._precision
        growth = min(old_capacity // 4, 128)
        capacity = max(64, old_capacity + growth, size)
        precision = np.zeros((capacity, capacity))
        precision[:old_capacity, :old_capacity] = self._precision
        return precision

    # --- expected rewards ------------------------------------------------------------------

    @property
    def expected(self) -> Ints:
        """Row numbers of the arms whose rows of P are stored, (k,)."""
        return self._expected.arms

    def expect(self, arms: Ints, rows: Floats) -> None:
        """Store rows of P and update them with every observation, in place of those stored so far.

        Args:
            arms: Distinct row numbers of arms, (k,).
            rows: Their covariances with all arms, from :meth:`cross`, (k, n).
        """
        self._expected = ExpectedRows.of(arms, rows)

    # --- clearing rounding -----------------------------------------------------------------

    def maintain(self, totals: Floats) -> None:
        """Solve again now and then, before the rounding in H shows.

        H grows by sums, and multiplies their rounding.

        Args:
            totals: The totals of the posterior.
        """
        self._updates += 1
        if self._updates < self._refresh_at:
            return
        visited = self._visited
        size = len(visited)
        n = len(self._arms)
        noise = 1.0 / totals[visited]
        try:
            # L⁻¹ of K_VV + noise = L Lᵀ, so that H = L⁻ᵀL⁻¹.
            L_inverse = self._inverse_factor(noise)
        except NotPositiveDefiniteError as problem:
            # The observation is learned and counted; only rounding is wrong.
            self._refresh_at = self._updates + self._interval
            self._late_warning = (
                f"the visited form cannot clear its rounding: {problem}"
            )
            return
        mean_rewards = totals[n + visited] * noise
        residual = mean_rewards - self._prior_mean[visited]
        coefficients = L_inverse.T @ (L_inverse @ residual)
        mean = self._prior_mean.copy()
        for start, stop, rows in self._rows.parts(size):
            mean += coefficients[start:stop] @ rows
        variance = self._prior_variance.copy()
        for strip in spans(n, max(1, _STRIP // 4)):  # entire blocks of rows at once
            variance[strip] -= self._explained(L_inverse, strip)
        np.maximum(variance, 0.0, out=variance)
        # In place, to save memory. After an interrupt, some rows have more correct digits.
        for part in spans(size, 128):  # rows of H; L⁻¹ is 0 above its diagonal
            below = L_inverse[part.start :]
            columns = below[:, part]
            self._precision[part, :size] = columns.T @ below
        old_mean = self.mean
        self.mean = mean
        self.variance = variance
        # Their rounding has grown as that of H.
        self._expected = ExpectedRows.none(n)
        self._check_drift(old_mean)

    def _inverse_factor(self, noise: Floats) -> Floats:
        """L⁻¹ with L Lᵀ = K_VV + diag(noise), lower triangular, in one array of v² numbers."""
        from scipy.linalg.lapack import dpotrf, dtrtri

        size = len(self._visited)
        matrix = np.empty((size, size))
        for start, stop, rows in self._rows.parts(size):
            matrix[start:stop] = rows[:, self._visited]
        matrix[np.diag_indices_from(matrix)] += noise
        # LAPACK reads the transpose: its upper triangle is our lower one.
        transposed = matrix.T
        with blas_threads_for(size**3 / 3):
            factor, failed = dpotrf(transposed, lower=0, overwrite_a=1, clean=1)
            is_finite = np.isfinite(factor.trace())  # NaN may pass
            if failed or not is_finite:
                raise NotPositiveDefiniteError(
                    "the covariance of the visited arms has no factor"
                )
            inverse, _ = dtrtri(factor, lower=0, overwrite_c=1)
            return np.asarray(inverse.T)

    def _explained(self, L_inverse: Floats, strip: slice) -> Floats:
        """Column sums of (L⁻¹ K_VE)² over a strip; L⁻¹ is lower triangular."""
        width = strip.stop - strip.start
        total = np.zeros(width)
        for start, stop, _ in self._rows.parts(len(L_inverse)):
            nonzero = L_inverse[start:stop, :stop]
            W = self._product(nonzero, strip)
            total += np.einsum("ij,ij->j", W, W)
        return total

    def _check_drift(self, old_mean: Floats) -> None:
        """Set when to solve again, by how far the mean had drifted; warn once if digits were lost."""
        largest_variance = np.max(self._prior_variance)
        prior_std = float(np.sqrt(largest_variance))
        largest_mean = float(np.max(np.abs(self.mean)))
        scale = max(prior_std, largest_mean) or 1.0
        changes = np.abs(old_mean - self.mean)
        drift = float(np.max(changes)) / scale
        # Rarely while all is well, often where digits go fast.
        if drift < _DRIFT_SMALL:
            self._interval = min(2 * self._interval, _REFRESH_EVERY)
        else:
            self._interval = _FIRST_REFRESH
        self._refresh_at = self._updates + self._interval
        if drift > _DRIFT_ALLOWED and not self._warned:
            self._warned = True
            self._late_warning = (
                f"the visited form had drifted by {drift:.0e} of the largest mean: with so "
                "little noise the visited arms' covariance is nearly singular; use form='root'"
            )

    # --- state -----------------------------------------------------------------------------

    @property
    def is_saved_completely(self) -> bool:
        """Whether a state holds H and the rows of expected rewards."""
        return len(self._visited) <= LARGEST_SAVED and self._saves_rows

    @property
    def _saves_rows(self) -> bool:
        return self._expected.rows.size <= _MOST_SAVED_NUMBERS

    def state(self) -> State | None:
        """All that the engine holds except K_VE, which the kernel gives; ``None`` if it is too much."""
        size = len(self._visited)
        if size > LARGEST_SAVED:
            return None
        scalars = {
            "updates": self._updates,
            "refresh_at": self._refresh_at,
            "interval": self._interval,
            "capacity": len(self._precision),
        }
        arrays: dict[str, NDArray[Any]] = {
            "visited": self._visited.copy(),
            "came": np.array(self._batch_sizes, dtype=np.intp),
            "mean": self.mean.copy(),
            "variance": self.variance.copy(),
            "probe": self._probe,
            "precision": self._precision[:size, :size].copy(),
        }
        expected = self._expected
        if len(expected.arms) and self._saves_rows:
            arrays["expected"] = expected.arms
            arrays["expected_rows"] = expected.rows
        return State(kind=self.kind, schema=_SCHEMA, scalars=scalars, arrays=arrays)

    @property
    def _probe(self) -> Floats:
        """Identifies the prior, so that a state is resumed only with the same one, (2,)."""
        prior = np.stack([self._prior_mean, self._prior_variance])
        weights = np.cos(np.arange(len(self._arms)))
        return np.asarray(prior @ weights)

    def resume(self, state: State, weight: Floats) -> bool:
        """Resume from a state, bit for bit; ``False``, without any change, if its prior is another.

        Args:
            state: What :meth:`state` returned.
            weight: Σ 1/noise of every arm's observations, (n,).
        """
        state.require(self.kind, _SCHEMA, "the visited form")
        saved = SavedVisited.read(state, weight)
        n = len(self._arms)
        own_probe = self._probe
        tolerance = 1e-9 * n * float(np.abs(own_probe).max())
        if not np.allclose(saved.probe, own_probe, rtol=1e-9, atol=tolerance):
            return False
        visited = saved.visited
        old_rows = self._rows
        self._rows = BlockRows(n)
        first = 0
        for count in saved.batch_sizes:
            new_arms = visited[first : first + count]
            self._write_rows(first, new_arms)
            first += count
        if not self._explains_variance(saved):
            self._rows = old_rows
            return False
        size = len(visited)
        self.mean = saved.mean
        self.variance = saved.variance
        self._visited = visited
        self._batch_sizes = saved.batch_sizes
        self._slot[visited] = np.arange(size)
        self._precision = np.zeros((saved.capacity, saved.capacity))
        self._precision[:size, :size] = saved.H
        self._expected = saved.expected
        self._updates = saved.updates
        self._refresh_at = saved.refresh_at
        self._interval = saved.interval
        return True

    def _explains_variance(self, saved: SavedVisited) -> bool:
        """Whether saved variances of visited arms are those that the saved H gives."""
        visited = saved.visited
        all_slots = np.arange(len(visited))
        K = self._rows.take(all_slots, visited)  # K_VV
        explained = np.einsum("ij,ij->i", K @ saved.H, K)
        expected = self._prior_variance[visited] - explained
        differences = np.abs(expected - saved.variance[visited])
        largest = float(self._prior_variance.max())
        largest_difference = differences.max(initial=0.0)
        return not largest_difference > _DAMAGED * largest

    # --- joint draws -----------------------------------------------------------------------

    def cross(self, left: Ints, right: Ints) -> Floats:
        """Covariance of some arms with others, (a, b), a new array.

        Args:
            left: Row numbers, (a,).
            right: Row numbers, (b,); the same object as ``left`` for a symmetric matrix.
        """
        n = len(self._arms)
        if right is left or 2 * len(right) < n:
            return self._cross_few(left, right)
        cross = self._cross_all(left)
        is_all = len(right) == n and np.array_equal(right, np.arange(n))
        return cross if is_all else cross[:, right]

    def _cross_few(self, left: Ints, right: Ints) -> Floats:
        """:meth:`cross` for few columns: entries of K_VE alone."""
        is_symmetric = right is left
        left_arms = self._arms[left]
        right_arms = None if is_symmetric else self._arms[right]
        cross = np.array(self._kernel(left_arms, right_arms))
        size = len(self._visited)
        if size:
            all_slots = np.arange(size)
            H = self._precision[:size, :size]
            K_VR = self._rows.take(all_slots, right)
            K_VL = K_VR if is_symmetric else self._rows.take(all_slots, left)
            cross -= K_VL.T @ H @ K_VR
        return cross

    def _cross_all(self, left: Ints) -> Floats:
        """:meth:`cross` with all arms: stored rows of P, where there are any."""
        places = self._expected.places[left]
        is_stored = places >= 0
        if not is_stored.any():
            return self._computed_rows(left)
        cross = np.empty((len(left), len(self._arms)))
        cross[is_stored] = self._expected.rows[places[is_stored]]
        cross[~is_stored] = self._computed_rows(left[~is_stored])
        return cross

    def _computed_rows(self, left: Ints) -> Floats:
        """Rows of P: entire rows of K, stored ones for visited arms, less what was learned."""
        n = len(self._arms)
        cross = np.empty((len(left), n))
        slots = self._slot[left]
        unseen = np.flatnonzero(slots < 0)
        for part in spans(len(unseen), self._rows_at_once):
            places = unseen[part]
            arms = left[places]
            cross[places] = self._kernel(self._arms[arms], self._arms)
        size = len(self._visited)
        if size:
            seen = np.flatnonzero(slots >= 0)
            seen_slots = slots[seen]
            cross[seen] = self._rows.take(seen_slots, np.arange(n))
            H = self._precision[:size, :size]
            coefficients = cross[:, self._visited] @ H
            for start, stop, rows in self._rows.parts(size):
                cross -= coefficients[:, start:stop] @ rows
        return cross

    @property
    def normals_per_draw(self) -> int:
        """Standard normals that a joint draw takes."""
        return self._root.normals + len(self._arms)

    @cached_property
    def _root(self) -> PriorRoot:
        advice = "draw every arm from its own mean and standard deviation"
        root = prior_root(self._kernel, self._arms, advice)
        # Of draws: means and variances do not use the root.
        self.tolerance = root.tolerance
        return root

    def draw(self, normals: Floats, weight: Floats) -> Floats:
        """Joint draws about zero of all arms, (m, n).

        Pathwise: a prior draw u, corrected where arms were visited: u − K_EV H (u_V + ε).

        Args:
            normals: Standard normals, (m, ``normals_per_draw``).
            weight: Σ 1/noise of every arm's observations, (n,).
        """
        used = self._root.normals
        draws = self._root.times(normals[:, :used])  # u
        visited = self._visited
        size = len(visited)
        if size:
            # Every arm has a normal of its own: draws must not depend on the order of visits.
            visited_normals = normals[:, used + visited]
            noise = visited_normals / np.sqrt(weight[visited])  # ε
            H = self._precision[:size, :size]
            coefficients = (draws[:, visited] + noise) @ H
            for start, stop, rows in self._rows.parts(size):
                draws -= coefficients[:, start:stop] @ rows
        return draws


@cache
def _blas() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from scipy.linalg.blas import dgemm, dger

    return dger, dgemm
