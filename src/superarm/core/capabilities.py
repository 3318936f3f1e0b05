"""Optional abilities of problems, policies and oracles: base classes to derive from.

Nothing in the flow needs them; the simulator and the reports do more where they are present.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from .arrays import Floats, Ints
from .records import Forecast, Offer, Prediction


class Metric(NamedTuple):
    """How to read a number that every round has, for people and for programs."""

    label: str  # words for it, without its unit
    unit: str = ""
    kind: Literal["total", "per round", "ratio"] = "total"
    """What stands for many rounds: their sum, their mean, or a ratio that was made already."""
    better: Literal["up", "down", ""] = (
        ""  # the better direction; empty where there is none
    )
    headline: bool = False  # what people ask for first, before regret

    @property
    def text(self) -> str:
        """``energy per trip (Wh)``"""
        return f"{self.label} ({self.unit})" if self.unit else self.label


REGRET = Metric("cumulative regret", better="down")
OWN_METRICS = {"regret": REGRET, "alpha_regret": Metric("alpha regret", better="down")}
"""What the simulator itself measures."""


class HasMetrics(ABC):
    """A problem that says what its metrics are; others are known by their names alone."""

    @property
    @abstractmethod
    def measures(self) -> Mapping[str, Metric]:
        """By the names that ``metrics`` gives them, and ``regret`` where it has a unit."""


class AdditiveProblem(ABC):
    """A problem with fixed arms, the same in every offer, whose rewards add up.

    Of such a problem the simulator also records how many different arms were tried, whether
    forecasts were true, and what was believed and learned at the end.
    """

    @property
    @abstractmethod
    def distinct(self) -> str:
        """What the number of different arms tried is called, such as ``distinct_edges``."""

    @abstractmethod
    def truth(self, offer: Offer) -> Floats | None:
        """The expected reward of every arm on offer, (n,); ``None`` where nobody knows it."""


class HorizonFree:
    """A problem whose rounds do not depend on how many there are: a longer run begins as a shorter one.

    What is told to the learner may depend on it.
    """


class Resumable:
    """A policy, or a posterior, that goes on from its state bit for bit as if it had never stopped."""

    @property
    def same_bits(self) -> bool:
        """Whether it does, made of the parts that it has and with what it has learned."""
        return True


class Forecaster(ABC):
    """A policy that can say beforehand what a super arm will yield."""

    @abstractmethod
    def forecast(self, offer: Offer, positions: Ints) -> Forecast: ...

    @abstractmethod
    def beliefs(self, offer: Offer) -> Prediction:
        """Mean and standard deviation of every arm on offer."""

    @property
    @abstractmethod
    def information_gain(self) -> float:
        """Realised information gain of everything observed so far, in nats."""


class ReportsSettings:
    """A policy that may have chosen something before the first round, such as by cross-validation."""

    interpretations: str = ""  # what, and how: text for a report


class ComparesOnly:
    """An oracle to which only the order of desirabilities matters, not their scale."""


class Ranking(ABC):
    """A rule whose desirabilities may only rank arms, so that sums of them mean nothing."""

    @property
    @abstractmethod
    def ranks_only(self) -> str:
        """What to do where an oracle adds them up; empty where their sum means something."""


class CostsOnly:
    """An oracle that takes costs alone: desirabilities of no more than 0."""


class TableProblem(ABC):
    """A problem whose rounds differ by noise alone, with one arm a round and no further metrics.

    Many rounds then form a table, which the simulator may hand to a :class:`TablePlayer`.
    """

    @abstractmethod
    def table(self, noise: Floats) -> Floats | None:
        """Rewards of every arm in every round, (T, n), from the rounds' noise (T, n).

        ``None``: the rounds must be played one by one.
        """

    @abstractmethod
    def values(self, positions: Ints) -> Floats:
        """Noiseless values of single arms, (T,)."""


class TablePlayer(ABC):
    """A policy that can play many rounds in one call."""

    @abstractmethod
    def play_table(
        self,
        offer: Offer,
        rewards: Floats,
        rng_at: Callable[[int], np.random.Generator],
    ) -> Ints | None:
        """Play rounds ``offer.step`` … as ``decide`` and ``learn`` would, bit for bit.

        Of ``rewards`` (T, n) it learns those of arms it plays, and no others. Returns the arms'
        positions (T,), or ``None``, having changed nothing, if this policy cannot.
        """


class LearnsSums(ABC):
    """A posterior that learns from rewards which are sums of several arms."""

    @abstractmethod
    def observe_sums(
        self,
        arms: Any,
        sums: Any,
        rewards: Any,
        noise_variance: Any = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Learn from rewards (r,), where arm i belongs to reward ``sums[i]``."""


class SelfCalibrating(ABC):
    """A posterior that knows how its own forecasts have fared, and noise that is not one number."""

    @abstractmethod
    def noise_cov(self, keys: Any) -> Floats:
        """Covariance of the noise of these arms, seen together, (k, k)."""

    @abstractmethod
    def widths(self, keys: Any) -> tuple[Floats, Floats]:
        """Half-widths of the intervals of these arms, and of their sum; see ``core.Forecast``."""


class PartialStd(ABC):
    """A belief whose ``std`` of all arms costs far more than that of a few."""

    @abstractmethod
    def std_at(self, positions: Ints) -> Floats: ...
