"""What a learner is told about a problem before the first round.

It stands between the two: a problem states a :class:`Model`, and a published algorithm is a function of
one.
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
    """What a learner is told about a problem before the first round.

    Symbols of the papers: ``norm_bound`` B, ``noise_bound`` R, ``noise_variance`` λ or σ²,
    ``gain`` γ, ``horizon`` T, ``most_arms`` M.
    """

    kernel: Covariance
    noise_variance: float
    oracle: Oracle
    horizon: int
    mean: float | Floats | Callable[[Floats], Floats] = 0.0
    """One number, one for each fixed arm, (n,), or a function of feature rows, such as ``ByNumber``."""
    arms: Floats | None = None
    """The fixed arm set's features (n, d); ``None`` where arms change from round to round."""
    direction: Direction = "maximize"
    reward: Reward = field(default_factory=Sum)
    """What a super arm is worth, given what its arms yield."""
    norm_bound: float | None = None
    noise_bound: float | None = None
    gain: Mapping[str, Any] | None = None
    """A spec of the family "gain", such as ``{"name": "constant", "value": 1.0}``."""
    most_arms: int | None = None
    """The largest number of arms on offer in a round."""
    drift: Kernel | None = None
    """How rewards change with time, as a kernel of time alone, such as Temporal(epsilon=0.01)."""
    metric: ActionMetric | None = None
    """What it costs to go from one action to the next, in the unit of rewards, where that costs."""
    past: Floats | None = None
    """Readings of every arm on earlier days, (days, T, n), from which policies may learn."""
    discrete_columns: tuple[int, ...] = ()
    """Columns of the features that say which arm it is, such as its number."""
