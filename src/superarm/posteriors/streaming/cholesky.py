"""The Cholesky form: a factor of the observations' covariance. Exact for every kernel."""

from __future__ import annotations

import numpy as np

from superarm.core import Covariance, Floats, Ints
from superarm.core.growing_cholesky import GrowingCholesky
from superarm.core.linalg import (
    add_to_diagonal,
    cholesky,
    information,
    shallow_copy,
    solve_lower,
    threads_for,
    with_room,
)
from superarm.kernels import Kernel
from superarm.posteriors.observations import ObservationBuffer
from superarm.posteriors.variances import (
    SURE_NOISE,
    check_means,
    constant_variance,
    largest_variance,
    prior_variance,
)

from .form import ArmSolution, Form, NewRewards, Update


class CholeskyForm(Form):
    """L = chol(k(X, X) + D) and z = L⁻¹(y − prior mean); holds for every arm."""

    name = "cholesky"
    tolerance = 0.0

    def __init__(
        self, kernel: Covariance, data: ObservationBuffer, capacity: int = 256
    ) -> None:
        self._kernel = kernel
        self._data = data
        # ``copy`` of np.array: a user's kernel may return an array that is in use elsewhere.
        self._copies = None if isinstance(kernel, Kernel) else True
        self._factor = GrowingCholesky(capacity)  # L
        self._z = np.empty(capacity)
        self._warned = False  # that means have lost their digits

    @classmethod
    def fit(
        cls, kernel: Covariance, data: ObservationBuffer, residual: Floats
    ) -> CholeskyForm:
        """The form of all observations, factorised at once.

        Args:
            kernel: The kernel.
            data: The observations.
            residual: Their rewards without the prior mean, (N,).
        """
        arms, _, noise = data.view()
        covariance = kernel(arms) + np.diag(noise)
        L = cholesky(covariance, "the covariance of the observed arms")
        size = len(L)
        form = cls(kernel, data, capacity=size)
        no_rows = np.empty((size, 0))
        form._factor.append(no_rows, L)
        form._z[:] = solve_lower(L, residual)
        return form

    @property
    def rank(self) -> int:
        return len(self._factor)

    def covers(self, keys: Floats) -> bool:
        return True

    def solve(self, keys: Floats) -> ArmSolution:
        if not len(self._factor):
            m = len(keys)
            no_rows = np.empty((m, 0))
            return ArmSolution(self, no_rows, np.zeros(m))
        covariances = self._kernel(keys, self._data.arms)  # (m, N)
        # The rows are solved in place: copy, unless the array is surely a new one.
        cross = np.array(covariances, dtype=np.float64, order="C", copy=self._copies)
        rows = self._factor.solve_rows(cross)
        mean = rows @ self._solved_residual()
        return ArmSolution(self, rows, mean)

    def _solved_residual(self) -> Floats:
        """z, (N,)."""
        size = len(self._factor)
        return self._z[:size]

    def variance(self, keys: Floats, rows: Floats) -> Floats:
        level = constant_variance(self._kernel)
        prior = prior_variance(self._kernel, keys) if level is None else level
        explained = np.vecdot(rows, rows)
        return np.asarray(prior - explained)

    def covariance(
        self, keys: Floats, rows: Floats, positions: Ints | None = None
    ) -> Floats:
        if positions is not None:
            prior = self._kernel(keys[positions], keys)
            explained = rows[positions] @ rows.T
            return prior - explained
        with threads_for(len(rows) * rows.size):
            return self._kernel(keys) - rows @ rows.T

    def condition(self, new: NewRewards, data: ObservationBuffer) -> Update:
        keys, rows, innovation, noise = new
        schur = self.covariance(keys, rows)
        add_to_diagonal(schur, noise)
        # A remaining variance may be all rounding: jitter is relative to the prior's size.
        largest_noise = noise.item(noise.argmax())
        scale = largest_variance(self._kernel, keys) + largest_noise
        corner = cholesky(schur, "the covariance of the observed arms", scale)
        new_z = solve_lower(corner, innovation)
        size = len(self._factor)
        new_size = size + len(new_z)
        form = shallow_copy(self)
        form._data = data
        form._warned = self._warned or self._warn_of_lost_digits(new, new_z, scale)
        form._factor = self._factor.extended(rows, corner)
        form._z = with_room(self._z, size, new_size)
        form._z[size:new_size] = new_z
        return Update(form, information(corner, noise))

    def _warn_of_lost_digits(
        self, new: NewRewards, new_z: Floats, scale: float
    ) -> bool:
        """Warn where means lose their digits for lack of noise; whether it did."""
        least_noise = new.noise.item(new.noise.argmin())
        if least_noise >= SURE_NOISE * scale:
            return False
        z = self._solved_residual()
        misfit = float(z @ z + new_z @ new_z)
        # Means are about as far from 0 as the last rewards.
        deviations = np.abs(new.innovation)
        size = float(deviations.max())
        return check_means(misfit, least_noise, scale, size)

    def fitted_means(self) -> Floats:
        # K α = (y − prior) − D α with α = (K + D)⁻¹(y − prior), and L z = y − prior.
        z = self._solved_residual()
        L = self._factor.factor
        alpha = solve_lower(L, z, transposed=True)
        noise = self._data.view().noise  # D
        return np.asarray(L @ z - noise * alpha)
