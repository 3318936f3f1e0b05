"""``superarm route``: by the energy model, by a learned state, and errors with advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import AT_95
from superarm.core.states import load_state, save_state
from superarm.roads.energy import Vehicle, drive_time
from superarm.roads.networks.reading import read_network
from superarm.roads.routing import find_route

ENDS = ("--from", "-00_10", "--to", "-34_44")
Command = Callable[..., Any]


def learned(
    cli: Command, net: Path, out: str, policy: str = "gp-ts", *more: str
) -> Path:
    """What a run on this network wrote."""
    words = (
        "--policies",
        policy,
        "--rounds",
        "8",
        "--seeds",
        "1",
        "--jobs",
        "1",
        "-q",
        *more,
    )
    result = cli("run", "navigation/network", "--net", net, *ENDS, "--out", out, *words)
    assert result.code == 0, result.err
    return Path(out) / "states" / f"{policy}.s0.seed00000.npz"


# --- by the energy model -------------------------------------------------------------------


def test_the_route_is_the_cheapest_and_its_numbers_add_up(
    cli: Command, town: Any
) -> None:
    """Against Bellman and Ford's algorithm on the energies as they are, negative ones among them."""
    answer = cli("route", "--net", town.tables, *ENDS, "--json").json()
    graph = read_network(town.tables).line_graph()
    energy = Vehicle().energy(graph.length, graph.speed, graph.rise)
    turned = Vehicle().turn_energy(graph)
    assert energy.min() < 0.0
    start, goal = graph.number(ENDS[1]), graph.number(ENDS[3])
    cost = np.full(len(graph), np.inf)
    cost[start] = energy[start]
    for _ in range(len(graph)):
        first, second = graph.turns.T
        np.minimum.at(cost, second, cost[first] + energy[second] + turned)
    assert answer["energy_wh"] == pytest.approx(cost[goal])
    edges = [graph.number(edge) for edge in answer["edges"]]
    assert edges[0] == start
    assert edges[-1] == goal
    turns = graph.turn_numbers(edges)
    assert answer["energy_wh"] == pytest.approx(
        energy[edges].sum() + turned[turns].sum()
    )
    length = graph.length[edges].sum() + graph.turn_length[turns].sum()
    assert answer["length_m"] == pytest.approx(length)
    assert answer["travel_time_s"] == pytest.approx(drive_time(graph, edges))
    assert answer["climb_m"] == pytest.approx(graph.rise[edges].clip(min=0.0).sum())
    assert answer["energy_low_wh"] < answer["energy_wh"] < answer["energy_high_wh"]
    assert answer["observations"] == 0
    compared = answer["compared"]
    assert list(compared) == ["fastest", "shortest"]
    assert all(
        answer["energy_wh"] <= route["energy_wh"] + 1e-9 for route in compared.values()
    )
    # Sums over edges and turns approximate the duration of the route.
    assert compared["fastest"]["travel_time_s"] <= 1.05 * answer["travel_time_s"]
    assert compared["shortest"]["length_m"] <= answer["length_m"]


def test_interval_before_the_first_trip_is_the_fleets(cli: Command, town: Any) -> None:
    """As the posterior says that has learned nothing, but for what neighbours share: little."""
    from superarm.roads.fleets import fleet_policy
    from superarm.roads.posterior import RoadGP
    from superarm.roads.problems.fleet import road_rows
    from superarm.roads.problems.road_models import load_roads

    answer = cli("route", "--net", town.tables, *ENDS, "--json").json()
    graph = load_roads(str(town.tables), uturns="dead-ends").graph
    posterior = fleet_policy(graph).posterior
    assert isinstance(posterior, RoadGP)
    rows = road_rows(graph, Vehicle(), 0)[
        [graph.number(edge) for edge in answer["edges"]]
    ]
    half = float(posterior.widths()[1][AT_95]) * posterior.total(rows)[1]
    assert answer["energy_high_wh"] - answer["energy_wh"] == pytest.approx(
        half, rel=0.05
    )
    assert answer["energy_wh"] - answer["energy_low_wh"] == pytest.approx(
        half, rel=0.05
    )


def test_tables_and_sumo_networks_agree(cli: Command, town: Any) -> None:
    tables = cli("route", "--net", town.tables, *ENDS, "--json").json()
    sumo = cli("route", "--net", town.net, *ENDS, "--json").json()
    assert sumo["edges"] == tables["edges"]
    assert sumo["energy_high_wh"] == pytest.approx(tables["energy_high_wh"])
    assert cli("route", "--net", town.net, *ENDS, "--json").json() == sumo


def test_a_heavier_vehicle_and_the_papers_routing(cli: Command, town: Any) -> None:
    plain = cli("route", "--net", town.net, *ENDS, "--json").json()
    heavy = cli(
        *("route", "--net", town.net, *ENDS, "--json"),
        *("--set", "mass=2600", "--set", "auxiliary_power=2000"),
    ).json()
    assert heavy["energy_wh"] > plain["energy_wh"]
    rectified = cli(
        "route", "--net", town.net, *ENDS, "--json", "--routing", "rectified"
    ).json()
    assert rectified["routing"] == "rectified"
    assert rectified["energy_wh"] >= plain["energy_wh"] - 1e-9


def test_for_reading(cli: Command, town: Any) -> None:
    result = cli("route", "--net", town.net, *ENDS)
    assert (result.code, result.err) == (0, "")
    answer = cli("route", "--net", town.net, *ENDS, "--json").json()
    for edge in answer["edges"]:
        assert edge in result.out
    energy = f"{answer['energy_wh']:.0f}".replace("-", "−")
    assert f"expected energy {energy} Wh, 95 % interval" in result.out
    assert "the fastest route" in result.out
    assert "the shortest route" in result.out
    assert "energy model alone" in result.out


def test_a_long_route_is_cut_in_the_middle(cli: Command) -> None:
    graph = find_route("city", "r0", "r1", settings={"edges": 1000}).graph
    ends = graph.network.junctions[graph.network.tail[graph.edges], 0]
    far = (
        "--from",
        graph.ids[int(ends.argmin())],
        "--to",
        graph.ids[int(ends.argmax())],
    )
    words = ("route", "--net", "city", "--set", "edges=1000", *far)
    answer, shown = cli(*words, "--json").json(), cli(*words).out
    assert len(answer["edges"]) > 24
    assert f"… {len(answer['edges']) - 24} more …" in shown
    assert f"{len(answer['edges'])} edges," in shown


def test_one_edge_is_a_route(cli: Command, town: Any) -> None:
    answer = cli(
        "route", "--net", town.net, "--from", "-00_10", "--to", "-00_10", "--json"
    ).json()
    assert answer["edges"] == ["-00_10"]


def test_geojson(cli: Command, town: Any) -> None:
    result = cli("route", "--net", town.tables, *ENDS, "--geojson")
    collection = result.json()
    assert collection["type"] == "FeatureCollection"
    [feature] = collection["features"]
    line = feature["geometry"]["coordinates"]
    answer = cli("route", "--net", town.tables, *ENDS, "--json").json()
    assert feature["geometry"]["type"] == "LineString"
    assert feature["properties"] == answer
    assert len(line) == len(answer["edges"]) + 1
    assert line[0] == [6.0, 49.6]  # where -00_10 begins: longitude first
    assert line[-1] == pytest.approx([6.0 + 4 / 700, 49.6 + 4 / 1100])
    words = cli("route", "--net", town.net, *ENDS, "--geojson").fails(1)
    assert "no geographic reference" in words
    assert "choose one" in cli(
        "route", "--net", town.tables, *ENDS, "--geojson", "--json"
    ).fails(2)


def test_geojson_follows_the_bends_of_a_network_in_utm(cli: Command, town: Any) -> None:
    from superarm.roads.networks.geography import from_utm

    text = town.net.read_text(encoding="utf-8")
    utm = 'netOffset="-292000.00,-5499000.00" projParameter="+proj=utm +zone=32 +ellps=WGS84 +units=m"'
    text = text.replace('netOffset="0.00,0.00" projParameter="!"', utm)
    bent = text.replace(
        'shape="0,0,', 'shape="0,0,0 30,-20,', 1
    )  # of -00_10, which begins the trip
    assert bent != text
    town.net.write_text(bent, encoding="utf-8")
    collection = cli("route", "--net", town.net, *ENDS, "--geojson").json()
    line = collection["features"][0]["geometry"]["coordinates"]
    network = read_network(town.net)
    edges = [
        network.edge_ids.index(edge)
        for edge in collection["features"][0]["properties"]["edges"]
    ]
    shapes = np.concatenate([network.shapes[edge] for edge in edges])
    distinct = [0, *(1 + np.flatnonzero(np.abs(np.diff(shapes, axis=0)).sum(axis=1)))]
    places = from_utm(shapes[distinct] + [292000.0, 5499000.0], 32)
    np.testing.assert_allclose(line, places, atol=2e-7)
    assert len(line) > len(edges) + 1


def test_network_without_heights_is_reported(cli: Command, town: Any) -> None:
    import re

    text = re.sub(r' z="[^"]*"', "", town.net.read_text(encoding="utf-8"))
    assert "flat" not in cli("route", "--net", town.net, *ENDS).out
    town.net.write_text(text, encoding="utf-8")
    assert cli("route", "--net", town.net, *ENDS, "--json").json()["flat"] is True
    assert "the file has no heights" in cli("route", "--net", town.net, *ENDS).out


# --- places, vehicles, closures and batteries ----------------------------------------------


def test_a_place_is_latitude_and_longitude(cli: Command, town: Any) -> None:
    """-00_10 leads from longitude 6, latitude 49.6 to the east."""
    start = ("--from", "49.6,6.0003")
    answer = cli(
        "route", "--net", town.tables, *start, "--to", "-34_44", "--json"
    ).json()
    assert answer["from"] in ("-00_10", "-10_00")
    where = f"{answer['from_position_m']:.0f} of its 90 m"
    words = f"latitude 49.60000, longitude 6.00030: edge {answer['from']}, 0 m away, at {where}"
    assert answer["from_place"] == words
    assert answer["from_position_m"] == pytest.approx(90.0 * 0.0003 * 700.0, rel=0.01)
    assert answer["first_edge_m"] == pytest.approx(90.0 - answer["from_position_m"])
    assert (
        answer["to_position_m"] == answer["last_edge_m"]
    )  # an edge named by id counts in full
    shown = cli("route", "--net", town.tables, *start, "--to", "-34_44").out
    assert f"from {answer['from_place']}\n" in shown
    words = cli(
        "route", "--net", town.tables, "--from", "6.0003,49.6", "--to", "-34_44"
    ).fails(2)
    assert (
        "Did you swap them? Pass latitude,longitude on the network, from 49.6000,6.0000 to"
        in words
    )
    words = cli("route", "--net", town.net, *start, "--to", "-34_44").fails(1)
    assert "no geographic reference" in words


def test_a_vehicle_from_a_file_with_its_battery(cli: Command, town: Any) -> None:
    Path("van.toml").write_text("mass = 2600.0\nauxiliary_power = 2000.0\n")
    words = ("route", "--net", town.net, *ENDS)
    overrides = ("--set", "mass=2600", "--set", "auxiliary_power=2000")
    assert (
        cli(*words, "--vehicle", "van.toml", "--json").json()
        == cli(*words, *overrides, "--json").json()
    )
    Path("van.toml").write_text("battery_wh = 1000.0\nreserve_wh = 100.0\n")
    answer = cli(*words, "--vehicle", "van.toml", "--charge", "90%", "--json").json()
    battery = answer["battery"]
    assert (battery["capacity_wh"], battery["charge_wh"]) == (1000.0, 900.0)
    assert battery["arrival_wh"] == pytest.approx(
        900.0 - answer["energy_wh"] - battery["lost_wh"]
    )
    shown = cli(*words, "--vehicle", "van.toml", "--charge", "90%").out
    assert (
        f"battery: 900 Wh at the start, {battery['arrival_wh']:.0f} Wh at arrival, 95 %"
        in shown
    )
    refused = cli(*words, "--vehicle", "van.toml", "--charge", "110").fails(1)
    assert "the charge may fall below the reserve of" in refused
    assert "pass --anyway" in refused
    anyway = cli(*words, "--vehicle", "van.toml", "--charge", "110", "--anyway")
    assert (anyway.code, "it may fall below the reserve of" in anyway.out) == (0, True)
    assert "must be Wh (24000) or a share (80%)" in cli(
        *words, "--charge", "lots"
    ).fails(2)
    Path("van.toml").write_text("battery = 1000.0\n")
    assert "did you mean 'battery_wh'?" in cli(*words, "--vehicle", "van.toml").fails(2)


def test_closed_roads(cli: Command, town: Any) -> None:
    words = ("route", "--net", town.tables, *ENDS)
    free = cli(*words, "--geojson").json()
    edges = free["features"][0]["properties"]["edges"]
    middle = edges[len(edges) // 2]
    around = cli(*words, "--close", middle, "--json").json()
    assert middle not in around["edges"]
    assert around["closed_edges"] == 1
    Path("closed.geojson").write_text(
        json.dumps({"type": "Feature", "properties": {"edge": middle}})
    )
    assert cli(*words, "--close-file", "closed.geojson", "--json").json() == around
    line = free["features"][0]["geometry"] | {
        "coordinates": free["features"][0]["geometry"]["coordinates"][2:4]
    }
    Path("closed.geojson").write_text(json.dumps(line))
    shut = cli(*words, "--close-file", "closed.geojson")
    assert shut.code == 0
    assert "2 edges closed" in shut.out
    line["coordinates"] = [[lat, lon] for lon, lat in line["coordinates"]]
    Path("closed.geojson").write_text(json.dumps(line))
    open_still = cli(*words, "--close-file", "closed.geojson")
    assert (
        "closes no edge of this network; in GeoJSON, longitude comes before latitude"
        in open_still.err
    )
    closed = cli(*words, "--close", "-00_10").fails(1)
    assert (
        "no open route leads from edge -00_10 to edge -34_44: edge -00_10 is closed"
        in closed
    )
    assert "has no edge '-00_11'" in cli(*words, "--close", "-00_11").fails(2)
    Path("closed.geojson").write_text("{")
    assert "cannot be read as GeoJSON" in cli(
        *words, "--close-file", "closed.geojson"
    ).fails(1)


def test_departure_without_effect_is_reported(cli: Command, town: Any) -> None:
    words = ("route", "--net", town.net, *ENDS, "--depart")
    assert "departure at 08:30 ignored" in cli(*words, "08:30").out
    assert (
        cli(*words, "2025-03-14T08:30", "--json").json()["depart"] == "2025-03-14T08:30"
    )
    assert "must be HH:MM" in cli(*words, "soon").fails(2)


def test_unknown_vehicle_class_is_rejected(cli: Command, town: Any) -> None:
    assert cli(
        "route", "--net", town.net, *ENDS, "--class", "delivery", "--json"
    ).json()["edges"]
    words = cli("route", "--net", town.tables, *ENDS, "--class", "delivery").fails(2)
    assert "vehicle class 'delivery'" in words


def test_long_ids_fit_into_80_columns(
    cli: Command, town: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "-00" + "".join(f"{number:02d}abc" for number in range(14)) + "_10"
    for path in town.tables.iterdir():
        path.write_text(
            path.read_text(encoding="utf-8").replace("-00_10", long), encoding="utf-8"
        )
    shown = cli("route", "--net", town.tables, "--from", long, "--to", "-34_44").out
    table = shown.split("edges,")[0].splitlines()
    assert max(map(len, table)) <= 80
    assert long in "".join(line.split()[0] for line in table if line.strip())


# --- with a learned state ------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["gp-ts", "bi-ts", "route-ts"])
def test_route_uses_what_a_run_learned(policy: str, cli: Command, town: Any) -> None:
    """Mean and interval are those that the run's own posterior had after its last round."""
    more = ("--set", "route-ts.posterior=variational") if policy == "route-ts" else ()
    state = learned(cli, town.net, "run", policy, *more)
    answer = cli("route", "--net", town.net, *ENDS, "--state", state, "--json").json()
    assert (
        answer["observations"]
        == load_state(state).part("posterior").scalar("count")
        > 0
    )
    with np.load(Path("run") / "audits" / state.name) as audit:
        mean = audit["mean"].astype(np.float64)
    graph = read_network(town.net).line_graph()
    edges = [graph.number(edge) for edge in answer["edges"]]
    assert answer["energy_wh"] == pytest.approx(mean[edges].sum(), rel=1e-5)
    known = answer["energy_high_wh"] - answer["energy_low_wh"]
    before = cli("route", "--net", town.net, *ENDS, "--json").json()
    assert known < before["energy_high_wh"] - before["energy_low_wh"]
    repeated = cli("route", "--net", town.net, *ENDS, "--state", state, "--json").json()
    assert repeated == answer
    moved = Path("elsewhere.npz")  # a state is self-contained
    save_state(load_state(state), moved)
    unrecorded = {"trips_judged": 0, "trips_inside": None}
    assert answer["trips_judged"] == 8
    moved_answer = cli(
        "route", "--net", town.net, *ENDS, "--state", moved, "--json"
    ).json()
    assert moved_answer == answer | unrecorded
    shown = cli("route", "--net", town.net, *ENDS, "--state", state).out
    assert f"learned from {answer['observations']} measurements" in shown
    assert "--vehicle FILE" not in shown  # a run's state contains its vehicle


def test_interval_coverage_comes_from_the_runs_record(cli: Command, town: Any) -> None:
    """By the forecasts of all seeds at the state's setting; those not judged are omitted."""
    state = learned(
        cli, town.net, "run", "gp-ts", "--seeds", "2", "--set", "noise_scale=[0.1, 0.2]"
    )
    words = ("route", "--net", town.net, *ENDS, "--state", state)

    def record(index: int, seed: int, scores: list[float]) -> None:
        path = Path("run") / "audits" / f"gp-ts.s{index}.seed{seed:05d}.npz"
        with np.load(path) as audit:
            arrays = dict(audit)
        np.savez(path, **{**arrays, "score": np.array(scores, dtype=np.float32)})

    for index in (0, 1):
        record(index, 0, [0.0, -1.9, 2.0, -2.0, 9.0, 9.0, 9.0, np.nan])
        record(index, 1, [1.0 - index, *[50.0] * 7])
    answer = cli(*words, "--json").json()
    assert (answer["trips_judged"], answer["trips_inside"]) == (
        15,
        pytest.approx(3 / 15),
    )
    assert (
        "coverage: 20 % of 15 trips fell inside their 95 % interval: do not rely on this interval"
        in cli(*words).out
    )
    for seed in (0, 1):
        record(0, seed, [0.5, 1.9] * 4)
    output = cli(*words).out
    assert "coverage: 100 % of 16 trips fell inside their 95 % interval\n" in output
    assert "trust" not in output
    (Path("run") / "audits" / "gp-ts.s0.seed00001.npz").unlink()  # it is under way
    assert cli(*words, "--json").json()["trips_judged"] == 8


def test_a_runs_own_settings_are_used(cli: Command, town: Any) -> None:
    more = (
        "--set",
        "noise_scale=0.2",
        "--set",
        "model_lengthscale=[0.5, 2.0]",
        "--set",
        "uturns=false",
    )
    state = learned(cli, town.net, "run", "gp-ts", *more)
    second = state.with_name("gp-ts.s1.seed00000.npz")
    answers = [
        cli("route", "--net", town.net, *ENDS, "--state", path, "--json").json()
        for path in (state, second)
    ]
    assert answers[0]["energy_high_wh"] != answers[1]["energy_high_wh"]
    moved = Path("elsewhere.npz")
    save_state(load_state(state), moved)
    plain = cli("route", "--net", town.net, *ENDS, "--state", moved, "--json").json()
    assert plain["energy_high_wh"] == answers[0]["energy_high_wh"]
    overrides = ("--set", "uturns=false")
    plain = cli("route", "--net", town.net, *ENDS, *overrides, "--json").json()
    assert plain["observations"] == 0 < answers[0]["observations"]
    words = cli(
        "route", "--net", town.net, *ENDS, "--state", state, "--set", "mass=1"
    ).fails(1)
    assert "has its own vehicle and model, so you cannot set mass" in words


def test_a_state_of_other_roads_is_refused(
    cli: Command, town: Any, tmp_path: Path, write_town: Callable[[Path, int], Any]
) -> None:
    state = learned(cli, town.net, "run")
    (tmp_path / "small").mkdir()
    small = write_town(tmp_path / "small", 4)
    words = cli(
        "route",
        "--net",
        small.net,
        "--from",
        "-00_10",
        "--to",
        "-23_33",
        "--state",
        state,
    ).fails(1)
    assert "(that one has 80 edges, this one 48)" in words
    other = tmp_path / "other.net.xml"
    other.write_text(
        town.net.read_text(encoding="utf-8").replace('length="90.0"', 'length="190.0"')
    )
    words = cli("route", "--net", other, *ENDS, "--state", state).fails(1)
    assert "learned on another road network (the lengths of roads differ" in words


def test_a_sparse_state_of_other_roads_is_refused(
    cli: Command, town: Any, tmp_path: Path
) -> None:
    state = learned(
        cli, town.net, "run", "route-ts", "--set", "route-ts.posterior=variational"
    )
    other = tmp_path / "other.net.xml"
    other.write_text(
        town.net.read_text(encoding="utf-8").replace('length="90.0"', 'length="190.0"')
    )
    words = cli("route", "--net", other, *ENDS, "--state", state).fails(1)
    assert "learned on another road network (the lengths of roads differ" in words


def test_a_runs_own_vehicle_is_used(cli: Command, town: Any) -> None:
    state = learned(cli, town.net, "run", "gp-ts", "--set", "mass=2600")
    assert cli("route", "--net", town.net, *ENDS, "--state", state, "--json").json()[
        "observations"
    ]


def test_unsuitable_state_files_are_rejected(
    cli: Command, town: Any, tmp_path: Path
) -> None:
    from superarm.core import State

    junk = tmp_path / "junk.npz"
    junk.write_bytes(b"junk")
    assert "not a saved state" in cli(
        "route", "--net", town.net, *ENDS, "--state", junk
    ).fails(1)
    missing = cli("route", "--net", town.net, *ENDS, "--state", "none.npz").fails(2)
    assert missing.rstrip() == "superarm: --state none.npz: file not found"
    (tmp_path / "a-run" / "states").mkdir(parents=True)
    folder = cli("route", "--net", town.net, *ENDS, "--state", "a-run").fails(1)
    assert (
        "is a folder, not a file; name a file; choose a file in its states/" in folder
    )
    save_state(State(kind="streaming-gp", schema=1), junk)
    words = cli("route", "--net", town.net, *ENDS, "--state", junk).fails(1)
    assert "it has no spec of its policy" in words


def test_fleet_state_serves_its_vehicles(cli: Command, town: Any) -> None:
    """From a log of trips to a route with the battery at arrival."""
    Path("fleet.toml").write_text(
        "[van-1]\nmass = 2200.0\nbattery_wh = 2000\n[van-2]\nmass = 2600.0\n"
    )
    edges = cli("route", "--net", town.net, *ENDS, "--json").json()["edges"]
    rows = [
        f"t{trip},van-1,{edge},{60.0 + trip}" for trip in range(6) for edge in edges
    ]
    Path("trips.csv").write_text("\n".join(["trip,vehicle,edge,energy_wh", *rows]))
    learned = ("learn", "--net", town.net, "--trips", "trips.csv", "--state", "s.npz")
    learned += ("--accept-unlikely",)  # the same energy on every edge
    assert (
        cli(*learned, "--vehicles", "fleet.toml", "--json").json()["trips_learned"] == 6
    )
    output = cli(*learned, "--vehicles", "fleet.toml").out
    assert "skipped 6 trips, which the state already has by name" in output
    words = cli(*learned, "--outliers", "keep").fails(1)
    assert "; omit outliers, or start a new state" in words
    words = ("route", "--net", town.net, "--state", "s.npz", *ENDS)
    own = cli(*words, "--vehicle", "fleet.toml#van-1", "--json").json()
    other = cli(*words, "--vehicle", "fleet.toml#van-2", "--json").json()
    assert own["observations"] == other["observations"] == 6 * len(edges)
    assert own["trips_judged"] == 6
    assert own["battery"]["arrival_wh"] == pytest.approx(
        2000.0 - own["energy_wh"] - own["battery"]["lost_wh"]
    )
    widths = [
        answer["energy_high_wh"] - answer["energy_low_wh"] for answer in (own, other)
    ]
    assert own["edges"] != other["edges"] or widths[0] < widths[1]
    missing = cli(*words, "--vehicle", "fleet.toml").fails(2)
    assert (
        "fleet.toml describes several vehicles; choose one: fleet.toml#van-1 or fleet.toml#van-2"
        in missing
    )
    assert "did you mean 'van-1'?" in cli(*words, "--vehicle", "fleet.toml#van1").fails(
        2
    )


# --- errors --------------------------------------------------------------------------------


def test_unknown_roads_names_and_keys(cli: Command, town: Any) -> None:
    net = ("route", "--net", town.net)
    words = cli(*net, "--from", "-00_11", "--to", "-34_44").fails(2)
    assert "town has no edge '-00_11'; did you mean" in words
    assert "'nowhere' is neither a file nor a known network" in cli(
        "route", "--net", "nowhere", *ENDS
    ).fails(2)
    assert "did you mean 'mass'?" in cli(*net, *ENDS, "--set", "mas=1").fails(2)
    assert "one value, not a list" in cli(*net, *ENDS, "--set", "mass=[1, 2]").fails(2)
    assert "mass" in cli(*net, *ENDS, "--set", "mass=-1").fails(1)
    assert "--from" in cli(*net, "--to", "-34_44").fails(2)


def test_recuperation_that_makes_energy_has_no_potential(
    cli: Command, town: Any
) -> None:
    divide = ("route", "--net", town.net, *ENDS, "--set", "recuperation=divide")
    assert "or routing 'rectified'" in cli(*divide).fails(1)
    assert cli(*divide, "--routing", "rectified", "--json").json()["edges"]


def test_a_broken_network_names_file_and_line(cli: Command, town: Any) -> None:
    lines = town.net.read_text(encoding="utf-8").splitlines()
    lines[4] = lines[4].replace('length="', 'length="x')
    town.net.write_text("\n".join(lines), encoding="utf-8")
    words = cli("route", "--net", town.net, *ENDS).fails(1)
    assert "town.net.xml" in words
    assert "line 5" in words


def test_json_is_one_object_for_machines(shell: Command, town: Any) -> None:
    result = shell("route", "--net", town.net, *ENDS, "--json")
    assert json.loads(result.out)["from"] == ENDS[1]
    assert result.err == ""
