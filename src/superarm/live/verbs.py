"""The verbs of a bandit, wherever it runs: in this process, or behind a service.

:class:`superarm.live.Bandit` and :class:`superarm.client.RemoteBandit` have the same ones, with the
documentation below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from superarm.core.errors import SuperarmError

from .answers import Answer, DecisionDetails, Forecast, Tell
from .events import Event
from .explain import Explanation
from .refit import Refit
from .shadow_report import ShadowReport
from .spec import BanditSpec


class BanditVerbs(Protocol):
    """A policy that decides and learns, with every event in a journal."""

    name: str
    """Its name."""

    # --- ask and tell ----------------------------------------------------------------------

    def ask(
        self,
        arms: Any = None,
        *,
        structure: object = None,
        time: float | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Answer:
        """Decide which arms to choose. The decision is durable when this returns.

        Args:
            arms: The arms on offer: features by id, a table, an array, or ids of named arms; by
                default all named arms.
            structure: The constraints of this round, if the oracle takes any.
            time: Physical time, for rewards that drift; by default rounds are evenly spaced.
            decision_id: An id of your own. A repeated ask with the same id returns the same decision.
            deferred: Whether rewards are awaited only after :meth:`activate`, because the decision may
                never be acted on. It needs a policy that learns rewards in any order.
        """

    def tell(
        self,
        decision: Answer | str,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        observation_id: str | None = None,
    ) -> bool:
        """Learn rewards of a decision's arms. They are durable when this returns.

        Rewards may come late, in parts and in any order. Repeating them changes nothing.

        Args:
            decision: The decision, or its id.
            rewards: Rewards by arm id, of all or some of the chosen arms.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            observation_id: An id of your own for these rewards; by default the arms identify them.

        Returns:
            Whether the rewards are new; false if they were recorded before.
        """

    def tell_many(self, tells: Iterable[Tell]) -> list[bool | SuperarmError]:
        """Learn rewards of many decisions, with one commit.

        Args:
            tells: The arguments of one :meth:`tell` each.

        Returns:
            For each, whether the rewards are new, or the error. Refused rewards do not keep the
            others from being learned.
        """

    def observe(
        self,
        arms: Any,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        time: float | None = None,
        observation_id: str | None = None,
    ) -> bool:
        """Learn rewards that did not come from this bandit's decisions, such as last year's.

        Args:
            arms: The arms, as in :meth:`ask`.
            rewards: Rewards by arm id.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            time: When they were observed, for rewards that drift.
            observation_id: An id of your own. Repeating the call with the same id changes nothing.

        Returns:
            Whether the rewards are new.
        """

    def abandon(self, decision: Answer | str) -> bool:
        """Stop waiting for a decision's rewards. Rewards that still arrive are learned.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was pending.
        """

    def activate(self, decision: Answer | str) -> bool:
        """Activate a deferred decision, because it is acted on: its rewards are awaited from now on.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was deferred until now.
        """

    # --- changes of the bandit itself --------------------------------------------------------

    def name_arms(self, arms: Any) -> None:
        """Store arms once; later asks refer to them by id.

        Args:
            arms: The arms, as in :meth:`ask`. They replace all named arms.
        """

    def respecify(self, spec: Any) -> None:
        """Replace the bandit's spec. The new policy learns all rewards recorded so far.

        Args:
            spec: The new spec, as in ``create_bandit``.
        """

    def refit(self, *, request_id: str | None = None) -> Refit:
        """Fit the hyper-parameters of the kernel to all rewards recorded so far.

        Args:
            request_id: An id of your own. Repeating the call with the same id returns the same fit.

        Returns:
            The spec with the fitted kernel, noise and mean, and how well they explain the rewards.
        """

    # --- a challenger ------------------------------------------------------------------------

    def shadow(self, spec: Any, *, request_id: str | None = None) -> None:
        """Let a challenger decide on the same offers, without acting. It survives restarts.

        Args:
            spec: A policy, the spec of one by registry names, or a :class:`BanditSpec`; ``None`` ends
                the challenger. With a policy alone, the rest of the spec is the bandit's. A challenger that
                is already running is replaced, and the report restarts.
            request_id: An id of your own. Repeating the call with the same id changes nothing.
        """

    def shadow_report(
        self,
        *,
        reward_range: tuple[float, float] | None = None,
        level: float = 0.95,
    ) -> ShadowReport:
        """Estimate what the challenger would have earned, in rewards per decision.

        The first report folds the journal from its first event; later ones only what is new. Asks and
        tells do not wait for it.

        Args:
            reward_range: The least and the greatest possible reward of a decision: the sum over its
                arms. With it, intervals hold for any number of decisions; without it, only for many.
            level: The probability that an interval covers.
        """

    def switch(self, *, request_id: str | None = None) -> None:
        """Make the challenger the policy. It has learned all rewards recorded so far.

        Args:
            request_id: An id of your own. Repeating the call with the same id changes nothing.
        """

    # --- questions -------------------------------------------------------------------------

    @property
    def spec(self) -> BanditSpec:
        """The spec of the bandit."""

    @property
    def seq(self) -> int:
        """The number of the last durable event."""

    @property
    def pending(self) -> list[str]:
        """Ids of the decisions that await rewards, the oldest first."""

    def events(self, after: int = 0) -> Iterator[Event]:
        """The durable events in order.

        Args:
            after: The number of the event to start after.
        """

    def decision(self, decision_id: str) -> DecisionDetails:
        """A decision of any age, with its status.

        Args:
            decision_id: Its id.
        """

    def predict(self, arms: Any = None, *, time: float | None = None) -> Forecast:
        """Mean and standard deviation of each arm, in the order of ``arms``.

        Args:
            arms: The arms, as in :meth:`ask`.
            time: Physical time, for rewards that drift.
        """

    def explain(self, decision: Answer | str) -> Explanation:
        """Explain a decision from what the bandit had learned at the time.

        The explanation has the same kind of reasons for the chosen arms and for those of the runner-up, the
        next best super arm.

        It loads the latest snapshot before the decision and replays the events in between. It searches the
        10,000 events before the decision for teachers.

        Args:
            decision: The decision, or its id.
        """
