"""Independent arms are the Gaussian process whose kernel is diagonal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, JointPrediction, Offer
from superarm.core.errors import InputError, StateError
from superarm.kernels import Empirical
from superarm.posteriors import FiniteGP, IndependentGaussian
from superarm.testing import restored


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 5), max_size=8))
def test_independent_posterior_equals_a_diagonal_kernel(
    seed: int, blocks: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    variance, prior = rng.uniform(0.1, 3.0, 5), rng.standard_normal(5)
    kernel = Empirical(covariance=tuple(map(tuple, np.diag(variance).tolist())))
    arms = np.arange(5.0)[:, None]
    independent = IndependentGaussian(variance, 0.3, prior)
    process = FiniteGP(kernel, arms, 0.3, prior)
    for block in blocks:
        rows, y = rng.integers(0, 5, block), rng.standard_normal(block)
        noise = rng.uniform(0.1, 1.0, block)
        independent.observe(rows, y, noise)
        process.observe(rows, y, noise)
    some = np.array([3, 0, 3, 1])
    one, other = (
        independent.predict(some, return_cov=True),
        process.predict(some, return_cov=True),
    )
    assert isinstance(one, JointPrediction)
    assert isinstance(other, JointPrediction)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-10)
    np.testing.assert_allclose(one.cov, other.cov, atol=1e-10)
    assert independent.information_gain == pytest.approx(
        process.information_gain, abs=1e-9
    )
    assert independent.incumbent == pytest.approx(process.incumbent, abs=1e-10)
    drawn = independent.sample(some, rng, 3)
    np.testing.assert_array_equal(
        drawn[:, 0], drawn[:, 2]
    )  # one arm, one latent reward


def test_the_conjugate_formula() -> None:
    arms = IndependentGaussian([2.0], 0.5, mean=1.0)
    arms.observe([0, 0], [3.0, 4.0], [0.5, 1.0])
    precision = 1.0 / 2.0 + 1.0 / 0.5 + 1.0 / 1.0
    mean, std = arms.predict([0])
    assert mean[0] == pytest.approx((1.0 / 2.0 + 3.0 / 0.5 + 4.0) / precision)
    assert std[0] == pytest.approx(precision**-0.5)


def test_mistakes_are_named() -> None:
    bad: Any
    for bad in ([], [1.0, 0.0], [1.0, -1.0], [np.nan], 1.0, ["x"]):
        with pytest.raises(InputError, match="prior_variance"):
            IndependentGaussian(bad, 0.1)
    with pytest.raises(InputError, match="mean has 3 entries"):
        IndependentGaussian([1.0, 1.0], 0.1, [0.0, 0.0, 0.0])
    arms = IndependentGaussian([1.0, 1.0], 0.1)
    with pytest.raises(InputError):
        arms.belief(Offer(step=1, arms=Arms(ids=["a", "b"], features=np.zeros((2, 1)))))
    with pytest.raises(InputError, match="there is no arm 2"):
        arms.observe([2], [0.0])
    with pytest.raises(StateError, match="schema"):
        FiniteGP.from_state(restored(arms.state()))
