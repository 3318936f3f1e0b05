"""Sums and products of kernels, as ``+`` and ``*`` write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Covariance


def add(left: object, right: object) -> Any:
    """The sum of two kernels; ``NotImplemented`` for anything else.

    Args:
        left: A kernel.
        right: A kernel.
    """
    from .sums import Sum

    return _join(left, right, Sum)


def multiply(left: object, right: object) -> Any:
    """The product of two kernels, or of a kernel and a number; ``NotImplemented`` otherwise.

    Args:
        left: A kernel or a number.
        right: A kernel or a number.
    """
    from .products import Product

    if _is_number(right) and isinstance(left, Covariance):
        return _scale(left, right)
    if _is_number(left) and isinstance(right, Covariance):
        return _scale(right, left)
    return _join(left, right, Product)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number)


def _scale(kernel: Covariance, factor: Any) -> Any:
    from .scaling import Scale

    number = float(factor)
    return Scale(kernel=kernel, factor=number, factor_bounds="fixed")


def _join(left: object, right: object, kind: type[Any]) -> Any:
    """A sum or product of two kernels; sums of sums and products of products are flat."""
    if not isinstance(left, Covariance):
        return NotImplemented
    if not isinstance(right, Covariance):
        return NotImplemented
    parts: list[Covariance] = []
    for side in (left, right):
        if isinstance(side, kind):
            parts.extend(side.kernels)
        else:
            parts.append(side)
    return kind(kernels=tuple(parts))
