"""Straight pieces of roads and lines in a plane, and what lies near them or inside a border.

Points of the plane are complex numbers, in metres.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.arrays import repeated
from superarm.core.errors import InputError

from .geography import Points

# Steps of the budget: to compare a border with a point beside it.
_PER_CROSSING = 5.0
# Pairs of a point and a border that are compared in one go.
_COMPARED_AT_ONCE = 1 << 21


@dataclass(slots=True)
class Budget:
    """The work that lines and areas may still cost, together: some ten seconds at first.

    Args:
        remaining: Steps of about 10 ns.
    """

    remaining: float = 1e9

    def spend(self, steps: float) -> None:
        """Take steps off the budget, or raise an error if it is used up.

        Args:
            steps: Steps of about 10 ns.
        """
        self.remaining -= steps
        if self.remaining < 0.0:
            raise InputError(
                "lines and areas have too many corners for this network; simplify them, or remove "
                "those that do not matter"
            )


class Pieces(NamedTuple):
    """Straight pieces of the courses of edges."""

    edge: Ints  # (p,)
    begin: Points  # (p,)
    step: Points  # from the beginning to the end, (p,)

    @property
    def middle(self) -> Points:
        """The middle of each piece, (p,)."""
        return self.begin + 0.5 * self.step

    def take(self, rows: Any) -> Pieces:
        """Return the pieces in some rows."""
        return Pieces(self.edge[rows], self.begin[rows], self.step[rows])

    def clip(self, low: Floats, high: Floats) -> Pieces:
        """Return the parts that lie in a box; a piece inside it stays as it is.

        Args:
            low: The least x and y of the box, (2,).
            high: The largest x and y of the box, (2,).
        """
        x_enters, x_leaves = _clip_axis(
            self.begin.real, self.step.real, low[0], high[0]
        )
        y_enters, y_leaves = _clip_axis(
            self.begin.imag, self.step.imag, low[1], high[1]
        )
        enters = np.maximum(0.0, np.maximum(x_enters, y_enters))
        leaves = np.minimum(1.0, np.minimum(x_leaves, y_leaves))
        inside = enters <= leaves
        enters = enters[inside]
        leaves = leaves[inside]
        pieces = self.take(inside)
        return Pieces(
            edge=pieces.edge,
            begin=pieces.begin + enters * pieces.step,
            step=(leaves - enters) * pieces.step,
        )

    def split(self, longest: float) -> Pieces:
        """Return the same in pieces of at most ``longest`` metres."""
        lengths = np.abs(self.step)
        parts = np.ceil(lengths / longest)
        counts = np.maximum(1, parts).astype(np.intp)
        rows, number = repeated(counts)
        pieces = self.take(rows)
        step = pieces.step / counts[rows]
        begin = pieces.begin + number * step
        return Pieces(pieces.edge, begin, step)

    def distance(self, points: Any) -> Floats:
        """Return metres in the plane from each piece to a point, (p,).

        Args:
            points: One point for all pieces, or one for each, (p,).
        """
        offset = points - self.begin
        lengths = np.abs(self.step)
        square = np.square(lengths)
        divisor = np.where(square > 0.0, square, 1.0)
        product = offset * np.conj(self.step)
        share = product.real / divisor
        share = np.clip(share, 0.0, 1.0)
        metres: Floats = np.abs(offset - share * self.step)
        return metres


def _clip_axis(
    begin: Floats, step: Floats, lower: float, upper: float
) -> tuple[Floats, Floats]:
    """Return where each piece, from 0 to 1, enters and leaves an interval of one axis."""
    is_still = step == 0.0
    is_beside = is_still & ((begin < lower) | (begin > upper))
    divisor = np.where(is_still, 1.0, step)
    at_lower = (lower - begin) / divisor
    at_upper = (upper - begin) / divisor
    enters, leaves = np.sort([at_lower, at_upper], axis=0)
    # A piece along the other axis is inside all the way, or never.
    enters[is_still] = 0.0
    leaves[is_still] = 1.0
    enters[is_beside] = np.inf
    leaves[is_beside] = -np.inf
    return enters, leaves


def is_near(points: Floats, others: Floats, reach: float) -> Bools:
    """Return which points have another one within reach, (p,).

    Args:
        points: Pairs of metres, (p, 2).
        others: Pairs of metres, (q, 2).
        reach: Metres; a point exactly as far away counts as near.
    """
    from scipy.spatial import cKDTree

    bound = np.nextafter(reach, np.inf)  # the tree's bound is exclusive
    distance, _ = cKDTree(others).query(points, distance_upper_bound=bound)
    near: Bools = np.isfinite(distance)
    return near


def is_inside(points: Points, begin: Points, end: Points, budget: Budget) -> Bools:
    """Return which points lie inside, (p,): a ray to the right crosses an odd number of borders.

    A border is compared only with points between the heights of its ends.

    Args:
        points: (p,).
        begin: Where each border begins, (b,).
        end: Where each border ends, (b,).
        budget: Pays for the comparisons.
    """
    x = points.real
    y = points.imag
    by_height = np.argsort(y)
    heights = y[by_height]
    lower = np.minimum(begin.imag, end.imag)
    upper = np.maximum(begin.imag, end.imag)
    first = np.searchsorted(heights, lower)
    last = np.searchsorted(heights, upper)
    counts = last - first  # points beside each border
    comparisons = float(counts.sum())
    budget.spend(_PER_CROSSING * comparisons)
    is_odd: Bools = np.zeros(len(points), dtype=bool)
    # As many borders at once as fit into memory with their points.
    block_of_border = np.cumsum(counts) // _COMPARED_AT_ONCE
    new_blocks = np.flatnonzero(np.diff(block_of_border)) + 1
    all_borders = np.arange(len(counts))
    for borders in np.split(all_borders, new_blocks):
        row, number = repeated(counts[borders])
        border = borders[row]
        point = by_height[first[border] + number]
        a = begin[border]
        step = end[border] - a
        share = (y[point] - a.imag) / step.imag  # of the border below the point
        crossing = a.real + share * step.real
        crossed_by = point[x[point] < crossing]
        crossings = np.bincount(crossed_by, minlength=len(points))
        is_odd ^= crossings % 2 == 1
    return is_odd
