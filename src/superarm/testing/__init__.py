"""The contracts of superarm's parts, as test classes to inherit from.

Did you write a kernel, a posterior or an oracle? Subclass its contract in your test suite and define
how to create one; pytest collects the tests. :file:`docs/extending.md` does so for every part. Each test
checks one promise, which its name states; every part of superarm passes them all.

The contracts are plain classes with plain asserts: this package imports numpy and superarm, not pytest.
"""

from .beliefs import BeliefContract as BeliefContract
from .helpers import FixedBelief as FixedBelief
from .helpers import raises as raises
from .helpers import restored as restored
from .kernels import KernelContract as KernelContract
from .oracles import OracleContract as OracleContract
from .policies import PolicyContract as PolicyContract
from .posteriors import PosteriorContract as PosteriorContract
from .problems import ProblemContract as ProblemContract
from .rewards import RewardContract as RewardContract
from .rewards import SwitchingCostContract as SwitchingCostContract
from .rules import RuleContract as RuleContract
from .rules import ScheduleContract as ScheduleContract
