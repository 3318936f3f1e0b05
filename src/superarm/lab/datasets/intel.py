"""Temperatures of the Intel Berkeley lab."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from superarm.core import Floats
from superarm.core.data_files import find

from .reading import number_table, open_text, split_lines

INTEL_MOTES = tuple(mote for mote in range(1, 55) if mote not in (5, 15))
"""The numbers of the 52 sensors."""
_ROWS = 14_400


def load_intel_temperature() -> Floats:
    """Temperatures in °C as recorded (a few are glitches near 0), (14400, 52).

    One row every 30 seconds, 2880 a day; a column for each of ``INTEL_MOTES``.
    """
    return _read_temperature(find("intel-temperature"))


# Parsing takes about 0.2 s, and experiments read once per seed.
@lru_cache(maxsize=1)
def _read_temperature(path: Path) -> Floats:
    with open_text(path) as lines:
        return number_table(path, split_lines(lines), len(INTEL_MOTES), _ROWS)
