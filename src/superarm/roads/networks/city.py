"""Cities that exist nowhere: seeded streets, a river, hills and ring roads, of any size.

=================  ====================================================================
point              a complex number: metres to the east, and i times metres to the north
``R``, ``ρ``       radius of the city; distance from the centre over the outline's
``plan``           where rings are round; bending it makes the map
=================  ====================================================================

Districts stand on circles around the centre, so that their seams are circles and rays: ring roads,
avenues and main streets. Within a district blocks stand on a turned, jittered lattice, as in a real
town. ``city_land`` draws the land, ``city_streets`` the streets of the plan.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Bools, Floats, Ints, Rng
from superarm.core.arrays import repeated
from superarm.core.inputs import as_count, as_number
from superarm.core.streams import stream

from .city_land import draw_land
from .city_streets import Road, Streets, cut_streets, draw_streets
from .geography import pairs
from .line_graph import largest_part
from .road import VEHICLE_CLASSES, RoadNetwork

FEWEST_EDGES = 200
MOST_EDGES = 2_000_000
# The grade of one street in fifty.
_STEEP = 0.08
# Share of main crossings without left turns.
_NO_LEFT = 0.3


def generate_city(
    *, edges: int = 2000, seed: int = 0, hills: float = 1.0
) -> RoadNetwork:
    """Generate a city in which a passenger car can reach and leave every edge.

    Edge ids: ``r7`` and ``-r7`` are the two directions of a road, ``bridge…`` crosses the river,
    ``ring…`` is a fast road around the centre.

    Args:
        edges: About how many directed edges the city has.
        seed: The same seed gives the same city.
        hills: Scales the heights: 0 is flat; with 1 one street in fifty is steeper than 8 %.

    >>> city = generate_city(edges=1000, seed=3)
    >>> abs(len(city.line_graph()) - 1000) < 100
    True
    """
    as_count(edges, "edges", FEWEST_EDGES, MOST_EDGES)
    as_number(hills, "hills", 0, 3)
    # The order of the draws is part of what a seed means.
    rng = stream(seed, "city", 0)
    land = draw_land(edges, rng)
    all_streets = draw_streets(land, rng)
    streets = cut_streets(all_streets, land, edges)
    height = land.height(streets.places)
    bent_places = streets.places + land.bend(streets.places)
    streets = streets._replace(places=bent_places.round(2))
    # To the centimetre, and not below the straight line.
    centimetres = np.abs(streets.spans()) * 100.0
    length = np.ceil(centimetres - 1e-6) / 100.0
    height = height * _height_scale(streets, height, length, hills)
    name = f"city-{edges}-{seed}"
    return _build_network(name, streets, height.round(2), length, rng)


def _height_scale(
    streets: Streets, height: Floats, length: Floats, hills: float
) -> float:
    """Return the factor that makes one street in fifty as steep as it should be."""
    first_height, second_height = height[streets.ends].T
    climb = np.abs(second_height - first_height)
    steep = np.quantile(climb / length, 0.98)
    scale: float = hills * _STEEP / steep
    return scale


def _build_network(
    name: str, streets: Streets, height: Floats, length: Floats, rng: Rng
) -> RoadNetwork:
    """Build edges in both directions and the legal turns between them.

    Only what is strongly connected becomes part of the network.
    """
    forward = np.flatnonzero(streets.one_way >= 0)
    backward = np.flatnonzero(streets.one_way <= 0)
    street = np.concatenate([forward, backward])  # of each edge, (m,)
    is_back = np.arange(len(street)) >= len(forward)
    street_ends = streets.ends[street]
    ends = np.where(is_back[:, None], street_ends[:, ::-1], street_ends)
    turns = _draw_turns(streets, street, ends, rng)

    connected, turns = largest_part(np.arange(len(street)), turns, len(street))
    street = street[connected]
    is_back = is_back[connected]
    used_places, ends = np.unique(ends[connected], return_inverse=True)
    tail, head = ends.reshape(-1, 2).T
    all_junctions = np.column_stack([pairs(streets.places), height])
    junctions = all_junctions[used_places]
    permits = _permits(streets.road[street])
    first, second = turns.T
    turn_permits = {}
    for vehicle_class, may_use in permits.items():
        turn_permits[vehicle_class] = may_use[first] & may_use[second]
    return RoadNetwork(
        name=name,
        junction_ids=tuple(f"j{place}" for place in range(len(used_places))),
        junctions=junctions,
        edge_ids=_edge_ids(streets, street, is_back),
        tail=tail,
        head=head,
        length=length[street],
        speed=_speed_limits(streets, street) / 3.6,
        permits=permits,
        connections=turns,
        turn_permits=turn_permits,
    )


def _speed_limits(streets: Streets, street: Ints) -> Floats:
    """Return the speed limit of each edge, km/h, (m,)."""
    road = streets.road[street]
    from_centre = np.abs(streets.places)
    first_end, _ = streets.ends[street].T
    is_outside = from_centre[first_end] > 0.45 * from_centre.max()
    is_calm = streets.calm[street]
    is_ring = road == Road.RING
    is_fast = (road == Road.ARTERIAL) & is_outside
    return np.select([is_calm, is_ring, is_fast], [30.0, 90.0, 70.0], 50.0)


def _edge_ids(streets: Streets, street: Ints, is_back: Bools) -> tuple[str, ...]:
    """Return an id for each edge, such as "r12", and "-r12" in the other direction, (m,)."""
    is_bridge = streets.bridge[street]
    is_ring = streets.road[street] == Road.RING
    sign = np.where(is_back, "-", "")
    word = np.select([is_bridge, is_ring], ["bridge", "ring"], "r")
    number = street.astype(str)
    prefix = np.char.add(sign, word)
    ids = np.char.add(prefix, number)
    return tuple(ids.tolist())


def _permits(road: Ints) -> dict[str, Bools]:
    """Return which edges each vehicle class may use, (m,) each."""
    permits = {}
    for vehicle_class in VEHICLE_CLASSES:
        permits[vehicle_class] = np.ones(len(road), dtype=bool)
    for vehicle_class in ("bicycle", "pedestrian"):
        permits[vehicle_class] = road != Road.RING
    return permits


def _draw_turns(streets: Streets, street: Ints, ends: Ints, rng: Rng) -> Ints:
    """Draw the legal turns, (c, 2): from each edge into those that leave where it ends.

    One turns back only where there is no other way; where a ban would leave none, it is not posted.
    """
    tail, head = ends.T
    places = len(streets.places)
    first, second = _meeting_edges(tail, head, places)

    heading = streets.places[head] - streets.places[tail]
    angle = np.angle(heading[second] / heading[first])
    is_left = (angle > 0.7) & (angle < 2.7)
    is_main = streets.road >= Road.COLLECTOR
    is_strict = _draw_strict_crossings(streets.ends[is_main], places, rng)

    first_street = street[first]
    is_uturn = first_street == street[second]
    is_banned = is_left & is_main[first_street]
    is_banned &= is_strict[head[first]]
    # Bans are lifted first, then turning back is allowed.
    edges = len(street)
    is_banned &= _has_other_way(first, is_uturn | is_banned, edges)
    is_uturn &= _has_other_way(first, is_uturn | is_banned, edges)
    is_legal = ~(is_banned | is_uturn)
    all_turns = np.stack([first, second], axis=1)
    turns: Ints = all_turns[is_legal]
    return turns


def _draw_strict_crossings(main_ends: Ints, places: int, rng: Rng) -> Bools:
    """Draw the crossings of main roads where left turns are banned, (places,)."""
    main_count = np.bincount(main_ends.ravel(), minlength=places)
    is_strict: Bools = rng.random(places) < _NO_LEFT
    is_strict &= main_count >= 3
    return is_strict


def _meeting_edges(tail: Ints, head: Ints, places: int) -> tuple[Ints, Ints]:
    """Return all pairs of edges of which the second leaves where the first ends, (c,) each."""
    by_tail = np.argsort(tail, kind="stable")
    sorted_tail = tail[by_tail]
    # Edges that leave place p are by_tail[begins[p] : begins[p + 1]].
    begins = np.searchsorted(sorted_tail, np.arange(places + 1))
    counts = np.diff(begins)
    first, number = repeated(counts[head])
    meeting_place = head[first]
    begin = begins[meeting_place]
    second = by_tail[begin + number]
    return first, second


def _has_other_way(first: Ints, is_barred: Bools, edges: int) -> Bools:
    """Return for each turn whether its first edge has a turn that is not barred."""
    ways = np.bincount(first[~is_barred], minlength=edges)
    return ways[first] > 0
