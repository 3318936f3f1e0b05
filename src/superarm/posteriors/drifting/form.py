"""What every form of :class:`superarm.posteriors.DriftingGP` shares.

Notation

=========  =======================================================================
``n, K``   arms and their prior covariance, (n, n), which is never built in full
``s, h``   size of the state of the kernel of time, and its output; ``A`` its transition
``τ``      the time of the form: z_τ(x), the state of arm x, has mean a(x), (s,), and
           covariance K ⊗ I − Λ; f_τ(x) = h·z_τ(x)
``Λ``      what was learned: W Wᵀ in folded form, (B ⊗ I) G (B ⊗ I)ᵀ in the others
``W``      (n·s, m)
``B``      (n, q): features of the kernel (kalman), or prior covariances with the arms
           visited so far (visited); ``e_x`` are the coordinates of k(·, x) in B, so that
           B e_x = K_x
``G``      (q·s, q·s); ``D`` noise variances
``c``      where s is 1, the decay of all stored numbers: a is c times the stored one, Λ is
           c² times the stored one, so that time changes only c
=========  =======================================================================

Time changes only Λ and the mean: after Δ they are A Λ Aᵀ and A a. Rewards of arms S at τ have
the covariance P_S + D, where P_S are rows of K ⊗ hhᵀ − (I ⊗ h)Λ(I ⊗ h)ᵀ; with
L = chol(P_SS + D), Λ gains the columns L⁻¹P_S, and the mean moves by these times
L⁻¹(y − h·a_S). The mean a and the (s, s) diagonal block of Λ of every arm are kept up to date,
so that a round costs one pass over W or B.

A form that a posterior has adopted never changes: new rewards go into its
:meth:`Form.successor`, which shares its arrays and writes only into rows that no other form
reads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.linalg import cholesky, shallow_copy, solve_lower
from superarm.core.threads import blas_threads_for
from superarm.kernels.state_space import StateSpace

from .prior_rows import PriorRows

FormName = Literal["folded", "visited", "kalman"]

# Bound on what may be dropped from any covariance, relative to the largest prior variance.
TRUNCATION = 1e-12
# The smallest c. Below it, c² would be too small to divide by.
LEAST_DECAY = 1e-50
# Rows for which a new matrix has room.
INITIAL_ROOM = 64
# Arms of one time that are learned at once.
_BLOCK = 512


class Watched(NamedTuple):
    """Rewards g = f_t(x) of some past moments, updated by everything learned since."""

    mean: Floats  # (p,), without the prior mean
    cov: Floats  # (p, p)
    cross_cov: Floats  # (p, s, n), with the state of every arm


class Form(ABC):
    """What is known at one time; see the module.

    Only ``pass_time``, ``observe`` and ``learn_one`` change a form. They set new arrays, and write
    into existing ones only beyond the rows in use.
    """

    name: ClassVar[FormName]

    def __init__(self, space: StateSpace, prior: PriorRows, n: int) -> None:
        s = len(space.output)
        self.space = space
        self.prior = prior
        self.time = -np.inf
        self._mean = np.zeros((s, n))  # a/c
        self._reduction = np.zeros((s, s, n))  # diagonal blocks of Λ/c²
        self._decay = 1.0  # c
        self.information = 0.0  # nats
        self.steps = 0  # different times so far
        self.error = 0.0  # bound on what was dropped from any covariance
        self.watched = Watched(
            mean=np.empty(0),
            cov=np.empty((0, 0)),
            cross_cov=np.empty((0, s, n)),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Size of the state of one arm and number of arms: (s, n)."""
        s, n = self._mean.shape
        return s, n

    @property
    def mean(self) -> Floats:
        """a, (s, n), a new array."""
        return self._decay * self._mean

    @property
    def reduction(self) -> Floats:
        """The diagonal blocks of Λ, (s, s, n), a new array."""
        return self._decay**2 * self._reduction

    def set_blocks(self, mean: Floats, reduction: Floats, decay: float = 1.0) -> None:
        """Set the stored mean and diagonal blocks, before Λ itself is set.

        Args:
            mean: a/c, (s, n).
            reduction: The diagonal blocks of Λ/c², (s, s, n).
            decay: c.
        """
        self._mean = mean
        self._reduction = reduction
        self._decay = decay

    @property
    @abstractmethod
    def rank(self) -> int:
        """Columns of the matrix in use."""

    # --- what each form does in its own way ------------------------------------------------

    @abstractmethod
    def _unscale_learned(self) -> None:
        """Store Λ itself; the caller sets c to 1 afterwards."""

    @abstractmethod
    def _transition_learned(self, A: Floats) -> None:
        """Replace Λ by A Λ Aᵀ, where s is above 1."""

    @abstractmethod
    def _coordinates(self, rows: Ints) -> Floats:
        """P_S in the form's own coordinates, (k, c), a new array."""

    @abstractmethod
    def _evaluate(self, coordinates: Floats, rows: Ints) -> Floats:
        """Covariances with these coordinates at these arms, (k, len(rows))."""

    @abstractmethod
    def _expand(self, coordinates: Floats) -> Floats:
        """Columns of Λ's root for every arm, (k, s, n)."""

    @abstractmethod
    def _append(self, coordinates: Floats, columns: Floats) -> None:
        """Add columns to Λ's root: in the form's own coordinates, and for every arm."""

    @abstractmethod
    def _coordinates_of_one(self, row: int, h: float) -> tuple[Floats, float]:
        """P of one arm in the form's own coordinates, (c,), a new array, and P at the arm itself."""

    @abstractmethod
    def _append_one(self, coordinates: Floats, factor: float) -> Floats:
        """Append coordinates times a factor; returns the column of Λ's root for every arm, (n,)."""

    @abstractmethod
    def _compress_if_due(self) -> None:
        """Make the matrices smaller, where they have grown too large. Called after learning."""

    @abstractmethod
    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        """Coordinates of g·z(x), (k, c).

        Args:
            rows: The arms x, (k,).
            outputs: g for each of them, (k, s).
        """

    @abstractmethod
    def explained(self, left: Floats, right: Floats) -> Floats:
        """Λ between two sets of roots, (k, m).

        Args:
            left: Roots, (k, c).
            right: Roots, (m, c).
        """

    # --- state and copies ------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for a saved state, as they are stored, so that a restart changes no bit."""
        s, n = self.shape
        return {"a": self._mean, "known": self._reduction.reshape(s * s, n)}

    def scalars(self) -> dict[str, float]:
        """Numbers for a saved state."""
        return {
            "time": self.time,
            "steps": self.steps,
            "error": self.error,
            "left": self._decay,
        }

    @abstractmethod
    def resume(self, state: State) -> bool:
        """Resume from a state; ``False`` if its numbers refer to another basis than this form's.

        Args:
            state: A state with what :meth:`arrays` and :meth:`scalars` returned.
        """

    def successor(self) -> Self:
        """A copy that will replace this form: it adds rows where this one has room for them."""
        return shallow_copy(self)

    def copy(self, prior: PriorRows | None = None) -> Self:
        """An independent copy. It shares arrays; the next row added makes a longer one.

        Args:
            prior: Prior covariances for the copy to use; ``None``: those of this form.
        """
        other = self.successor()
        other.prior = self.prior if prior is None else prior
        return other

    # --- time ------------------------------------------------------------------------------

    def pass_time(self, time: float) -> None:
        """Move to a time.

        Args:
            time: The new time, not before the present one.
        """
        if time > self.time > -np.inf:
            A = self.space.transition(time - self.time)
            self._transition(A)
        if time > self.time:
            self.steps += 1
        self.time = time

    def _transition(self, A: Floats) -> None:
        """Replace a and Λ by A a and A Λ Aᵀ."""
        s, n = self.shape
        if s == 1:
            self._fade(A.item())
        else:
            self._mean = A @ self._mean
            blocks = self._reduction.reshape(s, s * n)
            half = (A @ blocks).reshape(s, s, n)  # A Λ
            half_transposed = half.transpose(1, 0, 2)
            both = A @ half_transposed.reshape(s, s * n)  # A Λ Aᵀ
            self._reduction = both.reshape(s, s, n)
            self._transition_learned(A)
        if len(self.watched.mean):
            cross_cov = A @ self.watched.cross_cov
            self.watched = self.watched._replace(cross_cov=cross_cov)

    def _fade(self, transition: float) -> None:
        """Multiply c by the transition, where s is 1."""
        self._decay *= transition
        self.error *= transition * transition
        if abs(self._decay) < LEAST_DECAY:
            self._unscale()

    def _unscale(self) -> None:
        """Store a and Λ themselves, so that c is 1."""
        self._mean = self.mean
        self._reduction = self.reduction
        self._unscale_learned()
        self._decay = 1.0

    # --- learning --------------------------------------------------------------------------

    def observe(self, rows: Ints, residual: Floats, noise: Floats) -> None:
        """Learn rewards of the present time; an arm may occur twice.

        Args:
            rows: The arms, (k,).
            residual: Their rewards without the prior mean, (k,).
            noise: Noise variances of the rewards, (k,).
        """
        if len(rows) == 1 and self.takes_single_rewards:
            self.learn_one(rows.item(), self.time, residual.item(), noise.item())
            return
        if len(rows) > 1:
            rows, residual, noise = _merge_repeats(rows, residual, noise)
        count = len(rows)
        if count <= _BLOCK:
            self._learn_block(rows, residual, noise)
            return
        for start in range(0, count, _BLOCK):
            block = slice(start, start + _BLOCK)
            self.observe(rows[block], residual[block], noise[block])

    def _learn_block(self, rows: Ints, residual: Floats, noise: Floats) -> None:
        """Learn rewards of the present time, all of different arms."""
        coordinates = self._coordinates(rows)  # P_S, (k, c)
        P = self._evaluate(coordinates, rows)  # P_SS, (k, k)
        if len(rows) == 1:
            # A small remaining variance may be all rounding, and negative.
            P = np.maximum(P, 0.0)
            L = np.sqrt(P + noise)
            coordinates = coordinates / L.item()
        else:
            covariance = P + np.diag(noise)
            L = cholesky(covariance, "the covariance of the observed arms")
            coordinates = solve_lower(L, coordinates)
        stored_means = self._mean[:, rows]
        expected = self.space.output @ stored_means  # h·a_S/c
        deviation = residual - self._decay * expected  # y − h·a_S
        innovation = solve_lower(L, deviation)  # L⁻¹(y − h·a_S)
        columns = self._expand(coordinates)  # L⁻¹P_S, (k, s, n)
        shift = np.tensordot(innovation / self._decay, columns, 1)
        self._mean = self._mean + shift
        squares = np.einsum("kan,kbn->abn", columns, columns)
        self._reduction = self._reduction + squares / self._decay**2
        if len(self.watched.mean):
            self._update_watched(rows, L, innovation, columns)
        self._append(coordinates, columns)
        # ½ ln(det(P_SS + D) / det D)
        log_root_determinant = np.log(np.diagonal(L)).sum()
        information = log_root_determinant - 0.5 * np.log(noise).sum()
        self.information += float(information)

    def _update_watched(
        self, rows: Ints, L: Floats, innovation: Floats, columns: Floats
    ) -> None:
        """Condition the watched rewards on those just observed."""
        mean, cov, cross_cov = self.watched
        with_observed = self._outputs_at(rows, cross_cov)  # (p, k)
        gain = solve_lower(L, with_observed.T)  # (k, p)
        explained_cross_cov = np.tensordot(gain.T, columns, 1)
        self.watched = Watched(
            mean=mean + innovation @ gain,
            cov=cov - gain.T @ gain,
            cross_cov=cross_cov - explained_cross_cov,
        )

    @property
    def takes_single_rewards(self) -> bool:
        """Whether :meth:`learn_one` suffices: s is 1, and nothing is watched."""
        return len(self._mean) == 1 and not len(self.watched.mean)

    def learn_one(self, row: int, time: float, residual: float, noise: float) -> None:
        """Move to a time and learn one reward: the fast path of nearly every round.

        Args:
            row: The arm.
            time: The time of the reward, not before the present one.
            residual: The reward without the prior mean.
            noise: The noise variance of the reward.
        """
        h = self.space.output.item()
        if time > self.time > -math.inf:
            elapsed = time - self.time
            transition = self.space.transition(elapsed)
            self._fade(transition.item())
        coordinates, variance = self._coordinates_of_one(row, h)
        # A small remaining variance may be all rounding, and negative.
        total_variance = max(variance, 0.0) + noise
        std = math.sqrt(total_variance)
        expected = h * self._decay * self._mean.item(row)
        innovation = (residual - expected) / std
        scale = 1.0 / (std * self._decay)
        column = self._append_one(coordinates, scale)  # (n,)
        self._mean = self._mean + innovation * column
        self._reduction = self._reduction + column * column
        self._compress_if_due()
        self.information += 0.5 * math.log(total_variance / noise)
        if time > self.time:
            self.steps += 1
        self.time = time

    def watch(self, rows: Ints) -> None:
        """Start to watch the rewards of these arms at the present time.

        Args:
            rows: The arms, (k,).
        """
        mean, cov, cross_cov = self.watched
        coordinates = self._coordinates(rows)
        new_cross_cov = self._expand(coordinates)  # (k, s, n)
        across = self._outputs_at(rows, cross_cov)  # (p, k)
        new_cov = self._outputs_at(rows, new_cross_cov)  # (k, k)
        stored_means = self._mean[:, rows]
        new_mean = self._decay * (self.space.output @ stored_means)
        all_cov = np.block([[cov, across], [across.T, new_cov]])
        self.watched = Watched(
            mean=np.append(mean, new_mean),
            cov=all_cov,
            cross_cov=np.concatenate([cross_cov, new_cross_cov]),
        )

    def _outputs_at(self, rows: Ints, cross_cov: Floats) -> Floats:
        """Covariances with rewards of these arms, (p, k), from those with all states, (p, s, n)."""
        at_rows = cross_cov[:, :, rows]
        outputs: Floats = np.tensordot(self.space.output, at_rows, (0, 1))
        return outputs

    # --- answers ---------------------------------------------------------------------------

    # Pairs, not records: they are made and unpacked in every round.

    def moments(self, rows: Ints, output: Floats) -> tuple[Floats, Floats]:
        """Means of g·z(x), without the prior mean, and reductions of the variance, (k,) each.

        Args:
            rows: The arms x, (k,).
            output: g, (s,).
        """
        if len(output) == 1:
            g = self._decay * output.item()
            stored_mean = self._mean[0, rows]
            stored_reduction = self._reduction[0, 0, rows]
            return g * stored_mean, (g * g) * stored_reduction
        states = self._mean[:, rows]
        blocks = self._reduction[:, :, rows]
        reduction = np.einsum("a,b,abn->n", output, output, blocks)
        return output @ states, reduction

    def all_moments(self, A: Floats) -> tuple[Floats, Floats]:
        """:meth:`moments` of all arms' rewards after a transition, (n,) each, new arrays.

        Args:
            A: The transition from the present time, (s, s).
        """
        h = self.space.output
        if len(A) == 1:
            g = self._decay * h.item() * A.item()
            mean = g * self._mean[0]
            reduction = (g * g) * self._reduction[0, 0]
            return mean, reduction
        output = h @ A
        with blas_threads_for(self._reduction.size):
            mean = output @ self._mean
            reduction = np.einsum("a,b,abn->n", output, output, self._reduction)
        return mean, reduction


def _merge_repeats(
    rows: Ints, residual: Floats, noise: Floats
) -> tuple[Ints, Floats, Floats]:
    """Observations of different arms, in the order of arms.

    Repeats become one observation of their weighted mean, which carries the same information.
    """
    different, place = np.unique(rows, return_inverse=True)
    if len(different) == len(place):
        order = np.argsort(place)
        return different, residual[order], noise[order]
    weight = np.bincount(place, 1.0 / noise)
    weighted_sum = np.bincount(place, residual / noise)
    return different, weighted_sum / weight, 1.0 / weight
