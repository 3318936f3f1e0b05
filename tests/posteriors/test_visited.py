"""The visited form on a road network: against dense solves and full-covariance downdates."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats, Ints
from superarm.core.errors import NotPositiveDefiniteError, PrecisionWarning, StateError
from superarm.core.states import state_from_bytes, state_to_bytes
from superarm.kernels import GraphMatern, Kernel, Matern
from superarm.posteriors import FiniteGP
from superarm.posteriors.finite import posterior as finite
from superarm.posteriors.finite import visited
from superarm.posteriors.finite.block_rows import BlockRows
from superarm.roads.networks import LineGraph, generate_city

NOISE = 0.05


class Roads(NamedTuple):
    """A small city as an arm set."""

    graph: LineGraph
    arms: Floats  # edge number, then features
    kernel: Kernel
    K: Floats
    mean: Floats


@cache
def roads() -> Roads:
    graph = generate_city(edges=400, seed=5).line_graph()
    arms = np.column_stack([np.arange(len(graph)), graph.features])
    on_features = Matern(nu=2.5, columns=(1, 2, 3))
    kernel = 0.5 * (GraphMatern(graph) * on_features) + 0.5 * on_features
    mean = np.random.default_rng(8).normal(size=len(graph))
    return Roads(graph, arms, kernel, np.asarray(kernel(arms)), mean)


def walk(rng: np.random.Generator, length: int) -> Ints:
    """Edges that follow one another; some may come twice."""
    successors = roads().graph.successors
    edge = int(rng.integers(len(roads().graph)))
    steps = [edge]
    for _ in range(length - 1):
        edge = int(
            rng.choice(
                successors.indices[
                    successors.indptr[edge] : successors.indptr[edge + 1]
                ]
            )
        )
        steps.append(edge)
    return np.array(steps)


class Naive:
    """P and m over all edges, downdated path by path."""

    def __init__(self) -> None:
        self.m, self.P = roads().mean.copy(), roads().K.copy()

    def observe(self, rows: Ints, rewards: Floats, noise: Floats) -> None:
        solved = np.linalg.solve(
            self.P[np.ix_(rows, rows)] + np.diag(noise), self.P[rows]
        )
        self.m = self.m + (rewards - self.m[rows]) @ solved
        self.P = self.P - self.P[:, rows] @ solved


def dense_solve(rows: Ints, rewards: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance by one dense solve with all observations, repeats and all."""
    K, m = roads().K, roads().mean
    solved = np.linalg.solve(K[np.ix_(rows, rows)] + np.diag(noise), K[rows])
    return m + (rewards - m[rows]) @ solved, K - K[:, rows] @ solved


def posterior() -> FiniteGP:
    return FiniteGP(roads().kernel, roads().arms, NOISE, roads().mean, form="visited")


def engine_of(gp: FiniteGP) -> visited.VisitedEngine:
    engine = gp._engine
    assert isinstance(engine, visited.VisitedEngine)
    return engine


def assert_equal(
    gp: FiniteGP, mean: Floats, covariance: Floats, tolerance: float = 1e-9
) -> None:
    belief = gp.predict(np.arange(len(roads().arms)))
    assert belief.std is not None
    np.testing.assert_allclose(belief.mean, mean, rtol=0.0, atol=tolerance)
    np.testing.assert_allclose(
        belief.std**2, np.diagonal(covariance), rtol=0.0, atol=tolerance
    )


@pytest.mark.thorough
def test_many_rounds_equal_a_dense_solve() -> None:
    rng, gp, slow = np.random.default_rng(0), posterior(), Naive()
    rows, rewards, noises = [], [], []
    starts = [walk(rng, 40) for _ in range(12)]
    for t in range(40):
        path = (
            starts[int(rng.integers(12))]
            if t % 3
            else walk(rng, int(rng.integers(1, 40)))
        )
        reward = rng.normal(size=len(path))
        noise = rng.uniform(NOISE, 1.0, len(path))
        gp.observe(path, reward, noise)
        slow.observe(path, reward, noise)
        rows.append(path)
        rewards.append(reward)
        noises.append(noise)
    everything = np.concatenate(rows), np.concatenate(rewards), np.concatenate(noises)
    mean, covariance = dense_solve(*everything)
    assert gp.rank == len(np.unique(everything[0])) > 256  # more than one block of rows
    assert_equal(gp, mean, covariance, 1e-10)
    assert_equal(gp, slow.m, slow.P)
    some = rng.choice(len(roads().arms), 30, replace=False)
    joint = gp.predict(some, return_cov=True).cov
    assert joint is not None
    np.testing.assert_allclose(joint, covariance[np.ix_(some, some)], atol=1e-10)
    K, noise = roads().K[np.ix_(everything[0], everything[0])], everything[2]
    sign, logdet = np.linalg.slogdet(
        np.eye(len(noise)) + K / np.sqrt(np.outer(noise, noise))
    )
    assert sign > 0
    assert gp.information_gain == pytest.approx(0.5 * logdet, rel=1e-9)


@given(
    paths=st.lists(
        st.lists(st.integers(0, 60), min_size=1, max_size=12), min_size=1, max_size=15
    ),
    height=st.sampled_from([1, 3, 32]),
    strip=st.sampled_from([50, 1024]),
    seed=st.integers(0, 100),
)
@settings(max_examples=20)
def test_any_sequence_of_visits(
    paths: list[list[int]], height: int, strip: int, seed: int
) -> None:
    """Repeats within a path, revisits, and blocks and strips of any size."""
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visited, "_STRIP", strip)
        gp, slow = posterior(), Naive()
        engine_of(gp)._rows.height = height
        for path in paths:
            rows, rewards = np.array(path), rng.normal(size=len(path))
            gp.observe(rows, rewards)
            slow.observe(rows, rewards, np.full(len(path), NOISE))
        assert_equal(gp, slow.m, slow.P)
        assert (
            sum(len(block) for block in engine_of(gp)._rows.blocks) < gp.rank + height
        )


def test_rows_grow_by_blocks_that_stay_where_they_are() -> None:
    rng, rows = np.random.default_rng(1), BlockRows(300_000)
    assert rows.height == 32  # 77 MB: wide rows come in few
    rows = BlockRows(10)
    assert rows.height == 256
    rows.height = 4
    expected = rng.normal(size=(11, 10))
    rows.write(0, expected[:3])
    first = rows.blocks[0]
    rows.write(3, expected[3:10])
    rows.write(10, expected[10:])
    assert [block is first for block in rows.blocks] == [True, False, False]
    joined = np.concatenate([part for _, _, part in rows.parts(11)])
    assert np.array_equal(joined, expected)
    assert all(
        np.shares_memory(part[2], rows.blocks[i])
        for i, part in enumerate(rows.parts(11))
    )
    assert [(start, stop) for start, stop, _ in rows.parts(6)] == [(0, 4), (4, 6)]
    positions, columns = np.array([9, 0, 5, 5]), np.array([7, 7, 0])
    assert np.array_equal(
        rows.take(positions, columns), expected[np.ix_(positions, columns)]
    )


def test_memory_is_that_of_the_visited_rows() -> None:
    """Growing, absorbing and re-solving need little memory besides K_VE and H."""
    n, visited = 6000, 320
    arms = np.random.default_rng(2).random((n, 2))
    kernel = Matern(nu=2.5, lengthscale=0.3)
    rows = np.random.default_rng(3).permutation(n)[:visited].reshape(-1, 40)
    tracemalloc.start()
    gp = FiniteGP(kernel, arms, NOISE)
    for path in np.concatenate([rows, rows]):  # passes 8 observations: re-solved once
        gp.observe(path, np.zeros(40))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    blocks = -(-visited // 256) * 256 * n * 8
    assert gp.rank == visited
    assert blocks < peak < 1.15 * blocks + 12e6


def test_rejected_observation_has_no_side_effects() -> None:
    gp = posterior()
    gp.observe([3, 4, 5], [1.0, 2.0, 3.0])
    engine = engine_of(gp)
    before = (
        engine.mean.copy(),
        engine.variance.copy(),
        engine._precision[:3, :3].copy(),
    )

    class Broken:
        """A kernel that is no covariance for new arms."""

        def __call__(self, X: Floats, Y: Floats | None = None) -> Floats:
            return -roads().kernel(X, Y)

        def diag(self, X: Floats) -> Floats:
            return roads().kernel.diag(X)

    kernel, engine._kernel = engine._kernel, Broken()
    with pytest.raises(
        NotPositiveDefiniteError, match="the covariance of the observed arms"
    ):
        gp.observe(np.arange(100), np.zeros(100))
    engine._kernel = kernel
    assert gp.count == 3
    assert gp.rank == 3
    for now, then in zip(
        (engine.mean, engine.variance, engine._precision[:3, :3]), before, strict=True
    ):
        assert np.array_equal(now, then)
    slow = Naive()
    slow.observe(np.array([3, 4, 5]), np.array([1.0, 2.0, 3.0]), np.full(3, NOISE))
    gp.observe(np.arange(100), np.zeros(100))
    slow.observe(np.arange(100), np.zeros(100), np.full(100, NOISE))
    assert_equal(gp, slow.m, slow.P)


def test_drift_warns_before_the_next_observation_without_double_counting() -> None:
    gp = FiniteGP(
        Matern(lengthscale=0.4), np.linspace(0.0, 1.0, 12)[:, None], 0.1, form="visited"
    )
    engine = engine_of(gp)
    for row in range(7):
        gp.observe([row], [float(row)])
    engine.mean += 1e-3  # as rounding would
    gp.observe(
        [7], [7.0]
    )  # clears it, and has learned: too late for a warning that is an error
    assert gp.count == 8
    before = state_to_bytes(gp.state())
    for observe in (
        lambda: gp.observe([8], [1.0]),
        lambda: gp.observe([8, 9], [1.0, 2.0]),
    ):
        with pytest.raises(PrecisionWarning, match="drifted"):
            observe()
        assert state_to_bytes(gp.state()) == before
        engine._late_warning = "the visited form had drifted"
    engine._late_warning = None
    gp.observe([8], [1.0])
    assert gp.count == 9


def test_persistent_rounding_warns_before_the_next_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gp = FiniteGP(
        Matern(lengthscale=0.4), np.linspace(0.0, 1.0, 12)[:, None], 0.1, form="visited"
    )
    engine = engine_of(gp)

    def refuse(noise: Floats) -> Floats:
        raise NotPositiveDefiniteError("the covariance of the visited arms is singular")

    for row in range(7):
        gp.observe([row], [float(row)])
    with monkeypatch.context() as patch:
        patch.setattr(engine, "_inverse_factor", refuse)
        gp.observe([7], [7.0])
    assert gp.count == 8
    before = state_to_bytes(gp.state())
    with pytest.raises(PrecisionWarning, match="singular"):
        gp.observe([8], [1.0])
    assert state_to_bytes(gp.state()) == before
    gp.observe([8], [1.0])
    rows, y = np.arange(9), np.append(np.arange(8.0), 1.0)
    K = np.asarray(gp.kernel(gp.arms))
    solved = np.linalg.solve(K[np.ix_(rows, rows)] + 0.1 * np.eye(9), y)
    np.testing.assert_allclose(
        gp.predict(np.arange(12)).mean, K[:, rows] @ solved, atol=1e-10
    )


def test_states_restore_with_the_users_kernel() -> None:
    rng, gp = np.random.default_rng(4), posterior()
    for _ in range(20):
        path = walk(rng, 30)
        gp.observe(path, rng.normal(size=len(path)))
    state = gp.state()
    restored = gp.restored(state)
    assert restored.kernel is gp.kernel
    assert restored.rank == gp.rank > 128  # restored in several pieces
    everything = np.arange(len(roads().arms))
    one, other = gp.predict(everything), restored.predict(everything)
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-10)
    np.testing.assert_allclose(one.std, other.std, atol=1e-10)
    assert restored.information_gain == gp.information_gain
    path = walk(rng, 30)
    for both in (gp, restored):
        both.observe(path, np.ones(len(path)))
    np.testing.assert_allclose(engine_of(gp).mean, engine_of(restored).mean, atol=1e-10)


@pytest.mark.parametrize("observed", [False, True])
def test_joint_draws_have_the_posterior_covariance(observed: bool) -> None:
    """For m draws an entry of the sample covariance has variance (Σ_ii Σ_jj + Σ_ij²)/m."""
    rng, gp, m = np.random.default_rng(6), posterior(), 4000
    mean, covariance = roads().mean, roads().K
    if observed:
        path = np.concatenate([walk(rng, 60), walk(rng, 60)])
        rewards = rng.normal(size=len(path))
        gp.observe(path, rewards)
        mean, covariance = dense_solve(path, rewards, np.full(len(path), NOISE))
    n = len(mean)
    assert gp.normals_per_draw == 2 * n
    draws = gp.sample(np.arange(n), rng, m)
    variance = np.diagonal(covariance)
    # 6 standard errors: among n² ≈ 160 000 entries chance exceeds it with probability 3e-4.
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / m)
    sample = (draws - mean).T @ (draws - mean) / m
    assert np.max(np.abs(sample - covariance) / error) < 6.0
    assert np.max(np.abs(draws.mean(axis=0) - mean) / np.sqrt(variance / m)) < 5.0


def test_draws_are_linear_maps_with_the_posterior_covariance() -> None:
    """A draw is linear in its normals: the map times its transpose is the covariance, exactly."""
    gp = posterior()
    path = walk(np.random.default_rng(7), 50)
    gp.observe(path, np.ones(len(path)))
    engine, n = engine_of(gp), len(roads().arms)
    columns = engine.draw(np.eye(2 * n), gp._weight)  # (2n, n): the map's transpose
    _, covariance = dense_solve(path, np.ones(len(path)), np.full(len(path), NOISE))
    np.testing.assert_allclose(columns.T @ columns, covariance, atol=1e-10)
    normals = np.random.default_rng(0).standard_normal((3, 2 * n))
    many = engine.draw(normals, gp._weight)
    np.testing.assert_allclose(
        engine.draw(normals[:1], gp._weight)[0], many[0], atol=1e-12
    )
    np.testing.assert_allclose(many, normals @ columns, atol=1e-11)


def test_singular_prior_is_drawn_with_truncated_rank() -> None:
    arms = np.repeat(np.linspace(0.0, 1.0, 20), 3)[:, None]  # every arm three times
    gp = FiniteGP(Matern(nu=2.5), arms, NOISE, form="visited")
    gp.observe([0, 30], [1.0, -1.0])
    assert gp.normals_per_draw == 120
    draws = gp.sample(np.arange(60), np.random.default_rng(0), 3)
    np.testing.assert_allclose(draws[:, 0::3], draws[:, 1::3], atol=1e-6)


# --- going on from a state ------------------------------------------------------------------


def taught(rounds: int, arms: int = 60) -> FiniteGP:
    """Routes of some arms, over and over, past several re-solves."""
    points = np.random.default_rng(0).random((arms, 2))
    gp = FiniteGP(Matern(lengthscale=0.5), points, 0.1, form="visited")
    teach(gp, range(rounds))
    return gp


def teach(gp: FiniteGP, rounds: range) -> None:
    for step in rounds:
        rng = np.random.default_rng(step)
        route = rng.permutation(len(gp.arms))[:5]
        gp.observe(route, rng.standard_normal(5))


@pytest.mark.parametrize("rounds", [0, 1, 7, 8, 30])
def test_restored_posterior_continues_bit_for_bit(rounds: int) -> None:
    gp = taught(rounds)
    restored = gp.restored(state_from_bytes(state_to_bytes(gp.state())))
    assert restored.same_bits
    for learner in (gp, restored):
        teach(learner, range(rounds, rounds + 20))
    assert state_to_bytes(gp.state()) == state_to_bytes(restored.state())
    draws = [
        learner.sample(np.arange(60), np.random.default_rng(1))
        for learner in (gp, restored)
    ]
    np.testing.assert_array_equal(*draws)


def test_state_of_many_visited_arms_contains_only_observations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(visited, "LARGEST_SAVED", 40)
    monkeypatch.setattr(finite, "LARGEST_SAVED", 40)
    gp = taught(30)
    assert gp.rank > 40
    assert not gp.same_bits
    state = gp.state()
    assert "engine" not in state.parts
    restored = gp.restored(state)
    np.testing.assert_allclose(
        restored.predict(np.arange(60)).mean, gp.predict(np.arange(60)).mean
    )


def test_another_prior_is_recomputed() -> None:
    gp = taught(10)
    other = FiniteGP.from_state(gp.state(), kernel=Matern(lengthscale=0.4))
    reference = FiniteGP(Matern(lengthscale=0.4), gp.arms, 0.1, form="visited")
    teach(reference, range(10))
    moved = FiniteGP.from_state(gp.state(), mean=1.0)
    shifted = FiniteGP(Matern(lengthscale=0.5), gp.arms, 0.1, 1.0, form="visited")
    teach(shifted, range(10))
    for actual, expected in ((other, reference), (moved, shifted)):
        for one, two in zip(
            actual.predict(np.arange(60)), expected.predict(np.arange(60)), strict=True
        ):
            np.testing.assert_allclose(one, two, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("visited", np.arange(9)),
        ("came", np.array([1, 2])),
        ("precision", np.eye(3)),
        ("mean", np.full(60, np.nan)),
        ("variance", np.full(60, -1.0)),
        ("capacity", 10**9),
        ("updates", -1),
        ("interval", "8"),
    ],
)
def test_impossible_numbers_are_refused(name: str, value: Any) -> None:
    gp = taught(5)
    state = gp.state()
    engine = state.part("engine")
    kind = "scalars" if name in engine.scalars else "arrays"
    wrong = replace(engine, **{kind: {**getattr(engine, kind), name: value}})
    with pytest.raises(StateError, match="damaged"):
        gp.restored(replace(state, parts={"engine": wrong}))
