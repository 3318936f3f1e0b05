"""Exp3 with regular resets: a baseline for rewards that drift.

RExp3 of *Stochastic Multi-Armed-Bandit Problem with Non-stationary Rewards* (2014). It ignores that
arms are similar.

Notation

=========  =======================================================================
``K``      arms
``Δ``      ``block``: steps between two resets
``γ``      share of plays at random, min{1, √(K ln K/((e − 1) Δ))}
``w``      weights, (K,), stored as logarithms; all 1 at the start of a block
``p``      probabilities, (K,): (1 − γ) w/Σw + γ/K
``X``      a reward, scaled from [low, high] to [0, 1] and clipped
=========  =======================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import (
    Decision,
    Direction,
    Feedback,
    Floats,
    Ints,
    Offer,
    Rng,
    State,
)
from superarm.core.capabilities import KnownPropensity
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import (
    LARGEST,
    as_count,
    as_features,
    as_generator,
    as_number,
    as_scale,
    read_only,
    require_type,
)
from superarm.core.registry import register
from superarm.models import Model
from superarm.oracles import TopK
from superarm.posteriors.fixed import FixedArms
from superarm.posteriors.variances import prior_variance

from .answers import is_feasible, select
from .base import Learner
from .ledger import check_rewards

_ROUNDING = 1e-9


class _Weights(NamedTuple):
    """One record, so that a thread that decides sees weights with their block."""

    block: int  # number of the block that they belong to
    logs: Floats  # (K,)


@register("policy", "exp3")
class Exp3(Learner, KnownPropensity):
    """One arm a round, drawn by weights that rise with rewards, reset every ``block`` steps.

    A reward of an arm multiplies its weight by exp(γ X/(p K)), where p is the decision's propensity. So
    the rewards of a block may come late and in any order. A reward that comes after one from a later
    block is counted in ``ignored`` and not learned. Arms that are not available have probability 0, and
    the probabilities of the others are scaled up.

    Args:
        arms: The fixed arms, one row of features each.
        block: Steps between two resets.
        low: The smallest reward; any reward below counts as this one.
        high: The largest reward; any reward above counts as this one.
        direction: Whether rewards are maximised or costs minimised.
    """

    kind = "exp3"
    schema = 1
    deterministic = False
    exchangeable = True

    def __init__(
        self,
        *,
        arms: Any,
        block: int,
        low: float,
        high: float,
        direction: Direction = "maximize",
    ) -> None:
        super().__init__(direction=direction)
        self.arms = read_only(as_features(arms, "arms"))
        self._fixed = FixedArms(self.arms)
        self.block = as_count(block, "block", 1, LARGEST)
        self.low = as_number(low, "low", -LARGEST, LARGEST)
        self.high = as_number(high, "high", -LARGEST, LARGEST)
        if not self.low < self.high:
            raise InputError(f"low is {low} and high is {high}; low must be below high")
        K = as_count(len(self.arms), "the number of arms")
        share = math.sqrt(K * math.log(K) / ((math.e - 1.0) * self.block))
        self.gamma = min(1.0, share)
        self.ignored = 0
        """Rewards of earlier blocks that came late, and were not learned."""
        self._weights = _Weights(0, np.zeros(K))

    def probabilities(self, offer: Offer) -> Floats:
        """The probability of every arm on offer, (n,).

        Args:
            offer: The arms on offer.
        """
        rows = self._fixed.locate(offer.arms).keys
        block, logs = self._weights
        if block != self._block_of(offer.step):
            logs = np.zeros_like(logs)  # a new block: all weights are 1
        w = np.exp(logs - logs.max())
        # p = (1 − γ) w/Σw + γ/K, (K,)
        by_weight = (1.0 - self.gamma) * w / w.sum()
        by_chance = self.gamma / len(logs)
        p_all = by_weight + by_chance
        p = p_all[rows]
        if offer.available is not None:
            p = np.where(offer.available, p, 0.0)
        smallest = np.finfo(float).tiny  # where no arm is available
        total = max(p.sum(), smallest)
        return np.asarray(p / total)

    def propensity(self, offer: Offer, positions: Ints) -> float:
        """Probability of one arm; 0 for several.

        Args:
            offer: The arms on offer.
            positions: Positions of the arms, (k,).
        """
        if len(positions) != 1:
            return 0.0
        return float(self.probabilities(offer)[positions[0]])

    def least_propensity(self, offer: Offer, positions: Ints) -> float:
        """γ/K for one arm that is available; 0 for any other choice.

        Args:
            offer: The arms on offer.
            positions: Positions of the arms, (k,).
        """
        if not is_feasible(offer, positions, k=1):
            return 0.0
        return self.gamma / len(self.arms)

    def inclusion(self, offer: Offer) -> Floats:
        """The probability of every arm on offer, (n,).

        Args:
            offer: The arms on offer.
        """
        return self.probabilities(offer)

    def _block_of(self, step: int) -> int:
        """The number of the block that a step belongs to."""
        return (step - 1) // self.block

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Draw one arm by its probability.

        Args:
            offer: The arms on offer.
            rng: Where the arm is drawn.
        """
        require_type(offer, Offer, "offer")
        p = self.probabilities(offer)
        desirability = np.zeros(len(offer.arms))
        if p.any():
            drawn_arm = as_generator(rng).choice(len(p), p=p)
            desirability[drawn_arm] = 1.0
        desirability[p == 0.0] = -np.inf
        action, positions, _ = select(TopK(k=1), desirability, offer, rng)
        return Decision(
            step=offer.step,
            action=action,
            positions=positions,
            desirability=p[positions],
            propensity=float(p[positions[0]]),
            version=self.version,
        )

    def _absorb(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        check_rewards(feedback)
        K = len(self.arms)
        p = decision.propensity
        count = len(decision.positions)
        least = self.gamma / K
        least_accepted = least * (1.0 - _ROUNDING)
        if p is None or not p >= least_accepted or count != 1:
            raise InputError(
                f"the decision has {count} arms and propensity {p}, so another policy made it; this "
                f"plays one arm, with probability at least {least:.3g}"
            )
        offered_rows = self._fixed.locate(offer.arms).keys
        rows = offered_rows[feedback.positions]
        block = self._block_of(decision.step)
        current_block, logs = self._weights
        if block < current_block:
            self.ignored += len(rows)
        elif len(rows):
            is_current = block == current_block
            logs = logs.copy() if is_current else np.zeros(K)
            gain = self._gain(feedback.rewards)
            logs[rows] += self.gamma * gain / (p * K)
            self._weights = _Weights(block, logs)

    def _gain(self, rewards: Floats) -> Floats:
        """X: rewards scaled to [0, 1], of which larger is better, (k,)."""
        spread = self.high - self.low
        scaled = (rewards - self.low) / spread
        X: Floats = np.clip(scaled, 0.0, 1.0)
        return X if self.direction == "maximize" else 1.0 - X

    def _memory(self) -> Mapping[str, Any]:
        block, logs = self._weights
        return {
            **super()._memory(),
            "ignored": self.ignored,
            "number": block,
            "log_weights": logs,
        }

    def _remember(self, state: State) -> None:
        super()._remember(state)
        self.ignored = state.count("ignored", 0)
        block = state.count("number", 0)
        K = len(self.arms)
        logs = state.vector("log_weights", K)
        # A reward adds at most 1, and a block has at most that many rewards.
        largest_sum = self.block * (1.0 + _ROUNDING)
        if logs.min() < 0.0 or logs.sum() > largest_sum:
            raise StateError("this state is damaged: no rewards give its weights")
        self._weights = _Weights(block, logs.copy())


@register("policy", "rexp3")
def rexp3(
    model: Model,
    *,
    variation: float = 1.0,
    block: int | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Exp3:
    """RExp3 [besbes2014stochastic]: Exp3, reset every Δ = ⌈(K ln K)^{1/3} (T/V_T)^{2/3}⌉ steps.

    Args:
        model: The learner's model of the problem.
        variation: V_T: the largest change of any arm's scaled mean from one round to the next,
            added up over all rounds; unused where block is given.
        block: Steps Δ between two resets; ``None``: computed from T, V_T and the number of arms.
        low: The smallest reward; ``None``: the smallest prior mean − 3 prior standard deviations
            of any arm.
        high: The largest reward; ``None``: the largest prior mean + 3 prior standard deviations of
            any arm.
    """
    if model.arms is None:
        raise InputError(
            "RExp3 needs fixed arms, but the arms of this problem change every round; use 'cc-mab'"
        )
    if not isinstance(model.oracle, TopK) or model.oracle.k != 1:
        raise InputError(
            f"RExp3 plays one arm a round, but the oracle is {model.oracle!r:.60}; use RExp3 "
            "with the oracle TopK(k=1), or choose a policy for super arms, such as 'cc-mab'"
        )
    K = len(model.arms)
    if block is None:
        ratio = model.horizon / as_scale(variation, "variation")
        length = (K * math.log(K)) ** (1.0 / 3.0) * ratio ** (2.0 / 3.0)
        block = max(1, math.ceil(length))
    mean_values = model.mean(model.arms) if callable(model.mean) else model.mean
    mean = np.asarray(mean_values)
    variance = prior_variance(model.kernel, model.arms)
    reach = 3.0 * np.sqrt(variance)
    if low is None:
        low = float((mean - reach).min())
    if high is None:
        high = float((mean + reach).max())
    return Exp3(
        arms=model.arms, block=block, low=low, high=high, direction=model.direction
    )
