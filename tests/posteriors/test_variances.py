"""Impossible variances are rejected where they first occur; rounding is clipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm.core import Floats
from superarm.core.errors import (
    InputError,
    NotFiniteError,
    NotPositiveDefiniteError,
    PrecisionWarning,
    ShapeError,
)
from superarm.core.states import state_to_bytes
from superarm.kernels import Product, SquaredExponential
from superarm.posteriors import FiniteGP, SparseVariational, StreamingGP
from superarm.posteriors.base import standard_deviation

SMOOTH = SquaredExponential(lengthscale=0.3)
ARMS = np.linspace(0.0, 1.0, 5)[:, None]


class Foreign:
    """Someone else's kernel, with its own idea of the variance of the arm at 1."""

    def __init__(self, last: float) -> None:
        self.last = last

    def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
        return SMOOTH(X, Y)

    def diag(self, X: Floats) -> Floats:
        return np.where(X[:, 0] == 1.0, self.last, 1.0)


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (np.nan, NotFiniteError),
        (np.inf, NotFiniteError),
        (-1.0, NotPositiveDefiniteError),
        (-1e-9, NotPositiveDefiniteError),
        (1e200, InputError),
    ],
)
def test_impossible_prior_variances_are_refused_by_the_name_of_their_arm(
    last: float, error: type[Exception]
) -> None:
    kernel: Any = Foreign(last)
    for form in ("root", "visited"):
        with pytest.raises(error, match="arm 4"):
            FiniteGP(kernel, ARMS, 0.1, form=form)  # type: ignore[arg-type]
    for make in (StreamingGP, SparseVariational):
        posterior = make(kernel, 0.1)
        with pytest.raises(error, match="arm 4"):
            posterior.predict(ARMS)
        posterior.observe(ARMS[:2], [1.0, 2.0], rng=np.random.default_rng(0))
        with pytest.raises(error, match="arm 4"):
            posterior.predict(ARMS)
    stream = StreamingGP(kernel, 0.1)
    with pytest.raises(error, match="arm 1"):
        stream.observe(ARMS[3:], [1.0, 2.0])
    assert stream.count == 0


def test_a_diag_that_is_not_the_diagonal_is_refused() -> None:
    with pytest.raises(NotPositiveDefiniteError, match=r"arm 4 the variance 0\.5"):
        FiniteGP(Foreign(0.5), ARMS, 0.1)

    class Short(Foreign):
        def diag(self, X: Floats) -> Floats:
            return np.ones(1)

    with pytest.raises(ShapeError, match="one prior variance per arm"):
        StreamingGP(Short(1.0), 0.1).predict(ARMS)


class Table:
    """k(i, j) = table[i, j], whatever it is."""

    def __init__(self, off: float) -> None:
        self.table = np.array([[1.0, off], [off, 1.0]])

    def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
        other = X if Y is None else Y
        return self.table[np.ix_(X[:, 0].astype(int), other[:, 0].astype(int))]

    def diag(self, X: Floats) -> Floats:
        return np.ones(len(X))


def test_invalid_covariance_function_is_detected() -> None:
    """The variance of arm 1 is 1 − 4/1.1 once arm 0 is observed: it is not 0."""
    two = np.array([[0.0], [1.0]])
    stream = StreamingGP(Table(2.0), 0.1)
    stream.observe(two[:1], [1.0])
    with pytest.raises(NotPositiveDefiniteError, match=r"arm 1 is -2\.64"):
        stream.predict(two)
    visited = FiniteGP(Table(2.0), two, 0.1, form="visited")
    before = state_to_bytes(visited.state())
    with pytest.raises(NotPositiveDefiniteError, match=r"arm 1 is -2\.64"):
        visited.observe([0], [1.0])
    assert state_to_bytes(visited.state()) == before
    np.testing.assert_array_equal(visited.predict([0, 1]).mean, 0.0)
    variational = SparseVariational(Table(2.0), 0.1, natural_rate=1.0, adam_rate=0.0)
    variational.observe(two[:1], [1.0], rng=np.random.default_rng(0))
    with pytest.raises(NotPositiveDefiniteError, match=r"arm 1 is -2\.64"):
        variational.predict(two)
    nowhere = StreamingGP(Table(np.nan), 0.1)
    nowhere.observe(two[:1], [1.0])
    with pytest.raises(NotFiniteError, match="arm 1 is NaN"):
        nowhere.predict(two)


def test_rounding_is_clipped_and_larger_errors_warn() -> None:
    np.testing.assert_array_equal(
        standard_deviation(np.array([4.0, -3e-8]), lambda: 4.0), [2.0, 0.0]
    )
    with pytest.warns(PrecisionWarning, match="set to 0"):
        standard_deviation(np.array([4.0, -5e-8]), lambda: 4.0)
    with pytest.warns(PrecisionWarning, match="set to 0") as warned:
        standard_deviation(np.array([4.0, -3e-6]), lambda: 4.0)
    assert warned[0].filename == __file__  # the caller of superarm
    with pytest.raises(NotPositiveDefiniteError, match="arm 1"):
        standard_deviation(np.array([4.0, -5e-6]), lambda: 4.0)
    with pytest.raises(NotPositiveDefiniteError, match="arm 1"):
        standard_deviation(np.array([0.01, -5e-8]), lambda: 0.01)
    assert FiniteGP(Table(0.5), [[0.0], [1.0]], 0.1).predict([0]).mean.tolist() == [0.0]
    hair: Any = Foreign(-1e-14)
    np.testing.assert_array_equal(
        StreamingGP(hair, 0.1).predict(ARMS).std, [1.0, 1.0, 1.0, 1.0, 0.0]
    )


@pytest.mark.parametrize("variance", [1e-98, 1e98])
@pytest.mark.parametrize(
    "kind", ["streaming", "finite-rank", "root", "numpy", "visited", "variational"]
)
def test_units_do_not_matter_up_to_the_limit(kind: str, variance: float) -> None:
    def learned(variance: float) -> tuple[Floats, Floats]:
        kernel = SquaredExponential(lengthscale=0.3, variance=variance)
        noise = 0.1 * variance
        posterior: Any = {
            "streaming": lambda: StreamingGP(kernel, noise),
            "finite-rank": lambda: StreamingGP(kernel, noise, form="finite-rank"),
            "root": lambda: FiniteGP(kernel, ARMS, noise),
            "numpy": lambda: FiniteGP(kernel, ARMS, noise, backend="numpy"),
            "visited": lambda: FiniteGP(kernel, ARMS, noise, form="visited"),
            "variational": lambda: SparseVariational(
                kernel, noise, natural_rate=1.0, adam_rate=0.0
            ),
        }[kind]()
        arms: Any = np.arange(5) if isinstance(posterior, FiniteGP) else ARMS
        unit = np.sqrt(variance)
        for rewards in ([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]):
            posterior.observe(
                arms[:3], unit * np.array(rewards), rng=np.random.default_rng(0)
            )
        mean, std = posterior.predict(arms)
        return mean / unit, std / unit

    for answer, expected in zip(learned(variance), learned(1.0), strict=True):
        np.testing.assert_allclose(answer, expected, rtol=1e-9)


def test_products_beyond_the_limit_are_refused_by_the_posterior() -> None:
    for size, words in ((1e90, "at most"), (1e-90, "at least")):
        kernel = Product(kernels=(SquaredExponential(variance=size),) * 2)
        with pytest.raises(InputError, match=words):
            FiniteGP(kernel, ARMS, 0.1)
