"""Parts of a policy may be user-defined: their outputs are checked where they are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from superarm import (
    Arms,
    Decision,
    Feedback,
    IndexPolicy,
    Offer,
    State,
    from_json,
    to_json,
)
from superarm.core import Selection
from superarm.core.errors import InfeasibleError, InputError, StateError
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.policies import ScorePolicy
from superarm.policies.scores import KnownCosts, Uniform
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed, Thompson

FEATURES = np.linspace(0.0, 1.0, 6)[:, None]
ARMS = Arms.numbered(FEATURES)
RNG = np.random.default_rng(0)


def policy(**parts: Any) -> IndexPolicy:
    defaults = {
        "posterior": FiniteGP(SquaredExponential(lengthscale=0.3), FEATURES, 0.01),
        "rule": UCB(schedule=Fixed(value=2.0)),
        "oracle": TopK(k=2),
    }
    return IndexPolicy(**{**defaults, **parts})


class Costs:
    fixed_arms = True

    def __init__(self, costs: Any) -> None:
        self.answer = costs

    def costs(self, offer: Offer) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "costs",
    [
        np.full(6, np.nan),
        -np.ones(6),
        np.ones(5),
        np.ones((6, 1)),
        np.ones(1),
        np.ma.array(np.ones(6), mask=[1, 0, 0, 0, 0, 0]),
        np.array(["a"] * 6),
        [1.0] * 6,
        1.0,
        None,
    ],
    ids=[
        "nan",
        "negative",
        "short",
        "2-d",
        "one",
        "masked",
        "text",
        "list",
        "number",
        "none",
    ],
)
def test_costs_are_one_number_per_arm_and_0_or_more(costs: Any) -> None:
    with pytest.raises(InputError, match=r"Costs( returned|: the cost of arm)"):
        policy(switching=Costs(costs)).decide(Offer(step=1, arms=ARMS), RNG)


def test_an_infinite_cost_bars_an_arm() -> None:
    costs = np.array([np.inf] * 4 + [0.0, 5.0])
    offer = Offer(step=1, arms=ARMS)
    assert sorted(
        policy(switching=Costs(costs)).decide(offer, RNG).positions.tolist()
    ) == [4, 5]
    with pytest.raises(InfeasibleError):
        policy(switching=Costs(np.full(6, np.inf))).decide(offer, RNG)


class Chooses:
    deterministic = True

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def select(self, *_: Any) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [
        None,
        (0, np.array([0])),
        Selection(None, np.array([6])),
        Selection(None, np.array([-1])),
        Selection(None, np.array([1, 1])),
        Selection(None, np.array([0.0])),
        Selection(None, np.array([[0, 1]])),
        Selection(None, np.array([True] * 6)),
        Selection(None, 3),  # type: ignore[arg-type]
        Selection(None, np.array([0])),
    ],
    ids=[
        "none",
        "pair",
        "6",
        "-1",
        "twice",
        "floats",
        "2-d",
        "bools",
        "number",
        "closed",
    ],
)
@pytest.mark.parametrize("scores", [False, True])
def test_a_selection_is_of_different_arms_that_are_available(
    answer: Any, scores: bool
) -> None:
    oracle = Chooses(answer)
    available = np.array([False] + [True] * 5)
    offer = Offer(step=1, arms=ARMS, available=available)
    chooser = (
        ScorePolicy(score=Uniform(), oracle=oracle) if scores else policy(oracle=oracle)
    )
    with pytest.raises(InputError, match=r"Chooses|twice"):
        chooser.decide(offer, RNG)


class Scores:
    deterministic = True

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def desirability(self, *_: Any) -> Any:
        return self.answer


@pytest.mark.parametrize(
    "answer",
    [None, [1.0] * 6, np.ones(5), np.array(["a"] * 6), np.ones(6) * 1j, np.ma.ones(6)],
)
def test_a_rule_gives_one_number_per_arm(answer: Any) -> None:
    with pytest.raises(InputError, match="Scores returned"):
        policy(rule=Scores(answer)).decide(Offer(step=1, arms=ARMS), RNG)


def test_known_costs_match_the_offered_arms() -> None:
    with pytest.raises(InputError, match="KnownCosts returned"):
        ScorePolicy(score=KnownCosts(costs=np.ones(5)), oracle=TopK()).decide(
            Offer(step=1, arms=ARMS), RNG
        )


@pytest.mark.parametrize(
    "chooser",
    [
        lambda: policy(rule=Thompson(mode="independent")),
        lambda: policy(rule=Thompson(mode="joint")),
        lambda: ScorePolicy(score=Uniform(), oracle=TopK()),
    ],
)
def test_chance_needs_a_generator(chooser: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match="rng is None"):
        chooser().decide(Offer(step=1, arms=ARMS), None)


def test_objects_other_than_offers_and_decisions_are_rejected() -> None:
    unknown: Any = None
    for chooser in (policy(), ScorePolicy(score=Uniform(), oracle=TopK())):
        with pytest.raises(InputError, match="must be of type Offer"):
            chooser.decide(unknown, RNG)
    with pytest.raises(InputError, match="must be of type Decision"):
        policy().commit(unknown)


@pytest.mark.parametrize(
    "positions", [[0.0], [True], [[0]], [-1], [6], ["a"], [10**30]]
)
def test_beliefs_and_forecasts_are_of_arms_on_offer(positions: Any) -> None:
    offer = Offer(step=1, arms=ARMS)
    with pytest.raises(InputError, match="positions"):
        policy().posterior.belief(offer).condition(positions)
    with pytest.raises(InputError, match="positions"):
        policy().forecast(offer, positions)


KEYS: dict[str, Any] = {
    "fewer": np.array([0]),
    "unknown": np.array([0, 99]),
    "text": np.array(["a", "b"]),
    "rows": np.array([[0.0], [1.0]]),
    "nan": np.array([np.nan, 0.0]),
    "list": [0, 1],
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_a_carry_that_was_changed_is_refused_where_it_is_taken(keys: Any) -> None:
    chooser, offer = policy(), Offer(step=1, arms=ARMS)
    decision = chooser.decide(offer, RNG)
    arrays = {"positions": decision.positions, "keys": keys}
    changed = replace(
        decision, carry=State(kind="chosen-arms", schema=1, arrays=arrays)
    )
    with pytest.raises(InputError):
        chooser.commit(changed)
    assert not chooser.awaits
    chooser.decide(Offer(step=2, arms=ARMS), RNG)


@pytest.mark.parametrize("stream", [False, True])
def test_a_carry_that_went_through_json_is_taken(stream: bool) -> None:
    parts = {"posterior": StreamingGP(SquaredExponential(), 0.1)} if stream else {}
    chooser, offer = policy(**parts), Offer(step=1, arms=ARMS)
    decision: Decision = from_json(to_json(chooser.decide(offer, RNG)))
    chooser.commit(decision)
    assert chooser.awaits
    chooser.learn(
        offer, decision, Feedback(positions=decision.positions, rewards=[1.0, 1.0]), RNG
    )
    assert not chooser.awaits


def carried(positions: list[int], keys: Any) -> State:
    arrays = {"positions": np.array(positions), "keys": np.array(keys)}
    return State(kind="chosen-arms", schema=1, arrays=arrays)


@pytest.mark.parametrize(
    "damage",
    [
        {"parts": {"1": carried([0], [99])}},
        {"parts": {"1": carried([0], [[0.5]])}},
        {"parts": {"1": carried([0, 1], [0])}},
        {"parts": {"1.5": carried([0], [0])}},
        {"parts": {"1": State(kind="altitude", schema=1)}},
        {"scalars": {"closed": [[], []], "heard": [[float("inf"), [0]]]}},
        {"scalars": {"closed": [[], []], "heard": [[1, [float("nan")]]]}},
        {"scalars": {"closed": [[], []], "heard": [[1, [[0]]]]}},
    ],
)
def test_a_damaged_ledger_is_refused_with_the_state(damage: dict[str, Any]) -> None:
    chooser = policy()
    state = chooser.state()
    ledger = replace(state.part("ledger"), **damage)
    with pytest.raises(StateError, match="damaged"):
        chooser.restored(replace(state, parts={**state.parts, "ledger": ledger}))
