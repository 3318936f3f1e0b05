"""The lemma behind the bound of R-GP-UCB, checked on what a run recorded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from superarm.core import Decision, Floats, Ints, Offer
from superarm.kernels import Temporal
from superarm.posteriors import DriftingGP, Resetting
from superarm.problems.base import World
from superarm.simulation import Run
from superarm.streams import Streams
from superarm.theory import Mismatch, mismatch_bounds


def _replayed(run: Run, policy: str, seed: int, world: World) -> Iterator[tuple[Offer, Ints, Floats]]:
    """Every round of a cell in the first setting: the offer, what was chosen and the rewards."""
    streams = Streams(seed, "noise")
    for step, row in enumerate(run.choices(policy, 0, seed), start=1):
        offer, chosen = world.offer(step), row[row >= 0].astype(np.intp)
        decision = Decision(step=step, action=chosen, positions=chosen)
        feedback = world.feedback(offer, decision, world.noise(offer, streams.at(step)))
        yield offer, feedback.positions, feedback.rewards


def check_mismatch(
    run: Run, policy: str, seed: int, world: World, block: int, epsilon: float
) -> Mismatch:
    """The largest share of what Lemma D.1 of bogunovic2016time allows that a cell used.

    Two posteriors get what R-GP-UCB saw since its last reset: one that drifts by ε as the truth does,
    and one that forgets nothing. With the largest of them in place of eq. 65 the lemma holds for sure.
    """
    model, shares, largest, count = world.model, np.zeros(2), 0.0, 0
    engines = [
        Resetting(DriftingGP(model.kernel, model.arms, model.noise_variance, drift=each), block=block)
        for each in (Temporal(epsilon=epsilon), Temporal(epsilon=0.0))
    ]
    for offer, chosen, rewards in _replayed(run, policy, seed, world):
        if (offer.step - 1) % block == 0:
            largest, count = 0.0, 0
        if count:
            true, static = (engine.belief(offer) for engine in engines)
            off = np.abs([true.mean - static.mean, true.std - static.std]).max(axis=1)
            allowed = mismatch_bounds(block, epsilon, model.noise_variance, largest)
            shares = np.maximum(shares, off / np.array(allowed))
        for engine in engines:
            engine.observe(engine.keys(offer)[chosen], rewards)
        largest, count = np.abs(rewards).max(initial=largest), count + len(rewards)
    return Mismatch(*shares.tolist())
