"""Slots and their prior covariance K.

=============  =======================================================================
``S``          the slots, s of them: 5 terms w of the fleet, then f of every visited road
``K``          prior covariance: near²·k_G + D over roads, a diagonal over w
``D``          own² + (share · size)² of each road, its size in Wh: a diagonal
``A``          (s, M): column j holds the weights of the slots in the sum that reward j is
=============  =======================================================================
"""

from __future__ import annotations

from copy import copy as shallow_copy
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Bools, Floats, Ints
from superarm.core.linalg import cholesky
from superarm.kernels import GraphMatern
from superarm.roads.energy.scales import TERMS, RoadScales
from superarm.roads.rows import Column, edges_of, terms_of

from .matrices import with_zeros
from .trips import Trips

_P = len(TERMS)


class PriorOfRewards(NamedTuple):
    """Prior covariances of rewards, without what vehicles do otherwise than the fleet."""

    with_slots: Floats  # K A, (s, M)
    cov: Floats  # Aᵀ K A, (M, M)


class _NearOfSums(NamedTuple):
    """k_G of sums of roads."""

    with_visited: Floats  # with visited roads, (v, M)
    cov: Floats  # with each other, (M, M)


class CountedRoads(NamedTuple):
    """Visited roads that rewards are sums of."""

    counts: Floats  # how much each reward counts each road, (u, M)
    near: Floats  # k_G between the rewards, (M, M)
    sizes: Floats  # Wh, (u,)


class Slots:
    """The slots of the fleet's terms and of visited roads, and their prior.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
    """

    def __init__(self, kernel: GraphMatern, sizes: Floats, scales: RoadScales) -> None:
        roads = len(kernel)
        self.kernel = kernel
        self.sizes = sizes
        # Roads, in the order of their slots.
        self.visited = np.empty(0, dtype=np.intp)
        # The slot of each road; −1: none.
        self._slot = np.full(roads, -1, dtype=np.intp)
        # k_G between visited roads, with room to grow.
        self._near = np.empty((0, 0))
        self._set_scales(scales)

    def _set_scales(self, scales: RoadScales) -> None:
        self.near_variance = scales.near**2
        share_variance = np.square(scales.share * self.sizes)
        self.own_variance = scales.own**2 + share_variance  # D
        self.fleet_variance = np.square(scales.fleet)  # of the first slots, (5,)

    def with_scales(self, scales: RoadScales) -> Slots:
        """The same slots under other scales; both share their arrays."""
        other = shallow_copy(self)
        other._set_scales(scales)
        return other

    def copy(self) -> Slots:
        """Slots that can grow by themselves."""
        other = shallow_copy(self)
        other._slot = self._slot.copy()
        other._near = self._near.copy()
        return other

    def __len__(self) -> int:
        return _P + len(self.visited)

    # --- visiting roads ----------------------------------------------------------------------

    def unvisited(self, keys: Floats) -> Ints:
        """Roads of these rows that have no slot yet, sorted."""
        edges = np.unique(edges_of(keys))
        is_new = self._slot[edges] < 0
        return edges[is_new]

    def add(self, edges: Ints) -> None:
        """Give slots to roads that have none."""
        before = len(self.visited)
        total = before + len(edges)
        new_places = np.arange(before, total)  # among visited roads
        self._slot[edges] = _P + new_places
        self.visited = np.concatenate([self.visited, edges])
        self._near = with_zeros(self._near, before, total)
        features = _features(self.visited)
        # Of two roads the kernel is solved for the later: the two solves differ in rounding.
        for place in new_places.tolist():
            up_to = slice(place + 1)
            road = features[[place]]
            (row,) = self.kernel(road, features[up_to])
            self._near[place, up_to] = row
            self._near[up_to, place] = row

    def roll_back(self, visited: Ints) -> None:
        """Take slots away from all roads but these, which were visited first."""
        self.visited = visited
        is_later = self._slot >= _P + len(visited)
        self._slot[is_later] = -1

    # --- sums of slots -----------------------------------------------------------------------

    def sums(self, trips: Trips) -> Any:
        """A without vehicles' terms, sparse (s, M); all roads have slots."""
        from scipy.sparse import csr_array

        keys = trips.keys
        # Each arm is one road, weighted by the mass ratio, …
        edges = edges_of(keys)
        road_slots = self._slot[edges]
        mass_ratios = keys[:, Column.MASS_RATIO]
        # … and five terms of the fleet.
        terms = terms_of(keys).ravel()
        fleet_slots = np.tile(np.arange(_P), len(keys))
        reward_of_term = np.repeat(trips.reward_of_arm, _P)

        rows = np.concatenate([road_slots, fleet_slots])
        columns = np.concatenate([trips.reward_of_arm, reward_of_term])
        values = np.concatenate([mass_ratios, terms])
        places = (rows, columns)
        shape = (len(self), len(trips.rewards))
        return csr_array((values, places), shape=shape)

    # --- K -----------------------------------------------------------------------------------

    @property
    def _visited_near(self) -> Floats:
        """k_G between visited roads, (v, v)."""
        count = len(self.visited)
        return self._near[:count, :count]

    def near_lower(self) -> Floats:
        """The lower triangle of k_G between visited roads, row by row."""
        return self._near[np.tril_indices(len(self.visited))]

    def restore(self, edges: Ints, near: Floats) -> None:
        """Give slots to these roads, with k_G between them, (v, v)."""
        places = np.arange(len(edges))
        self.visited = edges.copy()
        self._slot[edges] = _P + places
        self._near = near

    def prior_times(self, values: Floats) -> Floats:
        """K over the slots times values, (s, k)."""
        fleet_values = values[:_P]
        road_values = values[_P:]
        own_variance = self.own_variance[self.visited, None]
        near_product = self._visited_near @ road_values

        product = np.empty_like(values)
        product[:_P] = self.fleet_variance[:, None] * fleet_values
        product[_P:] = self.near_variance * near_product
        product[_P:] += own_variance * road_values
        return product

    def prior_root(self) -> Floats:
        """L with L Lᵀ = K over the slots: lower triangular, (s, s)."""
        own_variance = self.own_variance[self.visited]
        road_cov = self.near_variance * self._visited_near
        diagonal = np.diag_indices_from(road_cov)
        road_cov[diagonal] += own_variance
        fleet_std = np.sqrt(self.fleet_variance)

        size = len(self)
        root = np.zeros((size, size))
        root[:_P, :_P] = np.diag(fleet_std)
        root[_P:, _P:] = cholesky(road_cov, "the prior covariance of visited roads")
        return root

    def prior_of(self, trips: Trips) -> PriorOfRewards:
        """Prior covariances of rewards, whose roads may be new."""
        edges, counts = count_roads(trips)
        near = self._near_of(edges, counts)
        own_cov = self.own_variance[edges, None] * counts
        slots = self._slot[edges]
        has_slot = slots >= 0
        terms = trips.terms
        fleet_variance = self.fleet_variance

        K_A = np.zeros((len(self), len(terms)))
        K_A[_P:] = self.near_variance * near.with_visited
        K_A[slots[has_slot]] += own_cov[has_slot]
        K_A[:_P] = fleet_variance[:, None] * terms.T

        cov = self.near_variance * near.cov
        cov += counts.T @ own_cov
        cov += (terms * fleet_variance) @ terms.T
        return PriorOfRewards(K_A, cov)

    def _near_of(self, edges: Ints, counts: Floats) -> _NearOfSums:
        """k_G of sums of roads; ``counts`` is how often each counts each road, (u, M)."""
        is_new = self._slot[edges] < 0
        new_roads = np.count_nonzero(is_new)
        _, sums = counts.shape
        if new_roads > sums:
            # Fewer sums than new roads: one solve for each sum.
            return self._near_by_sums(edges, counts)
        return self._near_by_roads(edges, counts, is_new)

    def _near_by_sums(self, edges: Ints, counts: Floats) -> _NearOfSums:
        _, sums = counts.shape
        counts_of_all = np.zeros((len(self.kernel), sums))  # (n, M)
        counts_of_all[edges] = counts
        spread = self.kernel.times(counts_of_all)
        cov = counts.T @ spread[edges]
        return _NearOfSums(spread[self.visited], cov)

    def _near_by_roads(self, edges: Ints, counts: Floats, is_new: Bools) -> _NearOfSums:
        is_visited = ~is_new
        visited_edges = edges[is_visited]
        places = self._slot[visited_edges] - _P  # among visited roads
        count = len(edges)
        visited = len(self.visited)
        with_visited = np.empty((count, visited))  # (u, v)
        with_visited[is_visited] = self._near[places, :visited]
        among = np.empty((count, count))  # (u, u)
        if is_visited.any():
            among[:, is_visited] = with_visited[:, places]
        if is_new.any():
            features = _features(edges)
            new_features = features[is_new]
            if visited:
                visited_features = _features(self.visited)
                with_visited[is_new] = self.kernel(new_features, visited_features)
            among[is_new] = self.kernel(new_features, features)
            among[:, is_new] = among[is_new].T
        cov = counts.T @ among @ counts
        return _NearOfSums(with_visited.T @ counts, cov)

    def near_between(self, edges: Ints) -> Floats:
        """k_G between some visited roads, (u, u)."""
        places = self._slot[edges] - _P
        return self._near[np.ix_(places, places)]

    def counted_roads(self, trips: Trips) -> CountedRoads:
        """The roads of these trips, all of them visited."""
        edges, counts = count_roads(trips)
        return CountedRoads(
            counts=counts,
            near=counts.T @ self.near_between(edges) @ counts,
            sizes=self.sizes[edges],
        )

    # --- all roads ---------------------------------------------------------------------------

    def spread(self, values: Floats) -> Floats:
        """K_·S times values at the slots, for all roads: (s,) or (s, k) become (n,) or (n, k)."""
        columns = values.shape[1:]
        scattered = np.zeros((len(self.kernel), *columns))
        scattered[self.visited] = values[_P:]
        # One expression: with named parts, numpy lays the sum out otherwise in memory, and later sums
        # over it round differently.
        return (
            self.near_variance * self.kernel.times(scattered)
            + (self.own_variance * scattered.T).T
        )

    def fleet_times(self, values: Floats) -> Floats:
        """The prior covariance of the fleet's slots times values at all slots, (s,): (5,)."""
        return np.asarray(self.fleet_variance * values[:_P])

    def at_slots(self, spread: Floats, values: Floats) -> Floats:
        """K_SS times values, (s,), given :meth:`spread` of them, (n,)."""
        of_fleet = self.fleet_times(values)
        of_roads = spread[self.visited]
        return np.concatenate([of_fleet, of_roads])

    def prior_variances(self) -> Floats:
        """The prior variance of f of every road, (n,)."""
        roads = np.arange(len(self.kernel))
        near_variances = self.kernel.diag(_features(roads))
        return self.near_variance * near_variances + self.own_variance


def count_roads(trips: Trips) -> tuple[Ints, Floats]:
    """The roads of these trips, (u,), and how much each reward counts each of them, (u, M)."""
    edge_of_arm = edges_of(trips.keys)
    mass_ratios = trips.keys[:, Column.MASS_RATIO]
    edges, place = np.unique(edge_of_arm, return_inverse=True)
    counts = np.zeros((len(edges), len(trips.rewards)))
    places = (place, trips.reward_of_arm)
    np.add.at(counts, places, mass_ratios)
    return edges, counts


def _features(edges: Ints) -> Floats:
    """Roads as the kernel takes them, (u, 1)."""
    return edges[:, None].astype(np.float64)
