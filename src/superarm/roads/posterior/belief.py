"""What a fleet's posterior means for the roads on offer now; what costs something is made on demand."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.capabilities import PartialStd
from superarm.core.inputs import as_generator, as_positions
from superarm.core.locks import exclusive
from superarm.core.threads import one_blas_thread
from superarm.posteriors.beliefs import BaseBelief
from superarm.posteriors.variances import standard_deviation

from .engine import RoadEngine
from .log import Trips

if TYPE_CHECKING:
    from .posterior import RoadGP


class RoadBelief(BaseBelief["RoadGP"], PartialStd):
    """Mean, std and joint draws.

    Roads that were chosen and are not yet seen shrink what is unknown, each as if on a trip of its own.
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
    def _engine(self) -> RoadEngine:
        engine = self._current_posterior()._engine
        return self._supposed if len(self._pending) else engine

    @cached_property
    def _supposed(self) -> RoadEngine:
        engine = self._posterior._engine
        return engine.supposing(
            self._pending, np.diagonal(engine.noise(Trips.of_one(self._pending)))
        )

    @cached_property
    @one_blas_thread
    @exclusive
    def mean(self) -> Floats:
        mean = self._sign * self._current_posterior()._engine.mean_of(self._keys)
        mean.flags.writeable = False
        return mean

    @cached_property
    @one_blas_thread
    @exclusive
    def std(self) -> Floats:
        self._current_posterior()._engine.variances()  # from which those given what is pending go on
        std = standard_deviation(self._engine.variance_of(self._keys), lambda: 1.0)
        std.flags.writeable = False
        return std

    @one_blas_thread
    @exclusive
    def std_at(self, positions: Ints) -> Floats:
        engine, keys = self._engine, self._keys[positions]
        return np.sqrt(
            np.maximum(np.diagonal(engine.expect(Trips.of_one(keys)).cov), 0.0)
        )

    @cached_property
    @one_blas_thread
    @exclusive
    def cov(self) -> Floats:
        cov = self._engine.expect(Trips.of_one(self._keys)).cov
        cov.flags.writeable = False
        return cov

    @one_blas_thread
    @exclusive
    def sample(self, rng: Rng) -> Floats:
        return self.mean + self._sign * self._engine.draw(self._keys, as_generator(rng))

    def condition(self, positions: Ints) -> RoadBelief:
        pending = np.concatenate(
            [self._pending, self._keys[as_positions(positions, "positions")]]
        )
        return RoadBelief(
            self._current_posterior(), self._keys, pending, self._sign, self._version
        )

    def negated(self) -> RoadBelief:
        return RoadBelief(
            self._posterior, self._keys, self._pending, -self._sign, self._version
        )
