"""The forms of :class:`superarm.posteriors.DriftingGP`.

Notation

=========  =======================================================================
``n, K``   arms and their prior covariance, (n, n), which is never made as a whole
``s, h``   size of the state of the kernel of time, and its output; ``A`` its transition
``τ``      the time of what is held: z_τ(x), the state of arm x, has mean a(x), (s,), and
           covariance K ⊗ I − Λ; f_τ(x) = h·z_τ(x)
``Λ``      what was learned: W Wᵀ in folded form, (B ⊗ I) G (B ⊗ I)ᵀ in the others
``W``      (n·s, m)
``B``      (n, q): features of the kernel (kalman), or prior covariances with the arms visited so far
           (visited); ``e_x`` are the coordinates of k(·, x) in it, so that B e_x = K_x
``G``      (q·s, q·s); ``D`` noise variances
``c``      where s is 1, what is left of all that is stored: a is c times the stored one, Λ is c² times
           it, so that time changes c alone
=========  =======================================================================

Time folds into Λ alone: after Δ it is A Λ Aᵀ, and the mean A a. Rewards of arms S at τ have the
covariance P_S + D, where P_S are rows of K ⊗ hhᵀ − (I ⊗ h)Λ(I ⊗ h)ᵀ; with L = chol(P_SS + D), Λ gains
the columns L⁻¹P_S, and the mean moves by these times L⁻¹(y − h·a_S). For each arm alone, a and the
(s, s) block of Λ are kept up to date, so that a round costs one pass over W or B.

A form that a posterior has adopted never changes: what is learned goes into its :meth:`Form.successor`,
which shares its arrays and writes only into rows that no other form reads.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Ints, State
from superarm.core.errors import StateError
from superarm.core.inputs import as_count, as_features
from superarm.core.linalg import cholesky, shallow_copy, solve_lower, with_room
from superarm.core.threads import blas_threads_for
from superarm.kernels.state_space import StateSpace
from superarm.posteriors.fixed import as_rows

FormName = Literal["folded", "visited", "kalman"]
TRUNCATION = 1e-12  # what may be left out of any covariance, relative to the largest prior variance
_ROOM = 64
_PIECE = 512  # arms of one time that are learned at once
_ROUNDED_FEATURES = (
    16  # by how many two processors may differ: those next to the tolerance
)
_SAME_BASIS = 1e-6  # how far variances may be off, relative, before a state's basis is another one
_MOST_FACTORED = (
    2e6  # numbers of B up to which a Kalman filter may keep its factor, 16 MB
)
LEAST_LEFT = 1e-50  # the smallest c: before its square is too small to divide by
_MOST_RECENT = (
    32  # rewards that are kept beside G before they are added to it, in one product
)


class PriorRows:
    """Prior covariances of the arms visited so far with all arms; they are never taken away."""

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        self._kernel, self._arms = kernel, arms
        self._rows = np.empty((_ROOM, len(arms)))
        self._slots: dict[
            int, int
        ] = {}  # the row of each arm visited, in the order of visits

    def __len__(self) -> int:
        return len(self._slots)

    def copied(self) -> PriorRows:
        """One that goes its own way: rows are shared, who adds one takes a longer array."""
        other = shallow_copy(self)
        other._rows, other._slots = self.rows, self._slots.copy()
        return other

    @property
    def visited(self) -> list[int]:
        return list(self._slots)

    @property
    def rows(self) -> Floats:
        """(v, n)"""
        return self._rows[: len(self._slots)]

    def visit(self, arms: Ints) -> Ints:
        """Where these arms stand among those visited."""
        listed = arms.tolist()
        fresh = [
            arm for arm in dict.fromkeys(listed) if arm not in self._slots
        ]  # each once, in order
        if fresh:
            self._add(fresh, self._arms[fresh])
        return np.array([self._slots[arm] for arm in listed], dtype=np.intp)

    def visit_one(self, arm: int) -> int:
        """Where this arm stands among those visited."""
        if arm not in self._slots:
            self._add([arm], self._arms[arm : arm + 1])
        return self._slots[arm]

    def _add(self, fresh: list[int], features: Floats) -> None:
        made = self._kernel(features, self._arms)  # of a user's own, it may raise
        size, grown = len(self._slots), len(self._slots) + len(fresh)
        self._rows = with_room(self._rows, size, grown)
        self._rows[size:grown] = made
        self._slots.update(
            zip(fresh, range(size, grown), strict=True)
        )  # in one call: all or none

    def row(self, arm: int) -> Floats:
        """Prior covariances of an arm, (n,)."""
        slot = self.visit_one(arm)  # may add rows
        found: Floats = self._rows[slot]
        return found


class Watched(NamedTuple):
    """Rewards of some moments g = f_t(x), followed on: what is known of them now."""

    mean: Floats  # (p,), without the prior mean
    cov: Floats  # (p, p)
    towards: Floats  # (p, s, n): their covariance with the state of every arm


class Form(ABC):
    """What is known at one time; see the module.

    Only ``pass_time``, ``observe`` and ``learn_one`` change it. They set new arrays, and write into
    none that was there before but in rows beyond those in use.
    """

    name: ClassVar[FormName]

    def __init__(self, space: StateSpace, prior: PriorRows, n: int) -> None:
        s = len(space.output)
        self.space, self.prior = space, prior
        self.time = -np.inf
        self._mean = np.zeros((s, n))  # a/c
        self._known = np.zeros((s, s, n))  # the blocks of Λ on its diagonal, over c²
        self._left = 1.0  # c
        self.information = 0.0
        self.steps = 0  # different times so far
        self.error = 0.0  # bound on what was left out of any covariance
        self.watched = Watched(np.empty(0), np.empty((0, 0)), np.empty((0, s, n)))

    @property
    def shape(self) -> tuple[int, int]:
        """(s, n)"""
        s, n = self._mean.shape
        return s, n

    @property
    def mean(self) -> Floats:
        """a, (s, n), a new array."""
        return self._left * self._mean

    @property
    def known(self) -> Floats:
        """The blocks of Λ on its diagonal, (s, s, n), a new array."""
        return self._left**2 * self._known

    def set_blocks(self, mean: Floats, known: Floats, left: float = 1.0) -> None:
        """Take these for a/c and the blocks of Λ/c² on its diagonal, before Λ itself is set."""
        self._mean, self._known, self._left = mean, known, left

    @property
    @abstractmethod
    def rank(self) -> int:
        """Columns of the matrix in use."""

    def _fade(self, left: float) -> None:
        """Let what is known pass to another time, where s is 1 and this is A."""
        self._left *= left
        self.error *= left * left
        if abs(self._left) < LEAST_LEFT:
            self._unscale()

    def _unscale(self) -> None:
        """Store a and Λ themselves, so that c is 1."""
        self._mean, self._known = self.mean, self.known
        self._unscale_learned()
        self._left = 1.0

    @abstractmethod
    def _unscale_learned(self) -> None:
        """Store Λ itself; c is set to 1 afterwards."""

    @abstractmethod
    def _turn(self, A: Floats) -> None:
        """A Λ Aᵀ in place of Λ, where s is above 1."""

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

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a state holds of it, as it is stored: the same numbers go on."""
        s, n = self.shape
        return {"a": self._mean, "known": self._known.reshape(s * s, n)}

    def scalars(self) -> dict[str, float]:
        return {
            "time": self.time,
            "steps": self.steps,
            "error": self.error,
            "left": self._left,
        }

    @abstractmethod
    def resume(self, state: State) -> bool:
        """Resume from a state; ``False`` if its numbers refer to another basis than this form's."""

    def successor(self) -> Self:
        """A copy that is to take its place: it adds rows where this one has room for them."""
        return shallow_copy(self)

    def copied(self, prior: PriorRows | None = None) -> Self:
        """One that goes its own way, with its own columns of the prior if they are given.

        Arrays are shared: those who add rows take longer ones.
        """
        other = self.successor()
        other.prior = self.prior if prior is None else prior
        return other

    def pass_time(self, time: float) -> None:
        if time > self.time > -np.inf:
            A = self.space.transition(time - self.time)
            s, n = self.shape
            if s == 1:
                self._fade(A.item())
            else:
                self._mean = A @ self._mean
                half = (A @ self._known.reshape(s, s * n)).reshape(s, s, n)
                turned = A @ half.transpose(1, 0, 2).reshape(s, s * n)
                self._known = turned.reshape(s, s, n)
                self._turn(A)
            if len(self.watched.mean):
                self.watched = self.watched._replace(towards=A @ self.watched.towards)
        self.steps += bool(time > self.time)
        self.time = time

    def observe(self, rows: Ints, residual: Floats, noise: Floats) -> None:
        """Rewards of this time, without the prior mean; an arm may be there twice."""
        if len(rows) == 1 and self.plain:
            self.learn_one(rows.item(), self.time, residual.item(), noise.item())
            return
        if len(rows) > 1:
            rows, where = np.unique(rows, return_inverse=True)
            if len(rows) < len(where):  # repeats count as one, of their weighted mean
                weight = np.bincount(where, 1.0 / noise)
                residual, noise = (
                    np.bincount(where, residual / noise) / weight,
                    1.0 / weight,
                )
            else:
                order = np.argsort(where)
                residual, noise = residual[order], noise[order]
        if len(rows) > _PIECE:
            for part in np.split(
                np.arange(len(rows)), range(_PIECE, len(rows), _PIECE)
            ):
                self.observe(rows[part], residual[part], noise[part])
            return
        coordinates = self._coordinates(rows)
        P = self._at(coordinates, rows)
        if len(rows) == 1:  # what is left of a variance may be all rounding
            L = np.sqrt(np.maximum(P, 0.0) + noise)
        else:
            L = cholesky(P + np.diag(noise), "the covariance of the observed arms")
        coordinates = (
            coordinates / L.item() if len(rows) == 1 else solve_lower(L, coordinates)
        )
        expected = self.space.output @ self._mean[:, rows]
        moved = solve_lower(L, residual - self._left * expected)
        columns = self._expanded(coordinates)
        self._mean = self._mean + np.tensordot(moved / self._left, columns, 1)
        self._known = (
            self._known + np.einsum("kan,kbn->abn", columns, columns) / self._left**2
        )
        if len(self.watched.mean):
            mean, cov, towards = self.watched
            pull = solve_lower(
                L, np.tensordot(self.space.output, towards[:, :, rows], (0, 1)).T
            )
            towards = towards - np.tensordot(pull.T, columns, 1)
            self.watched = Watched(mean + moved @ pull, cov - pull.T @ pull, towards)
        self._keep(coordinates, columns)
        self.information += float(
            np.log(np.diagonal(L)).sum() - 0.5 * np.log(noise).sum()
        )

    @property
    def plain(self) -> bool:
        """Whether :meth:`learn_one` will do: s is 1, and nothing is watched."""
        return len(self._mean) == 1 and not len(self.watched.mean)

    def learn_one(self, row: int, time: float, residual: float, noise: float) -> None:
        """Pass to a time and observe one reward, as in nearly every round."""
        h = self.space.output.item()
        if time > self.time > -math.inf:
            self._fade(self.space.transition(time - self.time).item())
        coordinates, variance = self._coordinates_of(
            row, h
        )  # (c,), and P at the arm itself
        total = (
            max(variance, 0.0) + noise
        )  # what is left of a variance may be all rounding
        deviation = math.sqrt(total)
        moved = (residual - h * self._left * self._mean.item(row)) / deviation
        column = self._keep_one(coordinates, 1.0 / (deviation * self._left))
        self._mean = self._mean + moved * column
        self._known = self._known + column * column
        self._tidy()
        self.information += 0.5 * math.log(total / noise)
        self.steps += time > self.time
        self.time = time

    @abstractmethod
    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        """P of one arm in the form's own coordinates, (c,), a new array, and P at the arm itself."""

    @abstractmethod
    def _keep_one(self, coordinates: Floats, factor: float) -> Floats:
        """Keep coordinates times a factor; returns the column of Λ's root for every arm, (n,)."""

    @abstractmethod
    def _tidy(self) -> None:
        """Called when rewards were learned."""

    def watch(self, rows: Ints) -> None:
        """From now on what is learned of this moment's rewards of these arms is followed."""
        h, (mean, cov, towards) = self.space.output, self.watched
        own = self._expanded(self._coordinates(rows))  # (k, s, n)
        across, corner = (
            np.tensordot(h, each[:, :, rows], (0, 1)) for each in (towards, own)
        )
        cov = np.block([[cov, across], [across.T, corner]])
        mean = np.append(mean, self._left * (h @ self._mean[:, rows]))
        self.watched = Watched(mean, cov, np.concatenate([towards, own]))

    def moments(self, rows: Ints, output: Floats) -> tuple[Floats, Floats]:
        """Of g·z(x): mean, and by how much its variance has shrunk, (k,) each."""
        if len(output) == 1:
            g = self._left * output.item()
            return g * self._mean[0, rows], (g * g) * self._known[0, 0, rows]
        shrunk = np.einsum("a,b,abn->n", output, output, self._known[:, :, rows])
        return output @ self._mean[:, rows], shrunk

    def all_moments(self, A: Floats) -> tuple[Floats, Floats]:
        """:meth:`moments` of every arm once this transition has passed, (n,) each, new arrays."""
        h = self.space.output
        if len(A) == 1:
            g = self._left * h.item() * A.item()
            return g * self._mean[0], (g * g) * self._known[0, 0]
        output = h @ A
        with blas_threads_for(self._known.size):
            return output @ self._mean, np.einsum(
                "a,b,abn->n", output, output, self._known
            )


class FoldedForm(Form):
    """W itself, one column for each observation, until what has faded is left out."""

    name = "folded"

    def __init__(
        self, space: StateSpace, prior: PriorRows, n: int, scale: float
    ) -> None:
        super().__init__(space, prior, n)
        s = len(space.output)
        self._scale = scale  # the largest prior variance
        self._W = np.empty(
            (_ROOM, s, n)
        )  # W/c, one row per column of W: rows are contiguous
        self._rank = 0
        self.compact_at = 2 * _ROOM

    @classmethod
    def of(cls, form: VisitedForm, scale: float) -> FoldedForm:
        """The same knowledge, with what can be left out left out."""
        folded = cls(form.space, form.prior, form.shape[1], scale)
        folded.time, folded.steps, folded.information = (
            form.time,
            form.steps,
            form.information,
        )
        folded.set_blocks(form.mean, form.known)
        folded.watched = form.watched
        values, vectors = np.linalg.eigh(form.learned)
        folded._W = form._expanded((np.sqrt(np.maximum(values, 0.0)) * vectors).T)
        folded._rank = len(folded._W)
        folded.compact()
        return folded

    @property
    def rank(self) -> int:
        return self._rank

    def arrays(self) -> dict[str, NDArray[Any]]:
        m = self._rank
        return {**super().arrays(), "columns": self._W[:m].reshape(m, -1)}

    def scalars(self) -> dict[str, float]:
        return {**super().scalars(), "rank": self._rank, "compact_at": self.compact_at}

    def resume(self, state: State) -> bool:
        s, n = self.shape
        columns = as_features(state.array("columns"), "columns", s * n)
        if len(columns) != state.scalar("rank"):
            raise StateError("this state is damaged: it has lost columns")
        self._W = columns.reshape(-1, s, n).copy()
        self._rank = len(columns)
        self.compact_at = as_count(
            state.scalar("compact_at"), "compact_at", len(columns)
        )
        return True

    def copied(self, prior: PriorRows | None = None) -> Self:
        other = super().copied(prior)
        other._W = self._W[: self._rank]
        return other

    def _turn(self, A: Floats) -> None:
        m = self._rank
        turned = np.empty((max(len(self._W), m + 1), *self.shape))  # with the same room
        np.matmul(A, self._W[:m], out=turned[:m])
        self._W = turned
        self.error *= float(np.linalg.norm(A, 2)) ** 2

    def _unscale_learned(self) -> None:
        self._W = self._left * self._W[: self._rank]

    def _coordinates(self, rows: Ints) -> Floats:
        h, (s, n), m = self.space.output, self.shape, self._rank
        slots = self.prior.visit(rows)  # may add rows
        prior = self.prior.rows[slots]  # K_S, (k, n)
        seen = self.roots(rows, np.tile(h, (len(rows), 1)))  # (k, m)
        explained: Floats = (self._left * seen) @ self._W[:m].reshape(m, s * n)
        towards = (h[:, None] * prior[:, None, :]).reshape(len(rows), s * n)
        return np.subtract(towards, explained, out=explained)

    def _at(self, coordinates: Floats, rows: Ints) -> Floats:
        s, n = self.shape
        columns = coordinates.reshape(-1, s, n)[:, :, rows]
        return np.asarray(np.tensordot(columns, self.space.output, axes=(1, 0)))

    def _expanded(self, coordinates: Floats) -> Floats:
        return coordinates.reshape(-1, *self.shape)  # (k, s, n)

    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        prior = self.prior.row(row)
        W = self._W[: self._rank, 0]
        column = (self._left**2 * W[:, row]).dot(W)
        np.subtract(prior, column, out=column)
        if h != 1.0:
            column *= h
        return column, h * column.item(row)

    def _keep_one(self, coordinates: Floats, factor: float) -> Floats:
        m = self._rank
        self._W = with_room(self._W, m, m + 1)
        column: Floats = self._W[m, 0]
        self._rank = m + 1
        return np.multiply(coordinates, factor, out=column)

    def _tidy(self) -> None:
        if self._rank >= self.compact_at:
            self.compact()

    def _keep(self, coordinates: Floats, columns: Floats) -> None:
        m, grown = self._rank, self._rank + len(columns)
        self._W = with_room(self._W, m, grown)
        np.divide(columns, self._left, out=self._W[m:grown])
        self._rank = grown
        self._tidy()

    def compact(self) -> None:
        """Rotate W, and leave out of it what has faded."""
        (s, n), m = self.shape, self._rank
        W = self._left * self._W[:m].reshape(m, s * n)
        values, vectors = np.linalg.eigh(W @ W.T)
        gain = float(self.space.output @ self.space.output)
        # The smallest first; beyond n·s of them, all but rounding is 0, and does not count.
        beyond = np.arange(m) < m - s * n
        dropped = gain * np.cumsum(np.where(beyond, 0.0, np.maximum(values, 0.0)))
        first = int(
            np.searchsorted(
                dropped, TRUNCATION * self._scale - self.error, side="right"
            )
        )
        if first:
            # Any entry of what is left out is at most its largest eigenvalue, at most their sum.
            self.error += float(dropped[first - 1])
        kept = m - first
        self.compact_at = 2 * kept + _ROOM
        self._W = np.empty(
            (self.compact_at, s, n)
        )  # a new one: others may read the old
        np.matmul(vectors[:, first:].T, W, out=self._W[:kept].reshape(kept, s * n))
        self._rank = kept
        self._mean, self._known, self._left = self.mean, self.known, 1.0

    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        found: Floats = np.einsum(
            "ka,mak->km", outputs, self._W[: self._rank][:, :, rows]
        )
        return self._left * found

    def explained(self, left: Floats, right: Floats) -> Floats:
        return np.asarray(left @ right.T)


class _BasisForm(Form):
    """G over a basis of functions on the arms.

    Where s is 1, the last few rewards stay beside G as R, one row each, until one product adds RᵀR.
    """

    _grows: ClassVar[bool] = False  # whether functions are added to the basis

    def __init__(self, space: StateSpace, prior: PriorRows, n: int, size: int) -> None:
        super().__init__(space, prior, n)
        self._G = np.zeros(
            (size * len(space.output),) * 2
        )  # G/c²; 0 for coordinates beyond its own
        self._recent = np.empty(
            (0, 0)
        )  # R/c, whose rows are 0 beyond their own coordinates
        self._recent_count = 0  # rows in use

    @property
    @abstractmethod
    def _basis(self) -> Floats:
        """Bᵀ, (q, n)."""

    @abstractmethod
    def _units(self, rows: Ints) -> Floats:
        """e_x for each of these arms, (k, q)."""

    @property
    def learned(self) -> Floats:
        """G, (r, r), a new array."""
        learned = self._with_rows(self._recent[: self._recent_count, : self.rank])
        learned *= self._left**2
        return learned

    def _with_rows(self, rows: Floats) -> Floats:
        """G/c² and the squares of these rows, (r, r), a new array."""
        width, held, rank = rows.shape[1], len(self._G), self.rank
        if width == rank:
            made: Floats = rows.T @ rows
        else:
            made = np.zeros((rank, rank))
            made[:width, :width] = rows.T @ rows
        made[:held, :held] += self._G
        return made

    def _set_learned(self, G: Floats) -> None:
        """Take this for G/c²."""
        self._G = G
        self._recent, self._recent_count = np.empty((0, 0)), 0

    def _times_learned(self, vectors: Floats) -> Floats:
        """The product of vectors (r,) or (k, r) with G."""
        held, rank = len(self._G), self.rank
        found: Floats
        if held == rank:
            found = vectors.dot(self._G)
        else:
            found = np.zeros_like(vectors)
            found[..., :held] = vectors[..., :held].dot(self._G)
        if self._recent_count:
            recent = self._recent[: self._recent_count, :rank]
            width = recent.shape[1]
            found[..., :width] += vectors[..., :width].dot(recent.T).dot(recent)
        if self._left != 1.0:
            found *= self._left**2
        return found

    @property
    def rank(self) -> int:
        return len(self._basis) * self.shape[0]

    def arrays(self) -> dict[str, NDArray[Any]]:
        recent = self._recent[: self._recent_count, : self.rank]
        return {**super().arrays(), "G": self._G, "recent": recent}

    def resume(self, state: State) -> bool:
        held = as_features(state.array("G"), "G")
        recent = as_features(state.array("recent"), "recent")
        s, rank = self.shape[0], self.rank
        # Where a basis has grown, G may lack coordinates that rewards have since.
        whole = len(held) == rank or (
            self._grows and len(held) < rank and len(recent) > 0
        )
        square = len(held) == held.shape[1] and not len(held) % s
        fits = not len(recent) or (
            recent.shape[1] == rank and s == 1 and len(recent) < _MOST_RECENT
        )
        if not (whole and square and fits):
            raise StateError("this state is damaged: it belongs to another basis")
        self._G = held.copy()
        self._recent, self._recent_count = recent.copy(), len(recent)
        return True

    def copied(self, prior: PriorRows | None = None) -> Self:
        other = super().copied(prior)
        other._recent = self._recent[: self._recent_count]
        return other

    def _turn(self, A: Floats) -> None:
        G = self._G
        s, size = len(A), len(G)
        half = (G.reshape(-1, s) @ A.T).reshape(size, size)
        self._G = (half.T.reshape(-1, s) @ A.T).reshape(size, size)

    def _unscale_learned(self) -> None:
        self._set_learned(self.learned)

    def _coordinates(self, rows: Ints) -> Floats:
        h = self.space.output
        units = self._units(rows)  # may add to the basis
        found = (units[:, :, None] * h).reshape(len(rows), -1)
        found -= self._times_learned(self.roots(rows, np.tile(h, (len(rows), 1))))
        return found

    def _at(self, coordinates: Floats, rows: Ints) -> Floats:
        h = self.space.output
        outputs = coordinates.reshape(len(coordinates), -1, len(h)) @ h
        return np.asarray(outputs @ self._basis[:, rows])

    def _expanded(self, coordinates: Floats) -> Floats:
        s, n = self.shape
        by_state = coordinates.reshape(len(coordinates), -1, s).transpose(0, 2, 1)
        columns: Floats = by_state.reshape(len(coordinates) * s, -1) @ self._basis
        return columns.reshape(len(coordinates), s, n)

    def _keep_one(self, coordinates: Floats, factor: float) -> Floats:
        count, width = self._recent_count, len(coordinates)
        if count >= len(self._recent) or width > self._recent.shape[1]:
            self._make_room(count + 1, width)
        kept = self._recent[count, :width]
        np.multiply(coordinates, factor, out=kept)
        if self._grows:
            self._recent[count, width:] = (
                0.0  # where one that was not adopted may have written
            )
        self._recent_count = count + 1
        return self._column(kept)

    def _column(self, coordinates: Floats) -> Floats:
        """What has these coordinates in B, for every arm, (n,)."""
        column: Floats = coordinates.dot(self._basis)
        return column

    def _make_room(self, count: int, width: int) -> None:
        """A longer array, as others may read this one. A basis that grows has room for more."""
        used = self._recent_count
        room = np.zeros((max(count, _MOST_RECENT), width + _MOST_RECENT * self._grows))
        room[:used, : self._recent.shape[1]] = self._recent[:used]
        self._recent = room

    def _tidy(self) -> None:
        if self._recent_count >= _MOST_RECENT:
            self._set_learned(
                self._with_rows(self._recent[: self._recent_count, : self.rank])
            )

    def _keep(self, coordinates: Floats, columns: Floats) -> None:
        if self.shape[0] > 1:
            self._G = self._with_rows(coordinates)
            return
        count, grown, width = (
            self._recent_count,
            self._recent_count + len(coordinates),
            self.rank,
        )
        if grown > len(self._recent) or width > self._recent.shape[1]:
            self._make_room(grown, width)
        np.divide(coordinates, self._left, out=self._recent[count:grown, :width])
        self._recent[count:grown, width:] = (
            0.0  # where one that was not adopted may have written
        )
        self._recent_count = grown
        self._tidy()

    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        values = self._basis[:, rows].T  # (k, q)
        return (values[:, :, None] * outputs[:, None, :]).reshape(len(rows), -1)

    def explained(self, left: Floats, right: Floats) -> Floats:
        return np.asarray(self._times_learned(left) @ right.T)


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
        self._features = np.ascontiguousarray(
            features
        )  # an arm's own lie together, (n, q)
        self._transposed = np.ascontiguousarray(
            features.T
        )  # for products with all of them
        super().__init__(space, prior, n, q)
        self._factored = len(space.output) == 1 and n * q <= _MOST_FACTORED
        self._rows = np.empty(
            (min(_ROOM, q) if self._factored else 0, n + q)
        )  # divided by c
        self._count = 0  # rows in use

    @property
    def _basis(self) -> Floats:
        return self._transposed

    @property
    def learned(self) -> Floats:
        """G, (q·s, q·s), a new array."""
        if not self._factored:
            return super().learned
        root = self._root_in_basis()
        return root.T @ root

    def arrays(self) -> dict[str, NDArray[Any]]:
        held = super().arrays()
        if self._factored:  # a state holds G
            root = self._rows[: self._count, self.shape[1] :]
            held["G"] = root.T @ root
        return held

    def _root_in_basis(self) -> Floats:
        """Γ with G = ΓᵀΓ, (m, q)."""
        return self._left * self._rows[: self._count, self.shape[1] :]

    def _make_whole(self) -> None:
        """From now on G itself."""
        if self._factored:
            root = self._rows[: self._count, self.shape[1] :]
            self._set_learned(root.T @ root)
            self._drop_factor()

    def _drop_factor(self) -> None:
        self._factored, self._count = False, 0
        self._rows = self._rows[:0]

    def resume(self, state: State) -> bool:
        """Another processor may round features into other signs, or keep one more of the smallest."""
        self._drop_factor()
        held = np.shape(state.array("G"))
        is_square = len(held) == 2 and held[0] == held[1]
        if (
            is_square
            and 0 < abs(held[0] - self.rank) <= _ROUNDED_FEATURES * self.shape[0]
        ):
            return False
        super().resume(state)
        return self._explains_what_is_known()

    def _explains_what_is_known(self) -> bool:
        """Whether G in this basis gives the blocks of Λ on its diagonal, which no basis changes."""
        s, n = self.shape
        every = np.arange(n)
        roots = [
            self.roots(every, np.tile(unit, (n, 1))) for unit in np.eye(s)
        ]  # s times (n, q·s)
        blocks = np.array(
            [
                [np.vecdot(self._times_learned(left), right) for right in roots]
                for left in roots
            ]
        )
        known = self.known
        return bool(np.abs(blocks - known).max() <= _SAME_BASIS * np.abs(known).max())

    def copied(self, prior: PriorRows | None = None) -> Self:
        other = super().copied(prior)
        other._rows = self._rows[: self._count]
        return other

    def _unscale_learned(self) -> None:
        if self._factored:
            self._rows = self._left * self._rows[: self._count]
        else:
            super()._unscale_learned()

    def _coordinates(self, rows: Ints) -> Floats:
        self._make_whole()
        return super()._coordinates(rows)

    def _units(self, rows: Ints) -> Floats:
        return self._features[rows]

    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        if self._factored:
            return self._both_of(row, h)
        features: Floats = self._features[row]
        found = features.dot(self._G)
        if self._recent_count:
            recent = self._recent[: self._recent_count]
            found += recent.dot(features).dot(recent)
        found *= -(self._left**2)
        found += features
        if h != 1.0:
            found *= h
        return found, h * float(found.dot(features))

    def _both_of(self, row: int, h: float) -> tuple[Floats, float]:
        """P of one arm for every arm and in B, (n + q,), by the factor, and P at the arm itself."""
        prior, n = self.prior.row(row), self.shape[1]
        rows = self._rows[: self._count]
        both = (self._left**2 * rows[:, row]).dot(rows)
        np.subtract(prior, both[:n], out=both[:n])
        np.subtract(self._features[row], both[n:], out=both[n:])
        if h != 1.0:
            both *= h
        return both, h * both.item(row)

    def _keep_one(self, coordinates: Floats, factor: float) -> Floats:
        if not self._factored:
            return super()._keep_one(coordinates, factor)
        m = self._count
        self._rows = with_room(self._rows, m, m + 1)
        both: Floats = self._rows[m]
        np.multiply(coordinates, factor, out=both)
        self._count = m + 1
        return both[: self.shape[1]]

    def _tidy(self) -> None:
        if not self._factored:
            super()._tidy()
        elif self._count >= self._features.shape[1]:
            self._make_whole()

    def explained(self, left: Floats, right: Floats) -> Floats:
        if not self._factored:
            return super().explained(left, right)
        root = self._root_in_basis()
        return np.asarray((left @ root.T) @ (right @ root.T).T)


class VisitedForm(_BasisForm):
    """B are prior covariances with the arms visited so far."""

    name = "visited"
    _grows = True

    def __init__(self, space: StateSpace, prior: PriorRows, n: int) -> None:
        super().__init__(space, prior, n, 0)
        self._size = 0  # of the arms visited those that it knows of: others may have visited more
        self.compare_at = (
            2 * _ROOM
        )  # rank at which it is next compared with the folded form

    @property
    def _basis(self) -> Floats:
        return self.prior.rows[: self._size]

    @property
    def rank(self) -> int:
        return self._size * self.shape[0]

    def scalars(self) -> dict[str, float]:
        return {**super().scalars(), "compare_at": self.compare_at}

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            **super().arrays(),
            "visited": np.array(self.prior.visited[: self._size], np.intp),
        }

    def resume(self, state: State) -> bool:
        rows = as_rows(state.array("visited"), self.shape[1])
        self.prior.visit(rows)
        if self.prior.visited[: len(rows)] != rows.tolist():
            raise StateError(
                "this state is damaged: its arms were visited in another order"
            )
        self._size = len(rows)
        super().resume(state)
        self.compare_at = as_count(state.scalar("compare_at"), "compare_at")
        return True

    def _units(self, rows: Ints) -> Floats:
        slots = self.prior.visit(rows)
        self._size = max(self._size, int(slots.max()) + 1)
        units = np.zeros((len(rows), self._size))
        units[np.arange(len(rows)), slots] = 1.0
        return units

    def _coordinates_of(self, row: int, h: float) -> tuple[Floats, float]:
        slot = self.prior.visit_one(row)
        self._size = max(self._size, slot + 1)
        values = self._basis[:, row].copy()
        found = self._times_learned(values)
        found *= -h
        found[slot] += h  # e_x is a unit vector
        return found, h * float(found.dot(values))
