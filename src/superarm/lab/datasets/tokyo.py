"""Check-ins in Tokyo."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from superarm.core import Floats
from superarm.core.data_files import find
from superarm.core.errors import FileError
from superarm.core.inputs import read_only

from .reading import csv_rows, parse_number


def load_tokyo_checkins() -> Floats:
    """Longitude and latitude in degrees, in the order of the file, (n, 2)."""
    return _read_checkins(find("tokyo-checkins"))


@lru_cache(maxsize=1)
def _read_checkins(path: Path) -> Floats:
    places: list[tuple[float, float]] = []
    for line, words in csv_rows(path, "longitude", "latitude"):
        longitude, latitude = (parse_number(path, line, word) for word in words)
        # NaN fails as well.
        if not (abs(longitude) <= 180.0 and abs(latitude) <= 90.0):
            place = (longitude, latitude)
            raise FileError(f"{path}, line {line}: not a place on Earth: {place}")
        places.append((longitude, latitude))
    if not places:
        raise FileError(f"{path}: no check-ins; download it again")
    return read_only(np.array(places))
