"""Random trips over the roads of a small city, and how far two forms of a fleet's posterior may differ."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.roads.energy import Vehicle
from superarm.roads.networks import generate_city
from superarm.roads.posterior import Borders, Trips
from superarm.roads.posterior.log import Log
from superarm.roads.problems.fleet_model import near_kernel, road_rows, road_sizes
from superarm.roads.rows import Column

GRAPH = generate_city(edges=250, seed=1).line_graph()
ROADS = len(GRAPH)
KERNEL = near_kernel(GRAPH)
SIZES = road_sizes(GRAPH)
ROWS = road_rows(GRAPH, Vehicle(), 0)
TOLERANCE = 0.01
"""Of means in standard deviations, and of standard deviations relative to themselves."""
BACKENDS: list[Any] = [
    "numpy",
    pytest.param(
        "numba",
        marks=pytest.mark.skipif(
            find_spec("numba") is None, reason="numba is not installed"
        ),
    ),
]


def random_trip(
    rng: np.random.Generator,
    kind: str = "edges",
    vehicles: int = 3,
    roads: int = ROADS,
) -> Trips:
    """A trip over random roads; what was observed of it, and how, is its kind."""
    count = int(rng.integers(2, 12))
    keys = ROWS[rng.integers(0, roads, count)].copy()
    keys[:, Column.VEHICLE] = rng.integers(0, vehicles)
    if kind == "convoy":
        keys[:, Column.VEHICLE] = rng.integers(0, vehicles, count)
    sums = np.arange(count)
    if kind == "total":
        sums = np.zeros(count, dtype=np.intp)
    elif kind == "sections":
        sums = np.arange(count) // 2
    rewards = int(sums[-1]) + 1
    expected = np.bincount(sums, keys[:, Column.EXPECTED])
    observed = expected + rng.normal(0.0, 3.0, rewards)
    stated = rng.uniform(0.2, 2.0, rewards) if kind == "stated" else None
    borders = None
    if kind == "motion":
        inner = np.arange(rewards - 1)
        before = np.concatenate([[-1], inner, [rewards - 1]])
        after = np.concatenate([[0], inner + 1, [-1]])
        size = rng.uniform(0.0, 20.0, rewards + 1)
        variance = rng.uniform(0.0, 5.0, rewards + 1)
        borders = Borders(before, after, size, variance)
    return Trips.of_one(keys, sums, observed, stated, borders)


KINDS = ("edges", "total", "sections", "convoy", "stated", "motion")


def random_log(seed: int, trips: int, kinds: tuple[str, ...] = KINDS) -> Trips:
    """Trips of several kinds, one after another."""
    rng = np.random.default_rng(seed)
    log = Log(9)
    for number in range(trips):
        log.append(random_trip(rng, kinds[number % len(kinds)]))
    return log.view()


def some_keys(seed: int = 0, count: int = 40) -> Floats:
    """Keys of vehicles that were driven, and of one that was not."""
    rng = np.random.default_rng(seed)
    keys = ROWS[rng.integers(0, ROADS, count)].copy()
    keys[:, Column.VEHICLE] = rng.integers(0, 4, count)
    return keys


def assert_same(dense: Any, sparse: Any, keys: Floats) -> None:
    """Means within a share of a standard deviation, standard deviations within a share of themselves."""
    std = np.sqrt(dense.variance_of(keys))
    away = np.abs(dense.mean_of(keys) - sparse.mean_of(keys))
    assert (away <= TOLERANCE * std).all()
    ratios = np.sqrt(sparse.variance_of(keys)) / std
    assert np.abs(ratios - 1.0).max() <= TOLERANCE
