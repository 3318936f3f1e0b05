"""Walks by mirror descent on random trees over the actions [ramesh2022movement].

Symbols: τ ``tau``, κ ``kappa``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Belief, Decision, Direction, Floats, Offer, Rng, State
from superarm.core.errors import ConflictError, InputError, ShapeError
from superarm.core.inputs import as_count, as_number, require_type
from superarm.movement import ActionMetric, Forest, WalkState, start_of
from superarm.movement.carrying import KIND, Walk, walk_of
from superarm.movement.descent import KAPPA
from superarm.movement.forest import MOST_TREES
from superarm.movement.frt import TAU

from .base import Learner, retry_if_stale
from .ledger import CHANGED


class ScoredActions(NamedTuple):
    """What a walk follows."""

    desirability: Floats  # (n,), minus the cost of each action on offer
    belief: Belief | None  # from which it was computed


class TreePolicy(Learner):
    """Moves by mirror descent on random trees over the actions; a subclass scores the actions.

    The trees are drawn with the first decision, which carries them; episodes take them in turn. An
    episode begins where the offer says so, at its ``previous_action``. In any other round the walk
    continues from there, even if it had chosen something else. The propensity is that of the action,
    given where the walk was; it is unknown for the first decision, which also draws the trees.
    """

    deterministic = False

    def __init__(
        self,
        *,
        metric: ActionMetric,
        direction: Direction,
        trees: int,
        tau: float,
        kappa: float,
    ) -> None:
        super().__init__(direction=direction)
        require_type(metric, ActionMetric, "metric", ", such as PointMetric(points=…)")
        self.metric = metric
        self.trees = as_count(trees, "trees", 1, MOST_TREES)
        self.tau = as_number(tau, "tau", *TAU)
        self.kappa = as_number(kappa, "kappa", *KAPPA)
        # One record, so that a thread that decides never sees half a change.
        self._walk: Walk | None = None

    @property
    def forest(self) -> Forest | None:
        """The trees; ``None`` before the first decision is taken."""
        return self._walk.forest if self._walk is not None else None

    @property
    def walk_state(self) -> WalkState | None:
        """Where the walk is, with its probabilities; ``None`` before the first decision is taken."""
        return self._walk.walk_state if self._walk is not None else None

    @abstractmethod
    def _score_actions(self, offer: Offer, begins: bool, rng: Rng) -> ScoredActions:
        """Scores of the actions on offer; ``begins``: an episode begins with this round."""

    def _learns_at_once(self, number: int) -> bool:
        """Whether scores in this walk depend on rewards since it began."""
        return False

    @retry_if_stale
    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Take one step of the walk. Nothing changes before :meth:`commit`.

        Args:
            offer: All actions.
            rng: Where trees and actions are drawn.
        """
        require_type(offer, Offer, "offer")
        if len(offer.arms) != len(self.metric):
            raise ShapeError(
                f"the offer has {len(offer.arms)} arms, but the metric is over {len(self.metric)} "
                "actions; offer all of them in every round, and say which are available"
            )
        version = self.version  # before the belief: another thread may be learning
        walk = self._walk
        is_first = walk is None
        if walk is None:
            begins = True
            start = self._first_walk(offer, rng)
        else:
            begins = offer.begins
            start = _continue_walk(walk, offer)
        desirability, belief = self._score_actions(offer, begins, rng)
        move = start.forest.move(
            start.walk_state,
            -desirability,
            rng,
            offer.available,
            from_action=self._learns_at_once(start.number),
        )
        next_walk = start._replace(walk_state=move.walk_state, step=offer.step)
        positions = np.array([move.walk_state.action])
        return Decision(
            step=offer.step,
            action=positions,
            positions=positions,
            mean=None if belief is None else belief.mean[positions],
            std=None if belief is None else belief.std[positions],
            desirability=desirability[positions],
            propensity=None if is_first else min(move.probability, 1.0),
            version=version,
            carry=next_walk.state(trees=is_first, move=move),
        )

    def _first_walk(self, offer: Offer, rng: Rng) -> Walk:
        """A walk on new trees, at the offer's previous action."""
        previous_action = start_of(offer)
        forest = Forest.grow(
            self.metric, rng, trees=self.trees, tau=self.tau, kappa=self.kappa
        )
        walk_state = forest.begin(previous_action)
        return Walk(forest, 0, walk_state, offer.step)

    def commit(self, decision: Decision) -> None:
        """Take a decision: the walk continues from it.

        Args:
            decision: The decision.
        """
        require_type(decision, Decision, "decision")
        if decision.carry is None or decision.carry.kind != KIND:
            raise InputError(
                "the decision carries nothing of a walk: another policy made it"
            )
        with self._lock:
            previous = self._walk
            walk = self._walk_from(decision.carry)
            is_same_action = decision.positions.tolist() == [walk.walk_state.action]
            if decision.step != walk.step or not is_same_action:
                raise InputError(CHANGED)
            if previous is not None and walk.step < previous.step:
                raise ConflictError(
                    f"the decision of step {walk.step} comes after that of step {previous.step}; a "
                    "walk does not go back: decide again"
                )
            if previous is None or walk.number != previous.number:
                self._begin_episode()
            self._walk = walk
            self._ledger.note_commit(decision.step)

    def _begin_episode(self) -> None:
        """Called when an episode begins."""

    def _walk_from(self, state: State) -> Walk:
        return walk_of(state, self.metric, self.kappa, self.forest)

    def _memory(self) -> Mapping[str, Any]:
        memory = super()._memory()
        if self._walk is None:
            return memory
        return {**memory, "walk": self._walk.state(trees=True)}

    def _remember(self, state: State) -> None:
        super()._remember(state)
        if "walk" in state.parts:
            self._walk = self._walk_from(state.part("walk"))
            self._ledger.assume_committed(state.part("ledger"), self._walk.step)

    def _display_fields(self) -> Mapping[str, Any]:
        return {**self.parameters(), "version": self.version}


def _continue_walk(walk: Walk, offer: Offer) -> Walk:
    """The walk at the offer's previous action, on the next tree if an episode begins."""
    previous_action = start_of(offer)
    if offer.begins:
        number = walk.number + 1
        walk_state = walk.forest.begin(previous_action, number)
        return walk._replace(number=number, walk_state=walk_state)
    if previous_action is not None:
        walk_state = walk.walk_state._replace(action=previous_action)
        return walk._replace(walk_state=walk_state)
    return walk
