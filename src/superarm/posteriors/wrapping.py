"""What is common to posteriors that wrap another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import MOST_STEPS, Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import Resumable
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_features, require_type

from .base import GaussianPosterior, Memory
from .fixed import FixedPosterior
from .rows import Observed


class Wrapping(GaussianPosterior, Resumable):
    """A posterior with another inside: it has the same keys, and can make the one inside anew."""

    def __init__(self, posterior: GaussianPosterior) -> None:
        require_type(posterior, GaussianPosterior, "posterior")
        if posterior.count:
            told = "the posterior inside has already learned something; give one that has not"
            raise InputError(told)
        super().__init__(noise_variance=posterior.noise_variance)
        self.exchangeable, self.draws = posterior.exchangeable, posterior.draws
        self.posterior = posterior  # which never learns
        self._inside = posterior._like()

    @property
    def same_bits(self) -> bool:
        return isinstance(self._inside, Resumable) and self._inside.same_bits

    def _settle(self, inside: GaussianPosterior) -> None:
        """From now on this one is inside."""
        self._inside = inside
        self.noise_variance, self.noise_std = inside.noise_variance, inside.noise_std

    def _within(self, keys: NDArray[Any]) -> NDArray[Any]:
        """The keys of the posterior inside."""
        return keys

    def keys(self, offer: Offer) -> NDArray[Any]:
        return self._inside.keys(offer)

    def _as_keys(self, arms: Any) -> NDArray[Any]:
        return self._inside._as_keys(arms)

    def _remembered_keys(self, arms: Any) -> NDArray[Any]:
        keys = self._as_keys(arms)
        self._inside._remembered_keys(self._within(keys))
        return keys

    def check_room(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        with self._lock.lock:
            keys = self._as_keys(arms)
            try:
                self._inside.check_room(self._within(keys), rewards, noise_variance)
            except InputError:
                # The wrapper may forget enough to make room; only these rewards can show it.
                copy(self).observe(keys, rewards, noise_variance)

    def _parts(self, keys: NDArray[Any]) -> Iterable[tuple[GaussianPosterior, Any]]:
        """Who knows of which keys, and where these are."""
        return [(self._inside, slice(None))]

    def _moments(self, keys: NDArray[Any]) -> tuple[Floats, Floats]:
        mean, variance = np.empty(len(keys)), np.empty(len(keys))
        for known, where in self._parts(keys):
            mean[where], variance[where] = known._moments(self._within(keys[where]))
        return mean, variance

    def _mean(self, keys: NDArray[Any]) -> Floats:
        mean = np.empty(len(keys))
        for known, where in self._parts(keys):
            mean[where] = known._mean(self._within(keys[where]))
        return mean

    def _covariance(self, keys: NDArray[Any], at: Ints | None = None) -> Floats:
        return self._inside._covariance(self._within(keys), at)

    def _draw(self, keys: NDArray[Any], rng: Rng, size: int) -> Floats:
        drawn = np.empty((size, len(keys)))
        for known, where in self._parts(keys):
            drawn[:, where] = known._draw(self._within(keys[where]), rng, size)
        return drawn

    def _prior_scale(self, keys: NDArray[Any]) -> float:
        return self._inside._prior_scale(self._within(keys))

    def _incumbent(self, sign: float) -> float:
        return self._inside._incumbent(sign) if self._inside.count else 0.0

    def _memory_of(
        self, scalars: Mapping[str, Any], seen: Observed | None, **arrays: Any
    ) -> Memory:
        """These, the posterior inside, and observations that are kept beside it."""
        if seen is not None:
            arrays |= {"keys": seen.arms, "rewards": seen.rewards, "noise": seen.noise}
        return Memory(arrays, scalars, {"inside": self._inside.state()})

    def _remember_inside(self, state: State, like: GaussianPosterior) -> None:
        self._settle(like.restored(state.part("inside")))
        if self._inside.count > self.count:
            raise StateError(
                "this state is damaged: it has learned more than it has seen"
            )

    def _seen_in(self, state: State) -> Observed:
        """The observations that a state holds beside the posterior inside."""
        seen = Observed.held_in(state, self._as_keys(state.array("keys")))
        if not 0 < len(seen.rewards) <= self.count:
            raise StateError("this state is damaged: its observations are impossible")
        return seen.after(None)


class Numbered(Wrapping):
    """A wrapper whose keys end with the offer's block or step number, which tells what to ignore."""

    numbered: str  # what the numbers count
    ignored: int
    """Observations that came after their block or step had been forgotten; they are not learned."""

    def __init__(self, posterior: GaussianPosterior) -> None:
        super().__init__(posterior)
        self.ignored = 0
        if isinstance(posterior, Wrapping) and not isinstance(posterior, Numbered):
            posterior = posterior.posterior  # its keys are those of the one inside
        self._rows = isinstance(
            posterior, FixedPosterior
        )  # whether they are row numbers

    @abstractmethod
    def _number(self, offer: Offer) -> int: ...

    def keys(self, offer: Offer) -> NDArray[Any]:
        inside = self.posterior.keys(offer)
        return np.column_stack([inside, np.full(len(inside), self._number(offer))])

    def _as_keys(self, arms: Any) -> NDArray[Any]:
        keys = as_features(arms, "arms", 2 if self._rows else None)
        if keys.shape[1] < 2:
            raise InputError(
                "arms must be rows: a key of the posterior inside, then a number"
            )
        number = keys[:, -1]
        if not ((number >= 0).all() and (number == np.floor(number)).all()):
            raise InputError(
                f"the last column of arms must number {self.numbered}: 0, 1, 2, …"
            )
        if number.max(initial=0.0) > MOST_STEPS:
            told = f"the last column of arms numbers {self.numbered}, and holds {number.max():g}"
            raise InputError(f"{told}; beyond {MOST_STEPS} a float skips numbers")
        self.posterior._as_keys(self._within(keys))
        return keys

    def _within(self, keys: NDArray[Any]) -> NDArray[Any]:
        """One column are row numbers, if the posterior inside calls arms so."""
        if not self._rows:
            return keys[:, :-1]
        rows = keys[:, 0].astype(np.intp)
        if (rows != keys[:, 0]).any():
            raise InputError(
                "the first column of arms must hold row numbers: 0, 1, 2, …"
            )
        return rows
