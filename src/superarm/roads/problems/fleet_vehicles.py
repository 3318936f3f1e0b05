"""The vehicles of a fleet: as the fleet knows them, worn, and as they are on one day."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.streams import stream
from superarm.roads.energy import Vehicle

from .road_models import TABLE_2

USUAL_TEMPERATURE = 10.0
"""°C: what the fleet expects of every day."""
_COMFORT = 20.0  # °C
_WATTS_PER_DEGREE = 60.0
_USUAL_POWER = 500.0  # W, without heating or cooling
_KELVIN = 273.0  # at 0 °C


class Journey(NamedTuple):
    """What a round is about."""

    trip: int  # which pair of roads
    vehicle: int
    own: Vehicle  # the vehicle as it is on that day
    moment: int  # of the traffic, or of the signals


class Factors(NamedTuple):
    """By which a vehicle's parameters are multiplied."""

    mass: float
    drag: float
    rolling: float
    power: float


class Day(NamedTuple):
    """What the fleet does not know of a trip beforehand."""

    load: float  # kg
    temperature: float  # °C


def draw_fleet(
    seed: int, count: int, *, variety: float, payload: float
) -> tuple[Vehicle, ...]:
    """Cars and vans: mass, drag, rolling resistance and auxiliaries vary from one to the next.

    Args:
        seed: Which random world.
        count: Number of vehicles.
        variety: How much vehicles differ: standard deviation, as a share.
        payload: The largest load of a trip, kg; half of it is part of the mass.
    """
    rng = stream(seed, "truth", 0)
    usual_heating = _WATTS_PER_DEGREE * (_COMFORT - USUAL_TEMPERATURE)
    vehicles = []
    for _ in range(count):
        normals = rng.standard_normal(len(Factors._fields))
        factors = np.exp(variety * normals)
        by = Factors(*factors.tolist())
        vehicle = replace(
            TABLE_2,
            mass=TABLE_2.mass * by.mass + payload / 2.0,
            air_drag=TABLE_2.air_drag * by.drag,
            rolling_resistance=TABLE_2.rolling_resistance * by.rolling,
            auxiliary_power=_USUAL_POWER * by.power + usual_heating,
        )
        vehicles.append(vehicle)
    return tuple(vehicles)


def draw_wears(seed: int, count: int, wear: float) -> Floats:
    """The :class:`Factors` by which each vehicle differs from its description, (V, 4).

    Args:
        seed: Which random world.
        count: Number of vehicles.
        wear: How much each differs: standard deviation, as a share.
    """
    rng = stream(seed, "truth", 1)
    shape = (count, len(Factors._fields))
    normals = rng.standard_normal(shape)
    return np.exp(wear * normals)


def as_driven(vehicle: Vehicle, wear: Factors, day: Day, *, payload: float) -> Vehicle:
    """The vehicle as it is on one day: worn, loaded, and in the weather of that day.

    Args:
        vehicle: The vehicle as the fleet knows it.
        wear: By which its parameters differ from that.
        day: Load and temperature.
        payload: The largest load of a trip, kg, of which the fleet knows half.
    """
    empty_mass = vehicle.mass - payload / 2.0
    # Degrees of heating or cooling, and how many more than usual.
    degrees = abs(day.temperature - _COMFORT)
    usual_degrees = abs(USUAL_TEMPERATURE - _COMFORT)
    more_heating = _WATTS_PER_DEGREE * (degrees - usual_degrees)
    power = vehicle.auxiliary_power * wear.power + more_heating
    # Cold air is dense: density is inverse to the temperature in K.
    usual_kelvin = _KELVIN + USUAL_TEMPERATURE
    kelvin = _KELVIN + day.temperature
    return replace(
        vehicle,
        mass=empty_mass * wear.mass + day.load,
        air_drag=vehicle.air_drag * wear.drag,
        rolling_resistance=vehicle.rolling_resistance * wear.rolling,
        auxiliary_power=max(0.0, power),
        air_density=vehicle.air_density * usual_kelvin / kelvin,
    )
