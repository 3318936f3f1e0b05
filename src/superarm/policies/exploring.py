"""A policy that sometimes chooses at random, with known probabilities.

What another policy would have earned can be estimated from a log only if every super arm had a known,
positive probability. A policy without chance gives all but one of them probability 0. This one mixes it
with chance:

=========  ====================================================================================
``ε``      probability of a round at random
``C``      number of super arms: the sets of k of the n arms that are available, C(n, k)
``p(S)``   propensity of the super arm S: ε/C + (1 − ε) [S is the choice of the other policy]
=========  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from superarm.core import (
    Decision,
    Direction,
    Feedback,
    Floats,
    Forecast,
    Ints,
    Offer,
    Prediction,
    Rng,
    State,
)
from superarm.core.capabilities import Forecaster, KnownPropensity
from superarm.core.errors import InputError
from superarm.core.inputs import as_generator, as_number, require_type
from superarm.core.registry import register
from superarm.oracles import TopK

from .answers import (
    available_arms,
    certain_choice,
    same_arms,
    uniform_inclusion,
    uniform_propensity,
)
from .base import SavablePolicy
from .index import IndexPolicy


@register("policy", "exploring")
class Exploring(SavablePolicy, Forecaster, KnownPropensity):
    """Chooses as another policy does or, in some rounds, k arms at random, all sets equally likely.

    Every decision has an exact propensity of at least ε/C, so that other policies can be evaluated on
    the log. The other policy learns from all rewards.

    Args:
        policy: The policy to wrap: a deterministic index policy with the oracle top-k.
        epsilon: Probability of a random round, above 0 and at most 1.
    """

    kind = "exploring"
    schema = 1
    deterministic = False

    def __init__(self, *, policy: IndexPolicy, epsilon: float) -> None:
        require_type(policy, IndexPolicy, "policy", ", such as a gp-ucb policy")
        self.epsilon = as_number(epsilon, "epsilon", 0.0, 1.0)
        if self.epsilon == 0.0:
            raise InputError("epsilon must be above 0; otherwise nothing is explored")
        _check_countable(policy)
        self.policy = policy

    @property
    def exchangeable(self) -> bool:
        """Whether feedback may come in any order."""
        return self.policy.exchangeable

    @property
    def direction(self) -> Direction:
        """Whether rewards are maximised or costs minimised."""
        return self.policy.direction

    @property
    def version(self) -> int:
        """How many times the other policy has learned."""
        return self.policy.version

    @property
    def _k(self) -> int:
        oracle: Any = self.policy.oracle  # a TopK
        k: int = oracle.k
        return k

    # --- deciding --------------------------------------------------------------------------

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose arms: at random with probability ε, otherwise as the other policy does.

        Args:
            offer: The arms on offer.
            rng: Where the arms of a round at random are drawn.
        """
        generator = as_generator(rng)
        preferred = self.policy.decide(offer, generator)
        decision = preferred
        if generator.random() < self.epsilon:
            drawn = generator.choice(
                available_arms(offer), size=self._k, replace=False, shuffle=False
            )
            # The other policy may choose only these: so it takes all of them.
            is_drawn = np.zeros(len(offer.arms), dtype=np.bool_)
            is_drawn[drawn] = True
            drawn_offer = replace(offer, available=is_drawn)
            decision = self.policy.decide(drawn_offer, generator)
        propensity = self._propensity(offer, decision.positions, preferred.positions)
        return replace(decision, propensity=propensity)

    def commit(self, decision: Decision) -> None:
        """Take a decision: its arms are pending until they are seen.

        Args:
            decision: The decision.
        """
        self.policy.commit(decision)

    def give_up(self, step: int | None = None) -> None:
        """Stop waiting for feedback: chosen arms are pending no more.

        Args:
            step: The step of the decision; ``None``: all decisions.
        """
        self.policy.give_up(step)

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Teach the other policy.

        Args:
            offer: The offer that the decision was made for.
            decision: The decision.
            feedback: Rewards of all or some of its arms.
            rng: Where a posterior that learns by sampling draws its random numbers.
        """
        self.policy.learn(offer, decision, feedback, rng)

    # --- probabilities of super arms ---------------------------------------------------------

    def propensity(self, offer: Offer, positions: Ints) -> float:
        """Probability of exactly these arms: ε/C + (1 − ε) [the other policy chooses them].

        Args:
            offer: The arms on offer.
            positions: Positions of the arms, (k,).
        """
        preferred = certain_choice(self.policy, offer)
        return self._propensity(offer, positions, preferred)

    def _propensity(self, offer: Offer, positions: Ints, preferred: Ints) -> float:
        by_policy = (1.0 - self.epsilon) * same_arms(positions, preferred)
        # Rounding must not lift it above 1 where there is only one super arm.
        return min(1.0, self.least_propensity(offer, positions) + by_policy)

    def least_propensity(self, offer: Offer, positions: Ints) -> float:
        """ε/C for k arms that are available; 0 for any other choice.

        Args:
            offer: The arms on offer.
            positions: Positions of the arms, (k,).
        """
        return uniform_propensity(offer, positions, self._k, self.epsilon)

    def inclusion(self, offer: Offer) -> Floats:
        """Probability that each arm on offer is chosen, (n,): ε k/n + (1 − ε) [it is preferred].

        Args:
            offer: The arms on offer.
        """
        probabilities = uniform_inclusion(offer, self._k, self.epsilon)
        probabilities[certain_choice(self.policy, offer)] += 1.0 - self.epsilon
        return probabilities

    # --- forecasts -------------------------------------------------------------------------

    def forecast(self, offer: Offer, positions: Ints) -> Forecast:
        """What some arms are expected to yield, in the user's sign.

        Args:
            offer: The arms on offer.
            positions: Positions of k arms in it, (k,).
        """
        return self.policy.forecast(offer, positions)

    def beliefs(self, offer: Offer) -> Prediction:
        """Mean and standard deviation of every arm on offer.

        Args:
            offer: The arms on offer.
        """
        return self.policy.beliefs(offer)

    @property
    def information_gain(self) -> float:
        """Realised information gain, nats."""
        return self.policy.information_gain

    # --- copies and state ------------------------------------------------------------------

    def __copy__(self) -> Self:
        # The other policy learns, so that a copy must not share it.
        duplicate = type(self)(policy=copy(self.policy), epsilon=self.epsilon)
        duplicate.encoding = self.encoding
        return duplicate

    def _memory(self) -> Mapping[str, Any]:
        return {"policy": self.policy.state()}

    def _remember(self, state: State) -> None:
        self.policy = self.policy.restored(state.part("policy"))


def _check_countable(policy: IndexPolicy) -> None:
    """Refuse policies for which the probability of a super arm cannot be computed."""
    oracle = policy.oracle
    if type(oracle) is not TopK:
        raise InputError(
            f"{type(oracle).__name__} cannot count its super arms, so that their probabilities would be "
            "unknown; explore with the oracle top-k"
        )
    if not policy.rule.deterministic:
        raise InputError(
            f"{type(policy.rule).__name__} draws at random, so that the probability of a super arm "
            "would be unknown; explore with a rule without chance, such as ucb"
        )
    if policy.decision_set is not None or policy.switching is not None:
        raise InputError(
            "the policy has a decision set or switching costs, which may bar arms, so that the number "
            "of super arms would be unknown; explore with a policy without them"
        )


def index_policy_of(policy: object) -> IndexPolicy | None:
    """The index policy that a policy is or wraps; ``None`` if there is none.

    Args:
        policy: Any policy.
    """
    if isinstance(policy, Exploring):
        return policy.policy
    return policy if isinstance(policy, IndexPolicy) else None
