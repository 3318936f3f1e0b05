"""Numbers of runs on roads, for figures and reports. NumPy only.

=================  ==============================================================
n                  edges of the road map; an edge is an arm
visits             how often each edge was driven on, (n,)
β_t                squared width: the index is mean − √β_t·std
=================  ==============================================================
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

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
    """Positions of settings, one for each trip of the run.

    Of settings with the same trip, it is the first.

    Args:
        run: The run.
    """
    first: dict[TripKey, int] = {}
    for index in range(len(run.settings)):
        roads = run.road_map(index)
        if roads is not None:
            first.setdefault(trip_key(roads), index)
    return list(first.values())


class TripKey(NamedTuple):
    """A trip on a network; equal for the same trip on the same network."""

    network: bytes
    start: int
    goal: int


def trip_key(roads: RoadMap) -> TripKey:
    """The key of the trip on a map.

    Args:
        roads: The map.
    """
    return TripKey(roads.points.tobytes(), roads.start, roads.goal)


def trip_name(run: Run, setting_index: int) -> str:
    """``Luxembourg A`` where the problem names a route, else the name of the experiment.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
    """
    route = parameters_of(run, "problem", setting_index).get("route")
    if not isinstance(route, str) or not route:
        return run.experiment
    place, _, letter = route.rpartition("-")
    if not place or len(letter) != 1:
        return route
    return f"{place.title()} {letter.upper()}"


def visits(run: Run, policy: str, setting_index: int, seed: int, edges: int) -> Ints:
    """How often a policy drove on each edge, (n,).

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        seed: One of the run's seeds.
        edges: The number of edges, n.
    """
    chosen = run.choices(policy, setting_index, seed).ravel()
    return np.bincount(chosen[chosen >= 0], minlength=edges)


def usual_route(run: Run, policy: str, setting_index: int, seed: int) -> Ints:
    """The route driven most often in the last tenth of the rounds; of several, the latest.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        seed: One of the run's seeds.
    """
    choices = run.choices(policy, setting_index, seed)
    latest_first = choices[::-1]
    counts: Counter[tuple[int, ...]] = Counter()
    for padded in latest_first[: _tenth(run)]:
        is_edge = padded >= 0
        route = padded[is_edge].tolist()
        counts[tuple(route)] += 1
    # Of equally frequent routes, ``max`` returns the first that was counted.
    usual = max(counts, key=counts.__getitem__)
    return np.array(usual, dtype=np.intp)


def best_policy(run: Run, setting_index: int) -> str:
    """The policy of least regret over the last tenth of the rounds; of several, the first.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
    """
    start = run.rounds - _tenth(run)

    def late_regret(policy: str) -> float:
        regret = per_round(run, policy, setting_index, "regret", start)
        return float(regret.mean())

    return min(run.policies, key=late_regret)


def _tenth(run: Run) -> int:
    """The number of rounds in a tenth of the run."""
    return max(1, run.rounds // 10)


def trip_energies(run: Run, setting_index: int) -> dict[str, dict[str, Average]]:
    """Every policy's energy per trip by column of a table, the least first.

    Empty if energies were not recorded.

    Args:
        run: The run.
        setting_index: The setting's position in the run.
    """
    if "true_energy" not in run.metrics_at(setting_index):
        return {}
    tenth = _tenth(run)
    span = count_text(tenth, "round") if tenth > 1 else "round"
    reference = _reference_policy(run)
    column = run.metric("true_energy", setting_index).text

    def energy(policy: str, start: int = 0, stop: int | None = None) -> Floats:
        return per_round(run, policy, setting_index, "true_energy", start, stop)

    rows = {}
    for policy in run.policies:
        energies = energy(policy)
        # Seed by seed: truths differ more than policies do.
        difference = energies - energy(reference)
        first = energy(policy, 0, tenth)
        last = energy(policy, run.rounds - tenth)
        rows[policy] = {
            column: average(energies),
            f"difference from {reference}": average(difference),
            f"first {span}": average(first),
            f"last {span}": average(last),
        }
    ranking = sorted(rows, key=lambda policy: rows[policy][column].mean)
    return {policy: rows[policy] for policy in ranking}


def _reference_policy(run: Run) -> str:
    """The policy that others are compared with."""
    for policy in ("fastest", "prior", "shortest"):
        if policy in run.policies:
            return policy
    return run.policies[0]


def main_policies(run: Run) -> list[str]:
    """Policies in a figure of maps: all of a small run, else the six ``METHODS``.

    Args:
        run: The run.
    """
    methods = [policy for policy in METHODS if policy in run.policies]
    if methods and len(run.policies) > len(METHODS):
        return methods
    return list(run.policies[: len(METHODS)])


Schedule = BayesianGPUCB | BayesUCBQuantile


def schedule_of(
    run: Run, policy: str, setting_index: int, arms: int
) -> Schedule | None:
    """The schedule of a route policy; ``None`` for other policies.

    Args:
        run: The run.
        policy: A policy's name.
        setting_index: The setting's position in the run.
        arms: The number of edges.
    """
    options = parameters_of(run, policy, setting_index)
    kind = str(options.get("policy", policy))

    def number(name: str) -> float:
        value: float = options.get(name, 1.0)
        require_kind(value, float, f"{run.directory / 'run.json'}: {policy}.{name}")
        return value

    if kind == "route-ucb":
        return BayesianGPUCB(arms=arms, scale=number("scale"))
    if kind == "route-bucb":
        return BayesUCBQuantile(arms=arms, omega=number("omega"), xi=number("xi"))
    return None


def compares_schedules(run: Run) -> bool:
    """Whether the run has several parametrisations of one schedule, as Fig. 3 does.

    Args:
        run: The run.
    """
    schedules = {schedule_of(run, policy, 0, arms=1) for policy in run.policies}
    if None in schedules:
        return False
    kinds = {type(schedule) for schedule in schedules}
    return len(schedules) > len(kinds)
