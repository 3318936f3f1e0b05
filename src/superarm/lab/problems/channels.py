"""Channels matched with users, another set of users in every round.

The first example of *Contextual Combinatorial Bandits with Changing Action Sets via Gaussian Processes*
(2022), section 2.3. An arm is a user on a channel with context x = (distance to the mast, how busy the
channel is, how the user's device suits it), all in [0, 1]; what it carries is, on average,
f(x) = (1 − x₁²)(1 − 0.8 x₂)·x₃^{½}.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from superarm.core import Arms, Floats, Offer
from superarm.core.graphs import Pairs
from superarm.core.inputs import as_count, as_noise_std, as_number
from superarm.core.registry import register
from superarm.core.streams import Streams
from superarm.models.worlds import store
from superarm.oracles import Matching

from .changing import ChangingArms, arrivals, most_arrivals


@register("problem", "channels")
@dataclass(frozen=True, kw_only=True, eq=False)
class Channels(ChangingArms):
    """Each of a few channels serves one of the users who arrive; the reward is the sum.

    Args:
        channels: Number of channels, each for at most one user.
        users: Mean of the Poisson number of users in a round; it must exceed ``channels``.
        barred: Share of channels that a user's device cannot use.
        noise_std: Standard deviation of the noise.
    """

    channels: int = 5
    users: int = 20
    barred: float = 0.3
    noise_std: float = 0.1
    _streams: Streams = field(init=False, repr=False)

    def __post_init__(self) -> None:
        horizon = as_count(self.horizon, "horizon")
        channels = as_count(self.channels, "channels", 1, 1000)
        users = as_count(self.users, "users", channels + 1, 10**4)
        barred = as_number(self.barred, "barred", 0.0, 0.95)
        noise_std = as_noise_std(self.noise_std)
        store(self, horizon=horizon, channels=channels, users=users)
        store(self, barred=barred, noise_std=noise_std)
        oracle = Matching(pairs=channels)
        # The model reads the noise and the horizon that were just stored.
        model = self._unit_model(oracle, most_arms=channels * most_arrivals(users))
        interpretations = {
            "data": "synthetic users and channels; the paper describes the problem but does not run it",
            "users": f"a Poisson number, drawn again until it is above {channels} and at most "
            f"{most_arrivals(users)}",
            "pairs": f"each user cannot use about {barred:.0%} of the channels: those pairs are "
            "not offered; the first user can always use the first channel",
        }
        streams = Streams(self.seed, "offer")
        store(self, model=model, interpretations=interpretations, _streams=streams)

    def offer(self, step: int) -> Offer:
        rng = self._streams.at(step)
        users = arrivals(rng, self.users, self.channels)
        shape = (users, self.channels)
        # Uniform over a disc: the share of it within a radius is the radius squared.
        squares = rng.random((users, 1))
        distance = np.sqrt(squares)
        busy = rng.random((1, self.channels))
        suits = rng.random(shape)
        is_open = rng.random(shape) >= self.barred
        is_open[0, 0] = True  # there is always something to choose
        user, channel = np.nonzero(is_open)
        contexts = [
            distance[user, 0],
            busy[0, channel],
            suits[user, channel],
        ]
        features = np.stack(contexts, axis=1)
        pairs = zip(user.tolist(), channel.tolist(), strict=True)
        ids = [(step, *pair) for pair in pairs]
        arms = Arms(ids=ids, features=features)
        structure = Pairs(left=user, right=channel)
        return Offer(step=step, arms=arms, structure=structure)

    def means(self, offer: Offer) -> Floats:
        distance, busy, suits = offer.arms.features.T
        signal = 1.0 - distance**2
        free = 1.0 - 0.8 * busy
        outcomes: Floats = signal * free * np.sqrt(suits)
        return outcomes
