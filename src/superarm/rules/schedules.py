"""How wide a confidence interval is in each round.

A schedule returns the ``width`` that multiplies the posterior standard deviation. Papers that
write β_t under a root are given as √β_t; a β_t below zero (early rounds, few arms) counts as 0.

==================  ==============================================================
``t``               the round, ``step``
``gamma(t)``        γ_t, the (maximal, bounded or realised) information gain
``δ``               ``delta``, the probability with which a guarantee may fail
``B``, ``R``        ``norm_bound`` ‖f‖_k ≤ B; ``noise_bound``, R-sub-Gaussian noise
==================  ==============================================================

Every width is plain ``math`` on Python floats: about a microsecond or less. Those for Bayesian
regret stand in :mod:`superarm.rules.bayesian`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from superarm.core import Gamma, Schedule
from superarm.core.inputs import as_count
from superarm.core.registry import register

from .base import Checked, require_part, root

_PI_SQUARED = math.pi**2


@register("schedule", "fixed")
@dataclass(frozen=True, kw_only=True)
class Fixed(Checked):
    """The same width in every round.

    Args:
        value: The constant.
    """

    value: float

    def width(self, step: int, gamma: Gamma) -> float:
        return self.value


# --- functions in an RKHS (chowdhury2017kernelized, srinivas2010gaussian, valko2013finite) ----


@register("schedule", "igp-ucb")
@dataclass(frozen=True, kw_only=True)
class ImprovedGPUCB(Checked):
    """IGP-UCB: B + R√(2(γ_{t−1} + 1 + ln(1/δ))).

    chowdhury2017kernelized, Algorithm 1. Theorem 2 makes it a confidence band for all rounds
    at once when the posterior's noise variance is 1 + 2/T.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        noise_bound: R: the noise is R-sub-Gaussian.
        delta: Probability with which the confidence bounds may fail.
    """

    norm_bound: float
    noise_bound: float
    delta: float = 0.1

    log_events: ClassVar[float] = 0.0

    def width(self, step: int, gamma: Gamma) -> float:
        information = gamma(step - 1) + 1.0 + self.log_events - math.log(self.delta)
        return self.norm_bound + self.noise_bound * math.sqrt(2.0 * information)


@register("schedule", "gp-ts")
@dataclass(frozen=True, kw_only=True)
class ThompsonScale(ImprovedGPUCB):
    """GP-TS: the sample's scale v_t = B + R√(2(γ_{t−1} + 1 + ln(2/δ))), IGP-UCB's at δ/2.

    chowdhury2017kernelized, Algorithm 2.
    """

    log_events: ClassVar[float] = math.log(2.0)


@register("schedule", "gp-ucb-agnostic")
@dataclass(frozen=True, kw_only=True)
class AgnosticGPUCB(Checked):
    """GP-UCB for a function in the RKHS: √(2B² + 300 γ_{t−1} ln³(t/δ)).

    srinivas2010gaussian, Theorem 3 (there with γ_t, and B standing for the squared norm), in
    the form that chowdhury2017kernelized, section 3.1, compares with.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        delta: Probability with which the confidence bounds may fail.
    """

    norm_bound: float
    delta: float = 0.1

    def width(self, step: int, gamma: Gamma) -> float:
        logarithm = math.log(step / self.delta)
        return root(2.0 * self.norm_bound**2 + 300.0 * gamma(step - 1) * logarithm**3)


@register("schedule", "ridge-ucb")
@dataclass(frozen=True, kw_only=True)
class RidgeUCB(Checked):
    """B + R/√λ √(2 ln(1/δ) + 2γ_{t−1}), with ridge regularisation λ.

    ramesh2022movement, Lemma 1, where R is σ and t counts the observations so far.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        noise_bound: R: the noise is R-sub-Gaussian.
        regularisation: Λ of the ridge regression.
        delta: Probability with which the confidence bounds may fail.
    """

    norm_bound: float
    noise_bound: float
    regularisation: float
    delta: float = 0.1

    def width(self, step: int, gamma: Gamma) -> float:
        information = 2.0 * gamma(step - 1) - 2.0 * math.log(self.delta)
        scale = self.noise_bound / math.sqrt(self.regularisation)
        return self.norm_bound + scale * math.sqrt(information)


@register("schedule", "kernel-ucb")
@dataclass(frozen=True, kw_only=True)
class KernelUCB(Checked):
    """KernelUCB: η/√λ, with exploration η and ridge regularisation λ.

    valko2013finite, Algorithm 1; chowdhury2017kernelized, section 3.1.

    Args:
        eta: How much to explore.
        regularisation: The λ that learners use: noise is the true noise variance, theory is 1 +
            2/T.
    """

    eta: float
    regularisation: float = 1.0

    def width(self, step: int, gamma: Gamma) -> float:
        return self.eta / math.sqrt(self.regularisation)


# --- functions drawn from a GP, high probability ----------------------------------------------


@register("schedule", "gp-ucb-finite")
@dataclass(frozen=True, kw_only=True)
class SrinivasFinite(Checked):
    """GP-UCB on finitely many arms: √(2 ln(|D| t² π² / (6δ))).

    srinivas2010gaussian, Theorem 1.

    Args:
        arms: How many arms there are.
        delta: Probability with which the confidence bounds may fail.
    """

    arms: int
    delta: float = 0.1

    def width(self, step: int, gamma: Gamma) -> float:
        return root(
            2.0 * math.log(self.arms * _PI_SQUARED * step * step / (6.0 * self.delta))
        )


@register("schedule", "oclok-ucb")
@dataclass(frozen=True, kw_only=True)
class OclokUCB(Checked):
    """O'CLOK-UCB: √(2 ln(M π² t² / (3δ))), M the largest number of arms in any round.

    nika2022oclok, Theorem 1 and Lemma 2.

    Args:
        most_arms: The largest number of arms in any round.
        delta: Probability with which the confidence bounds may fail.
    """

    most_arms: int
    delta: float = 0.05

    def width(self, step: int, gamma: Gamma) -> float:
        return root(
            2.0
            * math.log(self.most_arms * _PI_SQUARED * step * step / (3.0 * self.delta))
        )


# --- rewards that drift (bogunovic2016time) ---------------------------------------------------


@register("schedule", "logarithmic")
@dataclass(frozen=True, kw_only=True)
class LogarithmicUCB(Checked):
    """√(c₁ ln(c₂ t)): the growth that theory dictates, with constants chosen by hand.

    bogunovic2016time, section 5.

    Args:
        c1: Multiplies the logarithm.
        c2: Multiplies t inside the logarithm.
    """

    c1: float = 0.8
    c2: float = 4.0

    def width(self, step: int, gamma: Gamma) -> float:
        return root(self.c1 * math.log(self.c2 * step))


@register("schedule", "in-block")
@dataclass(frozen=True, kw_only=True)
class InBlock:
    """The width that another schedule gives to the step within its block of ``block`` steps.

    For posteriors that start anew with every block; γ is asked for at that step, too.

    Args:
        schedule: How wide the confidence bound is in each round.
        block: How many steps lie between two resets.
    """

    schedule: Schedule
    block: int

    def __post_init__(self) -> None:
        require_part(self.schedule, "schedule", "schedule")
        object.__setattr__(self, "block", as_count(self.block, "block"))

    def width(self, step: int, gamma: Gamma) -> float:
        return self.schedule.width((step - 1) % self.block + 1, gamma)


@dataclass(frozen=True, kw_only=True)
class _SlopeSchedule(Checked):
    """β_T = 2 ln(m π²T²/(6δ)) + 2d ln(r d b T² √ln(d a m π²T²/(6δ))), δ shared by m events.

    β grows with the round (eq. 34) unless a ``horizon`` T fixes it. The discretisation under the second
    logarithm has at least one point.

    Args:
        dimension: Number of features.
        side: Side length r of the domain.
        a: Constant a of the tail bound on the derivatives of f.
        b: Constant b of the tail bound on the derivatives of f.
        delta: Probability with which the confidence bounds may fail.
        horizon: Number of rounds T.
    """

    dimension: int
    side: float = 1.0
    a: float = 1.0
    b: float = 1.0
    delta: float = 0.1
    horizon: int | None = None

    events: ClassVar[float]

    def width(self, step: int, gamma: Gamma) -> float:
        rounds = step if self.horizon is None else self.horizon
        squared = float(rounds * rounds)
        share = self.events * _PI_SQUARED * squared / (6.0 * self.delta)
        d = self.dimension
        slope = root(math.log(d * self.a * share))
        points = max(1.0, self.side * d * self.b * squared * slope)
        return root(2.0 * math.log(share) + 2.0 * d * math.log(points))


@register("schedule", "r-gp-ucb")
@dataclass(frozen=True, kw_only=True)
class ResettingGPUCB(_SlopeSchedule):
    """R-GP-UCB: β_T = 2 ln(2π²T²/(3δ)) + 2d ln(r d b T² √ln(2daπ²T²/(3δ))).

    bogunovic2016time, Theorem 4.2, eq. 16, for the domain [0, r]^d, r the ``side``; a and b
    bound the slopes of the prior's draws (eq. 10). A ``horizon`` T fixes β.
    """

    events: ClassVar[float] = 4.0


@register("schedule", "tv-gp-ucb")
@dataclass(frozen=True, kw_only=True)
class TimeVaryingGPUCB(_SlopeSchedule):
    """TV-GP-UCB: β_T = 2 ln(π²T²/(2δ)) + 2d ln(r d b T² √ln(daπ²T²/(2δ))).

    bogunovic2016time, Theorem 4.3, eq. 19; parameters as in :class:`ResettingGPUCB`.
    """

    events: ClassVar[float] = 3.0
