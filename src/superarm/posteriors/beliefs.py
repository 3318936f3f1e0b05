"""What a Gaussian posterior means for the arms on offer now.

Notation

=========  =======================================================================
``n``      arms on offer; ``p`` arms that are taken as seen
``C``      the posterior covariance of both
``L``      chol(C_pp + noise), (p, p)
``W``      L⁻¹ C_pn, (p, n): what the belief's covariance loses is WᵀW
=========  =======================================================================

Arms that were chosen and not seen add a row to W each, for n·p and what the posterior needs for one
row of C. No n × n matrix is made unless ``cov`` is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import StaleBeliefError, UnknownArmError
from superarm.core.inputs import as_generator, as_positions
from superarm.core.linalg import cholesky, solve_lower
from superarm.core.locks import ReadWriteLock, consistent_read
from superarm.core.threads import one_blas_thread

from .variances import standard_deviation

if TYPE_CHECKING:
    from .base import GaussianPosterior

Known = TypeVar("Known", bound="GaussianPosterior")


class Given(NamedTuple):
    """Arms taken as seen: that they will be observed is known, their rewards are not."""

    at: Ints  # (p,) places among the belief's keys
    factor: Floats  # L
    rows: Floats  # W


class BeliefOf(Generic[Known]):
    """What a posterior says of some keys, until it has learned more; ``sign`` −1 turns rewards."""

    __slots__ = ("_keys", "_posterior", "_sign", "_version")

    def __init__(
        self,
        posterior: Known,
        keys: NDArray[Any],
        sign: float = 1.0,
        version: int | None = None,
    ) -> None:
        self._posterior, self._keys, self._sign = posterior, keys, sign
        self._version = posterior.version if version is None else version

    @property
    def _lock(self) -> ReadWriteLock:
        return self._posterior._lock

    def _fresh(self) -> Known:
        if self._posterior.version != self._version:
            raise StaleBeliefError(
                "the posterior has learned more since then; ask for a new belief"
            )
        return self._posterior

    @property
    def noise_std(self) -> float:
        return self._posterior.noise_std

    @property
    @consistent_read
    def information_gain(self) -> float:
        return self._fresh().information_gain

    @property
    @one_blas_thread
    @consistent_read
    def incumbent(self) -> float:
        posterior = self._fresh()
        return posterior._incumbent(self._sign) if posterior.count else 0.0


class GaussianBelief(BeliefOf["GaussianPosterior"]):
    """Mean and std of the arms on offer now; covariance and joint draws when asked for.

    ``keys`` are those of the arms on offer, followed by those of other arms that are taken as seen.
    """

    __slots__ = ("_cov", "_given", "mean", "std")

    def __init__(
        self,
        posterior: GaussianPosterior,
        keys: NDArray[Any],
        mean: Floats,
        std: Floats,
        sign: float = 1.0,
        version: int | None = None,
        given: Given | None = None,
    ) -> None:
        self._posterior, self._keys, self._sign = posterior, keys, sign
        self._version = posterior.version if version is None else version
        self._given = given
        self._cov: Floats | None = None
        # Nobody else has these arrays; a rule that wrote into them would change a decision's report.
        # The argument is ``write``; numpy takes as long to read its name as for all the rest.
        mean.setflags(False)  # type: ignore[call-arg]
        std.setflags(False)  # type: ignore[call-arg]
        self.mean, self.std = mean, std

    @property
    def cov(self) -> Floats:
        if self._cov is None:
            cov = self._covariance()
            cov.flags.writeable = False  # kept, so that it must not change
            self._cov = cov
        return self._cov

    @one_blas_thread
    @consistent_read
    def _covariance(self) -> Floats:
        cov = self._fresh()._covariance(self._keys)
        if self._given is None:
            return cov
        rows, n = self._given.rows, len(self.mean)
        return cov[:n, :n] - rows.T @ rows

    @one_blas_thread
    @consistent_read
    def sample(self, rng: Rng) -> Floats:
        drawn: Floats = self._fresh()._draw(self._keys, as_generator(rng), 1)[0]
        given = self._given
        if given is not None:
            # Pathwise: f − C_np (C_pp + noise)⁻¹ (f_p + ε) has the covariance that is left.
            seen = drawn[given.at] + self.noise_std * rng.standard_normal(len(given.at))
            drawn = (
                drawn[: len(self.mean)] - solve_lower(given.factor, seen) @ given.rows
            )
        return self.mean + drawn

    @one_blas_thread
    @consistent_read
    def condition(self, positions: Ints) -> GaussianBelief:
        """The belief once these arms are observed: less variance, the same mean."""
        at = as_positions(positions, "positions")
        posterior, given, n = self._fresh(), self._given, len(self.mean)
        if len(at) and not (at.min() >= 0 and at.max() < len(self._keys)):
            raise UnknownArmError(
                f"positions {at.tolist()[:9]} are not all among arms 0 to {n - 1}"
            )
        cross = posterior._covariance(self._keys, at)  # (k, m), m ≥ n
        corner, rows = cross[:, at], cross[:, :n]
        if given is not None:
            known = given.rows[:, at]  # (p, k); arms beyond those on offer come first
            corner -= known.T @ known
            rows = rows - known.T @ given.rows
        corner[np.diag_indices_from(corner)] += self.noise_std**2
        factor = cholesky(corner, "the covariance of the chosen arms")
        rows = solve_lower(factor, rows)
        left = self.std**2 - np.einsum("ij,ij->j", rows, rows)
        std = standard_deviation(left, lambda: posterior._prior_scale(self._keys))
        if given is not None:
            above = np.zeros((len(given.at), len(at)))
            factor = np.block([[given.factor, above], [known.T, factor]])
            at, rows = np.concatenate([given.at, at]), np.vstack([given.rows, rows])
        return self._turned(self.mean, std, self._sign, Given(at, factor, rows))

    def negated(self) -> GaussianBelief:
        return self._turned(-self.mean, self.std, -self._sign, self._given)

    def _turned(
        self, mean: Floats, std: Floats, sign: float, given: Given | None
    ) -> GaussianBelief:
        return GaussianBelief(
            self._posterior, self._keys, mean, std, sign, self._version, given
        )
