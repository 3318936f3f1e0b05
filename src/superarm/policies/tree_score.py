"""Mirror descent on trees that follows scores which are not learned."""

from __future__ import annotations

from superarm.core import Decision, Feedback, Offer, Rng
from superarm.core.inputs import require_part
from superarm.core.registry import register
from superarm.movement import ActionMetric

from .answers import one_per_arm
from .ledger import check_rewards
from .scores import Score
from .tree_policy import ScoredActions, TreePolicy


@register("policy", "tree-score")
class TreeScorePolicy(TreePolicy):
    """Mirror descent on trees that follows scores which are not learned, such as the truth.

    Args:
        score: The score, which gives every action its desirability.
        metric: The cost of moving from one action to the next.
        trees: Number of random trees; episodes take them in turn.
        tau: τ: edges of a tree are at least this many times shorter than those one level above.
        kappa: κ, 1 or more: how fast mirror descent follows the costs.
    """

    kind = "tree-score-policy"
    schema = 1
    exchangeable = True

    def __init__(
        self,
        *,
        score: Score,
        metric: ActionMetric,
        trees: int = 1,
        tau: float = 2.0,
        kappa: float = 1.0,
    ) -> None:
        super().__init__(
            metric=metric, direction="minimize", trees=trees, tau=tau, kappa=kappa
        )
        require_part(score, Score, "score")
        self.score = score

    def _score_actions(self, offer: Offer, begins: bool, rng: Rng) -> ScoredActions:
        answer = self.score.desirability(offer, rng)
        desirability = one_per_arm(self.score, answer, len(offer.arms))
        return ScoredActions(desirability, None)

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        # Nothing is learned, but feedback that makes no sense is refused.
        check_rewards(feedback)
