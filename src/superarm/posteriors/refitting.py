"""A posterior that refits its hyper-parameters as observations come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Rng, State
from superarm.core.errors import (
    InputError,
    NotPositiveDefiniteError,
    PrecisionWarning,
    warn,
)
from superarm.core.inputs import as_count, as_flag, as_scale
from superarm.core.registry import register
from superarm.kernels import Columns, Linear, Product
from superarm.kernels.base import TunableCovariance

from .base import GaussianPosterior, Memory
from .fitting import FitResult, fit_kernel
from .observations import Observations
from .wrapping import Wrapping

# The fitted noise variance stays within this factor of its first value, up or down.
_NOISE_FACTOR = 1e4
# Parameters of a posterior whose hyper-parameters are fitted.
_TUNABLE_PARAMETERS = ("kernel", "drift")


class _Refit(NamedTuple):
    """A posterior after a fit."""

    posterior: GaussianPosterior
    theta: Floats


@register("posterior", "refitting")
class Refitting(Wrapping):
    """Any posterior with a kernel, refitted after a fixed number of observations.

    A fit covers the free hyper-parameters of the kernel and of ``drift`` and, with ``fit_noise``, the
    noise variance. They maximise the marginal likelihood of the last ``most`` observations; the
    search starts from the current values, without restarts. A new posterior inside then learns these
    observations, and older ones are forgotten. Noise variances of single observations keep their ratio
    to the model's, which stays within a factor of 10⁴ of its first value. ``fitted`` contains the
    current values, ``fits`` counts the fits. Order matters: a policy refuses feedback of a decision
    before the last one it learned from.

    A fit of n observations ends with the step in which it reaches ``work`` / n likelihoods. With four
    hyper-parameters this takes about 120 ms for 200 observations and 750 ms for 500, on one core. The
    limit is on work, not on time, so that a run gives the same numbers everywhere.

    Args:
        posterior: The posterior inside; it must be possible to fit its kernel, as with superarm's own.
        every: Number of observations between two fits.
        most: Number of the latest observations to store and to fit.
        work: Most work of one fit: the number of likelihoods times that of observations.
        fit_noise: Whether to fit the noise variance as well.

    >>> from superarm.kernels import SquaredExponential
    >>> from superarm.posteriors import StreamingGP
    >>> gp = Refitting(StreamingGP(SquaredExponential(lengthscale=1.0), 0.01), every=20)
    >>> x = np.linspace(0.0, 3.0, 20)[:, None]
    >>> gp.observe(x, np.sin(6.0 * x[:, 0]))
    >>> bool(gp.fitted["kernel"].lengthscale < 0.5), gp.fits
    (True, 1)
    """

    kind = "refitting"

    def __init__(
        self,
        posterior: GaussianPosterior,
        *,
        every: int = 50,
        most: int = 500,
        work: int = 10_000,
        fit_noise: bool = True,
    ) -> None:
        super().__init__(posterior)
        self.exchangeable = False
        self.every = as_count(every, "every")
        self.most = as_count(most, "most", 2)
        self.work = as_count(work, "work", self.most)
        self.fit_noise = as_flag(fit_noise, "fit_noise")
        parameters = posterior.parameters()
        self._arms: Floats | None = parameters.get("arms")
        self._tuned: dict[str, Any] = {}
        for name in _TUNABLE_PARAMETERS:
            if name in parameters:
                self._tuned[name] = parameters[name]
        parts = self._tuned.values()
        are_tunable = all(isinstance(part, TunableCovariance) for part in parts)
        if not parts or not are_tunable:
            raise InputError(
                f"{type(posterior).__name__} has no kernel that can be fitted; wrap a posterior that "
                "has one, such as FiniteGP or StreamingGP with a superarm kernel, and put other "
                "wrappers around Refitting"
            )
        self._size = sum(len(part.theta) for part in parts)
        if not (self.fit_noise or self._size):
            raise InputError(
                "there is nothing to fit: all hyper-parameters are fixed; give one bounds, such as "
                "lengthscale_bounds=(0.01, 10.0), or let the noise be fitted: fit_noise=True"
            )
        self.fits = 0
        self._theta = np.empty(0)  # of the last fit: the kernel's, then the drift's
        # The observations to fit; their noise is relative to the model's.
        self._recent: Observations | None = None

    @property
    def fitted(self) -> Mapping[str, Any]:
        """The current kernel, drift and noise variance, by the names of the posterior's parameters."""
        parameters = self._inside.parameters()
        return {name: parameters[name] for name in (*self._tuned, "noise_variance")}

    def _with_hyperparameters(
        self, theta: Floats, noise_variance: float
    ) -> GaussianPosterior:
        """The posterior inside with these hyper-parameters, before any data."""
        changes = {}
        begin = 0
        for name, part in self._tuned.items():
            end = begin + len(part.theta)
            changes[name] = part
            if end > begin:
                changes[name] = part.clone_with_theta(theta[begin:end])
            begin = end
        return self.posterior._clone(**changes, noise_variance=noise_variance)

    def _feature_rows(self, keys: NDArray[Any]) -> Floats:
        """Features of the observed arms, (N, d), with the time as last column if there is one."""
        if self._arms is None:
            return keys
        key_rows = keys.reshape(len(keys), -1)  # a row number, and perhaps a time
        row_numbers = key_rows[:, 0].astype(np.intp)
        times = key_rows[:, 1:]  # no column, or one
        features = self._arms[row_numbers]
        return np.column_stack([features, times])

    def _fit(self, observations: Observations) -> FitResult:
        """Fit the hyper-parameters, starting from the current ones."""
        rows = self._feature_rows(observations.arms)
        factors = self._current_kernels(rows)
        # Rewards times w = 1/√noise have equal noise and the covariance k(x, y) w(x) w(y).
        weight = 1.0 / np.sqrt(observations.noise)
        if (weight != 1.0).any():
            weight_column = rows.shape[1]
            rows = np.column_stack([rows, weight])
            factors.append(Linear(variance_bounds="fixed", columns=(weight_column,)))
        kernel = factors[0] if len(factors) == 1 else Product(kernels=tuple(factors))
        prior_mean, _ = self.posterior._moments(observations.arms)
        residual = observations.rewards - prior_mean
        noise = self.posterior.noise_variance
        lower_noise = noise / _NOISE_FACTOR
        upper_noise = noise * _NOISE_FACTOR
        return fit_kernel(
            cast(TunableCovariance, kernel),
            rows,
            weight * residual,
            noise_variance=self.fitted["noise_variance"],
            rng=np.random.default_rng(0),  # not used: there are no restarts
            fit_noise=self.fit_noise,
            noise_bounds=(lower_noise, upper_noise),
            restarts=0,
            most_evaluations=self.work // len(rows),
            most_rows=None,  # ``most`` has limited them already
        )

    def _current_kernels(self, rows: Floats) -> list[Covariance]:
        """The kernel over features and, where there is one, the drift over the time column."""
        current = self.fitted
        width = rows.shape[1]
        if "drift" not in self._tuned:
            return [Columns(kernel=current["kernel"], columns=tuple(range(width)))]
        time_column = width - 1
        features = tuple(range(time_column))
        kernel = Columns(kernel=current["kernel"], columns=features)
        drift = Columns(kernel=current["drift"], columns=(time_column,))
        return [kernel, drift]

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        new = Observations(keys, rewards, noise / self.noise_variance)
        history = new.after(self._recent)
        observations = history.part(slice(-self.most, None))
        fits_before = self.count // self.every
        fits_due = (self.count + len(keys)) // self.every
        refitted = None
        if fits_due > fits_before:
            refitted = self._refit(observations, rng)
        if refitted is None:
            self._inside.observe(keys, rewards, noise, rng)
        else:
            self._replace_inside(refitted.posterior)
            self._theta = refitted.theta
            self.fits += 1
        self._recent = observations
        return self._inside.information_gain - self.information_gain

    def _refit(self, observations: Observations, rng: Rng | None) -> _Refit | None:
        """A new posterior with fitted hyper-parameters; ``None``, with a warning, if that fails."""
        try:
            fit = self._fit(observations)
            theta = fit.kernel.theta
            posterior = self._with_hyperparameters(theta, fit.noise_variance)
            noise = fit.noise_variance * observations.noise
            posterior.observe(observations.arms, observations.rewards, noise, rng)
        except (InputError, NotPositiveDefiniteError, MemoryError) as error:
            message = f"the fit failed, and hyper-parameters stay as they are: {error}"
            warn(message[:300], PrecisionWarning)
            return None
        return _Refit(posterior, theta)

    def _memory(self) -> Memory:
        scalars = {"fits": self.fits, "noise_variance": self.noise_variance}
        return self._memory_of(scalars, self._recent, theta=self._theta)

    def _remember(self, state: State) -> None:
        self.fits = state.count("fits", 0)
        size = self._size if self.fits else 0
        self._theta = state.vector("theta", size).copy()
        template = self.posterior
        if self.fits:
            noise = as_scale(state.scalar("noise_variance"), "noise_variance")
            template = self._with_hyperparameters(self._theta, noise)
        self._remember_inside(state, template)
        if self.count:
            self._recent = self._observations_in(state)
