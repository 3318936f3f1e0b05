"""Walks on forests: guarantees, simulation, and the optimum against all walks."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats
from superarm.core.compiling import Backend
from superarm.core.errors import (
    InfeasibleError,
    InputError,
    NotFiniteError,
    ShapeError,
    UnknownArmError,
)
from superarm.movement import (
    Forest,
    MatrixMetric,
    Move,
    PointMetric,
    TreeCoupling,
    TreeDescent,
    WalkState,
    frt_tree,
    offline_optimum,
)

EPS = float(np.finfo(np.float64).eps)
compiled = pytest.mark.skipif(
    find_spec("numba") is None, reason="numba is not installed"
)
BACKENDS = ["numpy", pytest.param("numba", marks=compiled)]
seeds = st.integers(0, 2**32 - 1)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def plane(n: int, seed: int) -> PointMetric:
    return PointMetric(points=rng(seed).normal(size=(n, 2)))


def same(one: Move, other: Move) -> bool:
    pairs = zip(
        (*one.walk_state, *one[1:]), (*other.walk_state, *other[1:]), strict=True
    )
    return all(np.array_equal(a, b) for a, b in pairs)


# --- walks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_move_does_not_modify_its_inputs(backend: Backend) -> None:
    metric = plane(7, 0)
    forest = Forest(
        metric, [frt_tree(metric, rng(s)) for s in range(2)], backend=backend
    )
    walk_state, costs = forest.begin(3, walk=1), rng(1).random(7)
    copies = (walk_state.q.copy(), costs.copy())
    first = forest.move(walk_state, costs, rng(2))
    assert same(first, forest.move(walk_state, costs, rng(2))), (
        "it can be asked for twice"
    )
    assert (walk_state.tree, walk_state.action) == (1, 3)
    np.testing.assert_array_equal(walk_state.q, copies[0])
    np.testing.assert_array_equal(costs, copies[1])
    walk_state.q.flags.writeable = costs.flags.writeable = False
    assert same(first, forest.move(walk_state, costs, rng(2)))
    other = Forest(metric, forest.trees, backend=backend)
    assert same(first, other.move(walk_state, costs, rng(2))), (
        "nothing is remembered but in the walk_state"
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_move_is_a_step_a_coupling_and_a_draw(backend: Backend) -> None:
    metric, source = plane(6, 1), rng(1)
    forest = Forest(metric, [frt_tree(metric, rng(5))], kappa=2.0, backend=backend)
    descent = TreeDescent(forest.trees[0], kappa=2.0, backend=backend)
    coupling = TreeCoupling(forest.trees[0], backend=backend)
    walk_state = forest.begin(2)
    np.testing.assert_array_equal(walk_state.q, descent.point_mass(2))
    for turn in range(20):
        costs, available = source.random(6), source.random(6) < 0.8
        available[turn % 6] = True
        move = forest.move(walk_state, costs, rng(turn), available)
        q = descent.step(walk_state.q, costs, available)
        plan = coupling.between(
            descent.distribution(walk_state.q), descent.distribution(q)
        )
        np.testing.assert_array_equal(move.walk_state.q, q)
        np.testing.assert_array_equal(move.distribution, descent.distribution(q))
        assert move.distance == plan.cost(metric.distances)
        targets, probabilities = plan.row(walk_state.action)
        index = np.searchsorted(
            np.cumsum(probabilities[:-1]), rng(turn).random(), side="right"
        )
        assert move.walk_state.action == targets[index]
        assert move.probability == pytest.approx(probabilities[index], rel=1e-12)
        assert available[move.walk_state.action]
        assert move.distribution[move.walk_state.action] > 0.0
        walk_state = move.walk_state


def test_walks_take_the_trees_in_turn() -> None:
    forest = Forest.grow(plane(5, 0), rng(0), trees=3)
    assert len(forest.trees) == 3
    assert [forest.begin(0, walk).tree for walk in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    for walk in range(3):
        walk_state = forest.begin(4, walk)
        for turn in range(5):
            walk_state = forest.move(walk_state, np.arange(5.0), rng(turn)).walk_state
            assert walk_state.tree == walk
    assert forest.begin(1).tree == 0
    assert repr(forest) == "Forest(n=5, trees=3)"


def test_a_forest_is_grown_by_frt() -> None:
    metric, source = plane(6, 2), rng(3)
    forest = Forest.grow(metric, rng(3), trees=4, tau=3.0)
    for tree in forest.trees:
        other = frt_tree(metric, source, tau=3.0)
        np.testing.assert_array_equal(tree.parent, other.parent)
        np.testing.assert_array_equal(tree.distances, other.distances)


def test_stretch_is_a_mean_of_ratios() -> None:
    metric = plane(6, 4)
    forest = Forest.grow(metric, rng(4), trees=3)
    slow = []
    for tree in forest.trees:
        pairs = [(i, j) for i in range(6) for j in range(6) if i != j]
        slow.append(
            sum(tree.distances[i, j] / metric.distances[i, j] for i, j in pairs)
            / len(pairs)
        )
    np.testing.assert_allclose(forest.stretch(), slow, rtol=1e-13)
    assert (forest.stretch() >= 1.0).all()
    equal = Forest.grow(
        MatrixMetric(distances=1.0 - np.eye(4)), rng(0), trees=2, tau=3.0
    )
    np.testing.assert_allclose(equal.stretch(), 6.0, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_simulated_walks_match_the_stated_distributions(backend: Backend) -> None:
    """Frequencies by chi-square, distances by Bernstein; one of them fails once in 10⁹ sets of seeds.

    A chi-square of k − 1 degrees exceeds k − 1 + 2√((k − 1)x) + 2x with probability e^{−x} at most
    [Laurent and Massart, 2000]; cells that expect fewer than 25 are one. Distances are from 0 to D, so
    their variance is at most D times their mean.
    """
    n, rounds, count = 6, 6, 400
    metric, source = plane(n, 3), rng(7)
    forest = Forest(metric, [frt_tree(metric, rng(8))], backend=backend)
    table = source.random((rounds, n)) * 2.0
    free = np.ones((rounds, n), dtype=bool)
    free[2, :3] = False
    seen, walked = np.zeros((rounds, n)), np.zeros(rounds)
    for walk in range(count):
        walk_state = forest.begin(1, walk)
        moves = []
        for costs, available in zip(table, free, strict=True):
            moves.append(forest.move(walk_state, costs, source, available))
            before, walk_state = walk_state.action, moves[-1].walk_state
            seen[len(moves) - 1, walk_state.action] += 1
            walked[len(moves) - 1] += metric.distances[before, walk_state.action]
    surprise = np.log(2 * 2 * rounds / 1e-9)
    largest = metric.distances.max()
    for turn, move in enumerate(
        moves
    ):  # distributions and distances are the same in every walk
        expected = count * move.distribution
        np.testing.assert_array_equal(seen[turn, expected == 0.0], 0.0)
        few = expected < 25.0
        cells = (
            np.append(expected[~few], expected[few].sum()),
            np.append(seen[turn, ~few], seen[turn, few].sum()),
        )
        positive = cells[0] > 0.0
        chi = np.sum((cells[1] - cells[0])[positive] ** 2 / cells[0][positive])
        degrees = positive.sum() - 1
        assert chi <= degrees + 2.0 * np.sqrt(degrees * surprise) + 2.0 * surprise
        allowed = np.sqrt(2.0 * largest * move.distance * surprise / count)
        allowed += largest * surprise / (3.0 * count)
        assert walked[turn] / count == pytest.approx(move.distance, abs=allowed)
    assert seen[-1].max() < count, "nothing was left to chance"


@pytest.mark.parametrize("backend", BACKENDS)
def test_probabilities_are_those_of_the_draws(backend: Backend) -> None:
    """Given the walk's position: exact, by summing the probabilities of many draws."""
    metric = plane(6, 5)
    forest = Forest(metric, [frt_tree(metric, rng(2))], backend=backend)
    walk_state = forest.begin(0)
    for turn in range(3):
        walk_state = forest.move(walk_state, rng(turn).random(6), rng(turn)).walk_state
    drawn = [forest.move(walk_state, np.arange(6.0), rng(seed)) for seed in range(2000)]
    probabilities: dict[int, set[float]] = {}
    for move in drawn:
        probabilities.setdefault(move.walk_state.action, set()).add(move.probability)
    assert all(len(values) == 1 for values in probabilities.values())
    allowed = np.sqrt(np.log(2 * 6 / 1e-9) / (2 * 2000))  # Hoeffding
    for action, (probability,) in probabilities.items():
        share = np.mean([move.walk_state.action == action for move in drawn])
        assert share == pytest.approx(probability, abs=allowed)
    assert sum(p for (p,) in probabilities.values()) == pytest.approx(
        1.0, abs=6 * allowed
    )


@given(seed=seeds, n=st.integers(2, 8), kappa=st.sampled_from([1.0, 5.0]))
@settings(max_examples=40)
def test_no_walk_beats_the_optimum_and_trees_never_move_less(
    seed: int, n: int, kappa: float
) -> None:
    metric, source = plane(n, seed), rng(seed)
    forest = Forest.grow(metric, source, trees=1, kappa=kappa)
    tree, walk_state, paid = forest.trees[0], forest.begin(0), 0.0
    here, table = np.eye(n)[0], source.exponential(size=(15, n))
    for costs in table:
        move = forest.move(walk_state, costs, source)
        assert (
            move.distance
            <= tree.distance(here, move.distribution) * (1.0 + 1e-9) + 1e-13
        )
        paid += float(costs @ move.distribution) + move.distance
        here, walk_state = move.distribution, move.walk_state
    assert paid >= offline_optimum(table, metric, start=0).total * (1.0 - 1e-9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_walk_leaves_unavailable_actions(backend: Backend) -> None:
    metric = plane(5, 6)
    forest = Forest(metric, [frt_tree(metric, rng(6))], backend=backend)
    for action in range(5):
        gone = np.arange(5) != action
        for size in (0.0, 1.0, 1e30):
            move = forest.move(forest.begin(action), size * np.ones(5), rng(0), gone)
            assert move.walk_state.action != action
            assert move.distribution[action] == 0.0
    with pytest.raises(InfeasibleError):
        forest.move(forest.begin(0), np.ones(5), rng(0), np.zeros(5, dtype=bool))


@pytest.mark.parametrize("backend", BACKENDS)
def test_single_action(backend: Backend) -> None:
    metric = PointMetric(points=np.zeros((1, 2)))
    forest = Forest(metric, [frt_tree(metric, rng(0))] * 2, backend=backend)
    np.testing.assert_array_equal(forest.stretch(), [1.0, 1.0])
    walk_state = forest.begin(0, walk=1)
    for cost in (5.0, -5.0):
        move = forest.move(walk_state, [cost], rng(0))
        assert (move.walk_state.action, move.probability, move.distance) == (
            0,
            1.0,
            0.0,
        )
        np.testing.assert_array_equal(move.distribution, [1.0])
        walk_state = move.walk_state
    way = offline_optimum([[5.0], [2.0]], metric, start=0)
    assert (way.actions.tolist(), way.total) == ([0, 0], 7.0)


def test_invalid_walks_are_rejected() -> None:
    metric = plane(3, 0)
    forest = Forest.grow(metric, rng(0))
    walk_state = forest.begin(0)
    wrong: list[tuple[Any, type[Exception]]] = [
        ([1.0, 2.0], ShapeError),
        ([1.0, 2.0, 3.0, 4.0], ShapeError),
        ([[1.0, 2.0, 3.0]], ShapeError),
        ([1.0, np.nan, 3.0], NotFiniteError),
        ([1.0, -np.inf, 3.0], NotFiniteError),
        ([1.0, 2.0, 1e200], InputError),
        ("abc", InputError),
    ]
    for costs, error in wrong:
        with pytest.raises(error, match="costs"):
            forest.move(walk_state, costs, rng(0))
    with pytest.raises(InputError, match="available"):
        forest.move(walk_state, [1.0, 2.0, 3.0], rng(0), [True, False])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="rng"):
        forest.move(walk_state, [1.0, 2.0, 3.0], 7)  # type: ignore[arg-type]
    with pytest.raises(
        UnknownArmError, match="action is 3; the tree has actions 0 to 2"
    ):
        forest.begin(3)
    for action in (-1, 1.5, True):
        with pytest.raises(InputError, match="action"):
            forest.begin(action)  # type: ignore[arg-type]
    for walk in (-1, 0.5, None):
        with pytest.raises(InputError, match="walk"):
            forest.begin(0, walk)  # type: ignore[arg-type]


def test_invalid_forests_are_rejected() -> None:
    metric = plane(3, 0)
    tree = frt_tree(metric, rng(0))
    with pytest.raises(
        InputError, match="one or more trees over the metric's 3 actions"
    ):
        Forest(metric, [])
    with pytest.raises(InputError, match="over the metric's 4 actions"):
        Forest(plane(4, 0), [tree])
    with pytest.raises(InputError, match="metric"):
        Forest(metric.distances, [tree])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="kappa"):
        Forest(metric, [tree], kappa=0.5)
    with pytest.raises(InputError, match="backend"):
        Forest(metric, [tree], backend="gpu")  # type: ignore[arg-type]
    for trees in (0, -1, 1.5, 10_001):
        with pytest.raises(InputError, match="trees"):
            Forest.grow(metric, rng(0), trees=trees)  # type: ignore[arg-type]


# --- the optimum ---------------------------------------------------------------------------------


def every_way(costs: Floats, distances: Floats, start: int) -> list[float]:
    rounds, n = costs.shape
    totals = []
    for way in product(range(n), repeat=rounds):
        here, total = start, 0.0
        for step, action in enumerate(way):
            total += distances[here, action] + costs[step, action]
            here = action
        totals.append(total)
    return totals


@given(
    seed=seeds,
    shape=st.sampled_from([(1, 5), (2, 4), (3, 4), (4, 3), (6, 2), (5, 3)]),
    integral=st.booleans(),
    size=st.sampled_from([0.3, 3.0, 30.0]),
)
def test_the_optimum_is_the_best_of_all_ways(
    seed: int, shape: tuple[int, int], integral: bool, size: float
) -> None:
    source, n = rng(seed), shape[1]
    costs = size * source.normal(size=shape)
    metric: Any = plane(n, seed)
    if integral:  # many ways are equally good, and sums are exact
        costs = np.round(costs)
        places = source.permutation(3 * n)[:n].astype(np.float64)[:, None]
        metric = PointMetric(points=places)
    start = int(source.integers(n))
    way = offline_optimum(costs, metric, start)
    best = min(every_way(costs, metric.distances, start))
    assert way.total == pytest.approx(best, rel=1e-12, abs=0.0 if integral else 1e-13)
    here = start
    for step, action in enumerate(way.actions.tolist()):
        assert way.service[step] == costs[step, action]
        assert way.movement[step] == metric.distances[here, action]
        here = action
    assert way.total == pytest.approx(float(way.service.sum() + way.movement.sum()))


def test_optimum_returns_one_of_several_equal_paths() -> None:
    metric = MatrixMetric(distances=1.0 - np.eye(3))
    way = offline_optimum(np.zeros((4, 3)), metric, start=2)
    assert (way.actions.tolist(), way.total) == ([2, 2, 2, 2], 0.0), (
        "nobody moves for nothing"
    )
    tie = offline_optimum([[1.0, 0.0, 0.0]], metric, start=0)
    assert tie.total == 1.0
    assert (
        tie.actions.tolist()
        == offline_optimum([[1.0, 0.0, 0.0]], metric, start=0).actions.tolist()
    )


def test_zero_rounds_cost_zero() -> None:
    way = offline_optimum(np.zeros((0, 3)), plane(3, 0), start=1)
    assert (len(way.actions), len(way.service), len(way.movement), way.total) == (
        0,
        0,
        0,
        0.0,
    )


def test_invalid_requests_are_rejected() -> None:
    metric = plane(3, 0)
    wrong: list[tuple[Any, type[Exception]]] = [
        ([[1.0, 2.0]], ShapeError),
        ([1.0, 2.0, 3.0], ShapeError),
        ([[1.0, 2.0, np.nan]], NotFiniteError),
        ([[1.0, np.inf, 3.0]], NotFiniteError),
        ([[1.0, 1e200, 3.0]], InputError),
        (None, InputError),
    ]
    for costs, error in wrong:
        with pytest.raises(error, match="costs"):
            offline_optimum(costs, metric, start=0)
    with pytest.raises(
        UnknownArmError, match="start is 3; the metric has actions 0 to 2"
    ):
        offline_optimum([[1.0, 2.0, 3.0]], metric, start=3)
    for start in (-1, 0.0, True, None):
        with pytest.raises(InputError, match="start"):
            offline_optimum([[1.0, 2.0, 3.0]], metric, start=start)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="metric"):
        offline_optimum([[1.0, 2.0, 3.0]], metric.distances, start=0)  # type: ignore[arg-type]


def test_a_walk_state_is_plain_data() -> None:
    """What a policy carries on: three values that can be written down and put together again."""
    forest = Forest.grow(plane(5, 1), rng(1), trees=2)
    walk_state = forest.move(forest.begin(0, 1), np.arange(5.0), rng(0)).walk_state
    copy = WalkState(
        int(walk_state.tree), np.array(walk_state.q.tolist()), int(walk_state.action)
    )
    for seed in range(5):
        assert same(
            *(forest.move(start, np.ones(5), rng(seed)) for start in (walk_state, copy))
        )
