"""A reward that is not a sum: a target counts once, even if two sensors reach it.

Each of 24 sensors watches one of 8 targets. ``GreedyCoverage`` chooses four sensors. It promises
a share of the optimum in every call, and ``alpha_regret`` is measured against that share: below
zero means better than promised.
"""

from itertools import combinations

import numpy as np

from superarm import Arms, Model, simulate
from superarm.core import Floats
from superarm.core.graphs import Pairs
from superarm.kernels import Matern
from superarm.lab.problems.finite import FiniteProblem
from superarm.oracles import GreedyCoverage
from superarm.policies import oclok_ucb, random
from superarm.rewards import Coverage

PLACES = np.random.default_rng(1).random((24, 2))
WATCHED = Pairs(left=np.arange(24), right=np.arange(24) % 8)


def reached(chances: Floats, sensors: list[int]) -> float:
    return Coverage().worth(chances[sensors], np.array(sensors), WATCHED)


def main(rounds: int = 60) -> dict[str, float]:
    truth = PLACES[:, 0] * PLACES[:, 1]
    parts = {
        "oracle": GreedyCoverage(k=4),
        "reward": Coverage(),
        "kernel": Matern(lengthscale=0.5),
    }
    model = Model(noise_variance=0.01, horizon=rounds, arms=PLACES, **parts)
    best = max(reached(truth, list(four)) for four in combinations(range(24), 4))
    options = {"arms": Arms.numbered(PLACES), "structure": WATCHED, "optimum": best}
    world = FiniteProblem(truth=truth, noise_std=0.1, model=model, **options)
    policies = {"oclok-ucb": oclok_ucb(model), "random": random(model)}
    runs = simulate(world, policies, rounds=rounds, seed=0)
    return {name: float(run.series["alpha_regret"].sum()) for name, run in runs.items()}


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:12}regret against what the oracle promises {regret:.1f}")
