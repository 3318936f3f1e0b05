"""The contract of covariance functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from superarm.core import Covariance, Floats
from superarm.kernels import TunableCovariance

from .helpers import assert_close, frozen, generator


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
        return generator(1).random((9, 2))

    def _points(self) -> Floats:
        X = self.points().copy()
        X[-1] = X[0]  # equal rows are legal
        return frozen(X)

    def _scale(self, K: Floats) -> float:
        return float(np.max(np.diagonal(K)))

    def _tolerance(self, K: Floats) -> float:
        return self.tolerance * self._scale(K)

    def test_shapes_and_finite_values(self) -> None:
        kernel = self.make_kernel()
        assert isinstance(kernel, Covariance)
        X = self._points()
        n = len(X)
        self._check_array(kernel(X), (n, n))
        self._check_array(kernel(X, X[:3]), (n, 3))
        self._check_array(kernel(X[:1], X), (1, n))
        self._check_array(kernel.diag(X), (n,))

    def _check_array(self, values: Floats, shape: tuple[int, ...]) -> None:
        assert values.shape == shape, f"expected {shape}, got {values.shape}"
        assert values.dtype == np.float64
        assert np.isfinite(values).all()

    def test_symmetric_and_positive_semi_definite(self) -> None:
        K = self.make_kernel()(self._points())
        tolerance = self._tolerance(K)
        assert_close(K, K.T, tolerance, "K must be symmetric")
        symmetric = (K + K.T) / 2.0
        lowest = float(np.linalg.eigvalsh(symmetric)[0])
        # Rounding of each entry by ε·scale moves an eigenvalue by at most n·ε·scale.
        assert lowest >= -len(K) * tolerance, f"K has the eigenvalue {lowest}"

    def test_diag_is_the_diagonal(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        K = kernel(X)
        variances = kernel.diag(X)
        assert (variances >= 0.0).all()
        assert_close(variances, np.diagonal(K), self._tolerance(K), "diag(X)")

    def test_a_pair_is_a_block_of_the_whole(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        K = kernel(X)
        tolerance = self._tolerance(K)
        assert_close(kernel(X[:4], X[4:]), K[:4, 4:], tolerance, "K(X, Y)")
        assert_close(kernel(X[2:3], X[5:6]), K[2:3, 5:6], tolerance, "K of two arms")

    def test_results_are_fresh_and_repeatable(self) -> None:
        kernel = self.make_kernel()
        X = self._points()
        self._check_repeatable(lambda: kernel(X))
        self._check_repeatable(lambda: kernel(X, X[:2]))
        self._check_repeatable(lambda: kernel.diag(X))

    def _check_repeatable(self, compute: Callable[[], Floats]) -> None:
        expected = np.array(compute())
        compute()[...] = np.nan  # posteriors overwrite the arrays they get
        np.testing.assert_array_equal(compute(), expected)

    def test_gradients_match_differences(self) -> None:
        kernel: Any = self.make_kernel()
        if not isinstance(kernel, TunableCovariance) or len(kernel.theta) == 0:
            return
        X = self._points()
        theta = np.array(kernel.theta)
        K, gradient = kernel(X, eval_gradient=True)
        clone = kernel.clone_with_theta(theta)
        assert_close(clone(X), K, self._tolerance(K), "the clone's K")
        assert np.asarray(kernel.bounds).shape == (len(theta), 2)
        assert gradient.shape == (len(X), len(X), len(theta))
        step = 1e-5
        tolerance = self.gradient_tolerance * self._scale(K)
        for index, shift in enumerate(step * np.eye(len(theta))):
            above = kernel.clone_with_theta(theta + shift)(X)
            below = kernel.clone_with_theta(theta - shift)(X)
            slope = (above - below) / (2.0 * step)
            what = f"the gradient with respect to theta[{index}]"
            assert_close(gradient[:, :, index], slope, tolerance, what)
