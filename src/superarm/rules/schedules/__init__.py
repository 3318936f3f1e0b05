"""How wide a confidence interval is in each round.

A schedule returns the ``width`` that multiplies the posterior standard deviation. Where a paper writes
β_t under a root, the width is √β_t; a negative β_t (early rounds, few arms) counts as 0.

==================  ==============================================================
``t``               the round, ``step``
``gamma(t)``        γ_t, the (maximal, bounded or realised) information gain
``δ``               ``delta``, the probability with which a guarantee may fail
``B``, ``R``        ``norm_bound`` ‖f‖_k ≤ B; ``noise_bound``, R-sub-Gaussian noise
==================  ==============================================================

Every width is plain ``math`` on Python floats: about a microsecond or less.
"""

from .bayesian import BayesianGPUCB as BayesianGPUCB
from .bayesian import BayesianGPUCBCompact as BayesianGPUCBCompact
from .drifting import InBlock as InBlock
from .drifting import LogarithmicUCB as LogarithmicUCB
from .drifting import ResettingGPUCB as ResettingGPUCB
from .drifting import TimeVaryingGPUCB as TimeVaryingGPUCB
from .finite_arms import OclokUCB as OclokUCB
from .finite_arms import SrinivasFinite as SrinivasFinite
from .fixed import Fixed as Fixed
from .function_space import AgnosticGPUCB as AgnosticGPUCB
from .function_space import ImprovedGPUCB as ImprovedGPUCB
from .function_space import KernelUCB as KernelUCB
from .function_space import RidgeUCB as RidgeUCB
from .function_space import ThompsonScale as ThompsonScale
from .quantiles import BayesUCBQuantile as BayesUCBQuantile
from .quantiles import BayesUCBQuantileCompact as BayesUCBQuantileCompact
from .quantiles import QuantileSchedule as QuantileSchedule
from .quantiles import SimpleQuantile as SimpleQuantile
