"""Ring motorways of a generated city: two one-way carriageways, joined to the streets by ramps.

=================  ==================================================================
``s``              metres along a ring's middle line, counter-clockwise
``+``, ``−``       the carriageways: the outer runs counter-clockwise, the inner clockwise
=================  ==================================================================

One drives on the right, so the outer carriageway keeps the centre of the town on its left. At an
interchange each carriageway has an exit before and an entry after the street that passes under it;
both end on that street, on the carriageway's own side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from superarm.core import Floats, Ints

from .fabric import Fabric, Road
from .terrain import CityPlan, normals, tree

COURSE_POINTS = 5
_HALF_MEDIAN = 9.0
_RAMP = 150.0
"""Metres along the motorway from an exit to the street it leads to."""
_RAMP_BULGE = 22.0
_INTERCHANGE_GAP = 620.0
_LONGEST_PIECE = 480.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Motorway:
    """One-way pieces with their courses; places are numbered on from the streets' places."""

    places: Floats
    pieces: Ints
    """(p, 2): from place, to place."""
    road: Ints
    """``Road.MOTORWAY`` or ``Road.RAMP``, (p,)."""
    courses: Floats
    """(p, 5, 2)"""
    ring: Ints
    """Which ring a piece belongs to, (p,)."""


def build_motorways(plan: CityPlan, fabric: Fabric) -> Motorway:
    """All rings that have at least two interchanges with the streets that are there."""
    parts: list[Motorway] = []
    first = len(fabric.places)
    for number, ring in enumerate(plan.rings):
        part = _ring(ring, number, fabric, first)
        if part is not None:
            parts.append(part)
            first += len(part.places)
    empty = Motorway(
        places=np.empty((0, 2)),
        pieces=np.empty((0, 2), dtype=np.intp),
        road=np.empty(0, dtype=np.intp),
        courses=np.empty((0, COURSE_POINTS, 2)),
        ring=np.empty(0, dtype=np.intp),
    )
    parts.append(empty)
    return Motorway(
        places=np.concatenate([part.places for part in parts]),
        pieces=np.concatenate([part.pieces for part in parts]),
        road=np.concatenate([part.road for part in parts]),
        courses=np.concatenate([part.courses for part in parts]),
        ring=np.concatenate([part.ring for part in parts]),
    )


class _Line:
    """A closed course that can be asked for the point at ``s``, so many metres to its left."""

    def __init__(self, course: Floats) -> None:
        self.course = course
        steps = np.hypot(*np.diff(course, axis=0).T)
        self.along = np.concatenate([[0.0], np.cumsum(steps)])
        self.length = float(self.along[-1])
        left = normals(np.concatenate([course[-2:-1], course, course[1:2]]))[1:-1]
        self.left = left

    def at(self, s: Floats, left: float) -> Floats:
        s = np.mod(s, self.length)
        point = [np.interp(s, self.along, self.course[:, k]) for k in (0, 1)]
        aside = [np.interp(s, self.along, self.left[:, k]) for k in (0, 1)]
        return np.stack([p + left * a for p, a in zip(point, aside, strict=True)], axis=-1)


def _ring(course: Floats, number: int, fabric: Fabric, first: int) -> Motorway | None:
    line = _Line(course)
    streets = np.flatnonzero(fabric.crossing == number)
    if len(streets) < 2:
        return None
    nearest = tree((course,)).query(fabric.places[fabric.streets[streets]].mean(axis=1))[1]
    chosen = _interchanges(line.along[nearest], fabric.road[streets], line.length)
    if len(chosen) < 2:
        return None
    s, streets = line.along[nearest[chosen]], streets[chosen]
    order = np.argsort(s, kind="stable")
    s, streets = s[order], streets[order]
    stops, exits, entries = _stops(s, line.length)
    outer = first + np.arange(len(stops))
    inner = outer + len(stops)
    places = np.concatenate([line.at(stops, -_HALF_MEDIAN), line.at(stops, _HALF_MEDIAN)])
    after = np.roll(np.arange(len(stops)), -1)
    until = np.where(after == 0, stops[after] + line.length, stops[after])
    spans = stops[:, None] + np.linspace(0.0, 1.0, COURSE_POINTS) * (until - stops)[:, None]
    ends = fabric.streets[streets]
    sides = fabric.places[ends] - line.at(s, 0.0)[:, None]
    inward = np.einsum("nij,nj->ni", sides, line.at(s, 1.0) - line.at(s, 0.0))
    inside = np.where(inward[:, 0] > inward[:, 1], ends[:, 0], ends[:, 1])
    outside = np.where(inward[:, 0] > inward[:, 1], ends[:, 1], ends[:, 0])
    ramps = np.concatenate(
        [
            np.stack([outer[exits], outside], axis=1),
            np.stack([outside, outer[entries]], axis=1),
            np.stack([inner[entries], inside], axis=1),
            np.stack([inside, inner[exits]], axis=1),
        ]
    )
    everything = np.concatenate([fabric.places, np.zeros((first - len(fabric.places), 2)), places])
    mainline = np.concatenate(
        [np.stack([outer, outer[after]], axis=1), np.stack([inner[after], inner], axis=1)]
    )
    main_courses = np.concatenate(
        [line.at(spans, -_HALF_MEDIAN), line.at(spans, _HALF_MEDIAN)[:, ::-1]]
    )
    on_ring = np.concatenate([exits, entries, entries, exits])
    middle, half = (stops[on_ring] + np.tile(s, 4)) / 2.0, 2 * len(s)
    control = np.concatenate(
        [line.at(middle[:half], -_RAMP_BULGE), line.at(middle[half:], _RAMP_BULGE)]
    )
    ramp_courses = _bent(everything[ramps[:, 0]], control, everything[ramps[:, 1]])
    return Motorway(
        places=places,
        pieces=np.concatenate([mainline, ramps]),
        road=np.repeat([Road.MOTORWAY, Road.RAMP], [len(mainline), len(ramps)]).astype(np.intp),
        courses=np.concatenate([main_courses, ramp_courses]),
        ring=np.full(len(mainline) + len(ramps), number),
    )


def _interchanges(s: Floats, road: Ints, length: float) -> Ints:
    """Crossings that get ramps: arterials first, all well apart."""
    gap = max(_INTERCHANGE_GAP, length / 60.0)
    chosen: list[int] = []
    for number in np.lexsort((s, -road)):
        apart = np.abs(s[chosen] - s[number])
        if not len(apart) or np.minimum(apart, length - apart).min() >= gap:
            chosen.append(int(number))
    return np.array(chosen, dtype=np.intp)


def _stops(s: Floats, length: float) -> tuple[Floats, Ints, Ints]:
    """Where carriageways have places: exits, entries, and between them where a piece would be long.

    Returned with the positions of what lies before (``s − ramp``) and after each interchange.
    """
    before, after = s - _RAMP, s + _RAMP
    free = np.roll(before, -1) - after
    free[-1] += length
    count = np.ceil(free / _LONGEST_PIECE).astype(int)
    stops: list[float] = []
    exits, entries = [], []
    for number in range(len(s)):
        exits.append(len(stops))
        stops.append(before[number])
        entries.append(len(stops))
        stops.append(after[number])
        inner = np.arange(1, count[number]) / count[number]
        stops.extend((after[number] + inner * free[number]).tolist())
    return np.array(stops), np.array(exits, dtype=np.intp), np.array(entries, dtype=np.intp)


def _bent(begin: Floats, control: Floats, end: Floats) -> Floats:
    """Quadratic Bézier curves as points, (n, 5, 2)."""
    t = np.linspace(0.0, 1.0, COURSE_POINTS)[None, :, None]
    b, c, e = begin[:, None], control[:, None], end[:, None]
    curve: Floats = (1 - t) ** 2 * b + 2 * t * (1 - t) * c + t**2 * e
    return curve
