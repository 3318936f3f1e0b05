"""Walks in records of the flow: what a decision carries, and where an offer says that one stands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from superarm.core import Decision, Floats, Offer, State
from superarm.errors import InputError, StateError
from superarm.inputs import as_count, as_number, as_vector

from .forest import NOWHERE, Forest, Move, Stand
from .metrics import ActionMetric
from .switching import previous_positions
from .tree import Tree

_KIND, _SCHEMA = "tree-walk", 1


def start_of(offer: Offer) -> int | None:
    """The action that was taken before, by its position; ``None`` where nothing was done."""
    positions = previous_positions(offer)
    if len(positions) > 1:
        told = f"the previous action names {len(positions)} arms"
        raise InputError(f"{told}; a walk is at one action at a time")
    return int(positions[0]) if len(positions) else None


def walk_state(stand: Stand, walk: int, trees: Sequence[Tree] = (), move: Move | None = None) -> State:
    """Where walk number ``walk`` is; ``trees`` are told with it where they are new."""
    arrays = {"q": stand.q}
    scalars: dict[str, float] = {"walk": walk, "tree": stand.tree, "action": stand.action}
    if move is not None:
        arrays["distribution"], scalars["distance"] = move.distribution, move.distance
    for number, tree in enumerate(trees):
        for name in ("parent", "weight", "leaf"):
            arrays[f"{name}-{number}"] = getattr(tree, name)
    scalars["trees"] = len(trees)
    return State(kind=_KIND, schema=_SCHEMA, scalars=scalars, arrays=arrays)


def forest_of(state: State, metric: ActionMetric, kappa: float) -> Forest | None:
    """The trees that a state tells of, if it does."""
    count = as_count(state.scalar("trees"), "trees", 0, 10_000)
    names = ("parent", "weight", "leaf")
    trees = [Tree(**{name: state.array(f"{name}-{k}") for name in names}) for k in range(count)]
    return Forest(metric, trees, kappa=kappa) if trees else None


def walk_of(state: State, forest: Forest) -> tuple[Stand, int]:
    """Where a state stands, and the number of its walk; or an error where it stands nowhere."""
    state.require(_KIND, _SCHEMA, "a walk on trees")
    tree = as_count(state.scalar("tree"), "tree", 0, len(forest.trees) - 1)
    action: int = state.scalar("action")
    if action != NOWHERE:
        action = as_count(action, "action", 0, len(forest.metric) - 1)
    shape = forest.trees[tree]
    q = as_vector(state.array("q"), "q", len(shape.parent))
    sums = np.bincount(shape.parent[1:], q[1:], minlength=len(q))
    inner = shape.sizes > 1
    if q.min() < 0.0 or (np.abs(sums[inner] - 1.0) > 1e-9).any():
        raise StateError("this state is damaged: its probabilities do not sum to 1 at every vertex")
    return Stand(tree, q, action), as_count(state.scalar("walk"), "walk", 0)


def expected_costs(decision: Decision, costs: Floats) -> tuple[float, float] | None:
    """Expected service and movement cost of a decision that was drawn, given what actions cost (n,).

    [ramesh2022movement, eqs. 16 and 17]; ``None`` where the decision says nothing of it.
    """
    carry = decision.carry
    if carry is None or carry.kind != _KIND:
        return None
    distribution = as_vector(carry.array("distribution"), "distribution", len(costs))
    return float(distribution @ costs), as_number(carry.scalar("distance"), "distance", 0.0)
