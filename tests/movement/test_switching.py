"""Known costs that depend on the previous action."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise, permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from superarm.core import Arms, Decision, Floats, Offer, Oracle, registry
from superarm.core.errors import InputError, ShapeError
from superarm.core.graphs import Pairs
from superarm.kernels import SquaredExponential
from superarm.lab.problems import temperature_series
from superarm.lab.simulation import simulate
from superarm.movement import Distance, Switch
from superarm.oracles import Matching, ShortestPath, TopK, Trip
from superarm.policies import IndexPolicy, composed
from superarm.posteriors import FiniteGP, IndependentGaussian
from superarm.rules import UCB, ExpectedImprovement, Fixed, Greedy, Thompson
from superarm.testing import SwitchingCostContract

PLACES = Arms.numbered([[0.0, 0.0], [3.0, 4.0], [3.0, 0.0], [0.0, 1.0]])


def after(action: object) -> Offer:
    return Offer(step=2, arms=PLACES, previous_action=action)


class TestDistance(SwitchingCostContract):
    def make_cost(self) -> Distance:
        return Distance(scale=2.0)

    def make_offer(self) -> Offer:
        return after(np.array([1, 3]))


class TestSwitch(SwitchingCostContract):
    def make_cost(self) -> Switch:
        return Switch(cost=0.5)

    def make_offer(self) -> Offer:
        return after([2])


class TestSwitchByWeight(SwitchingCostContract):
    def make_cost(self) -> Switch:
        return Switch(cost=0.5, weights=[3.0, 0.0, 1.0, 2.0])

    def make_offer(self) -> Offer:
        return after((2, 0))


def test_distances_are_euclidean_and_to_the_nearest() -> None:
    np.testing.assert_allclose(
        Distance(scale=2.0).costs(after([0])), [0.0, 10.0, 6.0, 2.0]
    )
    np.testing.assert_allclose(Distance().costs(after([0, 1])), [0.0, 0.0, 3.0, 1.0])
    np.testing.assert_allclose(
        Distance(columns=(1,)).costs(after([2])), [0.0, 4.0, 0.0, 1.0]
    )


def test_switching_cost_matches_its_definition() -> None:
    np.testing.assert_array_equal(
        Switch(cost=0.5).costs(after([2, 0])), [0.0, 0.5, 0.0, 0.5]
    )
    weighed = Switch(cost=0.5, weights=[1.0, 4.0, 2.0, 0.0])
    np.testing.assert_array_equal(weighed.costs(after((0,))), [0.0, 2.0, 1.0, 0.0])
    np.testing.assert_array_equal(weighed.costs(after(())), [0.5, 2.0, 1.0, 0.0])
    np.testing.assert_array_equal(weighed.costs(after(None)), np.zeros(4))
    np.testing.assert_array_equal(Switch(cost=0.0).costs(after([1])), np.zeros(4))


def charged(switch: Switch, before: Iterable[int], now: Iterable[int]) -> float:
    return float(switch.costs(after(tuple(before)))[list(now)].sum())


def test_switching_costs_over_all_sets_of_four_arms() -> None:
    """Over all sets of four arms: what is entered, half of what differs, and no cheap detours."""
    weights = np.array([1.0, 4.0, 2.0, 0.5])
    sets = [
        set(chosen_arms)
        for size in range(5)
        for chosen_arms in combinations(range(4), size)
    ]
    for switch, w in (
        (Switch(cost=3.0), np.ones(4)),
        (Switch(cost=3.0, weights=weights), weights),
    ):

        def weight(arms: set[int], w: Floats = w) -> float:
            return 3.0 * float(w[list(arms)].sum())

        cost = [[charged(switch, one, other) for other in sets] for one in sets]
        for i, one in enumerate(sets):
            for j, other in enumerate(sets):
                assert cost[i][j] == weight(other - one)
                half, more = (
                    0.5 * weight(one ^ other),
                    0.5 * (weight(other) - weight(one)),
                )
                assert cost[i][j] == half + more, "so that a sum over rounds telescopes"
                assert all(
                    cost[i][j] <= cost[i][k] + cost[k][j] for k in range(len(sets))
                )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"cost": -1.0}, InputError),
        ({"cost": np.inf}, InputError),
        ({"weights": [1.0, -2.0, 1.0, 1.0]}, InputError),
        ({"weights": [[1.0]]}, ShapeError),
        ({"weights": [np.nan, 1.0, 1.0, 1.0]}, InputError),
        ({"weights": [1.0, 1.0]}, ShapeError),
    ],
)
def test_invalid_switches_are_rejected(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Switch(**options).costs(after([0]))


@pytest.mark.parametrize("action", [[4], [-1], ["a"], [[0, 1]], [0.5], [True]])
def test_a_previous_action_that_names_no_arms_is_refused(action: Any) -> None:
    for cost in (Distance(), Switch()):
        with pytest.raises(InputError):
            cost.costs(after(action))


@pytest.mark.parametrize(
    "options", [{"scale": 0.0}, {"scale": "2 m"}, {"columns": [-1]}, {"columns": []}]
)
def test_invalid_distances_are_rejected(options: Any) -> None:
    with pytest.raises(InputError):
        Distance(**options)
    with pytest.raises(InputError, match="feature columns"):
        Distance(columns=(2,)).costs(after([0]))


def test_both_have_specs() -> None:
    distance = Distance(scale=2.0, columns=(1,))
    assert registry.build("switching", registry.spec_of(distance)) == distance
    for switch in (Switch(cost=3.0), Switch(cost=0.5, weights=[1.0, 2.0])):
        rebuilt = registry.build("switching", registry.spec_of(switch))
        assert rebuilt.cost == switch.cost
        np.testing.assert_array_equal(rebuilt.weights, switch.weights)


def test_policy_accounts_for_movement_costs() -> None:
    for direction in ("maximize", "minimize"):
        policy = IndexPolicy(
            posterior=FiniteGP(SquaredExponential(), PLACES.features, 0.1),
            rule=UCB(schedule=Fixed(value=1.0)),
            oracle=TopK(k=1),
            direction=direction,
            switching=Distance(scale=0.1),
        )
        chosen = [
            policy.decide(after(action), np.random.default_rng(0)).positions.item()
            for action in (None, [1], [2], [3])
        ]
        assert chosen == [0, 1, 2, 3], "of equals, the nearest"
    with pytest.raises(InputError, match=r"switching cost must be .*, got 2"):
        IndexPolicy(
            posterior=policy.posterior,
            rule=policy.rule,
            oracle=policy.oracle,
            switching=2.0,  # type: ignore[arg-type]
        )


# --- inside oracles: the best super arm after switching costs, against all of them ---------------


def chosen(
    oracle: Oracle,
    values: Floats,
    structure: object,
    before: Iterable[int],
    switch: Switch,
) -> Decision:
    """The choice for desirabilities ``values``."""
    n = len(values)
    policy = IndexPolicy(
        posterior=IndependentGaussian(np.ones(n), 1.0, values),
        rule=Greedy(),
        oracle=oracle,
        switching=switch,
    )
    arms = Arms.numbered(np.arange(n, dtype=float)[:, None])
    offer = Offer(step=2, arms=arms, structure=structure, previous_action=tuple(before))
    return policy.decide(offer, np.random.default_rng(0))


def check_best(
    oracle: Oracle,
    values: Floats,
    structure: object,
    feasible: list[tuple[int, ...]],
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    before = feasible[rng.integers(len(feasible))]
    weights = rng.random(len(values)) if seed % 2 else None
    switch = Switch(cost=float(rng.exponential()), weights=weights)
    new = np.isin(np.arange(len(values)), before, invert=True)
    charge = switch.cost * np.where(new, 1.0 if weights is None else weights, 0.0)
    decision = chosen(oracle, values, structure, before, switch)
    selected = tuple(decision.positions.tolist())
    assert tuple(sorted(selected)) in {
        tuple(sorted(feasible_arms)) for feasible_arms in feasible
    }
    assert tuple(decision.action) == selected  # type: ignore[arg-type]

    def worth(arms: tuple[int, ...]) -> float:
        return float(sum(values[arm] - charge[arm] for arm in arms))

    assert worth(selected) == pytest.approx(max(map(worth, feasible)), abs=1e-12)


SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(1, 8), st.integers(1, 4))
def test_slates(seed: int, n: int, k: int) -> None:
    k = min(k, n)
    values = np.random.default_rng(seed + 1).standard_normal(n)
    check_best(TopK(k=k), values, None, list(combinations(range(n), k)), seed)


@given(SEEDS)
def test_routes(seed: int) -> None:
    """Costs are 0 or more, so that the best walk is among the routes that meet no arm twice."""
    rng, n = np.random.default_rng(seed + 1), 6
    turns = (rng.random((n, n)) < 0.5) & ~np.eye(n, dtype=bool)
    turns[0, 1] = turns[1, n - 1] = True  # there is a route
    inner = (
        way for size in range(n - 1) for way in permutations(range(1, n - 1), size)
    )
    routes = [(0, *way, n - 1) for way in inner]
    routes = [route for route in routes if turns[route[:-1], route[1:]].all()]
    oracle = ShortestPath(successors=csr_array(turns.astype(float)))
    check_best(
        oracle, -rng.exponential(size=n), Trip(start=0, goal=n - 1), routes, seed
    )


@given(SEEDS, st.sampled_from([(None, False), (2, False), (2, True)]))
def test_matchings(seed: int, limit: tuple[int | None, bool]) -> None:
    rng = np.random.default_rng(seed + 1)
    left, right = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    pairs, exactly = limit
    sizes = range(4) if pairs is None else range(pairs * exactly, pairs + 1)
    feasible = [
        arms
        for size in sizes
        for arms in combinations(range(9), size)
        if len(set(left[list(arms)])) == len(set(right[list(arms)])) == size
    ]
    structure = Pairs(left=left, right=right)
    check_best(
        Matching(pairs=pairs, exactly=exactly),
        rng.standard_normal(9),
        structure,
        feasible,
        seed,
    )


def test_numbers_that_only_rank_arms_have_no_costs_subtracted() -> None:
    parts: dict[str, Any] = {
        "posterior": FiniteGP(SquaredExponential(), PLACES.features, 0.1),
        "oracle": TopK(k=2),
        "switching": Switch(),
    }
    with pytest.raises(
        InputError, match="costs of switching are subtracted: use scale='linear'"
    ):
        IndexPolicy(rule=ExpectedImprovement(), **parts)
    IndexPolicy(rule=ExpectedImprovement(scale="linear"), **parts)


@pytest.mark.thorough
def test_a_slate_of_sensors_changes_less_where_changing_it_costs() -> None:
    world = temperature_series(seed=0, horizon=60, source="synthetic", k=5)
    spread = float(np.sqrt(world.model.kernel.diag(world.model.arms).mean()))
    slates = {
        "free": None,
        "dear": Switch(cost=spread),
        "barred": Switch(cost=1e3 * spread),
    }
    policies = {
        name: composed(world.model, rule=Thompson(), switching=cost)
        for name, cost in slates.items()
    }
    new = {}
    for name, run in simulate(world, policies, rounds=60, seed=0).items():
        assert run.choices is not None
        slate = [set(row.tolist()) for row in run.choices]
        new[name] = sum(len(now - before) for before, now in pairwise(slate))
    assert new["barred"] == 0, "no slate is worth that much"
    assert 0 < new["dear"] < new["free"]
