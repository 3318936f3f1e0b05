"""Arguments that many bounds share: rounds, γ, probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Gamma
from superarm.core.errors import InputError
from superarm.core.inputs import LARGEST, as_number, as_vector
from superarm.rules.base import as_probability


def as_rounds(rounds: Any, name: str = "rounds") -> Floats:
    """T, one or several, between 1 and the largest number that is accepted.

    Args:
        rounds: a number or an array.
        name: of the argument in errors.
    """
    shape = np.shape(rounds)
    values = as_vector(np.ravel(rounds), name)
    if values.size:
        is_within = values.min() >= 1.0 and values.max() <= LARGEST
        if not is_within:
            raise InputError(f"{name} must lie between 1 and {LARGEST:g}")
    return values.reshape(shape)


def evaluate(gamma: Gamma, counts: Floats) -> Floats:
    """γ at whole numbers of observations.

    Args:
        gamma: N ↦ γ_N.
        counts: N, of any shape.
    """
    values = [gamma(int(count)) for count in counts.ravel()]
    return np.array(values, dtype=np.float64).reshape(counts.shape)


def check_bounds(*, delta: float, **nonnegative: float) -> None:
    """Refuse a δ outside (0, 1) and numbers below zero.

    Args:
        delta: δ, the probability of failing.
        nonnegative: other arguments by name.
    """
    as_probability(delta, "delta")
    for name, value in nonnegative.items():
        as_number(value, name, least=0.0)
