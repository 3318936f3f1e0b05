"""Readings of the CMU light sensors."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.core.data_files import find
from superarm.core.errors import FileError
from superarm.core.inputs import read_only

_SENSORS = 41


class LightReadings(NamedTuple):
    """Readings of the CMU light sensors, in the data's own units."""

    train: Floats  # (601, 41)
    test: Floats  # (192, 41)


def load_cmu_light() -> LightReadings:
    """Read the CMU light sensors."""
    return _read_light(find("cmu-light"))


@lru_cache(maxsize=1)
def _read_light(path: Path) -> LightReadings:
    from scipy.io import loadmat

    try:
        data: Any = loadmat(path, squeeze_me=True, struct_as_record=False)["data"]
        train = np.array(data.train.sensordata, float)
        test = np.array(data.test.sensordata, float)
    # A damaged MATLAB file fails in many ways, with many types.
    except Exception as error:
        raise FileError(
            f"{path}: not the expected MATLAB structure data.train, data.test "
            f"({type(error).__name__}: {error}); download it again"
        ) from error
    _check_readings(path, "train", train, rows=601)
    _check_readings(path, "test", test, rows=192)
    return LightReadings(read_only(train), read_only(test))


def _check_readings(path: Path, name: str, readings: Floats, rows: int) -> None:
    shape = (rows, _SENSORS)
    if readings.shape != shape or not np.isfinite(readings).all():
        raise FileError(
            f"{path}: data.{name}.sensordata must be a finite array {shape}; download it again"
        )
