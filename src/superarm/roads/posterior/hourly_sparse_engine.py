"""The arithmetic of :class:`RoadGP` with hours for many visited roads: sparse, and solved iteratively.

All is as in :mod:`.sparse_engine`; only the unknowns and their equations differ, see
:mod:`.hourly_equations`. Variances of all roads at all hours would be a table of n·24 hours: they are
computed for the rows that they are asked for.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Floats, Rng
from superarm.core.compiling import Backend
from superarm.core.errors import InputError
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import TERMS, HourlyScales, RoadScales
from superarm.roads.rows import HOURLY_COLUMNS, Column, edges_of, terms_of

from .hourly_equations import HourlyEquations
from .hourly_prior import HourlyPrior
from .hourly_sums import RoadsByHour, counts_by_hour, terms_by_hour
from .hourly_unknowns import HourlyArms, HourlySums, HourlyUnknowns
from .hours import DayBasis
from .sparse_engine import TOLERANCE, SparseRoadEngine
from .trips import Trips

_P = len(TERMS)


class HourlySparseEngine(SparseRoadEngine):
    """What was learned under one choice of scales, with hours.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
        tolerance: By what share of a standard deviation answers may be off.
        backend: How products with the log are computed.
        half_life: Later trips after which a trip counts half; ``None``: trips do not age.
    """

    _columns = HOURLY_COLUMNS

    def __init__(
        self,
        kernel: GraphMatern,
        sizes: Floats,
        scales: RoadScales,
        tolerance: float = TOLERANCE,
        backend: Backend = "auto",
        half_life: float | None = None,
    ) -> None:
        if not isinstance(scales, HourlyScales):
            raise InputError("an engine with hours needs HourlyScales")
        self._hourly_scales = scales
        self._basis = DayBasis(scales.harmonics)
        super().__init__(kernel, sizes, scales, tolerance, backend, half_life)

    def _new_equations(self) -> HourlyEquations:
        return HourlyEquations(
            self.kernel, self.sizes, self._hourly_scales, self._backend
        )

    # --- weights of unknowns -----------------------------------------------------------------

    def _arms(self, keys: Floats) -> HourlyArms:
        phi = self._basis.of(keys)
        return HourlyArms(
            edges=edges_of(keys),
            weights=keys[:, [Column.MASS_RATIO]] * phi,
            phi=phi,
            terms=terms_of(keys),
            places=self._places_of(keys),
        )

    def _unknowns(self, flat: Floats) -> HourlyUnknowns:
        return HourlyUnknowns.from_flat(flat, self._roads, len(self._basis))

    def _sums_of(self, trips: Trips) -> HourlySums:
        edges = np.unique(edges_of(trips.keys))
        places, vehicle_terms = self._vehicle_terms(trips)
        fleet_terms = terms_by_hour(trips, self._basis)
        return HourlySums(
            edges=edges,
            counts=counts_by_hour(trips, edges, self._basis),
            fleet_terms=fleet_terms.reshape(len(fleet_terms), -1),
            places=places,
            vehicle_terms=vehicle_terms,
        )

    # --- all roads ---------------------------------------------------------------------------

    @property
    def has_variances(self) -> bool:
        return False

    def means(self) -> Floats:
        """The mean of f of every road, by function of the hour, (n, B)."""
        return self._unknowns(self._solved()).f

    def variances(self) -> Floats:
        """The variance of f of every road on the mean of the day, (n,)."""
        raise NotImplementedError("variances depend on the hour; use variance_of")

    @property
    def _read_by_a_solve(self) -> int:
        return len(self._basis) * super()._read_by_a_solve

    def counted_by_hour(self, trips: Trips) -> RoadsByHour:
        """The roads of these trips by function of the hour, to which scales are fitted."""
        edges = np.unique(edges_of(trips.keys))
        counts = counts_by_hour(trips, edges, self._basis)
        factor = self._kernel_factor()
        near = np.zeros((len(trips.rewards), len(trips.rewards)))
        for function in range(1, len(self._basis)):
            near += factor.gram(edges, counts[:, :, function])
        return RoadsByHour(
            counts=counts[:, :, 1:],
            near=near,
            sizes=self.sizes[edges],
            terms=terms_by_hour(trips, self._basis)[:, :, 1:],
        )

    # --- draws -------------------------------------------------------------------------------

    def _draw_prior(self, rng: Rng) -> HourlyUnknowns:
        # In the order of the dense form.
        prior = HourlyPrior.under(self._hourly_scales, self.sizes)
        functions = len(self._basis)
        fleet_normals = rng.standard_normal(_P * functions)
        near_normals = rng.standard_normal((self._roads, functions))
        own_normals = rng.standard_normal((self._roads, functions))
        normals = rng.standard_normal(self._draw_order.size)
        g = np.sqrt(prior.near) * self.kernel.root_times(near_normals)
        own = np.sqrt(prior.own) * own_normals
        return HourlyUnknowns(
            f=g + own,
            g=g,
            fleet=np.sqrt(prior.fleet) * fleet_normals.reshape(_P, functions),
            vehicles=self._draw_vehicles(normals),
        )
