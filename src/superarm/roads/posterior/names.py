"""Numbers of vehicles by name: feature rows hold numbers, and no two names share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Self

from superarm.core.errors import StateError

MOST_VEHICLES = 2**31
"""Vehicles are numbered 0 … 2³¹ − 1 in keys."""


def vehicle_number(name: str) -> int:
    """The number of a vehicle's name where no other name has taken it: 31 bits of a hash.

    Args:
        name: The vehicle's name in its fleet's log.
    """
    digest = sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


class VehicleNames:
    """The number of each vehicle's name. It never changes: :meth:`having` returns another.

    Args:
        numbers: Numbers by name.
    """

    def __init__(self, numbers: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(numbers or {})
        self._taken = set(self._numbers.values())

    def __len__(self) -> int:
        return len(self._numbers)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def number(self, name: str) -> int:
        """The number of a name; of a new name the first that is free from its hash on."""
        if name in self._numbers:
            return self._numbers[name]
        number = vehicle_number(name)
        # Two names of a hundred thousand may have one hash.
        while number in self._taken:
            number = (number + 1) % MOST_VEHICLES
        return number

    def having(self, names: Iterable[str]) -> VehicleNames:
        """These names in addition, in this order."""
        new_names = [name for name in names if name not in self._numbers]
        if not new_names:
            return self
        extended = VehicleNames(self._numbers)
        for name in new_names:
            number = extended.number(name)
            extended._numbers[name] = number
            extended._taken.add(number)
        return extended

    def as_json(self) -> dict[str, int]:
        """Numbers by name."""
        return dict(self._numbers)

    @classmethod
    def from_json(cls, value: Any) -> VehicleNames:
        """The inverse of :meth:`as_json`, or :class:`StateError`."""
        if not _has_numbers(value):
            raise StateError(
                "this state is damaged: two vehicles share a number, or one has none"
            )
        return cls(value)


def _has_numbers(value: Any) -> bool:
    """Whether a value gives each name a number of its own."""
    if not isinstance(value, dict):
        return False
    for name, number in value.items():
        if not isinstance(name, str) or not _is_number(number):
            return False
    numbers = set(value.values())
    return len(numbers) == len(value)


def _is_number(value: Any) -> bool:
    """Whether a value is the number of a vehicle; True is none."""
    is_integer = type(value) is int
    return is_integer and 0 <= value < MOST_VEHICLES
