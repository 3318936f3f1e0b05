"""A policy is data: written as JSON, built without any problem, saved, and loaded again.

Whoever loads the file needs nothing else: it states which kernel, rule and oracle the policy has, and a
policy with another kernel refuses it. Offers, decisions and feedback can travel as JSON, too.
"""

import json
import tempfile
from pathlib import Path

import numpy as np

import superarm
from superarm import Arms, Feedback, Offer
from superarm.core import registry
from superarm.core.serialization import from_json, to_json

SPEC = """
{"name": "index",
 "posterior": {"name": "streaming", "noise_variance": 0.01,
               "kernel": {"name": "squared-exponential", "lengthscale": 0.3}},
 "rule": {"name": "thompson"},
 "oracle": {"name": "top-k", "k": 3}}
"""


def random_offer(step: int, rng: np.random.Generator) -> Offer:
    return Offer(step=step, arms=Arms.numbered(rng.random((20, 2))))


def main(rounds: int = 20) -> tuple[list[int], list[int]]:
    policy = registry.build("policy", json.loads(SPEC))
    rng = np.random.default_rng(0)
    for step in range(1, rounds + 1):
        offer = random_offer(step, rng)
        decision = policy.decide(offer, rng)
        policy.commit(decision)

        # To another machine, and back.
        sent = json.dumps(to_json(decision))
        received = from_json(json.loads(sent))

        chosen = received.positions
        rewards = np.sin(5.0 * offer.arms.features[chosen]).sum(axis=1)
        feedback = Feedback(positions=chosen, rewards=rewards)
        policy.learn(offer, received, feedback, rng)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        policy.save(file)
        loaded = superarm.load(file)

    offer = random_offer(rounds + 1, rng)
    decision = policy.decide(offer, np.random.default_rng(1))
    decision_after_loading = loaded.decide(offer, np.random.default_rng(1))
    return decision.positions.tolist(), decision_after_loading.positions.tolist()


if __name__ == "__main__":
    chosen, chosen_after_loading = main()
    print("chosen by the policy that never stopped:", chosen)
    print("chosen by the policy that was loaded:   ", chosen_after_loading)
