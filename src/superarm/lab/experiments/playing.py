"""Playing one task: one seed in one setting, and the files that it leaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from superarm.core import Policy
from superarm.core.plugins import import_parts
from superarm.core.streams import stream
from superarm.lab.results.curves import spaced_rounds
from superarm.lab.results.formats import setting_text
from superarm.lab.simulation import Trace, simulate, write_trace
from superarm.lab.simulation.illustrations import (
    TreeMasses,
    TruthRecord,
    write_illustration,
    write_masses,
)
from superarm.models.worlds import HasRoadMap, World
from superarm.movement import frt_tree
from superarm.policies.tree_policy import TreePolicy

from .plans import Task
from .warm_starts import (
    Cell,
    RestartReason,
    StartedPolicy,
    resume_shorter_run,
    warm_start,
)


def play(task: Task) -> list[RestartReason]:
    """Run one task and write its cells; each appears complete or not at all.

    Args:
        task: what is missing.
    """
    for source in task.imports:
        import_parts(source)
    plan = task.plan
    experiment = task.experiment
    world = experiment.build_problem(seed=task.seed, horizon=plan.horizon)
    shows_tree = task.shown and experiment.chart.get("tree")
    if task.shown and isinstance(world, HasRoadMap):
        write_illustration(plan.out, task.setting_index, world.road_map())
    if task.shown and experiment.chart.get("truth"):
        _write_truth(task, world)
    reasons: list[RestartReason] = []
    built: dict[str, Policy] = {}
    # Policies that have come equally far play side by side.
    groups: defaultdict[int, dict[str, StartedPolicy]] = defaultdict(dict)
    for name in task.policies:
        policy = experiment.build_policy(name, world)
        built[name] = policy
        cell = Cell(plan.out, name, task.setting_index, task.seed)
        match resume_shorter_run(cell, policy, world, plan.rounds):
            case StartedPolicy() as resumed:
                started = resumed
            case RestartReason() as reason:
                reasons.append(reason)
                started = _start_at_first_round(task, name, policy)
            case None:
                started = _start_at_first_round(task, name, policy)
        groups[started.rounds][name] = started
    tree_owner = _find_tree_owner(task, world, built) if shows_tree else None
    for group in groups.values():
        policies = {name: started.policy for name, started in group.items()}
        traces = _simulate(task, world, group, policies)
        # Before the traces: a task that stops here is run again.
        if tree_owner in policies:
            _write_masses(task, tree_owner, policies[tree_owner])
        for trace in traces.values():
            trace_of_setting = replace(trace, setting_index=task.setting_index)
            write_trace(plan.out, trace_of_setting)
    if shows_tree:
        _write_tree(task, world)
    return reasons


def _start_at_first_round(task: Task, name: str, policy: Policy) -> StartedPolicy:
    """The policy before the first round of the run, from its saved state if it has one."""
    start = task.plan.starts.get(name)
    return StartedPolicy(warm_start(policy, start), None)


def _simulate(
    task: Task,
    world: World,
    group: Mapping[str, StartedPolicy],
    policies: Mapping[str, Policy],
) -> dict[str, Trace]:
    """Play the rounds of policies that have come equally far; errors name the setting."""
    plan = task.plan
    earlier = {
        name: started.trace
        for name, started in group.items()
        if started.trace is not None
    }
    try:
        return simulate(
            world,
            policies,
            rounds=plan.rounds,
            seed=task.seed,
            lateness=task.experiment.build_lateness(),
            first=plan.first,
            earlier=earlier,
        )
    except Exception as error:
        setting = plan.settings[task.setting_index]
        error.add_note(setting_text({"seed": task.seed, **setting}))
        raise


# --- what pictures are drawn from ----------------------------------------------------------


def _write_truth(task: Task, world: World) -> None:
    """The means of all arms in some rounds."""
    plan = task.plan
    steps = spaced_rounds(plan.rounds)
    before_first = plan.first - 1
    offers = [world.offer(before_first + step) for step in steps.tolist()]
    means = [world.means(offer) for offer in offers]
    features = offers[0].arms.features
    record = TruthRecord(steps, np.stack(means), features)
    write_illustration(plan.out, task.setting_index, record)


def _write_tree(task: Task, world: World) -> None:
    """The tree of the problem's metric, if it has one."""
    metric = world.model.metric
    if metric is not None:
        rng = stream(task.seed, "tree", 0)
        tree = frt_tree(metric, rng)
        write_illustration(task.plan.out, task.setting_index, tree)


def _find_tree_owner(
    task: Task, world: World, built: Mapping[str, Policy]
) -> str | None:
    """The first policy of the run that walks on a tree; its tree is shown.

    All policies count, not only those whose cells are missing: a resumed run must leave the files of
    an uninterrupted one.
    """
    for name in task.plan.policies:
        policy = built.get(name)
        if policy is None:
            policy = task.experiment.build_policy(name, world)
        if isinstance(policy, TreePolicy):
            return name
    return None


def _write_masses(task: Task, name: str, policy: Policy) -> None:
    """The tree that a policy walks on, with its probabilities after the last round."""
    assert isinstance(policy, TreePolicy)
    if policy.forest is None or policy.walk_state is None:
        return  # no round had a decision
    tree = policy.forest.trees[policy.walk_state.tree]
    masses = TreeMasses(tree, policy.walk_state.q, name)
    write_masses(task.plan.out, task.setting_index, task.plan.policies, masses)
