"""Speeds on the motorways of Los Angeles, METR-LA."""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.data_files import find
from superarm.core.errors import FileError

from .reading import Row, number_table, open_text

_SENSORS = 207
_ROWS = 2016


class TrafficSpeeds(NamedTuple):
    """Speeds on the motorways of Los Angeles, in miles an hour."""

    ids: tuple[str, ...]  # the numbers of the 207 sensors
    speeds: Floats  # (2016, 207), a row every 5 minutes, 288 a day


def load_metr_la() -> TrafficSpeeds:
    """One week of the METR-LA speeds, in which missing readings have been filled in."""
    return _read_speeds(find("metr-la-week"))


@lru_cache(maxsize=1)
def _read_speeds(path: Path) -> TrafficSpeeds:
    with open_text(path) as lines:
        reader = csv.reader(lines)
        ids = tuple(next(reader, []))
        distinct = len(set(ids))
        if distinct != _SENSORS:
            raise FileError(
                f"{path}, line 1: {distinct} different sensors, but {_SENSORS} are expected"
            )
        rows = (Row(reader.line_num, words) for words in reader)
        speeds = number_table(path, rows, _SENSORS, _ROWS)
    missing = (speeds <= 0.0).any(axis=1)
    if missing.any():
        line = int(np.argmax(missing)) + 2  # after the header
        raise FileError(
            f"{path}, line {line}: 0 means a missing reading, and none is expected"
        )
    return TrafficSpeeds(ids, speeds)
