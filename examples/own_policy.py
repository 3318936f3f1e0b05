"""A policy of your own in thirty lines: ε-greedy on a Gaussian process, against two others.

A policy is a posterior, a rule and an oracle. The problem's model supplies the posterior and the
oracle, so only the rule is new: it takes the best posterior mean, or, with a probability that falls
over time, chooses at random.
"""

from dataclasses import dataclass

import numpy as np

from superarm import IndexPolicy, Model, simulate
from superarm.core import Belief, Floats, Policy
from superarm.core.registry import register
from superarm.lab.problems import landscape
from superarm.policies import gp_bucb, index_policy, random


@register("rule", "epsilon-greedy")
@dataclass(frozen=True, kw_only=True)
class EpsilonGreedy:
    """Explore at random with probability ``epsilon``/√t, otherwise take the best posterior mean.

    Args:
        epsilon: How much to explore: with probability epsilon/√t in round t.
    """

    epsilon: float = 1.0
    deterministic = False  # it draws from ``rng``

    def desirability(
        self, belief: Belief, step: int, rng: np.random.Generator
    ) -> Floats:
        explores = rng.random() < self.epsilon / np.sqrt(step)
        if explores:
            return rng.random(len(belief.mean))
        return belief.mean.copy()


@register("policy", "epsilon-greedy")
def epsilon_greedy(model: Model, *, epsilon: float = 1.0) -> IndexPolicy:
    """ε-greedy on the problem's own posterior and oracle."""
    return index_policy(model, EpsilonGreedy(epsilon=epsilon))


def main(rounds: int = 100) -> dict[str, float]:
    problem = landscape(seed=0, horizon=rounds)
    model = problem.model
    policies: dict[str, Policy] = {
        "mine": epsilon_greedy(model),
        "gp-bucb": gp_bucb(model),
        "random": random(model),
    }
    runs = simulate(problem, policies, rounds=rounds, seed=0)
    return {name: float(run.series["regret"].sum()) for name, run in runs.items()}


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:10}{regret:8.1f}")
