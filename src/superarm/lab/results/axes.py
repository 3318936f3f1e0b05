"""Places along an axis: ticks, and labels that do not overlap."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SMALLEST = float(np.finfo(np.float64).tiny)  # below it, numbers lose their digits
_MOST_INTERVALS = 7.0  # between the ticks of a linear axis
_ROUND_STEPS = (1, 2, 2.5, 5, 10)


def ticks(low: float, high: float, log: bool = False) -> list[float]:
    """Return round numbers within [low, high], about five.

    Args:
        low: The lower end of the axis.
        high: Its upper end.
        log: Whether the axis is logarithmic.

    >>> ticks(0.0, 30000.0), ticks(2e-5, 7e-3, log=True)
    ([0.0, 5000.0, 10000.0, 15000.0, 20000.0, 25000.0, 30000.0], [3e-05, 0.0001, 0.0003, 0.001, 0.003])
    """
    if not high - low > _SMALLEST:
        return [low]
    return _log_ticks(low, high) if log else _linear_ticks(low, high)


def _log_ticks(low: float, high: float) -> list[float]:
    low = max(low, _SMALLEST)
    decades = float(np.log10(high / low))
    if decades < 1.5:
        steps = [1, 2, 5]
    elif decades < 3.0:
        steps = [1, 3]
    else:
        steps = [1]
    first_power = int(np.floor(np.log10(low)))
    last_power = int(np.ceil(np.log10(high)))
    values = []
    for power in range(first_power, last_power + 1):
        values += [float(f"{step}e{power}") for step in steps]
    lowest = low * 0.999
    highest = high * 1.001
    return [value for value in values if lowest <= value <= highest]


def _linear_ticks(low: float, high: float) -> list[float]:
    least = (high - low) / _MOST_INTERVALS
    step = _round_step(least)
    # Ends of the axis that are ticks but for rounding count as ticks.
    first = np.ceil(low / step - 1e-9)
    last = np.floor(high / step + 1e-9)
    numbers = range(int(first), int(last) + 1)
    return [round(number * step, 12) for number in numbers]


def _round_step(least: float) -> float:
    """The smallest round number that is not below ``least``, but for rounding."""
    exponent = np.floor(np.log10(least))
    power = 10.0**exponent
    for factor in _ROUND_STEPS:
        if factor * power >= least * 0.999:
            return float(power * factor)
    raise AssertionError  # the last factor is 10


def spread_labels(
    positions: Sequence[float], gap: float, low: float, high: float
) -> list[float]:
    """Move positions as little as possible so that they lie apart within [low, high].

    Args:
        positions: The positions.
        gap: The least distance between two of them.
        low: The lower end.
        high: The upper end.

    >>> spread_labels([5.0, 5.0, 40.0], 10.0, 0.0, 100.0)
    [0.0, 10.0, 40.0]
    """
    from scipy.optimize import isotonic_regression

    count = len(positions)
    wishes = np.asarray(positions, dtype=np.float64)
    order = np.argsort(wishes, kind="stable")
    # Less the gaps below them, positions may be equal but must keep their order: isotonic
    # regression finds the nearest such ones by least squares.
    gaps_below = gap * np.arange(count)
    reduced = wishes[order] - gaps_below
    moved = isotonic_regression(reduced).x
    highest = max(low, high - (count - 1) * gap)
    moved = np.clip(moved, low, highest)
    placed = np.empty(count)
    placed[order] = moved + gaps_below
    return placed.tolist()
