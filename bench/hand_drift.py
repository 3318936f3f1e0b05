"""``DriftingGP`` beside twelve lines of folded numpy, and beside a Kalman filter written by hand.

2,500 arms in the unit square, one of them seen a round. A round is *learn one reward, mean and std of
every arm in the next round*. Arms are those that TV-GP-UCB chooses, the same for all. The folded rival
keeps a column for every round, so that it is timed early; the filter's cost does not depend on the
round. Contenders take turns round by round. The *limit* is one pass over the matrix that ours reads,
(r, n) numbers: their bytes over the measured bandwidth of memory. A matrix that stays in the cache is
read faster than that.

The folded rival is there twice. Once the whole prior covariance, 50 MB, is made before the clock runs.
Once a row of it is made when an arm is first played, as ours does: four of five early rounds need one,
so that a round without it is not the same work.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.core.linalg import psd_root
from superarm.kernels import Kernel, Matern, SquaredExponential, Temporal
from superarm.posteriors import DriftingGP

from .by_hand import (
    Folded,
    FoldedOnDemand,
    KroneckerKalman,
    matern_of_short_range,
    rows_on_demand,
    se_of_short_range,
)
from .measure import Row, Spent, median_spent, row, spent, without_gc
from .peers import Moments

NOISE = 0.01
EPSILON = 0.03
KERNELS: dict[str, Kernel] = {
    "SE": SquaredExponential(lengthscale=0.2),
    "Matérn-5/2": Matern(nu=2.5, lengthscale=0.2),
}
BY_HAND = {"SE": se_of_short_range, "Matérn-5/2": matern_of_short_range}


class Ours:
    """One round of ours, by ``observe`` and ``belief``."""

    def __init__(self, kernel: Kernel, arms: Floats) -> None:
        self.gp = DriftingGP(kernel, arms, NOISE, drift=Temporal(epsilon=EPSILON))
        self._offered, self._step = Arms.numbered(arms), 0

    def round(self, arm: int, reward: float) -> Moments:
        self._step = step = self._step + 1
        self.gp.observe([[arm, float(step)]], [reward])
        belief = self.gp.belief(Offer(step=step + 1, arms=self._offered))
        return Moments(belief.mean, belief.std)


def grid(side: int) -> Floats:
    axis = np.linspace(0.0, 1.0, side)
    return np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)


def features_of(kernel: Kernel, arms: Floats) -> Floats:
    """Those that ours has, where it has any; else an exact root of the covariance."""
    found = None
    if len(arms) > 512:
        found = kernel.features(arms.min(axis=0), arms.max(axis=0), 1e-13, 512)
    return psd_root(kernel(arms)).root if found is None else found(arms)


def rows(quick: bool, bandwidth: float) -> tuple[list[Row], dict[str, Any]]:
    side = 12 if quick else 50
    windows = ((20, 40),) if quick else ((60, 120), (200, 300), (900, 1_000))
    last = windows[-1][1]
    made: list[Row] = []
    limits: dict[str, Any] = {}
    arms = grid(side)
    for name, kernel in KERNELS.items():
        rng = np.random.default_rng(0)
        noise, arm = 0.1 * rng.standard_normal(last), 0
        ours = Ours(kernel, arms)
        features = features_of(kernel, arms)
        n = len(arms)
        on_demand = rows_on_demand(BY_HAND[name], arms)
        contenders: dict[str, Any] = {
            "ours": ours,
            Folded.name: Folded(kernel(arms).__getitem__, n, EPSILON, NOISE, last),
            FoldedOnDemand.name: FoldedOnDemand(on_demand, n, EPSILON, NOISE, last),
        }
        if ours.gp.form == "kalman":
            contenders[KroneckerKalman.name] = KroneckerKalman(features, EPSILON, NOISE)
        times: dict[str, list[Spent]] = {each: [] for each in contenders}
        worst = dict.fromkeys(contenders, 0.0)
        with without_gc():
            for t in range(last):
                found: dict[str, Moments] = {}
                x, y = arms[arm]
                reward = float(
                    np.sin(6.0 * x + t / 40.0) + np.cos(5.0 * y - t / 40.0) + noise[t]
                )

                def work(
                    each: str,
                    contender: Any,
                    key: tuple[int, float],
                    found: Any = found,
                ) -> None:
                    found[each] = contender.round(*key)

                for each, contender in contenders.items():
                    times[each].append(
                        spent(partial(work, each, contender, (arm, reward)))
                    )
                for each, moments in found.items():
                    worst[each] = max(worst[each], moments.difference(found["ours"]))
                width = np.sqrt(0.8 * np.log(4.0 * (t + 2)))
                arm = int(np.argmax(found["ours"].mean + width * found["ours"].std))
        for start, stop in windows:
            spans = {
                each: median_spent(found_[start:stop]) for each, found_ in times.items()
            }
            case = f"{name}, {ours.gp.form}, t = {start} to {stop}"
            peers = list(contenders)[1:]
            made += [
                row(case, spans["ours"], each, spans[each], worst[each])
                for each in peers
            ]
            pass_s = 8.0 * len(arms) * ours.gp.rank / bandwidth
            limits[f"{case}: one pass from memory, seconds"] = pass_s
            limits[f"{case}: ours over it"] = spans["ours"].wall / pass_s
    return made, limits
