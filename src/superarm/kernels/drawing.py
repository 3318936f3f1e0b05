"""Draws from a prior over many arms: one root of its covariance for all who draw from it.

Up to 16,000 arms the root is the Cholesky factor. Beyond that there is one for graphs' kernels alone,
or multiplied by kernels of features that may stand alone, too, as that of roads does::

    K = k_f ∘ (a·K_G + b·11ᵀ),   K_G = (A^{−ν/2})² with A sparse,   k_f = Σ_j φ_j φ_jᵀ + rest

A draw is Σ_j φ_j ∘ (√a·g_j + √b·z_j), and independent normals with the variances of the rest. The g_j
are draws of K_G by sparse solves, exact for an even ν; the φ_j come from pivoted Cholesky. So all
variances are exact. Of a covariance at most the rest's largest variance is lost: ``tolerance``.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.core.linalg import leading_root, psd_root
from superarm.core.threads import blas_threads_for

from .base import Kernel
from .composite import Product, Sum
from .graph import GraphMatern
from .structured import Constant

LARGEST_DRAW = (
    16_000  # most arms of which a root of the whole covariance is made, n² numbers
)
_MOST_FEATURES = 512  # each takes n numbers, and a sparse solve in every draw
_SMALL_REST, _LARGEST_REST = (
    1e-3,
    0.2,
)  # of the largest variance: what needs no feature, is refused
_MOST_KEPT = 2  # roots: that of the truth and that of the model, where they differ


class PriorRoot(ABC):
    """A root of the prior covariance over n arms: it turns standard normals into draws."""

    normals: int
    """How many a draw takes."""
    tolerance: float = 0.0
    """Largest error of a covariance, relative to the largest variance."""

    @abstractmethod
    def times(self, normals: Floats) -> Floats:
        """Draws about zero, (m, n), from standard normals (m, ``normals``)."""


class DenseRoot(PriorRoot):
    """The lower Cholesky factor of the prior covariance over all arms, made in one n × n array."""

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        from scipy.linalg.lapack import dpotrf

        n = self.normals = len(arms)
        matrix = np.empty((n, n))
        for start in range(0, n, 64):  # its lower triangle is all that is needed
            stop = min(start + 64, n)
            matrix[start:stop, :stop] = kernel(arms[start:stop], arms[:stop])
        np.fill_diagonal(matrix, kernel.diag(arms))
        # Read by LAPACK it is the transpose, and its upper triangle our lower one.
        with blas_threads_for(n**3 / 6):
            self._upper, failed = dpotrf(matrix.T, lower=0, overwrite_a=1, clean=0)
        self._singular: Floats | None = None
        if failed or not np.isfinite(self._upper.trace()):
            # Singular in floating point: its rank is cut, instead of adding jitter.
            del matrix, self._upper
            prior = np.asarray(kernel(arms))
            self._singular = psd_root(prior, "the prior covariance of the arms").root

    def times(self, normals: Floats) -> Floats:
        """Of a singular prior not all normals are needed."""
        from scipy.linalg.blas import dtrmm, dtrmv

        if self._singular is not None:
            return normals[:, : self._singular.shape[1]] @ self._singular.T
        if len(normals) == 1:
            return np.asarray(dtrmv(self._upper, normals[0], lower=0, trans=1))[None]
        columns = np.ascontiguousarray(normals).T
        return np.asarray(dtrmm(1.0, self._upper, columns, lower=0, trans_a=1).T)


class _Term(NamedTuple):
    """variance·K_G, or variance·11ᵀ where there is no graph."""

    graph: GraphMatern | None
    variance: float

    def std(self, arms: Floats) -> Floats:
        ones = np.ones(len(arms))
        return np.sqrt(
            self.variance * (ones if self.graph is None else self.graph.diag(arms))
        )


class _Group(NamedTuple):
    """A kernel of features, k_f, and the terms that it is multiplied by."""

    terms: list[_Term]
    features: Floats  # φ, (r, n)
    rest: Floats  # standard deviations that the features leave out, (n,)

    @classmethod
    def of(
        cls, alike: Kernel, terms: list[_Term], arms: Floats, small: float
    ) -> _Group:
        scale = np.sqrt(sum(np.square(term.std(arms)) for term in terms))

        def column(arm: int) -> Floats:
            return np.asarray(scale[arm] * scale * alike(arms[arm : arm + 1], arms)[0])

        variance = np.square(scale) * alike.diag(arms)
        features, rest = leading_root(column, variance, _MOST_FEATURES, small)
        features /= scale
        return cls(terms, features, np.sqrt(rest))


class SparseRoot(PriorRoot):
    """Features times draws of graphs' kernels, of a kernel that :func:`_terms` can take apart."""

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        self._arms, largest = arms, float(kernel.diag(arms).max())
        found = _terms(kernel).items()
        self._groups = [
            _Group.of(*each, arms, _SMALL_REST * largest / len(found)) for each in found
        ]
        self.tolerance = (
            sum(float(group.rest.max()) ** 2 for group in self._groups) / largest
        )
        self.normals = sum(
            len(arms)
            + len(features)
            * sum(1 if graph is None else len(graph) for graph, _ in terms)
            for terms, features, _ in self._groups
        )

    def times(self, normals: Floats) -> Floats:
        drawn, used = np.zeros((len(normals), len(self._arms))), 0

        def following(count: int) -> Floats:
            nonlocal used
            used += count
            return normals[:, used - count : used]

        for terms, features, rest in self._groups:
            drawn += rest * following(len(rest))
            for term in terms:
                std = term.std(self._arms)
                if term.graph is None:
                    drawn += std * (following(len(features)) @ features)
                    continue
                nodes = term.graph.nodes(self._arms)
                for feature in features:
                    own = following(len(term.graph))
                    drawn += std * feature * term.graph.draws(own)[:, nodes]
        return drawn


def _terms(kernel: Covariance) -> dict[Kernel, list[_Term]]:
    """The terms of a sum of products by the kernel, of variance 1, that they are multiplied by.

    Empty where it has no kernel of a graph, or one that is not drawn from by solves.
    """
    found: dict[Kernel, list[_Term]] = {}
    for part in kernel.kernels if isinstance(kernel, Sum) else (kernel,):
        factors: Any = part.kernels if isinstance(part, Product) else (part,)
        graphs = [factor for factor in factors if isinstance(factor, GraphMatern)]
        others = [factor for factor in factors if not isinstance(factor, GraphMatern)]
        drawn = len(graphs) < 2 and all(graph.nu % 2 == 0 for graph in graphs)
        if not drawn or not all(isinstance(other, Kernel) for other in others):
            return {}
        scaled = [other for other in others if "variance" in other.hyperparameters]
        variance = float(np.prod([other.variance for other in scaled]))
        alike = [
            replace(other, variance=1.0) if other in scaled else other
            for other in others
        ]
        term = _Term(graphs[0] if graphs else None, variance)
        found.setdefault(Product(kernels=tuple(alike or [Constant()])), []).append(term)
    return (
        found if any(term.graph for terms in found.values() for term in terms) else {}
    )


_known: list[
    tuple[weakref.ref[Kernel], Floats, PriorRoot]
] = []  # the one used last stands last


def prior_root(kernel: Covariance, arms: Floats, otherwise: str) -> PriorRoot:
    """The root for these arms; ``otherwise`` says what to do where there are too many.

    Every seed of an experiment asks for the same n² numbers, its truth and its learners alike. They
    are kept no longer than the kernel itself, and not more than two of them.
    """
    n = len(arms)
    told = f"a joint draw of {n} arms needs a root of their prior covariance, {8e-9 * n * n:.0f} GB"
    if n > LARGEST_DRAW and not _terms(kernel):
        raise InputError(
            f"{told}; it is made for up to {LARGEST_DRAW} arms: {otherwise}"
        )
    if not isinstance(kernel, Kernel):  # others, such as scikit-learn's, may change
        return DenseRoot(kernel, arms)
    for own, known, root in _known.copy():
        if own() is kernel and np.array_equal(known, arms):
            _forget(own)
            _known.append((own, known, root))
            return root
    del _known[: len(_known) - _MOST_KEPT + 1]  # before another is made: they are large
    root = DenseRoot(kernel, arms) if n <= LARGEST_DRAW else SparseRoot(kernel, arms)
    if root.tolerance > _LARGEST_REST:
        raise InputError(
            f"{told}; {_MOST_FEATURES} features in its place leave {root.tolerance:.0%} of a variance "
            f"out: use longer lengthscales, or {otherwise}"
        )
    _known.append((weakref.ref(kernel, _forget), arms, root))
    return root


def _forget(kernel: weakref.ref[Kernel]) -> None:
    _known[:] = [known for known in _known if known[0] is not kernel]
