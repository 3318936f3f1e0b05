"""A twin of a bandit that never failed: the same requests in the same order, decided anew."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from insistent_clients import MENU, menu_policy

from superarm.live import Bandit, Storage, create_bandit
from superarm.live.event_reader import EventReader
from superarm.live.events import Kind


def equals_twin(bandit: Bandit) -> bool:
    """Whether a bandit that never failed decides alike, and learns the same.

    Args:
        bandit: The bandit ``menu``, which asked and told alone.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        Storage(f"sqlite:///{Path(folder) / 'twin.db'}") as storage,
    ):
        # Nothing fails here, so nothing needs to be on disk.
        journal: Any = storage.journal
        journal._writer.execute("PRAGMA synchronous = OFF")
        twin = create_bandit("twin", spec=menu_policy(), storage=storage)
        same_decisions = _repeat(bandit, twin)
        same_means = np.allclose(
            twin.predict(MENU).mean, bandit.predict(MENU).mean, rtol=0, atol=1e-9
        )
        return same_decisions and same_means and twin.pending == bandit.pending


def _repeat(bandit: Bandit, twin: Bandit) -> bool:
    """Send the twin what a bandit was sent; whether it decides alike each time."""
    reader = EventReader(bandit._journal)
    is_same = True
    for event in bandit.events():
        if event.kind is Kind.DECIDED:
            record = reader.decision(event)
            answer = twin.ask(record.offer.arms, decision_id=record.id)
            is_same &= answer.arms == record.decision.ids(record.offer)
        elif event.kind is Kind.OBSERVED:
            observation = reader.observation(event)
            position = observation.feedback.positions[0]
            arm = observation.offer.arms.ids[position]
            twin.tell(observation.decision_id, {arm: observation.feedback.rewards[0]})
        else:
            assert event.kind is Kind.CREATED
    return is_same
