"""Index rules and their confidence widths: what makes a belief into a choice.

A *rule* turns a belief into one desirability per arm; a *schedule* says how wide the
confidence interval of an optimistic rule is in each round.
"""

from .bayesian import BayesianGPUCB as BayesianGPUCB
from .bayesian import BayesianGPUCBCompact as BayesianGPUCBCompact
from .bayesian import BayesUCBQuantile as BayesUCBQuantile
from .bayesian import BayesUCBQuantileCompact as BayesUCBQuantileCompact
from .bayesian import QuantileSchedule as QuantileSchedule
from .bayesian import SimpleQuantile as SimpleQuantile
from .indices import UCB as UCB
from .indices import BayesUCB as BayesUCB
from .indices import ExpectedImprovement as ExpectedImprovement
from .indices import Greedy as Greedy
from .indices import ProbabilityOfImprovement as ProbabilityOfImprovement
from .indices import Random as Random
from .indices import Thompson as Thompson
from .rectified import Rectified as Rectified
from .schedules import AgnosticGPUCB as AgnosticGPUCB
from .schedules import Fixed as Fixed
from .schedules import ImprovedGPUCB as ImprovedGPUCB
from .schedules import InBlock as InBlock
from .schedules import KernelUCB as KernelUCB
from .schedules import LogarithmicUCB as LogarithmicUCB
from .schedules import OclokUCB as OclokUCB
from .schedules import ResettingGPUCB as ResettingGPUCB
from .schedules import RidgeUCB as RidgeUCB
from .schedules import SrinivasFinite as SrinivasFinite
from .schedules import ThompsonScale as ThompsonScale
from .schedules import TimeVaryingGPUCB as TimeVaryingGPUCB
