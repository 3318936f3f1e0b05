"""How a car moved on one trip in SUMO, and what that costs any vehicle.

=================  =====================================================================
``k``, ``n``       edges of the route; time steps, each Δt seconds long
``v₀``, ``v``      speeds at the beginning and at the end of a step, m/s
``sin α``          of the slope under the car at the end of a step
``left``           seconds until each edge *and* the junction behind it were passed, (k,)
``reached``        seconds until the end of each edge was reached, (k,)
=================  =====================================================================

A car in SUMO accelerates, brakes and waits the same whatever it weighs, heats or pushes aside. So
trips are driven without a vehicle, and what a drive costs is computed afterwards, for as many as
are asked about.

*SUMO's model.* Its emission class ``Energy/unknown`` is eq. 8 (``networks/energy.py``) at the speed and
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

from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.compressed import read_npz
from superarm.core.errors import InputError
from superarm.core.inputs import as_vector
from superarm.roads.energy.vehicle import Vehicle

_GRAVITY = 9.80665  # m/s², fixed in SUMO
_JOULES_PER_WH = 3600.0
_MOST = 1 << 28  # bytes of one drive: a day in steps of 0.01 s has less


class _Pieces(NamedTuple):
    """The trip, cut where a time step ends, an edge ends or a junction ends; p pieces."""

    seconds: Floats
    step: Ints
    edge: Ints
    on_edge: Bools  # not inside the junction behind it


@dataclass(frozen=True, kw_only=True, eq=False)
class Drive:
    """What was seen on one trip. Seconds count from departure."""

    step: (
        float  # Δt, seconds; the last one goes on, or is cut off, when the car arrives
    )
    speeds: Floats  # m/s, at departure and at the end of every step, (n + 1,)
    inclines: Floats  # sin α, by the heights of the SUMO network, (n,)
    reached: Floats  # seconds, (k,); of edges that were not reached, the last
    left: Floats  # seconds, (k,)
    driven: Floats  # how much of each edge was driven, 0 to 1, (k,)
    positions: Floats  # about once a second: seconds, and where the car's front was, x and y, (t, 3)
    metres: float  # by the odometer
    duration: float  # seconds
    arrived: bool
    completed: int  # how many edges of the route were driven to their end: all k if the car arrived

    @property
    def seconds(self) -> Floats:
        """On each edge and in the junction behind it, (k,)."""
        return np.diff(self.left, prepend=0.0)

    def energies(self, vehicle: Vehicle, rise: Floats | None = None) -> Floats:
        """Wh that a vehicle's battery gives on each edge, (k,); negative where it is charged.

        ``rise``: metres of height along each edge of the route, (k,), in place of those of the SUMO
        network; a road then climbs evenly, and junctions are level.
        """
        if vehicle.recuperation != "multiply":
            raise InputError(
                "SUMO multiplies by η⁻; recuperation 'divide' cannot be driven there"
            )
        pieces = self._pieces()
        speed = self.speeds[1:][pieces.step]
        incline = (
            self.inclines[pieces.step] if rise is None else self._inclines(pieces, rise)
        )
        drag = (
            0.5 * vehicle.air_density * vehicle.air_drag * vehicle.front_area * speed**2
        )
        weight = vehicle.mass * vehicle.gravity
        power = speed * (weight * (incline + vehicle.rolling_resistance) + drag)
        power += self._into_motion(vehicle, pieces)
        back, forth = vehicle.recuperation_efficiency, vehicle.propulsion_efficiency
        drawn = (
            np.where(power > 0.0, power / forth, power * back) + vehicle.auxiliary_power
        )
        return self._booked(drawn, pieces)

    def stored(self, vehicle: Vehicle) -> Floats:
        """Of these, the Wh that are in the vehicle's motion and can be won back by braking, (k,)."""
        pieces = self._pieces()
        return self._booked(
            vehicle.recuperation_efficiency * self._into_motion(vehicle, pieces), pieces
        )

    def _pieces(self) -> _Pieces:
        ends = self.step * np.arange(len(self.speeds))
        ends[-1] = self.duration
        cuts = np.unique(np.concatenate([ends, self.reached, self.left]))
        middle = 0.5 * (cuts[1:] + cuts[:-1])
        edge = np.searchsorted(self.left, middle)
        steps = np.searchsorted(ends, middle) - 1
        return _Pieces(np.diff(cuts), steps, edge, middle < self.reached[edge])

    def _inclines(self, pieces: _Pieces, rise: Floats) -> Floats:
        """Of every piece, (p,), such that an edge that was driven to its end has all its rise."""
        rise = as_vector(rise, "rise", len(self.left)) * self.driven
        metres = pieces.seconds * self.speeds[1:][pieces.step] * pieces.on_edge
        whole = np.bincount(pieces.edge, metres, len(rise))
        per_metre = np.divide(rise, whole, out=np.zeros(len(rise)), where=whole > 0.0)
        return per_metre[pieces.edge] * pieces.on_edge

    def _into_motion(self, vehicle: Vehicle, pieces: _Pieces) -> Floats:
        """W, (p,)."""
        mass = vehicle.mass * vehicle.gravity / _GRAVITY
        return 0.5 * mass * np.diff(self.speeds**2)[pieces.step] / self.step

    def _booked(self, power: Floats, pieces: _Pieces) -> Floats:
        """Wh on each edge, (k,)."""
        return (
            np.bincount(pieces.edge, power * pieces.seconds, len(self.left))
            / _JOULES_PER_WH
        )

    # --- as bytes -----------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        buffer = BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **vars(self))
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Drive:
        """The drive that these bytes hold, or :class:`InputError` if they hold none."""
        arrays = read_npz(BytesIO(data), most=_MOST)
        n, k, t = (
            len(np.atleast_1d(arrays.get(name, 0)))
            for name in ("inclines", "left", "positions")
        )
        shapes: dict[str, tuple[int, ...]] = {name.name: () for name in fields(cls)}
        shapes |= {"speeds": (n + 1,), "inclines": (n,), "positions": (t, 3)}
        shapes |= dict.fromkeys(("reached", "left", "driven"), (k,))
        kinds = {"arrived": "b", "completed": "i"}
        found = {
            name: (array.shape, array.dtype.kind) for name, array in arrays.items()
        }
        if found != {
            name: (shape, kinds.get(name, "f")) for name, shape in shapes.items()
        }:
            raise InputError("its arrays are not those of a drive")
        values: dict[str, Any] = {
            name: array if array.shape else array.item()
            for name, array in arrays.items()
        }
        return cls(**values)
