"""How fast functions of a kernel change."""

from __future__ import annotations

import math

import numpy as np

from superarm.core.errors import InputError

from .stationary import Matern, SquaredExponential


def lipschitz_of_kernel(kernel: object) -> float:
    """L = √(∂²k/∂p∂q at p = q) of one of our kernels: section 4.2; the shortest lengthscale decides.

    √v/l for v·exp(−s²/(2l²)). A Matérn kernel has k(s) = v(1 − ν/(2(ν−1))·(s/l)² + …), hence
    √(v·ν/(ν−1))/l; it needs ν > 1, below which draws have no slope.
    """
    if not isinstance(kernel, SquaredExponential | Matern):
        told = "SquaredExponential and Matern (nu > 1) have one"
        raise InputError(f"no closed form for {type(kernel).__name__}; {told}")
    slope = 1.0
    if isinstance(kernel, Matern):
        if kernel.nu <= 1.0:
            raise InputError(
                f"nu is {kernel.nu}; functions of a Matérn kernel have slopes for nu > 1"
            )
        slope = (
            1.0 if math.isinf(kernel.nu) else math.sqrt(kernel.nu / (kernel.nu - 1.0))
        )
    return slope * (math.sqrt(kernel.variance) / float(np.min(kernel.lengthscale)))
