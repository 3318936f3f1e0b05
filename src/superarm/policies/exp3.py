"""Exp3 that starts anew at intervals: a baseline for rewards that drift.

RExp3 of *Stochastic Multi-Armed-Bandit Problem with Non-stationary Rewards* (2014). It ignores that
arms are similar.

Notation

=========  =======================================================================
``K``      arms
``Δ``      ``block``: steps between two resets
``γ``      share of plays at random, min{1, √(K ln K/((e − 1) Δ))}
``w``      weights, (K,), kept as logarithms; all 1 at the start of a block
``p``      probabilities, (K,): (1 − γ) w/Σw + γ/K
``X``      a reward, scaled from [low, high] to [0, 1] and clipped
=========  =======================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Decision, Direction, Feedback, Floats, Offer, Rng, State
from superarm.core.errors import InputError, StateError
from superarm.core.inputs import (
    LARGEST,
    as_count,
    as_features,
    as_generator,
    as_number,
    as_scale,
    as_vector,
    read_only,
    require_type,
)
from superarm.core.registry import register
from superarm.models import Model
from superarm.oracles import TopK
from superarm.posteriors.fixed import FixedArms
from superarm.posteriors.variances import prior_variance

from .answers import select
from .base import Learner
from .ledger import check_rewards

_ROUNDING = 1e-9


class _Weights(NamedTuple):
    """Replaced as one, so that a thread that decides sees weights with their block."""

    number: int  # of the block that they belong to
    logs: Floats


@register("policy", "exp3")
class Exp3(Learner):
    """One arm a round, drawn by weights that rise with rewards; all equal again every ``block`` steps.

    A reward of an arm multiplies its weight by exp(γ X/(p K)), where p is the decision's propensity. So
    the rewards of a block may come late and in any order. A reward that comes after one from a later
    block is counted in ``ignored`` and not learned. Arms that are not available have probability 0, and
    the probabilities of the others are scaled up.

    Args:
        arms: The fixed arms, one row of features each.
        block: How many steps lie between two resets.
        low: The least reward; any reward below counts as this one.
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
        ends = {"low": low, "high": high}
        self.low, self.high = (
            as_number(ends[name], name, -LARGEST, LARGEST) for name in ends
        )
        if not self.low < self.high:
            raise InputError(f"low is {low} and high is {high}; low must be below high")
        K = as_count(len(self.arms), "the number of arms")
        self.gamma = min(
            1.0, math.sqrt(K * math.log(K) / ((math.e - 1.0) * self.block))
        )
        self.ignored = 0
        self._weights = _Weights(0, np.zeros(K))

    def probabilities(self, offer: Offer) -> Floats:
        """Of every arm on offer, (n,)."""
        rows, (number, logs) = self._fixed.locate(offer.arms).keys, self._weights
        known = (
            logs if number == (offer.step - 1) // self.block else np.zeros_like(logs)
        )
        weights = np.exp(known - known.max())
        p = ((1.0 - self.gamma) * weights / weights.sum() + self.gamma / len(logs))[
            rows
        ]
        if offer.available is not None:
            p = np.where(offer.available, p, 0.0)
        return np.asarray(p / max(p.sum(), np.finfo(float).tiny))

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        require_type(offer, Offer, "offer")
        p, drawn = self.probabilities(offer), np.zeros(len(offer.arms))
        if p.any():
            drawn[as_generator(rng).choice(len(p), p=p)] = 1.0
        drawn[p == 0.0] = -np.inf
        action, positions = select(TopK(k=1), drawn, offer, rng)
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
        K, p = len(self.arms), decision.propensity
        if (
            p is None
            or not p >= self.gamma / K * (1.0 - _ROUNDING)
            or len(decision.positions) != 1
        ):
            raise InputError(
                f"the decision has {len(decision.positions)} arms and propensity {p}, so another "
                f"policy made it; this plays one arm, with probability at least {self.gamma / K:.3g}"
            )
        rows = self._fixed.locate(offer.arms).keys[feedback.positions]
        (held, logs), number = self._weights, (decision.step - 1) // self.block
        if number < held:
            self.ignored += len(rows)
        elif len(rows):
            logs = logs.copy() if number == held else np.zeros(K)
            X = np.clip(
                (feedback.rewards - self.low) / (self.high - self.low), 0.0, 1.0
            )
            gain = X if self.direction == "maximize" else 1.0 - X
            logs[rows] += self.gamma * gain / (p * K)
            self._weights = _Weights(number, logs)

    def _memory(self) -> Mapping[str, Any]:
        number, logs = self._weights
        return {"ignored": self.ignored, "number": number, "log_weights": logs}

    def _remember(self, state: State) -> None:
        self.ignored, number = (
            as_count(state.scalar(name), name, 0) for name in ("ignored", "number")
        )
        logs = as_vector(state.array("log_weights"), "log_weights", len(self.arms))
        # A reward adds 1 at most, and a block has so many.
        if logs.min() < 0.0 or logs.sum() > self.block * (1.0 + _ROUNDING):
            raise StateError("this state is damaged: no rewards give its weights")
        self._weights = _Weights(number, logs.copy())


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
        model: What the learner is told about the problem.
        variation: V_T: the largest change of any arm's scaled mean from one round to the next,
            added up over all rounds; unused where block is given.
        block: How many steps lie between two resets; computed from T, V_T and the number of arms
            where left out.
        low: The least reward; where left out, the least of prior mean − 3 prior standard deviations
            over all arms.
        high: The largest reward; where left out, the largest of prior mean + 3 prior standard
            deviations over all arms.
    """
    if model.arms is None:
        told = "RExp3 needs fixed arms, but the arms of this problem change every round; use 'cc-mab'"
        raise InputError(told)
    if not isinstance(model.oracle, TopK) or model.oracle.k != 1:
        raise InputError(
            f"RExp3 plays one arm a round, but the oracle is {model.oracle!r:.60}; use RExp3 "
            "with the oracle TopK(k=1), or choose a policy for super arms, such as 'cc-mab'"
        )
    K = len(model.arms)
    if block is None:
        ratio = model.horizon / as_scale(variation, "variation")
        block = max(
            1, math.ceil((K * math.log(K)) ** (1.0 / 3.0) * ratio ** (2.0 / 3.0))
        )
    mean = np.asarray(model.mean(model.arms) if callable(model.mean) else model.mean)
    reach = 3.0 * np.sqrt(prior_variance(model.kernel, model.arms))
    return Exp3(
        arms=model.arms,
        block=block,
        low=float((mean - reach).min()) if low is None else low,
        high=float((mean + reach).max()) if high is None else high,
        direction=model.direction,
    )
