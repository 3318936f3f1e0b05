"""Road networks: paths of 70 edges, the belief over all edges after each, T = 500 rounds.

A *round* is: learn a path's rewards, then mean and standard deviation of every edge. Paths are
shortest paths by far stops under perturbed travel times, as many different ones as visit the
stated number V of edges, spread over the rounds. Ours plays all rounds; the last ones are timed.
The peers are slow and their rounds cost the same whatever came before, so that they start where
ours is: the full covariance from a fresh solve, the variational one with all data (but hardly
trained: its moments are not compared). All take turns.

A *GP-TS round* is the policy itself on Luxembourg, or on a city of that size where it is not at hand:
``network_policy.py``.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.data_files import find
from superarm.core.errors import MissingDataError
from superarm.kernels import GraphMatern
from superarm.roads.networks import generate_city
from superarm.roads.networks.sumo_net import read_sumo

from .measure import (
    Results,
    Row,
    Target,
    array_bytes,
    at_least,
    at_most,
    exponent,
    gemm_gflops,
    row,
    seconds,
    without_gc,
)
from .network_peers import FullCovariance, GPyTorchSvgp, Ours, Scene, scene_on
from .network_policy import measure_policy
from .network_routes import Roads, paths_that_visit, spread_over
from .peers import Moments, missing

TURN = 5
"""Rounds of ours for one of each peer's."""


class Size(NamedTuple):
    """A network and what is asked of it."""

    edges: int
    visited: int
    further: tuple[int, ...]
    """Numbers of visited edges at which ours is timed too."""
    svgp: float
    """How many times faster than the variational peer ours should be."""


FULL = (Size(6000, 600, (1000, 2000), 60.0), Size(15000, 900, (1000, 2000), 40.0))
QUICK = (Size(400, 60, (90,), 0.0), Size(800, 80, (120,), 0.0))


# --- yardsticks --------------------------------------------------------------------------


def fresh_solve(ours: Ours) -> tuple[Moments, Floats]:
    """All merged data at once, and K_EV (K_VV + D)⁻¹ᐟ² for the full covariance."""
    from scipy.linalg import solve_triangular

    scene, state = ours.scene, ours.posterior.state()
    weight, weighted = state.arrays["weight"], state.arrays["weighted_rewards"]
    V = np.flatnonzero(weight)
    K_VE = np.asarray(scene.kernel(scene.arms[V], scene.arms))
    L = np.linalg.cholesky(K_VE[:, V] + np.diag(1.0 / weight[V]))
    W = solve_triangular(L, K_VE, lower=True, overwrite_b=True)
    z = solve_triangular(L, weighted[V] / weight[V] - scene.mean[V], lower=True)
    variance = scene.kernel.diag(scene.arms) - np.einsum("ij,ij->j", W, W)
    return Moments(scene.mean + z @ W, np.sqrt(np.maximum(variance, 0.0))), W


class Limit:
    """The one product that a round cannot do without: (s, V) by (V, n), nothing else."""

    def __init__(self, path: int, visited: int, edges: int) -> None:
        rng = np.random.default_rng(1)
        self._left = np.asfortranarray(rng.random((path, visited)))
        self._right = rng.random((visited, edges))
        self._out = np.empty((path, edges))
        self._times: list[float] = []
        self._operations = 2.0 * path * visited * edges

    def measure(self) -> None:
        self._times.append(
            seconds(lambda: np.matmul(self._left, self._right, out=self._out))
        )

    def summary(self, name: str, ours_s: float) -> dict[str, float]:
        taken = statistics.median(self._times)
        return {
            f"{name} gemm_s": taken,
            f"{name} gemm_gflops_reached": self._operations / taken / 1e9,
            f"{name} ours_over_limit": ours_s / taken,
        }


# --- one size ----------------------------------------------------------------------------


class Found(NamedTuple):
    rows: list[Row]
    targets: list[Target]
    limits: dict[str, float]
    facts: dict[str, Any]
    ours_s: dict[int, float]
    """Seconds for one round by visited edges."""


class Plan(NamedTuple):
    """The paths of all rounds: those played before, one to warm up, those that are timed."""

    before: list[Ints]
    warm_up: Ints
    timed: list[Ints]

    @property
    def mean_length(self) -> int:
        return round(
            statistics.mean(map(len, [*self.before, self.warm_up, *self.timed]))
        )


def plan_rounds(pool: list[Ints], rounds: int, repeats: int) -> Plan:
    sequence = spread_over(pool, rounds, seed=1)
    first = rounds - repeats * TURN
    return Plan(sequence[: first - 1], sequence[first - 1], sequence[first:])


def measure_size(
    size: Size, rounds: int, repeats: int, peers: list[str], quick: bool
) -> Found:
    """Set up, play to where rounds are timed, time them in turns, compare, then go on visiting."""
    graph = generate_city(edges=size.edges, seed=0).line_graph()
    started = time.perf_counter()
    scene = scene_on(graph)
    scene.on_graph.diag(scene.arms)
    facts: dict[str, Any] = {
        f"GraphMatern of {len(graph)} edges, set up, s": _since(started)
    }
    roads, known = Roads(graph), set[int]()
    plan = plan_rounds(
        paths_that_visit(roads, size.visited, known, seed=0), rounds, repeats
    )
    ours = Ours(scene)
    for path in plan.before:
        ours.round(path, ours.rewards(path))
    contenders = _peers(scene, ours, [*plan.before, plan.warm_up], peers, quick)
    limit = Limit(plan.mean_length, ours.posterior.rank, len(graph))
    times = time_in_turns(ours, contenders, plan, limit)
    case = f"{len(graph)} edges, V={ours.posterior.rank}, paths of {plan.mean_length}"
    rows = compare(case, ours, contenders, times)
    targets = judge(case, ours, rows, rounds, None if quick else size.svgp)
    del contenders
    gc.collect()
    facts[f"{case}, MB held"] = round(array_bytes(ours.posterior._engine) / 1e6, 1)
    growth = {ours.posterior.rank: statistics.median(times[ours.name])}
    limits = limit.summary(case, growth[ours.posterior.rank])
    for visited in size.further:
        growth |= visit_further(
            ours, paths_that_visit(roads, visited, known, seed=visited), facts
        )
    return Found(rows, targets, limits, facts, growth)


def time_in_turns(
    ours: Ours, contenders: list[Any], plan: Plan, limit: Limit
) -> dict[str, list[float]]:
    """Seconds of every timed round by contender; the slow ones take part in the first of each turn."""
    rewards = ours.rewards(plan.warm_up)
    for one in (ours, *contenders):
        one.round(plan.warm_up, rewards)
    limit.measure()
    times: dict[str, list[float]] = {one.name: [] for one in (ours, *contenders)}
    with without_gc():
        for number, path in enumerate(plan.timed):
            rewards = ours.rewards(path)
            for one in (
                ours,
                *(contenders if number % TURN == 0 else _exact(contenders)),
            ):
                gc.collect()
                times[one.name].append(seconds(partial(one.round, path, rewards)))
            limit.measure()
    return times


def _exact(contenders: list[Any]) -> list[FullCovariance]:
    return [one for one in contenders if isinstance(one, FullCovariance)]


def compare(
    case: str, ours: Ours, contenders: list[Any], times: dict[str, list[float]]
) -> list[Row]:
    """Times beside each other; moments, in prior standard deviations, where the peer is exact."""
    prior_std = float(np.sqrt(ours.scene.variance))
    differences = {
        one.name: one.moments().difference(ours.moments()) / prior_std
        for one in _exact(contenders)
    }
    middle = {name: statistics.median(taken) for name, taken in times.items()}
    return [
        row(
            case,
            middle[ours.name],
            one.name,
            middle[one.name],
            differences.get(one.name),
        )
        for one in contenders
    ]


def judge(
    case: str, ours: Ours, rows: list[Row], rounds: int, svgp: float | None
) -> list[Target]:
    """Agreement with a fresh solve; and ratios, where ``svgp`` says what is asked of that peer's."""
    prior_std = float(np.sqrt(ours.scene.variance))
    agreement = ours.moments().difference(fresh_solve(ours)[0]) / prior_std
    targets = [
        at_most(
            f"{case}: ours and a fresh solve after {rounds} rounds", agreement, 1e-9
        )
    ]
    if svgp is None:
        return targets
    return targets + [
        at_least(
            f"{case} against {one.peer}", one.ratio, svgp if "SVGP" in one.peer else 3.0
        )
        for one in rows
    ]


def visit_further(
    ours: Ours, more: list[Ints], facts: dict[str, Any]
) -> dict[int, float]:
    """Seconds of a round by visited edges, after ``more`` paths; facts gain time and memory."""
    for path in more:
        ours.round(path, ours.rewards(path))
    again = [
        seconds(partial(ours.round, path, ours.rewards(path)))
        for path in (more * 20)[:15]
    ]
    taken, rank = statistics.median(again), ours.posterior.rank
    name = f"{len(ours.scene.graph)} edges, V={rank}"
    facts[f"{name}, ms a round"] = round(1e3 * taken, 2)
    facts[f"{name}, MB held"] = round(array_bytes(ours.posterior._engine) / 1e6, 1)
    return {rank: taken}


def _peers(
    scene: Scene, ours: Ours, played: list[Ints], available: list[str], quick: bool
) -> list[Any]:
    moments, W = fresh_solve(ours)
    covariance = np.empty((len(scene.arms), len(scene.arms)))
    for start in range(0, len(covariance), 256):
        part = slice(start, start + 256)
        covariance[part] = scene.kernel(scene.arms[part], scene.arms)
        covariance[part] -= W[:, part].T @ W
    del W
    contenders: list[Any] = [FullCovariance(scene, moments.mean, covariance)]
    if "gpytorch" in available:
        rows = np.concatenate(played)
        count = np.bincount(rows, minlength=len(scene.arms))
        inducing = np.argsort(-count, kind="stable")[: 50 if quick else 1000]
        rewards = np.concatenate([ours.rewards(path) for path in played])
        batch = 100 if quick else 2500
        contenders += [
            GPyTorchSvgp(scene, inducing, batch, rows, rewards, double=double)
            for double in (True, False)
        ]
    return contenders


def peak_megabytes(edges: int, visited: int) -> dict[str, float]:
    """Most that is allocated while ours learns, is refreshed and answers."""
    graph = generate_city(edges=edges, seed=0).line_graph()
    scene = scene_on(graph)
    scene.kernel.diag(scene.arms)  # the network's own share comes first
    pool = paths_that_visit(Roads(graph), visited, set(), seed=0)
    gc.collect()
    tracemalloc.start()
    try:
        ours = Ours(scene)
        for path in (pool * 60)[: max(len(pool) + 20, 60)]:
            ours.round(path, ours.rewards(path))
        ours.posterior._engine._refresh_at = 0  # type: ignore[union-attr]
        ours.round(pool[0], ours.rewards(pool[0]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return {"visited": float(ours.posterior.rank), "megabytes": peak / 1e6}


# --- reading and setting up ----------------------------------------------------------------


def measure_reading() -> tuple[dict[str, Any], list[Target]]:
    """Luxembourg's ``.net.xml``, where it is at hand."""
    try:
        file = find("luxembourg-roads", ending=".net.xml.xz")
    except MissingDataError:
        return {}, []
    taken = min(seconds(partial(read_sumo, file)) for _ in range(2))
    name = f"{file.name} read, s"
    return {name: round(taken, 3)}, [at_most(name, taken, 2.0)]


def measure_setup(sizes: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, float]]:
    """The factor and the whole diagonal, and one column, by size."""
    facts: dict[str, Any] = {}
    counts = []
    setups = []  # seconds
    for edges in sizes:
        graph = generate_city(edges=edges, seed=0).line_graph()
        nodes = np.arange(len(graph), dtype=np.float64)[:, None]
        started = time.perf_counter()
        kernel = GraphMatern(graph)
        kernel.diag(nodes)
        setups.append(_since(started))
        counts.append(float(len(graph)))
        column = min(seconds(partial(kernel, nodes[:1], nodes)) for _ in range(3))
        facts[f"GraphMatern of {len(graph)} edges: set-up s, a column ms"] = [
            setups[-1],
            round(1e3 * column, 2),
        ]
    return facts, {"GraphMatern set-up": exponent(counts, setups)}


def _since(started: float) -> float:
    return round(time.perf_counter() - started, 3)


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    sizes = QUICK if quick else FULL
    repeats = repeats or (2 if quick else 7)
    reason = missing("gpytorch")
    available = [] if reason else ["gpytorch"]
    found = [
        measure_size(size, 30 if quick else 500, repeats, available, quick)
        for size in sizes
    ]
    facts, targets, skipped = measure_policy(quick)
    if not quick:
        read, promised = measure_reading()
        facts, targets = facts | read, targets + promised
    setup, growth = measure_setup((400, 800) if quick else (6000, 15000, 100_000))
    memory = peak_megabytes(sizes[-1].edges, sizes[-1].further[0])
    name = f"MB at most, {sizes[-1].edges} edges, V={memory['visited']:.0f}"
    facts[name] = round(memory["megabytes"], 1)
    if not quick:
        targets.append(at_most(name, memory["megabytes"], 150.0))
    for size, one in zip(sizes, found, strict=True):
        growth[f"{size.edges} edges, by V"] = exponent(
            list(one.ours_s), list(one.ours_s.values())
        )
    limits = {"gemm_gflops": gemm_gflops(2 if quick else 9)}
    for one in found:
        limits |= one.limits
    return Results(
        suite="network",
        rows=[line for one in found for line in one.rows],
        growth=growth,
        limits=limits,
        facts={key: value for one in found for key, value in one.facts.items()}
        | setup
        | facts,
        targets=[target for one in found for target in one.targets] + targets,
        skipped=skipped + ([f"GPyTorch SVGP: {reason}"] if reason else []),
    )
