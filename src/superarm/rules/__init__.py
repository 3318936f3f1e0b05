"""Index rules and their confidence widths: from a belief to a choice.

A *rule* turns a belief into one desirability per arm, larger is better; a *schedule* returns how wide
the confidence interval of an optimistic rule is in each round. Rules return new arrays: callers may
write into them, and beliefs never change.
"""

from .baselines import Greedy as Greedy
from .baselines import Random as Random
from .improvement import ExpectedImprovement as ExpectedImprovement
from .improvement import ProbabilityOfImprovement as ProbabilityOfImprovement
from .rectified import Rectified as Rectified
from .schedules import AgnosticGPUCB as AgnosticGPUCB
from .schedules import BayesianGPUCB as BayesianGPUCB
from .schedules import BayesianGPUCBCompact as BayesianGPUCBCompact
from .schedules import BayesUCBQuantile as BayesUCBQuantile
from .schedules import BayesUCBQuantileCompact as BayesUCBQuantileCompact
from .schedules import Fixed as Fixed
from .schedules import ImprovedGPUCB as ImprovedGPUCB
from .schedules import InBlock as InBlock
from .schedules import KernelUCB as KernelUCB
from .schedules import LogarithmicUCB as LogarithmicUCB
from .schedules import OclokUCB as OclokUCB
from .schedules import QuantileSchedule as QuantileSchedule
from .schedules import ResettingGPUCB as ResettingGPUCB
from .schedules import RidgeUCB as RidgeUCB
from .schedules import SimpleQuantile as SimpleQuantile
from .schedules import SrinivasFinite as SrinivasFinite
from .schedules import ThompsonScale as ThompsonScale
from .schedules import TimeVaryingGPUCB as TimeVaryingGPUCB
from .thompson import Thompson as Thompson
from .ucb import UCB as UCB
from .ucb import BayesUCB as BayesUCB
