"""A reward that is not a sum: a target counts once, even if two sensors reach it.

A greedy oracle chooses the sensors. It promises 1 − 1/e of the optimum in every call, and
``alpha_regret`` is measured against that share: below zero means better than promised.
"""

from itertools import combinations

import numpy as np

from superarm import Arms, Model, simulate
from superarm.core import Floats, Guarantee, Selection
from superarm.kernels import Matern
from superarm.policies import oclok_ucb, random
from superarm.problems.finite import FiniteProblem
from superarm.rewards import Coverage, Targets

PLACES, TARGETS = np.random.default_rng(1).random((24, 2)), Targets(of_arm=np.arange(24) % 8)


def reached(chances: Floats, sensors: list[int]) -> float:
    return Coverage().worth(chances[sensors], np.array(sensors), TARGETS)


class Greedy:
    deterministic = True

    def select(self, desirability: Floats, *_: object) -> Selection:
        chosen: list[int] = []
        while len(chosen) < 4:
            left = [arm for arm in range(24) if arm not in chosen]
            chosen.append(max(left, key=lambda arm: reached(desirability, [*chosen, arm])))
        return Selection(tuple(chosen), np.array(chosen), Guarantee(alpha=1.0 - np.exp(-1.0)))


def main(rounds: int = 60) -> dict[str, float]:
    truth = PLACES[:, 0] * PLACES[:, 1]
    parts = {"oracle": Greedy(), "reward": Coverage(), "kernel": Matern(lengthscale=0.5)}
    model = Model(noise_variance=0.01, horizon=rounds, arms=PLACES, **parts)
    best = max(reached(truth, list(four)) for four in combinations(range(24), 4))
    told = {"arms": Arms.numbered(PLACES), "structure": TARGETS, "optimum": best}
    world = FiniteProblem(truth=truth, noise_std=0.1, model=model, **told)
    policies = {"oclok-ucb": oclok_ucb(model), "random": random(model)}
    runs = simulate(world, policies, rounds=rounds, seed=0)
    return {name: float(run.series["alpha_regret"].sum()) for name, run in runs.items()}


if __name__ == "__main__":
    print({name: round(regret, 1) for name, regret in main().items()})
