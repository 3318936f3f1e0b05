"""A separate posterior for each value of a column: learners share nothing."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import QUANTILES, Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import LearnsSums, Resumable, SelfCalibrating
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_count
from superarm.core.registry import register

from .base import GaussianPosterior, Memory, is_empty
from .wrapping import Wrapping


class Learner(NamedTuple):
    """The arms of one learner among the keys of a question."""

    number: int
    members: Ints  # positions of its keys


@register("posterior", "separate")
class Separate(Wrapping, LearnsSums, SelfCalibrating):
    """Any posterior of feature rows, once per number in ``column``, such as one per vehicle.

    Args:
        posterior: The posterior of each learner; it must not have learned anything yet.
        column: The column of the features with the learner's number; of a fleet's roads it is
            8, the vehicle.

    >>> from superarm.kernels import SquaredExponential
    >>> from superarm.posteriors import StreamingGP
    >>> gp = Separate(StreamingGP(SquaredExponential(), 0.01), column=1)
    >>> gp.observe([[0.0, 7.0]], [2.0])
    >>> gp.predict([[0.0, 7.0], [0.0, 8.0]]).mean.round(2).tolist()
    [1.98, 0.0]
    """

    kind = "separate"

    def __init__(self, posterior: GaussianPosterior, *, column: int) -> None:
        super().__init__(posterior)
        self.column = as_count(column, "column", 0)
        self._posteriors: dict[int, GaussianPosterior] = {}  # by learner number

    def _as_keys(self, arms: Any) -> NDArray[Any]:
        keys = super()._as_keys(arms)
        has_column = keys.ndim == 2 and keys.shape[1] > self.column
        if not has_column or not _are_integers(keys[:, self.column]):
            raise InputError(
                f"column {self.column} of arms must hold whole numbers: the learners"
            )
        return keys

    def keys(self, offer: Offer) -> NDArray[Any]:
        return self._as_keys(super().keys(offer))

    @property
    def same_bits(self) -> bool:
        return all(
            isinstance(posterior, Resumable) and posterior.same_bits
            for posterior in self._posteriors.values()
        )

    def _learners(self, keys: NDArray[Any]) -> list[Learner]:
        numbers = keys[:, self.column]
        return [
            Learner(int(number), np.flatnonzero(numbers == number))
            for number in np.unique(numbers)
        ]

    def _parts(self, keys: NDArray[Any]) -> list[tuple[GaussianPosterior, Ints]]:
        return [
            (self._posterior_of(learner.number), learner.members)
            for learner in self._learners(keys)
        ]

    def _posterior_of(self, number: int) -> GaussianPosterior:
        """The learner's posterior, to be read; the prior before it has learned anything."""
        return self._posteriors.get(number, self.posterior)

    def _posterior_to_teach(self, number: int) -> GaussianPosterior:
        """The learner's posterior, a new one if it has not learned anything."""
        if number in self._posteriors:
            return self._posteriors[number]
        return self.posterior._clone()

    def _covariance(self, keys: NDArray[Any], positions: Ints | None = None) -> Floats:
        count = len(keys)
        cov = np.zeros((count, count))  # learners are independent
        for posterior, members in self._parts(keys):
            block = np.ix_(members, members)
            cov[block] = posterior._covariance(keys[members])
        return cov if positions is None else cov[positions]

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Any:
        """The belief about the arms on offer: the learner's own if all arms belong to one.

        Args:
            offer: The arms on offer.
            pending: Keys of chosen arms without feedback yet.
        """
        keys = self.keys(offer)
        learners = self._learners(keys)
        if len(learners) != 1:
            return super().belief(offer, pending)
        number = learners[0].number
        posterior = self._posterior_of(number)
        if is_empty(pending):
            return posterior.belief(offer)
        pending_keys = self._as_keys(pending)
        of_learner = pending_keys[:, self.column] == number
        return posterior.belief(offer, pending_keys[of_learner])

    def _incumbent(self, sign: float) -> float:
        return max(
            posterior._incumbent(sign) for posterior in self._posteriors.values()
        )

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        # The model's own noise is passed on as None: a learner may have its own estimate.
        noise_is_default = bool((noise == self.noise_variance).all())
        learners = self._learners(keys)
        posteriors = dict(self._posteriors)
        information = 0.0
        for number, members in learners:
            posterior = self._posterior_to_teach(number)
            if len(learners) > 1:
                # A later learner may refuse its data, and then none may have learned.
                posterior = copy(posterior)
            gain_before = posterior.information_gain
            member_noise = None if noise_is_default else noise[members]
            posterior.observe(keys[members], rewards[members], member_noise, rng)
            posteriors[number] = posterior
            information += posterior.information_gain - gain_before
        self._posteriors = posteriors
        return information

    def check_room(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        """Raise the error that :meth:`observe` would raise because there are too many rewards.

        Args:
            arms: Feature rows, (m, d).
            rewards: Rewards, (m,).
            noise_variance: Noise variances of single observations, (m,); default: the model's.
        """
        with self._lock.lock:
            keys = self._as_keys(arms)
            values = np.asarray(rewards)
            for posterior, members in self._parts(keys):
                member_keys = keys[members]
                member_values = values[members]
                member_noise = None
                if noise_variance is not None:
                    member_noise = np.asarray(noise_variance)[members]
                posterior.check_room(member_keys, member_values, member_noise)

    def observe_sums(
        self,
        arms: Any,
        sums: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards that are sums over arms, all of one learner.

        Args:
            arms: Feature rows, (m, d).
            sums: The reward that each arm belongs to, (m,), numbered from 0.
            rewards: The observed sums, (r,).
            noise_variance: Noise variances of the sums, (r,); default: the model's.
            rng: A random generator, for posteriors that draw while they learn.
        """
        with self._lock:
            keys = self._as_keys(arms)
            learners = self._learners(keys)
            posterior = None
            if len(learners) == 1:
                number = learners[0].number
                posterior = self._posterior_to_teach(number)
            if not (
                isinstance(posterior, GaussianPosterior)
                and isinstance(posterior, LearnsSums)
            ):
                raise InputError(
                    "the arms of a sum must all be of one learner, and the posterior must be "
                    "one that learns sums, such as 'roads'"
                )
            gain_before = posterior.information_gain
            posterior.observe_sums(keys, sums, rewards, noise_variance, rng)
            self._posteriors = {**self._posteriors, number: posterior}
            self.information_gain += posterior.information_gain - gain_before
            self.count += len(np.atleast_1d(rewards))
            self.version += 1

    def noise_cov(self, keys: Any) -> Floats:
        """Covariance of the noise of these arms when observed together, (m, m).

        Args:
            keys: Feature rows, (m, d).
        """
        rows = self._as_keys(keys)
        cov = self.noise_variance * np.eye(len(rows))
        for posterior, members in self._parts(rows):
            if isinstance(posterior, SelfCalibrating):
                cov[np.ix_(members, members)] = posterior.noise_cov(rows[members])
        return cov

    def widths(self, keys: Any) -> tuple[Floats, Floats]:
        """Half-widths of the intervals of these arms, and of their sum; see ``core.Forecast``.

        Args:
            keys: Feature rows, (m, d).
        """
        parts = self._parts(self._as_keys(keys))
        posterior = self.posterior
        if len(parts) == 1:
            posterior, _ = parts[0]
        if isinstance(posterior, SelfCalibrating):
            return posterior.widths(keys)
        return QUANTILES, QUANTILES

    def _memory(self) -> Memory:
        states = {
            str(number): posterior.state()
            for number, posterior in self._posteriors.items()
        }
        return Memory(arrays={}, scalars={}, parts=states)

    def _remember(self, state: State) -> None:
        for name, part in state.parts.items():
            if not name.removeprefix("-").isdecimal():
                raise StateError(
                    f"this state is damaged: {name!r:.40} is not the number of a learner"
                )
            self._posteriors[int(name)] = self.posterior.restored(part)
        count = sum(posterior.count for posterior in self._posteriors.values())
        if count != self.count:
            raise StateError(
                f"this state is damaged: its count is {self.count}, but its learners have "
                f"learned {count} observations"
            )


def _are_integers(numbers: NDArray[Any]) -> bool:
    return bool((numbers == np.floor(numbers)).all())
