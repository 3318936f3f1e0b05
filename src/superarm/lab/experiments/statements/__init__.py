"""What the papers prove, judged on what a run recorded.

A claim is about the outcome of a paper's experiments: data in an experiment's TOML
(:mod:`superarm.lab.experiments.claims`). A statement is what a paper proves: an inequality, a lemma or
a theorem. Each module here is about one paper. Its ``statements(recorded)`` yields a verdict for every
statement that the run can judge, and none where the run is about something else.

Statements are judged by ``superarm reproduce`` and ``superarm report --bound``: many of them replay the
run, which takes time.
"""

from __future__ import annotations

from superarm.lab.experiments.claims import Verdict
from superarm.lab.simulation import Run

from . import bayesian, combinatorial, drifting, kernelized, movement
from .recorded import RecordedRun

_PAPERS = (bayesian, combinatorial, kernelized, drifting, movement)


def judge_statements(run: Run) -> list[Verdict]:
    """One verdict for each statement of theory that the run can judge.

    None of them is about a run that begins with a state: what was learned before cannot be replayed.

    Args:
        run: a finished run.
    """
    recorded = RecordedRun.from_run(run)
    if run.spec.get("states"):
        return []
    return [verdict for paper in _PAPERS for verdict in paper.statements(recorded)]


__all__ = ["RecordedRun", "judge_statements"]
