"""The base class of kernels of a single column."""

from __future__ import annotations

from superarm.core.inputs import as_count

from .base import Kernel


class SingleColumn(Kernel):
    """A kernel that uses one column of ``X``."""

    column: int

    def __post_init__(self) -> None:
        label = f"{type(self).__name__}.column"
        column = as_count(self.column, label, 0)
        object.__setattr__(self, "column", column)

    @property
    def columns(self) -> tuple[int, ...]:  # type: ignore[override]  # kernels are frozen
        return (self.column,)
