"""What a battery holds along a route, and vehicles as files.

=================  ====================================================================
``C``, ``r``       capacity and reserve, Wh
``S``, ``h``       expected energy of a route's first i edges, and the half-width of its
                   95 % interval
``b``              what the battery is expected to hold: b_i = min(C, b_{i−1} − e_i)
``lost``           what a full battery could not take, up to i: max(0, max_{j ≤ i} b_0 − S_j − C)
=================  ====================================================================

b_i = b_0 − S_i − lost_i: a full battery reflects the way of its charge. A trip may run empty where
b − h falls below r, anywhere on the way. Of the energy before the battery was full, h counts the
uncertainty too: there the bound is lower than it need be. That it may become full against all
expectation is not counted: where b stays close to C, up to 5 % of trips end below b − h, not 2.5 %.

h takes long to compute. It grows with i, but for hills: what climbing may cost otherwise is won back
behind the top. So it is asked for at arrival and where b is least, and then where b less a bound of h
is least, until that is where h is known; the bound of a place is the larger h of the two places next
to it where h is known.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import FileError, InputError, SpecError
from superarm.core.files import MOST_TOML, read_text
from superarm.core.inputs import as_number
from superarm.core.registry import kinds_of, require_kind, suggestion
from superarm.roads.energy import Vehicle

_KEYS = {"battery_wh": "capacity", "reserve_wh": "reserve"}
VEHICLE = tuple(field.name for field in dataclasses.fields(Vehicle))
"""The parameters of a vehicle."""


@dataclass(frozen=True, kw_only=True)
class Battery:
    """A battery; of an unknown capacity it is never full.

    >>> Battery(capacity=40_000.0).charge("80%")
    32000.0
    """

    capacity: float = math.inf
    """Wh"""
    reserve: float = 0.0
    """Wh that are to be left at any time."""

    def __post_init__(self) -> None:
        if self.capacity != math.inf:
            as_number(self.capacity, "battery_wh", 1.0, 1e9)
        as_number(self.reserve, "reserve_wh", 0.0, self.capacity)

    def charge(self, given: float | str | None) -> float | None:
        """Wh of a charge in Wh, or in per cent; without one, a battery of known capacity is full."""
        if given is None:
            return None if self.capacity == math.inf else self.capacity
        text = str(given).strip()
        share = text.endswith("%")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        if share and self.capacity == math.inf:
            raise InputError(
                f"charge is {text}, but the battery's capacity is unknown: set battery_wh in the "
                "vehicle's file, or give the charge in Wh"
            )
        charge = 0.01 * number * self.capacity if share else number
        if not (math.isfinite(charge) and 0.0 <= charge <= self.capacity):
            most = (
                ""
                if self.capacity == math.inf
                else f", at most {self.capacity:g} Wh or 100%"
            )
            raise InputError(
                f"charge must be Wh (24000) or a share (80%){most}, got {given!r}"
            )
        return charge

    def follow(
        self, charge: float, energies: Floats, spread: Callable[[int], float]
    ) -> Charge:
        """b along a route of ``energies``, (k,), and the least b − h; ``spread(i)`` is h of i edges."""
        spent = np.concatenate([[0.0], np.cumsum(energies)])
        lost = np.maximum.accumulate(np.maximum(charge - spent - self.capacity, 0.0))
        level, count = charge - spent - lost, len(energies)
        known = {0: 0.0, count: spread(count)}
        if (least := int(level.argmin())) not in known:
            known[least] = spread(least)
        while (worst := int((level - _bounds(known)).argmin())) not in known:
            known[worst] = spread(worst)
        lowest = float(level[worst]) - known[worst]
        return Charge(self, level, known[count], worst, lowest, float(lost[-1]))


def _bounds(known: dict[int, float]) -> Floats:
    """h where it is known, from 0 edges to all, and the larger of its two neighbours elsewhere."""
    places = sorted(known)
    values, at = np.array([known[place] for place in places]), np.arange(places[-1] + 1)
    before, after = (
        np.searchsorted(places, at, side="right") - 1,
        np.searchsorted(places, at),
    )
    bounds: Floats = np.maximum(values[before], values[after])
    return bounds


class Charge(NamedTuple):
    """A battery along a route: at its start, and after each of its edges."""

    battery: Battery
    level: Floats  # expected Wh, (k + 1,)
    spread: float  # half-width of the 95 % interval at arrival
    worst: int  # where the lower end of the interval is lowest: after so many edges
    lowest: float  # Wh there
    lost: float  # Wh that a full battery could not take

    @property
    def missing(self) -> float:
        """Wh by which the reserve is touched at 95 %, at the worst place; 0: nowhere."""
        return max(0.0, self.battery.reserve - self.lowest)

    def as_json(self, ids: list[str]) -> dict[str, Any]:
        arrival = float(self.level[-1])
        return {
            "capacity_wh": self.battery.capacity,
            "reserve_wh": self.battery.reserve,
            "charge_wh": float(self.level[0]),
            "arrival_wh": arrival,
            "arrival_low_wh": arrival - self.spread,
            "arrival_high_wh": min(arrival + self.spread, self.battery.capacity),
            "lowest_wh": self.lowest,
            "lowest_at": ids[max(self.worst - 1, 0)],
            "lost_wh": self.lost,
            "missing_wh": self.missing,
        }


class Equipped(NamedTuple):
    """What a file says of a vehicle; of what it says nothing there is none."""

    vehicle: Vehicle | None = None
    battery: Battery | None = None
    vehicle_name: str | None = None  # in its fleet's log


def read_vehicles(path: str | Path) -> dict[str, Equipped]:
    """Vehicles by name from a TOML file with a table for each: ``[van-1]``, ``mass = 2200.0`` …

    A file without tables is about one vehicle, whose name is "".
    """
    try:
        found = tomllib.loads(read_text(path, most=MOST_TOML))
    except FileError:
        raise
    except (ValueError, RecursionError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FileError(f"{path} cannot be read as vehicles: {reason}") from None
    tables = {name: each for name, each in found.items() if isinstance(each, dict)}
    if not tables:
        return {"": _equipped(found, None, str(path))}
    if loose := [name for name in found if name not in tables]:
        raise SpecError(
            f"{path}: {loose[0]} is outside any table; move it below the [name] of its vehicle"
        )
    return {
        name: _equipped(each, name, f"{path}: {name}") for name, each in tables.items()
    }


def read_vehicle(path: str | Path) -> Equipped:
    """The vehicle of a file that is about one, or ``FILE#NAME`` of one with tables."""
    file, _, name = (
        str(path).rpartition("#") if not Path(path).exists() else (str(path), "", "")
    )
    if not Path(file or path).exists():
        raise SpecError(f"vehicle file {file or path} does not exist")
    found = read_vehicles(file or path)
    if name not in found:
        known = " or ".join(f"{file or path}#{each}" for each in list(found)[:3])
        known += ", …" * (len(found) > 3)
        raise SpecError(
            f"{file or path} has no vehicle {name!r}; {suggestion(name, found, 'it has')}"
            if name
            else f"{file or path} describes several vehicles; choose one: {known}"
        )
    return found[name]


def _equipped(table: dict[str, Any], name: str | None, where: str) -> Equipped:
    kinds = {**kinds_of(Vehicle), **dict.fromkeys(_KEYS, float)}
    for key, value in table.items():
        if key not in kinds:
            raise SpecError(
                f"{where}: a vehicle has no {key!r}; {suggestion(key, kinds, 'it has')}"
            )
        require_kind(value, kinds[key], f"{where}: {key}")
    try:
        own = {key: value for key, value in table.items() if key in VEHICLE}
        battery = {
            _KEYS[key]: float(value) for key, value in table.items() if key in _KEYS
        }
        made = Vehicle(**own) if own else None, Battery(**battery) if battery else None
    except InputError as error:
        raise SpecError(f"{where}: {error}") from None
    return Equipped(*made, name)
