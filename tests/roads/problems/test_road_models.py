"""Roads of a problem: caches that detect changes, and rejected values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core.errors import InputError
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.roads.energy import Vehicle
from superarm.roads.networks import generate_city
from superarm.roads.problems.road_models import (
    as_feature_kernels,
    load_roads,
    road_arms,
    road_kernel,
    road_model,
    with_conditions,
)

GRAPH = generate_city(edges=250, seed=1).line_graph()


def write_loop(folder: Path, edges: int) -> None:
    """A round trip over so many roads, as tables."""
    tables = {
        "nodes": ["id,x,y,z", *(f"j{k},{100 * k},0,{k % 2}" for k in range(edges))],
        "edges": [
            "id,from,to,length_m,speed_mps,passenger",
            *(f"e{k},j{k},j{(k + 1) % edges},{90 + k},10,1" for k in range(edges)),
        ],
        "connections": [
            "from,to,passenger",
            *(f"e{k},e{(k + 1) % edges},1" for k in range(edges)),
        ],
    }
    for name, lines in tables.items():
        (folder / f"{name}.csv").write_text("\n".join(lines), encoding="utf-8")


def test_roads_are_reread_when_their_file_changes(tmp_path: Path) -> None:
    write_loop(tmp_path, 5)
    first = load_roads(str(tmp_path))
    assert load_roads(str(tmp_path)) is first
    write_loop(tmp_path, 6)
    assert (len(first.graph), len(load_roads(str(tmp_path)).graph)) == (5, 6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network": 3}, "network must be .*, got 3"),
        ({"network": ""}, "network must be .*, got ''"),
        (
            {"network": "city", "uturns": "no"},
            "uturns must be true, false or 'dead-ends', got 'no'",
        ),
        ({"network": "city", "edges": {"a": 1}}, "edges must be"),
        ({"network": "city", "elevation": 4}, "elevation must be .*, got 4"),
        ({"network": "no/such/place"}, "is neither a file nor"),
        ({"network": "a" * 5000}, "is neither a file nor"),
    ],
)
def test_invalid_networks_are_rejected(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_roads(**options)


@pytest.mark.parametrize("name", ["prior_scale", "noise_scale"])
@pytest.mark.parametrize("value", [1e200, 1e-200, -1.0])
def test_scales_that_can_not_be_squared_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        road_model(GRAPH, Vehicle(), horizon=1, **{name: value})


def test_spec_distinguishes_models() -> None:
    def fingerprint(
        vehicle: Vehicle | None = None, graph: Any = GRAPH, **options: Any
    ) -> str:
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
    r = (
        np.sqrt(5.0)
        * np.sqrt(((rows[:, None, 1:] - rows[None, :, 1:]) ** 2).sum(axis=2))
        / 2.0
    )
    added = (
        (1.0 + r + r**2 / 3.0)
        * np.exp(-r)
        * plain.kernel.diag(road_arms(GRAPH).features).mean()
    )
    np.testing.assert_allclose(
        changing.kernel(rows), plain.kernel(rows[:, :4]) + added, rtol=1e-9, atol=1e-9
    )


def test_kernel_is_half_graph_times_features_and_half_features() -> None:
    kernel = road_kernel(GRAPH, 4.0, lengthscale=1.0)
    features = np.column_stack([np.arange(len(GRAPH)), GRAPH.features])[:40]
    K = kernel(features)
    A = 4.0 * np.eye(len(GRAPH)) + GRAPH.laplacian().toarray()
    k_G = np.linalg.inv(A @ A)
    k_G = k_G[:40, :40] / np.diagonal(k_G).mean()
    distance = np.sqrt(
        ((features[:, None, 1:] - features[None, :, 1:]) ** 2).sum(axis=2)
    )
    r = np.sqrt(5.0) * distance
    k_f = (1.0 + r + r**2 / 3.0) * np.exp(-r)  # eq. 135 with ν = 5/2
    np.testing.assert_allclose(K, 2.0 * k_G * k_f + 2.0 * k_f, atol=1e-9)


# --- k_f and k′_f with separate scales ----------------------------------------------------------


def matern_by_equation_135(X: Any, Y: Any, lengthscales: Any) -> Any:
    """Eqs 135 and 136 as printed, with ν = 5/2 and σ_f = 1, by the Bessel function."""
    from scipy.special import gamma, kv

    nu = 2.5
    scaled = (X[:, None, :] - Y[None, :, :]) @ np.diag(
        np.asarray(lengthscales, dtype=float) ** -1.0
    )
    D = np.sqrt(np.einsum("ijk,ijk->ij", scaled, scaled))
    z = np.sqrt(2.0 * nu) * D
    values = np.ones_like(z)  # the limit at D = 0
    apart = z > 0.0
    values[apart] = 2.0 ** (1.0 - nu) / gamma(nu) * z[apart] ** nu * kv(nu, z[apart])
    return values


def graph_matern_by_equation_134(graph: Any) -> Any:
    """U (2ν/κ² I + Λ)^{−ν} Uᵀ with ν = 2, κ = 1, scaled to a mean diagonal of 1."""
    values, vectors = np.linalg.eigh(graph.laplacian().toarray())
    K = (vectors * (4.0 + values) ** -2.0) @ vectors.T
    return K / np.diagonal(K).mean()


@pytest.mark.parametrize(
    ("near", "features_only", "share"),
    [
        (None, None, 0.5),
        ([0.5, 1.0, 2.0], [3.0, 0.7, 1.5], 0.3),
        (0.4, None, 0.9),
        (None, (0.2, 5.0, 1.0), 0.5),
    ],
)
def test_the_kernel_of_section_4_1(near: Any, features_only: Any, share: float) -> None:
    """k_G·k_f + k′_f, each feature kernel with its own lengthscales and outputscale."""
    variance, common = 7.0, 1.3
    features = as_feature_kernels(near, features_only, share)
    kernel = road_kernel(GRAPH, variance, lengthscale=common, features=features)
    arms = road_arms(GRAPH).features
    some = arms[::9]
    numbers = some[:, 0].astype(int)

    def lengthscales(stated: Any) -> Any:
        return np.broadcast_to(common if stated is None else stated, 3)

    context, others = arms[:, 1:], some[:, 1:]
    near_features = matern_by_equation_135(context, others, lengthscales(near))
    features_only_kernel = matern_by_equation_135(
        context, others, lengthscales(features_only)
    )
    expected = (
        share
        * variance
        * graph_matern_by_equation_134(GRAPH)[:, numbers]
        * near_features
    )
    expected += (1.0 - share) * variance * features_only_kernel
    np.testing.assert_allclose(
        kernel(arms, some), expected, rtol=1e-9, atol=1e-9 * variance
    )


def test_equal_feature_kernels_change_no_bit() -> None:
    arms = road_arms(GRAPH).features
    plain = road_kernel(GRAPH, 7.0, lengthscale=1.3)
    stated = road_kernel(GRAPH, 7.0, features=as_feature_kernels(1.3, 1.3, 0.5))
    np.testing.assert_array_equal(stated(arms[:20], arms), plain(arms[:20], arms))


@pytest.mark.parametrize(
    ("near", "features_only", "share", "words"),
    [
        (
            [1.0, 2.0],
            None,
            0.5,
            "graph_lengthscales has 2 entries; give one number, or three",
        ),
        (None, [1.0, -2.0, 1.0], 0.5, r"feature_lengthscales\[1\]"),
        ("long", None, 0.5, "graph_lengthscales"),
        (None, None, 1.0, "graph_share must lie strictly between 0 and 1, got 1"),
        (None, None, -0.1, "graph_share"),
    ],
)
def test_feature_kernels_are_checked(
    near: Any, features_only: Any, share: Any, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        as_feature_kernels(near, features_only, share)
