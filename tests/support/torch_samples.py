"""A kernel, data and comparisons for tests of GPyTorch models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.states import state_to_bytes
from superarm.kernels import Matern

KERNEL = Matern(nu=2.5, lengthscale=0.4, variance=1.5)
FEATURES = np.random.default_rng(0).random((8, 2))
NOISE = 0.05


def covariance() -> Any:
    """GPyTorch's kernel that equals ``KERNEL``."""
    import gpytorch

    inner = gpytorch.kernels.MaternKernel(nu=2.5)
    outer = gpytorch.kernels.ScaleKernel(inner).double()
    inner.lengthscale, outer.outputscale = 0.4, 1.5
    return outer


def data(count: int = 12, seed: int = 1) -> tuple[Floats, Floats, Floats]:
    """Feature rows, rewards and noise variances."""
    rng = np.random.default_rng(seed)
    rows = FEATURES[rng.integers(0, len(FEATURES), count)]
    return rows, rng.standard_normal(count), rng.uniform(0.02, 0.2, count)


def assert_agree(
    one: Any, other: Any, rows: Floats = FEATURES, tolerance: float = 1e-6
) -> None:
    """Both posteriors predict alike and have learned as much."""
    for actual, expected in zip(
        one.predict(rows, return_cov=True),
        other.predict(rows, return_cov=True),
        strict=True,
    ):
        np.testing.assert_allclose(actual, expected, atol=tolerance)
    np.testing.assert_allclose(
        one.predict(rows).std, other.predict(rows).std, atol=tolerance
    )
    assert one.information_gain == pytest.approx(other.information_gain, abs=tolerance)
    assert one.incumbent == pytest.approx(other.incumbent, abs=tolerance)
    assert one.count == other.count


def sum_up(posterior: Any) -> bytes:
    """A posterior's state, to compare bit for bit."""
    return state_to_bytes(posterior.state())
