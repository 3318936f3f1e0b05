"""Driving through junctions: against fine steps, by hand, and in SUMO."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats
from superarm.core.errors import InputError
from superarm.roads.energy import Vehicle, drive_time
from superarm.roads.energy.drives import border_speeds
from superarm.roads.energy.junctions import (
    ACCELERATION,
    BRAKING,
    UTURN_SECONDS,
    Signal,
)
from superarm.roads.networks import (
    LineGraph,
    RoadNetwork,
    generate_city,
    read_sumo,
    read_tables,
)

A, B = ACCELERATION, BRAKING


def chain(length: list[float], speed: list[float], **of_turns: Any) -> LineGraph:
    """Edges one after the other, and a long way back without delays."""
    k = len(length)
    turns = np.array([[edge, (edge + 1) % (k + 1)] for edge in range(k + 1)])
    nodes = np.arange(k + 1)
    turn_data = {
        name: np.append(values, [0.0, 0.0])
        for name, values in of_turns.items()
        if name != "signals"
    }
    return RoadNetwork(
        name="chain",
        junction_ids=tuple(f"j{node}" for node in nodes),
        junctions=np.zeros((k + 1, 3)),
        edge_ids=(*(f"e{edge}" for edge in range(k)), "back"),
        tail=nodes,
        head=np.roll(nodes, -1),
        length=np.append(length, 1e4),
        speed=np.append(speed, 10.0),
        permits={"passenger": np.ones(k + 1, dtype=bool)},
        connections=turns,
        turn_permits={"passenger": np.ones(k + 1, dtype=bool)},
        signals=of_turns.get("signals", {}),
        **turn_data,
    ).line_graph()


def in_fine_steps(graph: LineGraph, route: list[int], step: float = 0.01) -> float:
    """The fastest drive under all limits, from place to place."""
    turns = graph.turn_numbers(route)
    limits = [graph.speed[route[0]]] * round(
        graph.length[route[0]] / step
    )  # of the way after a place
    looks: dict[
        int, float
    ] = {}  # places where one must be slow enough to stop before the junction
    for turn, edge in zip(turns, route[1:], strict=True):
        if look := graph.turn_entry[turn]:
            looks[len(limits) - round(look**2 / (2 * B) / step)] = look
        limits += [graph.turn_speed[turn]] * round(graph.turn_length[turn] / step)
        limits += [graph.speed[edge]] * round(graph.length[edge] / step)
    speeds = np.minimum([*limits, np.inf], [np.inf, *limits])
    for place, look in looks.items():
        speeds[place] = min(speeds[place], look)
    for place in range(1, len(speeds)):
        speeds[place] = min(
            speeds[place], np.sqrt(speeds[place - 1] ** 2 + 2 * A * step)
        )
    for place in reversed(range(len(speeds) - 1)):
        speeds[place] = min(
            speeds[place], np.sqrt(speeds[place + 1] ** 2 + 2 * B * step)
        )
    return float((2.0 * step / (speeds[1:] + speeds[:-1])).sum())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_drive_is_the_fastest_under_all_limits(seed: int) -> None:
    """In steps of a centimetre, each of which can be wrong by its length at the slowest speed."""
    rng, k = np.random.default_rng(seed), 4
    graph = chain(
        (12 + rng.integers(200, size=k)).tolist(),
        (5.0 + 20.0 * rng.random(k)).tolist(),
        turn_length=rng.integers(1, 30, size=k - 1).astype(float),
        turn_speed=2.0 + 18.0 * rng.random(k - 1),
        turn_entry=np.where(
            rng.random(k - 1) < 0.5, 2.0 + 8.0 * rng.random(k - 1), 0.0
        ),
    )
    assert drive_time(graph, range(k)) == pytest.approx(
        in_fine_steps(graph, list(range(k))), abs=0.1
    )


def test_turn_energies_match_a_drive_on_long_edges() -> None:
    graph = chain(
        [900.0, 800.0, 700.0],
        [20.0, 15.0, 30.0],
        turn_length=[10.0, 60.0],
        turn_speed=[4.0, 9.0],
        turn_entry=[0.0, 5.0],
    )
    turns = graph.turn_numbers([0, 1, 2])
    added = graph.travel_time[:3].sum() + graph.turn_seconds[turns].sum()
    assert drive_time(graph, [0, 1, 2]) == pytest.approx(added, rel=1e-12)
    first = (20 - 4) ** 2 / (2 * B * 20) + 10 / 4 + (15 - 4) ** 2 / (2 * A * 15)
    assert graph.turn_seconds[turns[0]] == pytest.approx(first, rel=1e-12)
    # Before the second one brakes to 5 m/s, 25/2b metres before the line; then one accelerates.
    sight = 25 / (2 * B)
    enter = np.sqrt(25 + 2 * A * sight)
    second = (15 - 5) ** 2 / (2 * B * 15) + (enter - 5) / A - sight / 15
    second += (
        (9 - enter) / A
        + (60 - (81 - enter**2) / (2 * A)) / 9
        + (30 - 9) ** 2 / (2 * A * 30)
    )
    assert graph.turn_seconds[turns[1]] == pytest.approx(second, rel=1e-12)


def test_short_edge_between_equal_turns_matches_a_drive() -> None:
    """One accelerates for b/(a + b) of the way and brakes on the rest."""
    graph = chain(
        [400.0, 12.0, 400.0], [20.0] * 3, turn_length=[5.0, 5.0], turn_speed=[3.0, 3.0]
    )  # fmt: skip
    turns = graph.turn_numbers([0, 1, 2])
    added = graph.travel_time[:3].sum() + graph.turn_seconds[turns].sum()
    assert drive_time(graph, [0, 1, 2]) == pytest.approx(added, rel=1e-12)


def test_turns_without_data_add_only_changes_of_speed() -> None:
    graph = chain([500.0, 500.0], [10.0, 20.0])
    assert graph.turn_seconds[0] == pytest.approx((20 - 10) ** 2 / (2 * A * 20))
    same = chain([500.0, 500.0], [10.0, 10.0])
    assert same.turn_seconds[0] == 0.0
    assert drive_time(same, [0, 1]) == pytest.approx(100.0)
    assert drive_time(same, [0]) == pytest.approx(50.0)


# --- signals ---------------------------------------------------------------------------------


def test_a_signal_by_hand() -> None:
    signal = Signal.from_phases(
        [(30.0, "r"), (20.0, "G"), (4.0, "y"), (36.0, "r")], offset=5.0
    )
    assert signal == Signal(90.0, 5.0, ((50.0, 120.0),), False)
    assert signal.wait == pytest.approx(70.0**2 / 180.0)
    assert signal.stop == pytest.approx(70.0 / 90.0)
    times = np.array([5.0, 34.0, 36.0, 54.9, 55.0, 95.0, 95.0 + 900.0])
    assert signal.waits(times).tolist() == pytest.approx(
        [30.0, 1.0, 0.0, 0.0, 70.0, 30.0, 30.0]
    )
    # At 18 m/s one cannot stop for the first 2 seconds of yellow.
    assert Signal.from_phases(
        [(20.0, "G"), (4.0, "y"), (36.0, "r")], speed=18.0
    ).reds == ((22.0, 60.0),)
    assert Signal.from_phases(
        [(20.0, "G"), (1.0, "y"), (36.0, "r")], speed=18.0
    ).reds == ((21.0, 57.0),)
    assert Signal.from_phases([(20.0, "G"), (36.0, "r")], speed=18.0).reds == (
        (20.0, 56.0),
    )
    assert Signal.from_phases([(20.0, "g"), (36.0, "r"), (9.0, "G")]).yields
    assert not Signal.from_phases([(20.0, "g"), (36.0, "r"), (30.0, "G")]).yields
    assert Signal.from_phases([(20.0, "G")]).reds == ()
    assert Signal.from_phases([(20.0, "r")]).wait == 10.0


@given(
    st.lists(
        st.tuples(st.integers(1, 40), st.sampled_from("Ggyru")), min_size=1, max_size=8
    ),
    st.integers(-50, 50),
)
def test_mean_wait_equals_the_average_over_a_cycle(
    phases: list[tuple[int, str]], offset: int
) -> None:
    signal = Signal.from_phases(
        [(float(seconds), state) for seconds, state in phases], offset=float(offset)
    )
    shown = [state for seconds, state in phases for _ in range(seconds)]
    if set(shown) <= set("yru"):
        return
    cycle = len(shown)
    # In the middle of every second; the wait is then half a second off a whole number of them.
    waits = []
    for second in range(cycle):
        ahead = next(
            more for more in range(cycle) if shown[(second + more) % cycle] in "Gg"
        )
        waits.append(ahead - 0.5 if ahead else 0.0)
    times = np.arange(cycle) + 0.5 + offset
    assert signal.waits(times) == pytest.approx(waits)
    assert signal.wait == pytest.approx(np.mean(waits))
    assert signal.stop == pytest.approx(np.mean(np.array(waits) > 0.0))


def with_signals(*signals: Signal) -> LineGraph:
    k = len(signals)
    return chain(
        [500.0] * (k + 1),
        [10.0] * (k + 1),
        turn_length=np.full(k, 10.0),
        turn_speed=np.full(k, 10.0),
        turn_wait=np.array([signal.wait for signal in signals]),
        turn_stop=np.array([signal.stop for signal in signals]),
        signals=dict(enumerate(signals)),
    )


def test_red_signal_adds_waiting_and_a_start_from_rest() -> None:
    graph = with_signals(Signal.from_phases([(40.0, "G"), (50.0, "r")]))
    start_delay = 10.0 / (2 * A)
    assert drive_time(graph, [0, 1], 0.0) == pytest.approx(
        101.0 + 40.0 + start_delay
    )  # there at 50, of 90
    assert drive_time(graph, [0, 1], 39.5) == pytest.approx(101.0 + 0.5 + start_delay)
    assert drive_time(graph, [0, 1], 41.0) == pytest.approx(101.0)
    # Over all departures what the turn adds: 32 of them miss an integral over 90 s by so much.
    mean = 101.0 + 50.0**2 / 180.0 + 50.0 / 90.0 * start_delay
    assert drive_time(graph, [0, 1]) == pytest.approx(
        mean, abs=(50.0 + start_delay) / 32
    )
    assert graph.turn_seconds[0] == pytest.approx(
        1.0 + 50.0**2 / 180.0 + 50.0 / 90.0 * start_delay
    )
    # Without phases the expectation is all there is.
    vague = replace(graph.network, signals={}).line_graph()
    assert drive_time(vague, [0, 1]) == pytest.approx(mean)
    assert drive_time(vague, [0, 1], 41.0) == pytest.approx(mean)


@pytest.mark.filterwarnings("error")
def test_a_turn_of_0_m_takes_no_time_from_rest() -> None:
    """By hand: 100 s of driving, the wait, and what accelerating from rest to 10 m/s loses."""
    signal = Signal.from_phases([(40.0, "G"), (50.0, "r")])
    accelerating = 10.0 / (2 * A)
    turns = {"turn_wait": np.array([signal.wait]), "turn_stop": np.array([signal.stop])}
    expected = chain([500.0, 500.0], [10.0, 10.0], **turns)
    seconds = 100.0 + signal.wait + signal.stop * accelerating
    assert drive_time(expected, [0, 1]) == pytest.approx(seconds)
    timed = chain([500.0, 500.0], [10.0, 10.0], **turns, signals={0: signal})
    seconds = 100.0 + 40.0 + accelerating  # at the signal after 50 s of 90
    assert drive_time(timed, [0, 1], 0.0) == pytest.approx(seconds)
    assert drive_time(timed, [0, 1], 41.0) == pytest.approx(100.0)


@pytest.mark.filterwarnings("error")
def test_a_csv_table_with_waits_and_no_lengths_has_drive_times(tmp_path: Any) -> None:
    (tmp_path / "nodes.csv").write_text("id,x,y,z\nj0,0,0,0\nj1,500,0,0\nj2,1000,0,0\n")
    (tmp_path / "edges.csv").write_text(
        "id,from,to,length_m,speed_mps,passenger\n"
        "a,j0,j1,500,10,1\nb,j1,j2,500,10,1\nback,j2,j0,1000,10,1\n"
    )
    (tmp_path / "connections.csv").write_text(
        "from,to,passenger,wait_s,stop\na,b,1,12,0.5\nb,back,1,0,0\nback,a,1,0,0\n"
    )
    graph = read_tables(tmp_path).line_graph()
    route = [graph.ids.index("a"), graph.ids.index("b")]
    seconds = 100.0 + 12.0 + 0.5 * 10.0 / (2 * A)
    assert drive_time(graph, route) == pytest.approx(seconds)


@pytest.mark.parametrize("at_rest", [False, True])
def test_an_empty_route_has_no_speeds(at_rest: bool) -> None:
    graph = chain([500.0], [10.0])
    with pytest.raises(InputError, match=r"route is empty.*pass at least one edge"):
        border_speeds(graph, [], from_rest=at_rest, to_rest=at_rest)
    assert drive_time(graph, []) == 0.0


def test_signals_in_step_are_passed_in_step() -> None:
    """51 s apart and 51 s later: who passes the first passes the second."""
    first, second = (
        Signal.from_phases([(45.0, "G"), (45.0, "r")], offset=shift)
        for shift in (0.0, 51.0)
    )
    graph = with_signals(first, second)
    start_delay = 10.0 / (2 * A)
    for begin in range(90):
        wait = float(first.waits(np.array([begin + 50.0]))[0])
        late = (
            wait + start_delay if wait else 0.0
        )  # who waited comes just after the second turned green
        assert drive_time(graph, [0, 1, 2], float(begin)) == pytest.approx(152.0 + late)


# --- energy and U-turns ------------------------------------------------------------------------


def test_turn_energy_of_a_vehicle() -> None:
    graph = chain(
        [900.0, 900.0],
        [20.0, 15.0],
        turn_length=[10.0],
        turn_speed=[4.0],
        turn_wait=[8.0],
        turn_stop=[0.5],
    )
    car = Vehicle(
        auxiliary_power=720.0, propulsion_efficiency=0.9, recuperation_efficiency=0.8
    )
    weight, drag = (
        car.mass * car.gravity,
        0.5 * car.air_drag * car.front_area * car.air_density,
    )
    through = 10.0 * (weight * car.rolling_resistance + drag * 16.0) / 0.9
    lost = (1 / 0.9 - 0.8) * 0.5 * car.mass * (225.0 - 0.5 * 16.0)
    # Braking from 20 to 4 m/s and accelerating to 15: less drag, by small steps.
    brake, gain = (np.linspace(16.0, top**2, 100_001) for top in (20.0, 15.0))
    spared = drag * (
        (400.0 - brake).mean() * 384.0 / (2 * B)
        + (225.0 - gain).mean() * 209.0 / (2 * A)
    )
    expected = (through + lost + 720.0 * graph.turn_seconds[0] - spared) / 3600.0
    assert car.turn_energy(graph)[0] == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["multiply", "divide"]))
@settings(max_examples=20, deadline=None)
def test_turn_energies_are_not_negative(seed: int, recuperation: Any) -> None:
    rng, k = np.random.default_rng(seed), 6
    graph = chain(
        (1.0 + 50.0 * rng.random(k)).tolist(),
        (1.0 + 30.0 * rng.random(k)).tolist(),
        turn_length=rng.random(k - 1) * 20.0 * (rng.random(k - 1) < 0.7),
        turn_speed=rng.random(k - 1) * 20.0,
        turn_entry=rng.random(k - 1) * 9.0 * (rng.random(k - 1) < 0.5),
        turn_stop=rng.random(k - 1),
        turn_wait=rng.random(k - 1) * 40.0,
    )
    assert (graph.turn_seconds >= -1e-12).all()
    car = Vehicle(recuperation=recuperation, auxiliary_power=900.0)
    assert (car.turn_energy(graph) >= 0.0).all()


def test_cars_are_those_of_sumo_and_turning_back_takes_as_long_as_for_osrm() -> None:
    assert (ACCELERATION, BRAKING, UTURN_SECONDS) == (2.6, 4.5, 20.0)


def test_uturns_stop() -> None:
    """All of the speed has to be regained; where one drives on at the same speed, nothing."""
    graph = star("a").line_graph(uturns=True)
    car = Vehicle(auxiliary_power=0.0, air_drag=0.0, propulsion_efficiency=0.9)
    energy = car.turn_energy(graph)
    level = graph.speed[graph.turns[:, 0]] == graph.speed[graph.turns[:, 1]]
    after = graph.speed[graph.turns[:, 1]]
    lost = (1 / 0.9 - car.recuperation_efficiency) * 0.5 * car.mass * after**2
    back = graph.is_uturn & level
    assert back.any()
    np.testing.assert_allclose(energy[back], lost[back] / 3600.0, rtol=1e-12)
    np.testing.assert_allclose(energy[~graph.is_uturn & level], 0.0, atol=1e-12)


def test_terms_add_up_to_the_energy_of_a_vehicle() -> None:
    """Where nothing is lost and slopes are small: G is the sum of its terms, and 1 kW is one."""
    graph = generate_city(edges=200, seed=2).line_graph()
    car = Vehicle(
        propulsion_efficiency=1.0, recuperation_efficiency=1.0, auxiliary_power=700.0
    )
    terms = car.terms(graph)
    level = np.sqrt(
        1.0 - (graph.rise / graph.length) ** 2
    )  # cos α, which terms leave out
    energy = terms[:, 0] * level + 0.7 * terms[:, 1] + terms[:, 2] + terms[:, 3]
    np.testing.assert_allclose(
        energy, car.energy(graph.length, graph.speed, graph.rise), rtol=1e-12
    )
    assert terms[:, 3].min() < 0.0 < terms[:, 3].max()


def test_signals_make_drives_differ() -> None:
    """Against 200,000 drives; of edges with several turns it is their mean."""
    stop, wait = 0.4, 6.0
    graph = chain([900.0, 900.0], [20.0, 15.0], turn_wait=[wait], turn_stop=[stop])
    car = Vehicle(
        auxiliary_power=3000.0, propulsion_efficiency=0.9, recuperation_efficiency=0.8
    )
    rng, n = np.random.default_rng(0), 200_000
    waited = rng.uniform(
        0.0, 2.0 * wait / stop, n
    )  # on average ``wait`` with those who do not stop
    lost = (1 / 0.9 - 0.8) * 0.5 * car.mass * 20.0**2 + 3000.0 * waited
    drawn = np.where(rng.random(n) < stop, lost, 0.0) / 3600.0
    # The kurtosis of such a variable is below 3, so that its variance is known to √(2/n), 0.3 %.
    stop_variance = car.stop_variance(graph)
    assert stop_variance[0] == pytest.approx(drawn.var(), rel=4.0 * np.sqrt(2.0 / n))
    assert stop_variance[1:].tolist() == [0.0, 0.0]
    network = star("a", "b")
    stops = np.linspace(0.1, 0.9, len(network.connections))
    several = replace(network, turn_stop=stops).line_graph()
    square = ((1 / 0.9 - 0.8) * 0.5 * car.mass * 10.0**2 / 3600.0) ** 2
    for edge, variance in enumerate(car.stop_variance(several)):
        p = several.turn_stop[several.turns[:, 0] == edge]
        assert variance == pytest.approx(square * (p * (1.0 - p)).mean(), rel=1e-12)


def star(*dead_ends: str) -> RoadNetwork:
    """A ring a → b → c → a and its other direction; streets to dead ends at the junctions named."""
    both = [
        ("a", "b"),
        ("b", "c"),
        ("c", "a"),
        *((junction, f"{junction}{n}") for n, junction in enumerate(dead_ends)),
    ]
    ends = [*both, *((end, begin) for begin, end in both)]
    nodes = sorted({node for pair in ends for node in pair})
    tail, head = (
        np.array([nodes.index(pair[side]) for pair in ends]) for side in (0, 1)
    )
    turns = np.array(
        [
            [i, j]
            for i in range(len(ends))
            for j in range(len(ends))
            if head[i] == tail[j]
        ]
    )
    return RoadNetwork(
        name="star",
        junction_ids=tuple(nodes),
        junctions=np.zeros((len(nodes), 3)),
        edge_ids=tuple("".join(pair) for pair in ends),
        tail=tail,
        head=head,
        length=np.full(len(ends), 100.0),
        speed=np.full(len(ends), 10.0),
        permits={"passenger": np.ones(len(ends), dtype=bool)},
        connections=turns,
        turn_permits={"passenger": np.ones(len(turns), dtype=bool)},
    )


def test_uturns_only_in_dead_ends() -> None:
    network = star("a", "b")
    everywhere, nowhere, graph = (
        network.line_graph(uturns=uturns) for uturns in (True, False, "dead-ends")
    )
    assert graph.ids == everywhere.ids
    assert "aa0" not in nowhere.ids
    back = {
        tuple(graph.ids[edge] for edge in turn) for turn in graph.turns[graph.is_uturn]
    }
    assert back == {("aa0", "a0a"), ("bb1", "b1b")}
    assert everywhere.is_uturn.sum() == 10
    assert not nowhere.is_uturn.any()
    np.testing.assert_allclose(graph.turn_seconds[graph.is_uturn], UTURN_SECONDS)
    np.testing.assert_allclose(graph.turn_seconds[~graph.is_uturn], 0.0)
    with pytest.raises(InputError, match="uturns"):
        network.line_graph(uturns="no")  # type: ignore[arg-type]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_no_edge_is_lost_with_dead_ends(seed: int) -> None:
    """Whatever turns are forbidden; and a U-turn that stays is needed, or its edge has no other way."""
    rng = np.random.default_rng(seed)
    network = star(*rng.choice(["a", "b", "c"], size=rng.integers(4)))
    turns = network.connections[rng.random(len(network.connections)) < 0.7]
    network = replace(
        network,
        connections=turns,
        turn_permits={"passenger": np.ones(len(turns), dtype=bool)},
    )
    everywhere, graph = network.line_graph(), network.line_graph(uturns="dead-ends")
    assert graph.ids == everywhere.ids
    kept_turns = {tuple(turn) for turn in graph.turns.tolist()}
    assert kept_turns <= {tuple(turn) for turn in everywhere.turns.tolist()}
    onward = {tuple(turn) for turn in everywhere.turns[~everywhere.is_uturn].tolist()}
    assert onward <= kept_turns
    isolated = set(range(len(graph))) - {first for first, _ in onward}
    assert {
        tuple(turn)
        for turn in everywhere.turns[everywhere.is_uturn].tolist()
        if turn[0] in isolated
    } <= kept_turns


# --- what is known of turns ----------------------------------------------------------------------


def test_turn_data_survives_reordering() -> None:
    network = generate_city(edges=300, seed=2)
    rng = np.random.default_rng(0)
    names = ("turn_length", "turn_speed", "turn_wait", "turn_stop", "turn_entry")
    turn_data: dict[str, Floats] = {
        name: rng.random(len(network.connections)) for name in names
    }
    order = rng.permutation(len(network.connections))
    signals = {
        int(turn): Signal.from_phases([(30.0, "G"), (20.0 + turn, "r")])
        for turn in order[:40]
    }
    shuffled = replace(
        network,
        connections=network.connections[order],
        turn_permits={who: may[order] for who, may in network.turn_permits.items()},
        signals={
            place: signals[int(turn)]
            for place, turn in enumerate(order)
            if int(turn) in signals
        },
        street_names=tuple(f"street {edge}" for edge in network.edge_ids),
        **{name: values[order] for name, values in turn_data.items()},
    )
    graph = shuffled.line_graph(uturns=False)
    number = {
        tuple(pair): place for place, pair in enumerate(network.connections.tolist())
    }
    for turn, (first, second) in enumerate(graph.edges[graph.turns].tolist()):
        place = number[first, second]
        for name in names:
            assert getattr(graph, name)[turn] == turn_data[name][place]
        assert graph.signals.get(turn) == signals.get(place)
        assert not graph.is_uturn[turn]
    assert graph.street_names == tuple(f"street {edge}" for edge in graph.ids)
    assert not network.line_graph().turn_length.any()
    assert network.line_graph().street_names is None
    route = [0, *(int(graph.successors.indices[graph.successors.indptr[0]]),)]
    assert graph.turns[graph.turn_numbers(route)].tolist() == [route]
    with pytest.raises(InputError, match="has no turn from edge"):
        graph.turn_numbers([0, 0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"turn_length": np.array([1.0, -1.0, 0.0, 0.0])},
            "connection 1 has turn_length -1",
        ),
        ({"turn_stop": np.array([1.0, 2.0, 0.0, 0.0])}, "connection 1 has turn_stop 2"),
        ({"turn_wait": np.ones(3)}, "turn_wait must have shape"),
        ({"street_names": ("a",)}, "street_names has 1 entries for 4 edges"),
    ],
)
def test_invalid_turns_are_rejected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(chain([10.0] * 3, [10.0] * 3).network, **wrong)


# --- in SUMO -------------------------------------------------------------------------------------


def test_sumo_takes_as_long(build_network: Any, tmp_path: Any) -> None:
    """Over a hill and tiny edges, round corners, past a signal: to 2 %."""
    driving = pytest.importorskip("superarm.roads.sumo")
    pytest.importorskip("libsumo", reason="libsumo is not installed")
    file = build_network(tmp_path, signals=True)
    network = read_sumo(file)
    number = {name: place for place, name in enumerate(network.edge_ids)}
    joined = [tuple(pair) for pair in network.connections.tolist()]
    graph = LineGraph(
        network=network, edges=np.arange(len(number)), turns=network.connections
    )  # no edge is cut off
    assert graph.signals
    with driving.Driver(file) as driver:
        for route in (
            ["ab", "bc", "cd", "ds", "s-t1", "t1-t2", "t2-e", "ef", "fg"],
            ["fg", "gb", "bc", "cd"],
            ["gb", "ba"],
            ["dc", "cb", "ba"],
        ):
            numbers = [number[edge] for edge in route]
            assert set(pairwise(numbers)) <= set(joined)
            drive = driver.drive(route)
            assert drive.arrived
            assert drive_time(graph, numbers, driver.step) == pytest.approx(
                drive.duration, rel=0.02
            )
