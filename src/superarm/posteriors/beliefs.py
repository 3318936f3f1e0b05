"""The belief of a Gaussian posterior about the arms on offer now.

Notation

=========  =======================================================================
``n``      arms on offer
``p``      distinct pending arms: chosen, and counted as observed
``C``      the posterior covariance of both
``L``      chol(C_pp + noise), (p, p); an arm that is pending c times has a c-th of the noise
``W``      L⁻¹ C_pn, (p, n): pending arms reduce the belief's covariance by WᵀW
=========  =======================================================================

Each pending arm adds a row to W, at a cost of n·p plus what the posterior needs for one row of C.
Only ``cov`` computes an n × n matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import StaleBeliefError, UnknownArmError
from superarm.core.inputs import as_generator, as_positions
from superarm.core.linalg import (
    add_to_diagonal,
    cholesky,
    solve_lower,
    solve_lower_in_place,
)
from superarm.core.locks import ReadWriteLock, consistent_read
from superarm.core.threads import one_blas_thread

from .variances import standard_deviation

if TYPE_CHECKING:
    from .base import GaussianPosterior

PosteriorType = TypeVar("PosteriorType", bound="GaussianPosterior")


class PendingArms(NamedTuple):
    """Arms that were chosen but not observed: they reduce variances and leave means unchanged."""

    positions: Ints  # (p,) among the belief's keys, of distinct keys
    places: Ints  # the place among these of each choice, in the order of choices
    factor: Floats  # L, (p, p)
    rows: Floats  # W, (p, n)

    def extended(
        self,
        positions: Ints,
        places: Ints,
        cross: Floats,
        factor: Floats,
        rows: Floats,
    ) -> PendingArms:
        """These and k more arms.

        Args:
            positions: Of the new arms, (k,).
            places: The place among these of each new choice.
            cross: Columns of W for the new arms, (p, k).
            factor: Cholesky factor of their covariance after these arms, (k, k).
            rows: Their rows of W, (k, n).
        """
        count = len(self.positions)
        all_positions = np.concatenate([self.positions, positions])
        all_places = np.concatenate([self.places, count + places])
        size = len(all_positions)
        # Filled block by block, which takes a third of the time of ``np.block``.
        all_factor = np.zeros((size, size))
        all_factor[:count, :count] = self.factor
        all_factor[count:, :count] = cross.T
        all_factor[count:, count:] = factor
        all_rows = np.vstack([self.rows, rows])
        return PendingArms(all_positions, all_places, all_factor, all_rows)


class BaseBelief(Generic[PosteriorType]):
    """A posterior's belief about some keys; it is stale once the posterior learns more.

    Args:
        posterior: The posterior.
        keys: The posterior's keys of the arms.
        sign: 1, or −1 for the belief about negated rewards.
        version: The posterior's version that the belief is about; default: the current one.
    """

    __slots__ = ("_keys", "_posterior", "_sign", "_version")

    def __init__(
        self,
        posterior: PosteriorType,
        keys: NDArray[Any],
        sign: float = 1.0,
        version: int | None = None,
    ) -> None:
        self._posterior = posterior
        self._keys = keys
        self._sign = sign
        self._version = posterior.version if version is None else version

    @property
    def _lock(self) -> ReadWriteLock:
        return self._posterior._lock

    def _current_posterior(self) -> PosteriorType:
        """The posterior, unless it has learned more since the belief was made."""
        if self._posterior.version != self._version:
            raise StaleBeliefError(
                "the posterior has learned more since then; ask for a new belief"
            )
        return self._posterior

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of one observation."""
        return self._posterior.noise_std

    @property
    @consistent_read
    def information_gain(self) -> float:
        """The posterior's realised information gain, nats."""
        return self._current_posterior().information_gain

    @property
    @one_blas_thread
    @consistent_read
    def incumbent(self) -> float:
        """Highest posterior mean among observed arms, of ``sign`` × reward; 0 before any data."""
        posterior = self._current_posterior()
        return posterior._incumbent(self._sign) if posterior.count else 0.0


class GaussianBelief(BaseBelief["GaussianPosterior"]):
    """Mean and std of the arms on offer; covariance and joint draws on demand.

    Args:
        posterior: The posterior.
        keys: Keys of the n arms on offer, followed by those of pending arms that are not on offer.
        mean: Means of the arms on offer, (n,); the belief owns the array and makes it read-only.
        std: Their standard deviations, (n,), likewise.
        sign: 1, or −1 for the belief about negated rewards.
        version: The posterior's version that the belief is about; default: the current one.
        pending: Arms that count as observed.
    """

    __slots__ = ("_cov", "_pending", "mean", "std")

    def __init__(
        self,
        posterior: GaussianPosterior,
        keys: NDArray[Any],
        mean: Floats,
        std: Floats,
        sign: float = 1.0,
        version: int | None = None,
        pending: PendingArms | None = None,
    ) -> None:
        # Set here rather than by the base class: one call less for every decision.
        self._posterior = posterior
        self._keys = keys
        self._sign = sign
        self._version = posterior.version if version is None else version
        self._pending = pending
        self._cov: Floats | None = None
        # Read-only, because a rule that wrote into them would change a decision's report.
        # The argument is ``write``; passing it by name doubles numpy's time.
        mean.setflags(False)  # type: ignore[call-arg]
        std.setflags(False)  # type: ignore[call-arg]
        self.mean = mean
        self.std = std

    @property
    def cov(self) -> Floats:
        """Joint covariance of the arms on offer, (n, n), read-only; computed once."""
        if self._cov is None:
            cov = self._covariance()
            cov.flags.writeable = False
            self._cov = cov
        return self._cov

    @one_blas_thread
    @consistent_read
    def _covariance(self) -> Floats:
        cov = self._current_posterior()._covariance(self._keys)
        if self._pending is None:
            return cov
        n = len(self.mean)
        rows = self._pending.rows
        return cov[:n, :n] - rows.T @ rows

    @one_blas_thread
    @consistent_read
    def sample(self, rng: Rng) -> Floats:
        """One joint draw of the latent rewards of the arms on offer, (n,).

        Args:
            rng: A random generator.
        """
        posterior = self._current_posterior()
        draws = posterior._draw(self._keys, as_generator(rng), 1)
        draw: Floats = draws[0]
        pending = self._pending
        if pending is None:
            return self.mean + draw
        # Pathwise conditioning: f − C_np (C_pp + noise)⁻¹ (f_p + ε) has the conditional covariance.
        # Every choice has a normal of its own; an arm that was chosen often has their mean.
        normals = rng.standard_normal(len(pending.places))
        counts = np.bincount(pending.places)
        noise = self.noise_std * np.bincount(pending.places, normals) / counts
        observed = draw[pending.positions] + noise  # f_p + ε
        whitened = solve_lower(pending.factor, observed)
        n = len(self.mean)
        draw = draw[:n] - whitened @ pending.rows
        return self.mean + draw

    @one_blas_thread
    @consistent_read
    def condition(self, positions: Ints) -> GaussianBelief:
        """The belief after these arms are observed: less variance, the same mean.

        Args:
            positions: Of the arms, (k,), among those on offer.
        """
        choices = as_positions(positions, "positions")
        posterior = self._current_posterior()
        self._check_positions(choices)
        chosen, places = distinct(self._keys, choices)
        pending = self._pending
        n = len(self.mean)
        covariance_rows = posterior._covariance(self._keys, chosen)  # (k, m), m ≥ n
        corner = covariance_rows[:, chosen]  # (k, k)
        rows = covariance_rows[:, :n]  # (k, n)
        if pending is not None:
            # All positions are below n: pending arms that are not on offer come first.
            cross = pending.rows[:, chosen]  # (p, k)
            corner -= cross.T @ cross
            rows = rows - cross.T @ pending.rows
        else:
            rows = rows.copy()  # others may read them
        add_to_diagonal(corner, self.noise_std**2 / np.bincount(places))
        factor = cholesky(corner, "the covariance of the chosen arms")
        rows = solve_lower_in_place(factor, rows)
        explained = np.einsum("ij,ij->j", rows, rows)
        variance = self.std**2 - explained
        std = standard_deviation(variance, lambda: posterior._prior_scale(self._keys))
        if pending is None:
            conditioned = PendingArms(chosen, places, factor, rows)
        else:
            conditioned = pending.extended(chosen, places, cross, factor, rows)
        return self._changed(self.mean, std, self._sign, conditioned)

    def _check_positions(self, positions: Ints) -> None:
        """Refuse positions beyond the belief's keys."""
        if not len(positions):
            return
        if positions.min() < 0 or positions.max() >= len(self._keys):
            first_few = positions.tolist()[:9]
            last = len(self.mean) - 1
            raise UnknownArmError(
                f"positions {first_few} are not all among arms 0 to {last}"
            )

    def negated(self) -> GaussianBelief:
        """The belief about the negated rewards."""
        return self._changed(-self.mean, self.std, -self._sign, self._pending)

    def _changed(
        self, mean: Floats, std: Floats, sign: float, pending: PendingArms | None
    ) -> GaussianBelief:
        """A belief about the same keys at the same version."""
        return GaussianBelief(
            self._posterior, self._keys, mean, std, sign, self._version, pending
        )


class DistinctChoices(NamedTuple):
    """Choices without those of an arm that was chosen before."""

    positions: Ints  # of the distinct arms, by their first choice
    places: Ints  # of each choice, among these


def distinct(keys: NDArray[Any], choices: Ints) -> DistinctChoices:
    """The distinct arms among choices.

    Decisions that wait for rewards often share arms, as routes between the same places do. Observing an
    arm c times is observing the mean once, with a c-th of the noise: the work depends on the arms alone.

    Args:
        keys: Keys of all arms; only row numbers are compared.
        choices: Positions of the chosen arms.
    """
    arms = keys[choices] if keys.ndim == 1 else choices
    if len(set(arms.tolist())) == len(choices):  # as nearly always
        return DistinctChoices(choices, np.arange(len(choices)))
    _, first, places = np.unique(arms, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return DistinctChoices(choices[first[order]], rank[places])
