"""Which roads a problem is about: caches that notice changes, values that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.errors import InputError
from superarm.networks import Vehicle, generate_city
from superarm.problems.road_models import (
    load_roads,
    road_arms,
    road_kernel,
    road_model,
    with_conditions,
)
from superarm.records import to_json
from superarm.registry import spec_of

GRAPH = generate_city(edges=250, seed=1).line_graph()


def write_loop(folder: Path, edges: int) -> None:
    """A round trip over so many roads, as tables."""
    tables = {
        "nodes": ["id,x,y,z", *(f"j{k},{100 * k},0,{k % 2}" for k in range(edges))],
        "edges": [
            "id,from,to,length_m,speed_mps,passenger",
            *(f"e{k},j{k},j{(k + 1) % edges},{90 + k},10,1" for k in range(edges)),
        ],
        "connections": ["from,to,passenger", *(f"e{k},e{(k + 1) % edges},1" for k in range(edges))],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")


def test_roads_are_read_again_when_their_file_changes(tmp_path: Path) -> None:
    write_loop(tmp_path, 5)
    first = load_roads(str(tmp_path))
    assert load_roads(str(tmp_path)) is first
    write_loop(tmp_path, 6)
    assert (len(first.graph), len(load_roads(str(tmp_path)).graph)) == (5, 6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network": 3}, "network is 3"),
        ({"network": ""}, "network is ''"),
        ({"network": "city", "uturns": "no"}, "uturns is 'no'; it must be true, false or 'dead-ends'"),
        ({"network": "city", "edges": {"a": 1}}, "edges is"),
        ({"network": "city", "elevation": 4}, "elevation is 4"),
        ({"network": "no/such/place"}, "there is no network"),
        ({"network": "a" * 5000}, "there is no network"),
    ],
)
def test_what_is_no_network_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_roads(**options)


@pytest.mark.parametrize("name", ["prior_scale", "noise_scale"])
@pytest.mark.parametrize("value", [1e200, 1e-200, -1.0])
def test_scales_that_can_not_be_squared_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        road_model(GRAPH, Vehicle(), horizon=1, **{name: value})


def test_a_spec_tells_models_apart() -> None:
    def fingerprint(vehicle: Vehicle | None = None, graph: Any = GRAPH, **options: Any) -> str:
        model = road_model(graph, vehicle or Vehicle(), horizon=5, **options)
        parts = (model.kernel, model.mean, model.oracle)
        return repr([model.noise_variance, *(to_json(spec_of(part)) for part in parts)])

    fewer = GRAPH.network.line_graph(uturns=False)
    prints = [
        fingerprint(),
        fingerprint(Vehicle(mass=2000.0)),
        fingerprint(lengthscale=2.0),
        fingerprint(normalisation="raw"),
        fingerprint(prior_scale=0.5),
        fingerprint(noise_scale=0.2),
        fingerprint(graph=fewer),
    ]
    assert len(set(prints)) == len(prints)
    assert fingerprint() == prints[0]


def test_conditions_add_a_kernel_over_features_and_every_condition() -> None:
    """k″ is Matérn 5/2 of lengthscale 2, with the prior's mean variance."""
    plain = road_model(GRAPH, Vehicle(), horizon=1)
    changing = with_conditions(plain, 2)
    values = np.random.default_rng(0).standard_normal((40, 2))
    rows = np.column_stack([road_arms(GRAPH).features[:40], values])
    r = np.sqrt(5.0) * np.sqrt(((rows[:, None, 1:] - rows[None, :, 1:]) ** 2).sum(axis=2)) / 2.0
    added = (1.0 + r + r**2 / 3.0) * np.exp(-r) * plain.kernel.diag(road_arms(GRAPH).features).mean()
    np.testing.assert_allclose(
        changing.kernel(rows), plain.kernel(rows[:, :4]) + added, rtol=1e-9, atol=1e-9
    )


def test_the_kernel_is_half_graph_and_features_and_half_features_alone() -> None:
    kernel = road_kernel(GRAPH, 4.0, lengthscale=1.0)
    features = np.column_stack([np.arange(len(GRAPH)), GRAPH.features])[:40]
    K = kernel(features)
    A = 4.0 * np.eye(len(GRAPH)) + GRAPH.laplacian().toarray()
    k_G = np.linalg.inv(A @ A)
    k_G = k_G[:40, :40] / np.diagonal(k_G).mean()
    distance = np.sqrt(((features[:, None, 1:] - features[None, :, 1:]) ** 2).sum(axis=2))
    r = np.sqrt(5.0) * distance
    k_f = (1.0 + r + r**2 / 3.0) * np.exp(-r)  # eq. 135 with ν = 5/2
    np.testing.assert_allclose(K, 2.0 * k_G * k_f + 2.0 * k_f, atol=1e-9)
