"""Which edge of a route pays for which time step of a trip.

=================  =====================================================================
``energy``         Wh drawn from the battery on each edge of the route, (k,)
``stored``         of that, what went into motion and can be won back, Wh, (k,):
                   η⁻·½·m·(v² at the end − v² at the beginning)/3600
=================  =====================================================================

A car that brakes for a corner wins energy on one edge and spends it on the next. What is stored in
motion is a potential as height is: it adds up to the same for all routes that begin and end at the
same speeds, and energy less both is never negative (:mod:`superarm.networks.energy` has the proof;
only put ½mv² beside mgz). Without it, a rectified cost charges the spending and forgets the winning.
"""

from __future__ import annotations

from superarm.core import Floats


class Ledger:
    """Books time steps to the edges of a route, and loses nothing of them: see ``driver.py``."""

    def __init__(self, *, lengths: Floats, speed: float, inertia: float) -> None:
        """``speed`` at departure, m/s; ``inertia`` η⁻·½·m/3600: Wh stored per (m/s)²."""
        self.index = 0
        """The edge that the car is on, or has just left."""
        # Plain numbers: there are thousands of steps to a trip, and few edges to a step.
        self._lengths: list[float] = lengths.tolist()
        self.energy = [0.0] * len(lengths)
        self.stored = [0.0] * len(lengths)
        self._inertia, self._speed = inertia, speed
        self._place = self._odometer = 0.0
        self._energy_rate = self._stored_rate = 0.0

    def book(
        self,
        *,
        rate: float,
        seconds: float,
        index: int,
        place: float | None,
        odometer: float,
        speed: float,
    ) -> None:
        """A time step at ``rate`` Wh per second, which ends ``place`` metres into the edge ``index``.

        Where ``place`` is ``None``, it ends in the junction behind that edge.
        """
        if place is None:
            place = self._lengths[index]
        self._energy_rate = rate
        self._stored_rate = self._inertia * (speed * speed - self._speed * self._speed) / seconds
        self._divide(seconds, index, place, odometer - self._odometer)
        self.index, self._place, self._odometer, self._speed = index, place, odometer, speed

    def arrive(self, step: float) -> float:
        """Book the way to the end of the last edge at the last known rates; the seconds it took."""
        rest = max(0.0, sum(self._lengths[self.index :]) - self._place)
        seconds = min(step, rest / self._speed) if self._speed > 0.0 else step
        self._divide(seconds, len(self._lengths) - 1, self._lengths[-1], rest)
        return seconds

    def _divide(self, seconds: float, index: int, place: float, metres: float) -> None:
        left = metres
        for edge in range(index, self.index, -1):
            driven = min(left, place if edge == index else self._lengths[edge])
            self._add(edge, seconds * driven / metres if metres > 0.0 else 0.0)
            left -= driven
        self._add(self.index, seconds * left / metres if metres > 0.0 else seconds)

    def _add(self, edge: int, seconds: float) -> None:
        self.energy[edge] += self._energy_rate * seconds
        self.stored[edge] += self._stored_rate * seconds
