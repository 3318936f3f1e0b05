"""Slots where what roads cost depends on the hour.

=============  =======================================================================
``B``          functions of the hour, the first of them 1; see :mod:`.hours`
``S``          for each of the 5 terms of the fleet, then for each of the v visited roads: one slot for
               each function, s = (5 + v)·B slots, those of one road side by side
``K``          prior covariance: that of :mod:`.slots` for the first function, and for each of the others
               near_hour²·k_G + own_hour² + (share_hour · size)² of each road, and fleet_hour² of each
               term; 0 between functions
``A``          a road at hour h weighs its B slots by φ(h), and so do the fleet's terms
=============  =======================================================================

So a road's deviation at an hour is shared with its neighbours by k_G, and with neighbouring hours by φ.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from superarm.core import Floats, Ints, Rng
from superarm.core.errors import InputError
from superarm.core.linalg import cholesky
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import TERMS, HourlyScales, RoadScales
from superarm.roads.rows import Column, edges_of, terms_of

from .hourly_prior import HourlyPrior
from .hourly_sums import counts_by_hour, terms_by_hour
from .hours import DayBasis
from .slots import PriorOfRewards, Slots, count_roads
from .trips import Trips

_P = len(TERMS)
MOST_SLOTS = 12_000
"""Slots that fit the dense form: H then takes 1.2 GB, and a trip seconds."""


class HourlySlots(Slots):
    """The slots of the fleet's terms and of visited roads, one for each function of the hour.

    ``_slot`` holds 5 plus the place of a road among those visited, as in :class:`Slots`.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
    """

    def __init__(
        self, kernel: GraphMatern, sizes: Floats, scales: HourlyScales
    ) -> None:
        self.basis = DayBasis(scales.harmonics)
        super().__init__(kernel, sizes, scales)

    def _set_scales(self, scales: RoadScales) -> None:
        assert isinstance(scales, HourlyScales)
        super()._set_scales(scales)
        prior = HourlyPrior.under(scales, self.sizes)
        self._near_variances = prior.near
        self._own_variances = prior.own
        self._fleet_variances = prior.fleet

    def __len__(self) -> int:
        return super().__len__() * len(self.basis)

    @property
    def fleet_slots(self) -> int:
        """How many slots are the fleet's: the first ones."""
        return _P * len(self.basis)

    def add(self, edges: Ints) -> None:
        roads = len(self.visited) + len(edges)
        slots = (_P + roads) * len(self.basis)
        if slots > MOST_SLOTS:
            raise InputError(
                f"{roads:,} roads with {len(self.basis)} functions of the hour each are {slots:,} "
                f"unknowns; with hours, form 'dense' takes at most {MOST_SLOTS:,}. Use form='auto' or "
                "'sparse', or fewer harmonics"
            )
        super().add(edges)

    # --- sums of slots -----------------------------------------------------------------------

    def sums(self, trips: Trips) -> Any:
        """A without vehicles' terms, sparse (s, M); all roads have slots."""
        from scipy.sparse import csr_array

        keys = trips.keys
        functions = len(self.basis)
        arms = len(keys)
        phi = self.basis.of(keys)  # (N, B)
        mass_ratios = keys[:, Column.MASS_RATIO]
        road_weights = mass_ratios[:, None] * phi
        fleet_weights = terms_of(keys)[:, :, None] * phi[:, None, :]  # (N, 5, B)

        offsets = np.arange(functions)
        road_units = self._slot[edges_of(keys)]
        road_slots = road_units[:, None] * functions + offsets
        fleet_slots = np.tile(np.arange(self.fleet_slots), arms)
        road_rewards = np.repeat(trips.reward_of_arm, functions)
        fleet_rewards = np.repeat(trips.reward_of_arm, self.fleet_slots)

        rows = np.concatenate([road_slots.ravel(), fleet_slots])
        columns = np.concatenate([road_rewards, fleet_rewards])
        values = np.concatenate([road_weights.ravel(), fleet_weights.ravel()])
        shape = (len(self), len(trips.rewards))
        return csr_array((values, (rows, columns)), shape=shape)

    # --- K -----------------------------------------------------------------------------------

    def prior_times(self, values: Floats) -> Floats:
        """K over the slots times values, (s, k)."""
        functions = len(self.basis)
        fleet_slots = self.fleet_slots
        columns = values.shape[1]
        road_values = values[fleet_slots:].reshape(-1, functions, columns)
        near = self._visited_near @ road_values.reshape(len(road_values), -1)
        near_product = self._near_variances[:, None] * near.reshape(road_values.shape)
        own_product = self._own_variances[self.visited][:, :, None] * road_values

        product = np.empty_like(values)
        product[:fleet_slots] = (
            self._fleet_variances.reshape(-1, 1) * values[:fleet_slots]
        )
        product[fleet_slots:] = (near_product + own_product).reshape(-1, columns)
        return product

    def prior_root(self) -> Floats:
        """L with L Lᵀ = K over the slots: lower triangular, (s, s)."""
        functions = len(self.basis)
        fleet_slots = self.fleet_slots
        fleet_std = np.sqrt(self._fleet_variances)
        root = np.zeros((len(self), len(self)))
        root[:fleet_slots, :fleet_slots] = np.diag(fleet_std.ravel())
        of_roads = root[fleet_slots:, fleet_slots:]
        of_mean = self._road_root(0)
        of_hour = self._road_root(1)
        for function in range(functions):
            # Slots of one function only covary with each other.
            block = of_roads[function::functions, function::functions]
            block[:] = of_hour if function else of_mean
        return root

    def _road_root(self, function: int) -> Floats:
        """A Cholesky factor of the prior covariance of visited roads for one function, (v, v)."""
        cov = self._near_variances[function] * self._visited_near
        diagonal = np.diag_indices_from(cov)
        cov[diagonal] += self._own_variances[self.visited, function]
        return cholesky(cov, "the prior covariance of visited roads")

    def prior_of(self, trips: Trips) -> PriorOfRewards:
        """Prior covariances of rewards, whose roads may be new."""
        functions = len(self.basis)
        rewards = len(trips.rewards)
        edges, _ = count_roads(trips)
        counts = counts_by_hour(trips, edges, self.basis)  # (u, M, B)
        near = self._near_of(edges, counts.reshape(len(edges), -1))
        near_with = near.with_visited.reshape(-1, rewards, functions)  # (v, M, B)
        own_cov = self._own_variances[edges][:, None, :] * counts
        terms = terms_by_hour(trips, self.basis)
        fleet_cov = self._fleet_variances * terms  # (M, 5, B)

        units = self._slot[edges]
        has_slot = units >= 0
        by_unit = np.zeros((_P + len(self.visited), functions, rewards))
        by_unit[:_P] = fleet_cov.transpose(1, 2, 0)
        by_unit[_P:] = (self._near_variances * near_with).transpose(0, 2, 1)
        by_unit[units[has_slot]] += own_cov[has_slot].transpose(0, 2, 1)

        near_cov = near.cov.reshape(rewards, functions, rewards, functions)
        cov = np.einsum("mbnb,b->mn", near_cov, self._near_variances)
        cov += np.einsum("umb,unb->mn", counts, own_cov, optimize=True)
        cov += terms.reshape(rewards, -1) @ fleet_cov.reshape(rewards, -1).T
        return PriorOfRewards(by_unit.reshape(-1, rewards), cov)

    # --- all roads ---------------------------------------------------------------------------

    def spread(self, values: Floats) -> Floats:
        """K_·S times values at the slots, (s,), for all roads, by function of the hour, (n, B)."""
        functions = len(self.basis)
        scattered = np.zeros((len(self.kernel), functions))
        scattered[self.visited] = values[self.fleet_slots :].reshape(-1, functions)
        near = self._near_variances * self.kernel.times(scattered)
        return np.asarray(near + self._own_variances * scattered)

    def at_slots(self, spread: Floats, values: Floats) -> Floats:
        """K_SS times values, (s,), given :meth:`spread` of them, (n, B)."""
        return np.concatenate([self.fleet_times(values), spread[self.visited].ravel()])

    def draw_roads(self, rng: Rng) -> Floats:
        """A draw of what roads cost from the prior, by function of the hour, (n, B)."""
        shape = (len(self.kernel), len(self.basis))
        near_normals = rng.standard_normal(shape)
        own_normals = rng.standard_normal(shape)
        near = np.sqrt(self._near_variances) * self.kernel.root_times(near_normals)
        return np.asarray(near + np.sqrt(self._own_variances) * own_normals)

    def draw_fleet(self, rng: Rng) -> Floats:
        """A draw of the fleet's terms from the prior, by function of the hour, (5·B,)."""
        normals = rng.standard_normal(self.fleet_slots)
        return np.asarray(np.sqrt(self._fleet_variances).ravel() * normals)

    def fleet_times(self, values: Floats) -> Floats:
        """The prior covariance of the fleet's slots times values at all slots, (s,): (5·B,)."""
        of_fleet = values[: self.fleet_slots]
        return np.asarray(self._fleet_variances.ravel() * of_fleet)

    def prior_variances(self) -> Floats:
        """The prior variance of f of every road at any one hour, (n,)."""
        of_mean = super().prior_variances()
        roads = np.arange(len(self.kernel), dtype=np.float64)
        near = self._near_variances[1] * self.kernel.diag(roads[:, None])
        return np.asarray(of_mean + near + self._own_variances[:, 1])
