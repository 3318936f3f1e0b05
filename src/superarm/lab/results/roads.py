"""What figures and reports of runs on roads share: numbers read from traces. Numpy only.

=================  ==============================================================
n                  edges of the road map; an edge is an arm
visits             how often each edge was driven on, (n,)
β_t                squared width: the index is mean − √β_t·std
=================  ==============================================================
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.registry import require_kind
from superarm.core.road_map import RoadMap
from superarm.lab.simulation.run import Run
from superarm.rules import BayesianGPUCB, BayesUCBQuantile

from .averages import Average, average
from .formats import count_text
from .settings import parameters_of
from .totals import per_round

METHODS = ("gp-ucb", "gp-bucb", "gp-ts", "bi-ucb", "bi-bucb", "bi-ts")
"""The six methods of Bayesian Analysis of Combinatorial Gaussian Process Bandits (2025)."""


def trip_settings(run: Run) -> list[int]:
    """One setting for each trip of the run, the first of those that differ in other things alone."""
    found: dict[tuple[bytes, int, int], int] = {}
    for index in range(len(run.settings)):
        roads = run.road_map(index)
        if roads is not None:
            found.setdefault(trip_key(roads), index)
    return list(found.values())


def trip_key(roads: RoadMap) -> tuple[bytes, int, int]:
    """Equal for the same trip on the same network; the first part tells networks apart."""
    return roads.points.tobytes(), roads.start, roads.goal


def trip_name(run: Run, setting_index: int) -> str:
    """``Luxembourg A`` where the problem names a route, else the run's own name."""
    route = parameters_of(run, "problem", setting_index).get("route")
    if not isinstance(route, str) or not route:
        return run.experiment
    place, _, letter = route.rpartition("-")
    return f"{place.title()} {letter.upper()}" if place and len(letter) == 1 else route


def visits(run: Run, policy: str, setting_index: int, seed: int, edges: int) -> Ints:
    chosen = run.choices(policy, setting_index, seed).ravel()
    return np.bincount(chosen[chosen >= 0], minlength=edges)


def usual_route(run: Run, policy: str, setting_index: int, seed: int) -> Ints:
    """The route driven most often in the last tenth of the rounds; of several, the latest."""
    late = run.choices(policy, setting_index, seed)[
        : -max(1, run.rounds // 10) - 1 : -1
    ]
    routes = Counter(
        tuple(row[row >= 0].tolist()) for row in late
    )  # ties keep their order
    return np.array(routes.most_common(1)[0][0], dtype=np.intp)


def best_policy(run: Run, setting_index: int) -> str:
    """The policy of least regret over the last tenth of the rounds; of several, the first."""
    start = run.rounds - max(1, run.rounds // 10)
    late = {
        each: per_round(run, each, setting_index, "regret", start)
        for each in run.policies
    }
    return min(late, key=lambda policy: float(late[policy].mean()))


def trip_energies(run: Run, setting_index: int) -> dict[str, dict[str, Average]]:
    """Every policy's energy per trip by what it is told of, least first; empty if not recorded."""
    if "true_energy" not in run.metrics_at(setting_index):
        return {}
    tenth = max(1, run.rounds // 10)
    span = count_text(tenth, "round") if tenth > 1 else "round"
    known = ("fastest", "prior", "shortest")
    reference = next(
        (policy for policy in known if policy in run.policies), run.policies[0]
    )

    def energy(policy: str, start: int = 0, stop: int | None = None) -> Floats:
        return per_round(run, policy, setting_index, "true_energy", start, stop)

    rows = {
        policy: {
            run.metric("true_energy", setting_index).text: average(energy(policy)),
            # Seed by seed: truths differ more than policies do.
            f"difference from {reference}": average(energy(policy) - energy(reference)),
            f"first {span}": average(energy(policy, 0, tenth)),
            f"last {span}": average(energy(policy, run.rounds - tenth)),
        }
        for policy in run.policies
    }
    return dict(sorted(rows.items(), key=lambda row: next(iter(row[1].values())).mean))


def main_policies(run: Run) -> list[str]:
    """What one figure of maps shows: every policy of a small run, else the six ``METHODS``."""
    methods = [policy for policy in METHODS if policy in run.policies]
    many = len(run.policies) > len(METHODS)
    return methods if methods and many else list(run.policies[: len(METHODS)])


Schedule = BayesianGPUCB | BayesUCBQuantile
_OPTIONS: dict[str, tuple[type[Schedule], tuple[str, ...]]] = {
    "route-ucb": (BayesianGPUCB, ("scale",)),
    "route-bucb": (BayesUCBQuantile, ("omega", "xi")),
}


def schedule_of(
    run: Run, policy: str, setting_index: int, arms: int
) -> Schedule | None:
    """The very schedule that a route policy has on ``arms`` edges; ``None`` for other policies."""
    options = parameters_of(run, policy, setting_index)
    kind, names = _OPTIONS.get(str(options.get("policy", policy)), (None, ()))
    given = {name: options.get(name, 1.0) for name in names}
    for name, value in given.items():
        require_kind(value, float, f"{run.directory / 'run.json'}: {policy}.{name}")
    return kind(arms=arms, **given) if kind else None


def compares_schedules(run: Run) -> bool:
    """Whether the run holds several parametrisations of one schedule, as Fig. 3 does."""
    found = {schedule_of(run, policy, 0, arms=1) for policy in run.policies}
    return None not in found and len(found) > len({type(each) for each in found})
