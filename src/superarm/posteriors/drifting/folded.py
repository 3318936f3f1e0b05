"""The folded form: the root W of what was learned, one column per observation."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.core.linalg import with_room
from superarm.kernels.state_space import StateSpace

from .basis import BasisForm
from .form import INITIAL_ROOM, TRUNCATION, Form
from .prior_rows import PriorRows


class FoldedForm(Form):
    """W itself, one column per observation, until faded parts are dropped.

    Its coordinates are values for every arm, (s·n,).
    """

    name = "folded"

    def __init__(
        self, space: StateSpace, prior: PriorRows, n: int, largest_variance: float
    ) -> None:
        super().__init__(space, prior, n)
        s = len(space.output)
        self._largest_variance = largest_variance  # of the prior
        # Wᵀ/c: the columns of W are rows here, so that each is contiguous.
        self._columns = np.empty((INITIAL_ROOM, s, n))
        self._rank = 0
        self.compact_at = 2 * INITIAL_ROOM

    @classmethod
    def from_basis(cls, form: BasisForm, largest_variance: float) -> FoldedForm:
        """The same knowledge in folded form, without what may be dropped.

        Args:
            form: The form to convert.
            largest_variance: The largest prior variance.
        """
        _, n = form.shape
        folded = cls(form.space, form.prior, n, largest_variance)
        folded.time = form.time
        folded.steps = form.steps
        folded.information = form.information
        folded.set_blocks(form.mean, form.reduction)
        folded.watched = form.watched
        values, vectors = np.linalg.eigh(form.learned)
        sizes = np.sqrt(np.maximum(values, 0.0))
        root = sizes * vectors  # of G
        folded._columns = form._expand(root.T)
        folded._rank = len(folded._columns)
        folded.compact()
        return folded

    @property
    def rank(self) -> int:
        return self._rank

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = super().arrays()
        rank = self._rank
        arrays["columns"] = self._columns[:rank].reshape(rank, -1)
        return arrays

    def scalars(self) -> dict[str, float]:
        scalars = super().scalars()
        scalars["rank"] = self._rank
        scalars["compact_at"] = self.compact_at
        return scalars

    def resume(self, state: State) -> bool:
        s, n = self.shape
        columns = state.matrix("columns", s * n)
        rank = len(columns)
        if rank != state.scalar("rank"):
            raise StateError("this state is damaged: it has lost columns")
        self._columns = columns.reshape(-1, s, n).copy()
        self._rank = rank
        self.compact_at = state.count("compact_at", rank)
        return True

    def copy(self, prior: PriorRows | None = None) -> Self:
        other = super().copy(prior)
        other._columns = self._columns[: self._rank]
        return other

    def _transition_learned(self, A: Floats) -> None:
        m = self._rank
        room = max(len(self._columns), m + 1)
        columns = np.empty((room, *self.shape))
        old_columns = self._columns[:m]
        np.matmul(A, old_columns, out=columns[:m])
        self._columns = columns
        largest_gain = float(np.linalg.norm(A, 2))
        self.error *= largest_gain**2

    def _unscale_learned(self) -> None:
        self._columns = self._decay * self._columns[: self._rank]

    def _coordinates(self, rows: Ints) -> Floats:
        h = self.space.output
        s, n = self.shape
        k = len(rows)
        m = self._rank
        slots = self.prior.visit(rows)  # first: it may replace ``prior.rows``
        K_S = self.prior.rows[slots]  # (k, n)
        by_state = h[:, None] * K_S[:, None, :]  # (k, s, n)
        prior_rows = by_state.reshape(k, s * n)
        outputs = np.tile(h, (k, 1))
        roots = self.roots(rows, outputs)  # (k, m)
        scaled_roots = self._decay * roots
        columns = self._columns[:m].reshape(m, s * n)
        explained: Floats = scaled_roots @ columns
        return np.subtract(prior_rows, explained, out=explained)

    def _evaluate(self, coordinates: Floats, rows: Ints) -> Floats:
        columns = self._expand(coordinates)
        at_rows = columns[:, :, rows]  # (k, s, len(rows))
        h = self.space.output
        covariances = np.tensordot(at_rows, h, axes=(1, 0))
        return np.asarray(covariances)

    def _expand(self, coordinates: Floats) -> Floats:
        return coordinates.reshape(-1, *self.shape)  # (k, s, n)

    def _append(self, coordinates: Floats, columns: Floats) -> None:
        rank = self._rank
        new_rank = rank + len(columns)
        self._columns = with_room(self._columns, rank, new_rank)
        np.divide(columns, self._decay, out=self._columns[rank:new_rank])
        self._rank = new_rank
        self._compress_if_due()

    def _coordinates_of_one(self, row: int, h: float) -> tuple[Floats, float]:
        prior = self.prior.row(row)
        columns = self._columns[: self._rank, 0]  # (m, n)
        weights = self._decay**2 * columns[:, row]
        covariances = weights.dot(columns)
        np.subtract(prior, covariances, out=covariances)
        if h != 1.0:
            covariances *= h
        return covariances, h * covariances.item(row)

    def _append_one(self, coordinates: Floats, factor: float) -> Floats:
        rank = self._rank
        self._columns = with_room(self._columns, rank, rank + 1)
        self._rank = rank + 1
        column: Floats = self._columns[rank, 0]
        return np.multiply(coordinates, factor, out=column)

    def _compress_if_due(self) -> None:
        if self._rank >= self.compact_at:
            self.compact()

    def compact(self) -> None:
        """Rotate W, and drop columns that have faded."""
        s, n = self.shape
        m = self._rank
        stored_columns = self._columns[:m].reshape(m, s * n)
        columns = self._decay * stored_columns  # Wᵀ
        values, vectors = np.linalg.eigh(columns @ columns.T)
        dropped_count = self._count_negligible(values)
        rotation = vectors[:, dropped_count:].T
        rank = m - dropped_count
        self.compact_at = 2 * rank + INITIAL_ROOM
        # A new array, as other forms may read the old one.
        self._columns = np.empty((self.compact_at, s, n))
        rotated = self._columns[:rank].reshape(rank, s * n)
        np.matmul(rotation, columns, out=rotated)
        self._rank = rank
        self.set_blocks(self.mean, self.reduction)

    def _count_negligible(self, values: Floats) -> int:
        """How many of these eigenvalues of WᵀW, ascending, may be dropped; adds to the error."""
        s, n = self.shape
        m = len(values)
        h = self.space.output
        gain = float(h @ h)
        # The rank is at most s·n: eigenvalues beyond are rounding, and do not count.
        rounding_count = m - s * n
        is_rounding = np.arange(m) < rounding_count
        sizes = np.maximum(values, 0.0)
        sizes = np.where(is_rounding, 0.0, sizes)
        errors = gain * np.cumsum(sizes)
        allowed = TRUNCATION * self._largest_variance - self.error
        count = int(np.searchsorted(errors, allowed, side="right"))
        if count:
            # An entry of what is dropped is at most its largest eigenvalue, at most their sum.
            self.error += float(errors[count - 1])
        return count

    def roots(self, rows: Ints, outputs: Floats) -> Floats:
        stored_columns = self._columns[: self._rank]
        columns = stored_columns[:, :, rows]  # (m, s, k)
        roots: Floats = np.einsum("ka,mak->km", outputs, columns)
        return self._decay * roots

    def explained(self, left: Floats, right: Floats) -> Floats:
        return np.asarray(left @ right.T)
