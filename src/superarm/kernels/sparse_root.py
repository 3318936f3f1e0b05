"""Roots of kernels of graphs, by themselves or multiplied by kernels of features, as those of roads are.

::

    K = k_f ∘ (a·K_G + b·11ᵀ),   K_G = (A^{−ν/2})² with A sparse,   k_f = Σ_j φ_j φ_jᵀ + residual

A draw is Σ_j φ_j ∘ (√a·g_j + √b·z_j), plus independent normals with the variances of the residual. The
g_j are draws of K_G by sparse solves, exact for an even ν; the φ_j come from pivoted Cholesky. So all
variances are exact. A covariance is off by at most the residual's largest variance: ``tolerance``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.linalg import leading_root

from .base import Kernel
from .constant import Constant
from .graph import GraphMatern
from .products import Product
from .roots import PriorRoot
from .sums import Sum

MOST_FEATURES = 512  # each takes n numbers, and a sparse solve in every draw
# Share of the largest variance: a smaller residual needs no feature.
_SMALL_RESIDUAL = 1e-3


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
        features, residual = leading_root(column, variance, MOST_FEATURES, small)
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
    """Features times draws of graph kernels, for kernels that :func:`product_terms` can take apart.

    Args:
        kernel: The prior covariance.
        arms: One row per arm, (n, d).
    """

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        self._arms = arms
        variances = kernel.diag(arms)
        largest = float(variances.max())
        terms_of = product_terms(kernel)
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


def product_terms(kernel: Covariance) -> dict[Kernel, list[_Term]]:
    """The terms of a sum of products, by the feature kernel that multiplies them, of variance 1.

    Empty if it contains no graph kernel, or one that sparse solves cannot draw from.
    """
    terms: dict[Kernel, list[_Term]] = {}
    summands = kernel.kernels if isinstance(kernel, Sum) else (kernel,)
    has_graph = False
    for summand in summands:
        factors = summand.kernels if isinstance(summand, Product) else (summand,)
        split = _split_product(factors)
        if split is None:
            return {}
        feature_kernel, term = split
        terms.setdefault(feature_kernel, []).append(term)
        if term.graph is not None:
            has_graph = True
    return terms if has_graph else {}


def _split_product(factors: Sequence[Covariance]) -> tuple[Kernel, _Term] | None:
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
