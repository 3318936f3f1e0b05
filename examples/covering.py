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

SENSORS = 24
TARGETS = 8
CHOSEN = 4

PLACES = np.random.default_rng(1).random((SENSORS, 2))
WATCHED = Pairs(left=np.arange(SENSORS), right=np.arange(SENSORS) % TARGETS)


def targets_reached(chances: Floats, sensors: list[int]) -> float:
    """How many targets these sensors are expected to reach."""
    return Coverage().worth(chances[sensors], np.array(sensors), WATCHED)


def main(rounds: int = 60) -> dict[str, float]:
    chances = PLACES[:, 0] * PLACES[:, 1]
    candidates = combinations(range(SENSORS), CHOSEN)
    optimum = max(targets_reached(chances, list(sensors)) for sensors in candidates)

    model = Model(
        kernel=Matern(lengthscale=0.5),
        noise_variance=0.01,
        oracle=GreedyCoverage(k=CHOSEN),
        reward=Coverage(),
        horizon=rounds,
        arms=PLACES,
    )
    world = FiniteProblem(
        arms=Arms.numbered(PLACES),
        structure=WATCHED,
        truth=chances,
        optimum=optimum,
        noise_std=0.1,
        model=model,
    )
    policies = {"oclok-ucb": oclok_ucb(model), "random": random(model)}
    runs = simulate(world, policies, rounds=rounds, seed=0)
    return {name: float(run.series["alpha_regret"].sum()) for name, run in runs.items()}


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:12}regret against what the oracle promises {regret:.1f}")
