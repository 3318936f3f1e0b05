"""The posterior precision of a fleet's roads and vehicles as a linear mixed model.

=============  =======================================================================
``n``, ``V``   roads, vehicles that were driven
``f``          what roads do to all vehicles, (n,); f given g is normal with mean g and variance D
``g``          the part of f that is carried along the network, (n,): prior precision P = (near² k_G)⁻¹
``D``          what each road does by itself beyond g: a diagonal
``w``, ``w_v`` terms of the fleet, (5,), and of each vehicle beyond them, (V, 5)
``λ``          diagonal of the information of all trips about f, (n,)
``B``          their information about the terms of each vehicle, (V, 5, 5)
=============  =======================================================================

Henderson's equations Q x = b of the unknowns x = (f, g, w, w_v), with u_v = w + w_v::

        ⎡ D⁻¹ + Λ   −D⁻¹      Λ_fu     ⎤           Λ the information of trips about (f, u),
    Q = ⎢ −D⁻¹      D⁻¹ + P   0        ⎥           in which each trip's own terms are eliminated:
        ⎣ Λ_uf      0         W⁻¹ + Λ_u⎦           see :mod:`.trip_products`

K_G is dense, but P is as sparse as the network: nothing here has s² or n² entries. Q is preconditioned
with M, which has diag λ for Λ, B for Λ_u, and nothing for Λ_fu. Both blocks of M are inverted exactly:
that of (f, g) by a sparse factor of P + λ D⁻¹/(D⁻¹ + λ), that of (w, w_v) vehicle by vehicle.
"""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compiling import Backend, is_compiled
from superarm.kernels import GraphMatern
from superarm.kernels.incomplete_factor import DROP, IncompleteFactor
from superarm.kernels.sparse_factor import SparseFactor
from superarm.roads.energy.scales import TERMS, RoadScales

from .near_factor import near_factor
from .noise import TripNoise
from .preconditioned import PreconditionedEquations
from .soft_modes import RitzPairs, SoftModes, find_soft
from .trip_products import RoadsAndVehicles, TripProducts
from .trips import Trips

_P = len(TERMS)
# Share of roads whose information may change before M is made anew.
_STALE = 0.2
# By how much the factor of M may exceed what it factorises, in energy.
_FACTOR_ERROR = 0.1
# Share of the largest g of a soft mode below which it is left out.
_NEGLIGIBLE = 1e-6
_SOLVES_AT_ONCE = 8  # right-hand sides
_ARMS_AT_ONCE = 50_000


class Unknowns(NamedTuple):
    """Values of all unknowns, or what multiplies them."""

    f: Floats  # (n,)
    g: Floats  # (n,)
    fleet: Floats  # w, (5,)
    vehicles: Floats  # w_v, (V, 5)

    @classmethod
    def zeros(cls, roads: int, vehicles: int) -> Unknowns:
        """All zero."""
        return cls(
            f=np.zeros(roads),
            g=np.zeros(roads),
            fleet=np.zeros(_P),
            vehicles=np.zeros((vehicles, _P)),
        )

    @classmethod
    def from_flat(cls, flat: Floats, roads: int) -> Unknowns:
        """The inverse of :meth:`flat`, as views."""
        terms = flat[2 * roads :].reshape(-1, _P)
        return cls(flat[:roads], flat[roads : 2 * roads], terms[0], terms[1:])

    def flat(self) -> Floats:
        """All in one vector, (2n + 5 + 5V,)."""
        return np.concatenate([self.f, self.g, self.fleet, self.vehicles.ravel()])


class ArmWeights(NamedTuple):
    """What multiplies the unknowns in the rewards of single arms."""

    edges: Ints  # (m,)
    masses: Floats  # what multiplies f, (m,)
    terms: Floats  # what multiplies w and w_v, (m, 5)
    places: Ints  # of the vehicle; −1 where it was never driven, (m,)

    def sums(self, x: Unknowns) -> Floats:
        """Each arm's reward of unknowns, (m,); vehicles that were never driven have w_v = 0."""
        vehicles = np.vstack([x.vehicles, np.zeros(_P)])  # the last for place −1
        u = x.fleet + vehicles[self.places]
        of_roads = self.masses * x.f[self.edges]
        return np.asarray(of_roads + np.einsum("ij,ij->i", self.terms, u))

    def gather(self, values: Floats, roads: int, vehicles: int) -> Unknowns:
        """The transpose: what values of the arms, (m,), put on the unknowns."""
        gathered = Unknowns.zeros(roads, vehicles)
        np.add.at(gathered.f, self.edges, self.masses * values)
        weighted = self.terms * values[:, None]
        gathered.fleet[:] = weighted.sum(axis=0)
        is_known = self.places >= 0
        np.add.at(gathered.vehicles, self.places[is_known], weighted[is_known])
        return gathered

    def one(self, arm: int) -> ArmWeights:
        """One of the arms."""
        return self.some(slice(arm, arm + 1))

    def some(self, rows: slice) -> ArmWeights:
        """Some of the arms."""
        return ArmWeights(
            self.edges[rows], self.masses[rows], self.terms[rows], self.places[rows]
        )


class RewardSums(NamedTuple):
    """What some rewards are sums of."""

    edges: Ints  # distinct roads, (u,)
    counts: Floats  # how much each reward counts each of them, (u, M)
    fleet_terms: Floats  # terms of each reward, (M, 5)
    places: Ints  # distinct vehicles that were driven before, (c,)
    vehicle_terms: Floats  # terms of each reward that each of them drove, (M, c, 5)

    def of_modes(self, modes: SoftModes) -> Floats:
        """X times each direction, which may be from before the latest vehicles: (k, M)."""
        if not len(modes):
            return np.zeros((0, len(self.fleet_terms)))
        of_roads = modes.f_at(self.edges) @ self.counts
        terms = modes.terms.reshape(len(modes), -1, _P)
        of_terms = terms[:, 0] @ self.fleet_terms.T
        of_vehicles = terms[:, 1:]
        is_older = self.places < of_vehicles.shape[1]
        older = of_vehicles[:, self.places[is_older]]
        of_terms += np.einsum("kvi,mvi->km", older, self.vehicle_terms[:, is_older])
        return np.asarray(of_roads + of_terms)


class _TermsInverse(NamedTuple):
    """The inverse of the block of M over (w, w_v)."""

    vehicle_inverse: Floats  # (V_v⁻¹ + B)⁻¹, (V, 5, 5)
    gain: Floats  # (V_v⁻¹ + B)⁻¹ B, (V, 5, 5)
    fleet_inverse: Floats  # (W⁻¹ + Σ B (I − gain))⁻¹, (5, 5)

    def times(self, fleet: Floats, vehicles: Floats) -> tuple[Floats, Floats]:
        """w and w_v of these right-hand sides."""
        explained = np.einsum("vji,vj->i", self.gain, vehicles)
        w = self.fleet_inverse @ (fleet - explained)
        w_v = np.einsum("vij,vj->vi", self.vehicle_inverse, vehicles)
        w_v -= np.einsum("vij,j->vi", self.gain, w)
        return w, w_v


class MixedEquations(PreconditionedEquations):
    """Q of all trips learned so far, and its preconditioner.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
        backend: How products with the information of trips are computed.
    """

    def __init__(
        self,
        kernel: GraphMatern,
        sizes: Floats,
        scales: RoadScales,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self._kernel = kernel
        self._roads = len(kernel)
        self._scales = scales
        self._backend: Backend = backend
        self._noise = TripNoise(scales)
        self.own_variance = scales.own**2 + np.square(scales.share * sizes)  # D
        self._own_precision = 1.0 / self.own_variance
        self._products = TripProducts(
            self._roads, self._noise, np.array(scales.trip), backend
        )
        self._road_information = np.zeros(self._roads)  # λ
        self._vehicle_information = np.zeros((0, _P, _P))  # B
        # What P is factorised with; it may lag behind λ.
        self._shift = np.zeros(self._roads)
        self._factor_cache: list[SparseFactor | IncompleteFactor] = []
        self._drop = DROP
        # The smallest eigenvalue of the inverse of the factor times what it factorises.
        self._smallest_of_factor = 1.0
        self._terms_cache: list[_TermsInverse] = []
        self._modes = SoftModes.none()

    def copy(self) -> Self:
        """Equations that can grow by themselves."""
        other = copy(self)
        other._products = self._products.copy()
        other._factor_cache = list(self._factor_cache)
        other._terms_cache = list(self._terms_cache)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Arrays are replaced, never written into: a copy must not cost more with every road.
        return self.copy()

    @property
    def vehicles(self) -> int:
        """V."""
        return len(self._vehicle_information)

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return 2 * self._roads + _P + _P * self.vehicles

    # --- trips -------------------------------------------------------------------------------

    def append(self, trips: Trips, drivers: Ints, vehicles: int) -> None:
        """Add the information of trips.

        Args:
            trips: The trips.
            drivers: The place of each arm's vehicle, (N,).
            vehicles: V, those of these trips included.
        """
        new = self._products.append(trips, drivers, vehicles)
        added = vehicles - self.vehicles
        padding = ((0, added), (0, 0), (0, 0))
        before = np.pad(self._vehicle_information, padding)
        self._vehicle_information = before + new.vehicles
        self._road_information = self._road_information + new.roads
        self._terms_cache = []
        if self._is_stale():
            self._factor_cache = []

    def _is_stale(self) -> bool:
        """Whether M is from before much of what is known of roads."""
        if self._is_slow or self._has_grown():
            return True
        change = np.abs(self._current_shift() - self._shift)
        changed = np.count_nonzero(change > 0.5 * self._own_precision)
        known = np.count_nonzero(self._road_information)
        return bool(changed > _STALE * known)

    def _total_information(self) -> float:
        return float(self._road_information.sum())

    def _current_shift(self) -> Floats:
        """λ D⁻¹/(D⁻¹ + λ), (n,)."""
        own = self._own_precision
        of_trips = self._road_information
        return np.asarray(of_trips * own / (own + of_trips))

    # --- products ----------------------------------------------------------------------------

    def times(self, flat: Floats) -> Floats:
        """Q times unknowns."""
        x = Unknowns.from_flat(flat, self._roads)
        learned = self._products.times(RoadsAndVehicles(x.f, x.fleet + x.vehicles))
        prior = self.prior_times(x)
        return Unknowns(
            f=prior.f + learned.roads,
            g=prior.g,
            fleet=prior.fleet + learned.vehicles.sum(axis=0),
            vehicles=prior.vehicles + learned.vehicles,
        ).flat()

    def prior_times(self, x: Unknowns) -> Unknowns:
        """The prior precision times unknowns."""
        own = self._own_precision * (x.f - x.g)
        return Unknowns(
            f=own,
            g=self._near_times(x.g) - own,
            fleet=x.fleet / np.square(self._scales.fleet),
            vehicles=x.vehicles / np.square(self._scales.vehicle),
        )

    def _near_times(self, values: Floats) -> Floats:
        """P times values, (n,)."""
        return self._kernel.precision_times(values) / self._scales.near**2

    def precondition(self, flat: Floats) -> Floats:
        """M⁻¹ times unknowns."""
        product = self._inverse_blocks(flat)
        modes = self._modes
        if len(modes):
            n = self._roads
            right = (flat[:n], flat[n : 2 * n], flat[2 * n :])
            amounts = modes.weights * modes.along(*right)
            modes.add(amounts, product[:n], product[n : 2 * n], product[2 * n :])
        return product

    def _inverse_blocks(self, flat: Floats) -> Floats:
        """The inverse of the blocks of M, times unknowns."""
        r = Unknowns.from_flat(flat, self._roads)
        own = self._own_precision
        precision = self._road_precision
        g = self._factor.solve(r.g + own / precision * r.f)
        f = (r.f + own * g) / precision
        fleet, vehicles = self._terms_inverse.times(r.fleet, r.vehicles)
        return Unknowns(f, g, fleet, vehicles).flat()

    @property
    def _factor(self) -> SparseFactor | IncompleteFactor:
        """The sparse factor of P + λ D⁻¹/(D⁻¹ + λ)."""
        if not self._factor_cache:
            self._shift = self._current_shift()
            self._factor_cache.append(self._factorise())
            self._modes = SoftModes.none()
            self._information_of_M = self._total_information()
            self._forget_measurements()
        return self._factor_cache[0]

    def _factorise(self) -> SparseFactor | IncompleteFactor:
        scale = 1.0 / self._scales.near**2
        if is_compiled(self._backend):
            made = near_factor(
                self._kernel, scale, self._shift, self._drop, _FACTOR_ERROR
            )
            self._drop = made.drop
            self._smallest_of_factor = made.smallest
            return made.factor
        from scipy.sparse import diags_array

        precision = scale * self._kernel.precision()
        return SparseFactor(precision + diags_array(self._shift))

    @property
    def _terms_inverse(self) -> _TermsInverse:
        if not self._terms_cache:
            B = self._vehicle_information
            prior = np.diag(1.0 / np.square(self._scales.vehicle))
            vehicle_inverse = _inverse(prior + B)
            gain = vehicle_inverse @ B
            fleet = np.diag(1.0 / np.square(self._scales.fleet))
            fleet += (B - B @ gain).sum(axis=0)
            fleet_inverse = _inverse(fleet)
            inverse = _TermsInverse(vehicle_inverse, gain, fleet_inverse)
            self._terms_cache.append(inverse)
        return self._terms_cache[0]

    # --- what M contains ---------------------------------------------------------------------

    def approximate_cov(self, sums: RewardSums, near: Floats | None = None) -> Floats:
        """X M⁻¹ Xᵀ of some rewards, (M, M), without a product with the log.

        Args:
            sums: What the rewards are sums of.
            near: The covariance of g of their roads, (u, u); by default computed exactly.
        """
        self.prepare()
        edges = sums.edges
        own, precision = self._own_precision, self._road_precision
        shrinkage = own[edges] / precision[edges]
        shrunk = shrinkage[:, None] * sums.counts  # (u, M)
        cov = self._near_cov(edges, shrunk, near)
        given_near = sums.counts / precision[edges][:, None]
        cov += sums.counts.T @ given_near
        inverse = self._terms_inverse
        fleet = sums.fleet_terms - np.einsum(
            "mvi,vij->mj", sums.vehicle_terms, inverse.gain[sums.places]
        )
        cov += fleet @ inverse.fleet_inverse @ fleet.T
        for number, place in enumerate(sums.places.tolist()):
            phi = sums.vehicle_terms[:, number]
            cov += phi @ inverse.vehicle_inverse[place] @ phi.T
        along = sums.of_modes(self._modes)  # (k, M)
        cov += along.T @ (self._modes.weights[:, None] * along)
        return cov

    def _near_cov(self, edges: Ints, shrunk: Floats, near: Floats | None) -> Floats:
        """The covariance of sums of g of some roads, (M, M)."""
        if near is None:
            return self._factor.gram(edges, shrunk)
        return np.asarray(shrunk.T @ near @ shrunk)

    def near_draws(self, edges: Ints, count: int) -> Floats:
        """Draws of g of some roads by M, (u, count).

        S⁻¹ (P g + √s z) with g a draw of the prior, s what S = P + s adds to it, and z normal.

        Args:
            edges: The roads, (u,).
            count: How many draws.
        """
        self.prepare()
        rng = np.random.default_rng(0)
        root = np.sqrt(self._shift)[:, None]
        draws = np.empty((len(edges), count))
        for first in range(0, count, _SOLVES_AT_ONCE):
            few = slice(first, min(first + _SOLVES_AT_ONCE, count))
            shape = (self._roads, few.stop - few.start)
            g = self._scales.near * self._kernel.root_times(rng.standard_normal(shape))
            right = self._near_times(g) + root * rng.standard_normal(shape)
            draws[:, few] = self._factor.solve(right)[edges]
        return draws

    def approximate_variances(self, arms: ArmWeights) -> Floats:
        """The diagonal of X M⁻¹ Xᵀ for single arms, (m,), without a product with the log."""
        self.prepare()
        own, precision = self._own_precision, self._road_precision
        near = self._factor.diagonal
        of_roads = 1.0 / precision + np.square(own / precision) * near
        variances = np.square(arms.masses) * of_roads[arms.edges]
        for place in np.unique(arms.places).tolist():
            is_driven = arms.places == place
            phi = arms.terms[is_driven]
            cov = self._terms_cov(place)
            variances[is_driven] += np.einsum("ij,jk,ik->i", phi, cov, phi)
        for first in range(0, len(variances), _ARMS_AT_ONCE):
            part = slice(first, first + _ARMS_AT_ONCE)
            variances[part] += self._soft_variances(arms.some(part))
        return variances

    def _soft_variances(self, arms: ArmWeights) -> Floats:
        """What the soft modes add to the variances of single arms, (m,)."""
        modes = self._modes
        if not len(modes):
            return np.zeros(len(arms.edges))
        along = modes.f_at(arms.edges) * arms.masses  # (k, m)
        terms = modes.terms.reshape(len(modes), -1, _P)
        for place in np.unique(arms.places).tolist():
            is_driven = arms.places == place
            u = terms[:, 0]
            if 0 <= place < terms.shape[1] - 1:
                u = u + terms[:, 1 + place]
            along[:, is_driven] += u @ arms.terms[is_driven].T
        return np.asarray(modes.weights @ np.square(along))

    def _terms_cov(self, place: int) -> Floats:
        """The covariance of w + w_v by the blocks of M, (5, 5); of w where the place is −1."""
        inverse = self._terms_inverse
        if place < 0:
            return inverse.fleet_inverse
        remainder = np.eye(_P) - inverse.gain[place]
        cov = remainder @ inverse.fleet_inverse @ remainder.T
        return np.asarray(cov + inverse.vehicle_inverse[place])

    def information(self) -> float:
        """½ ln det of Q over the prior precision, nats, by the blocks of M and its soft modes."""
        self.prepare()
        scales = self._scales
        of_fleet = 2.0 * float(np.log(scales.fleet).sum())
        of_vehicles = 2.0 * self.vehicles * float(np.log(scales.vehicle).sum())
        of_near = self._kernel.log_det_precision() - 2.0 * self._roads * np.log(
            scales.near
        )
        of_own = float(np.log(self._own_precision).sum())
        prior = of_near + of_own - of_fleet - of_vehicles

        inverse = self._terms_inverse
        fleet = -np.linalg.slogdet(inverse.fleet_inverse).logabsdet
        vehicles = -np.linalg.slogdet(inverse.vehicle_inverse).logabsdet.sum()
        roads = float(np.log(self._road_precision).sum()) + self._factor.log_det
        corrections = float(np.log1p(self._modes.weights).sum())
        posterior = fleet + vehicles + roads - corrections
        return 0.5 * float(posterior - prior)

    @property
    def _road_precision(self) -> Floats:
        """D⁻¹ + λ: the precision of f given g by M, (n,)."""
        return np.asarray(self._own_precision + self._road_information)

    # --- M when it is needed -----------------------------------------------------------------

    def refresh(self) -> None:
        """Have M made anew from all trips when it is needed next."""
        self._factor_cache = []

    def prepare(self) -> None:
        _ = self._factor
        if not np.isfinite(self._smallest):
            self._measure()

    def _measure(self) -> None:
        """Find where Q is much smaller than M, and correct M there."""
        roads = np.flatnonzero(self._road_information)
        count = len(roads)
        n = self._roads

        def spread(values: Floats) -> Unknowns:
            x = Unknowns.from_flat(np.zeros(self.size), n)
            x.f[roads] = values[:count]
            x.fleet[:] = values[count : count + _P]
            x.vehicles[:] = values[count + _P :].reshape(-1, _P)
            return x

        def gathered(x: Unknowns) -> Floats:
            return np.concatenate([x.f[roads], x.fleet, x.vehicles.ravel()])

        precision = self._road_precision[roads]
        share = self._own_precision[roads] / precision
        solve_at = self._factor.among(roads)

        def precondition(values: Floats) -> Floats:
            y = values[:count]
            f = y / precision + share * solve_at(share * y)
            terms = values[count:]
            fleet, vehicles = self._terms_inverse.times(
                terms[:_P], terms[_P:].reshape(-1, _P)
            )
            return np.concatenate([f, fleet, vehicles.ravel()])

        def difference(values: Floats) -> Floats:
            return gathered(self._beyond_blocks(spread(values)))

        found = find_soft(difference, precondition, count + _P + _P * self.vehicles)
        # One after another: all of them together may take much memory.
        vectors = (self._inverse_blocks(spread(dual).flat()) for dual in found.duals)
        found = found._replace(values=self._energies(vectors))
        self._modes = self._modes_of(found, roads)
        # Q exceeds its share in which P is replaced by the factor, and this one exceeds M.
        self._smallest = found.smallest * self._smallest_of_factor

    def _beyond_blocks(self, x: Unknowns) -> Unknowns:
        """Q − M times unknowns: what trips tell but for the diagonal and the blocks of M."""
        u = x.fleet + x.vehicles
        learned = self._products.times(RoadsAndVehicles(x.f, u))
        vehicles = learned.vehicles - np.einsum(
            "vij,vj->vi", self._vehicle_information, u
        )
        return Unknowns(
            f=learned.roads - self._road_information * x.f,
            g=np.zeros(0),
            fleet=vehicles.sum(axis=0),
            vehicles=vehicles,
        )

    def _modes_of(self, found: RitzPairs, roads: Ints) -> SoftModes:
        """The directions v = M⁻¹ y, in which g is stored where it is not negligible.

        Args:
            found: y, of f of the roads that were driven on and of terms.
            roads: These roads, (s,).
        """
        precision = self._road_precision
        share = self._own_precision / precision
        of_roads = found.duals[:, : len(roads)]
        stored: list[tuple[Ints, Floats]] = []
        for first in range(0, len(of_roads), _SOLVES_AT_ONCE):
            few = of_roads[first : first + _SOLVES_AT_ONCE]
            right = np.zeros((self._roads, len(few)))
            right[roads] = (share[roads] * few).T
            for g in self._factor.solve(right).T:
                size = np.abs(g)
                nodes = np.flatnonzero(size > _NEGLIGIBLE * size.max())
                stored.append((nodes, g[nodes]))
        terms = []
        for y in found.duals[:, len(roads) :]:
            w, w_v = self._terms_inverse.times(y[:_P], y[_P:].reshape(-1, _P))
            terms.append(np.concatenate([w, w_v.ravel()]))
        if not stored:
            return SoftModes.none()
        is_stored = np.zeros(self._roads, dtype=np.bool_)
        for nodes, _ in stored:
            is_stored[nodes] = True
        all_nodes = np.flatnonzero(is_stored)
        near = np.zeros((len(stored), len(all_nodes)))
        for row, (nodes, values) in zip(near, stored, strict=True):
            row[np.searchsorted(all_nodes, nodes)] = values
        return SoftModes(
            weights=1.0 / found.values - 1.0,
            nodes=all_nodes,
            near=near,
            share=share[all_nodes],
            roads=roads,
            rest=of_roads / precision[roads],
            terms=np.array(terms),
        )


def _inverse(matrices: Floats) -> Floats:
    """Inverses of small matrices, (…, 5, 5)."""
    return np.asarray(np.linalg.inv(matrices), dtype=np.float64)
