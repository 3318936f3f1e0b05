"""Short descriptive reprs of records and parts; draws are private to the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from superarm import Arms, Decision, Feedback, IndexPolicy, Model, Offer, State
from superarm.core.errors import InputError
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import (
    FiniteGP,
    IndependentGaussian,
    SparseVariational,
    StreamingGP,
)
from superarm.roads.networks import generate_city
from superarm.rules import UCB, Fixed

ROWS = np.linspace(0.0, 1.0, 40)[:, None]
ARMS = Arms(ids=[f"<{n}>" for n in range(40)], features=ROWS)
KERNEL = SquaredExponential(lengthscale=0.2)


def policy(rule: Any = None) -> IndexPolicy:
    gp = FiniteGP(KERNEL, ROWS, 0.01)
    return IndexPolicy(
        posterior=gp, rule=rule or UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=2)
    )


def test_reprs_are_short_and_descriptive() -> None:
    offer = Offer(step=3, arms=ARMS, available=np.arange(40) > 9, structure="<b>")
    decision = policy().decide(offer, np.random.default_rng(0))
    parts: list[Any] = [
        ARMS,
        offer,
        decision,
        Feedback(positions=np.array([1]), rewards=np.array([0.5])),
        policy().state(),
        Model(kernel=KERNEL, noise_variance=0.1, oracle=TopK(), horizon=9, arms=ROWS),
        policy(),
        FiniteGP(KERNEL, ROWS, 0.01),
        StreamingGP(KERNEL, 0.01),
        SparseVariational(KERNEL, 0.01),
        IndependentGaussian(np.ones(40), 0.01, arms=ROWS),
        generate_city(edges=300, seed=0),
    ]
    for part in parts:
        assert repr(part).startswith(f"{type(part).__name__}(")
        assert len(repr(part)) < 500
        html = part._repr_html_()
        assert html.startswith(
            f"<table><caption>{type(part).__name__}</caption><tr><th>"
        )
        assert "<b>" not in html
    assert repr(offer) == (
        "Offer(step=3, arms=Arms(n=40, d=1), available=30 of 40, structure='<b>', begins=False)"
    )
    assert repr(State(kind="k", schema=1, scalars={"a": 1})) == (
        "State(kind='k', schema=1, scalars={a}, arrays={}, parts={})"
    )
    assert "observations=0" in repr(FiniteGP(KERNEL, ROWS, 0.01))


def test_a_decision_gives_the_users_own_ids() -> None:
    offer = Offer(step=1, arms=ARMS)
    decision = policy().decide(offer, np.random.default_rng(0))
    assert decision.ids(offer) == [
        ARMS.ids[position] for position in decision.positions
    ]
    with pytest.raises(InputError, match="decision of step 1, not 2"):
        decision.ids(Offer(step=2, arms=ARMS))
    assert Decision(step=1, action=None, positions=np.empty(0, int)).ids(offer) == []
    few = Offer(step=1, arms=Arms.numbered(ROWS[:2]))
    with pytest.raises(
        InputError, match=r"has 2 arms, but the positions are .*offer that was answered"
    ):
        Decision(step=1, action=None, positions=np.array([5])).ids(few)


@pytest.mark.parametrize(
    "ids", [np.array(["a", "b"]), [np.str_("a"), np.str_("b")], np.array([7, 8])]
)
def test_ids_from_numpy_are_plain(ids: Any) -> None:
    offer = Offer(step=1, arms=Arms(ids=ids, features=ROWS[:2]))
    [arm_id] = Decision(step=1, action=None, positions=np.array([1])).ids(offer)
    assert type(arm_id) in (str, int)
    assert arm_id == ids[1]
    assert offer.arms.positions([arm_id]).tolist() == [1]


class Bold:
    """A rule that writes into the draw that it was given."""

    deterministic = False

    def desirability(self, belief: Any, step: int, rng: np.random.Generator) -> Any:
        drawn = belief.sample(rng)
        drawn += 10.0
        return drawn


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize(
    "make", [lambda: FiniteGP(KERNEL, ROWS, 0.01), lambda: StreamingGP(KERNEL, 0.01)]
)
def test_a_rule_may_write_into_a_draw(
    make: Any, direction: Any, stepwise: bool
) -> None:
    bold = IndexPolicy(
        posterior=make(),
        rule=Bold(),
        oracle=TopK(k=2),
        direction=direction,
        stepwise=stepwise,
    )
    offer = Offer(step=1, arms=ARMS)
    decision = bold.decide(offer, np.random.default_rng(0))
    bold.commit(decision)
    bold.learn(
        offer,
        decision,
        Feedback(positions=decision.positions, rewards=np.ones(2)),
        np.random.default_rng(),
    )
    decisions = [
        bold.decide(Offer(step=2, arms=ARMS), np.random.default_rng(1))
        for _ in range(2)
    ]
    np.testing.assert_array_equal(decisions[0].positions, decisions[1].positions)
    np.testing.assert_array_equal(decisions[0].desirability, decisions[1].desirability)


@pytest.mark.parametrize("what", ["mean", "std"])
@pytest.mark.parametrize(
    "make", [lambda: FiniteGP(KERNEL, ROWS, 0.01), lambda: StreamingGP(KERNEL, 0.01)]
)
def test_belief_arrays_are_read_only(make: Any, what: str) -> None:
    """The decision reports it: a rule that shifts it would shift what users see."""
    belief = make().belief(Offer(step=1, arms=ARMS))
    for view in (belief, belief.negated(), belief.condition(np.array([1]))):
        with pytest.raises(ValueError, match="read-only"):
            getattr(view, what)[0] = 1.0
