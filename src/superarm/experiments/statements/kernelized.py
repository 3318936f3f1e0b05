"""Statements of *On Kernelized Multi-armed Bandits (2017)*."""

from __future__ import annotations

from collections.abc import Iterator

from superarm.experiments.claims import Verdict

from .recorded import Recorded


def statements(recorded: Recorded) -> Iterator[Verdict]:
    """Every statement that the run can speak to."""
    yield from ()
