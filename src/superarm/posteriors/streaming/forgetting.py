"""How long observations matter to a kernel that forgets."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from superarm.core import Covariance, Floats
from superarm.core.errors import InputError
from superarm.kernels import Kernel

# The column of the times, where arms have one.
TIME = -1


def memory_span(kernel: Covariance, forget: float, width: int) -> float:
    """The age at which the correlation has fallen to ``forget``.

    Args:
        kernel: A kernel that forgets along the last column.
        forget: The correlation.
        width: The number of columns.
    """
    column = width - 1
    rate = None
    if isinstance(kernel, Kernel):
        rate = kernel.forgetting(column)
    if not rate:
        raise InputError(
            f"forget needs a kernel that forgets along column {column}, which holds the times: "
            f"multiply the whole kernel by Temporal(epsilon=0.01, column={column}), or leave "
            "forget out"
        )
    # (1 − rate)^{age/2} = forget
    rate = min(rate, 1.0 - 1e-15)
    log_decay = math.log1p(-rate)
    return 2.0 * math.log(forget) / log_decay


def is_recent(span: float, keys: Floats, observed: Floats) -> NDArray[np.bool_]:
    """Which keys still matter beside the newest of them and of all observations, (m,).

    Args:
        span: The age up to which observations matter.
        keys: Keys that end with a time, (m, d).
        observed: Observed keys, (N, d), or (0, 0) before the first.
    """
    times = keys[:, TIME]
    observed_times = observed[:, TIME:]  # no column before the first one
    newest_observed = np.max(observed_times, initial=-np.inf)
    newest = np.max(times, initial=newest_observed)
    ages = newest - times
    return np.asarray(ages <= span)
