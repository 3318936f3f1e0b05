"""Statements of *Contextual Combinatorial Bandits with Changing Action Sets via GPs* (2022)."""

from __future__ import annotations

from collections.abc import Iterator

from superarm.experiments.claims import Verdict

from .recorded import Recorded


def statements(recorded: Recorded) -> Iterator[Verdict]:
    """Every statement that the run can speak to."""
    yield from ()
