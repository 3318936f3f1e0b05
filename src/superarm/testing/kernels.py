"""The contract of covariance functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Covariance, Floats
from superarm.kernels import TunableCovariance

from .helpers import assert_close, assert_equal, assert_finite, frozen, generator


class KernelContract(ABC):
    """The promises of every kernel.

    Override :meth:`points` if the kernel needs particular columns.
    """

    tolerance = 1e-12  # rounding allowed, relative to the largest prior variance
    gradient_tolerance = 1e-6  # relative to the largest prior variance, too

    @abstractmethod
    def make_kernel(self) -> Covariance:
        """The kernel to test."""

    def points(self) -> Floats:
        """Features of some arms, (n, d)."""
        rng = generator(1)
        return rng.random((9, 2))

    def _points(self) -> Floats:
        points = self.points()
        X = points.copy()
        X[-1] = X[0]  # equal rows are legal
        return frozen(X)

    def _scale(self, K: Floats) -> float:
        variances = np.diagonal(K)
        return float(variances.max())

    def _tolerance(self, K: Floats) -> float:
        return self.tolerance * self._scale(K)

    def test_shapes_and_finite_values(self) -> None:
        kernel = self.make_kernel()
        assert isinstance(kernel, Covariance)
        X = self._points()
        first = X[:1]
        three = X[:3]
        n = len(X)
        _assert_numbers(kernel(X), (n, n))
        _assert_numbers(kernel(X, three), (n, 3))
        _assert_numbers(kernel(first, X), (1, n))
        _assert_numbers(kernel.diag(X), (n,))

    def test_symmetric_and_positive_semi_definite(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        K = kernel(X)
        tolerance = self._tolerance(K)
        assert_close(K, K.T, tolerance, "K must be symmetric")
        symmetric = (K + K.T) / 2.0
        eigenvalues = np.linalg.eigvalsh(symmetric)
        lowest = eigenvalues[0]
        # Rounding of each entry by ε·scale moves an eigenvalue by at most n·ε·scale.
        rounding = len(K) * tolerance
        assert lowest >= -rounding, f"K has the eigenvalue {lowest}"

    def test_diag_is_the_diagonal(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        K = kernel(X)
        variances = kernel.diag(X)
        assert variances.min() >= 0.0
        diagonal = np.diagonal(K)
        tolerance = self._tolerance(K)
        assert_close(variances, diagonal, tolerance, "diag(X)")

    def test_a_pair_is_a_block_of_the_whole(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        K = kernel(X)
        tolerance = self._tolerance(K)
        upper = X[:4]
        lower = X[4:]
        block = kernel(upper, lower)
        expected_block = K[:4, 4:]
        assert_close(block, expected_block, tolerance, "K(X, Y)")
        third = X[2:3]
        sixth = X[5:6]
        entry = kernel(third, sixth)
        expected_entry = K[2:3, 5:6]
        assert_close(entry, expected_entry, tolerance, "K of two arms")

    def test_results_are_fresh_and_repeatable(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        two = X[:2]
        _assert_repeatable(lambda: kernel(X))
        _assert_repeatable(lambda: kernel(X, two))
        _assert_repeatable(lambda: kernel.diag(X))

    def test_gradients_match_differences(self) -> None:
        kernel: Any = self.make_kernel()
        if not isinstance(kernel, TunableCovariance):
            return
        theta = np.array(kernel.theta)
        count = len(theta)
        if count == 0:
            return
        bounds = np.asarray(kernel.bounds)
        assert bounds.shape == (count, 2)

        X = self._points()
        n = len(X)
        K, gradient = kernel(X, eval_gradient=True)
        assert gradient.shape == (n, n, count)
        clone = kernel.clone_with_theta(theta)
        assert_close(clone(X), K, self._tolerance(K), "the clone's K")

        step = 1e-5
        shifts = step * np.eye(count)
        tolerance = self.gradient_tolerance * self._scale(K)
        for index, shift in enumerate(shifts):
            above = kernel.clone_with_theta(theta + shift)
            below = kernel.clone_with_theta(theta - shift)
            difference = above(X) - below(X)
            slope = difference / (2.0 * step)
            partial = gradient[:, :, index]
            what = f"the gradient with respect to theta[{index}]"
            assert_close(partial, slope, tolerance, what)


def _assert_numbers(values: Floats, shape: tuple[int, ...]) -> None:
    assert values.shape == shape, f"expected {shape}, got {values.shape}"
    assert values.dtype == np.float64
    assert_finite(values)


def _assert_repeatable(compute: Callable[[], Floats]) -> None:
    first = compute()
    expected = np.array(first)
    second = compute()
    second[...] = np.nan  # posteriors overwrite the arrays they get
    third = compute()
    assert_equal(third, expected)
