"""The cheapest route through a graph whose nodes are the arms.

A route is a walk from ``start`` to ``goal`` along legal turns; it costs the sum of the costs of its
arms, both ends included, and of its turns where these have any. Desirabilities are minus the costs of
the arms. Dijkstra's algorithm needs costs of 0 or more; the rule ``Rectified`` provides them.

The same trip comes up many times. The present cost of its last route bounds the cheapest one, and the
search stops there. Where two routes cost the same, the choice between them would depend on how far the
search went: then it searches everything, so that no answer depends on earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from superarm.core import Floats, Ints, Rescore, Rng, Selection
from superarm.core.caching import cached_property
from superarm.core.capabilities import CostsOnly
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    ShapeError,
    UnknownArmError,
)
from superarm.core.graphs import Graph, SparseGraph
from superarm.core.inputs import require_choice
from superarm.core.registry import HasParameters, has_spec, register
from superarm.core.shortest_paths import shortest_paths

from .base import check_desirability, refuse_rescore

_MOST_COST = 1e290
_LARGE = 30_000  # turns from which a bounded search is worth its checks


@register("structure", "trip")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trip:
    """The task of one round: a route from one arm to another.

    Closed roads are arms that the offer marks as not available; list closed turns here.

    Args:
        start: The arm where the trip begins.
        goal: The arm where it ends.
        closed_turns: Closed turns, as places in ``ShortestPath.successors.indices``.
        turn_costs: The cost of each turn besides the arms that it joins, (c,), in the order of these
            places.
    """

    start: int
    goal: int
    closed_turns: Ints | None = None
    turn_costs: Floats | None = None


class _TurnNumbers(NamedTuple):
    """Numbers of turns as a sparse (n, n) matrix."""

    by_row: Any  # fast by rows
    by_column: Any  # fast by columns


@register("oracle", "shortest-path")
@dataclass(frozen=True, kw_only=True, eq=False)
class ShortestPath(HasParameters, CostsOnly):
    """The route of least total cost, by Dijkstra's algorithm on the graph of turns.

    Args:
        successors: The legal turns: a sparse (n, n) matrix, whose values are ignored, or a graph that
            has one.
        on_no_path: What to do where every route is closed: "error" or "empty", an empty decision.

    >>> from scipy.sparse import csr_array
    >>> ring = csr_array([[0, 1, 1], [0, 0, 1], [1, 0, 0]])
    >>> oracle = ShortestPath(successors=ring)
    >>> trip = Trip(start=0, goal=2)
    >>> oracle.select(np.array([0.0, -1.0, -5.0]), trip, np.random.default_rng(0)).action
    (0, 2)
    """

    successors: Any
    on_no_path: Literal["error", "empty"] = "error"
    deterministic: ClassVar[bool] = True
    _pointers: Ints = field(init=False, repr=False)
    _indices: Ints = field(init=False, repr=False)
    _graph: Any = field(init=False, repr=False)
    _last_turns: dict[tuple[int, int], Ints] = field(
        init=False, repr=False, default_factory=dict
    )
    """The turns of the last route, by its ends."""

    def __post_init__(self) -> None:
        from scipy.sparse import csr_array, issparse

        graph: Any = self.successors
        matrix: Any = graph.successors if isinstance(graph, Graph) else graph
        is_sparse: bool = issparse(matrix)
        if not is_sparse or not _is_square(matrix):
            raise InputError(
                "successors must be a square sparse matrix: one row and column per arm"
            )
        require_choice(self.on_no_path, "on_no_path", ("error", "empty"))
        # A copy, because sorting must not change the caller's matrix.
        turns = csr_array(matrix, copy=True)
        turns.sort_indices()
        if not has_spec(graph):
            graph = SparseGraph.of(turns, links_only=True)
        object.__setattr__(self, "_graph", graph)
        object.__setattr__(self, "successors", turns)
        pointers = turns.indptr.astype(np.int32)
        object.__setattr__(self, "_pointers", pointers)
        indices = turns.indices.astype(np.int32)
        object.__setattr__(self, "_indices", indices)

    def parameters(self) -> Mapping[str, Any]:
        return {"successors": self._graph, "on_no_path": self.on_no_path}

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        trip = self._check(desirability, structure, rescore)
        for end in (trip.start, trip.goal):
            if desirability[end] == -np.inf:
                return self._no_path(trip, f"arm {end} is closed")
        if trip.start == trip.goal:
            return _selection([trip.start])
        weights = self._weights(desirability, trip)
        route = self._cheapest(weights, trip)
        if route is None:
            return self._no_path(trip, "no open route joins them")
        if len(weights) >= _LARGE:
            turns = self.turns_along(np.asarray(route))
            self._last_turns.clear()
            self._last_turns[trip.start, trip.goal] = turns
        return _selection(route)

    def _weights(self, desirability: Floats, trip: Trip) -> Floats:
        """The cost of each turn and of entering the arm that it leads to; inf is closed."""
        costs = np.negative(desirability)
        weights: Floats = costs[self._indices]
        if trip.turn_costs is not None:
            weights += trip.turn_costs
        if trip.closed_turns is not None:
            weights[trip.closed_turns] = np.inf
        return weights

    def _cheapest(self, weights: Floats, trip: Trip) -> list[int] | None:
        """The cheapest route, or ``None`` where there is none."""
        ends = (trip.start, trip.goal)
        last_turns = self._last_turns.get(ends)
        if last_turns is not None:
            # Added up in the order of the search, so that they round alike.
            sums = weights[last_turns].cumsum()
            bound = float(sums[-1])
            if bound < np.inf:
                route = self._search(weights, trip, bound)
                if route is not None:
                    return route
        return self._search(weights, trip, np.inf)

    def _search(self, weights: Floats, trip: Trip, bound: float) -> list[int] | None:
        """The cheapest route up to ``bound``; ``None`` if there is none or it may not be unique."""
        turns = self._matrix(weights)
        paths = shortest_paths(turns, trip.start, bound)
        route = paths.route_to(trip.goal)
        if route is None or bound == np.inf:
            return route
        if self._is_unique(route, weights, paths.costs):
            return route
        return None

    def _is_unique(self, route: list[int], weights: Floats, costs: Floats) -> bool:
        """Whether each arm of the route but the first is reached at its least cost in one way only.

        ``costs`` are those from the start to each arm, (n,).
        """
        entered = route[1:]
        by_column = self._turn_numbers.by_column
        incoming = by_column[:, entered].tocoo()
        costs_before = costs[incoming.row]
        ways = costs_before + weights[incoming.data]
        least_costs = costs[entered]
        is_cheapest = ways == least_costs[incoming.col]
        count = int(np.count_nonzero(is_cheapest))
        return count == len(entered)

    @cached_property
    def _turn_numbers(self) -> _TurnNumbers:
        """The number of each turn by the arms that it joins."""
        numbers = np.arange(len(self._indices))
        matrix = self._matrix(numbers)
        return _TurnNumbers(matrix, matrix.tocsc())

    def turns_along(self, route: Ints) -> Ints:
        """Numbers of the turns of a route, in the order of ``turn_costs``, (k − 1,).

        Args:
            route: The arms of the route, (k,).
        """
        sources = route[:-1]
        targets = route[1:]
        numbers = self._turn_numbers.by_row[sources, targets]
        return np.asarray(numbers, dtype=np.intp).ravel()

    def _matrix(self, values: Any) -> Any:
        """One value for each turn; csgraph keeps explicit zeros, and its own type is csr_matrix."""
        from scipy.sparse import csr_matrix

        n = len(self._pointers) - 1
        entries = (values, self._indices, self._pointers)
        return csr_matrix(entries, shape=(n, n), copy=False)

    def _check(
        self, desirability: Floats, structure: object, rescore: Rescore | None
    ) -> Trip:
        """The trip, once everything is checked."""
        check_desirability(desirability)
        n = self.successors.shape[0]
        if desirability.shape != (n,):
            raise ShapeError(
                f"{len(desirability)} arms are on offer, but the graph has {n}"
            )
        available = desirability[desirability > -np.inf]
        least = float(available.min(initial=0.0))
        if least < -_MOST_COST:
            raise InputError(
                f"an arm costs {-least:.3g}; sums of costs above {_MOST_COST:g} overflow"
            )
        if not isinstance(structure, Trip):
            raise InputError(
                f"a route needs Trip(start=…, goal=…) as the offer's structure, not {structure!r}"
            )
        refuse_rescore(rescore, "ShortestPath finds a route as a whole")
        _check_arm("start", structure.start, n)
        _check_arm("goal", structure.goal, n)
        _check_turns(structure, len(self._indices))
        highest = float(desirability.max())
        if highest > 0.0:
            arm = int(desirability.argmax())
            raise InputError(
                f"arm {arm} costs {-highest:.3g}: a shortest path needs costs of "
                "0 or more; use the policy route-rule, or wrap the rule in Rectified"
            )
        return structure

    def _no_path(self, trip: Trip, why: str) -> Selection:
        if self.on_no_path == "empty":
            return _selection([])
        raise InfeasibleError(
            f"there is no route from arm {trip.start} to arm {trip.goal}: {why}; "
            "open a road, or use on_no_path='empty' to wait"
        )


def _is_square(matrix: Any) -> bool:
    shape = matrix.shape
    return len(shape) == 2 and shape[0] == shape[1]


def _check_arm(name: str, arm: Any, n: int) -> None:
    is_integer = isinstance(arm, int | np.integer)
    is_flag = isinstance(arm, bool)
    if is_integer and not is_flag and 0 <= arm < n:
        return
    raise UnknownArmError(f"{name} is {arm!r}; arms are numbered 0 to {n - 1}")


def _check_turns(trip: Trip, turns: int) -> None:
    closed = trip.closed_turns
    if closed is not None:
        shape = (np.size(closed),)
        if not _is_array_within(closed, "iu", shape, turns - 1):
            raise InputError(
                f"closed_turns must be an array of turn numbers, 0 to {turns - 1}"
            )
    costs = trip.turn_costs
    if costs is not None and not _is_array_within(costs, "f", (turns,), _MOST_COST):
        raise InputError(
            f"turn_costs must be an array of {turns} numbers, one for each turn, 0 or more and at "
            f"most {_MOST_COST:g}"
        )


def _is_array_within(values: Any, kinds: str, shape: tuple[int], most: float) -> bool:
    """Whether it is an array of this shape and kind with entries from 0 to ``most``."""
    if not isinstance(values, np.ndarray) or values.dtype.kind not in kinds:
        return False
    if values.shape != shape:
        return False
    if values.size == 0:
        return True
    lowest = values.min()
    highest = values.max()
    return bool(0 <= lowest <= highest <= most)


def _selection(route: list[int]) -> Selection:
    positions = np.array(route, dtype=np.intp)
    return Selection(action=tuple(route), positions=positions)
