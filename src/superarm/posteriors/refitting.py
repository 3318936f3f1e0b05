"""A posterior whose hyper-parameters are fitted again as observations come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats, Rng, State
from superarm.core.errors import (
    InputError,
    NotPositiveDefiniteError,
    PrecisionWarning,
    warn,
)
from superarm.core.inputs import as_count, as_flag, as_scale, as_vector
from superarm.core.registry import register
from superarm.kernels import Columns, Linear, Product
from superarm.kernels.base import TunableCovariance

from .base import GaussianPosterior, Memory
from .fitting import FitResult, fit_kernel
from .rows import Observed
from .wrapping import Wrapping

_NOISE_FACTOR = 1e4  # by how much the fitted noise variance may differ from the one given, either way


@register("posterior", "refitting")
class Refitting(Wrapping):
    """Any posterior with a kernel, whose hyper-parameters are fitted anew every so many observations.

    What is fitted: the free hyper-parameters of the kernel and of ``drift`` and, with ``fit_noise``,
    the noise variance. They maximise the marginal likelihood of the last ``most`` observations; the
    search starts from the present values, without restarts. The posterior inside is then made anew from
    these observations, and older ones are forgotten. If observations came with noise variances of their
    own, these keep their ratio to the model's, which stays within a factor of 10⁴ of its first value.
    ``fitted`` holds the present values, ``fits`` says how often they were fitted. Order matters: a
    policy refuses feedback of a decision before the last one it learned from.

    A fit of n observations ends with the step in which it reaches ``work`` / n likelihoods. With four
    hyper-parameters this takes about 120 ms for 200 observations and 750 ms for 500, on one core. The
    limit is on work, not on time, so that a run gives the same numbers everywhere.

    Args:
        posterior: The posterior inside; its kernel must be one that can be fitted.
        every: How many observations lie between two fits.
        most: How many of the latest observations are kept.
        work: The most work in one fit: likelihoods computed, times observations.
        fit_noise: Whether the noise variance is fitted as well.

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
        self.every, self.most = as_count(every, "every"), as_count(most, "most", 2)
        self.work, self.fit_noise = (
            as_count(work, "work", self.most),
            as_flag(fit_noise, "fit_noise"),
        )
        parts = posterior.parameters()
        self._arms: Floats | None = parts.get("arms")
        self._tuned = {
            name: parts[name] for name in ("kernel", "drift") if name in parts
        }
        tunable = [isinstance(each, TunableCovariance) for each in self._tuned.values()]
        if not tunable or not all(tunable):
            raise InputError(
                f"{type(posterior).__name__} has no kernel that can be fitted; wrap a posterior that "
                "has one, such as FiniteGP or StreamingGP with a superarm kernel, and put other "
                "wrappers around Refitting"
            )
        self._size = sum(len(each.theta) for each in self._tuned.values())
        if not (self.fit_noise or self._size):
            raise InputError(
                "there is nothing to fit: all hyper-parameters are fixed; give one bounds, such as "
                "lengthscale_bounds=(0.01, 10.0), or let the noise be fitted: fit_noise=True"
            )
        self.fits = 0
        self._theta = np.empty(0)  # of the last fit: the kernel's, then the drift's
        self._seen: Observed | None = None  # noise is in units of the model's own

    @property
    def fitted(self) -> Mapping[str, Any]:
        """The present kernel, drift and noise variance, by the names of the posterior's parameters."""
        present = self._inside.parameters()
        return {name: present[name] for name in (*self._tuned, "noise_variance")}

    def _with(self, theta: Floats, noise_variance: float) -> GaussianPosterior:
        """The posterior inside with these hyper-parameters, before any data."""
        changes, rest = {}, theta
        for name, part in self._tuned.items():
            own, rest = np.split(rest, [len(part.theta)])
            changes[name] = part.clone_with_theta(own) if len(own) else part
        return self.posterior._like(**changes, noise_variance=noise_variance)

    def _fit(self, seen: Observed) -> FitResult:
        rows = seen.arms
        if self._arms is not None:
            numbers = rows.reshape(len(rows), -1)  # a row number, and perhaps a time
            rows = np.column_stack(
                [self._arms[numbers[:, 0].astype(np.intp)], numbers[:, 1:]]
            )
        width, present = rows.shape[1], self.fitted
        own = width - ("drift" in self._tuned)
        parts: list[Covariance] = [
            Columns(kernel=present["kernel"], columns=tuple(range(own)))
        ]
        if own < width:
            parts.append(Columns(kernel=present["drift"], columns=(own,)))
        weight = 1.0 / np.sqrt(seen.noise)
        if (
            weight != 1.0
        ).any():  # k(x, y) w(x) w(y) is the covariance of rewards times w
            rows = np.column_stack([rows, weight])
            parts.append(Linear(variance_bounds="fixed", columns=(width,)))
        residual = seen.rewards - self.posterior._moments(seen.arms)[0]
        noise = self.posterior.noise_variance
        return fit_kernel(
            cast(
                TunableCovariance,
                parts[0] if len(parts) == 1 else Product(kernels=tuple(parts)),
            ),
            rows,
            weight * residual,
            noise_variance=present["noise_variance"],
            rng=np.random.default_rng(0),  # not used: there are no restarts
            fit_noise=self.fit_noise,
            noise_bounds=(noise / _NOISE_FACTOR, noise * _NOISE_FACTOR),
            restarts=0,
            most_evaluations=self.work // len(rows),
            most_rows=None,  # self.most has chosen them
        )

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        fresh = Observed(keys, rewards, noise / self.noise_variance)
        seen = fresh.after(self._seen).part(slice(-self.most, None))
        inside = None
        if (self.count + len(keys)) // self.every > self.count // self.every:
            try:
                found = self._fit(seen)
                inside = self._with(found.kernel.theta, found.noise_variance)
                inside.observe(
                    seen.arms, seen.rewards, found.noise_variance * seen.noise, rng
                )
            except (InputError, NotPositiveDefiniteError, MemoryError) as error:
                told = f"the fit failed, and hyper-parameters stay as they are: {error}"
                warn(told[:300], PrecisionWarning)
                inside = None
        if inside is None:
            self._inside.observe(keys, rewards, noise, rng)
        else:
            self._settle(inside)
            self._theta, self.fits = found.kernel.theta, self.fits + 1
        self._seen = seen
        return self._inside.information_gain - self.information_gain

    def _memory(self) -> Memory:
        scalars = {"fits": self.fits, "noise_variance": self.noise_variance}
        return self._memory_of(scalars, self._seen, theta=self._theta)

    def _remember(self, state: State) -> None:
        self.fits, inside = as_count(state.scalar("fits"), "fits", 0), self.posterior
        self._theta = as_vector(
            state.array("theta"), "theta", self._size if self.fits else 0
        ).copy()
        if self.fits:
            noise = as_scale(state.scalar("noise_variance"), "noise_variance")
            inside = self._with(self._theta, noise)
        self._remember_inside(state, inside)
        if self.count:
            self._seen = self._seen_in(state)
