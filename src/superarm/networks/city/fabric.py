"""The street fabric of a generated city: streets are the borders of Voronoi cells, cells are blocks.

=================  ==================================================================
``ridge``          the border of two cells: a street, or a place where one could cross
``street``         an undirected road between two places
=================  ==================================================================

Ridges *between* two sites of a river are the only streets that cross it: a few of them become
bridges, the others are left out. So with motorways, which streets pass under or over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from superarm.core import Bools, Floats, Ints

from .blocks import MARGIN, Cell, Districts, draw_districts, draw_sites, ridges
from .terrain import CityPlan, tree

_SHORTEST = 27.0
"""Streets shorter than this are contracted to one junction."""
_SHORTEST_CROSSING = 36.0
"""Bridges and underpasses are at least so long: other ridges are where corridors meet."""
_AVENUE_REACH = 170.0
"""How far from its course an avenue may run, metres."""


class Road(IntEnum):
    """Classes of road, from small to large."""

    LOCAL = 0
    COLLECTOR = 1
    ARTERIAL = 2
    RAMP = 3
    MOTORWAY = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Fabric:
    """Places and the undirected streets between them."""

    places: Floats
    """(v, 2)"""
    streets: Ints
    """(s, 2): two places each."""
    road: Ints
    """Class of each street, (s,)."""
    district: Ints
    """The district a street lies in, (s,): streets of one district run in two directions."""
    bridge: Bools
    """It crosses a river, (s,)."""
    crossing: Ints
    """The number of the ring it passes under or over, −1 for most, (s,)."""


def weave(plan: CityPlan, rng: np.random.Generator, missing: float) -> Fabric:
    """Streets for a plan; ``missing`` is the share of local streets left out."""
    districts = draw_districts(plan, rng)
    points, cell, group = draw_sites(plan, districts, rng)
    places, ends, sides = ridges(points)
    within = plan.outline(places) < 0.5 * (1.0 + MARGIN)
    kept = within[ends].all(axis=1) & (ends[:, 0] != ends[:, 1])
    ends, sides = ends[kept], sides[kept]
    kinds, groups = cell[sides], group[sides]
    road, district = _classes(districts, kinds, groups, rng)
    middle = places[ends].mean(axis=1)
    span = np.hypot(*(places[ends[:, 0]] - places[ends[:, 1]]).T)
    over_water = (kinds == Cell.WATER).all(axis=1)
    under_ring = (kinds == Cell.MOTORWAY).all(axis=1)
    bridge = _spread(
        middle,
        over_water & (span > _SHORTEST_CROSSING),
        plan,
        rng,
        float(np.clip(0.16 * plan.radius, 180.0, 420.0)),
    )
    under = _spread(middle, under_ring & (span > _SHORTEST_CROSSING), plan, rng, 240.0)
    kept = ~(over_water | under_ring) | bridge | under
    road[bridge | under] = Road.COLLECTOR
    crossing = np.where(under, groups[:, 0], -1)
    woven = Fabric(
        places=places,
        streets=ends[kept],
        road=road[kept],
        district=district[kept],
        bridge=bridge[kept],
        crossing=crossing[kept],
    )
    return _thinned(_with_avenues(_contracted(woven), plan), rng, missing)


def select(fabric: Fabric, streets: Bools | Ints) -> Fabric:
    """The fabric with some of its streets and the places they need."""
    ends = fabric.streets[streets]
    used, numbers = np.unique(ends, return_inverse=True)
    return Fabric(
        places=fabric.places[used],
        streets=numbers.reshape(-1, 2),
        road=fabric.road[streets],
        district=fabric.district[streets],
        bridge=fabric.bridge[streets],
        crossing=fabric.crossing[streets],
    )


# --- from sites to streets ----------------------------------------------------------------


def _classes(
    districts: Districts, kinds: Ints, groups: Ints, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Road class and district of each ridge."""
    block = kinds == Cell.BLOCK
    home = np.where(block, groups, -1)
    both = block.all(axis=1)
    left, right = np.maximum(home, 0).T
    seam = both & (left != right)
    border = districts.borough[left] != districts.borough[right]
    # Embankments and streets along a motorway are main streets here and there.
    along = block.any(axis=1) & ~both & (rng.random(len(districts.centres))[home.max(axis=1)] < 0.5)
    road = np.where(seam | along, Road.COLLECTOR, Road.LOCAL)
    road = np.where(seam & border, Road.ARTERIAL, road)
    return road.astype(np.intp), home.max(axis=1)


def _spread(
    middle: Floats, candidates: Bools, plan: CityPlan, rng: np.random.Generator, gap: float
) -> Bools:
    """Some candidates well apart from each other: first where avenues cross, then anywhere."""
    numbers = np.flatnonzero(candidates)
    chosen = np.zeros(len(middle), dtype=bool)
    if len(numbers) == 0:
        return chosen
    at = middle[numbers]
    away = tree(plan.avenues).query(at)[0]
    wanted = gap * (1.0 + 1.3 * np.minimum(plan.outline(at), 1.0)) * np.where(away < 40.0, 0.7, 1.0)
    order = np.argsort(np.where(away < 40.0, away, 1000.0 + rng.random(len(at))), kind="stable")
    free = np.ones(len(at), dtype=bool)
    for number in order:
        if free[number]:
            chosen[numbers[number]] = True
            free &= np.hypot(*(at - at[number]).T) > np.maximum(wanted, wanted[number])
    return chosen


def _contracted(fabric: Fabric) -> Fabric:
    """Ends of very short streets become one place; of parallel streets the largest stays."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    begin, end = fabric.streets.T
    length = np.hypot(*(fabric.places[begin] - fabric.places[end]).T)
    short = (length < _SHORTEST) & ~fabric.bridge & (fabric.crossing < 0)
    count = len(fabric.places)
    links = csr_array((np.ones(short.sum()), (begin[short], end[short])), shape=(count, count))
    merged, label = connected_components(links, directed=False)
    used = np.zeros(count, dtype=bool)
    used[fabric.streets] = True
    size = np.maximum(np.bincount(label[used], minlength=merged), 1)
    places = np.stack(
        [
            np.bincount(label[used], weights=fabric.places[used, k], minlength=merged) / size
            for k in (0, 1)
        ],
        axis=1,
    )
    ends = np.sort(label[fabric.streets].astype(np.intp), axis=1)
    rank = np.lexsort((-fabric.road, ends[:, 1], ends[:, 0]))
    ends = ends[rank]
    kept = ends[:, 0] != ends[:, 1]
    kept[1:] &= (ends[1:] != ends[:-1]).any(axis=1)
    ordered = Fabric(
        places=places,
        streets=ends,
        road=fabric.road[rank],
        district=fabric.district[rank],
        bridge=fabric.bridge[rank],
        crossing=fabric.crossing[rank],
    )
    return select(ordered, kept)


def _with_avenues(fabric: Fabric, plan: CityPlan) -> Fabric:
    """Arterial roads along the avenues: the path that stays nearest to each course."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    road = fabric.road.copy()
    middle = fabric.places[fabric.streets].mean(axis=1)
    length = np.hypot(*np.diff(fabric.places[fabric.streets], axis=1)[:, 0].T)
    for course in plan.avenues:
        away = tree((course,)).query(middle, distance_upper_bound=_AVENUE_REACH)[0]
        near = np.flatnonzero(away < _AVENUE_REACH)
        if len(near) < 2:
            continue
        used, ends = np.unique(fabric.streets[near], return_inverse=True)
        begin, end = ends.reshape(-1, 2).T
        weight = length[near] * (1.0 + (away[near] / 25.0) ** 2)
        links = csr_array((weight, (begin, end)), shape=(len(used), len(used)))
        street = csr_array((near + 1, (begin, end)), shape=(len(used), len(used)))
        at = tree((fabric.places[used],))
        inner = course[plan.outline(course) < 1.0]
        half = inner[len(inner) // 2]
        for first, last in ((inner[0], half), (half, inner[-1])):
            source, target = at.query(first)[1], at.query(last)[1]
            before = dijkstra(links, directed=False, indices=source, return_predecessors=True)[1]
            while target != source and before[target] >= 0:
                previous = before[target]
                number = max(street[previous, target], street[target, previous]) - 1
                road[number] = Road.ARTERIAL
                target = previous
    return replace(fabric, road=road)


def _thinned(fabric: Fabric, rng: np.random.Generator, missing: float) -> Fabric:
    """Local streets left out, at most one at each place, and only where three or more meet."""
    count = len(fabric.streets)
    degree = np.bincount(fabric.streets.ravel(), minlength=len(fabric.places))
    fit = (degree[fabric.streets] > 2).all(axis=1) & (fabric.road == Road.LOCAL)
    draw = np.where(fit & (rng.random(count) < 2.2 * missing), rng.random(count), 2.0)
    lowest = np.full(len(fabric.places), 2.0)
    np.minimum.at(lowest, fabric.streets.ravel(), np.repeat(draw, 2))
    gone = (draw < 2.0) & (draw[:, None] == lowest[fabric.streets]).all(axis=1)
    return select(fabric, ~gone)
