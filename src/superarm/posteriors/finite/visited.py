"""The visited form of :class:`superarm.posteriors.FiniteGP`.

Notation

=============  ==================================================================
``E``, ``V``   all n arms; those observed so far, in the order of their first visit
``S``          the arms observed now, s of them
``K``          prior covariance; ``K_VE`` its rows of visited arms, (v, n)
``H``          (K_VV + diag(1/weight))⁻¹, (v, v)
=============  ==================================================================

What an observation costs is one product, (s, v) by (v, n), of which nothing but a strip of
columns is ever held. ``K_VE`` is by far the largest array. It is kept in blocks of rows, so that
it grows without being copied, and everything else is made in pieces that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.errors import (
    NotPositiveDefiniteError,
    PrecisionWarning,
    StateError,
    warn,
)
from superarm.core.inputs import as_count, as_features, as_positions, as_vector
from superarm.core.linalg import cholesky, solve_lower
from superarm.core.threads import blas_threads_for
from superarm.kernels import PriorRoot, prior_root
from superarm.posteriors.fixed import COUNT, INFORMATION, Totals
from superarm.posteriors.variances import check_left, prior_variance

from .batch import Batch

_SCHEMA = 1
LARGEST_SAVED = (
    1024  # visited arms whose H a state holds, 8 MB; of more it is computed anew
)
_COUNTED = ("updates", "refresh_at", "interval")
_DAMAGED = 1e-6  # difference, relative to the largest prior variance, that rounding does not make
_REFRESH_EVERY = 256
_LEAST_NOISE = 1e-4  # of the largest prior variance: with less, digits go within a few observations
_DRIFT_SMALL, _DRIFT_ALLOWED = 1e-11, 1e-9
_BLOCK_BYTES = 2**24  # size of a block of K_VE: what may lie unused at its end
_STRIP = 2048  # arms treated together, so that what is made of them stays in the cache
_PIECE_BYTES = (
    2**20
)  # of what a kernel is asked for at once: it takes several times that meanwhile


class _Rows:
    """Rows of length n, grown by blocks that are never copied."""

    def __init__(self, length: int) -> None:
        self.length = length
        largest = _BLOCK_BYTES // (8 * length)
        self.height = int(2 ** np.floor(np.log2(min(max(largest, 32), 256))))
        self.blocks: list[Floats] = []

    def write(self, at: int, rows: Floats) -> None:
        """Rows ``at`` and following; those before must have been written."""
        done = 0
        while done < len(rows):
            number, inside = divmod(at + done, self.height)
            if number == len(self.blocks):
                self.blocks.append(np.empty((self.height, self.length)))
            count = min(len(rows) - done, self.height - inside)
            self.blocks[number][inside : inside + count] = rows[done : done + count]
            done += count

    def parts(self, size: int) -> Iterator[tuple[int, int, Floats]]:
        """The first ``size`` rows, block by block: first row, the one behind the last, and a view."""
        for span, block in zip(_spans(size, self.height), self.blocks, strict=False):
            yield span.start, span.stop, block[: span.stop - span.start]

    def row(self, number: int) -> Floats:
        """One row, a view."""
        block, inside = divmod(number, self.height)
        found: Floats = self.blocks[block][inside]
        return found

    def take(self, rows: Ints, columns: Ints) -> Floats:
        """(len(rows), len(columns)) of the entries where they cross."""
        taken = np.empty((len(rows), len(columns)))
        numbers, inside = np.divmod(rows, self.height)
        for number in np.unique(numbers):
            here = np.flatnonzero(numbers == number)
            taken[here] = self.blocks[number][inside[here, None], columns]
        return taken


class VisitedEngine:
    """P = K − K_EV H K_VE over the arms visited so far; columns of K are made on demand.

    Its methods do what those of :class:`~superarm.posteriors.finite.root.RootEngine` do.
    """

    kind = "visited-engine"

    def __init__(self, kernel: Covariance, arms: Floats, mean: Floats) -> None:
        self.tolerance = 0.0
        self._kernel, self._arms = kernel, arms
        self.mean = mean.copy()
        self.variance = prior_variance(kernel, arms)
        self._prior_mean, self._prior_variance = mean.copy(), self.variance.copy()
        self.least_noise = _LEAST_NOISE * float(self.variance.max())
        self._visited = np.empty(0, dtype=np.intp)
        self._came: list[
            int
        ] = []  # how many arms came at once: kernels may round by that
        self._slot = np.full(len(arms), -1, dtype=np.intp)  # where an arm stands in V
        self._rows = _Rows(len(arms))  # K_VE
        self._precision = np.empty((0, 0))  # H in its corner, 0 beside it
        self._updates = 0
        self._refresh_at = self._interval = 8
        self._warned = False
        self._unsaid: str | None = None  # said before the next observation is taken in

    def __getstate__(self) -> dict[str, Any]:
        return dict(
            vars(self)
        )  # a copy of it: another thread may be filling in what is lazy

    def moments(self) -> tuple[Floats, Floats]:
        return self.mean.copy(), np.sqrt(self.variance)

    def as_totals(self, totals: Totals) -> Totals:
        return np.array(totals)

    @property
    def rank(self) -> int:
        return len(self._visited)

    def absorb_one(self, row: int, reward: float, noise: float, totals: Floats) -> None:
        """:meth:`absorb` of one arm, with vectors in place of matrices of one row."""
        self._say_unsaid()
        slot, size = self._slot.item(row), len(self._visited)
        if slot < 0:
            self.absorb(Batch.of_one(row, reward, noise, len(self._arms)), totals)
            self.maintain(totals)
            return
        Q = self._precision[slot, :size] / totals.item(row)
        covariance = self._rows.row(slot)[self._visited]  # K_SV
        total = float(Q.dot(covariance)) + noise
        deviation = math.sqrt(total)
        B = np.zeros(len(self._precision))
        B[:size] = Q / deviation
        W = np.empty_like(self.mean)
        for strip in _spans(len(W), _STRIP):
            W[strip] = self._product(B[:size], strip)
        mean = self.mean + W * ((reward - self.mean.item(row)) / deviation)
        np.multiply(W, W, out=W)
        variance = np.subtract(self.variance, W, out=W)
        if not variance.item(variance.argmin()) >= 0.0:
            check_left(variance, float(self._prior_variance.max()))
            np.maximum(variance, 0.0, out=variance)
        n = len(mean)
        gained = 0.5 * math.log(total / noise)
        dger, _ = _blas()
        try:  # from here on nothing can fail, and interrupts wait: see ``loops.py``
            dger(1.0, B, B, 1, 1, self._precision.T, 1, 1, 1)
        finally:
            self.mean = mean
            self.variance = variance
            totals[row] += 1.0 / noise
            totals[n + row] += reward / noise
            totals[INFORMATION] += gained
            totals[COUNT] += 1.0
        self.maintain(totals)

    def _say_unsaid(self) -> None:
        message, self._unsaid = self._unsaid, None
        if message is not None:
            # Found after the last observation, when it was too late: a user who turns warnings into
            # errors may observe the same once more, because after an error a posterior is what it was.
            warn(message, PrecisionWarning)

    def absorb(self, batch: Batch, totals: Floats) -> None:
        # Q = I_S − K_SV H, C = chol(Q K_VS + D), B = C⁻¹Q, W = B K_VE, z = C⁻¹(y − m_S);
        # H gains BᵀB. For an arm seen before, Q is H's own row over its weight, because
        # (K_VV + diag(1/weight)) H = I: the same number without its cancellation.
        self._say_unsaid()
        rows, rewards, noise, added = batch
        weight = totals[: len(self._arms)]
        fresh = rows[self._slot[rows] < 0]
        used, size = len(self._visited), len(self._visited) + len(fresh)
        visited = np.concatenate([self._visited, fresh])
        precision = self._with_room(size)
        self._write_rows(used, fresh)  # beyond what is in use: nothing has changed yet
        slots = self._slot[rows].copy()
        slots[slots < 0] = np.arange(used, size)
        H = precision[:size, :size]  # a view
        K_SV = self._rows.take(slots, visited)
        seen = weight[rows] > 0.0
        Q = H[slots]
        Q[seen] /= weight[rows[seen], None]
        Q[~seen] = -(K_SV[~seen, :used] @ H[:used])
        Q[~seen, slots[~seen]] += 1.0
        C = cholesky(Q @ K_SV.T + np.diag(noise), "the covariance of the observed arms")
        B = np.zeros((len(rows), len(precision)))
        B[:, :size] = solve_lower(C, Q)
        z = solve_lower(C, rewards - self.mean[rows])
        mean, variance = self.mean.copy(), self.variance.copy()
        for strip in _spans(len(mean), _STRIP):
            W = self._product(B[:, :size], strip)
            mean[strip] += z @ W
            variance[strip] -= np.einsum("ij,ij->j", W, W)
        if not variance.min() >= 0.0:
            check_left(variance, float(self._prior_variance.max()))
            np.maximum(variance, 0.0, out=variance)
        added[INFORMATION] = float(
            np.log(np.diagonal(C)).sum() - 0.5 * np.log(noise).sum()
        )
        came = [*self._came, len(fresh)] if len(fresh) else self._came
        places = np.arange(used, size)
        _, dgemm = _blas()
        try:  # from here on nothing can fail, and interrupts wait: see ``loops.py``
            dgemm(1.0, B.T, B, 1.0, precision.T, 0, 0, 1)
        finally:
            self.mean = mean
            self.variance = variance
            self._slot[fresh] = places
            self._visited = visited
            self._came = came
            self._precision = precision
            totals += added

    def _write_rows(self, at: int, fresh: Ints) -> None:
        """K_VE of fresh arms."""
        for part in _spans(len(fresh), max(1, _PIECE_BYTES // (8 * len(self._arms)))):
            self._rows.write(
                at + part.start, self._kernel(self._arms[fresh[part]], self._arms)
            )

    def _product(self, left: Floats, strip: slice) -> Floats:
        """``left`` (s, k) or (k,) times the first k rows of K_VE, for a strip of arms."""
        parts = self._rows.parts(left.shape[-1])
        _, stop, rows = next(parts)
        W: Floats = left[..., :stop] @ rows[:, strip]
        for start, stop, rows in parts:
            W += left[..., start:stop] @ rows[:, strip]
        return W

    def _with_room(self, size: int) -> Floats:
        """A larger array for H if it needs one, with zeros for fresh arms."""
        held = len(self._precision)
        if size <= held:
            return self._precision
        capacity = max(64, held + min(held // 4, 128), size)
        precision = np.zeros((capacity, capacity))
        precision[:held, :held] = self._precision
        return precision

    # --- clearing rounding -----------------------------------------------------------------

    def maintain(self, totals: Floats) -> None:
        # H grows by sums whose rounding it then multiplies: solve afresh before that shows.
        self._updates += 1
        if self._updates < self._refresh_at:
            return
        visited, size, n = self._visited, len(self._visited), len(self._arms)
        noise = 1.0 / totals[visited]
        try:
            half = self._inverse_factor(
                noise
            )  # L⁻¹ of K_VV + noise = L Lᵀ, so that H = L⁻ᵀL⁻¹
        except NotPositiveDefiniteError as problem:
            # The observation is in and counted, and nothing is wrong but what rounding has done.
            self._refresh_at = self._updates + self._interval
            self._unsaid = f"the visited form cannot clear its rounding: {problem}"
            return
        residual = totals[n + visited] * noise - self._prior_mean[visited]
        pull = half.T @ (half @ residual)
        mean = self._prior_mean.copy()
        for start, stop, rows in self._rows.parts(size):
            mean += pull[start:stop] @ rows
        variance = self._prior_variance.copy()
        for strip in _spans(n, max(1, _STRIP // 4)):  # whole blocks of rows at once
            variance[strip] -= self._explained(half, strip)
        np.maximum(variance, 0.0, out=variance)
        # In place, to save memory. Where an interrupt stops it, some rows have more correct digits.
        for part in _spans(size, 128):  # H's rows; below them L⁻¹ alone counts
            self._precision[part, :size] = (
                half[part.start :, part].T @ half[part.start :]
            )
        carried = self.mean
        self.mean = mean
        self.variance = variance
        self._report_drift(carried)

    def _inverse_factor(self, noise: Floats) -> Floats:
        """L⁻¹ with L Lᵀ = K_VV + diag(noise), lower triangular; one array of v² numbers is made."""
        from scipy.linalg.lapack import dpotrf, dtrtri

        size = len(self._visited)
        matrix = np.empty((size, size))
        for start, stop, rows in self._rows.parts(size):
            matrix[start:stop] = rows[:, self._visited]
        matrix[np.diag_indices_from(matrix)] += noise
        # Read by LAPACK it is the transpose: its upper triangle is our lower one.
        with blas_threads_for(size**3 / 3):
            factor, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=1)
            if failed or not np.isfinite(factor.trace()):  # NaN may pass
                raise NotPositiveDefiniteError(
                    "the covariance of the visited arms has no factor"
                )
            return np.asarray(dtrtri(factor, lower=0, overwrite_c=1)[0].T)

    def _explained(self, half: Floats, strip: slice) -> Floats:
        """Column sums of (L⁻¹ K_VE)² over a strip; L⁻¹ is lower triangular."""
        total = np.zeros(strip.stop - strip.start)
        for start, stop, _ in self._rows.parts(len(half)):
            W = self._product(half[start:stop, :stop], strip)
            total += np.einsum("ij,ij->j", W, W)
        return total

    def _report_drift(self, carried: Floats) -> None:
        """How far the mean had drifted from a fresh solve: say so, once, if digits were lost."""
        prior_std = float(np.sqrt(np.max(self._prior_variance)))
        scale = max(prior_std, float(np.max(np.abs(self.mean)))) or 1.0
        drift = float(np.max(np.abs(carried - self.mean))) / scale
        # Seldom while all is well, often where digits go fast.
        self._interval = (
            min(2 * self._interval, _REFRESH_EVERY) if drift < _DRIFT_SMALL else 8
        )
        self._refresh_at = self._updates + self._interval
        if drift > _DRIFT_ALLOWED and not self._warned:
            self._warned = True
            self._unsaid = (
                f"the visited form had drifted by {drift:.0e} of the largest mean: with so "
                "little noise the visited arms' covariance is nearly singular; use form='root'"
            )

    # --- state -----------------------------------------------------------------------------

    def state(self) -> State | None:
        """All that is kept but K_VE, which the kernel makes again; ``None`` where it is too much."""
        size = len(self._visited)
        if size > LARGEST_SAVED:
            return None
        arrays: dict[str, NDArray[Any]] = {
            **{"visited": self._visited, "came": np.array(self._came, dtype=np.intp)},
            **{"mean": self.mean, "variance": self.variance, "probe": self._probe},
            "precision": self._precision[:size, :size],
        }
        scalars = {name: getattr(self, f"_{name}") for name in _COUNTED}
        scalars["capacity"] = len(self._precision)
        copies = {name: array.copy() for name, array in arrays.items()}
        return State(kind=self.kind, schema=_SCHEMA, scalars=scalars, arrays=copies)

    @property
    def _probe(self) -> Floats:
        """By this a state knows whether it belongs to the same prior."""
        prior = np.stack([self._prior_mean, self._prior_variance])
        return np.asarray(prior @ np.cos(np.arange(len(self._arms))))

    def resume(self, state: State, weight: Floats) -> bool:
        """Go on from this state, bit for bit; ``False``, and nothing is done, if its prior is another.

        ``weight`` is Σ 1/noise of every arm's observations, (n,).
        """
        state.require(self.kind, _SCHEMA, "the visited form")
        n, known = len(self._arms), self._probe
        mean = as_vector(state.array("mean"), "mean", n).copy()
        variance = as_vector(state.array("variance"), "variance", n).copy()
        probe = as_vector(state.array("probe"), "probe", 2)
        visited = as_positions(state.array("visited"), "visited").copy()
        size, came = len(visited), as_positions(state.array("came"), "came").tolist()
        H = as_features(state.array("precision"), "precision", size)
        count_text = {name: as_count(state.scalar(name), name, 0) for name in _COUNTED}
        capacity = as_count(
            state.scalar("capacity"), "capacity", size, max(64, size + 128)
        )
        possible = (
            np.array_equal(np.sort(visited), np.flatnonzero(weight)) and len(H) == size
        )
        possible &= (
            sum(came) == size and min(came, default=1) > 0 and variance.min() >= 0.0
        )
        if not possible:
            raise StateError(
                "this state is damaged: it holds impossible values for the visited form"
            )
        if not np.allclose(
            probe, known, rtol=1e-9, atol=1e-9 * n * float(np.abs(known).max())
        ):
            return False
        rows, self._rows = self._rows, _Rows(n)
        at = 0
        for count in came:
            self._write_rows(at, visited[at : at + count])
            at += count
        K = self._rows.take(np.arange(size), visited)
        explained = np.einsum("ij,ij->i", K @ H, K)
        largest = float(self._prior_variance.max())
        left = self._prior_variance[visited] - explained - variance[visited]
        if np.abs(left).max(initial=0.0) > _DAMAGED * largest:
            self._rows = rows
            return False
        self.mean, self.variance, self._visited, self._came = (
            mean,
            variance,
            visited,
            came,
        )
        self._slot[visited] = np.arange(size)
        self._precision = np.zeros((capacity, capacity))
        self._precision[:size, :size] = H
        self._updates, self._refresh_at, self._interval = (
            count_text[name] for name in _COUNTED
        )
        return True

    # --- joint draws -----------------------------------------------------------------------

    def cross(self, left: Ints, right: Ints) -> Floats:
        size, n = len(self._visited), len(self._arms)
        if right is left or 2 * len(right) < n:
            own = right is left
            K = np.array(
                self._kernel(self._arms[left], None if own else self._arms[right])
            )
            if size:
                everyone = np.arange(size)
                K_VR = self._rows.take(everyone, right)
                K_VL = K_VR if own else self._rows.take(everyone, left)
                K -= K_VL.T @ self._precision[:size, :size] @ K_VR
            return K
        # Many columns: whole rows of K, those of visited arms as they are kept.
        K = np.empty((len(left), n))
        slots = self._slot[left]
        fresh = np.flatnonzero(slots < 0)
        for part in _spans(len(fresh), max(1, _PIECE_BYTES // (8 * n))):
            K[fresh[part]] = self._kernel(self._arms[left[fresh[part]]], self._arms)
        if size:
            seen = np.flatnonzero(slots >= 0)
            K[seen] = self._rows.take(slots[seen], np.arange(n))
            pull = K[:, self._visited] @ self._precision[:size, :size]
            for start, stop, rows in self._rows.parts(size):
                K -= pull[:, start:stop] @ rows
        return (
            K
            if len(right) == n and np.array_equal(right, np.arange(n))
            else K[:, right]
        )

    @property
    def normals_per_draw(self) -> int:
        return self._root.normals + len(self._arms)

    @cached_property
    def _root(self) -> PriorRoot:
        advice = "draw every arm from its own mean and standard deviation"
        root = prior_root(self._kernel, self._arms, advice)
        self.tolerance = (
            root.tolerance
        )  # of draws: means and variances have no part in it
        return root

    def draw(self, normals: Floats, weight: Floats) -> Floats:
        """Pathwise: a prior draw u, corrected where arms were visited: u − K_EV H (u_V + ε)."""
        used, count = self._root.normals, len(self._visited)
        drawn = self._root.times(normals[:, :used])
        if count:
            # Every arm has a normal of its own: draws must not depend on who was visited first.
            noise = normals[:, used + self._visited] / np.sqrt(weight[self._visited])
            pull = (drawn[:, self._visited] + noise) @ self._precision[:count, :count]
            for start, stop, rows in self._rows.parts(count):
                drawn -= pull[:, start:stop] @ rows
        return drawn


@cache
def _blas() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from scipy.linalg.blas import dgemm, dger

    return dger, dgemm


def _spans(size: int, width: int) -> Iterator[slice]:
    """0 … ``size`` in pieces of ``width``."""
    for start in range(0, size, width):
        yield slice(start, min(start + width, size))
