"""A factor that all parts of a sum share, evaluated once: Σ_i r_i·m = (Σ_i r_i)·m.

The kernel of roads, k_G·k_f + k′_f, has the same Matérn function in both parts wherever their
lengthscales agree. Written as (s·k_G + s′)·m, it needs half of the exponentials and distances, and
its derivative in the features needs one pass in place of two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from superarm.core import Covariance

from .base import DEFAULT_BOUNDS
from .constant import Constant
from .matern import Matern
from .products import Product
from .radial import Radial
from .rational_quadratic import RationalQuadratic
from .scaling import Scale
from .squared_exponential import SquaredExponential
from .sums import Sum

# Equal parameters of these make equal functions; a subclass may have more to compare.
_COMPARABLE = (Matern, RationalQuadratic, SquaredExponential)


class _Split(NamedTuple):
    """remainder · factor, where the factor has variance 1."""

    remainder: Covariance
    factor: Radial


def with_common_factor(kernel: Covariance) -> Covariance:
    """The same function, written as a product where all parts of a sum share a radial kernel.

    Values differ from those of ``kernel`` by rounding alone. Hyper-parameters are no longer one by
    one those of ``kernel``: use the result for evaluation, not for fitting or for states.

    Args:
        kernel: Any kernel; it is returned unchanged where there is no common factor.
    """
    if not isinstance(kernel, Sum) or len(kernel.kernels) == 1:
        return kernel
    splits = [_split(part) for part in kernel.kernels]
    remainders: list[Covariance] = []
    factors: list[Radial] = []
    for split in splits:
        if split is None:
            return kernel
        remainders.append(split.remainder)
        factors.append(split.factor)
    common = factors[0]
    if any(factor != common for factor in factors):
        return kernel
    remainder = Sum(kernels=tuple(remainders))
    return Product(kernels=(remainder, common))


def _split(part: Covariance) -> _Split | None:
    """The one radial kernel in a part, and everything else; ``None`` if there is not just one."""
    parts: tuple[Covariance, ...] = (part,)
    if isinstance(part, Product):
        parts = part.kernels
    radial = [item for item in parts if type(item) in _COMPARABLE]
    if len(radial) != 1:
        return None
    factor = radial[0]
    assert isinstance(factor, Radial)
    others = tuple(item for item in parts if item is not factor)
    unit = replace(
        factor,
        variance=1.0,
        variance_bounds=DEFAULT_BOUNDS,
        lengthscale_bounds=DEFAULT_BOUNDS,
    )
    if not others:
        return _Split(Constant(variance=factor.variance), unit)
    remainder = others[0] if len(others) == 1 else Product(kernels=others)
    if factor.variance != 1.0:
        remainder = Scale(kernel=remainder, factor=factor.variance)
    return _Split(remainder, unit)
