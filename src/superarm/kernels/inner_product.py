"""The base class of kernels of an inner product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .base import DEFAULT_BOUNDS, Bounds, Kernel
from .checks import set_columns, set_positive


@dataclass(frozen=True, kw_only=True)
class InnerProduct(Kernel):
    """A function of x·y, with a variance and a bias ≥ 0; a bias of 0 is absent and not fitted.

    Args:
        variance: Prior variance of the weights of the features.
        bias: Added to the inner product.
        variance_bounds: Limits between which ``variance`` is fitted, or "fixed".
        bias_bounds: Limits between which ``bias`` is fitted, or "fixed".
        columns: The columns of ``X`` that the kernel uses; ``None`` means all of them.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ("variance", "bias")

    variance: float = 1.0
    bias: float = 1.0
    variance_bounds: Bounds = DEFAULT_BOUNDS
    bias_bounds: Bounds = DEFAULT_BOUNDS
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        set_positive(self, "variance")
        set_positive(self, "bias", or_zero=True)
        set_columns(self)
