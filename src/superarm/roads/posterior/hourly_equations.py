"""The posterior precision of a fleet whose roads have a profile over the day.

=============  =======================================================================
``B``          functions of the hour, the first of them 1; see :mod:`.hours`
``f``, ``g``   as in :mod:`.mixed_equations`, by function, (n, B): the prior of each function is that
               of f and g there, and 0 between functions
``w``, ``w_v`` terms of the fleet by function, (5, B), and of each vehicle, (V, 5)
``D``, ``N``   what each road does by itself at each function, (n, B); what multiplies k_G, (B,)
``Λ_r``        the information of all trips about the functions of one road, (B, B): Σ λ φ φᵀ
``A_r``        D_r⁻¹ + Λ_r: the precision of f of a road, given g, (B, B)
=============  =======================================================================

Henderson's equations are those of :mod:`.mixed_equations`, with B numbers for each road. M has Λ_r for
Λ and the information about (w, w_v), nothing between them. Given g, f is eliminated road by road, which
leaves for g, with K = k_G,

    N⁻¹ ⊗ K⁻¹ + S,   S_r = D_r⁻¹ − D_r⁻¹ A_r⁻¹ D_r⁻¹   (B, B) of each road.

Trips of a fleet come at much the same hours on all roads. So all S_r are nearly multiples of one matrix,
whose eigenvectors U make S diagonal: with g = y Uᵀ N^½ each of the B columns of y has a sparse factor of
its own, of K⁻¹ + s with a diagonal s. What is left between columns is neglected by M.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np

from superarm.core import Floats, Ints
from superarm.core.compiling import Backend, is_compiled
from superarm.kernels import GraphMatern
from superarm.kernels.incomplete_factor import DROP, IncompleteFactor
from superarm.kernels.sparse_factor import SparseFactor
from superarm.roads.energy.scales import TERMS, HourlyScales
from superarm.roads.rows import edges_of

from .hourly_blocks import (
    NearColumns,
    NearInverse,
    TermsInverse,
    diagonal_matrices,
    inverse_of,
)
from .hourly_information import (
    RoadBlocks,
    TermsInformation,
    road_blocks,
    terms_information,
)
from .hourly_modes import DrivenUnknowns, HourlyModes
from .hourly_prior import HourlyPrior
from .hourly_products import HourlyProducts, HourlyValues
from .hourly_unknowns import HourlyArms, HourlySums, HourlyUnknowns
from .hours import DayBasis
from .near_factor import near_factor
from .noise import TripNoise
from .preconditioned import PreconditionedEquations
from .soft_modes import find_soft
from .trips import Trips

_P = len(TERMS)
# Share of roads whose information may change before M is made anew.
_STALE = 0.2
# By how much factors of M may exceed what they factorise, in energy.
_FACTOR_ERROR = 0.1
_SOLVES_AT_ONCE = 8  # right-hand sides
_ARMS_AT_ONCE = 10_000


class HourlyEquations(PreconditionedEquations):
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
        scales: HourlyScales,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        self._basis = DayBasis(scales.harmonics)
        self._prior = HourlyPrior.under(scales, sizes)
        self._kernel = kernel
        self._roads = len(kernel)
        self._functions = len(self._basis)
        self._scales = scales
        self._is_compiled = is_compiled(backend)
        self._noise = TripNoise(scales)
        self._own_precision = 1.0 / self._prior.own  # D⁻¹
        self._products = HourlyProducts(
            self._roads, self._functions, self._noise, backend
        )
        functions = self._functions
        self._road_information = np.zeros((self._roads, functions, functions))  # Λ
        self._road_inverse = diagonal_matrices(self._prior.own)  # A⁻¹
        self._terms_information = TermsInformation.none(functions)
        # S of the first function where M was factorised; what is known now may be ahead of it.
        self._factorised = np.zeros(self._roads)
        self._near_cache: list[NearInverse] = []
        self._drop = DROP
        # The smallest eigenvalue of the inverses of factors times what they factorise.
        self._smallest_of_factors = 1.0
        self._terms_cache: list[TermsInverse] = []
        self._modes = HourlyModes.none()

    def copy(self) -> Self:
        other = copy(self)
        other._products = self._products.copy()
        other._near_cache = list(self._near_cache)
        other._terms_cache = list(self._terms_cache)
        return other

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Arrays are replaced, never written into: a copy must not cost more with every road.
        return self.copy()

    @property
    def vehicles(self) -> int:
        """V."""
        return len(self._terms_information.vehicles)

    @property
    def size(self) -> int:
        of_roads = 2 * self._roads * self._functions
        return of_roads + _P * self._functions + _P * self.vehicles

    def _unknowns(self, flat: Floats) -> HourlyUnknowns:
        return HourlyUnknowns.from_flat(flat, self._roads, self._functions)

    # --- trips -------------------------------------------------------------------------------

    def append(self, trips: Trips, drivers: Ints, vehicles: int) -> None:
        phi = self._basis.of(trips.keys)
        new = self._products.append(trips, phi, drivers, vehicles)
        of_terms = terms_information(
            self._noise, self._basis, trips, drivers, new.vehicles
        )
        self._terms_information = self._terms_information.plus(of_terms)
        of_roads = road_blocks(edges_of(trips.keys), phi, new.arms)
        self._add_roads(of_roads)
        self._terms_cache = []
        if self._is_stale():
            self._near_cache = []

    def _add_roads(self, new: RoadBlocks) -> None:
        """Add what trips contain about their roads."""
        information = self._road_information.copy()
        information[new.roads] += new.blocks
        of_prior = diagonal_matrices(self._own_precision[new.roads])
        inverse = self._road_inverse.copy()
        inverse[new.roads] = inverse_of(of_prior + information[new.roads])
        self._road_information = information
        self._road_inverse = inverse

    def _is_stale(self) -> bool:
        """Whether M is from before much of what is known of roads."""
        if self._is_slow or self._has_grown():
            return True
        known = self._known_of_mean()
        change = np.abs(known - self._factorised)
        changed = np.count_nonzero(change > 0.5 * self._own_precision[:, 0])
        return bool(changed > _STALE * len(self._driven()))

    def _total_information(self) -> float:
        return float(self._road_information[:, 0, 0].sum())

    def _driven(self) -> Ints:
        """Roads that were driven on, (s,)."""
        return np.flatnonzero(self._road_information[:, 0, 0])

    def _known_of_mean(self) -> Floats:
        """S of the first function, (n,)."""
        own = self._own_precision[:, 0]
        return np.asarray(own - np.square(own) * self._road_inverse[:, 0, 0])

    # --- products ----------------------------------------------------------------------------

    def times(self, flat: Floats) -> Floats:
        x = self._unknowns(flat)
        learned = self._products.times(HourlyValues(x.f, x.fleet, x.vehicles))
        prior = self.prior_times(x)
        return HourlyUnknowns(
            f=prior.f + learned.roads,
            g=prior.g,
            fleet=prior.fleet + learned.fleet,
            vehicles=prior.vehicles + learned.vehicles,
        ).flat()

    def prior_times(self, x: HourlyUnknowns) -> HourlyUnknowns:
        """The prior precision times unknowns."""
        own = self._own_precision * (x.f - x.g)
        return HourlyUnknowns(
            f=own,
            g=self._kernel.precision_times(x.g) / self._prior.near - own,
            fleet=x.fleet / self._prior.fleet,
            vehicles=x.vehicles / np.square(self._scales.vehicle),
        )

    # --- M -----------------------------------------------------------------------------------

    def precondition(self, flat: Floats) -> Floats:
        blocks = self._inverse_blocks(self._unknowns(flat))
        return blocks.flat() + self._modes.times(flat)

    def _inverse_blocks(self, r: HourlyUnknowns) -> HourlyUnknowns:
        """The inverse of the blocks of M, times unknowns."""
        own = self._own_precision
        given = self._given_near(r.f)
        g = self._near_inverse.times(r.g + own * given)
        f = given + self._given_near(own * g)
        fleet, vehicles = self._terms_inverse.times(r.fleet, r.vehicles)
        return HourlyUnknowns(f, g, fleet, vehicles)

    def _given_near(self, right: Floats) -> Floats:
        """A⁻¹ times values of all roads, (n, B)."""
        return np.asarray(np.matmul(self._road_inverse, right[:, :, None])[:, :, 0])

    def refresh(self) -> None:
        self._near_cache = []

    def prepare(self) -> None:
        _ = self._near_inverse
        if not np.isfinite(self._smallest):
            self._modes = self._find_modes()
            self._smallest = self._modes.smallest

    @property
    def _near_inverse(self) -> NearInverse:
        if not self._near_cache:
            self._near_cache.append(self._new_near_inverse())
            self._factorised = self._known_of_mean()
            self._modes = HourlyModes.none()
            self._information_of_M = self._total_information()
            self._forget_measurements()
        return self._near_cache[0]

    def _new_near_inverse(self) -> NearInverse:
        all_roads = np.arange(self._roads)
        known = self._known_of_near(all_roads)
        columns = NearColumns.of(self._prior.near, known)
        self._smallest_of_factors = 1.0
        factors = [self._new_factor(shift) for shift in columns.shifts]
        return NearInverse(columns, factors)

    def _new_factor(self, shift: Floats) -> SparseFactor | IncompleteFactor:
        """A factor of K⁻¹ + s."""
        if self._is_compiled:
            made = near_factor(self._kernel, 1.0, shift, self._drop, _FACTOR_ERROR)
            self._drop = made.drop
            self._smallest_of_factors = min(self._smallest_of_factors, made.smallest)
            return made.factor
        from scipy.sparse import diags_array

        return SparseFactor(self._kernel.precision() + diags_array(shift))

    def _known_of_near(self, roads: Ints) -> Floats:
        """S of these roads, (·, B, B)."""
        own = self._own_precision[roads]
        known = -(own[:, :, None] * self._road_inverse[roads] * own[:, None, :])
        diagonal = np.arange(self._functions)
        known[:, diagonal, diagonal] += own
        return np.asarray(known)

    @property
    def _terms_inverse(self) -> TermsInverse:
        if not self._terms_cache:
            inverse = TermsInverse.of(
                self._terms_information,
                self._prior.fleet,
                np.square(self._scales.vehicle),
            )
            self._terms_cache.append(inverse)
        return self._terms_cache[0]

    # --- what M neglects ---------------------------------------------------------------------

    def _find_modes(self) -> HourlyModes:
        """Directions in which Q is much smaller than M."""
        driven = self._driven()
        part = DrivenUnknowns(driven, self._roads, self._functions, self.vehicles)
        neglected = self._neglected_of_near(driven)

        def difference(values: Floats) -> Floats:
            x = part.spread(values)
            beyond = self._beyond_blocks(x)
            beyond.g[driven] = np.einsum("sbc,sc->sb", neglected, x.g[driven])
            return part.gathered(beyond)

        def precondition(values: Floats) -> Floats:
            return part.gathered(self._inverse_blocks(part.spread(values)))

        found = find_soft(difference, precondition, part.size)
        vectors = np.empty((len(found.duals), self.size))
        for vector, dual in zip(vectors, found.duals, strict=True):
            vector[:] = self._inverse_blocks(part.spread(dual)).flat()
        # Q exceeds its share in which K⁻¹ + s is replaced by the factors, and this one exceeds M.
        smallest = found.smallest * self._smallest_of_factors
        weights = 1.0 / self._energies(vectors) - 1.0
        return HourlyModes(weights, vectors, smallest)

    def _beyond_blocks(self, x: HourlyUnknowns) -> HourlyUnknowns:
        """What Q has beyond M, times unknowns, but for g: the links between roads and terms."""
        learned = self._products.times(HourlyValues(x.f, x.fleet, x.vehicles))
        of_roads = np.matmul(self._road_information, x.f[:, :, None])[:, :, 0]
        fleet, vehicles = self._terms_information.times(x.fleet, x.vehicles)
        return HourlyUnknowns(
            f=learned.roads - of_roads,
            g=np.zeros_like(x.g),
            fleet=learned.fleet - fleet,
            vehicles=learned.vehicles - vehicles,
        )

    def _neglected_of_near(self, roads: Ints) -> Floats:
        """What M neglects of S: all that links columns of y, (s, B, B)."""
        unlinked = self._near_inverse.columns.unlinked_part(roads)
        return np.asarray(self._known_of_near(roads) - unlinked)

    # --- what M contains ---------------------------------------------------------------------

    def approximate_cov(self, sums: HourlySums, near: Floats | None = None) -> Floats:
        """X M⁻¹ Xᵀ of some rewards, (M, M), without a product with the log.

        Args:
            sums: What the rewards are sums of.
            near: The covariance of y of their roads, column by column, (B, u, u); by default computed
                exactly.
        """
        self.prepare()
        near_inverse = self._near_inverse
        given_near = np.einsum(
            "ubc,umc->umb", self._road_inverse[sums.edges], sums.counts
        )
        own = self._own_precision[sums.edges, None, :]
        shrunk = (own * given_near) @ near_inverse.columns.rotation  # (u, M, B)
        cov = np.einsum("umb,unb->mn", sums.counts, given_near, optimize=True)
        for column, factor in enumerate(near_inverse.factors):
            weights = np.ascontiguousarray(shrunk[:, :, column])
            if near is None:
                cov += factor.gram(sums.edges, weights)
            else:
                cov += weights.T @ near[column] @ weights
        inverse = self._terms_inverse
        gain = inverse.gain[sums.places]
        fleet = sums.fleet_terms - np.einsum("mvi,vij->mj", sums.vehicle_terms, gain)
        cov += fleet @ inverse.fleet_inverse @ fleet.T
        for number, place in enumerate(sums.places.tolist()):
            phi = sums.vehicle_terms[:, number]
            cov += phi @ inverse.vehicle_inverse[place] @ phi.T
        along = sums.of_rows(self._modes.vectors, self._roads)  # (k, M)
        cov += along.T @ (self._modes.weights[:, None] * along)
        return np.asarray(cov)

    def near_draws(self, edges: Ints, count: int) -> Floats:
        """Draws of y of some roads by M, column by column, (B, u, count).

        Each column is (K⁻¹ + s)⁻¹ (K⁻¹ y + √s z), y a draw of the prior and z normal.

        Args:
            edges: The roads, (u,).
            count: How many draws.
        """
        self.prepare()
        near_inverse = self._near_inverse
        rng = np.random.default_rng(0)
        draws = np.empty((self._functions, len(edges), count))
        for column, factor in enumerate(near_inverse.factors):
            root = np.sqrt(near_inverse.columns.shifts[column, :, None])
            for first in range(0, count, _SOLVES_AT_ONCE):
                few = slice(first, min(first + _SOLVES_AT_ONCE, count))
                shape = (self._roads, few.stop - few.start)
                y = self._kernel.root_times(rng.standard_normal(shape))
                z = rng.standard_normal(shape)
                right = self._kernel.precision_times(y) + root * z
                draws[column, :, few] = factor.solve(right)[edges]
        return draws

    def approximate_variances(self, arms: HourlyArms) -> Floats:
        self.prepare()
        near_inverse = self._near_inverse
        diagonals = [factor.diagonal for factor in near_inverse.factors]
        near = np.column_stack(diagonals)  # (n, B)
        count = len(arms.edges)
        variances = np.empty(count)
        for first in range(0, count, _ARMS_AT_ONCE):
            rows = slice(first, first + _ARMS_AT_ONCE)
            variances[rows] = self._approximate_variances(arms.some(rows), near)
        return variances

    def _approximate_variances(self, arms: HourlyArms, near: Floats) -> Floats:
        inverse = self._road_inverse[arms.edges]
        given_near = np.einsum("abc,ac->ab", inverse, arms.weights)
        own = self._own_precision[arms.edges]
        shrunk = (own * given_near) @ self._near_inverse.columns.rotation
        variances = np.einsum("ab,ab->a", arms.weights, given_near)
        variances += np.einsum("ab,ab->a", np.square(shrunk), near[arms.edges])
        variances += self._terms_variances(arms)
        added = self.size - self._modes.vectors.shape[1]
        modes = zip(self._modes.weights, self._modes.vectors, strict=True)
        for weight, vector in modes:
            mode = self._unknowns(np.pad(vector, (0, added)))
            variances += weight * np.square(arms.sums(mode))
        return np.asarray(variances)

    def _terms_variances(self, arms: HourlyArms) -> Floats:
        """What the terms of the fleet and of vehicles add to the variances of arms, (m,)."""
        inverse = self._terms_inverse
        of_fleet = arms.terms[:, :, None] * arms.phi[:, None, :]
        fleet = of_fleet.reshape(len(of_fleet), -1)
        variances = np.zeros(len(fleet))
        for place in np.unique(arms.places).tolist():
            if place < 0:
                continue
            is_driven = arms.places == place
            phi = arms.terms[is_driven]
            fleet[is_driven] -= phi @ inverse.gain[place]
            covariance = inverse.vehicle_inverse[place]
            variances[is_driven] = np.einsum("ij,jk,ik->i", phi, covariance, phi)
        of_terms = np.einsum("ij,ij->i", fleet @ inverse.fleet_inverse, fleet)
        return np.asarray(variances + of_terms)

    def information(self) -> float:
        self.prepare()
        of_fleet = float(np.log(self._prior.fleet).sum())
        of_vehicles = 2.0 * self.vehicles * float(np.log(self._scales.vehicle).sum())
        # N⁻¹ is part of both precisions, and cancels out.
        of_near = self._functions * self._kernel.log_det_precision()
        of_own = float(np.log(self._own_precision).sum())
        prior = of_near + of_own - of_fleet - of_vehicles

        inverse = self._terms_inverse
        fleet = -np.linalg.slogdet(inverse.fleet_inverse).logabsdet
        vehicles = -np.linalg.slogdet(inverse.vehicle_inverse).logabsdet.sum()
        roads = -np.linalg.slogdet(self._road_inverse).logabsdet.sum()
        near = sum(factor.log_det for factor in self._near_inverse.factors)
        corrections = float(np.log1p(self._modes.weights).sum())
        posterior = fleet + vehicles + roads + near - corrections
        return 0.5 * float(posterior - prior)
