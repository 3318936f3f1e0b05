"""One posterior for each value of a column: nobody learns from anybody else."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from superarm.core import QUANTILES, Floats, Ints, Offer, Rng, State
from superarm.core.capabilities import LearnsSums, Resumable, SelfCalibrating
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_count, is_listed
from superarm.core.registry import register

from .base import GaussianPosterior, Memory
from .wrapping import Wrapping


@register("posterior", "separate")
class Separate(Wrapping, LearnsSums, SelfCalibrating):
    """Any posterior of feature rows, once for each number in ``column``: vehicles that learn alone.

    Args:
        posterior: The posterior of each.
        column: The column of the features that numbers who learns alone; of a fleet's roads it is
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
        self._each: dict[int, GaussianPosterior] = {}

    def _as_keys(self, arms: Any) -> NDArray[Any]:
        keys = super()._as_keys(arms)
        wide = keys.ndim == 2 and keys.shape[1] > self.column
        if (
            not wide
            or not (keys[:, self.column] == np.floor(keys[:, self.column])).all()
        ):
            raise InputError(
                f"column {self.column} of arms must hold whole numbers: who learns alone"
            )
        return keys

    def keys(self, offer: Offer) -> NDArray[Any]:
        return self._as_keys(super().keys(offer))

    @property
    def same_bits(self) -> bool:
        return all(
            isinstance(each, Resumable) and each.same_bits
            for each in self._each.values()
        )

    def _learners(self, keys: NDArray[Any]) -> list[tuple[int, Ints]]:
        who = keys[:, self.column]
        return [(int(each), np.flatnonzero(who == each)) for each in np.unique(who)]

    def _parts(self, keys: NDArray[Any]) -> list[tuple[GaussianPosterior, Ints]]:
        return [(self._of(who), where) for who, where in self._learners(keys)]

    def _of(self, who: int) -> GaussianPosterior:
        return self._each.get(who, self.posterior)

    def _covariance(self, keys: NDArray[Any], at: Ints | None = None) -> Floats:
        cov = np.zeros((len(keys), len(keys)))  # they know nothing of each other
        for known, where in self._parts(keys):
            cov[np.ix_(where, where)] = known._covariance(keys[where])
        return cov if at is None else cov[at]

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Any:
        """That of one who learns alone, where all arms on offer are theirs."""
        parts = self._learners(self.keys(offer))
        if len(parts) != 1:
            return super().belief(offer, pending)
        who = parts[0][0]
        if pending is None or (is_listed(pending) and not len(pending)):
            return self._of(who).belief(offer)
        awaited = self._as_keys(pending)
        mine = awaited[awaited[:, self.column] == who]
        return self._of(who).belief(offer, mine)

    def _incumbent(self, sign: float) -> float:
        return max(each._incumbent(sign) for each in self._each.values())

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        own = None if (noise == self.noise_variance).all() else noise
        learners = self._learners(keys)
        taught, gained = dict(self._each), 0.0
        for who, where in learners:
            known, stated = self._learner(who), None if own is None else own[where]
            if len(learners) > 1:
                known = copy(
                    known
                )  # one of the others may refuse, and then nobody has learned
            before = known.information_gain
            known.observe(keys[where], rewards[where], stated, rng)
            taught[who] = known
            gained += known.information_gain - before
        self._each = taught
        return gained

    def check_room(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        with self._lock.lock:
            keys, values = self._as_keys(arms), np.asarray(rewards)
            noise = None if noise_variance is None else np.asarray(noise_variance)
            for known, where in self._parts(keys):
                known.check_room(
                    keys[where], values[where], None if noise is None else noise[where]
                )

    def _learner(self, who: int) -> GaussianPosterior:
        """The one who learns alone, or who is about to."""
        return self._each[who] if who in self._each else self.posterior._like()

    def observe_sums(
        self,
        arms: Any,
        sums: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        with self._lock:
            keys = self._as_keys(arms)
            parts = self._learners(keys)
            known = self._learner(parts[0][0]) if len(parts) == 1 else None
            if not isinstance(known, GaussianPosterior) or not isinstance(
                known, LearnsSums
            ):
                told = "sums are of arms of one who learns alone, and need a posterior such as 'roads'"
                raise InputError(told)
            before = known.information_gain
            known.observe_sums(keys, sums, rewards, noise_variance, rng)
            self._each = {**self._each, parts[0][0]: known}
            self.information_gain += known.information_gain - before
            self.count += len(np.atleast_1d(rewards))
            self.version += 1

    def noise_cov(self, keys: Any) -> Floats:
        rows = self._as_keys(keys)
        cov = self.noise_variance * np.eye(len(rows))
        for known, where in self._parts(rows):
            if isinstance(known, SelfCalibrating):
                cov[np.ix_(where, where)] = known.noise_cov(rows[where])
        return cov

    def widths(self, keys: Any) -> tuple[Floats, Floats]:
        parts = self._parts(self._as_keys(keys))
        known = parts[0][0] if len(parts) == 1 else self.posterior
        return (
            known.widths(keys)
            if isinstance(known, SelfCalibrating)
            else (QUANTILES, QUANTILES)
        )

    def _memory(self) -> Memory:
        return Memory(
            {}, {}, {str(who): each.state() for who, each in self._each.items()}
        )

    def _remember(self, state: State) -> None:
        for who, part in state.parts.items():
            if not who.removeprefix("-").isdecimal():
                raise StateError(
                    f"this state is damaged: {who!r:.40} is not the number of a learner"
                )
            self._each[int(who)] = self.posterior.restored(part)
        if sum(each.count for each in self._each.values()) != self.count:
            raise StateError(
                "this state is damaged: it has not learned what it has seen"
            )
