"""How a car moved on one trip in SUMO, and what that costs any vehicle.

=================  =====================================================================
``k``, ``n``       edges of the route; time steps, each Δt seconds long
``v₀``, ``v``      speeds at the beginning and at the end of a step, m/s
``sin α``          of the slope under the car at the end of a step
``left``           seconds until each edge *and* the junction behind it were passed, (k,)
``reached``        seconds until the end of each edge was reached, (k,)
=================  =====================================================================

A car in SUMO accelerates, brakes and waits the same whatever it weighs, heats or pushes aside. So
trips are driven without a vehicle, and what a drive costs is computed afterwards, for any number of
vehicles.

*SUMO's model.* Its emission class ``Energy/unknown`` is eq. 8 (``energy.vehicle``) at the speed and
slope of every time step, plus changes of speed:

    P = m·g·v·sin α + ½·m·(v² − v₀²)/Δt + ½·ρ·c·A·v³ + c_r·m·g·v

The battery gives P/η⁺, or η⁻·P where P is negative; auxiliaries are drawn without passing η⁺, as in
``Vehicle.energy``. This is computed here as SUMO does it. Gravity is fixed there at 9.80665 m/s², so
a vehicle's own goes into the mass (m·g/9.80665, which makes its inertia 0.1 % too large for Table 2).
What differs from eq. 8 at constant speed: braking for curves, junctions and other cars, of which
η⁺·η⁻ is won back; rolling resistance without cos α; the slope, which SUMO takes between the car's
front and rear on the lane; and the metres inside junctions. Radial drag is left out, as its energy
would depend on the time step.

*What is stored in motion*, η⁻·½·m·v², is a potential as height is: it adds up to the same for all
routes that begin and end at the same speeds. Energy less both is never negative
(:mod:`superarm.roads.energy.vehicle` has the proof; only put ½mv² beside mgz).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from superarm.core import Bools, Floats, Ints
from superarm.core.compressed import read_npz
from superarm.core.errors import InputError
from superarm.core.inputs import as_vector
from superarm.roads.energy.vehicle import Vehicle

# m/s², fixed in SUMO.
_GRAVITY = 9.80665
_JOULES_PER_WH = 3600.0
# Bytes of one drive: a day in steps of 0.01 s has less.
_MOST_BYTES = 1 << 28


class _Pieces(NamedTuple):
    """The trip, cut where a time step ends, an edge ends or a junction ends; p pieces."""

    seconds: Floats
    step: Ints
    edge: Ints
    on_edge: Bools  # not inside the junction behind it


@dataclass(frozen=True, kw_only=True, eq=False)
class Drive:
    """One trip of a car. Seconds count from departure.

    Args:
        step: Δt, seconds; the last step is shorter or longer, until the car arrives.
        speeds: m/s, at departure and at the end of every step, (n + 1,).
        inclines: sin α, by the heights of the SUMO network, (n,).
        reached: When the end of each edge was reached, seconds; of edges that were not, the end of the
            trip, (k,).
        left: When each edge and the junction behind it were passed, seconds, (k,).
        driven: How much of each edge was driven, 0 to 1, (k,).
        positions: About once a second: seconds, and x and y of the car's front, (t, 3).
        metres: The length of the trip by the odometer.
        duration: Seconds.
        arrived: Whether the car arrived.
        completed: How many edges of the route were driven to their end: all k if the car arrived.
    """

    step: float
    speeds: Floats
    inclines: Floats
    reached: Floats
    left: Floats
    driven: Floats
    positions: Floats
    metres: float
    duration: float
    arrived: bool
    completed: int

    @property
    def seconds(self) -> Floats:
        """Seconds on each edge and in the junction behind it, (k,)."""
        return np.diff(self.left, prepend=0.0)

    def energies(self, vehicle: Vehicle, rise: Floats | None = None) -> Floats:
        """Return Wh that a vehicle's battery gives on each edge, (k,); negative where it is charged.

        Args:
            vehicle: The vehicle.
            rise: Metres of height along each edge of the route, (k,), in place of those of the SUMO
                network; a road then climbs evenly, and junctions are level.
        """
        if vehicle.recuperation != "multiply":
            raise InputError(
                "SUMO multiplies by η⁻; recuperation 'divide' cannot be driven there"
            )
        pieces = self._pieces()
        speed = self.speeds[1:][pieces.step]
        incline = self.inclines[pieces.step]
        if rise is not None:
            incline = self._even_inclines(pieces, rise)
        density = vehicle.air_density
        drag = 0.5 * density * vehicle.air_drag * vehicle.front_area * speed**2
        weight = vehicle.mass * vehicle.gravity
        resistance = weight * (incline + vehicle.rolling_resistance)
        power = speed * (resistance + drag)
        power += self._motion_power(vehicle, pieces)
        spent = power / vehicle.propulsion_efficiency
        returned = power * vehicle.recuperation_efficiency
        drawn = np.where(power > 0.0, spent, returned) + vehicle.auxiliary_power
        return self._book(drawn, pieces)

    def stored(self, vehicle: Vehicle) -> Floats:
        """Return Wh of these that are in the vehicle's motion and can be won back by braking, (k,).

        Args:
            vehicle: The vehicle.
        """
        pieces = self._pieces()
        power = self._motion_power(vehicle, pieces)
        return self._book(vehicle.recuperation_efficiency * power, pieces)

    def _pieces(self) -> _Pieces:
        step_ends = self.step * np.arange(len(self.speeds))
        step_ends[-1] = self.duration
        all_ends = np.concatenate([step_ends, self.reached, self.left])
        cuts = np.unique(all_ends)
        begin = cuts[:-1]
        end = cuts[1:]
        middle = 0.5 * (end + begin)
        next_step = np.searchsorted(step_ends, middle)
        edge = np.searchsorted(self.left, middle)
        return _Pieces(
            seconds=np.diff(cuts),
            step=next_step - 1,
            edge=edge,
            on_edge=middle < self.reached[edge],
        )

    def _even_inclines(self, pieces: _Pieces, rise: Floats) -> Floats:
        """Return sin α of every piece, (p,), such that an edge driven to its end has all its rise."""
        edges = len(self.left)
        edge_rise = as_vector(rise, "rise", edges)
        driven_rise = edge_rise * self.driven
        speed = self.speeds[1:][pieces.step]
        metres = pieces.seconds * speed * pieces.on_edge
        edge_metres = np.bincount(pieces.edge, metres, edges)
        is_driven = edge_metres > 0.0
        per_metre = np.zeros(edges)
        np.divide(driven_rise, edge_metres, out=per_metre, where=is_driven)
        return per_metre[pieces.edge] * pieces.on_edge

    def _motion_power(self, vehicle: Vehicle, pieces: _Pieces) -> Floats:
        """Return W that change the speed, (p,)."""
        mass = vehicle.mass * vehicle.gravity / _GRAVITY
        squares = self.speeds**2
        changes = np.diff(squares)  # v² − v₀² of each step, (n,)
        piece_changes = changes[pieces.step]
        return 0.5 * mass * piece_changes / self.step

    def _book(self, power: Floats, pieces: _Pieces) -> Floats:
        """Return Wh on each edge, (k,), of W in each piece, (p,)."""
        piece_joules = power * pieces.seconds
        joules = np.bincount(pieces.edge, piece_joules, len(self.left))
        return joules / _JOULES_PER_WH

    # --- as bytes -----------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the drive as the bytes of an ``.npz`` file."""
        buffer = BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **vars(self))
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Drive:
        """Return the drive that these bytes hold, or raise :class:`InputError` if they hold none."""
        arrays = read_npz(BytesIO(data), most=_MOST_BYTES)
        n = _rows(arrays, "inclines")
        k = _rows(arrays, "left")
        t = _rows(arrays, "positions")
        expected: dict[str, _Kind] = {
            "step": _Kind((), "f"),
            "speeds": _Kind((n + 1,), "f"),
            "inclines": _Kind((n,), "f"),
            "reached": _Kind((k,), "f"),
            "left": _Kind((k,), "f"),
            "driven": _Kind((k,), "f"),
            "positions": _Kind((t, 3), "f"),
            "metres": _Kind((), "f"),
            "duration": _Kind((), "f"),
            "arrived": _Kind((), "b"),
            "completed": _Kind((), "i"),
        }
        kinds = {}
        values: dict[str, Any] = {}
        for name, array in arrays.items():
            kinds[name] = _Kind(array.shape, array.dtype.kind)
            values[name] = array if array.shape else array.item()
        if kinds != expected:
            raise InputError("its arrays are not those of a drive")
        return cls(**values)


class _Kind(NamedTuple):
    shape: tuple[int, ...]
    letter: str  # numpy's for floats, integers or booleans


def _rows(arrays: Mapping[str, NDArray[Any]], name: str) -> int:
    """Return the length of an array; a number or a missing array counts as one row."""
    array = arrays.get(name, np.zeros(()))
    return len(np.atleast_1d(array))
