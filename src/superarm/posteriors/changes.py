"""A posterior that notices sudden changes and then forgets what came before them.

Notation

=========  =======================================================================
``z``      innovations: rewards less their forecasts, whitened by the forecasts' covariance,
           noise included. While the model holds they are independent and N(0, 1)
``ρ``      ``scale``: what a change does to them, in the alternative that is tested: N(0, ρ²)
``S``      CUSUM of the log-likelihood ratio, S ← max(0, S + ½ z² (1 − 1/ρ²) − ln ρ)
``h``      ln ``run_length``: an alarm is given when S ≥ h
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
from .rows import Observed
from .wrapping import Numbered

_MOST_CELLS = (
    2000  # pieces of the statistic's range, to compute how long it takes to an alarm
)


class Alarm(NamedTuple):
    """A change was noticed."""

    step: int  # of the observation that gave the alarm
    since: int
    """The first step whose observations are kept: the change is thought to have come just before it."""


@register("posterior", "change-detecting")
class ChangeDetecting(Numbered):
    """Any posterior, made anew when rewards no longer agree with its forecasts.

    A CUSUM test looks for innovations that have become ``scale`` times as large. While the model holds,
    the mean number of observations until a (false) alarm is at least ``run_length``. On an alarm, a new
    posterior learns what came since the test's statistic last left 0; everything before that is
    forgotten. ``alarms`` lists the alarms; ``until_alarm`` says how long one takes to come.

    Keys are those of the posterior inside, with the step number as the last column. Feedback from
    before a noticed change is counted in ``ignored`` and not learned. Order matters: a policy refuses
    feedback of a decision before the last one it learned from.

    Args:
        posterior: The posterior inside.
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
        self._slope, self._fall = 0.5 * (1.0 - self.scale**-2), math.log(self.scale)
        self.alarms: tuple[Alarm, ...] = ()
        self._statistic = 0.0
        self._recent: Observed | None = None  # since the statistic was 0

    def until_alarm(self, spread: float = 1.0) -> float:
        """Mean number of observations until an alarm, from S = 0, if innovations are N(0, spread²).

        With ``spread`` 1 this is the run length without a change, for which ``run_length`` is a lower
        bound. With a larger one it is the delay after a change: about h / (½ spread² (1 − 1/ρ²) − ln ρ)
        where that is positive, and somewhat longer because S overshoots h. Computed as that of a Markov
        chain over pieces of [0, h), to about 2 %: not for a ``scale`` below 1.2, whose steps are too
        small for that, nor for a ``run_length`` above 1e12, where digits are lost.
        """
        from scipy.special import erf

        as_number(self.scale, "scale", 1.2)
        h = math.log(as_number(self.run_length, "run_length", 2.0, 1e12))
        cells = min(
            _MOST_CELLS, math.ceil(20.0 * h / self._slope)
        )  # twenty in the step of z² = 1
        edges = np.linspace(0.0, h, cells + 1)
        # S = 0 is a state of its own, then come the pieces, by their middles.
        at = np.append(0.0, 0.5 * (edges[1:] + edges[:-1]))
        up = edges[None, :] - at[:, None] + self._fall
        up /= self._slope * as_number(spread, "spread", 0.5, 1e6) ** 2
        below = erf(
            np.sqrt(0.5 * np.maximum(up, 0.0))
        )  # P(S⁺ ≤ edge), (cells + 1, cells + 1)
        stays = np.column_stack([below[:, 0], np.diff(below, axis=1)])
        return float(np.linalg.solve(np.eye(len(at)) - stays, np.ones(len(at)))[0])

    def _number(self, offer: Offer) -> int:
        return offer.step

    def _seen_within(self, seen: Observed) -> Observed:
        return seen._replace(arms=self._within(seen.arms))

    def _absorb(
        self, keys: NDArray[Any], rewards: Floats, noise: Floats, rng: Rng | None
    ) -> float:
        inside, recent, statistic, alarms = (
            self._inside,
            self._recent,
            self._statistic,
            self.alarms,
        )
        rest, gained, ignored = Observed(keys, rewards, noise), 0.0, 0
        while True:
            late = rest.arms[:, -1] < (alarms[-1].since if alarms else 0)
            if isinstance(
                inside, DriftingGP
            ):  # what it would not learn tells of no change
                late |= rest.arms[:, 1] <= inside._forgotten
            ignored += int(np.count_nonzero(late))
            rest = rest.part(~late)
            z, gains = _innovations(inside, self._seen_within(rest))
            known = rest.after(recent)
            passed, begin = (
                len(known.rewards) - len(z),
                0,
            )  # ``known[begin:]``: since S was 0
            for end, square in enumerate((z**2).tolist(), start=1):
                statistic = max(0.0, statistic + self._slope * square - self._fall)
                if statistic == 0.0:
                    begin = passed + end
                if statistic >= math.log(self.run_length):
                    break
            else:
                inside.observe(*self._seen_within(rest), rng)
                recent = known.part(slice(begin, None)) if statistic > 0.0 else None
                break
            gained += float(gains[:end].sum())
            since = known.part(slice(begin, passed + end))
            inside = self.posterior._like()
            inside.observe(*self._seen_within(since), rng)
            alarms += (Alarm(int(since.arms[-1, -1]), int(since.arms[0, -1])),)
            rest, recent, statistic = rest.part(slice(end, None)), None, 0.0
        self._settle(inside)
        self._recent, self._statistic, self.alarms = recent, statistic, alarms
        self.ignored += ignored
        return gained + float(gains.sum())

    def _memory(self) -> Memory:
        scalars = {"statistic": self._statistic, "ignored": self.ignored}
        alarms = np.array(self.alarms, dtype=np.float64).reshape(-1, 2)
        return self._memory_of(scalars, self._recent, alarms=alarms)

    def _remember(self, state: State) -> None:
        self.ignored = as_count(state.scalar("ignored"), "ignored", 0, self.count)
        most = math.log(self.run_length)
        self._statistic = as_number(state.scalar("statistic"), "statistic", 0.0, most)
        alarms = as_features(state.array("alarms"), "alarms", 2)
        if (alarms != np.floor(alarms)).any() or (np.abs(alarms) > 2**53).any():
            raise StateError("this state is damaged: its alarms are at no steps")
        self.alarms = tuple(
            Alarm(int(step), int(since)) for step, since in alarms.tolist()
        )
        self._remember_inside(state, self.posterior)
        if self._statistic > 0.0:
            self._recent = self._seen_in(state)


def _innovations(inside: GaussianPosterior, seen: Observed) -> tuple[Floats, Floats]:
    """Whitened innovations z and what each observation tells, nats; both (m,)."""
    if not len(seen.arms):
        return np.empty(0), np.empty(0)
    mean, _ = inside._moments(seen.arms)
    covariance = inside._covariance(seen.arms) + np.diag(seen.noise)
    largest = inside._prior_scale(seen.arms) + float(seen.noise.max())
    factor = cholesky(covariance, "the covariance of the observed arms", largest)
    gains = np.log(np.diagonal(factor)) - 0.5 * np.log(seen.noise)
    return solve_lower(factor, seen.rewards - mean), gains
