"""What it costs to go from one action to another: finite metrics, checked.

``n`` actions; ``distances`` (n, n) is symmetric, 0 on the diagonal alone, and no detour is shorter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.core.display import Displayable
from superarm.core.errors import InputError, ShapeError
from superarm.core.inputs import (
    as_features,
    as_flag,
    as_scale,
    read_only,
    require_choice,
    require_scale,
)
from superarm.core.registry import register

_SLACK = 1e-9
"""By which share of themselves two distances may differ that should be equal."""
_KNOWN: dict[str, Any] = {
    "euclidean": "euclidean",
    "manhattan": "cityblock",
    "chebyshev": "chebyshev",
}


class ActionMetric(Displayable):
    """A metric over actions 0 … n−1, which are the arms on offer by position."""

    distances: Floats  # (n, n), read-only

    def __len__(self) -> int:
        return len(self.distances)


@register("metric", "matrix")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MatrixMetric(ActionMetric):
    """A table of ``distances``, (n, n), refused where it is not a metric; the error names the actions.

    ``repair`` makes what is nearly a metric one: both directions get their mean, and distances longer
    than a detour become the shortest detour. Looking for shorter detours takes n³ operations.

    Args:
        distances: One row and one column per action.
        repair: Whether what is nearly a metric is made one: both directions get their mean, and
            distances longer than a detour become the shortest detour.
    """

    distances: Floats
    repair: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "repair", as_flag(self.repair, "repair"))
        given = as_features(self.distances, "distances")
        if given.shape[0] != given.shape[1] or not len(given):
            raise ShapeError(
                f"distances has shape {given.shape}; give one row and column per action"
            )
        _refuse(given, given < 0.0, "negative")
        _refuse(
            given, np.diag(np.diag(given) != 0.0), "not 0, though it is the same action"
        )
        mean = 0.5 * given + 0.5 * given.T
        if not self.repair:
            told = "different on the way back, {back:g}; repair=True takes the mean"
            _refuse(given, np.abs(given - given.T) > _SLACK * mean, told)
        _refuse_sizes(mean)
        detour = _shortest(mean)
        longer = mean > (1.0 + _SLACK) * detour
        if not self.repair:
            _refuse(mean, longer, "longer than a detour; repair=True takes the detour")
        object.__setattr__(self, "distances", read_only(np.where(longer, detour, mean)))

    def _display_fields(self) -> dict[str, Any]:
        return {"n": len(self)}


@register("metric", "points")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PointMetric(ActionMetric):
    """``scale`` × the distance between ``points``, (n, d): Euclidean, or another by name.

    Args:
        points: One row per action.
        scale: Multiplies every distance.
        distance: Euclidean, manhattan or chebyshev.
    """

    points: Floats
    scale: float = 1.0
    distance: str = "euclidean"

    def __post_init__(self) -> None:
        require_choice(self.distance, "distance", tuple(_KNOWN))
        object.__setattr__(self, "scale", as_scale(self.scale, "scale"))
        object.__setattr__(
            self, "points", read_only(as_features(self.points, "points"))
        )
        if not len(self.points):
            raise ShapeError("points has no rows; give one per action")
        from scipy.spatial.distance import cdist

        between = self.scale * cdist(self.points, self.points, _KNOWN[self.distance])
        _refuse_sizes(between)
        between.flags.writeable = False
        object.__setattr__(self, "distances", between)

    def _display_fields(self) -> dict[str, Any]:
        return {"n": len(self.points), "scale": self.scale, "distance": self.distance}


def metric_between(items: Any, distance: Callable[[Any, Any], float]) -> MatrixMetric:
    """The metric of ``distance(one, other)`` between things of any kind."""
    things = list(items)
    table: Any = [[distance(one, other) for other in things] for one in things]
    return MatrixMetric(distances=table)


def shortest_path_metric(links: Any) -> MatrixMetric:
    """How far nodes of a graph are from each other, by the lengths of its ``links``.

    ``links`` is a sparse or dense (n, n) array of positive lengths, 0 where there is none; every link
    can be taken both ways.

    >>> shortest_path_metric([[0, 1, 0], [0, 0, 2], [0, 0, 0]]).distances[0, 2]
    np.float64(3.0)
    """
    from scipy.sparse import csr_array, issparse
    from scipy.sparse.csgraph import shortest_path

    given: Any = links if issparse(links) else as_features(links, "links")
    graph = csr_array(given)
    if graph.shape != 2 * graph.shape[:1]:
        raise InputError(
            f"links has shape {graph.shape}; give one row and column per node"
        )
    listed = graph.tocoo()
    for at in np.flatnonzero(~(listed.data > 0.0))[:1]:
        told = (
            f"the link from {listed.row[at]} to {listed.col[at]} is {listed.data[at]:g}"
        )
        raise InputError(f"{told}; give links of lengths above 0")
    between = shortest_path(graph, directed=False)
    _refuse(between, ~np.isfinite(between), "infinite: no way leads there; link them")
    return MatrixMetric(distances=0.5 * (between + between.T))


def _shortest(distances: Floats) -> Floats:
    """How far actions are from each other where detours are allowed."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import floyd_warshall

    # Sparse: of a dense array, scipy takes what is below 1e-8 for no link.
    return np.asarray(floyd_warshall(csr_array(distances), directed=False))


def _refuse_sizes(distances: Floats) -> None:
    apart = ~np.eye(len(distances), dtype=bool)
    told = "0, though they are different actions; make them one, or move them apart"
    _refuse(distances, apart & (distances == 0.0), told)
    sizes = np.where(apart, distances, 1.0)
    for at in (sizes.argmin(), sizes.argmax()):
        one, other = divmod(int(at), len(sizes))
        require_scale(sizes[one, [other]], f"the distance from action {one} to {other}")


def _refuse(distances: Floats, wrong: Any, told: str) -> None:
    """Name the first two actions whose distance is wrong."""
    if wrong.any():
        one, other = np.argwhere(wrong)[0].tolist()
        raise InputError(
            f"the distance from action {one} to {other} is {distances[one, other]:g}, which is "
            + told.format(back=distances[other, one])
        )
