"""Rewards that drift: keys carry the time of their offer, and the kernel lets observations age.

``timed=True`` makes the time of an offer the last column of a key, so that feedback is dated by its own
offer, however late it comes. Everything else stays the same.
"""

import numpy as np

from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.kernels import SquaredExponential, Temporal
from superarm.oracles import TopK
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

PLACES = np.linspace(0.0, 1.0, 30)[:, None]


def main(rounds: int = 150, drift: float = 0.05) -> dict[str, float]:
    space = SquaredExponential(lengthscale=0.2, columns=(0,))
    arms, found = Arms.numbered(PLACES), {}
    for name in ("forgets", "remembers"):
        timed = name == "forgets"
        kernel = space * Temporal(epsilon=drift, column=1) if timed else space
        posterior = StreamingGP(kernel, noise_variance=0.01, timed=timed)
        policy = IndexPolicy(
            posterior=posterior, rule=UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=1)
        )
        rng, regret = np.random.default_rng(0), 0.0
        for step in range(1, rounds + 1):
            truth = np.cos(6.0 * PLACES[:, 0] - drift * step)  # the best place moves
            offer = Offer(step=step, arms=arms, time=0.5 * step)
            decision = policy.decide(offer, rng)
            policy.commit(decision)
            rewards = truth[decision.positions] + 0.1 * rng.standard_normal(1)
            policy.learn(
                offer,
                decision,
                Feedback(positions=decision.positions, rewards=rewards),
                rng,
            )
            regret += float(truth.max() - truth[decision.positions].sum())
        found[name] = regret
    return found


if __name__ == "__main__":
    for name, regret in main().items():
        print(f"{name:12}regret {regret:.1f}")
