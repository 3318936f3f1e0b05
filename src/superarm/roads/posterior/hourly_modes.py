"""Soft modes of the sparse form with hours; see :mod:`.soft_modes`.

Q and M differ only in what trips contain: about f and g of the s roads that were driven on, and about
terms. So the search needs memory for those roads, not for all n.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Ints

from .hourly_unknowns import HourlyUnknowns


class HourlyModes(NamedTuple):
    """Directions in which M is corrected, and the smallest θ of all others."""

    weights: Floats  # 1/θ − 1, (k,)
    vectors: Floats  # v, flat unknowns, (k, p)
    smallest: float

    @classmethod
    def none(cls) -> HourlyModes:
        """No directions."""
        return cls(np.empty(0), np.empty((0, 0)), np.inf)

    def times(self, values: Floats) -> Floats:
        """Σ (1/θ − 1) v vᵀ times values, (p,), whose last entries may be newer than v."""
        known = self.vectors.shape[1]
        product = np.zeros_like(values)
        along = self.vectors @ values[:known]
        product[:known] = (self.weights * along) @ self.vectors
        return product


class DrivenUnknowns(NamedTuple):
    """The unknowns about which trips contain something.

    In a vector they are f, then g of the roads that were driven on, then all terms.
    """

    driven: Ints  # these roads, (s,)
    roads: int  # n
    functions: int  # B
    vehicles: int  # V

    @property
    def size(self) -> int:
        """How many they are."""
        terms = HourlyUnknowns.zeros(0, self.functions, self.vehicles)
        return 2 * len(self.driven) * self.functions + len(terms.flat())

    def spread(self, values: Floats) -> HourlyUnknowns:
        """All unknowns: these values, and 0 for others."""
        known = HourlyUnknowns.from_flat(values, len(self.driven), self.functions)
        x = HourlyUnknowns.zeros(self.roads, self.functions, self.vehicles)
        x.f[self.driven] = known.f
        x.g[self.driven] = known.g
        return x._replace(fleet=known.fleet, vehicles=known.vehicles)

    def gathered(self, x: HourlyUnknowns) -> Floats:
        """The values of these unknowns among all."""
        known = x._replace(f=x.f[self.driven], g=x.g[self.driven])
        return known.flat()
