"""Features of a kernel on a box around arms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.kernels import FeatureMap, Kernel

from .finite_rank import FEATURE_ERROR


class KernelFeatures(NamedTuple):
    """Features of a kernel, and the error that was allowed for them."""

    features: FeatureMap
    tolerance: float

    @classmethod
    def around(cls, arms: Floats, kernel: Kernel, limit: int) -> KernelFeatures | None:
        """Features on a box around arms; ``None`` if ``limit`` of them do not suffice.

        Args:
            arms: At least one arm, (m, d).
            kernel: The kernel.
            limit: The largest number of features.
        """
        variances = kernel.diag(arms)
        tolerance = FEATURE_ERROR * float(np.max(variances))
        lower, upper = _box_around(arms)
        features = kernel.features(lower, upper, tolerance, max_rank=limit)
        if features is None or not features.covers(arms):
            return None
        return cls(features, tolerance)


def _box_around(arms: Floats) -> tuple[Floats, Floats]:
    """The corners of a box around arms, with a margin, so that it is rarely outgrown."""
    lower = arms.min(axis=0)
    upper = arms.max(axis=0)
    sizes = np.maximum(1.0, np.abs(upper))
    margin = 0.05 * (upper - lower) + 1e-12 * sizes
    return lower - margin, upper + margin
