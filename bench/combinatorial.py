"""Sparse posteriors and oracles: Titsias' form beside GPyTorch's, oracles beside their engines.

*Titsias*: the state of Simulation I in round 249, 1,245 observations in [0, 1]³, 100 arms on offer. A
round is *draw inducing points, take 5 rewards in, mean and std of all arms*; the peer gets the same
points and all data, and solves anew. *Lazy greedy* covers 5,000 nodes by links from 2,000. *TIM+* runs
on a random cascade graph; its peer is the sampling of reverse-reachable sets that it cannot do without.
*Matching* has every pair of two sides; its peer is SciPy's assignment on the same table. *Stepwise* is
O'CLOK-UCB that builds its super arm arm by arm, beside the plain policy.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.graphs import Pairs
from superarm.kernels import SquaredExponential
from superarm.oracles import TIM, GreedyCoverage, Matching, coverage
from superarm.policies import oclok_ucb
from superarm.posteriors import InducingGP
from superarm.problems import Crowdsourcing
from superarm.simulation import simulate

from .measure import Results, Row, at_least, at_most, median_seconds, row, seconds, without_gc
from .peers import missing, sgpr_moments

NOISE = 0.01


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    repeats = repeats or (2 if quick else 9)
    rows: list[Row] = []
    facts: dict[str, Any] = {}
    skipped: list[str] = []
    reason = missing("gpytorch")
    if reason is None:
        rows += [_titsias(100 if quick else 1245, points, repeats) for points in (10, 50)]
    else:
        skipped.append(f"GPyTorch, SGPR: {reason}")
    skipped.append("GPflow, SGPR: it needs tensorflow and an environment of its own")
    rows.append(_matching(40 if quick else 500, repeats))
    rows.append(_tim(300 if quick else 10_000, 0.4 if quick else 0.3))
    rows.append(_stepwise(40 if quick else 250, repeats))
    greedy = _greedy(2_000 if quick else 100_000, repeats)
    facts["lazy greedy, seconds"] = greedy
    facts["Simulation I, exact, 5 seeds, seconds"] = _simulation(20 if quick else 250)
    targets = [
        at_most("difference from any peer", max(each.max_abs_diff or 0.0 for each in rows), 1e-6)
    ]
    if not quick:
        by_case = {each.case: each.ratio for each in rows}
        targets += [
            at_least(case, ratio, 10.0)
            for case, ratio in by_case.items()
            if case.startswith("Titsias, 50")
        ]
        targets += [
            at_most("matching over SciPy", 1.0 / by_case["matching, 500 × 500"], 1.2),
            at_most("TIM+ over its sampling", 1.0 / by_case["TIM+, 10,000 nodes"], 3.0),
            at_most("stepwise over plain", 1.0 / by_case["stepwise, N=1250"], 1.5),
            at_most("lazy greedy on 100,000 links, milliseconds", 1e3 * greedy, 50.0),
            at_most("Simulation I, seconds", facts["Simulation I, exact, 5 seeds, seconds"], 10.0),
        ]
    return Results(suite="combinatorial", rows=rows, facts=facts, targets=targets, skipped=skipped)


def _turns(ours: Callable[[], object], peer: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median seconds of each, taking turns."""
    ours(), peer()
    times: tuple[list[float], list[float]] = [], []
    with without_gc():
        for _ in range(repeats):
            times[0].append(seconds(ours))
            times[1].append(seconds(peer))
    return statistics.median(times[0]), statistics.median(times[1])


def _titsias(observations: int, points: int, repeats: int) -> Row:
    rng = np.random.default_rng(0)
    arms, offered = rng.random((observations, 3)), rng.random((100, 3))
    rewards = np.sin(3.0 * arms[:, 0]) + 0.1 * rng.standard_normal(observations)
    kernel = SquaredExponential(lengthscale=1.0)
    gp = InducingGP(kernel, NOISE, inducing=points, jitter=0.0)  # as the peer
    gp.observe(arms[:-5], rewards[:-5], rng=rng)
    state = gp.state()
    answers: list[Any] = []

    def ours(_: object = None) -> None:
        answers[:] = [fresh := gp.restored(state)]
        clock.append(seconds(lambda: _round(fresh)))

    def _round(fresh: InducingGP) -> None:
        fresh.observe(arms[-5:], rewards[-5:], rng=np.random.default_rng(1))
        answers.append(fresh.predict(offered))

    clock: list[float] = []
    ours()
    chosen = answers[0].points
    peer_s = median_seconds(
        lambda _: sgpr_moments(arms, rewards, arms[chosen], offered, NOISE), repeats
    )
    clock.clear()
    with without_gc():
        for _ in range(repeats):
            ours()
    theirs = sgpr_moments(arms, rewards, arms[chosen], offered, NOISE)
    mean, std = answers[1]
    difference = max(np.abs(mean - theirs.mean).max(), np.abs(std - theirs.std).max())
    case = f"Titsias, {points} points, N={observations}"
    return row(case, statistics.median(clock), "GPyTorch, SGPR", peer_s, float(difference))


def _matching(side: int, repeats: int) -> Row:
    from scipy.optimize import linear_sum_assignment

    left, right = np.divmod(np.arange(side**2), side)
    pairs, rng = Pairs(left=left, right=right), np.random.default_rng(0)
    worth = rng.random(side**2)
    table: Floats = worth.reshape(side, side)
    oracle = Matching()
    ours_s, peer_s = _turns(
        lambda: oracle.select(worth, pairs, rng),
        lambda: linear_sum_assignment(table, maximize=True),
        repeats,
    )
    rows, columns = linear_sum_assignment(table, maximize=True)
    chosen = oracle.select(worth, pairs, rng).positions
    difference = abs(float(worth[chosen].sum() - table[rows, columns].sum()))
    return row(f"matching, {side} × {side}", ours_s, "SciPy, linear_sum_assignment", peer_s, difference)


def _tim(nodes: int, epsilon: float) -> Row:
    rng = np.random.default_rng(0)
    links = np.unique(rng.integers(0, nodes**2, 6 * nodes))
    pairs = Pairs(left=links // nodes, right=links % nodes)
    sampling: list[float] = []
    draw = coverage.draw_sets

    def timed(*arguments: Any) -> Any:
        found: list[Any] = []
        sampling.append(seconds(lambda: found.append(draw(*arguments))))
        return found[0]

    coverage.draw_sets = timed  # type: ignore[assignment]
    try:
        oracle = TIM(k=10, epsilon=epsilon, two_sided=False)
        ours_s = seconds(lambda: oracle.select(np.full(len(links), 0.1), pairs, rng))
    finally:
        coverage.draw_sets = draw
    return row(f"TIM+, {nodes:,} nodes", ours_s, "its sampling alone", sum(sampling), None)


def _greedy(links: int, repeats: int) -> float:
    rng = np.random.default_rng(0)
    cells = rng.choice(2000 * 5000, size=links, replace=False)
    pairs, chances = Pairs(left=cells // 5000, right=cells % 5000), 0.3 * rng.random(links)
    oracle = GreedyCoverage(k=50)
    return median_seconds(lambda _: oracle.select(chances, pairs, rng), repeats)


def _stepwise(rounds: int, repeats: int) -> Row:
    """Both policies have learned the same; what is timed is to decide."""
    world = Crowdsourcing(seed=0, horizon=rounds, source="synthetic")
    plain = oclok_ucb(world.model, form="cholesky")
    simulate(world, {"plain": plain}, rounds=rounds, seed=0)
    stepwise = oclok_ucb(world.model, form="cholesky", stepwise=True)
    stepwise.posterior = plain.posterior
    offer, rng = world.offer(rounds), np.random.default_rng(0)

    def decide(policy: Any) -> Callable[[], object]:
        def work() -> object:
            plain.posterior.predict(np.zeros((1, 3)))  # the answer about these arms is not kept
            return policy.decide(offer, rng)

        return work

    ours_s, peer_s = _turns(decide(stepwise), decide(plain), repeats * 5)
    return row(f"stepwise, N={5 * rounds}", ours_s, "plain O'CLOK-UCB", peer_s, None)


def _simulation(rounds: int) -> float:
    def work() -> None:
        for seed in range(5):
            world = Crowdsourcing(seed=seed, horizon=rounds, source="synthetic")
            simulate(world, {"oclok-ucb": oclok_ucb(world.model)}, rounds=rounds, seed=seed)

    return seconds(work)
