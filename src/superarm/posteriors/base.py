"""What every Gaussian posterior shares: input checks, prediction, samples, beliefs and states.

A posterior supplies a few hooks (moments, covariance, joint draws, absorbing data, what it
remembers); everything that users and policies call is written here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import call
from typing import Any, Literal, NamedTuple, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, JointPrediction, Offer, Prediction, Rng, State
from superarm.core.errors import InputError, ShapeError, SpecError, StateError
from superarm.core.inputs import (
    as_draws,
    as_generator,
    as_scale,
    as_vector,
    is_listed,
    require_scale,
    require_size,
)
from superarm.core.linalg import psd_root
from superarm.core.locks import ReadWriteLock, ThreadSafe, consistent_read
from superarm.core.migrations import up_to_date
from superarm.core.registry import (
    HasParameters,
    built_parameters,
    describe,
    foreign_parts,
)
from superarm.core.states import check_spec
from superarm.core.threads import one_blas_thread

from .beliefs import GaussianBelief
from .variances import standard_deviation

Answer = TypeVar("Answer")


class Memory(NamedTuple):
    """What a posterior has learned, as a state holds it; arrays are copied."""

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, Any] = {}
    parts: Mapping[str, State] = {}


class Kept(NamedTuple):
    """The arms asked about last, with the answer."""

    written: int
    keys: NDArray[Any]
    answer: Any


class GaussianPosterior(ThreadSafe, HasParameters):
    """A Gaussian belief about every arm's latent reward, updated by noisy observations."""

    kind: str
    schema = 1
    exchangeable = True
    draws = False
    noise_variance: float
    information_gain: float
    """Realised information gain Σ ½ ln(1 + σ²_{s−1}(x_s)/λ) by the chain rule, nats."""
    count: int
    """Observations so far."""

    def __init__(self, *, noise_variance: float) -> None:
        self.noise_variance = as_scale(noise_variance, "noise_variance")
        self.noise_std = float(np.sqrt(self.noise_variance))
        self.information_gain = 0.0
        self.count = 0
        self.version = (
            0  # rises with every change: beliefs use it to notice that they are stale
        )
        self._lock = ReadWriteLock()
        self._kept: dict[str, Kept] = {}

    def _display_fields(self) -> Mapping[str, Any]:
        return {**self.parameters(), "observations": self.count}

    def _constant(self) -> Iterable[object]:
        # Kernels, means and arms, but no posterior inside: it may learn.
        return (
            part
            for part in self.parameters().values()
            if not isinstance(part, GaussianPosterior)
        )

    # --- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def keys(self, offer: Offer) -> NDArray[Any]: ...

    @abstractmethod
    def _as_keys(self, arms: Any) -> NDArray[Any]:
        """Checked keys, or an error that says what is wrong."""

    def _remembered_keys(self, arms: Any) -> NDArray[Any]:
        """Checked keys of which something is known, or an error.

        A belief may be conditioned on others: arms that were chosen so long ago that they say nothing.
        """
        return self._as_keys(arms)

    @abstractmethod
    def _moments(self, keys: NDArray[Any]) -> tuple[Floats, Floats]:
        """Mean and variance, both (m,), new arrays; the variance may be a hair below 0."""

    def _mean(self, keys: NDArray[Any]) -> Floats:
        """The mean alone, (m,), a new array: for a posterior whose variances cost more."""
        return self._moments(keys)[0]

    @abstractmethod
    def _covariance(self, keys: NDArray[Any], at: Ints | None = None) -> Floats:
        """Covariance of the keys at these places, or of all, with all of them, (k, m), a new array.

        A posterior that can do it should make no (m, m) matrix for some of them.
        """

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        """Take checked data in, all or nothing; returns the information gained.

        ``rng`` is there where the posterior ``draws``, and ``None`` or left alone elsewhere.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override _absorb or _take_in"
        )

    def _take_in(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        """Absorb checked data and count them. Override it to commit both in one step."""
        self.information_gain += self._absorb(keys, rewards, noise, rng)
        self.count += len(keys)
        self.version += 1

    def _commit(
        self,
        count: int,
        information: float,
        last: Callable[[], object] | None = None,
        **changes: Any,
    ) -> None:
        """Adopt what so many observations changed, and count them; ``last`` changes an array in place.

        All of it is one call of compiled code, within which no interrupt is handled.
        """
        changes["information_gain"] = self.information_gain + information
        changes["count"] = self.count + count
        changes["version"] = self.version + 1
        if last is None:
            vars(self).update(changes)
        else:
            steps: tuple[Callable[[], object], ...] = (
                last,
                partial(vars(self).update, changes),
            )
            deque(map(call, steps), maxlen=0)

    def check_room(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        """Raise the error that :meth:`observe` would raise because there are too many rewards.

        Nothing is learned. Callers that observe later use it to refuse rewards as they arrive.
        """

    def _after_observing(self) -> None:
        """Called when an observation is in and counted: a place to tidy up."""

    @abstractmethod
    def _incumbent(self, sign: float) -> float:
        """Highest posterior mean of ``sign`` × reward among observed arms, of which there are some."""

    @abstractmethod
    def _prior_scale(self, keys: NDArray[Any]) -> float:
        """Largest prior variance: what rounding in a posterior covariance is relative to."""

    @abstractmethod
    def _memory(self) -> Memory:
        """What was learned, besides the count and the information gained."""

    @abstractmethod
    def _remember(self, state: State) -> None:
        """Take in what :meth:`_memory` gave, nothing being known yet but the count."""

    def _once(
        self,
        question: str,
        keys: NDArray[Any],
        answer: Callable[[NDArray[Any]], Answer],
    ) -> Answer:
        """The answer for these arms, kept until other arms are asked about or something is written."""
        kept, written = self._kept.get(question), self._lock.written
        if kept is None or kept.written != written or not _same(kept.keys, keys):
            # The caller's array may change, unless it is one that nobody writes into.
            constant = keys.base is None and not keys.flags.writeable
            kept = Kept(written, keys if constant else keys.copy(), answer(keys))
            self._kept = {
                **self._kept,
                question: kept,
            }  # whole: another thread may be copying it
        found: Answer = kept.answer
        return found

    def _root(self, keys: NDArray[Any]) -> Floats:
        """A root of the covariance, (m, r)."""
        covariance, scale = self._covariance(keys), self._prior_scale(keys)
        return psd_root(
            covariance, "the posterior covariance", scale=scale, steady=True
        ).root

    def _draw(self, keys: NDArray[Any], rng: Rng, size: int) -> Floats:
        """Joint draws about zero, (size, m)."""
        root = self._root(keys)
        # A normal for every arm, also where the rank was cut: rounding may cut it elsewhere.
        return rng.standard_normal((size, len(root)))[:, : root.shape[1]] @ root.T

    # --- what users call -------------------------------------------------------------------

    @one_blas_thread
    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from rewards (m,) of arms (m rows or row numbers).

        ``noise_variance`` overrides the model's own, one number per observation. ``rng`` is for
        posteriors that draw while they learn. After an error the posterior is what it was before.
        """
        if self.draws and not isinstance(rng, Rng):
            kind = type(self).__name__
            raise InputError(
                f"{kind} draws while it learns; pass rng=np.random.default_rng(0)"
            )
        with self._lock:
            keys = self._as_keys(arms)
            values = as_vector(rewards, "rewards", len(keys))
            require_size(values, "rewards")
            if len(keys) == 0:
                return
            stated = as_noise(noise_variance, len(keys))
            noise = (
                np.full(len(keys), self.noise_variance) if stated is None else stated
            )
            self._take_in(keys, values, noise, rng)
            self._after_observing()

    @overload
    def predict(
        self, arms: Any, return_std: bool = True, return_cov: Literal[False] = False
    ) -> Prediction: ...
    @overload
    def predict(
        self, arms: Any, return_std: bool = True, *, return_cov: Literal[True]
    ) -> JointPrediction: ...
    @one_blas_thread
    @consistent_read
    def predict(
        self, arms: Any, return_std: bool = True, return_cov: bool = False
    ) -> Any:
        """Mean and standard deviation of the latent reward; mean and covariance on demand."""
        keys = self._remembered_keys(arms)
        if return_cov:
            return JointPrediction(self._mean(keys), self._covariance(keys))
        if not return_std:
            return Prediction(self._mean(keys), None)
        mean, variance = self._moments(keys)
        return Prediction(
            mean, standard_deviation(variance, lambda: self._prior_scale(keys))
        )

    @one_blas_thread
    @consistent_read
    def sample(self, arms: Any, rng: Rng, size: int = 1) -> Floats:
        """Joint draws of the latent reward, (size, m)."""
        keys = self._remembered_keys(arms)
        count, generator = as_draws(size, len(keys)), as_generator(rng)
        return self._mean(keys) + self._draw(keys, generator, count)

    @consistent_read
    def belief(
        self, offer: Offer, pending: NDArray[Any] | None = None
    ) -> GaussianBelief:
        """This posterior seen through the arms on offer; see :class:`~superarm.core.Posterior`."""
        keys = self.keys(offer)
        if pending is None or (is_listed(pending) and not len(pending)):
            return self._belief(keys)
        awaited, n = self._as_keys(pending), len(keys)
        if awaited.shape[1:] != keys.shape[1:]:
            told = f"pending has shape {awaited.shape}, but the keys of the arms on offer {keys.shape}"
            raise ShapeError(f"{told}; pass keys of this posterior")
        both = self._belief(np.concatenate([keys, awaited]))
        belief = GaussianBelief(self, both._keys, both.mean[:n], both.std[:n])
        return belief.condition(np.arange(n, len(both.mean)))

    @one_blas_thread
    def _belief(self, keys: NDArray[Any]) -> GaussianBelief:
        mean, variance = self._moments(keys)
        std = standard_deviation(variance, lambda: self._prior_scale(keys))
        return GaussianBelief(self, keys, mean, std)

    @property
    @one_blas_thread
    @consistent_read
    def incumbent(self) -> float:
        """Highest posterior mean among observed arms; 0 before any data."""
        return self._incumbent(1.0) if self.count else 0.0

    # --- state -----------------------------------------------------------------------------

    @consistent_read
    def state(self) -> State:
        """All that was learned, and what the posterior is made of."""
        memory = self._memory()
        count_text = {"count": self.count, "information_gain": self.information_gain}
        return State(
            kind=self.kind,
            schema=self.schema,
            scalars={**count_text, **memory.scalars},
            arrays={name: array.copy() for name, array in memory.arrays.items()},
            parts=memory.parts,
            spec=describe(self),
        )

    @classmethod
    def from_state(cls, state: State, **parts: Any) -> Self:
        """The posterior that ``state`` was taken from.

        ``parts`` (``kernel=…``, ``mean=…``) stand in for its own, or for those it cannot hold.
        """
        state = up_to_date(state, cls.kind, cls.schema, cls.__name__, "posterior")
        spec = {**(state.spec or {}), **parts}
        for key, value in spec.items():
            if any(foreign_parts(value)):
                told = (
                    f"the {key} is not a registered part, so the state cannot hold it"
                )
                raise StateError(f"{told}; pass it: from_state(…, {key}=…)")
        try:
            fresh = cls(**built_parameters(spec))
        except (SpecError, TypeError) as error:
            raise StateError(
                f"this {state.kind!r} state is damaged: {error}"
            ) from error
        return fresh._with_memory_of(state)

    def restored(self, state: State) -> Self:
        """A posterior like this one (kernel, prior mean, backend) with the memory of ``state``."""
        state = up_to_date(
            state, self.kind, self.schema, type(self).__name__, "posterior"
        )
        check_spec(state, self)
        return self._like()._with_memory_of(state)

    def _like(self, **changes: Any) -> Self:
        """A posterior of the same parameters, but for ``changes``, that has learned nothing."""
        return type(self)(**{**self.parameters(), **changes})

    def _with_memory_of(self, state: State) -> Self:
        count, gain = state.scalar("count"), state.scalar("information_gain")
        number = (
            isinstance(gain, float | int) and abs(gain) < 1e300
        )  # False for NaN, too
        if not isinstance(count, int) or count < 0 or not number:
            raise StateError(
                "this state is damaged: its count or its information gain is not a number"
            )
        self.count, self.information_gain = count, float(gain)
        try:
            self._remember(state)
        except InputError as error:
            raise StateError(
                f"this state is damaged, or belongs to other parts: {error}"
            ) from error
        return self


def _same(kept: NDArray[Any], keys: NDArray[Any]) -> bool:
    return kept is keys or (kept.shape == keys.shape and bool((kept == keys).all()))


def as_noise(variances: Any, count: int) -> Floats | None:
    """Noise variances that were stated, checked."""
    if variances is None:
        return None
    noise = as_vector(variances, "noise_variance", count)
    if not (noise > 0.0).all():
        where = int(np.argmin(noise > 0.0))
        raise InputError(
            f"noise_variance[{where}] is {noise[where]}; it must be above 0"
        )
    require_scale(noise, "noise_variance")
    return noise
