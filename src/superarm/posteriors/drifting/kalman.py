"""The Kalman form: G over finitely many features of the kernel."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, State
from superarm.core.linalg import with_room
from superarm.kernels.state_space import StateSpace

from .basis import BasisForm
from .form import INITIAL_ROOM
from .prior_rows import PriorRows

# Processors may disagree about features whose size is near the tolerance, at most this many.
_ROUNDED_FEATURES = 16
# Relative difference of variances up to which a saved G belongs to this basis.
_SAME_BASIS = 1e-6
# Numbers in B up to which a form may store the factor of G: 16 MB.
_MOST_FACTORED = 2e6


class KalmanForm(BasisForm):
    """B are features of the kernel: the cost does not depend on the number of observations.

    While fewer than q rewards were observed, the form stores a factor of G: one row per reward,
    with its column of Λ's root for every arm and the same column's coordinates in B, (m, n + q).
    A round then reads m·n numbers instead of the q·n of B. Questions use the factor; operations
    that cannot use it multiply it out to G first.
    """

    name = "kalman"

    def __init__(self, space: StateSpace, prior: PriorRows, features: Floats) -> None:
        n, q = features.shape
        # (n, q), for one arm's features
        self._features = np.ascontiguousarray(features)
        # (q, n), for products
        self._transposed = np.ascontiguousarray(features.T)
        super().__init__(space, prior, n, q)
        is_scalar_state = len(space.output) == 1
        is_small = n * q <= _MOST_FACTORED
        self._factored = is_scalar_state and is_small
        room = min(INITIAL_ROOM, q) if self._factored else 0
        self._rows = np.empty((room, n + q))  # the factor, over c
        self._count = 0  # rows in use

    @property
    def _basis(self) -> Floats:
        return self._transposed

    def _units(self, rows: Ints) -> Floats:
        return self._features[rows]

    # --- the factor ------------------------------------------------------------------------

    @property
    def learned(self) -> Floats:
        """G, (q·s, q·s), a new array."""
        if not self._factored:
            return super().learned
        root = self._decay * self._stored_root()
        return root.T @ root

    def _stored_root(self) -> Floats:
        """Γ/c, where G = ΓᵀΓ, (m, q)."""
        n = self.shape[1]
        return self._rows[: self._count, n:]

    def _multiply_out(self) -> None:
        """Store G from now on, instead of its factor."""
        if self._factored:
            root = self._stored_root()
            self._set_learned(root.T @ root)
            self._drop_factor()

    def _drop_factor(self) -> None:
        self._factored = False
        self._count = 0
        self._rows = self._rows[:0]

    def _unscale_learned(self) -> None:
        if self._factored:
            self._rows = self._decay * self._rows[: self._count]
        else:
            super()._unscale_learned()

    def _compress_if_due(self) -> None:
        if not self._factored:
            super()._compress_if_due()
        elif self._count >= self._features.shape[1]:
            self._multiply_out()

    # --- state and copies ------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        arrays = super().arrays()
        if self._factored:  # states hold G, never the factor
            root = self._stored_root()
            arrays["G"] = root.T @ root
        return arrays

    def resume(self, state: State) -> bool:
        """Resume from a state; ``False`` if its numbers refer to another basis than this form's.

        Another processor may round features into other signs, or keep one more of the smallest.

        Args:
            state: A state with what :meth:`arrays` and :meth:`scalars` returned.
        """
        self._drop_factor()
        shape = np.shape(state.array("G"))
        is_square = len(shape) == 2 and shape[0] == shape[1]
        if is_square:
            s, _ = self.shape
            difference = abs(shape[0] - self.rank)
            if 0 < difference <= _ROUNDED_FEATURES * s:
                return False
        super().resume(state)
        return self._explains_reduction()

    def _explains_reduction(self) -> bool:
        """Whether G in this basis gives the diagonal blocks of Λ, which no basis changes."""
        s, n = self.shape
        all_arms = np.arange(n)
        roots = []  # s times (n, q·s)
        for unit in np.eye(s):
            outputs = np.tile(unit, (n, 1))
            roots.append(self.roots(all_arms, outputs))
        blocks = np.empty((s, s, n))
        for i, left in enumerate(roots):
            product = self._times_learned(left)
            for j, right in enumerate(roots):
                blocks[i, j] = np.vecdot(product, right)
        reduction = self.reduction
        largest = np.abs(reduction).max()
        largest_difference = np.abs(blocks - reduction).max()
        return bool(largest_difference <= _SAME_BASIS * largest)

    def copy(self, prior: PriorRows | None = None) -> Self:
        other = super().copy(prior)
        other._rows = self._rows[: self._count]
        return other

    # --- coordinates -----------------------------------------------------------------------

    def _coordinates(self, rows: Ints) -> Floats:
        self._multiply_out()
        return super()._coordinates(rows)

    def _coordinates_of_one(self, row: int, h: float) -> tuple[Floats, float]:
        if self._factored:
            return self._covariances_of_one(row, h)
        features: Floats = self._features[row]
        coordinates = features.dot(self._G)
        if self._recent_count:
            recent = self._recent[: self._recent_count]
            coordinates += recent.dot(features).dot(recent)
        coordinates *= -(self._decay**2)
        coordinates += features
        if h != 1.0:
            coordinates *= h
        return coordinates, h * float(coordinates.dot(features))

    def _covariances_of_one(self, row: int, h: float) -> tuple[Floats, float]:
        """P of one arm by the factor: for every arm and in B, (n + q,), and P at the arm itself."""
        n = self.shape[1]
        prior = self.prior.row(row)
        factor = self._rows[: self._count]
        weights = self._decay**2 * factor[:, row]
        both = weights.dot(factor)
        for_arms = both[:n]
        in_basis = both[n:]
        np.subtract(prior, for_arms, out=for_arms)
        np.subtract(self._features[row], in_basis, out=in_basis)
        if h != 1.0:
            both *= h
        return both, h * both.item(row)

    def _append_one(self, coordinates: Floats, factor: float) -> Floats:
        if not self._factored:
            return super()._append_one(coordinates, factor)
        count = self._count
        self._rows = with_room(self._rows, count, count + 1)
        row: Floats = self._rows[count]
        np.multiply(coordinates, factor, out=row)
        self._count = count + 1
        n = self.shape[1]
        return row[:n]

    # --- answers ---------------------------------------------------------------------------

    def explained(self, left: Floats, right: Floats) -> Floats:
        if not self._factored:
            return super().explained(left, right)
        root = self._decay * self._stored_root()  # Γ
        left_values = left @ root.T
        right_values = right @ root.T
        return np.asarray(left_values @ right_values.T)

    def explained_weights(self, g: Floats) -> Floats:
        """(I ⊗ g) G (I ⊗ g)ᵀ, what was learned of the features' weights, (q, q).

        Args:
            g: The output, (s,).
        """
        q = self._features.shape[1]
        s = len(g)
        G = self.learned.reshape(q * s, q, s)
        half = (G @ g).T  # G (I ⊗ g)ᵀ, transposed
        explained: Floats = half.reshape(q, q, s) @ g
        return explained
