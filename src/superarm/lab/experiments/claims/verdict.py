"""Verdicts: the outcome of a claim or a statement after a run."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Word = Literal["holds", "does not hold", "undecided"]


class Verdict(NamedTuple):
    """One claim after a run."""

    text: str
    verdict: Word
    evidence: str

    def as_json(self) -> dict[str, Any]:
        """The verdict as ``summary.json`` and the command line have it."""
        return {
            "text": self.text,
            "holds": self.verdict == "holds",
            "verdict": self.verdict,
            "evidence": self.evidence,
        }
