"""High-probability widths for functions drawn from a GP on finitely many arms."""

from __future__ import annotations

import math
from dataclasses import dataclass

from superarm.core import Gamma
from superarm.core.registry import register
from superarm.rules.base import CheckedParameters, root

_PI_SQUARED = math.pi**2


@register("schedule", "gp-ucb-finite")
@dataclass(frozen=True, kw_only=True)
class SrinivasFinite(CheckedParameters):
    """GP-UCB on finitely many arms: √(2 ln(|D| t² π² / (6δ))).

    srinivas2010gaussian, Theorem 1.

    Args:
        arms: |D|: how many arms there are.
        delta: δ: probability with which the confidence bounds may fail.
    """

    arms: int
    delta: float = 0.1

    def width(self, step: int, gamma: Gamma) -> float:
        events = self.arms * _PI_SQUARED * step * step
        ratio = events / (6.0 * self.delta)
        beta = 2.0 * math.log(ratio)
        return root(beta)


@register("schedule", "oclok-ucb")
@dataclass(frozen=True, kw_only=True)
class OclokUCB(CheckedParameters):
    """O'CLOK-UCB: √(2 ln(M π² t² / (3δ))), M the largest number of arms in any round.

    nika2022oclok, Theorem 1 and Lemma 2.

    Args:
        most_arms: M: the largest number of arms in any round.
        delta: δ: probability with which the confidence bounds may fail.
    """

    most_arms: int
    delta: float = 0.05

    def width(self, step: int, gamma: Gamma) -> float:
        events = self.most_arms * _PI_SQUARED * step * step
        ratio = events / (3.0 * self.delta)
        beta = 2.0 * math.log(ratio)
        return root(beta)
