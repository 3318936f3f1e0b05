"""Incomplete factors of what neighbouring roads share, as precise as they need to be.

=============  =======================================================================
``P``          scale · K_G⁻¹ + diag(shift), (n, n)
``L̃ D L̃ᵀ``     its incomplete factor
``θ``          Ritz values: eigenvalues of (L̃ D L̃ᵀ)⁻¹ P, nearly
=============  =======================================================================

How much a dropped entry counts depends on the kernel: the further similarity reaches along the network,
the more. So the smallest θ is measured by a few steps of conjugate gradients, and less is dropped until it
is near enough to 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.kernels import GraphMatern
from superarm.kernels.incomplete_factor import IncompleteFactor

from .conjugate_gradients import conjugate_gradients

_STEPS = 8  # of conjugate gradients, which measure θ
_SHRINKAGE = 0.1  # of the drop from one trial to the next
_LEAST_DROP = 1e-10


class NearFactor(NamedTuple):
    """A factor, what was dropped of it, and by how much it overestimates P."""

    factor: IncompleteFactor
    drop: float
    smallest: float  # θ


def near_factor(
    kernel: GraphMatern, scale: float, shift: Floats, drop: float, error: float
) -> NearFactor:
    """A factor of which at most so much is dropped that θ stays above 1 − ``error``.

    Args:
        kernel: k_G.
        scale: What multiplies its precision.
        shift: What is added to the diagonal, (n,).
        drop: How small entries must be to be dropped, at most.
        error: How far θ may be below 1.
    """

    def times(values: Floats) -> Floats:
        return scale * kernel.precision_times(values) + shift * values

    normals = np.random.default_rng(0).standard_normal(len(kernel))
    while True:
        factor = kernel.precision_factor(scale, shift, drop)
        solution = conjugate_gradients(
            times,
            factor.solve,
            normals,
            start=None,
            is_enough=lambda squared, gained: squared == 0.0,
            smallest=np.inf,
            most=_STEPS,
        )
        smallest = min(solution.smallest, 1.0)
        if smallest >= 1.0 - error or drop < _LEAST_DROP:
            return NearFactor(factor, drop, smallest)
        drop *= _SHRINKAGE
