"""Mirror descent on trees, as service and movement: [ramesh2022movement, section 3], [coester2019pure].

Eqs. 12 and 13, with service 1-competitive and movement O(ln² n)-competitive, state no constants. For
service ours follows from the step itself. With Φ(y; q) = Σ_u D^(u)(y^(u) ‖ q^(u)) over the vertices u
above an action y, the minima of eq. 10 give ⟨c, z'⟩ ≤ c(y) + Φ(y; q) − Φ(y; q'): summed over u, the
costs of inner vertices cancel. When y moves, Φ grows by at most Σ_ν sup_q D(e_ν ‖ q) over the
vertices that are new above it, and D is convex in q, so that its supremum is at a corner.

Movement is bounded by what the actions would have cost *before* the step (:func:`movement_constants`).
At a vertex u whose children weigh w, write s = q + δ, and ĉ for costs lowered so far that
s' = s exp(κη/w (b − ĉ)) holds for every child, also where q' = 0. Then, with costs c ≥ 0 and so b ≥ 0:

1. w(q − q') ≤ κ(ηq + θ)(ĉ − b) for children that lose mass, as 1 − exp(−x) ≤ x;
2. Σθ(ĉ − b) = P(q) − P(q') with P(q) = (w/κ) Σδ ln(q + δ): logarithms of s'/s, times δ;
3. b ≤ bΣηq ≤ Σηqc + P(q) − P(q'), as Σs' = Σs and exp(x) ≥ 1 + x;
4. so u's children lose w Σ(q − q')₊ ≤ 2κΣηqc + 2κ(P(q) − P(q')).

A vertex loses z − z' ≤ q'(z_u − z'_u)₊ + z_u(q − q')₊. Summed over rounds, z_u(P(q) − P(q')) is at most
the range of P times what u gains. So what is lost below u is at most (1 + 2 range)w/w_u of what u
loses, and its share of the costs. As ⟨q', c⟩ ≤ ⟨q, c⟩, costs of inner vertices are at most those of the
actions below them before the step. A vertex gains what it loses, but for where it ends.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Rng
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_generator, as_number, require_type
from superarm.movement import ActionMetric, Tree, TreeDescent, frt_tree
from superarm.movement.frt import TAU


def service_constant(tree: Tree, kappa: float = 1.0) -> float:
    """C for which Σ⟨c_t, z_t⟩ ≤ Σc_t(y_t) + C Σd_T(y_{t−1}, y_t), whatever the costs c and the way y.

    z is mirror descent on the tree from the start of y. Where C ≤ 1, service is 1-competitive on the
    tree (eq. 12), without an additive constant; C is proportional to 1/κ.

    Args:
        tree: of the actions.
        kappa: κ of the mirror descent.
    """
    require_type(tree, Tree, "tree")
    descent = TreeDescent(tree, kappa=kappa, backend="numpy")
    delta = descent.delta
    parent = tree.parent
    reach = np.log1p(1.0 / delta)
    scale = tree.weight / (descent.kappa * descent.eta)
    growth_on_leaving = scale * (1.0 - delta * reach)
    growth_on_entering = scale * ((1.0 + delta) * reach - 1.0)
    count = len(parent)
    vertices = np.arange(count)
    growth = np.zeros(count)  # of Φ, at most, where y moves to below a vertex
    sibling_weight = np.zeros(count)  # what the way there costs at least besides
    for vertex in range(1, count):
        siblings = vertices[tree.children(parent[vertex])]
        others = siblings[siblings != vertex]
        largest_on_leaving = growth_on_leaving[others].max()
        growth[vertex] = growth_on_entering[vertex] + largest_on_leaving
        sibling_weight[vertex] = tree.weight[others].min()
    worst = 0.0
    for leaf in tree.leaf.tolist():
        vertex = leaf
        total_growth = 0.0
        length = 0.0
        while vertex:  # up to the root, which is 0
            total_growth = total_growth + growth[vertex]
            length = length + tree.weight[vertex]
            way = length + sibling_weight[vertex]
            worst = max(worst, total_growth / way)
            vertex = int(parent[vertex])
    return float(worst)


class MovementConstants(NamedTuple):
    """What bounds movement on a tree: ``ratio`` × Σ⟨c_t, z_{t−1}⟩ + ``start``."""

    ratio: float
    start: float


def movement_constants(tree: Tree, kappa: float = 1.0) -> MovementConstants:
    """Constants for which Σ‖z_t − z_{t−1}‖ ≤ ratio Σ⟨c_t, z_{t−1}⟩ + start, for any costs c_t ≥ 0.

    z is mirror descent on the tree, and the norm that of eq. 21. A constant may be subtracted from the
    costs of a round, which changes no step. The costs are those before the step, ⟨c_t, z_{t−1}⟩: with
    those after it, ⟨c_t, z_t⟩, no such constants exist, and eq. 39 does not hold. Where costs of a
    round are small, or come in small pieces, the two are nearly the same.

    Args:
        tree: its siblings must weigh the same, as in trees of ``frt_tree``.
        kappa: κ of the mirror descent.
    """
    require_type(tree, Tree, "tree")
    descent = TreeDescent(tree, kappa=kappa, backend="numpy")
    below = _losses_below(tree, descent)
    count = len(tree.parent)
    slope = np.zeros(count)
    end = below.factor * below.reach
    length = np.zeros(count)
    for vertex in range(1, count):
        above = int(tree.parent[vertex])
        rise = below.factor[above] * descent.eta[vertex]
        slope[vertex] = slope[above] + rise
        length[vertex] = length[above] + tree.weight[vertex]
        if tree.sizes[vertex] > 1:
            end[vertex] += end[above]
        else:
            end[vertex] = end[above]
    steepest = float(slope[tree.leaf].max())
    lost = 2.0 * descent.kappa * steepest
    largest_end = float(end[tree.leaf].max())
    height = float(length[tree.leaf].max())
    start = 2.0 * largest_end + height
    return MovementConstants(2.0 * lost, start)


class _LossesBelow(NamedTuple):
    """What is lost below each vertex of a tree, (vertices,)."""

    factor: Floats
    """All that is lost below a vertex, over what is lost right below it."""
    reach: Floats
    """2κ times the range of P."""


def _losses_below(tree: Tree, descent: TreeDescent) -> _LossesBelow:
    """From the leaves upwards."""
    count = len(tree.parent)
    vertices = np.arange(count)
    factor = np.ones(count)
    reach = np.zeros(count)
    for vertex in reversed(range(count)):
        children = tree.children(vertex)
        weights = tree.weight[children]
        if not len(weights):
            continue
        if np.ptp(weights) > 1e-9 * weights[0]:
            raise InputError(
                f"the children of vertex {vertex} differ in weight; use frt_tree"
            )
        spread = _range_of_potential(descent.delta[children])
        reach[vertex] = 2.0 * weights[0] * spread
        is_inner = tree.sizes[children] > 1
        inner = vertices[children][is_inner]
        passed_on = []
        for child in inner.tolist():
            grandchildren = tree.children(child)
            child_weight = tree.weight[grandchildren][0]
            ratio = (child_weight + reach[child]) / weights[0]
            passed_on.append(ratio * factor[child])
        factor[vertex] = 1.0 + max(passed_on, default=0.0)
    return _LossesBelow(factor, reach)


def _range_of_potential(delta: Floats) -> float:
    """The range of P, which is concave: largest where q + δ is proportional to δ, least at a corner."""
    total = float(delta.sum())
    largest = total * math.log1p(1.0 / total)
    corners = delta * np.log1p(1.0 / delta)
    smallest = float(corners.min())
    return largest - smallest


def stretch_bound(actions: int, tau: float = 2.0) -> float:
    """2τ³/((τ − 1) ln τ) · (1 + 1/2 + … + 1/n): FRT lengthens no distance by more on average (eq. 15).

    By [fakcharoenphol2004tight] for the weights of ``frt_tree``. Two actions u, v that part at level i
    are at most 2(τ + … + τ^{i+1}) < 2τ^{i+2}/(τ − 1) apart. The k-th nearest action to them parts them
    with probability at most 1/k, and only where its radius r = βτ^{i−1} is between its distances to u
    and v; r has the density 1/(r ln τ), and τ^{i+2} ≤ τ³r.

    Args:
        actions: n.
        tau: τ of the tree.
    """
    n = as_count(actions, "actions", 1)
    tau = as_number(tau, "tau", *TAU)
    terms = 1.0 / np.arange(1, n + 1)
    harmonic = float(np.sum(terms))
    density = (tau - 1.0) * math.log(tau)
    factor = 2.0 * tau**3 / density
    return factor * harmonic


def mean_stretch(
    metric: ActionMetric, rng: Rng, *, trees: int = 100, tau: float = 2.0
) -> Floats:
    """d_T/d of each two actions, averaged over random trees, (n, n), ones on the diagonal (eq. 15).

    Args:
        metric: d.
        rng: draws the trees.
        trees: how many trees.
        tau: τ of the trees.
    """
    require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
    count = as_count(trees, "trees", 1)
    rng = as_generator(rng)
    n = len(metric)
    total = np.zeros((n, n))
    for _ in range(count):
        tree = frt_tree(metric, rng, tau=tau)
        total += tree.distances
    stretch = np.ones((n, n))
    apart = ~np.eye(n, dtype=bool)
    mean_distances = total[apart] / count
    stretch[apart] = mean_distances / metric.distances[apart]
    return stretch
