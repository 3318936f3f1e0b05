"""Compares posteriors with predictions from slow, obvious formulas."""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import JointPrediction


def assert_prediction(
    gp: Any,
    queries: Any,
    expected: JointPrediction,
    scale: float = 1.0,
    tolerance: float = 1e-9,
) -> None:
    """Mean relative to its own size, covariance relative to ``scale``, the prior variance."""
    mean, std = gp.predict(queries)
    joint = gp.predict(queries, return_cov=True)
    assert isinstance(joint, JointPrediction)
    size = np.abs(expected.mean).max() + np.sqrt(scale)
    np.testing.assert_allclose(mean, expected.mean, rtol=0, atol=tolerance * size)
    np.testing.assert_allclose(joint.cov, expected.cov, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(
        std**2, np.diagonal(expected.cov), rtol=0, atol=tolerance * scale
    )
