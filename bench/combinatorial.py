"""Sparse posteriors and oracles: Titsias' form beside GPyTorch's, oracles beside their engines.

*Titsias*: the state of Simulation I in round 249, 1,245 observations in [0, 1]³, 100 arms on offer. A
round is *draw inducing points, take 5 rewards in, mean and std of all arms*; the peers get the same
points and all data, and solve anew: GPyTorch, GPflow, and the same formulas written by hand. *Lazy
greedy* covers 5,000 nodes by links from 2,000. *TIM+* runs on a random cascade graph; its peer is the
sampling of reverse-reachable sets that it cannot do without. *Matching* has every pair of two sides;
its peer is SciPy's assignment on the same table. *Stepwise* is O'CLOK-UCB that builds its super arm arm
by arm, beside the plain policy.
"""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.errors import PrecisionWarning
from superarm.core.graphs import Pairs
from superarm.kernels import Kernel, Matern, SquaredExponential
from superarm.lab.problems import Crowdsourcing
from superarm.lab.simulation import simulate
from superarm.oracles import TIM, GreedyCoverage, Matching, cascades, tim
from superarm.policies import oclok_ucb
from superarm.posteriors import InducingGP, StreamingGP

from .by_hand import titsias_round
from .measure import (
    Results,
    Row,
    Spent,
    at_least,
    at_most,
    cpu_over,
    median_seconds,
    median_spent,
    row,
    seconds,
    spent,
    take_turns,
    without_gc,
)
from .peers import (
    GPFLOW_JITTER,
    GPFLOW_PYTHON,
    Moments,
    gpflow_moments,
    missing,
    sgpr_moments,
)

NOISE = 0.01
BY_HAND = "numpy by hand"


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    repeats = repeats or (2 if quick else 9)
    rows: list[Row] = []
    facts: dict[str, Any] = {}
    skipped: list[str] = []
    size = 100 if quick else 1245
    gpflow = (
        None
        if GPFLOW_PYTHON in os.environ
        else f"set {GPFLOW_PYTHON} to an interpreter that has it"
    )
    sparse = (
        (BY_HAND, None),
        ("GPyTorch, SGPR", missing("gpytorch")),
        ("GPflow, SGPR", gpflow),
    )
    for peer, reason in sparse:
        if reason is None:
            rows += [titsias(size, points, repeats, peer) for points in (10, 50)]
        else:
            skipped.append(f"{peer}: {reason}")
    rows.append(_matching(40 if quick else 500, repeats))
    rows.append(_tim(300 if quick else 10_000, 0.4 if quick else 0.3))
    rows.append(_stepwise(40 if quick else 250, repeats))
    greedy = _greedy(2_000 if quick else 100_000, repeats)
    facts["lazy greedy, seconds"] = greedy
    for name, kernel, columns in (
        ("SE in 10-d", SquaredExponential(lengthscale=1.0), 10),
        ("Matérn-5/2 in 3-d", Matern(nu=2.5, lengthscale=0.7), 3),
    ):
        facts |= _long_history(name, kernel, columns, quick)
    facts["Simulation I, exact, 5 seeds, seconds"] = _simulation(20 if quick else 250)
    targets = [
        at_most(
            "difference from any peer",
            max(each.max_abs_diff or 0.0 for each in rows),
            1e-6,
        )
    ]
    if not quick:
        by_case = {each.case: each.ratio for each in rows}
        least = {"GPyTorch, SGPR": 10.0, "GPflow, SGPR": 40.0}
        targets += [
            at_least(
                f"{each.case}: {each.peer} over ours", each.ratio, least[each.peer]
            )
            for each in rows
            if each.case.startswith("Titsias, 50") and each.peer in least
        ]
        targets += [
            at_most(f"{each.case}: ours over {BY_HAND}, CPU", cpu_over(each), 1.3)
            for each in rows
            if each.peer == BY_HAND
        ]
        targets += [
            at_most("matching over SciPy", 1.0 / by_case["matching, 500 × 500"], 1.2),
            at_most("TIM+ over its sampling", 1.0 / by_case["TIM+, 10,000 nodes"], 3.0),
            at_most("stepwise over plain", 1.0 / by_case["stepwise, N=1250"], 1.5),
            at_most("lazy greedy on 100,000 links, milliseconds", 1e3 * greedy, 50.0),
            at_most(
                "Simulation I, seconds",
                facts["Simulation I, exact, 5 seeds, seconds"],
                10.0,
            ),
        ]
    return Results(
        suite="combinatorial", rows=rows, facts=facts, targets=targets, skipped=skipped
    )


def _lock(
    ours: Callable[[], object], peer: Callable[[], object], repeats: int
) -> tuple[Spent, Spent]:
    """Medians of each, taking turns."""
    found = take_turns({"ours": ours, "peer": peer}, repeats)
    return found["ours"], found["peer"]


def _moments(gp: InducingGP | StreamingGP, arms: Floats) -> Moments:
    mean, std = gp.predict(arms)
    assert std is not None  # it was not declined
    return Moments(mean, std)


def titsias(observations: int, points: int, repeats: int, peer: str) -> Row:
    """A round of ours and of one peer, in turns; GPflow's own process takes its turns alone."""
    rng = np.random.default_rng(0)
    arms, offered = rng.random((observations, 3)), rng.random((100, 3))
    rewards = np.sin(3.0 * arms[:, 0]) + 0.1 * rng.standard_normal(observations)
    kernel = SquaredExponential(lengthscale=1.0)
    jitter = GPFLOW_JITTER if peer.startswith("GPflow") else 0.0
    gp = InducingGP(kernel, NOISE, inducing=points, jitter=jitter)
    gp.observe(arms[:-5], rewards[:-5], rng=rng)
    state = gp.state()
    answers: dict[str, Moments] = {}

    def ours(fresh: InducingGP) -> None:
        fresh.observe(arms[-5:], rewards[-5:], rng=np.random.default_rng(1))
        answers["ours"] = _moments(fresh, offered)

    def theirs() -> None:
        # The generator and the points are part of the round, as they are in ours.
        chosen = np.random.default_rng(1).choice(
            observations, size=points, replace=False
        )
        if peer == BY_HAND:
            found = titsias_round(arms, rewards, arms[chosen], offered, NOISE, jitter)
        else:
            found = sgpr_moments(arms, rewards, arms[chosen], offered, NOISE)
        answers["theirs"] = found

    times: dict[str, list[Spent]] = {"ours": [], "theirs": []}
    gpflow = peer.startswith("GPflow")
    turns = 20 * repeats if peer == BY_HAND else repeats
    with without_gc():
        for _ in range(turns + 1):  # the first warms up
            times["ours"].append(spent(partial(ours, gp.restored(state))))
            if not gpflow:
                times["theirs"].append(spent(theirs))
    case = f"Titsias, {points} points, N={observations}"
    taken = median_spent(times["ours"][1:])
    if gpflow:
        chosen = np.random.default_rng(1).choice(
            observations, size=points, replace=False
        )
        found, peer_s = gpflow_moments(
            arms, rewards, arms[chosen], offered, NOISE, repeats
        )
        return row(case, taken, peer, peer_s, answers["ours"].difference(found))
    difference = answers["ours"].difference(answers["theirs"])
    return row(case, taken, peer, median_spent(times["theirs"][1:]), difference)


def _matching(side: int, repeats: int) -> Row:
    from scipy.optimize import linear_sum_assignment

    left, right = np.divmod(np.arange(side**2), side)
    pairs, rng = Pairs(left=left, right=right), np.random.default_rng(0)
    worth = rng.random(side**2)
    table: Floats = worth.reshape(side, side)
    oracle = Matching()
    ours_s, peer_s = _lock(
        lambda: oracle.select(worth, pairs, rng),
        lambda: linear_sum_assignment(table, maximize=True),
        repeats,
    )
    rows, columns = linear_sum_assignment(table, maximize=True)
    chosen = oracle.select(worth, pairs, rng).positions
    difference = abs(float(worth[chosen].sum() - table[rows, columns].sum()))
    return row(
        f"matching, {side} × {side}",
        ours_s,
        "SciPy, linear_sum_assignment",
        peer_s,
        difference,
    )


def _tim(nodes: int, epsilon: float) -> Row:
    rng = np.random.default_rng(0)
    links = np.unique(rng.integers(0, nodes**2, 6 * nodes))
    pairs = Pairs(left=links // nodes, right=links % nodes)
    sampling: list[float] = []
    draw = cascades.draw_sets

    def timed(*arguments: Any) -> Any:
        found: list[Any] = []
        sampling.append(seconds(lambda: found.append(draw(*arguments))))
        return found[0]

    setattr(tim, "draw_sets", timed)  # noqa: B010 (mypy: it is imported there)
    try:
        oracle = TIM(k=10, epsilon=epsilon, two_sided=False)
        ours_s = seconds(lambda: oracle.select(np.full(len(links), 0.1), pairs, rng))
    finally:
        setattr(tim, "draw_sets", draw)  # noqa: B010
    return row(
        f"TIM+, {nodes:,} nodes", ours_s, "its sampling alone", sum(sampling), None
    )


def _greedy(links: int, repeats: int) -> float:
    rng = np.random.default_rng(0)
    cells = rng.choice(2000 * 5000, size=links, replace=False)
    pairs, chances = (
        Pairs(left=cells // 5000, right=cells % 5000),
        0.3 * rng.random(links),
    )
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
            plain.posterior.predict(
                np.zeros((1, 3))
            )  # the answer about these arms is not kept
            return policy.decide(offer, rng)

        return work

    ours_s, peer_s = _lock(decide(stepwise), decide(plain), repeats * 5)
    return row(f"stepwise, N={5 * rounds}", ours_s, "plain O'CLOK-UCB", peer_s, None)


def _long_history(
    name: str, kernel: Kernel, columns: int, quick: bool
) -> dict[str, Any]:
    """What summing up costs, and by how much it is off where the exact answer can still be had."""
    few, many, points = (200, 500, 60) if quick else (5_000, 100_000, 1_000)
    rng = np.random.default_rng(0)
    arms, offered = rng.random((many + 50, columns)), rng.random((100, columns))
    rewards = (
        np.sin(3.0 * arms[:, 0]) + arms[:, -1] + 0.1 * rng.standard_normal(len(arms))
    )
    exact = StreamingGP(kernel, NOISE, form="cholesky")
    exact.observe(arms[:few], rewards[:few])
    gp = StreamingGP(kernel, NOISE, most_exact=few - 1, inducing=points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrecisionWarning)
        gp.observe(arms[:few], rewards[:few])
        found, true = _moments(gp, offered), _moments(exact, offered)
        gp.observe(arms[few:many], rewards[few:many])

    def round_at(at: int) -> None:
        gp.predict(offered)
        gp.observe(arms[at : at + 5], rewards[at : at + 5])

    times = [seconds(lambda at=at: round_at(at)) for at in range(many, many + 50, 5)]  # type: ignore[misc]
    wider, label = found.std / true.std, f"{name}, {points:,} points"
    at_few, at_many = (f"{label}, {count:,} observations" for count in (few, many))
    return {
        f"{at_few}: mean off by, in stds": float(
            np.max(np.abs(found.mean - true.mean) / true.std)
        ),
        f"{at_few}: std over the exact one, least": float(wider.min()),
        f"{at_few}: std over the exact one, most": float(wider.max()),
        f"{at_many}: ms a round": 1e3 * statistics.median(times),
        f"{at_many}: kernel values off by": gp.tolerance,
    }


def _simulation(rounds: int) -> float:
    def work() -> None:
        for seed in range(5):
            world = Crowdsourcing(seed=seed, horizon=rounds, source="synthetic")
            simulate(
                world, {"oclok-ucb": oclok_ucb(world.model)}, rounds=rounds, seed=seed
            )

    return seconds(work)
