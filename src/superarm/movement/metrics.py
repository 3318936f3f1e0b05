"""Finite metrics: the cost of moving from one action to another.

``n`` actions; ``distances`` (n, n) is symmetric, 0 only on the diagonal, and no detour is shorter.
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

# Relative difference allowed between two distances that should be equal.
_SLACK = 1e-9
# scipy's names of the distances.
_SCIPY_NAMES: dict[str, Any] = {
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
    """A table of distances; if it is not a metric, the error names the actions.

    Searching for shorter detours takes n³ operations.

    Args:
        distances: One row and one column per action, (n, n).
        repair: Whether to turn a table that is nearly a metric into one: both directions get their
            mean, and distances longer than a detour become the shortest detour.
    """

    distances: Floats
    repair: bool = False

    def __post_init__(self) -> None:
        repair = as_flag(self.repair, "repair")
        object.__setattr__(self, "repair", repair)
        table = as_features(self.distances, "distances")
        rows, columns = table.shape
        if rows != columns or rows == 0:
            raise ShapeError(
                f"distances has shape {table.shape}; give one row and column per action"
            )
        _refuse(table, table < 0.0, "negative")
        loops = np.diag(np.diag(table) != 0.0)
        _refuse(table, loops, "not 0, though it is the same action")
        mean = 0.5 * table + 0.5 * table.T
        if not repair:
            gap = np.abs(table - table.T)
            uneven = gap > _SLACK * mean
            problem = "different on the way back, {back:g}; repair=True takes the mean"
            _refuse(table, uneven, problem)
        _refuse_sizes(mean)
        detour = _shortest(mean)
        longer = mean > (1.0 + _SLACK) * detour
        if not repair:
            _refuse(mean, longer, "longer than a detour; repair=True takes the detour")
        distances = np.where(longer, detour, mean)
        object.__setattr__(self, "distances", read_only(distances))

    def _display_fields(self) -> dict[str, Any]:
        return {"n": len(self)}


@register("metric", "points")
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PointMetric(ActionMetric):
    """``scale`` × the distance between points.

    Args:
        points: One row per action, (n, d).
        scale: Multiplies every distance.
        distance: "euclidean", "manhattan" or "chebyshev".
    """

    points: Floats
    scale: float = 1.0
    distance: str = "euclidean"

    def __post_init__(self) -> None:
        require_choice(self.distance, "distance", tuple(_SCIPY_NAMES))
        scale = as_scale(self.scale, "scale")
        object.__setattr__(self, "scale", scale)
        points = read_only(as_features(self.points, "points"))
        object.__setattr__(self, "points", points)
        if len(points) == 0:
            raise ShapeError("points has no rows; give one per action")
        from scipy.spatial.distance import cdist

        name = _SCIPY_NAMES[self.distance]
        distances = scale * cdist(points, points, name)
        _refuse_sizes(distances)
        distances.flags.writeable = False
        object.__setattr__(self, "distances", distances)

    def _display_fields(self) -> dict[str, Any]:
        return {"n": len(self.points), "scale": self.scale, "distance": self.distance}


def metric_between(items: Any, distance: Callable[[Any, Any], float]) -> MatrixMetric:
    """The metric of a distance between items of any kind.

    Args:
        items: One per action.
        distance: Called with each two items.
    """
    listed = list(items)
    table: Any = []
    for item in listed:
        row = [distance(item, other) for other in listed]
        table.append(row)
    return MatrixMetric(distances=table)


def shortest_path_metric(links: Any) -> MatrixMetric:
    """The lengths of the shortest paths between the nodes of a graph.

    Args:
        links: Lengths of the links, a sparse or dense (n, n) array, 0 where there is none. Every link
            can be taken both ways.

    >>> shortest_path_metric([[0, 1, 0], [0, 0, 2], [0, 0, 0]]).distances[0, 2]
    np.float64(3.0)
    """
    from scipy.sparse import csr_array, issparse
    from scipy.sparse.csgraph import shortest_path

    link_lengths: Any = links
    if not issparse(links):
        link_lengths = as_features(links, "links")
    graph = csr_array(link_lengths)
    shape = graph.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InputError(f"links has shape {shape}; give one row and column per node")
    _refuse_links(graph)
    lengths = shortest_path(graph, directed=False)
    is_infinite = ~np.isfinite(lengths)
    _refuse(lengths, is_infinite, "infinite: no way leads there; link them")
    distances = 0.5 * (lengths + lengths.T)
    return MatrixMetric(distances=distances)


def _refuse_links(graph: Any) -> None:
    """Name the first link whose length is not above 0."""
    links = graph.tocoo()
    is_positive = links.data > 0.0
    if is_positive.all():
        return
    link = int(np.argmin(is_positive))
    raise InputError(
        f"the link from {links.row[link]} to {links.col[link]} is {links.data[link]:g}; "
        "give links of lengths above 0"
    )


def _shortest(distances: Floats) -> Floats:
    """Distances with detours, (n, n)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import floyd_warshall

    # Sparse, because in a dense array scipy ignores links below 1e-8.
    graph = csr_array(distances)
    return np.asarray(floyd_warshall(graph, directed=False))


def _refuse_sizes(distances: Floats) -> None:
    """Name actions at the same place, or too far apart for floating point."""
    different = ~np.eye(len(distances), dtype=bool)
    coincide = different & (distances == 0.0)
    problem = "0, though they are different actions; make them one, or move them apart"
    _refuse(distances, coincide, problem)
    sizes = np.where(different, distances, 1.0)
    _require_scale_at(sizes, int(sizes.argmin()))
    _require_scale_at(sizes, int(sizes.argmax()))


def _require_scale_at(sizes: Floats, entry: int) -> None:
    one, other = divmod(entry, len(sizes))
    label = f"the distance from action {one} to {other}"
    require_scale(sizes[one, [other]], label)


def _refuse(distances: Floats, wrong: Any, problem: str) -> None:
    """Name the first two actions whose distance is wrong."""
    if not wrong.any():
        return
    one, other = np.argwhere(wrong)[0].tolist()
    forth = distances[one, other]
    back = distances[other, one]
    message = f"the distance from action {one} to {other} is {forth:g}"
    explanation = problem.format(back=back)
    raise InputError(f"{message}, which is {explanation}")
