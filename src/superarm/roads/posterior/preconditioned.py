"""Equations Q x = b that are solved by conjugate gradients.

=============  =======================================================================
``Q``          a posterior precision, symmetric and positive definite
``M``          what Q is preconditioned with
=============  =======================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.errors import PrecisionWarning, warn

from .conjugate_gradients import CAUTION, Solution, conjugate_gradients
from .trips import Trips

MOST_STEPS = 1000
"""Steps after which a solve gives up and warns."""
# Steps for means above which M is made anew.
_SLOW = 15
# By what factor the information of trips may grow until M is made anew, and where variances are those of
# M. Directions that M corrects are as wide as they were when it was made.
_GROWTH = 2.0
_GROWTH_FOR_VARIANCES = 1.02


class PreconditionedEquations(ABC):
    """Q and its preconditioner; a subclass has the blocks of both."""

    def __init__(self) -> None:
        self._information_of_M = 0.0
        self._forget_measurements()

    def _forget_measurements(self) -> None:
        """Forget what was measured of M, which is made anew."""
        # A number below the smallest eigenvalue of M⁻¹ Q, or infinity until it is measured.
        self._smallest = np.inf
        # Steps of the first solve for means with this M, and whether later ones take far more.
        self._first_steps: int | None = None
        self._is_slow = False

    @abstractmethod
    def _total_information(self) -> float:
        """The information of all trips about single roads, summed over roads."""

    def _has_grown(self, factor: float = _GROWTH) -> bool:
        """Whether trips contain more than so many times the information that M was made from."""
        return self._total_information() > factor * self._information_of_M

    def refresh_for_variances(self) -> None:
        """Have M made anew if its variances are from before more than a few trips."""
        if self._has_grown(_GROWTH_FOR_VARIANCES):
            self.refresh()

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of unknowns."""

    @abstractmethod
    def times(self, flat: Floats) -> Floats:
        """Q times unknowns."""

    @abstractmethod
    def precondition(self, flat: Floats) -> Floats:
        """M⁻¹ times unknowns."""

    @abstractmethod
    def refresh(self) -> None:
        """Have M made anew from all trips when it is needed next."""

    @abstractmethod
    def prepare(self) -> None:
        """Factorise M and measure its eigenvalues, unless that is done."""

    def _energies(self, vectors: Iterable[Floats]) -> Floats:
        """vᵀ Q v of each vector, (k,).

        Of soft modes it is θ. What a factor dropped may exceed a small one: θ without it may be far off, and
        even below 0, where M would not be positive definite.

        Args:
            vectors: Values of all unknowns.
        """
        energies = [float(v @ self.times(v)) for v in vectors]
        return np.array(energies)

    # --- what a form of the posterior asks for -------------------------------------------------

    @abstractmethod
    def copy(self) -> Self:
        """Equations that can grow by themselves."""

    @abstractmethod
    def append(self, trips: Trips, drivers: Ints, vehicles: int) -> None:
        """Add the information of trips.

        Args:
            trips: The trips.
            drivers: The place of each arm's vehicle, (N,).
            vehicles: V, those of these trips included.
        """

    @abstractmethod
    def prior_times(self, x: Any) -> Any:
        """The prior precision times unknowns."""

    @abstractmethod
    def approximate_cov(self, sums: Any, near: Floats | None = None) -> Floats:
        """X M⁻¹ Xᵀ of some rewards, (M, M), without a product with the log.

        Args:
            sums: What the rewards are sums of.
            near: The covariance of what their roads share with neighbours, as that of
                :meth:`near_draws`; by default computed exactly.
        """

    @abstractmethod
    def near_draws(self, edges: Ints, count: int) -> Floats:
        """Draws by M of what some roads share with their neighbours, (…, u, count).

        Args:
            edges: The roads, (u,).
            count: How many draws.
        """

    @abstractmethod
    def approximate_variances(self, arms: Any) -> Floats:
        """The diagonal of X M⁻¹ Xᵀ for single arms, (m,), without a product with the log."""

    @abstractmethod
    def information(self) -> float:
        """½ ln det of Q over the prior precision, nats, by the blocks of M and its soft modes."""

    # --- solutions ---------------------------------------------------------------------------

    def solve(self, right: Floats, start: Floats | None, error: float) -> Solution:
        """Q⁻¹ b such that no linear function is off by more than a share of its standard deviation.

        Args:
            right: b.
            start: Where to start.
            error: That share: a bound of the energy norm.
        """
        solution = self._solve(right, start, lambda squared, _: squared <= error**2)
        if start is not None:
            if self._first_steps is None:
                self._first_steps = solution.steps
            self._is_slow = solution.steps > max(_SLOW, 2 * self._first_steps)
        return solution

    @property
    def most_variance_error(self) -> float:
        """By what share of itself a variance by M may be off: 1/θ − 1 for eigenvalues θ of M⁻¹ Q."""
        self.prepare()
        above = 1.0 / (CAUTION * self._smallest) - 1.0
        return max(above, 1.0)  # where θ is large, at most the whole variance

    def solve_variance(
        self, right: Floats, tolerance: float, noise: float = 0.0
    ) -> Solution:
        """Q⁻¹ a such that √(aᵀ Q⁻¹ a + noise) is off by at most a share of itself.

        Args:
            right: a.
            tolerance: That share.
            noise: A variance that is known.
        """

        def is_enough(squared: float, variance: float) -> bool:
            # √(v + e) ≤ √v (1 + e / (2 v))
            return squared <= 2.0 * tolerance * (variance + noise)

        return self._solve(right, None, is_enough)

    def _solve(self, right: Floats, start: Floats | None, is_enough: Any) -> Solution:
        self.prepare()
        solution = conjugate_gradients(
            self.times,
            self.precondition,
            right,
            start=start,
            is_enough=is_enough,
            smallest=self._smallest,
            most=MOST_STEPS,
        )
        self._smallest = min(self._smallest, solution.smallest)
        if not solution.converged:
            warn(
                f"conjugate gradients stopped after {MOST_STEPS} steps short of the tolerance: the energy "
                f"norm of the error is up to {solution.error:.2g}. Use RoadGP(form='dense') or a larger "
                "tolerance",
                PrecisionWarning,
            )
        return solution
