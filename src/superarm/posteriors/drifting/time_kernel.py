"""The kernel of time k_T at many times, as its state gives it."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats, Ints
from superarm.kernels.state_space import StateSpace


def outputs_after(space: StateSpace, now: float, times: Floats) -> tuple[Floats, Ints]:
    """h A(t − τ) of each different time t ≥ τ, (u, s), and the place of every time, (m,).

    Args:
        space: The state that follows the kernel of time.
        now: τ.
        times: The times, (m,); those before τ count as τ.
    """
    times = np.maximum(times, now)
    different, place = np.unique(times, return_inverse=True)
    h = space.output
    outputs = []
    for elapsed in different - now:
        A = space.transition(elapsed)
        outputs.append(h @ A)
    return np.array(outputs), place


def time_covariance(space: StateSpace, times: Floats, other_times: Floats) -> Floats:
    """k_T between times, (k, m).

    Args:
        space: The state that follows the kernel of time.
        times: Times, (k,).
        other_times: Other times, (m,).
    """
    h = space.output
    distances = np.abs(np.subtract.outer(times, other_times))
    different, place = np.unique(distances, return_inverse=True)
    values = []
    for distance in different:
        A = space.transition(distance)
        values.append(h @ A @ h)
    place = place.reshape(distances.shape)
    return np.array(values)[place]
