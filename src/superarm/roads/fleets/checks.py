"""Checks that a log is plausible: energies in Wh, of these edges, in this order.

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
from typing import NamedTuple

from .shifts import Shift, evidence
from .trip_energies import Energies, Ratio, typical_ratio


class Limits(NamedTuple):
    """Ratios of a vehicle's typical trip, least and most."""

    refused: tuple[float, float]  # beyond these its trips are refused
    unusual: tuple[float, float]  # beyond these there is a warning


KNOWN_VEHICLE = Limits(refused=(0.5, 2.0), unusual=(0.65, 1.6))
"""Of vehicles that are described, or that the state has learned."""
ANY_VEHICLE = Limits(refused=(0.4, 4.0), unusual=(0.6, 3.0))
"""Of vehicles taken for a car: loaded vans need twice as much, and small cars two thirds."""
ONLY_CLIMBS = Limits(refused=(0.25, 4.0), unusual=(0.4, 3.0))
"""Of vehicles whose trips all descend, by their climbs: braking into a climb leaves energy to spare."""
SURE = 3.5
"""From this t on a vehicle is refused."""
LIKELY = 2.5
"""From this t on there is a warning."""
_BETTER = 0.15  # by which share an alternative must reduce the sum of errors

ANYWAY = "If the log is right, pass --accept-unlikely (accept_unlikely=True)"
_EXPLAINED: Mapping[Shift, str] = {
    "late": "energies fit the previous edge better than their own: they are one row late. Move "
    "energy_wh one row up within each trip",
    "early": "energies fit the next edge better than their own: they are one row early. Move "
    "energy_wh one row down within each trip",
    "reversed": "energies fit the opposite direction of each road: climbs cost what descents should. "
    "Use the edge ids of the direction driven",
}


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
    """What looks wrong with a log, by vehicle.

    Args:
        vehicles: Findings by name.
        everywhere: Why every vehicle is refused whose trips have a ratio; ``None`` if some are not.
    """

    vehicles: Mapping[str, Finding] = field(default_factory=dict)
    everywhere: str | None = None


def check_log(trips: Iterable[tuple[str, Energies]]) -> LogFindings:
    """Check the trips of each vehicle.

    Args:
        trips: Pairs of a vehicle's name and a trip.
    """
    by_vehicle: dict[str, list[Energies]] = {}
    for vehicle, energies in trips:
        by_vehicle.setdefault(vehicle, []).append(energies)
    ratios: dict[str, Ratio] = {}
    findings: dict[str, Finding] = {}
    plausible: dict[str, list[Energies]] = {}
    for vehicle, its_trips in by_vehicle.items():
        ratio = typical_ratio(its_trips)
        ratios[vehicle] = ratio
        finding = _check_ratio(ratio, its_trips)
        if finding is not None:
            findings[vehicle] = finding
        if finding is None or not finding.refused:
            plausible[vehicle] = its_trips
    # A shift is as a rule that of the whole log: all its trips are more evidence than a vehicle's.
    plausible_ratios = [ratios[vehicle].value for vehicle in plausible]
    shift_of_log = _check_shifts(plausible.values(), plausible_ratios)
    for vehicle, its_trips in plausible.items():
        shift = shift_of_log
        if shift is None or not shift.refused:
            ratio = ratios[vehicle]
            own_shift = _check_shifts([its_trips], [ratio.value])
            shift = own_shift or shift_of_log
        if shift is not None and (shift.refused or vehicle not in findings):
            findings[vehicle] = shift
    everywhere = _refused_everywhere(by_vehicle, findings)
    return LogFindings(vehicles=findings, everywhere=everywhere)


def _refused_everywhere(
    by_vehicle: Mapping[str, list[Energies]],
    findings: Mapping[str, Finding],
) -> str | None:
    """Why every vehicle is refused that has a ratio; ``None`` if some are not."""
    refused = {vehicle for vehicle, finding in findings.items() if finding.refused}
    without_ratio = {
        vehicle
        for vehicle, trips in by_vehicle.items()
        if all(trip.ratio is None for trip in trips)
    }
    if not refused or refused | without_ratio != by_vehicle.keys():
        return None
    reasons = {findings[vehicle].message for vehicle in refused}
    if len(reasons) == 1:
        return reasons.pop()
    every_trip: list[Energies] = []
    for trips in by_vehicle.values():
        every_trip += trips
    ratio = typical_ratio(every_trip).value
    return f"the typical trip used {_shown(ratio)} times the expected energy; {_advice(ratio)}"


def _check_ratio(ratio: Ratio, trips: list[Energies]) -> Finding | None:
    """What the typical ratio of a vehicle shows."""
    limits = KNOWN_VEHICLE if trips[0].known_vehicle else ANY_VEHICLE
    if not ratio.full_trip:
        limits = ONLY_CLIMBS
    return _beyond_limits(ratio.value, len(trips), limits)


def _beyond_limits(ratio: float, trips: int, limits: Limits) -> Finding | None:
    least, most = limits.unusual
    if least < ratio < most:
        return None
    subject = f"its typical trip (of {trips})"
    if trips == 1:
        subject = "its only trip"
    message = (
        f"{subject} used {_shown(ratio)} times the expected energy; {_advice(ratio)}"
    )
    least, most = limits.refused
    return Finding(message, refused=not least < ratio < most)


def _shown(ratio: float) -> str:
    rounded = float(f"{ratio:.2g}")
    return f"{rounded:,g}"


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


def _check_shifts(
    vehicles: Iterable[list[Energies]],
    ratios: Iterable[float],
) -> Finding | None:
    """The alternative that explains these energies better than their own edges do, if there is one."""
    trips = list(vehicles)
    scales = list(ratios)
    by_shift = {shift: evidence(trips, scales, shift) for shift in _EXPLAINED}
    likeliest = max(by_shift, key=lambda shift: by_shift[shift].t)
    t, better = by_shift[likeliest]
    if t < LIKELY or better < _BETTER:
        return None
    message = _EXPLAINED[likeliest]
    return Finding(message, refused=t >= SURE)
