"""The cheapest route through a graph whose nodes are the arms.

A route is a walk from ``start`` to ``goal`` along legal turns; it costs the sum of the costs of
its arms, both ends included. Desirabilities are minus the costs, and costs must not be negative:
that is what lets Dijkstra's algorithm stop early, and what ``Rectified`` is there for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from superarm.capabilities import CostsOnly
from superarm.core import Floats, Ints, Rescore, Selection
from superarm.errors import InfeasibleError, InputError, ShapeError, UnknownArmError
from superarm.graphs import Graph, SparseGraph
from superarm.inputs import require_choice
from superarm.registry import Described, has_spec, register

from .base import check_desirability

_MOST_COST = 1e290
_EMPTY = np.empty(0, dtype=np.intp)


@register("structure", "trip")
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trip:
    """What one round asks for: a route from one arm to another.

    Closed roads are arms that the offer marks as not available; closed turns are named here.
    """

    start: int
    goal: int
    closed_turns: Ints | None = None
    """Turns that can not be taken, as places in ``ShortestPath.successors.indices``."""


@register("oracle", "shortest-path")
@dataclass(frozen=True, kw_only=True, eq=False)
class ShortestPath(Described, CostsOnly):
    """The route of least total cost, by Dijkstra's algorithm on the graph of turns.

    ``successors`` is a sparse (n, n) matrix whose entries are the legal turns, or a graph that has
    one; its values are not looked at. ``on_no_path`` says what happens where every route is closed:
    an "error", or an "empty" decision, of which nothing is learned.

    >>> from scipy.sparse import csr_array
    >>> ring = csr_array([[0, 1, 1], [0, 0, 1], [1, 0, 0]])
    >>> oracle = ShortestPath(successors=ring)
    >>> trip = Trip(start=0, goal=2)
    >>> oracle.select(np.array([0.0, -1.0, -5.0]), trip, np.random.default_rng(0)).action
    (0, 2)
    """

    successors: Any
    on_no_path: Literal["error", "empty"] = "error"
    _pointers: Ints = field(init=False, repr=False)
    _indices: Ints = field(init=False, repr=False)
    _graph: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        from scipy.sparse import csr_array, issparse

        graph: Any = self.successors
        given: Any = graph.successors if isinstance(graph, Graph) else graph
        sparse: bool = issparse(given)
        if not sparse or given.ndim != 2 or given.shape[0] != given.shape[1]:
            raise InputError("successors must be a square sparse matrix: one row and column per arm")
        require_choice(self.on_no_path, "on_no_path", ("error", "empty"))
        turns = csr_array(given, copy=True)  # sorted below, which must not reach the caller's own
        turns.sort_indices()
        known = graph if has_spec(graph) else SparseGraph.of(turns, links_only=True)
        object.__setattr__(self, "_graph", known)
        object.__setattr__(self, "successors", turns)
        object.__setattr__(self, "_pointers", turns.indptr.astype(np.int32))
        object.__setattr__(self, "_indices", turns.indices.astype(np.int32))

    def parameters(self) -> Mapping[str, Any]:
        return {"successors": self._graph, "on_no_path": self.on_no_path}

    @property
    def deterministic(self) -> bool:
        return True

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: np.random.Generator,
        rescore: Rescore | None = None,
    ) -> Selection:
        trip = self._checked(desirability, structure, rescore)
        if min(desirability[trip.start], desirability[trip.goal]) == -np.inf:
            end = trip.start if desirability[trip.start] == -np.inf else trip.goal
            return self._no_path(trip, f"arm {end} is closed")
        if trip.start == trip.goal:
            return _selection([trip.start])
        previous = self._predecessors(np.negative(desirability), trip)
        route = [trip.goal]
        while route[-1] != trip.start:
            before = int(previous[route[-1]])
            if before < 0:
                return self._no_path(trip, "no open route joins them")
            route.append(before)
        return _selection(route[::-1])

    def _predecessors(self, costs: Floats, trip: Trip) -> Ints:
        """The arm before each arm on its cheapest route from the start; negative: not reached."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import dijkstra

        weights = costs[self._indices]  # of entering the arm that a turn leads to; inf is closed
        if trip.closed_turns is not None:
            weights[trip.closed_turns] = np.inf
        # csgraph keeps explicit zeros as turns that cost nothing. Its own type is csr_matrix.
        n = len(costs)
        graph = csr_matrix((weights, self._indices, self._pointers), shape=(n, n), copy=False)
        found = dijkstra(graph, indices=np.array([trip.start]), return_predecessors=True)
        return np.asarray(found[1][0], dtype=np.intp)

    def _checked(self, desirability: Floats, structure: object, rescore: Rescore | None) -> Trip:
        check_desirability(desirability)
        n = self.successors.shape[0]
        if desirability.shape != (n,):
            raise ShapeError(f"{len(desirability)} arms are on offer, but the graph has {n}")
        least = float(desirability[desirability > -np.inf].min(initial=0.0))
        if least < -_MOST_COST:
            raise InputError(f"an arm costs {-least:.3g}; sums of costs above {_MOST_COST:g} overflow")
        if not isinstance(structure, Trip):
            raise InputError(
                f"a route needs Trip(start=…, goal=…) as the offer's structure, not {structure!r}"
            )
        if rescore is not None:
            raise InputError(
                "ShortestPath finds a route as a whole, not arm by arm: leave stepwise out"
            )
        ends: tuple[tuple[str, Any], ...] = (("start", structure.start), ("goal", structure.goal))
        for name, arm in ends:
            if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < n:
                raise UnknownArmError(f"{name} is {arm!r}; arms are numbered 0 to {n - 1}")
        self._check_turns(structure.closed_turns)
        top = float(desirability.max())
        if top > 0.0:
            raise InputError(
                f"arm {int(desirability.argmax())} costs {-top:.3g}: a shortest path needs costs of "
                "0 or more; wrap the rule in Rectified, or use its reduction by potentials"
            )
        return structure

    def _check_turns(self, closed: Any) -> None:
        if closed is None:
            return
        turns = len(self._indices)
        numbers = isinstance(closed, np.ndarray) and closed.ndim == 1 and closed.dtype.kind in "iu"
        if not numbers or (closed.size and not (closed.min() >= 0 and closed.max() < turns)):
            raise InputError(f"closed_turns must be an array of numbers of turns, 0 to {turns - 1}")

    def _no_path(self, trip: Trip, why: str) -> Selection:
        if self.on_no_path == "empty":
            return Selection(action=(), positions=_EMPTY.copy())
        raise InfeasibleError(
            f"there is no route from arm {trip.start} to arm {trip.goal}: {why}; "
            "open a road, or use on_no_path='empty' to wait"
        )


def _selection(route: list[int]) -> Selection:
    return Selection(action=tuple(route), positions=np.array(route, dtype=np.intp))
