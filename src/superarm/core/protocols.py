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

    def __call__(self, X: Any, Y: Any = None) -> Floats: ...
    def diag(self, X: Any) -> Floats: ...


@runtime_checkable
class Belief(Protocol):
    """A posterior seen through the arms on offer."""

    @property
    def mean(self) -> Floats: ...  # (n,)
    @property
    def std(self) -> Floats: ...  # (n,)
    @property
    def noise_std(self) -> float: ...
    @property
    def cov(self) -> Floats: ...  # (n, n)
    @property
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""

    @property
    def incumbent(self) -> float:
        """Highest posterior mean among arms observed so far; 0 before any data."""

    def sample(self, rng: Rng) -> Floats:
        """One joint draw of the latent rewards, (n,)."""

    def condition(self, positions: Ints) -> Belief:
        """The belief once these arms will have been observed: same mean, smaller std."""

    def negated(self) -> Belief:
        """The belief about minus the reward: how costs are minimised."""


@runtime_checkable
class Posterior(Protocol):
    """What has been learned about every arm's reward."""

    @property
    def exchangeable(self) -> bool:
        """Whether the order of observations does not matter, so that they may come in any order."""

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

        These are what ``observe`` and ``predict`` take. Keys carry the offer's time where a posterior
        wants it, so that feedback learned late is dated by its own offer.
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
        """Joint draws of the latent reward, (size, n)."""

    def belief(self, offer: Offer, pending: NDArray[Any] | None = None) -> Belief:
        """This posterior seen through the arms on offer.

        ``pending`` are keys of arms that were chosen and not yet seen: the mean stays as it is,
        the uncertainty is what it will be once they are observed.
        """

    def state(self) -> State:
        """Everything observed, and the spec of what observed it."""

    def restored(self, state: State) -> Posterior:
        """A posterior like this one with the memory of ``state``: the same up to rounding."""


@runtime_checkable
class Schedule(Protocol):
    """How wide a confidence interval is in round ``step``."""

    def width(self, step: int, gamma: Gamma) -> float:
        """The factor of the standard deviation in round ``step``, from 1; 0 or more.

        ``gamma`` returns the information gain; a schedule that needs none does not call it.
        """


@runtime_checkable
class Rule(Protocol):
    """Turns a belief into one desirability per arm."""

    @property
    def deterministic(self) -> bool:
        """Whether ``desirability`` leaves ``rng`` alone."""

    def desirability(self, belief: Belief, step: int, rng: Rng) -> Floats:
        """How good each arm on offer looks in round ``step``, (n,): larger is better."""


Rescore = Callable[[Ints], Floats]
"""Desirabilities, recomputed once some arms are chosen (for oracles that build a set step by step)."""


@runtime_checkable
class Oracle(Protocol):
    """Finds the feasible super arm of largest total desirability."""

    @property
    def deterministic(self) -> bool:
        """Whether ``select`` leaves ``rng`` alone."""

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
    """What each arm costs after the previous action, known before it is chosen."""

    @property
    def fixed_arms(self) -> bool:
        """Whether it knows arms by their positions, which then must mean the same in every round."""

    def costs(self, offer: Offer) -> Floats:
        """0 or more for every arm on offer, (n,); all 0 where nothing was done before."""


@runtime_checkable
class DecisionSet(Protocol):
    """Which arms may be chosen in a round, by the algorithm's own choice."""

    def kept(self, offer: Offer) -> Bools:
        """Some of the arms that are available, (n,)."""


@runtime_checkable
class Policy(Protocol):
    """Decides, commits, learns."""

    @property
    def deterministic(self) -> bool:
        """Whether ``decide`` and ``learn`` leave ``rng`` alone."""

    @property
    def exchangeable(self) -> bool:
        """Whether feedback may be learned in any order; if not, only in the order of the decisions."""

    def decide(self, offer: Offer, rng: Rng) -> Decision:
        """Choose a super arm among the arms on offer; nothing changes.

        Ask as often as you like. Call :meth:`commit` with the decision that you take.

        Args:
            offer: The arms of this round; its ``step`` identifies the decision.
            rng: Draws, where the policy is not ``deterministic``.
        """

    def commit(self, decision: Decision) -> None:
        """Take a decision: its arms are pending until their rewards are learned."""

    def learn(
        self, offer: Offer, decision: Decision, feedback: Feedback, rng: Rng
    ) -> None:
        """Learn the rewards of some or all arms of a committed decision, each of them once.

        Args:
            offer: The offer that the decision answers.
            decision: The decision that was committed.
            feedback: Rewards of chosen arms; the others may follow later, or never.
            rng: Draws, where the posterior draws as it learns.
        """

    def state(self) -> State:
        """Everything learned and pending, and the spec of the policy."""

    def restored(self, state: State) -> Policy:
        """A policy like this one with the memory of ``state``."""


@runtime_checkable
class Reward(Protocol):
    """What a super arm is worth, given what its arms yield: monotone in each of them."""

    @property
    def lipschitz(self) -> float:
        """B: the worth changes by at most B · Σ|change of an outcome|."""

    def worth(self, outcomes: Floats, positions: Ints, structure: object) -> float:
        """The worth of arms at these positions (k,) of the offer that yield ``outcomes`` (k,)."""


class Problem(Protocol):
    """A world to learn in. ``offer(step)`` depends on the problem's seed and the step alone."""

    @property
    def direction(self) -> Direction: ...
    def offer(self, step: int) -> Offer:
        """What is on offer in round ``step``, from 1."""

    def noise(self, offer: Offer, rng: Rng) -> Floats:
        """The round's randomness for *all* arms, (n,): every policy meets the same."""

    def feedback(self, offer: Offer, decision: Decision, noise: Floats) -> Feedback:
        """Noisy rewards of the chosen arms: all, or some of them, at once or with ``delays``."""

    def value(self, offer: Offer, decision: Decision) -> float:
        """Noiseless value of the super arm; ``offer.previous_action`` is the policy's own."""

    def best(self, offer: Offer) -> Best:
        """The benchmark: the oracle's super arm under the truth."""

    def metrics(
        self, offer: Offer, decision: Decision, feedback: Feedback
    ) -> Mapping[str, float]:
        """Further numbers of the round, by name; each is summed over rounds."""
