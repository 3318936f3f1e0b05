"""A posterior that forgets everything at intervals: R-GP-UCB's [bogunovic2016time, Algorithm 1]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Offer, Rng, State
from superarm.core.inputs import as_count
from superarm.core.registry import register

from .base import GaussianPosterior, Memory
from .wrapping import NumberedWrapper


@register("posterior", "resetting")
class Resetting(NumberedWrapper):
    """Any posterior, restarted every ``block`` steps: in steps 1, block + 1, 2 block + 1, ….

    Keys are those of the posterior inside, with the block number as the last column. Feedback from
    before a reset is counted in ``ignored`` and not learned.

    Args:
        posterior: The posterior inside; it must not have learned anything yet.
        block: Number of steps between two resets.

    >>> from superarm.kernels import SquaredExponential
    >>> from superarm.posteriors import FiniteGP
    >>> inside = FiniteGP(SquaredExponential(), [[0.0], [1.0]], noise_variance=0.01)
    >>> gp = Resetting(inside, block=10)
    >>> gp.observe([[0, 0]], [2.0])  # arm 0 in block 0
    >>> gp.predict([[0, 0], [1, 0]]).mean.round(2).tolist(), gp.predict([[0, 1]]).mean.tolist()
    ([1.98, 1.2], [0.0])
    """

    kind = "resetting"
    numbered = "blocks"

    def __init__(self, posterior: GaussianPosterior, *, block: int) -> None:
        super().__init__(posterior)
        self.block = as_count(block, "block")
        # The block whose observations the posterior inside has learned.
        self._current = 0

    def _number(self, offer: Offer) -> int:
        return (offer.step - 1) // self.block

    def _parts(self, keys: NDArray[Any]) -> Iterator[tuple[GaussianPosterior, Ints]]:
        """Each block's posterior, the prior for all but the current one, and its positions."""
        blocks = self._numbers(keys)
        for block in np.unique(blocks):
            is_current = block == self._current
            posterior = self._inside if is_current else self.posterior
            members = np.flatnonzero(blocks == block)
            yield posterior, members

    def _covariance(self, keys: NDArray[Any], positions: Ints | None = None) -> Floats:
        if positions is None:
            positions = np.arange(len(keys))
        covariance = np.zeros((len(positions), len(keys)))  # blocks are independent
        for posterior, members in self._parts(keys):
            in_block = np.isin(positions, members)
            rows = np.flatnonzero(in_block)
            positions_in_block = np.searchsorted(members, positions[rows])
            inside_keys = self._within(keys[members])
            block_covariance = posterior._covariance(inside_keys, positions_in_block)
            covariance[np.ix_(rows, members)] = block_covariance
        return covariance

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        blocks = self._numbers(keys)
        newest = max(int(blocks.max()), self._current)
        inside = self._inside if newest == self._current else self.posterior._clone()
        current = blocks == newest
        gain_before = inside.information_gain
        inside_keys = self._within(keys[current])
        inside.observe(inside_keys, rewards[current], noise[current], rng)
        self._replace_inside(inside)
        self._current = newest
        self.ignored += int(np.count_nonzero(~current))
        return inside.information_gain - gain_before

    def _memory(self) -> Memory:
        scalars = {"current": self._current, "ignored": self.ignored}
        return self._memory_of(scalars, None)

    def _remember(self, state: State) -> None:
        self._current = state.count("current", 0, 2**53)
        self.ignored = state.count("ignored", 0, self.count)
        self._remember_inside(state, self.posterior)
