"""Hyper-parameters by maximum marginal likelihood.

Notation

=============  ===========================================================================
``X``, ``y``   (n, d) arms and (n,) rewards
``C``          (n, n), K + noise_variance·I, with the Cholesky factor L
``alpha``      (n,), C⁻¹ (y − mean)
``theta``      (p,), logarithms of the kernel's free hyper-parameters
=============  ===========================================================================

log p(y) = −½ (y − mean)ᵀ alpha − Σ_i log L_ii − (n/2) log 2π, and
∂/∂theta_j = ½ tr((alpha alphaᵀ − C⁻¹) ∂C/∂theta_j) (Rasmussen and Williams, equations 2.30 and 5.9).
Groups of observations, such as days, may be independent: both are then sums over them. With a kernel
``space * Temporal(column=…)`` these are bogunovic2016time, eqs. 24 and 25; for tables in which every
arm was read at every time :func:`~superarm.kernels.fit_drift` is faster.

Works with any :class:`~superarm.kernels.TunableCovariance`: ours and scikit-learn's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from superarm.core import Covariance, Floats, Ints, Rng
from superarm.core.errors import InputError, NotPositiveDefiniteError, ShapeError
from superarm.core.inputs import as_count, as_features, as_positive, as_vector
from superarm.core.threads import blas_threads_for
from superarm.kernels.base import TunableCovariance

MOST_ROWS = 500
"""Rows that a fit uses by default: time grows with their cube."""
_REPORT_EVERY = 1.0  # seconds


class Likelihood(NamedTuple):
    """The log marginal likelihood and its derivatives."""

    value: float
    theta: Floats  # (p,)
    log_noise_variance: float


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """What :func:`fit_kernel` found."""

    kernel: Any  # the kernel given, with the best hyper-parameters
    noise_variance: float
    mean: float
    log_marginal_likelihood: float  # of the rows that were fitted
    converged: bool  # whether the optimizer converged at the best point
    evaluations: int  # likelihoods computed, over all starts
    message: str  # the optimizer's own message for the best start
    rows: int  # rows that were fitted: all, or those drawn from more than ``most_rows``


@dataclass(frozen=True, kw_only=True)
class FitProgress:
    """How far a fit has come."""

    rows: int
    start: int  # the present start, from 1
    starts: int
    evaluations: int  # likelihoods computed so far
    log_marginal_likelihood: float  # the best so far
    seconds: float  # wall time so far

    def __str__(self) -> str:
        return (
            f"fit of {self.rows:,} rows, start {self.start} of {self.starts}: {self.evaluations} "
            f"likelihoods in {self.seconds:.1f} s, best {self.log_marginal_likelihood:.6g}"
        )


def log_marginal_likelihood(
    kernel: Covariance,
    X: Any,
    y: Any,
    *,
    noise_variance: float,
    mean: float = 0.0,
    groups: Any = None,
) -> float:
    """log p(y | X) of a Gaussian process with constant mean and Gaussian noise, in nats.

    Observations with different labels in ``groups`` (n,) are independent.
    """
    rows, noise = as_features(X, "X"), as_positive(noise_variance, "noise_variance")
    residual, blocks = as_vector(y, "y", len(rows)) - mean, _blocks(groups, len(rows))
    known = zip(
        _factors(kernel, rows, noise, blocks),
        [residual[at] for at in blocks],
        strict=True,
    )
    return sum(_value(factor, _solve(factor, part), part) for factor, part in known)


def fit_kernel(
    kernel: TunableCovariance,
    X: Any,
    y: Any,
    *,
    noise_variance: float,
    rng: Rng,
    mean: float = 0.0,
    fit_noise: bool = True,
    noise_bounds: tuple[float, float] = (1e-8, 1e3),
    fit_mean: bool = False,
    restarts: int = 4,
    groups: Any = None,
    most_evaluations: int = 15_000,
    most_rows: int | None = MOST_ROWS,
    most_seconds: float | None = None,
    progress: Callable[[FitProgress], object] | None = None,
) -> FitResult:
    """Fit the hyper-parameters under which the data are most likely.

    The search is L-BFGS-B with analytic gradients, within ``kernel.bounds`` and ``noise_bounds``. It
    starts from the values given (clipped to the bounds) and from ``restarts`` points drawn
    log-uniformly within the bounds.

    One evaluation takes time in proportion to n³ and n²(p + 3) numbers of memory, for n rows and p
    hyper-parameters, and a fit needs one or two hundred of them. On one core, 400 rows take about 3
    seconds and 2,000 rows minutes. So a fit of more than ``most_rows`` rows uses that many of them,
    drawn at random; ``FitResult.rows`` says how many.

    A trial point whose covariance has no Cholesky factor counts as impossible, likelihood −∞, so that
    the search turns back there. If no start yields a finite likelihood,
    :class:`~superarm.core.errors.NotPositiveDefiniteError` is raised.

    Args:
        kernel: The kernel to fit, ours or scikit-learn's; its hyper-parameters are the first start.
        X: Features, (n, d).
        y: Rewards, (n,).
        noise_variance: Where the search for the noise variance starts.
        rng: Draws the restarts and the subsample.
        mean: The constant prior mean.
        fit_noise: Whether to fit the noise variance as well.
        noise_bounds: Bounds of the fitted noise variance.
        fit_mean: Whether the mean takes its best value 1ᵀC⁻¹y / 1ᵀC⁻¹1 at every point.
        restarts: Random starts beside the first one.
        groups: Labels, (n,): observations with different labels, such as days, are independent.
        most_evaluations: Likelihoods per start; a start ends unconverged in the step that reaches it.
        most_rows: Rows to fit, drawn at random from more; ``None`` fits all rows.
        most_seconds: A budget for the whole search, in seconds of wall time; the best point found by
            then is returned, unconverged. It makes the result depend on the machine's speed.
        progress: Called about once a second, and for the first step from each start, as in
            ``progress=print``.
    """
    rows = as_features(X, "X")
    rewards = as_vector(y, "y", len(rows))
    noise = as_positive(noise_variance, "noise_variance")
    blocks = _blocks(groups, len(rows))
    if len(rows) == 0:
        raise InputError("X is empty; fitting needs at least one observation")
    if not isinstance(kernel, TunableCovariance):
        raise InputError(
            f"{type(kernel).__name__} cannot be fitted: it needs theta, bounds, clone_with_theta "
            "and eval_gradient, as the kernels here and in scikit-learn have"
        )
    if most_rows is not None and as_count(most_rows, "most_rows") < len(rows):
        drawn = np.sort(rng.choice(len(rows), most_rows, replace=False))
        labels = np.zeros(len(rows), dtype=np.intp)
        for label, members in enumerate(blocks):
            labels[members] = label
        rows, rewards, blocks = (
            rows[drawn],
            rewards[drawn],
            _blocks(labels[drawn], len(drawn)),
        )

    size = len(kernel.theta)
    bounds = np.reshape(kernel.bounds, (-1, 2))
    start = np.array(kernel.theta, dtype=np.float64)
    if fit_noise:
        low, high = (as_positive(value, "noise_bounds") for value in noise_bounds)
        if low > high:
            raise InputError(
                f"noise_bounds is ({low:g}, {high:g}); the lower one comes first"
            )
        bounds = np.concatenate([bounds, np.log([[low, high]])])
        start = np.append(start, math.log(noise))
    if restarts > 0 and not np.isfinite(bounds).all():
        raise InputError(
            "restarts are drawn within the bounds, so all bounds must be finite"
        )

    def parts_at(point: Floats) -> tuple[TunableCovariance, float]:
        """The kernel and the noise variance at a point of the search."""
        fitted = (
            cast(TunableCovariance, kernel.clone_with_theta(point[:size]))
            if size
            else kernel
        )
        return fitted, float(np.exp(point[size])) if fit_noise else noise

    fixed_mean = None if fit_mean else float(mean)

    def loss(point: Floats) -> tuple[float, Floats]:
        trial, trial_noise = parts_at(point)
        try:
            found = likelihood(
                trial, rows, rewards, noise=trial_noise, mean=fixed_mean, blocks=blocks
            )
        except NotPositiveDefiniteError:
            return math.inf, np.zeros(len(point))
        slope = (
            np.append(found.theta, found.log_noise_variance)
            if fit_noise
            else found.theta
        )
        return -found.value, -slope

    starts = [np.clip(start, bounds[:, 0], bounds[:, 1])]
    if len(start):
        starts += [rng.uniform(bounds[:, 0], bounds[:, 1]) for _ in range(restarts)]
    search = _Search(
        loss, len(rows), len(starts), most_evaluations, most_seconds, progress
    )
    for first in starts:
        search.run(first, bounds)
    if not math.isfinite(search.best_loss):
        advice = (
            f"the lower noise bound (now {noise_bounds[0]:g})"
            if fit_noise
            else "noise_variance"
        )
        raise NotPositiveDefiniteError(
            f"K + noise_variance·I could not be factorised at any of {search.evaluations} trial points "
            f"of {kernel!r}; raise {advice}, or tighten the kernel's bounds"
        )
    fitted, fitted_noise = parts_at(search.best_point)
    if fit_mean:
        factors = _factors(fitted, rows, fitted_noise, blocks)
        mean = _best_mean(factors, [rewards[members] for members in blocks])
    return FitResult(
        kernel=fitted,
        noise_variance=fitted_noise,
        mean=float(mean),
        log_marginal_likelihood=-search.best_loss,
        converged=search.converged,
        evaluations=search.evaluations,
        message=search.message,
        rows=len(rows),
    )


class _Search:
    """Minimise a loss from several starts: keep the best point, report progress, keep to a budget."""

    def __init__(
        self,
        loss: Callable[[Floats], tuple[float, Floats]],
        rows: int,
        starts: int,
        most_evaluations: int,
        most_seconds: float | None,
        progress: Callable[[FitProgress], object] | None,
    ) -> None:
        self._loss = loss
        self._rows = rows
        self._starts = starts
        self._most_evaluations = most_evaluations
        self._most_seconds = (
            math.inf
            if most_seconds is None
            else as_positive(most_seconds, "most_seconds")
        )
        self._progress = progress
        self._began = perf_counter()
        self._start = 0  # the number of the present one, from 1
        self._reported = (0, 0.0)  # of which start, and when
        self.evaluations = 0
        self.best_point: Floats = np.empty(0)
        self.best_loss = math.inf
        self.converged = True
        self.message = "there was nothing to fit"

    @property
    def _late(self) -> bool:
        return perf_counter() - self._began > self._most_seconds

    def _counted(self, point: Floats) -> tuple[float, Floats]:
        self.evaluations += 1
        return self._loss(point)

    def run(self, first: Floats, bounds: Floats) -> None:
        """Search from one start; from a later one only while there is time."""
        from scipy.optimize import minimize

        self._start += 1
        if self._late and self._start > 1:
            self.converged = False
            self.message = f"stopped after most_seconds={self._most_seconds:g}"
            return
        value, _ = self._counted(first)
        if not math.isfinite(value):
            return  # L-BFGS-B cannot leave a point whose value is infinite
        if len(first) == 0:
            self.best_loss = value
            return
        result = minimize(
            self._counted,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(low, high) for low, high in bounds.tolist()],
            callback=self._step,
            options=cast(Any, {"maxfun": self._most_evaluations}),
        )
        if float(result.fun) < self.best_loss:
            self.best_point = result.x
            self.best_loss = float(result.fun)
            self.converged = bool(result.success)
            self.message = str(result.message)

    def _step(self, intermediate_result: Any) -> None:
        """Called by the optimizer after each of its steps."""
        if self._progress is not None and self._report_is_due():
            report = FitProgress(
                rows=self._rows,
                start=self._start,
                starts=self._starts,
                evaluations=self.evaluations,
                log_marginal_likelihood=-min(
                    float(intermediate_result.fun), self.best_loss
                ),
                seconds=perf_counter() - self._began,
            )
            self._progress(report)
        if self._late:
            raise StopIteration

    def _report_is_due(self) -> bool:
        start, moment = self._reported
        now = perf_counter()
        if start == self._start and now - moment < _REPORT_EVERY:
            return False
        self._reported = (self._start, now)
        return True


def likelihood(
    kernel: TunableCovariance,
    X: Floats,
    y: Floats,
    *,
    noise: float,
    mean: float | None,
    blocks: Sequence[Ints] | None = None,
) -> Likelihood:
    """Value and derivatives; a mean of ``None`` takes its best value. Blocks are independent."""
    parts = _blocks(None, len(y)) if blocks is None else blocks
    known = [kernel(X[at], eval_gradient=True) for at in parts]
    factors = [_factorise(K, noise, kernel) for K, _ in known]
    rewards = [y[at] for at in parts]
    level = _best_mean(factors, rewards) if mean is None else mean
    together = zip(factors, known, rewards, strict=True)
    found = [
        _likelihood(factor, slopes, y - level, noise)
        for factor, (_, slopes), y in together
    ]
    return Likelihood(*(sum(each) for each in zip(*found, strict=True)))


def _likelihood(
    factor: Floats, gradient: Floats, residual: Floats, noise: float
) -> Likelihood:
    alpha = _solve(factor, residual)
    # ½ tr((αα' − C⁻¹) ∂C): all derivatives share the bracket, and both its factors are symmetric.
    bracket = np.outer(alpha, alpha) - _inverse(factor)
    theta = 0.5 * np.einsum("ij,ijp->p", bracket, gradient)
    return Likelihood(
        _value(factor, alpha, residual), theta, 0.5 * noise * float(np.trace(bracket))
    )


def _blocks(groups: Any, count: int) -> list[Ints]:
    """The rows of each group; all rows where there are none."""
    if groups is None:
        return [np.arange(count)]
    try:
        labels = np.asarray(groups)
    except ValueError:
        labels = np.asarray(None)
    if labels.dtype.kind not in "biufUS" or (
        labels.dtype.kind == "f" and np.isnan(labels).any()
    ):
        raise InputError(
            "groups must be labels, numbers or words, and none may be missing"
        )
    if labels.shape != (count,):
        raise ShapeError(
            f"groups has shape {labels.shape}; give one label for each of {count} rewards"
        )
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _value(factor: Floats, alpha: Floats, residual: Floats) -> float:
    fit = -0.5 * float(residual @ alpha)
    complexity = float(np.log(np.diagonal(factor)).sum())
    return fit - complexity - 0.5 * len(residual) * math.log(2.0 * math.pi)


def _best_mean(factors: Sequence[Floats], rewards: Sequence[Floats]) -> float:
    weights = [_solve(factor, np.ones(len(factor))) for factor in factors]
    level = sum(float(w @ y) for w, y in zip(weights, rewards, strict=True))
    return level / sum(float(w.sum()) for w in weights)


def _factors(
    kernel: Covariance, X: Floats, noise: float, blocks: Sequence[Ints]
) -> list[Floats]:
    return [_factorise(kernel(X[at]), noise, kernel) for at in blocks]


def _factorise(K: Floats, noise: float, kernel: object) -> Floats:
    from scipy.linalg import LinAlgError, cholesky

    C = np.array(K, dtype=np.float64)
    C[np.diag_indices_from(C)] += noise
    if not np.isfinite(C).all():
        raise NotPositiveDefiniteError(f"{kernel!r} gives entries that are not finite")
    try:
        with blas_threads_for(len(C) ** 3 / 6):
            return np.asarray(
                cholesky(C, lower=True, overwrite_a=True, check_finite=False)
            )
    except LinAlgError:
        told = f"K + noise_variance·I has no Cholesky factor for {kernel!r}"
        raise NotPositiveDefiniteError(
            f"{told}; raise noise_variance (now {noise:g})"
        ) from None


def _solve(factor: Floats, right: Floats) -> Floats:
    from scipy.linalg import cho_solve

    with blas_threads_for(len(factor) * right.size):
        return np.asarray(cho_solve((factor, True), right, check_finite=False))


def _inverse(factor: Floats) -> Floats:
    """C⁻¹ from the Cholesky factor of C: a third of the work of solving for the identity."""
    from scipy.linalg.lapack import dpotri

    with blas_threads_for(len(factor) ** 3 / 3):
        inverse, failed = dpotri(factor, lower=1)
    if failed:
        raise NotPositiveDefiniteError(
            "K + noise_variance·I is singular; raise noise_variance"
        )
    lower: Floats = np.tril(inverse)
    return lower + np.tril(lower, -1).T
