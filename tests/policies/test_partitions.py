"""ACC-UCB and CC-MAB: cells, indices by hand, cuts, states."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Arms, Decision, Feedback, Offer, registry
from superarm.core.errors import ConflictError, InputError, StateError
from superarm.oracles import TopK
from superarm.policies import AdaptiveTree, Hypercubes
from superarm.testing import restored


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def offer(step: int, features: Any) -> Offer:
    return Offer(step=step, arms=Arms.numbered(features))


def teach(policy: Any, step: int, features: Any, rewards: Any) -> None:
    """All of these arms were chosen, and yielded these rewards."""
    round_offer, positions = offer(step, features), np.arange(len(rewards))
    decision = Decision(step=step, action=positions, positions=positions)
    policy.learn(
        round_offer,
        decision,
        Feedback(positions=positions, rewards=np.array(rewards)),
        rng(),
    )


class SlowTree:
    """ACC-UCB as it is written, with boxes instead of numbered cells, for contexts in [0, 1]ᵈ."""

    def __init__(self, horizon: int, v1: float, d: int) -> None:
        self.horizon, self.v1, self.d = horizon, v1, d
        self.leaves = [{"low": (0.0,) * d, "h": 0, "n": 0, "sum": 0.0, "parent": None}]

    def leaf(self, x: Any) -> dict[str, Any]:
        for leaf in self.leaves:
            width = 0.5 ** leaf["h"]
            if all(
                low <= value < low + width or value == low + width == 1.0
                for value, low in zip(x, leaf["low"], strict=True)
            ):
                return leaf
        raise AssertionError

    def upper(self, leaf: dict[str, Any]) -> float:
        if not leaf["n"]:
            return math.inf
        return leaf["sum"] / leaf["n"] + math.sqrt(
            2 * math.log(self.horizon) / leaf["n"]
        )

    def index(self, x: Any) -> float:
        leaf = self.leaf(x)
        size = self.v1 * 0.5 ** leaf["h"]
        best = min(self.upper(leaf), self.upper(leaf["parent"]) + 2 * size)
        return best + size + 2**self.d * self.v1 * size

    def learn(self, contexts: Any, rewards: Any) -> None:
        played = []
        for x, reward in zip(contexts, rewards, strict=True):
            leaf = self.leaf(x)
            leaf["n"], leaf["sum"] = leaf["n"] + 1, leaf["sum"] + reward
            if leaf not in played:
                played.append(leaf)
        for leaf in played:
            size = self.v1 * 0.5 ** leaf["h"]
            if math.sqrt(2 * math.log(self.horizon) / leaf["n"]) <= size:
                self.leaves.remove(leaf)
                half = 0.5 ** (leaf["h"] + 1)
                for corner in np.ndindex(*(2,) * self.d):
                    low = tuple(
                        a + half * b for a, b in zip(leaf["low"], corner, strict=True)
                    )
                    child = {
                        "low": low,
                        "h": leaf["h"] + 1,
                        "n": 0,
                        "sum": 0.0,
                        "parent": leaf,
                    }
                    self.leaves.append(child)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 3), st.booleans())
def test_the_tree_equals_the_slow_one(seed: int, d: int, wide: bool) -> None:
    draw, horizon, v1 = rng(seed), 50, 1.5 * math.sqrt(d) if wide else math.sqrt(d)
    ours = AdaptiveTree(oracle=TopK(k=1), horizon=horizon, v1=v1)
    slow = SlowTree(horizon, v1, d)
    for step in range(1, 25):
        contexts = (
            np.round(draw.random((6, d)) * 8) / 8
        )  # corners and edges of cells, too
        rewards = draw.normal(size=6)
        if len(slow.leaves) > 1:
            indices = ours._desirability(contexts, step, rng())
            np.testing.assert_allclose(
                indices, [slow.index(x) for x in contexts], rtol=1e-12
            )
        teach(ours, step, contexts, rewards)
        slow.learn(contexts, rewards)
        assert ours.cells == len(slow.leaves)
    assert ours.cells > 1


def test_an_index_by_hand() -> None:
    """T = 7, one dimension, v₁ = 1: the root is cut after its fourth play, since √(2 ln 7/4) ≤ 1."""
    tree = AdaptiveTree(oracle=TopK(k=1), horizon=7, v1=1.0)
    teach(tree, 1, [[0.1], [0.2], [0.9]], [1.0, 0.0, 0.5])
    assert tree.cells == 1  # √(2 ln 7 / 3) = 1.14 > 1
    teach(tree, 2, [[1.0]], [0.5])
    assert tree.cells == 2  # √(2 ln 7 / 4) = 0.986
    root = 0.5 + math.sqrt(2 * math.log(7) / 4) + 1.0
    np.testing.assert_allclose(
        tree._desirability(np.array([[0.3]]), 3, rng()), root + 0.5 + 2 * 0.5
    )
    teach(tree, 3, [[0.2]] * 1, [0.25])
    own = 0.25 + math.sqrt(2 * math.log(7))
    index = tree._desirability(np.array([[0.3]]), 4, rng())
    np.testing.assert_allclose(index, min(own, root) + 0.5 + 2 * 0.5)


def test_before_the_first_cut_arms_are_chosen_at_random() -> None:
    tree, first_offer = (
        AdaptiveTree(oracle=TopK(k=2), horizon=1000),
        offer(1, rng(5).random((9, 2))),
    )
    chosen = {
        tuple(tree.decide(first_offer, rng(seed)).positions.tolist())
        for seed in range(40)
    }
    assert len(chosen) > 20


def test_v1_is_the_diameter_where_it_is_not_given() -> None:
    known, unknown = (
        AdaptiveTree(oracle=TopK(k=1), horizon=9, v1=v1) for v1 in (math.sqrt(3), None)
    )
    contexts = rng().random((4, 3))
    for tree in (known, unknown):
        teach(tree, 1, contexts, [1.0, 2.0, 3.0, 4.0])
        assert tree.cells == 8
    ours, theirs = (tree._desirability(contexts, 2, rng()) for tree in (known, unknown))
    np.testing.assert_array_equal(ours, theirs)


def test_scaled_indices_lie_between_0_and_1() -> None:
    tree = AdaptiveTree(oracle=TopK(k=1), horizon=9, scaled=True)
    plain = AdaptiveTree(oracle=TopK(k=1), horizon=9)
    for learner in (tree, plain):
        teach(
            learner, 1, [[0.1], [0.1], [0.2], [0.9], [0.8]], [1.0, 0.9, 1.0, 0.0, 0.1]
        )
        teach(learner, 2, [[0.1], [0.1], [0.9]], [1.0, 0.9, 0.0])
    queries = np.array([[0.1], [0.6], [0.9]])
    index = plain._desirability(queries, 3, rng())
    expected = (index - index.min()) / (index.max() - index.min())
    np.testing.assert_allclose(tree._desirability(queries, 3, rng()), expected)
    np.testing.assert_array_equal(tree._desirability(queries[:1], 3, rng()), [1.0])


def test_costs_turn_the_sign() -> None:
    up = AdaptiveTree(oracle=TopK(k=1), horizon=9)
    down = AdaptiveTree(oracle=TopK(k=1), horizon=9, direction="minimize")
    contexts, rewards = rng().random((5, 2)), rng(1).normal(size=5)
    teach(up, 1, contexts, rewards)
    teach(down, 1, contexts, -rewards)
    ours, theirs = (tree._desirability(contexts, 2, rng()) for tree in (up, down))
    np.testing.assert_array_equal(ours, theirs)


def test_cells_are_cut_while_there_is_room() -> None:
    tree = AdaptiveTree(oracle=TopK(k=1), horizon=2, v1=50.0, most_cells=9)
    for step in range(1, 30):
        teach(tree, step, [[0.3, 0.3]], [1.0])
    assert len(tree._parent) == 9
    deep = AdaptiveTree(oracle=TopK(k=1), horizon=2, v1=1e9, rho=1.0)
    for step in range(1, 100):
        teach(deep, step, [[0.3]], [1.0])
    assert deep._depth.max() == 48  # finer cells would hold one float each


@pytest.mark.parametrize("policy", [AdaptiveTree, Hypercubes])
def test_contexts_outside_the_unit_cube_are_refused(policy: Any) -> None:
    learner = policy(oracle=TopK(k=1), horizon=9)
    with pytest.raises(
        InputError, match=r"arm 1 has the features \[1.5\]; scale every column"
    ):
        learner.decide(offer(1, [[0.5], [1.5]]), rng())
    teach(learner, 1, [[0.5]], [1.0])
    with pytest.raises(
        InputError, match="2 feature columns, but those observed before have 1"
    ):
        learner.decide(offer(2, [[0.5, 0.5]]), rng())


def test_a_tree_is_for_few_columns() -> None:
    with pytest.raises(InputError, match="at most 12"):
        AdaptiveTree(oracle=TopK(k=1), horizon=9).decide(
            offer(1, rng().random((3, 13))), rng()
        )


# --- cubes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "dimension", "expected"),
    [(300, 3, 3), (250, 3, 3), (64, 3, 2), (65, 3, 3), (1, 3, 1)],
)
def test_cubes_along_an_axis(horizon: int, dimension: int, expected: int) -> None:
    assert Hypercubes(oracle=TopK(k=1), horizon=horizon).per_axis(dimension) == expected


def test_rare_cubes_come_first_then_the_best_means() -> None:
    """T = 16, d = 1: two cubes. In round 9 a cube of up to 9^½ ln 9 = 6.6 plays is under-explored."""
    cubes = Hypercubes(oracle=TopK(k=2), horizon=16)
    left, right = [[0.1]] * 7, [[0.9]] * 6
    teach(cubes, 1, left, [1.0] * 7)
    teach(cubes, 2, right, [0.0] * 6)
    next_offer = offer(9, [[0.2], [0.5], [0.4], [1.0], [0.7]])
    for seed in range(20):  # three arms lie in the cube on the right
        assert set(cubes.decide(next_offer, rng(seed)).positions.tolist()) <= {1, 3, 4}
    some = replace(next_offer, available=np.array([True, True, True, False, False]))
    for seed in range(20):
        assert cubes.decide(some, rng(seed)).positions.tolist() == [
            1,
            0,
        ]  # then the best mean
    teach(cubes, 3, [[0.6]], [0.0])
    for seed in range(20):
        assert cubes.decide(next_offer, rng(seed)).positions.tolist() == [0, 2]


def test_under_explored_arms_are_taken_at_random() -> None:
    cubes, next_offer = (
        Hypercubes(oracle=TopK(k=1), horizon=16),
        offer(5, np.linspace(0, 1, 5)[:, None]),
    )
    draws = [
        int(cubes.decide(next_offer, rng(seed)).positions[0]) for seed in range(1000)
    ]
    counts = np.bincount(draws, minlength=5)
    assert (np.abs(counts - 200) <= 5.0 * math.sqrt(1000 * 0.2 * 0.8)).all()


def test_cells_and_cubes_restore_from_their_states() -> None:
    tree, cubes = (
        AdaptiveTree(oracle=TopK(k=1), horizon=9),
        Hypercubes(oracle=TopK(k=1), horizon=9),
    )
    for learner in (tree, cubes):
        for step in range(1, 12):
            teach(learner, step, rng(step).random((6, 2)), rng(step).normal(size=6))
    assert tree.cells > 4
    for learner, harms in (
        (
            tree,
            {
                "cuts": lambda cuts: cuts + 1,
                "count": lambda count: -count - 1,
                "mean": lambda mean: mean[:-1],
            },
        ),
        (
            cubes,
            {
                "cubes": np.zeros_like,
                "plays": lambda plays: plays * 0,
                "totals": lambda totals: totals * np.nan,
            },
        ),
    ):
        state = restored(learner.state())
        queries = rng(9).random((5, 2))
        np.testing.assert_array_equal(
            learner.restored(state)._desirability(queries, 9, rng()),
            learner._desirability(queries, 9, rng()),
        )
        for name, harm in harms.items():
            arrays = {**state.arrays, name: harm(state.arrays[name])}
            with pytest.raises(StateError, match="damaged"):
                learner.restored(replace(state, arrays=arrays))
    state = restored(
        cubes.state()
    )  # there are ⌈9^{1/5}⌉ = 2 cubes along an axis: 0 and 1
    arrays = {**state.arrays, "cubes": state.arrays["cubes"] + 1}
    with pytest.raises(StateError, match="cubes are impossible"):
        cubes.restored(replace(state, arrays=arrays))


@pytest.mark.parametrize("name", ["acc-ucb", "cc-mab"])
def test_by_their_published_names(name: str) -> None:
    problem = registry.build(
        "problem", {"name": "crowdsourcing", "source": "synthetic"}, seed=0, horizon=7
    )
    built = registry.build("policy", {"name": name}, model=problem.model)
    assert built.horizon == 7
    assert built.oracle == problem.model.oracle
    assert (
        registry.build(
            "policy", {"name": "cc-mab", "tuned_for": 300}, model=problem.model
        ).horizon
        == 300
    )


@pytest.mark.parametrize(
    "policy",
    [AdaptiveTree(oracle=TopK(), horizon=9), Hypercubes(oracle=TopK(), horizon=9)],
)
def test_a_generator_is_needed(policy: Any) -> None:
    offer = Offer(step=1, arms=Arms.numbered(np.zeros((2, 1))))
    with pytest.raises(InputError, match="pass a generator"):
        policy.decide(offer, None)


def test_states_of_impossible_width() -> None:
    tree, cubes = (
        AdaptiveTree(oracle=TopK(), horizon=9),
        Hypercubes(oracle=TopK(), horizon=9),
    )
    wide = tree.state()
    with pytest.raises(StateError, match="columns"):
        tree.restored(replace(wide, scalars={**wide.scalars, "columns": 10**11}))
    flat = cubes.state()
    with pytest.raises(StateError, match="damaged"):
        cubes.restored(replace(flat, arrays={**flat.arrays, "plays": np.array(1)}))


def test_options_reach_the_tree() -> None:
    problem = registry.build(
        "problem", {"name": "crowdsourcing", "source": "synthetic"}, seed=0, horizon=7
    )
    options = {"v1": 0.25, "v2": 0.75, "rho": 0.625, "scaled": True}
    built = registry.build(
        "policy", {"name": "acc-ucb", **options}, model=problem.model
    )
    assert {name: getattr(built, name) for name in options} == options


def test_a_ball_of_another_size_by_hand() -> None:
    """v₁ = 2, v₂ = 4 and ρ = ¾: the children's N(v₁/v₂)v₁ρ is 2 · ½ · 1.5."""
    tree = AdaptiveTree(oracle=TopK(k=1), horizon=7, v1=2.0, v2=4.0, rho=0.75)
    teach(tree, 1, [[0.1]], [0.5])  # √(2 ln 7) = 1.97 ≤ 2
    assert tree.cells == 2
    parent = 0.5 + math.sqrt(2 * math.log(7)) + 2.0
    index = tree._desirability(np.array([[0.3]]), 2, rng())
    np.testing.assert_allclose(index, parent + 1.5 + 2 * 0.5 * 1.5)


def test_a_horizon_of_one_round() -> None:
    """ln 1 = 0: what was played is known, what was not is not."""
    tree = AdaptiveTree(oracle=TopK(k=1), horizon=1, v1=1.0)
    teach(tree, 1, [[0.1]], [0.5])
    index = tree._desirability(np.array([[0.3]]), 2, rng())
    np.testing.assert_allclose(index, (0.5 + 0.0 + 1.0) + 0.5 + 2 * 0.5)


def test_first_choice_is_random() -> None:
    """1^½ ln 1 = 0 plays are few, too: the first choice is at random."""
    cubes, first_offer = (
        Hypercubes(oracle=TopK(k=1), horizon=16),
        offer(1, np.linspace(0, 1, 5)[:, None]),
    )
    assert {
        int(cubes.decide(first_offer, rng(seed)).positions[0]) for seed in range(60)
    } == {
        0,
        1,
        2,
        3,
        4,
    }


def test_rare_cubes_come_before_any_mean() -> None:
    """A mean of 50 in a cube that was explored: 7 plays are more than 9^½ ln 9."""
    cubes = Hypercubes(oracle=TopK(k=1), horizon=16)
    teach(cubes, 1, [[0.1]] * 7, [50.0] * 7)
    assert cubes.decide(offer(9, [[0.2], [0.9]]), rng()).positions.tolist() == [1]


def test_cubes_learn_in_any_order_and_trees_do_not() -> None:
    cubes, tree = (
        kind(oracle=TopK(k=1), horizon=9) for kind in (Hypercubes, AdaptiveTree)
    )
    for learner in (cubes, tree):
        teach(learner, 2, [[0.5]], [1.0])
    teach(cubes, 1, [[0.5]], [1.0])
    with pytest.raises(
        ConflictError, match="AdaptiveTree learns in the order of decisions"
    ):
        teach(tree, 1, [[0.5]], [1.0])


def test_a_state_with_more_cells_than_allowed_is_refused() -> None:
    large, small = (
        AdaptiveTree(oracle=TopK(k=1), horizon=2, v1=50.0, most_cells=most)
        for most in (9, 5)
    )
    for tree in (large, small):
        for step in range(1, 5):
            teach(tree, step, [[0.3, 0.3]], [1.0])
    assert (len(large._parent), len(small._parent)) == (9, 5)
    with pytest.raises(StateError, match="do not form a tree"):
        small.restored(replace(large.state(), spec=small.state().spec))
