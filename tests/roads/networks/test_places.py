"""Edges by place, by street, along lines and within areas."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import FileError, InputError, UnknownArmError
from superarm.roads.networks import LineGraph, RoadNetwork, generate_city
from superarm.roads.networks import places as module
from superarm.roads.networks.geography import from_utm, mercator, metres_per_radian
from superarm.roads.networks.pieces import Budget, Pieces
from superarm.roads.networks.places import Places
from superarm.roads.routing.closures import closed_by

OFFSET = np.array([300_000.0, 5_400_000.0])


def degrees(metres: Any) -> Floats:
    return from_utm(np.atleast_2d(metres) + OFFSET, 32)


def bent(network: RoadNetwork) -> RoadNetwork:
    """On Earth, with a bend in every road."""
    begin, end = (
        network.junctions[network.tail, :2],
        network.junctions[network.head, :2],
    )
    across = (end - begin)[:, ::-1] * [0.15, -0.15]
    shapes = tuple(np.stack([begin, 0.5 * (begin + end) + across, end], axis=1))
    return replace(network, lon_lat=degrees(network.junctions[:, :2]), shapes=shapes)


@pytest.fixture(scope="module")
def graph() -> LineGraph:
    return bent(generate_city(edges=900, seed=4)).line_graph()


def distances(graph: LineGraph, point: Floats) -> Floats:
    """From a point to every edge, segment by segment, in the network's own metres."""
    best = np.full(len(graph), np.inf)
    for number, edge in enumerate(graph.edges):
        shape = graph.network.shapes[edge]
        for begin, end in pairwise(shape):
            step = end - begin
            share = np.clip((point - begin) @ step / max(step @ step, 1e-12), 0.0, 1.0)
            best[number] = min(
                best[number], float(np.hypot(*(begin + share * step - point)))
            )
    return best


# --- the map -------------------------------------------------------------------------------


@pytest.mark.parametrize("zone", [31, 32])
def test_small_shapes_keep_their_size_on_mercators_map(zone: int) -> None:
    """Against UTM, of which the scale k is known: 0.9996·(1 + E²/2R²), E metres from its meridian."""
    rng = np.random.default_rng(0)
    for north in (0.0, 3e6, 5.5e6, 7.8e6):
        east = rng.uniform(-3e5, 3e5)
        steps = rng.uniform(-300.0, 300.0, size=(40, 2))
        places = from_utm(steps + np.array([500_000.0 + east, north]), zone)
        middle = from_utm([[500_000.0 + east, north]], zone)
        away = np.abs(mercator(places) - mercator(middle)) * metres_per_radian(
            middle[0, 1]
        )
        scale = 0.9996 * (1.0 + 0.5 * (east / 6.37e6) ** 2)
        # Mercator's scale changes by tan φ / R a metre: 2e-4 of 300 m, and halved on average.
        np.testing.assert_allclose(away, np.hypot(*steps.T) / scale, rtol=2e-4)


@pytest.mark.slow
def test_the_nearest_edge_is_the_nearest(graph: LineGraph) -> None:
    """Against all distances, in the metres of the network, which on Earth are 1/k as long."""
    places, rng = Places(graph), np.random.default_rng(1)
    low, high = (
        graph.network.junctions[:, :2].min(axis=0),
        graph.network.junctions[:, :2].max(axis=0),
    )
    scale = 0.9996 * (1.0 + 0.5 * (200_000.0 / 6.37e6) ** 2)
    compared = 0
    for point in rng.uniform(low, high, size=(60, 2)):
        away = distances(graph, point)
        if away.min() > 400.0:
            continue
        longitude, latitude = degrees(point)[0]
        match = places.find((latitude, longitude))
        assert away[match.edges[0]] == pytest.approx(away.min(), abs=0.05)
        assert match.how.endswith(" m away")
        assert float(match.how.split()[0]) == pytest.approx(
            away.min() / scale, abs=0.5 + 0.05
        )
        assert places.find(f"{latitude},{longitude}") == match
        compared += 1
    assert compared > 30


def test_both_directions_of_a_road_are_found(graph: LineGraph) -> None:
    network, places = graph.network, Places(graph)
    tail, head = network.tail[graph.edges], network.head[graph.edges]
    for edge in range(0, len(graph), 37):
        middle = network.shapes[graph.edges[edge]][1]
        longitude, latitude = degrees(middle)[0]
        ways = places.find((latitude, longitude)).edges
        twins = np.flatnonzero((tail == head[edge]) & (head == tail[edge]))
        near = [
            candidate
            for candidate in twins
            if distances(graph, middle)[candidate] <= 15.0
        ]
        assert set(ways) == {edge, *near}


def test_where_on_its_edges_a_place_lies(graph: LineGraph) -> None:
    """Against many points along each course, in the network's metres; whole edges have no place."""
    places, rng = Places(graph), np.random.default_rng(2)
    for edge in rng.integers(len(graph), size=30):
        course = graph.course(int(edge))
        point = (
            course[0]
            + rng.uniform(-0.2, 1.2) * (course[-1] - course[0])
            + rng.normal(0, 5, size=2)
        )
        longitude, latitude = degrees(point)[0]
        match = places.find((latitude, longitude))
        assert match.shares is not None
        for way, share in zip(match.edges, match.shares, strict=True):
            corners = graph.course(way)
            along = np.concatenate(
                [[0.0], np.cumsum(np.hypot(*np.diff(corners, axis=0).T))]
            )
            dense = np.linspace(0.0, along[-1], 20_001)
            line = np.stack(
                [np.interp(dense, along, corners[:, axis]) for axis in (0, 1)], axis=1
            )
            away = np.hypot(*(line - point).T)
            distance = share * along[-1]
            on_edge = np.array(
                [np.interp(distance, along, corners[:, axis]) for axis in (0, 1)]
            )
            assert np.hypot(*(on_edge - point)) == pytest.approx(away.min(), abs=0.05)
    assert places.find(graph.ids[3]).shares is None


def test_places_that_are_refused(graph: LineGraph) -> None:
    places, (west, south) = Places(graph), graph.network.lon_lat.min(axis=0)
    with pytest.raises(
        UnknownArmError,
        match=r"km from the nearest usable edge, .*; the limit is 500 m. Pass lat",
    ):
        places.find(f"{south - 0.1},{west}")
    east, north = graph.network.lon_lat.mean(axis=0)
    with pytest.raises(UnknownArmError, match="Did you swap them"):
        places.find((east, north))
    with pytest.raises(UnknownArmError, match="is not on Earth; latitude comes first"):
        places.find("149.6,6.1")
    for pole in (-90.0, 89.99999, 90.0):
        with pytest.raises(
            UnknownArmError, match=r"km from the nearest usable edge, .*"
        ) as error:
            places.find((pole, west))
        stated = re.search(r"is ([0-9.]+) km from", str(error.value))
        assert stated is not None
        quarter = 10_019.0  # km from the equator to a pole
        degrees = abs(pole - south)
        assert float(stated[1]) == pytest.approx(quarter * degrees / 90.0, abs=20.0)
    for odd in (None, 5, (49.6,), (1.0, 2.0, 3.0), ("a", "b"), b"49.6,6.1", 1j):
        with pytest.raises(InputError, match=r"a place must be an edge id"):
            places.find(odd)  # type: ignore[arg-type]
    with pytest.raises(UnknownArmError) as error:
        graph.number("x" * 1_000_000)
    assert len(str(error.value)) < 300
    nowhere = Places(generate_city(edges=300, seed=1).line_graph())
    with pytest.raises(InputError, match="no geographic reference"):
        nowhere.find("49.6,6.1")


def test_edge_id_takes_precedence_over_other_readings(graph: LineGraph) -> None:
    network = graph.network
    odd = replace(network, edge_ids=("1.5,2.5", *network.edge_ids[1:])).line_graph()
    assert Places(odd).find("1.5,2.5").edges == (odd.number("1.5,2.5"),)


# --- streets -------------------------------------------------------------------------------


def named(graph: LineGraph, **streets: list[int]) -> LineGraph:
    names = [""] * len(graph.network.edge_ids)
    for name, edges in streets.items():
        for edge in edges:
            names[graph.edges[edge]] = name.replace("_", " ")
    return replace(graph.network, street_names=tuple(names)).line_graph()


def test_streets_by_name(graph: LineGraph) -> None:
    city = named(
        graph, Rue_de_la_Liberté=[3, 4, 5, 6], Rue_du_Fossé=[20], Große_Straße=[40, 41]
    )
    places = Places(city)
    for query in (
        "rue de la liberte",
        "RUE DE LA  LIBERTÉ",
        "liberte",
        "rue de la libertee",
    ):
        match = places.find(query)
        assert match.place == "Rue de la Liberté"
        assert match.how == "nearest to the middle of the street"
        assert set(match.edges) <= {3, 4, 5, 6}
    assert places.find("grosse strasse").edges[0] in (40, 41)
    assert places.find("Rue du Fossé")[:3] == ((20,), "Rue du Fossé", "")
    assert places.find("Rue du Fossé").shares == pytest.approx((0.5,), abs=0.05)
    assert sorted(places.street("liberté")) == [3, 4, 5, 6]
    with pytest.raises(
        UnknownArmError, match=r"2 streets of .* fit 'rue', such as 'Rue de la Lib"
    ):
        places.find("rue")
    with pytest.raises(
        UnknownArmError, match="no edge and no street 'Rue de la Paix'; did you mean"
    ):
        places.find("Rue de la Paix")
    with pytest.raises(UnknownArmError, match=r"no edge and no street 'xyz'$"):
        places.find("xyz")
    with pytest.raises(UnknownArmError, match="has no edge 'rue'"):
        Places(graph).find("rue")


def test_the_edge_of_a_street_is_the_one_nearest_to_its_middle(
    graph: LineGraph,
) -> None:
    edges = list(range(10, 30))
    city = named(graph, Ring=edges)
    nearest = Places(city).find("ring").edges[0]
    shapes = [city.network.shapes[city.edges[edge]] for edge in edges]
    begin, end = (
        np.concatenate([shape[part] for shape in shapes])
        for part in (slice(-1), slice(1, None))
    )
    weights = np.hypot(*(end - begin).T)
    middle = np.average(0.5 * (begin + end), axis=0, weights=weights)
    away = distances(city, middle)[edges]
    assert away[edges.index(nearest)] == pytest.approx(away.min(), abs=0.5)


def test_streets_need_no_place_on_earth() -> None:
    graph = generate_city(edges=300, seed=1).line_graph()
    city = named(graph, Ring=[5, 6, 7])
    assert Places(city).find("ring").edges[0] in (5, 6, 7)


# --- lines and areas -----------------------------------------------------------------------


def test_edges_along_a_line_are_those_that_lie_on_it(graph: LineGraph) -> None:
    """A line drawn 3 m from a road closes it, its other direction, and none that leaves the line."""
    network, places = graph.network, Places(graph)
    tail, head = network.tail[graph.edges], network.head[graph.edges]
    for edge in range(0, len(graph), 53):
        shape = network.shapes[graph.edges[edge]]
        step = shape[-1] - shape[0]
        line = shape + 3.0 * np.array([step[1], -step[0]]) / np.hypot(*step)
        edges = set(places.along(degrees(line).tolist()).tolist())
        back = np.flatnonzero((tail == head[edge]) & (head == tail[edge])).tolist()
        near = [
            candidate
            for candidate in back
            if distances_to(graph, candidate, line).max() <= 9.5
        ]
        assert {edge, *near} <= edges
        for other in edges:
            away = distances_to(graph, other, line)
            share = np.mean(away <= 10.5)
            assert share >= 0.45 or share * graph.length[other] >= 25.0


def distances_to(graph: LineGraph, edge: int, line: Floats) -> Floats:
    """From places along an edge to the nearest of the places along a line."""
    course = _dense(graph.network.shapes[graph.edges[edge]])
    return (
        np.square(course[:, None] - _dense(line)[None]).sum(axis=2).min(axis=1) ** 0.5
    )


def _dense(shape: Floats) -> Floats:
    parts = np.linspace(0.0, 1.0, 80)[:, None]
    return np.concatenate([a + (b - a) * parts for a, b in pairwise(shape)])


def test_a_line_across_a_road_does_not_close_it(graph: LineGraph) -> None:
    network, places = graph.network, Places(graph)
    long = int(np.argmax(graph.length))
    shape = network.shapes[graph.edges[long]]
    middle, step = 0.5 * (shape[0] + shape[1]), shape[1] - shape[0]
    across = np.array([step[1], -step[0]]) / np.hypot(*step)
    line = [middle - 8.0 * across, middle + 8.0 * across]
    assert long not in places.along(degrees(line).tolist())


@pytest.mark.parametrize(
    ("askew", "closed"), [(25.0, True), (-25.0, True), (35.0, False)]
)
def test_a_line_that_is_too_askew_does_not_close_a_road(
    graph: LineGraph, askew: float, closed: bool
) -> None:
    """For more than 30 m within 10 m of it, but more than 30° askew."""
    shapes = [graph.network.shapes[edge] for edge in graph.edges]
    lengths = [np.hypot(*np.diff(shape, axis=0).T) for shape in shapes]
    edge = int(np.argmax([pieces.max() for pieces in lengths]))
    part = int(lengths[edge].argmax())
    begin, end = shapes[edge][part : part + 2] @ [1.0, 1.0j]
    along = np.exp(1j * np.radians(askew)) * (end - begin) / abs(end - begin)
    line = [0.5 * (begin + end) + far * along for far in (-25.0, 25.0)]
    assert abs(end - begin) > 60.0
    edges = Places(graph).along(
        degrees(np.array([[point.real, point.imag] for point in line])).tolist()
    )
    assert (edge in edges) == closed


@pytest.mark.parametrize(
    ("length", "metres", "closed"),
    [(40.0, 6.0, False), (40.0, 14.0, True), (200.0, 14.0, False), (200.0, 26.0, True)],
)
def test_a_line_closes_half_of_a_road_or_30_metres(
    length: float, metres: float, closed: bool
) -> None:
    """A line that ends on a road, beyond which 10 m more are near it."""
    both = {"passenger": [True, True]}
    road = RoadNetwork(
        name="road",
        junction_ids=("a", "b"),
        junctions=[[0.0, 0.0, 0.0], [length, 0.0, 0.0]],
        edge_ids=("there", "back"),
        tail=[0, 1],
        head=[1, 0],
        length=[length] * 2,
        speed=[10.0] * 2,
        permits=both,
        connections=[[0, 1], [1, 0]],
        turn_permits=both,
        lon_lat=degrees([[0.0, 0.0], [length, 0.0]]),
    ).line_graph()
    edges = Places(road).along(degrees([[-50.0, 0.0], [metres, 0.0]]).tolist())
    assert edges.tolist() == ([0, 1] if closed else [])


def test_edges_within_an_area(graph: LineGraph) -> None:
    """Against every edge, sampled by the metre; an edge with a part inside is in."""
    network, places = graph.network, Places(graph)
    centre = network.junctions[:, :2].mean(axis=0)
    corner = np.array([[-200.0, -150.0], [260.0, -180.0], [30.0, 320.0]])
    hole = np.array([[-30.0, -30.0], [60.0, -30.0], [10.0, 60.0]])
    edges = places.within([degrees(centre + ring).tolist() for ring in (corner, hole)])

    def inside(points: Floats, triangle: Floats) -> Any:
        a, b, c = triangle + centre
        sides = [
            (q - p) @ [[0.0, 1.0], [-1.0, 0.0]] @ (points - p).T
            for p, q in ((a, b), (b, c), (c, a))
        ]
        return (np.array(sides) > 0).all(axis=0)

    for edge in range(len(graph)):
        points = _dense(network.shapes[graph.edges[edge]])
        part = inside(points, corner) & ~inside(points, hole)
        if part.mean() > 0.05:
            assert edge in edges
        elif not part.any() and not inside(points, corner * 1.05).any():
            assert edge not in edges
    assert 0 < len(edges) < len(graph)


def test_places_on_straight_roads_and_loops() -> None:
    city = generate_city(edges=300, seed=1)
    straight = replace(city, lon_lat=degrees(city.junctions[:, :2]), shapes=None)
    edge = 17
    middle = 0.5 * (
        city.junctions[city.tail[edge], :2] + city.junctions[city.head[edge], :2]
    )
    longitude, latitude = degrees(middle)[0]
    graph = straight.line_graph()
    assert (
        graph.number(city.edge_ids[edge])
        in Places(graph).find((latitude, longitude)).edges
    )
    ring = RoadNetwork(
        name="ring",
        junction_ids=("a",),
        junctions=[[0.0, 0.0, 0.0]],
        edge_ids=("loop",),
        tail=[0],
        head=[0],
        length=[300.0],
        speed=[10.0],
        permits={"passenger": [True]},
        connections=[[0, 0]],
        turn_permits={"passenger": [True]},
        lon_lat=degrees([[0.0, 0.0]]),
        shapes=(np.array([[0.0, 0.0], [0.0, 100.0], [80.0, 50.0], [0.0, 0.0]]),),
    )
    longitude, latitude = degrees([[0.0, 50.0]])[0]
    match = Places(ring.line_graph()).find((latitude, longitude))
    assert (
        match.how == "2 m away"
    )  # north is taken to be up: it is 2° askew there, 50 m away


# --- lines and areas that would take long -------------------------------------------------------


def slow_along(places: Places, line: Any) -> list[int]:
    """Every 2 m of every road against every 2 m of the line."""
    points = places._to_plane(line)
    pieces = Pieces(
        np.zeros(len(points) - 1, dtype=np.intp), points[:-1], np.diff(points)
    )
    drawn = pieces.split(50.0).split(2.0)
    roads = places._pieces
    fine = roads.split(2.0)
    gaps = np.abs(fine.middle[:, None] - drawn.middle[None])
    beside = drawn.take(gaps.argmin(axis=1))
    askew = np.abs((fine.step * np.conj(beside.step)).imag)
    parallel = askew <= 0.5 * np.abs(fine.step) * np.abs(beside.step)
    parallel &= beside.distance(fine.middle) <= 10.0
    covered = np.bincount(
        fine.edge, np.abs(fine.step) * parallel, minlength=len(places.graph)
    )
    length = np.bincount(roads.edge, np.abs(roads.step), minlength=len(places.graph))
    return np.flatnonzero(
        (covered > 0.0) & (covered >= np.minimum(30.0, 0.5 * length))
    ).tolist()


def slow_within(places: Places, rings: Any) -> list[int]:
    """Every corner against every 2 m of every road."""
    fine = places._pieces.split(2.0)
    x, y = fine.middle.real, fine.middle.imag
    inside = np.zeros(len(x), dtype=bool)
    for ring in rings:
        border = places._to_plane(ring)
        for a, b in zip(border, np.roll(border, -1), strict=True):
            if a.imag != b.imag:
                crossed = a.real + (y - a.imag) / (b.imag - a.imag) * (b.real - a.real)
                inside ^= ((a.imag > y) != (b.imag > y)) & (x < crossed)
    return np.unique(fine.edge[inside]).tolist()


@pytest.fixture(scope="module")
def hamlet() -> Places:
    return Places(bent(generate_city(edges=200, seed=2)).line_graph())


@pytest.mark.slow
def test_lines_and_areas_match_slow_loops(
    hamlet: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECES_AT_ONCE", 50)
    monkeypatch.setattr("superarm.roads.networks.pieces._COMPARED_AT_ONCE", 1000)
    network = hamlet.graph.network
    shapes = [network.shapes[edge] for edge in hamlet.graph.edges]
    middle = network.junctions[:, :2].mean(axis=0)
    rng = np.random.default_rng(0)
    closed = 0
    for trial in range(4):
        roads = [shapes[edge] for edge in rng.integers(len(shapes), size=3)]
        line = degrees(np.concatenate(roads) + rng.normal(scale=2.0, size=2)).tolist()
        assert hamlet.along(line).tolist() == slow_along(hamlet, line)
        rings = [
            degrees(middle + scale * rng.normal(size=(7, 2))).tolist()
            for scale in (250.0, 90.0)
        ]
        edges = hamlet.within(rings).tolist()
        assert edges == slow_within(hamlet, rings)
        closed += len(edges) > 0
        if trial == 0:  # a corner on a level with others, twice over
            rings = [[*rings[0], rings[0][0], rings[0][0]]]
            assert hamlet.within(rings).tolist() == slow_within(hamlet, rings)
    assert closed > 2


def test_line_around_the_globe_costs_only_its_nearby_part(
    hamlet: Places,
) -> None:
    shape = hamlet.graph.network.shapes[hamlet.graph.edges[5]]
    begin, end = degrees(shape[:2]).tolist()
    there = hamlet.along([begin, end]).tolist()
    budget = Budget()
    globe = [
        [179.9, 80.0],
        [-179.9, 80.0],
        begin,
        end,
        [end[0], -89.0],
        [-179.0, -89.0],
    ]
    assert set(there) <= set(hamlet.along(globe, budget).tolist())
    assert (
        Budget().remaining - budget.remaining < 1e6
    )  # of the steps, 100 for every 2 m
    assert hamlet.along([[-179.9, -60.0], [-100.0, -60.0]]).tolist() == []


def test_an_area_with_many_corners_is_looked_at_once(hamlet: Places) -> None:
    middle = hamlet.graph.network.junctions[:, :2].mean(axis=0)
    turn = np.linspace(0.0, 2.0 * np.pi, 30_000, endpoint=False)
    ring = degrees(
        middle + 150.0 * np.column_stack([np.cos(turn), np.sin(turn)])
    ).tolist()
    budget = Budget()
    edges = hamlet.within([ring], budget)
    assert edges.tolist() == hamlet.within([ring[::100]]).tolist()
    assert Budget().remaining - budget.remaining < 3e6


def test_expensive_queries_are_rejected_before_they_start(hamlet: Places) -> None:
    spread = np.ptp(hamlet.graph.network.junctions[:, :2], axis=0).max()
    middle = hamlet.graph.network.junctions[:, :2].mean(axis=0)
    corners = np.tile([[-0.5, -0.5], [0.5, 0.5]], (20_000, 1)) * spread
    corners[:, 0] += np.linspace(0.0, 1.0, len(corners))
    comb = degrees(middle + corners).tolist()
    with pytest.raises(InputError, match=r"km through the network, got .*; split it"):
        hamlet.along(comb)
    with pytest.raises(InputError, match="too many corners for this network"):
        hamlet.within([comb])
    areas = [
        {"type": "Polygon", "coordinates": [comb[:4]]}
    ] * 20_000  # many small ones, together
    with pytest.raises(FileError, match=r"^closures, feature \d+: .*; simplify them"):
        closed_by(
            {"type": "FeatureCollection", "features": areas},
            hamlet,
            Budget(remaining=1e6),
        )
