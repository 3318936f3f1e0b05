"""Walks in the records of the flow: in what a decision carries, and in an offer's previous action."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Floats, Offer, State
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import as_count, as_vector, read_only
from superarm.core.migrations import up_to_date

from .forest import MOST_TREES, NOWHERE, Forest, Move, WalkState
from .metrics import ActionMetric
from .switching import previous_positions
from .tree import Tree

KIND = "tree-walk"
_SCHEMA = 1
_SLACK = 1e-10  # allowed error of the products of probabilities along a tree


def start_of(offer: Offer) -> int | None:
    """The position of the previous action; ``None`` if there is none.

    Args:
        offer: The offer of this round.
    """
    positions = previous_positions(offer)
    if len(positions) > 1:
        raise InputError(
            f"the previous action names {len(positions)} arms; a walk is at one action at a time"
        )
    if len(positions) == 0:
        return None
    return int(positions[0])


class Walk(NamedTuple):
    """A walk on a forest: its number, where it is, and the step that led there."""

    forest: Forest
    number: int
    walk_state: WalkState
    step: int

    def state(self, *, trees: bool, move: Move | None = None) -> State:
        """Where the walk is and how it got there.

        Args:
            trees: Whether to include its trees, for a reader that does not have them.
            move: The move that led there.
        """
        walk_state = self.walk_state
        stored_trees = self.forest.trees if trees else ()
        scalars: dict[str, float] = {
            "walk": self.number,
            "tree": walk_state.tree,
            "action": walk_state.action,
            "step": self.step,
            "trees": len(stored_trees),
        }
        arrays: dict[str, Any] = {"q": walk_state.q}
        if move is not None:
            arrays["distribution"] = move.distribution
            scalars["distance"] = move.distance
        for k, tree in enumerate(stored_trees):
            arrays[f"parent-{k}"] = tree.parent
            arrays[f"weight-{k}"] = tree.weight
            arrays[f"leaf-{k}"] = tree.leaf
        return State(kind=KIND, schema=_SCHEMA, scalars=scalars, arrays=arrays)


def walk_of(
    state: State, metric: ActionMetric, kappa: float, known: Forest | None
) -> Walk:
    """The walk that a state describes.

    Args:
        state: A state by :meth:`Walk.state`.
        metric: The distances between actions.
        kappa: κ of the mirror descent, for the trees of the state.
        known: The trees to use where the state has none.
    """
    state = up_to_date(state, KIND, _SCHEMA, "a walk on trees")
    trees = _trees_of(state)
    forest = known
    if trees:
        forest = Forest(metric, trees, kappa=kappa)
    if forest is None:
        raise InputError("the decision carries no trees, and none were drawn before")
    walk_state = _walk_state_of(state, forest)
    number = _count_of(state, "walk")
    step = _count_of(state, "step")
    return Walk(forest, number, walk_state, step)


def _walk_state_of(state: State, forest: Forest) -> WalkState:
    """Where the walk of a state is on the forest, checked."""
    last_tree = len(forest.trees) - 1
    tree = _count_of(state, "tree", last_tree)
    action: int = state.scalar("action")
    if action != NOWHERE:
        last_action = len(forest.metric) - 1
        action = _count_of(state, "action", last_action)
    q = _probabilities_of(state, forest.trees[tree])
    return WalkState(tree, q, action)


def _count_of(state: State, name: str, most: float = math.inf) -> int:
    """A count of a state, checked."""
    value = state.scalar(name)
    return as_count(value, name, 0, most)


def _trees_of(state: State) -> list[Tree]:
    """The trees of a state; none if it was stored without them."""
    count = _count_of(state, "trees", MOST_TREES)
    return [_tree_of(state, k) for k in range(count)]


def _tree_of(state: State, k: int) -> Tree:
    """The k-th tree of a state."""
    return Tree(
        parent=state.array(f"parent-{k}"),
        weight=state.array(f"weight-{k}"),
        leaf=state.array(f"leaf-{k}"),
    )


def _probabilities_of(state: State, tree: Tree) -> Floats:
    """The conditional probabilities q of a state, (v,), checked."""
    parent = tree.parent
    stored = state.array("q")
    q = read_only(as_vector(stored, "q", len(parent)))
    below_root = slice(1, None)
    sums = np.bincount(parent[below_root], q[below_root], minlength=len(q))
    is_inner = tree.sizes > 1
    errors = np.abs(sums[is_inner] - 1.0)
    depth = len(tree.levels)
    slack = _SLACK / (1 + depth)
    is_off = (errors > slack).any()
    if q.min() < 0.0 or is_off:
        raise StateError(
            "this state is damaged: its probabilities do not sum to 1 at every vertex"
        )
    return q


class Costs(NamedTuple):
    """The costs of a round."""

    service: float
    movement: float


def expected_costs(decision: Decision, costs: Floats) -> Costs | None:
    """The costs expected of a decision before it was drawn [ramesh2022movement, eqs. 16 and 17].

    Args:
        decision: A decision of a walk.
        costs: Cost of each action, (n,).

    Returns:
        ``None`` if the decision carries no walk.
    """
    carry = decision.carry
    if carry is None or carry.kind != KIND:
        return None
    stored = carry.array("distribution")
    distribution = as_vector(stored, "distribution", len(costs))
    service = float(distribution @ costs)
    distance = carry.number("distance", 0.0)
    return Costs(service, distance)
