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
from superarm.core.inputs import LARGEST, as_count, as_features, as_number
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
        scale: How many times as large innovations become in the change that is tested for.

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
        h = math.log(as_number(self.run_length, "run_length", 2.0, 1e12))
        cells = min(_MOST_CELLS, math.ceil(_CELLS_PER_STEP * h / self._slope))
        edges = np.linspace(0.0, h, cells + 1)
        spread = as_number(spread, "spread", 0.5, 1e6)
        transitions = self._transitions(edges, spread)
        # Mean times t until the chain leaves [0, h) solve (I − transitions) t = 1.
        identity = np.eye(len(edges))
        times = np.linalg.solve(identity - transitions, np.ones(len(edges)))
        return float(times[0])

    def _transitions(self, edges: Floats, spread: float) -> Floats:
        """Transition probabilities of S between 0 and the cells, (cells + 1, cells + 1)."""
        from scipy.special import erf

        # S = 0 is a state of its own, followed by the cells, each represented by its middle.
        middles = 0.5 * (edges[1:] + edges[:-1])
        states = np.append(0.0, middles)  # (cells + 1,)
        # The next S is at most ``edge`` if z² ≤ (edge − S + ln ρ) / (½ (1 − 1/ρ²)).
        squares = edges[None, :] - states[:, None] + self._fall
        squares /= self._slope * spread**2  # z²/spread² is χ² with 1 degree of freedom
        below = erf(np.sqrt(0.5 * np.maximum(squares, 0.0)))  # P(next S ≤ edge)
        at_zero = below[:, 0]
        in_cells = np.diff(below, axis=1)
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
            innovations, gains = _innovations(
                inside, self._inside_observations(untested)
            )
            result = self._cusum(statistic, innovations)
            history = untested.after(recent)
            tested_before = len(history.rewards) - len(innovations)
            begin = 0  # ``history[begin:]`` came since S was last 0
            if result.last_zero is not None:
                begin = tested_before + result.last_zero
            if not result.alarm:
                break
            information += float(gains[: result.tested].sum())
            since = history.part(slice(begin, tested_before + result.tested))
            inside = self.posterior._clone()
            inside.observe(*self._inside_observations(since), rng)
            steps = self._numbers(since.arms)
            alarms += (Alarm(step=int(steps[-1]), since=int(steps[0])),)
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
        for tested, square in enumerate((innovations**2).tolist(), start=1):
            statistic = max(0.0, statistic + self._slope * square - self._fall)
            if statistic == 0.0:
                last_zero = tested
            if statistic >= threshold:
                return _CusumResult(statistic, tested, last_zero, alarm=True)
        return _CusumResult(statistic, len(innovations), last_zero, alarm=False)

    def _memory(self) -> Memory:
        scalars = {"statistic": self._statistic, "ignored": self.ignored}
        alarms = np.array(self.alarms, dtype=np.float64).reshape(-1, 2)
        return self._memory_of(scalars, self._recent, alarms=alarms)

    def _remember(self, state: State) -> None:
        self.ignored = as_count(state.scalar("ignored"), "ignored", 0, self.count)
        threshold = math.log(self.run_length)
        self._statistic = as_number(
            state.scalar("statistic"), "statistic", 0.0, threshold
        )
        alarms = as_features(state.array("alarms"), "alarms", 2)
        if (alarms != np.floor(alarms)).any() or (np.abs(alarms) > 2**53).any():
            raise StateError("this state is damaged: its alarms are not at whole steps")
        self.alarms = tuple(
            Alarm(int(step), int(since)) for step, since in alarms.tolist()
        )
        self._remember_inside(state, self.posterior)
        if self._statistic > 0.0:
            self._recent = self._observations_in(state)


def _is_late(
    keys: NDArray[Any], inside: GaussianPosterior, alarms: tuple[Alarm, ...]
) -> NDArray[np.bool_]:
    """Which observations are from before the last detected change, (m,), or already forgotten."""
    first_step = alarms[-1].since if alarms else 0
    late: NDArray[np.bool_] = ChangeDetecting._numbers(keys) < first_step
    if isinstance(inside, DriftingGP):
        # It would not learn them, so they are no evidence of a change.
        late |= keys[:, _TIME] <= inside._forgotten
    return late


def _innovations(
    inside: GaussianPosterior, observations: Observations
) -> tuple[Floats, Floats]:
    """Whitened innovations z and the information of each observation, nats; both (m,)."""
    if not len(observations.arms):
        return np.empty(0), np.empty(0)
    mean, _ = inside._moments(observations.arms)
    covariance = inside._covariance(observations.arms) + np.diag(observations.noise)
    scale = inside._prior_scale(observations.arms) + float(observations.noise.max())
    factor = cholesky(covariance, "the covariance of the observed arms", scale)
    gains = np.log(np.diagonal(factor)) - 0.5 * np.log(observations.noise)
    innovations = solve_lower(factor, observations.rewards - mean)
    return innovations, gains
