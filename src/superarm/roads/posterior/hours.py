"""The hour of the day: a few waves with which roads and the fleet's terms deviate from their mean.

=============  =======================================================================
``h``          the hour at which a road is reached, 0 to 24
``B``          functions of the hour: 1, and a cosine and a sine of each harmonic
``φ(h)``       their values, (B,); φ(h)·φ(h') is 1 plus the correlation of the deviations at two hours
=============  =======================================================================

A deviation from the day's mean is Σ_b φ_b(h)·g_b over b ≥ 1, with independent g_b of one variance. Its
correlation is the periodic kernel exp(−2 sin²(π(h − h')/24)/ℓ²) [MacKay, Introduction to Gaussian
processes, 1998] without its constant and with the waves beyond the last harmonic cut off: their weights
are Bessel functions I_k(1/ℓ²). With ℓ = 2/harmonics at most 5 % are cut off.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Floats
from superarm.roads.rows import Column

_HOURS = 24.0


class DayBasis:
    """Functions of the hour.

    Args:
        harmonics: How many waves; the shortest is 24/harmonics hours long.
    """

    def __init__(self, harmonics: int) -> None:
        from scipy.special import ive

        self._waves = np.arange(1, harmonics + 1)
        lengthscale = 2.0 / harmonics
        shares = ive(self._waves, lengthscale**-2)
        self._amplitudes = np.sqrt(shares / shares.sum())

    def __len__(self) -> int:
        return 1 + 2 * len(self._waves)

    def at(self, hours: Floats) -> Floats:
        """φ of these hours, (N, B); at a negative hour, which is any time, only the first is not 0."""
        angles = (2.0 * np.pi / _HOURS) * hours[:, None] * self._waves
        cosines = self._amplitudes * np.cos(angles)
        sines = self._amplitudes * np.sin(angles)
        ones = np.ones((len(hours), 1))
        values = np.concatenate([ones, cosines, sines], axis=1)
        values[hours < 0.0, 1:] = 0.0
        return values

    def of(self, keys: Floats) -> Floats:
        """φ of the hours of feature rows, (N, B)."""
        return self.at(keys[:, Column.HOUR])
