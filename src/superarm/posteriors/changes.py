"""A posterior that detects sudden changes and forgets the observations before them.

Notation

=========  =======================================================================
``z``      innovations: rewards less their forecasts, whitened by the forecasts' covariance,
           noise included. While the model holds they are independent and N(0, 1)
``ρ``      ``scale``: what a change does to them, in the alternative that is tested: N(0, ρ²)
``S``      CUSUM of the log-likelihood ratio, S ← max(0, S + ½ z² (1 − 1/ρ²) − ln ρ)
``h``      ln ``run_length``: S ≥ h raises an alarm
=========  =======================================================================

While the model holds, e^S is at most R wherever S > 0, where R ← (1 + R) Λ with the likelihood ratio Λ
of one observation; R less the number of observations is a martingale, so that the mean number of
observations until the first alarm is E R ≥ e^h, whatever ρ [lorden1971procedures, Theorem 2].
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Offer, Rng, State
from superarm.core.errors import StateError
from superarm.core.inputs import LARGEST, as_number
from superarm.core.linalg import cholesky, solve_lower
from superarm.core.registry import register

from .base import GaussianPosterior, Memory
from .drifting import DriftingGP
from .observations import Observations
from .wrapping import NumberedWrapper

# At most so many cells for the range of S in ``until_alarm``, which solves with their square.
_MOST_CELLS = 2000
_CELLS_PER_STEP = 20.0  # cells within the step of S that z² = 1 causes
_TIME = 1  # column of the keys of a ``DriftingGP``


class Alarm(NamedTuple):
    """An alarm of the change detector.

    Args:
        step: Step of the observation that raised the alarm.
        since: First step whose observations are still used; the change is assumed to lie just before.
    """

    step: int
    since: int


class _CusumResult(NamedTuple):
    """The statistic after a sequence of innovations, or after the first one that raises an alarm."""

    statistic: float
    tested: int  # innovations up to that point
    last_zero: int | None  # innovations up to the last S = 0; None if S was never 0
    alarm: bool


@register("posterior", "change-detecting")
class ChangeDetecting(NumberedWrapper):
    """Any posterior, restarted when rewards no longer agree with its forecasts.

    A CUSUM test looks for innovations that have become ``scale`` times as large. While the model holds,
    the mean number of observations until a (false) alarm is at least ``run_length``. On an alarm, a new
    posterior learns the observations since the test's statistic was last 0; everything earlier is
    forgotten. ``alarms`` lists the alarms; ``until_alarm`` computes how long one takes to come.

    Keys are those of the posterior inside, with the step number as the last column. Feedback from
    before a detected change is counted in ``ignored`` and not learned. Order matters: a policy refuses
    feedback of a decision before the last one it learned from.

    Args:
        posterior: The posterior inside; it must not have learned anything yet.
        run_length: The mean number of observations before a false alarm is at least this.
        scale: Factor by which innovations grow in the change to detect.

    >>> from superarm.kernels import SquaredExponential
    >>> from superarm.posteriors import FiniteGP
    >>> gp = ChangeDetecting(FiniteGP(SquaredExponential(), [[0.0], [1.0]], noise_variance=0.01))
    >>> for step in range(1, 40):
    ...     gp.observe([[0, step]], [1.0 if step < 30 else -1.0])
    >>> gp.alarms, gp.predict([[0, 40]]).mean.round(2).tolist()
    ((Alarm(step=30, since=30),), [-1.0])
    """

    kind = "change-detecting"
    numbered = "steps"

    def __init__(
        self,
        posterior: GaussianPosterior,
        *,
        run_length: float = 10_000.0,
        scale: float = 3.0,
    ) -> None:
        super().__init__(posterior)
        self.exchangeable = False
        self.run_length = as_number(run_length, "run_length", 2.0, LARGEST)
        self.scale = as_number(scale, "scale", 1.01, 1e6)
        self._slope = 0.5 * (1.0 - self.scale**-2)  # ½ (1 − 1/ρ²)
        self._fall = math.log(self.scale)  # ln ρ
        self.alarms: tuple[Alarm, ...] = ()
        self._statistic = 0.0
        self._recent: Observations | None = None  # since the statistic was last 0

    def until_alarm(self, spread: float = 1.0) -> float:
        """Mean number of observations until an alarm, from S = 0, if innovations are N(0, spread²).

        With ``spread`` 1 this is the run length without a change, for which ``run_length`` is a lower
        bound. With a larger one it is the delay after a change: about h / (½ spread² (1 − 1/ρ²) − ln ρ)
        where that is positive, and somewhat longer because S overshoots h. Computed for a Markov chain
        over cells of [0, h), to about 2 %: not for a ``scale`` below 1.2, whose steps are too small for
        that, nor for a ``run_length`` above 1e12, where digits are lost.

        Args:
            spread: Standard deviation of the innovations, 0.5 to 1e6.
        """
        as_number(self.scale, "scale", 1.2)
        run_length = as_number(self.run_length, "run_length", 2.0, 1e12)
        h = math.log(run_length)
        needed_cells = math.ceil(_CELLS_PER_STEP * h / self._slope)
        cells = min(_MOST_CELLS, needed_cells)
        edges = np.linspace(0.0, h, cells + 1)
        spread = as_number(spread, "spread", 0.5, 1e6)
        transitions = self._transitions(edges, spread)
        # Mean times t until the chain leaves [0, h) solve (I − transitions) t = 1.
        size = len(edges)
        coefficients = np.eye(size) - transitions
        times = np.linalg.solve(coefficients, np.ones(size))
        return float(times[0])

    def _transitions(self, edges: Floats, spread: float) -> Floats:
        """Transition probabilities of S between 0 and the cells, (cells + 1, cells + 1)."""
        from scipy.special import erf

        # S = 0 is a state of its own, followed by the cells, each represented by its middle.
        lower = edges[:-1]
        upper = edges[1:]
        middles = 0.5 * (upper + lower)
        states = np.append(0.0, middles)  # (cells + 1,)
        # The next S is at most ``edge`` if z² ≤ (edge − S + ln ρ) / (½ (1 − 1/ρ²)).
        steps = edges[None, :] - states[:, None]
        squares = steps + self._fall
        squares /= self._slope * spread**2  # z²/spread² is χ² with 1 degree of freedom
        squares = np.maximum(squares, 0.0)
        probabilities = erf(np.sqrt(0.5 * squares))  # P(next S ≤ edge)
        at_zero = probabilities[:, 0]
        in_cells = np.diff(probabilities, axis=1)
        return np.column_stack([at_zero, in_cells])

    def _number(self, offer: Offer) -> int:
        return offer.step

    def _inside_observations(self, observations: Observations) -> Observations:
        """Observations with the keys of the posterior inside."""
        return observations._replace(arms=self._within(observations.arms))

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        # Work on local values; the attributes change only after every step has succeeded.
        inside = self._inside
        recent = self._recent
        statistic = self._statistic
        alarms = self.alarms
        untested = Observations(keys, rewards, noise)
        information = 0.0
        ignored = 0
        while True:
            late = _is_late(untested.arms, inside, alarms)
            ignored += int(np.count_nonzero(late))
            untested = untested.part(~late)
            inside_untested = self._inside_observations(untested)
            innovations, gains = _innovations(inside, inside_untested)
            result = self._cusum(statistic, innovations)
            history = untested.after(recent)
            tested_before = len(history.rewards) - len(innovations)
            begin = 0  # ``history[begin:]`` came since S was last 0
            if result.last_zero is not None:
                begin = tested_before + result.last_zero
            if not result.alarm:
                break
            information += float(gains[: result.tested].sum())
            end = tested_before + result.tested
            since = history.part(slice(begin, end))
            inside = self.posterior._clone()
            inside.observe(*self._inside_observations(since), rng)
            steps = self._numbers(since.arms)
            alarm = Alarm(step=int(steps[-1]), since=int(steps[0]))
            alarms = (*alarms, alarm)
            # Test the remaining observations against the new posterior.
            untested = untested.part(slice(result.tested, None))
            recent = None
            statistic = 0.0
        recent = None
        if result.statistic > 0.0:
            recent = history.part(slice(begin, None))
        inside.observe(*self._inside_observations(untested), rng)
        self._replace_inside(inside)
        self._recent = recent
        self._statistic = result.statistic
        self.alarms = alarms
        self.ignored += ignored
        return information + float(gains.sum())

    def _cusum(self, statistic: float, innovations: Floats) -> _CusumResult:
        """S ← max(0, S + ½ z² (1 − 1/ρ²) − ln ρ) for each innovation z, until an alarm."""
        threshold = math.log(self.run_length)
        last_zero = None
        squares = (innovations**2).tolist()
        for tested, square in enumerate(squares, start=1):
            raised = statistic + self._slope * square
            statistic = max(0.0, raised - self._fall)
            if statistic == 0.0:
                last_zero = tested
            if statistic >= threshold:
                return _CusumResult(statistic, tested, last_zero, alarm=True)
        tested = len(innovations)
        return _CusumResult(statistic, tested, last_zero, alarm=False)

    def _memory(self) -> Memory:
        scalars = {
            "statistic": self._statistic,
            "ignored": self.ignored,
        }
        alarms = np.array(self.alarms, dtype=np.float64)
        rows = alarms.reshape(-1, 2)  # also where there are none
        return self._memory_of(scalars, self._recent, alarms=rows)

    def _remember(self, state: State) -> None:
        self.ignored = state.count("ignored", 0, self.count)
        threshold = math.log(self.run_length)
        self._statistic = state.number("statistic", 0.0, threshold)
        self.alarms = _alarms_in(state)
        self._remember_inside(state, self.posterior)
        if self._statistic > 0.0:
            self._recent = self._observations_in(state)


def _alarms_in(state: State) -> tuple[Alarm, ...]:
    """The alarms in a state."""
    rows = state.matrix("alarms", 2)
    are_integers = rows == np.floor(rows)
    are_exact = np.abs(rows) <= 2**53  # larger whole numbers are not exact as floats
    if not (are_integers.all() and are_exact.all()):
        raise StateError("this state is damaged: its alarms are not at whole steps")
    alarms = []
    for step, since in rows.tolist():
        alarms.append(Alarm(int(step), int(since)))
    return tuple(alarms)


def _is_late(
    keys: NDArray[Any], inside: GaussianPosterior, alarms: tuple[Alarm, ...]
) -> NDArray[np.bool_]:
    """Which observations are from before the last detected change, (m,), or already forgotten."""
    first_step = alarms[-1].since if alarms else 0
    steps = ChangeDetecting._numbers(keys)
    late: NDArray[np.bool_] = steps < first_step
    if isinstance(inside, DriftingGP):
        # It would not learn them, so they are no evidence of a change.
        times = keys[:, _TIME]
        late |= times <= inside.forgotten_until
    return late


def _innovations(
    inside: GaussianPosterior, observations: Observations
) -> tuple[Floats, Floats]:
    """Whitened innovations z and the information of each observation, nats; both (m,)."""
    arms, rewards, noise = observations
    if not len(arms):
        return np.empty(0), np.empty(0)
    mean, _ = inside._moments(arms)
    covariance = inside._covariance(arms) + np.diag(noise)
    largest_noise = float(noise.max())
    scale = inside._prior_scale(arms) + largest_noise
    factor = cholesky(covariance, "the covariance of the observed arms", scale)
    forecast_stds = np.diagonal(factor)  # each given the rewards before it
    gains = np.log(forecast_stds) - 0.5 * np.log(noise)
    innovations = solve_lower(factor, rewards - mean)
    return innovations, gains
