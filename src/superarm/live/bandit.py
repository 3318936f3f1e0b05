"""A live bandit: ask, act, tell.

Every decision and every reward is an event in a journal, durable before ``ask`` or ``tell`` returns.
What was learned is a cache: a restart reads the journal and continues as if nothing had happened.
:class:`~superarm.live.verbs.BanditVerbs` documents the verbs that it shares with a bandit of a service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from superarm.core import Offer
from superarm.core.capabilities import Forecaster
from superarm.core.display import Displayable
from superarm.core.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    SuperarmError,
)
from superarm.core.inputs import as_count, as_path, require_choice, require_type
from superarm.core.serialization import to_json

from .ages import AgeLimit
from .answers import Answer, DecisionDetails, Forecast, Tell
from .arms import ArmId, as_arms, feedback_by_id, is_list_of_ids, plain_id
from .asks import Ask, decided_body
from .bandit_journal import BanditJournal
from .challenger import Challenger
from .codec import EncodedArms, encode_arms
from .current_fold import CurrentFold
from .decisions import DecisionRecord, no_decision
from .event_keys import (
    abandoned_key,
    activated_key,
    decided_key,
    history_key,
    observed_key,
    request_key,
)
from .events import Event, Kind
from .explain import Explanation, explain
from .export import LAYOUTS, Layout, export_journal
from .fold import Fold
from .ids import as_id, as_id_or_new, decision_id_of
from .journal import BanditRow, Membership, StaleOwnerError
from .off_policy import as_reward_range, check_level
from .receipts import Receipt, outcome_of
from .refit import Refit, fit_policy
from .repeats import check_same
from .replay import Replay, verify
from .retries import retry_if_stale
from .shadow_report import ShadowReport
from .spec import BanditSpec
from .storage import Storage
from .tables import FORMATS, Export, Format
from .verbs import BanditVerbs

_MOST_EVENTS = 2**63 - 1  # a column holds no larger number
_NO_CHALLENGER = "there is no challenger; start one with shadow(policy) or, over HTTP, with PUT …/challenger"


class _Request(NamedTuple):
    """A change of the bandit itself that has an id."""

    key: str | None
    """The key of its event; ``None`` without an id."""
    earlier: Event | None
    """The event that the same request recorded before."""


class Bandit(Displayable, BanditVerbs):
    """A policy with its journal. :func:`create_bandit` and :func:`load_bandit` make one.

    Any number of threads may use it at the same time.

    Args:
        row: The bandit, as the storage lists it.
        storage: Where its journal is. It stays open as long as the bandit is used.
    """

    def __init__(self, row: BanditRow, storage: Storage) -> None:
        self.name = row.name
        self.created = row.created  # seconds since 1970
        self.storage = storage
        self._row = row
        self._journal = self._separate_journal()
        is_shared = isinstance(storage.journal, Membership)
        self._current = CurrentFold(self._journal, is_shared=is_shared)
        self._ages = AgeLimit()
        self._encoded_names: EncodedArms | None = None  # cache of the named arms
        self._challenger: Challenger | None = None  # it follows the journal on request
        self._following = Lock()  # guards the challenger

    def _display_fields(self) -> Mapping[str, Any]:
        with self._current.locked() as fold:
            return {"name": self.name, "policy": fold.policy, "pending": len(fold.open)}

    # --- ask -------------------------------------------------------------------------------

    @retry_if_stale
    def ask(
        self,
        arms: Any = None,
        *,
        structure: object = None,
        time: float | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Answer:
        decision_id = as_id_or_new(decision_id)
        with self._current.locked() as fold:
            earlier = self._current.find_event(fold, decided_key(decision_id))
            offered = self._encode_offered(fold, arms, earlier)
            ask = Ask.of(
                decision_id,
                offered,
                structure=structure,
                time=time,
                deferred=deferred,
            )
            if earlier is not None:
                check_same(earlier, ask.request, f"decision {decision_id!r}")
                record = fold.reader.decision(earlier)
                durable = self._journal.barrier()
            else:
                record, durable = self._decide(fold, ask)
        durable.result()
        return Answer.of(record)

    def _decide(self, fold: Fold, ask: Ask) -> tuple[DecisionRecord, Future[None]]:
        """Take a decision and queue it."""
        if ask.deferred:
            fold.check_deferrable()
        self._abandon_overdue(fold)
        offer = fold.offer(ask.arms.arms, structure=ask.structure, time=ask.time)
        decision = fold.decide(offer)
        key = decided_key(ask.decision_id)
        body = decided_body(ask, fold, offer, decision)
        event = fold.next_event(Kind.DECIDED, body, key)
        durable = self._current.record(fold, event, ask.arms)
        record = DecisionRecord(ask.decision_id, offer, decision, event.time)
        return record, durable

    def _abandon_overdue(self, fold: Fold) -> None:
        if fold.spec.max_age is None:
            return
        oldest = self._ages.oldest(fold.spec.max_age)
        for decision_id in fold.decided_before(oldest):
            # Nobody waits for it: the event that follows is durable only after this one.
            self._record_abandoned(fold, decision_id)

    # --- tell ------------------------------------------------------------------------------

    @retry_if_stale
    def tell(
        self,
        decision: Answer | str,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        observation_id: str | None = None,
    ) -> bool:
        tell = Tell(
            decision=decision_id_of(decision),
            rewards=rewards,
            noise_variance=noise_variance,
            observation_id=observation_id,
        )
        return self._queue_tell(tell).wait()

    def tell_many(self, tells: Iterable[Tell]) -> list[bool | SuperarmError]:
        require_type(tells, Iterable, "tells")
        all_tells = list(tells)
        for place, tell in enumerate(all_tells):
            require_type(tell, Tell, f"tells[{place}]")
        receipts: list[Receipt | SuperarmError] = []
        with self._current.lock:
            for tell in all_tells:
                try:
                    receipts.append(self._queue_tell(tell))
                except SuperarmError as error:
                    receipts.append(error)
        outcomes = [outcome_of(receipt) for receipt in receipts]
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, StaleOwnerError):
                outcomes[place] = self._retry_tell(all_tells[place])
        return outcomes

    def _retry_tell(self, tell: Tell) -> bool | SuperarmError:
        try:
            return self.tell(
                tell.decision,
                tell.rewards,
                noise_variance=tell.noise_variance,
                observation_id=tell.observation_id,
            )
        except SuperarmError as error:
            return error

    def _queue_tell(self, tell: Tell) -> Receipt:
        as_id(tell.decision)
        with self._current.locked() as fold:
            record = self._current.decision(fold, tell.decision)
            feedback = feedback_by_id(record.offer, tell.rewards, tell.noise_variance)
            record.check_chosen(feedback)
            observation_id = tell.observation_id
            if observation_id is not None:
                observation_id = as_id(observation_id)
            key = observed_key(tell.decision, feedback, observation_id)
            body = {"decision": tell.decision, "feedback": to_json(feedback)}
            earlier = None
            if not fold.awaits_all_rewards(tell.decision):
                earlier = self._current.find_event(fold, key)
            if earlier is not None:
                advice = "recorded rewards cannot be changed"
                if observation_id is not None:
                    advice = "use another id, for arms without a reward so far"
                check_same(earlier, body, f"decision {tell.decision!r}", advice)
                return self._no_change()
            event = fold.next_event(Kind.OBSERVED, body, key)
            durable = self._current.record(fold, event, feedback=feedback)
            return Receipt(True, durable)

    @retry_if_stale
    def observe(
        self,
        arms: Any,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        time: float | None = None,
        observation_id: str | None = None,
    ) -> bool:
        observation_id = as_id_or_new(observation_id)
        with self._current.locked() as fold:
            key = history_key(observation_id)
            earlier = self._current.find_event(fold, key)
            offered = self._encode_offered(fold, arms, earlier)
            offer = Offer(step=fold.steps + 1, arms=offered.arms, time=time)
            feedback = feedback_by_id(offer, rewards, noise_variance)
            request = {
                "arms": offered.hash,
                "time": offer.time,
                "feedback": to_json(feedback),
            }
            if earlier is not None:
                check_same(earlier, request, f"observation {observation_id!r}")
                receipt = self._no_change()
            else:
                body = {**request, "step": offer.step}
                event = fold.next_event(Kind.HISTORY, body, key)
                durable = self._current.record(fold, event, offered, feedback)
                receipt = Receipt(True, durable)
        return receipt.wait()

    def _no_change(self) -> Receipt:
        """A request that changes nothing. What was recorded before it must be durable, too."""
        return Receipt(False, self._journal.barrier())

    # --- decisions without rewards -----------------------------------------------------------

    @retry_if_stale
    def abandon(self, decision: Answer | str) -> bool:
        decision_id = decision_id_of(decision)
        with self._current.locked() as fold:
            self._current.decision(fold, decision_id)  # raises if there is none
            if decision_id in fold.open:
                durable = self._record_abandoned(fold, decision_id)
                receipt = Receipt(True, durable)
            else:
                receipt = self._no_change()
        return receipt.wait()

    def _record_abandoned(self, fold: Fold, decision_id: str) -> Future[None]:
        key = abandoned_key(decision_id)
        event = fold.next_event(Kind.ABANDONED, {"decision": decision_id}, key)
        return self._current.record(fold, event)

    @retry_if_stale
    def activate(self, decision: Answer | str) -> bool:
        decision_id = decision_id_of(decision)
        with self._current.locked() as fold:
            self._current.decision(fold, decision_id)  # raises if there is none
            open_decision = fold.open.get(decision_id)
            if open_decision is not None and open_decision.deferred:
                key = activated_key(decision_id)
                body = {"decision": decision_id}
                event = fold.next_event(Kind.ACTIVATED, body, key)
                receipt = Receipt(True, self._current.record(fold, event))
            else:
                receipt = self._no_change()
        return receipt.wait()

    # --- changes of the bandit itself --------------------------------------------------------

    @retry_if_stale
    def name_arms(self, arms: Any) -> None:
        with self._current.locked() as fold:
            named = self._encode_offered(fold, arms)
            event = fold.next_event(Kind.NAMED, {"arms": named.hash})
            durable = self._current.record(fold, event, named)
        durable.result()

    def respecify(self, spec: Any) -> None:
        complete = BanditSpec.from_user(spec)
        complete.build_policy()  # raises before anything changes
        self._change_spec(Kind.RESPECIFIED, {"spec": complete.as_json()})

    @retry_if_stale
    def refit(self, *, request_id: str | None = None) -> Refit:
        with self._current.locked() as fold:
            self._journal.flush()
            request = self._request(fold, "refit", request_id)
            if request.earlier is not None:
                return Refit.from_body(request.earlier.body)
            observations = fold.reader.observations()
            fitted = fit_policy(fold.policy, fold.spec, observations, fold.seq + 1)
            self._change_spec(Kind.REFITTED, fitted.as_body(), request.key)
        return fitted

    @retry_if_stale
    def _change_spec(
        self, kind: Kind, body: Mapping[str, Any], key: str | None = None
    ) -> None:
        with self._current.locked() as fold:
            self._journal.flush()  # the new policy learns from durable events
            event = fold.next_event(kind, body, key)
            try:
                durable = self._current.record(fold, event)
            except BaseException:
                # A policy that cannot learn the rewards so far: the one before is read again.
                self._current.drop()
                raise
        durable.result()

    # --- a challenger ------------------------------------------------------------------------

    @retry_if_stale
    def shadow(self, spec: Any, *, request_id: str | None = None) -> None:
        with self._current.locked() as fold:
            request = self._request(fold, "shadow", request_id)
            table = None
            if spec is not None:
                challenger = BanditSpec.from_user(spec, default=fold.spec)
                challenger.build_policy()  # raises before anything changes
                table = challenger.as_json()
            body = {"spec": table}
            if spec is None and fold.challenge is None:
                durable = self._journal.barrier()  # whoever ended it may still wait
            elif request.earlier is not None:
                check_same(request.earlier, body, f"challenger {request_id!r}")
                durable = self._journal.barrier()
            else:
                event = fold.next_event(Kind.CHALLENGED, body, request.key)
                durable = self._current.record(fold, event)
        durable.result()

    @retry_if_stale
    def shadow_report(
        self,
        *,
        reward_range: tuple[float, float] | None = None,
        level: float = 0.95,
    ) -> ShadowReport:
        stated_range = as_reward_range(reward_range)
        check_level(level)
        with self._current.locked() as fold:
            challenge = fold.challenge
            last = fold.seq
        if challenge is None:
            raise NotFoundError(_NO_CHALLENGER)
        self._journal.flush()
        with self._following:
            challenger = self._challenger
            if challenger is None or challenger.challenge.seq != challenge.seq:
                challenger = Challenger(self._separate_journal(), challenge)
                self._challenger = challenger
            challenger.catch_up(last)
            return challenger.report(stated_range, level)

    @retry_if_stale
    def switch(self, *, request_id: str | None = None) -> None:
        with self._current.locked() as fold:
            request = self._request(fold, "switch", request_id)
            if request.earlier is not None:
                self._journal.flush()
                return
            if fold.challenge is None:
                raise NotFoundError(_NO_CHALLENGER)
            body = {"spec": fold.challenge.spec.as_json(), "switched": True}
            self._change_spec(Kind.RESPECIFIED, body, request.key)

    def _request(self, fold: Fold, verb: str, request_id: str | None) -> _Request:
        """What identifies a change of the bandit itself, and what it recorded if it is repeated."""
        if request_id is None:
            return _Request(None, None)
        key = request_key(verb, as_id(request_id))
        return _Request(key, self._current.find_event(fold, key))

    # --- questions -------------------------------------------------------------------------

    @property
    def spec(self) -> BanditSpec:
        with self._current.locked() as fold:
            return fold.spec

    @property
    @retry_if_stale
    def seq(self) -> int:
        with self._current.locked() as fold:
            seq = fold.seq
            durable = self._journal.barrier()
        durable.result()
        return seq

    @property
    def pending(self) -> list[str]:
        with self._current.locked() as fold:
            return [name for name, item in fold.open.items() if not item.deferred]

    def events(self, after: int = 0) -> Iterator[Event]:
        return self._journal.events(as_count(after, "after", 0, _MOST_EVENTS))

    @retry_if_stale
    def decision(self, decision_id: str) -> DecisionDetails:
        with self._current.locked() as fold:
            record = self._current.decision(fold, as_id(decision_id))
            open_decision = fold.open.get(decision_id)
            abandonment = None
            if open_decision is None:
                abandonment = self._journal.event(abandoned_key(decision_id))
            details = DecisionDetails.of(
                record, open_decision, is_abandoned=abandonment is not None
            )
            durable = self._journal.barrier()
        durable.result()  # nobody hears of what may still fail
        return details

    @retry_if_stale
    def probabilities(self, decision_id: str) -> dict[ArmId, float]:
        """Probability of each arm on offer, when a decision was taken.

        It is recorded where the spec has ``hash_columns``.

        Args:
            decision_id: The id of the decision.
        """
        with self._current.locked() as fold:
            key = decided_key(as_id(decision_id))
            event = self._current.find_event(fold, key)
            if event is None:
                raise no_decision(decision_id)
            ids: Any = fold.reader.decision(event).offer.arms.ids
        probabilities = event.body.get("probabilities")
        if probabilities is None:
            raise InputError(
                f"decision {decision_id!r} has no recorded probabilities; record them with "
                "hash_columns in the spec and a policy such as 'exploring'"
            )
        return dict(zip(ids, probabilities, strict=True))

    def predict(self, arms: Any = None, *, time: float | None = None) -> Forecast:
        with self._current.locked() as fold:
            offered = as_arms(arms, fold.spec, fold.named)
            policy = fold.policy
            if not isinstance(policy, Forecaster):
                raise InputError(f"{type(policy).__name__} cannot predict rewards")
            offer = fold.offer(offered, time=time)
            beliefs = policy.beliefs(offer)
        ids = [plain_id(arm) for arm in offered.ids]
        return Forecast(arms=ids, mean=beliefs.mean, std=beliefs.std)

    @retry_if_stale
    def explain(self, decision: Answer | str) -> Explanation:
        decision_id = decision_id_of(decision)
        self.load()  # after a failed write, what was queued is no longer waited for
        return explain(self._separate_journal(), decision_id)

    # --- the journal -----------------------------------------------------------------------

    def verify(
        self,
        report: Callable[[Replay], None] | None = None,
        *,
        repeat_decisions: bool = True,
    ) -> Replay:
        """Fold the journal from its first event, repeat every decision, and compare.

        Args:
            report: Called after every event, to show progress.
            repeat_decisions: Whether to repeat decisions; otherwise the journal is only folded.
        """
        journal = self._separate_journal()
        return verify(journal, report, repeat_decisions=repeat_decisions)

    @retry_if_stale
    def export(
        self,
        folder: str | Path,
        *,
        file_format: Format = "csv",
        layout: Layout = "flat",
        features: bool = False,
    ) -> Export:
        """Write the journal as tables, each file completely or not at all.

        Args:
            folder: Where the files go; it is created if it does not exist.
            file_format: ``"csv"``, or ``"parquet"`` with the extra of that name.
            layout: ``"flat"``: decisions, choices and history. ``"open-bandit"``: as the Open Bandit
                Dataset, which needs known propensities.
            features: Whether to also write the features of arms.
        """
        require_choice(file_format, "file_format", FORMATS)
        require_choice(layout, "layout", LAYOUTS)
        target = as_path(folder, "folder")
        if target.exists() and not target.is_dir():
            raise ConflictError(f"{target} is a file; choose a folder for the tables")
        with self._current.locked() as fold:
            last = fold.seq
            encoding = fold.spec.encoding
        self._journal.flush()
        return export_journal(
            self._separate_journal(),
            last,
            target,
            file_format=file_format,
            layout=layout,
            features=features,
            encoding=encoding,
        )

    def _encode_offered(
        self, fold: Fold, arms: Any, earlier: Event | None = None
    ) -> EncodedArms:
        """The arms that a user offers, as they are stored.

        A request that is repeated refers by name to the arms that it was recorded with, whatever was
        named since.
        """
        if earlier is not None:
            recorded = self._journal.arms(earlier.body["arms"])
            has_same_ids = is_list_of_ids(arms) and list(arms) == list(recorded.ids)
            if arms is None or has_same_ids:
                return encode_arms(recorded)
        offered = as_arms(arms, fold.spec, fold.named)
        if offered is not fold.named:
            return encode_arms(offered)
        # Asks for all named arms are common, so their encoding is cached.
        encoded = self._encoded_names
        if encoded is None or encoded.arms is not offered:
            encoded = encode_arms(offered)
            self._encoded_names = encoded
        return encoded

    def _separate_journal(self) -> BanditJournal:
        """The journal with a cache of its own, which does not displace the arms of the asks."""
        storage = self.storage
        return BanditJournal(storage.journal, storage.commits, self._row.id)

    # --- memory ----------------------------------------------------------------------------

    def load(self) -> None:
        """Read the journal now, so that the first request need not."""
        with self._current.locked():
            pass  # locking reads the journal

    def forget(self) -> None:
        """Drop the bandit from memory; the next call reads the journal."""
        self._current.drop()

    @retry_if_stale
    def save_snapshot(self) -> None:
        """Store a snapshot, so that the next start is fast."""
        self._current.save_snapshot()

    def needs_snapshot(self) -> bool:
        """Whether events are in memory that no stored snapshot contains."""
        return self._current.needs_snapshot()
