"""From streets to a road network: heights, edges in both directions, legal turns.

=================  ==================================================================
``street``         a road between two places, with one or two directions
``course``         the line a street follows, five points
``land``, ``z``    height of the bare land, and of the road on it
=================  ==================================================================

Heights: z_v = min over u of (land_u + climb(u, v)), where climb is the most that the roads from u to
v may rise, length times steepest grade. It is the highest surface not above the land on which no
road is too steep: roads are cut into hills.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.networks.road import VEHICLE_CLASSES, RoadNetwork

from .fabric import Road
from .terrain import CityPlan

_GRADE = np.array([0.12, 0.11, 0.10, 0.09, 0.06])
"""Steepest grade by class of road."""


class Access(IntEnum):
    """Who may use a street."""

    ALL = 0
    NO_TRUCKS = 1
    BUSES = 2
    WALKERS = 3
    MOTOR = 4


_CLOSED_TO = {
    Access.ALL: (),
    Access.NO_TRUCKS: ("truck",),
    Access.BUSES: ("passenger", "delivery", "truck", "pedestrian"),
    Access.WALKERS: ("passenger", "taxi", "delivery", "truck", "bus"),
    Access.MOTOR: ("bicycle", "pedestrian"),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Streets:
    """Streets with everything that is known about them; one row each."""

    places: Floats
    ends: Ints
    road: Ints
    speed: Floats
    one_way: Bools
    access: Ints
    course: Floats
    bent: Bools
    bridge: Bools


def assemble(
    name: str, streets: Streets, plan: CityPlan, rng: np.random.Generator, no_left: float
) -> RoadNetwork:
    """The network of the streets that a car can reach and leave again, and of those not for cars."""
    streets = replace(streets, places=streets.places.round(2), course=streets.course.round(2))
    steps = np.diff(streets.course, axis=1)
    # Rounded up to a centimetre: no course is shorter than the straight line.
    length = np.ceil(np.hypot(steps[..., 0], steps[..., 1]).sum(axis=1) * 100.0 - 1e-6) / 100.0
    height = _heights(streets, length, plan)
    two_way = np.flatnonzero(~streets.one_way)
    street = np.concatenate([np.arange(len(streets.ends)), two_way])
    back = np.arange(len(street)) >= len(streets.ends)
    tail = np.where(back, streets.ends[street, 1], streets.ends[street, 0])
    head = np.where(back, streets.ends[street, 0], streets.ends[street, 1])
    ids = _edge_ids(streets)
    permits = {
        who: np.array([who not in _CLOSED_TO[access] for access in Access])[streets.access[street]]
        for who in VEHICLE_CLASSES
    }
    turns = _turns(streets, street, back, tail, head, permits["passenger"], rng, no_left)
    pairs = zip(streets.course, streets.bent.tolist(), strict=True)
    courses = [course if bent else course[::4] for course, bent in pairs]
    full = RoadNetwork(
        name=name,
        junction_ids=tuple(f"j{number}" for number in range(len(streets.places))),
        junctions=np.column_stack([streets.places, height]),
        edge_ids=tuple(
            f"-{ids[number]}" if reverse else ids[number]
            for number, reverse in zip(street.tolist(), back.tolist(), strict=True)
        ),
        tail=tail,
        head=head,
        length=length[street],
        speed=streets.speed[street],
        permits=permits,
        connections=turns,
        turn_permits={who: may[turns].all(axis=1) for who, may in permits.items()},
        shapes=tuple(
            courses[number][::-1] if reverse else courses[number]
            for number, reverse in zip(street.tolist(), back.tolist(), strict=True)
        ),
    )
    return _reachable(full)


def _edge_ids(streets: Streets) -> list[str]:
    kind = np.select(
        [streets.bridge, streets.road == Road.RAMP, streets.road == Road.MOTORWAY], [1, 2, 3], 0
    )
    words, seen, ids = ("r", "bridge", "ramp", "ring"), [0, 0, 0, 0], []
    for which in kind.tolist():
        ids.append(f"{words[which]}{seen[which]}")
        seen[which] += 1
    return ids


def _heights(streets: Streets, length: Floats, plan: CityPlan) -> Floats:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    land = plan.height(streets.places)
    count, lowest = len(land), float(land.min())
    begin, end = streets.ends.T
    climb = length * _GRADE[streets.road]
    # One more node, from which every place can be reached at the price of its land's height.
    first = np.concatenate([begin, end, np.full(count, count)])
    second = np.concatenate([end, begin, np.arange(count)])
    price = np.concatenate([climb, climb, land - lowest + 1.0])
    order = np.lexsort((price, second, first))
    first, second, price = first[order], second[order], price[order]
    fresh = np.concatenate([[True], (np.diff(first) != 0) | (np.diff(second) != 0)])
    graph = csr_array((price[fresh], (first[fresh], second[fresh])), shape=(count + 1, count + 1))
    height: Floats = dijkstra(graph, indices=np.array([count]))[0, :count] - 1.0
    return height.round(2)


def _turns(
    streets: Streets,
    street: Ints,
    back: Bools,
    tail: Ints,
    head: Ints,
    cars: Bools,
    rng: np.random.Generator,
    no_left: float,
) -> Ints:
    """From each edge into those that leave where it ends, less what is forbidden."""
    by_tail = np.argsort(tail, kind="stable")
    begins = np.searchsorted(tail[by_tail], np.arange(len(streets.places) + 1))
    count = begins[head + 1] - begins[head]
    first = np.repeat(np.arange(len(street)), count)
    within = np.arange(len(first)) - np.repeat(np.cumsum(count) - count, count)
    second = by_tail[begins[head[first]] + within]
    uturn = street[first] == street[second]
    course = streets.course[street]
    arriving = np.where(back[:, None], course[:, 0] - course[:, 1], course[:, -1] - course[:, -2])
    leaving = np.where(back[:, None], course[:, -2] - course[:, -1], course[:, 1] - course[:, 0])
    a, b = arriving[first], leaving[second]
    angle = np.arctan2(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0], (a * b).sum(axis=1))
    left = (angle > 0.7) & (angle < 2.7)
    main = streets.road >= Road.COLLECTOR
    meet = np.bincount(streets.ends[main].ravel(), minlength=len(streets.places))
    strict = (meet >= 3) & (rng.random(len(meet)) < no_left)
    turnaround = rng.random(len(meet)) < 0.03
    at = head[first]
    banned = ~uturn & left & strict[at] & main[street[first]]
    # Where nothing else is left, a ban would make a trap: it is not posted.
    legal = ~uturn & ~banned & cars[first] & cars[second]
    stuck = np.bincount(first[legal], minlength=len(street)) == 0
    banned &= ~stuck[first]
    legal = ~uturn & ~banned & cars[first] & cars[second]
    stuck = np.bincount(first[legal], minlength=len(street)) == 0
    kept = np.where(uturn, stuck[first] | turnaround[at], ~banned)
    return np.stack([first[kept], second[kept]], axis=1)


def _reachable(network: RoadNetwork) -> RoadNetwork:
    """The network less the edges that cars may use but not both reach and leave again."""
    driven = network.line_graph("passenger").edges
    met = np.zeros(len(network.junction_ids), dtype=bool)
    met[network.tail[driven]] = met[network.head[driven]] = True
    kept = ~network.permits["passenger"] & met[network.tail] & met[network.head]
    kept[driven] = True
    edges = np.flatnonzero(kept)
    number = np.cumsum(kept) - 1
    turns = kept[network.connections].all(axis=1)
    used = np.zeros(len(network.junction_ids), dtype=bool)
    used[network.tail[edges]] = used[network.head[edges]] = True
    place = np.cumsum(used) - 1
    shapes = network.shapes
    return RoadNetwork(
        name=network.name,
        junction_ids=tuple(f"j{number}" for number in range(int(used.sum()))),
        junctions=network.junctions[used],
        edge_ids=tuple(network.edge_ids[edge] for edge in edges),
        tail=place[network.tail[edges]],
        head=place[network.head[edges]],
        length=network.length[edges],
        speed=network.speed[edges],
        permits={who: may[edges] for who, may in network.permits.items()},
        connections=number[network.connections[turns]],
        turn_permits={who: may[turns] for who, may in network.turn_permits.items()},
        shapes=None if shapes is None else tuple(shapes[edge] for edge in edges),
    )
