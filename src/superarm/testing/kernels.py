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
    """What every kernel promises.

    Override :meth:`points` if the kernel needs particular columns.
    """

    tolerance = 1e-12  # rounding allowed, relative to the largest prior variance
    gradient_tolerance = 1e-6

    @abstractmethod
    def make_kernel(self) -> Covariance: ...

    def points(self) -> Floats:
        """Some arms, (n, d)."""
        return generator(1).random((9, 2))

    def _points(self) -> Floats:
        X = self.points().copy()
        X[-1] = X[0]  # equal rows are legal
        return frozen(X)

    def _scale(self, K: Floats) -> float:
        return float(np.max(np.diagonal(K)))

    def test_shapes_and_finite_values(self) -> None:
        kernel, X = self.make_kernel(), self._points()
        assert isinstance(kernel, Covariance)
        for values, shape in (
            (kernel(X), (len(X), len(X))),
            (kernel(X, X[:3]), (len(X), 3)),
            (kernel(X[:1], X), (1, len(X))),
            (kernel.diag(X), (len(X),)),
        ):
            assert values.shape == shape, f"expected {shape}, got {values.shape}"
            assert values.dtype == np.float64
            assert np.isfinite(values).all()

    def test_symmetric_and_positive_semi_definite(self) -> None:
        K = self.make_kernel()(self._points())
        scale = self._scale(K)
        assert_close(K, K.T, self.tolerance * scale, "K must be symmetric")
        lowest = float(np.linalg.eigvalsh((K + K.T) / 2.0)[0])
        # Rounding of each entry by ε·scale moves an eigenvalue by at most n·ε·scale.
        assert lowest >= -len(K) * self.tolerance * scale, (
            f"K has the eigenvalue {lowest}"
        )

    def test_diag_is_the_diagonal(self) -> None:
        kernel, X = self.make_kernel(), self._points()
        K = kernel(X)
        assert (kernel.diag(X) >= 0.0).all()
        assert_close(
            kernel.diag(X), np.diagonal(K), self.tolerance * self._scale(K), "diag(X)"
        )

    def test_a_pair_is_a_block_of_the_whole(self) -> None:
        kernel, X = self.make_kernel(), self._points()
        K = kernel(X)
        tolerance = self.tolerance * self._scale(K)
        assert_close(kernel(X[:4], X[4:]), K[:4, 4:], tolerance, "K(X, Y)")
        assert_close(kernel(X[2:3], X[5:6]), K[2:3, 5:6], tolerance, "K of two arms")

    def test_results_are_fresh_and_repeatable(self) -> None:
        kernel, X = self.make_kernel(), self._points()
        asked: tuple[Callable[..., Floats], ...] = (
            kernel,
            lambda X: kernel(X, X[:2]),
            kernel.diag,
        )
        for ask in asked:
            first = np.array(ask(X))
            ask(X)[...] = np.nan  # posteriors work in place on what they are given
            np.testing.assert_array_equal(ask(X), first)

    def test_gradients_match_differences(self) -> None:
        kernel: Any = self.make_kernel()
        if not isinstance(kernel, TunableCovariance) or len(kernel.theta) == 0:
            return
        X, theta = self._points(), np.array(kernel.theta)
        assert np.asarray(kernel.bounds).shape == (len(theta), 2)
        K, gradient = kernel(X, eval_gradient=True)
        scale = self._scale(K)
        assert_close(
            kernel.clone_with_theta(theta)(X),
            K,
            self.tolerance * scale,
            "the clone's K",
        )
        assert gradient.shape == (len(X), len(X), len(theta))
        step, tolerance = 1e-5, self.gradient_tolerance * scale
        for index, shift in enumerate(step * np.eye(len(theta))):
            above, below = (
                kernel.clone_with_theta(theta + sign * shift)(X) for sign in (1.0, -1.0)
            )
            slope, what = (
                (above - below) / (2.0 * step),
                f"the gradient with respect to theta[{index}]",
            )
            assert_close(gradient[:, :, index], slope, tolerance, what)
