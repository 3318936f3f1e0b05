"""Numbers made from a run's totals, seed by seed, as an experiment's TOML declares them.

::

    [[derived]]                  # regret over that of a reference policy
    name = "relative_regret"
    versus = "random"

    [[derived]]                  # R_T / T, or what any other metric comes to per round
    name = "energy_per_round"
    metric = "true_energy"
    per_round = true
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from superarm.capabilities import Metric
from superarm.core import Floats
from superarm.errors import SpecError
from superarm.registry import require_kind, suggestion
from superarm.simulation import Run

_KINDS = {"name": str, "metric": str, "versus": str, "per_round": bool}


def check_derived(declared: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuse what could not be computed, before anything runs."""
    taken = set()
    for each in declared:
        for key, value in each.items():
            if key not in _KINDS:
                told = suggestion(key, list(_KINDS), "it takes")
                raise SpecError(f"{where}: [[derived]] has no key {key!r}; {told}")
            require_kind(value, _KINDS[key], f"{where}: derived: {key}")
        name = each.get("name")
        if not name or name in taken:
            raise SpecError(f"{where}: a derived row has the name {name!r}; give each its own")
        if ("versus" in each) == bool(each.get("per_round")):
            raise SpecError(f"{where}: derived {name!r}: give either versus or per_round = true")
        taken.add(name)


def derived_values(run: Run, policy: str, index: int, each: Mapping[str, Any]) -> Floats | None:
    """One number per seed, (seeds,); ``None`` where this run has not what it is made from."""
    metric, versus = each.get("metric", "regret"), each.get("versus")
    if metric not in run.metrics_at(index) or versus not in (None, *run.policies):
        return None
    totals = run.cumulative(policy, index, metric)[:, -1]
    if versus is None:
        return totals / run.rounds
    with np.errstate(divide="ignore", invalid="ignore"):  # over nothing no ratio is known: null
        return totals / run.cumulative(versus, index, metric)[:, -1]


def derived_metric(run: Run, each: Mapping[str, Any]) -> Metric:
    """How it is read."""
    of, label = run.metric(each.get("metric", "regret")), str(each["name"]).replace("_", " ")
    unit = "" if "versus" in each else of.unit
    return Metric(label, unit, "ratio", of.better)
