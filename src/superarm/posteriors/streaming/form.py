"""What the forms of :class:`superarm.posteriors.StreamingGP` share; notation as in ``posterior.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, NamedTuple

from superarm.core import Floats, Ints
from superarm.posteriors.observations import ObservationBuffer

FormName = Literal["cholesky", "finite-rank", "inducing"]

# The schema of the states of forms.
FORM_SCHEMA = 1


class Form(ABC):
    """The posterior given some observations, in one way to do the algebra.

    A form never changes: :meth:`condition` returns its successor, which writes into rows that no
    other form reads.
    """

    name: ClassVar[FormName]
    least_noise: float = 0.0
    """The smallest noise variance for which the form has the digits."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """Columns of the matrix in use."""

    @property
    @abstractmethod
    def tolerance(self) -> float:
        """Bound on the error of a kernel value."""

    @abstractmethod
    def covers(self, keys: Floats) -> bool:
        """Whether the form holds for these arms.

        Args:
            keys: The arms, (m, d).
        """

    @abstractmethod
    def solve(self, keys: Floats) -> ArmSolution:
        """What is known of some arms.

        Args:
            keys: The arms, (m, d).
        """

    @abstractmethod
    def variance(self, keys: Floats, rows: Floats) -> Floats:
        """Posterior variances of some arms, (m,).

        Args:
            keys: The arms, (m, d).
            rows: Their rows from :meth:`solve`.
        """

    @abstractmethod
    def covariance(
        self, keys: Floats, rows: Floats, positions: Ints | None = None
    ) -> Floats:
        """Covariance of the arms at some positions, or of all, with all arms, (k, m).

        Args:
            keys: The arms, (m, d).
            rows: Their rows from :meth:`solve`.
            positions: Positions among the arms, (k,); ``None``: all.
        """

    @abstractmethod
    def condition(self, new: NewRewards, data: ObservationBuffer) -> Update:
        """The form that has also learned these rewards.

        Args:
            new: The rewards.
            data: All observations, including the new ones.
        """

    @abstractmethod
    def fitted_means(self) -> Floats:
        """Posterior means of everything observed, without the prior mean, (N,)."""


class ArmSolution(NamedTuple):
    """A form's solution for some arms, for beliefs about them and for observing them."""

    form: Form
    rows: Floats  # (m, N) solved rows W, (m, r) rows of Φ S, or (m, 2s) rows [P, R]
    mean: Floats  # (m,) without the prior mean


class NewRewards(NamedTuple):
    """Rewards to be learned."""

    keys: Floats  # (k, d) arms
    rows: Floats  # as in ``ArmSolution``
    innovation: Floats  # (k,) rewards without their expectation
    noise: Floats  # (k,) variances


class Update(NamedTuple):
    """A form that has learned more."""

    form: Form
    information: float  # nats
    # To be called in the same step in which the form is adopted: it changes an array in place.
    last: Callable[[], object] | None = None
