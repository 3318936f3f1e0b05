"""The model that a traveller has of the roads.

=================  ====================================================================
``E``              energy of each edge by ``Vehicle()`` at constant speed: the prior mean
``σ_det``          its standard deviation over the edges
``k``              sσ₀²·k_G·k_f + (1 − s)σ₀²·k′_f, columns (edge, features), with
                   σ₀ = ``prior_scale``·σ_det and s = ``graph_share``, ½ unless given
``ς``              ``noise_scale``·σ_det
=================  ====================================================================
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from superarm.core import Arms
from superarm.core.errors import InputError
from superarm.core.inputs import as_number, as_positive, require_choice
from superarm.kernels import GraphMatern, Kernel, Matern, Sum
from superarm.oracles import ShortestPath
from superarm.roads.energy import Vehicle
from superarm.roads.energy.vehicle import RoadEnergy
from superarm.roads.models import RoadModel
from superarm.roads.networks import LineGraph

from .road_loading import ROUTES, is_level, load_roads, trip_ends

__all__ = [
    "ROUTES",
    "FeatureKernels",
    "as_feature_kernels",
    "is_level",
    "load_roads",
    "road_arms",
    "road_kernel",
    "road_model",
    "trip_ends",
    "with_conditions",
]

TABLE_2 = Vehicle()
# Columns of :func:`road_arms`: the edge, then length, speed limit and incline.
_EDGE_COLUMN = 0
_FEATURE_COLUMNS = (1, 2, 3)
_FIRST_CONDITION = 4
# Of solved kernel columns, shared by all policies on a network.
_CACHE_MEGABYTES = 256.0
Normalisation = Literal["mean", "unit", "raw"]
Lengthscale = float | tuple[float, ...]


class FeatureKernels(NamedTuple):
    """How k_f and k′_f differ: "separate sets of lengthscale and outputscale parameters"."""

    near: Lengthscale | None = None
    """Lengthscales of k_f, in the product with k_G; by default those of the model."""
    features_only: Lengthscale | None = None
    """Lengthscales of k′_f."""
    share: float = 0.5
    """Share of the prior variance that k_G·k_f has: σ_f² = s·σ₀² and σ′_f² = (1 − s)·σ₀²."""

    @property
    def description(self) -> str:
        """How a report describes them."""
        near = _in_words(self.near)
        features_only = _in_words(self.features_only)
        share = f"{100.0 * self.share:g} % of the prior variance"
        return (
            f"k_G·k_f with {share} and lengthscales {near}; "
            f"k′_f with the rest and lengthscales {features_only}"
        )


EQUAL_KERNELS = FeatureKernels()
"""One lengthscale, half of the prior variance each."""


def _in_words(scales: Lengthscale | None) -> str:
    if scales is None:
        return "as stated"
    if isinstance(scales, tuple):
        return ", ".join(f"{scale:g}" for scale in scales)
    return f"{scales:g}"


def as_feature_kernels(
    near: Any, features_only: Any, share: Any, prefix: str = ""
) -> FeatureKernels:
    """Checked lengthscales of k_f and k′_f, each one number or one per feature, and the share.

    Args:
        near: Lengthscales of k_f, over length, speed limit and incline; ``None`` for the common one.
        features_only: Lengthscales of k′_f, likewise.
        share: Share of the prior variance that k_G·k_f has, above 0 and below 1.
        prefix: Prefix of the parameters' names in an error.
    """
    part = as_number(share, f"{prefix}graph_share", 0.0, 1.0)
    if part in (0.0, 1.0):
        raise InputError(
            f"{prefix}graph_share must lie strictly between 0 and 1, got {part:g}"
        )
    near_scales = _as_lengthscales(near, f"{prefix}graph_lengthscales")
    features_only_scales = _as_lengthscales(
        features_only, f"{prefix}feature_lengthscales"
    )
    return FeatureKernels(near_scales, features_only_scales, part)


def _as_lengthscales(value: Any, name: str) -> Lengthscale | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        return as_positive(value, name)
    if len(value) != len(_FEATURE_COLUMNS):
        raise InputError(
            f"{name} has {len(value)} entries; give one number, or three: for length, speed limit and "
            "incline"
        )
    scales = []
    for place, scale in enumerate(value):
        scales.append(as_positive(scale, f"{name}[{place}]"))
    return tuple(scales)


@lru_cache(maxsize=4)
def road_arms(graph: LineGraph) -> Arms:
    """The edges as arms: one object for all seeds, so that posteriors recognise the offer.

    Args:
        graph: The roads.
    """
    numbers = np.arange(len(graph), dtype=np.float64)
    features = np.column_stack([numbers, graph.features])
    return Arms(ids=graph.ids, features=features)


@lru_cache(maxsize=2)
def road_kernel(
    graph: LineGraph,
    variance: float,
    *,
    lengthscale: Lengthscale = 1.0,
    normalisation: Normalisation = "mean",
    features: FeatureKernels = EQUAL_KERNELS,
) -> Kernel:
    """s·v·k_G·k_f + (1 − s)·v·k′_f of section 4.1: column 0 is the edge, columns 1 to 3 its features.

    Args:
        graph: The roads.
        variance: v, the prior variance of an edge, Wh².
        lengthscale: Lengthscale of k_f and k′_f, where ``features`` states none.
        normalisation: How k_G is scaled.
        features: Lengthscales of k_f and of k′_f, and the share s.
    """
    near_lengthscale = lengthscale if features.near is None else features.near
    features_only_lengthscale = features.features_only
    if features_only_lengthscale is None:
        features_only_lengthscale = lengthscale
    near_variance = features.share * variance
    features_only_variance = (1.0 - features.share) * variance
    graph_kernel = _graph_kernel(graph, normalisation)
    near = graph_kernel.clone_with_theta([np.log(near_variance)])
    alike = Matern(nu=2.5, lengthscale=near_lengthscale, columns=_FEATURE_COLUMNS)
    features_only = Matern(
        nu=2.5,
        lengthscale=features_only_lengthscale,
        columns=_FEATURE_COLUMNS,
        variance=features_only_variance,
    )
    return near * alike + features_only


@lru_cache(maxsize=2)
def _graph_kernel(graph: LineGraph, normalisation: Normalisation) -> GraphMatern:
    """Factorised once for all seeds, policies, vehicles and lengthscales on a network."""
    return GraphMatern(
        graph.turn_graph,
        nu=2,
        kappa=1.0,
        normalisation=normalisation,
        cache_megabytes=_CACHE_MEGABYTES,
    )


def road_model(
    graph: LineGraph,
    vehicle: Vehicle,
    *,
    horizon: int,
    lengthscale: Lengthscale = 1.0,
    normalisation: Normalisation = "mean",
    prior_scale: float = 0.25,
    noise_scale: float = 0.1,
    on_no_path: Literal["error", "empty"] = "error",
    features: FeatureKernels = EQUAL_KERNELS,
) -> RoadModel:
    """What a traveller knows: the energies of eq. 8, how wrong they may be, and the turns.

    Args:
        graph: The roads.
        vehicle: The vehicle whose energies are the prior mean.
        horizon: Number of rounds T.
        lengthscale: Lengthscale of k_f and k′_f, where ``features`` states none.
        normalisation: How k_G is scaled.
        prior_scale: Prior standard deviation, as a multiple of σ_det.
        noise_scale: Standard deviation of the noise, as a multiple of σ_det.
        on_no_path: Whether a trip without a route is an error, or an empty decision.
        features: Lengthscales of k_f and of k′_f, and the share s.
    """
    require_choice(normalisation, "normalisation", ("mean", "unit", "raw"))
    energies = RoadEnergy(
        vehicle=vehicle, length=graph.length, speed=graph.speed, rise=graph.rise
    )
    spread = float(energies.values.std())
    if spread == 0.0:
        raise InputError(
            f"all edges of {graph.network.name} cost the same, so the model has no scale"
        )
    # Within these limits they can be squared.
    as_number(prior_scale, "prior_scale", 1e-6, 1e6)
    as_number(noise_scale, "noise_scale", 1e-6, 1e6)
    prior_std = prior_scale * spread
    noise_std = noise_scale * spread
    kernel = road_kernel(
        graph,
        prior_std**2,
        lengthscale=lengthscale,
        normalisation=normalisation,
        features=features,
    )
    reduction = None
    if vehicle.recuperation == "multiply":
        reduction = vehicle.potential(graph.rise)
    return RoadModel(
        kernel=kernel,
        noise_variance=noise_std**2,
        noise_bound=noise_std,
        oracle=ShortestPath(successors=graph.turn_graph, on_no_path=on_no_path),
        horizon=horizon,
        mean=energies,
        energies=energies.values,
        arms=road_arms(graph).features,
        direction="minimize",
        most_arms=len(graph),
        reduction=reduction,
        costs={"length": graph.length, "travel_time": graph.travel_time},
        discrete_columns=(_EDGE_COLUMN,),
    )


def with_conditions(model: RoadModel, count: int) -> RoadModel:
    """The model where further columns change from trip to trip.

    They enter through k″ over length, speed, incline and conditions, as wide as the prior itself.

    Args:
        model: The model without conditions.
        count: How many conditions there are.
    """
    assert model.arms is not None
    end = _FIRST_CONDITION + count
    condition_columns = range(_FIRST_CONDITION, end)
    columns = (*_FEATURE_COLUMNS, *condition_columns)
    variances = model.kernel.diag(model.arms)
    variance = float(np.mean(variances))
    changing = Matern(nu=2.5, lengthscale=2.0, variance=variance, columns=columns)
    kernel = Sum(kernels=(model.kernel, changing))
    return replace(model, kernel=kernel, arms=None)
