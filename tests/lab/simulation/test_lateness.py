"""Feedback that is late, partial, out of order or lost; previous actions; episodes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from superarm.core import (
    Arms,
    Best,
    Decision,
    Direction,
    Feedback,
    Floats,
    Guarantee,
    Offer,
    State,
)
from superarm.core.errors import InputError
from superarm.core.streams import stream
from superarm.kernels import SquaredExponential
from superarm.lab.problems import gp_function, landscape
from superarm.lab.simulation import Lateness, lateness, simulate
from superarm.lab.simulation.lateness import Delivery, Mail
from superarm.oracles import TopK
from superarm.policies import IndexPolicy, composed, igp_ucb, oclok_ucb, random
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed, Greedy
from superarm.testing import restored

ARMS = Arms.numbered(np.arange(5.0)[:, None])


@dataclass
class Notebook:
    """A policy that plays arms in turn and records its feedback."""

    exchangeable: bool = True
    deterministic = True
    offers: list[Offer] = field(default_factory=list)
    received: list[tuple[int, int, list[int]]] = field(default_factory=list)
    """Round of arrival, round of the decision, positions."""

    def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
        self.offers.append(offer)
        chosen = np.array([offer.step % 5, (offer.step + 1) % 5])
        return Decision(
            step=offer.step, action=tuple(chosen.tolist()), positions=chosen
        )

    def commit(self, decision: Decision) -> None:
        pass

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Any
    ) -> None:
        assert offer.step == decision.step
        self.received.append(
            (self.offers[-1].step, offer.step, feedback.positions.tolist())
        )

    def state(self) -> State:
        return State(kind="notebook", schema=1)

    def restored(self, state: State) -> Notebook:
        return self


class Post:
    """A problem that states its own delays; an episode begins every four rounds."""

    direction: Direction = "maximize"

    def offer(self, step: int) -> Offer:
        begins = step % 4 == 1
        return Offer(
            step=step,
            arms=ARMS,
            begins=begins,
            previous_action="home" if begins else None,
        )

    def noise(self, offer: Offer, rng: np.random.Generator) -> Floats:
        return np.zeros(5)

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        if offer.step == 3:  # never
            return Feedback(positions=np.empty(0, dtype=np.intp), rewards=np.empty(0))
        delays = np.array([0, 3 if offer.step % 2 else 1])
        return Feedback(positions=decision.positions, rewards=np.ones(2), delays=delays)

    def value(self, offer: Offer, decision: Decision) -> float:
        return 1.0 if offer.previous_action == "home" else 0.5

    def best(self, offer: Offer) -> Best:
        return Best(1.0, Guarantee(alpha=0.5), optimum=1.5)

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> dict[str, float]:
        return {"answered": float(len(feedback.positions))}


def test_rewards_arrive_with_the_problems_delays() -> None:
    policy = Notebook()
    simulate(Post(), {"mine": policy}, rounds=6, seed=0)
    assert sorted(policy.received) == sorted(
        [
            (1, 1, [1]),
            (4, 1, [2]),
            (2, 2, [2]),
            (3, 2, [3]),
            (3, 3, []),
            (4, 4, [4]),
            (5, 4, [0]),
            (5, 5, [0]),
            (6, 6, [1]),
        ]
    )


def test_ordered_policy_receives_feedback_in_order() -> None:
    policy = Notebook(exchangeable=False)
    simulate(Post(), {"mine": policy}, rounds=8, seed=0)
    decided = [step for _, step, _ in policy.received]
    assert decided == sorted(decided)
    assert [received for received in policy.received if received[1] == 2] == [
        (4, 2, [2]),
        (4, 2, [3]),
    ]
    assert (4, 1, [2]) in policy.received  # what it waited for


def test_previous_action_is_the_policys_own_and_resets_each_episode() -> None:
    first, second = Notebook(), Notebook()
    runs = simulate(Post(), {"first": first, "second": second}, rounds=6, seed=0)
    assert [offer.previous_action for offer in first.offers] == [
        "home",
        *[(1, 2), (2, 3), (3, 4)],
        "home",
        (0, 1),
    ]
    assert first.offers[1] is not second.offers[1]
    regret = runs["first"].series["regret"]
    np.testing.assert_array_equal(regret, [0.0, 0.5, 0.5, 0.5, 0.0, 0.5])
    # Against the promised half of the optimum: below zero is better than promised.
    np.testing.assert_array_equal(runs["first"].series["alpha_regret"], regret - 0.25)


def test_alpha_regret_of_a_cost_is_against_the_optimum_over_alpha() -> None:
    class Cost(Post):
        direction: Direction = "minimize"

    runs = simulate(Cost(), {"mine": Notebook()}, rounds=2, seed=0)
    np.testing.assert_array_equal(runs["mine"].series["regret"], [0.0, -0.5])
    np.testing.assert_array_equal(
        runs["mine"].series["alpha_regret"], [1.0 - 3.0, 0.5 - 3.0]
    )


def test_losses_have_no_alpha_guarantee() -> None:
    class Loss(Post):
        def best(self, offer: Offer) -> Best:
            return super().best(offer)._replace(optimum=-1.0)

    assert (
        "alpha_regret"
        not in simulate(Loss(), {"mine": Notebook()}, rounds=2, seed=0)["mine"].series
    )


# --- lateness of any problem -----------------------------------------------------------------


def test_delays_are_drawn_for_all_arms_and_are_the_same_for_all() -> None:
    late = Lateness(earliest=2, latest=6, lost=0.25)
    offer = Offer(step=3, arms=Arms.numbered(np.zeros((20_000, 1))))
    delays = late.delays(offer, stream(0, "delay", 3))
    np.testing.assert_array_equal(delays, late.delays(offer, stream(0, "delay", 3)))
    lost = np.mean(delays == -1)
    # Six standard errors of a share of 1/4 (and of 3/20 for each delay) among 20 000.
    assert abs(lost - 0.25) < 6.0 * np.sqrt(0.25 * 0.75 / 20_000)
    for delay in range(2, 7):
        assert abs(np.mean(delays == delay) - 0.15) < 6.0 * np.sqrt(
            0.15 * 0.85 / 20_000
        )
    together = Lateness(latest=6, together=True).delays(offer, stream(0, "delay", 3))
    assert len(np.unique(together)) == 1


def test_delays_add_to_the_problems_own() -> None:
    mail = Mail(100, in_order=False)
    offer = Offer(step=1, arms=ARMS)
    decision = Decision(step=1, action=(), positions=np.array([4, 0, 2]))
    feedback = Feedback(
        positions=decision.positions, rewards=np.ones(3), delays=np.array([2, 1, 3])
    )
    # Lost feedback stays lost, whatever delay the problem states.
    assert (
        list(mail.exchange(offer, decision, feedback, np.array([5, 0, -1, 0, 3]))) == []
    )
    arrived = {
        step: [
            arrival.feedback.positions.tolist() for arrival in mail._take_arrivals(step)
        ]
        for step in range(9)
    }
    assert {step: received for step, received in arrived.items() if received} == {
        6: [[4]],
        7: [[0]],
    }


def test_feedback_due_after_the_last_round_arrives_in_an_extended_run() -> None:
    mail = Mail(3, in_order=True)
    offer = Offer(step=1, arms=ARMS, previous_action=(4,))
    decision = Decision(step=1, action=(), positions=np.arange(3))
    first_feedback = Feedback(
        positions=decision.positions, rewards=np.ones(3), delays=np.array([1, 3, 4])
    )
    assert list(mail.exchange(offer, decision, first_feedback, None)) == []
    assert [
        arrival.feedback.positions.tolist() for arrival in mail._take_arrivals(3)
    ] == [[0]]
    state = State(kind="left", schema=1, scalars=mail.resume_scalars() or {})
    longer = Mail(4, in_order=True)
    longer.resume(restored(state), lambda step: Offer(step=step, arms=ARMS))
    assert (longer._sent, longer._last_due, longer._later) == (3, 5, 1)
    ((same, chosen, feedback),) = longer._take_arrivals(4)
    assert (same.step, same.previous_action, chosen.positions.tolist()) == (
        1,
        (4,),
        [0, 1, 2],
    )
    assert (feedback.positions.tolist(), feedback.rewards.tolist()) == ([1], [1.0])
    assert [due for due, *_ in longer._queue] == [5]


def test_excess_feedback_due_after_the_last_round_is_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lateness, "_MOST_LATER", 2)
    mail = Mail(1, in_order=False)
    offer = Offer(step=1, arms=ARMS)
    decision = Decision(step=1, action=(), positions=np.arange(3))
    for rewards, resumable in ((2, True), (3, False)):
        feedback = Feedback(positions=np.arange(rewards), rewards=np.ones(rewards))
        for _ in mail.exchange(offer, decision, feedback, np.arange(1, 6)):
            raise AssertionError("nothing is due yet")
        assert (mail.resume_scalars() is not None) is resumable
        assert len(mail._queue) == 2


def test_every_round_draws_delays_from_its_own_stream() -> None:
    late, policy = Lateness(latest=4, lost=0.2), Notebook()

    class Prompt(Post):
        def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
            return Feedback(positions=decision.positions, rewards=np.ones(2))

    simulate(Prompt(), {"mine": policy}, rounds=30, seed=7, lateness=late)
    expected = []
    for offer in policy.offers:
        delays = late.delays(offer, stream(7, "delay", offer.step))
        for position in (offer.step % 5, (offer.step + 1) % 5):
            due = offer.step + delays[position]
            if delays[position] >= 0 and due <= 30:
                expected.append((due, offer.step, position))
    received = [
        (when, step, position)
        for when, step, some in policy.received
        for position in some
    ]
    assert sorted(received) == sorted(expected)
    assert len(expected) > 30


def test_rounds_of_late_feedback_are_not_played_at_once() -> None:
    problem = gp_function(seed=3, horizon=20, arms=15)
    policy = igp_ucb(problem.model)
    simulate(
        problem,
        {"mine": policy},
        rounds=20,
        seed=3,
        lateness=Lateness(earliest=4, latest=4),
    )
    assert policy.posterior.count == 16


def test_zero_lateness_equals_no_lateness() -> None:
    problem = landscape(seed=1, horizon=25, side=8)
    runs = [
        simulate(
            problem,
            {"mine": oclok_ucb(problem.model)},
            rounds=25,
            seed=1,
            lateness=late,
        )
        for late in (None, Lateness())
    ]
    np.testing.assert_array_equal(runs[0]["mine"].choices, runs[1]["mine"].choices)


def test_late_feedback_costs_regret_and_lost_feedback_is_not_learned() -> None:
    problem = landscape(seed=1, horizon=30, side=8)
    policies = {"mine": oclok_ucb(problem.model)}
    simulate(problem, policies, rounds=30, seed=1, lateness=Lateness(lost=1.0))
    assert policies["mine"].posterior.count == 0
    late = {"mine": oclok_ucb(problem.model)}
    simulate(
        problem, late, rounds=30, seed=1, lateness=Lateness(earliest=10, latest=10)
    )
    assert late["mine"].posterior.count == 3 * 20


def test_policy_results_do_not_depend_on_other_policies() -> None:
    """Other policies change neither its offers, nor its noise, nor its delays."""
    problem = landscape(seed=2, horizon=30, side=8)
    late = Lateness(latest=5, lost=0.2)
    single = simulate(
        problem, {"a": oclok_ucb(problem.model)}, rounds=30, seed=2, lateness=late
    )
    both = simulate(
        problem,
        {"b": random(problem.model), "a": oclok_ucb(problem.model)},
        rounds=30,
        seed=2,
        lateness=late,
    )
    np.testing.assert_array_equal(single["a"].choices, both["a"].choices)


@pytest.mark.parametrize(
    "options",
    [
        {"earliest": -1},
        {"latest": 1.5},
        {"latest": True},
        {"earliest": 4, "latest": 3},
        {"latest": 10**9 + 1},
        {"lost": 1.5},
        {"lost": "half"},
        {"lost": float("nan")},
        {"together": 3},
    ],
)
def test_invalid_lateness_is_rejected(options: Any) -> None:
    with pytest.raises(InputError):
        Lateness(**options)


def test_mail_delivers_parts_of_a_feedback_separately() -> None:
    mail = Mail(100, in_order=False)
    offer = Offer(step=1, arms=ARMS)
    decision = Decision(step=1, action=(), positions=np.arange(4))
    feedback = Feedback(
        positions=np.arange(4),
        rewards=np.arange(4.0),
        noise_variance=0.1 + np.arange(4.0),
    )
    known = mail.exchange(offer, decision, feedback, np.array([2, 0, -1, 2, 7]))
    assert [arrival.feedback.positions.tolist() for arrival in known] == [[1]]
    nothing = Feedback(positions=np.empty(0, dtype=np.intp), rewards=np.empty(0))

    def after(step: int) -> list[Delivery]:
        own = Decision(step=step, action=(), positions=np.empty(0, dtype=np.intp))
        received = mail.exchange(Offer(step=step, arms=ARMS), own, nothing, None)
        return [arrival for arrival in received if arrival.offer.step == 1]

    assert after(2) == []
    (late,) = after(3)
    assert late.feedback.positions.tolist() == [0, 3]
    assert late.feedback.rewards.tolist() == [0.0, 3.0]
    assert late.feedback.noise_variance is not None
    np.testing.assert_allclose(late.feedback.noise_variance, [0.1, 3.1])
    assert after(1000) == []


@pytest.mark.parametrize("late", [None, Lateness(latest=2)])
@pytest.mark.parametrize("positions", [None, [99], [-1]])
def test_a_world_answers_with_feedback_on_arms_that_were_chosen(
    positions: Any, late: Any
) -> None:
    class Odd(Post):
        def feedback(self, offer: Offer, decision: Decision, noise: Any) -> Any:
            return (
                None
                if positions is None
                else Feedback(positions=positions, rewards=np.ones(1))
            )

    posterior = StreamingGP(SquaredExponential(), 0.1)
    policy = IndexPolicy(posterior=posterior, rule=Greedy(), oracle=TopK(k=1))
    with pytest.raises(InputError, match=r"feedback|Feedback"):
        simulate(Odd(), {"mine": policy}, rounds=6, seed=0, lateness=late)


# --- propensities ----------------------------------------------------------------------------


def test_propensities_are_recorded_where_they_are_known() -> None:
    problem = landscape(seed=1, horizon=10, side=4)  # 3 of 16 places
    policies = {
        "random": random(problem.model),
        "greedy": composed(problem.model, rule=Greedy()),
        "ucb": composed(problem.model, rule=UCB(schedule=Fixed(value=1.0))),
    }
    runs = simulate(problem, policies, rounds=10, seed=1)
    np.testing.assert_array_equal(runs["random"].propensities, np.full(10, 1.0 / 560.0))
    assert runs["greedy"].propensities is None
    assert runs["ucb"].propensities is None


def test_unknown_propensities_are_nan() -> None:
    class Honest(Notebook):
        def decide(self, offer: Offer, rng: np.random.Generator) -> Decision:
            known = {1: 0.25, 2: None, 3: 1.0}[offer.step]
            return replace(super().decide(offer, rng), propensity=known)

    runs = simulate(Post(), {"mine": Honest()}, rounds=3, seed=0)
    np.testing.assert_array_equal(runs["mine"].propensities, [0.25, np.nan, 1.0])
