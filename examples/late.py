"""Feedback that comes late, in part and out of order, the same for every policy.

Rewards become known one to twelve rounds after they were earned, and a tenth of them never. Arms that
were chosen and not yet seen are *pending*: they already shrink the uncertainty, so that a policy looks
elsewhere. One that ignores them (``most_pending=0``) asks the same question again and again.
"""

from superarm import simulate
from superarm.lab.problems import landscape
from superarm.lab.simulation import Lateness
from superarm.policies import composed
from superarm.rules import UCB, Fixed


def main(rounds: int = 60, seeds: int = 3) -> dict[str, float]:
    lateness = Lateness(earliest=1, latest=12, lost=0.1)
    rule = UCB(schedule=Fixed(value=2.0))
    regrets = {"counts what is pending": 0.0, "does not": 0.0}
    for seed in range(seeds):
        problem = landscape(seed=seed, horizon=rounds, side=16)
        policies = {
            "counts what is pending": composed(problem.model, rule=rule),
            "does not": composed(problem.model, rule=rule, most_pending=0),
        }
        runs = simulate(problem, policies, rounds=rounds, seed=seed, lateness=lateness)
        for name, run in runs.items():
            regrets[name] += float(run.series["regret"].sum()) / seeds
    return regrets


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:24}regret {regret:.1f}")
