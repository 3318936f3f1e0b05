"""What sums, products and other composites ask of their parts.

A part may be any :class:`~superarm.core.Covariance`, scikit-learn's kernels included, so it may lack
hyper-parameters, derivatives and finite-rank forms.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from superarm.core import Covariance, Floats

from .base import CovarianceGradient, Kernel, TunableCovariance
from .features import Box, FeatureMap
from .state_space import StateSpace


def theta_of(part: Covariance) -> Floats:
    """Logarithms of the part's free hyper-parameters, (p,)."""
    if isinstance(part, TunableCovariance):
        return part.theta
    return np.empty(0)


def bounds_of(part: Covariance) -> Floats:
    """Logarithms of their bounds, (p, 2)."""
    if isinstance(part, TunableCovariance):
        return np.reshape(part.bounds, (-1, 2))
    return np.empty((0, 2))


def covariance_gradient(part: Covariance, X: Floats) -> CovarianceGradient:
    """The part's covariance matrix and its derivative with respect to its hyper-parameters."""
    if isinstance(part, TunableCovariance):
        K, gradient = part(X, eval_gradient=True)
        return CovarianceGradient(K, gradient)
    n = len(X)
    nothing = np.empty((n, n, 0))
    return CovarianceGradient(part(X), nothing)


def writable_covariance(part: Covariance, X: Floats, Y: Floats | None) -> Floats:
    """The part's covariance matrix, to be overwritten."""
    K = part(X, Y)
    if isinstance(part, Kernel):
        return K
    # A foreign kernel may return a matrix that it caches.
    return np.array(K, dtype=np.float64)


def input_gradient_of(
    part: Covariance, X: Floats, Y: Floats, weights: Floats, columns: list[int]
) -> Floats | None:
    """The part's :meth:`Kernel.input_gradient`; foreign kernels have none."""
    if not isinstance(part, Kernel):
        return None
    return part.input_gradient(X, Y, weights, columns)


def ignores(part: Covariance, columns: Collection[int]) -> bool:
    """Whether the part is known to use none of these columns."""
    return isinstance(part, Kernel) and part._ignores(columns)


def forgetting_of(part: Covariance, column: int) -> float | None:
    """The part's :meth:`Kernel.forgetting`; that of foreign kernels is not known."""
    if not isinstance(part, Kernel):
        return None
    return part.forgetting(column)


def features_of(part: Covariance, box: Box, tolerance: float) -> FeatureMap | None:
    """The part's finite-rank form, or ``None`` if it has none."""
    if not isinstance(part, Kernel):
        return None
    lower, upper, _, max_rank = box
    return part.features(lower, upper, tolerance, max_rank)


def features_of_all(
    parts: Sequence[Covariance], box: Box, tolerances: Sequence[float]
) -> list[FeatureMap] | None:
    """The finite-rank forms of all parts, or ``None`` if one has none."""
    forms = []
    for part, tolerance in zip(parts, tolerances, strict=True):
        form = features_of(part, box, tolerance)
        if form is None:
            return None
        forms.append(form)
    return forms


def state_spaces_of(
    parts: Sequence[Covariance], tolerance: float
) -> list[StateSpace] | None:
    """The state spaces of all parts, or ``None`` if one has none."""
    forms = []
    for part in parts:
        if not isinstance(part, Kernel):
            return None
        form = part._state_space(tolerance)
        if form is None:
            return None
        forms.append(form)
    return forms
