"""A discretisation that grows finer: section 4.2 of On Kernelized Multi-armed Bandits (2017)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from superarm.core import Bools, Floats, Offer
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import LARGEST, as_number, as_vector, read_only, require_size
from superarm.core.registry import register

_MOST_POINTS = 20_000


@register("decision_set", "grid")
@dataclass(frozen=True, kw_only=True, eq=False)
class GrowingGrid:
    """Restricts round t to the arms that represent a grid D_t.

    D_t is the uniform grid with ⌈B L r d t²⌉ points per side on the cube of side r from ``lower``,
    for which every function of norm at most B has |f(x) − f([x]_t)| ≤ 1/t²
    [chowdhury2017kernelized, eq. 7; the paper's cube is [0, r]^d, and only differences matter].
    The available arms stand for it: an arm is kept if it is the nearest to some grid point, and
    the bound holds for the nearest kept arm too. Once the grid is so fine that every arm is kept,
    all of them are offered; a grid of more than 20,000 points counts as that fine.

    Args:
        norm_bound: B: a bound on the norm of the function in the kernel's space.
        lipschitz: Lipschitz constant L of the kernel's functions.
        lower: Lower corner of the cube that contains the arms.
        side: Side length of the cube that contains the arms.
    """

    norm_bound: float
    lipschitz: float
    lower: Floats
    side: float

    def __post_init__(self) -> None:
        norm_bound = as_number(self.norm_bound, "norm_bound", 0.0, LARGEST)
        lipschitz = as_number(self.lipschitz, "lipschitz", 0.0, LARGEST)
        side = as_number(self.side, "side", 0.0, LARGEST)
        lower = read_only(as_vector(self.lower, "lower"))
        object.__setattr__(self, "norm_bound", norm_bound)
        object.__setattr__(self, "lipschitz", lipschitz)
        object.__setattr__(self, "side", side)
        object.__setattr__(self, "lower", lower)
        require_size(self.lower, "lower")
        if not len(self.lower):
            raise InputError(
                "lower is empty; give the cube's lowest corner, one number a column"
            )

    def allowed_arms(self, offer: Offer) -> Bools:
        """Which arms, of those available, stand for D_t, (n,).

        Args:
            offer: The arms on offer, in round t.
        """
        from scipy.spatial import cKDTree

        features = offer.arms.features
        n, columns = features.shape
        dimension = len(self.lower)
        if columns != dimension:
            raise ShapeError(
                f"arms have {columns} feature columns, but lower has {dimension} numbers"
            )
        require_size(features, "features of the arms")  # distances are squared
        available = offer.available
        if available is None:
            available = np.ones(n, np.bool_)
        candidates = np.flatnonzero(available)
        per_axis = self._points_per_axis(offer.step)
        if per_axis is None or len(candidates) == 0:
            return available
        tree = cKDTree(features[candidates])
        _, nearest = tree.query(self._grid(per_axis))
        mask = np.zeros(n, dtype=np.bool_)
        mask[candidates[nearest]] = True
        return mask

    def _points_per_axis(self, step: int) -> int | None:
        """⌈B L r d t²⌉; ``None`` where the grid is so fine that every arm is kept."""
        dimension = len(self.lower)
        slope = self.norm_bound * self.lipschitz  # B L
        points = slope * self.side * dimension * float(step) ** 2
        if points > _MOST_POINTS:
            return None
        per_axis = math.ceil(points)
        if per_axis**dimension > _MOST_POINTS:
            return None
        return max(1, per_axis)

    def _grid(self, per_axis: int) -> Floats:
        """The points of the grid, (per_axisᵈ, d)."""
        spacing = self.side / per_axis
        middles = np.arange(per_axis) + 0.5
        offsets = middles * spacing
        axes = [low + offsets for low in self.lower]
        coordinates = np.meshgrid(*axes, indexing="ij")
        grid = np.stack(coordinates, axis=-1)
        return grid.reshape(-1, len(self.lower))
