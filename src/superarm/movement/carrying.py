"""Walks in records of the flow: what a decision carries, and where an offer says that one stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from superarm.core import Decision, Floats, Offer, State
from superarm.errors import InputError, StateError
from superarm.inputs import as_count, as_number, as_vector

from .forest import NOWHERE, Forest, Move, Stand
from .metrics import ActionMetric
from .switching import previous_positions
from .tree import Tree

KIND, _SCHEMA = "tree-walk", 1


def start_of(offer: Offer) -> int | None:
    """The action that was taken before, by its position; ``None`` where nothing was done."""
    positions = previous_positions(offer)
    if len(positions) > 1:
        told = f"the previous action names {len(positions)} arms"
        raise InputError(f"{told}; a walk goes from one action to the next")
    return int(positions[0]) if len(positions) else None


class Walk(NamedTuple):
    """A walk on trees, one of several: its number, where it is, and the step that led there."""

    forest: Forest
    stand: Stand
    number: int
    step: int


def walk_state(walk: Walk, trees: Sequence[Tree] = (), move: Move | None = None) -> State:
    """Where a walk is; ``trees`` are told with it where they are new."""
    at, q, action = walk.stand
    arrays = {"q": q}
    scalars: dict[str, float] = {"tree": at, "action": action, "walk": walk.number, "step": walk.step}
    if move is not None:
        arrays["distribution"], scalars["distance"] = move.distribution, move.distance
    for number, tree in enumerate(trees):
        for name in ("parent", "weight", "leaf"):
            arrays[f"{name}-{number}"] = getattr(tree, name)
    scalars["trees"] = len(trees)
    return State(kind=KIND, schema=_SCHEMA, scalars=scalars, arrays=arrays)


def walk_of(state: State, metric: ActionMetric, kappa: float, known: Forest | None) -> Walk:
    """The walk that a state tells of, on its own trees or those ``known``; or an error."""
    state.require(KIND, _SCHEMA, "a walk on trees")
    names, forest = ("parent", "weight", "leaf"), known
    if count := as_count(state.scalar("trees"), "trees", 0, 10_000):
        tables = ({name: state.array(f"{name}-{k}") for name in names} for k in range(count))
        forest = Forest(metric, [Tree(**table) for table in tables], kappa=kappa)
    if forest is None:
        raise InputError("the decision carries no trees, and none were drawn before")
    tree = as_count(state.scalar("tree"), "tree", 0, len(forest.trees) - 1)
    action: int = state.scalar("action")
    if action != NOWHERE:
        action = as_count(action, "action", 0, len(forest.metric) - 1)
    shape = forest.trees[tree]
    q = as_vector(state.array("q"), "q", len(shape.parent))
    sums = np.bincount(shape.parent[1:], q[1:], minlength=len(q))
    inner = shape.sizes > 1
    # Products of them along the tree must sum to 1, too.
    if q.min() < 0.0 or (np.abs(sums[inner] - 1.0) > 1e-10 / (1 + len(shape.levels))).any():
        raise StateError("this state is damaged: its probabilities do not sum to 1 at every vertex")
    number, step = (as_count(state.scalar(name), name, 0) for name in ("walk", "step"))
    return Walk(forest, Stand(tree, q, action), number, step)


def expected_costs(decision: Decision, costs: Floats) -> tuple[float, float] | None:
    """Expected service and movement cost of a decision that was drawn, given what actions cost (n,).

    [ramesh2022movement, eqs. 16 and 17]; ``None`` where the decision says nothing of it.
    """
    carry = decision.carry
    if carry is None or carry.kind != KIND:
        return None
    distribution = as_vector(carry.array("distribution"), "distribution", len(costs))
    return float(distribution @ costs), as_number(carry.scalar("distance"), "distance", 0.0)
