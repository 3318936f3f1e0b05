"""Which roads a navigation problem is about, and what its traveller is told of them.

=================  ====================================================================
``E``              energy of each edge by eq. 8 with Table 2 of paper 000: the prior mean
``σ_det``          its standard deviation over the edges
``k``              ½σ₀²·k_G·k_f + ½σ₀²·k′_f, σ₀ = ``prior_scale``·σ_det, columns (edge, features)
``ς``              ``noise_scale``·σ_det
=================  ====================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.datasets import find
from superarm.errors import InputError
from superarm.inputs import as_positive
from superarm.kernels import GraphMatern, Kernel, Matern, Sum
from superarm.networks import (
    LineGraph,
    RoadNetwork,
    Vehicle,
    generate_city,
    read_network,
    suggest_trip,
)
from superarm.oracles import ShortestPath

from .base import Model, check_choice

ROUTES: Mapping[str, tuple[str, str, str]] = {
    "luxembourg-a": ("luxembourg", "-31118#2", "--32646#1"),
    "luxembourg-b": ("luxembourg", "-30436#5", "-30946#0"),
    "luxembourg-c": ("luxembourg", "-30558", "-32888#0"),
    "luxembourg-d": ("luxembourg", "-32166#0", "--32940#0"),
    "monaco-a": ("monaco", "152903", "-153355#0"),
    "monaco-b": ("monaco", "153569#1", "152459#1"),
}
"""Network, first and last edge. The pairs printed for Monaco exist on Luxembourg only: C and D."""

_REAL = {"luxembourg": "luxembourg-roads", "monaco": "monaco-roads"}
_CACHE_MEGABYTES = 256.0  # of solved kernel columns, shared by all policies on a network


Normalisation = Literal["mean", "unit", "raw"]


class Roads(NamedTuple):
    """A network as one vehicle class sees it, and where it came from."""

    graph: LineGraph
    told: str


@lru_cache(maxsize=4)
def load_roads(network: str, *, uturns: bool = True, edges: int = 2000, city_seed: int = 0) -> Roads:
    """The roads of "luxembourg", "monaco", a generated "city", or of a file or folder."""
    roads, told = _network(network, edges, city_seed)
    return Roads(roads.line_graph(uturns=uturns), told)


def _network(network: str, edges: int, city_seed: int) -> tuple[RoadNetwork, str]:
    if network in _REAL:
        folder = find(_REAL[network]).parent
        return read_network(folder), f"the road network of {network.capitalize()}"
    if network == "city":
        city = generate_city(edges=edges, seed=city_seed)
        return city, f"a generated city (seed {city_seed}), not real data"
    if not Path(network).exists():
        raise InputError(
            f"there is no network {network!r}; choose {', '.join([*_REAL, 'city'])}, "
            "or give the path of a network file"
        )
    return read_network(network), f"the road network in {Path(network).name}"


def trip_ends(graph: LineGraph, start: str | None, goal: str | None) -> tuple[int, int]:
    """The numbers of the first and last edge; a far pair is chosen where none is named."""
    if (start is None) != (goal is None):
        raise InputError("name both start and goal, or neither")
    if start is None or goal is None:
        start, goal = suggest_trip(graph)
    return graph.number(start), graph.number(goal)


def road_kernel(
    graph: LineGraph,
    variance: float,
    *,
    lengthscale: float | tuple[float, ...] = 1.0,
    normalisation: Normalisation = "mean",
) -> Kernel:
    """½v·k_G·k_f + ½v·k′_f of section 4.1: column 0 is the edge, columns 1 to 3 its features."""
    half = 0.5 * variance
    columns = (1, 2, 3)
    near = _graph_kernel(graph, half, normalisation)
    alike = Matern(nu=2.5, lengthscale=lengthscale, columns=columns)
    return near * alike + Matern(nu=2.5, lengthscale=lengthscale, variance=half, columns=columns)


@lru_cache(maxsize=4)
def _graph_kernel(graph: LineGraph, variance: float, normalisation: Normalisation) -> GraphMatern:
    """Factorised once for all seeds, policies and lengthscales on a network."""
    return GraphMatern(
        graph,
        nu=2,
        kappa=1.0,
        variance=variance,
        normalisation=normalisation,
        columns=(0,),
        cache_megabytes=_CACHE_MEGABYTES,
    )


def arm_features(graph: LineGraph) -> Floats:
    """What kernels see of each edge: its number and its standardised features, (n, 4)."""
    numbers = np.arange(len(graph), dtype=np.float64)
    return np.column_stack([numbers, graph.features])


def road_model(
    graph: LineGraph,
    vehicle: Vehicle,
    *,
    horizon: int,
    lengthscale: float | tuple[float, ...] = 1.0,
    normalisation: Normalisation = "mean",
    prior_scale: float = 0.25,
    noise_scale: float = 0.1,
) -> Model:
    """What a traveller is told: the energies of eq. 8, how wrong they may be, and the turns."""
    check_choice(normalisation, "normalisation", ("mean", "unit", "raw"))
    energies = vehicle.energy(graph.length, graph.speed, graph.rise)
    spread = float(energies.std())
    if spread == 0.0:
        raise InputError(
            f"all edges of {graph.network.name} cost the same, so that the model has no scale"
        )
    prior_std = as_positive(prior_scale, "prior_scale") * spread
    noise_std = as_positive(noise_scale, "noise_scale") * spread
    reducible = vehicle.recuperation == "multiply"
    return Model(
        kernel=road_kernel(graph, prior_std**2, lengthscale=lengthscale, normalisation=normalisation),
        noise_variance=noise_std**2,
        noise_bound=noise_std,
        oracle=ShortestPath(successors=graph.successors),
        horizon=horizon,
        mean=energies,
        arms=arm_features(graph),
        direction="minimize",
        most_arms=len(graph),
        reduction=vehicle.potential(graph.rise) if reducible else None,
        costs={"length": graph.length, "travel_time": graph.travel_time},
        numbered=True,
    )


def with_conditions(model: Model, count: int) -> Model:
    """The model where ``count`` further columns change from trip to trip.

    They enter through k″ over length, speed, incline and conditions, as wide as the prior itself.
    """
    assert model.arms is not None
    columns = tuple(range(1, 4 + count))
    variance = float(np.mean(model.kernel.diag(model.arms)))
    changing = Matern(nu=2.5, lengthscale=2.0, variance=variance, columns=columns)
    return replace(model, kernel=Sum(kernels=(model.kernel, changing)), arms=None)
