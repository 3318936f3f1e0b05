"""Hyper-parameters by maximum marginal likelihood.

Works with any :class:`~superarm.kernels.TunableCovariance`: ours and scikit-learn's. For tables in
which every arm was read at every time :func:`~superarm.kernels.fit_drift` is faster. The formulas are
in ``marginal_likelihood.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, cast

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import InputError, NotPositiveDefiniteError
from superarm.core.inputs import as_count, as_features, as_positive, as_vector
from superarm.kernels.base import TunableCovariance

from .marginal_likelihood import as_blocks, best_mean, factorise_blocks, likelihood

MOST_ROWS = 500
"""Rows that a fit uses by default: time grows with their cube."""
_REPORT_EVERY = 1.0  # seconds


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """The result of :func:`fit_kernel`.

    Args:
        kernel: The kernel with the best hyper-parameters.
        noise_variance: The best noise variance, or the given one if it was not fitted.
        mean: The best constant mean, or the given one if it was not fitted.
        log_marginal_likelihood: Of the rows that were fitted, nats.
        converged: Whether the optimizer converged at the best point.
        evaluations: Likelihoods computed, over all starts.
        message: The optimizer's message for the best start.
        rows: Rows that were fitted: all, or those drawn from more than ``most_rows``.
    """

    kernel: Any
    noise_variance: float
    mean: float
    log_marginal_likelihood: float
    converged: bool
    evaluations: int
    message: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class FitProgress:
    """The progress of a fit.

    Args:
        rows: Rows that are fitted.
        start: Number of the current start, from 1.
        starts: Starts in total.
        evaluations: Likelihoods computed so far.
        log_marginal_likelihood: The best so far, nats.
        seconds: Wall time so far.
    """

    rows: int
    start: int
    starts: int
    evaluations: int
    log_marginal_likelihood: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"fit of {self.rows:,} rows, start {self.start} of {self.starts}: {self.evaluations} "
            f"likelihoods in {self.seconds:.1f} s, best {self.log_marginal_likelihood:.6g}"
        )


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
    starts from the kernel's values (clipped to the bounds) and from ``restarts`` points drawn
    log-uniformly within the bounds.

    One evaluation takes time in proportion to n³ and n²(p + 3) numbers of memory, for n rows and p
    hyper-parameters, and a fit needs one or two hundred of them. On one core, 400 rows take about 3
    seconds and 2,000 rows minutes. So a fit of more than ``most_rows`` rows uses that many of them,
    drawn at random; ``FitResult.rows`` is their number.

    A trial point whose covariance has no Cholesky factor has likelihood −∞, so the search turns back
    there. If no start yields a finite likelihood,
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
        most_seconds: A budget for the whole search, in seconds of wall time; after it the best point so
            far is returned, unconverged. It makes the result depend on the machine's speed.
        progress: Called about once a second, and for the first step from each start, as in
            ``progress=print``.
    """
    rows = as_features(X, "X")
    count = len(rows)
    rewards = as_vector(y, "y", count)
    noise = as_positive(noise_variance, "noise_variance")
    blocks = as_blocks(groups, count)
    if count == 0:
        raise InputError("X is empty; fitting needs at least one observation")
    if not isinstance(kernel, TunableCovariance):
        raise InputError(
            f"{type(kernel).__name__} cannot be fitted: it needs theta, bounds, clone_with_theta "
            "and eval_gradient, as the kernels here and in scikit-learn have"
        )
    data = _Data(rows, rewards, blocks)
    if most_rows is not None and as_count(most_rows, "most_rows") < count:
        data = data.subsample(most_rows, rng)
    bounds = np.reshape(kernel.bounds, (-1, 2))
    start = np.array(kernel.theta, dtype=np.float64)
    if fit_noise:
        log_noise_bounds = _log_noise_bounds(noise_bounds)
        bounds = np.concatenate([bounds, log_noise_bounds])
        start = np.append(start, math.log(noise))
    problem = _Problem(
        kernel=kernel,
        theta_size=len(kernel.theta),
        data=data,
        noise_variance=noise,
        fit_noise=fit_noise,
        mean=None if fit_mean else float(mean),
    )
    starts = _starting_points(start, bounds, restarts, rng)
    search = _Search(
        problem.loss,
        rows=len(data.rows),
        starts=len(starts),
        most_evaluations=most_evaluations,
        most_seconds=most_seconds,
        progress=progress,
    )
    for first in starts:
        search.run(first, bounds)
    if not math.isfinite(search.best_loss):
        parameter = "noise_variance"
        if fit_noise:
            parameter = f"the lower noise bound (now {noise_bounds[0]:g})"
        raise NotPositiveDefiniteError(
            f"K + noise_variance·I could not be factorised at any of {search.evaluations} trial points "
            f"of {kernel!r}; raise {parameter}, or tighten the kernel's bounds"
        )
    best = problem.model_at(search.best_point)
    if fit_mean:
        mean = data.best_mean(best)
    return FitResult(
        kernel=best.kernel,
        noise_variance=best.noise_variance,
        mean=float(mean),
        log_marginal_likelihood=-search.best_loss,
        converged=search.converged,
        evaluations=search.evaluations,
        message=search.message,
        rows=len(data.rows),
    )


def _starting_points(
    start: Floats, bounds: Floats, restarts: int, rng: Rng
) -> list[Floats]:
    """The first start, clipped to the bounds, and random ones within them, (p,) each."""
    if restarts > 0 and not np.isfinite(bounds).all():
        raise InputError(
            "restarts are drawn within the bounds, so all bounds must be finite"
        )
    lower = bounds[:, 0]
    upper = bounds[:, 1]
    first_start = np.clip(start, lower, upper)
    if not len(start):
        return [first_start]
    random_starts = [rng.uniform(lower, upper) for _ in range(restarts)]
    return [first_start, *random_starts]


def _log_noise_bounds(noise_bounds: tuple[float, float]) -> Floats:
    """Logarithms of the bounds, (1, 2), validated."""
    lower, upper = (as_positive(value, "noise_bounds") for value in noise_bounds)
    if lower > upper:
        raise InputError(
            f"noise_bounds is ({lower:g}, {upper:g}); the lower one comes first"
        )
    return np.log([[lower, upper]])


class _Model(NamedTuple):
    """What is fitted, at one point of the search."""

    kernel: TunableCovariance
    noise_variance: float


class _Data(NamedTuple):
    """The observations to fit."""

    rows: Floats  # (n, d)
    rewards: Floats  # (n,)
    blocks: Sequence[Ints]  # rows of independent groups

    def subsample(self, count: int, rng: Rng) -> _Data:
        """``count`` observations drawn at random, in their order."""
        total = len(self.rows)
        drawn = rng.choice(total, count, replace=False)
        drawn = np.sort(drawn)
        labels = np.zeros(total, dtype=np.intp)
        for label, members in enumerate(self.blocks):
            labels[members] = label
        blocks = as_blocks(labels[drawn], count)
        rows = self.rows[drawn]
        rewards = self.rewards[drawn]
        return _Data(rows, rewards, blocks)

    def best_mean(self, model: _Model) -> float:
        """The most likely constant mean under a model."""
        kernel, noise = model
        factors = factorise_blocks(kernel, self.rows, noise, self.blocks)
        block_rewards = [self.rewards[members] for members in self.blocks]
        return best_mean(factors, block_rewards)


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """The negative log likelihood as a function of a point.

    A point is the kernel's theta, followed by ln noise_variance if the noise is fitted.
    """

    kernel: TunableCovariance
    theta_size: int
    data: _Data
    noise_variance: float  # if it is not fitted
    fit_noise: bool
    mean: float | None  # None: the best value at every point

    def model_at(self, point: Floats) -> _Model:
        """The kernel and the noise variance at a point."""
        size = self.theta_size
        kernel = self.kernel
        if size:
            theta = point[:size]
            kernel = cast(TunableCovariance, kernel.clone_with_theta(theta))
        noise = self.noise_variance
        if self.fit_noise:
            noise = float(np.exp(point[size]))
        return _Model(kernel, noise)

    def loss(self, point: Floats) -> tuple[float, Floats]:
        """The negative log likelihood and its gradient; infinite if there is no Cholesky factor."""
        trial = self.model_at(point)
        try:
            result = likelihood(
                trial.kernel,
                self.data.rows,
                self.data.rewards,
                noise=trial.noise_variance,
                mean=self.mean,
                blocks=self.data.blocks,
            )
        except NotPositiveDefiniteError:
            return math.inf, np.zeros(len(point))
        gradient = result.theta
        if self.fit_noise:
            gradient = np.append(gradient, result.log_noise_variance)
        return -result.value, -gradient


class _Search:
    """Minimises a loss from several starts, within a budget; reports progress.

    Args:
        loss: Returns the loss and its gradient at a point.
        rows: Observations, for the reports.
        starts: How many starts there will be, for the reports.
        most_evaluations: Losses per start.
        most_seconds: Wall time of the whole search; ``None``: no limit.
        progress: Called with reports.
    """

    def __init__(
        self,
        loss: Callable[[Floats], tuple[float, Floats]],
        *,
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
        self._most_seconds = math.inf
        if most_seconds is not None:
            self._most_seconds = as_positive(most_seconds, "most_seconds")
        self._progress = progress
        self._began = perf_counter()
        self._start = 0  # number of the current start, from 1
        self._reported_start = 0
        self._reported_at = 0.0  # seconds of ``perf_counter``
        self.evaluations = 0
        self.best_point: Floats = np.empty(0)
        self.best_loss = math.inf
        self.converged = True
        self.message = "there was nothing to fit"

    @property
    def _is_over_budget(self) -> bool:
        return perf_counter() - self._began > self._most_seconds

    def _evaluate(self, point: Floats) -> tuple[float, Floats]:
        self.evaluations += 1
        return self._loss(point)

    def run(self, first: Floats, bounds: Floats) -> None:
        """Search from one start; skip later ones when the time is over.

        Args:
            first: The start.
            bounds: Lower and upper bounds of each number, (p, 2).
        """
        from scipy.optimize import minimize

        self._start += 1
        if self._is_over_budget and self._start > 1:
            self.converged = False
            self.message = f"stopped after most_seconds={self._most_seconds:g}"
            return
        value, _ = self._evaluate(first)
        if not math.isfinite(value):
            return  # L-BFGS-B cannot leave a point whose value is infinite
        if len(first) == 0:
            self.best_loss = value
            return
        options: Any = {"maxfun": self._most_evaluations}
        result = minimize(
            self._evaluate,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(low, high) for low, high in bounds.tolist()],
            callback=self._after_step,
            options=options,
        )
        loss = float(result.fun)
        if loss < self.best_loss:
            self.best_point = result.x
            self.best_loss = loss
            self.converged = bool(result.success)
            self.message = str(result.message)

    def _after_step(self, intermediate_result: Any) -> None:
        """Called by the optimizer after each of its steps."""
        if self._progress is not None and self._report_is_due():
            lowest_loss = min(float(intermediate_result.fun), self.best_loss)
            report = FitProgress(
                rows=self._rows,
                start=self._start,
                starts=self._starts,
                evaluations=self.evaluations,
                log_marginal_likelihood=-lowest_loss,
                seconds=perf_counter() - self._began,
            )
            self._progress(report)
        if self._is_over_budget:
            raise StopIteration

    def _report_is_due(self) -> bool:
        now = perf_counter()
        is_first_of_start = self._reported_start != self._start
        is_recent = now - self._reported_at < _REPORT_EVERY
        if is_recent and not is_first_of_start:
            return False
        self._reported_start = self._start
        self._reported_at = now
        return True
