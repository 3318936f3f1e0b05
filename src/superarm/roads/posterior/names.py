"""Vehicles by name: keys hold numbers, and no two names share one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Self

from superarm.core.errors import StateError

MOST_VEHICLES = 2**31
"""Vehicles are numbered 0 … 2³¹ − 1 in keys."""


def vehicle_number(name: str) -> int:
    """The number of a vehicle's name, where no other name has taken it: 31 bits of a hash."""
    return int.from_bytes(sha256(name.encode()).digest()[:4], "big") >> 1


class VehicleNames:
    """Which number each name has. It is never changed: :meth:`having` returns another."""

    def __init__(self, numbers: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(numbers or {})
        self._taken = {number: name for name, number in self._numbers.items()}

    def __len__(self) -> int:
        return len(self._numbers)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def number(self, name: str) -> int:
        """Its own, or the first that is free from its hash on."""
        if (known := self._numbers.get(name)) is not None:
            return known
        number = vehicle_number(name)
        while (
            number in self._taken
        ):  # two names of a hundred thousand may have one hash
            number = (number + 1) % MOST_VEHICLES
        return number

    def having(self, names: Iterable[str]) -> VehicleNames:
        """These names, too, in this order."""
        fresh = [name for name in names if name not in self._numbers]
        if not fresh:
            return self
        more = VehicleNames(self._numbers)
        for name in fresh:
            number = more.number(name)
            more._numbers[name] = number
            more._taken[number] = name
        return more

    def as_json(self) -> dict[str, int]:
        return dict(self._numbers)

    @classmethod
    def from_json(cls, value: Any) -> VehicleNames:
        """What :meth:`as_json` gave, or :class:`StateError`."""
        sound = isinstance(value, dict) and all(
            isinstance(name, str)
            and type(number) is int
            and 0 <= number < MOST_VEHICLES
            for name, number in value.items()
        )
        if not sound or len(set(value.values())) < len(value):
            raise StateError(
                "this state is damaged: two vehicles share a number, or one has none"
            )
        return cls(value)
