"""The numbers of a run: one for every seed, from a metric's running totals."""

from __future__ import annotations

from superarm.core import Floats
from superarm.lab.simulation.run import Run


def outcomes(run: Run, policy: str, setting_index: int, metric: str) -> Floats:
    """A metric after all rounds, their sum or their mean, (seeds,).

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        metric: The metric's name.
    """
    totals = run.cumulative(policy, setting_index, metric)[:, -1]
    description = run.metric(metric, setting_index)
    if description.kind == "per round":
        return totals / run.rounds
    return totals / 1


def per_round(
    run: Run,
    policy: str,
    setting_index: int,
    metric: str,
    start: int = 0,
    stop: int | None = None,
) -> Floats:
    """A metric's mean over some rounds, (seeds,).

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        metric: The metric's name.
        start: The number of first rounds to leave out.
        stop: The last round; by default that of the run.
    """
    stop = run.rounds if stop is None else stop
    totals = run.cumulative(policy, setting_index, metric)
    before = totals[:, start - 1] if start else 0.0
    return (totals[:, stop - 1] - before) / (stop - start)
