"""What a policy knows about roads before the first trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from superarm.core import Floats
from superarm.kernels import GraphMatern
from superarm.models import Model
from superarm.movement import Switch

from .energy.scales import Outliers, RoadScales


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
