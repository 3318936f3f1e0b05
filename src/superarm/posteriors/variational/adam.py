"""The Adam optimiser of the inducing points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints

# Kingma and Ba's β₁, β₂ and ε.
_DECAY_FIRST = 0.9
_DECAY_SECOND = 0.999
_EPSILON = 1e-8


@dataclass(frozen=True, kw_only=True, eq=False)
class Adam:
    """Kingma and Ba's running moments, one row per inducing point, each with its own age."""

    first: Floats  # (M, c)
    second: Floats  # (M, c)
    age: Floats  # (M,) steps taken

    @classmethod
    def zeros(cls, size: int, columns: int) -> Adam:
        """The moments before the first step.

        Args:
            size: How many inducing points, M.
            columns: How many columns move, c.
        """
        shape = (size, columns)
        return cls(first=np.zeros(shape), second=np.zeros(shape), age=np.zeros(size))

    def selected(self, old_index: Ints) -> Adam:
        """The moments of another set of points.

        Args:
            old_index: Which old point each new one is, (M′,); −1 starts from zero.
        """
        staying = old_index >= 0
        old_rows = old_index[staying]
        adam = Adam.zeros(len(old_index), self.first.shape[1])
        adam.first[staying] = self.first[old_rows]
        adam.second[staying] = self.second[old_rows]
        adam.age[staying] = self.age[old_rows]
        return adam

    def advanced(self, gradient: Floats) -> Adam:
        """The moments after one more gradient.

        Args:
            gradient: Of what is maximised, (M, c).
        """
        squares = np.square(gradient)
        return Adam(
            first=_DECAY_FIRST * self.first + (1.0 - _DECAY_FIRST) * gradient,
            second=_DECAY_SECOND * self.second + (1.0 - _DECAY_SECOND) * squares,
            age=self.age + 1.0,
        )

    def direction(self) -> Floats:
        """The uphill step, about 1 in every column, (M, c)."""
        # Both moments start at 0; the weights so far, (M,), correct for that.
        first_weight = 1.0 - _DECAY_FIRST**self.age
        second_weight = 1.0 - _DECAY_SECOND**self.age
        first = self.first / first_weight[:, None]
        second = self.second / second_weight[:, None]
        size = np.sqrt(second) + _EPSILON
        return first / size
