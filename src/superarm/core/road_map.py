"""A map of roads as plain arrays: the roads wing makes it, runs save it, reports draw it."""

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
    start: int  # −1, as ``goal``: there are several trips
    goal: int

    @property
    def ends(self) -> tuple[int, ...]:
        """Start and goal, where all trips have the same."""
        return (self.start, self.goal) if self.start >= 0 else ()

    def __len__(self) -> int:
        return len(self.speed)

    def course(self, edge: int) -> Floats:
        """The points of one edge, (q, 2)."""
        return self.points[self.offsets[edge] : self.offsets[edge + 1]]

    def as_arrays(self) -> dict[str, NDArray[Any]]:
        """Small arrays, from which :meth:`from_arrays` makes the same map to a centimetre."""
        return {
            "points": np.rint(self.points * 100.0).astype(np.int32),
            "offsets": self.offsets.astype(np.int32),
            "speed": self.speed.astype(np.float32),
            "height": self.height.astype(np.float32),
            "trip": np.array([self.start, self.goal], dtype=np.int32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map that :meth:`as_arrays` wrote."""
        if missing := {"points", "offsets", "speed", "height", "trip"} - set(arrays):
            raise StateError(f"the map lacks {sorted(missing)}")
        n, p = (
            arrays["speed"].size,
            len(arrays["points"]) if arrays["points"].ndim else 0,
        )
        shapes = {
            "points": (p, 2),
            "offsets": (n + 1,),
            "speed": (n,),
            "height": (n,),
            "trip": (2,),
        }
        for name, shape in shapes.items():
            numbers = (
                arrays[name].dtype.kind in "iuf" and np.isfinite(arrays[name]).all()
            )
            if not numbers or arrays[name].shape != shape:
                raise StateError(
                    f"{name} of the map does not hold numbers of shape {shape}"
                )
        offsets = arrays["offsets"].astype(np.intp)
        start, goal = (int(end) for end in arrays["trip"])
        fits = offsets[0] == 0 and offsets[-1] == p and (np.diff(offsets) >= 1).all()
        if not (fits and ((0 <= start < n and 0 <= goal < n) or start == goal == -1)):
            raise StateError("edges, points and trip of the map do not fit together")
        points = arrays["points"] / 100.0
        speed, height = (
            arrays[name].astype(np.float64) for name in ("speed", "height")
        )
        return cls(
            points=points,
            offsets=offsets,
            speed=speed,
            height=height,
            start=start,
            goal=goal,
        )
