"""Oracles that every test of all oracles uses: add yours to ``ORACLES``, and tests find it.

An offer of a sample has seven arms, as in ``superarm.testing.OracleContract``.
``tests/package/test_contracts_parts.py`` runs the contract, ``tests/package/test_invalid_values.py`` passes
invalid values, and ``tests/states/make.py`` saves a state for an oracle that no state holds yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from superarm.core.graphs import Pairs
from superarm.oracles import (
    TIM,
    GreedyCoverage,
    Groups,
    GroupTopK,
    Knapsack,
    Matching,
    ShortestPath,
    TopK,
    Trip,
    Weights,
)

ARM_COUNT = 7
Feasible = Callable[[int, Any], Iterable[Iterable[int]]]


class OracleSample(NamedTuple):
    """An oracle, what its offers look like, and what it may choose."""

    oracle: Any
    feasible: Feasible | None
    """Every feasible set of n arms and a structure, for the contract. ``None`` if a class in
    ``tests/oracles`` runs the contract, or compares the oracle with brute force in another way."""
    structure: Callable[[int], Any] = lambda n: None
    """The structure of an offer of n arms; the contract also offers none."""
    rescores: bool = True
    """Whether the oracle accepts ``rescore``."""
    costs: bool = False
    """Whether desirabilities must be negative: minus a cost."""


def pairs_of_arms(n: int, structure: Any) -> Iterable[Iterable[int]]:
    return itertools.combinations(range(n), 2)


def bipartite(n: int) -> Pairs:
    return Pairs(left=np.arange(n) // 2, right=np.arange(n) % 2)


def groups_of_two(n: int) -> Groups:
    """Of each group, one arm may be chosen."""
    limits = np.ones((n + 1) // 2, dtype=np.intp)
    return Groups(of_arm=np.arange(n) // 2, limits=limits)


ROW = csr_array(np.eye(ARM_COUNT, k=1) + np.eye(ARM_COUNT, k=-1))
"""Each arm leads to its neighbours."""

ORACLES: dict[str, OracleSample] = {
    "top-k": OracleSample(TopK(k=2), pairs_of_arms),
    "group-top-k": OracleSample(GroupTopK(k=2), None, groups_of_two),
    "knapsack": OracleSample(
        Knapsack(), None, lambda n: Weights(of_arm=np.ones(n), budget=2.0), False
    ),
    "matching": OracleSample(Matching(pairs=2), None, bipartite, False),
    "coverage": OracleSample(GreedyCoverage(k=2), None, bipartite),
    "tim": OracleSample(TIM(k=1, epsilon=0.5), None, bipartite, False),
    "shortest-path": OracleSample(
        ShortestPath(successors=ROW),
        None,
        lambda n: Trip(start=0, goal=4),
        rescores=False,
        costs=True,
    ),
}
"""By their registered names."""
