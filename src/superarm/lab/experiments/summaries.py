"""The summary of a run: rows of totals, rows derived from them, and claims.

A ``[[derived]]`` table computes one number per seed from totals of ``metric`` (regret by default): its
ratio to that of the policy ``versus``, or with ``per_round = true`` its mean over rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from superarm.core import Floats
from superarm.core.capabilities import OWN_METRICS, Metric
from superarm.core.errors import SpecError
from superarm.core.registry import check_table
from superarm.lab.simulation import Run

from .audits import judge_variances
from .claims import judge_checked, not_judged

if TYPE_CHECKING:
    from .spec import Experiment

_KINDS = {"name": str, "metric": str, "versus": str, "per_round": bool}
_AT_HORIZON = "cumulative_regret_at_horizon"


class _Rows:
    """The rows of a summary, and the metrics that they are about.

    Args:
        run: the finished run.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.rows: list[dict[str, Any]] = []
        self.metrics: dict[str, Metric] = {}

    def add_totals(self, policy: str, index: int) -> None:
        """Add one row for each metric.

        Args:
            policy: its name in the run.
            index: of the setting.
        """
        run = self.run
        for name in run.metrics_at(index):
            sums = run.cumulative(policy, index, name)
            totals = sums[:, -1]
            metric = run.metric(name, index)
            row = row_name(name)
            self._add(run, policy, index, row, totals, metric)

    def add_derived(self, policy: str, index: int, derived: Mapping[str, Any]) -> None:
        """Add the row of a ``[[derived]]`` table, where the run has what it is computed from.

        Args:
            policy: its name in the run.
            index: of the setting.
            derived: the table.
        """
        run = self.run
        values = _derived_values(run, policy, index, derived)
        if values is None:
            return
        name = derived["name"]
        source_name = derived.get("metric", "regret")
        source = run.metric(source_name, index)
        unit = "" if "versus" in derived else source.unit
        label = name.replace("_", " ")
        metric = Metric(label, unit, "ratio", source.better)
        self._add(run, policy, index, name, values, metric)

    def add_horizon(self, shorter: Run) -> None:
        """Add the regret of policies that were run again for a shorter horizon.

        Args:
            shorter: the run with that horizon.
        """
        for index in range(len(shorter.settings)):
            regret = shorter.metric("regret", index)
            metric = regret._replace(label="cumulative regret at horizon")
            for policy in shorter.policies:
                sums = shorter.cumulative(policy, index)
                totals = sums[:, -1]
                self._add(shorter, policy, index, _AT_HORIZON, totals, metric)

    def _add(
        self,
        source: Run,
        policy: str,
        index: int,
        name: str,
        values: Floats,
        metric: Metric,
    ) -> None:
        setting = dict(source.settings[index])
        if source is not self.run:
            setting["horizon"] = source.rounds
        first_metric = self.metrics.setdefault(name, metric)
        if first_metric.unit != metric.unit:  # each row has its own
            self.metrics[name] = first_metric._replace(unit="")
        row = {
            "policy": policy,
            "setting": setting,
            "metric": name,
            "unit": metric.unit,
            "mean": float(values.mean()),
            "stderr": _standard_error(values),
            "seconds_per_round": source.seconds_per_round(policy, index),
        }
        self.rows.append(row)


def _standard_error(values: Floats) -> float | None:
    """Of the mean over seeds; ``None`` for a single seed."""
    count = len(values)
    if count < 2:
        return None
    return float(values.std(ddof=1) / np.sqrt(count))


def summarise(run: Run, experiment: Experiment) -> dict[str, Any]:
    """Rows and claims, as the command line's JSON has them.

    Args:
        run: a finished run.
        experiment: what was run, whose claims have been checked.
    """
    rows = _Rows(run)
    for index in range(len(run.settings)):
        for policy in run.policies:
            rows.add_totals(policy, index)
            for derived in experiment.derived:
                rows.add_derived(policy, index, derived)
    for horizon in run.horizons:
        rows.add_horizon(run.at_horizon(horizon))
    verdicts = [*judge_checked(run, experiment.claims), *judge_variances(run)]
    return {
        "experiment": run.experiment,
        "rounds": run.rounds,
        "seeds": len(run.seeds),
        "metrics": {name: metric._asdict() for name, metric in rows.metrics.items()},
        "rows": rows.rows,
        "claims": [verdict.as_json() for verdict in verdicts],
        "not_judged": not_judged(run, experiment.claims),
    }


def row_name(metric: str) -> str:
    """What a metric's total is called in rows: running totals of regret and reward are "cumulative".

    Args:
        metric: its name.
    """
    return f"cumulative_{metric}" if metric in ("regret", "reward") else metric


def check_derived(declared: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuse what could not be computed, before anything runs.

    Args:
        declared: the ``[[derived]]`` tables.
        where: names the source in errors.
    """
    taken = {row_name(metric) for metric in (*OWN_METRICS, "reward")}
    taken.add(_AT_HORIZON)
    for derived in declared:
        check_table(derived, _KINDS, f"{where}: [[derived]]")
        name = derived.get("name")
        if not name or name in taken:
            raise SpecError(
                f"{where}: a derived row has the name {name!r}; give each its own"
            )
        if ("versus" in derived) == bool(derived.get("per_round")):
            raise SpecError(
                f"{where}: derived {name!r}: give either versus or per_round = true"
            )
        taken.add(name)


def _derived_values(
    run: Run, policy: str, index: int, derived: Mapping[str, Any]
) -> Floats | None:
    """One number per seed, (seeds,); ``None`` where the run lacks what they are computed from."""
    metric = derived.get("metric", "regret")
    if metric not in run.metrics_at(index):
        return None
    rival = derived.get("versus")
    if rival is not None and rival not in run.policies:
        return None
    totals = run.cumulative(policy, index, metric)[:, -1]
    if rival is None:
        return totals / run.rounds
    rival_totals = run.cumulative(rival, index, metric)[:, -1]
    # A ratio to zero is unknown: null.
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals / rival_totals
