"""The base class of all Gaussian posteriors: input checks, prediction, samples, beliefs, states.

A posterior implements a few hooks: moments, covariance, joint draws, learning and its saved
state. Everything that users and policies call is implemented here once.
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
    """What a posterior has learned, in the form of a saved state.

    Args:
        arrays: Arrays by name; :meth:`GaussianPosterior.state` copies them.
        scalars: Numbers and words by name.
        parts: States of posteriors or engines inside, by name.
    """

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, Any] = {}
    parts: Mapping[str, State] = {}


class CachedAnswer(NamedTuple):
    """The last answer to one kind of question, with the arms it is about."""

    written: int  # the lock's write count at that time: another one means stale
    keys: NDArray[Any]
    answer: Any


class GaussianPosterior(ThreadSafe, HasParameters):
    """A Gaussian belief about every arm's latent reward, updated by noisy observations.

    Args:
        noise_variance: Variance of the noise of one observation.
    """

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
        # Rises with every change: beliefs compare it to notice that they are stale.
        self.version = 0
        self._lock = ReadWriteLock()
        self._cache: dict[str, CachedAnswer] = {}

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
    def keys(self, offer: Offer) -> NDArray[Any]:
        """This posterior's keys of the arms on offer: feature rows (m, d) or row numbers (m,).

        Args:
            offer: The arms on offer, with the step and perhaps the time.
        """

    @abstractmethod
    def _as_keys(self, arms: Any) -> NDArray[Any]:
        """Validate the user's arms and return them as keys."""

    def _remembered_keys(self, arms: Any) -> NDArray[Any]:
        """Validate arms that the posterior can still predict and return them as keys.

        A belief may be conditioned on further keys: pending arms that are too old to predict.
        """
        return self._as_keys(arms)

    @abstractmethod
    def _moments(self, keys: NDArray[Any]) -> tuple[Floats, Floats]:
        """Mean and variance, both (m,), new arrays; rounding may leave a variance below 0."""

    def _mean(self, keys: NDArray[Any]) -> Floats:
        """The mean only, (m,), a new array; override it where variances cost more."""
        mean, _ = self._moments(keys)
        return mean

    @abstractmethod
    def _covariance(self, keys: NDArray[Any], positions: Ints | None = None) -> Floats:
        """Covariance of the keys at these positions (default: all) with all keys, (k, m), a new array.

        Compute the k rows without the full (m, m) matrix if you can.
        """

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        """Learn from validated data, all or nothing; return the information gained, nats.

        ``rng`` is a generator where the posterior ``draws``; others ignore it.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must override _absorb or _take_in"
        )

    def _take_in(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> None:
        """Learn from validated data and count them; override it to commit both in one step."""
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
        """Set the attributes that ``count`` observations changed, and count them.

        ``last`` may change an array in place just before. Everything happens in one call of
        compiled code, during which Python handles no interrupt.
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

        Learns nothing. Callers that observe later use it to refuse rewards as they arrive.

        Args:
            arms: Feature rows (m, d) or row numbers (m,), as for :meth:`observe`.
            rewards: Rewards, (m,).
            noise_variance: Noise variances of single observations, (m,); default: the model's.
        """

    def _after_observing(self) -> None:
        """Called after an observation was learned and counted; override it to tidy up."""

    @abstractmethod
    def _incumbent(self, sign: float) -> float:
        """Highest posterior mean of ``sign`` × reward among the observed arms, at least one."""

    @abstractmethod
    def _prior_scale(self, keys: NDArray[Any]) -> float:
        """Largest prior variance, the scale of rounding errors in a posterior covariance."""

    @abstractmethod
    def _memory(self) -> Memory:
        """What was learned, without the count and the information gain."""

    @abstractmethod
    def _remember(self, state: State) -> None:
        """Restore what :meth:`_memory` returned; only ``count`` and the information gain are set."""

    def _cached(
        self,
        question: str,
        keys: NDArray[Any],
        answer: Callable[[NDArray[Any]], Answer],
    ) -> Answer:
        """Compute ``answer(keys)``, cached until other keys are asked about or data are written.

        Args:
            question: The cache's key; each question caches one answer.
            keys: The keys that the answer is about.
            answer: Computes the answer.
        """
        cached = self._cache.get(question)
        written = self._lock.written
        if (
            cached is None
            or cached.written != written
            or not _equal_keys(cached.keys, keys)
        ):
            # The caller may write into its array later; a read-only owner of its data is safe.
            constant = keys.base is None and not keys.flags.writeable
            cached_keys = keys if constant else keys.copy()
            cached = CachedAnswer(written, cached_keys, answer(keys))
            # A new dictionary, because another thread may be copying the old one.
            self._cache = {**self._cache, question: cached}
        cached_answer: Answer = cached.answer
        return cached_answer

    def _root(self, keys: NDArray[Any]) -> Floats:
        """A root of the covariance, (m, r)."""
        covariance = self._covariance(keys)
        scale = self._prior_scale(keys)
        decomposition = psd_root(
            covariance, "the posterior covariance", scale=scale, steady=True
        )
        return decomposition.root

    def _draw(self, keys: NDArray[Any], rng: Rng, size: int) -> Floats:
        """Joint draws with mean zero, (size, m)."""
        root = self._root(keys)
        arm_count, rank = root.shape
        # Draw one normal per arm even if the rank is lower: on another machine rounding may
        # cut the rank elsewhere, and the generator must advance equally far.
        normals = rng.standard_normal((size, arm_count))
        return normals[:, :rank] @ root.T

    # --- what users call -------------------------------------------------------------------

    @one_blas_thread
    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn from the rewards of arms. After an error the posterior is unchanged.

        Args:
            arms: Feature rows (m, d) or row numbers (m,).
            rewards: Rewards, (m,).
            noise_variance: Noise variances of single observations, (m,); default: the model's.
            rng: A random generator, for posteriors that draw while they learn.
        """
        if self.draws and not isinstance(rng, Rng):
            name = type(self).__name__
            raise InputError(
                f"{name} draws while it learns; pass rng=np.random.default_rng(0)"
            )
        with self._lock:
            keys = self._as_keys(arms)
            values = as_vector(rewards, "rewards", len(keys))
            require_size(values, "rewards")
            if len(keys) == 0:
                return
            noise = as_noise(noise_variance, len(keys))
            if noise is None:
                noise = np.empty(len(keys))
                noise.fill(self.noise_variance)  # in half the time of ``np.full``
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
        """Predict the latent reward: mean and standard deviation, or mean and covariance.

        Args:
            arms: Feature rows (m, d) or row numbers (m,).
            return_std: Whether to compute standard deviations; without them ``std`` is ``None``.
            return_cov: Whether to return the joint covariance (m, m) instead of them.
        """
        keys = self._remembered_keys(arms)
        if return_cov:
            return JointPrediction(self._mean(keys), self._covariance(keys))
        if not return_std:
            return Prediction(self._mean(keys), None)
        mean, variance = self._moments(keys)
        std = standard_deviation(variance, lambda: self._prior_scale(keys))
        return Prediction(mean, std)

    @one_blas_thread
    @consistent_read
    def sample(self, arms: Any, rng: Rng, size: int = 1) -> Floats:
        """Joint draws of the latent reward, (size, m).

        Args:
            arms: Feature rows (m, d) or row numbers (m,).
            rng: A random generator.
            size: How many draws.
        """
        keys = self._remembered_keys(arms)
        draw_count = as_draws(size, len(keys))
        generator = as_generator(rng)
        mean = self._mean(keys)
        return mean + self._draw(keys, generator, draw_count)

    @consistent_read
    def belief(
        self, offer: Offer, pending: NDArray[Any] | None = None
    ) -> GaussianBelief:
        """The belief about the arms on offer; see :class:`~superarm.core.Posterior`.

        Args:
            offer: The arms on offer.
            pending: Keys of chosen arms without feedback yet: the belief's variances are those
                after they are observed.
        """
        keys = self.keys(offer)
        if is_empty(pending):
            return self._belief(keys)
        pending_keys = self._as_keys(pending)
        if pending_keys.shape[1:] != keys.shape[1:]:
            raise ShapeError(
                f"pending has shape {pending_keys.shape}, but the keys of the arms on offer "
                f"{keys.shape}; pass keys of this posterior"
            )
        n = len(keys)
        joint_keys = np.concatenate([keys, pending_keys])
        joint = self._belief(joint_keys)
        belief = GaussianBelief(self, joint._keys, joint.mean[:n], joint.std[:n])
        pending_positions = np.arange(n, len(joint.mean))
        return belief.condition(pending_positions)

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
        """Everything learned, with the spec of the posterior, as a state to save."""
        memory = self._memory()
        totals = {"count": self.count, "information_gain": self.information_gain}
        return State(
            kind=self.kind,
            schema=self.schema,
            scalars={**totals, **memory.scalars},
            arrays={name: array.copy() for name, array in memory.arrays.items()},
            parts=memory.parts,
            spec=describe(self),
        )

    @classmethod
    def from_state(cls, state: State, **parts: Any) -> Self:
        """The posterior that ``state`` was taken from.

        Args:
            state: A state of this kind of posterior.
            parts: Parameters (``kernel=…``, ``mean=…``) that replace those of the state; required
                for parts that are not registered, because a state cannot contain them.
        """
        state = up_to_date(state, cls.kind, cls.schema, cls.__name__, "posterior")
        spec = {**(state.spec or {}), **parts}
        for key, value in spec.items():
            if any(foreign_parts(value)):
                raise StateError(
                    f"the {key} is not a registered part, so the state cannot hold it; "
                    f"pass it: from_state(…, {key}=…)"
                )
        try:
            posterior = cls(**built_parameters(spec))
        except (SpecError, TypeError) as error:
            raise StateError(
                f"this {state.kind!r} state is damaged: {error}"
            ) from error
        return posterior._with_state(state)

    def restored(self, state: State) -> Self:
        """A posterior with this one's parameters and what ``state`` has learned.

        Args:
            state: A state of a posterior with the same parameters.
        """
        state = up_to_date(
            state, self.kind, self.schema, type(self).__name__, "posterior"
        )
        check_spec(state, self)
        return self._clone()._with_state(state)

    def _clone(self, **changes: Any) -> Self:
        """A posterior with the same parameters, except ``changes``, and no data."""
        return type(self)(**{**self.parameters(), **changes})

    def _with_state(self, state: State) -> Self:
        """Load what ``state`` has learned into this posterior without data, and return it."""
        count = state.scalar("count")
        gain = state.scalar("information_gain")
        # The comparison is False for NaN, too.
        gain_is_number = isinstance(gain, float | int) and abs(gain) < 1e300
        if not isinstance(count, int) or count < 0 or not gain_is_number:
            raise StateError(
                "this state is damaged: its count or its information gain is not a number"
            )
        self.count = count
        self.information_gain = float(gain)
        try:
            self._remember(state)
        except InputError as error:
            raise StateError(
                f"this state is damaged, or belongs to other parts: {error}"
            ) from error
        return self


def _equal_keys(cached: NDArray[Any], keys: NDArray[Any]) -> bool:
    if cached is keys:
        return True
    if cached.shape != keys.shape:
        return False
    return bool((cached == keys).all())


def is_empty(pending: NDArray[Any] | None) -> bool:
    """Whether no pending arms were passed."""
    return pending is None or (is_listed(pending) and not len(pending))


def as_noise(variances: Any, count: int) -> Floats | None:
    """Validate the noise variances of single observations, (count,); ``None`` stays ``None``."""
    if variances is None:
        return None
    noise = as_vector(variances, "noise_variance", count)
    positive = noise > 0.0
    if not positive.all():
        where = int(np.argmin(positive))
        raise InputError(
            f"noise_variance[{where}] must be positive, got {noise[where]}"
        )
    require_scale(noise, "noise_variance")
    return noise
