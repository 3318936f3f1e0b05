"""Hilly cities out of a seed: networks for demonstrations, tests and benchmarks.

The steps: a plan (:mod:`.terrain`), the street fabric (:mod:`.fabric`), a cut to the wanted size,
the rules of the road, motorways (:mod:`.motorway`), heights and turns (:mod:`.assembly`).
"""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.errors import InputError
from superarm.networks.road import RoadNetwork
from superarm.streams import stream

from .assembly import Access, Streets, assemble
from .fabric import Fabric, Road, select, weave
from .motorway import COURSE_POINTS, build_motorways
from .terrain import CityPlan, plan_city

_TOLERANCE, _PASSES = 0.04, 7
"""How near to the number of edges asked for is near enough, and how often to try."""


def generate_city(
    *,
    edges: int = 2000,
    seed: int = 0,
    rivers: int = 1,
    hills: float = 1.0,
    rings: int | None = None,
    one_way: float = 0.15,
    missing: float = 0.08,
    no_left: float = 0.3,
    dead_ends: float = 0.02,
) -> RoadNetwork:
    """A city with about ``edges`` directed edges that a passenger car can use.

    ``rivers`` (0 … 4, one and one more per 1,500 edges): the first crosses the town, others flow
    into it; few bridges cross them.
    ``hills`` scales the mean slope: 0 is flat, 1 gives height differences of 100 m and more, and
    energy won back on a fifth to a third of the edges. ``rings``: motorways around the centre;
    ``None`` takes as many as suit the size. Shares: ``one_way`` of the local streets,
    ``missing`` of them left out, ``dead_ends`` of them closed at one end, ``no_left`` of the
    crossings of main roads without left turns. Edge ids: ``r7`` and ``-r7`` are the two directions
    of a road, ``bridge…`` crosses a river, ``ring…`` is motorway and ``ramp…`` leads on or off it.

    >>> city = generate_city(edges=1000, seed=3)
    >>> abs(len(city.line_graph()) - 1000) < 100
    True
    """
    for name, share in (
        ("one_way", one_way),
        ("missing", missing),
        ("no_left", no_left),
        ("dead_ends", dead_ends),
    ):
        if not 0.0 <= share <= 0.5:
            raise InputError(f"{name} is {share!r}; it is a share and must be from 0 to 0.5")
    plan = plan_city(edges=edges, seed=seed, rivers=rivers, hills=hills, rings=rings)
    rng = stream(seed, "city streets", 0)
    fabric = weave(plan, rng, missing)
    direction = _one_way(fabric, rng, one_way)
    wanted, name = float(edges), f"city-{edges}-{seed}"
    best: RoadNetwork | None = None
    for _ in range(_PASSES):
        rng = stream(seed, "city rules", 0)
        inner, ways = _cut(fabric, direction, plan, wanted)
        streets = _with_motorways(_ruled(inner, ways, plan, rng, dead_ends), inner, plan, rng)
        city = assemble(name, streets, plan, rng, no_left)
        if best is None or abs(_cars(city) - edges) < abs(_cars(best) - edges):
            best = city
        if abs(_cars(best) - edges) <= _TOLERANCE * edges:
            break
        wanted += edges - _cars(city)  # motorways and what is cut off can not be foreseen
    assert best is not None
    return best


def _cars(city: RoadNetwork) -> int:
    return int(city.permits["passenger"].sum())


# --- rules of the road --------------------------------------------------------------------


def _one_way(fabric: Fabric, rng: np.random.Generator, share: float) -> Ints:
    """+1 or −1 for streets with one direction, 0 for both.

    Streets of a district that lie on one line have the same fate, and parallel ones alternate.
    """
    begin, end = (fabric.places[fabric.streets[:, k]] for k in (0, 1))
    forward = (end - begin) / np.hypot(*(end - begin).T)[:, None]
    flip = np.where(forward[:, 0] + 0.2 * forward[:, 1] >= 0.0, 1, -1)
    middle = (begin + end) / 2.0
    aside = flip * (forward[:, 0] * middle[:, 1] - forward[:, 1] * middle[:, 0])
    stripe = np.floor(aside / 110.0).astype(np.int64)
    steep = (np.abs(forward[:, 0]) < np.abs(forward[:, 1])).astype(np.int64)
    table = rng.random(8191)
    draw = table[(fabric.district * 7919 + stripe * 104729 + steep * 1299709) % len(table)]
    chosen = (fabric.road == Road.LOCAL) & (draw < share)
    return np.where(chosen, flip * np.where(stripe % 2 == 0, 1, -1), 0)


def _cut(fabric: Fabric, direction: Ints, plan: CityPlan, edges: float) -> tuple[Fabric, Ints]:
    """The inner part with the wanted number of directed edges, in one piece."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    level = plan.outline(fabric.places)[fabric.streets].max(axis=1)
    order = np.argsort(level, kind="stable")
    count = np.cumsum(np.where(direction[order] == 0, 2, 1))
    kept = order[count <= edges]
    direction, fabric = direction[kept], select(fabric, kept)
    size = len(fabric.places)
    links = csr_array((np.ones(len(kept)), tuple(fabric.streets.T)), shape=(size, size))
    label = connected_components(links, directed=False)[1][fabric.streets[:, 0]]
    main = np.flatnonzero(label == np.bincount(label).argmax())
    return select(fabric, main), direction[main]


def _ruled(
    fabric: Fabric, direction: Ints, plan: CityPlan, rng: np.random.Generator, dead_ends: float
) -> Streets:
    """Directions, speed limits, permissions and courses of the streets."""
    count = len(fabric.streets)
    ends = np.where((direction < 0)[:, None], fabric.streets[:, ::-1], fabric.streets)
    centre = plan.outline(fabric.places)[ends].mean(axis=1)
    local = fabric.road == Road.LOCAL
    plain = local & ~fabric.bridge & (fabric.crossing < 0)
    district = rng.random(int(fabric.district.max()) + 2)[fabric.district]
    calm = local & (district < np.where(centre < 0.3, 0.9, 0.6))
    fast = (fabric.road == Road.ARTERIAL) & (centre > 0.45)
    speed = np.select([calm, fast], [30.0, 70.0], 50.0)
    speed[(fabric.road == Road.COLLECTOR) & (centre > 0.8) & (district < 0.3)] = 60.0
    draw, inner = rng.random(count), plain & (direction == 0)
    access = np.where(plain & (district < 0.25), Access.NO_TRUCKS, Access.ALL)
    access = np.where(inner & (draw < 0.006), Access.BUSES, access)
    access = np.where(inner & (draw > np.where(centre < 0.2, 0.96, 0.996)), Access.WALKERS, access)
    places, ends, closed = _closed_ends(fabric.places, ends, plain, rng, dead_ends)
    begin, end = places[ends[:, 0]], places[ends[:, 1]]
    bent = plain & (rng.random(count) < np.where(centre < 0.3, 0.15, 0.5)) & ~closed
    bulge = np.where(bent, 0.16 * (rng.random(count) - 0.5), 0.0)
    t = np.linspace(0.0, 1.0, COURSE_POINTS)[None, :, None]
    across = np.stack([begin[:, 1] - end[:, 1], end[:, 0] - begin[:, 0]], axis=1)
    course = begin[:, None] * (1.0 - t) + end[:, None] * t
    course += (4.0 * bulge)[:, None, None] * (t - t**2) * across[:, None]
    return Streets(
        places=places,
        ends=ends,
        road=fabric.road,
        speed=speed / 3.6,
        one_way=(direction != 0) & ~closed,
        access=np.where(closed, Access.ALL, access),
        course=course,
        bent=bent,
        bridge=fabric.bridge,
    )


def _closed_ends(
    places: Floats, ends: Ints, plain: Bools, rng: np.random.Generator, share: float
) -> tuple[Floats, Ints, Bools]:
    """Some local streets stop short of their second end: cul-de-sacs, on a new place each."""
    span = places[ends[:, 1]] - places[ends[:, 0]]
    closed = plain & (np.hypot(*span.T) > 110.0) & (rng.random(len(ends)) < share)
    reach = 0.5 + 0.25 * rng.random(int(closed.sum()))
    stops = places[ends[closed, 0]] + reach[:, None] * span[closed]
    ends = ends.copy()
    ends[closed, 1] = len(places) + np.arange(len(stops))
    return np.concatenate([places, stops]), ends, closed


def _with_motorways(
    streets: Streets, fabric: Fabric, plan: CityPlan, rng: np.random.Generator
) -> Streets:
    motorway = build_motorways(plan, fabric)
    count = len(motorway.pieces)
    shift = len(streets.places) - len(fabric.places)  # places of cul-de-sacs come in between
    pieces = motorway.pieces + shift * (motorway.pieces >= len(fabric.places))
    limits = np.array([90.0, 100.0, 110.0])[(3.0 * rng.random(len(plan.rings) + 1)).astype(int)]
    speed = np.where(motorway.road == Road.RAMP, 60.0, limits[motorway.ring])
    return Streets(
        places=np.concatenate([streets.places, motorway.places]),
        ends=np.concatenate([streets.ends, pieces]),
        road=np.concatenate([streets.road, motorway.road]),
        speed=np.concatenate([streets.speed, speed / 3.6]),
        one_way=np.concatenate([streets.one_way, np.ones(count, dtype=bool)]),
        access=np.concatenate([streets.access, np.full(count, Access.MOTOR)]),
        course=np.concatenate([streets.course, motorway.courses]),
        bent=np.concatenate([streets.bent, np.ones(count, dtype=bool)]),
        bridge=np.concatenate([streets.bridge, np.zeros(count, dtype=bool)]),
    )
