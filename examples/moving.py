"""Switching costs: an arm far from the previous one costs more, and a policy may take that into account.

The runner sets ``offer.previous_action``. The world charges for every move; one policy weighs that cost,
the other does not.
"""

import numpy as np

from superarm import Arms, Model, Offer, simulate
from superarm.core import Decision
from superarm.kernels import SquaredExponential
from superarm.lab.problems.finite import FiniteProblem
from superarm.movement import Distance
from superarm.oracles import TopK
from superarm.policies import composed
from superarm.rules import UCB, Fixed

HEIGHTS = Arms.numbered(np.linspace(0.0, 1.0, 25)[:, None])
POWER = np.sin(9.0 * HEIGHTS.features[:, 0]) + 0.2 * HEIGHTS.features[:, 0]
MOVE = Distance(scale=1.5)


class Kite(FiniteProblem):
    """One height per round; its value is the power there, less the cost of moving to it."""

    def value(self, offer: Offer, decision: Decision) -> float:
        values = POWER - MOVE.costs(offer)
        return float(values[decision.positions].sum())


def main(rounds: int = 100) -> dict[str, float]:
    model = Model(
        kernel=SquaredExponential(lengthscale=0.15),
        noise_variance=0.25,
        oracle=TopK(k=1),
        horizon=rounds,
        arms=HEIGHTS.features,
    )
    kite = Kite(arms=HEIGHTS, truth=POWER, noise_std=0.5, model=model)
    rule = UCB(schedule=Fixed(value=2.0))
    policies = {
        "counts the cost of moving": composed(model, rule=rule, switching=MOVE),
        "ignores it": composed(model, rule=rule),
    }
    runs = simulate(kite, policies, rounds=rounds, seed=0)
    return {name: float(run.series["regret"].sum()) for name, run in runs.items()}


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:28}regret, moving included {regret:.1f}")
