"""The largest ½ Σ ln(1 + r_i m_i) for rates r_i and amounts m_i ≥ 0 that add up to N.

Amounts that are best reach one level θ, as water does: m_i = (θ − 1/r_i)₊. The ground of i is at the
height 1/r_i.
"""

from __future__ import annotations

import math

import numpy as np

from superarm.core import Floats

_BISECTIONS = 60
# Below it a rate is 0: its share of any bound is below rounding.
_SMALLEST_RATE = 1e-100


class Water:
    """The largest value by N: exact, in O(ln n) for each N.

    Args:
        rates: r, (n,).
    """

    def __init__(self, rates: Floats) -> None:
        positive = rates[rates > _SMALLEST_RATE]
        descending = np.sort(positive)[::-1]
        heights = 1.0 / descending
        self._filled = np.cumsum(heights)
        self._logs = np.cumsum(np.log(descending))
        # The amount at which the water reaches the next height.
        counts = np.arange(1, len(heights))
        next_heights = heights[1:]
        self._amounts = counts * next_heights - self._filled[:-1]

    def __call__(self, total: float) -> float:
        """The value at N.

        Args:
            total: N.
        """
        if total == 0 or len(self._logs) == 0:
            return 0.0
        last_wet = int(np.searchsorted(self._amounts, total))
        wet_count = last_wet + 1
        level = (total + self._filled[last_wet]) / wet_count
        rate_logs = float(self._logs[last_wet])
        return 0.5 * (wet_count * math.log(level) + rate_logs)


class CappedWater:
    """The same with m_i ≤ N·share_i, by its dual.

    ½Σ ln(1 + r_i m_i) + (N − Σm_i)/(2θ) at m_i = clip(θ − 1/r_i, 0, N·share_i) is an upper bound
    for *every* θ > 0 (weak duality), so bisection for the best one need not be exact.

    Args:
        rates: r, (n,).
        shares: the largest share of N of each amount, (n,).
    """

    def __init__(self, rates: Floats, shares: Floats) -> None:
        is_positive = rates > _SMALLEST_RATE
        self._rates = rates[is_positive]
        self._heights = 1.0 / self._rates
        self._shares = shares[is_positive]

    def __call__(self, total: float) -> float:
        """The value at N.

        Args:
            total: N.
        """
        if total == 0 or len(self._rates) == 0:
            return 0.0
        caps = total * self._shares
        if float(caps.sum()) <= total:
            return self._value(caps)
        level = self._level(total, caps)
        amounts = self._amounts(level, caps)
        unused = total - float(amounts.sum())
        return self._value(amounts) + 0.5 * unused / level

    def _level(self, total: float, caps: Floats) -> float:
        """θ, at which amounts add up to N or a little more."""
        low = float(self._heights.min())
        high = float((self._heights + caps).max())
        for _ in range(_BISECTIONS):
            level = math.sqrt(low * high)
            amounts = self._amounts(level, caps)
            if float(amounts.sum()) < total:
                low = level
            else:
                high = level
        return high

    def _amounts(self, level: float, caps: Floats) -> Floats:
        return np.clip(level - self._heights, 0.0, caps)

    def _value(self, amounts: Floats) -> float:
        logs = np.log1p(self._rates * amounts)
        return 0.5 * float(logs.sum())
