"""A fixed arm set played many times: UCB and joint Thompson sampling on 100 arms, T = 30000.

A *round* is: mean and standard deviation of every arm → the arm of largest mean + 2 std (or of
the largest joint sample) → its reward → learn it. ``by table`` plays the same rounds in compiled
code (``FiniteGP.play_table``), as simulations do. All contenders take turns, 250 rounds each.
The peer sees merged data, one point per visited arm with its mean reward and noise/count: the
best a user of a plain GP library can do. It is slow, so that it is timed at the end only, on the
data that ours has there. How many arms are visited decides what the peer costs: UCB soon leaves
most arms alone, so that a case is also played from one observation of every arm.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.kernels import Kernel, Matern, SquaredExponential
from superarm.posteriors import FiniteGP

from . import hand_finite
from .measure import (
    Results,
    Row,
    Target,
    at_least,
    at_most,
    cpu_over,
    exponent,
    gemm_gflops,
    row,
    seconds,
    without_gc,
)
from .peers import Moments, SklearnMerged, missing

NOISE_VARIANCE = 0.03
WIDTH = 2.0
BLOCK = 250
PEER_ROUNDS = 10

Backend = Literal["numpy", "numba"]


class Case(NamedTuple):
    """One arm set and its prior."""

    name: str
    kernel: Kernel
    arms: Floats
    rounds: int
    sweep: bool = False
    """Whether every arm is observed once before the first round."""


class World(NamedTuple):
    """Rewards of a case, drawn in advance, as Python's own floats: a round costs no more for them."""

    truth: list[float]  # (n,)
    noise: list[float]  # (T,)

    @classmethod
    def drawn(cls, case: Case, seed: int = 0) -> World:
        rng = np.random.default_rng(seed)
        K = case.kernel(case.arms)
        truth = np.linalg.cholesky(K + 1e-9 * np.eye(len(K))) @ rng.standard_normal(
            len(K)
        )
        noise = np.sqrt(NOISE_VARIANCE) * rng.standard_normal(case.rounds)
        return cls(truth.tolist(), noise.tolist())

    def table(self) -> Floats:
        """The same rewards for every arm and round, (T, n)."""
        rewards: Floats = np.add.outer(np.asarray(self.noise), np.asarray(self.truth))
        return rewards


class Player:
    """One posterior and one way to ask it."""

    def __init__(self, name: str, case: Case, world: World, backend: Backend) -> None:
        self.name = name
        self.posterior = FiniteGP(
            case.kernel, case.arms, NOISE_VARIANCE, backend=backend
        )
        self.world = world
        self.offer = Offer(step=1, arms=Arms.numbered(case.arms))
        self.rows = np.arange(len(case.arms))
        self.rng = np.random.default_rng(1)
        self.choose: Callable[[], Any] = self.by_belief
        self.table: Floats | None = None
        self.times: list[float] = []  # one per block, seconds for one round
        if case.sweep:
            self.posterior.observe(self.rows, world.truth)

    def by_belief(self) -> Any:
        """UCB as policies ask: ``belief(offer)``."""
        belief = self.posterior.belief(self.offer)
        return (belief.mean + WIDTH * belief.std).argmax()

    def by_predict(self) -> Any:
        """UCB as users ask: ``predict(rows)``."""
        mean, std = self.posterior.predict(self.rows)
        assert std is not None
        return (mean + WIDTH * std).argmax()

    def by_sample(self) -> Any:
        """Thompson sampling from the joint posterior."""
        return self.posterior.belief(self.offer).sample(self.rng).argmax()

    def play(self, start: int, stop: int) -> None:
        if self.table is not None:
            self.posterior.play_table(
                self.table[start:stop], np.full(stop - start, WIDTH)
            )
            return
        choose, observe = self.choose, self.posterior.observe
        truth, noise = self.world.truth, self.world.noise
        for t in range(start, stop):
            arm = choose()
            observe([arm], [truth[arm] + noise[t]])

    def moments(self) -> Moments:
        mean, std = self.posterior.predict(self.rows)
        assert std is not None
        return Moments(mean, std)


def players(case: Case, backends: Sequence[Backend]) -> list[Player]:
    world = World.drawn(case)
    made = []
    for backend in backends:
        for way, choose in (
            ("UCB", Player.by_belief),
            ("UCB by predict", Player.by_predict),
            ("Thompson", Player.by_sample),
        ):
            player = Player(f"{way}, {backend}", case, world, backend)
            player.choose = choose.__get__(player)
            made.append(player)
        if backend == "numba":
            player = Player("UCB by table, numba", case, world, backend)
            player.table = world.table()
            made.append(player)
    return made


class Played(NamedTuple):
    """Medians by contender, seconds for one round."""

    late: dict[str, float]  # in the last rounds
    early: dict[
        str, float
    ]  # in rounds span … 2 span, played by twins at the same moments
    peer_s: float | None
    differences: dict[str, float]
    limits: dict[str, float]


def play_case(
    case: Case, backends: Sequence[Backend], span: int, peer_rounds: int
) -> tuple[list[Player], Played]:
    """Play all rounds; time the last ``span`` of them.

    Whether rounds get slower is judged on two posteriors of different age that take turns: two
    windows of one run lie seconds apart, and a busy machine would show as growth.
    """
    contenders = players(case, backends)
    twins = players(case, backends)
    for player in contenders:
        player.play(0, case.rounds - span)
    for player in twins:
        player.play(0, span)
    peer = (
        None
        if missing("sklearn")
        else SklearnMerged(case.kernel, case.arms, NOISE_VARIANCE)
    )
    peer_times: list[float] = []
    limit = Limit(len(case.arms), len(contenders[0].posterior.visited))
    with without_gc():
        for start in range(0, span, BLOCK):
            size = min(BLOCK, span - start)
            for old, young in zip(contenders, twins, strict=True):
                for player, first in (
                    (old, case.rounds - span + start),
                    (young, span + start),
                ):
                    player.times.append(
                        seconds(partial(player.play, first, first + size)) / size
                    )
            limit.measure()
            if peer is not None:
                peer_times += _peer_rounds(peer, contenders[0], peer_rounds)
    differences = {}
    if peer is not None:
        for player in contenders:
            differences[player.name] = player.moments().difference(
                peer.fitted(player.posterior.state())
            )
    played = Played(
        late={player.name: statistics.median(player.times) for player in contenders},
        early={player.name: statistics.median(player.times) for player in twins},
        peer_s=statistics.median(peer_times) if peer_times else None,
        differences=differences,
        limits=limit.summary(statistics.median(contenders[0].times)),
    )
    return contenders, played


def _peer_rounds(peer: SklearnMerged, player: Player, rounds: int) -> list[float]:
    """Times of some of the peer's rounds, on the data that ``player`` has now."""
    peer.load(player.posterior.state())
    truth, noise = player.world.truth, player.world.noise

    def one_round() -> None:
        mean, std = peer.predict()
        arm = int((mean + WIDTH * std).argmax())
        peer.observe(arm, truth[arm] + noise[0])

    one_round()
    return [seconds(one_round) for _ in range(rounds)]


class Limit:
    """What a round's arithmetic takes by itself, as numpy calls: ``dgemv`` over the visited arms'
    columns (v, n), and the n square roots of the standard deviations."""

    MANY = 100

    def __init__(self, n: int, visited: int) -> None:
        self._columns = np.random.default_rng(0).random((visited, n))
        self._weights = self._columns[:, 0].copy()
        self._out = np.empty(n)
        self._gemv_s: list[float] = []
        self._sqrt_s: list[float] = []

    def _gemv(self) -> None:
        for _ in range(self.MANY):
            np.dot(self._weights, self._columns, out=self._out)

    def _sqrt(self) -> None:
        for _ in range(self.MANY):
            np.sqrt(self._columns[0], out=self._out)

    def measure(self) -> None:
        self._gemv_s.append(seconds(self._gemv) / self.MANY)
        self._sqrt_s.append(seconds(self._sqrt) / self.MANY)

    def summary(self, ours_s: float) -> dict[str, float]:
        gemv, sqrt = statistics.median(self._gemv_s), statistics.median(self._sqrt_s)
        return {
            "dgemv_s": gemv,
            "sqrt_s": sqrt,
            "sum_s": gemv + sqrt,
            "ours_over_limit": ours_s / (gemv + sqrt),
        }


def cases(quick: bool) -> list[Case]:
    rng = np.random.default_rng(7)
    line, cube = rng.random((100, 1)), rng.random((300, 3))
    rounds, fewer = (600, 300) if quick else (30_000, 6_000)
    smooth, rough = SquaredExponential(lengthscale=0.2), Matern(nu=2.5, lengthscale=0.2)
    return [
        Case("100 arms, SE", smooth, line, rounds),
        Case("100 arms, Matern-5/2", rough, line, rounds),
        Case("100 arms seen once, SE", smooth, line, rounds, sweep=True),
        Case("100 arms seen once, Matern-5/2", rough, line, rounds, sweep=True),
        Case(
            "300 arms in 3-d, Matern-5/2", Matern(nu=2.5, lengthscale=0.5), cube, fewer
        ),
    ]


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    rows: list[Row] = []
    growth: dict[str, float] = {}
    facts: dict[str, Any] = {}
    targets: list[Target] = []
    backends: list[Backend] = ["numpy"]
    skipped = []
    if reason := missing("numba"):
        skipped.append(f"ours with [fast]: {reason}")
    else:
        backends.append("numba")
    if reason := missing("sklearn"):
        skipped.append(f"{SklearnMerged.name}: {reason}")
    limits: dict[str, float] = {}
    for case in cases(quick):
        span = min(2500, case.rounds // 3)
        contenders, played = play_case(case, backends, span, repeats or PEER_ROUNDS)
        headline = case.rounds >= 30_000
        for player in contenders:
            label = f"{case.name}, {player.name}"
            now, before = played.late[player.name], played.early[player.name]
            growth[label] = exponent(
                [1.5 * span, case.rounds - 0.5 * span], [before, now]
            )
            facts[f"{label}, t={case.rounds} over t={2 * span}"] = round(
                now / before, 3
            )
            if played.peer_s is None:
                continue
            difference = played.differences[player.name]
            rows.append(row(label, now, SklearnMerged.name, played.peer_s, difference))
            least = {"UCB, numpy": 60.0, "UCB by table, numba": 800.0}.get(player.name)
            if headline and least is not None:
                targets.append(
                    at_least(
                        f"{label} against {SklearnMerged.name}", rows[-1].ratio, least
                    )
                )
        for backend in backends:
            ucb, thompson = (
                played.late[f"UCB, {backend}"],
                played.late[f"Thompson, {backend}"],
            )
            label = f"{case.name}, {backend}"
            rows.append(
                row(f"{label}: UCB", ucb, "our own joint Thompson", thompson, None)
            )
            if headline:
                targets += [
                    at_most(f"{label}: Thompson over UCB", thompson / ucb, 2.0),
                    at_most(
                        f"{label}: late over early",
                        _late_over_early(played, backend),
                        1.25,
                    ),
                ]
        facts[f"{case.name}, arms visited"] = len(contenders[0].posterior.visited)
        limits = limits or played.limits
    by_hand = hand_finite.rows(quick)
    rows += by_hand
    if not quick:
        text = "{}: ours over {}, CPU"
        targets += [
            at_most(text.format(one.case, one.peer), cpu_over(one), 1.3)
            for one in by_hand
        ]
    facts |= hand_finite.forms(quick)
    differences = [one.max_abs_diff for one in rows if one.max_abs_diff is not None]
    if differences:
        targets.append(at_most("difference from any peer", max(differences), 1e-9))
    return Results(
        suite="finite",
        rows=rows,
        growth=growth,
        limits=limits | {"gemm_gflops": gemm_gflops(9)},
        facts=facts,
        targets=targets,
        skipped=skipped,
    )


def _late_over_early(played: Played, backend: Backend) -> float:
    return played.late[f"UCB, {backend}"] / played.early[f"UCB, {backend}"]
