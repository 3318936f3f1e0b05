"""Kernels of time as states that move: f_t = h·z_t with z_{t+Δ} = A(Δ) z_t + noise.

In these coordinates z is standard normal at every time, so k(Δ) = h·A(Δ) h for Δ ≥ 0, and A(Δ)
lengthens nothing. Knowledge about a function fades by A only: if its state has the covariance
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

_FIRST_TERMS = 64
_MOST_TERMS = 1024

Transition = Callable[[float], Floats]
"""A(Δ), (s, s), of the elapsed time Δ; it can be pickled, unlike a lambda."""


class StateSpace(NamedTuple):
    """A kernel of time with a state of size s."""

    output: Floats  # h, (s,)
    transition: Transition
    error: float = 0.0  # bound on the error of any kernel value

    def remaining_share(self, elapsed: float) -> float:
        """‖A(Δ)‖: the largest share of any knowledge that remains.

        Args:
            elapsed: Δ: time since the observations.
        """
        A = self.transition(elapsed)
        if len(A) == 1:
            return abs(A.item())
        return float(np.linalg.norm(A, 2))

    def scaled(self, factor: float) -> StateSpace:
        """The state space of ``factor``·k.

        Args:
            factor: What the kernel is multiplied by, above 0.
        """
        output = np.sqrt(factor) * self.output
        return StateSpace(output, self.transition, factor * self.error)


def exponential_decay(rate: float, variance: float = 1.0) -> StateSpace:
    """variance · e^{−rate Δ}."""
    std = np.sqrt(variance)
    transition = partial(_decay, rate)
    return StateSpace(np.array([std]), transition)


@lru_cache(maxsize=64)  # the times of rounds are usually evenly spaced
def _decay(rate: float, elapsed: float) -> Floats:
    remaining = np.exp(-rate * elapsed)
    A = np.array([[remaining]])
    A.flags.writeable = False  # cached for later rounds
    return A


def matern_three_halves(lengthscale: float, variance: float) -> StateSpace:
    """variance · (1 + λΔ) e^{−λΔ} with λ = √3/lengthscale: value and slope."""
    rate = np.sqrt(3.0) / lengthscale
    std = np.sqrt(variance)
    output = np.array([std, 0.0])
    transition = partial(_three_halves, rate)
    return StateSpace(output, transition)


def _three_halves(rate: float, elapsed: float) -> Floats:
    x = rate * elapsed
    value_row = [1.0 + x, x]
    slope_row = [-x, 1.0 - x]
    matrix = np.array([value_row, slope_row])
    return np.asarray(np.exp(-x) * matrix)


def periodic(
    period: float, lengthscale: float, variance: float, tolerance: float
) -> StateSpace:
    """variance · exp(−2 sin²(πΔ/period)/lengthscale²) = Σ_j q_j cos(2πjΔ/period), truncated.

    q_0 = e^{−c} I_0(c) and q_j = 2 e^{−c} I_j(c), c = lengthscale⁻². Their sum is 1, so the error is
    the sum of the terms that are left out.
    """
    weights, tails = _fourier_weights(lengthscale, tolerance)
    first_small = int(np.argmax(tails <= tolerance))
    count = max(1, first_small)
    amplitudes = np.sqrt(variance * weights[:count])
    # The constant term has one coordinate, every other a cosine and a sine.
    output = np.zeros(2 * count - 1)
    output[0] = amplitudes[0]
    output[1::2] = amplitudes[1:]
    error = variance * float(tails[count])
    transition = partial(_rotation, period, count)
    return StateSpace(output, transition, error)


class _FourierWeights(NamedTuple):
    weights: Floats  # q_j, (m,)
    tails: Floats  # Σ_{i≥j} q_i, (m + 1,)


def _fourier_weights(lengthscale: float, tolerance: float) -> _FourierWeights:
    """Enough weights q_j of a periodic kernel that all others are negligible."""
    from scipy.special import ive

    c = lengthscale**-2.0
    count = _FIRST_TERMS
    while count <= _MOST_TERMS:
        orders = np.arange(count)
        multiplicity = np.where(orders == 0, 1.0, 2.0)
        weights = ive(orders, c) * multiplicity
        sums_from_last = np.cumsum(weights[::-1])
        tails = np.append(sums_from_last[::-1], 0.0)
        last_is_small = tails[-2] <= 1e-3 * tolerance
        error_of_sum = abs(tails[0] - 1.0)
        if last_is_small and error_of_sum <= 1e-9:
            return _FourierWeights(weights, tails)
        count *= 2
    raise InputError(
        f"a periodic kernel with lengthscale {lengthscale:g} has more than {_MOST_TERMS} terms "
        "that count; give a longer lengthscale, or a larger time_tolerance"
    )


def _rotation(period: float, count: int, elapsed: float) -> Floats:
    """Rotates each of ``count`` terms by its angle, except the first, which is constant."""
    cycles = elapsed / period
    phase = cycles - np.rint(cycles)
    harmonics = np.arange(1, count)
    angles = 2.0 * np.pi * harmonics * phase
    cosine = np.cos(angles)
    sine = np.sin(angles)
    size = 2 * count - 1
    matrix = np.eye(size)
    odd = np.arange(1, size, 2)
    even = np.arange(2, size, 2)
    matrix[odd, odd] = cosine
    matrix[even, even] = cosine
    matrix[odd, even] = sine
    matrix[even, odd] = -sine
    return matrix


def add_states(parts: Sequence[StateSpace]) -> StateSpace:
    """The state space of a sum of kernels: their states side by side."""
    outputs = [part.output for part in parts]
    transitions = tuple(part.transition for part in parts)
    error = sum(part.error for part in parts)
    transition = partial(_block_diagonal, transitions)
    return StateSpace(np.concatenate(outputs), transition, error)


def _block_diagonal(transitions: Sequence[Transition], elapsed: float) -> Floats:
    from scipy.linalg import block_diag

    blocks = [transition(elapsed) for transition in transitions]
    A = block_diag(*blocks)
    return np.asarray(A)


def multiply_states(left: StateSpace, right: StateSpace) -> StateSpace:
    """The state space of a product of kernels: all products of their states."""
    left_variance = float(left.output @ left.output)
    right_variance = float(right.output @ right.output)
    right_size = right_variance + right.error
    left_error = left.error * right_size
    right_error = right.error * left_variance
    output = _kron(left.output, right.output)
    transition = partial(_both, left.transition, right.transition)
    return StateSpace(output, transition, left_error + right_error)


def _both(left: Transition, right: Transition, elapsed: float) -> Floats:
    left_step = left(elapsed)
    right_step = right(elapsed)
    return _kron(left_step, right_step)


def _kron(left: Floats, right: Floats) -> Floats:
    product = np.kron(left, right)
    return np.asarray(product, dtype=np.float64)
