"""Conditions of a trip, in plain arithmetic."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from superarm.core import Decision
from superarm.core.errors import InputError
from superarm.core.streams import stream
from superarm.roads.energy import Vehicle
from superarm.roads.networks import generate_city
from superarm.roads.problems import Navigation
from superarm.roads.problems.conditions import CONDITIONS, Conditions, RushHours

GRAPH = generate_city(edges=200, seed=1).line_graph()


def conditions(*names: str) -> Conditions:
    return Conditions(names=names, graph=GRAPH, vehicle=Vehicle(), seed=0)


def test_features_are_of_about_unit_scale_in_the_order_named() -> None:
    now = conditions(*CONDITIONS).at(7)
    scaled = [
        now["load"] / 400.0,
        now["congestion"] / 0.3,
        (now["temperature"] - 10.0) / 8.0,
    ]
    columns = conditions("load", "congestion", "temperature").columns(7)
    np.testing.assert_allclose(columns, np.stack(scaled, axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    "names", [CONDITIONS, ("congestion",), ("temperature",), ("load",), ()]
)
def test_energy_added_by_conditions_by_hand(names: tuple[str, ...]) -> None:
    """Slower to 40 % of the limit, a stop every 200 m, 100 W per degree from 20 °C, up to 400 kg."""
    now = conditions(*CONDITIONS).at(7)
    jam = now["congestion"] if "congestion" in names else np.zeros(len(GRAPH))
    degrees = abs(now["temperature"][0] - 20.0) if "temperature" in names else 0.0
    load = now["load"][0] if "load" in names else 0.0
    assert 0.0 < now["load"][0] < 400.0
    mass = Vehicle().mass + load
    speed = GRAPH.speed * (1.0 - 0.6 * jam)
    lost = 1.0 / Vehicle().propulsion_efficiency - Vehicle().recuperation_efficiency
    stopping = 0.5 * mass * GRAPH.speed**2 * lost * jam * GRAPH.length / 200.0
    warming = 100.0 * degrees * GRAPH.length / speed
    moving = Vehicle(mass=mass).energy(GRAPH.length, speed, GRAPH.rise)
    baseline = Vehicle().energy(GRAPH.length, GRAPH.speed, GRAPH.rise)
    expected = moving - baseline + (stopping + warming) / 3600.0
    np.testing.assert_allclose(
        conditions(*names).extra(7), expected, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize(("step", "wave"), [(6, 0.5), (8, 0.75), (12, 1.0), (24, 0.0)])
def test_conditions_are_drawn_in_this_order(step: int, wave: float) -> None:
    """Congestion is a wave over 24 trips, 0.5 − 0.5 cos, times the share of the highest speed."""
    rng = stream(0, "conditions", step)
    jam = wave * GRAPH.speed / GRAPH.speed.max() + 0.1 * rng.standard_normal(len(GRAPH))
    temperature, load = 10.0 + 8.0 * rng.standard_normal(), 400.0 * rng.random()
    drawn = conditions(*CONDITIONS).at(step)
    np.testing.assert_allclose(drawn["congestion"], np.clip(jam, 0.0, 1.0), atol=1e-12)
    np.testing.assert_allclose(drawn["temperature"], temperature)
    np.testing.assert_allclose(drawn["load"], load)


@pytest.mark.parametrize("names", [("rain",), ("load", "load")])
def test_unknown_or_repeated_conditions_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="conditions is"):
        conditions(*names)


# --- rush hours --------------------------------------------------------------------------


def rush_city(**options: Any) -> Navigation:
    return Navigation(
        seed=3, horizon=60, network="city", edges=300, **{"rush_hours": 2.0, **options}
    )


def test_rush_hours_have_two_peaks_a_day() -> None:
    hours = [RushHours.rush(step) for step in range(1, 49)]
    assert hours[:24] == hours[24:]
    assert hours[8] == pytest.approx(1.0, abs=1e-4)
    assert hours[17] == pytest.approx(1.0, abs=1e-4)
    assert hours[8] > hours[7] > hours[6] > hours[5]
    assert hours[17] > hours[18] > hours[20] > hours[22]
    assert hours[0] < 1e-6


def test_energies_change_with_the_hour_and_drift_from_day_to_day() -> None:
    """f_t − f = strength · r · (fast + u_t), u_{t+1} − √(1 − ε) u_t a draw of the prior times √ε."""
    world, epsilon = rush_city(day_to_day=0.2), 0.2
    std = 0.25 * float(np.std(world.model.energies))
    fast = std * world.graph.speed / world.graph.speed.max()
    moods = []
    for step in range(1, 61):
        offer = world.offer(step)
        added = world.means(offer) - world.energies
        rush = RushHours.rush(step)
        if rush > 0.05:
            moods.append((step, added / (2.0 * rush) - fast))
    for (before, was), (after, now) in pairwise(moods):
        if after == before + 1:
            innovations = (now - np.sqrt(1.0 - epsilon) * was) / np.sqrt(epsilon)
            assert 0.3 * std < innovations.std() < 2.0 * std
    still = rush_city(day_to_day=0.0)
    first, other = (still.means(still.offer(step)) - still.energies for step in (9, 33))
    np.testing.assert_allclose(first, other, rtol=1e-9)  # the same hour of another day
    calm = rush_city(rush_hours=0.0)
    np.testing.assert_array_equal(calm.means(calm.offer(9)), calm.energies)
    np.testing.assert_array_equal(calm.energies, world.energies)
    assert calm.model.drift is None


def test_regret_is_against_the_best_route_of_the_hour() -> None:
    world = rush_city()
    route = np.array(world.cheapest(-world.scores(world.offer(1))))
    losses = []
    for step in (1, 9):
        offer = world.offer(step)
        decision = Decision(step=step, action=None, positions=route)
        weights = -world.scores(offer)
        best = weights[world.cheapest(weights)].sum()
        assert world.best(offer).value == pytest.approx(best)
        losses.append(world.value(offer, decision) - best)
    assert losses[0] == pytest.approx(0.0, abs=1e-9)
    assert losses[1] >= 0.0
    assert (
        "peaks at 8:00 and 17:00, with 24 trips a day"
        in world.interpretations["rush hours"]
    )
    drift = world.model.drift
    assert drift is not None
    assert drift([[0.0]], [[0.0]]).item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "bad", [{"rush_hours": -1.0}, {"day_to_day": 1.5}, {"rush_hours": np.nan}]
)
def test_impossible_rush_hours(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        rush_city(**bad)
