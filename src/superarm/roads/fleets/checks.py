"""Whether a log can be what its columns say: energies in Wh, of these edges, in this order.

A log in another unit, one row late or of the opposite direction would be learned like any other, and
every forecast would be wrong from then on. Each vehicle is checked by itself, with as few trips as
there are:

==================  ===================================================================
``ratio``           metered energy over the forecast of a trip: by the energy model at first, by the
                    state once it has trips. Of a vehicle: the median over its trips
``D``               of each energy of a trip: how much nearer it is to what an alternative expects of it
                    (the edge before, the edge behind, the other direction) than to what its own edge
                    does, Wh
``t``               Σ D / √(Σ D²): about standard normal where neither explains energies better, far
                    below 0 where the log is right
==================  ===================================================================

Kinetic energy that crosses from edge to edge (a battery's raw reading) is in every alternative alike,
so that it does not look like a lag. ``python -m bench.wronglogs`` measures false alarms and detection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Bools, Floats


class Limits(NamedTuple):
    """Ratios of a vehicle's typical trip, least and most."""

    refused: tuple[float, float]  # beyond these its trips are refused
    unusual: tuple[float, float]  # beyond these there is a warning


KNOWN_VEHICLE = Limits(refused=(0.5, 2.0), unusual=(0.65, 1.6))
"""Of vehicles that are described, or that the state has learned."""
ANY_VEHICLE = Limits(refused=(0.4, 4.0), unusual=(0.6, 3.0))
"""Of vehicles taken for a car: loaded vans need twice as much, and small cars two thirds."""
ONLY_CLIMBS = Limits(refused=(0.25, 4.0), unusual=(0.4, 3.0))
"""Of vehicles whose trips all descend, by their climbs: who brakes into a climb has energy to spare."""
SURE, LIKELY = 3.5, 2.5  # of t: refused, and a warning
_BETTER = 0.15  # by which share an alternative must reduce the sum of errors
_LEAST_ENERGIES = 4  # of a vehicle by which alternatives are judged
_DESCENT = 0.2  # share of what an edge moves: below it its ratio says nothing
_WHOLE = (
    0.5  # the same of a trip: a heavy vehicle taken for a car gains more by descending
)
_LEAST_LEARNED = (
    0.3  # of forecasts over the model's: a state that expects less says nothing
)

ANYWAY = "If the log is right, pass --accept-unlikely (accept_unlikely=True)"
Shift = Literal["late", "early", "reversed"]
_EXPLAINED: Mapping[Shift, str] = {
    "late": "energies fit the previous edge better than their own: they are one row late. Move "
    "energy_wh one row up within each trip",
    "early": "energies fit the next edge better than their own: they are one row early. Move "
    "energy_wh one row down within each trip",
    "reversed": "energies fit the opposite direction of each road: climbs cost what descents should. "
    "Use the edge ids of the direction driven",
}


class Ratio(NamedTuple):
    """Metered energy over forecast."""

    value: float
    whole: bool  # of whole trips, or of climbs alone


class Energies(NamedTuple):
    """A trip's energies and what is expected of them, Wh, (r,) each."""

    metered: Floats
    model: Floats  # by the energy model, heights and turns included
    reverse: Floats  # by the same model, driven in the other direction
    forecast: float  # of the whole trip, by what was learned so far
    stored: (
        Floats  # of what the model expects, what is stored in height and what turns add
    )
    known_vehicle: (
        bool  # whether the forecast is of this very vehicle, described or learned
    )

    @property
    def telling(self) -> Bools:
        """Whose ratio says something, (r,): what rolls downhill may take anything, or give."""
        return np.asarray(self.model > _DESCENT * _moved(self.model, self.stored))

    @property
    def ratio(self) -> Ratio | None:
        """Metered energy over forecast; ``None`` where it says nothing.

        Of the whole trip, in which motion cancels out; of its climbs alone where the trip descends. One
        energy that is off by half of the trip's is left out: it may be a slip of the meter, which the
        posterior weighs by itself.
        """
        total, stored = float(self.model.sum()), float(self.stored.sum())
        whole = total > _WHOLE * float(_moved(total, stored))
        used = np.ones(len(self.model), dtype=np.bool_) if whole else self.telling
        if not used.any():
            return None
        metered, expected = self.metered[used], self.model[used]
        if whole:
            expected = expected * max(self.forecast / total, _LEAST_LEARNED)
        away = np.abs(metered - expected)
        worst = int(np.argmax(away))
        rest = float(expected.sum() - expected[worst])
        if len(metered) >= 3 and away[worst] > 0.5 * expected.sum() and rest > 0.0:
            metered, expected = np.delete(metered, worst), np.delete(expected, worst)
        return Ratio(float(metered.sum() / expected.sum()), whole)


def _moved(model: Any, stored: Any) -> Any:
    """Wh without signs: what heights and turns move, and all else."""
    return np.abs(stored) + np.abs(model - stored)


class Finding(NamedTuple):
    """What looks wrong with a vehicle's trips."""

    message: str
    refused: bool  # rather than learned with a warning

    def describe(self, vehicle: str, accepted: bool) -> str:
        """A warning about the vehicle.

        Args:
            vehicle: Its name; "" for the unnamed vehicle.
            accepted: Whether unlikely trips are learned, too.
        """
        name = f"vehicle {vehicle!r}" if vehicle else "the unnamed vehicle"
        if self.refused and not accepted:
            return f"{name} was refused: {self.message}. {ANYWAY}"
        return f"{name} was learned, but its log looks wrong: {self.message}"


@dataclass(frozen=True, kw_only=True)
class LogFindings:
    """What looks wrong with a log, by vehicle."""

    vehicles: Mapping[str, Finding] = field(default_factory=dict)
    everywhere: str | None = None
    """Where every vehicle is refused whose trips say something: why."""


def check_log(trips: Iterable[tuple[str, Energies]]) -> LogFindings:
    """Check the trips of each vehicle: pairs of its name and a trip."""
    by_vehicle: dict[str, list[Energies]] = {}
    for vehicle, energies in trips:
        by_vehicle.setdefault(vehicle, []).append(energies)
    ratios = {vehicle: typical_ratio(each) for vehicle, each in by_vehicle.items()}
    found: dict[str, Finding] = {}
    for vehicle, ratio in ratios.items():
        own = by_vehicle[vehicle]
        limits = KNOWN_VEHICLE if own[0].known_vehicle else ANY_VEHICLE
        if not ratio.whole:
            limits = ONLY_CLIMBS
        if (finding := _of_ratio(ratio.value, len(own), limits)) is not None:
            found[vehicle] = finding
    plausible = {
        vehicle: each
        for vehicle, each in by_vehicle.items()
        if vehicle not in found or not found[vehicle].refused
    }
    # A shift is as a rule that of the whole log: together its trips say more than each vehicle's alone.
    shift = _of_shifts(
        plausible.values(), [ratios[vehicle].value for vehicle in plausible]
    )
    for vehicle, each in plausible.items():
        moved = shift
        if moved is None or not moved.refused:
            moved = _of_shifts([each], [ratios[vehicle].value]) or moved
        if moved is not None and (moved.refused or vehicle not in found):
            found[vehicle] = moved
    refused = {vehicle for vehicle, finding in found.items() if finding.refused}
    silent = {
        name
        for name, each in by_vehicle.items()
        if all(trip.ratio is None for trip in each)
    }
    everywhere = None
    if refused and refused | silent == by_vehicle.keys():
        reasons = {found[vehicle].message for vehicle in refused}
        everywhere = (
            reasons.pop() if len(reasons) == 1 else _of_all(by_vehicle.values())
        )
    return LogFindings(vehicles=found, everywhere=everywhere)


def typical_ratio(trips: Iterable[Energies]) -> Ratio:
    """The median over trips: over climbs only where all trips descend; 1 where there is nothing."""
    ratios = [ratio for each in trips if (ratio := each.ratio) is not None]
    whole = [ratio.value for ratio in ratios if ratio.whole]
    if whole or not ratios:
        return Ratio(float(np.median(whole)) if whole else 1.0, True)
    return Ratio(float(np.median([ratio.value for ratio in ratios])), False)


def _of_ratio(ratio: float, trips: int, limits: Limits) -> Finding | None:
    least, most = limits.unusual
    if least < ratio < most:
        return None
    whose = "its only trip" if trips == 1 else f"its typical trip (of {trips})"
    message = (
        f"{whose} used {_shown(ratio)} times the expected energy; {_advice(ratio)}"
    )
    least, most = limits.refused
    return Finding(message, refused=not least < ratio < most)


def _shown(ratio: float) -> str:
    return f"{float(f'{ratio:.2g}'):,g}"


def _advice(ratio: float) -> str:
    if ratio <= 0.0:
        return "energy_wh must be positive where the battery discharges, negative where it charges"
    if ratio < 0.01:
        return (
            "if the values are in kWh, rename the column energy_wh to energy_kwh, or multiply them by "
            "1,000 if only this vehicle's are"
        )
    if ratio > 100.0:
        return "if the values are in joules (watt-seconds), divide them by 3600"
    return "check the unit of energy_wh; if the vehicle is unlike a car, describe it with --vehicles"


def _of_all(vehicles: Iterable[list[Energies]]) -> str:
    trips = [each for every in vehicles for each in every]
    ratio = typical_ratio(trips).value
    return f"the typical trip used {_shown(ratio)} times the expected energy; {_advice(ratio)}"


# --- along a trip --------------------------------------------------------------------------


class Evidence(NamedTuple):
    """How well an alternative explains energies."""

    t: float
    better: (
        float  # the share of the sum of errors that it saves; below 0 where it is worse
    )


def evidence(
    vehicles: Iterable[list[Energies]], ratios: Iterable[float], shift: Shift
) -> Evidence:
    """Of an alternative, over the trips of some vehicles with these ratios."""
    saved: list[Floats] = []
    errors = 0.0
    for trips, ratio in zip(vehicles, ratios, strict=True):
        scale = float(np.clip(ratio, 0.1, 10.0))
        for trip in trips:
            metered = trip.metered
            own, other = scale * trip.model, scale * trip.reverse
            if shift == "late":
                metered, own, other = metered[1:], own[1:], own[:-1]
            elif shift == "early":
                metered, own, other = metered[:-1], own[:-1], own[1:]
            given = np.abs(metered - own)
            saved.append(given - np.abs(metered - other))
            errors += float(given.sum())
    D = np.concatenate([np.empty(0), *saved])
    spread = float(np.sqrt(np.square(D).sum()))
    if np.count_nonzero(D) < _LEAST_ENERGIES or errors == 0.0:
        return Evidence(0.0, 0.0)
    return Evidence(float(D.sum()) / spread, float(D.sum()) / errors)


def _of_shifts(
    vehicles: Iterable[list[Energies]], ratios: Iterable[float]
) -> Finding | None:
    """The alternative that explains these energies better than their own edges do, if there is one."""
    every, scales = list(vehicles), list(ratios)
    found = {shift: evidence(every, scales, shift) for shift in _EXPLAINED}
    shift = max(found, key=lambda name: found[name].t)
    t, better = found[shift]
    if t < LIKELY or better < _BETTER:
        return None
    return Finding(_EXPLAINED[shift], refused=t >= SURE)
