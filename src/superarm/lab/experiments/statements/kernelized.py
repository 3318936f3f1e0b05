"""Statements of *On Kernelized Multi-armed Bandits (2017)*.

Theorems 1 and 2 and Lemmas 3 and 4 are about any points that are chosen without looking ahead. They are
judged on the points of IGP-UCB and GP-TS with λ = 1 + 2/T, whatever λ the learners used. Theorems 3 and
4 are about the learners themselves: they are judged where these are Algorithms 1 and 2 with an exact
posterior, and used that λ and a certified γ.

======================  ==================================================================
``kernelized_replay``   cells, replayed with that λ
``kernelized_cells``    the cells of one policy, and verdicts on shares of bounds
``kernelized_choices``  what holds for any choices
``kernelized_regret``   what holds for the learners
======================  ==================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeGuard

import numpy as np

from superarm.lab import theory
from superarm.lab.experiments.claims import Verdict
from superarm.lab.problems.finite import FiniteProblem
from superarm.lab.results.settings import feedback_at_once
from superarm.oracles import TopK

from .judging import EXACT_POSTERIORS
from .kernelized_cells import Cells
from .kernelized_choices import (
    is_within_assumptions,
    judge_any_choices,
    judge_bounded_norm,
)
from .kernelized_regret import judge_gp_ts, judge_igp_ucb
from .kernelized_replay import replay_cell
from .recorded import RecordedRun

_POLICIES = ("igp-ucb", "gp-ts")
_MOST_WORK = 1e10  # rounds × (10⁴ + arms²) of a run that are replayed; about a minute


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can judge.

    Args:
        recorded: a finished run.
    """
    run = recorded.run
    policies = [name for name in run.policies if recorded.algorithm(name) in _POLICIES]
    if not policies:
        return
    cells_per_seed = len(policies) * len(run.settings)
    for index in range(len(run.settings)):
        world = recorded.world(run.seeds[0], index)
        if not _is_single_arm(world) or not feedback_at_once(run, index):
            continue
        where = recorded.where(index)
        seeds = _affordable_seeds(recorded, world, cells_per_seed)
        for policy in policies:
            for verdict in _judge_policy(recorded, policy, index, seeds):
                evidence = where + verdict.evidence
                yield verdict._replace(evidence=evidence)


def _is_single_arm(world: object) -> TypeGuard[FiniteProblem]:
    """Whether a world is the problem of section 2: fixed arms, one a round, with B and R stated."""
    if not isinstance(world, FiniteProblem):
        return False
    model = world.model
    stated = model.norm_bound is not None and model.noise_bound is not None
    single = isinstance(model.oracle, TopK) and model.oracle.k == 1
    return stated and single and model.direction == "maximize"


def _affordable_seeds(
    recorded: RecordedRun, world: FiniteProblem, cells_per_seed: int
) -> tuple[int, ...]:
    """The seeds that are replayed: as many as take about a minute, one at least."""
    rounds = recorded.run.rounds
    work_per_round = 1e4 + len(world.arms) ** 2
    work = rounds * work_per_round * cells_per_seed
    count = max(1, int(_MOST_WORK / work))
    return tuple(recorded.run.seeds[:count])


def _judge_policy(
    recorded: RecordedRun, policy: str, index: int, seeds: tuple[int, ...]
) -> Iterator[Verdict]:
    cells = _replay_cells(recorded, policy, index, seeds)
    yield from judge_any_choices(cells)
    worlds = [replay.world for replay in cells.replays]
    if not all(is_within_assumptions(world) for world in worlds):
        return
    yield from judge_bounded_norm(cells)
    if not all(_has_theory_noise(world, recorded.run.rounds) for world in worlds):
        return
    if not _is_as_proved(recorded, policy, index):
        return
    if cells.algorithm == "igp-ucb":
        yield from judge_igp_ucb(cells)
    else:
        yield from judge_gp_ts(cells)


def _replay_cells(
    recorded: RecordedRun, policy: str, index: int, seeds: tuple[int, ...]
) -> Cells:
    run = recorded.run
    options = recorded.options(policy, index)
    regret = run.cumulative(policy, index)
    rows = [run.seeds.index(seed) for seed in seeds]
    replays = [replay_cell(recorded, policy, seed, index) for seed in seeds]
    return Cells(
        policy=policy,
        algorithm=recorded.algorithm(policy),
        delta=float(options["delta"]),
        seeds=seeds,
        replays=tuple(replays),
        regret=np.array([regret[row] for row in rows]),
    )


def _has_theory_noise(world: FiniteProblem, rounds: int) -> bool:
    """Whether learners used λ = 1 + 2/T."""
    lam = theory.theory_noise_variance(rounds)
    return math.isclose(world.model.noise_variance, lam)


def _is_as_proved(recorded: RecordedRun, policy: str, index: int) -> bool:
    """Whether a learner is Algorithm 1 or 2 with a certified γ, as Theorems 3 and 4 have it."""
    if recorded.is_modified(policy, index):
        return False
    options = recorded.options(policy, index)
    if options["gain"] != "greedy" or options["posterior"] not in EXACT_POSTERIORS:
        return False
    # Of GP-TS: joint draws, scaled by v_t, over all arms.
    is_joint = options.get("mode", "joint") == "joint"
    is_scaled = bool(options.get("scaled", True))
    is_everywhere = options.get("decision_set", "all") == "all"
    return is_joint and is_scaled and is_everywhere
