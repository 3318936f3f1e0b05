"""How wrong a vehicle's energy model may be, and how much trips differ, in Wh."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_count, as_number, as_vector
from superarm.core.registry import register

TERMS = ("rolling", "time", "drag", "climb", "each")
"""The terms in which a vehicle may differ from its model on all roads alike: see ``RoadGP``."""
Outliers = Literal["keep", "weigh", "refuse"]
"""How to treat rewards far from what was expected."""
# The column of the term that each edge has by itself.
_ROAD_TERM = TERMS.index("each")
_LEAST = 1e-4
_MOST = 1e4
_MOST_HARMONICS = 12
# Fields with a value for each term.
_OF_TERMS = ("fleet", "vehicle", "trip", "fleet_hour")
# Fields that are no standard deviations, and so no part of a vector.
_SETTINGS = ("harmonics",)
# Fields that every saved state has; later ones may be missing.
_FIRST_FIELDS = 10


@register("scales", "roads")
@dataclass(frozen=True, kw_only=True)
class RoadScales:
    """Standard deviations of the model of :class:`~superarm.roads.posterior.RoadGP`.

    Those of terms are shares of the term (0.2: a fifth more or less than in the energy model), the
    last in Wh an edge. The defaults were chosen on Monaco and Luxembourg.

    Args:
        near: What roads cost beyond the model, carried along the network, Wh.
        own: What each road costs beyond the model by itself, Wh.
        share: The same as a share of the Wh that a road moves: for rolling, drag and height.
        fleet: The terms of all vehicles together.
        vehicle: The terms of each vehicle by itself.
        trip: The terms of one trip: weather and payload of the day.
        noise: How much one drive over a road differs from the next, Wh.
        noise_per_time: The same for every Wh of ``time``, as a square root: noise that grows with
            the time spent.
        noise_per_stop: The same as a multiple of what the programs of signals suggest.
        noise_share: The same as a share of the Wh that a road moves: terms describe unlike vehicles
            only nearly. It is not fitted, see ``roads.posterior.fitting``.
        motion: What is stored in motion where one road ends and the next begins, as a share of what
            is expected there, border by border. This and the next are fitted where readings hold
            motion.
        motion_trip: The same of all borders of a trip together: load, driver and traffic.
    """

    near: float = 0.5
    own: float = 1.7
    share: float = 0.02
    fleet: tuple[float, ...] = (0.2, 0.3, 0.3, 0.03, 1.0)
    vehicle: tuple[float, ...] = (0.05, 0.1, 0.1, 0.05, 0.2)
    trip: tuple[float, ...] = (0.04, 0.3, 0.04, 0.02, 0.1)
    noise: float = 0.4
    noise_per_time: float = 0.3
    noise_per_stop: float = 0.9
    noise_share: float = 0.1
    motion: float = 0.2
    motion_trip: float = 0.1

    def __post_init__(self) -> None:
        for item in _scale_fields(type(self)):
            name = item.name
            value = getattr(self, name)
            check = _check_terms if name in _OF_TERMS else _check_scale
            object.__setattr__(self, name, check(value, name))

    def as_vector(self) -> Floats:
        """Return all scales in the order of the fields, (24,)."""
        parts = []
        for item in _scale_fields(type(self)):
            value = getattr(self, item.name)
            parts.append(np.atleast_1d(value))
        return np.concatenate(parts)

    def trip_variance(self, terms: Floats, noise: Floats, sizes: Floats) -> float:
        """Return Wh² by which a trip may differ from the model before anything is learned.

        What roads share with their neighbours counts as each road's own.

        Args:
            terms: Terms of the trip's roads, Wh, (k, 5).
            noise: What multiplies the squares of ``noise_scales``, (k, 4).
            sizes: Wh that each road moves, (k,).
        """
        # Each road by itself.
        share_variance = np.square(self.share * sizes)
        road_variance = self.near**2 + self.own**2 + share_variance
        road_term = terms[:, _ROAD_TERM]
        unmodelled = np.square(road_term) * road_variance
        noise_variances = np.square(self.noise_scales)
        roads = unmodelled + noise @ noise_variances

        # What all roads of the trip share.
        term_variances = [
            np.square(self.fleet),
            np.square(self.vehicle),
            np.square(self.trip),
        ]
        term_variance = np.sum(term_variances, axis=0)  # (5,)
        trip_terms = terms.sum(axis=0)
        shared = np.square(trip_terms) @ term_variance
        return float(roads.sum() + shared)

    @property
    def noise_scales(self) -> Floats:
        """The scales of the noise that each drive over a road has by itself, (4,)."""
        scales = [
            self.noise,
            self.noise_per_time,
            self.noise_per_stop,
            self.noise_share,
        ]
        return np.array(scales)

    @classmethod
    def from_vector(cls, values: Floats, like: RoadScales | None = None) -> Self:
        """Build scales from a vector: the inverse of :meth:`as_vector`.

        New scales are added at the end, so that a state saved before has fewer values.

        Args:
            values: The scales in the order of the fields; clipped to what is allowed.
            like: Scales for the fields that ``values`` do not reach.
        """
        numbers: list[float] = np.clip(values, _LEAST, _MOST).tolist()
        parts: dict[str, Any] = {}
        begin = 0
        for item in _scale_fields(cls):
            name = item.name
            has_terms = name in _OF_TERMS
            size = len(TERMS) if has_terms else 1
            end = begin + size
            if end <= len(numbers):
                part = numbers[begin:end]
                parts[name] = tuple(part) if has_terms else part[0]
                begin = end
            elif len(parts) >= _FIRST_FIELDS and like is not None:
                parts[name] = getattr(like, name)
            else:
                raise InputError(
                    f"{len(values)} values are too few for the scales of roads"
                )
        if begin < len(numbers):
            raise InputError(
                f"{len(values)} values are too many for the scales of roads"
            )
        return cls(**parts, **cls._settings_of(like))

    @classmethod
    def _settings_of(cls, like: RoadScales | None) -> dict[str, Any]:
        """What these scales have besides standard deviations, by name."""
        return {}


@register("scales", "roads-by-hour")
@dataclass(frozen=True, kw_only=True)
class HourlyScales(RoadScales):
    """Standard deviations of a model whose roads have a profile over the day.

    Args:
        near_hour: How far what roads cost at an hour is from their mean over the day, carried along
            the network, Wh.
        own_hour: The same of each road by itself, Wh.
        share_hour: The same as a share of the Wh that a road moves.
        fleet_hour: The same of the terms of all vehicles together: what an hour does everywhere.
        harmonics: How many waves a day's profile is made of: the shortest of 4 lasts six hours. Each
            visited road counts as 1 + 2·``harmonics`` roads in time and memory.
    """

    near_hour: float = 0.3
    own_hour: float = 0.7
    share_hour: float = 0.02
    fleet_hour: tuple[float, ...] = (0.05, 0.15, 0.1, 0.01, 0.2)
    harmonics: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.harmonics, "harmonics", 1, _MOST_HARMONICS)

    @classmethod
    def _settings_of(cls, like: RoadScales | None) -> dict[str, Any]:
        if not isinstance(like, HourlyScales):
            return {}
        return {"harmonics": like.harmonics}


@register("scales", "road-durations")
@dataclass(frozen=True, kw_only=True)
class DurationScales(HourlyScales):
    """The same scales where rewards are seconds: a fleet with hours learns how long roads take, too.

    The term ``time`` is the expected seconds of a road. Terms of energy alone are 0 and not learned.

    Args:
        near: Seconds beyond those expected, carried along the network.
        own: Seconds beyond those expected of each road by itself.
        share: The same, s for every Wh that the road moves.
        fleet: Shares of the terms, of all vehicles together.
        vehicle: The same of each vehicle.
        trip: The same of each trip.
        noise: How much one drive over a road differs from the next, s.
        noise_per_time: The same for every second expected, as a square root.
        near_hour: How far an hour's seconds are from their mean over the day, carried along.
        own_hour: The same of each road by itself.
        share_hour: The same, s for every Wh that the road moves.
        fleet_hour: The same of the terms of all vehicles together.
    """

    near: float = 1.0
    own: float = 3.0
    share: float = 0.1
    fleet: tuple[float, ...] = (0.2, 0.2, 0.2, 0.2, 1.0)
    vehicle: tuple[float, ...] = (0.05, 0.05, 0.05, 0.05, 0.2)
    trip: tuple[float, ...] = (0.05, 0.1, 0.05, 0.05, 0.2)
    noise: float = 1.0
    noise_per_time: float = 1.0
    near_hour: float = 1.0
    own_hour: float = 2.0
    share_hour: float = 0.1
    fleet_hour: tuple[float, ...] = (0.1, 0.2, 0.1, 0.1, 1.0)


def _scale_fields(scales: type[RoadScales]) -> list[Field[Any]]:
    """The fields that are standard deviations."""
    return [item for item in fields(scales) if item.name not in _SETTINGS]


def _check_scale(value: Any, name: str) -> float:
    return as_number(value, name, _LEAST, _MOST)


def _check_terms(value: Any, name: str) -> tuple[float, ...]:
    numbers = as_vector(value, name, len(TERMS))
    is_wrong = (numbers < _LEAST) | (numbers > _MOST)
    if is_wrong.any():
        first = numbers[is_wrong][0]
        raise InputError(
            f"{name} must be between {_LEAST:g} and {_MOST:g}, got {first:g}"
        )
    return tuple(numbers.tolist())
