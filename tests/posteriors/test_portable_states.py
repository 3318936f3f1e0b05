"""States in the basis of a kernel's features load on processors that round features differently.

How LAPACK rounds decides the signs of eigenvectors, and which of the smallest features are dropped.
Both are changed here on purpose, as another processor might.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import StateError
from superarm.kernels import FeatureMap, Kernel, SquaredExponential, Temporal
from superarm.posteriors import DriftingGP, StreamingGP
from superarm.testing import raises

NOISE = 0.05
SIDE = np.linspace(0.0, 1.0, 33)
GRID = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(
    -1, 2
)  # more arms than are factorised
SMOOTH = SquaredExponential(lengthscale=0.5)


def flip_signs(features: FeatureMap) -> FeatureMap:
    signs = np.where(np.arange(features.rank) % 3, 1.0, -1.0)

    def evaluate(columns: Floats) -> Floats:
        return np.asarray(signs[:, None] * features.evaluate(columns))

    return replace(features, evaluate=evaluate)


def drop_smallest(features: FeatureMap) -> FeatureMap:
    remaining = np.delete(np.arange(features.rank), features.suprema.argmin())

    def evaluate(columns: Floats) -> Floats:
        return np.asarray(features.evaluate(columns)[remaining])

    return replace(features, evaluate=evaluate, suprema=features.suprema[remaining])


@pytest.fixture(params=[flip_signs, drop_smallest], ids=["signs", "rank"])
def move_to_other_processor(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], None]:
    here = Kernel.features

    def features(self: Kernel, *arguments: Any, **more: Any) -> FeatureMap | None:
        feature_map = here(self, *arguments, **more)
        changed: FeatureMap | None = (
            None if feature_map is None else request.param(feature_map)
        )
        return changed

    return lambda: monkeypatch.setattr(Kernel, "features", features)


def test_streaming_states_load(move_to_other_processor: Callable[[], None]) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    y = np.sin(5.0 * X).sum(axis=1)
    gp = StreamingGP(SMOOTH, NOISE, form="finite-rank")
    gp.observe(X, y)
    gp.observe(X[:20], y[:20] + 0.1)
    state, queries = gp.state(), rng.random((30, 2))
    expected = gp.predict(queries)
    move_to_other_processor()
    restored = StreamingGP(SMOOTH, NOISE, form="finite-rank").restored(state)
    predicted = restored.predict(queries)
    # What the engine promises next to a fresh solve.
    np.testing.assert_allclose(predicted.mean, expected.mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(predicted.std, expected.std, rtol=0.0, atol=1e-10)
    for posterior in (gp, restored):
        posterior.observe(X[:3], y[:3])
    np.testing.assert_allclose(
        restored.predict(queries).std, gp.predict(queries).std, atol=1e-10
    )


@pytest.mark.parametrize(("damaged", "factor"), [("weights", 1.01), ("root", 1.01)])
def test_weights_and_root_are_each_compared_with_the_data(
    damaged: str, factor: float
) -> None:
    """What a state holds of the features is not taken where one of the two is not of its data."""
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    gp = StreamingGP(SMOOTH, NOISE, form="finite-rank")
    gp.observe(X, np.sin(5.0 * X).sum(axis=1))
    state, queries = gp.state(), rng.random((30, 2))
    part = state.parts["features"]
    arrays = {**part.arrays, damaged: factor * part.arrays[damaged]}
    parts = {"features": replace(part, arrays=arrays)}
    restored = StreamingGP(SMOOTH, NOISE, form="finite-rank").restored(
        replace(state, parts=parts)
    )
    expected, predicted = gp.predict(queries), restored.predict(queries)
    np.testing.assert_allclose(predicted.mean, expected.mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(predicted.std, expected.std, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("rounds", [40, 400])
def test_drifting_states_load(
    move_to_other_processor: Callable[[], None], rounds: int
) -> None:
    """After 400 rounds most of what was observed is forgotten."""

    def new_posterior() -> DriftingGP:
        return DriftingGP(
            SMOOTH, GRID, NOISE, drift=Temporal(epsilon=0.2), form="kalman"
        )

    rng = np.random.default_rng(0)
    gp = new_posterior()
    for time, arm in enumerate(rng.integers(len(GRID), size=rounds), start=1):
        gp.observe([[arm, time]], [float(np.sin(arm + 0.1 * time))])
    state = gp.state()
    queries = np.column_stack([np.arange(len(GRID)), np.full(len(GRID), rounds + 1.0)])
    expected = gp.predict(queries)
    move_to_other_processor()
    restored = new_posterior().restored(state)
    predicted = restored.predict(queries)
    np.testing.assert_allclose(predicted.mean, expected.mean, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(predicted.std, expected.std, rtol=0.0, atol=1e-10)
    for posterior in (gp, restored):
        posterior.observe([[7, rounds + 1.0]], [0.5])
    queries[:, 1] += 1.0
    np.testing.assert_allclose(
        restored.predict(queries).std, gp.predict(queries).std, atol=1e-10
    )


def test_a_basis_of_quite_another_size_is_damage() -> None:
    rng = np.random.default_rng(0)
    gp = StreamingGP(SMOOTH, NOISE, form="finite-rank")
    gp.observe(rng.random((60, 2)), rng.standard_normal(60))
    state = gp.state()
    part = state.parts["features"]
    arrays = {**part.arrays, "weights": np.zeros(5), "root": np.eye(5)}
    parts = {"features": replace(part, arrays=arrays)}
    with raises(StateError, "its features are not those of the kernel"):
        StreamingGP(SMOOTH, NOISE, form="finite-rank").restored(
            replace(state, parts=parts)
        )
