"""Statements of *Time-Varying Gaussian Process Bandit Optimization (2016)*.

A statement about means is decided by the seeds, as :mod:`superarm.lab.results.verdicts` does. A
statement that must hold in any case holds if it does in every round that was replayed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from superarm.kernels import Matern, SquaredExponential
from superarm.lab.experiments.claims import Verdict, Word
from superarm.lab.problems import DriftingFunction
from superarm.policies.drift import block_length

from .drift_policies import forgetting_rate, has_published_block
from .drift_posteriors import judge_confidence, judge_mismatch
from .drift_regret import (
    judge_growth_with_drift,
    judge_growth_with_time,
    judge_lower_bound,
)
from .recorded import RecordedRun
from .recovery import recovery

_SMOOTHNESS = (2.5, 4.5, math.inf)  # ν


def statements(recorded: RecordedRun) -> Iterator[Verdict]:
    """Every statement that the run can judge.

    Args:
        recorded: a finished run.
    """
    if recorded.experiment.feedback:
        return  # the paper's feedback comes at once
    world = recorded.world(recorded.run.seeds[0])
    if recorded.experiment.problem["name"] == "traffic-series":
        yield from recovery(recorded, forgetting_rate)
    if not isinstance(world, DriftingFunction) or world.k != 1:
        return
    bounded: set[float] = set()
    covered: set[float] = set()
    for index in range(len(recorded.run.settings)):
        setting_world = recorded.world(recorded.run.seeds[0], index)
        assert isinstance(setting_world, DriftingFunction)
        if setting_world.epsilon == 0.0:
            continue
        yield from judge_growth_with_time(recorded, index, setting_world)
        yield from judge_mismatch(recorded, index, setting_world)
        # Once for each truth: settings may differ in what learners assume alone.
        epsilon = setting_world.epsilon
        if epsilon not in bounded:
            bounded.add(epsilon)
            yield from judge_lower_bound(recorded, index, setting_world)
        if epsilon not in covered:
            verdicts = list(judge_confidence(recorded, index, setting_world))
            if verdicts:
                covered.add(epsilon)
            yield from verdicts
    yield from judge_growth_with_drift(recorded, world)
    yield from _block_lengths(recorded)


# --- N and smoothness -----------------------------------------------------------------------


def _block_lengths(recorded: RecordedRun) -> Iterator[Verdict]:
    """The N of section 5.1 for rougher and smoother functions; it does not depend on seeds."""
    run = recorded.run
    worlds = _worlds_with_published_blocks(recorded)
    if not worlds:
        return
    steps: list[int] = []
    parts = []
    for epsilon, world in sorted(worlds.items()):
        lengths = _lengths_by_smoothness(world)
        steps += [second - first for first, second in pairwise(lengths)]
        parts.append(f"{', '.join(map(str, lengths))} for ε = {epsilon:g}")
    evidence = (
        f"N of Matérn kernels with ν = 2.5 and 4.5, and of the squared exponential: {'; '.join(parts)} "
        f"(T = {run.rounds}). The exponent 1/(4 − c) of 1/ε also falls, to 1/4, as ν grows"
    )
    word: Word = "undecided"  # where all N are T
    if min(steps) < 0:
        word = "does not hold"
    elif max(steps) > 0:
        word = "holds"
    yield Verdict(
        "Section 4.2: N increases as the function becomes smoother",
        word,
        evidence,
    )


def _worlds_with_published_blocks(
    recorded: RecordedRun,
) -> dict[float, DriftingFunction]:
    """A world for each ε for which R-GP-UCB was run with the N of section 5.1."""
    run = recorded.run
    worlds = {}
    for index in range(len(run.settings)):
        world = recorded.world(run.seeds[0], index)
        if not isinstance(world, DriftingFunction) or world.epsilon == 0.0:
            continue
        if any(
            has_published_block(recorded, policy, index, world)
            for policy in run.policies
        ):
            worlds[world.epsilon] = world
    return worlds


def _lengths_by_smoothness(world: DriftingFunction) -> list[int]:
    """N for kernels from rough to smooth."""
    lengths = []
    for nu in _SMOOTHNESS:
        kernel: Matern | SquaredExponential
        if math.isfinite(nu):
            kernel = Matern(nu=nu, lengthscale=world.lengthscale)
        else:
            kernel = SquaredExponential(lengthscale=world.lengthscale)
        model = replace(world.model, kernel=kernel)
        lengths.append(block_length(model, world.epsilon))
    return lengths
