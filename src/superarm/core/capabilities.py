"""Optional abilities of problems, policies and oracles: base classes to derive from.

Nothing in the flow needs them; the simulator and the reports do more where they are present.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints
from .records import Forecast, Offer, Prediction


class Metric(NamedTuple):
    """How to read a number that every round has, for people and for programs."""

    label: str
    """Words for it, without its unit."""
    unit: str = ""
    kind: Literal["total", "per round", "ratio"] = "total"
    """How many rounds are summarised: by their sum, by their mean, or as a ratio already computed."""
    better: Literal["up", "down", ""] = ""
    """The better direction; empty where there is none."""
    headline: bool = False
    """Whether it comes first, before regret."""

    @property
    def text(self) -> str:
        """Label and unit, such as ``energy per trip (Wh)``."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


REGRET = Metric("cumulative regret", better="down")
OWN_METRICS = {"regret": REGRET, "alpha_regret": Metric("alpha regret", better="down")}
"""The metrics of the simulator itself."""


class HasMetrics(ABC):
    """A problem that describes its metrics; those of others have only names."""

    @property
    @abstractmethod
    def measures(self) -> Mapping[str, Metric]:
        """Descriptions by the names that ``metrics`` uses, and of ``regret`` where it has a unit."""


class AdditiveProblem(ABC):
    """A problem with fixed arms, the same in every offer, whose rewards add up.

    The simulator then also records how many different arms were tried, how well forecasts were
    calibrated, and the final beliefs.
    """

    @property
    @abstractmethod
    def distinct(self) -> str:
        """The name of the number of different arms tried, such as ``distinct_edges``."""

    @abstractmethod
    def truth(self, offer: Offer) -> Floats | None:
        """The expected reward of every arm on offer, (n,); ``None`` where it is unknown.

        Args:
            offer: The offer of a round.
        """


class HorizonFree:
    """A problem whose rounds do not depend on the horizon: a longer run begins like a shorter one.

    The learner's model may depend on the horizon.
    """


class Resumable:
    """A policy, or a posterior, that resumes from its state bit for bit as if it had never stopped."""

    @property
    def same_bits(self) -> bool:
        """Whether it does so with its present parts and data."""
        return True


class Forecaster(ABC):
    """A policy that forecasts what a super arm will yield."""

    @abstractmethod
    def forecast(self, offer: Offer, positions: Ints) -> Forecast:
        """What some arms are expected to yield, in the user's sign.

        Args:
            offer: The offer of a round.
            positions: Positions of k arms in it, (k,).
        """

    @abstractmethod
    def beliefs(self, offer: Offer) -> Prediction:
        """Mean and standard deviation of every arm on offer.

        Args:
            offer: The offer of a round.
        """

    @property
    @abstractmethod
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""


class KnownPropensity(ABC):
    """A policy that draws super arms, and computes the probability of any of them.

    A super arm is a set: the order of its arms does not matter.
    """

    @abstractmethod
    def propensity(self, offer: Offer, positions: Ints) -> float | None:
        """Probability that the policy chooses exactly these arms; ``None`` if it is not known.

        Args:
            offer: The offer of a round.
            positions: Positions of k arms in it, (k,).
        """

    @abstractmethod
    def least_propensity(self, offer: Offer, positions: Ints) -> float:
        """A bound below the probability of every super arm of as many arms, whatever was learned.

        It is 0 if there is no better bound, or if the policy never chooses these arms together.

        Args:
            offer: The offer of a round.
            positions: Positions of k arms in it, (k,).
        """

    @abstractmethod
    def inclusion(self, offer: Offer) -> Floats | None:
        """Probability that each arm on offer is among the chosen ones, (n,); ``None``: not known.

        Args:
            offer: The offer of a round.
        """


class ReportsSettings:
    """A policy that may choose settings before the first round, such as by cross-validation."""

    interpretations: str = ""
    """What it chose and how: text for a report."""


class ComparesOnly:
    """An oracle that uses only the order of desirabilities, not their scale."""


class Ranking(ABC):
    """A rule whose desirabilities may only rank arms, so that their sums are meaningless."""

    @property
    @abstractmethod
    def ranks_only(self) -> str:
        """Advice if an oracle adds them up; empty where their sum has a meaning."""


class NeverPositive:
    """A rule whose desirabilities are all at most 0: minus a cost."""


class CostsOnly:
    """An oracle that accepts only costs: desirabilities of at most 0."""


class NeedsGains(ABC):
    """An oracle to which a desirability of 0 or less is worth nothing."""

    @property
    @abstractmethod
    def without_gains(self) -> str:
        """What it does if no desirability is positive, as a verb phrase; empty if it then chooses as usual."""


class OwnActions(ABC):
    """An oracle whose action is not the positions of its arms."""

    @property
    @abstractmethod
    def action_holds(self) -> str:
        """What its action contains, such as "nodes"."""


class TableProblem(ABC):
    """A problem whose rounds differ by noise alone, with one arm a round and no further metrics.

    Many rounds then form a table, which the simulator may hand to a :class:`TablePlayer`.
    """

    @abstractmethod
    def table(self, noise: Floats) -> Floats | None:
        """Rewards of every arm in every round, (T, n); ``None``: rounds must be played one by one.

        Args:
            noise: The noise of every round, (T, n).
        """

    @abstractmethod
    def values(self, positions: Ints) -> Floats:
        """Noiseless values of single arms, (T,).

        Args:
            positions: The arm of each round, (T,).
        """


class TablePlayer(ABC):
    """A policy that can play many rounds in one call."""

    @abstractmethod
    def play_table(
        self,
        offer: Offer,
        rewards: Floats,
        rng_at: Callable[[int], np.random.Generator],
    ) -> Ints | None:
        """Play T rounds from ``offer.step`` as ``decide`` and ``learn`` would, bit for bit.

        Returns the arms' positions, (T,), or ``None``, having changed nothing, if this policy cannot.

        Args:
            offer: The offer of the first round; later ones differ in their step only.
            rewards: Rewards of every arm in every round, (T, n); only those of arms played are learned.
            rng_at: Returns the generator of a step.
        """


class LearnsSums(ABC):
    """A posterior that learns from sums of several arms' rewards."""

    @abstractmethod
    def observe_sums(
        self,
        arms: Any,
        sums: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Learn from sums of rewards.

        Args:
            arms: Keys of m arms, as ``keys`` returns them.
            sums: The sum that each arm belongs to, (m,), from 0 to r − 1.
            rewards: The sums, (r,).
            noise_variance: The variance of each sum's noise where it is known, (r,).
            rng: Needed only where ``draws`` is true.
        """


class SelfCalibrating(ABC):
    """A posterior that calibrates its intervals, and whose noise differs between arms."""

    @abstractmethod
    def noise_cov(self, keys: Any) -> Floats:
        """Covariance of the noise of arms that are observed together, (k, k).

        Args:
            keys: Keys of k arms.
        """

    @abstractmethod
    def widths(self, keys: Any) -> tuple[Floats, Floats]:
        """Half-widths of the intervals of single arms, and of their sum; see ``core.Forecast``.

        Args:
            keys: Keys of k arms.
        """


class ExpectsRewards(ABC):
    """A posterior that learns the rewards of pending arms faster if it is prepared for them."""

    @abstractmethod
    def expect(self, pending: NDArray[Any] | None) -> None:
        """Prepare for rewards; a policy does so whenever it takes a decision while others are pending.

        Beliefs do not change, except by rounding.

        Args:
            pending: Keys of all arms that were chosen and not yet seen, (p,); ``None``: there are none.
        """


class HasPriorCovariance(ABC):
    """A posterior that computes how arms covary before anything is observed.

    With it, ``explain`` ranks rewards by how much they taught about an arm.
    """

    @abstractmethod
    def prior_variances(self, keys: Any) -> Floats:
        """Prior variance of each arm, (m,).

        Args:
            keys: Keys of m arms, as ``keys`` returns them.
        """

    @abstractmethod
    def prior_covariances(self, keys: Any, others: Any) -> Floats:
        """Prior covariance of each arm with each of the others, (m, n).

        Args:
            keys: Keys of m arms, as ``keys`` returns them.
            others: Keys of n arms, perhaps of other offers.
        """


class PartialStd(ABC):
    """A belief whose ``std`` of all arms costs far more than that of a few."""

    @abstractmethod
    def std_at(self, positions: Ints) -> Floats:
        """Standard deviations of some arms, (k,).

        Args:
            positions: Positions of k arms in the offer, (k,).
        """
