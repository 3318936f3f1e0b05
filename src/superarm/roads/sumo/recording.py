"""What is seen of a car during a trip, and the drive that it makes."""

from __future__ import annotations

import numpy as np

from superarm.core import Floats

from .drive import Drive
from .edge_times import passing


class Recording:
    """A car at departure and after every step. Plain lists: a trip has thousands of steps.

    Args:
        lengths: Metres of the route's edges, of the last one up to where the trip ends, (k,).
        begin: Metres along the first edge where the trip begins.
    """

    def __init__(self, lengths: Floats, begin: float) -> None:
        self._lengths = lengths
        self.speeds: list[float] = [0.0]  # m/s
        self.slopes: list[float] = []  # degrees, from the first step on
        self.index: list[int] = [0]  # of the edge in the route
        self.place: list[float] = [begin]  # metres along the lane
        self.inside: list[bool] = [False]  # a junction
        self.odometer: list[float] = [0.0]  # metres

    def add(
        self,
        *,
        speed: float,
        slope: float,
        index: int,
        place: float,
        inside: bool,
        odometer: float,
    ) -> None:
        """Record the car after a step.

        Args:
            speed: m/s.
            slope: Degrees.
            index: Place of its edge in the route.
            place: Metres along the lane.
            inside: Whether it is inside the junction behind the edge.
            odometer: Metres driven.
        """
        self.speeds.append(speed)
        self.slopes.append(slope)
        self.index.append(index)
        self.place.append(place)
        self.inside.append(inside)
        self.odometer.append(odometer)

    def drive(
        self, step: float, positions: list[tuple[float, ...]], arrived: bool
    ) -> Drive:
        """Return the drive that was recorded.

        Args:
            step: Seconds of a time step.
            positions: Seconds, x and y, about once a second.
            arrived: Whether the car arrived in the step after the last one recorded.
        """
        lengths = self._lengths
        times = [step * number for number in range(len(self.index))]
        if arrived:
            last_seconds = self._arrive(step)
            times.append(times[-1] + last_seconds)
        index = np.array(self.index)
        inside = np.array(self.inside)
        place = np.where(inside, lengths[index], self.place)
        odometer = np.array(self.odometer)
        passed = passing(lengths, np.array(times), index, place, inside, odometer)
        speeds = np.array(self.speeds)
        inclines = np.sin(np.deg2rad(self.slopes))
        if len(inclines) == 0:  # it arrived, or was given up, in its first step
            speeds = np.repeat(speeds, 2)
            inclines = np.zeros(1)
        completed = self.index[-1]
        if arrived:
            completed = len(lengths)
        return Drive(
            step=step,
            speeds=speeds,
            inclines=inclines,
            reached=passed.reached,
            left=passed.left,
            driven=self._driven_shares(place[-1]),
            positions=np.array(positions).reshape(-1, 3),
            metres=self.odometer[-1],
            duration=times[-1],
            arrived=arrived,
            completed=completed,
        )

    def _arrive(self, step: float) -> float:
        """Record the way to the end of the last edge, at the last speed; return its seconds."""
        lengths = self._lengths
        edge = self.index[-1]
        speed = self.speeds[-1]
        place = self.place[-1]
        if self.inside[-1]:
            place = lengths[edge]
        metres_ahead = lengths[edge:].sum()
        remaining = max(0.0, float(metres_ahead - place))
        seconds = step
        if speed:
            seconds = min(step, remaining / speed)
        self.odometer.append(self.odometer[-1] + remaining)
        self.index.append(len(lengths) - 1)
        self.place.append(float(lengths[-1]))
        self.inside.append(False)
        return seconds

    def _driven_shares(self, last_place: float) -> Floats:
        """Return how much of each edge was driven, 0 to 1, (k,)."""
        edge = self.index[-1]
        length = self._lengths[edge]
        is_passed = np.arange(len(self._lengths)) < edge
        shares = np.array(is_passed, dtype=np.float64)
        # A trip may end where its last edge begins.
        shares[edge] = 1.0
        if length > 0.0:
            shares[edge] = last_place / length
        return shares
