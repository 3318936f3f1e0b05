"""Forecast errors of trips, from the run that a saved policy is of."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np

from superarm.core import Floats

from .run import Run
from .run_spec import read_spec
from .trace import cell_name


def trip_scores(state: Path) -> Floats | None:
    """Standardised forecast errors of a saved policy's trips, over all seeds of its run.

    Args:
        state: A file in the folder ``states`` of a run. ``None`` is returned for any
            other file.
    """
    folder = state.absolute().parent
    directory = folder.parent
    has_spec = (directory / "run.json").is_file()
    if folder.name != "states" or not has_spec:
        return None
    run = Run(directory, read_spec(directory))  # it may still be under way
    indices = range(len(run.settings))
    for policy, index in product(run.policies, indices):
        names = {cell_name(policy, index, seed) for seed in run.seeds}
        if state.stem in names:
            return _finite_scores(run, policy, index)
    return None


def _finite_scores(run: Run, policy: str, setting_index: int) -> Floats:
    scores = [np.empty(0)]
    for seed in run.seeds:
        audit = run.audit(policy, setting_index, seed)
        if audit is not None:
            scores.append(audit["score"])
    joined = np.concatenate(scores)
    return joined[np.isfinite(joined)]
