"""The lab: problems, data sets, simulations, experiments with their claims, theory, and reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from superarm._lazy import lazy_names

if TYPE_CHECKING:  # rooms load when they are first used
    from . import datasets as datasets
    from . import demo as demo
    from . import experiments as experiments
    from . import problems as problems
    from . import report as report
    from . import results as results
    from . import simulation as simulation
    from . import theory as theory

_ROOMS = (
    "datasets",
    "demo",
    "experiments",
    "problems",
    "report",
    "results",
    "simulation",
    "theory",
)
__getattr__, __dir__ = lazy_names(__name__, {}, _ROOMS)
