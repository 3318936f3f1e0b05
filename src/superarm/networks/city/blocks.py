"""Where the blocks of a generated city are: districts, and sites whose Voronoi cells are blocks.

=================  ==================================================================
``site``           a point whose cell becomes a block, a stretch of river or of motorway
``seam``           the border of two districts
=================  ==================================================================

A Voronoi diagram draws a line exactly where one wants it if sites stand in mirrored pairs on both
sides. So avenues are drawn by pairs of districts, main streets by pairs of sites along the seams
of districts, embankments by sites on both banks of a chain of sites down the middle of the river.
Within a district sites stand on a turned, jittered lattice, whose cells are blocks as in a real
town; where two districts meet the pattern breaks, as it does there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from superarm.core import Floats, Ints

from .terrain import CityPlan, normals, resampled, tree

_DISTRICT, _BOROUGH = 800.0, 2800.0
"""Metres between the centres of districts, and of boroughs, whose borders are arterial roads."""
_REACH = 0.92 * _DISTRICT
"""How far from its centre a district's lattice goes."""
MARGIN = 1.12
"""Sites stand up to this ρ, so that cells at the city's border are whole."""
MOTORWAY_CORRIDOR = 24.0
"""Metres from the middle of a motorway to the streets beside it."""


class Cell(IntEnum):
    """What a site stands for."""

    BLOCK = 0
    WATER = 1
    MOTORWAY = 2


@dataclass(frozen=True, kw_only=True, eq=False)
class Districts:
    centres: Floats
    angle: Floats
    spacing: Floats
    aspect: Floats
    jitter: Floats
    borough: Ints


# --- districts ----------------------------------------------------------------------------


def draw_districts(plan: CityPlan, rng: np.random.Generator) -> Districts:
    centres = _scattered(plan.radius * 1.25, min(_DISTRICT, 0.4 * plan.radius), rng)
    avenues = tree(plan.avenues)
    centres = centres[avenues.query(centres)[0] > 0.75 * _DISTRICT]
    angle = 0.5 * np.pi * rng.random(len(centres))
    parts = [(centres, angle)]
    seen = np.empty((0, 2))
    for course in plan.avenues:
        closed = bool((course[0] == course[-1]).all())
        stops = resampled(course, 0.9 * _DISTRICT)[: -1 if closed else None]
        left = normals(course)[_nearest(course, stops)]
        if len(seen):  # an avenue that begins or crosses near another keeps off its districts
            away = np.hypot(*(stops[:, None] - seen[None]).transpose(2, 0, 1)).min(axis=1)
            stops, left = stops[away > 0.65 * _DISTRICT], left[away > 0.65 * _DISTRICT]
        seen = np.concatenate([seen, stops])
        along = np.arctan2(-left[:, 0], left[:, 1])
        parts += [(stops + side * 0.4 * _DISTRICT * left, along) for side in (1.0, -1.0)]
    centres, angle = (np.concatenate(part) for part in zip(*parts, strict=True))
    count = len(centres)
    boroughs = _scattered(plan.radius * 1.3, _BOROUGH, rng)
    away = np.minimum(np.hypot(*centres.T) / plan.radius, 1.2)
    old = rng.random(count) < np.where(away < 0.25, 0.6, 0.2)  # old towns are less regular
    return Districts(
        centres=centres,
        angle=angle,
        spacing=(138.0 + 106.0 * away) * (0.85 + 0.35 * rng.random(count)),
        aspect=np.sqrt(1.1 + 0.9 * rng.random(count)),
        jitter=np.where(old, 0.45, 0.03 + 0.11 * rng.random(count)),
        borough=tree((boroughs,)).query(centres)[1],
    )


def _scattered(reach: float, spacing: float, rng: np.random.Generator) -> Floats:
    """Points on a jittered lattice within ``reach`` of the centre."""
    count = int(np.ceil(reach / spacing))
    axis = spacing * np.arange(-count, count + 1)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    points = points + 0.75 * spacing * (rng.random(points.shape) - 0.5)
    within: Floats = points[np.hypot(*points.T) < reach]
    return within


def _nearest(course: Floats, points: Floats) -> Ints:
    nearest: Ints = tree((course,)).query(points)[1]
    return nearest


# --- sites --------------------------------------------------------------------------------


def draw_sites(
    plan: CityPlan, districts: Districts, rng: np.random.Generator
) -> tuple[Floats, Ints, Ints]:
    """All sites: points, what they stand for, and their district, river or ring."""
    blocks, home = _blocks(plan, districts, rng)
    parts = [(blocks, Cell.BLOCK, home)]
    centres = tree((districts.centres,))

    def add(points: Floats, cell: Cell, group: int, clear: float) -> None:
        """Sites at least ``clear`` from the middle of any river, unless they are the river."""
        points = points[plan.river_distance(points, up_to=clear + 1.0) > clear]
        home = centres.query(points)[1] if cell == Cell.BLOCK else np.full(len(points), group)
        parts.append((points, cell, home))

    width = plan.river_width
    for number, river in enumerate(plan.rivers):
        chain, left, right = _chain(river, 1.35 * width, width)
        apart = tree(plan.rivers[:number]).query(chain)[0] > width
        add(chain[apart], Cell.WATER, number, -1.0)
        add(np.concatenate([left, right]), Cell.BLOCK, -1, 0.93 * width)
    for number, ring in enumerate(plan.rings):
        chain, left, right = _chain(ring, 80.0, 2.0 * MOTORWAY_CORRIDOR)
        add(chain[:-1], Cell.MOTORWAY, number, width)
        add(np.concatenate([left[:-1], right[:-1]]), Cell.BLOCK, -1, 1.2 * width)
    points = np.concatenate([points for points, _, _ in parts])
    cell = np.concatenate([np.full(len(points), cell) for points, cell, _ in parts])
    group = np.concatenate([home for _, _, home in parts])
    points = points + (rng.random(points.shape) - 0.5)  # no four sites on one circle
    within = plan.outline(points) < MARGIN
    return points[within], cell[within], group[within]


def _chain(course: Floats, spacing: float, offset: float) -> tuple[Floats, Floats, Floats]:
    """Points along a course, and their mirror images on its left and on its right."""
    stops = resampled(course, spacing)
    left = offset * normals(course)[_nearest(course, stops)]
    return stops, stops + left, stops - left


def _blocks(plan: CityPlan, districts: Districts, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Lattices within the districts, pairs along their seams; off water, motorways and parks."""
    lattice, home = _lattices(districts, rng)
    within = plan.outline(lattice) < MARGIN
    lattice, home = lattice[within], home[within]
    distance, number = tree((districts.centres,)).query(lattice, k=2)
    own = districts.centres[number[:, 0]], districts.centres[number[:, 1]]
    to_seam = (distance[:, 1] ** 2 - distance[:, 0] ** 2) / (2.0 * np.hypot(*(own[0] - own[1]).T))
    kept = (number[:, 0] == home) & (to_seam > 0.8 * districts.spacing[home])
    lattice, home = lattice[kept], home[kept]
    if len(plan.parks):
        distance, park = tree((plan.parks[:, :2],)).query(lattice)
        open_space = distance < plan.parks[park, 2]
        lattice, home = lattice[~open_space], home[~open_space]
    seams, seam_home = _seam_sites(districts, plan, rng)
    points, home = np.concatenate([lattice, seams]), np.concatenate([home, seam_home])
    bank = plan.river_width + 38.0
    free = plan.river_distance(points, up_to=bank + 1.0) > bank
    if plan.rings:
        verge = 2.0 * MOTORWAY_CORRIDOR + 34.0
        free &= tree(plan.rings).query(points, distance_upper_bound=verge + 1.0)[0] > verge
    return points[free], home[free]


def _lattices(districts: Districts, rng: np.random.Generator) -> tuple[Floats, Ints]:
    points, home = [], []
    for number, centre in enumerate(districts.centres):
        steps = districts.spacing[number] * np.array(
            [districts.aspect[number], 1.0 / districts.aspect[number]]
        )
        counts = np.ceil(_REACH / steps).astype(int)
        grid = np.stack(
            np.meshgrid(*(np.arange(-count, count + 1.0) for count in counts)), axis=-1
        ).reshape(-1, 2)
        grid += districts.jitter[number] * (rng.random(grid.shape) - 0.5) + rng.random(2)
        c, s = np.cos(districts.angle[number]), np.sin(districts.angle[number])
        grid = (grid * steps) @ np.array([[c, s], [-s, c]])
        grid = grid[np.hypot(*grid.T) < _REACH]
        points.append(grid + centre)
        home.append(np.full(len(grid), number))
    return np.concatenate(points), np.concatenate(home)


def _seam_sites(districts: Districts, plan: CityPlan, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Mirrored pairs of sites along the borders of districts, and whose they are."""
    corners, ends, sides = ridges(districts.centres)
    near = (plan.outline(corners) < MARGIN + 0.25)[ends].all(axis=1)
    begin, end, sides = corners[ends[near, 0]], corners[ends[near, 1]], sides[near]
    spacing = districts.spacing[sides].mean(axis=1)
    length = np.hypot(*(end - begin).T)
    count = np.round(length / (0.95 * spacing)).astype(int)
    seam = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(seam)) - np.repeat(np.cumsum(count) - count, count) + 0.5
    place = (place + 0.3 * (rng.random(len(seam)) - 0.5)) / count[seam]
    middle = begin[seam] + place[:, None] * (end - begin)[seam]
    across = districts.centres[sides[seam, 1]] - districts.centres[sides[seam, 0]]
    across *= (0.42 * spacing[seam] / np.hypot(*across.T))[:, None]
    points, home = [middle - across, middle + across], sides[seam].T
    centres = tree((districts.centres,))
    kept = (centres.query(points[0])[1] == home[0]) & (centres.query(points[1])[1] == home[1])
    return np.concatenate([part[kept] for part in points]), np.concatenate(
        [part[kept] for part in home]
    )


def ridges(points: Floats) -> tuple[Floats, Ints, Ints]:
    """Finite borders of the Voronoi cells: corners (v, 2), ends (r, 2), the sites beside (r, 2)."""
    from scipy.spatial import Delaunay

    triangulation = Delaunay(points)
    triangles = triangulation.simplices
    a, b, c = (points[triangles[:, k]] for k in range(3))
    u, v = b - a, c - a
    area = 2.0 * (u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0])
    area = np.where(np.abs(area) > 1e-9, area, np.inf)  # slivers of the hull: far outside anyway
    uu, vv = (u**2).sum(axis=1), (v**2).sum(axis=1)
    x = (v[:, 1] * uu - u[:, 1] * vv) / area
    y = (u[:, 0] * vv - v[:, 0] * uu) / area
    corners = a + np.stack([x, y], axis=1)
    first, corner = np.nonzero(triangulation.neighbors > np.arange(len(triangles))[:, None])
    second = triangulation.neighbors[first, corner]
    beside = np.stack([triangles[first, (corner + 1) % 3], triangles[first, (corner + 2) % 3]], axis=1)
    return corners, np.stack([first, second], axis=1).astype(np.intp), beside.astype(np.intp)
