"""A policy is data: written as JSON, built without any problem, saved, and loaded again.

Whoever loads the file needs nothing else: it says which kernel, rule and oracle the policy has, and a
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


def main(rounds: int = 20) -> tuple[list[int], list[int]]:
    policy = registry.build("policy", json.loads(SPEC))
    rng = np.random.default_rng(0)
    for step in range(1, rounds + 1):
        offer = Offer(step=step, arms=Arms.numbered(rng.random((20, 2))))
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        sent = json.dumps(to_json(decision))  # to another machine, and back
        decision = from_json(json.loads(sent))
        rewards = np.sin(5.0 * offer.arms.features[decision.positions]).sum(axis=1)
        policy.learn(
            offer,
            decision,
            Feedback(positions=decision.positions, rewards=rewards),
            rng,
        )
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy.npz")
        again = superarm.load(Path(folder) / "policy.npz")
    offer = Offer(step=rounds + 1, arms=Arms.numbered(rng.random((20, 2))))
    ours, theirs = (
        each.decide(offer, np.random.default_rng(1)) for each in (policy, again)
    )
    return ours.positions.tolist(), theirs.positions.tolist()


if __name__ == "__main__":
    print(
        "chosen by the policy that never stopped, and by the one that was loaded:",
        *main(),
    )
