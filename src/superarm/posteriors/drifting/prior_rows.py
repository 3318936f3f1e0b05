"""Prior covariances of the arms visited so far, a cache that only grows."""

from __future__ import annotations

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.linalg import shallow_copy, with_room

_INITIAL_ROOM = 64


class PriorRows:
    """Prior covariances of visited arms with all arms. Rows are never removed."""

    def __init__(self, kernel: Covariance, arms: Floats) -> None:
        self._kernel = kernel
        self._arms = arms  # (n, d)
        self._rows = np.empty((_INITIAL_ROOM, len(arms)))  # (room, n)
        # The row of every visited arm, in the order of visits.
        self._slots: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def copy(self) -> PriorRows:
        """An independent copy. It shares rows; the next arm added makes a longer array."""
        other = shallow_copy(self)
        other._rows = self.rows
        other._slots = self._slots.copy()
        return other

    @property
    def visited(self) -> list[int]:
        """Visited arms, in the order of their first visits."""
        return list(self._slots)

    @property
    def rows(self) -> Floats:
        """Prior covariances of all visited arms, (v, n)."""
        return self._rows[: len(self._slots)]

    def visit(self, arms: Ints) -> Ints:
        """Slots of these arms among the visited ones; new arms are added.

        Args:
            arms: Row numbers of arms, (k,), with or without repeats.
        """
        numbers = arms.tolist()
        different = dict.fromkeys(numbers)  # each once, in order
        new_arms = [arm for arm in different if arm not in self._slots]
        if new_arms:
            features = self._arms[new_arms]
            self._add(new_arms, features)
        slots = [self._slots[arm] for arm in numbers]
        return np.array(slots, dtype=np.intp)

    def visit_one(self, arm: int) -> int:
        """Slot of this arm among the visited ones; a new arm is added.

        Args:
            arm: Row number of the arm.
        """
        if arm not in self._slots:
            self._add([arm], self._arms[arm : arm + 1])
        return self._slots[arm]

    def row(self, arm: int) -> Floats:
        """Prior covariances of an arm, (n,).

        Args:
            arm: Row number of the arm, visited or new.
        """
        slot = self.visit_one(arm)  # first: it may replace ``_rows``
        row: Floats = self._rows[slot]
        return row

    def _add(self, new_arms: list[int], features: Floats) -> None:
        # A user's kernel may raise: compute before anything changes.
        covariances = self._kernel(features, self._arms)  # (k, n)
        size = len(self._slots)
        new_size = size + len(new_arms)
        self._rows = with_room(self._rows, size, new_size)
        self._rows[size:new_size] = covariances
        new_slots = range(size, new_size)
        slot_of_arm = zip(new_arms, new_slots, strict=True)
        # One call, so that an interrupt leaves all new arms or none.
        self._slots.update(slot_of_arm)
