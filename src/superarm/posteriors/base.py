"""What every Gaussian posterior shares: input checks, prediction, samples and beliefs.

A posterior supplies a few hooks (moments, covariance, joint draws, absorbing data); everything
that users and policies call is written here once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Arms, Floats, Ints, JointPrediction, Prediction, State, as_positive, as_vector
from superarm.errors import InputError, ShapeError, StaleBeliefError, StateError, UnknownArmError
from superarm.kernels import Covariance, Kernel
from superarm.linalg import cholesky, psd_root, solve_lower
from superarm.registry import build, spec_of


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
        self.noise_variance = as_positive(noise_variance, "noise_variance")
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

    @abstractmethod
    def _incumbent(self) -> float:
        """Highest posterior mean among observed arms; only called when there are some."""

    @abstractmethod
    def state(self) -> State: ...

    def _draw(self, keys: NDArray[Any], rng: np.random.Generator, size: int) -> Floats:
        """Joint draws about zero, (size, m)."""
        root = psd_root(self._covariance(keys), "the posterior covariance").root
        return rng.standard_normal((size, root.shape[1])) @ root.T

    # --- what users call -------------------------------------------------------------------

    def observe(self, arms: Any, rewards: Any, noise_variance: Any = None) -> None:
        """Learn from rewards (m,) of arms (m rows or row numbers).

        ``noise_variance`` overrides the model's own, one number per observation. After an
        error the posterior is what it was before.
        """
        keys = self._as_keys(arms)
        values = as_vector(rewards, "rewards", len(keys))
        if len(keys) == 0:
            return
        if noise_variance is None:
            noise = np.full(len(keys), self.noise_variance)
        else:
            noise = as_vector(noise_variance, "noise_variance", len(keys))
            if not (noise > 0.0).all():
                where = int(np.argmin(noise > 0.0))
                raise InputError(f"noise_variance[{where}] is {noise[where]}; it must be above 0")
        self.information_gain += self._absorb(keys, values, noise)
        self.count += len(keys)
        self.version += 1

    def predict(
        self, arms: Any, return_std: bool = True, return_cov: bool = False
    ) -> Prediction | JointPrediction:
        """Mean and standard deviation of the latent reward; mean and covariance on demand."""
        keys = self._as_keys(arms)
        mean, variance = self._moments(keys)
        if return_cov:
            return JointPrediction(mean, self._covariance(keys))
        return Prediction(mean, standard_deviation(variance) if return_std else None)

    def sample(self, arms: Any, rng: np.random.Generator, size: int = 1) -> Floats:
        """Joint draws of the latent reward, (size, m)."""
        keys = self._as_keys(arms)
        if size < 1:
            raise InputError(f"size is {size}; draw at least one sample")
        mean, _ = self._moments(keys)
        return mean + self._draw(keys, rng, size)

    def belief(self, arms: Arms) -> GaussianBelief:
        """This posterior as seen through the arms on offer."""
        keys = self.keys(arms)
        mean, variance = self._moments(keys)
        return GaussianBelief(self, keys, mean, standard_deviation(variance))

    @property
    def incumbent(self) -> float:
        """Highest posterior mean among observed arms; 0 before any data."""
        return self._incumbent() if self.count else 0.0

    # --- state -----------------------------------------------------------------------------

    @classmethod
    def _check_state(cls, state: State, kind: str) -> None:
        if state.kind != kind or state.schema != cls.schema:
            raise StateError(
                f"this is a {state.kind!r} state of schema {state.schema}; "
                f"{cls.__name__} reads {kind!r} of schema {cls.schema}"
            )

    def _restore_counts(self, state: State) -> Self:
        self.count = int(state.scalars["count"])
        self.information_gain = float(state.scalars["information_gain"])
        return self


def as_rows(arms: Any, n: int) -> Ints:
    """``arms`` as row numbers below ``n``, or an error that says what is wrong."""
    rows = np.asarray(arms)
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


def per_arm(values: Any, name: str, n: int) -> Floats:
    """One number for all arms, or one for each, as a new vector."""
    spread = np.broadcast_to(values, n) if np.ndim(values) == 0 else values
    return as_vector(spread, name, n).copy()


def kernel_spec(kernel: Covariance) -> dict[str, Any] | None:
    """The kernel as JSON; ``None`` for a kernel that is not superarm's own."""
    return spec_of(kernel) if isinstance(kernel, Kernel) else None


def kernel_from(state: State, kernel: Covariance | None) -> Covariance:
    """The kernel given, or else the one the state describes."""
    if kernel is not None:
        return kernel
    if state.scalars["kernel"] is None:
        raise StateError("the kernel is not one of superarm's own; pass it: from_state(…, kernel=…)")
    built: Covariance = build("kernel", state.scalars["kernel"])
    return built


def standard_deviation(variance: Floats) -> Floats:
    """√variance in place, with rounding below zero cut off."""
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
    ) -> None:
        self._posterior = posterior
        self._keys = keys
        self._version = posterior.version
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
        posterior = self._fresh()
        if self._sign < 0.0:
            # The best of minus the reward is the lowest mean among observed arms, which
            # posteriors do not track: the offered arms' own minimum would be another thing.
            raise InputError(
                "an incumbent is defined for direction 'maximize' only; "
                "negate the rewards to use EI or PI on costs"
            )
        return posterior.incumbent

    @property
    def cov(self) -> Floats:
        if self._cov is None:
            self._cov = self._fresh()._covariance(self._keys)
        return self._cov

    def sample(self, rng: np.random.Generator) -> Floats:
        drawn: Floats = self._fresh()._draw(self._keys, rng, 1)[0]
        return self.mean + drawn

    def condition(self, positions: Ints) -> DenseBelief:
        return DenseBelief(
            self.mean, self.cov, self.noise_std, self.information_gain, self._posterior.incumbent
        ).condition(positions)

    def negated(self) -> GaussianBelief:
        return GaussianBelief(self._posterior, self._keys, -self.mean, self.std, -self._sign)


class DenseBelief:
    """A belief that holds its whole covariance: what ``condition`` returns."""

    __slots__ = ("cov", "incumbent", "information_gain", "mean", "noise_std", "std")

    def __init__(
        self, mean: Floats, cov: Floats, noise_std: float, information_gain: float, incumbent: float
    ) -> None:
        self.mean = mean
        self.cov = cov
        self.std = standard_deviation(np.diagonal(cov).copy())
        self.noise_std = noise_std
        self.information_gain = information_gain
        self.incumbent = incumbent

    def sample(self, rng: np.random.Generator) -> Floats:
        root = psd_root(self.cov, "the belief's covariance").root
        return self.mean + root @ rng.standard_normal(root.shape[1])

    def condition(self, positions: Ints) -> DenseBelief:
        """Variance once these arms will have been observed; their rewards are not known yet."""
        cross = self.cov[positions]  # (k, n)
        observed = cross[:, positions] + self.noise_std**2 * np.eye(len(positions))
        solved = solve_lower(cholesky(observed, "the covariance of the chosen arms"), cross)
        return DenseBelief(
            self.mean,
            self.cov - solved.T @ solved,
            self.noise_std,
            self.information_gain,
            self.incumbent,
        )

    def negated(self) -> DenseBelief:
        return DenseBelief(-self.mean, self.cov, self.noise_std, self.information_gain, -self.incumbent)
