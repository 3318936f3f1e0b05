"""A fleet's posterior against its model, with every matrix written out."""

from __future__ import annotations

import copy
import math
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array

from superarm.core import LEVELS, Arms, Floats, Offer
from superarm.core.errors import (
    InputError,
    NotPositiveDefiniteError,
    PrecisionWarning,
    StaleBeliefError,
    StateError,
    UnknownArmError,
)
from superarm.core.states import state_to_bytes
from superarm.kernels import GraphMatern
from superarm.roads.energy import RoadScales, Vehicle
from superarm.roads.networks import generate_city
from superarm.roads.posterior import Borders, RoadGP, Trips, noise_parts, terms_of
from superarm.roads.posterior.engine import RoadEngine
from superarm.roads.posterior.slots import Slots
from superarm.roads.problems.fleet import fleet_model, road_rows
from superarm.testing import raises, restored
from superarm.testing.helpers import unchanged

N = 12


def ring(n: int) -> Any:
    """The Laplacian of a ring with some chords."""
    A = np.zeros((n, n))
    for i in range(n):
        A[i, (i + 1) % n] = A[(i + 1) % n, i] = 1.0
    for i in range(0, n, 3):
        A[i, (i + 5) % n] = A[(i + 5) % n, i] = 0.5
    return csc_array(np.diag(A.sum(axis=1)) - A)


KERNEL = GraphMatern(ring(N), nu=2, kappa=1.3, normalisation="raw", variance=14.0)
SIZES = np.linspace(0.0, 20.0, N)
SCALES = RoadScales(
    near=1.5,
    own=1.1,
    share=0.07,
    fleet=(0.2, 0.3, 0.25, 0.04, 0.8),
    vehicle=(0.06, 0.11, 0.09, 0.03, 0.2),
    trip=(0.05, 0.12, 0.04, 0.02, 0.1),
    noise=0.5,
    noise_per_time=0.4,
    noise_per_stop=0.9,
    noise_share=0.3,
    motion=0.2,
    motion_trip=0.15,
)
EACH = {0: 1.0, 1: 1.3, 7: 0.8}  # vehicles and their masses
VEHICLES = tuple(EACH)
_rng = np.random.default_rng(5)
EXPECTED, TERMS = _rng.uniform(1.0, 5.0, N), _rng.uniform(0.5, 3.0, (N, 4))
TERMS[:, 3] -= 1.7  # roads go down, too
STOPS = np.where(np.arange(N) % 3 == 0, 1.4, 0.0)
TOLERANCE = 1e-9  # Wh or Wh²: a few hundred roundings of numbers below 100, and a condition below 1e4


def rows(edges: Sequence[int], vehicles: Sequence[int] | int = 0) -> Floats:
    """Keys of some roads and vehicles."""
    numbers = np.array(edges, dtype=np.intp)
    who = np.broadcast_to(np.array(vehicles), numbers.shape)
    factors = np.array([EACH[int(vehicle)] for vehicle in who])
    return np.column_stack(
        [numbers, EXPECTED[numbers], TERMS[numbers], factors, STOPS[numbers], who]
    )


EVERYWHERE = np.concatenate([rows(range(N), vehicle) for vehicle in VEHICLES])


class Driven(NamedTuple):
    """A trip and what was seen of it."""

    keys: Floats
    sums: tuple[int, ...]
    rewards: Floats
    noise: Floats | None
    borders: Borders = Borders.none()

    def teach(self, gp: RoadGP) -> None:
        if self.borders:
            gp.observe_trips(self.as_trips())
        elif self.sums == tuple(range(len(self.keys))):
            gp.observe(self.keys, self.rewards, self.noise)
        else:
            gp.observe_sums(self.keys, np.array(self.sums), self.rewards, self.noise)

    def as_trips(self) -> Trips:
        return Trips.of_one(
            self.keys, np.array(self.sums), self.rewards, self.noise, self.borders
        )


def moving(trip: Driven, seed: int = 0, gap: int = 0) -> Driven:
    """The same with motion in the rewards; before reward ``gap``, unobserved roads."""
    rng, count = np.random.default_rng(seed), len(trip.rewards)
    places = [(-1, 0)]
    for after in range(1, count):
        places += (
            [(after - 1, -1), (-1, after)] if after == gap else [(after - 1, after)]
        )
    places.append((count - 1, -1))
    before, after = np.array(places, dtype=np.intp).T
    sizes, variances = rng.uniform(0.0, [[30.0], [20.0]], (2, len(places)))
    return trip._replace(borders=Borders(before, after, sizes, variances))


def driven(
    edges: Sequence[int],
    vehicles: Sequence[int] | int = 0,
    seen: str = "edges",
    stated: bool = False,
    seed: int = 0,
) -> Driven:
    """What was seen of these roads, whatever it be."""
    k = len(edges)
    sums = {
        "edges": range(k),
        "trip": [0] * k,
        "sections": [index // 2 for index in range(k)],
    }[seen]
    keys, rng = rows(edges, vehicles), np.random.default_rng(seed)
    rewards = np.bincount(sums, keys[:, 1]) + rng.normal(0.5, 1.0, max(sums) + 1)
    noise = rng.uniform(0.1, 2.0, len(rewards)) if stated else None
    return Driven(keys, tuple(sums), rewards, noise)


class Dense:
    """The model by its formulas."""

    def __init__(self, trips: Sequence[Driven], scales: RoadScales = SCALES) -> None:
        self.scales = scales
        arms, count = (
            sum(len(trip.keys) for trip in trips),
            sum(len(trip.rewards) for trip in trips),
        )
        self.A, self.R, self.y = (
            np.zeros((count, arms)),
            np.zeros((count, count)),
            np.zeros(count),
        )
        self.keys = np.concatenate([np.empty((0, 9)), *(trip.keys for trip in trips)])
        first = arm = 0
        for trip in trips:
            here = slice(first, first + len(trip.rewards))
            self.A[first + np.array(trip.sums), arm + np.arange(len(trip.keys))] = 1.0
            A = self.A[here, arm : arm + len(trip.keys)]
            seen = A @ self.noise(trip.keys) @ A.T
            self.R[here, here] = seen if trip.noise is None else np.diag(trip.noise)
            together = np.zeros(count)
            for before, after, size, variance in zip(*trip.borders, strict=True):
                # reward = … + s at the border where it ends − s where it begins
                sign = np.zeros(count)
                if before >= 0:
                    sign[first + before] += 1.0
                if after >= 0:
                    sign[first + after] -= 1.0
                self.R += ((scales.motion * size) ** 2 + variance) * np.outer(
                    sign, sign
                )
                together += size * sign
            if trip.noise is None:
                self.R += scales.motion_trip**2 * np.outer(together, together)
            self.y[here] = trip.rewards
            first, arm = here.stop, arm + len(trip.keys)

    def noise(self, keys: Floats) -> Floats:
        """Of roads on one trip: their own, and what they share."""
        s = self.scales
        own = s.noise**2 + s.noise_per_time**2 * keys[:, 3]
        own = own * keys[:, 6] ** 2 + s.noise_per_stop**2 * keys[:, 7]
        own += (s.noise_share * np.abs(keys[:, [2, 4, 5]]).sum(axis=1)) ** 2
        shared = keys[:, 2:7] * s.trip
        return np.diag(own) + shared @ shared.T

    def prior(self, one: Floats, other: Floats) -> Floats:
        s = self.scales
        edges = one[:, 0].astype(np.intp)
        own = s.own**2 + (s.share * SIZES[edges]) ** 2
        f = s.near**2 * KERNEL(one[:, :1], other[:, :1]) + own[:, None] * (
            one[:, :1] == other[:, 0]
        )
        fleet = (one[:, 2:7] * np.square(s.fleet)) @ other[:, 2:7].T
        vehicle = (one[:, 2:7] * np.square(s.vehicle)) @ other[:, 2:7].T
        scale = np.outer(one[:, 6], other[:, 6])
        return np.asarray(scale * f + fleet + (one[:, 8:] == other[:, 8]) * vehicle)

    @property
    def covariance(self) -> Floats:
        """Of all rewards."""
        return np.asarray(self.A @ self.prior(self.keys, self.keys) @ self.A.T + self.R)

    def posterior(self, keys: Floats) -> tuple[Floats, Floats]:
        cross = self.prior(keys, self.keys) @ self.A.T
        away = self.y - self.A @ self.keys[:, 1]
        mean = keys[:, 1] + cross @ np.linalg.solve(self.covariance, away)
        return mean, self.prior(keys, keys) - cross @ np.linalg.solve(
            self.covariance, cross.T
        )

    @property
    def information(self) -> float:
        """½ ln det(I + R⁻¹ A K Aᵀ)"""
        return 0.5 * float(
            np.linalg.slogdet(self.covariance)[1] - np.linalg.slogdet(self.R)[1]
        )

    @property
    def log_likelihood(self) -> float:
        """Without −½ M ln 2π."""
        away = self.y - self.A @ self.keys[:, 1]
        quadratic = float(away @ np.linalg.solve(self.covariance, away))
        return -0.5 * (quadratic + float(np.linalg.slogdet(self.covariance)[1]))


def learner(**options: Any) -> RoadGP:
    defaults: dict[str, Any] = {
        "scales": SCALES,
        "refit": 0,
        "outliers": "keep",
        **options,
    }
    return RoadGP(KERNEL, SIZES, **defaults)


def taught(trips: Sequence[Driven], **options: Any) -> RoadGP:
    gp = learner(**options)
    for trip in trips:
        trip.teach(gp)
    return gp


def assert_follows(gp: RoadGP, dense: Dense, keys: Floats = EVERYWHERE) -> None:
    mean, cov = dense.posterior(keys)
    predicted = gp.predict(keys)
    assert predicted.std is not None
    np.testing.assert_allclose(predicted.mean, mean, atol=TOLERANCE)
    np.testing.assert_allclose(predicted.std**2, np.diagonal(cov), atol=TOLERANCE)
    np.testing.assert_allclose(
        gp.predict(keys, return_cov=True).cov, cov, atol=TOLERANCE
    )


def offer_of(keys: Floats, step: int = 1) -> Offer:
    return Offer(step=step, arms=Arms.numbered(keys))


SOME = [
    driven([0, 1, 2, 3], 0, seed=1),
    driven([2, 3, 9, 10, 11], 1, "trip", seed=2),
    driven([5, 6, 7, 8, 9, 9], [1, 1, 7, 7, 7, 1], "sections", seed=3),
    driven([4, 4, 0], 7, "edges", stated=True, seed=4),
    driven([8, 7, 6], 0, "trip", stated=True, seed=5),
    driven([1, 2, 1, 2], 0, "edges", seed=6),
]

# --- what is believed ----------------------------------------------------------------------


@st.composite
def some_trips(draw: st.DrawFn) -> list[Driven]:
    trips = []
    for seed in range(draw(st.integers(0, 5))):
        edges = draw(st.lists(st.integers(0, N - 1), min_size=1, max_size=7))
        who = draw(
            st.lists(
                st.sampled_from(VEHICLES), min_size=len(edges), max_size=len(edges)
            )
        )
        vehicles: Any = who if draw(st.booleans()) else who[0]
        seen = draw(st.sampled_from(["edges", "trip", "sections"]))
        trip = driven(edges, vehicles, seen, draw(st.booleans()), seed)
        trips.append(
            moving(trip, seed, draw(st.integers(0, 6))) if draw(st.booleans()) else trip
        )
    return trips


@pytest.mark.thorough
@settings(max_examples=60)
@given(trips=some_trips())
def test_road_posterior_follows_the_model(trips: list[Driven]) -> None:
    """Edges, sums of them and trip totals, with and without stated noise, of any vehicles."""
    gp, dense = taught(trips), Dense(trips)
    assert_follows(gp, dense)
    assert math.isclose(gp.information_gain, dense.information, abs_tol=TOLERANCE)
    assert gp.count == sum(len(trip.rewards) for trip in trips)
    assert gp.trips == len(trips)
    assert sorted(gp.visited) == sorted(
        {int(edge) for trip in trips for edge in trip.keys[:, 0]}
    )


@settings(max_examples=30)
@given(
    trips=some_trips(), edges=st.lists(st.integers(0, N - 1), min_size=1, max_size=9)
)
def test_trip_total_is_the_sum_of_its_roads(
    trips: list[Driven], edges: list[int]
) -> None:
    gp, dense, keys = taught(trips), Dense(trips), rows(edges, 1)
    mean, cov = dense.posterior(keys)
    np.testing.assert_allclose(gp.noise_cov(keys), dense.noise(keys), atol=TOLERANCE)
    total, std = gp.total(keys)
    assert math.isclose(total, mean.sum(), abs_tol=TOLERANCE)
    assert math.isclose(
        std**2, (cov + dense.noise(keys)).sum(), abs_tol=100 * TOLERANCE
    )


@pytest.mark.slow
@settings(max_examples=25)
@given(trips=some_trips(), order=st.randoms(use_true_random=False))
def test_the_order_of_trips_does_not_matter_under_given_scales(
    trips: list[Driven], order: Any
) -> None:
    turned = trips.copy()
    order.shuffle(turned)
    gp = taught(turned)
    assert_follows(gp, Dense(trips))
    assert math.isclose(
        gp.information_gain, Dense(trips).information, abs_tol=TOLERANCE
    )


def test_a_city_follows_the_model_too() -> None:
    """Where sums have fewer terms than there are new roads, and more."""
    graph = generate_city(edges=300, seed=1).line_graph()
    kernel = GraphMatern(graph.turn_graph, nu=2, kappa=1.0)
    n, rng = len(graph), np.random.default_rng(0)
    terms, expected = rng.uniform(0.5, 3.0, (n, 4)), rng.uniform(1.0, 5.0, n)
    sizes = rng.uniform(0.0, 20.0, n)

    def keys(edges: Any, vehicle: int) -> Floats:
        factors = np.full(len(edges), 1.0 + 0.2 * vehicle)
        who = np.full(len(edges), vehicle)
        return np.column_stack(
            [edges, expected[edges], terms[edges], factors, edges % 3, who]
        )

    gp = RoadGP(kernel, sizes, refit=0, outliers="keep")
    s, trips = gp.scales, []
    for number in range(6):
        driven_keys = keys(rng.choice(n, 12, replace=False), number % 3)
        sums = np.zeros(12, dtype=np.intp) if number % 2 else np.arange(12)
        rewards = rng.normal(5.0, 2.0, sums.max() + 1)
        gp.observe_sums(driven_keys, sums, rewards)
        trips.append((driven_keys, sums, rewards))

    def prior(one: Floats, other: Floats) -> Floats:
        own = s.own**2 + (s.share * sizes[one[:, 0].astype(int)]) ** 2
        f = s.near**2 * kernel(one[:, :1], other[:, :1]) + own[:, None] * (
            one[:, :1] == other[:, 0]
        )
        w = (one[:, 2:7] * np.square(s.fleet)) @ other[:, 2:7].T
        v = (one[:, 2:7] * np.square(s.vehicle)) @ other[:, 2:7].T
        return np.asarray(
            np.outer(one[:, 6], other[:, 6]) * f + w + (one[:, 8:] == other[:, 8]) * v
        )

    seen = np.concatenate([factors for factors, *_ in trips])
    A = np.zeros((sum(len(rewards) for *_, rewards in trips), len(seen)))
    R = np.zeros((len(A), len(A)))
    first = 0
    for number, (driven_keys, sums, rewards) in enumerate(trips):
        part = np.zeros((len(rewards), 12))
        part[sums, np.arange(12)] = 1.0
        here = slice(first, first + len(rewards))
        A[here, 12 * number : 12 * (number + 1)] = part
        own = s.noise**2 + s.noise_per_time**2 * driven_keys[:, 3]
        own = own * driven_keys[:, 6] ** 2 + s.noise_per_stop**2 * driven_keys[:, 7]
        own += (s.noise_share * np.abs(driven_keys[:, [2, 4, 5]]).sum(axis=1)) ** 2
        shared = driven_keys[:, 2:7] * s.trip
        R[here, here] = part @ (np.diag(own) + shared @ shared.T) @ part.T
        first = here.stop
    away = np.concatenate([rewards for *_, rewards in trips]) - A @ seen[:, 1]
    queries = keys(np.arange(n), 1)
    cross = prior(queries, seen) @ A.T
    weights = np.linalg.solve(
        A @ prior(seen, seen) @ A.T + R, np.column_stack([away, cross.T])
    )
    cov = prior(queries, queries) - cross @ weights[:, 1:]
    predicted = gp.predict(queries)
    assert predicted.std is not None
    np.testing.assert_allclose(
        predicted.mean, queries[:, 1] + cross @ weights[:, 0], atol=TOLERANCE
    )
    np.testing.assert_allclose(predicted.std**2, np.diagonal(cov), atol=TOLERANCE)
    np.testing.assert_allclose(
        gp.predict(queries, return_cov=True).cov, cov, atol=TOLERANCE
    )


@pytest.mark.slow
def test_recomputation_gives_the_same_posterior() -> None:
    """One trip after another, past several recomputations, and a log at once."""
    rng = np.random.default_rng(3)
    kinds = ("edges", "trip", "sections")
    trips = [
        driven(
            rng.integers(N, size=rng.integers(1, 5)).tolist(),
            VEHICLES[i % 3],
            kinds[i % 3],
            seed=i,
        )
        for i in range(230)
    ]
    trips = [
        moving(trip, i, i % 4) if i % 5 < 2 else trip for i, trip in enumerate(trips)
    ]
    dense, one_by_one, at_once = Dense(trips), taught(trips), learner()
    at_once.observe_trips(joined(trips))
    for gp in (one_by_one, at_once):
        assert_follows(gp, dense)
        assert math.isclose(gp.information_gain, dense.information, rel_tol=1e-9)
        assert (gp.count, gp.trips) == (len(dense.y), 230)
    assert at_once.track_record.trips == one_by_one.track_record.trips == 100


def joined(trips: Sequence[Driven]) -> Trips:
    """What a log holds."""
    logs = [trip.as_trips() for trip in trips]
    first = np.cumsum([0, *(len(trip.rewards) for trip in logs)])
    return Trips(
        np.concatenate([trip.keys for trip in logs]),
        np.concatenate(
            [
                trip.reward_of_arm + offset
                for trip, offset in zip(logs, first, strict=False)
            ]
        ),
        np.concatenate([trip.rewards for trip in logs]),
        np.repeat(np.arange(len(logs)), np.diff(first)),
        np.concatenate([trip.noise for trip in logs]),
        np.concatenate([trip.unshared for trip in logs]),
        Borders(
            *(
                np.concatenate(parts)
                for parts in zip(
                    *(
                        trip.borders.shifted(int(offset))
                        for trip, offset in zip(logs, first, strict=False)
                    ),
                    strict=True,
                )
            )
        ),
    )


def test_a_short_log_is_its_trips_one_by_one() -> None:
    one_by_one, at_once = taught(SOME), learner()
    at_once.observe_trips(joined(SOME))
    assert state_to_bytes(at_once.state()) == state_to_bytes(one_by_one.state())


def test_learning_a_log_holds_the_lock() -> None:
    gp = learner()
    lock = gp._lock
    gp.observe_trips(joined(SOME))
    assert gp._lock is lock
    assert not lock.writing


@pytest.mark.parametrize("known", [0, 3, 8])
def test_outliers_of_a_long_log_follow_the_option(
    known: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of trips that are learned together; here a log of more than ten trips is long."""
    monkeypatch.setattr("superarm.roads.posterior.posterior._JUDGED", 5)
    rng = np.random.default_rng(7)
    trips = [
        driven(rng.integers(N, size=4).tolist(), seed=i) for i in range(known + 14)
    ]
    slip, place = known + 6, 2  # neither among the first five nor the last
    slipped = trips[slip]._replace(
        rewards=trips[slip].rewards + 1000.0 * (np.arange(4) == place)
    )
    refused = Driven(
        keys=np.delete(slipped.keys, place, axis=0),
        sums=(0, 1, 2),
        rewards=np.delete(slipped.rewards, place),
        noise=None,
    )
    log = [*trips[known:slip], slipped, *trips[slip + 1 :]]
    for outliers, treated in (
        ("keep", slipped),
        ("weigh", slipped),
        ("refuse", refused),
    ):
        gp = taught(trips[:known], outliers=outliers)
        gp.observe_trips(joined(log))
        assert gp.count == 4 * len(trips)
        noise = gp._engine.log.view().noise
        assert np.flatnonzero(noise).tolist() == [4 * slip + place] * (
            outliers == "weigh"
        )
        if outliers != "weigh":
            assert_follows(gp, Dense([*trips[:slip], treated, *trips[slip + 1 :]]))
        assert gp.flagged[0].edges.tolist() == [int(slipped.keys[place, 0])]


def test_the_first_trips_of_a_long_log_are_judged_one_after_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Far from the prior, all alike: once the first are learned, none is an outlier."""
    monkeypatch.setattr("superarm.roads.posterior.posterior._JUDGED", 5)
    trips = [driven([1, 2, 3], seed=i) for i in range(14)]
    trips = [trip._replace(rewards=trip.rewards + 30.0) for trip in trips]
    assert standardised(trips[0], []).max() > 6.0
    one_by_one, at_once = (learner(outliers="refuse") for _ in range(2))
    for trip in trips:
        trip.teach(one_by_one)
    at_once.observe_trips(joined(trips))
    assert at_once.outlying == one_by_one.outlying == 0


@pytest.mark.slow
def test_a_log_after_a_log_and_after_a_restart() -> None:
    rng = np.random.default_rng(4)
    trips = [
        driven(rng.integers(N, size=2).tolist(), seen="trip", seed=i)
        for i in range(410)
    ]
    gp, dense = learner(), Dense(trips)
    gp.observe_trips(joined(trips[:205]))
    reloaded = gp.restored(gp.state())
    for posterior in (gp, reloaded):
        posterior.observe_trips(joined(trips[205:]))
        assert_follows(posterior, dense)
        assert math.isclose(posterior.information_gain, dense.information, rel_tol=1e-9)


# --- draws ---------------------------------------------------------------------------------


class Unit(np.random.Generator):
    """Standard normals that are all 0 but one, or all of them: draws are linear in them."""

    def __init__(self, one: int) -> None:
        super().__init__(np.random.PCG64(0))
        self.one, self.taken = one, 0

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        values = np.zeros(int(np.prod(size)))
        if 0 <= self.one - self.taken < len(values):
            values[self.one - self.taken] = 1.0
        self.taken += len(values)
        return values.reshape(size)


def root_of(drawn: Any, zero: Floats) -> Floats:
    """R, where a draw is zero + R times the normals: its covariance is exactly R Rᵀ."""
    probe = Unit(-1)
    np.testing.assert_allclose(
        drawn(probe), zero, atol=TOLERANCE
    )  # no normals, no deviation
    return np.stack([drawn(Unit(one)) - zero for one in range(probe.taken)], axis=1)


@pytest.mark.thorough
@settings(max_examples=8)
@given(trips=some_trips())
def test_draws_have_exactly_the_posterior_covariance(trips: list[Driven]) -> None:
    gp = taught(trips)
    mean, cov = Dense(trips).posterior(EVERYWHERE)
    root = root_of(lambda rng: gp.sample(EVERYWHERE, rng)[0], mean)
    np.testing.assert_allclose(root @ root.T, cov, atol=TOLERANCE)


def test_draws_given_pending_roads_have_the_remaining_covariance() -> None:
    belief = (
        taught(SOME)
        .belief(offer_of(EVERYWHERE), rows([3, 3, 10], 1))
        .condition(np.array([0, 14]))
    )
    root = root_of(belief.sample, belief.mean)
    np.testing.assert_allclose(root @ root.T, belief.cov, atol=TOLERANCE)
    negated = root_of(belief.negated().sample, -belief.mean)
    np.testing.assert_allclose(negated, -root, atol=TOLERANCE)


def test_draws_are_reproducible_and_differ() -> None:
    gp = taught(SOME)
    one, other = (gp.sample(EVERYWHERE, np.random.default_rng(2), 3) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one[:, 0])) == 3


def test_failed_update_does_not_change_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gp = taught([driven([0, 1, 2], 0, seed=1)])
    untouched = taught([driven([0, 1, 2], 0, seed=1)])
    new_roads = driven([5, 6, 7], 7, seed=2)

    def fails(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("superarm.roads.posterior.engine.vehicle_information", fails)
        with pytest.raises(KeyboardInterrupt):
            new_roads.teach(gp)
    for trip in (None, driven([3, 4], 1, seed=3), new_roads):
        for posterior in (gp, untouched):
            if trip is not None:
                trip.teach(posterior)
        np.testing.assert_array_equal(
            gp.sample(EVERYWHERE, np.random.default_rng(2), 3),
            untouched.sample(EVERYWHERE, np.random.default_rng(2), 3),
        )
        assert state_to_bytes(gp.state()) == state_to_bytes(untouched.state())


# --- pending -------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=30)
@given(
    trips=some_trips(),
    pending=st.lists(st.integers(0, N - 1), max_size=4),
    first=st.lists(st.integers(0, 2 * N), max_size=3),
    second=st.lists(st.integers(0, 2 * N), max_size=3),
)
def test_pending_roads_reduce_variance(
    trips: list[Driven], pending: list[int], first: list[int], second: list[int]
) -> None:
    """Each as if observed on a separate trip by any vehicle; means stay."""
    gp, dense, n = taught(trips), Dense(trips), len(EVERYWHERE)
    awaited = rows(pending, 7) if pending else np.empty((0, 9))
    keys = np.concatenate([EVERYWHERE, awaited])
    mean, cov = dense.posterior(keys)
    own = np.diagonal(dense.noise(keys))
    belief: Any = gp.belief(offer_of(EVERYWHERE), awaited)
    for number, positions in enumerate((range(n, len(keys)), first, second)):
        seen = np.array(positions, dtype=np.intp)
        if number:
            belief = belief.condition(seen)
        if len(seen):
            weights = np.linalg.solve(
                cov[np.ix_(seen, seen)] + np.diag(own[seen]), cov[seen]
            )
            cov = cov - cov[:, seen] @ weights
        np.testing.assert_allclose(belief.mean, mean[:n], atol=TOLERANCE)
        np.testing.assert_allclose(belief.std**2, np.diagonal(cov)[:n], atol=TOLERANCE)
        np.testing.assert_allclose(belief.cov, cov[:n, :n], atol=TOLERANCE)
        some = np.array([0, 20, 7])
        np.testing.assert_allclose(belief.std_at(some), belief.std[some], atol=1e-6)
        np.testing.assert_array_equal(belief.negated().mean, -belief.mean)
        for array in (belief.mean, belief.std, belief.cov):
            assert not array.flags.writeable


def test_lookahead_does_not_change_the_posterior() -> None:
    gp, twin = taught(SOME), taught(SOME)
    with unchanged(gp, "looking ahead"):
        belief = gp.belief(offer_of(EVERYWHERE), rows([10, 11], 7)).condition(
            np.array([3])
        )
        belief.sample(np.random.default_rng(0))
        assert belief.std.shape == belief.mean.shape
    more = driven([11, 10, 9], 7, seed=9)
    for posterior in (gp, twin):
        more.teach(posterior)
    assert state_to_bytes(gp.state()) == state_to_bytes(twin.state())


def deepcopies(action: Callable[[], object]) -> int:
    """How many objects are deep-copied meanwhile."""
    count = 0

    def watch(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is copy.deepcopy.__code__

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def of_many(vehicles: int) -> RoadGP:
    """A posterior that has learned one trip of each of these vehicles, all over the same roads."""
    gp = RoadGP(KERNEL, SIZES, scales=SCALES, refit=0)
    for vehicle in range(vehicles):
        keys = rows(range(4))
        keys[:, 8] = vehicle
        gp.observe(keys, keys[:, 1] + 0.01 * vehicle)
    gp.name_vehicles(f"van-{vehicle}" for vehicle in range(vehicles))
    return gp


def test_learning_a_trip_copies_no_more_with_more_vehicles() -> None:
    trip = moving(driven([0, 1, 2])).as_trips()
    few, many = of_many(2), of_many(50)
    assert deepcopies(lambda: few.observe_trips(trip)) == deepcopies(
        lambda: many.observe_trips(trip)
    )
    assert deepcopies(lambda: copy.copy(few)) == deepcopies(lambda: copy.copy(many))


def test_copies_share_vehicle_data_until_one_changes() -> None:
    gp = of_many(3)
    expected, state = gp.predict(EVERYWHERE).mean, state_to_bytes(gp.state())
    copied = copy.deepcopy(gp)
    copied.name_vehicles(["another"])
    for vehicle in VEHICLES:
        driven([2, 3, 4], vehicle, seed=1).teach(copied)
    assert state_to_bytes(gp.state()) == state
    np.testing.assert_array_equal(gp.predict(EVERYWHERE).mean, expected)
    assert (len(gp.vehicle_names), len(copied.vehicle_names)) == (3, 4)
    for group in [*gp._engine._vehicles.all(), *copied._engine._vehicles.all()]:
        for values in group[1:]:
            assert isinstance(values, np.ndarray)
            assert not values.flags.writeable  # so that no copy can change another's


def test_a_belief_goes_stale() -> None:
    gp = taught(SOME)
    beliefs = [
        gp.belief(offer_of(EVERYWHERE)),
        gp.belief(offer_of(EVERYWHERE), rows([4], 1)),
    ]
    assert beliefs[0].incumbent == gp.incumbent
    assert beliefs[0].negated().incumbent == -float(
        gp.predict(Dense(SOME).keys).mean.min()
    )
    for belief in beliefs:
        assert belief.std_at(np.array([0])) == pytest.approx(belief.cov[0, 0] ** 0.5)
    driven([3], seed=8).teach(gp)
    for belief in beliefs:
        for ask in (
            lambda: belief.mean,  # noqa: B023
            lambda: belief.std,  # noqa: B023
            lambda: belief.std_at(np.array([0])),  # noqa: B023
            lambda: belief.sample(np.random.default_rng(0)),  # noqa: B023
            lambda: belief.condition(np.array([0])),  # noqa: B023
            lambda: belief.negated().mean,  # noqa: B023
            lambda: belief.incumbent,  # noqa: B023
            lambda: belief.information_gain,  # noqa: B023
        ):
            with pytest.raises(StaleBeliefError):
                ask()


def test_reader_does_not_cache_stale_factors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reader that caches the means of all roads would be overtaken by a trip without its lock."""
    gp, more = taught(SOME, refit=0), driven([3], seed=8)
    inside, go_on, plain = threading.Event(), threading.Event(), Slots.spread

    def slow(slots: Slots, values: Floats) -> Floats:
        result = plain(slots, values)
        if not inside.is_set():
            inside.set()
            assert go_on.wait(60.0)
        return result

    monkeypatch.setattr(Slots, "spread", slow)
    reader = threading.Thread(target=lambda: gp.predict(EVERYWHERE))
    writer = threading.Thread(target=lambda: more.teach(gp))
    reader.start()
    assert inside.wait(60.0)
    writer.start()
    writer.join(timeout=0.2)
    go_on.set()
    for thread in (reader, writer):
        thread.join(timeout=60.0)
    assert_follows(gp, Dense([*SOME, more]))


# --- scales --------------------------------------------------------------------------------


def loss_of(gp: RoadGP, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a fit minimises, and where from."""
    caught: list[Any] = []

    def minimize(fun: Any, x0: Any, **options: Any) -> Any:
        caught.append((fun, x0))
        return scipy.optimize.OptimizeResult(x=x0)

    with monkeypatch.context() as patch:
        patch.setattr("scipy.optimize.minimize", minimize)
        gp._learner.fit()
    return caught[0]


@pytest.mark.parametrize("motion", [False, True])
def test_objective_is_the_negative_log_posterior_of_the_scales(
    motion: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = [  # one of them with stated noise, which shares none with its trip
        moving(trip, index) if motion else trip for index, trip in enumerate(SOME[1:4])
    ]
    gp = taught(trips, refit=1000)  # before the first fit
    centre = np.log(SCALES.as_vector())[
        : 24 if motion else 22
    ]  # the last two are of motion
    loss, start = loss_of(gp, monkeypatch)
    np.testing.assert_allclose(start, centre)
    rng = np.random.default_rng(1)
    for _ in range(3):
        point = centre + 0.3 * rng.standard_normal(len(centre))
        value, slope = loss(point)
        dense = Dense(trips, RoadScales.from_vector(np.exp(point), like=SCALES))
        prior = 0.5 * float(np.square(point - centre).sum())
        assert math.isclose(value, prior - dense.log_likelihood, rel_tol=1e-10)
        step = 1e-5  # central differences err by step²/6 times a third derivative, and rounding/step
        for index in range(len(centre)):
            sides = [
                loss(point + sign * step * np.eye(len(centre))[index])[0]
                for sign in (1.0, -1.0)
            ]
            assert math.isclose(
                slope[index], (sides[0] - sides[1]) / (2.0 * step), abs_tol=2e-5
            )


def drawn_trips(
    scales: RoadScales, count: int, seed: int, *, motion: bool = False
) -> list[Driven]:
    """Trips drawn from the model itself."""
    rng = np.random.default_rng(seed)
    trips = [
        driven(rng.integers(N, size=6).tolist(), VEHICLES[index % 3], seed=index)
        for index in range(count)
    ]
    if motion:
        trips = [moving(trip, index) for index, trip in enumerate(trips)]
    dense = Dense(trips, scales)
    root = np.linalg.cholesky(dense.covariance)
    drawn = dense.A @ dense.keys[:, 1] + root @ rng.standard_normal(len(root))
    parts = np.split(drawn, np.cumsum([len(trip.rewards) for trip in trips])[:-1])
    return [
        trip._replace(rewards=part) for trip, part in zip(trips, parts, strict=True)
    ]


@pytest.mark.slow
def test_a_fit_finds_the_scales_that_trips_were_drawn_with() -> None:
    """Within six standard errors: near the truth θ* the estimate is, to first order, normal about
    θ* − (I + P)⁻¹ P (θ* − centre) with covariance (I + P)⁻¹ I (I + P)⁻¹, I Fisher's information
    2 s_i² s_j² tr(C⁻¹M_i C⁻¹M_j) and P the prior's, here 1."""
    true = replace(
        SCALES,
        own=3.5,
        noise=1.5,
        noise_per_time=0.1,
        fleet=(0.2, 1.2, 0.25, 0.04, 0.8),
    )
    trips = drawn_trips(true, 50, seed=7)
    gp = learner(refit=50)
    gp.observe_trips(joined(trips))
    assert gp.fits == 5  # after 4, 8, 16, 32 and 50
    assert gp.fitted.noise_share == SCALES.noise_share  # which is not fitted
    assert gp.fitted.motion == SCALES.motion  # nor is this, where no reward holds any
    theta = np.log(true.as_vector())[:-3]  # neither noise_share nor what motion has
    covariance = Dense(trips, true).covariance
    derivatives = []  # ∂C/∂θ, by differences: C is quadratic in each scale
    for index in range(len(theta)):
        ends = []
        for sign in (1.0, -1.0):
            moved = true.as_vector()
            moved[index] *= 1.0 + sign * 1e-3
            ends.append(Dense(trips, RoadScales.from_vector(moved)).covariance)
        derivatives.append((ends[0] - ends[1]) / 2e-3)
    pulled = [np.linalg.solve(covariance, derivative) for derivative in derivatives]
    fisher = 0.5 * np.array(
        [[float(np.sum(one * other.T)) for other in pulled] for one in pulled]
    )
    inverse = np.linalg.inv(fisher + np.eye(len(theta)))
    bias = inverse @ (np.log(SCALES.as_vector())[:-3] - theta)
    error = np.sqrt(np.diagonal(inverse @ fisher @ inverse))
    estimate = np.log(gp.fitted.as_vector())
    for index, name in ((1, "own"), (18, "noise")):
        assert error[index] < 0.25, f"{name} is identified by the trips"
        assert abs(estimate[index] - theta[index] - bias[index]) < 6.0 * error[index], (
            name
        )
    # No worse than the truth, by what is minimised.
    centre = np.log(SCALES.as_vector())

    def loss(scales: RoadScales) -> float:
        away = np.log(scales.as_vector()) - centre
        return 0.5 * float(away @ away) - Dense(trips, scales).log_likelihood

    assert loss(gp.fitted) < loss(true)
    assert_follows(gp, Dense(trips, gp.fitted))
    assert gp.noise_std == gp.fitted.noise


@pytest.mark.slow
def test_fit_recovers_the_error_of_expected_motion() -> None:
    """To a factor of 1.5: of 300 borders, which dominate their rewards, a variance is known to
    √(2/300) = 8 %, a standard deviation to 4 %."""
    true = replace(SCALES, motion=0.6)
    gp = learner(refit=50)
    gp.observe_trips(joined(drawn_trips(true, 50, seed=9, motion=True)))
    assert 0.6 / 1.5 < gp.fitted.motion < 0.6 * 1.5


def test_log_densities_add_up_to_the_likelihood_of_a_log() -> None:
    """p(y₁, y₂, …) = p(y₁) p(y₂ | y₁) …, with motion in rewards and without."""
    trips = [
        moving(trip, index) if index % 2 else trip for index, trip in enumerate(SOME)
    ]
    gp, total = learner(), 0.0
    for trip in trips:
        total += float(gp.log_densities(trip.as_trips())[0])
        trip.teach(gp)
    dense = Dense(trips)
    expected = dense.log_likelihood - 0.5 * len(dense.y) * math.log(2.0 * math.pi)
    assert math.isclose(total, expected, abs_tol=100 * TOLERANCE)


@pytest.mark.slow
def test_a_log_with_motion_is_forecast_as_often_as_promised() -> None:
    """Of trips drawn from the model, standardised forecasts of totals are independent normals: of 240,
    the share inside 95 % has a standard error of 1.4 %, and must be within five of them."""
    inside = []
    for seed in range(12):
        gp = learner()
        for trip in drawn_trips(SCALES, 20, seed, motion=True):
            trips = trip.as_trips()
            expected = gp._engine.expect(trips)
            away = float((trips.rewards - expected.mean).sum())
            inside.append(
                abs(away) <= 1.96 * math.sqrt((expected.cov + expected.noise).sum())
            )
            trip.teach(gp)
    assert abs(np.mean(inside) - 0.95) < 5.0 * math.sqrt(0.95 * 0.05 / len(inside))


def test_only_the_outlier_among_readings_with_motion_is_flagged() -> None:
    """Its neighbours share its borders but not its error."""
    odd = moving(with_outlier(300.0), 3)
    assert len(odd.rewards) == 4
    for what in ("keep", "weigh", "refuse"):
        gp = taught([*SOME, odd], outliers=what)
        assert [flag.edges.tolist() for flag in gp.flagged] == [[6]]
        if what == "refuse":
            clean = np.array([True, True, False, True])
            last = odd.borders.of_rewards(np.array([0, 1, -1, 2]))
            refused = Driven(odd.keys[clean], (0, 1, 2), odd.rewards[clean], None, last)
            assert_follows(gp, Dense([*SOME, refused]))


def test_noise_with_motion_is_tridiagonal_plus_a_shared_trip_term() -> None:
    trip = moving(driven([0, 1, 2, 3, 4], 0, seed=1), 2)
    covariance = taught([])._engine.noise.covariance(trip.as_trips())
    unmoved = taught([])._engine.noise.covariance(
        trip._replace(borders=Borders.none()).as_trips()
    )
    crossed = SCALES.motion_trip * trip.as_trips().crossing(
        trip.borders.size
    )  # of all borders alike
    added = covariance - unmoved - np.outer(crossed, crossed)
    variance = np.square(SCALES.motion * trip.borders.size) + trip.borders.variance
    np.testing.assert_allclose(np.diagonal(added), variance[:-1] + variance[1:])
    np.testing.assert_allclose(np.diagonal(added, 1), -variance[1:-1])
    np.testing.assert_allclose(np.triu(added, 2), 0.0, atol=TOLERANCE)
    ends = variance[0] + variance[-1]  # what crosses borders within adds up to nothing
    assert math.isclose(added.sum(), ends, rel_tol=1e-9)


def test_motion_may_grow_but_not_vanish() -> None:
    """Most speeds are nearly known: the few others would outweigh the evidence of trip totals."""
    gp = learner(refit=24)
    gp.observe_trips(
        joined(drawn_trips(replace(SCALES, motion=0.001), 24, seed=9, motion=True))
    )
    assert gp.fitted.motion == pytest.approx(SCALES.motion, rel=1e-12)


@pytest.mark.parametrize("gap", [0, 2])
def test_sections_and_totals_are_sums_of_rewards(gap: int) -> None:
    """Against S y and S R Sᵀ, with S the sums: motion within a section cancels out."""
    trips = joined(
        [moving(driven([0, 3, 4, 7, 9], seed=index), index, gap) for index in range(3)]
    )
    engine = RoadEngine(KERNEL, SIZES, SCALES)
    numbers = np.arange(15)
    for section in (numbers // 5, np.minimum(numbers, 3) + numbers // 5 * 2):
        S = (section == np.unique(section)[:, None]).astype(float)
        grouped = trips.in_sections(np.unique(section, return_inverse=True)[1])
        assert grouped.is_consistent()
        np.testing.assert_allclose(grouped.rewards, S @ trips.rewards, atol=TOLERANCE)
        expected = S @ engine.noise.covariance(trips) @ S.T
        np.testing.assert_allclose(
            engine.noise.covariance(grouped), expected, atol=TOLERANCE
        )
        sums = engine.expect(trips)
        np.testing.assert_allclose(
            engine.expect(grouped).cov, S @ sums.cov @ S.T, atol=TOLERANCE
        )
        np.testing.assert_allclose(
            engine.expect(grouped).mean, S @ sums.mean, atol=TOLERANCE
        )
    of_trips = trips.in_sections(numbers // 5)
    assert all(
        np.array_equal(one, other)
        for one, other in zip(
            trips.totals().arrays().values(), of_trips.arrays().values(), strict=True
        )
    )


def test_totals_exclude_rewards_with_their_own_noise() -> None:
    trips = joined(
        [
            driven([0, 1, 2], seed=1),
            driven([3, 4], stated=True),
            driven([5], stated=True),
        ]
    )
    noise = trips.noise.copy()
    noise[1] = 9.0  # an outlier
    totals = trips._replace(noise=noise).totals()
    assert totals.is_consistent()
    assert totals.keys[:, 0].tolist() == [
        0.0,
        2.0,
        5.0,
    ]  # the second trip has nothing else
    np.testing.assert_allclose(
        totals.rewards, [trips.rewards[[0, 2]].sum(), trips.rewards[5]]
    )
    np.testing.assert_array_equal(totals.noise, [0.0, trips.noise[5]])


def test_the_latest_trips_in_full_and_those_before_as_totals() -> None:
    trips = joined(drawn_trips(SCALES, 10, 0))  # six rewards each
    some = trips.latest(26)
    assert (some.number, len(some.rewards)) == (6 + 3, 6 + 18)
    np.testing.assert_allclose(some.rewards[:6], trips.between(1, 7).totals().rewards)
    np.testing.assert_array_equal(some.rewards[6:], trips.rewards[42:])
    assert trips.latest(60) is trips
    assert (
        trips.totals().latest(8).rewards.tolist() == trips.totals().rewards[2:].tolist()
    )


def test_a_long_latest_trip_is_taken_in_full() -> None:
    """More than the rewards asked for, but never more than the trip and a quarter of totals."""
    trips = joined(drawn_trips(SCALES, 10, 0))  # six rewards each
    some = trips.latest(7)
    assert (some.number, len(some.rewards)) == (1 + 1, 1 + 6)
    some = trips.latest(4)
    assert (some.number, len(some.rewards)) == (1 + 1, 1 + 6)
    for most in (0, 1, 5, 6):
        assert trips.last(most).rewards.tolist() == trips.rewards[-6:].tolist()
    assert len(trips.latest(0).rewards) == 6
    nothing = trips.between(0, 0)
    assert len(nothing.last(0).rewards) == 0
    assert len(nothing.latest(0).rewards) == 0


def test_trips_one_by_one() -> None:
    """With borders, and without some rewards: a trip that has none left is empty."""
    trips = joined(drawn_trips(SCALES, 5, 3))
    last = np.flatnonzero(np.diff(trips.trip, append=5))
    inner = np.setdiff1d(np.arange(len(trips.trip)), last)
    borders = Borders(inner, inner + 1, np.ones(len(inner)), np.zeros(len(inner)))
    trips = trips._replace(borders=borders)
    assert trips.is_consistent()
    is_left_out = (trips.trip == 2) | (np.arange(len(trips.trip)) % 6 == 1)
    for some in (trips, trips.without(is_left_out), trips.between(0, 0)):
        one_by_one = list(some.each())
        assert len(one_by_one) == some.number
        for number, trip in enumerate(one_by_one):
            is_other = some.trip != number
            alone = some.without(is_other)
            alone = alone._replace(trip=alone.trip - number)
            for expected in (alone, some.one(number)):
                for name, values in expected.arrays().items():
                    np.testing.assert_array_equal(trip.arrays()[name], values, name)


def test_scales_may_be_far_from_those_given() -> None:
    """Noise stated fifty times too small: the variance of a road to a factor of two."""
    drawn = replace(SCALES, noise_share=0.01)
    gp = learner(scales=replace(drawn, noise=0.01, noise_per_time=0.01), refit=24)
    gp.observe_trips(joined(drawn_trips(drawn, 24, seed=8)))
    time = float(TERMS[:, 1].mean())
    estimate, true = (
        s.noise**2 + time * s.noise_per_time**2 for s in (gp.fitted, drawn)
    )
    assert 0.5 < estimate / true < 2.0


def test_when_scales_are_fitted() -> None:
    gp = learner(refit=24)
    fits = []
    for seed in range(60):
        before = gp.fits
        driven([seed % N, (seed + 5) % N], seed=seed).teach(gp)
        if gp.fits > before:
            fits.append(gp.trips)
    assert fits == [4, 8, 16, 24, 48]
    assert taught(drawn_trips(SCALES, 8, 0), refit=0).fitted == SCALES


def test_only_the_latest_trips_are_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def fit(engine: Any, trips: Trips, scales: RoadScales, most: int) -> RoadScales:
        seen.append((trips.number, len(trips.rewards)))
        return scales

    monkeypatch.setattr("superarm.roads.posterior.learner.fit_scales", fit)
    taught(
        drawn_trips(SCALES, 8, 0), refit=64, most=17
    )  # six rewards each: two full trips
    assert seen == [
        (2 + 2, 12 + 2),
        (2 + 4, 12 + 4),
    ]  # and a quarter of them totals of those before
    seen.clear()
    taught(drawn_trips(SCALES, 4, 0), refit=64, most=2)  # less than a trip: that trip
    assert seen == [(1, 6)]


# --- outliers and coverage -----------------------------------------------------------------


def with_outlier(far: float) -> Driven:
    """A trip of four roads of which one is that far off."""
    trip = driven([0, 4, 6, 9], 1, seed=11)
    rewards = trip.rewards.copy()
    rewards[2] += far
    return trip._replace(rewards=rewards)


def standardised(trip: Driven, before: Sequence[Driven]) -> Floats:
    """Of each reward given the others of its trip, by regression on them."""
    dense = Dense(before)
    mean, cov = dense.posterior(trip.keys)
    cov, away = cov + dense.noise(trip.keys), trip.rewards - mean
    scores = []
    for index in range(len(away)):
        others = np.delete(np.arange(len(away)), index)
        weights = np.linalg.solve(cov[np.ix_(others, others)], cov[others, index])
        spread = np.sqrt(cov[index, index] - weights @ cov[others, index])
        scores.append(abs(away[index] - weights @ away[others]) / spread)
    return np.array(scores)


def test_outliers_are_flagged_and_follow_the_option() -> None:
    odd = with_outlier(60.0)
    scores = standardised(odd, SOME)
    assert (scores > 6.0).sum() == 1
    posteriors = {
        what: taught([*SOME, odd], outliers=what)
        for what in ("keep", "weigh", "refuse")
    }
    for gp in posteriors.values():
        assert gp.outlying == len(gp.flagged) == 1
        assert gp.flagged[0].edges.tolist() == [6]
        assert gp.flagged[0].reward == odd.rewards[2]
        assert math.isclose(gp.flagged[0].score, scores[2], rel_tol=1e-9)
    assert_follows(posteriors["keep"], Dense([*SOME, odd]))
    clean = np.array([True, True, False, True])
    refused = Driven(odd.keys[clean], (0, 1, 2), odd.rewards[clean], None)
    assert_follows(posteriors["refuse"], Dense([*SOME, refused]))
    weighed = Dense(
        [*SOME, odd]
    )  # its own noise grows with the square of how far it is
    own = (
        weighed.noise(odd.keys)[2, 2] - np.square(odd.keys[2, 2:7] * SCALES.trip).sum()
    )
    weighed.R[-2, -2] += own * ((scores[2] / 6.0) ** 2 - 1.0)
    assert_follows(posteriors["weigh"], weighed)


@pytest.mark.parametrize("far", [60.0, 1e3, 1e6])
def test_outlier_does_not_flag_its_neighbours(far: float) -> None:
    """However far it is: they are judged without it."""
    trips = drawn_trips(SCALES, 12, seed=3)
    rewards = trips[-1].rewards.copy()
    rewards[[1, 4]] += (far, -far)
    gp = taught([*trips[:-1], trips[-1]._replace(rewards=rewards)], outliers="refuse")
    edges = trips[-1].keys[[1, 4], 0].astype(int).tolist()
    assert [flag.edges.tolist() for flag in gp.flagged] == [[edge] for edge in edges]


def test_no_outliers_before_the_first_trip_or_below_the_limit() -> None:
    assert taught([with_outlier(60.0)], outliers="refuse").outlying == 0
    odd = with_outlier(60.0)
    score = standardised(odd, SOME).max()
    for limit, count in ((score * 1.001, 0), (score * 0.999, 1)):
        assert (
            taught([*SOME, odd], outliers="refuse", outlier_limit=limit).outlying
            == count
        )


@pytest.mark.parametrize("limit", [6.0, 9.0])
def test_meter_error_widens_intervals_by_at_most_twice_the_limit(
    limit: float,
) -> None:
    """It is a miss, but its size does not affect later trips, unless outliers are kept."""
    far = with_outlier(4000.0)
    for outliers in ("weigh", "refuse"):
        gp = taught([*SOME, far], outliers=outliers, outlier_limit=limit)
        assert gp.state().array("trips_scores")[-1] == 2.0 * limit
        assert gp.state().array("roads_scores")[-4:].max() == 2.0 * limit
        assert not gp.state().array("trips_inside")[-1].any()
    keeping = taught([*SOME, far], outliers="keep", outlier_limit=limit)
    assert keeping.state().array("trips_scores")[-1] > 4.0 * limit
    assert keeping.state().array("roads_scores")[-4:].max() > 4.0 * limit


@pytest.mark.parametrize("limit", [4.0, 6.0])
def test_the_noise_of_an_outlier_grows_from_the_limit_on(limit: float) -> None:
    """Twice as far as the limit counts a quarter: its own noise variance is four times as large."""
    odd = with_outlier(60.0)
    score = standardised(odd, SOME)[2]
    weighed = Dense([*SOME, odd])
    own = (
        weighed.noise(odd.keys)[2, 2] - np.square(odd.keys[2, 2:7] * SCALES.trip).sum()
    )
    weighed.R[-2, -2] += own * ((score / limit) ** 2 - 1.0)
    assert_follows(taught([*SOME, odd], outliers="weigh", outlier_limit=limit), weighed)


def test_trip_with_only_outliers_does_not_change_the_belief() -> None:
    total = driven([0, 4, 6], 1, "trip", seed=12)
    total.rewards[0] += 500.0
    gp = taught([*SOME, total], outliers="refuse")
    assert gp.outlying == 1
    assert_follows(gp, Dense(SOME))
    assert gp.trips == len(SOME)


def test_trip_is_learned_when_its_fit_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error is raised before the next trip, of which nothing is learned yet."""
    gp, plain = taught(SOME[:3], refit=4), taught(SOME[:3], refit=0)

    def fails(*_: Any) -> Any:
        raise NotPositiveDefiniteError("no factor")

    with monkeypatch.context() as patched:
        patched.setattr(RoadEngine, "rebuild", fails)
        for posterior in (gp, plain):
            SOME[3].teach(posterior)
    assert (gp.trips, gp.count, gp.fits) == (plain.trips, plain.count, 0)
    np.testing.assert_array_equal(
        gp.predict(EVERYWHERE).mean, plain.predict(EVERYWHERE).mean
    )
    more = driven([10, 2, 7], 1, seed=13)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(PrecisionWarning, match="stay as they are: no factor"):
            more.teach(gp)
    assert gp.trips == plain.trips
    more.teach(gp)
    assert gp.trips == plain.trips + 1


def test_forecasts_are_scored_against_expectations() -> None:
    gp = taught(SOME)
    more = driven([10, 2, 7], 1, seed=13)
    mean, std = gp.total(more.keys)
    inside = abs(more.rewards.sum() - mean) <= gp.widths()[1] * std
    before = gp.state().array("trips_inside")
    more.teach(gp)
    np.testing.assert_array_equal(
        gp.state().array("trips_inside")[len(before) :], [inside]
    )
    score = abs(more.rewards.sum() - mean) / std
    assert math.isclose(gp.state().array("trips_scores")[-1], score, rel_tol=1e-9)
    assert gp.track_record.trips == len(SOME) + 1
    cov = Dense(SOME).posterior(more.keys)[1] + Dense([]).noise(more.keys)
    scores = np.abs(more.rewards - Dense(SOME).posterior(more.keys)[0]) / np.sqrt(
        np.diagonal(cov)
    )
    np.testing.assert_allclose(gp.state().array("roads_scores")[-3:], scores, rtol=1e-9)


# --- states --------------------------------------------------------------------------------


@pytest.mark.parametrize("refit", [0, 4])
def test_state_contains_the_full_posterior(refit: int) -> None:
    gp = taught([*SOME, with_outlier(60.0)], refit=refit, outliers="weigh")
    reloaded = RoadGP.from_state(restored(gp.state()))
    assert state_to_bytes(reloaded.state()) == state_to_bytes(gp.state())
    assert reloaded.fitted == gp.fitted
    assert reloaded.noise_variance == gp.noise_variance
    assert (reloaded.track_record, reloaded.fits, reloaded.outlying) == (
        gp.track_record,
        gp.fits,
        gp.outlying,
    )
    for one, other in zip(reloaded.widths(), gp.widths(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(
        reloaded.predict(EVERYWHERE).mean, gp.predict(EVERYWHERE).mean
    )
    for step in range(
        3
    ):  # it continues alike, up to rounding: variances are recomputed
        for what in ("mean", "cov"):
            one, other = (
                getattr(posterior.predict(EVERYWHERE, return_cov=True), what)
                for posterior in (gp, reloaded)
            )
            np.testing.assert_allclose(one, other, atol=TOLERANCE)
        one, other = (
            posterior.sample(EVERYWHERE, np.random.default_rng(1))
            for posterior in (gp, reloaded)
        )
        np.testing.assert_allclose(one, other, atol=TOLERANCE)
        for posterior in (gp, reloaded):
            driven([step, 11 - step], 7, seed=step).teach(posterior)
    assert gp.trips == reloaded.trips == len(SOME) + 4
    assert reloaded.fits == gp.fits
    np.testing.assert_allclose(
        reloaded.fitted.as_vector(), gp.fitted.as_vector(), rtol=1e-6
    )


@pytest.mark.slow
def test_restored_posterior_continues_bit_for_bit() -> None:
    """Whatever was looked at before, in the one or in the other."""
    graph = generate_city(edges=200, seed=1).line_graph()
    model, rng = fleet_model(graph), np.random.default_rng(0)
    fleet = [
        road_rows(graph, Vehicle(mass=1500.0 + 300.0 * who), who) for who in range(3)
    ]
    offer, awaited = offer_of(fleet[1]), fleet[2][[3, 4, 5]]

    def drive(
        gp: RoadGP, edges: Any, who: int, rewards: Floats, *, complete: bool
    ) -> None:
        if complete:
            gp.observe_sums(
                fleet[who][edges], [0] * len(edges), rewards.sum(keepdims=True)
            )
        else:
            gp.observe(fleet[who][edges], rewards)

    trips: list[Any] = []
    for number in range(40):
        edges = rng.choice(len(graph), 8, replace=False)
        trips.append((edges, number % 3, rng.normal(9.0, 2.0, 8)))
    gp = RoadGP(model.kernel, model.sizes, refit=16)
    for number, trip in enumerate(trips[:20]):
        drive(gp, *trip, complete=number % 4 == 1)
        gp.belief(offer, awaited).sample(np.random.default_rng(0))
        gp.predict(fleet[0][10:30], return_cov=True)
        gp.predict(fleet[0][30:50], return_std=False)
        gp.total(fleet[2][:9])
    assert gp.same_bits
    reloaded = RoadGP.from_state(restored(gp.state()))
    for number, trip in enumerate(trips[20:]):
        for posterior in (gp, reloaded):
            drive(posterior, *trip, complete=number % 4 == 1)
        assert state_to_bytes(reloaded.state()) == state_to_bytes(gp.state())
        one, other = (posterior.belief(offer, awaited) for posterior in (gp, reloaded))
        np.testing.assert_array_equal(one.mean, other.mean)
        np.testing.assert_array_equal(
            one.std_at(np.arange(9)), other.std_at(np.arange(9))
        )
        drawn = [
            posterior.sample(np.random.default_rng(number))
            for posterior in (one, other)
        ]
        np.testing.assert_array_equal(*drawn)
    assert reloaded.fits == gp.fits == 4
    gp.predict(fleet[0])  # variances of all roads are summed up as trips come
    assert not gp.same_bits


def test_state_with_another_kernel_is_recomputed() -> None:
    gp = taught(SOME)
    other = GraphMatern(ring(N), nu=2, kappa=0.4, normalisation="raw")
    rebuilt = RoadGP.from_state(gp.state(), kernel=other)
    expected = RoadGP(other, SIZES, scales=SCALES, refit=0, outliers="keep")
    for trip in SOME:
        trip.teach(expected)
    for what in ("mean", "cov"):
        one, two = (
            getattr(posterior.predict(EVERYWHERE, return_cov=True), what)
            for posterior in (rebuilt, expected)
        )
        np.testing.assert_allclose(one, two, atol=TOLERANCE)


def test_empty_state() -> None:
    reloaded = RoadGP.from_state(restored(learner().state()))
    assert reloaded.trips == 0
    assert_follows(reloaded, Dense([]))


def test_state_of_other_roads_is_rejected() -> None:
    state = taught(SOME).state()
    other = RoadGP(
        GraphMatern(ring(N + 3), nu=2), np.ones(N + 3), scales=SCALES, refit=0
    )
    with pytest.raises(StateError):
        other.restored(state)


def _of_old_form(gp: RoadGP) -> Any:
    """The state of a posterior as it was saved when vehicles' terms had slots like roads.

    Slots: five of the fleet, five of each vehicle, then roads. With C = Aᵀ K A + R, H = A C⁻¹ Aᵀ and
    alpha = A C⁻¹ (y − expected).
    """
    state, engine = gp.state(), gp._engine
    trips, scales = engine.log.view(), gp.fitted
    vehicles = np.unique(trips.keys[:, 8]).astype(np.intp)
    v, many, M = len(engine.visited), 5 * len(vehicles), len(trips.rewards)
    core, vehicle_rows = engine.slots.sums(trips).toarray(), 5 + many + np.arange(v)
    A = np.zeros((5 + many + v, M))
    A[:5], A[vehicle_rows] = core[:5], core[5:]
    for number, vehicle in enumerate(vehicles):
        terms = trips.summed(
            trips.keys[:, 2:7] * (trips.keys[:, 8] == vehicle)[:, None]
        )
        A[5 + 5 * number : 10 + 5 * number] = terms.T
    K = np.diag(
        [
            *np.square(scales.fleet),
            *np.tile(np.square(scales.vehicle), len(vehicles)),
            *np.zeros(v),
        ]
    )
    root = engine.slots.prior_root()[5:, 5:]
    K[np.ix_(vehicle_rows, vehicle_rows)] = root @ root.T
    inverse = np.linalg.inv(A.T @ K @ A + engine.noise.covariance(trips))
    residual = trips.rewards - trips.summed(trips.keys[:, 1])
    new = {"group_vehicles", "group_slots", "slots", "cross", "of_vehicles", "pull"}
    arrays = {name: array for name, array in state.arrays.items() if name not in new}
    arrays |= {
        "known": (A @ inverse @ A.T)[np.tril_indices(len(A))],
        "alpha": A @ inverse @ residual,
        "at": vehicle_rows,
        "vehicles": vehicles,
        "first": 5 + 5 * np.arange(len(vehicles)),
    }
    return replace(state, arrays=arrays)


def test_states_whose_vehicles_had_slots_load() -> None:
    gp = taught(SOME)
    old = _of_old_form(gp)
    reloaded = RoadGP.from_state(old)
    more = driven([3, 1, 4, 1, 5], 7, seed=9)
    for learner in (gp, reloaded):
        learner.observe_sums(more.keys, more.sums, more.rewards)
    predicted, expected = reloaded.predict(EVERYWHERE), gp.predict(EVERYWHERE)
    np.testing.assert_allclose(predicted.mean, expected.mean, rtol=1e-8)
    np.testing.assert_allclose(
        np.asarray(predicted.std), np.asarray(expected.std), rtol=1e-6
    )
    assert math.isclose(reloaded.information_gain, gp.information_gain, rel_tol=1e-9)
    arrays = old.arrays
    harmed = {
        "one slot for two": _harmed(
            old, at=np.full_like(arrays["at"], arrays["at"][0])
        ),
        "fewer slots": _harmed(old, at=arrays["at"][1:]),
        "vehicles without slots": _harmed(old, first=arrays["first"][:1]),
        "one vehicle's slots for two": _harmed(old, first=arrays["first"] * 0),
        "another vehicle": _harmed(old, vehicles=arrays["vehicles"] + 1),
    }
    for state in harmed.values():
        with pytest.raises(StateError):
            RoadGP.from_state(state)


def _harmed(state: Any, **arrays: Any) -> Any:
    return replace(state, arrays={**state.arrays, **arrays})


def test_a_damaged_state_is_refused() -> None:
    gp = taught(SOME)
    state = gp.state()
    arrays = state.arrays
    keys = arrays["keys"].copy()
    unshared = arrays["alone"]
    slots = arrays["slots"]
    elsewhere, worn = keys.copy(), keys.copy()
    elsewhere[0, 0], worn[0, 8] = N, 0.5
    cases = {
        "a road that is not there": _harmed(state, keys=elsewhere),
        "half a vehicle": _harmed(state, keys=worn),
        "fewer keys": _harmed(state, keys=keys[1:]),
        "arms of no reward": _harmed(state, of=arrays["of"] + 1),
        "arms out of order": _harmed(state, of=arrays["of"][::-1].copy()),
        "rewards of no trip": _harmed(state, trip=arrays["trip"] * 2),
        "trips without end": _harmed(state, trip=np.full_like(arrays["trip"], 2**50)),
        "no first trip": _harmed(state, trip=arrays["trip"] + 1),
        "trips out of order": _harmed(state, trip=arrays["trip"][::-1].copy()),
        "negative noise": _harmed(state, noise=arrays["noise"] - 1.0),
        "NaN rewards": _harmed(state, rewards=arrays["rewards"] * np.nan),
        "noise shared in part": _harmed(state, alone=unshared.astype(float)),
        "other roads": _harmed(state, edges=arrays["edges"][::-1].copy() * 0),
        "no vehicles": _harmed(state, vehicles=arrays["vehicles"][:0]),
        "vehicles in a column": _harmed(state, vehicles=arrays["vehicles"][:, None]),
        "vehicles without a group": _harmed(
            state, group_vehicles=arrays["group_vehicles"][1:]
        ),
        "a group of nobody": _harmed(
            state, group_vehicles=arrays["group_vehicles"] * 0
        ),
        "groups without slots": _harmed(state, group_slots=arrays["group_slots"][:1]),
        "vehicles that no trip names": _harmed(state, vehicles=arrays["vehicles"] + 1),
        "one more group, of nobody": _harmed(
            state,
            group_vehicles=np.append(arrays["group_vehicles"], 0),
            group_slots=np.append(arrays["group_slots"], 0),
        ),
        "a slot behind the last": _harmed(
            state, slots=np.where(slots == slots.max(), len(arrays["alpha"]), slots)
        ),
        "a vehicle on no road": _harmed(state, slots=arrays["slots"] + 10**6),
        "one slot for two": _harmed(state, slots=arrays["slots"] * 0),
        "less of a vehicle's roads": _harmed(state, cross=arrays["cross"][1:]),
        "less of vehicles": _harmed(state, of_vehicles=arrays["of_vehicles"][1:]),
        "impossible vehicles": _harmed(state, of_vehicles=-arrays["of_vehicles"]),
        "fewer pulls": _harmed(state, pull=arrays["pull"][1:]),
        "vehicles of floats": _harmed(state, vehicles=arrays["vehicles"] + 0.5),
        "fewer neighbours": _harmed(state, near=arrays["near"][1:]),
        "less known": _harmed(state, known=arrays["known"][1:]),
        "NaN known": _harmed(state, known=arrays["known"] * np.nan),
        "fewer weights": _harmed(state, alpha=arrays["alpha"][1:]),
        "fewer scales": _harmed(state, fitted=arrays["fitted"][1:]),
        "scales of infinity": _harmed(state, fitted=arrays["fitted"] * np.inf),
        "scores below 0": _harmed(state, trips_scores=arrays["trips_scores"] - 99.0),
        "too many scores": _harmed(state, trips_scores=np.ones(201)),
        "too many trips": _harmed(state, trips_inside=np.ones((101, len(LEVELS)))),
        "a level less": _harmed(state, roads_levels=np.ones(len(LEVELS) - 1)),
        "fits below 0": replace(state, scalars={**state.scalars, "fits": -1}),
        "half an outlier": replace(state, scalars={**state.scalars, "outlying": 0.5}),
        "nothing": replace(state, arrays={}),
    }
    for what, harmed in cases.items():
        with raises(StateError, what):
            gp.restored(harmed)


def test_borders_lie_between_neighbours_of_one_trip_in_order() -> None:
    trip = np.array([0, 0, 0, 1])
    good = Borders(
        before=np.array([-1, 0, 1, 3]),
        after=np.array([0, 1, 2, -1]),
        size=np.ones(4),
        variance=np.ones(4),
    )
    assert good.is_consistent(trip)
    harmed = {
        "no such side": good._replace(before=np.array([-2, 0, 1, 3])),
        "no side": good._replace(after=np.array([-1, 1, 2, -1])),
        "a reward behind the last": good._replace(before=np.array([-1, 0, 1, 4])),
        "out of order": good.take(slice(None, None, -1)),
        "not neighbours": good._replace(after=np.array([0, 2, 2, -1])),
        "two trips": good._replace(
            before=np.array([-1, 0, 1, 2]), after=np.array([0, 1, 2, 3])
        ),
        "a negative size": good._replace(size=-good.size),
        "a negative variance": good._replace(variance=-good.variance),
        "a NaN": good._replace(variance=good.variance * np.nan),
        "fewer sizes": good._replace(size=good.size[1:]),
    }
    for what, borders in harmed.items():
        assert not borders.is_consistent(trip), what


# --- input ---------------------------------------------------------------------------------


def test_invalid_keys_are_rejected() -> None:
    gp = taught(SOME)
    good = rows([1, 2])
    for column, value, kind in (
        (0, N, UnknownArmError),
        (0, -1.0, UnknownArmError),
        (0, 1.5, UnknownArmError),
        (8, -1.0, UnknownArmError),
        (8, 0.5, UnknownArmError),
        (8, 2.0**31, UnknownArmError),
        (1, np.nan, InputError),
        (7, -5.0, InputError),
        (6, 0.0, InputError),
        (6, -1.0, InputError),
    ):
        bad = good.copy()
        bad[1, column] = value
        for ask in (
            lambda: gp.predict(bad),  # noqa: B023
            lambda: gp.observe(bad, [1.0, 2.0]),  # noqa: B023
            lambda: gp.observe_sums(bad, [0, 0], [1.0]),  # noqa: B023
            lambda: gp.total(bad),  # noqa: B023
            lambda: gp.noise_cov(bad),  # noqa: B023
            lambda: gp.belief(offer_of(good), bad),  # noqa: B023
        ):
            with (
                unchanged(gp, f"column {column} of {value}"),
                raises(kind, f"column {column}: {value}"),
            ):
                ask()
    with pytest.raises(InputError, match="9"):
        gp.predict(good[:, :5])


def test_invalid_sums_are_rejected() -> None:
    gp = taught(SOME)
    keys = rows([1, 2, 3])
    cases: dict[str, tuple[Any, ...]] = {
        "a number left out": ([0, 2, 2], [1.0, 2.0, 3.0]),
        "below 0": ([-1, 0, 0], [1.0]),
        "too few": ([0, 0], [1.0]),
        "no numbers": (["a", "b", "c"], [1.0]),
        "halves": ([0.5, 0.5, 0.5], [1.0]),
        "too many rewards": ([0, 0, 0], [1.0, 2.0]),
        "a NaN reward": ([0, 0, 0], [np.nan]),
        "a huge reward": ([0, 0, 0], [1e300]),
        "no noise": ([0, 0, 0], [1.0], [0.0]),
        "NaN noise": ([0, 0, 0], [1.0], [np.nan]),
        "infinite noise": ([0, 0, 0], [1.0], [np.inf]),
        "two noises": ([0, 0, 0], [1.0], [1.0, 1.0]),
    }
    for what, arguments in cases.items():
        with unchanged(gp, what), raises(InputError, what):
            gp.observe_sums(keys, *arguments)
    with unchanged(gp, "nothing to learn"):
        gp.observe_sums(np.empty((0, 9)), [], [])


def test_noise_that_floats_cannot_resolve_is_rejected() -> None:
    """The posterior still answers: it has learned nothing of it."""
    gp = learner()
    arms = rows([1, 2])
    what = "at least 1e-20 Wh², got 1e-22"
    for learn in (
        lambda: gp.observe(arms, [1.0, 2.0], noise_variance=[0.1, 1e-22]),
        lambda: gp.observe_sums(arms, [0, 0], [3.0], noise_variance=[1e-22]),
    ):
        with unchanged(gp, what), pytest.raises(InputError, match=what):
            learn()
    gp.observe(arms, [1.0, 2.0], noise_variance=[1e-20, 1e-20])
    assert np.isfinite(gp.predict(arms).mean).all()


def test_invalid_log_is_rejected() -> None:
    gp, good = taught(SOME), joined(SOME)
    bad = {
        "a reward without arms": good._replace(
            reward_of_arm=np.maximum(good.reward_of_arm, 1)
        ),
        "arms out of order": good._replace(reward_of_arm=good.reward_of_arm[::-1]),
        "a trip without rewards": good._replace(trip=good.trip * 2),
        "negative noise": good._replace(noise=good.noise - 9.0),
        "NaN rewards": good._replace(rewards=good.rewards * np.nan),
        "an unknown road": good._replace(keys=good.keys + 99.0),
    }
    motion = joined([moving(trip, index) for index, trip in enumerate(SOME)])
    borders = motion.borders
    sooner = borders._replace(after=np.where(borders.after < 0, -1, borders.after - 1))
    nowhere = np.full_like(borders.before, -1)
    for what, wrong in {
        "a border from a reward to itself": sooner,
        "borders out of order": borders.take(slice(None, None, -1)),
        "a border of no reward": borders._replace(before=nowhere, after=nowhere),
        "a reward that is not there": borders.shifted(3),
        "a negative size": borders._replace(size=-1.0 - borders.size),
        "a negative variance": borders._replace(variance=-1.0 - borders.variance),
        "too few sizes": borders._replace(size=borders.size[1:]),
    }.items():
        bad[what] = motion._replace(borders=wrong)
    across = Borders(np.array([3]), np.array([4]), np.ones(1), np.ones(1))
    bad["a border between two trips"] = good._replace(borders=across)
    for what, trips in bad.items():
        with unchanged(gp, what), raises(InputError, what):
            gp.observe_trips(trips)


def test_invalid_parameters_are_rejected() -> None:
    for options in (
        {"refit": -1},
        {"most": 0},
        {"outliers": "ignore"},
        {"outlier_limit": 1.0},
        {"scales": 3.0},
    ):
        with raises(InputError, str(options)):
            learner(**options)
    with pytest.raises(InputError, match="even"):
        RoadGP(GraphMatern(ring(N), nu=1), SIZES)
    with pytest.raises(InputError, match="0 Wh or more"):
        RoadGP(KERNEL, SIZES - 1.0)
    with pytest.raises(InputError, match="sizes"):
        RoadGP(KERNEL, SIZES[1:])


def test_scales() -> None:
    values = SCALES.as_vector()
    assert RoadScales.from_vector(values) == SCALES
    assert values.shape == (24,)
    default = RoadScales()
    before = RoadScales.from_vector(
        values[:-2], like=default
    )  # as states from before ``motion`` have them
    assert before == replace(
        SCALES, motion=default.motion, motion_trip=default.motion_trip
    )
    assert SCALES.noise_scales.tolist() == [0.5, 0.4, 0.9, 0.3]
    for bad in ({"near": 0.0}, {"own": -1.0}, {"noise": np.nan}, {"share": "a"}, {"trip": (1.0,) * 4},
                {"fleet": (0.0,) * 5}, {"vehicle": (1e9,) * 5}):  # fmt: skip
        with raises(InputError, str(bad)):
            RoadScales(**bad)  # type: ignore[arg-type]


def test_default_scales() -> None:
    """Chosen on Monaco and Luxembourg: forecasts before the first trips stand on them."""
    assert vars(RoadScales()) == {
        "near": 0.5,
        "own": 1.7,
        "share": 0.02,
        "fleet": (0.2, 0.3, 0.3, 0.03, 1.0),
        "vehicle": (0.05, 0.1, 0.1, 0.05, 0.2),
        "trip": (0.04, 0.3, 0.04, 0.02, 0.1),
        "noise": 0.4,
        "noise_per_time": 0.3,
        "noise_per_stop": 0.9,
        "noise_share": 0.1,
        "motion": 0.2,
        "motion_trip": 0.1,
    }
    gp = RoadGP(KERNEL, SIZES)
    assert gp.scales == RoadScales()
    assert (gp.refit, gp.most, gp.outliers, gp.outlier_limit) == (64, 600, "weigh", 6.0)


def test_the_variance_of_a_trip_before_anything_is_learned() -> None:
    """That of a trip total where neighbours share nothing: k_G is 1 on the diagonal and 0 elsewhere."""
    keys = rows([0, 3, 5, 8], 1)
    unlinked = GraphMatern(
        csc_array((N, N)), nu=2, kappa=1.0, normalisation="raw", variance=16.0
    )
    np.testing.assert_allclose(
        unlinked(np.arange(N)[:, None] * 1.0), np.eye(N), atol=1e-12
    )
    gp = RoadGP(unlinked, SIZES, scales=SCALES, refit=0)
    variance = SCALES.trip_variance(
        terms_of(keys), noise_parts(keys), SIZES[keys[:, 0].astype(int)]
    )
    assert math.isclose(variance, gp.total(keys)[1] ** 2, rel_tol=1e-9)


def test_widths_of_roads_come_before_those_of_trips() -> None:
    """Roads that are far off one by one, and trips that are right in sum."""
    gp = learner()
    keys = rows([0, 1])
    for _ in range(60):
        mean, std = gp.predict(keys).mean, np.sqrt(np.diagonal(gp.noise_cov(keys)))
        gp.observe(keys, mean + np.array([4.0, -4.0]) * std.min())
    of_roads, of_trips = gp.widths()
    assert of_roads[0] > of_trips[0]
    gp.observe(rows([3]), EXPECTED[3:4])  # a trip of one road only informs about trips
    assert len(gp.state().array("roads_scores")) == 120
    assert len(gp.state().array("trips_scores")) == 61
