"""Runs on a small road map, written as a runner writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.road_map import RoadMap
from superarm.lab.results.roads import METHODS
from superarm.lab.simulation.audit import LEVELS, QUANTILES
from superarm.lab.simulation.illustrations import write_illustration
from superarm.lab.simulation.run import Run
from superarm.lab.simulation.run_spec import write_spec
from superarm.lab.simulation.trace import Trace, write_trace
from superarm.roads.problems.road_problem import MEASURES

EDGES = 30
LEARNERS = (*METHODS, "gp-ts-joint", "gp-greedy", "gp-ts-potential")
OPTIONS = {
    "gp-ucb": {"policy": "route-ucb"},
    "gp-ucb-half": {"policy": "route-ucb", "scale": 0.5},
    "gp-bucb": {"policy": "route-bucb"},
    "gp-bucb-half": {"policy": "route-bucb", "xi": 0.5},
}


def _chain(
    edges: int = EDGES, *, seed: int = 0, start: int = 0, goal: int = 5
) -> RoadMap:
    """Edges of two or three points each, one after the other, on a walk over the plane."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(100.0, 60.0, (2 * edges + 1, 2))
    walk = np.cumsum(steps, axis=0)
    sizes = rng.integers(2, 4, edges)
    courses = [walk[2 * i : 2 * i + size] for i, size in enumerate(sizes)]
    return RoadMap(
        points=np.round(np.concatenate(courses), 2),
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        speed=rng.choice([8.3, 13.9, 27.8], edges),
        height=np.zeros(edges),
        start=start,
        goal=goal,
    )


def _make_run(
    directory: Path,
    policies: tuple[str, ...] = (*METHODS, "prior", "fastest"),
    *,
    rounds: int = 12,
    seeds: int = 2,
    settings: tuple[dict[str, Any], ...] = ({},),
    roads: tuple[RoadMap, ...] | None = None,
    audited: tuple[str, ...] = LEARNERS,
    empty: bool = False,
) -> Run:
    """Random trips on a small map; learners have audits, as a runner writes them."""
    spec: dict[str, Any] = {
        "experiment": "tests/roads",
        "title": "Roads",
        "rounds": rounds,
    }
    spec |= {
        "first_seed": 3,
        "seeds": seeds,
        "policies": list(policies),
        "settings": list(settings),
    }
    policy_options = {policy: OPTIONS.get(policy, {}) for policy in policies}
    spec["parameters"] = {"problem": {"name": "navigation"}, "policies": policy_options}
    spec["metrics"] = [
        {name: metric._asdict() for name, metric in MEASURES.items()}
    ] * len(settings)
    write_spec(directory, spec)
    rng = np.random.default_rng(11)
    for index in range(len(settings)):
        write_illustration(directory, index, roads[index] if roads else _chain())
        for place, policy in enumerate(policies):
            for seed in range(3, 3 + seeds):
                choices = np.full((rounds, 0 if empty else 6), -1, dtype=np.int32)
                for row in choices if not empty else ():
                    size = int(rng.integers(2, 7))
                    row[:size] = rng.choice(EDGES, size, replace=False)
                new = [len(set(choices[: t + 1].ravel()) - {-1}) for t in range(rounds)]
                series = {
                    "regret": (place + 1) * rng.uniform(0.5, 1.0, rounds),
                    "true_energy": rng.normal(100.0, 10.0, rounds),
                    "distinct_edges": np.diff(new, prepend=0).astype(float),
                }
                audit = _audit_of(rng, choices) if policy in audited else None
                trace = Trace(
                    policy=policy,
                    setting_index=index,
                    seed=seed,
                    series=series,
                    choices=choices,
                    seconds=np.full(rounds, 1e-4, np.float32),
                    audit=audit,
                )
                write_trace(directory, trace)
    return Run.load(directory)


def _audit_of(rng: np.random.Generator, choices: Any) -> dict[str, Any]:
    rounds = len(choices)
    sizes = (choices >= 0).sum(axis=1)
    levels = len(LEVELS)
    within, first, true_within = np.full((3, rounds, levels), np.nan, dtype=np.float32)
    score, firsts, true_score = np.full((3, rounds), np.nan, dtype=np.float32)
    for t, size in enumerate(sizes):
        if size and t != 1:  # a round in which nothing came back
            away = np.abs(rng.standard_normal(size))
            within[t] = [(away <= limit).mean() for limit in QUANTILES]
            score[t], true_score[t] = rng.standard_normal(2)
            firsts[t] = t % 3
            if firsts[t]:
                first[t] = rng.uniform(size=levels)
            true_within[t] = rng.uniform(size=levels)
    others = ("variance", "largest_eigenvalue", "information")
    return {
        "within": within,
        "score": score,
        **{
            "first": first,
            "firsts": firsts,
            "true_within": true_within,
            "true_score": true_score,
        },
        "std": rng.uniform(1, 2, EDGES).astype(np.float32),
        **{name: np.ones(rounds, dtype=np.float32) for name in others},
    }


@pytest.fixture
def chain() -> Callable[..., RoadMap]:
    return _chain


@pytest.fixture
def make_run() -> Callable[..., Run]:
    return _make_run
