"""How wrong a vehicle's energy model may be, and how much trips differ, in Wh."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, Self

import numpy as np

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.core.inputs import as_number, as_vector
from superarm.core.registry import register

TERMS = ("rolling", "time", "drag", "climb", "each")
"""What a vehicle may do otherwise than it is told to, on all roads alike: see ``posteriors.RoadGP``."""
Outliers = Literal["keep", "weigh", "refuse"]
"""What becomes of rewards far from what was expected."""
_LEAST, _MOST = 1e-4, 1e4
_FIRST = 10  # scales that every saved state has


@register("scales", "roads")
@dataclass(frozen=True, kw_only=True)
class RoadScales:
    """Standard deviations of the model of :class:`~superarm.roads.posterior.RoadGP`.

    Those of terms are shares of the term (0.2: a fifth more or less than the energy model says), the
    last in Wh an edge. The defaults were chosen on Monaco and Luxembourg.

    Args:
        near: Wh: what roads cost beyond the model, carried along the network.
        own: Wh: the same of each road by itself.
        share: The same as a share of the Wh that a road moves: for rolling, drag and height.
        fleet: The terms of all vehicles together.
        vehicle: The terms of each vehicle by itself.
        trip: The terms of one trip alone: weather and payload of the day.
        noise: Wh: what one drive over a road differs from the next.
        noise_per_time: The same for every Wh of ``time``, as a square root: noise that grows with
            the time spent.
        noise_per_stop: The same as a multiple of what signals let expect, by their programs.
        noise_share: The same as a share of the Wh that a road moves: terms tell those of unlike
            vehicles only nearly. It is not fitted, see ``posteriors.roads.fitting``.
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
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name in ("fleet", "vehicle", "trip"):
                given = as_vector(value, item.name, len(TERMS))
                bad = (given < _LEAST) | (given > _MOST)
                if bad.any():
                    told = f"{item.name} holds {given[bad][0]:g}"
                    raise InputError(
                        f"{told}; each must lie between {_LEAST:g} and {_MOST:g}"
                    )
                object.__setattr__(self, item.name, tuple(given.tolist()))
            else:
                object.__setattr__(
                    self, item.name, as_number(value, item.name, _LEAST, _MOST)
                )

    def as_vector(self) -> Floats:
        """All of them in the order of the fields, (24,)."""
        return np.concatenate(
            [np.atleast_1d(getattr(self, item.name)) for item in fields(self)]
        )

    def trip_variance(self, terms: Floats, noise: Floats, sizes: Floats) -> float:
        """Wh² by which a trip may differ from the model before anything is learned.

        Of its roads' terms, (k, 5), what their noise is made of, (k, 4), and sizes, (k,); what roads
        share with their neighbours counts as each road's own.
        """
        own = np.square(terms[:, -1]) * (
            self.near**2 + self.own**2 + np.square(self.share * sizes)
        )
        of_all = np.sum(
            [np.square(each) for each in (self.fleet, self.vehicle, self.trip)], axis=0
        )
        total = own + noise @ np.square(self.of_noise)
        return float(total.sum() + np.square(terms.sum(axis=0)) @ of_all)

    @property
    def of_noise(self) -> Floats:
        """Those of the noise that each drive over a road has by itself, (4,)."""
        return np.array(
            [self.noise, self.noise_per_time, self.noise_per_stop, self.noise_share]
        )

    @classmethod
    def of(cls, values: Floats, like: RoadScales | None = None) -> Self:
        """The inverse of :meth:`as_vector`.

        A saved state has fewer values where scales were added after it: these are as in ``like``. So
        new scales go to the end.
        """
        left: list[float] = np.clip(values, _LEAST, _MOST).tolist()
        parts: dict[str, Any] = {}
        for item in fields(cls):
            several = item.name in ("fleet", "vehicle", "trip")
            size = len(TERMS) if several else 1
            if len(left) < size and len(parts) >= _FIRST and like is not None:
                parts[item.name] = getattr(like, item.name)
                continue
            taken, left = left[:size], left[size:]
            if len(taken) < size:
                raise InputError(
                    f"{len(values)} values are too few for the scales of roads"
                )
            parts[item.name] = tuple(taken) if several else taken[0]
        if left:
            raise InputError(
                f"{len(values)} values are too many for the scales of roads"
            )
        return cls(**parts)
