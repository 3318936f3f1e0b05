"""A posterior whose hyper-parameters are fitted again as observations come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, State
from superarm.errors import InputError, NotPositiveDefiniteError, PrecisionWarning, warn
from superarm.inputs import as_count, as_scale, as_vector
from superarm.kernels import Columns, Covariance, Linear, Product
from superarm.kernels.base import TunableCovariance
from superarm.registry import register

from .base import GaussianPosterior, Memory
from .fitting import fit_kernel
from .wrapping import Seen, Wrapping

_NOISE_FACTOR = 1e4
"""By how much the fitted noise variance may differ from the one given, either way."""


class _Values(NamedTuple):
    """Hyper-parameters that were fitted."""

    theta: Floats  # of the kernel, then of the drift
    noise_variance: float


@register("posterior", "refitting")
class Refitting(Wrapping):
    """Any posterior with a kernel, whose hyper-parameters are fitted anew every so many observations.

    Those of the kernel that are free, those of ``drift`` and, with ``fit_noise``, the noise variance,
    by maximum marginal likelihood of the last ``most`` observations, from the present values on and
    without restarts. The posterior inside is then made anew from those observations: older ones are
    forgotten. Noise variances that observations came with keep their ratio to the model's own, which
    stays within a factor 10⁴ of what it was. ``fitted`` holds the present values, ``fits`` says how
    often they were fitted.

    A fit of n observations computes at most ``work`` / n likelihoods: with four
    hyper-parameters about 120 ms for 200 observations and 750 ms for 500, on one core. It is a limit of
    work and not of time, so that a run gives the same numbers everywhere.

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
        self.work, self.fit_noise = as_count(work, "work", 2 * self.most), bool(fit_noise)
        parts = posterior.parameters()
        if "kernel" not in parts:
            raise InputError(
                f"{type(posterior).__name__} has no kernel that could be fitted; wrap one that has "
                "(FiniteGP, StreamingGP, DriftingGP), and put other wrappers around Refitting"
            )
        self._tuned = {name: parts[name] for name in ("kernel", "drift") if name in parts}
        self._arms: Floats | None = parts.get("arms")
        for name, part in self._tuned.items():
            if not isinstance(part, TunableCovariance):
                raise InputError(
                    f"the {name}, {type(part).__name__}, cannot be fitted: it needs theta, bounds, "
                    "clone_with_theta and eval_gradient, as the kernels here have"
                )
        if not (fit_noise or any(len(part.theta) for part in self._tuned.values())):
            raise InputError(
                "there is nothing to fit: all hyper-parameters are fixed; give one bounds, such as "
                "lengthscale_bounds=(0.01, 10.0), or let the noise be fitted: fit_noise=True"
            )
        self.fits = 0
        self._values: _Values | None = None
        self._seen: Seen | None = None  # its noise is in units of the model's own

    def parameters(self) -> Mapping[str, Any]:
        names = ("every", "most", "work", "fit_noise")
        return {"posterior": self._fresh, **{name: getattr(self, name) for name in names}}

    @property
    def fitted(self) -> Mapping[str, Any]:
        """The present kernel, drift and noise variance, by the names of the posterior's parameters."""
        present = self._inside.parameters()
        return {name: present[name] for name in (*self._tuned, "noise_variance")}

    # --- fitting ---------------------------------------------------------------------------

    def _with(self, values: _Values) -> GaussianPosterior:
        """The posterior inside with these hyper-parameters, before any data."""
        changes, rest = {}, values.theta
        for name, part in self._tuned.items():
            own, rest = np.split(rest, [len(part.theta)])
            changes[name] = part.clone_with_theta(own) if len(own) else part
        return self._fresh._like(**changes, noise_variance=values.noise_variance)

    def _fit(self, seen: Seen) -> _Values:
        rows = seen.keys
        if self._arms is not None:
            numbers = rows.reshape(len(rows), -1)  # a row number, and perhaps a time
            rows = np.column_stack([self._arms[numbers[:, 0].astype(np.intp)], numbers[:, 1:]])
        width, present = rows.shape[1], self.fitted
        own = width - ("drift" in self._tuned)
        parts: list[Covariance] = [Columns(kernel=present["kernel"], columns=tuple(range(own)))]
        if own < width:
            parts.append(Columns(kernel=present["drift"], columns=(own,)))
        weight = 1.0 / np.sqrt(seen.noise)
        if (weight != 1.0).any():  # k(x, y) w(x) w(y) is the covariance of rewards times w
            rows = np.column_stack([rows, weight])
            parts.append(Linear(variance_bounds="fixed", columns=(width,)))
        residual = seen.rewards - self._fresh._moments(seen.keys)[0]
        noise = self._fresh.noise_variance
        result = fit_kernel(
            cast(TunableCovariance, parts[0] if len(parts) == 1 else Product(kernels=tuple(parts))),
            rows,
            weight * residual,
            noise_variance=present["noise_variance"],
            rng=np.random.default_rng(0),  # not used: there are no restarts
            fit_noise=self.fit_noise,
            noise_bounds=(noise / _NOISE_FACTOR, noise * _NOISE_FACTOR),
            restarts=0,
            most_evaluations=self.work // len(rows),
        )
        return _Values(result.kernel.theta, result.noise_variance)

    # --- hooks -----------------------------------------------------------------------------

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: np.random.Generator | None
    ) -> float:
        fresh = Seen(keys, rewards, noise / self.noise_variance)
        seen = fresh.after(self._seen).part(slice(-self.most, None))
        inside, values = self._inside, self._values
        if (self.count + len(keys)) // self.every > self.count // self.every:
            try:
                values = self._fit(seen)
                inside = self._with(values)
                inside.observe(seen.keys, seen.rewards, values.noise_variance * seen.noise, rng)
            except (InputError, NotPositiveDefiniteError) as error:
                warn(f"hyper-parameters stay as they are: {error}", PrecisionWarning)
                inside, values = self._inside, self._values
        if inside is self._inside:
            inside.observe(keys, rewards, noise, rng)
        else:
            self.fits += 1
        self._settle(inside)
        self._seen, self._values = seen, values
        return inside.information_gain - self.information_gain

    # --- state -----------------------------------------------------------------------------

    def _memory(self) -> Memory:
        arrays = {} if self._seen is None else self._seen._asdict()
        scalars: dict[str, Any] = {"fits": self.fits}
        if self._values is not None:
            arrays["theta"] = self._values.theta
            scalars["noise_variance"] = self._values.noise_variance
        return Memory(arrays, scalars, {"inside": self._inside.state()})

    def _remember(self, state: State) -> None:
        self.fits, inside = as_count(state.scalar("fits"), "fits", 0), self._fresh
        if self.fits:
            size = sum(len(part.theta) for part in self._tuned.values())
            theta = as_vector(state.array("theta"), "theta", size).copy()
            self._values = _Values(theta, as_scale(state.scalar("noise_variance"), "noise_variance"))
            inside = self._with(self._values)
        self._remember_inside(state, inside)
        if self.count:
            self._seen = self._seen_in(state)
