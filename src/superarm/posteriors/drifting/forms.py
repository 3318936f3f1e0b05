"""The forms of :class:`superarm.posteriors.DriftingGP`.

Notation

=========  =======================================================================
``n, K``   arms and their prior covariance, (n, n), which is never made as a whole
``s, h``   size of the state of the kernel of time, and its output; ``A`` its transition
``τ``      the time of what is held: z_τ(x), the state of arm x, has mean a(x), (s,), and
           covariance K ⊗ I − Λ; f_τ(x) = h·z_τ(x)
``Λ``      what was learned: W Wᵀ in folded form, (B ⊗ I) G (B ⊗ I)ᵀ in the others
``W``      (n·s, m); ``c`` what is left of its columns where s is 1: stored as they were made
``B``      (n, q): features of the kernel (kalman), or prior covariances with the arms visited so far
           (visited); ``e_x`` are the coordinates of k(·, x) in it, so that B e_x = K_x
``G``      (q·s, q·s); ``D`` noise variances
=========  =======================================================================

Time folds into Λ alone: after Δ it is A Λ Aᵀ, and the mean A a. Rewards of arms S at τ have the
covariance P_S + D, where P_S are rows of K ⊗ hhᵀ − (I ⊗ h)Λ(I ⊗ h)ᵀ; with L = chol(P_SS + D), Λ gains
the columns L⁻¹P_S, and the mean moves by these times L⁻¹(y − h·a_S). For each arm alone, a and the
(s, s) block of Λ are kept up to date, so that a round costs one pass over W or B.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from copy import copy
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.errors import StateError
from superarm.inputs import as_count, as_features, as_vector
from superarm.kernels import Covariance
from superarm.kernels.state_space import StateSpace
from superarm.linalg import cholesky, solve_lower, with_room
from superarm.posteriors.fixed import as_rows

FormName = Literal["folded", "visited", "kalman"]
TRUNCATION = 1e-12  # what may be left out of any covariance, relative to the largest prior variance
_ROOM = 64
_PIECE = 512  # arms of one time that are learned at once
_ROUNDED_FEATURES = 16  # by how many two processors may differ: those next to the tolerance
_SAME_BASIS = 1e-6  # how far variances may be off, relative, before a state's basis is another one
_MOST_FACTORED = 2e6  # numbers of B up to which a Kalman filter may keep its factor, 16 MB


class PriorRows:
    """Prior covariances of the arms visited so far with all arms; they are never taken away."""

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        self._kernel, self._arms = kernel, arms
        self._rows = np.empty((_ROOM, len(arms)))
        self.visited: list[int] = []
        self._slot = np.full(len(arms), -1, dtype=np.intp)

    def __len__(self) -> int:
        return len(self.visited)

    def copied(self) -> PriorRows:
        other = copy(self)
        other._rows, other._slot = self._rows.copy(), self._slot.copy()
        other.visited = self.visited.copy()
        return other

    @property
    def rows(self) -> Floats:
        """(v, n)"""
        return self._rows[: len(self.visited)]

    def visit(self, arms: Ints) -> Ints:
        """Where these arms stand among those visited."""
        fresh = list(dict.fromkeys(arms[self._slot[arms] < 0].tolist()))  # each once, in order
        if fresh:
            made = self._kernel(self._arms[fresh], self._arms)  # of a user's own, it may raise
            size = len(self.visited)
            self._rows = with_room(self._rows, size, size + len(fresh))
            self._rows[size : size + len(fresh)] = made
            self._slot[fresh] = np.arange(size, size + len(fresh))
            self.visited += fresh
        return self._slot[arms]

    def visit_one(self, arm: int) -> int:
        """Where this arm stands among those visited."""
        slot = self._slot.item(arm)
        return slot if slot >= 0 else self.visit(np.array([arm])).item()

    def row(self, arm: int) -> Floats:
        """Prior covariances of an arm that was visited, (n,)."""
        found: Floats = self._rows[self._slot.item(arm)]
        return found


@functools.cache
def _dger() -> Any:
    """Loaded on first use."""
    from scipy.linalg.blas import dger

    return dger


class Watched(NamedTuple):
    """Rewards of some moments g = f_t(x), followed on: what is known of them now."""

    mean: Floats  # (p,), without the prior mean
    cov: Floats  # (p, p)
    towards: Floats  # (p, s, n): their covariance with the state of every arm


class Form(ABC):
    """What is known at one time; see the module. Only ``pass_time`` and ``observe`` change it."""

    name: ClassVar[FormName]

    @property
    def visits(self) -> bool:
        """Whether prior covariances of the observed arms are needed."""
        return True

    def __init__(self, space: StateSpace, prior: PriorRows, n: int) -> None:
        s = len(space.output)
        self.space, self.prior = space, prior
        self.time = -np.inf
        self.mean = np.zeros((s, n))  # a
        self.known = np.zeros((s, s, n))  # the blocks of Λ on its diagonal
        self.information = 0.0
        self.steps = 0  # different times so far
        self.error = 0.0  # bound on what was left out of any covariance
        self.watched = Watched(np.empty(0), np.empty((0, 0)), np.empty((0, s, n)))

    @property
    @abstractmethod
    def rank(self) -> int:
        """Columns of the matrix in use."""

    @abstractmethod
    def _age(self, A: Floats) -> None: ...

    @abstractmethod
    def _coordinates(self, rows: Ints) -> Floats:
        """P_S in the form's own coordinates, (k, c), a new array."""

    @abstractmethod
    def _at(self, coordinates: Floats, rows: Ints) -> Floats:
        """P_S at these arms, (k, len(rows))."""

    @abstractmethod
    def _expanded(self, coordinates: Floats) -> Floats:
        """Columns of Λ's root for every arm, (k, s, n)."""

    @abstractmethod
    def _keep(self, coordinates: Floats, columns: Floats) -> None: ...

    @abstractmethod
    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        """For each arm x and its output g (s,), coordinates of g·z(x), (k, c)."""

    @abstractmethod
    def explained(self, left: Floats, right: Floats) -> Floats:
        """Λ between two sets of roots, (k, m)."""

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a state holds of it, besides a and Λ's blocks."""

    def scalars(self) -> dict[str, int]:
        return {}

    @abstractmethod
    def resume(self, state: State) -> bool:
        """Go on from what a state holds; ``False`` where that is in another basis than this one's."""

    def copied(self, prior: PriorRows | None = None) -> Self:
        """One that goes its own way, with its own columns of the prior if they are given."""
        other = copy(self)
        other.mean, other.known = self.mean.copy(), self.known.copy()
        other.prior = prior or self.prior
        return other

    def pass_time(self, time: float) -> None:
        if time > self.time > -np.inf:
            A = self.space.transition(time - self.time)
            s, n = self.mean.shape
            if s == 1:
                left = A.item()
                self.mean *= left
                self.known *= left * left
            else:
                self.mean = A @ self.mean
                half = (A @ self.known.reshape(s, s * n)).reshape(s, s, n)
                self.known = A @ half.transpose(1, 0, 2).reshape(s, s * n)
                self.known = self.known.reshape(s, s, n)
            self._age(A)
            if len(self.watched.mean):
                self.watched = self.watched._replace(towards=A @ self.watched.towards)
        self.steps += bool(time > self.time)
        self.time = time

    def observe(self, rows: Ints, residual: Floats, noise: Floats) -> None:
        """Rewards of this time, without the prior mean; an arm may be there twice."""
        if len(rows) == 1 and len(self.mean) == 1 and not len(self.watched.mean):
            self.observe_one(int(rows[0]), float(residual[0]), float(noise[0]))
            return
        if len(rows) > 1:
            rows, where = np.unique(rows, return_inverse=True)
            if len(rows) < len(where):  # repeats count as one, of their weighted mean
                weight = np.bincount(where, 1.0 / noise)
                residual, noise = np.bincount(where, residual / noise) / weight, 1.0 / weight
            else:
                order = np.argsort(where)
                residual, noise = residual[order], noise[order]
        if len(rows) > _PIECE:
            for part in np.split(np.arange(len(rows)), range(_PIECE, len(rows), _PIECE)):
                self.observe(rows[part], residual[part], noise[part])
            return
        coordinates = self._coordinates(rows)
        P = self._at(coordinates, rows)
        if len(rows) == 1:  # what is left of a variance may be all rounding
            L = np.sqrt(np.maximum(P, 0.0) + noise)
        else:
            L = cholesky(P + np.diag(noise), "the covariance of the observed arms")
        coordinates = coordinates / L.item() if len(rows) == 1 else solve_lower(L, coordinates)
        moved = solve_lower(L, residual - self.space.output @ self.mean[:, rows])
        columns = self._expanded(coordinates)
        self.mean += np.tensordot(moved, columns, 1)
        self.known += np.einsum("kan,kbn->abn", columns, columns)
        if len(self.watched.mean):
            mean, cov, towards = self.watched
            pull = solve_lower(L, np.tensordot(self.space.output, towards[:, :, rows], (0, 1)).T)
            towards = towards - np.tensordot(pull.T, columns, 1)
            self.watched = Watched(mean + moved @ pull, cov - pull.T @ pull, towards)
        self._keep(coordinates, columns)
        self.information += float(np.log(np.diagonal(L)).sum() - 0.5 * np.log(noise).sum())

    def observe_one(self, row: int, residual: float, noise: float) -> None:
        """One reward, as in nearly every round; where s is 1, without arrays of one entry."""
        if len(self.mean) > 1 or len(self.watched.mean):
            self.observe(np.array([row]), np.array([residual]), np.array([noise]))
            return
        h, mean = self.space.output.item(), self.mean[0]
        coordinates, variance = self._coordinates_of(row, h)  # (c,), and P at the arm itself
        total = max(variance, 0.0) + noise  # what is left of a variance may be all rounding
        deviation = math.sqrt(total)
        coordinates /= deviation
        moved = (residual - h * mean.item(row)) / deviation
        column = self._expanded_one(coordinates)
        mean += moved * column
        self.known[0, 0] += column * column
        self._keep_one(coordinates, column)
        self.information += 0.5 * math.log(total / noise)

    @abstractmethod
    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        """P of one arm in the form's own coordinates, (c,), a new array, and P at the arm itself."""

    @abstractmethod
    def _expanded_one(self, coordinates: Floats) -> Floats:
        """A column of Λ's root for every arm, (n,)."""

    @abstractmethod
    def _keep_one(self, coordinates: Floats, column: Floats) -> None: ...

    def watch(self, rows: Ints) -> None:
        """From now on what is learned of this moment's rewards of these arms is followed."""
        h, (mean, cov, towards) = self.space.output, self.watched
        own = self._expanded(self._coordinates(rows))  # (k, s, n)
        across, corner = (np.tensordot(h, each[:, :, rows], (0, 1)) for each in (towards, own))
        cov = np.block([[cov, across], [across.T, corner]])
        mean = np.append(mean, h @ self.mean[:, rows])
        self.watched = Watched(mean, cov, np.concatenate([towards, own]))

    def moments(self, rows: Ints, output: Floats) -> tuple[Floats, Floats]:
        """Of g·z(x): mean, and by how much its variance has shrunk, (k,) each."""
        if len(output) == 1:
            g = output.item()
            return g * self.mean[0, rows], (g * g) * self.known[0, 0, rows]
        shrunk = np.einsum("a,b,abn->n", output, output, self.known[:, :, rows])
        return output @ self.mean[:, rows], shrunk

    def all_moments(self, output: Floats) -> tuple[Floats, Floats]:
        """:meth:`moments` of every arm, (n,) each, new arrays."""
        if len(output) == 1:
            g = output.item()
            return g * self.mean[0], (g * g) * self.known[0, 0]
        return output @ self.mean, np.einsum("a,b,abn->n", output, output, self.known)


class FoldedForm(Form):
    """W itself, one column for each observation, until what has faded is left out."""

    name = "folded"

    def __init__(self, space: StateSpace, prior: PriorRows, n: int, scale: float) -> None:
        super().__init__(space, prior, n)
        s = len(space.output)
        self._scale = scale  # the largest prior variance
        self._W = np.empty((_ROOM, s, n))  # one row per column of W: rows are contiguous
        self._left = np.empty(_ROOM)  # c
        self._rank, self.compact_at = 0, 2 * _ROOM

    @classmethod
    def of(cls, form: VisitedForm, scale: float) -> FoldedForm:
        """The same knowledge, with what can be left out left out."""
        folded = cls(form.space, form.prior, form.mean.shape[1], scale)
        folded.time, folded.steps, folded.information = form.time, form.steps, form.information
        folded.mean, folded.known, folded.watched = form.mean.copy(), form.known.copy(), form.watched
        values, vectors = np.linalg.eigh(form.learned)
        folded._set(form._expanded((np.sqrt(np.maximum(values, 0.0)) * vectors).T))
        folded.compact()
        return folded

    @property
    def rank(self) -> int:
        return self._rank

    def arrays(self) -> dict[str, NDArray[Any]]:
        m = self._rank
        return {"columns": self._W[:m].reshape(m, -1), "left": self._left[:m]}

    def scalars(self) -> dict[str, int]:
        return {"compact_at": self.compact_at}

    def resume(self, state: State) -> bool:
        s, n = self.mean.shape
        columns = as_features(state.array("columns"), "columns", s * n)
        left = as_vector(state.array("left"), "left", len(columns))
        self._set(columns.reshape(-1, s, n).copy())
        self._left[:] = left
        self.compact_at = as_count(state.scalar("compact_at"), "compact_at", len(columns))
        return True

    def _set(self, columns: Floats) -> None:
        """These columns, as they are now."""
        self._W, self._left, self._rank = columns, np.ones(len(columns)), len(columns)

    def copied(self, prior: PriorRows | None = None) -> Self:
        other = super().copied(prior)
        other._W, other._left = self._W[: self._rank].copy(), self._left[: self._rank].copy()
        return other

    def _age(self, A: Floats) -> None:
        if len(A) == 1:
            self._left[: self._rank] *= A.item()
            self.error *= A.item() ** 2
        else:
            self._W[: self._rank] = A @ self._W[: self._rank]
            self.error *= float(np.linalg.norm(A, 2)) ** 2

    def _coordinates(self, rows: Ints) -> Floats:
        h, (s, n), m = self.space.output, self.mean.shape, self._rank
        slots = self.prior.visit(rows)  # may add rows
        prior = self.prior.rows[slots]  # K_S, (k, n)
        self._W = with_room(self._W, m, m + len(rows))  # here, where nothing has changed yet
        self._left = with_room(self._left, m, m + len(rows))
        seen = self.roots(rows, np.tile(h, (len(rows), 1)))  # (k, m)
        explained: Floats = (seen * self._left[:m]) @ self._W[:m].reshape(m, s * n)
        towards = (h[:, None] * prior[:, None, :]).reshape(len(rows), s * n)
        return np.subtract(towards, explained, out=explained)

    def _at(self, coordinates: Floats, rows: Ints) -> Floats:
        s, n = self.mean.shape
        columns = coordinates.reshape(-1, s, n)[:, :, rows]
        return np.asarray(np.tensordot(columns, self.space.output, axes=(1, 0)))

    def _expanded(self, coordinates: Floats) -> Floats:
        return coordinates.reshape(-1, *self.mean.shape)

    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        m = self._rank
        self.prior.visit_one(row)
        self._W = with_room(self._W, m, m + 1)  # here, where nothing has changed yet
        self._left = with_room(self._left, m, m + 1)
        left = self._left[:m]
        W = self._W[:m, 0]
        seen = W[:, row] * left
        seen *= left
        column = seen.dot(W)
        column *= -h
        column += h * self.prior.row(row)
        return column, h * column.item(row)

    def _expanded_one(self, coordinates: Floats) -> Floats:
        return coordinates

    def _keep_one(self, coordinates: Floats, column: Floats) -> None:
        m = self._rank
        self._W[m, 0] = column
        self._left[m] = 1.0
        self._rank = m + 1
        if self._rank >= self.compact_at:
            self.compact()

    def _keep(self, coordinates: Floats, columns: Floats) -> None:
        m, grown = self._rank, self._rank + len(columns)
        self._W[m:grown], self._left[m:grown] = columns, 1.0
        self._rank = grown
        if grown >= self.compact_at:
            self.compact()

    def compact(self) -> None:
        """Rotate W, and leave out of it what has faded."""
        (s, n), m = self.mean.shape, self._rank
        W = self._left[:m, None] * self._W[:m].reshape(m, s * n)
        values, vectors = np.linalg.eigh(W @ W.T)
        gain = float(self.space.output @ self.space.output)
        # The smallest first; beyond n·s of them, all but rounding is 0, and does not count.
        beyond = np.arange(m) < m - s * n
        dropped = gain * np.cumsum(np.where(beyond, 0.0, np.maximum(values, 0.0)))
        first = int(np.searchsorted(dropped, TRUNCATION * self._scale - self.error, side="right"))
        if first:
            # Any entry of what is left out is at most its largest eigenvalue, at most their sum.
            self.error += float(dropped[first - 1])
        kept = m - first
        self._W[:kept] = (vectors[:, first:].T @ W).reshape(kept, s, n)
        self._left[:kept] = 1.0
        self._rank, self.compact_at = kept, 2 * kept + _ROOM

    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        found: Floats = np.einsum("ka,mak->km", outputs, self._W[: self._rank][:, :, rows])
        return found * self._left[: self._rank]

    def explained(self, left: Floats, right: Floats) -> Floats:
        return np.asarray(left @ right.T)


class _BasisForm(Form):
    """G over a basis of functions on the arms."""

    def __init__(self, space: StateSpace, prior: PriorRows, n: int, size: int) -> None:
        super().__init__(space, prior, n)
        self._G = np.zeros((size * len(space.output),) * 2)
        self._faded = 1.0  # what is left of G, which is stored as it was, where s is 1

    @property
    @abstractmethod
    def _basis(self) -> Floats:
        """Bᵀ, (q, n)."""

    @abstractmethod
    def _units(self, rows: Ints) -> Floats:
        """e_x for each of these arms, (k, q)."""

    @property
    def learned(self) -> Floats:
        """G"""
        return self._faded * self._held

    @property
    def _held(self) -> Floats:
        return self._G

    @property
    def rank(self) -> int:
        return len(self._basis) * len(self.mean)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"G": self.learned}

    def resume(self, state: State) -> bool:
        size = self.rank
        held = as_features(state.array("G"), "G", size)
        if len(held) != size:
            raise StateError("this state is damaged: it belongs to another basis")
        self._held[:] = held
        return True

    def copied(self, prior: PriorRows | None = None) -> Self:
        other = super().copied(prior)
        other._G = self._G.copy()
        return other

    def _age(self, A: Floats) -> None:
        G = self._held
        s, size = len(A), len(G)
        if s == 1:
            self._faded *= A.item() ** 2
            if self._faded < 1e-100:  # before it is too small to divide by
                G *= self._faded
                self._faded = 1.0
            return
        half = (G.reshape(-1, s) @ A.T).reshape(size, size)
        G[:] = (half.T.reshape(-1, s) @ A.T).reshape(size, size)

    def _coordinates(self, rows: Ints) -> Floats:
        h = self.space.output
        units = self._units(rows)  # may add to the basis
        found = (units[:, :, None] * h).reshape(len(rows), -1)
        outputs = np.tile(h, (len(rows), 1))
        found -= self._faded * (self.roots(rows, outputs) @ self._held)
        return found

    def _at(self, coordinates: Floats, rows: Ints) -> Floats:
        h = self.space.output
        outputs = coordinates.reshape(len(coordinates), -1, len(h)) @ h
        return np.asarray(outputs @ self._basis[:, rows])

    def _expanded(self, coordinates: Floats) -> Floats:
        s, n = self.mean.shape
        by_state = coordinates.reshape(len(coordinates), -1, s).transpose(0, 2, 1)
        columns: Floats = by_state.reshape(len(coordinates) * s, -1) @ self._basis
        return columns.reshape(len(coordinates), s, n)

    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        unit = self._unit(row)  # may add to the basis
        values = self._values(row)
        found = values.dot(self._held)
        found *= -h * self._faded
        found += h * unit
        return found, h * float(found.dot(values))

    def _expanded_one(self, coordinates: Floats) -> Floats:
        column: Floats = coordinates.dot(self._basis)
        return column

    def _keep_one(self, coordinates: Floats, column: Floats) -> None:
        G = self._held
        if G.flags.c_contiguous:
            _dger()(1.0 / self._faded, coordinates, coordinates, a=G.T, overwrite_a=1)  # symmetric
        else:
            scaled = coordinates / math.sqrt(self._faded)
            G += np.multiply.outer(scaled, scaled)

    @abstractmethod
    def _unit(self, row: int) -> Floats:
        """e_x of one arm, (q,)."""

    def _values(self, row: int) -> Floats:
        """B at one arm, (q,)."""
        return self._basis[:, row].copy()

    def _keep(self, coordinates: Floats, columns: Floats) -> None:
        scaled = coordinates / np.sqrt(self._faded)
        G = self._held
        G += scaled.T @ scaled

    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        values = self._basis[:, rows].T  # (k, q)
        return (values[:, :, None] * outputs[:, None, :]).reshape(len(rows), -1)

    def explained(self, left: Floats, right: Floats) -> Floats:
        return np.asarray(self._faded * (left @ self._held @ right.T))


class KalmanForm(_BasisForm):
    """B are features of the kernel: the cost does not depend on how much was observed.

    While fewer than q rewards were observed, G is kept as its factor: one row for each reward, which
    holds its column of Λ's root for every arm and the same column's coordinates in B, (m, n + q). A
    round then reads m·n numbers in place of the q·n of B. Questions leave it at that; what cannot be
    done with the factor makes G of it first.
    """

    name = "kalman"

    def __init__(self, space: StateSpace, prior: PriorRows, features: Floats) -> None:
        n, q = features.shape
        super().__init__(space, prior, n, q)
        self._features = np.ascontiguousarray(features.T)
        self._by_arm = np.ascontiguousarray(features)  # an arm's own lie together, (n, q)
        self._factored = len(space.output) == 1 and n * q <= _MOST_FACTORED
        self._rows = np.empty((min(_ROOM, q) if self._factored else 0, n + q))  # as they were made
        self._left = np.empty(len(self._rows))  # what is left of them
        self._count = 0  # rows in use

    @property
    def _basis(self) -> Floats:
        return self._features

    @property
    def learned(self) -> Floats:
        """G"""
        if not self._factored:
            return super().learned
        root = self._root_in_basis()
        return root.T @ root

    @property
    def visits(self) -> bool:
        """Whether prior covariances of the observed arms are needed."""
        return self._factored

    def _root_in_basis(self) -> Floats:
        """Γ with G = ΓᵀΓ, (m, q)."""
        m, n = self._count, self.mean.shape[1]
        return self._left[:m, None] * self._rows[:m, n:]

    def _make_whole(self) -> None:
        """From now on G itself."""
        if self._factored:
            self._G[:] = self.learned
            self._faded = 1.0
            self._drop_factor()

    def _drop_factor(self) -> None:
        self._factored, self._count = False, 0
        self._rows, self._left = self._rows[:0], self._left[:0]

    def resume(self, state: State) -> bool:
        """Another processor may round features into other signs, or keep one more of the smallest."""
        self._drop_factor()
        size = self.rank
        held = np.shape(state.array("G"))
        differs_by = abs(held[0] - size) if held else size
        is_square = len(held) == 2 and held[0] == held[1]
        if is_square and 0 < differs_by <= _ROUNDED_FEATURES * len(self.mean):
            return False
        super().resume(state)
        return self._explains_what_is_known()

    def _explains_what_is_known(self) -> bool:
        """Whether G in this basis gives the blocks of Λ on its diagonal, which no basis changes."""
        s, n = self.mean.shape
        every = np.arange(n)
        half = [self.roots(every, np.tile(unit, (n, 1))) for unit in np.eye(s)]  # s times (n, q s)
        blocks = [[np.vecdot(half[a] @ self._held, half[b]) for b in range(s)] for a in range(s)]
        differences = np.abs(np.array(blocks) - self.known)
        return bool(differences.max() <= _SAME_BASIS * np.abs(self.known).max())

    def copied(self, prior: PriorRows | None = None) -> Self:
        other = super().copied(prior)
        # Rows are never changed once they are made: they are shared. Who adds one takes a longer array.
        other._rows, other._left = self._rows[: self._count], self._left[: self._count].copy()
        return other

    def _age(self, A: Floats) -> None:
        if self._factored:
            self._left[: self._count] *= A.item()
        else:
            super()._age(A)

    def _coordinates(self, rows: Ints) -> Floats:
        self._make_whole()
        return super()._coordinates(rows)

    def _units(self, rows: Ints) -> Floats:
        return self._features[:, rows].T

    def _unit(self, row: int) -> Floats:
        features: Floats = self._by_arm[row]
        return features

    def _values(self, row: int) -> Floats:
        features: Floats = self._by_arm[row]
        return features

    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        if not self._factored:
            return super()._coordinates_of(row, h)
        self.prior.visit_one(row)
        m, n = self._count, self.mean.shape[1]
        self._rows = with_room(self._rows, m, m + 1)
        self._left = with_room(self._left, m, m + 1)
        seen = self._rows[:m, row] * self._left[:m]
        seen *= self._left[:m]
        both = seen.dot(self._rows[:m])  # the column, and its coordinates
        both *= -h
        both[:n] += h * self.prior.row(row)
        both[n:] += h * self._by_arm[row]
        return both, h * both.item(row)

    def _expanded_one(self, coordinates: Floats) -> Floats:
        return (
            coordinates[: self.mean.shape[1]] if self._factored else super()._expanded_one(coordinates)
        )

    def _keep_one(self, coordinates: Floats, column: Floats) -> None:
        if not self._factored:
            super()._keep_one(coordinates, column)
            return
        m = self._count
        self._rows[m], self._left[m] = coordinates, 1.0
        self._count = m + 1
        if self._count >= len(self._basis):
            self._make_whole()

    def explained(self, left: Floats, right: Floats) -> Floats:
        if not self._factored:
            return super().explained(left, right)
        root = self._root_in_basis()
        return np.asarray((left @ root.T) @ (right @ root.T).T)


class VisitedForm(_BasisForm):
    """B are prior covariances with the arms visited so far."""

    name = "visited"

    def __init__(self, space: StateSpace, prior: PriorRows, n: int) -> None:
        super().__init__(space, prior, n, min(_ROOM, n))
        self._size = 0  # of the arms visited those that it knows of: others may have visited more
        self.compare_at = 2 * _ROOM  # rank at which it is next compared with the folded form

    @property
    def _basis(self) -> Floats:
        return self.prior.rows[: self._size]

    @property
    def _held(self) -> Floats:
        return self._G[: self.rank, : self.rank]

    def _grow(self, size: int) -> None:
        held, wanted = len(self._G), size * len(self.mean)
        if wanted > held:
            bigger = np.zeros((2 * wanted, 2 * wanted))
            bigger[:held, :held] = self._G
            self._G = bigger
        self._size = size

    def scalars(self) -> dict[str, int]:
        return {"compare_at": self.compare_at}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {**super().arrays(), "visited": np.array(self.prior.visited[: self._size], np.intp)}

    def resume(self, state: State) -> bool:
        rows = as_rows(state.array("visited"), self.mean.shape[1])
        self.prior.visit(rows)
        if self.prior.visited[: len(rows)] != rows.tolist():
            raise StateError("this state is damaged: its arms were visited in another order")
        self._grow(len(rows))
        super().resume(state)
        self.compare_at = as_count(state.scalar("compare_at"), "compare_at")
        return True

    def _units(self, rows: Ints) -> Floats:
        slots = self.prior.visit(rows)
        self._grow(max(self._size, int(slots.max()) + 1))
        units = np.zeros((len(rows), self._size))
        units[np.arange(len(rows)), slots] = 1.0
        return units

    def _unit(self, row: int) -> Floats:
        slot = self.prior.visit_one(row)
        if slot >= self._size:
            self._grow(slot + 1)
        unit = np.zeros(self._size)
        unit[slot] = 1.0
        return unit
