"""Trips as they were metered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from superarm.core.inputs import require_type


class TripSection(NamedTuple):
    """Consecutive edges, and what they cost together."""

    edges: tuple[str, ...]
    energy: float  # Wh
    start_speed: float | None = None  # m/s where they begin, if the log has it
    end_speed: float | None = None
    hour: float | None = None  # when they begin, 0 to 24, if the log has it
    seconds: float | None = None  # how long they took


@dataclass(frozen=True, kw_only=True)
class LoggedTrip:
    """A trip as it was metered.

    Args:
        name: A name, unique among all trips of the vehicle.
        vehicle: The vehicle's name; "" for the unnamed vehicle.
        sections: What was metered, in driving order.
        unread: Why nothing can be learned from it; "" if something can.
        jump: Where its trace was split, in words; "" if it was not.
    """

    name: str
    vehicle: str = ""
    sections: tuple[TripSection, ...]
    unread: str = ""
    jump: str = ""

    def __post_init__(self) -> None:
        require_type(self.vehicle, str, "vehicle", ', such as "van-1"')

    @property
    def label(self) -> str:
        """The names of vehicle and trip."""
        return f"{self.vehicle} {self.name}" if self.vehicle else self.name
