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
from .wrapping import Numbered


@register("posterior", "resetting")
class Resetting(Numbered):
    """Any posterior, made anew every ``block`` steps: in steps 1, block + 1, 2 block + 1, ….

    Keys are those of the posterior inside, with the block number as the last column. Feedback from
    before a reset is counted in ``ignored`` and not learned.

    Args:
        posterior: The posterior inside.
        block: How many steps lie between two resets.

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
        self._current = (
            0  # number of the block that the posterior inside has learned in
        )

    def _number(self, offer: Offer) -> int:
        return (offer.step - 1) // self.block

    def _parts(self, keys: NDArray[Any]) -> Iterator[tuple[GaussianPosterior, Ints]]:
        """Each block by itself: who knows of it, and where its keys are."""
        for block in np.unique(keys[:, -1]):
            known = self._inside if block == self._current else self.posterior
            yield known, np.flatnonzero(keys[:, -1] == block)

    def _covariance(self, keys: NDArray[Any], at: Ints | None = None) -> Floats:
        at = np.arange(len(keys)) if at is None else at
        found = np.zeros((len(at), len(keys)))  # blocks know nothing of each other
        for known, where in self._parts(keys):
            rows = np.flatnonzero(np.isin(at, where))
            inside = np.searchsorted(where, at[rows])
            found[np.ix_(rows, where)] = known._covariance(
                self._within(keys[where]), inside
            )
        return found

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        blocks = keys[:, -1]
        newest = max(int(blocks.max()), self._current)
        inside = self._inside if newest == self._current else self.posterior._like()
        kept = blocks == newest
        before = inside.information_gain
        inside.observe(self._within(keys[kept]), rewards[kept], noise[kept], rng)
        self._settle(inside)
        self._current = newest
        self.ignored += int(np.count_nonzero(~kept))
        return inside.information_gain - before

    def _memory(self) -> Memory:
        return self._memory_of(
            {"current": self._current, "ignored": self.ignored}, None
        )

    def _remember(self, state: State) -> None:
        self._current = as_count(state.scalar("current"), "current", 0, 2**53)
        self.ignored = as_count(state.scalar("ignored"), "ignored", 0, self.count)
        self._remember_inside(state, self.posterior)
