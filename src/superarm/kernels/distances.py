"""Scaled squared distances between rows.

==========  =============================================================================
``q``       (n, m) scaled squared distances Σ_j (x_j − y_j)²/l_j²
``l``       lengthscale: one number, or one per column (automatic relevance determination)
==========  =============================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from superarm.core import Floats

Lengthscale = float | tuple[float, ...]

# Largest q for :func:`near_exponent`: its error, about ε·q, then stays below 1e-13.
_NEAR = 256.0
# Distances are cut here: a profile may multiply them by 0, and 0·∞ is NaN.
_FAR = 1e200


def scaled_distances(X: Floats, Y: Floats, factor: float) -> Floats:
    """``factor`` · |x − y|², (n, m), from differences: precise at every offset and scale."""
    q = _cdist()(X, Y, "sqeuclidean")
    q *= factor
    return q


def scaled_squared_distances(
    X: Floats, Y: Floats | None, lengthscale: Lengthscale
) -> Floats:
    """Σ_j (x_j − y_j)²/l_j², (n, m), from differences: precise at every offset and scale.

    Without ``Y`` the result is symmetric with zeros on the diagonal.
    """
    # cdist takes one pass over the output; numpy would need 3 d passes and twice the time.
    cdist = _cdist()
    other = X if Y is None else Y
    if isinstance(lengthscale, tuple):
        squares = np.square(np.array(lengthscale))
        q = cdist(X, other, "sqeuclidean", w=1.0 / squares)
        return _clip(q)
    q = cdist(X, other, "sqeuclidean")
    if lengthscale != 1.0:
        q *= 1.0 / lengthscale**2
    return _clip(q)


@functools.cache
def _cdist() -> Callable[..., Floats]:
    """scipy's function, loaded on first use."""
    from scipy.spatial.distance import cdist

    function: Callable[..., Floats] = cdist
    return function


def _clip(q: Floats) -> Floats:
    """Replaces infinite distances by large ones, in place."""
    if q.size and not q.max() < _FAR:
        np.minimum(q, _FAR, out=q)
    return q


def near_exponent(X: Floats, Y: Floats, lengthscale: Lengthscale) -> Floats | None:
    """−q/2 as one matrix product, or ``None`` where that would lose precision.

    −q/2 = x·y − |x|²/2 − |y|²/2 on centred and scaled rows. With two more rows for the squares, this
    is a single product. Cancellation costs about ε·(|x|² + |y|²), hence the limit. Unlike a distance,
    the result is never rooted, so a rounding error of +ε does no harm.
    """
    n, width = X.shape
    m = len(Y)
    if n == 0 or m == 0 or width == 0:
        return None
    # Rows of the factors: coordinates, then |x|²/2 and 1 on the left, 1 and |y|²/2 on the right.
    left = np.empty((width + 2, n))
    right = np.empty((width + 2, m))
    x = left[:width]
    y = right[:width]
    x_squares = left[width]
    y_squares = right[width + 1]
    x[...] = X.T
    y[...] = Y.T
    centre = x.mean(axis=1, keepdims=True)
    scales = np.array(lengthscale).reshape(-1, 1)
    inverse = 1.0 / scales
    x -= centre
    x *= inverse
    y -= centre
    y *= inverse
    np.einsum("ij,ij->j", x, x, out=x_squares)
    np.einsum("ij,ij->j", y, y, out=y_squares)
    if not x_squares.max() + y_squares.max() <= _NEAR:
        return None
    x_squares *= -0.5
    y_squares *= -0.5
    left[width + 1] = 1.0
    right[width] = 1.0
    return left.T @ right
