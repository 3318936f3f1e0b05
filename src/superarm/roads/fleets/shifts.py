"""Shifts of a log: energies that are one row late or early, or of the other direction.

The docstring of :mod:`.checks` explains D and t.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

from superarm.core import Floats

from .trip_energies import Energies

Shift = Literal["late", "early", "reversed"]
_LEAST_ENERGIES = 4  # of a vehicle by which alternatives are judged
# Ratios of vehicles by which expected energies are multiplied.
_LEAST_SCALE = 0.1
_MOST_SCALE = 10.0


class Evidence(NamedTuple):
    """How well an alternative explains energies."""

    t: float
    better: float  # share of the sum of errors that it saves; below 0 where it is worse


class _Alternative(NamedTuple):
    """Energies of a trip, and what two hypotheses expect of them, Wh, (k,) each."""

    metered: Floats
    by_edge: Floats  # by their own edges
    by_other: Floats  # by the alternative


def evidence(
    vehicles: Iterable[list[Energies]],
    ratios: Iterable[float],
    shift: Shift,
) -> Evidence:
    """How well an alternative explains the trips of some vehicles.

    Args:
        vehicles: The trips of each vehicle.
        ratios: The typical ratio of each vehicle.
        shift: The alternative.
    """
    reductions: list[Floats] = [np.empty(0)]
    errors = 0.0
    for trips, ratio in zip(vehicles, ratios, strict=True):
        scale = float(np.clip(ratio, _LEAST_SCALE, _MOST_SCALE))
        for trip in trips:
            metered, by_edge, by_other = _alternative(trip, scale, shift)
            error = np.abs(metered - by_edge)
            other_error = np.abs(metered - by_other)
            reductions.append(error - other_error)
            errors += float(error.sum())
    D = np.concatenate(reductions)
    if np.count_nonzero(D) < _LEAST_ENERGIES or errors == 0.0:
        return Evidence(0.0, 0.0)
    total = float(D.sum())
    spread = float(np.sqrt(np.square(D).sum()))
    return Evidence(t=total / spread, better=total / errors)


def _alternative(trip: Energies, scale: float, shift: Shift) -> _Alternative:
    metered = trip.metered
    by_edge = scale * trip.model
    if shift == "reversed":
        return _Alternative(metered, by_edge, by_other=scale * trip.reverse)
    without_first = slice(1, None)
    without_last = slice(-1)
    if shift == "late":
        compared = without_first
        others = without_last
    else:
        compared = without_last
        others = without_first
    return _Alternative(
        metered=metered[compared],
        by_edge=by_edge[compared],
        by_other=by_edge[others],
    )
