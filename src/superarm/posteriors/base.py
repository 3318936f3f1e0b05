"""What every Gaussian posterior shares: input checks, prediction, samples and beliefs.

A posterior supplies a few hooks (moments, covariance, joint draws, absorbing data); everything
that users and policies call is written here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Self, overload

import numpy as np
from numpy.typing import NDArray

from superarm.core import Arms, Floats, Ints, JointPrediction, Prediction, State
from superarm.errors import (
    InputError,
    ShapeError,
    SpecError,
    StaleBeliefError,
    StateError,
    UnknownArmError,
)
from superarm.inputs import (
    SMALLEST,
    as_count,
    as_generator,
    as_scale,
    as_vector,
    refuse_masked,
    require_scale,
    require_size,
)
from superarm.kernels import Covariance, Kernel
from superarm.linalg import cholesky, psd_root, solve_lower
from superarm.registry import build, spec_of

from .variances import check_left


class GaussianPosterior(ABC):
    """A Gaussian belief about every arm's latent reward, updated by noisy observations."""

    schema = 1
    exchangeable = True
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
        self.version = 0  # rises with every change: beliefs use it to notice that they are stale

    # --- hooks -----------------------------------------------------------------------------

    @abstractmethod
    def keys(self, arms: Arms) -> NDArray[Any]: ...

    @abstractmethod
    def _as_keys(self, arms: Any) -> NDArray[Any]:
        """Checked keys, or an error that says what is wrong."""

    @abstractmethod
    def _moments(self, keys: NDArray[Any]) -> tuple[Floats, Floats]:
        """Mean and variance, both (m,), new arrays; the variance may be a hair below 0."""

    @abstractmethod
    def _covariance(self, keys: NDArray[Any]) -> Floats: ...

    @abstractmethod
    def _absorb(self, keys: NDArray[Any], rewards: Floats, noise: Floats) -> float:
        """Take checked data in, all or nothing; returns the information gained."""

    def _after_observing(self) -> None:  # noqa: B027 (most have nothing to do)
        """Called when an observation is in and counted: a place to tidy up."""

    @abstractmethod
    def _incumbent(self, sign: float) -> float:
        """Highest posterior mean of ``sign`` × reward among observed arms, of which there are some."""

    @abstractmethod
    def _prior_scale(self, keys: NDArray[Any]) -> float:
        """Largest prior variance: what rounding in a posterior covariance is relative to."""

    @abstractmethod
    def state(self) -> State: ...

    @abstractmethod
    def restored(self, state: State) -> Self:
        """A posterior like this one (kernel, prior mean, backend) with the memory of ``state``."""

    def _draw(self, keys: NDArray[Any], rng: np.random.Generator, size: int) -> Floats:
        """Joint draws about zero, (size, m)."""
        scale = self._prior_scale(keys)
        root = psd_root(self._covariance(keys), "the posterior covariance", scale=scale).root
        return rng.standard_normal((size, root.shape[1])) @ root.T

    # --- what users call -------------------------------------------------------------------

    def observe(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        """Learn from rewards (m,) of arms (m rows or row numbers).

        ``noise_variance`` overrides the model's own, one number per observation. After an
        error the posterior is what it was before.
        """
        keys = self._as_keys(arms)
        values = as_vector(rewards, "rewards", len(keys))
        require_size(values, "rewards")
        if len(keys) == 0:
            return
        if noise_variance is None:
            noise = np.full(len(keys), self.noise_variance)
        else:
            noise = as_vector(noise_variance, "noise_variance", len(keys))
            if not (noise > 0.0).all():
                where = int(np.argmin(noise > 0.0))
                raise InputError(f"noise_variance[{where}] is {noise[where]}; it must be above 0")
            require_scale(noise, "noise_variance")
        self.information_gain += self._absorb(keys, values, noise)
        self.count += len(keys)
        self.version += 1
        self._after_observing()

    @overload
    def predict(
        self, arms: Any, return_std: bool = True, return_cov: Literal[False] = False
    ) -> Prediction: ...
    @overload
    def predict(
        self, arms: Any, return_std: bool = True, *, return_cov: Literal[True]
    ) -> JointPrediction: ...
    def predict(
        self, arms: Any, return_std: bool = True, return_cov: bool = False
    ) -> Prediction | JointPrediction:
        """Mean and standard deviation of the latent reward; mean and covariance on demand."""
        keys = self._as_keys(arms)
        mean, variance = self._moments(keys)
        if return_cov:
            return JointPrediction(mean, self._covariance(keys))
        if not return_std:
            return Prediction(mean, None)
        return Prediction(mean, standard_deviation(variance, lambda: self._prior_scale(keys)))

    def sample(self, arms: Any, rng: np.random.Generator, size: int = 1) -> Floats:
        """Joint draws of the latent reward, (size, m)."""
        keys = self._as_keys(arms)
        count, generator = as_count(size, "size"), as_generator(rng)
        mean, _ = self._moments(keys)
        return mean + self._draw(keys, generator, count)

    def belief(self, arms: Arms) -> GaussianBelief:
        """This posterior as seen through the arms on offer."""
        keys = self.keys(arms)
        mean, variance = self._moments(keys)
        std = standard_deviation(variance, lambda: self._prior_scale(keys))
        return GaussianBelief(self, keys, mean, std)

    @property
    def incumbent(self) -> float:
        """Highest posterior mean among observed arms; 0 before any data."""
        return self._incumbent(1.0) if self.count else 0.0

    # --- state -----------------------------------------------------------------------------

    @classmethod
    def _check_state(cls, state: State, kind: str) -> None:
        if state.kind != kind or state.schema != cls.schema:
            raise StateError(
                f"this is a {state.kind!r} state of schema {state.schema}; "
                f"{cls.__name__} reads {kind!r} of schema {cls.schema}"
            )

    def _restore_counts(self, state: State) -> Self:
        count, gain = state.scalar("count"), state.scalar("information_gain")
        number = isinstance(gain, float | int) and abs(gain) < 1e300  # False for NaN, too
        if not isinstance(count, int) or count < 0 or not number:
            raise StateError("this state is damaged: its count or its information gain is none")
        self.count, self.information_gain = count, float(gain)
        return self


def as_rows(arms: Any, n: int) -> Ints:
    """``arms`` as row numbers below ``n``, or an error that says what is wrong."""
    refuse_masked(arms, "arms")
    try:
        rows = np.asarray(arms)
    except ValueError:
        raise ShapeError("arms must be a list of row numbers, not lists of different lengths") from None
    if rows.ndim != 1:
        raise ShapeError(f"arms has shape {rows.shape}; it must be a list of row numbers")
    if len(rows) == 0:
        return rows.astype(np.intp)
    if rows.dtype.kind not in "iu":
        raise UnknownArmError(f"arms must be integer row numbers below {n}, not {rows.dtype} values")
    if rows.min() < 0 or rows.max() >= n:
        bad = rows[(rows < 0) | (rows >= n)][0]
        raise UnknownArmError(f"there is no arm {bad}: row numbers run from 0 to {n - 1}")
    return rows.astype(np.intp, copy=False)


class KnownOffer(NamedTuple):
    """An offer's arms, found among fixed ones."""

    arms: Arms
    keys: Ints
    whole: bool  # every arm, in the order of the set


class FixedArms:
    """A fixed arm set, recognised in offers whatever ids the user gives its arms.

    The whole set in its own order is taken as it is. Otherwise ids that are row numbers with the
    right features are; otherwise arms are found by their features, the first of equals.
    """

    def __init__(self, features: Floats) -> None:
        self.features = features
        self.everything: Ints = np.arange(len(features))
        self._rows: dict[bytes, int] | None = None
        self._last: KnownOffer | None = None  # most problems offer the same object every round

    def locate(self, arms: Arms) -> KnownOffer:
        """Row numbers of the offered arms."""
        if self._last is not None and self._last.arms is arms:
            return self._last
        whole = np.array_equal(arms.features, self.features)
        keys = self.everything if whole else self._find(arms)
        keys.flags.writeable = False  # kept for later rounds
        self._last = KnownOffer(arms, keys, whole)
        return self._last

    def _find(self, arms: Arms) -> Ints:
        n = len(self.features)
        if all(type(arm) is int and 0 <= arm < n for arm in arms.ids):
            numbered = np.array(arms.ids, dtype=np.intp)
            if np.array_equal(self.features[numbered], arms.features):
                return numbered
        if self._rows is None:
            self._rows = {}
            for row, features in enumerate(self.features + 0.0):  # −0.0 becomes 0.0
                self._rows.setdefault(features.tobytes(), row)
        found = [self._rows.get(features.tobytes(), -1) for features in arms.features + 0.0]
        if -1 in found:
            unknown = arms.ids[found.index(-1)]
            raise UnknownArmError(
                f"arm {unknown!r} is not in the fixed arm set of {n} arms this posterior was made for: "
                "none of them has its features"
            )
        return np.array(found, dtype=np.intp)


def as_weights(values: Any, n: int) -> Floats:
    """Σ 1/noise of every arm from a state: 0, or as large as noise lets it be."""
    weight = as_vector(values, "weight", n)
    bad = (weight != 0.0) & (weight < SMALLEST)
    if bad.any():
        raise StateError(
            f"this state is damaged: it holds the weight {weight[bad][0]:g}, which no noise gives"
        )
    return weight


def per_arm(values: Any, name: str, n: int) -> Floats:
    """One number for all arms, or one for each, as a new vector."""
    spread = np.broadcast_to(values, n, subok=True) if np.ndim(values) == 0 else values
    vector = as_vector(spread, name, n).copy()
    require_size(vector, name)
    return vector


def kernel_spec(kernel: Covariance) -> dict[str, Any] | None:
    """The kernel as JSON; ``None`` where it is not all superarm's own."""
    try:
        return spec_of(kernel) if isinstance(kernel, Kernel) else None
    except SpecError:  # a kernel of another library somewhere inside
        return None


def kernel_from(state: State, kernel: Covariance | None) -> Covariance:
    """The kernel given, or else the one the state describes."""
    if kernel is not None:
        return kernel
    if state.scalar("kernel") is None:
        raise StateError("the kernel is not one of superarm's own; pass it: from_state(…, kernel=…)")
    built: Covariance = build("kernel", state.scalar("kernel"))
    return built


def standard_deviation(variance: Floats, scale: Callable[[], float]) -> Floats:
    """√variance in place, with rounding below zero cut off; ``scale``: the largest prior variance."""
    if len(variance) and not variance.min() >= 0.0:
        check_left(variance, scale())
    np.maximum(variance, 0.0, out=variance)
    return np.sqrt(variance, out=variance)


class GaussianBelief:
    """Mean and std of the arms on offer now; covariance and joint draws when asked for."""

    __slots__ = ("_cov", "_keys", "_posterior", "_sign", "_version", "mean", "std")

    def __init__(
        self,
        posterior: GaussianPosterior,
        keys: NDArray[Any],
        mean: Floats,
        std: Floats,
        sign: float = 1.0,
        version: int | None = None,
    ) -> None:
        self._posterior = posterior
        self._keys = keys
        self._version = posterior.version if version is None else version
        self._sign = sign
        self._cov: Floats | None = None
        self.mean = mean
        self.std = std

    def _fresh(self) -> GaussianPosterior:
        if self._posterior.version != self._version:
            raise StaleBeliefError(
                "the posterior has observed more data since this belief was made; "
                "ask it for a new belief"
            )
        return self._posterior

    @property
    def noise_std(self) -> float:
        return self._posterior.noise_std

    @property
    def information_gain(self) -> float:
        return self._fresh().information_gain

    @property
    def incumbent(self) -> float:
        return self._best_mean(1.0)

    def _best_mean(self, sign: float) -> float:
        posterior = self._fresh()
        return posterior._incumbent(sign * self._sign) if posterior.count else 0.0

    @property
    def cov(self) -> Floats:
        if self._cov is None:
            self._cov = self._fresh()._covariance(self._keys)
            self._cov.flags.writeable = False  # kept, so that it must not change
        return self._cov

    def sample(self, rng: np.random.Generator) -> Floats:
        drawn: Floats = self._fresh()._draw(self._keys, as_generator(rng), 1)[0]
        return self.mean + drawn

    def condition(self, positions: Ints) -> DenseBelief:
        return DenseBelief(
            self.mean,
            self.cov,
            noise_std=self.noise_std,
            information_gain=self.information_gain,
            best_mean=self._best_mean,
            scale=self._fresh()._prior_scale(self._keys),
        ).condition(positions)

    def negated(self) -> GaussianBelief:
        return GaussianBelief(
            self._posterior, self._keys, -self.mean, self.std, -self._sign, self._version
        )


class DenseBelief:
    """A belief that holds its whole covariance: what ``condition`` returns.

    ``best_mean(sign)`` is the highest mean of sign × reward among observed arms, asked for only
    when it is needed; ``scale`` is the prior variance that rounding in ``cov`` is relative to.
    """

    __slots__ = ("_best_mean", "_scale", "_sign", "cov", "information_gain", "mean", "noise_std", "std")

    def __init__(
        self,
        mean: Floats,
        cov: Floats,
        *,
        noise_std: float,
        information_gain: float,
        best_mean: Callable[[float], float],
        scale: float,
        sign: float = 1.0,
    ) -> None:
        self.mean = mean
        self.cov = cov
        self.std = standard_deviation(np.diagonal(cov).copy(), lambda: scale)
        self.noise_std = noise_std
        self.information_gain = information_gain
        self._best_mean = best_mean
        self._scale = scale
        self._sign = sign

    @property
    def incumbent(self) -> float:
        return self._best_mean(self._sign)

    def sample(self, rng: np.random.Generator) -> Floats:
        root = psd_root(self.cov, "the belief's covariance", scale=self._scale).root
        return self.mean + root @ as_generator(rng).standard_normal(root.shape[1])

    def condition(self, positions: Ints) -> DenseBelief:
        """Variance once these arms will have been observed; their rewards are not known yet."""
        cross = self.cov[positions]  # (k, n)
        observed = cross[:, positions] + self.noise_std**2 * np.eye(len(positions))
        solved = solve_lower(cholesky(observed, "the covariance of the chosen arms"), cross)
        return self._with(self.mean, self.cov - solved.T @ solved, self._sign)

    def negated(self) -> DenseBelief:
        return self._with(-self.mean, self.cov, -self._sign)

    def _with(self, mean: Floats, cov: Floats, sign: float) -> DenseBelief:
        return DenseBelief(
            mean,
            cov,
            noise_std=self.noise_std,
            information_gain=self.information_gain,
            best_mean=self._best_mean,
            scale=self._scale,
            sign=sign,
        )
