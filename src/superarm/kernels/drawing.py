"""Draws from a prior over many arms: a root of its covariance, shared by all that draw from it.

Up to 16,000 arms the root is the Cholesky factor. Beyond that, only kernels of graphs have one, see
:mod:`superarm.kernels.sparse_root`.
"""

from __future__ import annotations

import weakref
from typing import NamedTuple

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError

from . import sparse_root
from .base import Kernel
from .roots import DenseRoot, PriorRoot
from .sparse_root import SparseRoot, product_terms

# Most arms for which a root of the full covariance is computed: n² numbers.
LARGEST_DRAW = 16_000
# Share of the largest variance: a larger residual is refused.
_LARGEST_RESIDUAL = 0.2
_MOST_CACHED = 2  # roots: that of the truth and that of the model, where they differ


class _CachedRoot(NamedTuple):
    kernel: weakref.ref[Kernel]
    arms: Floats
    root: PriorRoot


_cached_roots: list[_CachedRoot] = []  # the one used last comes last


def prior_root(kernel: Covariance, arms: Floats, otherwise: str) -> PriorRoot:
    """The root for these arms, cached.

    Every seed of an experiment needs the same n² numbers, its truth and its learners alike. The cache
    keeps at most two roots, and none longer than its kernel.

    Args:
        kernel: The prior covariance.
        arms: One row per arm, (n, d).
        otherwise: Advice for the error message where there are too many arms.
    """
    n = len(arms)
    gigabytes = 8e-9 * n * n
    message = f"a joint draw of {n} arms needs a root of their prior covariance, {gigabytes:.0f} GB"
    if n > LARGEST_DRAW and not product_terms(kernel):
        raise InputError(
            f"{message}; it is made for up to {LARGEST_DRAW} arms: {otherwise}"
        )
    if not isinstance(kernel, Kernel):  # others, such as scikit-learn's, may change
        return DenseRoot(kernel, arms)
    cached_root = _cached_root(kernel, arms)
    if cached_root is not None:
        return cached_root
    # Make room before another is computed: they are large.
    surplus = len(_cached_roots) - _MOST_CACHED + 1
    del _cached_roots[:surplus]
    root = _compute_root(kernel, arms)
    if root.tolerance > _LARGEST_RESIDUAL:
        features = sparse_root.MOST_FEATURES
        raise InputError(
            f"{message}; {features} features in its place leave {root.tolerance:.0%} of a variance "
            f"out: use longer lengthscales, or {otherwise}"
        )
    reference = weakref.ref(kernel, _forget)
    _cached_roots.append(_CachedRoot(reference, arms, root))
    return root


def _compute_root(kernel: Kernel, arms: Floats) -> PriorRoot:
    if len(arms) <= LARGEST_DRAW:
        return DenseRoot(kernel, arms)
    return SparseRoot(kernel, arms)


def _cached_root(kernel: Kernel, arms: Floats) -> PriorRoot | None:
    """The cached root for these arms, which becomes the one used last."""
    for entry in _cached_roots.copy():
        is_same_kernel = entry.kernel() is kernel
        if is_same_kernel and np.array_equal(entry.arms, arms):
            _forget(entry.kernel)
            _cached_roots.append(entry)
            return entry.root
    return None


def _forget(kernel: weakref.ref[Kernel]) -> None:
    """Drop the roots of a kernel."""
    others = [entry for entry in _cached_roots if entry.kernel is not kernel]
    _cached_roots[:] = others
