"""Walks in records of the flow: what a decision carries, and where an offer says that one stands."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from superarm.core import Decision, Floats, Offer, State
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_count, as_number, as_vector, read_only
from superarm.core.migrations import up_to_date

from .forest import MOST_TREES, NOWHERE, Forest, Move, Stand
from .metrics import ActionMetric
from .switching import previous_positions
from .tree import TREE_ARRAYS, Tree

KIND, _SCHEMA = "tree-walk", 1


def start_of(offer: Offer) -> int | None:
    """The action that was taken before, by its position; ``None`` where nothing was done."""
    positions = previous_positions(offer)
    if len(positions) > 1:
        told = f"the previous action names {len(positions)} arms"
        raise InputError(f"{told}; a walk is at one action at a time")
    return int(positions[0]) if len(positions) else None


class Walk(NamedTuple):
    """A walk on a forest: its number, where it is, and the step that led there."""

    forest: Forest
    number: int
    stand: Stand
    step: int

    def state(self, *, trees: bool, move: Move | None = None) -> State:
        """Where the walk is and what led there; with its ``trees`` where they are not known."""
        tree, q, action = self.stand
        told = self.forest.trees if trees else ()
        scalars: dict[str, float] = {
            "walk": self.number,
            "tree": tree,
            "action": action,
        }
        scalars |= {"step": self.step, "trees": len(told)}
        arrays = {"q": q}
        if move is not None:
            arrays["distribution"], scalars["distance"] = (
                move.distribution,
                move.distance,
            )
        for k, each in enumerate(told):
            arrays |= {f"{name}-{k}": getattr(each, name) for name in TREE_ARRAYS}
        return State(kind=KIND, schema=_SCHEMA, scalars=scalars, arrays=arrays)


def walk_of(
    state: State, metric: ActionMetric, kappa: float, known: Forest | None
) -> Walk:
    """The walk that a state tells of, on its own trees or on the ``known`` ones."""
    state = up_to_date(state, KIND, _SCHEMA, "a walk on trees")
    told = range(as_count(state.scalar("trees"), "trees", 0, MOST_TREES))
    trees = [
        Tree(**{name: state.array(f"{name}-{k}") for name in TREE_ARRAYS}) for k in told
    ]
    forest = Forest(metric, trees, kappa=kappa) if trees else known
    if forest is None:
        raise InputError("the decision carries no trees, and none were drawn before")
    at = as_count(state.scalar("tree"), "tree", 0, len(forest.trees) - 1)
    action: int = state.scalar("action")
    if action != NOWHERE:
        action = as_count(action, "action", 0, len(metric) - 1)
    tree = forest.trees[at]
    q = read_only(as_vector(state.array("q"), "q", len(tree.parent)))
    sums = np.bincount(tree.parent[1:], q[1:], minlength=len(q))
    slack = 1e-10 / (
        1 + len(tree.levels)
    )  # products of them along the tree must sum to 1, too
    if q.min() < 0.0 or (np.abs(sums[tree.sizes > 1] - 1.0) > slack).any():
        raise StateError(
            "this state is damaged: its probabilities do not sum to 1 at every vertex"
        )
    number, step = (as_count(state.scalar(name), name, 0) for name in ("walk", "step"))
    return Walk(forest, number, Stand(at, q, action), step)


class Costs(NamedTuple):
    """What a round costs."""

    service: float
    movement: float


def expected_costs(decision: Decision, costs: Floats) -> Costs | None:
    """What was expected of a decision before it was drawn, given what actions cost, (n,).

    [ramesh2022movement, eqs. 16 and 17]; ``None`` where the decision says nothing of it.
    """
    carry = decision.carry
    if carry is None or carry.kind != KIND:
        return None
    distribution = as_vector(carry.array("distribution"), "distribution", len(costs))
    distance = as_number(carry.scalar("distance"), "distance", 0.0)
    return Costs(float(distribution @ costs), distance)
