"""Kernels of time as states that move: f_t = h·z_t with z_{t+Δ} = A(Δ) z_t + noise.

The coordinates are such that z is standard normal at every time, so that k(Δ) = h·A(Δ) h for Δ ≥ 0, and
A(Δ) lengthens nothing. What is known of a function fades by A alone: if its state has the covariance
K ⊗ I − W Wᵀ now, it has K ⊗ I − (A W)(A W)ᵀ after Δ. (Särkkä and Solin, Applied Stochastic Differential
Equations (2019), chapter 12; for periodic kernels Solin and Särkkä (2014).)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError

_MOST_TERMS = 1024


class StateSpace(NamedTuple):
    """A kernel of time with a state of size s."""

    output: Floats  # h, (s,)
    transition: Callable[
        [float], Floats
    ]  # A(Δ), (s, s); can be pickled, unlike a lambda
    error: float = 0.0  # bound on that of any kernel value

    def left(self, elapsed: float) -> float:
        """‖A(Δ)‖: the largest share of anything known that is left after this time."""
        A = self.transition(elapsed)
        return abs(A.item()) if len(A) == 1 else float(np.linalg.norm(A, 2))

    def scaled(self, factor: float) -> StateSpace:
        return StateSpace(
            np.sqrt(factor) * self.output, self.transition, factor * self.error
        )


def decaying(rate: float, variance: float = 1.0) -> StateSpace:
    """variance · e^{−rate Δ}."""
    output = np.array([np.sqrt(variance)])
    return StateSpace(output, partial(_decay, rate))


@lru_cache(maxsize=64)  # rounds are evenly spaced as a rule
def _decay(rate: float, elapsed: float) -> Floats:
    left = np.array([[np.exp(-rate * elapsed)]])
    left.flags.writeable = False  # kept for later rounds
    return left


def matern_three_halves(lengthscale: float, variance: float) -> StateSpace:
    """variance · (1 + λΔ) e^{−λΔ} with λ = √3/lengthscale: value and slope."""
    rate = np.sqrt(3.0) / lengthscale
    return StateSpace(np.array([np.sqrt(variance), 0.0]), partial(_three_halves, rate))


def _three_halves(rate: float, elapsed: float) -> Floats:
    x = rate * elapsed
    return np.asarray(np.exp(-x) * np.array([[1.0 + x, x], [-x, 1.0 - x]]))


def periodic(
    period: float, lengthscale: float, variance: float, tolerance: float
) -> StateSpace:
    """variance · exp(−2 sin²(πΔ/period)/lengthscale²) = Σ_j q_j cos(2πjΔ/period), a few of these terms.

    q_0 = e^{−c} I_0(c) and q_j = 2 e^{−c} I_j(c), c = lengthscale⁻². They add up to 1, so that the
    error is what is left of that.
    """
    from scipy.special import ive

    c, most = lengthscale**-2.0, 64
    while True:
        orders = np.arange(most)
        weights = ive(orders, c) * np.where(orders == 0, 1.0, 2.0)
        missing = np.append(
            np.cumsum(weights[::-1])[::-1], 0.0
        )  # of the terms from j on
        if missing[-2] <= 1e-3 * tolerance and abs(missing[0] - 1.0) <= 1e-9:
            break
        most *= 2
        if most > _MOST_TERMS:
            raise InputError(
                f"a periodic kernel with lengthscale {lengthscale:g} has more than {_MOST_TERMS} terms "
                "that count; give a longer lengthscale, or a larger time_tolerance"
            )
    count = max(1, int(np.argmax(missing <= tolerance)))
    amplitudes = np.sqrt(variance * weights[:count])
    output = np.zeros(2 * count - 1)
    output[0], output[1::2] = amplitudes[0], amplitudes[1:]
    return StateSpace(
        output, partial(_turn, period, count), variance * float(missing[count])
    )


def _turn(period: float, count: int, elapsed: float) -> Floats:
    """Each of ``count`` terms but the first, which is constant, turned by its angle."""
    cycles = elapsed / period
    angles = 2.0 * np.pi * np.arange(1, count) * (cycles - np.rint(cycles))
    turned = np.eye(2 * count - 1)
    odd, even = np.arange(1, 2 * count - 1, 2), np.arange(2, 2 * count - 1, 2)
    turned[odd, odd] = turned[even, even] = np.cos(angles)
    turned[odd, even] = np.sin(angles)
    turned[even, odd] = -turned[odd, even]
    return turned


def added(parts: Sequence[StateSpace]) -> StateSpace:
    """Of the sum of kernels: their states beside each other."""
    return StateSpace(
        np.concatenate([part.output for part in parts]),
        partial(_beside, tuple(part.transition for part in parts)),
        sum(part.error for part in parts),
    )


def _beside(transitions: Sequence[Callable[[float], Floats]], elapsed: float) -> Floats:
    from scipy.linalg import block_diag

    return np.asarray(block_diag(*(transition(elapsed) for transition in transitions)))


def multiplied(left: StateSpace, right: StateSpace) -> StateSpace:
    """Of the product of kernels: all products of their states."""
    sizes = [float(part.output @ part.output) for part in (left, right)]
    return StateSpace(
        _kron(left.output, right.output),
        partial(_both, left.transition, right.transition),
        left.error * (sizes[1] + right.error) + right.error * sizes[0],
    )


def _both(
    left: Callable[[float], Floats], right: Callable[[float], Floats], elapsed: float
) -> Floats:
    return _kron(left(elapsed), right(elapsed))


def _kron(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.kron(left, right), dtype=np.float64)
