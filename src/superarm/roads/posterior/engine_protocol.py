"""What :class:`RoadGP` asks of the arithmetic behind it, whichever form that has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, Self

from numpy.typing import NDArray

from superarm.core import Floats, Ints, Rng, State
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import RoadScales

from .forecasts import ExpectedRewards
from .log import Log
from .noise import TripNoise
from .slots import CountedRoads
from .trips import Trips


class Engine(Protocol):
    """What was learned under one choice of scales.

    Methods change nothing but caches, except :meth:`absorb` and :meth:`remember`, which learn or
    restore everything or fail and change nothing.
    """

    kernel: GraphMatern
    sizes: Floats
    scales: RoadScales
    log: Log
    noise: TripNoise
    information: float
    """The information of all trips, ½ ln det(I + K A R⁻¹ Aᵀ), nats."""

    @property
    def visited(self) -> Ints:
        """Roads that were driven on, in the order of their first visits."""
        ...

    @property
    def has_variances(self) -> bool:
        """Whether variances of all roads are kept, which a state does not contain."""
        ...

    # --- forecasts ---------------------------------------------------------------------------

    def expect(self, trips: Trips) -> ExpectedRewards:
        """Forecast rewards of any roads; ``trips.rewards`` is not read."""
        ...

    def expect_total(self, trips: Trips) -> ExpectedRewards:
        """Forecast rewards of which only the sum counts, with its noise."""
        ...

    def judge(self, trips: Trips) -> ExpectedRewards:
        """Forecast trips that are learned next: fast, and precise enough for scores of outliers."""
        ...

    def judge_all(self, trips: Trips) -> Iterator[ExpectedRewards]:
        """Forecast each of many trips by what is known before the first of them."""
        ...

    def mean_of(self, keys: Floats) -> Floats:
        """The mean of each reward, (m,)."""
        ...

    def variance_of(self, keys: Floats) -> Floats:
        """The variance of each reward without noise, (m,)."""
        ...

    def means(self) -> Floats:
        """The mean of f of every road, (n,)."""
        ...

    def prepare_variances(self) -> None:
        """Compute what variances of many roads have in common, where copies can use it, too."""
        ...

    def variances(self) -> Floats:
        """The variance of f of every road, (n,)."""
        ...

    def draw(self, keys: Floats, rng: Rng) -> Floats:
        """A joint draw about zero, (m,)."""
        ...

    def counted_roads(self, trips: Trips) -> CountedRoads:
        """The roads of these trips, to which scales are fitted."""
        ...

    # --- learning ----------------------------------------------------------------------------

    def absorb(self, trips: Trips, expected: ExpectedRewards | None = None) -> float:
        """Learn from trips; returns the information gained, nats.

        Args:
            trips: What was observed.
            expected: What :meth:`judge` forecasts for them, where that is known already.
        """
        ...

    def supposing(self, keys: Floats, noise: Floats) -> Engine:
        """The engine once these roads are observed with this noise: less variance, the same means.

        Args:
            keys: The roads, (m, 9).
            noise: Variance of each observation, (m,).
        """
        ...

    def with_all(self, trips: Trips) -> Self:
        """This engine after many more trips, all of them computed at once."""
        ...

    def rebuild(self, scales: RoadScales) -> Self:
        """What was learned from the same trips under these scales, free of accumulated rounding."""
        ...

    # --- as arrays ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What takes long to compute from the log again."""
        ...

    def remember(self, trips: Trips, state: State) -> None:
        """Restore what :meth:`arrays` saved, or raise :class:`StateError`.

        Args:
            trips: The trips that it was learned from.
            state: The saved state.
        """
        ...
