"""Targets of the command ``reproduce``: all papers, one of them, its experiments or figures."""

from __future__ import annotations

from superarm.core.errors import SpecError
from superarm.core.registry import suggestion
from superarm.lab.experiments import Experiment, experiment_ids, load_experiment

ALL = "all"


def experiments_of(target: str) -> list[Experiment]:
    """The experiments of a target.

    Args:
        target: "all", a group, an experiment's id, or a figure (``kernelized/1a``).
    """
    targets_by_id = targets()
    chosen = [name for name, words in targets_by_id.items() if target in words]
    if not chosen:
        every_target = set().union(*targets_by_id.values())
        command = "superarm list experiments"
        advice = suggestion(target, every_target, command=command)
        raise SpecError(f"nothing to reproduce under {target!r}; {advice}")
    return [load_experiment(name) for name in chosen]


def targets() -> dict[str, set[str]]:
    """The targets of each experiment of a paper: all, its group, its id and its figures."""
    targets_by_id: dict[str, set[str]] = {}
    for experiment in map(load_experiment, experiment_ids()):
        if not experiment.paper:
            continue
        group, _, _ = experiment.id.partition("/")
        words = {ALL, group, experiment.id}
        for panel in experiment.figure:
            figure = panel.rstrip("abcdefgh")
            words |= {f"{group}/{panel}", f"{group}/{figure}"}
        targets_by_id[experiment.id] = words
    return targets_by_id
