"""Plays compositions for a few rounds and checks what all parts promise.

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
"""So long after the last round, rewards that drift are as uncertain as before the first."""


class Outcome(NamedTuple):
    """Whether a composition runs, and why it does not."""

    runs: bool
    reason: str = ""
    """Why the library refuses it; empty if it runs."""
    order: str = ""
    """Why the library refuses feedback out of decision order; empty if it accepts any order, or if
    feedback came at once."""


class CompositionResult(NamedTuple):
    """The outcome of a composition, or its defect."""

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
        # Samples are small and not tuned, so some posteriors warn that they lose digits.
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
        self.is_walk = composition.movement_family == "metric"
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
        if self.composition.movement_family == "switching":
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
        """Decide three times, then learn a part of the second decision first; returns a refusal's reason."""
        first, second, third = [self.decide(step) for step in (1, 2, 3)]
        if len(second.decision.positions) > 1:
            self.learn(second, slice(1))
            order = self.learn_earlier(first)
            self.learn(second, slice(1, None))
        else:
            self.learn(second)
            order = self.learn_earlier(first)
        self.check_restored(4)  # while the third decision is pending
        self.learn(third)
        for step in range(4, ROUNDS + 1):
            self.learn(self.decide(step))
        return order

    def learn_earlier(self, earlier: _Round) -> str:
        """Learn feedback out of decision order, or check that it is refused; returns the reason."""
        if self.policy.exchangeable:
            self.learn(earlier)
            return ""
        try:
            with unchanged(self.policy, "refused feedback"):
                self.learn(earlier)
        except ConflictError as error:
            reason = str(error)
            assert "in the order of decisions" in reason, reason
            return reason
        raise AssertionError("feedback out of order was accepted")

    def offer(self, step: int) -> Offer:
        """The offer of a round: new arms in each, unless a part fixes them."""
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
        """Decide, check the decision and commit it."""
        offer = self.offer(step)
        # Comparing states takes longer than deciding, so only the first and last round do it.
        compares_states = step in (1, ROUNDS)
        with unchanged(self.policy, "decide()") if compares_states else nullcontext():
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

    def learn(self, round_: _Round, part: slice = slice(None)) -> None:
        """Learn from a part of a round's feedback."""
        offer, decision, feedback = round_
        partial_feedback = Feedback(
            positions=feedback.positions[part], rewards=feedback.rewards[part]
        )
        version = self.policy.version
        rng = generator(decision.step)
        self.policy.learn(offer, decision, partial_feedback, rng)
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
        assert state_bytes(resumed) == state_bytes(self.policy), (
            "the restored state differs"
        )
        offer = self.offer(step)
        expected = self.policy.decide(offer, generator(step))
        actual = resumed.decide(offer, generator(step))
        assert_equal(actual.positions, expected.positions, "restored: other decision")
        assert actual.mean is not None
        assert expected.mean is not None
        assert_close(actual.mean, expected.mean, 1e-7, "restored: other means")

    def check_drift(self) -> None:
        """A posterior that follows drift must be less certain of rewards far in the future."""
        name = self.composition.posterior
        drifting = posterior_sample(name, drifts=True)
        static = posterior_sample(name, drifts=False)
        if self.composition.drift == STATIC or drifting == static:
            return
        now = self.offer(ROUNDS)
        later = replace(now, time=ROUNDS + _FAR)
        std_now = self.policy.posterior.belief(now).std
        std_later = self.policy.posterior.belief(later).std
        # A few rounds teach little, so the difference is small, but larger than rounding errors.
        assert std_later.sum() > (1.0 + 1e-9) * std_now.sum(), "time is ignored"

    def check_switching(self) -> None:
        """A policy must repeat its decision if switching costs more than it can gain."""
        name = self.composition.movement.partition(" ")[2]
        if price_of(name) is None:
            return
        policy = self.build(self.composition.spec(prohibit_switching=True))
        offer = replace(self.offer(1), available=None, previous_action=None)
        before = policy.decide(offer, generator(1))
        policy.commit(before)
        next_offer = replace(offer, step=2).after(before.action)
        # Pending arms and another seed may favour other arms, but no gain is worth switching.
        decision = policy.decide(next_offer, generator(2))
        stays = set(decision.positions.tolist()) <= set(before.positions.tolist())
        assert stays, "the switching cost was ignored"


def play_all(compositions: Iterable[Composition]) -> Iterator[CompositionResult]:
    """Play compositions, one after the other; a defect is caught and yielded.

    Refusals come before any feedback, so a refused composition is not played again for the other kind
    of feedback.

    Args:
        compositions: What to play.
    """
    refusals: dict[Composition, Outcome] = {}
    for composition in compositions:
        without_feedback = composition._replace(feedback="")
        if without_feedback in refusals:
            yield CompositionResult(composition, refusals[without_feedback])
            continue
        try:
            outcome = play(composition)
        except Exception as error:
            yield CompositionResult(composition, None, error)
            continue
        if not outcome.runs:
            refusals[without_feedback] = outcome
        yield CompositionResult(composition, outcome)
