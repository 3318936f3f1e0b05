"""The protocols of the parts in the flow Offer → Decision → Feedback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, overload, runtime_checkable

from numpy.typing import NDArray

from .arrays import Bools, Direction, Floats, Gamma, Ints, Rng
from .records import (
    Best,
    Decision,
    Feedback,
    JointPrediction,
    Offer,
    Prediction,
    Selection,
)
from .state import State


@runtime_checkable
class Covariance(Protocol):
    """All that a posterior needs of a kernel. scikit-learn's kernels satisfy it."""

    def __call__(self, X: Any, Y: Any = None) -> Floats:
        """Covariances of arms.

        Args:
            X: Feature rows, (n, d).
            Y: Feature rows, (m, d); ``X`` by default.
        """

    def diag(self, X: Any) -> Floats:
        """Prior variances, (n,).

        Args:
            X: Feature rows, (n, d).
        """


@runtime_checkable
class Belief(Protocol):
    """A posterior seen through the arms on offer."""

    @property
    def mean(self) -> Floats:
        """Posterior mean of every arm on offer, (n,)."""

    @property
    def std(self) -> Floats:
        """Posterior standard deviation of every arm on offer, (n,)."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of one observation."""

    @property
    def cov(self) -> Floats:
        """Posterior covariance of all arms on offer, (n, n)."""

    @property
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""

    @property
    def incumbent(self) -> float:
        """Highest posterior mean among arms observed so far; 0 before any data."""

    def sample(self, rng: Rng) -> Floats:
        """One joint draw of the latent rewards, (n,).

        Args:
            rng: The generator to draw from.
        """

    def condition(self, positions: Ints) -> Belief:
        """The belief after observing some arms, as far as it is known now: same mean, smaller std.

        Args:
            positions: Positions of the arms in the offer, (k,).
        """

    def negated(self) -> Belief:
        """The belief about minus the reward: how costs are minimised."""


@runtime_checkable
class Posterior(Protocol):
    """What was learned about every arm's reward."""

    @property
    def exchangeable(self) -> bool:
        """Whether observations may come in any order."""

    @property
    def draws(self) -> bool:
        """Whether ``observe`` draws from its generator, which it then needs."""

    @property
    def count(self) -> int:
        """Observations so far."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of one observation where none is given with it."""

    @property
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""

    def keys(self, offer: Offer) -> NDArray[Any]:
        """What this posterior calls the arms on offer, one entry or row each.

        ``observe`` and ``predict`` take keys. They contain the offer's time where a posterior needs it,
        so that late feedback is dated by its own offer.

        Args:
            offer: The offer of a round.
        """

    def observe(
        self,
        arms: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: Rng | None = None,
    ) -> None:
        """Learn the rewards of these arms: all of them, or none if one is refused.

        Args:
            arms: Keys of the arms, as :meth:`keys` returns them, one for each reward.
            rewards: (m,), in the user's sign.
            noise_variance: The variance of each reward's noise where it is known.
            rng: Needed only where ``draws`` is true.
        """

    @overload
    def predict(
        self, arms: Any, return_std: bool = True, return_cov: Literal[False] = False
    ) -> Prediction: ...
    @overload
    def predict(
        self, arms: Any, return_std: bool = True, *, return_cov: Literal[True]
    ) -> JointPrediction: ...
    def sample(self, arms: Any, rng: Rng, size: int = 1) -> Floats:
        """Joint draws of the latent reward, (size, n).

        Args:
            arms: Keys of n arms.
            rng: The generator to draw from.
            size: The number of draws.
        """

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Belief:
        """This posterior seen through the arms on offer.

        Args:
            offer: The offer of a round.
            pending: Keys of arms that were chosen and not yet observed. They leave the mean unchanged
                and reduce the uncertainty as if they were observed.
        """

    def state(self) -> State:
        """Everything observed, and the spec of the posterior."""

    def restored(self, state: State) -> Posterior:
        """A posterior like this one with the memory of a state, up to rounding.

        Args:
            state: The state of a posterior with the same parameters.
        """


@runtime_checkable
class Schedule(Protocol):
    """How wide a confidence interval is in round ``step``."""

    def width(self, step: int, gamma: Gamma) -> float:
        """The factor of the standard deviation in a round; 0 or more.

        Args:
            step: The round, from 1.
            gamma: Returns the information gain; a schedule that needs none does not call it.
        """


@runtime_checkable
class Rule(Protocol):
    """Turns a belief into one desirability per arm."""

    @property
    def deterministic(self) -> bool:
        """Whether ``desirability`` never draws from ``rng``."""

    def desirability(self, belief: Belief, step: int, rng: Rng) -> Floats:
        """How good each arm on offer looks, (n,): larger is better.

        Args:
            belief: The belief about the arms on offer.
            step: The round, from 1.
            rng: Used only where ``deterministic`` is false.
        """


Rescore = Callable[[Ints], Floats]
"""Desirabilities, recomputed once some arms are chosen (for oracles that build a set step by step)."""


@runtime_checkable
class Oracle(Protocol):
    """Finds the feasible super arm of largest total desirability."""

    @property
    def deterministic(self) -> bool:
        """Whether ``select`` never draws from ``rng``."""

    def select(
        self,
        desirability: Floats,
        structure: object,
        rng: Rng,
        rescore: Rescore | None = None,
    ) -> Selection:
        """The feasible super arm of largest total desirability, as far as the guarantee goes.

        Args:
            desirability: One number per arm on offer, (n,); −∞ bars an arm.
            structure: The round's constraints, such as the endpoints of a trip.
            rng: Used only where ``deterministic`` is false.
            rescore: Desirabilities once some arms are chosen, for oracles that build a set arm by arm.
        """


@runtime_checkable
class SwitchingCost(Protocol):
    """The known cost of each arm after the previous action."""

    @property
    def fixed_arms(self) -> bool:
        """Whether arms are identified by position, which must then mean the same in every round."""

    def costs(self, offer: Offer) -> Floats:
        """The cost of every arm on offer, (n,), 0 or more; all 0 where nothing was done before.

        Args:
            offer: The offer of a round, with its previous action.
        """


@runtime_checkable
class DecisionSet(Protocol):
    """The arms that an algorithm itself allows in a round."""

    def allowed_arms(self, offer: Offer) -> Bools:
        """Whether each arm on offer may be chosen, (n,).

        Args:
            offer: The offer of a round.
        """


@runtime_checkable
class Policy(Protocol):
    """Decides, commits, learns."""

    @property
    def deterministic(self) -> bool:
        """Whether ``decide`` and ``learn`` never draw from ``rng``."""

    @property
    def exchangeable(self) -> bool:
        """Whether feedback may be learned in any order; if not, only in decision order."""

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose a super arm among the arms on offer; the policy does not change.

        Call it as often as you like, and :meth:`commit` the decision that you take.

        Args:
            offer: The arms of this round; its ``step`` identifies the decision.
            rng: Used only where the policy is not ``deterministic``.
        """

    def commit(self, decision: Decision) -> None:
        """Take a decision: its arms are pending until their rewards are learned.

        Args:
            decision: A decision of this policy.
        """

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Learn the rewards of some or all arms of a committed decision, each of them once.

        Args:
            offer: The offer that the decision answers.
            decision: The decision that was committed.
            feedback: Rewards of chosen arms; the others may follow later, or never.
            rng: Used only where the posterior draws when it learns.
        """

    def state(self) -> State:
        """Everything learned and pending, and the spec of the policy."""

    def restored(self, state: State) -> Policy:
        """A policy like this one with the memory of a state.

        Args:
            state: The state of a policy with the same parameters.
        """


@runtime_checkable
class Reward(Protocol):
    """What a super arm is worth, given what its arms yield: monotone in each of them."""

    @property
    def lipschitz(self) -> float:
        """B: the worth changes by at most B · Σ|change of an outcome|."""

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        """The worth of a super arm.

        Args:
            outcomes: What its arms yield, (k,).
            positions: Positions of its arms in the offer, (k,).
            structure: The structure of the offer.
        """


class Problem(Protocol):
    """A world to learn in. ``offer(step)`` depends on the problem's seed and the step alone."""

    @property
    def direction(self) -> Direction:
        """Whether rewards are maximised or costs minimised."""

    def offer(self, step: int) -> Offer:
        """What is on offer in a round.

        Args:
            step: The round, from 1.
        """

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        """The round's noise of *all* arms, (n,), so that every policy meets the same.

        Args:
            offer: The offer of the round.
            rng: The generator to draw from.
        """

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        """Noisy rewards of the chosen arms: all or some of them, at once or with ``delays``.

        Args:
            offer: The offer of the round.
            decision: The decision of a policy.
            noise: The round's noise, (n,).
        """

    def value(self, offer: Offer, decision: Decision) -> float:
        """Noiseless value of a super arm.

        Args:
            offer: The offer of the round; its previous action is that of the policy.
            decision: The decision of a policy.
        """

    def best(self, offer: Offer) -> Best:
        """The benchmark: the oracle's super arm under the truth.

        Args:
            offer: The offer of the round.
        """

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        """Further numbers of the round, by name; each is summed over rounds.

        Args:
            offer: The offer of the round.
            decision: The decision of a policy.
            feedback: The rewards that the policy gets.
        """
