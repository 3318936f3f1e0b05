"""Prior means of numbered arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats
from superarm.core.inputs import as_count, as_numbers, as_vector, read_only
from superarm.core.registry import register


@register("mean", "by-number")
@dataclass(frozen=True, kw_only=True, eq=False)
class ByNumber:
    """A prior mean for numbered arms: ``values[i]`` for the arm whose ``column`` contains i.

    Args:
        values: The prior mean of each arm, (n,).
        column: The column of the features that contains the arm's number.

    >>> import numpy as np
    >>> ByNumber(values=[0.5, 2.0])(np.array([[1.0, 7.0]]))
    array([2.])
    """

    values: Floats
    column: int = 0

    def __post_init__(self) -> None:
        values = as_vector(self.values, "values")
        object.__setattr__(self, "values", read_only(values))
        column = as_count(self.column, "column", 0)
        object.__setattr__(self, "column", column)

    def __call__(self, rows: Floats) -> Floats:
        values = self.values
        column = rows[:, self.column]
        numbers = as_numbers(column, len(values), "arms", self.column)
        return np.asarray(values[numbers])
