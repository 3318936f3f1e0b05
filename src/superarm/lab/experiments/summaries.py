"""What a run comes to: rows of totals, rows derived from them, and claims.

A ``[[derived]]`` table makes one number per seed from totals of ``metric`` (regret by default): its
ratio to that of the policy ``versus``, or with ``per_round = true`` its mean over rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from superarm.core import Floats
from superarm.core.capabilities import OWN_METRICS, Metric
from superarm.core.errors import SpecError
from superarm.core.registry import require_kind, suggestion
from superarm.lab.simulation import Run

from .audits import judge_variances
from .claims import judge, not_judged

if TYPE_CHECKING:
    from .spec import Experiment

_KINDS = {"name": str, "metric": str, "versus": str, "per_round": bool}


def summarise(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Rows and claims, as the command line's JSON has them."""
    rows: list[dict[str, Any]] = []
    metrics: dict[str, Metric] = {}

    def add(
        source: Run, policy: str, index: int, name: str, values: Floats, metric: Metric
    ) -> None:
        horizon = {} if source is run else {"horizon": source.rounds}
        count = len(values)
        before = metrics.setdefault(name, metric)
        if before.unit != metric.unit:  # each row has its own
            metrics[name] = before._replace(unit="")
        rows.append(
            {
                "policy": policy,
                "setting": {**source.settings[index], **horizon},
                "metric": name,
                "unit": metric.unit,
                "mean": float(values.mean()),
                "stderr": float(values.std(ddof=1) / np.sqrt(count))
                if count > 1
                else None,
                "seconds_per_round": source.seconds_per_round(policy, index),
            }
        )

    for index in range(len(run.settings)):
        for policy in run.policies:
            for metric in run.metrics_at(index):
                totals = run.cumulative(policy, index, metric)[:, -1]
                add(
                    run,
                    policy,
                    index,
                    row_name(metric),
                    totals,
                    run.metric(metric, index),
                )
            for each in experiment.derived:
                values = _derived(run, policy, index, each)
                if values is not None:
                    of, label = (
                        run.metric(each.get("metric", "regret"), index),
                        each["name"].replace("_", " "),
                    )
                    told = Metric(
                        label, "" if "versus" in each else of.unit, "ratio", of.better
                    )
                    add(run, policy, index, each["name"], values, told)
    for horizon in run.horizons:
        part = run.at_horizon(horizon)
        for index in range(len(part.settings)):
            for policy in part.policies:
                told = part.metric("regret", index)._replace(
                    label="cumulative regret at horizon"
                )
                totals = part.cumulative(policy, index)[:, -1]
                add(part, policy, index, "cumulative_regret_at_horizon", totals, told)
    return {
        "experiment": run.experiment,
        "rounds": run.rounds,
        "seeds": len(run.seeds),
        "metrics": {name: metric._asdict() for name, metric in metrics.items()},
        "rows": rows,
        "claims": [
            verdict.as_json()
            for verdict in (*judge(run, experiment.claims), *judge_variances(run))
        ],
        "not_judged": not_judged(run, experiment.claims),
    }


def row_name(metric: str) -> str:
    """What a metric's total is called in rows: running totals of regret and reward say so."""
    return f"cumulative_{metric}" if metric in ("regret", "reward") else metric


def check_derived(declared: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuse what could not be computed, before anything runs."""
    taken = {*map(row_name, (*OWN_METRICS, "reward")), "cumulative_regret_at_horizon"}
    for each in declared:
        for key, value in each.items():
            if key not in _KINDS:
                told = suggestion(key, list(_KINDS), "it takes")
                raise SpecError(f"{where}: [[derived]] has no key {key!r}; {told}")
            require_kind(value, _KINDS[key], f"{where}: derived: {key}")
        name = each.get("name")
        if not name or name in taken:
            raise SpecError(
                f"{where}: a derived row has the name {name!r}; give each its own"
            )
        if ("versus" in each) == bool(each.get("per_round")):
            raise SpecError(
                f"{where}: derived {name!r}: give either versus or per_round = true"
            )
        taken.add(name)


def _derived(
    run: Run, policy: str, index: int, each: Mapping[str, Any]
) -> Floats | None:
    """One number per seed, (seeds,); ``None`` where this run has not what it is made from."""
    metric, versus = each.get("metric", "regret"), each.get("versus")
    if metric not in run.metrics_at(index) or versus not in (None, *run.policies):
        return None
    totals = run.cumulative(policy, index, metric)[:, -1]
    if versus is None:
        return totals / run.rounds
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # over nothing no ratio is known: null
        return totals / run.cumulative(versus, index, metric)[:, -1]
