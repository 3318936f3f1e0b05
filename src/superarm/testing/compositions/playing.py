"""Plays one composition for a few rounds and checks every promise on the way.

A composition either runs, or the library refuses it with a reason: when it is built, or when it first
decides. Anything else is a defect, of the library or of a plug-in, and raises an error here.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Arms, Decision, Feedback, Offer, Policy
from superarm.core.errors import ConflictError, PrecisionWarning, SuperarmError
from superarm.core.registry import build, spec_of
from superarm.core.serialization import from_json, to_json
from superarm.testing.helpers import (
    assert_close,
    assert_equal,
    assert_finite,
    generator,
    restored,
    state_bytes,
    unchanged,
)

from .composition import DRIFTING, LATE, STATIC, Composition, price_of
from .samples import (
    ARMS,
    LEVEL,
    SPREAD,
    availability,
    features,
    has_fixed_arms,
    oracle_sample,
    posterior_sample,
    road_rows,
)

ROUNDS = 5
_EPISODE = 3  # rounds
_FAR = 1000.0
"""So long after the last round, nothing is known any more of rewards that drift."""


class Outcome(NamedTuple):
    """What became of a composition."""

    runs: bool
    reason: str = ""
    """Why the library refuses it; empty if it runs."""
    order: str = ""
    """Why the library refuses late feedback in another order than that of decisions; empty if it
    learns feedback in any order, or was not asked to."""


class Played(NamedTuple):
    """A composition that was played."""

    composition: Composition
    outcome: Outcome | None
    """``None`` for a defect."""
    defect: Exception | None = None


class _Round(NamedTuple):
    offer: Offer
    decision: Decision
    feedback: Feedback  # on every arm chosen


def play(composition: Composition) -> Outcome:
    """Play a composition for a few rounds.

    Args:
        composition: What to play.
    """
    with warnings.catch_warnings():
        # Samples are small, not well chosen: some lose digits, and say so.
        warnings.simplefilter("ignore", PrecisionWarning)
        try:
            return _Player(composition).play()
        except Exception as error:
            error.add_note(composition.label)
            raise


class _Player:
    def __init__(self, composition: Composition) -> None:
        self.composition = composition
        self.spec = composition.spec()
        self.oracle = oracle_sample(composition.oracle)
        structure = self.oracle.structure
        self.structure = None if structure is None else build("structure", structure)
        self.fixed_arms = has_fixed_arms(self.spec)
        self.is_walk = composition.family_of_movement == "metric"
        self.policy: Any = None
        self.previous: object = None

    def play(self) -> Outcome:
        try:
            self.policy = self.build(self.spec)
            self.policy.decide(self.offer(1), generator(1))
        except SuperarmError as error:
            reason = str(error)
            assert len(reason.split()) >= 4, f"a refusal needs a reason, not {reason!r}"
            return Outcome(runs=False, reason=reason)
        if self.composition.feedback == LATE:
            return Outcome(runs=True, order=self.play_late())
        self.play_at_once()
        self.check_drift()
        if self.composition.family_of_movement == "switching":
            self.check_switching()
        return Outcome(runs=True)

    def build(self, spec: Any) -> Any:
        """The policy of a spec that went through JSON."""
        text = json.dumps(spec, allow_nan=False)
        return build("policy", json.loads(text))

    # --- rounds ----------------------------------------------------------------------------

    def play_at_once(self) -> None:
        for step in range(1, ROUNDS + 1):
            self.learn(self.decide(step))

    def play_late(self) -> str:
        """Three decisions without feedback; then a part of the second's comes first."""
        first, second, third = [self.decide(step) for step in (1, 2, 3)]
        order = ""
        if len(second.decision.positions) > 1:
            self.learn(second, slice(1))
            order = self.learn_earlier(first)
            self.learn(second, slice(1, None))
        else:
            self.learn(second)
            order = self.learn_earlier(first)
        self.check_restored(4)  # some is learned, the third decision is pending
        self.learn(third)
        for step in range(4, ROUNDS + 1):
            self.learn(self.decide(step))
        return order

    def learn_earlier(self, played: _Round) -> str:
        """Learn from an earlier decision than the last one learned from, or check the refusal."""
        if self.policy.exchangeable:
            self.learn(played)
            return ""
        try:
            with unchanged(self.policy, "refused feedback"):
                self.learn(played)
        except ConflictError as error:
            reason = str(error)
            assert "in the order of decisions" in reason, reason
            return reason
        raise AssertionError("feedback out of order was accepted")

    def offer(self, step: int) -> Offer:
        """The offer of a round: other arms each time, where no part fixes them."""
        if self.composition.posterior == "roads":
            rows = road_rows()
        else:
            rows = features(0 if self.fixed_arms else step)
        begins = self.is_walk and step % _EPISODE == 1
        offer = Offer(
            step=step,
            arms=Arms.numbered(rows),
            time=float(step) if self.composition.drift == DRIFTING else None,
            available=availability(step),
            structure=None if self.is_walk else self.structure,
            begins=begins,
        )
        return offer.after(self.previous)

    def decide(self, step: int) -> _Round:
        """Decide, check the decision, and take it."""
        offer = self.offer(step)
        # Before and after it has learned: states take longer to write than decisions to make.
        checked = step in (1, ROUNDS)
        with unchanged(self.policy, "decide()") if checked else nullcontext():
            decision = self.policy.decide(offer, generator(step))
        self.check_decision(offer, decision)
        self.policy.commit(decision)
        self.previous = decision.action
        return _Round(offer, decision, self.feedback(step, decision))

    def feedback(self, step: int, decision: Decision) -> Feedback:
        """Noisy rewards of all chosen arms."""
        noise = generator(step).standard_normal(ARMS)
        shift = 0.1 * step if self.composition.drift == DRIFTING else 0.0
        arms = np.arange(ARMS)
        means = LEVEL + SPREAD * np.sin(arms + shift)
        rewards = means + SPREAD * noise
        chosen = decision.positions
        return Feedback(positions=chosen, rewards=rewards[chosen])

    def learn(self, played: _Round, part: slice = slice(None)) -> None:
        """Learn from a part of a round's feedback."""
        offer, decision, feedback = played
        some = Feedback(
            positions=feedback.positions[part], rewards=feedback.rewards[part]
        )
        version = self.policy.version
        self.policy.learn(offer, decision, some, generator(decision.step))
        assert self.policy.version > version, "rewards were not learned"

    # --- checks ----------------------------------------------------------------------------

    def check_decision(self, offer: Offer, decision: Decision) -> None:
        assert decision.step == offer.step
        positions = decision.positions
        assert len(positions) > 0, "nothing was chosen"
        assert len(np.unique(positions)) == len(positions)
        assert offer.available is not None
        assert offer.available[positions].all(), "an arm that is not available"
        if self.is_walk:
            assert len(positions) == 1
        else:
            assert self.oracle.is_feasible(offer, decision), "not feasible"
        for numbers in (decision.mean, decision.std, decision.desirability):
            assert numbers is not None
            assert numbers.shape == positions.shape
            assert_finite(numbers)
        belief = self.policy.posterior.belief(offer)
        assert_finite(belief.mean)
        assert_finite(belief.std)
        assert (belief.std >= 0.0).all()

    def check_restored(self, step: int) -> None:
        """A policy from its spec and its saved state decides alike."""
        state = restored(self.policy.state())
        plain = json.dumps(to_json(spec_of(self.policy)), allow_nan=False)
        blank: Policy = build("policy", from_json(json.loads(plain)))
        resumed = blank.restored(state)
        assert state_bytes(resumed) == state_bytes(self.policy), "restored otherwise"
        offer = self.offer(step)
        expected = self.policy.decide(offer, generator(step))
        actual = resumed.decide(offer, generator(step))
        assert_equal(
            actual.positions, expected.positions, "restored: decides otherwise"
        )
        assert actual.mean is not None
        assert expected.mean is not None
        assert_close(actual.mean, expected.mean, 1e-7, "restored: believes otherwise")

    def check_drift(self) -> None:
        """Where the posterior follows a drift, it knows less of rewards far in the future."""
        name = self.composition.posterior
        drifting = posterior_sample(name, drifts=True)
        if self.composition.drift == STATIC or drifting == posterior_sample(
            name, drifts=False
        ):
            return
        now = self.offer(ROUNDS)
        later = replace(now, time=ROUNDS + _FAR)
        std_now = self.policy.posterior.belief(now).std
        std_later = self.policy.posterior.belief(later).std
        # Of the little that was learned an episode ago, little is left: but more than rounding.
        assert std_later.sum() > (1.0 + 1e-9) * std_now.sum(), "time is ignored"

    def check_switching(self) -> None:
        """Where switching costs more than anything, the policy stays with what it did before."""
        name = self.composition.movement.partition(" ")[2]
        if price_of(name) is None:
            return
        policy = self.build(self.composition.spec(dear=True))
        offer = replace(self.offer(1), available=None, previous_action=None)
        before = policy.decide(offer, generator(1))
        policy.commit(before)
        again = replace(offer, step=2).after(before.action)
        # Pending arms and another seed may suggest others, but nothing is worth switching.
        decision = policy.decide(again, generator(2))
        stays = set(decision.positions.tolist()) <= set(before.positions.tolist())
        assert stays, "the switching cost was ignored"


def play_all(compositions: Iterable[Composition]) -> Iterator[Played]:
    """Play compositions, one after the other; a defect is caught and yielded.

    What is refused is refused before any feedback comes: so it is not played again for feedback that
    comes otherwise.

    Args:
        compositions: What to play.
    """
    refusals: dict[Composition, Outcome] = {}
    for composition in compositions:
        same = composition._replace(feedback="")
        if same in refusals:
            yield Played(composition, refusals[same])
            continue
        try:
            outcome = play(composition)
        except Exception as error:
            yield Played(composition, None, error)
            continue
        if not outcome.runs:
            refusals[same] = outcome
        yield Played(composition, outcome)
