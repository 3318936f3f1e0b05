"""The learner's knowledge about a problem before the first round.

A problem publishes a :class:`Model`; a published algorithm is a function of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from superarm.core import Covariance, Direction, Floats, Oracle, Reward
from superarm.core.display import Displayable
from superarm.kernels import Kernel
from superarm.movement import ActionMetric
from superarm.rewards import Sum


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Model(Displayable):
    """The learner's knowledge about a problem before the first round.

    Symbols of the papers: ``norm_bound`` B, ``noise_bound`` R, ``noise_variance`` λ or σ²,
    ``gain`` γ, ``horizon`` T, ``most_arms`` M.
    """

    kernel: Covariance
    """The prior covariance of expected rewards."""
    noise_variance: float
    """The variance of one reward's noise."""
    oracle: Oracle
    """Finds the best super arm."""
    horizon: int
    """The number of rounds."""
    mean: float | Floats | Callable[[Floats], Floats] = 0.0
    """The prior mean: one number, one for each fixed arm, (n,), or a function of feature rows, such as
    ``ByNumber``."""
    arms: Floats | None = None
    """The fixed arm set's features (n, d); ``None`` where arms change from round to round."""
    direction: Direction = "maximize"
    """Whether rewards are maximised or costs minimised."""
    reward: Reward = field(default_factory=Sum)
    """What a super arm is worth, given what its arms yield."""
    norm_bound: float | None = None
    """A bound on the norm of the reward function in the kernel's Hilbert space."""
    noise_bound: float | None = None
    """The sub-Gaussian scale of the noise."""
    gain: Mapping[str, Any] | None = None
    """A spec of the family "gain", such as ``{"name": "constant", "value": 1.0}``."""
    most_arms: int | None = None
    """The largest number of arms on offer in a round."""
    drift: Kernel | None = None
    """How rewards change with time, as a kernel of time alone, such as Temporal(epsilon=0.01)."""
    metric: ActionMetric | None = None
    """The cost of going from one action to the next, in the unit of rewards, if there is one."""
    past: Floats | None = None
    """Readings of every arm on earlier days, (days, T, n), from which policies may learn."""
    discrete_columns: tuple[int, ...] = ()
    """Columns of the features that identify an arm, such as its number."""
