"""Types of arrays and numbers that every module uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Rng = np.random.Generator
Direction = Literal["maximize", "minimize"]
Gamma = Callable[[int], float]
"""``gamma(t)``: (a bound on) the information gained from ``t`` observations, γ_t."""


def repeated(count: Ints) -> tuple[Ints, Ints]:
    """Row numbers, each repeated, and the number of each repetition within its row, from 0.

    Args:
        count: How often to repeat each row, (n,).
    """
    rows = np.repeat(np.arange(len(count)), count)
    first_of_row = np.cumsum(count) - count
    repetitions = np.arange(len(rows)) - np.repeat(first_of_row, count)
    return rows, repetitions
