"""What a run comes to: rows of totals, rows derived from them, and claims."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.capabilities import Metric
from superarm.core import Floats
from superarm.simulation import Run

from .claims import judge, judge_variances
from .derived import derived_metric, derived_values
from .spec import Experiment

AT_HORIZON = "cumulative_regret_at_horizon"


def summarise(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Rows and claims, as the command line's JSON has them."""
    rows: list[dict[str, Any]] = []
    metrics: dict[str, Metric] = {}

    def add(source: Run, policy: str, index: int, name: str, values: Floats, metric: Metric) -> None:
        horizon = {"horizon": source.rounds} if name == AT_HORIZON else {}
        count = len(values)
        metrics.setdefault(name, metric)
        rows.append(
            {
                "policy": policy,
                "setting": {**source.settings[index], **horizon},
                "metric": name,
                "mean": float(values.mean()),
                "stderr": float(values.std(ddof=1) / np.sqrt(count)) if count > 1 else None,
                "seconds_per_round": source.seconds_per_round(policy, index),
            }
        )

    for index in range(len(run.settings)):
        for policy in run.policies:
            for metric in run.metrics_at(index):
                totals = run.cumulative(policy, index, metric)[:, -1]
                add(run, policy, index, row_name(metric), totals, run.metric(metric))
            for each in experiment.derived:
                values = derived_values(run, policy, index, each)
                if values is not None:
                    add(run, policy, index, each["name"], values, derived_metric(run, each))
    for horizon in run.horizons:
        part = run.at_horizon(horizon)
        for index in range(len(part.settings)):
            for policy in part.policies:
                told = part.metric("regret")._replace(label="cumulative regret at horizon")
                add(part, policy, index, AT_HORIZON, part.cumulative(policy, index)[:, -1], told)
    return {
        "experiment": run.experiment,
        "rounds": run.rounds,
        "seeds": len(run.seeds),
        "metrics": {name: metric._asdict() for name, metric in metrics.items()},
        "rows": rows,
        "claims": [
            verdict.as_json() for verdict in (*judge(run, experiment.claims), *judge_variances(run))
        ],
    }


def row_name(metric: str) -> str:
    """What a metric's total is called in rows: running totals of regret and reward say so."""
    return f"cumulative_{metric}" if metric in ("regret", "reward") else metric
