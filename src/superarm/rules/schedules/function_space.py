"""Widths for functions in the kernel's space (RKHS).

chowdhury2017kernelized, srinivas2010gaussian, valko2013finite, ramesh2022movement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from superarm.core import Gamma
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters, root


@register("schedule", "igp-ucb")
@dataclass(frozen=True, kw_only=True)
class ImprovedGPUCB(CheckedParameters):
    """IGP-UCB: B + R√(2(γ_{t−1} + 1 + ln(1/δ))).

    chowdhury2017kernelized, Algorithm 1. Theorem 2 makes it a confidence band for all rounds
    at once when the posterior's noise variance is 1 + 2/T.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        noise_bound: R: the noise is R-sub-Gaussian.
        delta: δ: probability with which the confidence bounds may fail.
    """

    norm_bound: float
    noise_bound: float
    delta: float = 0.1

    log_events: ClassVar[float] = 0.0
    """ln m, where m events share δ."""

    def width(self, step: int, gamma: Gamma) -> float:
        gain = gamma(step - 1)
        log_delta = math.log(self.delta)
        information = gain + 1.0 + self.log_events - log_delta
        deviation = math.sqrt(2.0 * information)
        return self.norm_bound + self.noise_bound * deviation


@register("schedule", "gp-ts")
@dataclass(frozen=True, kw_only=True)
class ThompsonScale(ImprovedGPUCB):
    """GP-TS: the sample's scale v_t = B + R√(2(γ_{t−1} + 1 + ln(2/δ))), IGP-UCB's at δ/2.

    chowdhury2017kernelized, Algorithm 2.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        noise_bound: R: the noise is R-sub-Gaussian.
        delta: δ: probability with which the confidence bounds may fail.
    """

    log_events: ClassVar[float] = math.log(2.0)


@register("schedule", "gp-ucb-agnostic")
@dataclass(frozen=True, kw_only=True)
class AgnosticGPUCB(CheckedParameters):
    """GP-UCB for a function in the RKHS: √(2B² + 300 γ_{t−1} ln³(t/δ)).

    srinivas2010gaussian, Theorem 3 (there with γ_t, and B standing for the squared norm), in
    the form that chowdhury2017kernelized, section 3.1, compares with.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        delta: δ: probability with which the confidence bounds may fail.
    """

    norm_bound: float
    delta: float = 0.1

    def width(self, step: int, gamma: Gamma) -> float:
        gain = gamma(step - 1)
        logarithm = math.log(step / self.delta)
        information = 300.0 * gain * logarithm**3
        norm = 2.0 * self.norm_bound**2
        return root(norm + information)


@register("schedule", "ridge-ucb")
@dataclass(frozen=True, kw_only=True)
class RidgeUCB(CheckedParameters):
    """B + R/√λ √(2 ln(1/δ) + 2γ_{t−1}), with ridge regularisation λ.

    ramesh2022movement, Lemma 1, where R is σ and t counts the observations so far.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        noise_bound: R: the noise is R-sub-Gaussian.
        regularisation: λ of the ridge regression.
        delta: δ: probability with which the confidence bounds may fail.
    """

    norm_bound: float
    noise_bound: float
    regularisation: float
    delta: float = 0.1

    def width(self, step: int, gamma: Gamma) -> float:
        gain = gamma(step - 1)
        log_delta = math.log(self.delta)
        deviation = math.sqrt(2.0 * gain - 2.0 * log_delta)
        scale = self.noise_bound / math.sqrt(self.regularisation)
        return self.norm_bound + scale * deviation


@register("schedule", "kernel-ucb")
@dataclass(frozen=True, kw_only=True)
class KernelUCB(CheckedParameters):
    """KernelUCB: η/√λ, with exploration η and ridge regularisation λ.

    valko2013finite, Algorithm 1; chowdhury2017kernelized, section 3.1.

    Args:
        eta: η: how much to explore.
        regularisation: λ of the ridge regression.
    """

    eta: float
    regularisation: float = 1.0

    def width(self, step: int, gamma: Gamma) -> float:
        return self.eta / math.sqrt(self.regularisation)
