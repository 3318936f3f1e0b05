"""Posterior × rule × oracle × drift × movement × feedback: what runs, and what is refused and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from superarm.core import Arms, Offer, registry
from superarm.core.errors import InputError, SpecError
from superarm.core.graphs import Pairs
from superarm.kernels import Matern
from superarm.movement import Distance, Switch
from superarm.oracles import TIM, GreedyCoverage, Knapsack, Matching, TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed, Greedy, Rectified
from superarm.testing.compositions import (
    Composition,
    Dimensions,
    Outcome,
    dimensions,
    every_composition,
    page,
    pairwise_sample,
    play,
    play_all,
    play_sample,
)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compositions.md"
UPDATE = "python -m superarm.testing.compositions --out docs/compositions.md"


def marks_on_the_page() -> dict[tuple[str, str, str], str]:
    """The mark of every rule, posterior and oracle."""
    marks = {}
    rules: list[str] = []
    oracles: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            rules = line.removeprefix("## ").split(", ")
        if not line.startswith("| ") or not rules:
            continue
        head, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if head == "posterior":
            oracles = cells
        elif head != "---":
            posterior = head.split("`")[1]
            for rule in rules:
                for oracle, cell in zip(oracles, cells, strict=True):
                    marks[rule, posterior, oracle] = cell[0]
    return marks


# --- the matrix ----------------------------------------------------------------------------


@pytest.mark.slow
def test_every_pair_of_parts_runs_or_is_refused_as_the_page_says() -> None:
    values = dimensions(builtin_only=True)
    outcomes = play_sample(values)
    marks = marks_on_the_page()
    for composition, outcome in outcomes.items():
        mark = marks.get((composition.rule, composition.posterior, composition.oracle))
        allowed = "●◐" if outcome.runs else "○◐"
        assert mark is not None, f"{composition.label}: run {UPDATE}"
        assert mark in allowed, (composition.label, outcome.reason)
    for dimension, choices in enumerate(values):
        ran = {one[dimension] for one, outcome in outcomes.items() if outcome.runs}
        assert ran == set(choices), "a part that runs in no composition"


@pytest.mark.slow
@pytest.mark.full
def test_the_page_is_what_the_generator_prints() -> None:
    values = dimensions(builtin_only=True)
    outcomes: dict[Composition, Outcome] = {}
    for result in play_all(every_composition(values)):
        if result.defect is not None:
            raise result.defect
        if result.outcome is not None:
            outcomes[result.composition] = result.outcome
    assert page(values, outcomes) == PAGE.read_text(encoding="utf-8"), f"run {UPDATE}"


def test_a_sample_lets_every_pair_meet() -> None:
    values = Dimensions(*(("a", "b", "c"), ("d", "e"), ("f",), ("g", "h"), "ij", "kl"))
    compositions = pairwise_sample(values)
    for first, choices in enumerate(values):
        for second in range(first):
            met = {(one[first], one[second]) for one in compositions}
            assert len(met) == len(choices) * len(values[second])
    assert len(compositions) < 12  # of 72
    assert pairwise_sample(values) == compositions


# --- what makes no sense -------------------------------------------------------------------

COMMON = Composition("streaming", "ucb", "top-k", "static", "free", "at once")
REFUSED: list[tuple[dict[str, str], str]] = [
    (
        {"posterior": "finite", "drift": "drifting"},
        "for rewards that drift use 'drifting', or wrap a posterior in 'resetting'",
    ),
    (
        {"oracle": "matching", "movement": "metric points"},
        "'tree-index' has no parameter 'oracle'; leave it out: the policy uses the oracle of its model",
    ),
    (
        {"oracle": "coverage", "movement": "switching switch"},
        "Switch reads the previous action as positions of arms, but actions of GreedyCoverage hold nodes",
    ),
    (
        {"oracle": "tim", "movement": "switching distance"},
        "Distance reads the previous action as positions of arms, but actions of TIM hold nodes",
    ),
    (
        {"rule": "rectified", "oracle": "coverage"},
        "GreedyCoverage gives every link probability 0; use a rule that can be positive",
    ),
    ({"rule": "rectified", "oracle": "knapsack"}, "Knapsack packs nothing"),
    ({"rule": "rectified", "oracle": "matching"}, "Matching chooses no pair"),
    (
        {"rule": "random", "oracle": "shortest-path"},
        "a shortest path needs costs of 0 or more; use the policy route-rule, or wrap the rule",
    ),
    (
        {"posterior": "variational", "movement": "metric matrix"},
        "SparseVariational draws as it learns; use update='step'",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_refusals_say_why(changes: dict[str, str], reason: str) -> None:
    outcome = play(COMMON._replace(**changes))
    assert not outcome.runs
    assert reason in outcome.reason


def test_feedback_out_of_order_is_refused_where_order_matters() -> None:
    late = COMMON._replace(feedback="late")
    assert play(late) == Outcome(runs=True)
    outcome = play(late._replace(posterior="inducing"))
    assert outcome.runs
    assert "hold later feedback back until earlier feedback has come" in outcome.order


def policy_with(**parts: Any) -> IndexPolicy:
    common: dict[str, Any] = {
        "posterior": StreamingGP(Matern(nu=1.5), 0.1),
        "rule": UCB(schedule=Fixed(value=1.0)),
        "oracle": TopK(k=2),
    }
    return IndexPolicy(**{**common, **parts})


def test_costs_are_refused_where_only_gains_count() -> None:
    costs = Rectified(rule=Greedy())
    for oracle in (GreedyCoverage(k=1), TIM(k=1), Knapsack(), Matching()):
        with pytest.raises(InputError, match="use a rule that can be positive"):
            policy_with(rule=costs, oracle=oracle)
    exact = Matching(pairs=2, exactly=True)  # it must choose, whatever it costs
    assert policy_with(rule=costs, oracle=exact).oracle is exact
    assert policy_with(rule=costs).rule is costs


@dataclass(frozen=True, kw_only=True)
class NewNodes:
    """0.3 for every link that leaves a node which was not chosen before."""

    fixed_arms = False

    def costs(self, offer: Offer) -> Any:
        pairs: Any = offer.structure
        if offer.previous_action is None:
            return np.zeros(len(offer.arms))
        previous: Any = offer.previous_action
        return np.where(np.isin(pairs.left, previous), 0.0, 0.3)


def test_nodes_take_a_switching_cost_that_reads_nodes() -> None:
    for cost in (Switch(), Distance()):
        with pytest.raises(InputError, match="hold nodes; write a switching cost"):
            policy_with(oracle=GreedyCoverage(k=1), switching=cost)
    policy = policy_with(oracle=GreedyCoverage(k=1), switching=NewNodes())
    links = Pairs(left=np.arange(6) // 2, right=np.arange(6) % 2)
    arms = Arms.numbered(np.random.default_rng(0).random((6, 2)))
    offer = Offer(step=1, arms=arms, structure=links, previous_action=(2,))
    decision = policy.decide(offer, np.random.default_rng(0))
    assert decision.action == (2,)


def test_advice_for_parameters_that_other_parts_take() -> None:
    index = {"posterior": "x", "rule": "greedy", "oracle": "top-k", "metric": 1}
    with pytest.raises(SpecError, match="use 'tree-index' or 'tree-score'"):
        registry.check_parameters("policy", "index", index)
    with pytest.raises(SpecError, match="for switching costs use 'index'"):
        registry.check_parameters("policy", "tree-index", {"switching": 1})
    with pytest.raises(SpecError, match="did you mean 'kernel'"):
        registry.check_parameters("posterior", "finite", {"kernal": 1})


# --- parts of a plug-in --------------------------------------------------------------------


@pytest.fixture
def plug_in() -> Any:
    """Registers parts until the test ends."""
    added: list[tuple[str, str, Any]] = []

    def add(family: str, name: str, part: Any) -> None:
        registry.register(family, name)(part)
        added.append((family, name, part))

    yield add
    for family, name, part in added:
        del registry.catalogue._parts[family][name]
        del registry.catalogue._names[part]


@dataclass(frozen=True, kw_only=True)
class Widest:
    """The most uncertain arms."""

    deterministic = True

    def desirability(self, belief: Any, step: int, rng: Any) -> Any:
        return belief.std.copy()


@dataclass(frozen=True, kw_only=True)
class Careless:
    """Reads beyond the end of an array."""

    deterministic = True

    def desirability(self, belief: Any, step: int, rng: Any) -> Any:
        return belief.mean[len(belief.mean)]


@dataclass(frozen=True, kw_only=True)
class Forgetful:
    """A cost that is not charged."""

    cost: float = 1.0
    fixed_arms = True

    def costs(self, offer: Offer) -> Any:
        return np.zeros(len(offer.arms))


def test_parts_of_a_plug_in_appear_on_the_page(plug_in: Any) -> None:
    plug_in("rule", "widest", Widest)
    assert "widest" in dimensions().rule
    assert "widest" not in dimensions(builtin_only=True).rule
    values = Dimensions(
        posterior=("finite", "streaming"),
        rule=("ucb", "widest"),
        oracle=("shortest-path", "top-k"),
        drift=("static", "drifting"),
        movement=("free",),
        feedback=("at once",),
    )
    outcomes = {
        result.composition: result.outcome
        for result in play_all(every_composition(values))
        if result.outcome is not None
    }
    text = page(values, outcomes)
    by_rule = dict(re.findall(r"## ([\w, -]+)\n\n(.+?)\n\n", text, re.DOTALL))
    assert by_rule["ucb"].splitlines()[2:] == [
        "| `finite` | ◐ <sup>1</sup> | ◐ <sup>1</sup> |",
        "| `streaming` | ● | ● |",
    ]
    assert "| `streaming` | ○ <sup>2</sup> | ● |" in by_rule["widest"]
    assert "1. drifting: posterior 'finite' has no parameter 'drift'" in text
    assert "2. arm … costs …: a shortest path needs costs of 0 or more" in text
    assert "9 of 16 compositions run" in text


def test_a_part_without_a_sample_is_refused_with_advice(plug_in: Any) -> None:
    def needy(patience: float) -> Any:
        return Widest()

    plug_in("rule", "needy", needy)
    with pytest.raises(SpecError, match="rule 'needy' needs patience"):
        play(COMMON._replace(rule="needy"))


def test_a_crash_is_no_refusal(plug_in: Any) -> None:
    plug_in("rule", "careless", Careless)
    with pytest.raises(IndexError):
        play(COMMON._replace(rule="careless"))


def test_a_switching_cost_that_is_ignored_is_found(plug_in: Any) -> None:
    plug_in("switching", "forgetful", Forgetful)
    with pytest.raises(AssertionError, match="the switching cost was ignored"):
        play(COMMON._replace(movement="switching forgetful", rule="random"))


def test_every_defect_is_reported(plug_in: Any) -> None:
    plug_in("rule", "careless", Careless)
    defective = COMMON._replace(rule="careless")
    late = COMMON._replace(oracle="matching", movement="metric points")
    first, second, third, fourth = play_all(
        [defective, COMMON, late, late._replace(feedback="late")]
    )
    assert first.outcome is None
    assert isinstance(first.defect, IndexError)
    assert defective.label in first.defect.__notes__
    assert second.outcome == Outcome(runs=True)
    assert third.outcome is fourth.outcome  # refused before any feedback
