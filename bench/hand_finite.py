"""``FiniteGP`` beside a covariance matrix that is updated by hand, on 100 arms.

The policy is UCB, so that both play the same arms. *Learn* is one call that learns a reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.kernels import Kernel, Matern, SquaredExponential
from superarm.posteriors import FiniteGP

from .by_hand import CompiledRankOne, RankOne, compiled_rounds
from .measure import Row, Spent, median_spent, row, spent, take_turns, without_gc
from .peers import Moments, missing

NOISE = 0.03
WIDTH = 2.0
_BURST = 20  # calls of one entry
_SETTLED_ARMS = (3, 17, 40, 41, 77)
_ANY_ARMS = 1 << 12
_TABLE_ROUNDS = 250
KERNELS: dict[str, Kernel] = {
    "SE": SquaredExponential(lengthscale=0.2),
    "Matern-5/2": Matern(nu=2.5, lengthscale=0.2),
}


class _Game:
    """One contender's own copy of the rewards."""

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


class _Size(NamedTuple):
    """How long contenders play."""

    before: int  # rounds that are not timed
    turns: int


_QUICK = _Size(before=50, turns=4)
_FULL = _Size(before=3_000, turns=200)


def rows(quick: bool) -> list[Row]:
    """Compare rounds and single observations, and whole tables in compiled code.

    Args:
        quick: Whether to play only a few rounds.
    """
    size = _QUICK if quick else _FULL
    arms = np.random.default_rng(7).random((100, 1))
    has_numba = missing("numba") is None
    comparisons: list[Row] = []
    for name, kernel in KERNELS.items():
        gp = FiniteGP(kernel, arms, NOISE, backend="numpy")
        peer = RankOne(kernel(arms), NOISE)
        comparisons += _compare(name, "numpy", gp, peer, arms, size)
        if has_numba:
            gp = FiniteGP(kernel, arms, NOISE, backend="numba")
            compiled_peer = CompiledRankOne(kernel(arms), NOISE)
            comparisons += _compare(name, "numba", gp, compiled_peer, arms, size)
            comparisons.append(_compare_tables(name, kernel, arms, size.turns))
    return comparisons


def _compare(
    kernel: str,
    backend: str,
    gp: FiniteGP,
    peer: RankOne,
    arms: Floats,
    size: _Size,
) -> list[Row]:
    """Whole rounds, then single observations."""
    ours = _ours(gp, arms, _Game(arms))
    theirs = _theirs(peer, _Game(arms))
    for _ in range(size.before):
        ours()
        theirs()
    times = take_turns({"ours": ours, "theirs": theirs}, size.turns, burst=_BURST)
    mean, std = gp.predict(np.arange(len(arms)))
    assert std is not None
    difference = Moments(mean, std).difference(Moments(*peer.ask()))
    case = f"100 arms, {kernel}, round, {backend}"
    rounds = row(case, times["ours"], peer.name, times["theirs"], difference)
    comparisons = [rounds]

    rng = np.random.default_rng(1)
    any_arms = rng.integers(len(arms), size=_ANY_ARMS).tolist()
    for way, chosen in (("settled", _SETTLED_ARMS), ("any arm", any_arms)):
        times = _compare_learning(gp, peer, chosen, size.turns)
        case = f"100 arms, {kernel}, learn, {way}, {backend}"
        learning = row(case, times["ours"], peer.name, times["theirs"], None)
        comparisons.append(learning)
    return comparisons


def _compare_learning(
    gp: FiniteGP, peer: RankOne, chosen: Sequence[int], turns: int
) -> dict[str, Spent]:
    def learn(observe: Callable[[int], object]) -> Callable[[], None]:
        calls = count()

        def work() -> None:
            observe(chosen[next(calls) % len(chosen)])

        return work

    return take_turns(
        {
            "ours": learn(lambda arm: gp.observe([arm], [0.25])),
            "theirs": learn(lambda arm: peer.learn(arm, 0.25)),
        },
        turns,
        burst=_BURST,
    )


def _compare_tables(name: str, kernel: Kernel, arms: Floats, turns: int) -> Row:
    """Whole rounds in compiled code on both sides."""
    gp = FiniteGP(kernel, arms, NOISE, backend="numba")
    play = compiled_rounds()
    P = kernel(arms).copy()
    mean = np.zeros(len(arms))
    rng = np.random.default_rng(0)
    truth = np.sin(9.0 * arms[:, 0])
    widths = np.full(_TABLE_ROUNDS, WIDTH)
    ours: list[Spent] = []
    theirs: list[Spent] = []
    with without_gc():
        for _ in range(turns // 4 + 2):
            noise = NOISE**0.5 * rng.standard_normal((_TABLE_ROUNDS, 1))
            table = truth + noise
            ours.append(spent(partial(gp.play_table, table, widths)))
            theirs.append(spent(partial(play, P, mean, table, WIDTH, NOISE)))
    own_mean, own_std = gp.predict(np.arange(len(arms)))
    assert own_std is not None
    moments = Moments(mean, np.sqrt(np.diagonal(P)))
    # The first table warms up.
    return row(
        f"100 arms, {name}, by table",
        median_spent(ours[1:], _TABLE_ROUNDS),
        "numba by hand, whole rounds",
        median_spent(theirs[1:], _TABLE_ROUNDS),
        Moments(own_mean, own_std).difference(moments),
    )


def forms(quick: bool) -> dict[str, Any]:
    """Milliseconds of a round in both forms of ``FiniteGP``: a prior of full rank, any arms.

    Args:
        quick: Whether to time few rounds of few arms.
    """
    kernel = Matern(nu=2.5, lengthscale=0.5)
    milliseconds: dict[str, Any] = {}
    for n in (40, 60) if quick else (500, 1_000, 2_000):
        arms = np.random.default_rng(0).random((n, 3))
        default_form = FiniteGP(kernel, arms, NOISE).form
        for k in (1, 20):
            games = {
                form: _any_arms(kernel, arms, form, k) for form in ("root", "visited")
            }
            turns = 3 if quick else 60 // k + 10
            for form, time in take_turns(games, turns).items():
                chosen = ", chosen" if form == default_form else ""
                case = f"{n} arms, {k} of them a round, {form}{chosen}, CPU ms"
                milliseconds[case] = round(1e3 * time.cpu, 3)
    return milliseconds


def _any_arms(kernel: Kernel, arms: Floats, form: Any, k: int) -> Callable[[], None]:
    gp = FiniteGP(kernel, arms, NOISE, form=form, backend="numpy")
    offer = Offer(step=1, arms=Arms.numbered(arms))
    rng = np.random.default_rng(1)

    def round_() -> None:
        gp.belief(offer)
        gp.observe(rng.choice(len(arms), size=k, replace=False), np.zeros(k))

    return round_
