"""Mirror descent on trees as regret: [ramesh2022movement, sections 3 and E], [coester2019pure].

======================  ================================================================
``kappa``               κ of the mirror descent
``rounds``              T = N_ep H, a number or an array: N_ep episodes of H rounds
``episodes``            N = N_ep, a number or an array
``episode``             H, the rounds of an episode
``noise_variance``      λ of the posterior
======================  ================================================================

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
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Floats, Gamma, Rng
from superarm.core.errors import InputError
from superarm.core.inputs import (
    as_count,
    as_generator,
    as_number,
    as_positive,
    require_choice,
    require_type,
)
from superarm.movement import ActionMetric, Tree, TreeDescent, frt_tree
from superarm.movement.tree import TAU
from superarm.rules.base import as_probability

from .high_probability import as_rounds, evaluate


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
        growth[vertex] = growth_on_entering[vertex] + growth_on_leaving[others].max()
        sibling_weight[vertex] = tree.weight[others].min()
    worst = 0.0
    for leaf in tree.leaf.tolist():
        vertex = leaf
        total_growth = 0.0
        length = 0.0
        while vertex:  # up to the root, which is 0
            total_growth = total_growth + growth[vertex]
            length = length + tree.weight[vertex]
            worst = max(worst, total_growth / (length + sibling_weight[vertex]))
            vertex = int(parent[vertex])
    return float(worst)


def movement_rate(rounds: Any, gamma: Gamma, *, delta: float = 0.1) -> Floats:
    """The order of Theorem 1 in T rounds, √(2γ_T + 2 ln(1/δ)) · √(T γ_T): for comparing growth alone.

    Eq. 70 with H as a constant, and all constants left out.

    Args:
        rounds: T, one or several.
        gamma: t ↦ γ_t.
        delta: δ, the probability of failing.
    """
    T = as_rounds(rounds)
    gain = evaluate(gamma, T)
    beta = np.sqrt(2.0 * gain - 2.0 * math.log(as_probability(delta, "delta")))
    return np.asarray(beta * np.sqrt(T * gain))


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
    count = len(tree.parent)
    # All that is lost below a vertex, over what is lost right below it.
    factor = np.ones(count)
    reach = np.zeros(count)  # 2κ times the range of P
    for vertex in reversed(range(count)):
        children = tree.children(vertex)
        weights = tree.weight[children]
        if not len(weights):
            continue
        if np.ptp(weights) > 1e-9 * weights[0]:
            raise InputError(
                f"the children of vertex {vertex} differ in weight; use frt_tree"
            )
        delta = descent.delta[children]
        total = float(delta.sum())
        # P is concave: largest where q + δ is proportional to δ, smallest at a corner.
        largest = total * math.log1p(1.0 / total)
        smallest = float((delta * np.log1p(1.0 / delta)).min())
        reach[vertex] = 2.0 * weights[0] * (largest - smallest)
        inner = np.arange(count)[children][tree.sizes[children] > 1]
        passed_on = []
        for child in inner.tolist():
            child_weight = tree.weight[tree.children(child)][0]
            ratio = (child_weight + reach[child]) / weights[0]
            passed_on.append(ratio * factor[child])
        factor[vertex] = 1.0 + max(passed_on, default=0.0)
    slope = np.zeros(count)
    end = factor * reach
    length = np.zeros(count)
    for vertex in range(1, count):
        above = int(tree.parent[vertex])
        slope[vertex] = slope[above] + factor[above] * descent.eta[vertex]
        length[vertex] = length[above] + tree.weight[vertex]
        if tree.sizes[vertex] > 1:
            end[vertex] += end[above]
        else:
            end[vertex] = end[above]
    lost = 2.0 * descent.kappa * float(slope[tree.leaf].max())
    start = 2.0 * float(end[tree.leaf].max()) + float(length[tree.leaf].max())
    return MovementConstants(2.0 * lost, start)


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
    harmonic = float(np.sum(1.0 / np.arange(1, n + 1)))
    factor = 2.0 * tau**3 / ((tau - 1.0) * math.log(tau))
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
        total += frt_tree(metric, rng, tau=tau).distances
    stretch = np.ones((n, n))
    apart = ~np.eye(n, dtype=bool)
    stretch[apart] = total[apart] / count / metric.distances[apart]
    return stretch


# --- Theorem 1, constants included ------------------------------------------------------------

Form = Literal["derived", "printed"]
_EVENTS = 3  # Lemma 1, eq. 50 and eq. 31: each may fail with probability δ/3


def stale_variance_bound(
    episodes: Any,
    gamma: Gamma,
    *,
    episode: int,
    noise_variance: float,
    form: Form = "derived",
) -> Floats:
    """ΣΣσ²_m(x_{h,m}) ≤ exp(2γ_{H−1}) · 2γ_{NH}/ln(1 + 1/λ): eqs. 51 to 56, for k ≤ 1.

    σ_m is what is known when episode m begins, σ_{h,m} when its round h does. By eqs. 51 and 52
    σ_m ≤ exp(γ_{H−1})σ_{h,m}, so variances have the factor exp(2γ_{H−1}). With x ≤ 1 it holds that
    x ≤ ln(1 + x/λ)/ln(1 + 1/λ), and ½Σln(1 + σ²_{h,m}/λ) ≤ γ_{NH}. Eq. 56 as printed,
    2 exp(γ_H)γ_{NH}, is no bound: ten observations of one arm with λ = 1 have 10 on the left and 7.95
    on the right.

    Args:
        episodes: N.
        gamma: t ↦ γ_t for this λ.
        episode: H.
        noise_variance: λ.
        form: "printed" for eq. 56 as it stands.
    """
    N = as_rounds(episodes)
    H = as_count(episode, "episode")
    noise = as_positive(noise_variance, "noise_variance")
    require_choice(form, "form", ("derived", "printed"))
    gained = evaluate(gamma, N * H)
    if form == "printed":
        return np.asarray(2.0 * _exp(gamma(H)) * gained)
    staleness = _exp(2.0 * gamma(H - 1))
    return np.asarray(staleness * 2.0 * gained / math.log1p(1.0 / noise))


def _exp(power: float) -> float:
    """e to this power; infinite where it is larger than any float."""
    return math.exp(power) if power < 700.0 else math.inf


_DOUBLING = 1.593624  # a with a/(1 − exp(−a)) = 2, rounded down


def conditional_mean_bound(
    observed: Any, *, episode: int, delta: float, form: Form = "printed"
) -> Floats:
    """Σ E[Δ_m | F_{m−1}] ≤ 2ΣΔ_m + 4H ln(1/δ) + 8H ln(4H) + 1 for 0 ≤ Δ_m ≤ H: eq. 50.

    It holds with probability 1 − δ for all numbers of episodes at once, and even with 1.26H ln(1/δ) in
    place of the last three terms: E exp(−aΔ/H) ≤ exp(−(1 − exp(−a)) E[Δ]/H), with a/(1 − exp(−a)) = 2.

    Args:
        observed: ΣΔ_m.
        episode: H.
        delta: δ, the probability of failing.
        form: "printed" for eq. 50, "derived" for the smaller bound.
    """
    H = as_count(episode, "episode")
    chance = as_probability(delta, "delta")
    require_choice(form, "form", ("derived", "printed"))
    log_chance = math.log(1.0 / chance)
    if form == "derived":
        constant = H * log_chance / -math.expm1(-_DOUBLING)
    else:
        constant = 4.0 * H * log_chance + 8.0 * H * math.log(4.0 * H) + 1.0
    sums = np.asarray(observed, dtype=np.float64)
    return np.asarray(2.0 * sums + constant)


def episode_concentration(
    episodes: Any,
    *,
    episode: int,
    norm_bound: float,
    diameter: float,
    delta: float,
    form: Form = "derived",
) -> Floats:
    """By how much costs of N episodes exceed their conditional means: H(B + ψ)√(N ln(1/δ)/2).

    With probability 1 − δ, by Hoeffding and Azuma, as an episode costs 0 to H(B + ψ). Eq. 31 as
    printed, 4H(B + ψ) ln(4π²N²(ln N + 1)/(3δ)), grows like ln N alone. No such bound exists:
    of fair coins that cost 0 or H(B + ψ), with δ = 0.1, it fails with probability 0.22 at N = 100,000;
    of Algorithm 1 with two actions whose costs are known, with 0.20 at N = 1,000,000.

    Args:
        episodes: N.
        episode: H.
        norm_bound: B, so that 0 ≤ f ≤ B.
        diameter: ψ, the largest distance.
        delta: δ, the probability of failing.
        form: "printed" for eq. 31 as it stands.
    """
    N = as_rounds(episodes)
    H = as_count(episode, "episode")
    B = as_positive(norm_bound, "norm_bound")
    psi = as_number(diameter, "diameter", 0.0)
    largest = H * (B + psi)  # cost of an episode
    chance = as_probability(delta, "delta")
    require_choice(form, "form", ("derived", "printed"))
    if form == "printed":
        inside = 4.0 * math.pi**2 * N**2 / (3.0 * chance) * (np.log(N) + 1.0)
        return np.asarray(4.0 * largest * np.log(inside))
    return np.asarray(largest * np.sqrt(N * math.log(1.0 / chance) / 2.0))


def learning_error_bound(
    episodes: Any,
    gamma: Gamma,
    *,
    episode: int,
    norm_bound: float,
    noise_bound: float,
    noise_variance: float,
    delta: float = 0.1,
    form: Form = "derived",
) -> Floats:
    """2β_N √(NH (2V + 4H ln(1/δ') + 8H ln(4H) + 1)): eqs. 57 to 63, with δ' = δ/3 and k ≤ 1.

    V is :func:`stale_variance_bound` and β_N the width of Lemma 1 when episode N begins, with δ'. It
    bounds ΣΣ2β_m⟨σ_m, l(z_{h,m})⟩. Eq. 62 as printed multiplies 2V alone by NH, which does not follow
    from eq. 50; "printed" takes eq. 62 literally, with eq. 56 as printed.

    Args:
        episodes: N.
        gamma: t ↦ γ_t for this λ.
        episode: H.
        norm_bound: B.
        noise_bound: σ, the noise is σ-sub-Gaussian.
        noise_variance: λ.
        delta: δ of Theorem 1.
        form: "printed" for eqs. 56 and 62 as they stand.
    """
    N = as_rounds(episodes)
    H = as_count(episode, "episode")
    norm = as_positive(norm_bound, "norm_bound")
    noise = as_positive(noise_bound, "noise_bound")
    chance = as_probability(delta, "delta") / _EVENTS
    V = stale_variance_bound(
        N, gamma, episode=H, noise_variance=noise_variance, form=form
    )
    information = evaluate(gamma, (N - 1.0) * H)
    deviation = np.sqrt(2.0 * math.log(1.0 / chance) + 2.0 * information)
    beta = norm + noise / math.sqrt(noise_variance) * deviation  # Lemma 1
    constant = conditional_mean_bound(0.0, episode=H, delta=chance)
    eq_62 = 2.0 * N * H * V + constant
    derived = N * H * (2.0 * V + constant)
    squares = eq_62 if form == "printed" else derived
    return np.asarray(2.0 * beta * np.sqrt(squares))


def regret_bound_gp_md(
    episodes: Any,
    gamma: Gamma,
    *,
    episode: int,
    norm_bound: float,
    noise_bound: float,
    noise_variance: float,
    diameter: float,
    delta: float = 0.1,
    form: Form = "derived",
) -> Floats:
    """Theorem 1 with every constant: R^{α,β} after N episodes, where α and β are such that eqs. 38 and
    39 hold.

    The learning error (eqs. 57 to 63) and what costs exceed their conditional means by (eq. 31), with
    probability 1 − δ. α and β are not part of it: see :func:`service_constant`,
    :func:`movement_constants` and :func:`stretch_bound`.

    Args:
        episodes: N.
        gamma: t ↦ γ_t for this λ.
        episode: H.
        norm_bound: B.
        noise_bound: σ, the noise is σ-sub-Gaussian.
        noise_variance: λ.
        diameter: ψ, the largest distance.
        delta: δ, the probability of failing.
        form: "printed" for the steps of the proof as they stand.
    """
    error = learning_error_bound(
        episodes,
        gamma,
        episode=episode,
        norm_bound=norm_bound,
        noise_bound=noise_bound,
        noise_variance=noise_variance,
        delta=delta,
        form=form,
    )
    excess = episode_concentration(
        episodes,
        episode=episode,
        norm_bound=norm_bound,
        diameter=diameter,
        delta=delta / _EVENTS,
        form=form,
    )
    return np.asarray(error + excess)
