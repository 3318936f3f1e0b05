"""Mirror descent on trees as regret: [ramesh2022movement, sections 3 and E], [coester2019pure].

======================  ================================================================
``kappa``               κ of the mirror descent
``rounds``              T = N_ep H, a number or an array: N_ep episodes of H rounds
======================  ================================================================

Eqs. 12 and 13, with service 1-competitive and movement O(ln² n)-competitive, state no constants. For
service ours follows from the step itself. With Φ(y; q) = Σ_u D^(u)(y^(u) ‖ q^(u)) over the vertices u
above an action y, the minima of eq. 10 give ⟨c, z'⟩ ≤ c(y) + Φ(y; q) − Φ(y; q'): summed over u, the
costs of inner vertices cancel. When y moves, Φ grows by at most Σ_ν sup_q D(e_ν ‖ q) over the
vertices that are new above it, and D is convex in q, so that its supremum is at a corner.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from superarm.core import Floats, Gamma
from superarm.inputs import require_type
from superarm.movement import Tree, TreeDescent
from superarm.rules.base import as_probability

from .high_probability import as_rounds, evaluate


def service_constant(tree: Tree, kappa: float = 1.0) -> float:
    """C for which Σ⟨c_t, z_t⟩ ≤ Σc_t(y_t) + C Σd_T(y_{t−1}, y_t), whatever the costs c and the way y.

    z is mirror descent on the tree from the start of y. Where C ≤ 1, service is 1-competitive on the
    tree (eq. 12), without an additive constant; C is proportional to 1/κ.
    """
    require_type(tree, Tree, "tree")
    descent = TreeDescent(tree, kappa=kappa, backend="numpy")
    delta, parent, reach = descent.delta, tree.parent, np.log1p(1.0 / descent.delta)
    scale = tree.weight / (descent.kappa * descent.eta)
    leaves, enters = scale * (1.0 - delta * reach), scale * ((1.0 + delta) * reach - 1.0)
    cap, aside = np.zeros(len(parent)), np.zeros(len(parent))
    for vertex in range(1, len(parent)):
        siblings = np.arange(len(parent))[tree.children(parent[vertex])]
        others = siblings[siblings != vertex]
        cap[vertex] = enters[vertex] + leaves[others].max()
        aside[vertex] = tree.weight[others].min()  # what the way there costs at least besides
    worst = 0.0
    for leaf in tree.leaf.tolist():
        vertex, grown, length = leaf, 0.0, 0.0
        while vertex:
            grown, length = grown + cap[vertex], length + tree.weight[vertex]
            worst = max(worst, grown / (length + aside[vertex]))
            vertex = int(parent[vertex])
    return float(worst)


def movement_rate(rounds: Any, gamma: Gamma, *, delta: float = 0.1) -> Floats:
    """The order of Theorem 1 in T rounds, √(2γ_T + 2 ln(1/δ)) · √(T γ_T): for comparing growth alone.

    Eq. 70 with H as a constant, and all constants left out.
    """
    T, gain = as_rounds(rounds), evaluate(gamma, as_rounds(rounds))
    beta = np.sqrt(2.0 * gain - 2.0 * math.log(as_probability(delta, "delta")))
    return np.asarray(beta * np.sqrt(T * gain))
