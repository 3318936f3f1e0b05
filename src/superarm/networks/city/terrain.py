"""The lie of the land under a generated city: outline, rivers, avenues, rings and heights.

=================  ==================================================================
``R``              radius of the city, metres: its outline is about this far from the centre
``ρ``              distance from the centre over the outline's distance in that direction
``course``         a curve as points some 20 m apart, (p, 2)
=================  ==================================================================

A :class:`CityPlan` is drawn before any street. It says where the water is, so that streets can
keep off it, and how high the land is at any point: hills are a sum of waves of up to 8 km,
flattened towards the rivers and scaled so that about half the land is steep enough to win energy back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from superarm.core import Floats
from superarm.errors import InputError
from superarm.inputs import as_count, as_number
from superarm.streams import stream

FEWEST_EDGES, MOST_EDGES = 200, 2_000_000
_AREA_PER_EDGE = 7000.0
"""Square metres of land for a directed edge, with a margin that is cut off later."""
_STEP = 20.0
_WAVES, _LANDS = 32, 16
_PROBE = 60.0
_FLAT_SHARE, _USUAL_GRADE, _STEEP_GRADE = 0.40, 0.016, 0.125
"""For ``hills=1``: this share of the land is flatter than the usual grade, at which a car at town speed
begins to win energy back; and nine tenths are flatter than the steep grade."""
_VALLEY, _FAR = 420.0, 4200.0
"""Metres from a river at which the land has half its height, and beyond which it is not felt."""
_LOWLAND, _SOFT = 0.55, 0.3
"""How far below the middle of the waves the lowlands lie, and how softly hills begin: both
in typical heights of the waves."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CityPlan:
    """Everything about a city that is not a street."""

    radius: float
    rivers: tuple[Floats, ...]
    """Courses of the rivers' middle lines; the second and later ones flow into the first."""
    river_width: float
    avenues: tuple[Floats, ...]
    """Courses that arterial roads follow: some from the centre outwards, some around it."""
    rings: tuple[Floats, ...]
    """Courses of motorways around the centre, counter-clockwise, closed (first point = last)."""
    outline_waves: Floats
    """(k, 2): amplitude and phase of the outline's waves."""
    hill_waves: Floats
    """(w, 4): wave vector, phase, amplitude in metres."""
    parks: Floats
    """(p, 3): centre and radius of open spaces without streets."""

    def outline(self, points: Floats) -> Floats:
        """ρ of each point, (n,): below 1 inside the city."""
        angle = np.arctan2(points[:, 1], points[:, 0])
        reach = np.ones(len(points))
        for number, (amplitude, phase) in enumerate(self.outline_waves, start=2):
            reach += amplitude * np.cos(number * angle + phase)
        inside: Floats = np.hypot(*points.T) / (reach * self.radius)
        return inside

    def height(self, points: Floats) -> Floats:
        """Metres above the lowest river, (n,): what the bare land is like, before roads are cut in."""
        waves = np.zeros(len(points))
        for wave in self.hill_waves:
            waves += wave[3] * np.cos(points @ wave[:2] + wave[2])
        typical = max(float(np.sqrt((self.hill_waves[:, 3] ** 2).sum() / 2.0)), 1e-9)
        # Lowlands are flat, hills stand out of them: a soft maximum of 0 and the waves.
        land: Floats = _SOFT * typical * np.logaddexp(0.0, (waves / typical + _LOWLAND) / _SOFT)
        if self.rivers:
            near = (np.minimum(self.river_distance(points, up_to=_FAR), _FAR) / _VALLEY) ** 3
            land = land * near / (near + 1.0)
        return land

    def river_distance(self, points: Floats, *, up_to: float = np.inf) -> Floats:
        """Metres to the middle of the nearest river, (n,); infinite where it is beyond ``up_to``."""
        if not self.rivers:
            return np.full(len(points), np.inf)
        distance: Floats = self._river_tree.query(points, distance_upper_bound=up_to)[0]
        return distance

    @cached_property
    def _river_tree(self) -> Any:
        return tree(self.rivers)


def plan_city(
    *, edges: int = 2000, seed: int = 0, rivers: int = 1, hills: float = 1.0, rings: int | None = None
) -> CityPlan:
    """The plan under ``generate_city`` with the same parameters; see there.

    >>> plan_city(edges=2000, seed=1).river_width
    64.0
    """
    _check(edges, rivers, hills, rings)
    rng = stream(seed, "city plan", 0)
    count = int(edges >= 900) + int(edges >= 40_000) if rings is None else rings
    # Small towns and towns between many rivers lose more at their borders; the rest is cut off.
    beside = 0.15 * min(rivers, 1) + 0.3 * count
    radius = _radius(edges + 220.0 + 0.05 * edges * rivers, beside)
    built = 0.93 * _radius(edges, beside)
    outline_waves = np.stack([0.09 * rng.random(4) / (1 + np.arange(4)), _turns(rng, 4)], axis=1)
    width = float(np.clip(0.04 * radius, 44.0, 64.0))
    courses: list[Floats] = []
    for number in range(rivers):
        courses.append(_tributary(rng, radius, courses[0]) if number else _river(rng, radius))
    plan = CityPlan(
        radius=radius,
        rivers=tuple(courses),
        river_width=width,
        avenues=_avenues(rng, radius),
        rings=tuple(_loop(rng, share * built, wobble=0.06) for share in (0.63, 0.31, 0.86)[:count]),
        outline_waves=outline_waves,
        hill_waves=np.zeros((1, 4)),
        parks=_parks(rng, radius),
    )
    return _with_hills(plan, rng, hills)


def _radius(edges: float, beside: float) -> float:
    """R with edges = (π/area) R² + beside · R: streets along rivers and motorways are denser."""
    density = np.pi / _AREA_PER_EDGE
    return float((np.sqrt(beside**2 + 4.0 * density * edges) - beside) / (2.0 * density))


def _check(edges: object, rivers: object, hills: object, rings: object) -> None:
    room = 1 + as_count(edges, "edges", FEWEST_EDGES, MOST_EDGES) // 1500
    if as_count(rivers, "rivers", 0, 4) > room:
        raise InputError(f"rivers is {rivers}; {edges} edges leave room for {room}: ask for more edges")
    as_number(hills, "hills", 0, 3)
    if rings is not None:
        as_count(rings, "rings", 0, 3)


# --- curves -----------------------------------------------------------------------------


def tree(courses: tuple[Floats, ...]) -> Any:
    """A search tree over the points of some courses."""
    from scipy.spatial import cKDTree

    return cKDTree(np.concatenate(courses) if courses else np.empty((0, 2)))


def resampled(course: Floats, step: float) -> Floats:
    """Points along a course about ``step`` metres apart, its ends among them."""
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(course, axis=0).T))])
    count = max(2, round(along[-1] / step) + 1)
    places = np.linspace(0.0, along[-1], count)
    return np.stack([np.interp(places, along, course[:, k]) for k in (0, 1)], axis=1)


def normals(course: Floats) -> Floats:
    """Unit vectors to the left of a course, (p, 2)."""
    forward = np.gradient(course, axis=0)
    forward /= np.hypot(*forward.T)[:, None]
    return np.stack([-forward[:, 1], forward[:, 0]], axis=1)


def _turns(rng: np.random.Generator, count: int) -> Floats:
    angles: Floats = 2.0 * np.pi * rng.random(count)
    return angles


def _winding(rng: np.random.Generator, along: Floats, reach: float, shortest: float) -> Floats:
    """Sideways metres of a winding line: three waves, the longest the widest."""
    lengths = shortest * np.array([1.0, 1.9, 3.7]) * (0.8 + 0.4 * rng.random(3))
    phases = _turns(rng, 3)
    waves = np.sin(2.0 * np.pi * along[:, None] / lengths + phases) * np.array([0.2, 0.35, 0.45])
    sideways: Floats = reach * waves.sum(axis=1)
    return sideways


def _river(rng: np.random.Generator, radius: float) -> Floats:
    angle = _turns(rng, 1)[0]
    along = np.arange(-1.6 * radius, 1.6 * radius + _STEP, _STEP)
    reach, shortest = min(0.35 * radius, 1100.0), max(min(1.3 * radius, 2600.0), 700.0)
    sideways = _winding(rng, along, reach, shortest) + radius * (0.5 * rng.random() - 0.25)
    return _turned(np.stack([along, sideways], axis=1), angle)


def _tributary(rng: np.random.Generator, radius: float, main: Floats) -> Floats:
    """From the edge of the map to a point of the main river, coming in from its side."""
    mouth = int(len(main) * (0.38 + 0.24 * rng.random()))
    side = 1.0 if rng.random() < 0.5 else -1.0
    outward = side * normals(main)[mouth]
    angle = np.arctan2(outward[1], outward[0]) + 0.8 * (rng.random() - 0.5)
    along = np.arange(0.0, 2.2 * radius, _STEP)
    sideways = _winding(rng, along, min(0.3 * radius, 900.0), max(min(radius, 2200.0), 700.0))
    sideways = (sideways - sideways[0]) * np.minimum(1.0, along / (0.4 * radius))
    course: Floats = _turned(np.stack([along, sideways], axis=1), angle) + main[mouth]
    return course[::-1]


def _avenues(rng: np.random.Generator, radius: float) -> tuple[Floats, ...]:
    """Radial avenues that begin a little off the centre, and boulevards around it."""
    count = int(np.clip(4 + radius / 900.0, 5, 11))
    angles = 2.0 * np.pi * (np.arange(count) + 0.7 * (rng.random(count) - 0.5)) / count + rng.random()
    courses = []
    for angle in angles:
        along = np.arange(min(0.07 * radius, 400.0), 1.3 * radius, _STEP)
        sideways = _winding(rng, along, 0.07 * radius, 0.9 * radius)
        sideways -= sideways[0]
        courses.append(_turned(np.stack([along, sideways], axis=1), angle))
    around = () if radius < 3000.0 else (0.12, 0.24, 0.42, 0.8)
    return (*courses, *(_loop(rng, share * radius) for share in around))


def _loop(rng: np.random.Generator, radius: float, wobble: float = 0.1) -> Floats:
    angle = np.linspace(0.0, 2.0 * np.pi, max(24, round(2.0 * np.pi * radius / _STEP)) + 1)
    reach = np.full(len(angle), radius)
    for number, phase in zip((2, 3, 5), _turns(rng, 3), strict=True):
        reach += radius * wobble * rng.random() * np.cos(number * angle + phase)
    reach[-1] = reach[0]
    course = reach[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    course[-1] = course[0]
    closed: Floats = course
    return closed


def _turned(points: Floats, angle: float) -> Floats:
    c, s = np.cos(angle), np.sin(angle)
    turned: Floats = points @ np.array([[c, s], [-s, c]])
    return turned


# --- hills and parks ----------------------------------------------------------------------


def _with_hills(plan: CityPlan, rng: np.random.Generator, hills: float) -> CityPlan:
    """Of several lands, all about equally steep, the one with the greatest difference in height."""
    away, angle, heading = plan.radius * np.sqrt(rng.random(4000)), _turns(rng, 4000), _turns(rng, 4000)
    start = away[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    step = _PROBE * np.stack([np.cos(heading), np.sin(heading)], axis=1)
    best, greatest = plan, -1.0
    for _ in range(_LANDS):
        land = replace(plan, hill_waves=_waves(rng, plan.radius))
        begin = land.height(start)
        grade = np.abs(land.height(start + step) - begin) / _PROBE
        usual, steep = np.quantile(grade, [_FLAT_SHARE, 0.9])
        # Heights go with the waves' amplitude. Land that is flat here and a cliff there counts less.
        wanted = _USUAL_GRADE / usual
        scale = min(wanted, _STEEP_GRADE / steep)
        score = float(np.ptp(np.quantile(begin, [0.04, 0.96])) * scale**2 / wanted)
        if score > greatest:
            greatest = score
            best = replace(plan, hill_waves=land.hill_waves * np.array([1.0, 1.0, 1.0, hills * scale]))
    return best


def _waves(rng: np.random.Generator, radius: float) -> Floats:
    """Waves of all directions, the longer the higher."""
    longest = float(np.clip(4.2 * radius, 2500.0, 8000.0))
    length = longest * 0.28 ** np.sqrt(rng.random(_WAVES))
    angle, phase = _turns(rng, _WAVES), _turns(rng, _WAVES)
    number = 2.0 * np.pi / length
    return np.stack([number * np.cos(angle), number * np.sin(angle), phase, length], axis=1)


def _parks(rng: np.random.Generator, radius: float) -> Floats:
    """Open spaces, more of them away from the centre, where no street goes."""
    count = max(3, round(np.pi * radius**2 / 2.2e6))
    away, angle = radius * (0.15 + 0.85 * rng.random(count)), _turns(rng, count)
    size = 110.0 + 190.0 * rng.random(count) ** 2
    return np.stack([away * np.cos(angle), away * np.sin(angle), size], axis=1)
