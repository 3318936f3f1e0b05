"""The table of faults: what tests of faults counted, a line for each.

A test that counts prints its line. Where the variable ``SUPERARM_FAULTS`` names a file, it also appends
the line there; ``python -m bench.faults`` makes a table of such a file.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from insistent_clients import Acknowledged, check_journal, count_journal
from twins import equals_twin

from superarm.live import Bandit

PROOFS = ("twin_same", "replay_same", "events_same")
"""Fields of :class:`FaultCounts` that prove a bandit to be as it should be."""


@dataclass(frozen=True, kw_only=True)
class FaultCounts:
    """What a test of a fault counted, and one proof that the bandit is as it should be.

    Args:
        fault: What failed, or what was tried.
        url: The URL of the storage; its kind alone is recorded.
        clients: How many clients worked at a time.
        faults: How often it failed or was tried.
        acknowledged: What clients know to be durable; ``None`` if nobody counts it.
        lost: How many of these the journal lacks; ``None`` likewise.
        doubled: Events that are there a second time; ``None`` likewise.
        twin_same: Whether a bandit without faults, which gets the same requests, decides and learns
            the same; ``None`` without such a twin. The next two likewise.
        replay_same: Whether a replay of the journal repeats every decision.
        events_same: Whether the events that were recovered are the recorded ones, up to the last of them.
    """

    fault: str
    url: str
    clients: int
    faults: int
    acknowledged: int | None
    lost: int | None
    doubled: int | None
    twin_same: bool | None = None
    replay_same: bool | None = None
    events_same: bool | None = None

    @property
    def is_same(self) -> bool:
        """Whether there is a proof, and none that fails."""
        proofs = {self.twin_same, self.replay_same, self.events_same} - {None}
        return proofs == {True}

    @property
    def is_clean(self) -> bool:
        """Whether nothing is lost, doubled or different."""
        return not self.lost and not self.doubled and self.is_same

    def record(self) -> FaultCounts:
        """Print and store the counts, then assert that nothing is lost, doubled or different."""
        counts = asdict(self)
        is_file = counts.pop("url").startswith("sqlite:")
        for proof in PROOFS:
            if counts[proof] is None:
                del counts[proof]
        line = json.dumps({"storage": "SQLite" if is_file else "PostgreSQL", **counts})
        print(line)
        path = os.environ.get("SUPERARM_FAULTS")
        if path:
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        assert not self.lost, line
        assert not self.doubled, line
        assert self.is_same, line
        return self


def record_menu(
    fault: str,
    bandit: Bandit,
    acknowledged: Acknowledged,
    *,
    clients: int,
    faults: int,
) -> None:
    """Count what the bandit ``menu`` has, record it, and check its journal.

    Args:
        fault: What failed.
        bandit: The bandit, in the state to check.
        acknowledged: What clients know to be durable.
        clients: How many there were.
        faults: How often it failed.
    """
    counts = count_journal(bandit, acknowledged)
    FaultCounts(
        fault=fault,
        url=bandit.storage.url,
        clients=clients,
        faults=faults,
        acknowledged=counts.acknowledged,
        lost=counts.lost,
        doubled=counts.doubled,
        twin_same=equals_twin(bandit),
    ).record()
    check_journal(bandit, acknowledged)
