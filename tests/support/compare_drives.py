"""Compares drives in SUMO bit for bit."""

from __future__ import annotations

import numpy as np

from superarm.roads.sumo import Drive

ARRAYS = ("speeds", "inclines", "reached", "left", "driven", "positions")
SCALARS = ("duration", "metres", "arrived", "completed")


def assert_same_drive(drive: Drive, expected: Drive) -> None:
    """Both were recorded step for step with equal numbers."""
    for name in ARRAYS:
        np.testing.assert_array_equal(
            getattr(drive, name), getattr(expected, name), err_msg=name
        )
    for name in SCALARS:
        assert getattr(drive, name) == getattr(expected, name), name
