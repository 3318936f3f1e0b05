"""Movement: mirror descent on a tree, its coupling and the tree itself, beside general solvers.

Actions are points in the unit square. A *descent step* turns costs and conditional probabilities into
the next ones: ours beside Brent's method at every vertex, as one would write it with SciPy. A *coupling
sample* couples two distributions and draws where one action leads: ours beside POT's exact transport on
the tree metric. A *whole step* is descent, coupling and a draw. The *limit* of a step is one
exponential and one logarithm per vertex: Newton's method needs several.
"""

from __future__ import annotations

import tracemalloc
from functools import partial
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.movement import (
    Forest,
    PointMetric,
    Tree,
    TreeCoupling,
    TreeDescent,
    frt_tree,
)

from .measure import (
    Results,
    Row,
    Spent,
    at_least,
    at_most,
    exponent,
    median_seconds,
    row,
    seconds,
    take_turns,
)
from .peers import missing


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    repeats = repeats or (3 if quick else 20)
    n, large, huge = (40, 80, 100) if quick else (400, 10_000, 5_000)
    rng = np.random.default_rng(0)
    skipped = [
        f"{name}: {reason}" for name in ("numba", "ot") if (reason := missing(name))
    ]
    backends: list[Any] = ["numpy"] + (["numba"] if missing("numba") is None else [])
    tree = frt_tree(PointMetric(points=rng.random((n, 2))), rng)
    costs = rng.random((50, n))
    q = TreeDescent(tree).point_mass(0)
    for row_of_costs in costs[:-1]:
        q = TreeDescent(tree).step(q, row_of_costs)
    rows: list[Row] = []
    answer = _by_vertex(tree, q, costs[-1])
    before, after = rng.dirichlet(np.ones(n), 2)  # all actions have mass
    peer = "SciPy, per vertex"
    for backend in backends:
        descent = TreeDescent(tree, backend=backend)
        found = take_turns(
            {
                "ours": partial(_twenty_times, partial(descent.step, q, costs[-1])),
                peer: partial(_by_vertex, tree, q, costs[-1]),
            },
            repeats,
        )
        taken = Spent(*(each / 20.0 for each in found["ours"]))
        difference = float(np.abs(descent.step(q, costs[-1]) - answer).max())
        rows.append(
            row(f"descent, n={n}, {backend}", taken, peer, found[peer], difference)
        )
        if missing("ot") is None:
            rows.append(_coupling(tree, backend, before, after, rng, repeats))
    facts, growth = _sizes(backends[-1], large, quick, repeats)
    grown, memory = _frt(huge)
    facts[f"FRT, n={huge}, seconds"] = grown
    facts[f"FRT, n={huge}, bytes beside the distances, over n²"] = memory
    times = {
        size: _frt(size)[0] for size in ((50, 100) if quick else (625, 1_250, 2_500))
    }
    growth["FRT, seconds against n"] = exponent(
        [*times, huge], [*times.values(), grown]
    )
    v = len(tree.parent)
    numbers = np.random.default_rng(0).random(v)
    limit = _each(lambda: np.exp(numbers) + np.log(numbers), repeats)
    limits = {f"one exponential and one logarithm per vertex, n={n}": limit}
    for each in rows:
        if each.case.startswith("descent"):
            limits[f"{each.case}: ours over it"] = each.ours_s / limit
    targets = [
        at_most(
            "difference from any peer", max(r.max_abs_diff or 0.0 for r in rows), 1e-9
        )
    ]
    if not quick:
        least = {"descent, n=400, numpy": 8.0, "descent, n=400, numba": 100.0}
        least["coupling, n=400, numba"] = 1000.0
        targets += [
            at_least(f"{r.case}: {r.peer} over ours", r.ratio, least[r.case])
            for r in rows
            if r.case in least
        ]
        name = f"whole step, n={large}, {backends[-1]}, seconds"
        targets.append(at_most(name, facts[name], 0.020))
        targets.append(at_most(f"FRT, n={huge}, seconds", grown, 10.0))
        targets.append(
            at_most(f"FRT, n={huge}, bytes beside the distances, over n²", memory, 40.0)
        )
    return Results(
        suite="movement",
        rows=rows,
        growth=growth,
        limits=limits,
        facts=facts,
        targets=targets,
        skipped=skipped,
    )


def _each(work: Any, repeats: int) -> float:
    """Seconds of one call, over several at a time: one alone is too short for the clock."""
    return median_seconds(lambda _: [work() for _ in range(20)], repeats) / 20.0


def _by_vertex(tree: Tree, q: Floats, costs: Floats) -> Floats:
    """Eq. 28 vertex by vertex, b by Brent's method: what one would write first."""
    from scipy.optimize import brentq

    v = len(tree.parent)
    theta = np.ones(v)
    theta[1:] = tree.sizes[1:] / tree.sizes[tree.parent[1:]]
    eta = 1.0 - np.log(theta)
    delta = theta / eta
    c, after = np.zeros(v), np.ones(v)
    c[tree.leaf] = costs
    for u in range(v - 1, -1, -1):
        children = slice(*np.searchsorted(tree.parent, [u, u + 1]))
        if children.start == children.stop:
            continue
        a, d, own = q[children] + delta[children], delta[children], c[children]
        rate = eta[children] / tree.weight[children]

        def mass(
            b: float, a: Floats = a, d: Floats = d, own: Floats = own, r: Floats = rate
        ) -> Floats:
            return np.maximum(a * np.exp(r * (b - own)) - d, 0.0)

        low, high = float(own.min()), float(own.max())
        root = low
        if high > low:
            root = brentq(
                lambda b, mass=mass: mass(b).sum() - 1.0,
                low,
                high,
                xtol=1e-15,
                rtol=1e-15,
            )
        found = mass(root)
        after[children] = found / found.sum()
        c[u] = float(after[children] @ own)
    return after


def _coupling(
    tree: Tree,
    backend: Any,
    before: Floats,
    after: Floats,
    rng: np.random.Generator,
    repeats: int,
) -> Row:
    """A coupling and a draw from it, in turns with POT's plan on the tree metric."""
    import ot

    coupling = TreeCoupling(tree, backend=backend)
    distances = np.ascontiguousarray(tree.distances)
    after = after / after.sum() * before.sum()

    def sample() -> object:
        return coupling.draw(coupling.between(before, after), 0, rng)

    found = take_turns(
        {
            "ours": partial(_twenty_times, sample),
            "theirs": partial(ot.emd, before, after, distances),
        },
        max(3, repeats // 4),
    )
    cost = float((ot.emd(before, after, distances) * distances).sum())
    difference = abs(coupling.between(before, after).cost(tree.distances) - cost)
    taken = Spent(*(each / 20.0 for each in found["ours"]))
    case = f"coupling, n={len(before)}, {backend}"
    return row(case, taken, "POT, exact", found["theirs"], difference)


def _twenty_times(work: Any) -> None:
    """One call alone is too short for the clock."""
    for _ in range(20):
        work()


def _sizes(
    backend: Any, large: int, quick: bool, repeats: int
) -> tuple[dict[str, Any], dict[str, float]]:
    facts, times = {}, {}
    rng = np.random.default_rng(1)
    for n in (20, large) if quick else (400, 2_000, large):
        metric = PointMetric(points=rng.random((n, 2)))
        forest = Forest(metric, [frt_tree(metric, rng)], backend=backend)
        walk_state, costs = forest.begin(0), rng.random((20, n))
        for each in costs:
            walk_state = forest.move(walk_state, each, rng).walk_state
        taken = median_seconds(
            lambda _: forest.move(walk_state, costs[0], rng),  # noqa: B023
            repeats,
        )
        facts[f"whole step, n={n}, {backend}, seconds"] = times[n] = taken
    return facts, {
        "whole step, seconds against n": exponent([*times], [*times.values()])
    }


def _frt(n: int) -> tuple[float, float]:
    """Seconds, and bytes beside the distances over n²."""
    rng = np.random.default_rng(2)
    metric = PointMetric(points=rng.random((n, 2)))
    taken = seconds(lambda: frt_tree(metric, rng))
    tracemalloc.start()
    frt_tree(metric, rng)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return taken, peak / n**2
