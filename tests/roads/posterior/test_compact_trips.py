"""Logs in few bytes: nothing is lost, and damage is found before it fills the memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from superarm.core.errors import StateError
from superarm.roads.posterior import Borders, Trips
from superarm.roads.posterior.compact_trips import (
    compact_arrays,
    expanded_arrays,
    is_compact,
)

Arrays = dict[str, NDArray[Any]]


def a_log(trips: int, roads: int = 50, seed: int = 0, values: int = 50) -> Trips:
    """Trips with two borders each; ``values`` is how many different values a column holds."""
    rng = np.random.default_rng(seed)
    count = 6 * trips
    keys = rng.standard_normal((values, 9))[rng.integers(0, values, count)]
    keys[:, 0] = rng.integers(0, roads, count)
    keys[:, 8] = np.repeat(np.arange(trips) % 3, 6)
    keys[0, 1] = -0.0
    keys[1, 1] = 0.0
    rewards = 3 * trips
    first = np.arange(0, rewards, 3)
    return Trips(
        keys=keys,
        reward_of_arm=np.arange(count) // 2,
        rewards=rng.standard_normal(rewards),
        trip=np.arange(rewards) // 3,
        noise=np.where(rng.random(rewards) < 0.1, 2.0, 0.0),
        unshared=rng.random(rewards) < 0.1,
        borders=Borders(
            before=np.stack([np.full(trips, -1), first], 1).ravel(),
            after=np.stack([first, first + 1], 1).ravel(),
            size=rng.random(2 * trips),
            variance=np.zeros(2 * trips),
        ),
    )


@pytest.mark.parametrize(
    "trips", [a_log(40), a_log(40, values=240), a_log(1), a_log(5).between(0, 0)]
)
def test_a_compact_log_expands_to_the_same_bits(trips: Trips) -> None:
    compact = compact_arrays(trips)
    assert is_compact(compact)
    assert not is_compact(trips.arrays())
    expanded = expanded_arrays(compact)
    assert expanded.keys() == trips.arrays().keys()
    for name, values in trips.arrays().items():
        np.testing.assert_array_equal(expanded[name], values)
        np.testing.assert_array_equal(np.signbit(expanded[name]), np.signbit(values))


def test_logs_take_few_bytes() -> None:
    trips = a_log(20_000, roads=10_000)
    size = sum(array.nbytes for array in compact_arrays(trips).values())
    # A reward takes 8 bytes and a border's size 8; of an arm the road takes 2, and each of the
    # other eight columns at most 1; what counts up is a bit, borders' rewards 4 bytes each.
    most = 60_000 * 8 + 40_000 * (8 + 4 + 4) + 120_000 * 10 + 200_000
    assert size <= most
    assert size < sum(array.nbytes for array in trips.arrays().values()) / 4


def test_without_repetition_columns_stay_as_they_are() -> None:
    trips = a_log(2_000, roads=10_000, values=12_000)
    trips.keys[:, 1:7] = np.random.default_rng(0).random((12_000, 6))
    compact = compact_arrays(trips)
    assert compact["log/keys1"].nbytes == 8 * 12_000


DAMAGED: dict[str, Any] = {
    "runs that are too long": lambda a: a | {"log/noise/lengths": np.array([2**60])},
    "runs below zero": lambda a: a | {"log/noise/lengths": np.array([-120])},
    "places outside": lambda a: a | {"log/keys1/place": a["log/keys1/place"] + 200},
    "too few steps": lambda a: a | {"log/of/count": np.array([2**40])},
    "no keys": lambda a: {k: v for k, v in a.items() if "keys" not in k},
    "no rewards": lambda a: {k: v for k, v in a.items() if "rewards" not in k},
    "too many rewards": lambda a: a | {"log/rewards": np.zeros(10_000)},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_logs_are_refused(damage: str) -> None:
    arrays: Arrays = compact_arrays(a_log(40))
    if damage.startswith("runs"):
        arrays = {k: v for k, v in arrays.items() if not k.startswith("log/noise")}
        arrays["log/noise/runs"] = np.zeros(1)
    with pytest.raises(StateError, match="damaged"):
        expanded_arrays(DAMAGED[damage](arrays))
