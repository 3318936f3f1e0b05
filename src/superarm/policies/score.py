"""Score × oracle: policies that do not learn, such as benchmarks and chance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from superarm.core import Decision, Feedback, Floats, Ints, Offer, Oracle, Rng
from superarm.core.capabilities import KnownPropensity, TablePlayer
from superarm.core.inputs import require_part, require_type
from superarm.core.registry import register
from superarm.oracles import TopK

from .answers import (
    certain_choice,
    one_per_arm,
    same_arms,
    select,
    uniform_inclusion,
    uniform_propensity,
)
from .base import SavablePolicy
from .ledger import check_feedback
from .scores import KnownCosts, Score, Truth, Uniform


@register("policy", "score")
class ScorePolicy(SavablePolicy, TablePlayer, KnownPropensity):
    """Selects by a score that does not learn: a benchmark that knows the truth, or chance.

    Args:
        score: The score, which gives every arm its desirability.
        oracle: The oracle, which finds the best combination of scored arms.
    """

    exchangeable = True
    kind = "score-policy"
    schema = 2

    def __init__(self, *, score: Score, oracle: Oracle) -> None:
        require_part(score, Score, "score")
        require_part(oracle, Oracle, "oracle")
        self.score = score
        self.oracle = oracle

    @property
    def deterministic(self) -> bool:
        """Whether decisions draw no random numbers."""
        return self.score.deterministic and self.oracle.deterministic

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose arms: score, select.

        Args:
            offer: The arms on offer.
            rng: Where score and oracle draw their random numbers.
        """
        # A simulator may call ``play_table`` below instead, for many rounds at once.
        require_type(offer, Offer, "offer")
        answer = self.score.desirability(offer, rng)
        desirability = one_per_arm(self.score, answer, len(offer.arms))
        priced_offer = offer
        if isinstance(self.score, KnownCosts):
            priced_offer = self.score.priced(offer)
        action, positions, guarantee = select(
            self.oracle, desirability, priced_offer, rng
        )
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            desirability=desirability[positions],
            propensity=self.score.propensity(offer, positions, self.oracle),
            guarantee=guarantee,
        )

    # --- probabilities of super arms ---------------------------------------------------------

    def propensity(self, offer: Offer, positions: Ints) -> float | None:
        """Probability of exactly these arms; ``None`` for routes by chance.

        Args:
            offer: The arms on offer.
            positions: Positions of the arms, (k,).
        """
        if self.deterministic:
            chosen = certain_choice(self, offer)
            return float(same_arms(chosen, positions))
        k = self._uniform_size()
        if k is None:
            return None
        return uniform_propensity(offer, positions, k)

    def least_propensity(self, offer: Offer, positions: Ints) -> float:
        """The propensity by chance, which is the same for all; 0 where there is no chance.

        Args:
            offer: The arms on offer.
            positions: Positions of the arms, (k,).
        """
        if self.deterministic:
            return 0.0
        return self.propensity(offer, positions) or 0.0

    def inclusion(self, offer: Offer) -> Floats | None:
        """Probability that each arm on offer is among the chosen ones, (n,).

        Args:
            offer: The arms on offer.
        """
        if self.deterministic:
            probabilities = np.zeros(len(offer.arms))
            probabilities[certain_choice(self, offer)] = 1.0
            return probabilities
        k = self._uniform_size()
        if k is None:
            return None
        return uniform_inclusion(offer, k)

    def _uniform_size(self) -> int | None:
        """The number of arms in a super arm if all super arms are equally likely."""
        oracle = self.oracle
        if type(self.score) is not Uniform or type(oracle) is not TopK:
            return None
        return oracle.k

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Check feedback. Nothing is learned.

        Args:
            offer: The offer that the decision was made for.
            decision: The decision.
            feedback: Rewards of all or some of its arms.
            rng: Not used.
        """
        check_feedback(offer, decision, feedback)

    def play_table(
        self, offer: Offer, rewards: Floats, rng_at: Callable[[int], Rng]
    ) -> Ints | None:
        """Play many rounds at once, where every round has the same decision.

        Args:
            offer: The offer of the first round; the others have the same arms.
            rewards: The reward of every arm in every round, (T, n).
            rng_at: Returns the random generator of a step.

        Returns:
            The arm played in every round, (T,); ``None`` if rounds must be played one by one.
        """
        is_constant = isinstance(self.score, KnownCosts | Truth)
        if not is_constant or not self.oracle.deterministic:
            return None
        rng = rng_at(offer.step)
        positions = self.decide(offer, rng).positions
        if len(positions) != 1:
            return None
        return np.full(len(rewards), positions[0])
