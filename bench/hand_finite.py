"""``FiniteGP`` beside a covariance matrix that is updated by hand, on 100 arms.

The policy is UCB, so that both play the same arms. *Learn* is one call that takes a reward in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.kernels import Kernel, Matern, SquaredExponential
from superarm.posteriors import FiniteGP

from .by_hand import CompiledRankOne, RankOne, compiled_rounds
from .measure import Row, Spent, median_spent, row, spent, take_turns, without_gc
from .peers import Moments, missing

NOISE = 0.03
WIDTH = 2.0
KERNELS: dict[str, Kernel] = {
    "SE": SquaredExponential(lengthscale=0.2),
    "Matern-5/2": Matern(nu=2.5, lengthscale=0.2),
}


class _Game:
    """One contender and its own copy of the rewards."""

    def __init__(self, arms: Floats, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.truth = np.sin(9.0 * arms[:, 0]).tolist()
        self.noise = (NOISE**0.5 * rng.standard_normal(1 << 16)).tolist()
        self.t = 0

    def reward(self, arm: Any) -> float:
        self.t += 1
        value: float = self.truth[arm] + self.noise[self.t & 0xFFFF]
        return value


def _ours(gp: FiniteGP, arms: Floats, game: _Game) -> Callable[[], None]:
    offer = Offer(step=1, arms=Arms.numbered(arms))

    def round_() -> None:
        belief = gp.belief(offer)
        arm = (belief.mean + WIDTH * belief.std).argmax()
        gp.observe([arm], [game.reward(arm)])

    return round_


def _theirs(peer: RankOne, game: _Game) -> Callable[[], None]:
    def round_() -> None:
        mean, std = peer.ask()
        arm = (mean + WIDTH * std).argmax()
        peer.learn(arm, game.reward(arm))

    return round_


def rows(quick: bool) -> list[Row]:
    made: list[Row] = []
    arms = np.random.default_rng(7).random((100, 1))
    before, turns = (50, 4) if quick else (3_000, 200)
    kinds: list[tuple[Any, type[RankOne]]] = [("numpy", RankOne)]
    if missing("numba") is None:
        kinds.append(("numba", CompiledRankOne))
    for name, kernel in KERNELS.items():
        for backend, kind in kinds:
            gp, peer = (
                FiniteGP(kernel, arms, NOISE, backend=backend),
                kind(kernel(arms), NOISE),
            )
            ours, theirs = _ours(gp, arms, _Game(arms)), _theirs(peer, _Game(arms))
            for _ in range(before):
                ours()
                theirs()
            found = take_turns({"ours": ours, "theirs": theirs}, turns, burst=20)
            mean, std = gp.predict(np.arange(len(arms)))
            assert std is not None
            difference = Moments(mean, std).difference(Moments(*peer.ask()))
            case = f"100 arms, {name}, round, {backend}"
            made.append(
                row(case, found["ours"], peer.name, found["theirs"], difference)
            )
            spread = np.random.default_rng(1).integers(100, size=1 << 12).tolist()
            for way, chosen in (("settled", [3, 17, 40, 41, 77]), ("any arm", spread)):
                found = _compare_learning(gp, peer, chosen, turns)
                case = f"100 arms, {name}, learn, {way}, {backend}"
                made.append(row(case, found["ours"], peer.name, found["theirs"], None))
        if missing("numba") is None:
            made.append(_table(name, kernel, arms, turns))
    return made


def _compare_learning(
    gp: FiniteGP, peer: RankOne, chosen: list[int], turns: int
) -> dict[str, Spent]:
    def learn(observe: Callable[[int], object]) -> Callable[[], None]:
        at = count()

        def work() -> None:
            observe(chosen[next(at) % len(chosen)])

        return work

    return take_turns(
        {
            "ours": learn(lambda arm: gp.observe([arm], [0.25])),
            "theirs": learn(lambda arm: peer.learn(arm, 0.25)),
        },
        turns,
        burst=20,
    )


def _table(name: str, kernel: Kernel, arms: Floats, turns: int) -> Row:
    """Whole rounds in compiled code on both sides."""
    gp, play = FiniteGP(kernel, arms, NOISE, backend="numba"), compiled_rounds()
    P, mean = kernel(arms).copy(), np.zeros(len(arms))
    rng, size = np.random.default_rng(0), 250
    truth = np.sin(9.0 * arms[:, 0])
    widths = np.full(size, WIDTH)
    times: tuple[list[Spent], list[Spent]] = [], []
    with without_gc():
        for _ in range(turns // 4 + 2):
            table = truth + NOISE**0.5 * rng.standard_normal((size, 1))
            times[0].append(spent(partial(gp.play_table, table, widths)))
            times[1].append(spent(partial(play, P, mean, table, WIDTH, NOISE)))
    ours, theirs = (median_spent(each[1:], size) for each in times)
    seen, std = gp.predict(np.arange(len(arms)))
    assert std is not None
    difference = Moments(seen, std).difference(Moments(mean, np.sqrt(np.diagonal(P))))
    return row(
        f"100 arms, {name}, by table",
        ours,
        "numba by hand, whole rounds",
        theirs,
        difference,
    )


def forms(quick: bool) -> dict[str, Any]:
    """Milliseconds of a round in both forms of ``FiniteGP``: a prior of full rank, any arms."""
    kernel, found = Matern(nu=2.5, lengthscale=0.5), dict[str, Any]()
    for n in (40, 60) if quick else (500, 1_000, 2_000):
        arms = np.random.default_rng(0).random((n, 3))
        chosen = FiniteGP(kernel, arms, NOISE).form
        for k in (1, 20):
            games = {
                form: _any_arms(kernel, arms, form, k) for form in ("root", "visited")
            }
            taken = take_turns(games, 3 if quick else 60 // k + 10)
            for form, spent_ in taken.items():
                name = f"{n} arms, {k} of them a round, {form}{', chosen' * (form == chosen)}, CPU ms"
                found[name] = round(1e3 * spent_.cpu, 3)
    return found


def _any_arms(kernel: Kernel, arms: Floats, form: Any, k: int) -> Callable[[], None]:
    gp = FiniteGP(kernel, arms, NOISE, form=form, backend="numpy")
    offer = Offer(step=1, arms=Arms.numbered(arms))
    rng = np.random.default_rng(1)

    def round_() -> None:
        gp.belief(offer)
        gp.observe(rng.choice(len(arms), size=k, replace=False), np.zeros(k))

    return round_
