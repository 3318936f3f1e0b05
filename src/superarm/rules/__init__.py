"""Index rules and their confidence widths: what makes a belief into a choice.

A *rule* turns a belief into one desirability per arm; a *schedule* says how wide the
confidence interval of an optimistic rule is in each round.

>>> from superarm.registry import build
>>> build("rule", {"name": "ucb", "schedule": {"name": "fixed", "value": 2.0}})
UCB(schedule=Fixed(value=2.0), gamma=None)
"""

from .bayesian import (
    BayesianGPUCB,
    BayesianGPUCBCompact,
    BayesUCBQuantile,
    BayesUCBQuantileCompact,
    QuantileSchedule,
    SimpleQuantile,
)
from .indices import (
    UCB,
    BayesUCB,
    ExpectedImprovement,
    Greedy,
    ProbabilityOfImprovement,
    Random,
    Thompson,
)
from .rectified import Rectified
from .schedules import (
    AgnosticGPUCB,
    Fixed,
    ImprovedGPUCB,
    KernelUCB,
    LogarithmicUCB,
    OclokUCB,
    ResettingGPUCB,
    SrinivasFinite,
    ThompsonScale,
    TimeVaryingGPUCB,
)

__all__ = [
    "UCB",
    "AgnosticGPUCB",
    "BayesUCB",
    "BayesUCBQuantile",
    "BayesUCBQuantileCompact",
    "BayesianGPUCB",
    "BayesianGPUCBCompact",
    "ExpectedImprovement",
    "Fixed",
    "Greedy",
    "ImprovedGPUCB",
    "KernelUCB",
    "LogarithmicUCB",
    "OclokUCB",
    "ProbabilityOfImprovement",
    "QuantileSchedule",
    "Random",
    "Rectified",
    "ResettingGPUCB",
    "SimpleQuantile",
    "SrinivasFinite",
    "Thompson",
    "ThompsonScale",
    "TimeVaryingGPUCB",
]
