"""Couplings on trees: marginals, costs and draws."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_trees import any_tree, drawn_tree, rng
from scipy.optimize import linprog

from superarm.core import Floats
from superarm.core.compiling import Backend
from superarm.core.errors import InputError
from superarm.movement import Coupling, Tree, TreeCoupling

EPS = float(np.finfo(np.float64).eps)
compiled = pytest.mark.skipif(
    find_spec("numba") is None, reason="numba is not installed"
)
BACKENDS = ["numpy", pytest.param("numba", marks=compiled)]
seeds = st.integers(0, 2**32 - 1)


def trees(most: int) -> st.SearchStrategy[Tree]:
    sizes = st.integers(1, most)
    return st.one_of(
        st.builds(drawn_tree, sizes, seeds), st.builds(any_tree, sizes, seeds)
    )


def two_distributions(n: int, seed: int) -> tuple[Floats, Floats]:
    """Smooth ones, ones with many zeros, certain ones, and equal ones."""
    source, distributions = rng(seed), []
    for kind in source.integers(0, 4, size=2):
        shares = source.dirichlet(np.full(n, 0.2 + kind)) * (
            source.random(n) < 0.3 + 0.3 * kind
        )
        shares[source.integers(n)] += 0.1
        distributions.append(
            np.eye(n)[source.integers(n)] if kind == 3 else shares / shares.sum()
        )
    return (
        (distributions[0], distributions[0].copy())
        if seed % 7 == 0
        else (distributions[0], distributions[1])
    )


def table(coupling: Coupling, n: int) -> Floats:
    matrix = np.zeros((n, n))
    np.add.at(matrix, (coupling.source, coupling.target), coupling.mass)
    return matrix


# --- the coupling --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@given(tree=trees(20), seed=seeds)
def test_couplings_have_their_marginals_and_the_least_cost(
    backend: Backend, tree: Tree, seed: int
) -> None:
    n = len(tree)
    before, after = two_distributions(n, seed)
    plan = TreeCoupling(tree, backend=backend).between(before, after)
    joint = table(plan, n)
    allowed = 8 * n * EPS
    np.testing.assert_allclose(joint.sum(axis=1), before, rtol=0.0, atol=allowed)
    np.testing.assert_allclose(joint.sum(axis=0), after, rtol=0.0, atol=allowed)
    assert (plan.mass > 0.0).all()
    assert len(plan.mass) <= 2 * n, "at most n that stay, and n that move"
    assert len({*zip(plan.source.tolist(), plan.target.tolist(), strict=True)}) == len(
        plan.mass
    )
    np.testing.assert_array_equal(np.diag(joint), np.minimum(before, after))
    least = tree.distance(before, after)  # eq. 21
    scale = float(tree.distances.max())
    assert plan.cost(tree.distances) == pytest.approx(
        least, rel=0.0, abs=allowed * scale
    )


@pytest.mark.thorough
@pytest.mark.parametrize("backend", BACKENDS)
@given(tree=trees(6), seed=seeds)
@settings(max_examples=50)
def test_no_coupling_costs_less(backend: Backend, tree: Tree, seed: int) -> None:
    """[ramesh2022movement, eq. 9]; the solver keeps its constraints to 1e-7."""
    n = len(tree)
    before, after = two_distributions(n, seed)
    plan = TreeCoupling(tree, backend=backend).between(before, after)
    rows, columns = np.kron(np.eye(n), np.ones(n)), np.kron(np.ones(n), np.eye(n))
    marginals = {
        "A_eq": np.vstack([rows, columns]),
        "b_eq": np.concatenate([before, after]),
    }
    cheapest = linprog(tree.distances.ravel(), **marginals, method="highs").fun
    scale = float(tree.distances.max())
    assert plan.cost(tree.distances) == pytest.approx(
        cheapest, rel=0.0, abs=1e-6 * scale
    )


@compiled
@given(tree=trees(30), seed=seeds)
def test_compiled_couplings_have_the_same_bits(tree: Tree, seed: int) -> None:
    plain, fast = (
        TreeCoupling(tree, backend=backend) for backend in ("numpy", "numba")
    )
    given_ = two_distributions(len(tree), seed)
    for one, other in zip(plain.between(*given_), fast.between(*given_), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_the_cost_is_that_of_any_table() -> None:
    plan = Coupling(np.array([0, 0, 2]), np.array([0, 1, 1]), np.array([0.5, 0.2, 0.3]))
    distances = np.array([[9.0, 1.0, 5.0], [1.0, 9.0, 2.0], [5.0, 2.0, 9.0]])
    assert plan.cost(distances) == pytest.approx(0.5 * 9.0 + 0.2 * 1.0 + 0.3 * 2.0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inputs_are_not_modified_and_may_be_read_only(backend: Backend) -> None:
    tree = drawn_tree(9, 0)
    coupling, (before, after) = (
        TreeCoupling(tree, backend=backend),
        two_distributions(9, 1),
    )
    copies, plan = (before.copy(), after.copy()), coupling.between(before, after)
    np.testing.assert_array_equal(before, copies[0])
    np.testing.assert_array_equal(after, copies[1])
    before.flags.writeable = after.flags.writeable = False
    for given_ in (
        (before, after),
        (np.repeat(before, 2)[::2], np.repeat(after, 3)[::3]),
    ):
        for one, other in zip(coupling.between(*given_), plan, strict=True):
            np.testing.assert_array_equal(one, other)


# --- rows ----------------------------------------------------------------------------------------


@given(tree=trees(20), seed=seeds)
def test_rows_are_probabilities_given_an_action(tree: Tree, seed: int) -> None:
    n = len(tree)
    before, after = two_distributions(n, seed)
    plan = TreeCoupling(tree).between(before, after)
    joint = table(plan, n)
    for action in range(n):
        targets, probabilities = plan.row(action)
        assert len(set(targets.tolist())) == len(targets)
        assert (probabilities > 0.0).all()
        assert probabilities.sum() == pytest.approx(1.0, abs=4 * n * EPS)
        slow = (
            joint[action] / joint[action].sum()
            if joint[action].any()
            else joint.sum(axis=0)
        )
        dense = np.zeros(n)
        dense[targets] = probabilities
        np.testing.assert_allclose(dense, slow, rtol=1e-12, atol=8 * n * EPS)


@pytest.mark.parametrize("backend", BACKENDS)
def test_action_without_mass_follows_the_target_distribution(backend: Backend) -> None:
    tree = drawn_tree(4, 0)
    after = np.array([0.1, 0.0, 0.6, 0.3])
    plan = TreeCoupling(tree, backend=backend).between([0.5, 0.5, 0.0, 0.0], after)  # type: ignore[arg-type]
    for action in (2, 3):
        targets, probabilities = plan.row(action)
        np.testing.assert_array_equal(targets, [0, 2, 3])
        np.testing.assert_allclose(probabilities, [0.1, 0.6, 0.3], rtol=1e-12)


def test_walk_over_coupling_rows_preserves_distributions() -> None:
    """Exactly, not by drawing: the mass of each action moves as its row prescribes."""
    tree, source = drawn_tree(10, 2), rng(2)
    coupling, here = TreeCoupling(tree), np.eye(10)[4]
    walked = here
    for _ in range(30):
        there = source.dirichlet(np.full(10, 0.3)) * (source.random(10) < 0.6)
        there[source.integers(10)] += 0.1
        there /= there.sum()
        plan, moved = coupling.between(here, there), np.zeros(10)
        for action in range(10):
            targets, probabilities = plan.row(action)
            moved[targets] += walked[action] * probabilities
        np.testing.assert_allclose(moved, there, rtol=0.0, atol=1e-13)
        here, walked = there, moved


# --- draws ---------------------------------------------------------------------------------------


def plan_of(targets: list[int], masses: list[float], action: int = 6) -> Coupling:
    """Where one action leads, between entries of others."""
    source = np.array([9, *[action] * len(targets), 9])
    return Coupling(source, np.array([9, *targets, 9]), np.array([0.7, *masses, 0.7]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_draw_frequencies_match_stated_probabilities(backend: Backend) -> None:
    """Hoeffding: of 20 000 draws, a share is off by more than this once in 10⁹ tests."""
    coupling = TreeCoupling(drawn_tree(10, 0), backend=backend)
    plan = plan_of([7, 2, 5, 0], [0.08, 0.01, 0.05, 0.06])
    row, source, count = plan.row(6), rng(0), 20_000
    drawn = [coupling.draw(plan, 6, source) for _ in range(count)]
    probabilities = dict(drawn)
    assert probabilities == pytest.approx(
        dict(zip(row.targets.tolist(), row.probabilities, strict=True))
    )
    assert probabilities == pytest.approx({7: 0.4, 2: 0.05, 5: 0.25, 0: 0.3})
    actions = np.array([action for action, _ in drawn])
    allowed = np.sqrt(np.log(2 * 4 / 1e-9) / (2 * count))
    for target, probability in zip(*row, strict=True):
        assert np.mean(actions == target) == pytest.approx(probability, abs=allowed)
    # The mean of 1/p over draws is the number of targets: p is what was drawn with.
    inverse = np.array([1.0 / probability for _, probability in drawn])
    assert inverse.mean() == pytest.approx(4.0, abs=20.0 * allowed)


class Fixed(np.random.Generator):
    """A generator that gives one number."""

    def __init__(self, value: float) -> None:
        super().__init__(np.random.PCG64(0))
        self.value = value

    def random(self, *_: Any, **__: Any) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("number", "action"),
    [
        (0.0, 3),
        (0.24, 3),
        (0.25, 1),
        (0.49, 1),
        (0.5, 8),
        (0.999, 8),
        (1.0 - 2**-53, 8),
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_action_has_its_interval_of_the_unit_line(
    backend: Backend, number: float, action: int
) -> None:
    coupling = TreeCoupling(drawn_tree(10, 0), backend=backend)
    plan = plan_of([3, 1, 8], [0.125, 0.125, 0.25])
    assert coupling.draw(plan, 6, Fixed(number)) == (
        action,
        {3: 0.25, 1: 0.25, 8: 0.5}[action],
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_sum_slightly_below_1_leaves_no_gap(backend: Backend) -> None:
    coupling = TreeCoupling(drawn_tree(10, 0), backend=backend)
    for count in range(1, 60):
        plan = plan_of(list(range(count)), [0.1] * count)
        action, probability = coupling.draw(plan, 6, Fixed(1.0 - 2**-53))
        assert action >= count - 2, (
            "the last; or, where the sum is a hair above 1, that before it"
        )
        assert probability == pytest.approx(1.0 / count)


@compiled
@given(tree=trees(20), seed=seeds)
def test_compiled_draws_are_the_same_from_the_same_numbers(
    tree: Tree, seed: int
) -> None:
    """Also for an action without mass: draws do not depend on numba."""
    n, given_ = len(tree), two_distributions(len(tree), seed)
    drawn = []
    for backend in ("numpy", "numba"):
        coupling, source = TreeCoupling(tree, backend=backend), rng(seed)
        plan = coupling.between(*given_)
        drawn.append(
            [coupling.draw(plan, action, source) for action in (*range(-1, n), -1)]
        )
        assert source.random() == rng(seed).random(n + 3)[-1], (
            "one number for each draw"
        )
    assert drawn[0] == drawn[1]
    for action, (target, probability) in zip(
        (*range(-1, n), -1), drawn[0], strict=True
    ):
        targets, probabilities = plan.row(action)
        assert probability == pytest.approx(
            probabilities[targets == target][0], rel=1e-12
        )


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_invalid_distributions_are_rejected(backend: Backend) -> None:
    coupling, good = TreeCoupling(drawn_tree(3, 0), backend=backend), [0.2, 0.3, 0.5]
    wrong: list[Any] = [
        [0.5, 0.5], [0.5, 0.5, 0.5], [1.5, -0.5, 0.0], [np.nan, 0.5, 0.5], [0.0, 0.0, 0.0], "abc", None,
        [[0.2, 0.3, 0.5]], [0.2, 0.3, 0.5 + 1e-8], np.ma.masked_equal([0.2, 0.3, 0.5], 0.3),
    ]  # fmt: skip
    for bad in wrong:
        with pytest.raises(InputError, match="before"):
            coupling.between(bad, good)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="after"):
            coupling.between(good, bad)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"smallest entry is -0\.5"):
        coupling.between([1.5, -0.5, 0.0], good)  # type: ignore[arg-type]


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(InputError, match="tree"):
        TreeCoupling(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="backend is 'fast'; choose"):
        TreeCoupling(drawn_tree(3, 0), backend="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", BACKENDS)
def test_single_action_keeps_its_mass(backend: Backend) -> None:
    plan = TreeCoupling(drawn_tree(1, 0), backend=backend).between([1.0], [1.0])  # type: ignore[arg-type]
    assert plan.cost(np.zeros((1, 1))) == 0.0
    assert TreeCoupling(drawn_tree(1, 0), backend=backend).draw(plan, 0, rng(0)) == (
        0,
        1.0,
    )
