"""Sums over the arms of rewards, by function of the hour."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from superarm.core import Floats, Ints
from superarm.roads.energy.scales import TERMS
from superarm.roads.rows import Column, edges_of, terms_of

from .hours import DayBasis
from .trips import Trips

_P = len(TERMS)


class RoadsByHour(NamedTuple):
    """Visited roads that rewards at some hours are sums of, at all functions but the first."""

    counts: Floats  # how much each reward counts each road, (u, M, B − 1)
    near: Floats  # k_G between the rewards, summed over functions, (M, M)
    sizes: Floats  # Wh, (u,)
    terms: Floats  # of each reward, (M, 5, B − 1)


@runtime_checkable
class CountsByHour(Protocol):
    """An engine with hours."""

    def counted_by_hour(self, trips: Trips) -> RoadsByHour:
        """The roads of these trips, to which scales are fitted.

        Args:
            trips: The trips.
        """
        ...


def terms_by_hour(trips: Trips, basis: DayBasis) -> Floats:
    """Σ of the terms of each reward's arms by function of the hour, (M, 5, B).

    Args:
        trips: The trips.
        basis: Functions of the hour.
    """
    phi = basis.of(trips.keys)
    of_arms = terms_of(trips.keys)[:, :, None] * phi[:, None, :]
    flat = of_arms.reshape(len(phi), -1)
    return trips.summed(flat).reshape(-1, _P, len(basis))


def counts_by_hour(trips: Trips, edges: Ints, basis: DayBasis) -> Floats:
    """How much each reward counts each of its roads by function of the hour, (u, M, B).

    Args:
        trips: The trips.
        edges: Their roads, each once, sorted, (u,).
        basis: Functions of the hour.
    """
    phi = basis.of(trips.keys)
    weights = trips.keys[:, [Column.MASS_RATIO]] * phi
    place = np.searchsorted(edges, edges_of(trips.keys))
    counts = np.zeros((len(edges), len(trips.rewards), len(basis)))
    np.add.at(counts, (place, trips.reward_of_arm), weights)
    return counts
