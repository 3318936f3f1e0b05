"""A map of roads as plain arrays: problems on roads create it, runs save it, reports draw it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints
from .errors import StateError


@dataclass(frozen=True, kw_only=True, eq=False)
class RoadMap:
    """The course of each edge in metres, its speed limit and height, and the ends of a trip."""

    points: Floats  # points of all edges one after another, (p, 2)
    offsets: Ints  # edge i has the points offsets[i] … offsets[i + 1] − 1, (n + 1,)
    speed: Floats  # m/s, (n,)
    height: Floats  # mean z of each edge's junctions, (n,)
    start: int  # the edge where all trips start; −1 if trips differ
    goal: int  # the edge where all trips end; −1 if trips differ

    @property
    def ends(self) -> tuple[int, ...]:
        """Start and goal, if all trips have the same; otherwise empty."""
        return (self.start, self.goal) if self.start >= 0 else ()

    def __len__(self) -> int:
        return len(self.speed)

    def course(self, edge: int) -> Floats:
        """The points of one edge, (q, 2).

        Args:
            edge: The number of the edge.
        """
        first = self.offsets[edge]
        end = self.offsets[edge + 1]
        return self.points[first:end]

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Small arrays, from which :meth:`from_arrays` restores the map to a centimetre."""
        centimetres = np.rint(self.points * 100.0)
        return {
            "points": centimetres.astype(np.int32),
            "offsets": self.offsets.astype(np.int32),
            "speed": self.speed.astype(np.float32),
            "height": self.height.astype(np.float32),
            "trip": np.array([self.start, self.goal], dtype=np.int32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of arrays that :meth:`as_arrays` returned.

        Args:
            arrays: The arrays by name.
        """
        if missing := {"points", "offsets", "speed", "height", "trip"} - set(arrays):
            raise StateError(f"the map lacks {sorted(missing)}")
        edge_count = arrays["speed"].size
        point_count = len(arrays["points"]) if arrays["points"].ndim else 0
        _require_numbers(arrays, "points", (point_count, 2))
        _require_numbers(arrays, "offsets", (edge_count + 1,))
        _require_numbers(arrays, "speed", (edge_count,))
        _require_numbers(arrays, "height", (edge_count,))
        _require_numbers(arrays, "trip", (2,))
        offsets = arrays["offsets"].astype(np.intp)
        start, goal = (int(end) for end in arrays["trip"])
        is_covered = offsets[0] == 0 and offsets[-1] == point_count
        has_points = (np.diff(offsets) >= 1).all()
        is_one_trip = 0 <= start < edge_count and 0 <= goal < edge_count
        has_valid_ends = is_one_trip or start == goal == -1
        if not (is_covered and has_points and has_valid_ends):
            raise StateError("edges, points and trip of the map do not fit together")
        return cls(
            points=arrays["points"] / 100.0,
            offsets=offsets,
            speed=arrays["speed"].astype(np.float64),
            height=arrays["height"].astype(np.float64),
            start=start,
            goal=goal,
        )


def _require_numbers(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]
) -> None:
    array = arrays[name]
    are_numbers = array.dtype.kind in "iuf" and np.isfinite(array).all()
    if not are_numbers or array.shape != shape:
        raise StateError(f"{name} of the map does not hold numbers of shape {shape}")
