"""A fleet's belief about the roads on offer; what is expensive is computed on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.caching import cached_property
from superarm.core.capabilities import PartialStd
from superarm.core.inputs import as_generator, as_positions
from superarm.core.locks import exclusive
from superarm.core.threads import one_blas_thread
from superarm.posteriors.beliefs import BaseBelief
from superarm.posteriors.variances import standard_deviation

from .engine_protocol import Engine
from .trips import Trips

if TYPE_CHECKING:
    from .posterior import RoadGP


class RoadBelief(BaseBelief["RoadGP"], PartialStd):
    """Mean, standard deviation and joint draws of the roads on offer.

    Roads that were chosen but not observed yet reduce the variance, each as if on a trip of its own.

    Args:
        posterior: The posterior.
        keys: Feature rows of the roads on offer, (m, 9).
        pending: Feature rows of roads that were chosen and not observed yet, (k, 9).
        sign: −1.0 where costs are negated.
        version: Version of the posterior; by default its current one.
    """

    def __init__(
        self,
        posterior: RoadGP,
        keys: Floats,
        pending: Floats,
        sign: float = 1.0,
        version: int | None = None,
    ) -> None:
        super().__init__(posterior, keys, sign, version)
        self._pending = pending

    @property
    def _engine(self) -> Engine:
        engine = self._current_posterior()._engine
        if len(self._pending):
            return self._supposed
        return engine

    @cached_property
    def _supposed(self) -> Engine:
        """The engine as if pending roads had been observed."""
        engine = self._posterior._engine
        pending = Trips.of_one(self._pending)
        noise = engine.noise.covariance(pending)
        return engine.supposing(self._pending, np.diagonal(noise))

    @cached_property
    @one_blas_thread
    @exclusive
    def mean(self) -> Floats:
        engine = self._current_posterior()._engine
        mean = self._sign * engine.mean_of(self._keys)
        mean.flags.writeable = False
        return mean

    @cached_property
    @one_blas_thread
    @exclusive
    def std(self) -> Floats:
        # Computed first without pending roads: those given them continue from there.
        self._current_posterior()._engine.prepare_variances()
        variance = self._engine.variance_of(self._keys)
        std = standard_deviation(variance, lambda: 1.0)
        std.flags.writeable = False
        return std

    @one_blas_thread
    @exclusive
    def std_at(self, positions: Ints) -> Floats:
        arms = Trips.of_one(self._keys[positions])
        cov = self._engine.expect(arms).cov
        variance = np.diagonal(cov)
        return np.sqrt(np.maximum(variance, 0.0))

    @cached_property
    @one_blas_thread
    @exclusive
    def cov(self) -> Floats:
        arms = Trips.of_one(self._keys)
        cov = self._engine.expect(arms).cov
        cov.flags.writeable = False
        return cov

    @one_blas_thread
    @exclusive
    def sample(self, rng: Rng) -> Floats:
        drawn = self._engine.draw(self._keys, as_generator(rng))
        return self.mean + self._sign * drawn

    def condition(self, positions: Ints) -> RoadBelief:
        rows = as_positions(positions, "positions")
        pending = np.concatenate([self._pending, self._keys[rows]])
        return RoadBelief(
            self._current_posterior(), self._keys, pending, self._sign, self._version
        )

    def negated(self) -> RoadBelief:
        return RoadBelief(
            self._posterior, self._keys, self._pending, -self._sign, self._version
        )
