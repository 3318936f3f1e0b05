"""What the forms share that store G over a basis of functions on the arms."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.kernels.state_space import StateSpace

from .form import Form
from .prior_rows import PriorRows

# Rewards that are stored beside G before one product adds them to it.
_MOST_RECENT = 32


class BasisForm(Form):
    """G over a basis of functions on the arms.

    Where s is 1, the last few rewards stay beside G as R, one row each, until one product adds
    RᵀR. Coordinates are those in the basis, (q·s,).
    """

    _grows: ClassVar[bool] = False  # whether functions are added to the basis

    def __init__(self, space: StateSpace, prior: PriorRows, n: int, size: int) -> None:
        super().__init__(space, prior, n)
        side = size * len(space.output)
        # G/c². A basis that grows may have more coordinates; G is 0 for them.
        self._G = np.zeros((side, side))
        # R/c. A row is 0 for coordinates that the basis gained after it.
        self._recent = np.empty((0, 0))
        self._recent_count = 0  # rows in use

    @property
    @abstractmethod
    def _basis(self) -> Floats:
        """Bᵀ, (q, n)."""

    @abstractmethod
    def _units(self, rows: Ints) -> Floats:
        """e_x for each of these arms, (k, q). May add functions to the basis."""

    @property
    def rank(self) -> int:
        return len(self._basis) * self.shape[0]

    # --- G, and the rewards beside it -------------------------------------------------------

    @property
    def learned(self) -> Floats:
        """G, (r, r), a new array."""
        learned = self._sum_with_squares(self._recent_rows())
        learned *= self._decay**2
        return learned

    def _recent_rows(self) -> Floats:
        """R/c, at most as wide as the basis."""
        return self._recent[: self._recent_count, : self.rank]

    def _sum_with_squares(self, rows: Floats) -> Floats:
        """G/c² plus the squares of these rows, (r, r), a new array."""
        width = rows.shape[1]
        side = len(self._G)
        rank = self.rank
        total: Floats
        if width == rank:
            total = rows.T @ rows
        else:
            total = np.zeros((rank, rank))
            total[:width, :width] = rows.T @ rows
        total[:side, :side] += self._G
        return total

    def _set_learned(self, G: Floats) -> None:
        """Set G/c², with no rewards beside it."""
        self._G = G
        self._recent = np.empty((0, 0))
        self._recent_count = 0

    def _times_learned(self, vectors: Floats) -> Floats:
        """The product of vectors (r,) or (k, r) with G."""
        side = len(self._G)
        rank = self.rank
        product: Floats
        if side == rank:
            product = vectors.dot(self._G)
        else:
            product = np.zeros_like(vectors)
            product[..., :side] = vectors[..., :side].dot(self._G)
        if self._recent_count:
            recent = self._recent[: self._recent_count, :rank]
            width = recent.shape[1]
            weights = vectors[..., :width].dot(recent.T)
            product[..., :width] += weights.dot(recent)
        if self._decay != 1.0:
            product *= self._decay**2
        return product

    def _transition_learned(self, A: Floats) -> None:
        s = len(A)
        shape = self._G.shape
        half = self._G.reshape(-1, s) @ A.T
        half_transposed = half.reshape(shape).T
        both = half_transposed.reshape(-1, s) @ A.T
        self._G = both.reshape(shape)

    def _unscale_learned(self) -> None:
        self._set_learned(self.learned)

    # --- state and copies ------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = super().arrays()
        arrays["G"] = self._G
        arrays["recent"] = self._recent_rows()
        return arrays

    def resume(self, state: State) -> bool:
        G = state.matrix("G")
        recent = state.matrix("recent")
        if not (self._accepts_learned(G, recent) and self._accepts_recent(recent)):
            raise StateError("this state is damaged: it belongs to another basis")
        self._G = G.copy()
        self._recent = recent.copy()
        self._recent_count = len(recent)
        return True

    def _accepts_learned(self, G: Floats, recent: Floats) -> bool:
        """Whether a saved G can belong to this basis."""
        side, width = G.shape
        if side != width or side % self.shape[0]:
            return False
        # Where a basis has grown, G may lack coordinates that recent rewards have.
        has_grown = self._grows and side < self.rank and len(recent) > 0
        return side == self.rank or has_grown

    def _accepts_recent(self, recent: Floats) -> bool:
        """Whether saved rewards beside G can belong to this basis."""
        if not len(recent):
            return True
        is_scalar_state = self.shape[0] == 1
        fits = recent.shape[1] == self.rank and len(recent) < _MOST_RECENT
        return is_scalar_state and fits

    def copy(self, prior: PriorRows | None = None) -> Self:
        other = super().copy(prior)
        other._recent = self._recent[: self._recent_count]
        return other

    # --- coordinates -----------------------------------------------------------------------

    def _coordinates(self, rows: Ints) -> Floats:
        h = self.space.output
        k = len(rows)
        units = self._units(rows)  # first: it may add to the basis
        by_state = units[:, :, None] * h  # (k, q, s)
        coordinates = by_state.reshape(k, -1)
        outputs = np.tile(h, (k, 1))
        roots = self.roots(rows, outputs)
        coordinates -= self._times_learned(roots)
        return coordinates

    def _evaluate(self, coordinates: Floats, rows: Ints) -> Floats:
        h = self.space.output
        k = len(coordinates)
        by_state = coordinates.reshape(k, -1, len(h))  # (k, q, s)
        outputs = by_state @ h  # (k, q)
        values = self._basis[:, rows]
        return np.asarray(outputs @ values)

    def _expand(self, coordinates: Floats) -> Floats:
        s, n = self.shape
        k = len(coordinates)
        by_state = coordinates.reshape(k, -1, s)  # (k, q, s)
        by_state = by_state.transpose(0, 2, 1)  # (k, s, q)
        weights = by_state.reshape(k * s, -1)
        columns: Floats = weights @ self._basis
        return columns.reshape(k, s, n)

    def _expand_one(self, coordinates: Floats) -> Floats:
        """The function with these coordinates, for every arm, (n,)."""
        column: Floats = coordinates.dot(self._basis)
        return column

    # --- new rewards -----------------------------------------------------------------------

    def _append(self, coordinates: Floats, columns: Floats) -> None:
        if self.shape[0] > 1:
            self._G = self._sum_with_squares(coordinates)
            return
        width = self.rank
        count = self._recent_count
        new_count = count + len(coordinates)
        if new_count > len(self._recent) or width > self._recent.shape[1]:
            self._make_room(new_count, width)
        recent = self._recent[count:new_count]
        np.divide(coordinates, self._decay, out=recent[:, :width])
        # A successor that was not adopted may have written here.
        recent[:, width:] = 0.0
        self._recent_count = new_count
        self._compress_if_due()

    def _append_one(self, coordinates: Floats, factor: float) -> Floats:
        width = len(coordinates)
        count = self._recent_count
        if count >= len(self._recent) or width > self._recent.shape[1]:
            self._make_room(count + 1, width)
        row = self._recent[count, :width]
        np.multiply(coordinates, factor, out=row)
        if self._grows:
            # A successor that was not adopted may have written here.
            self._recent[count, width:] = 0.0
        self._recent_count = count + 1
        return self._expand_one(row)

    def _make_room(self, count: int, width: int) -> None:
        """Take a larger array for R, as other forms may read this one."""
        used = self._recent_count
        height = max(count, _MOST_RECENT)
        if self._grows:
            # Every further reward may bring a function of its own.
            width += _MOST_RECENT
        recent = np.zeros((height, width))
        old_width = self._recent.shape[1]
        recent[:used, :old_width] = self._recent[:used]
        self._recent = recent

    def _compress_if_due(self) -> None:
        if self._recent_count >= _MOST_RECENT:
            recent = self._recent_rows()
            total = self._sum_with_squares(recent)
            self._set_learned(total)

    # --- answers ---------------------------------------------------------------------------

    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        values = self._basis[:, rows].T  # (k, q)
        by_state = values[:, :, None] * outputs[:, None, :]  # (k, q, s)
        return by_state.reshape(len(rows), -1)

    def explained(self, left: Floats, right: Floats) -> Floats:
        product = self._times_learned(left)
        return np.asarray(product @ right.T)
