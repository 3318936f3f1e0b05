"""The finite-rank form: Bayesian linear regression on features of the kernel."""

from __future__ import annotations

from functools import partial

import numpy as np

from superarm.core import Floats, Ints, State
from superarm.core.errors import StateError
from superarm.core.linalg import cholesky, root_update, shallow_copy, solve_lower
from superarm.core.threads import blas_threads_for
from superarm.kernels import FeatureMap, Kernel
from superarm.posteriors.observations import ObservationBuffer

from .form import FORM_SCHEMA, ArmSolution, Form, NewRewards, Update

# Largest error of a kernel value, relative to the prior variance.
FEATURE_ERROR = 1e-13
# Processors may disagree about features whose size is near the tolerance, at most this many.
_ROUNDED_FEATURES = 16
# Relative difference of means up to which a saved posterior belongs to these features.
_SAME_FEATURES = 1e-6
_NOISE_PER_ERROR = 1e4
"""Noise that the finite-rank form needs, in errors δ of a kernel value. They move K + D by δ per
entry, which moves the mean by up to δ N/λ and a variance by up to δ N s/λ of what they are, for
noise λ and prior variances s. Rounding of the weights' precision, of condition N s/λ, is within
that, because δ is at least ε s. Against 50 digits a std is then right to 5e-5 and better."""


class FiniteRankForm(Form):
    """Bayesian linear regression on the kernel's exact features, in square-root form.

    Its rows are a root of the covariance.
    """

    name = "finite-rank"

    def __init__(
        self,
        features: FeatureMap,
        feature_tolerance: float,
        root: Floats,
        weights: Floats,
        data: ObservationBuffer,
    ) -> None:
        self._features = features
        self._feature_tolerance = feature_tolerance  # that was requested of them
        self._root = root  # S, (r, r)
        self._weights = weights  # w, (r,)
        self._data = data
        self.least_noise = _NOISE_PER_ERROR * features.error

    @classmethod
    def fit(
        cls,
        features: FeatureMap,
        feature_tolerance: float,
        data: ObservationBuffer,
        residual: Floats,
    ) -> FiniteRankForm:
        """The posterior of the weights given all observations.

        Args:
            features: Features of the kernel.
            feature_tolerance: The error of a kernel value that was requested of them.
            data: The observations.
            residual: Their rewards without the prior mean, (N,).
        """
        rank = features.rank
        if not len(data):
            root = np.eye(rank)
            return cls(features, feature_tolerance, root, np.zeros(rank), data)
        arms, _, noise = data.view()
        Phi = features(arms)  # (N, r)
        weighted = Phi / noise[:, None]
        with blas_threads_for(rank * Phi.size):
            precision = Phi.T @ weighted
        precision[np.diag_indices_from(precision)] += 1.0
        L = cholesky(precision, "the precision of the features' weights")
        inverse = solve_lower(L, np.eye(rank))  # L⁻¹
        root = np.ascontiguousarray(inverse.T)  # root rootᵀ = precision⁻¹
        shift = weighted.T @ residual  # Φᵀ D⁻¹ residual
        weights = root @ (root.T @ shift)
        return cls(features, feature_tolerance, root, weights, data)

    def state(self) -> State:
        """The box of the features and the posterior of their weights: draws depend on both."""
        arrays = {
            "lower": self._features.lower.copy(),
            "upper": self._features.upper.copy(),
            "root": self._root.copy(),
            "weights": self._weights.copy(),
        }
        scalars = {"tolerance": self._feature_tolerance}
        return State(kind=self.name, schema=FORM_SCHEMA, scalars=scalars, arrays=arrays)

    @classmethod
    def from_state(
        cls,
        state: State,
        kernel: Kernel,
        data: ObservationBuffer,
        residual: Floats,
        most: int,
    ) -> FiniteRankForm:
        """The form that ``state`` was taken from.

        Another processor may round the features into other signs, or keep one more of the smallest.
        The saved weights then belong to other features, and are computed again from the data.

        Args:
            state: What :meth:`state` returned.
            kernel: The same kernel.
            data: The same observations.
            residual: Their rewards without the prior mean, (N,).
            most: Most features to try, which limits the cost of a damaged state.
        """
        state.require(cls.name, FORM_SCHEMA, "the finite-rank form")
        tolerance = state.scalar("tolerance")
        weights = state.vector("weights").copy()
        rank = len(weights)
        saved_root = state.matrix("root", rank)
        root = np.array(saved_root, order="C")
        lower = state.vector("lower", data.columns)
        upper = state.vector("upper", data.columns)
        limit = most + _ROUNDED_FEATURES
        features = kernel.features(lower, upper, tolerance, limit)
        message = "this state is damaged: its features are not those of the kernel"
        if features is None or len(root) != rank:
            raise StateError(message)
        if abs(features.rank - rank) > _ROUNDED_FEATURES:
            raise StateError(message)
        is_precise = tolerance <= 1.000001 * FEATURE_ERROR * features.largest
        if not is_precise or not features.covers(data.view().arms):
            raise StateError(message)
        form = cls(features, tolerance, root, weights, data)
        if features.rank == rank and form._is_posterior(residual):
            return form
        return cls.fit(features, tolerance, data, residual)

    def _is_posterior(self, residual: Floats) -> bool:
        """Whether weights and root are the posterior of the data, in these features.

        With P = I + Φᵀ D⁻¹ Φ, the weights w and the root R satisfy P w = Φᵀ D⁻¹ residual and
        R Rᵀ P v = v for every v; one random v is tried. Differences count by how much they move
        means.
        """
        arms, _, noise = self._data.view()
        Phi = self._features(arms)
        weighted = Phi / noise[:, None]
        w = self._weights
        R = self._root
        misfit = residual - Phi @ w
        gradient = weighted.T @ misfit - w  # Φᵀ D⁻¹ residual − P w
        weight_error = R @ (R.T @ gradient)
        v = np.random.default_rng(0).standard_normal(self.rank)
        values = Phi @ v
        times_precision = weighted.T @ values + v  # P v
        root_error = R @ (R.T @ times_precision) - v
        has_weights = _is_negligible(Phi @ weight_error, residual)
        has_root = _is_negligible(Phi @ root_error, values)
        return has_weights and has_root

    @property
    def rank(self) -> int:
        return self._features.rank

    @property
    def tolerance(self) -> float:
        return self._features.error

    def covers(self, keys: Floats) -> bool:
        return self._features.covers(keys)

    def solve(self, keys: Floats) -> ArmSolution:
        Phi = self._features(keys)
        return ArmSolution(self, Phi @ self._root, Phi @ self._weights)

    def variance(self, keys: Floats, rows: Floats) -> Floats:
        return np.asarray(np.einsum("ij,ij->i", rows, rows))

    def covariance(
        self, keys: Floats, rows: Floats, positions: Ints | None = None
    ) -> Floats:
        chosen_rows = rows if positions is None else rows[positions]
        return chosen_rows @ rows.T

    def condition(self, new: NewRewards, data: ObservationBuffer) -> Update:
        from scipy.linalg.blas import dgemm

        update = root_update(self._root, new.rows, new.noise)
        form = shallow_copy(self)
        form._data = data
        form._weights = self._weights + update.gain @ new.innovation
        # root − downdate·rows in place, on the transposes: BLAS reads C-ordered arrays so.
        root = self._root.T
        rows = new.rows.T
        downdate = update.downdate.T
        last = partial(dgemm, -1.0, rows, downdate, 1.0, root, overwrite_c=1)
        return Update(form, update.information, last)

    def fitted_means(self) -> Floats:
        arms = self._data.view().arms
        Phi = self._features(arms)
        return Phi @ self._weights


def _is_negligible(error: Floats, values: Floats) -> bool:
    """Whether an error is small beside the largest of these values."""
    largest_error = np.abs(error).max()
    largest_value = np.abs(values).max()
    return bool(largest_error <= _SAME_FEATURES * largest_value)
