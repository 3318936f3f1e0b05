"""Vehicles in groups that share trips."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, lil_array

from superarm.core import Floats
from superarm.roads.energy.scales import TERMS
from superarm.roads.posterior.grouping import group_vehicles

P = len(TERMS)


def linked_information(vehicles: int, pairs: list[tuple[int, int]]) -> lil_array:
    """Symmetric information with entries that name their place; ``pairs`` shared a trip."""
    information = lil_array((P * vehicles, P * vehicles))
    for first, second in [*pairs, *((number, number) for number in range(vehicles))]:
        for term in range(P):
            row = P * first + term
            column = P * second + term
            information[row, column] = information[column, row] = 1.0 + row + column
    return information


def test_groups_are_the_blocks_of_the_matrices() -> None:
    vehicles = np.array([3, 5, 8, 9, 12])
    information = linked_information(5, [(0, 3), (3, 1)])
    dense = information.toarray()
    rng = np.random.default_rng(0)
    cross: Floats = rng.standard_normal((7, P * 5)) * (rng.random((7, P * 5)) < 0.4)
    pull = rng.standard_normal(P * 5)
    groups = group_vehicles(vehicles, csr_array(cross), information.tocsr(), pull)
    by_vehicles = {group.vehicles: group for group in groups.all()}
    assert set(by_vehicles) == {(3, 5, 9), (8,), (12,)}
    for numbers, group in by_vehicles.items():
        rows = np.searchsorted(vehicles, numbers)
        columns = (P * rows[:, None] + np.arange(P)).ravel()
        np.testing.assert_array_equal(
            group.information, dense[np.ix_(columns, columns)]
        )
        np.testing.assert_array_equal(group.pull, pull[columns])
        slots = np.flatnonzero(cross[:, columns].any(axis=1))
        assert group.slots.tolist() == slots.tolist()
        np.testing.assert_array_equal(group.cross, cross[np.ix_(slots, columns)])


def test_one_large_group_does_not_widen_the_small_ones() -> None:
    """One array as wide as the widest group for each of them would take 40 GB."""
    count = 5000
    chain = [(number, number + 1) for number in range(200)]
    information = linked_information(count, chain).tocsr()
    cross = csr_array((1, P * count))
    groups = group_vehicles(np.arange(count), cross, information, np.zeros(P * count))
    sizes = sorted(len(group.vehicles) for group in groups.all())
    assert sizes == [1] * (count - 201) + [201]
