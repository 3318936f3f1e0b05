"""When a decision is too old, also where the clock of the machine jumps."""

from __future__ import annotations

import logging
import math
import time as clock

_SMALLEST_JUMP = 1.0  # seconds; less is how clocks are kept in time
_LARGEST_JUMP = 60.0  # seconds that are a jump for any age
_log = logging.getLogger("superarm.live")


class AgeLimit:
    """Which decisions are too old.

    A second clock, which counts seconds since the machine started, shows jumps of the first one. After
    a jump forward the age of a decision is unknown. So none is too old until the maximum age has passed
    again.
    """

    def __init__(self) -> None:
        self._offset = clock.time() - clock.monotonic()  # of the two clocks
        self._jump_time = -math.inf  # of the last jump, by the second clock

    def oldest(self, max_age: float) -> float:
        """When the oldest decision was taken that is not too old, in seconds since 1970.

        Args:
            max_age: The maximum age, in seconds.
        """
        now = clock.time()
        steady_now = clock.monotonic()
        offset = now - steady_now
        jump = offset - self._offset
        self._offset = offset
        if jump > max(_SMALLEST_JUMP, min(_LARGEST_JUMP, max_age / 2)):
            self._jump_time = steady_now
            _log.warning(
                "the clock jumped forward by %.0f s; the bandit abandons no decision for the next "
                "%.0f s",
                jump,
                max_age,
            )
        if steady_now - self._jump_time < max_age:
            return -math.inf
        return now - max_age
