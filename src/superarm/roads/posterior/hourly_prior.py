"""The prior of what roads and the fleet's terms cost, function by function of the hour.

=============  =======================================================================
``B``          functions of the hour, the first of them 1; see :mod:`.hours`
``near``       what multiplies k_G: near², and near_hour² for all functions but the first
``own``        own² + (share · size)² of each road, and own_hour² + (share_hour · size)²
``fleet``      fleet² of each term, and fleet_hour²
=============  =======================================================================

What belongs to different functions is independent.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from superarm.core import Floats
from superarm.roads.energy.scales import HourlyScales

from .hours import DayBasis


class HourlyPrior(NamedTuple):
    """Prior variances by function of the hour."""

    near: Floats  # (B,)
    own: Floats  # (n, B)
    fleet: Floats  # (5, B)

    @classmethod
    def under(cls, scales: HourlyScales, sizes: Floats) -> Self:
        """The prior under these scales.

        Args:
            scales: Standard deviations of the model.
            sizes: Wh that each road moves, (n,).
        """
        functions = len(DayBasis(scales.harmonics))
        own_of_mean = scales.own**2 + np.square(scales.share * sizes)
        own_of_hour = scales.own_hour**2 + np.square(scales.share_hour * sizes)
        near = np.full(functions, scales.near_hour**2)
        near[0] = scales.near**2
        own = np.tile(own_of_hour[:, None], functions)
        own[:, 0] = own_of_mean
        fleet = np.tile(np.square(scales.fleet_hour)[:, None], functions)
        fleet[:, 0] = np.square(scales.fleet)
        return cls(near, own, fleet)
