"""The land of a generated city: its outline, its river, its hills and the bend of its map.

Points are complex numbers: metres to the east, and i times metres to the north.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Floats, Rng

from .geography import Points

RIVER = 60.0
"""Metres from the middle of the river to each embankment."""

# Square metres of land for a directed edge, with a margin that is cut off.
_AREA_PER_EDGE = 8200.0
# Metres from the river to half the height.
_VALLEY = 500.0
# How softly hills begin, in typical heights.
_SOFT = 0.3


class Waves(NamedTuple):
    """Cosine waves that add up."""

    vector: Points  # wave vectors, radians a metre, (w,)
    phase: Floats  # radians, (w,)
    amplitude: Floats  # metres, (w,)

    def sum(self, points: Points | Floats) -> Floats:
        """Add up all waves at each point."""
        total = np.zeros(len(points))
        # One by one: a city may have a million points.
        waves = zip(self.vector, self.phase, self.amplitude, strict=True)
        for vector, phase, amplitude in waves:
            angle = (points * vector.conj()).real + phase
            total += amplitude * np.cos(angle)
        return total


class Land(NamedTuple):
    """The land before any street is built."""

    radius: float  # metres
    outline_amplitude: Floats  # of the outline's waves around the centre, (k,)
    outline_phase: Floats  # radians, (k,)
    heading: complex  # the direction in which the river flows
    river: Waves  # move the river sideways, along its heading
    hills: Waves
    east: Waves  # move the map off the plan, to the east
    north: Waves  # the same to the north

    def level(self, points: Points) -> Floats:
        """Return ρ of each point, below 1 inside the city."""
        angle = np.angle(points)
        waves = []
        outline = zip(self.outline_amplitude, self.outline_phase, strict=True)
        for frequency, (amplitude, phase) in enumerate(outline, start=2):
            wave = np.cos(frequency * angle + phase)
            waves.append(amplitude * wave)
        factor = 1.0 + np.sum(waves, axis=0)
        level: Floats = np.abs(points) / (self.radius * factor)
        return level

    def bend(self, points: Points) -> Points:
        """Return how far the map is from the plan.

        This changes so little per metre that no street crosses another.
        """
        return self.east.sum(points) + 1j * self.north.sum(points)

    def river_distance(self, points: Points) -> Floats:
        """Return metres to the middle of the river, nearly."""
        turned = points / self.heading
        downstream = turned.real
        middle = self.river.sum(downstream + 0.0)
        middle_ahead = self.river.sum(downstream + 1.0)  # a metre downstream
        slope = middle_ahead - middle
        sideways = np.abs(turned.imag - middle)
        return sideways / np.hypot(1.0, slope)

    def height(self, points: Points) -> Floats:
        """Return the height of the land, in no unit.

        Lowlands are flat, hills stand out of them, and the river is lowest.
        """
        power = (self.hills.amplitude**2).sum() / 2.0
        typical = np.sqrt(power)
        river_distance = self.river_distance(points)
        valley = (river_distance / _VALLEY) ** 2
        relative = self.hills.sum(points) / typical
        hills = np.logaddexp(0.0, (relative + 0.5) / _SOFT)
        height: Floats = hills * valley / (valley + 1.0)
        return height


def draw_land(edges: int, rng: Rng) -> Land:
    """Draw the land of a city with about ``edges`` directed edges."""
    area = _AREA_PER_EDGE * (edges + 60.0)
    radius = float(np.sqrt(area / np.pi))
    # The order of the draws is part of what a seed means.
    river = _draw_waves(
        rng,
        3,
        shortest=max(0.8 * radius, 900.0),
        longest=max(3.0 * radius, 2700.0),
        steepness=0.3,
    )
    # The river's waves run along its heading.
    river = river._replace(vector=np.abs(river.vector).astype(np.complex128))
    amplitude_draws, phase_draws = rng.random((4, 2)).T
    outline_amplitude = amplitude_draws * 0.09 / np.arange(1, 5)
    outline_phase = phase_draws * (2.0 * np.pi)
    heading = complex(np.exp(2j * np.pi * rng.random()))
    hills = _draw_waves(
        rng,
        32,
        shortest=min(1.2 * radius, 2500.0),
        longest=min(4.0 * radius, 8000.0),
        steepness=1.0,
    )
    east = _draw_bend(rng, radius)
    north = _draw_bend(rng, radius)
    return Land(
        radius=radius,
        outline_amplitude=outline_amplitude,
        outline_phase=outline_phase,
        heading=heading,
        river=river,
        hills=hills,
        east=east,
        north=north,
    )


def _draw_bend(rng: Rng, radius: float) -> Waves:
    return _draw_waves(
        rng, 4, shortest=0.8 * radius, longest=3.0 * radius, steepness=0.1
    )


def _draw_waves(
    rng: Rng, count: int, *, shortest: float, longest: float, steepness: float
) -> Waves:
    """Draw waves of all directions, the longer the higher.

    Args:
        rng: Random numbers.
        count: Number of waves.
        shortest: Length of the shortest possible wave, metres.
        longest: Length of the longest possible wave, metres.
        steepness: The steepest grade of each wave.
    """
    wavelength = shortest * (longest / shortest) ** rng.random(count)
    wave_number = 2.0 * np.pi / wavelength
    angle, phase = 2.0 * np.pi * rng.random((2, count))
    return Waves(
        vector=wave_number * np.exp(1j * angle),
        phase=phase,
        amplitude=steepness / wave_number,
    )
