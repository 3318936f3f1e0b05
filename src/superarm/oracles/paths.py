"""The cheapest route through a graph whose nodes are the arms.

A route is a walk from ``start`` to ``goal`` along legal turns; it costs the sum of the costs of its
arms, both ends included, and of its turns where these have any. Desirabilities are minus the costs of
the arms. Costs must not be negative: that is what Dijkstra's algorithm needs, and what ``Rectified``
is there for.

The same trip is asked for again and again. What its last route costs now is a bound on the cheapest,
and the search goes no further than that. Where two routes cost the same, which of them is found would
depend on how far it goes: then all is searched, so that no answer depends on what was asked before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from superarm.core import Floats, Ints, Rescore, Rng, Selection
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

from .base import check_desirability

_MOST_COST = 1e290
_LARGE = 30_000  # turns from which on a shorter search is worth its checks


@register("structure", "trip")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trip:
    """What one round asks for: a route from one arm to another.

    Closed roads are arms that the offer marks as not available; closed turns are named here.

    Args:
        start: The arm where the trip begins.
        goal: The arm where it ends.
        closed_turns: Turns that cannot be taken, as places in ``ShortestPath.successors.indices``.
        turn_costs: What each turn costs beside the arms that it joins, (c,), in the order of these
            places.
    """

    start: int
    goal: int
    closed_turns: Ints | None = None
    turn_costs: Floats | None = None


@register("oracle", "shortest-path")
@dataclass(frozen=True, kw_only=True, eq=False)
class ShortestPath(HasParameters, CostsOnly):
    """The route of least total cost, by Dijkstra's algorithm on the graph of turns.

    ``successors`` is a sparse (n, n) matrix, whose values are not looked at, or a graph that has one.

    Args:
        successors: The legal turns, as a sparse matrix or a graph.
        on_no_path: What to do where every route is closed: an error, or an empty decision.

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
    _last: dict[tuple[int, int], Ints] = field(
        init=False, repr=False, default_factory=dict
    )
    """The turns of the route found last, by its ends."""

    def __post_init__(self) -> None:
        from scipy.sparse import csr_array, issparse

        graph: Any = self.successors
        given: Any = graph.successors if isinstance(graph, Graph) else graph
        sparse: bool = issparse(given)
        if not sparse or given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise InputError(
                "successors must be a square sparse matrix: one row and column per arm"
            )
        require_choice(self.on_no_path, "on_no_path", ("error", "empty"))
        turns = csr_array(
            given, copy=True
        )  # sorted below, which must not reach the caller's own
        turns.sort_indices()
        known = graph if has_spec(graph) else SparseGraph.of(turns, links_only=True)
        object.__setattr__(self, "_graph", known)
        object.__setattr__(self, "successors", turns)
        object.__setattr__(self, "_pointers", turns.indptr.astype(np.int32))
        object.__setattr__(self, "_indices", turns.indices.astype(np.int32))

    def parameters(self) -> Mapping[str, Any]:
        return {"successors": self._graph, "on_no_path": self.on_no_path}

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        trip = self._checked(desirability, structure, rescore)
        if min(desirability[trip.start], desirability[trip.goal]) == -np.inf:
            end = trip.start if desirability[trip.start] == -np.inf else trip.goal
            return self._no_path(trip, f"arm {end} is closed")
        if trip.start == trip.goal:
            return _selection([trip.start])
        weights = np.negative(desirability)[
            self._indices
        ]  # of entering an arm; inf is closed
        if trip.turn_costs is not None:
            weights += trip.turn_costs
        if trip.closed_turns is not None:
            weights[trip.closed_turns] = np.inf
        last, route = self._last.get((trip.start, trip.goal)), None
        if last is not None:
            bound = float(weights[last].cumsum()[-1])  # added up as the search does it
            route = self._search(weights, trip, bound) if bound < np.inf else None
        if route is None:
            route = self._search(weights, trip, np.inf)
        if route is None:
            return self._no_path(trip, "no open route joins them")
        if len(weights) >= _LARGE:
            self._last.clear()
            self._last[trip.start, trip.goal] = self.turns_along(np.asarray(route))
        return _selection(route)

    def _search(self, weights: Floats, trip: Trip, bound: float) -> list[int] | None:
        """The cheapest route; none where there is none, or where a bounded search is not sure of it."""
        from scipy.sparse.csgraph import dijkstra

        found = dijkstra(
            self._matrix(weights),
            indices=np.array([trip.start]),
            return_predecessors=True,
            limit=bound,
        )
        costs, previous = found[0][0], found[1][0]
        route = [trip.goal]
        while route[-1] != trip.start:
            before = int(previous[route[-1]])
            if before < 0:
                return None
            route.append(before)
        route.reverse()
        return route if bound == np.inf or self._alone(route, weights, costs) else None

    def _alone(self, route: list[int], weights: Floats, costs: Floats) -> bool:
        """Whether each arm of the route but the first is reached at its least cost in one way alone."""
        incoming = self._numbers[1][:, route[1:]].tocoo()
        found = costs[incoming.row] + weights[incoming.data]
        return (
            int(np.count_nonzero(found == costs[route[1:]][incoming.col]))
            == len(route) - 1
        )

    @cached_property
    def _numbers(self) -> tuple[Any, Any]:
        """The number of each turn by the arms that it joins: fast by rows, and by columns."""
        rows = self._matrix(np.arange(len(self._indices)))
        return rows, rows.tocsc()

    def turns_along(self, route: Ints) -> Ints:
        """Numbers of the turns of a route, as ``turn_costs`` has them, (k − 1,)."""
        return np.asarray(
            self._numbers[0][route[:-1], route[1:]], dtype=np.intp
        ).ravel()

    def _matrix(self, values: Any) -> Any:
        """One value for each turn; csgraph keeps explicit zeros, and its own type is csr_matrix."""
        from scipy.sparse import csr_matrix

        n = len(self._pointers) - 1
        return csr_matrix(
            (values, self._indices, self._pointers), shape=(n, n), copy=False
        )

    def _checked(
        self, desirability: Floats, structure: object, rescore: Rescore | None
    ) -> Trip:
        check_desirability(desirability)
        n = self.successors.shape[0]
        if desirability.shape != (n,):
            raise ShapeError(
                f"{len(desirability)} arms are on offer, but the graph has {n}"
            )
        least = float(desirability[desirability > -np.inf].min(initial=0.0))
        if least < -_MOST_COST:
            raise InputError(
                f"an arm costs {-least:.3g}; sums of costs above {_MOST_COST:g} overflow"
            )
        if not isinstance(structure, Trip):
            raise InputError(
                f"a route needs Trip(start=…, goal=…) as the offer's structure, not {structure!r}"
            )
        if rescore is not None:
            raise InputError(
                "ShortestPath finds a route as a whole, not arm by arm: leave stepwise out"
            )
        ends: tuple[tuple[str, Any], ...] = (
            ("start", structure.start),
            ("goal", structure.goal),
        )
        for name, arm in ends:
            if (
                isinstance(arm, bool)
                or not isinstance(arm, int | np.integer)
                or not 0 <= arm < n
            ):
                raise UnknownArmError(
                    f"{name} is {arm!r}; arms are numbered 0 to {n - 1}"
                )
        turns = len(self._indices)
        closed, costs = structure.closed_turns, structure.turn_costs
        if closed is not None and not _within(
            closed, "iu", (np.size(closed),), turns - 1
        ):
            raise InputError(
                f"closed_turns must be an array of turn numbers, 0 to {turns - 1}"
            )
        if costs is not None and not _within(costs, "f", (turns,), _MOST_COST):
            raise InputError(
                f"turn_costs must be an array of {turns} numbers, one for each turn, 0 or more and at "
                f"most {_MOST_COST:g}"
            )
        top = float(desirability.max())
        if top > 0.0:
            raise InputError(
                f"arm {int(desirability.argmax())} costs {-top:.3g}: a shortest path needs costs of "
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


def _within(values: Any, kinds: str, shape: tuple[int], most: float) -> bool:
    plain = (
        isinstance(values, np.ndarray)
        and values.dtype.kind in kinds
        and values.shape == shape
    )
    return plain and (not values.size or 0 <= values.min() <= values.max() <= most)


def _selection(route: list[int]) -> Selection:
    return Selection(action=tuple(route), positions=np.array(route, dtype=np.intp))
