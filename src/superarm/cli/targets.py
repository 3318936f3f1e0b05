"""What ``reproduce`` can be asked for: all papers, one of them, one of its experiments or figures."""

from __future__ import annotations

from superarm.core.errors import SpecError
from superarm.core.registry import suggestion
from superarm.lab.experiments import Experiment, experiment_ids, load_experiment

ALL = "all"


def experiments_of(target: str) -> list[Experiment]:
    """All experiments, those of a group, one of them, or those of one figure (``kernelized/1a``)."""
    known = targets()
    chosen = [name for name, words in known.items() if target in words]
    if not chosen:
        advice = suggestion(
            target, set().union(*known.values()), command="superarm list experiments"
        )
        raise SpecError(f"nothing to reproduce under {target!r}; {advice}")
    return [load_experiment(name) for name in chosen]


def targets() -> dict[str, set[str]]:
    """What each experiment of a paper can be reproduced by: all, its group, its id and its figures."""
    found = {}
    for experiment in map(load_experiment, experiment_ids()):
        if not experiment.paper:
            continue
        group = experiment.id.partition("/")[0]
        panels = set(experiment.figure)
        figures = panels | {panel.rstrip("abcdefgh") for panel in panels}
        found[experiment.id] = {
            ALL,
            group,
            experiment.id,
            *(f"{group}/{name}" for name in figures),
        }
    return found
