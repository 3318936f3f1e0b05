"""What a learner is told about a problem before the first round.

It stands between the two: a problem states a :class:`Model`, and a published algorithm is a function of
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .core import Direction, Floats, Oracle, Reward
from .inputs import as_count, as_numbers, as_vector, read_only
from .kernels import Covariance, GraphMatern, Kernel
from .movement import ActionMetric, Switch
from .networks.scales import Outliers, RoadScales
from .registry import register
from .rewards import Sum
from .shown import Shown


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Model(Shown):
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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoadModel(Model):
    """A model whose fixed arms are roads."""

    energies: Floats
    """What each road is expected to cost, (n,): the prior mean."""
    reduction: Floats | None = None
    """Δh, (n,): by how much each road changes a potential. It adds up to the same for all routes
    between two places."""
    switching: Switch | None = None
    """What it costs to take roads that were not part of the previous route, where that costs."""
    costs: Mapping[str, Floats] = field(default_factory=dict)
    """Other known costs of the roads by name, (n,) each, such as their ``length``."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FleetModel(RoadModel):
    """A model of roads that several vehicles drive on: arms are rows of ``RoadGP``.

    Energies are less what is stored in height, so that they have no ``reduction``.
    """

    kernel: GraphMatern
    sizes: Floats
    """Wh that each road moves, (n,): for rolling, drag and height."""
    scales: RoadScales | None = None
    """How wrong the energies may be and how much trips differ; ``None``: the defaults."""
    refit: int = 64
    """After how many trips scales are fitted anew; 0: never."""
    outliers: Outliers = "weigh"
    """What becomes of rewards that are far from what was expected: "keep", "weigh" or "refuse"."""
    turn_costs: Mapping[str, Floats] = field(default_factory=dict)
    """What turns add to the known ``costs``, (c,) each."""


@register("mean", "by-number")
@dataclass(frozen=True, kw_only=True, eq=False)
class ByNumber:
    """A prior mean for numbered arms: ``values[i]`` where ``column`` of the features holds i.

    >>> import numpy as np
    >>> ByNumber(values=[0.5, 2.0])(np.array([[1.0, 7.0]]))
    array([2.])
    """

    values: Floats
    column: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", read_only(as_vector(self.values, "values")))
        object.__setattr__(self, "column", as_count(self.column, "column", 0))

    def __call__(self, rows: Floats) -> Floats:
        numbers = as_numbers(rows[:, self.column], len(self.values), "arms", self.column)
        return np.asarray(self.values[numbers])
