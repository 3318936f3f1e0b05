"""What baselines share that cut the context space into cells and learn one mean for each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from superarm.core import (
    Decision,
    Direction,
    Feedback,
    Floats,
    Offer,
    Oracle,
    Rng,
    State,
)
from superarm.core.errors import InputError
from superarm.core.inputs import as_generator, require_part, require_type

from .answers import select
from .base import Learner
from .ledger import check_rewards


class CellPolicy(Learner):
    """Finds the cell of every arm, scores cells, and learns the mean reward of each.

    Contexts lie in [0, 1]ᵈ; those in one cell are treated as the same arm. Statistics of cells are
    of rewards in the direction of the problem, so that larger is better.
    """

    schema = 1
    deterministic = False
    exchangeable: bool

    def __init__(self, *, oracle: Oracle, direction: Direction = "maximize") -> None:
        super().__init__(direction=direction)
        require_part(oracle, Oracle, "oracle")
        self.oracle = oracle
        self._columns = 0  # of the contexts; 0 before the first

    @abstractmethod
    def _desirability(self, contexts: Floats, step: int, rng: Rng) -> Floats:
        """One number per arm, (n,)."""

    @abstractmethod
    def _update_cells(self, contexts: Floats, rewards: Floats) -> None:
        """Learn from rewards of which larger is better."""

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose arms by the scores of their cells.

        Args:
            offer: The arms on offer.
            rng: Where ties and exploration draw their random numbers.
        """
        require_type(offer, Offer, "offer")
        # Cells are several arrays, which another thread may be changing.
        with self._lock.lock:
            contexts = self._contexts(offer)
            desirability = self._desirability(contexts, offer.step, as_generator(rng))
        action, positions, guarantee = select(self.oracle, desirability, offer, rng)
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            desirability=desirability[positions],
            guarantee=guarantee,
            version=self.version,
        )

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        check_rewards(feedback)
        if not self.exchangeable:
            self._ledger.check_order(decision, type(self).__name__)
        contexts = self._contexts(offer)[feedback.positions]
        if len(contexts):
            sign = 1.0 if self.direction == "maximize" else -1.0
            self._update_cells(contexts, sign * feedback.rewards)
            self._columns = contexts.shape[1]

    def _contexts(self, offer: Offer) -> Floats:
        """The features of the arms on offer, checked, (n, d)."""
        contexts = offer.arms.features
        columns = contexts.shape[1]
        if self._columns and columns != self._columns:
            raise InputError(
                f"arms have {columns} feature columns, but those observed before have "
                f"{self._columns}"
            )
        is_outside = (contexts < 0.0) | (contexts > 1.0)
        if is_outside.any():
            arm = int(is_outside.any(axis=1).argmax())
            raise InputError(
                f"{type(self).__name__} cuts the unit cube into cells, but arm {arm} has the features "
                f"{contexts[arm].tolist()[:9]}; scale every column to [0, 1]"
            )
        return contexts

    def _memory(self) -> Mapping[str, Any]:
        return {**super()._memory(), "columns": self._columns}

    def _remember(self, state: State) -> None:
        super()._remember(state)
        self._columns = state.count("columns", 0)
