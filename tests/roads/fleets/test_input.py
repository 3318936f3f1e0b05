"""Invalid trip logs are rejected with advice and have no side effects."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest

from superarm.core.errors import FileError, InputError, StateError
from superarm.roads.energy import Vehicle
from superarm.roads.fleets import (
    LoggedTrip,
    TripSection,
    fleet_policy,
    learn_trips,
    read_trips,
)
from superarm.roads.networks import LineGraph, generate_city
from superarm.roads.posterior import RoadGP, Trips
from superarm.roads.problems.fleet import Fleet, road_rows
from superarm.roads.problems.road_models import load_roads

_HEAD = "trip,vehicle,edge,energy_wh\n"


@pytest.fixture(scope="module")
def graph() -> LineGraph:
    return generate_city(edges=400, seed=0).line_graph(uturns="dead-ends")


def _posterior(graph: LineGraph) -> RoadGP:
    posterior = fleet_policy(graph).posterior
    assert isinstance(posterior, RoadGP)
    return posterior


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trip,edge,edge,energy_wh\na,r1,r2,3\n", "'edge' twice"),
        (_HEAD + "a,v,r1,12,5\n", "5 entries for 4 columns"),
        (_HEAD + "a,v,r1,1e10\n", "must be a number from"),
        ("trip,edges,energy_wh\na," + "r" * (1 << 25) + ",1\n", "line 2: field larger"),
    ],
)
def test_tables_that_are_refused(
    tmp_path: Path, graph: LineGraph, text: str, message: str
) -> None:
    path = tmp_path / "trips.csv"
    path.write_text(text)
    with pytest.raises(FileError, match=message):
        read_trips(path, graph)


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_packed_tables_that_are_damaged(
    tmp_path: Path, graph: LineGraph, suffix: str
) -> None:
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    data = bytearray(pack((_HEAD + "a,v,r1,12\n" * 500).encode()))
    data[40:44] = bytes(byte ^ 255 for byte in data[40:44])
    path = tmp_path / f"trips.csv{suffix}"
    path.write_bytes(data)
    with pytest.raises(FileError, match="cannot be read as a table of trips"):
        read_trips(path, graph)


def test_a_long_trip_is_one_entry(tmp_path: Path, graph: LineGraph) -> None:
    path = tmp_path / "trips.csv"
    path.write_text("trip,edges,energy_wh\na," + f"{graph.ids[0]} " * 60_000 + ",1\n")
    (trip,) = read_trips(path, graph)
    assert len(trip.sections[0].edges) == 60_000


def test_a_state_of_other_heights_is_refused(graph: LineGraph) -> None:
    trip = LoggedTrip(name="a", sections=(TripSection((graph.ids[0],), 10.0),))
    policy = learn_trips(graph, [trip]).policy
    flat = load_roads("city", edges=400, uturns="dead-ends", flat=True).graph
    with pytest.raises(
        StateError, match=r"another road network \(speed limits or heights differ"
    ):
        learn_trips(flat, [trip], policy=policy)


def test_invalid_energies_are_rejected_per_trip(graph: LineGraph) -> None:
    edges = (graph.ids[0],)
    trips = [
        LoggedTrip(name="nan", sections=(TripSection(edges, float("nan")),)),
        LoggedTrip(
            name="none", sections=(TripSection((), 1.0), TripSection(edges, 1.0))
        ),
        LoggedTrip(name="trace", sections=(), unread="no point is near a road"),
        LoggedTrip(name="good", sections=(TripSection(edges, 10.0),)),
    ]
    lesson = learn_trips(graph, trips)
    assert lesson.trips == lesson.posterior.trips == 1
    assert [*lesson.refused] == ["nan", "none", "trace"]
    assert lesson.refused["trace"] == "no point is near a road"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hour": float("nan")}, "hour must be a number from 0.0 to 24.0, got nan"),
        ({"hour": 30.0}, "hour must be"),
        ({"hour": -1.0}, "hour must be"),
        (
            {"seconds": float("nan")},
            "seconds must be a number of at least 0.0, got nan",
        ),
        ({"seconds": float("inf")}, "seconds must be"),
        ({"seconds": -5.0}, "seconds must be"),
        (
            {"start_speed": float("inf")},
            "start_speed must be a number from 0.0 to 100.0",
        ),
        ({"end_speed": -1.0}, "end_speed must be"),
    ],
)
def test_invalid_times_and_speeds_are_rejected_per_trip(
    graph: LineGraph, wrong: dict[str, float], message: str
) -> None:
    section = TripSection((graph.ids[0],), 10.0, hour=8.0, seconds=20.0)
    trips = [
        LoggedTrip(name="wrong", sections=(section._replace(**wrong), section)),
        LoggedTrip(name="good", sections=(section,)),
    ]
    lesson = learn_trips(graph, trips, hours=True)
    assert lesson.trips == lesson.posterior.trips == 1
    assert message in lesson.refused["wrong"]
    assert [*lesson.refused] == ["wrong"]


def test_vehicles_are_named_by_text() -> None:
    with pytest.raises(InputError, match="vehicle is 7, of type int"):
        LoggedTrip(name="a", vehicle=7, sections=())  # type: ignore[arg-type]


def test_keys_and_trips_of_a_posterior(graph: LineGraph) -> None:
    rows = road_rows(graph, Vehicle(), 0)[:2].copy()
    gp = _posterior(graph)
    with pytest.raises(InputError, match="sums must give each arm"):
        gp.observe_sums(rows, [0, 2**40], [1.0])
    parts = {
        "keys": rows,
        "reward_of_arm": np.arange(2.0),
        "rewards": np.ones(2),
        "trip": np.zeros(2, int),
    }
    with pytest.raises(InputError, match="whole numbers"):
        gp.observe_trips(Trips(**parts, noise=np.zeros(2), unshared=np.zeros(2, bool)))
    rows[1, 2] = 1e40
    with pytest.raises(InputError, match="beyond 1e\\+09"):
        gp.observe(rows, [1.0, 2.0])
    assert gp.count == gp.trips == 0


def test_delays_do_not_depend_on_the_number_of_rounds() -> None:
    delays = []
    for horizon in (2, 40):
        fleet = Fleet(
            seed=0, horizon=horizon, edges=400, least_metres=200.0, late=3600.0
        )
        drawn_delays = fleet._delays(1, 100.0, 1)
        assert drawn_delays is not None
        delays.append(drawn_delays.tolist())
    assert delays[0] == delays[1]
    assert delays[0][0] > 2


@pytest.mark.parametrize(
    "options", [{"vehicles": 10**12}, {"weather": 300.0}, {"variety": 1000.0}]
)
def test_fleets_that_cannot_be(options: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"must be a (whole )?number from"):
        Fleet(seed=0, horizon=2, edges=400, **options)  # type: ignore[arg-type]


def test_meter_error_widens_intervals_by_a_bounded_amount(
    graph: LineGraph,
) -> None:
    rows = road_rows(graph, Vehicle(), 0)[:1]
    gp = _posterior(graph)
    for reward in (rows[0, 1], rows[0, 1], 1e6):
        gp.observe(rows, [reward])
    assert gp.outlying == 1
    assert gp.widths()[1].max() <= 12.0
