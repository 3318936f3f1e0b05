"""The latest decisions of a bandit, in memory: most rewards are theirs."""

from __future__ import annotations

from collections import Counter, OrderedDict

from superarm.core import Arms

from .decisions import DecisionRecord

_MOST = 10_000  # decisions
_MOST_NUMBERS = 4_000_000  # 32 MB
# Measured: positions, mean, spread, desirability, what is pending, and the objects around them.
_NUMBERS_PER_CHOSEN_ARM = 12


class RecentDecisions:
    """Keeps the latest decisions, as many as a budget of memory allows.

    Arms that several decisions share, such as named ones, count once.

    Args:
        most: Decisions at most.
        most_numbers: Numbers at most: features of arms, those of a decision about its chosen arms, and a
            number for each arm of a structure.
    """

    def __init__(self, most: int = _MOST, most_numbers: int = _MOST_NUMBERS) -> None:
        self._most = most
        self._most_numbers = most_numbers
        # By id, the oldest first.
        self._records: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._uses: Counter[int] = Counter()  # decisions, by the identity of their arms
        self._numbers = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, decision_id: str) -> DecisionRecord | None:
        """A decision; ``None`` if it is not among these.

        Args:
            decision_id: Its id.
        """
        return self._records.get(decision_id)

    def add(self, record: DecisionRecord) -> None:
        """Add a decision, and remove the oldest ones beyond the budget. It always keeps the latest.

        Args:
            record: A decision that is not among these.
        """
        self._records[record.id] = record
        self._count(record)
        while len(self._records) > 1 and self._is_over_budget():
            _, oldest = self._records.popitem(last=False)
            self._discount(oldest)

    def remove(self, decision_id: str) -> None:
        """Remove a decision, if it is among these.

        Args:
            decision_id: Its id.
        """
        record = self._records.pop(decision_id, None)
        if record is not None:
            self._discount(record)

    def _is_over_budget(self) -> bool:
        return len(self._records) > self._most or self._numbers > self._most_numbers

    def _count(self, record: DecisionRecord) -> None:
        arms = record.offer.arms
        if self._uses[id(arms)] == 0:
            self._numbers += _size(arms)
        self._uses[id(arms)] += 1
        self._numbers += _own_size(record)

    def _discount(self, record: DecisionRecord) -> None:
        arms = record.offer.arms
        self._numbers -= _own_size(record)
        self._uses[id(arms)] -= 1
        if self._uses[id(arms)] == 0:
            del self._uses[id(arms)]
            self._numbers -= _size(arms)


def _size(arms: Arms) -> int:
    """The features of all arms, and their ids."""
    return arms.features.size + len(arms)


def _own_size(record: DecisionRecord) -> int:
    """What no other decision shares: numbers of chosen arms, and the structure's, about one for each arm."""
    chosen = _NUMBERS_PER_CHOSEN_ARM * len(record.decision.positions)
    structure = 0 if record.offer.structure is None else len(record.offer.arms)
    return chosen + structure
