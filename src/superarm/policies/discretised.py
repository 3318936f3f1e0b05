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
        lower: Lower corner of the cube that holds the arms.
        side: Side length of the cube that holds the arms.
    """

    norm_bound: float
    lipschitz: float
    lower: Floats
    side: float

    def __post_init__(self) -> None:
        for name in ("norm_bound", "lipschitz", "side"):
            object.__setattr__(
                self, name, as_number(getattr(self, name), name, 0.0, LARGEST)
            )
        object.__setattr__(self, "lower", read_only(as_vector(self.lower, "lower")))
        require_size(self.lower, "lower")
        if not len(self.lower):
            raise InputError(
                "lower is empty; give the cube's lowest corner, one number a column"
            )

    def kept(self, offer: Offer) -> Bools:
        """Which arms, of those available, stand for D_t, (n,)."""
        from scipy.spatial import cKDTree

        arms, dimension = offer.arms, len(self.lower)
        if arms.features.shape[1] != dimension:
            raise ShapeError(
                f"arms have {arms.features.shape[1]} feature columns, but lower has {dimension} numbers"
            )
        require_size(arms.features, "features of the arms")  # distances are squared
        everything = (
            np.ones(len(arms), np.bool_) if offer.available is None else offer.available
        )
        candidates = np.flatnonzero(everything)
        wanted = (
            self.norm_bound
            * self.lipschitz
            * self.side
            * dimension
            * float(offer.step) ** 2
        )
        fine = wanted > _MOST_POINTS or math.ceil(wanted) ** dimension > _MOST_POINTS
        if fine or len(candidates) == 0:
            return everything
        per_axis = max(1, math.ceil(wanted))
        offsets = (np.arange(per_axis) + 0.5) * (self.side / per_axis)
        grid = np.stack(
            np.meshgrid(*(low + offsets for low in self.lower), indexing="ij"), axis=-1
        )
        _, nearest = cKDTree(arms.features[candidates]).query(
            grid.reshape(-1, dimension)
        )
        mask = np.zeros(len(arms), dtype=np.bool_)
        mask[candidates[nearest]] = True
        return mask
