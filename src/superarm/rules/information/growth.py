"""Growth rates of γ_t for common kernels, for schedules.

The constants hidden in the O(·) are taken as 1, and γ_0 = 0. srinivas2010gaussian, section 2;
chowdhury2017kernelized, section 3.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from superarm.core.inputs import as_count, as_positive, require_choice
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters


@register("gain", "squared-exponential")
@dataclass(frozen=True, kw_only=True)
class SquaredExponentialGain(CheckedParameters):
    """(ln t)^{d+1}. srinivas2010gaussian, Theorem 5.

    Args:
        dimension: d: number of features.
    """

    dimension: int

    def __call__(self, t: int) -> float:
        if t <= 1:
            return 0.0
        exponent = self.dimension + 1
        return math.log(t) ** exponent


@register("gain", "matern")
@dataclass(frozen=True, kw_only=True)
class MaternGain:
    """``srinivas``: t^{d(d+1)/(2ν+d(d+1))} ln t; ``vakili``: t^{d/(2ν+d)} (ln t)^{2ν/(2ν+d)}.

    srinivas2010gaussian, Theorem 5; vakili2021information, as quoted by sandberg2025bayesian,
    section 2.3, the sharper one.

    Args:
        nu: Smoothness ν of the kernel; 0.5, 1.5 and 2.5 are the usual values.
        dimension: d: number of features.
        rate: Whose growth rate to use, "srinivas" or "vakili".
    """

    nu: float
    dimension: int
    rate: Literal["srinivas", "vakili"] = "srinivas"

    def __post_init__(self) -> None:
        as_positive(self.nu, "nu")
        as_count(self.dimension, "dimension")
        require_choice(self.rate, "rate", ("srinivas", "vakili"))

    def __call__(self, t: int) -> float:
        if t <= 1:
            return 0.0
        logarithm = math.log(t)
        d = self.dimension
        if self.rate == "srinivas":
            pairs = d * (d + 1)
            exponent = pairs / (2.0 * self.nu + pairs)
            return math.exp(exponent * logarithm) * logarithm
        total = 2.0 * self.nu + d
        log_power_of_t = d / total * logarithm
        log_power_of_logarithm = 2.0 * self.nu / total * math.log(logarithm)
        return math.exp(log_power_of_t) * math.exp(log_power_of_logarithm)


@register("gain", "linear")
@dataclass(frozen=True, kw_only=True)
class LinearGain(CheckedParameters):
    """d ln t. srinivas2010gaussian, Theorem 5.

    Args:
        dimension: d: number of features.
    """

    dimension: int

    def __call__(self, t: int) -> float:
        if t <= 1:
            return 0.0
        return self.dimension * math.log(t)


@register("gain", "constant")
@dataclass(frozen=True, kw_only=True)
class ConstantGain(CheckedParameters):
    """The same value for every t, also for t = 0: a constant chosen by cross-validation.

    chowdhury2017kernelized, section 6, takes 1 for the sensor data.

    Args:
        value: The constant, in nats.
    """

    value: float = 1.0

    def __call__(self, t: int) -> float:
        return self.value
