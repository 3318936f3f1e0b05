"""Models of roads: what a policy assumes before the first trip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from superarm.core import Floats
from superarm.kernels import GraphMatern
from superarm.models import Model
from superarm.movement import Switch

from .energy.scales import Outliers, RoadScales


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RoadModel(Model):
    """A model whose fixed arms are roads.

    Args:
        energies: Expected energy of each road, Wh, (n,): the prior mean.
        reduction: Δh: by how much each road changes a potential, Wh, (n,). It adds up to the same for
            all routes between two places.
        switching: The cost of roads that were not part of the previous route, where there is one.
        costs: Other known costs of the roads by name, (n,) each, such as their ``length``.
    """

    energies: Floats
    reduction: Floats | None = None
    switching: Switch | None = None
    costs: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FleetModel(RoadModel):
    """A model of roads that several vehicles drive on.

    Arms are feature rows (:class:`~superarm.roads.rows.Column`). Energies are less what is stored in
    height, so they have no ``reduction``.

    Args:
        kernel: k_G: how alike roads are that are near each other.
        sizes: Wh that each road moves, (n,): for rolling, drag and height.
        scales: How wrong the energies may be and how much trips differ; by default those of
            ``RoadScales()``.
        refit: After how many trips scales are fitted again; 0 for never.
        outliers: What becomes of outliers: "keep", "weigh" or "refuse".
        turn_costs: What turns add to the known ``costs``, (c,) each.
        form: How the posterior is computed: "dense", "sparse" or "auto".
        half_life: Later trips after which a trip counts half; ``None``: trips count for ever.
    """

    kernel: GraphMatern
    sizes: Floats
    scales: RoadScales | None = None
    refit: int = 64
    outliers: Outliers = "weigh"
    turn_costs: Mapping[str, Floats] = field(default_factory=dict)
    form: Literal["auto", "dense", "sparse"] = "auto"
    half_life: float | None = None
