"""Feature rows of roads: what scales of the noise multiply."""

from __future__ import annotations

import numpy as np

from superarm.roads.rows import NoiseColumn, build_rows, noise_parts, term_sizes

# Wh for rolling, time, drag and climb; the second road runs downhill.
TERMS = np.array([[3.0, 2.0, 1.0, 4.0], [3.0, 2.0, 1.0, -4.0]])


def make_rows(terms: np.ndarray, mass_ratio: float = 2.0) -> np.ndarray:
    return build_rows(
        edges=np.arange(len(terms)),
        expected=terms.sum(axis=1),
        terms=terms,
        mass_ratio=mass_ratio,
        stops=np.full(len(terms), 0.5),
        vehicle=7,
    )


def test_noise_parts_by_hand() -> None:
    parts = noise_parts(make_rows(TERMS))
    expected = np.empty((2, len(NoiseColumn)))
    expected[:, NoiseColumn.ROAD] = 2.0**2
    expected[:, NoiseColumn.TIME] = 2.0**2 * 2.0
    expected[:, NoiseColumn.STOPS] = 0.5
    expected[:, NoiseColumn.SIZE] = (3.0 + 1.0 + 4.0) ** 2  # also downhill
    np.testing.assert_allclose(parts, expected)
    np.testing.assert_allclose(term_sizes(TERMS), 8.0)


def test_a_negative_time_adds_no_noise() -> None:
    """Rows of the user's own may hold one: variances must not fall below 0."""
    terms = TERMS * [1.0, -1.0, 1.0, 1.0]
    parts = noise_parts(make_rows(terms))
    np.testing.assert_array_equal(parts[:, NoiseColumn.TIME], 0.0)
    assert (parts >= 0.0).all()
