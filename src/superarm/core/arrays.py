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
    """Each row as often as ``count`` says, and how often it was there before."""
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
