"""What posteriors share that call arms by their feature rows: data, checks of rows, prior means."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Offer, State
from superarm.core.errors import InputError, ShapeError, StateError
from superarm.core.inputs import (
    LARGEST,
    as_features,
    as_number,
    as_vector,
    require_type,
)
from superarm.core.linalg import add_to_diagonal, cholesky, shallow_copy, with_room
from superarm.kernels.base import as_covariance

from .base import GaussianPosterior, Memory
from .variances import largest_variance

MeanFunction = float | Callable[[Floats], Floats]


class Observed(NamedTuple):
    """What was observed."""

    arms: NDArray[Any]  # (N, d), or row numbers (N,)
    rewards: Floats  # (N,)
    noise: Floats  # (N,) variances

    def part(self, rows: Any) -> Observed:
        """Some of it, by row numbers or a mask."""
        return Observed(*(each[rows] for each in self))

    def after(self, earlier: Observed | None) -> Observed:
        """This after what was observed earlier; a copy."""
        parts = (
            (earlier, self) if earlier is not None and len(earlier.rewards) else (self,)
        )
        return Observed(*map(np.concatenate, zip(*parts, strict=True)))

    @classmethod
    def held_in(cls, state: State, keys: NDArray[Any]) -> Observed:
        """What a state holds, of which these are the checked ``arms``."""
        names = ("rewards", "noise")
        rewards, noise = (
            as_vector(state.array(name), name, len(keys)) for name in names
        )
        if not (noise > 0.0).all():
            raise StateError("this state is damaged: its observations are impossible")
        return cls(keys, rewards, noise)


class ObservedData:
    """Observed arms, rewards and noise in buffers that double."""

    def __init__(self, *held: NDArray[Any]) -> None:
        self._buffers: tuple[Floats, Floats, Floats] = (
            np.empty((0, 0)),
            np.empty(0),
            np.empty(0),
        )
        self._size = 0
        if held:
            self.append(*held)

    def __len__(self) -> int:
        return self._size

    @property
    def columns(self) -> int:
        """Feature columns of the arms; 0 before the first."""
        return int(self._buffers[0].shape[1]) if self._size else 0

    @property
    def arms(self) -> Floats:
        """Observed arms, (N, d), without a copy: do not write into it."""
        return self._buffers[0][: self._size]

    def view(self) -> Observed:
        """All of it, without a copy; read-only."""
        views = [buffer[: self._size] for buffer in self._buffers]
        views[0] = views[0][
            :, : self.columns
        ]  # of none, none: room may have been made for some
        for view in views:
            view.flags.writeable = False
        return Observed(*views)

    def reserve(self, arms: Floats) -> None:
        """Make room for as many rows as these, so that appending them cannot fail."""
        size, grown = self._size, self._size + len(arms)
        if not size:  # the width is that of the first rows
            self._buffers = np.empty((256, arms.shape[1])), np.empty(256), np.empty(256)
        if grown > len(self._buffers[0]):
            a, r, n = (with_room(buffer, size, grown) for buffer in self._buffers)
            self._buffers = a, r, n

    def extended(self, arms: Floats, rewards: Floats, noise: Floats) -> ObservedData:
        """This and more rows, which is to take its place: it writes into room that both share."""
        other = shallow_copy(self)
        other.append(arms, rewards, noise)
        return other

    def extended_by_one(
        self, arm: Sequence[float], reward: float, noise: float
    ) -> ObservedData:
        """:meth:`extended` by one row."""
        size = self._size
        if not size or size >= len(self._buffers[0]):
            return self.extended(np.array([arm]), np.array([reward]), np.array([noise]))
        arms, rewards, variances = self._buffers
        arms[size] = arm
        rewards[size] = reward
        variances[size] = noise
        other = shallow_copy(self)
        other._size = size + 1
        return other

    def append(self, arms: Floats, rewards: Floats, noise: Floats) -> None:
        self.reserve(arms)
        size, grown = self._size, self._size + len(rewards)
        a, r, n = self._buffers
        a[size:grown], r[size:grown], n[size:grown] = arms, rewards, noise
        self._size = grown


class RowPosterior(GaussianPosterior):
    """A posterior whose keys are feature rows, all of one width.

    With ``timed`` the last column of a key is the time of its offer (the step, where an offer has
    no time), for kernels that let what was seen grow old.
    """

    timed: bool = False
    forget: float | None = None

    def __init__(self, *, noise_variance: float) -> None:
        super().__init__(noise_variance=noise_variance)
        self._data = ObservedData()

    @property
    def observed(self) -> Observed:
        """Everything observed so far: arms (N, d), rewards (N,), noise variances (N,)."""
        return self._data.view()

    def keys(self, offer: Offer) -> Floats:
        require_type(offer, Offer, "offer")
        features = offer.arms.features
        if self.timed:
            features = np.column_stack([features, np.full(len(features), offer.moment)])
        return self._check_columns(features)

    def _as_keys(self, arms: Any) -> Floats:
        return self._check_columns(as_features(arms, "arms"))

    def _check_columns(self, features: Floats) -> Floats:
        if self.count and features.shape[1] != self._data.columns:
            told = f"arms have {features.shape[1]} feature columns"
            raise ShapeError(
                f"{told}, but those observed before have {self._data.columns}"
            )
        return features

    def _root(self, keys: Floats) -> Floats:
        return self._once(
            "root", keys, super()._root
        )  # many draws of one belief are usual

    def _incumbent(self, sign: float) -> float:
        mean, _ = self._moments(np.unique(self.observed.arms, axis=0))
        return float(np.max(sign * mean))

    def _memory(self) -> Memory:
        return Memory(self.observed._asdict())

    def _remember(self, state: State) -> None:
        held = Observed.held_in(state, as_features(state.array("arms"), "arms"))
        count = len(held.rewards)
        if count > self.count or (self.forget is None and count < self.count):
            raise StateError(
                "this state is damaged: its count differs from the observations it holds"
            )
        if count:
            self._data.append(*held)


class KernelPosterior(RowPosterior):
    """One with a kernel and a prior mean that is a number or a function of the arms."""

    def __init__(
        self, kernel: Covariance, noise_variance: float, mean: MeanFunction
    ) -> None:
        super().__init__(noise_variance=noise_variance)
        self.kernel = as_covariance(kernel, "kernel")
        self.mean: MeanFunction = (
            mean if callable(mean) else as_number(mean, "mean", -LARGEST, LARGEST)
        )

    def _prior_mean(self, keys: Floats) -> Floats | float:
        """The prior mean of these arms, one number or (m,)."""
        if not callable(self.mean):
            return self.mean
        values = np.array(self.mean(keys), dtype=np.float64)
        if values.shape != (len(keys),) or not np.isfinite(values).all():
            raise InputError("the mean function must return one finite number per arm")
        return values

    def _prior_scale(self, keys: Floats) -> float:
        return largest_variance(self.kernel, keys)


def information_in(covariance: Floats, noise: Floats) -> float:
    """½ ln det(I + D^{-½} Σ D^{-½}): what observing arms with this covariance tells, nats."""
    weight = 1.0 / np.sqrt(noise)
    seen = covariance * weight
    seen *= weight[:, None]
    add_to_diagonal(seen, 1.0)
    factor = cholesky(seen, "the covariance of the observed arms")
    return max(0.0, float(np.log(factor.diagonal()).sum()))
