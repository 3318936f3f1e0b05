"""The arithmetic of :class:`RoadGP` for many visited roads: sparse, and solved iteratively.

The unknowns and their equations Q x = b are those of :mod:`.mixed_equations`; x are the posterior means,
and Q⁻¹ is the posterior covariance, of which only products are computed.

=============  =======================================================================
``a``          the weights of the unknowns in a reward: its mean is aᵀ x, its variance aᵀ Q⁻¹ a
``b``          Xᵀ R⁻¹ (y − expected) of all trips
``tolerance``  by what share of a posterior standard deviation means may be off, and standard deviations
               by what share of themselves; see :mod:`.conjugate_gradients` for the bound
=============  =======================================================================

A trip changes Q and b. x follows as if Q were its preconditioner M, and is solved for when it is asked for,
or after a few trips: so trips that come one after another share solves. A joint draw about zero is
x_0 − Q⁻¹ (Xᵀ R⁻¹ (X x_0 + e)), x_0 a draw of the prior and e one of the noise (Matheron's rule).

Variances of a few arms take a solve each, and so do those of many in a short log. Others are the
diagonal of X M⁻¹ Xᵀ: selected inversion and the soft modes of M; a sample of them is solved, too, which
measures their error.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from superarm.core import Floats, Ints, Rng, State
from superarm.core.compiling import Backend, is_compiled
from superarm.core.errors import PrecisionWarning, StateError, warn
from superarm.core.linalg import cholesky, solve_lower
from superarm.kernels import GraphMatern
from superarm.kernels.incomplete_factor import IncompleteFactor
from superarm.kernels.sparse_factor import SparseFactor
from superarm.roads.energy.scales import TERMS, RoadScales
from superarm.roads.rows import COLUMNS, Column, edges_of, terms_of, vehicles_of

from .draw_order import DrawOrder
from .forecasts import ExpectedRewards
from .information import residuals
from .log import Log
from .matrices import half_log_det
from .mixed_equations import ArmWeights, MixedEquations, RewardSums, Unknowns
from .near_factor import near_factor
from .noise import TripNoise
from .preconditioned import PreconditionedEquations
from .slots import CountedRoads, count_roads
from .trips import Trips

_P = len(TERMS)
TOLERANCE = 0.01
# Trips that are learned without a solve, at most, and as a share of all: M predicts what one of few trips
# changes less well.
_MOST_PENDING = 16
_PENDING_SHARE = 0.01
_LEAST_JUDGED = 1e-3  # tolerance below which trips are judged as they are forecast
# Share by which variances of sums by M may be off where trips are judged: several times what was measured.
_JUDGED_ERROR = 0.5
_NEAR_DRAWS = 200  # from which covariances of many trips are estimated
_MOST_STORED = 64  # solutions of a forecast
_MOST_SOLVED = 256  # variances that are always solved for one by one
# Arms of the log and roads that many variances may read, each solve all of them: some ten seconds.
_SOLVING_BUDGET = 250_000_000
# Of the factor by which scales are fitted: what is dropped, and by what share covariances may be off.
_FITTING_DROP = 1e-5
_FITTING_ERROR = 0.001
_SAMPLE = 32  # of more, how many at least are solved to measure the error of all


class Arms(Protocol):
    """What multiplies the unknowns in the rewards of single arms."""

    @property
    def edges(self) -> Ints:
        """Their roads, (m,)."""
        ...

    @property
    def terms(self) -> Floats:
        """Their terms, (m, 5)."""
        ...

    @property
    def places(self) -> Ints:
        """Places of their vehicles; −1 where one was never driven, (m,)."""
        ...

    def one(self, arm: int) -> Self:
        """One of the arms."""
        ...


class SparseRoadEngine:
    """What was learned under one choice of scales.

    Args:
        kernel: k_G.
        sizes: Wh that each road moves, (n,).
        scales: Standard deviations of the model.
        tolerance: By what share of a standard deviation answers may be off.
        backend: How products with the log are computed.
        half_life: Later trips after which a trip counts half; ``None``: trips do not age.
    """

    _columns = COLUMNS

    def __init__(
        self,
        kernel: GraphMatern,
        sizes: Floats,
        scales: RoadScales,
        tolerance: float = TOLERANCE,
        backend: Backend = "auto",
        half_life: float | None = None,
    ) -> None:
        self.kernel = kernel
        self.sizes = sizes
        self.scales = scales
        self.tolerance = tolerance
        self.log = Log(self._columns, half_life)
        self.noise = TripNoise(scales)
        self.information = 0.0
        self.steps = 0
        """Steps of conjugate gradients that the latest means took."""
        self._backend: Backend = backend
        self._equations = self._new_equations()
        self._visited = np.empty(0, dtype=np.intp)
        # Of vehicles among all; never changed in place.
        self._places: dict[int, int] = {}
        self._draw_order = DrawOrder()
        self._right = np.zeros(self._equations.size)  # b
        # x, but for what the latest trips changed beyond what M predicts.
        self._x = self._right.copy()
        self._pending = 0  # trips since x was solved for
        self._variances: Floats | None = None
        self.variance_error = 0.0
        """By what share the latest standard deviations of many arms were off in a sample, at most."""

    def _new_equations(self) -> PreconditionedEquations:
        """The equations of no trips."""
        return MixedEquations(self.kernel, self.sizes, self.scales, self._backend)

    @property
    def visited(self) -> Ints:
        """Roads that were driven on, in the order of their first visits."""
        return self._visited

    @property
    def has_variances(self) -> bool:
        """Whether variances of all roads are kept."""
        return self._variances is not None

    @property
    def _roads(self) -> int:
        """n."""
        return len(self.kernel)

    # --- weights of unknowns -----------------------------------------------------------------

    def _arms(self, keys: Floats) -> Arms:
        """What multiplies the unknowns in the rewards of these keys."""
        return ArmWeights(
            edges=edges_of(keys),
            masses=keys[:, Column.MASS_RATIO],
            terms=terms_of(keys),
            places=self._places_of(keys),
        )

    def _gathered(self, trips: Trips, values: Floats) -> Floats:
        """Xᵀ times values of rewards, (M,), as a flat vector."""
        of_arms = values[trips.reward_of_arm]
        arms = self._arms(trips.keys)
        return self._gathered_of(arms, of_arms)

    def _summed(self, trips: Trips, flat: Floats) -> Floats:
        """X times unknowns, (M,)."""
        return trips.summed(self._sums_of_arms(self._arms(trips.keys), flat))

    def _gathered_of(self, arms: Any, values: Floats) -> Floats:
        """What values of arms, (m,), put on the unknowns, as a flat vector."""
        gathered = arms.gather(values, self._roads, len(self._places))
        return np.asarray(gathered.flat())

    def _sums_of_arms(self, arms: Any, flat: Floats) -> Floats:
        """The reward of each arm of unknowns, (m,)."""
        return np.asarray(arms.sums(self._unknowns(flat)))

    def _unknowns(self, flat: Floats) -> Any:
        """Unknowns by their names, of a flat vector."""
        return Unknowns.from_flat(flat, self._roads)

    def _places_of(self, keys: Floats) -> Ints:
        """The place of each key's vehicle; −1 where it was never driven, (m,)."""
        vehicles, inverse = np.unique(vehicles_of(keys), return_inverse=True)
        places = [self._places.get(vehicle, -1) for vehicle in vehicles.tolist()]
        return np.array(places, dtype=np.intp)[inverse]

    def _new_vehicle_cov(self, trips: Trips) -> Floats:
        """What vehicles that were never driven add to the covariance of rewards, (M, M)."""
        count = len(trips.rewards)
        cov = np.zeros((count, count))
        vehicles = vehicles_of(trips.keys)
        for vehicle in np.unique(vehicles).tolist():
            if vehicle not in self._places:
                is_driven = vehicles == vehicle
                phi = trips.summed(terms_of(trips.keys) * is_driven[:, None])
                cov += (phi * np.square(self.scales.vehicle)) @ phi.T
        return cov

    # --- forecasts ---------------------------------------------------------------------------

    def expect(self, trips: Trips) -> ExpectedRewards:
        """Forecast rewards of any roads: as many solves as rewards.

        Of two rewards with weights a_i and a_j, solved as z_i and z_j with residuals r_i and r_j, the
        covariance a_iᵀ z_j + z_iᵀ r_j is off by at most the product of both errors. Of many rewards
        solutions are not stored; they are solved more precisely instead, and a_iᵀ z_j is as good.
        """
        count = len(trips.rewards)
        is_stored = count <= _MOST_STORED
        tolerance = self.tolerance
        if not is_stored:
            tolerance = 0.5 * self.tolerance**2  # an energy norm of tolerance · std
        cov = np.empty((count, count))
        solutions: list[Floats] = []
        residual_of: list[Floats] = []
        for reward in range(count):
            unit = np.zeros(count)
            unit[reward] = 1.0
            a = self._gathered(trips, unit)
            solution = self._equations.solve_variance(a, tolerance)
            cov[:, reward] = self._summed(trips, solution.x)
            if is_stored:
                solutions.append(solution.x)
                residual_of.append(solution.residual)
        if is_stored:
            cov += np.array(solutions) @ np.array(residual_of).T
        return self._expected(trips, 0.5 * (cov + cov.T), self._solved())

    def expect_total(self, trips: Trips) -> ExpectedRewards:
        """Forecast rewards whose sum is precise to the tolerance with its noise included.

        Args:
            trips: What is forecast.
        """
        if self.tolerance < _LEAST_JUDGED:
            return self.expect(trips)
        cov = self._cov_for_total(trips, self._equations.most_variance_error)
        return self._expected(trips, cov, self._solved())

    def judge(self, trips: Trips) -> ExpectedRewards:
        """Forecast trips that are learned next, with means that M predicts from the latest solve.

        Args:
            trips: What is forecast.
        """
        if self.tolerance < _LEAST_JUDGED:
            return self.expect(trips)
        return self._expected(trips, self._cov_for_total(trips, _JUDGED_ERROR), self._x)

    def _cov_for_total(self, trips: Trips, error: float) -> Floats:
        """The covariance of rewards, precise where it affects their sum, noise included, (M, M).

        It is that of M, which is near enough where noise outweighs what M may be off. Otherwise a solve
        for the sum of all rewards corrects it, so that the variance of the sum, and its covariances y
        with them, are those of Q⁻¹: C − (C1)(C1)ᵀ/(1ᵀC1) + y yᵀ/(1ᵀy), which stays positive
        semi-definite. Of single rewards, what M forgets is small beside their noise.

        Args:
            trips: The trips.
            error: By what share of itself the variance of a sum by M may be off.
        """
        cov = self._equations.approximate_cov(self._sums_of(trips))
        noise = float(self.noise.covariance(trips).sum())
        approximate = cov.sum(axis=1)
        most_off = error * float(approximate.sum())
        if most_off <= 2.0 * self.tolerance * noise:
            return cov
        a = self._gathered(trips, np.ones(len(trips.rewards)))
        solution = self._equations.solve_variance(a, self.tolerance, noise)
        exact = self._summed(trips, solution.x)
        cov -= np.outer(approximate, approximate) / approximate.sum()
        cov += np.outer(exact, exact) / exact.sum()
        return cov

    def judge_all(self, trips: Trips) -> Iterator[ExpectedRewards]:
        """Forecast each of many trips by what is known before the first of them.

        Nothing is solved for: covariances are those of M, made anew, in which that of what neighbours
        have in common is estimated from draws.

        Args:
            trips: What is forecast.
        """
        edges = np.unique(edges_of(trips.keys))
        self._equations.refresh()
        draws = self._equations.near_draws(edges, _NEAR_DRAWS)
        x = self._solved()
        for trip in trips.each():
            sums = self._sums_of(trip)
            rows = draws[..., np.searchsorted(edges, sums.edges), :]
            near = rows @ rows.swapaxes(-1, -2) / _NEAR_DRAWS
            cov = self._equations.approximate_cov(sums, near)
            yield self._expected(trip, cov, x)

    def _sums_of(self, trips: Trips) -> Any:
        """What rewards are sums of."""
        edges, counts = count_roads(trips)
        places, vehicle_terms = self._vehicle_terms(trips)
        return RewardSums(edges, counts, trips.terms, places, vehicle_terms)

    def _vehicle_terms(self, trips: Trips) -> tuple[Ints, Floats]:
        """Places of vehicles that were driven before, (c,), and their terms in rewards, (M, c, 5)."""
        places_of_arms = self._places_of(trips.keys)
        places = np.unique(places_of_arms[places_of_arms >= 0])
        terms = terms_of(trips.keys)
        vehicle_terms = np.zeros((len(trips.rewards), len(places), _P))
        for number, place in enumerate(places.tolist()):
            is_driven = places_of_arms == place
            vehicle_terms[:, number] = trips.summed(terms * is_driven[:, None])
        return places, vehicle_terms

    def _expected(self, trips: Trips, cov: Floats, x: Floats) -> ExpectedRewards:
        expected = trips.summed(trips.keys[:, Column.EXPECTED])
        return ExpectedRewards(
            mean=expected + self._summed(trips, x),
            cov=cov + self._new_vehicle_cov(trips),
            noise=self.noise.covariance(trips),
            explained=np.empty((0, len(trips.rewards))),
        )

    # --- learning ----------------------------------------------------------------------------

    def absorb(self, trips: Trips, expected: ExpectedRewards | None = None) -> float:
        """Learn from trips; returns the information gained, nats.

        Args:
            trips: What was observed.
            expected: What :meth:`judge` forecasts for them, where that is known already.
        """
        if expected is None:
            expected = self.judge(trips)
        C = cholesky(expected.total_cov, "the covariance of the rewards")
        noise_root = cholesky(expected.noise, "the noise of the rewards")
        gained = float(half_log_det(C) - half_log_det(noise_root))
        weights = solve_lower(C, trips.rewards - expected.mean)
        update = self._update(trips, solve_lower(C, weights, transposed=True))
        learner = copy(self)
        learner._x = self._x + update
        learner._add(trips)
        learner._pending += trips.number
        known = self.log.view().number
        if learner._pending > min(_MOST_PENDING, _PENDING_SHARE * known):
            learner._solve()
        # From here on nothing can fail.
        self.log.append(trips)
        learner.log = self.log
        learner.information = self.information + gained
        self.__dict__.update(vars(learner))
        return gained

    def _update(self, trips: Trips, weights: Floats) -> Floats:
        """By how much a trip changes the means, were Q as M is: where the next solve starts.

        It is M⁻¹ a for the rewards a weighted by (aᵀ M⁻¹ a + R)⁻¹ (y − mean).
        """
        self._equations.prepare()
        return self._equations.precondition(self._gathered(trips, weights))

    def _add(self, trips: Trips) -> None:
        """Add trips to the equations, which are copied; solves nothing."""
        keys = trips.keys
        vehicles: list[int] = np.unique(vehicles_of(keys)).tolist()
        roads = np.unique(edges_of(keys))
        is_new = np.isin(roads, self._visited, invert=True)
        new_roads = roads[is_new]
        places = dict(self._places)
        for vehicle in vehicles:
            places.setdefault(vehicle, len(places))
        self._places = places
        self._visited = np.concatenate([self._visited, new_roads])
        self._draw_order = self._draw_order.after(vehicles, len(new_roads))
        self._equations = self._equations.copy()
        self._equations.append(trips, self._places_of(keys), len(places))
        pull = self.noise.solve(trips, residuals(trips))
        new = self._gathered(trips, pull)
        added = len(new) - len(self._right)
        self._right = np.pad(self._right, (0, added)) + new
        self._x = np.pad(self._x, (0, added))
        self._variances = None
        self.variance_error = 0.0

    def _solved(self) -> Floats:
        """x, solved for if trips have come since."""
        if self._pending:
            self._solve()
        return self._x

    def _solve(self) -> None:
        """Find the means from where they were."""
        solution = self._equations.solve(self._right, self._x, self.tolerance)
        self._x = solution.x
        self._pending = 0
        self.steps = solution.steps

    def supposing(self, keys: Floats, noise: Floats) -> Self:
        """The engine once these roads are observed with this noise: less variance, the same means.

        Args:
            keys: The roads, (m, 9).
            noise: Variance of each observation, (m,).
        """
        trips = Trips.of_one(keys, noise=noise)
        expected = trips.keys[:, Column.EXPECTED]
        means = self._summed(trips, self._solved())
        as_expected = trips._replace(rewards=expected + means)
        other = copy(self)
        other._add(as_expected)
        other.log = self.log.copy()
        other.log.append(as_expected)
        return other

    # --- learning all at once ----------------------------------------------------------------

    def with_all(self, trips: Trips) -> Self:
        """This engine after many more trips, all of them computed at once."""
        log = self.log.copy()
        log.append(trips)
        if log.half_life is not None:
            return self._learned_anew(self.scales, log.dated())
        engine = copy(self)
        engine._add(trips)
        engine.log = log
        engine._solve()
        engine._count_information()
        return engine

    def rebuild(self, scales: RoadScales) -> Self:
        """What was learned from the same trips under other scales.

        Under the same scales it is the engine itself, unless trips age: means are solved for anew with
        every trip, so that rounding does not accumulate in them.
        """
        if scales == self.scales and self.log.half_life is None:
            return copy(self)
        return self._learned_anew(scales, self.log.dated())

    def _learned_anew(self, scales: RoadScales, log: Log) -> Self:
        """An engine that has learned from this log, which continues that of this engine.

        Args:
            scales: Its scales.
            log: Its log; ages are as they are there.
        """
        engine = type(self)(
            self.kernel, self.sizes, scales, self.tolerance, self._backend
        )
        engine._places = self._places
        engine._visited = self._visited
        engine._draw_order = self._draw_order
        trips = log.as_learned()
        if len(trips.rewards):
            engine._add(trips)
            # The means of this engine are near those sought; new vehicles come last.
            engine._x[: len(self._x)] = self._x
            engine._solve()
            engine._count_information()
        engine.log = log
        return engine

    def _count_information(self) -> None:
        self.information = self._equations.information()

    # --- as arrays ---------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The means, which take long to compute from the log again."""
        vehicles = np.array(list(self._places), dtype=np.intp)
        return {
            "edges": self._visited,
            "vehicles": vehicles,
            "solution": self._solved(),
            **self._draw_order.arrays(),
        }

    def remember(self, trips: Trips, state: State) -> None:
        """Restore what :meth:`arrays` saved, or raise :class:`StateError`.

        Args:
            trips: The trips that it was learned from.
            state: The saved state.
        """
        edges = state.positions("edges")
        vehicles = state.positions("vehicles")
        driven = np.unique(vehicles_of(trips.keys))
        roads = np.unique(edges_of(trips.keys))
        if not np.array_equal(np.sort(edges), roads) or not np.array_equal(
            np.sort(vehicles), driven
        ):
            raise StateError(
                "this state is damaged: what it has learned is not from its trips"
            )
        size = self._equations.size + _P * len(vehicles)
        x = state.vector("solution", size)
        order = DrawOrder.from_arrays(state, driven, len(edges))
        self._places = {
            vehicle: place for place, vehicle in enumerate(vehicles.tolist())
        }
        self._visited = edges.copy()
        log = self.log.copy()
        log.append(trips)
        self._add(log.as_learned())
        self._draw_order = order
        self._x = x.copy()
        self.log = log

    # --- all roads ---------------------------------------------------------------------------

    def means(self) -> Floats:
        """The mean of f of every road, (n,)."""
        return Unknowns.from_flat(self._solved(), self._roads).f

    def mean_of(self, keys: Floats) -> Floats:
        """The mean of each reward, (m,)."""
        of_unknowns = self._sums_of_arms(self._arms(keys), self._solved())
        return np.asarray(keys[:, Column.EXPECTED] + of_unknowns)

    def prepare_variances(self) -> None:
        """Nothing: copies share M with what it contains."""

    def variances(self) -> Floats:
        """The variance of f of every road, (n,)."""
        if self._variances is None:
            count = self._roads
            roads = ArmWeights(
                edges=np.arange(count),
                masses=np.ones(count),
                terms=np.zeros((count, _P)),
                places=np.full(count, -1),
            )
            self._variances = self._variances_of(roads)
        return self._variances

    def variance_of(self, keys: Floats) -> Floats:
        """The variance of each reward without noise, (m,)."""
        arms = self._arms(keys)
        variances = self._variances_of(arms)
        is_new = arms.places < 0
        of_new = np.square(arms.terms[is_new]) @ np.square(self.scales.vehicle)
        variances[is_new] += of_new
        return variances

    def _variances_of(self, arms: Arms) -> Floats:
        """The diagonal of X Q⁻¹ Xᵀ for single arms, (m,)."""
        count = len(arms.edges)
        if count <= _MOST_SOLVED:
            return self._solved_variances(arms, np.arange(count))
        self._equations.refresh_for_variances()
        variances = self._equations.approximate_variances(arms)
        # Of roads that were never driven on, M is as good as Q.
        is_driven = np.isin(arms.edges, self._visited)
        driven = np.flatnonzero(is_driven)
        self.variance_error = 0.0
        if len(driven):
            chosen = self._chosen_to_solve(driven)
            solved = self._solved_variances(arms, chosen)
            ratios = np.sqrt(variances[chosen] / solved)
            variances[chosen] = solved
            if len(chosen) == len(driven):
                return variances
            errors = np.abs(ratios - 1.0)
            self.variance_error = float(errors.max())
            within = float((errors <= self.tolerance).mean())
            if self.variance_error > self.tolerance:
                warn(
                    f"standard deviations of {count} arms are approximate: of {len(driven)} that were "
                    f"driven on, {len(chosen)} drawn at random were checked, of which {within:.0%} are within "
                    f"{self.tolerance:g} and all were off by up to {self.variance_error:.1%}. "
                    f"Ask for at most {_MOST_SOLVED} at a time, or use form='dense'",
                    PrecisionWarning,
                )
        return variances

    def _chosen_to_solve(self, driven: Ints) -> Ints:
        """All of these arms where that is quick, otherwise a sample of them."""
        most = _SOLVING_BUDGET // self._read_by_a_solve
        if len(driven) <= most:
            return driven
        size = min(max(_SAMPLE, most), len(driven))
        rng = np.random.default_rng(0)
        return rng.choice(driven, size, replace=False)

    @property
    def _read_by_a_solve(self) -> int:
        """How many arms and roads each step of a solve reads."""
        return len(self.log.view().keys) + self._roads

    def _solved_variances(self, arms: Arms, chosen: Ints) -> Floats:
        """The variances of some of the arms, a solve each."""
        variances = np.empty(len(chosen))
        for number, arm in enumerate(chosen.tolist()):
            a = self._gathered_of(arms.one(arm), np.ones(1))
            solution = self._equations.solve_variance(a, self.tolerance)
            variances[number] = solution.gained
        return variances

    def counted_roads(self, trips: Trips) -> CountedRoads:
        """The roads of these trips, to which scales are fitted."""
        edges, counts = count_roads(trips)
        near = self._kernel_factor().gram(edges, counts)
        return CountedRoads(counts, near, self.sizes[edges])

    def _kernel_factor(self) -> SparseFactor | IncompleteFactor:
        """A factor of the precision of k_G, by which scales are fitted."""
        if not is_compiled(self._backend):
            return SparseFactor(self.kernel.precision())
        none = np.zeros(self._roads)
        made = near_factor(self.kernel, 1.0, none, _FITTING_DROP, _FITTING_ERROR)
        return made.factor

    # --- draws -------------------------------------------------------------------------------

    def draw(self, keys: Floats, rng: Rng) -> Floats:
        """A joint draw about zero, (m,), from the same random numbers as the dense form.

        Args:
            keys: Feature rows, (m, 9).
            rng: Random numbers.
        """
        trips = self.log.as_learned()
        prior = self._draw_prior(rng)
        x = prior.flat()
        if len(trips.rewards):
            noise = self.noise.draw(trips, rng)
            # Q x is P x and the information's share; what is left is P x − Xᵀ R⁻¹ e.
            weighted = self.noise.solve(trips, noise)
            pull = self._gathered(trips, weighted)
            right = self._equations.prior_times(prior).flat() - pull
            x = self._equations.solve(right, None, self.tolerance).x
        rewards = self._sums_of_arms(self._arms(keys), x)
        terms = terms_of(keys)
        vehicles_of_keys = vehicles_of(keys)
        for vehicle in np.unique(vehicles_of_keys).tolist():
            # Drawn for every vehicle, used for those that were never driven.
            new = self.scales.vehicle * rng.standard_normal(_P)
            if vehicle not in self._places:
                rows = vehicles_of_keys == vehicle
                rewards[rows] += terms[rows] @ new
        return rewards

    def _draw_prior(self, rng: Rng) -> Any:
        """A draw of all unknowns from their prior."""
        near_normals = rng.standard_normal(self._roads)
        own_normals = rng.standard_normal(self._roads)
        normals = rng.standard_normal(self._draw_order.size)
        g = self.scales.near * self.kernel.root_times(near_normals)
        share_variance = np.square(self.scales.share * self.sizes)
        own = np.sqrt(self.scales.own**2 + share_variance) * own_normals
        return Unknowns(
            f=g + own,
            g=g,
            fleet=np.array(self.scales.fleet) * normals[:_P],
            vehicles=self._draw_vehicles(normals),
        )

    def _draw_vehicles(self, normals: Floats) -> Floats:
        """The prior draw of w_v that these normals are, (V, 5)."""
        vehicles = np.zeros((len(self._places), _P))
        for vehicle, place in self._places.items():
            vehicles[place] = normals[self._draw_order.places(vehicle)]
        return np.asarray(np.array(self.scales.vehicle) * vehicles)
