"""Conditions of a trip, in plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from superarm.errors import InputError
from superarm.networks import Vehicle, generate_city
from superarm.problems.conditions import CONDITIONS, Conditions
from superarm.streams import stream

GRAPH = generate_city(edges=200, seed=1).line_graph()


def conditions(*names: str) -> Conditions:
    return Conditions(names=names, graph=GRAPH, vehicle=Vehicle(), seed=0)


def test_features_are_of_about_unit_scale_in_the_order_named() -> None:
    now = conditions(*CONDITIONS).at(7)
    scaled = [now["load"] / 400.0, now["congestion"] / 0.3, (now["temperature"] - 10.0) / 8.0]
    found = conditions("load", "congestion", "temperature").columns(7)
    np.testing.assert_allclose(found, np.stack(scaled, axis=1), rtol=1e-12)


@pytest.mark.parametrize("names", [CONDITIONS, ("congestion",), ("temperature",), ("load",), ()])
def test_what_conditions_add_by_hand(names: tuple[str, ...]) -> None:
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
    rest = Vehicle().energy(GRAPH.length, GRAPH.speed, GRAPH.rise)
    expected = moving - rest + (stopping + warming) / 3600.0
    np.testing.assert_allclose(conditions(*names).extra(7), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("step", "wave"), [(6, 0.5), (8, 0.75), (12, 1.0), (24, 0.0)])
def test_conditions_are_drawn_in_this_order(step: int, wave: float) -> None:
    """Congestion is a wave over 24 trips, 0.5 − 0.5 cos, times the share of the highest speed."""
    rng = stream(0, "conditions", step)
    jam = wave * GRAPH.speed / GRAPH.speed.max() + 0.1 * rng.standard_normal(len(GRAPH))
    temperature, load = 10.0 + 8.0 * rng.standard_normal(), 400.0 * rng.random()
    found = conditions(*CONDITIONS).at(step)
    np.testing.assert_allclose(found["congestion"], np.clip(jam, 0.0, 1.0), atol=1e-12)
    np.testing.assert_allclose(found["temperature"], temperature)
    np.testing.assert_allclose(found["load"], load)


@pytest.mark.parametrize("names", [("rain",), ("load", "load")])
def test_unknown_or_repeated_conditions_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="conditions is"):
        conditions(*names)
