"""Changing arms, growing data: 100 new arms in [0, 1]³ a round, 5 of them observed.

A *round* is: predict mean and standard deviation of 100 new arms, then learn 5 rewards. At each
size N every contender plays the same consecutive rounds of one stream, centred on N; they take
turns, a burst of three rounds each, and the median round counts. Ours has learned the stream
round by round up to there, so that what is timed is the state a real run has. (A restored copy
would have tight buffers and cold caches, and one round repeated would not be a stream.) Garbage
is collected between rounds, off the clock: models of torch are cycles that hold N × N arrays.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.kernels import SquaredExponential
from superarm.posteriors import StreamingGP

from .measure import (
    Results,
    array_bytes,
    at_least,
    at_most,
    exponent,
    gemm_gflops,
    median_seconds,
    row,
    without_gc,
)
from .peers import Contender, Moments, Problem, streaming_peers

OFFERED, OBSERVED, DIMENSIONS = 100, 5, 3
PROBLEM = Problem(lengthscale=1.0, noise_variance=0.01)
BURST = 3
WARM_UP = 2
YARDSTICK = "scikit-learn, refit"


class Stream(NamedTuple):
    """One run's offers and rewards, drawn in advance."""

    offers: Floats  # (rounds, 100, 3)
    chosen: Floats  # (rounds, 5, 3)
    rewards: Floats  # (rounds, 5)

    @classmethod
    def drawn(cls, rounds: int, seed: int = 0) -> Stream:
        rng = np.random.default_rng(seed)
        offers = rng.random((rounds, OFFERED, DIMENSIONS))
        positions = np.argsort(rng.random((rounds, OFFERED)), axis=1)[:, :OBSERVED]
        chosen = np.take_along_axis(offers, positions[:, :, None], axis=1)
        truth = np.sin(3.0 * chosen[..., 0]) + np.cos(4.0 * chosen[..., 1]) * chosen[..., 2]
        noise = np.sqrt(PROBLEM.noise_variance) * rng.standard_normal(truth.shape)
        return cls(offers, chosen, truth + noise)

    def before(self, rounds: int) -> tuple[Floats, Floats]:
        return self.chosen[:rounds].reshape(-1, DIMENSIONS), self.rewards[:rounds].ravel()


class Ours:
    """``StreamingGP`` in one of its forms."""

    def __init__(self, form: Literal["auto", "cholesky", "finite-rank"]) -> None:
        self.name = f"ours-{form}"
        kernel = SquaredExponential(lengthscale=PROBLEM.lengthscale)
        self.posterior = StreamingGP(kernel, PROBLEM.noise_variance, form=form)

    def start(self, arms: Floats, rewards: Floats) -> None:
        for first in range(0, len(arms), OBSERVED):
            self.posterior.observe(arms[first : first + OBSERVED], rewards[first : first + OBSERVED])

    def round(self, offered: Floats, chosen: Floats, rewards: Floats) -> Moments:
        mean, std = self.posterior.predict(offered)
        self.posterior.observe(chosen, rewards)
        assert std is not None
        return Moments(mean, std)


class AtSize(NamedTuple):
    """What was measured around one N."""

    seconds: dict[str, float]  # one round, by contender
    moments: dict[str, list[Moments]]  # of every timed round
    ours: list[Ours]


def measure_at(size: int, repeats: int, ours: Sequence[Ours], peers: Sequence[Contender]) -> AtSize:
    timed = repeats * BURST
    first = max(size // OBSERVED - (timed + 1) // 2, WARM_UP)  # rounds before the clock starts
    stream = Stream.drawn(first + timed)
    contenders: list[Contender] = [*ours, *peers]
    times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    moments: dict[str, list[Moments]] = {contender.name: [] for contender in contenders}

    def play(contender: Contender, t: int) -> None:
        seen = contender.round(stream.offers[t], stream.chosen[t], stream.rewards[t])
        moments[contender.name].append(seen)

    for contender in contenders:
        contender.start(*stream.before(first - WARM_UP))
        for t in range(first - WARM_UP, first):
            play(contender, t)
    with without_gc():
        for start in range(first, first + timed, BURST):
            for contender in contenders:
                for t in range(start, start + BURST):
                    gc.collect()
                    begun = time.perf_counter()
                    play(contender, t)
                    times[contender.name].append(time.perf_counter() - begun)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return AtSize(medians, moments, list(ours))


def worst(ours: Sequence[Moments], theirs: Sequence[Moments]) -> float:
    return max(a.difference(b) for a, b in zip(ours, theirs, strict=True))


def limits(size: int, repeats: int, ours_s: float) -> dict[str, float]:
    """The two things a Cholesky round cannot do without: a triangular solve and exponentials.

    The solve is SciPy's ``dtrsm`` on arrays in BLAS's own order, so that nothing is copied.
    """
    from scipy.linalg.blas import dtrsm

    rng = np.random.default_rng(1)
    upper = np.asfortranarray(np.triu(rng.random((size, size)) / size) + np.eye(size))
    right = np.asfortranarray(rng.random((size, OFFERED)))
    exponents = -rng.random((OFFERED, size))
    solve = median_seconds(
        lambda B: dtrsm(1.0, upper, B, trans_a=1, overwrite_b=1), repeats, lambda: right.copy(order="F")
    )
    exp = median_seconds(lambda q: np.exp(q, out=q), repeats, exponents.copy)
    return {
        "dtrsm_s": solve,
        "exp_s": exp,
        "sum_s": solve + exp,
        "ours_over_limit": ours_s / (solve + exp),
        "dtrsm_gflops": size**2 * OFFERED / solve / 1e9,
        "gemm_gflops": gemm_gflops(repeats),
    }


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    sizes = (60, 120, 240) if quick else (300, 600, 1250)
    repeats = repeats or (3 if quick else 9)
    rows = []
    skipped: list[str] = []
    times: dict[str, list[float]] = {}
    memory: dict[str, list[float]] = {}
    facts: dict[str, Any] = {}
    for size in sizes:
        peers, skipped = streaming_peers(PROBLEM)
        found = measure_at(size, repeats, [Ours("cholesky"), Ours("finite-rank")], peers)
        for ours in found.ours:
            name = ours.name
            times.setdefault(name, []).append(found.seconds[name])
            memory.setdefault(name, []).append(array_bytes(ours.posterior))
            rows += [
                row(
                    f"{name} N={size}",
                    found.seconds[name],
                    peer.name,
                    found.seconds[peer.name],
                    worst(found.moments[name], found.moments[peer.name]),
                )
                for peer in peers
            ]
            facts[f"{name} N={size}"] = (
                f"rank {ours.posterior.rank}, proven kernel error {ours.posterior.tolerance:.1e}, "
                f"{memory[name][-1] / 1e6:.1f} MB"
            )
        for peer in peers:
            times.setdefault(peer.name, []).append(found.seconds[peer.name])
    growth = {name: exponent(sizes, values) for name, values in times.items()}
    growth |= {f"{name} memory": exponent(sizes, values) for name, values in memory.items()}
    largest = sizes[-1]
    targets = [at_most("difference from any peer", max(_differences(rows)), 1e-9)]
    if not quick:
        targets += [
            at_least(f"{one.case} against {YARDSTICK}", one.ratio, least)
            for name, least in (("ours-cholesky", 8.0), ("ours-finite-rank", 50.0))
            for one in rows
            if one.case == f"{name} N={largest}" and one.peer == YARDSTICK
        ]
    return Results(
        suite="streaming",
        rows=rows,
        growth=growth,
        limits=limits(largest, 3 * repeats, times["ours-cholesky"][-1]),
        facts=facts,
        targets=targets,
        skipped=skipped,
    )


def _differences(rows: Sequence[Any]) -> list[float]:
    return [one.max_abs_diff for one in rows if one.max_abs_diff is not None]
