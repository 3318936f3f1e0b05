"""Changing arms, growing data: 100 new arms in [0, 1]³ a round, 5 of them observed.

A *round* is: predict mean and standard deviation of 100 new arms, then learn 5 rewards. At each
size N every contender plays the same consecutive rounds of one stream, centred on N. They take
turns, three rounds at a time, as do the sizes and the limit; the median round counts. Ours has
learned the stream round by round up to there, so that what is timed is the state a real run has.
(A restored copy would have tight buffers and cold caches, and one round repeated would not be a
stream.) Garbage is collected between rounds, off the clock: models of torch are cycles that hold
N × N arrays.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.kernels import SquaredExponential
from superarm.posteriors import StreamingGP

from . import hand_readme
from .measure import (
    Results,
    Spent,
    array_bytes,
    at_least,
    at_most,
    cpu_over,
    exponent,
    gemm_gflops,
    median_spent,
    row,
    seconds,
    spent,
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
        truth = (
            np.sin(3.0 * chosen[..., 0]) + np.cos(4.0 * chosen[..., 1]) * chosen[..., 2]
        )
        noise = np.sqrt(PROBLEM.noise_variance) * rng.standard_normal(truth.shape)
        return cls(offers, chosen, truth + noise)

    def before(self, rounds: int) -> tuple[Floats, Floats]:
        return self.chosen[:rounds].reshape(-1, DIMENSIONS), self.rewards[
            :rounds
        ].ravel()


class Ours:
    """``StreamingGP`` in one of its forms."""

    def __init__(self, form: Literal["auto", "cholesky", "finite-rank"]) -> None:
        self.name = f"ours-{form}"
        kernel = SquaredExponential(lengthscale=PROBLEM.lengthscale)
        self.posterior = StreamingGP(kernel, PROBLEM.noise_variance, form=form)

    def start(self, arms: Floats, rewards: Floats) -> None:
        for first in range(0, len(arms), OBSERVED):
            self.posterior.observe(
                arms[first : first + OBSERVED], rewards[first : first + OBSERVED]
            )

    def round(self, offered: Floats, chosen: Floats, rewards: Floats) -> Moments:
        mean, std = self.posterior.predict(offered)
        self.posterior.observe(chosen, rewards)
        assert std is not None
        return Moments(mean, std)


class Limit:
    """The two things a Cholesky round cannot do without: a triangular solve and exponentials.

    The solve is SciPy's ``dtrsm`` on arrays in BLAS's own order, so that nothing is copied.
    """

    def __init__(self, size: int) -> None:
        rng = np.random.default_rng(1)
        self._size = size
        self._upper = np.asfortranarray(
            np.triu(rng.random((size, size)) / size) + np.eye(size)
        )
        self._right = np.asfortranarray(rng.random((size, OFFERED)))
        self._exponents = -rng.random((OFFERED, size))
        self._solve_s: list[float] = []
        self._exp_s: list[float] = []

    def measure(self) -> None:
        from scipy.linalg.blas import dtrsm

        right, exponents = self._right.copy(order="F"), self._exponents.copy()
        self._solve_s.append(
            seconds(lambda: dtrsm(1.0, self._upper, right, trans_a=1, overwrite_b=1))
        )
        self._exp_s.append(seconds(lambda: np.exp(exponents, out=exponents)))

    def summary(self, ours_s: float) -> dict[str, float]:
        solve, exp = statistics.median(self._solve_s), statistics.median(self._exp_s)
        return {
            "dtrsm_s": solve,
            "exp_s": exp,
            "sum_s": solve + exp,
            "ours_over_limit": ours_s / (solve + exp),
            "dtrsm_gflops": self._size**2 * OFFERED / solve / 1e9,
        }


class AtSize:
    """All contenders in the rounds around one N."""

    def __init__(self, size: int, repeats: int) -> None:
        self.size = size
        timed = repeats * BURST
        self._next = max(
            size // OBSERVED - (timed + 1) // 2, WARM_UP
        )  # the first round on the clock
        self._stream = Stream.drawn(self._next + timed)
        self.ours = [Ours("cholesky"), Ours("finite-rank")]
        self.peers, self.skipped = streaming_peers(PROBLEM)
        self._contenders: list[Contender] = [*self.ours, *self.peers]
        self._times: dict[str, list[Spent]] = {one.name: [] for one in self._contenders}
        self.moments: dict[str, list[Moments]] = {
            one.name: [] for one in self._contenders
        }
        for contender in self._contenders:
            contender.start(*self._stream.before(self._next - WARM_UP))
            for t in range(self._next - WARM_UP, self._next):
                self._play(contender, t)

    def _play(self, contender: Contender, t: int) -> None:
        stream = self._stream
        seen = contender.round(stream.offers[t], stream.chosen[t], stream.rewards[t])
        self.moments[contender.name].append(seen)

    def measure(self) -> None:
        """A burst of rounds for every contender."""
        for contender in self._contenders:
            for t in range(self._next, self._next + BURST):
                gc.collect()
                self._times[contender.name].append(
                    spent(partial(self._play, contender, t))
                )
        self._next += BURST

    def seconds(self, name: str) -> float:
        return self.spent(name).wall

    def spent(self, name: str) -> Spent:
        return median_spent(self._times[name])

    def difference(self, one: str, other: str) -> float:
        pairs = zip(self.moments[one], self.moments[other], strict=True)
        return max(a.difference(b) for a, b in pairs)


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    sizes = (60, 120, 240) if quick else (300, 600, 1250)
    repeats = repeats or (3 if quick else 9)
    tables = [AtSize(size, repeats) for size in sizes]
    Limit(sizes[-1]).measure()  # warms up
    limit = Limit(sizes[-1])
    with without_gc():
        for _ in range(repeats):
            # Sizes take turns too: growth is a ratio of times.
            for table in tables:
                table.measure()
            for _ in range(BURST):
                limit.measure()
    facts: dict[str, Any] = {}
    memory: dict[str, list[float]] = {}
    rows = []
    for table in tables:
        for ours in table.ours:
            case = f"{ours.name} N={table.size}"
            memory.setdefault(ours.name, []).append(array_bytes(ours.posterior))
            facts[case] = (
                f"rank {ours.posterior.rank}, proven kernel error {ours.posterior.tolerance:.1e}, "
                f"{memory[ours.name][-1] / 1e6:.1f} MB"
            )
            for peer in table.peers:
                taken, theirs = table.spent(ours.name), table.spent(peer.name)
                difference = table.difference(ours.name, peer.name)
                rows.append(row(case, taken, peer.name, theirs, difference))
    by_hand = hand_readme.rows(quick)
    rows += by_hand
    names = [one.name for one in (*tables[0].ours, *tables[0].peers)]
    growth = {
        name: exponent(sizes, [table.seconds(name) for table in tables])
        for name in names
    }
    growth |= {
        f"{name} memory": exponent(sizes, values) for name, values in memory.items()
    }
    largest = sizes[-1]
    targets = [at_most("difference from any peer", max(_differences(rows)), 1e-9)]
    if not quick:
        targets += [
            at_least(f"{one.case} against {YARDSTICK}", one.ratio, least)
            for name, least in (("ours-cholesky", 8.0), ("ours-finite-rank", 50.0))
            for one in rows
            if one.case == f"{name} N={largest}" and one.peer == YARDSTICK
        ]
        targets += [
            at_most(f"{one.case}: ours over by hand, CPU", cpu_over(one), 1.3)
            for one in by_hand
        ]
    return Results(
        suite="streaming",
        rows=rows,
        growth=growth,
        limits=limit.summary(tables[-1].seconds("ours-cholesky"))
        | {"gemm_gflops": gemm_gflops(9)},
        facts=facts,
        targets=targets,
        skipped=tables[0].skipped,
    )


def _differences(rows: Sequence[Any]) -> list[float]:
    return [one.max_abs_diff for one in rows if one.max_abs_diff is not None]
