"""The arithmetic of :class:`RoadGP` where what roads cost depends on the hour: dense and exact.

The formulas are those of :mod:`.engine`; only what x is and how rewards weigh it differs, see
:mod:`.hourly_slots`. Variances of all roads at all hours would be a table of n·24 hours: they are
computed for the rows that they are asked for.
"""

from __future__ import annotations

import numpy as np

from superarm.core import Floats, Rng, State
from superarm.core.errors import InputError
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import TERMS, HourlyScales, RoadScales
from superarm.roads.rows import HOURLY_COLUMNS, Column, edges_of, terms_of, vehicles_of

from .draw_order import DrawOrder
from .engine import RoadEngine
from .forecasts import RoadDraw
from .hourly_slots import HourlySlots
from .hourly_sums import RoadsByHour, counts_by_hour, terms_by_hour
from .log import Log
from .matrices import from_lower, triangle_size
from .old_states import not_of_its_trips
from .trips import Trips
from .vehicle_groups import VehicleGroups

_P = len(TERMS)
_ROWS = 256  # whose variances are computed at once


class HourlyEngine(RoadEngine):
    """What was learned under one choice of scales, with hours.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
        half_life: Later trips after which a trip counts half; ``None``: trips do not age.
    """

    slots: HourlySlots

    def __init__(
        self,
        kernel: GraphMatern,
        sizes: Floats,
        scales: RoadScales,
        half_life: float | None = None,
    ) -> None:
        if not isinstance(scales, HourlyScales):
            raise InputError("an engine with hours needs HourlyScales")
        super().__init__(kernel, sizes, scales, half_life)
        self.log = Log(HOURLY_COLUMNS, half_life)
        self.slots = HourlySlots(kernel, sizes, scales)
        size = len(self.slots)
        self._H_buffer = np.zeros((size, size))
        self._alpha = np.zeros(size)

    def remember(self, trips: Trips, state: State) -> None:
        edges = state.positions("edges")
        alpha = state.vector("alpha")
        size = len(alpha)
        roads = len(edges)
        known = state.vector("known", triangle_size(size))
        near = state.vector("near", triangle_size(roads))
        driven = np.unique(vehicles_of(trips.keys))
        roads_of_trips = np.unique(edges_of(trips.keys))
        has_same_roads = np.array_equal(np.sort(edges), roads_of_trips)
        if not has_same_roads or size != (_P + roads) * len(self.slots.basis):
            raise not_of_its_trips()
        self.slots.restore(edges, from_lower(near, roads))
        self._H_buffer = from_lower(known, size)
        self._alpha = alpha.copy()
        self._vehicles = VehicleGroups.from_arrays(state, size, driven)
        self._draw_order = DrawOrder.from_arrays(state, driven, roads)
        self.log.append(trips)

    def counted_by_hour(self, trips: Trips) -> RoadsByHour:
        """The roads of these trips by function of the hour, to which scales are fitted."""
        edges = np.unique(edges_of(trips.keys))
        basis = self.slots.basis
        counts = counts_by_hour(trips, edges, basis)
        near = self.slots.near_between(edges)
        near_of_hours = np.zeros((len(trips.rewards), len(trips.rewards)))
        for function in range(1, len(basis)):
            count = counts[:, :, function]
            near_of_hours += count.T @ near @ count
        return RoadsByHour(
            counts=counts[:, :, 1:],
            near=near_of_hours,
            sizes=self.sizes[edges],
            terms=terms_by_hour(trips, basis)[:, :, 1:],
        )

    # --- all roads ---------------------------------------------------------------------------

    @property
    def has_variances(self) -> bool:
        return False

    def prepare_variances(self) -> None:
        """Variances of all roads at all hours have nothing in common."""

    def variances(self) -> Floats:
        """The variance of f of every road on the mean of the day, (n,)."""
        raise NotImplementedError("variances depend on the hour; use variance_of")

    def mean_of(self, keys: Floats) -> Floats:
        """The mean of each reward, (m,)."""
        by_function = self.means()  # (n, B)
        at_slots = self.slots.at_slots(by_function, self._alpha)
        mean = keys[:, Column.EXPECTED] + self._of_slots(keys, by_function, at_slots)
        terms = terms_of(keys)
        for w in self._vehicle_terms(keys):
            mean_of_w = w.slots.T @ at_slots + w.mean
            mean[w.rows] += terms[w.rows] @ mean_of_w
        return mean

    def variance_of(self, keys: Floats) -> Floats:
        """The variance of each reward without noise, (m,)."""
        variance = np.empty(len(keys))
        for first in range(0, len(keys), _ROWS):
            rows = slice(first, first + _ROWS)
            cov = self.expect(Trips.of_one(keys[rows])).cov
            variance[rows] = np.diagonal(cov)
        return variance

    def _of_slots(self, keys: Floats, roads: Floats, at_slots: Floats) -> Floats:
        """What roads and the fleet's terms add at the hour of each row, (m,).

        Args:
            keys: Feature rows, (m, 10).
            roads: What every road adds, by function of the hour, (n, B).
            at_slots: Values at the slots, (s,), those of the fleet first.
        """
        phi = self.slots.basis.of(keys)
        f = (roads[edges_of(keys)] * phi).sum(axis=1)
        fleet = at_slots[: self.slots.fleet_slots].reshape(_P, -1)  # (5, B)
        of_fleet = (terms_of(keys) * (phi @ fleet.T)).sum(axis=1)
        return np.asarray(keys[:, Column.MASS_RATIO] * f + of_fleet)

    def _fleet_terms(self) -> Floats:
        # The fleet's terms depend on the hour: they are added apart.
        return np.zeros((self.size, _P))

    # --- draws -------------------------------------------------------------------------------

    def draw(self, keys: Floats, rng: Rng) -> Floats:
        """A joint draw about zero, (m,)."""
        trips = self.log.as_learned()
        slots = self.slots
        drawn = RoadDraw(slots.draw_fleet(rng), slots.draw_roads(rng))
        normals = rng.standard_normal(self._draw_order.size)
        vehicles: dict[int, Floats] = {}
        if len(trips.rewards):
            noise = self._draw_noise(trips, normals, rng)
            drawn = self._to_posterior(drawn, noise.slots)
            vehicles = noise.vehicles

        x = self._at_slots(drawn)
        rewards = self._of_slots(keys, drawn.roads, x)
        terms = terms_of(keys)
        for w in self._vehicle_terms(keys):
            # Drawn for every vehicle, used for those that were never driven.
            new = self.scales.vehicle * rng.standard_normal(_P)
            apart = vehicles.get(w.vehicle, new)
            rewards[w.rows] += terms[w.rows] @ (w.slots.T @ x + apart)
        return rewards

    def _at_slots(self, drawn: RoadDraw) -> Floats:
        return np.concatenate([drawn.fleet, drawn.roads[self.visited].ravel()])
