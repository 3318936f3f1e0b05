"""How fast functions of a kernel change."""

from __future__ import annotations

import math

import numpy as np

from superarm.core.errors import InputError

from .matern import Matern
from .squared_exponential import SquaredExponential


def lipschitz_of_kernel(kernel: object) -> float:
    """L = √(∂²k/∂p∂q at p = q) of a kernel (section 4.2); the shortest lengthscale decides.

    √v/l for v·exp(−s²/(2l²)). A Matérn kernel has k(s) = v(1 − ν/(2(ν−1))·(s/l)² + …), hence
    √(v·ν/(ν−1))/l; it needs ν > 1, below which draws have no slope.

    Args:
        kernel: A :class:`SquaredExponential`, or a :class:`Matern` with ν > 1.
    """
    if not isinstance(kernel, SquaredExponential | Matern):
        raise InputError(
            f"no closed form for {type(kernel).__name__}; "
            "SquaredExponential and Matern (nu > 1) have one"
        )
    factor = 1.0
    if isinstance(kernel, Matern):
        factor = _matern_factor(kernel.nu)
    shortest = float(np.min(kernel.lengthscale))
    slope = math.sqrt(kernel.variance) / shortest
    return factor * slope


def _matern_factor(nu: float) -> float:
    """√(ν/(ν−1)), 1 for ν = ∞."""
    if nu <= 1.0:
        raise InputError(
            f"nu is {nu}; functions of a Matérn kernel have slopes for nu > 1"
        )
    if math.isinf(nu):
        return 1.0
    return math.sqrt(nu / (nu - 1.0))
