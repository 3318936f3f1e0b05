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
behind the top. So it is computed at arrival and where b is least, and then where b less a bound of h
is least, until that is where h is known; the bound of a place is the larger h of the two places next
to it where h is known.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError, SpecError
from superarm.core.files import read_toml
from superarm.core.inputs import as_number
from superarm.core.registry import check_table, kinds_of, suggestion
from superarm.roads.energy import Vehicle

_BATTERY_KEYS = {"battery_wh": "capacity", "reserve_wh": "reserve"}
VEHICLE = tuple(field.name for field in dataclasses.fields(Vehicle))
"""The parameters of a vehicle."""
_SHOWN = 3  # vehicles that an error lists


@dataclass(frozen=True, kw_only=True)
class Battery:
    """A battery; of an unknown capacity it is never full.

    Args:
        capacity: Wh; by default unknown.
        reserve: Wh that must remain at any time.

    >>> Battery(capacity=40_000.0).charge("80%")
    32000.0
    """

    capacity: float = math.inf
    reserve: float = 0.0

    def __post_init__(self) -> None:
        if self.capacity != math.inf:
            as_number(self.capacity, "battery_wh", 1.0, 1e9)
        as_number(self.reserve, "reserve_wh", 0.0, self.capacity)

    def charge(self, level: float | str | None) -> float | None:
        """The charge in Wh; ``None`` where neither charge nor capacity is known.

        Args:
            level: Wh, or a share such as "80%"; by default a battery of known capacity is full.
        """
        has_capacity = self.capacity != math.inf
        if level is None:
            return self.capacity if has_capacity else None
        text = str(level).strip()
        is_share = text.endswith("%")
        try:
            number = float(text.removesuffix("%"))
        except ValueError:
            number = math.nan
        if is_share and not has_capacity:
            raise InputError(
                f"charge is {text}, but the battery's capacity is unknown: set battery_wh in the "
                "vehicle's file, or give the charge in Wh"
            )
        charge = number
        if is_share:
            charge = 0.01 * number * self.capacity
        is_possible = math.isfinite(charge) and 0.0 <= charge <= self.capacity
        if not is_possible:
            most = ""
            if has_capacity:
                most = f", at most {self.capacity:g} Wh or 100%"
            raise InputError(
                f"charge must be Wh (24000) or a share (80%){most}, got {level!r}"
            )
        return charge

    def follow(
        self, charge: float, energies: Floats, spread: Callable[[int], float]
    ) -> Charge:
        """b along a route, and the least b − h.

        Args:
            charge: b at the start, Wh.
            energies: Expected energy of each edge, Wh, (k,).
            spread: h of the first i edges, Wh.
        """
        count = len(energies)
        spent = np.concatenate([[0.0], np.cumsum(energies)])  # S, (k + 1,)
        above_capacity = charge - spent - self.capacity
        excess = np.maximum(above_capacity, 0.0)
        lost = np.maximum.accumulate(excess)
        level = charge - spent - lost  # b, (k + 1,)
        spreads = {0: 0.0, count: spread(count)}  # h where it is known
        least = int(level.argmin())
        if least not in spreads:
            spreads[least] = spread(least)
        worst = _lowest_bound(level, spreads)
        while worst not in spreads:
            spreads[worst] = spread(worst)
            worst = _lowest_bound(level, spreads)
        return Charge(
            battery=self,
            level=level,
            spread=spreads[count],
            worst=worst,
            lowest=float(level[worst]) - spreads[worst],
            lost=float(lost[-1]),
        )


def _lowest_bound(level: Floats, spreads: dict[int, float]) -> int:
    """Where b less a bound of h is least.

    The bound is h where it is known, and the larger of its two neighbours elsewhere.
    """
    known_places = sorted(spreads)  # from 0 edges to all
    known_spreads = np.array([spreads[place] for place in known_places])
    places = np.arange(len(level))
    next_known = np.searchsorted(known_places, places, side="right")
    spread_before = known_spreads[next_known - 1]
    this_or_next = np.searchsorted(known_places, places)
    spread_after = known_spreads[this_or_next]
    bounds = np.maximum(spread_before, spread_after)
    lower = level - bounds
    return int(lower.argmin())


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
        """The battery along the route, as ``superarm route --json`` prints it.

        Args:
            ids: Ids of the route's edges.
        """
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


class VehicleFile(NamedTuple):
    """What a file contains about a vehicle; ``None`` where it contains nothing."""

    vehicle: Vehicle | None = None
    battery: Battery | None = None
    vehicle_name: str | None = None  # in its fleet's log


def read_vehicles(path: str | Path) -> dict[str, VehicleFile]:
    """Vehicles by name from a TOML file with a table for each: ``[van-1]``, ``mass = 2200.0`` …

    A file without tables describes one vehicle, whose name is "".

    Args:
        path: The file.
    """
    contents = read_toml(path, content="vehicles")
    tables = {
        name: value for name, value in contents.items() if isinstance(value, dict)
    }
    if not tables:
        return {"": _vehicle_of(contents, None, str(path))}
    for name in contents:
        if name not in tables:
            raise SpecError(
                f"{path}: {name} is outside any table; move it below the [name] of its vehicle"
            )
    return {
        name: _vehicle_of(table, name, f"{path}: {name}")
        for name, table in tables.items()
    }


def read_vehicle(path: str | Path) -> VehicleFile:
    """One vehicle of a file.

    Args:
        path: A file that describes one vehicle, or ``FILE#NAME`` of a file with tables.
    """
    file = str(path)
    name = ""
    if not Path(path).exists() and "#" in file:
        before, _, after = file.rpartition("#")
        if before:
            file = before
        name = after
    if not Path(file).exists():
        raise SpecError(f"{file}: file not found")
    vehicles = read_vehicles(file)
    if name in vehicles:
        return vehicles[name]
    if name:
        raise SpecError(
            f"{file} has no vehicle {name!r}; {suggestion(name, vehicles, 'it has')}"
        )
    choices = " or ".join(f"{file}#{choice}" for choice in list(vehicles)[:_SHOWN])
    if len(vehicles) > _SHOWN:
        choices += ", …"
    raise SpecError(f"{file} describes several vehicles; choose one: {choices}")


def _vehicle_of(table: dict[str, Any], name: str | None, where: str) -> VehicleFile:
    """The vehicle that a table describes; ``where`` is for errors."""
    kinds = dict(kinds_of(Vehicle))
    kinds |= dict.fromkeys(_BATTERY_KEYS, float)
    check_table(table, kinds, where)
    vehicle_values: dict[str, Any] = {}
    battery_values: dict[str, float] = {}
    for key, value in table.items():
        if key in VEHICLE:
            vehicle_values[key] = value
        else:
            name_in_battery = _BATTERY_KEYS[key]
            battery_values[name_in_battery] = float(value)
    vehicle = None
    battery = None
    try:
        if vehicle_values:
            vehicle = Vehicle(**vehicle_values)
        if battery_values:
            battery = Battery(**battery_values)
    except InputError as error:
        raise SpecError(f"{where}: {error}") from None
    return VehicleFile(vehicle, battery, name)
