"""Rewards that drift: keys carry the time of their offer, and the kernel lets observations age.

``timed=True`` makes the time of an offer the last column of a key, so that feedback is dated by its own
offer, however late it comes. Everything else stays the same.
"""

import numpy as np

from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import Floats
from superarm.kernels import SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

PLACES = np.linspace(0.0, 1.0, 30)[:, None]
SPACE = SquaredExponential(lengthscale=0.2, columns=(0,))
DRIFT = 0.05


def rewards_at(step: int) -> Floats:
    """The mean reward of every place: the best place moves."""
    return np.cos(6.0 * PLACES[:, 0] - DRIFT * step)


def policy_with(posterior: StreamingGP) -> IndexPolicy:
    rule = UCB(schedule=Fixed(value=2.0))
    return IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=1))


def regret_of(policy: IndexPolicy, rounds: int) -> float:
    arms = Arms.numbered(PLACES)
    rng = np.random.default_rng(0)
    regret = 0.0
    for step in range(1, rounds + 1):
        offer = Offer(step=step, arms=arms, time=0.5 * step)
        decision = policy.decide(offer, rng)
        policy.commit(decision)

        truth = rewards_at(step)
        earned = truth[decision.positions]
        noise = 0.1 * rng.standard_normal(1)
        feedback = Feedback(positions=decision.positions, rewards=earned + noise)
        policy.learn(offer, decision, feedback, rng)
        regret += float(truth.max() - earned.sum())
    return regret


def main(rounds: int = 150) -> dict[str, float]:
    ageing = SPACE * Temporal(epsilon=DRIFT, column=1)
    forgets = StreamingGP(ageing, noise_variance=0.01, timed=True)
    remembers = StreamingGP(SPACE, noise_variance=0.01)
    return {
        "forgets": regret_of(policy_with(forgets), rounds),
        "remembers": regret_of(policy_with(remembers), rounds),
    }


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:12}regret {regret:.1f}")
