"""Rewards that drift: DriftingGP beside a recompute of eqs. 7 and 8, and beside scikit-learn.

2,500 arms in the unit square, ε = 0.03, one arm a round. A round is *learn one reward, mean and std of
all arms in the next round*. The peers get all that was observed and solve anew: numpy with one Cholesky
factor and one triangular solve, scikit-learn with the same kernel and no search. They take turns with
the last rounds of ours. The *limit* is one pass over the matrix in use: no exact update of all arms'
means and variances reads less. Rivals written by hand: ``hand_drift.py``.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.kernels import Kernel, Matern, Temporal
from superarm.lab.experiments import Plan, execute, load_experiment
from superarm.posteriors import DriftingGP, StreamingGP

from . import hand_drift
from .hand_drift import EPSILON, KERNELS, NOISE
from .measure import (
    Results,
    Row,
    Spent,
    at_least,
    at_most,
    bandwidth,
    cpu_over,
    median_seconds,
    median_spent,
    row,
    seconds,
    spent,
    without_gc,
)
from .peers import Moments, missing


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    repeats = repeats or (2 if quick else 5)
    side, early, late = (12, 40, 80) if quick else (50, 1_000, 10_000)
    rows: list[Row] = []
    limits: dict[str, float] = {}
    facts: dict[str, Any] = {}
    skipped = (
        [] if (reason := missing("sklearn")) is None else [f"scikit-learn: {reason}"]
    )
    ratios: dict[str, float] = {}
    for name, kernel in KERNELS.items():
        game = _Game(kernel, side)
        found = game.beside_peers(early, repeats, with_sklearn=not skipped)
        rows += found
        ours, case = found[0].ours_s, found[0].case
        limits[f"{case}: one pass"] = game.one_pass(repeats)
        limits[f"{case}: ours over it"] = ours / limits[f"{case}: one pass"]
        later = game.play_to(late, 40 if quick else 100)
        facts[f"{name}, {game.gp.form}, rank {game.gp.rank}, t={late}, seconds"] = later
        ratios[name] = later / ours
        facts[f"{name}: t={late} over t={early}"] = later / ours
    facts |= _changing(quick)
    by_hand, passes = hand_drift.rows(quick, bandwidth(3))
    rows += by_hand
    limits |= passes
    targets = [
        at_most(
            "difference from any peer", max(r.max_abs_diff or 0.0 for r in rows), 1e-9
        )
    ]
    if not quick:
        least = {"numpy, recompute": 100.0, "scikit-learn": 200.0}
        targets += [
            at_least(f"{r.case}: {r.peer} over ours", r.ratio, least[r.peer])
            for r in rows
            if r.peer in least
        ]
        text = "{}: ours over {}, CPU"
        targets += [
            at_most(text.format(r.case, r.peer), cpu_over(r), 1.3) for r in by_hand
        ]
        targets += [
            at_most(f"{n}: t={late} over t={early}", x, 2.0) for n, x in ratios.items()
        ]
        growth = facts["changing arms: t=4000 over t=2000"]
        targets.append(at_most("changing arms: t=4000 over t=2000", growth, 1.5))
        taken = facts["Figure 2a, 200 seeds, two processes, seconds"] = _figure()
        targets.append(
            at_most("Figure 2a, 200 seeds, two processes, seconds", taken, 300.0)
        )
    return Results(
        suite="drift",
        rows=rows,
        limits=limits,
        facts=facts,
        targets=targets,
        skipped=skipped,
    )


class _Game:
    """TV-GP-UCB's own choices on a function that turns: what is asked and learned round by round."""

    def __init__(self, kernel: Kernel, side: int) -> None:
        axis = np.linspace(0.0, 1.0, side)
        self.arms = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        self.kernel, self.drift = kernel, Temporal(epsilon=EPSILON)
        self.name = next(name for name, each in KERNELS.items() if each is kernel)
        self.gp = DriftingGP(kernel, self.arms, NOISE, drift=self.drift)
        self._offered = Arms.numbered(self.arms)
        self._rng = np.random.default_rng(0)
        self._keys: list[tuple[int, float]] = []
        self._rewards: list[float] = []

    @property
    def keys(self) -> Floats:
        return np.array(self._keys)

    @property
    def rewards(self) -> Floats:
        return np.array(self._rewards)

    def play_to(self, last: int, timed: int, times: list[Spent] | None = None) -> float:
        """Median seconds of the last ``timed`` rounds; all are added to ``times``."""
        times = [] if times is None else times
        with without_gc():
            while len(self._keys) < last:
                step = len(self._keys) + 1
                belief = self.gp.belief(Offer(step=step, arms=self._offered))
                width = np.sqrt(0.8 * np.log(4.0 * step))
                arm = int(np.argmax(belief.mean + width * belief.std))
                x, y = self.arms[arm]
                turn = step / 40.0
                reward = float(np.sin(6.0 * x + turn) + np.cos(5.0 * y - turn))
                reward += 0.1 * float(self._rng.standard_normal())
                following = Offer(step=step + 1, arms=self._offered)

                def work(
                    key: Any = ((arm, float(step)),),
                    y: float = reward,
                    o: Any = following,
                ) -> None:
                    self.gp.observe(key, [y])
                    self.gp.belief(o)

                times.append(spent(work))
                self._keys.append((arm, float(step)))
                self._rewards.append(reward)
        return median_spent(times[-timed:]).wall

    def beside_peers(self, last: int, repeats: int, *, with_sklearn: bool) -> list[Row]:
        """Rounds of ours up to the last one, and the peers in turns with the last of them."""
        peers: dict[str, Callable[[Floats, Floats], Moments]] = {
            "numpy, recompute": self.recompute
        }
        if with_sklearn:
            peers["scikit-learn"] = self.sklearn
        each_turn = max(1, min(20, last // (4 * repeats)))
        self.play_to(last - repeats * each_turn, 1)
        ours: list[Spent] = []
        theirs: dict[str, list[Spent]] = {name: [] for name in peers}
        worst = dict.fromkeys(peers, 0.0)
        for _ in range(repeats):
            self.play_to(len(self._keys) + each_turn, each_turn, ours)
            answer, keys, rewards = self.answer(), self.keys, self.rewards
            for name, work in peers.items():
                found: list[Moments] = []
                theirs[name].append(spent(lambda: found.append(work(keys, rewards))))  # noqa: B023
                worst[name] = max(worst[name], answer.difference(found[0]))
        case, taken = f"{self.name}, {self.gp.form}, t={last}", median_spent(ours)
        return [
            row(case, taken, name, median_spent(theirs[name]), worst[name])
            for name in peers
        ]

    def answer(self) -> Moments:
        belief = self.gp.belief(Offer(step=len(self._keys) + 1, arms=self._offered))
        return Moments(belief.mean, belief.std)

    def recompute(self, keys: Floats, rewards: Floats) -> Moments:
        """Eqs. 7 and 8."""
        from scipy.linalg import cholesky, solve_triangular

        places, times = self.arms[keys[:, 0].astype(int)], keys[:, 1]
        K = self.kernel(places) * (1.0 - EPSILON) ** (
            np.abs(np.subtract.outer(times, times)) / 2.0
        )
        K[np.diag_indices_from(K)] += NOISE
        k = self.kernel(places, self.arms)
        k *= ((1.0 - EPSILON) ** ((times[-1] + 1.0 - times) / 2.0))[:, None]
        L = cholesky(K, lower=True, overwrite_a=True, check_finite=False)
        W = solve_triangular(L, k, lower=True, overwrite_b=True, check_finite=False)
        z = solve_triangular(L, rewards, lower=True, check_finite=False)
        variance = self.kernel.diag(self.arms) - np.einsum("ij,ij->j", W, W)
        return Moments(z @ W, np.sqrt(np.maximum(variance, 0.0)))

    def sklearn(self, keys: Floats, rewards: Floats) -> Moments:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process import kernels as theirs

        far = 1e12  # a lengthscale at which a column no longer counts
        space: Any
        if isinstance(self.kernel, Matern):
            space = theirs.Matern([0.2, 0.2, far], nu=self.kernel.nu)
        else:
            space = theirs.RBF([0.2, 0.2, far])
        time = theirs.Matern([far, far, -2.0 / np.log1p(-EPSILON)], nu=0.5)
        model = GaussianProcessRegressor(space * time, alpha=NOISE, optimizer=None)
        model.fit(
            np.column_stack([self.arms[keys[:, 0].astype(int)], keys[:, 1]]), rewards
        )
        now = np.full(len(self.arms), keys[-1, 1] + 1.0)
        mean, std = model.predict(np.column_stack([self.arms, now]), return_std=True)
        return Moments(mean, std)

    def one_pass(self, repeats: int) -> float:
        """Seconds to multiply a vector with as many columns as are in use."""
        matrix = np.random.default_rng(0).random((self.gp.rank, len(self.arms)))
        vector, out = np.ones(self.gp.rank), np.empty(len(self.arms))
        return median_seconds(
            lambda _: np.matmul(vector, matrix, out=out), 20 * repeats
        )


def _changing(quick: bool) -> dict[str, float]:
    """100 new arms a round, one of them seen: seconds a round around several rounds."""
    rng = np.random.default_rng(0)
    kernel = Matern(nu=2.5, lengthscale=0.3, columns=(0, 1)) * Temporal(
        epsilon=EPSILON, column=2
    )
    gp = StreamingGP(kernel, NOISE, timed=True, forget=1e-6)
    stops = (20, 40) if quick else (1_000, 2_000, 4_000)
    times: list[float] = []
    with without_gc():
        for step in range(1, stops[-1] + 1):
            offer = Offer(step=step, arms=Arms.numbered(rng.random((100, 2))))
            arm = int(rng.integers(100))

            def work(offer: Offer = offer, arm: int = arm) -> None:
                gp.belief(offer)
                gp.observe(gp.keys(offer)[arm : arm + 1], [0.5])

            times.append(seconds(work))
    # Means, not medians: now and then a round drops what is old, and that must count.
    window = 10 if quick else 900
    facts = {
        f"changing arms, t={t}, seconds": statistics.mean(times[t - window : t])
        for t in stops
    }
    last, before = (
        facts[f"changing arms, t={t}, seconds"] for t in (stops[-1], stops[-2])
    )
    return {**facts, f"changing arms: t={stops[-1]} over t={stops[-2]}": last / before}


def _figure() -> float:
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan.make(
            load_experiment("timevarying/matched-se"), out=Path(folder) / "run"
        )
        return seconds(lambda: execute(plan, jobs=2))
