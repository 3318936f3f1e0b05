"""The choice of the arithmetic behind a posterior: dense, sparse, with hours or without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from superarm.core import Floats, State
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import HourlyScales, RoadScales
from superarm.roads.rows import edges_of

from .engine import RoadEngine
from .engine_protocol import Engine
from .hourly_engine import HourlyEngine
from .hourly_sparse_engine import HourlySparseEngine
from .hours import DayBasis
from .sparse_engine import SparseRoadEngine
from .trips import Trips

DENSE_LARGEST = 6000
"""Visited roads, times functions of the hour, up to which the form "auto" is dense."""
FormName = Literal["dense", "sparse"]
FormChoice = Literal["auto", "dense", "sparse"]


def form_of(engine: Engine) -> FormName:
    """The form of an engine.

    Args:
        engine: The engine.
    """
    return "sparse" if isinstance(engine, SparseRoadEngine) else "dense"


def functions_of(scales: RoadScales) -> int:
    """How many functions of the hour a road has; 1 without hours.

    Args:
        scales: Standard deviations of the model.
    """
    if isinstance(scales, HourlyScales):
        return len(DayBasis(scales.harmonics))
    return 1


@dataclass(frozen=True, kw_only=True, eq=False)
class EngineFactory:
    """Makes engines, each in the form for as many roads as it has visited.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        functions: Functions of the hour for each road; 1 where what roads cost does not depend on it.
        choice: The form, or "auto".
        tolerance: By what share of a standard deviation answers of the sparse form may be off.
        half_life: Later trips after which a trip counts half; ``None``: trips do not age.
    """

    kernel: GraphMatern
    sizes: Floats
    functions: int
    choice: FormChoice
    tolerance: float
    half_life: float | None = None

    def form_for(self, visited: int) -> FormName:
        """The form for so many visited roads.

        Args:
            visited: The number of roads that were driven on.
        """
        if self.choice != "auto":
            return self.choice
        unknowns = visited * self.functions
        return "dense" if unknowns <= DENSE_LARGEST else "sparse"

    def new(self, scales: RoadScales) -> Engine:
        """An engine that has learned nothing.

        Args:
            scales: Standard deviations of the model.
        """
        if self.form_for(0) == "sparse":
            return self._new_sparse(scales)
        return self._new_dense(scales)

    def from_trips(self, scales: RoadScales, trips: Trips) -> Engine:
        """An engine that has learned from these trips.

        Args:
            scales: Standard deviations of the model.
            trips: The trips.
        """
        visited = np.unique(edges_of(trips.keys))
        if self.form_for(len(visited)) == "sparse":
            return self._sparse_from(scales, trips)
        return self._dense_type.from_trips(
            self.kernel, self.sizes, scales, trips, self.half_life
        )

    def remembered(self, state: State, scales: RoadScales, trips: Trips) -> Engine:
        """The engine of a state, in the form in which it was saved.

        Args:
            state: The saved state.
            scales: Those of the state.
            trips: Those of the state.
        """
        is_sparse = "solution" in state.arrays
        engine: Engine = (
            self._new_sparse(scales) if is_sparse else self._new_dense(scales)
        )
        since = state.count("since", 0)
        engine.log = engine.log.dated(max(0, trips.number - since))
        engine.remember(trips, state)
        return engine

    def rebuilt(self, engine: Engine, scales: RoadScales) -> Engine:
        """An engine computed anew under these scales, in the form for its visited roads.

        Args:
            engine: The engine that has learned the trips.
            scales: Standard deviations of the model.
        """
        if self._becomes_sparse(engine, len(engine.visited)):
            return self.from_trips(scales, engine.log.view())
        return engine.rebuild(scales)

    def with_all(self, engine: Engine, trips: Trips) -> Engine:
        """An engine after many more trips, in the form for the roads that it then has visited.

        Args:
            engine: The engine before them.
            trips: The trips that it learns.
        """
        visited = np.union1d(engine.visited, edges_of(trips.keys))
        if self._becomes_sparse(engine, len(visited)):
            log = engine.log.copy()
            log.append(trips)
            return self.from_trips(engine.scales, log.view())
        return engine.with_all(trips)

    def ready_for(self, engine: Engine, trip: Trips) -> Engine:
        """The engine that learns one more trip: another one where a dense form with hours is full.

        Without hours there is room until all is computed anew.

        Args:
            engine: An engine.
            trip: What it learns next.
        """
        if not self._has_hours or form_of(engine) == "sparse":
            return engine
        visited = np.union1d(engine.visited, edges_of(trip.keys))
        if self._becomes_sparse(engine, len(visited)):
            return self._sparse_from(engine.scales, engine.log.view())
        return engine

    def _becomes_sparse(self, engine: Engine, visited: int) -> bool:
        is_dense = form_of(engine) == "dense"
        return is_dense and self.form_for(visited) == "sparse"

    @property
    def _has_hours(self) -> bool:
        return self.functions > 1

    def _sparse_from(self, scales: RoadScales, trips: Trips) -> SparseRoadEngine:
        engine = self._new_sparse(scales)
        return engine.with_all(trips) if len(trips.rewards) else engine

    def _new_sparse(self, scales: RoadScales) -> SparseRoadEngine:
        engine_type = HourlySparseEngine if self._has_hours else SparseRoadEngine
        return engine_type(
            self.kernel, self.sizes, scales, self.tolerance, half_life=self.half_life
        )

    def _new_dense(self, scales: RoadScales) -> RoadEngine:
        return self._dense_type(self.kernel, self.sizes, scales, self.half_life)

    @property
    def _dense_type(self) -> type[RoadEngine]:
        return HourlyEngine if self._has_hours else RoadEngine
