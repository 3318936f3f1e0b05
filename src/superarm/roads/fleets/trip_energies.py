"""The energies of a trip against what is expected of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats

_DESCENT = 0.2  # share of what an edge moves: below it its ratio means nothing
# The same of a trip: a heavy vehicle taken for a car gains more by descending.
_TRIP_DESCENT = 0.5
# Of forecasts over the model's: a state that expects less is not used.
_LEAST_LEARNED = 0.3
_SLIP = 0.5  # share of a trip by which one energy may be a slip of the meter
_LEAST_FOR_SLIP = 3  # energies of a trip of which one may be left out


class Ratio(NamedTuple):
    """Metered energy over forecast."""

    value: float
    full_trip: bool  # of full trips, or only of climbs


class Energies(NamedTuple):
    """A trip's energies and what is expected of them, Wh, (r,) each."""

    metered: Floats
    model: Floats  # by the energy model, heights and turns included
    reverse: Floats  # by the same model, driven in the other direction
    forecast: float  # of the whole trip, by what was learned so far
    stored: Floats  # of the model's, what is stored in height and what turns add
    # Whether the forecast is of this very vehicle, described or learned.
    known_vehicle: bool

    @property
    def has_ratio(self) -> Bools:
        """Which energies have a meaningful ratio, (r,): rolling downhill may take anything, or give."""
        moved = _moved(self.model, self.stored)
        return np.asarray(self.model > _DESCENT * moved)

    @property
    def ratio(self) -> Ratio | None:
        """Metered energy over forecast; ``None`` where it means nothing.

        Of the whole trip, in which motion cancels out; of its climbs alone where the trip descends. One
        energy that is off by half of the trip's is left out: it may be a slip of the meter, which the
        posterior weighs by itself.
        """
        total = float(self.model.sum())
        moved = float(_moved(total, float(self.stored.sum())))
        is_full_trip = total > _TRIP_DESCENT * moved
        if is_full_trip:
            metered = self.metered
            learned_share = max(self.forecast / total, _LEAST_LEARNED)
            expected = self.model * learned_share
        else:
            used = self.has_ratio
            if not used.any():
                return None
            metered = self.metered[used]
            expected = self.model[used]
        counted = _without_slip(metered, expected)
        metered_total = metered[counted].sum()
        expected_total = expected[counted].sum()
        return Ratio(float(metered_total / expected_total), is_full_trip)


def _moved(model: Any, stored: Any) -> Any:
    """Wh without signs: what heights and turns move, and all else."""
    return np.abs(stored) + np.abs(model - stored)


def _without_slip(metered: Floats, expected: Floats) -> Bools:
    """Which energies are counted, (k,): all but one that may be a slip of the meter."""
    is_counted = np.ones(len(metered), dtype=np.bool_)
    errors = np.abs(metered - expected)
    worst = int(np.argmax(errors))
    total = expected.sum()
    is_slip = errors[worst] > _SLIP * total
    others = float(total - expected[worst])
    if len(metered) >= _LEAST_FOR_SLIP and is_slip and others > 0.0:
        is_counted[worst] = False
    return is_counted


def typical_ratio(trips: Iterable[Energies]) -> Ratio:
    """The median over trips: over climbs only where all trips descend; 1 where there is nothing.

    Args:
        trips: The trips of one vehicle or of several.
    """
    of_trips: list[float] = []
    of_climbs: list[float] = []
    for trip in trips:
        ratio = trip.ratio
        if ratio is None:
            continue
        if ratio.full_trip:
            of_trips.append(ratio.value)
        else:
            of_climbs.append(ratio.value)
    if of_trips:
        return Ratio(float(np.median(of_trips)), full_trip=True)
    if of_climbs:
        return Ratio(float(np.median(of_climbs)), full_trip=False)
    return Ratio(1.0, full_trip=True)
