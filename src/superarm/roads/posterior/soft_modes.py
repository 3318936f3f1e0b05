"""Directions in which a preconditioner overestimates a precision, and their correction.

=============  =======================================================================
``Q``, ``M``   the precision and its preconditioner, symmetric and positive definite, (p, p)
``θ``, ``v``   Ritz values and vectors: M⁻¹ Q v ≈ θ v, with vᵀ M v = 1
``y``          M v
``k``          directions that are corrected
=============  =======================================================================

What all roads of all trips have in common is learned from their differences alone, as each trip has
terms of its own. M counts such directions as known, road by road: there θ is far below 1. Each of them
would cost conjugate gradients a step or more. So M⁻¹ is corrected in the few with θ below a half:

    M⁻¹ + Σ (1/θ − 1) v vᵀ

which is positive definite whatever v is if θ = vᵀ Q v, and has θ = 1 there if v is an eigenvector.

Q and M differ only in what trips tell: about f of the s roads that were driven on, and about terms. As
M⁻¹ Q v = v + M⁻¹ (Q − M) v, each v is M⁻¹ y for a y that is 0 elsewhere. So the search takes memory for s
roads, not for all n. Of v, f is (own⁻² g + y_f) / precision: g is stored where it is not negligible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints

_STEPS = 100
_SOFT = 0.5  # θ below which a direction is corrected


class RitzPairs(NamedTuple):
    """The directions of the smallest θ."""

    values: Floats  # θ, (k,)
    duals: Floats  # y, (k, p)
    smallest: float  # the smallest θ of all others


class SoftModes(NamedTuple):
    """Directions that are corrected, as they were when they were found.

    Trips that are learned later change M, but not these.
    """

    weights: Floats  # 1/θ − 1, (k,)
    nodes: Ints  # roads where g of v is not negligible, rising, (m,)
    near: Floats  # g of v there, (k, m)
    share: Floats  # how much of g is in f, at these roads, (m,)
    roads: Ints  # roads that were driven on, rising, (s,)
    rest: Floats  # f − share · g there, (k, s)
    terms: Floats  # w and w_v of v, (k, 5 + 5V)

    @classmethod
    def none(cls) -> SoftModes:
        """No directions."""
        no_roads = np.empty(0, dtype=np.intp)
        no_values = np.empty((0, 0))
        return cls(
            weights=np.empty(0),
            nodes=no_roads,
            near=no_values,
            share=np.empty(0),
            roads=no_roads,
            rest=no_values,
            terms=no_values,
        )

    def __len__(self) -> int:
        return len(self.weights)

    def along(self, f: Floats, g: Floats, terms: Floats) -> Floats:
        """vᵀ times values of all unknowns, (k,).

        Args:
            f: Of f, (n,).
            g: Of g, (n,).
            terms: Of w and of w_v, the latest vehicles last, (5 + 5V′,).
        """
        of_near = self.near @ (g[self.nodes] + self.share * f[self.nodes])
        of_rest = self.rest @ f[self.roads]
        return np.asarray(of_near + of_rest + self.terms @ terms[: self.terms.shape[1]])

    def add(self, amounts: Floats, f: Floats, g: Floats, terms: Floats) -> None:
        """Add so much of each v to the unknowns, in place.

        Args:
            amounts: (k,).
            f: (n,).
            g: (n,).
            terms: (5 + 5V′,).
        """
        near = amounts @ self.near
        g[self.nodes] += near
        f[self.nodes] += self.share * near
        f[self.roads] += amounts @ self.rest
        terms[: self.terms.shape[1]] += amounts @ self.terms

    def f_at(self, edges: Ints) -> Floats:
        """f of each v at some roads, (k, u)."""
        values = np.zeros((len(self), len(edges)))
        among, places = _places_among(self.nodes, edges)
        values[:, among] = self.share[places] * self.near[:, places]
        among, places = _places_among(self.roads, edges)
        values[:, among] += self.rest[:, places]
        return values


def _places_among(roads: Ints, edges: Ints) -> tuple[Ints, Ints]:
    """Which of the edges are among the sorted roads, and their places there."""
    places = np.searchsorted(roads, edges)
    candidates = np.minimum(places, len(roads) - 1)
    if not len(roads):
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    among = np.flatnonzero(roads[candidates] == edges)
    return among, candidates[among]


def find_soft(
    difference: Callable[[Floats], Floats],
    precondition: Callable[[Floats], Floats],
    size: int,
) -> RitzPairs:
    """The directions of the smallest θ, by Lanczos' method in the inner product of M.

    All vectors are those parts of the unknowns outside of which Q − M is 0.

    Args:
        difference: Q − M times a vector.
        precondition: M⁻¹ times a vector.
        size: The length of these vectors, p.
    """
    from scipy.linalg import eigh_tridiagonal

    most = min(_STEPS, size)
    residual = np.random.default_rng(0).standard_normal(size)
    z = precondition(residual)
    norm = np.sqrt(residual @ z)
    basis = np.empty((most, size))  # v, orthonormal in M
    duals = np.empty((most, size))  # y
    diagonal: list[float] = []
    below: list[float] = []
    for step in range(most):
        v = z / norm
        basis[step] = v
        duals[step] = residual / norm
        residual = duals[step] + difference(v)  # Q v
        diagonal.append(float(v @ residual))
        known = slice(step + 1)
        # Twice, or rounding lets vectors return that are already there.
        for _ in range(2):
            residual = residual - (basis[known] @ residual) @ duals[known]
        z = precondition(residual)
        squared = float(residual @ z)
        norm = np.sqrt(max(squared, 0.0))
        if norm <= 1e-10 * max(diagonal):
            break
        below.append(norm)
    count = len(diagonal)
    ritz, vectors = eigh_tridiagonal(np.array(diagonal), np.array(below[: count - 1]))
    is_soft = ritz < _SOFT
    if not is_soft.any():
        return RitzPairs(np.empty(0), np.empty((0, size)), float(ritz[0]))
    soft_duals = np.asarray(vectors[:, is_soft].T @ duals[:count], dtype=np.float64)
    others = ritz[~is_soft]
    return RitzPairs(
        values=np.asarray(ritz[is_soft], dtype=np.float64),
        duals=soft_duals,
        smallest=float(others.min(initial=_SOFT)),
    )
