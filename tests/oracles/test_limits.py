"""Groups and knapsacks against brute force; oracles from functions."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from superarm.core import Floats, Guarantee, Oracle
from superarm.core.errors import InfeasibleError, InputError, ShapeError
from superarm.kernels import Matern
from superarm.oracles import (
    CallableOracle,
    Groups,
    GroupTopK,
    Knapsack,
    Matching,
    TopK,
    Weights,
)
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import ExpectedImprovement, ProbabilityOfImprovement
from superarm.testing import OracleContract

GROUPS = Groups(of_arm=np.array([0, 0, 0, 1, 1, 2, 2]), limits=np.array([2, 1, 0, 5]))
HEAVY = np.array([3.0, 1.0, 4.0, 1.0, 5.0, 2.0, 6.0])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def subsets(n: int) -> Any:
    return (arms for size in range(n + 1) for arms in combinations(range(n), size))


class TestGroupTopK(OracleContract):
    k = 2

    def make_oracle(self) -> Oracle:
        return GroupTopK(k=self.k)

    def structure(self, n: int) -> object:
        return (
            GROUPS
            if n == 7
            else Groups(of_arm=np.zeros(n, dtype=int), limits=np.array([n]))
        )

    def feasible(self, n: int, structure: object) -> Any:
        for arms in combinations(range(7), self.k):
            if (
                np.bincount(GROUPS.of_arm[list(arms)], minlength=4) <= GROUPS.limits
            ).all():
                yield arms


class TestGroupTopThree(TestGroupTopK):
    k = 3


class TestKnapsack(OracleContract):
    rescores = False
    method: Any = "auto"

    def make_oracle(self) -> Oracle:
        return Knapsack(method=self.method)

    def structure(self, n: int) -> object:
        return Weights(of_arm=HEAVY[:n], budget=9.0)

    def feasible(self, n: int, structure: object) -> Any:
        return (arms for arms in subsets(7) if HEAVY[list(arms)].sum() <= 9.0)


class TestDenseKnapsack(TestKnapsack):
    method = "density"


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 9), st.booleans())
def test_knapsacks_meet_their_guarantee(seed: int, n: int, integral: bool) -> None:
    draw = rng(seed)
    weights = (
        draw.integers(1, 12, n).astype(float) if integral else draw.uniform(0.1, 9.0, n)
    )
    worth, budget = draw.normal(0.5, 1.0, n), float(draw.uniform(0.0, 20.0))
    structure = Weights(of_arm=weights, budget=budget)
    best = max(
        float(worth[list(arms)].sum())
        for arms in subsets(n)
        if weights[list(arms)].sum() <= budget
    )
    for method in ("auto", "density"):
        _, chosen, guarantee = Knapsack(method=method).select(worth, structure, rng())  # type: ignore[arg-type]
        assert weights[chosen].sum() <= budget
        assert float(worth[chosen].sum()) >= guarantee.alpha * best - 1e-12
        assert not (worth[chosen] < 0.0).any()
        if integral and method == "auto":
            assert guarantee.alpha == 1.0


def test_half_of_the_optimum_is_what_density_may_give() -> None:
    """A light arm of high density keeps a heavy one out; the best single arm saves half."""
    structure = Weights(of_arm=np.array([1.0, 10.0]), budget=10.0)
    chosen = Knapsack(method="density").select(np.array([2.0, 10.0]), structure, rng())
    assert chosen.positions.tolist() == [1]
    assert chosen.guarantee == Guarantee(alpha=0.5)


@pytest.mark.parametrize(
    ("weights", "worth", "expected"),
    [
        # One heavy arm has the highest worth, but ten light ones are worth 20 together.
        ([10.0] + [1.0] * 10, [3.0] + [2.0] * 10, list(range(1, 11))),
        # The second arm fills the budget to the brim.
        ([5.0, 5.0, 1.0], [5.0, 4.9, 0.5], [0, 1]),
    ],
)
def test_density_by_hand(
    weights: list[float], worth: list[float], expected: list[int]
) -> None:
    structure = Weights(of_arm=np.array(weights), budget=10.0)
    chosen = Knapsack(method="density").select(np.array(worth), structure, rng())
    assert chosen.positions.tolist() == expected


def test_knapsack_with_a_large_table_packs_by_density(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three arms and budgets 0 to 9 are 30 cells."""
    structure, worth = (
        Weights(of_arm=np.array([5.0, 5.0, 4.0]), budget=9.0),
        np.array([5.0, 5.0, 4.1]),
    )
    monkeypatch.setattr("superarm.oracles.knapsack._MOST_CELLS", 30)
    for method in ("auto", "exact"):
        assert (
            Knapsack(method=method).select(worth, structure, rng()).guarantee.alpha
            == 1.0
        )  # type: ignore[arg-type]
    monkeypatch.setattr("superarm.oracles.knapsack._MOST_CELLS", 29)
    assert Knapsack().select(worth, structure, rng()).guarantee.alpha == 0.5
    with pytest.raises(InputError, match="and at most 29 for arms × budget"):
        Knapsack(method="exact").select(worth, structure, rng())


def test_ties_go_to_the_arm_offered_first() -> None:
    groups = Groups(of_arm=np.arange(200) % 2, limits=np.array([3, 100]))
    chosen = GroupTopK(k=6).select(np.tile([1.0, 0.0], 100), groups, rng())
    assert chosen.positions.tolist() == [0, 2, 4, 1, 3, 5]


def test_full_groups_are_never_chosen() -> None:
    """Also where the best arm belongs to it, and with rescoring."""
    groups, worth = (
        Groups(of_arm=np.array([0, 1, 1]), limits=np.array([0, 2])),
        np.array([9.0, 1, 2]),
    )
    for rescore in (None, lambda _: worth):
        assert GroupTopK(k=2).select(
            worth, groups, rng(), rescore
        ).positions.tolist() == [2, 1]


def test_the_knapsack_of_a_large_budget() -> None:
    """Against the same table without bits."""
    draw = rng(4)
    weights, worth = draw.integers(1, 100, 200), draw.random(200)
    best: Floats = np.zeros(1001)
    for weight, value in zip(weights.tolist(), worth.tolist(), strict=True):
        best[weight:] = np.maximum(best[weight:], best[: 1001 - weight] + value)
    structure = Weights(of_arm=weights.astype(float), budget=1000.0)
    chosen = Knapsack(method="exact").select(worth, structure, rng()).positions
    assert float(worth[chosen].sum()) == pytest.approx(best[-1])
    assert weights[chosen].sum() <= 1000


def test_bad_limits_are_refused() -> None:
    with pytest.raises(InputError, match="Groups"):
        GroupTopK(k=1).select(np.ones(3), None, rng())
    with pytest.raises(ShapeError, match="3 arms are on offer"):
        GroupTopK(k=1).select(np.ones(3), GROUPS, rng())
    with pytest.raises(InfeasibleError, match="leave room for 3"):
        GroupTopK(k=4).select(np.ones(7), GROUPS, rng())
    with pytest.raises(InputError, match="group 3, but there are 2 limits"):
        Groups(of_arm=np.array([0, 3]), limits=np.array([1, 1]))
    with pytest.raises(InputError, match="limits must be 0 or more, got -1"):
        Groups(of_arm=np.array([0]), limits=np.array([-1]))
    with pytest.raises(InputError, match="Weights"):
        Knapsack().select(np.ones(3), None, rng())
    with pytest.raises(ShapeError, match="3 arms are on offer"):
        Knapsack().select(np.ones(3), Weights(of_arm=HEAVY, budget=1.0), rng())
    with pytest.raises(InputError, match="the weight of arm 1 must be above 0, got 0"):
        Weights(of_arm=np.array([1.0, 0.0]), budget=1.0)
    with pytest.raises(InputError, match="budget"):
        Weights(of_arm=np.array([1.0]), budget=float("nan"))
    uneven = Weights(of_arm=np.array([1.5, 1.0]), budget=2.0)
    with pytest.raises(InputError, match="whole-number weights"):
        Knapsack(method="exact").select(np.ones(2), uneven, rng())


# --- functions -----------------------------------------------------------------------------


def best_two(desirability: Floats, structure: object) -> Any:
    if np.count_nonzero(desirability > -np.inf) < 2:
        return None
    return np.argsort(desirability)[-2:]


class TestCallableOracle(OracleContract):
    rescores = False

    def make_oracle(self) -> Oracle:
        return CallableOracle(function=best_two)

    def feasible(self, n: int, structure: object) -> Any:
        return combinations(range(7), 2)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0, 7], "wrong chose arm 7; on offer are arms 0 to 4"),
        ([0, -1], "wrong chose arm -1"),
        ([1, 1], "one arm twice"),
        ([2], "wrong chose arm 2, which is not available"),
        ([0.5], "whole numbers"),
        ("ab", "what wrong chose"),
        (None, "wrong returned None: nothing is feasible"),
    ],
)
def test_a_wrong_answer_names_the_function(answer: Any, message: str) -> None:
    def wrong(desirability: Floats, structure: object) -> Any:
        return answer

    with pytest.raises((InputError, InfeasibleError), match=message):
        CallableOracle(function=wrong).select(
            np.array([1.0, 1, -np.inf, 1, 1]), None, rng()
        )


def test_functions_may_need_chance_and_promise_less() -> None:
    def one(
        desirability: Floats, structure: object, chance: np.random.Generator
    ) -> Any:
        return [int(chance.integers(len(desirability)))]

    oracle = CallableOracle(
        function=one, guarantee=Guarantee(0.5, 0.9), deterministic=False
    )
    selected = {
        int(oracle.select(np.ones(4), None, rng(seed)).positions[0])
        for seed in range(30)
    }
    assert selected == {0, 1, 2, 3}
    assert oracle.select(np.ones(4), None, rng()).guarantee == Guarantee(0.5, 0.9)
    for wrong, message in (
        ({"function": 3}, "function"),
        ({"guarantee": Guarantee(0.0, 1.0)}, "guarantee"),
        ({"guarantee": 0.5}, "such as Guarantee"),
        ({"guarantee": Guarantee("all", 1.0)}, "guarantee"),  # type: ignore[arg-type]
        ({"deterministic": "no"}, "deterministic"),
    ):
        with pytest.raises(InputError, match=message):
            CallableOracle(**{"function": one, **wrong})


def test_user_function_receives_read_only_arrays() -> None:
    def careless(desirability: Floats, structure: object) -> Any:
        desirability.flags.writeable = True
        desirability[:] = 0.0
        return [0]

    values = np.array([1.0, -np.inf])
    CallableOracle(function=careless).select(values, None, rng())
    assert values.tolist() == [1.0, -np.inf]
    with pytest.raises(ValueError, match="read-only"):
        CallableOracle(function=lambda worth, _: worth.sort()).select(
            values, None, rng()
        )


def test_errors_from_a_user_function_name_it() -> None:
    def fails(desirability: Floats, structure: object) -> Any:
        raise LookupError("nothing there")

    def stops(desirability: Floats, structure: object) -> Any:
        raise KeyboardInterrupt

    oracle = CallableOracle(function=fails)
    with pytest.raises(LookupError, match="nothing there") as caught:
        oracle.select(np.ones(2), None, rng())
    assert caught.value.__notes__ == [
        "in fails(desirability, structure), the function of a CallableOracle"
    ]
    with pytest.raises(TypeError) as caught_arity:
        CallableOracle(function=fails, deterministic=False).select(
            np.ones(2), None, rng()
        )
    assert "in fails(desirability, structure, rng)" in caught_arity.value.__notes__[0]
    with pytest.raises(KeyboardInterrupt):
        CallableOracle(function=stops).select(np.ones(2), None, rng())


@pytest.mark.parametrize("guarantee", [(0.0, 1.0), (1.5, 1.0), (0.5, 0.0), (0.5, 1.5)])
def test_promises_lie_between_0_and_1(guarantee: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="above 0 and at most 1"):
        CallableOracle(function=lambda worth, _: [0], guarantee=Guarantee(*guarantee))


# --- scales --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [ExpectedImprovement, ProbabilityOfImprovement])
def test_oracles_that_add_refuse_rules_that_only_rank(rule: Any) -> None:
    posterior = StreamingGP(Matern(), 0.1)
    message = f"{rule.__name__} gives numbers that only rank arms, but Matching may add them up: use scale"
    with pytest.raises(InputError, match=message):
        IndexPolicy(posterior=posterior, rule=rule(), oracle=Matching())
    IndexPolicy(posterior=posterior, rule=rule(scale="linear"), oracle=Matching())
    for oracle in (TopK(k=2), GroupTopK(k=2)):
        IndexPolicy(posterior=posterior, rule=rule(), oracle=oracle)


@pytest.mark.parametrize(("of_arm", "limits"), [([0, 1], [1, 1]), ([0, 1, 0], [2, 1])])
def test_rescoring_without_feasible_arms_is_infeasible(
    of_arm: list[int], limits: list[int]
) -> None:
    groups = Groups(of_arm=np.array(of_arm), limits=np.array(limits))
    n = len(of_arm)
    with pytest.raises(InfeasibleError, match="after 1 of 2 arms"):
        GroupTopK(k=2).select(
            np.arange(n) * 1.0,
            groups,
            np.random.default_rng(0),
            rescore=lambda _: np.full(n, -np.inf),
        )


def test_a_budget_too_large_for_a_table_is_packed_by_density() -> None:
    heavy = Weights(of_arm=np.array([4e8, 4e8]), budget=5e8)
    selection = Knapsack().select(np.array([1.0, 2.0]), heavy, np.random.default_rng(0))
    assert (selection.positions.tolist(), selection.guarantee.alpha) == ([1], 0.5)
    with pytest.raises(InputError, match=r"a budget of at most 10,000,000"):
        Knapsack(method="exact").select(
            np.array([1.0, 2.0]), heavy, np.random.default_rng(0)
        )


def test_sums_that_overflow_are_refused() -> None:
    light = Weights(of_arm=np.ones(4), budget=2.0)
    worth = np.array([1e308, 1e308, 1.5e308, 1.7e308])
    with pytest.raises(InputError, match="overflow"):
        Knapsack().select(worth, light, np.random.default_rng(0))
