"""Base classes of posteriors that wrap another one."""

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
from .observations import Observations


class Wrapping(GaussianPosterior, Resumable):
    """A posterior with another one inside; it has the same keys and can replace the one inside.

    Args:
        posterior: The posterior inside. It must not have learned anything yet and never will:
            a copy of it learns, and it is the template of later copies.
    """

    def __init__(self, posterior: GaussianPosterior) -> None:
        require_type(posterior, GaussianPosterior, "posterior")
        if posterior.count:
            raise InputError(
                "the posterior inside has already learned something; give one that has not"
            )
        super().__init__(noise_variance=posterior.noise_variance)
        self.exchangeable = posterior.exchangeable
        self.draws = posterior.draws
        self.posterior = posterior
        self._inside = posterior._clone()

    @property
    def same_bits(self) -> bool:
        return isinstance(self._inside, Resumable) and self._inside.same_bits

    def _replace_inside(self, inside: GaussianPosterior) -> None:
        """Make this the posterior inside."""
        self._inside = inside
        self.noise_variance = inside.noise_variance
        self.noise_std = inside.noise_std

    def _within(self, keys: NDArray[Any]) -> NDArray[Any]:
        """The same arms as keys of the posterior inside."""
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
                # Learning may make the wrapper forget enough for these rewards: try it on a copy.
                copy(self).observe(keys, rewards, noise_variance)

    def _parts(self, keys: NDArray[Any]) -> Iterable[tuple[GaussianPosterior, Any]]:
        """Pairs of a posterior and the positions of the keys that it predicts."""
        return [(self._inside, slice(None))]

    def _moments(self, keys: NDArray[Any]) -> tuple[Floats, Floats]:
        mean = np.empty(len(keys))
        variance = np.empty(len(keys))
        for posterior, members in self._parts(keys):
            member_keys = self._within(keys[members])
            mean[members], variance[members] = posterior._moments(member_keys)
        return mean, variance

    def _mean(self, keys: NDArray[Any]) -> Floats:
        mean = np.empty(len(keys))
        for posterior, members in self._parts(keys):
            member_keys = self._within(keys[members])
            mean[members] = posterior._mean(member_keys)
        return mean

    def _covariance(self, keys: NDArray[Any], positions: Ints | None = None) -> Floats:
        return self._inside._covariance(self._within(keys), positions)

    def _draw(self, keys: NDArray[Any], rng: Rng, size: int) -> Floats:
        draws = np.empty((size, len(keys)))
        for posterior, members in self._parts(keys):
            member_keys = self._within(keys[members])
            draws[:, members] = posterior._draw(member_keys, rng, size)
        return draws

    def _prior_scale(self, keys: NDArray[Any]) -> float:
        return self._inside._prior_scale(self._within(keys))

    def _incumbent(self, sign: float) -> float:
        return self._inside._incumbent(sign) if self._inside.count else 0.0

    def _memory_of(
        self,
        scalars: Mapping[str, Any],
        observations: Observations | None,
        **arrays: Any,
    ) -> Memory:
        """These values, the posterior inside, and observations that the wrapper stores itself."""
        if observations is not None:
            arrays["keys"] = observations.arms
            arrays["rewards"] = observations.rewards
            arrays["noise"] = observations.noise
        return Memory(arrays, scalars, {"inside": self._inside.state()})

    def _remember_inside(self, state: State, template: GaussianPosterior) -> None:
        """Restore the posterior inside, which has the parameters of ``template``."""
        inside = template.restored(state.part("inside"))
        self._replace_inside(inside)
        if self._inside.count > self.count:
            raise StateError(
                "this state is damaged: it has learned more than it has seen"
            )

    def _observations_in(self, state: State) -> Observations:
        """The wrapper's own observations in a state, validated; a copy."""
        keys = self._as_keys(state.array("keys"))
        observations = Observations.from_state(state, keys)
        if not 0 < len(observations.rewards) <= self.count:
            raise StateError("this state is damaged: its observations are impossible")
        return observations.after(None)


class NumberedWrapper(Wrapping):
    """A wrapper whose keys end with the number of the offer's block or step.

    The number shows which observations are too old to learn.

    Args:
        posterior: The posterior inside; it must not have learned anything yet.
    """

    numbered: str  # what the numbers count
    ignored: int
    """Observations that came after their block or step had been forgotten; they are not learned."""

    def __init__(self, posterior: GaussianPosterior) -> None:
        super().__init__(posterior)
        self.ignored = 0
        is_numbered = isinstance(posterior, NumberedWrapper)
        if isinstance(posterior, Wrapping) and not is_numbered:
            # A plain wrapper has the keys of the posterior inside it.
            posterior = posterior.posterior
        self._has_row_numbers = isinstance(posterior, FixedPosterior)

    @abstractmethod
    def _number(self, offer: Offer) -> int:
        """The number of the offer's block or step."""

    @staticmethod
    def _numbers(keys: NDArray[Any]) -> NDArray[Any]:
        """The last column of the keys, (m,)."""
        return keys[:, -1]

    def keys(self, offer: Offer) -> NDArray[Any]:
        inside_keys = self.posterior.keys(offer)
        number = self._number(offer)
        numbers = np.full(len(inside_keys), number)
        return np.column_stack([inside_keys, numbers])

    def _as_keys(self, arms: Any) -> NDArray[Any]:
        width = 2 if self._has_row_numbers else None
        keys = as_features(arms, "arms", width)
        if keys.shape[1] < 2:
            raise InputError(
                "arms must be rows: a key of the posterior inside, then a number"
            )
        numbers = self._numbers(keys)
        are_integers = numbers == np.floor(numbers)
        are_numbers = are_integers & (numbers >= 0)
        if not are_numbers.all():
            raise InputError(
                f"the last column of arms must number {self.numbered}: 0, 1, 2, …"
            )
        if numbers.max(initial=0.0) > MOST_STEPS:
            raise InputError(
                f"the last column of arms numbers {self.numbered} up to {MOST_STEPS}, beyond "
                f"which a float skips numbers; got {numbers.max():g}"
            )
        self.posterior._as_keys(self._within(keys))
        return keys

    def _within(self, keys: NDArray[Any]) -> NDArray[Any]:
        """The keys without their numbers: feature rows, or row numbers of a fixed set."""
        if not self._has_row_numbers:
            return keys[:, :-1]
        first_column = keys[:, 0]
        rows = first_column.astype(np.intp)
        if (rows != first_column).any():
            raise InputError(
                "the first column of arms must hold row numbers: 0, 1, 2, …"
            )
        return rows
