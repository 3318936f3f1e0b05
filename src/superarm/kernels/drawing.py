"""Draws from a prior over many arms: a root of its covariance, shared by all that draw from it.

Up to 16,000 arms the root is the Cholesky factor. Beyond that there is a root only for kernels of
graphs, by themselves or multiplied by kernels of features, as those of roads are::

    K = k_f ∘ (a·K_G + b·11ᵀ),   K_G = (A^{−ν/2})² with A sparse,   k_f = Σ_j φ_j φ_jᵀ + residual

A draw is Σ_j φ_j ∘ (√a·g_j + √b·z_j), plus independent normals with the variances of the residual. The
g_j are draws of K_G by sparse solves, exact for an even ν; the φ_j come from pivoted Cholesky. So all
variances are exact. A covariance is off by at most the residual's largest variance: ``tolerance``.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.core.linalg import leading_root, psd_root
from superarm.core.threads import blas_threads_for

from .base import Kernel
from .constant import Constant
from .graph import GraphMatern
from .products import Product
from .sums import Sum

# Most arms for which a root of the full covariance is computed: n² numbers.
LARGEST_DRAW = 16_000
_BLOCK = 64  # rows of the covariance that are computed together
_MOST_FEATURES = 512  # each takes n numbers, and a sparse solve in every draw
# Shares of the largest variance: a smaller residual needs no feature, a larger one is refused.
_SMALL_RESIDUAL = 1e-3
_LARGEST_RESIDUAL = 0.2
_MOST_CACHED = 2  # roots: that of the truth and that of the model, where they differ


class PriorRoot(ABC):
    """A root of the prior covariance over n arms: it turns standard normals into draws."""

    normals: int
    """How many standard normals a draw takes."""
    tolerance: float = 0.0
    """Largest error of a covariance, relative to the largest variance."""

    @abstractmethod
    def times(self, normals: Floats) -> Floats:
        """Draws with mean zero, (m, n).

        Args:
            normals: Standard normals, (m, ``self.normals``).
        """


class DenseRoot(PriorRoot):
    """The lower Cholesky factor of the prior covariance, computed in one n × n array.

    Args:
        kernel: The prior covariance.
        arms: One row per arm, (n, d).
    """

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        from scipy.linalg.lapack import dpotrf

        n = len(arms)
        self.normals = n
        self._singular: Floats | None = None
        matrix = _lower_triangle(kernel, arms)
        # LAPACK reads it as the transpose, so our lower triangle is its upper one.
        operations = n**3 / 6
        with blas_threads_for(operations):
            self._upper, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)
        is_finite = np.isfinite(self._upper.trace())
        if failed or not is_finite:
            # Singular in floating point: cut its rank instead of adding jitter.
            del matrix, self._upper
            prior = np.asarray(kernel(arms))
            truncated = psd_root(prior, "the prior covariance of the arms")
            self._singular = truncated.root

    def times(self, normals: Floats) -> Floats:
        """Draws with mean zero, (m, n); a singular prior does not use all normals.

        Args:
            normals: Standard normals, (m, n).
        """
        from scipy.linalg.blas import dtrmm, dtrmv

        if self._singular is not None:
            rank = self._singular.shape[1]
            used = normals[:, :rank]
            return used @ self._singular.T
        upper = self._upper
        if len(normals) == 1:
            draw = dtrmv(upper, normals[0], lower=0, trans=1)
            return np.asarray(draw)[None]
        columns = np.ascontiguousarray(normals).T
        draws = dtrmm(1.0, upper, columns, lower=0, trans_a=1)
        return np.asarray(draws.T)


def _lower_triangle(kernel: Covariance, arms: Floats) -> Floats:
    """The lower triangle of K, and parts of the upper one; the rest is not set, (n, n)."""
    n = len(arms)
    matrix = np.empty((n, n))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        rows = arms[start:stop]
        columns = arms[:stop]
        matrix[start:stop, :stop] = kernel(rows, columns)
    np.fill_diagonal(matrix, kernel.diag(arms))
    return matrix


class _Term(NamedTuple):
    """variance·K_G, or variance·11ᵀ where there is no graph."""

    graph: GraphMatern | None
    variance: float

    def std(self, arms: Floats) -> Floats:
        """Standard deviation of every arm, (n,)."""
        diagonal = np.ones(len(arms))
        if self.graph is not None:
            diagonal = self.graph.diag(arms)
        return np.sqrt(self.variance * diagonal)

    @property
    def normals(self) -> int:
        """How many standard normals a draw takes."""
        if self.graph is None:
            return 1
        return len(self.graph)


class _Group(NamedTuple):
    """A kernel of features, k_f, and the terms by which it is multiplied."""

    terms: list[_Term]
    features: Floats  # φ, (r, n)
    residual: Floats  # standard deviations that the features leave out, (n,)

    @classmethod
    def factorise(
        cls, feature_kernel: Kernel, terms: list[_Term], arms: Floats, small: float
    ) -> _Group:
        """Features that leave out at most the variance ``small``, if few enough suffice."""
        stds = [term.std(arms) for term in terms]
        variances = [np.square(std) for std in stds]
        scale = np.sqrt(sum(variances))  # (n,)

        def column(arm: int) -> Floats:
            """Covariances with one arm, (n,)."""
            row = arms[arm : arm + 1]
            correlations = feature_kernel(row, arms)[0]
            covariances = scale[arm] * scale * correlations
            return np.asarray(covariances)

        diagonal = feature_kernel.diag(arms)
        variance = np.square(scale) * diagonal
        features, residual = leading_root(column, variance, _MOST_FEATURES, small)
        features /= scale
        return cls(terms, features, np.sqrt(residual))

    @property
    def largest_residual(self) -> float:
        """The largest standard deviation that the features leave out."""
        return float(self.residual.max())

    @property
    def normals(self) -> int:
        """How many standard normals a draw takes."""
        per_feature = sum(term.normals for term in self.terms)
        return len(self.residual) + len(self.features) * per_feature


class SparseRoot(PriorRoot):
    """Features times draws of graph kernels, for kernels that :func:`_terms` can take apart.

    Args:
        kernel: The prior covariance.
        arms: One row per arm, (n, d).
    """

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        self._arms = arms
        variances = kernel.diag(arms)
        largest = float(variances.max())
        terms_of = _terms(kernel)
        small = _SMALL_RESIDUAL * largest / len(terms_of)
        self._groups: list[_Group] = []
        for feature_kernel, terms in terms_of.items():
            group = _Group.factorise(feature_kernel, terms, arms, small)
            self._groups.append(group)
        # The variance that the features of all groups together leave out, at most.
        lost = sum(group.largest_residual**2 for group in self._groups)
        self.tolerance = lost / largest
        self.normals = sum(group.normals for group in self._groups)

    def times(self, normals: Floats) -> Floats:
        """Draws with mean zero, (m, n).

        Args:
            normals: Standard normals, (m, ``self.normals``).
        """
        arms = self._arms
        draws = np.zeros((len(normals), len(arms)))
        used = 0

        def take(count: int) -> Floats:
            """The next ``count`` normals of every draw."""
            nonlocal used
            used += count
            return normals[:, used - count : used]

        for terms, features, residual in self._groups:
            draws += residual * take(len(residual))
            for term in terms:
                std = term.std(arms)
                graph = term.graph
                if graph is None:
                    constants = take(len(features))
                    draws += std * (constants @ features)
                    continue
                nodes = graph.nodes(arms)
                for feature in features:
                    node_normals = take(len(graph))
                    node_draws = graph.draws(node_normals)
                    draws += std * feature * node_draws[:, nodes]
        return draws


def _terms(kernel: Covariance) -> dict[Kernel, list[_Term]]:
    """The terms of a sum of products, by the feature kernel that multiplies them, of variance 1.

    Empty if it contains no graph kernel, or one that sparse solves cannot draw from.
    """
    terms: dict[Kernel, list[_Term]] = {}
    summands = kernel.kernels if isinstance(kernel, Sum) else (kernel,)
    has_graph = False
    for summand in summands:
        factors = summand.kernels if isinstance(summand, Product) else (summand,)
        split = _split(factors)
        if split is None:
            return {}
        feature_kernel, term = split
        terms.setdefault(feature_kernel, []).append(term)
        if term.graph is not None:
            has_graph = True
    return terms if has_graph else {}


def _split(factors: Sequence[Covariance]) -> tuple[Kernel, _Term] | None:
    """The feature kernel of a product, of variance 1, and its other factors.

    ``None`` if the product has several graph kernels, or one with an odd ν.
    """
    graph: GraphMatern | None = None
    unscaled: list[Kernel] = []  # the factors of features, of variance 1
    variances = []
    for factor in factors:
        if isinstance(factor, GraphMatern):
            if graph is not None or factor.nu % 2 != 0:
                return None
            graph = factor
        elif not isinstance(factor, Kernel):
            return None
        elif "variance" in factor.hyperparameters:
            scaled: Any = factor
            variances.append(scaled.variance)
            unscaled.append(replace(scaled, variance=1.0))
        else:
            unscaled.append(factor)
    if not unscaled:
        unscaled.append(Constant())
    feature_kernel = Product(kernels=tuple(unscaled))
    variance = float(np.prod(variances))
    return feature_kernel, _Term(graph, variance)


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
    if n > LARGEST_DRAW and not _terms(kernel):
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
        raise InputError(
            f"{message}; {_MOST_FEATURES} features in its place leave {root.tolerance:.0%} of a variance "
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
