"""A bandit that never forgets: ask, act, tell.

Every decision and every reward is an event in a journal, durable before ``ask`` or ``tell`` returns.
What was learned is a cache: a restart reads the journal and continues as if nothing had happened.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Literal, NamedTuple
from uuid import uuid4

import numpy as np

from superarm.core import Decision, Feedback, Offer
from superarm.core.capabilities import Forecaster, KnownPropensity
from superarm.core.display import Displayable
from superarm.core.errors import ConflictError, InputError, NotFoundError, SuperarmError
from superarm.core.inputs import as_number, as_path, require_choice
from superarm.core.serialization import from_json, to_json

from .answers import Answer, Forecast, Recorded, Status, Tell
from .arms import ArmId, as_arms, feedback_by_id, plain_id
from .challenger import Challenger, ShadowReport
from .codec import (
    abandoned_key,
    activated_key,
    arms_to_bytes,
    decided_key,
    no_decision,
)
from .events import Event, Kind, digest, encode_body
from .explain import Explanation, explain
from .export import Export, export_tables, numbered_features
from .fold import DECIDE, Asked, Fold
from .journal import BanditRow, Membership, StaleOwnerError
from .log import Log
from .off_policy import RewardRange
from .open_bandit import export_open_bandit
from .refit import Refit, fit_policy
from .replay import Replay, verify
from .retries import retry_if_stale
from .runtime import runtime
from .spec import BanditSpec
from .storage import Storage
from .tables import FORMATS, Format

EVENTS_PER_SNAPSHOT = 1000
"""Events after which a snapshot is stored: a start folds no more than about these."""
_LONGEST_ID = 200  # characters of an id from outside
_NO_CHALLENGER = "there is no challenger; start one with shadow(policy)"


class _Started(NamedTuple):
    """Rewards that were applied and queued."""

    is_new: bool
    durable: Future[None]


class Bandit(Displayable):
    """A policy with its journal. :func:`create_bandit` and :func:`load_bandit` make one.

    Any number of threads may use it at the same time.
    """

    def __init__(self, row: BanditRow, storage: Storage) -> None:
        self.name = row.name
        self.created = row.created  # seconds since 1970
        self.storage = storage  # which stays open as long as the bandit is used
        self._log = Log(storage.journal, storage.commits, row.id)
        self._lock = RLock()  # whoever holds it applies events
        self._fold: Fold | None = None  # None: must be read from the journal
        self._snapshot_seq = 0  # the last event in a snapshot that was queued
        self._saved_seq = 0  # the last event in the journal's snapshot, as far as known
        self._row = row
        # Whoever holds it follows the journal with the challenger.
        self._following = Lock()
        self._challenger: Challenger | None = None  # follows when a report is wanted

    def _display_fields(self) -> Mapping[str, Any]:
        with self._lock:
            fold = self._current()
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
        """Decide which arms to choose. The decision is durable when this returns.

        Args:
            arms: The arms on offer: features by id, a table, an array, or ids of named arms; by
                default all named arms.
            structure: The constraints of this round, if the oracle has any.
            time: Physical time, for rewards that drift; by default rounds are evenly spaced.
            decision_id: An id of your own. Asking again with the same id returns the same decision.
            deferred: Whether rewards are awaited only after :meth:`activate`, because the decision may
                never be acted on. It needs a policy that learns rewards in any order.
        """
        number = uuid4().hex if decision_id is None else _as_id(decision_id)
        with self._lock:
            fold = self._current()
            offered = as_arms(arms, fold.spec, fold.named)
            blob = arms_to_bytes(offered)
            request = {
                "arms": digest(blob),
                "structure": to_json(structure),
                "time": None if time is None else as_number(time, "time"),
            }
            earlier = self._earlier(fold, decided_key(number))
            if earlier is not None:
                _check_same(earlier, request, f"decision {number!r}")
                asked = fold.asked(earlier)
                durable = self._log.barrier()
            else:
                self._log.remember_arms(request["arms"], offered)
                if deferred:
                    _check_deferrable(fold)
                self._abandon_old(fold)
                offer = fold.offer(offered, structure=structure, time=request["time"])
                decision = fold.decide(offer)
                body = {**request, **_decided(number, fold, offer, decision)}
                if deferred:
                    body["deferred"] = True
                event = fold.next_event(Kind.DECIDED, decided_key(number), body)
                asked = Asked(number, offer, decision, event.time)
                durable = self._record(fold, event, {request["arms"]: blob})
        durable.result()
        return Answer.of(asked)

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
        """Learn rewards of a decision's arms. They are durable when this returns.

        Rewards may come late, in parts and in any order. Passing the same rewards again changes nothing.

        Args:
            decision: The decision, or its id.
            rewards: Rewards by arm id, of all or some of the chosen arms.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            observation_id: An id of your own for these rewards; by default the arms identify them.

        Returns:
            Whether the rewards are new; false if they were recorded before.
        """
        tell = Tell(
            decision=_id_of(decision),
            rewards=rewards,
            noise_variance=noise_variance,
            observation_id=observation_id,
        )
        with self._lock:
            started = self._start_tell(tell)
        started.durable.result()
        return started.is_new

    def tell_many(self, tells: Iterable[Tell]) -> list[bool | SuperarmError]:
        """Learn rewards of many decisions. All of them become durable together.

        Args:
            tells: The arguments of one :meth:`tell` each.

        Returns:
            For each, whether the rewards are new, or the error: one that is refused does not keep
            the others from being learned.
        """
        all_tells = list(tells)
        results: list[_Started | SuperarmError] = []
        with self._lock:
            for tell in all_tells:
                try:
                    results.append(self._start_tell(tell))
                except SuperarmError as error:
                    results.append(error)
        outcomes = [_outcome(result) for result in results]
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, StaleOwnerError):
                outcomes[place] = self._tell_alone(all_tells[place])
        return outcomes

    def _tell_alone(self, tell: Tell) -> bool | SuperarmError:
        try:
            return self.tell(
                tell.decision,
                tell.rewards,
                noise_variance=tell.noise_variance,
                observation_id=tell.observation_id,
            )
        except SuperarmError as error:
            return error

    def _start_tell(self, tell: Tell) -> _Started:
        """Apply and queue rewards."""
        fold = self._current()
        asked = self._asked(fold, tell.decision)
        feedback = feedback_by_id(asked.offer, tell.rewards, tell.noise_variance)
        _check_chosen(asked, feedback)
        key = _observed_key(tell.decision, feedback, tell.observation_id)
        body = {"decision": tell.decision, "feedback": to_json(feedback)}
        earlier = None
        if not fold.is_untouched(tell.decision):
            earlier = self._earlier(fold, key)
        if earlier is not None:
            _check_same(earlier, body, f"rewards of decision {tell.decision!r}")
            return _Started(False, self._log.barrier())
        event = fold.next_event(Kind.OBSERVED, key, body)
        return _Started(True, self._record(fold, event))

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
        """Learn rewards of other decisions than this bandit's, such as last year's.

        Args:
            arms: The arms, as in :meth:`ask`.
            rewards: Rewards by arm id.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            time: When they were observed, for rewards that drift.
            observation_id: An id of your own: observing again with the same id changes nothing.

        Returns:
            Whether the rewards are new.
        """
        number = uuid4().hex if observation_id is None else _as_id(observation_id)
        with self._lock:
            fold = self._current()
            offered = as_arms(arms, fold.spec, fold.named)
            offer = Offer(step=fold.steps + 1, arms=offered, time=time)
            feedback = feedback_by_id(offer, rewards, noise_variance)
            blob = arms_to_bytes(offered)
            request = {
                "arms": digest(blob),
                "time": offer.time,
                "feedback": to_json(feedback),
            }
            self._log.remember_arms(request["arms"], offered)
            key = f"history/{number}"
            earlier = self._earlier(fold, key)
            if earlier is not None:
                _check_same(earlier, request, f"observation {number!r}")
                durable = self._log.barrier()
            else:
                body = {**request, "step": offer.step}
                event = fold.next_event(Kind.HISTORY, key, body)
                durable = self._record(fold, event, {request["arms"]: blob})
        durable.result()
        return earlier is None

    @retry_if_stale
    def abandon(self, decision: Answer | str) -> bool:
        """Stop waiting for a decision's rewards. Rewards that still arrive are learned.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was pending.
        """
        decision_id = _id_of(decision)
        with self._lock:
            fold = self._current()
            self._asked(fold, decision_id)
            is_open = decision_id in fold.open
            durable = self._log.barrier()
            if is_open:
                durable = self._record_abandoned(fold, decision_id)
        durable.result()
        return is_open

    @retry_if_stale
    def activate(self, decision: Answer | str) -> bool:
        """Await the rewards of a deferred decision: it is acted on now.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was deferred until now.
        """
        decision_id = _id_of(decision)
        with self._lock:
            fold = self._current()
            self._asked(fold, decision_id)
            open_decision = fold.open.get(decision_id)
            is_deferred = open_decision is not None and open_decision.deferred
            durable = self._log.barrier()
            if is_deferred:
                key = activated_key(decision_id)
                body = {"decision": decision_id}
                event = fold.next_event(Kind.ACTIVATED, key, body)
                durable = self._record(fold, event)
        durable.result()
        return is_deferred

    def _record_abandoned(self, fold: Fold, decision_id: str) -> Future[None]:
        key = abandoned_key(decision_id)
        event = fold.next_event(Kind.ABANDONED, key, {"decision": decision_id})
        return self._record(fold, event)

    def _abandon_old(self, fold: Fold) -> None:
        """Abandon decisions that are older than the spec's ``max_age``."""
        if fold.spec.max_age is None:
            return
        oldest = clock.time() - fold.spec.max_age
        for decision_id, decision in list(fold.open.items()):
            if decision.time < oldest:
                # Nobody waits for it: the event that follows is durable only after this one.
                self._record_abandoned(fold, decision_id)

    # --- changes of the bandit itself --------------------------------------------------------

    @retry_if_stale
    def name_arms(self, arms: Any) -> None:
        """Store arms once; later calls of ``ask`` refer to them by id.

        Args:
            arms: The arms, as in :meth:`ask`. They replace arms named before.
        """
        with self._lock:
            fold = self._current()
            named = as_arms(arms, fold.spec, fold.named)
            blob = arms_to_bytes(named)
            name = digest(blob)
            self._log.remember_arms(name, named)
            event = fold.numbered_event(Kind.NAMED, {"arms": name})
            durable = self._record(fold, event, {name: blob})
        durable.result()

    def respecify(self, spec: Any) -> None:
        """Replace the bandit's spec. The new policy learns all rewards recorded so far.

        Args:
            spec: The new spec, as in :func:`create_bandit`.
        """
        complete = BanditSpec.from_user(spec)
        complete.build_policy()  # raises before anything changes
        self._change_spec(Kind.RESPECIFIED, complete)

    def refit(self) -> Refit:
        """Fit the hyper-parameters of the kernel to all rewards recorded so far.

        Returns:
            The spec with the fitted kernel, noise and mean, and how well they explain the rewards.
        """
        with self._lock:
            fold = self._current()
            self._log.flush()
            fitted = fit_policy(fold.policy, fold.spec, fold.lessons(), fold.seq + 1)
            self._change_spec(Kind.REFITTED, fitted.spec)
        return fitted

    @retry_if_stale
    def _change_spec(
        self, kind: Kind, spec: BanditSpec, *, switched: bool = False
    ) -> None:
        with self._lock:
            fold = self._current()
            self._log.flush()  # the new policy learns from durable events
            body: dict[str, Any] = {"spec": spec.as_json()}
            if switched:
                body["switched"] = True
            event = fold.numbered_event(kind, body)
            try:
                durable = self._record(fold, event)
            except BaseException:
                # A policy that cannot learn the rewards so far: the one before is read again.
                self._fold = None
                raise
        durable.result()

    # --- a challenger ------------------------------------------------------------------------

    @retry_if_stale
    def shadow(self, spec: Any) -> None:
        """Let a challenger decide on the same offers, without acting. It survives restarts.

        Args:
            spec: A policy, the spec of one by registry names, or a :class:`BanditSpec`; ``None`` ends
                the challenger. A policy alone takes everything else from the bandit. A challenger that
                runs already is replaced, and the report starts anew.
        """
        with self._lock:
            fold = self._current()
            table = None
            if spec is not None:
                challenger = BanditSpec.from_user(spec, default=fold.spec)
                challenger.build_policy()  # raises before anything changes
                table = challenger.as_json()
            elif fold.challenge is None:
                return
            event = fold.numbered_event(Kind.CHALLENGED, {"spec": table})
            durable = self._record(fold, event)
        durable.result()

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
        stated_range = None
        if reward_range is not None:
            low, high = reward_range
            stated_range = RewardRange(low=low, high=high)
        as_number(level, "level", 0.0, 1.0)
        if level in (0.0, 1.0):
            raise InputError(f"level is {level}; it must be between 0 and 1")
        with self._lock:
            fold = self._current()
            challenge = fold.challenge
            last = fold.seq
        if challenge is None:
            raise NotFoundError(_NO_CHALLENGER)
        self._log.flush()
        with self._following:
            challenger = self._challenger
            if challenger is None or challenger.challenge.seq != challenge.seq:
                challenger = Challenger(self._separate_log(), challenge)
                self._challenger = challenger
            challenger.catch_up(last)
            return challenger.report(stated_range, level)

    def switch(self) -> None:
        """Make the challenger the policy. It has learned all rewards recorded so far."""
        with self._lock:
            challenge = self._current().challenge
            if challenge is None:
                raise NotFoundError(_NO_CHALLENGER)
            self._change_spec(Kind.RESPECIFIED, challenge.spec, switched=True)

    # --- questions -------------------------------------------------------------------------

    @property
    def spec(self) -> BanditSpec:
        """What the bandit is made of."""
        with self._lock:
            return self._current().spec

    @property
    def seq(self) -> int:
        """The number of the last event, which is durable."""
        with self._lock:
            seq = self._current().seq
            durable = self._log.barrier()
        durable.result()
        return seq

    def events(self, after: int = 0) -> Iterator[Event]:
        """The durable events in order.

        Args:
            after: The number of the event to start after.
        """
        return self._log.events(after)

    @retry_if_stale
    def decision(self, decision_id: str) -> Recorded:
        """A decision of any age, and what became of it.

        Args:
            decision_id: Its id.
        """
        with self._lock:
            fold = self._current()
            asked = self._asked(fold, _as_id(decision_id))
            open_decision = fold.open.get(decision_id)
            unseen = set() if open_decision is None else set(open_decision.unseen)
            if open_decision is not None and open_decision.deferred:
                status = Status.DEFERRED
            elif open_decision is not None:
                is_whole = len(unseen) == len(asked.decision.positions)
                status = Status.PENDING if is_whole else Status.PARTIAL
            elif self._log.event(abandoned_key(decision_id)) is not None:
                status = Status.ABANDONED
            else:
                status = Status.REWARDED
            durable = self._log.barrier()
        durable.result()  # nobody hears of what may still fail
        ids: Any = asked.offer.arms.ids
        awaiting = [ids[position] for position in sorted(unseen)]
        return Recorded(Answer.of(asked), status, asked.time, awaiting)

    @property
    def pending(self) -> list[str]:
        """Ids of the decisions that await rewards, the oldest first."""
        with self._lock:
            decisions = self._current().open
            return [name for name, item in decisions.items() if not item.deferred]

    @retry_if_stale
    def probabilities(self, decision_id: str) -> dict[ArmId, float]:
        """Probability of each arm on offer, when a decision was taken.

        It is recorded where the spec has ``hash_columns``.

        Args:
            decision_id: The id of the decision.
        """
        with self._lock:
            fold = self._current()
            event = self._earlier(fold, decided_key(_as_id(decision_id)))
            if event is None:
                raise no_decision(decision_id)
            ids: Any = fold.asked(event).offer.arms.ids
        recorded = event.body.get("probabilities")
        if recorded is None:
            raise InputError(
                f"decision {decision_id!r} has no recorded probabilities; record them with "
                "hash_columns in the spec and a policy such as 'exploring'"
            )
        return dict(zip(ids, recorded, strict=True))

    def predict(self, arms: Any = None, *, time: float | None = None) -> Forecast:
        """Mean and standard deviation of each arm, in the order of ``arms``.

        Args:
            arms: The arms, as in :meth:`ask`.
            time: Physical time, for rewards that drift.
        """
        with self._lock:
            fold = self._current()
            offered = as_arms(arms, fold.spec, fold.named)
            policy = fold.policy
            if not isinstance(policy, Forecaster):
                raise InputError(f"{type(policy).__name__} makes no predictions")
            beliefs = policy.beliefs(fold.offer(offered, time=time))
        ids: Any = [plain_id(arm) for arm in offered.ids]
        return Forecast(arms=ids, mean=beliefs.mean, std=beliefs.std)

    def explain(self, decision: Answer | str) -> Explanation:
        """Explain a decision by what was known when it was taken.

        This folds the journal up to the decision, which takes as long as loading without a snapshot.

        Args:
            decision: The decision, or its id.
        """
        decision_id = _id_of(decision)
        return explain(self._separate_log(), decision_id)

    def verify(
        self, report: Callable[[Replay], None] | None = None, *, decide: bool = True
    ) -> Replay:
        """Fold the journal from its first event, repeat every decision, and compare.

        Args:
            report: Called after every event, to show progress.
            decide: Whether to decide again; otherwise the journal is only folded.
        """
        return verify(self._separate_log(), report, decide)

    def export(
        self,
        folder: str | Path,
        *,
        file_format: Format = "csv",
        layout: Literal["flat", "open-bandit"] = "flat",
        features: bool = False,
    ) -> Export:
        """Write the journal as tables, each file completely or not at all.

        Args:
            folder: Where the files go; it is created if it does not exist.
            file_format: ``"csv"``, or ``"parquet"`` with the extra of that name.
            layout: ``"flat"``: decisions, choices and history. ``"open-bandit"``: as the Open Bandit
                Dataset, which needs known propensities.
            features: Whether to write the features of arms, too.
        """
        require_choice(file_format, "file_format", FORMATS)
        require_choice(layout, "layout", ("flat", "open-bandit"))
        target = as_path(folder, "folder")
        with self._lock:
            fold = self._current()
            last = fold.seq
            encoding = fold.spec.encoding
        self._log.flush()
        log = self._separate_log()
        if layout == "open-bandit":
            return export_open_bandit(log, last, target, file_format, features=features)
        names = None
        if features:
            names = numbered_features(log, last) if encoding is None else encoding.names
        return export_tables(log, last, target, file_format, names)

    def _separate_log(self) -> Log:
        """The journal with a cache of its own, which does not displace the arms of the asks."""
        return Log(self.storage.journal, self.storage.commits, self._row.id)

    # --- events ----------------------------------------------------------------------------

    def _current(self) -> Fold:
        """What is learned so far, read from the journal if necessary."""
        if self._fold is not None and self._is_behind(self._fold):
            self._fold = None
        if self._fold is None:
            self._log.reset()
            self._log.settle()  # what is queued belongs to what is learned
            self._fold = Fold.load(self._log)
            self._snapshot_seq = self._fold.seq
            self._saved_seq = self._fold.restored_seq
        return self._fold

    def _is_behind(self, fold: Fold) -> bool:
        """Whether another process has appended to this bandit."""
        is_shared = isinstance(self.storage.journal, Membership)
        return is_shared and self._log.last_seq() > fold.seq

    def _earlier(self, fold: Fold, key: str) -> Event | None:
        """The event with a key; ``None`` if there is none.

        Raises:
            StaleOwnerError: Another process recorded it, and memory does not know it yet.
        """
        event = self._log.event(key)
        if event is not None and event.seq > fold.seq:
            self._fold = None
            raise StaleOwnerError("another process has appended to this bandit")
        return event

    def _asked(self, fold: Fold, decision_id: str) -> Asked:
        """A decision of any age."""
        recent = fold.recent(decision_id)
        if recent is not None:
            return recent
        event = self._earlier(fold, decided_key(decision_id))
        if event is None:
            raise no_decision(decision_id)
        return fold.asked(event)

    def _record(
        self, fold: Fold, event: Event, blobs: Mapping[str, bytes] | None = None
    ) -> Future[None]:
        """Apply an event and queue it; the future is done when it is durable.

        The fold is the one that the event was made with: another one may have replaced it in the
        meantime, because the journal could not be written. Then the event fails as well.
        """
        try:
            fold.apply(event)
            durable = self._log.append(event, blobs or {})
        except SuperarmError:
            # A policy that learns at once refuses rewards as a whole; others may learn some.
            if fold.seq == event.seq or not fold.policy.exchangeable:
                self._fold = None
            raise
        except BaseException:
            self._fold = None  # memory may be ahead of the journal
            raise

        def drop_if_failed(finished: Future[None]) -> None:
            if finished.exception() is not None and self._fold is fold:
                # Memory is ahead of the journal: it is read again when somebody asks next.
                self._fold = None

        durable.add_done_callback(drop_if_failed)
        if fold.seq - self._snapshot_seq >= EVENTS_PER_SNAPSHOT:
            self._log.save_snapshot(fold.snapshot())
            self._snapshot_seq = fold.seq
        return durable

    def load(self) -> None:
        """Read the journal now, so that the first request need not."""
        with self._lock:
            self._current()

    def forget(self) -> None:
        """Drop what is in memory; the next call reads the journal."""
        with self._lock:
            self._fold = None

    def save_snapshot(self) -> None:
        """Store what is learned so far, so that the next start is fast."""
        with self._lock:
            fold = self._current()
            seq = fold.seq
            durable = self._log.save_snapshot(fold.snapshot())
            self._snapshot_seq = seq
        durable.result()
        with self._lock:
            self._saved_seq = max(self._saved_seq, seq)

    def needs_snapshot(self) -> bool:
        """Whether events are in memory that the last snapshot does not contain."""
        with self._lock:
            return self._fold is not None and self._fold.seq > self._saved_seq


# --- events --------------------------------------------------------------------------------


def _decided(
    decision_id: str, fold: Fold, offer: Offer, decision: Decision
) -> dict[str, Any]:
    """What an event ``decided`` records besides the request: its other inputs, and the decision."""
    body = {
        "id": decision_id,
        "after": fold.seq,
        "pending": fold.pending_digest(),
        "stream": [fold.spec.seed, DECIDE, offer.step],
        "runtime": runtime(),
        "previous_action": to_json(offer.previous_action),
        "decision": to_json(decision),
    }
    if fold.spec.hash_columns is not None and isinstance(fold.policy, KnownPropensity):
        probabilities = fold.policy.inclusion(offer)
        if probabilities is not None:
            body["probabilities"] = probabilities.tolist()
    return body


def _check_deferrable(fold: Fold) -> None:
    if not fold.policy.exchangeable:
        raise InputError(
            f"{type(fold.policy).__name__} learns in decision order, so that it cannot defer a "
            "decision: later ones would wait for it"
        )


def _observed_key(
    decision_id: str, feedback: Feedback, observation_id: str | None
) -> str:
    if observation_id is not None:
        return f"observation/{decision_id}/{_as_id(observation_id)}"
    positions = ",".join(map(str, sorted(feedback.positions.tolist())))
    return f"rewards/{decision_id}/{digest(positions.encode())}"


def _check_same(earlier: Event, request: Mapping[str, Any], what: str) -> None:
    """Refuse another request under an id that was used before."""
    for name, value in request.items():
        if _comparable(name, value) != _comparable(name, earlier.body[name]):
            raise ConflictError(
                f"{what}: already recorded with different {name}; use another id"
            )


def _check_chosen(asked: Asked, feedback: Feedback) -> None:
    """Refuse rewards of arms that the decision did not choose."""
    chosen_positions = set(asked.decision.positions.tolist())
    others = set(feedback.positions.tolist()) - chosen_positions
    if others:
        arm = asked.offer.arms.ids[min(others)]
        chosen = ", ".join(str(arm) for arm in asked.decision.ids(asked.offer)[:9])
        raise InputError(
            f"decision {asked.id!r} did not choose arm {arm!r}; it chose {chosen}"
        )


def _outcome(result: _Started | SuperarmError) -> bool | SuperarmError:
    """Wait until rewards are durable."""
    if isinstance(result, SuperarmError):
        return result
    try:
        result.durable.result()
    except SuperarmError as error:
        return error
    return result.is_new


def _comparable(name: str, value: Any) -> str:
    """A value of a body as text. Rewards are sorted by arm: those of a mapping have no order."""
    if name == "feedback":
        feedback: Feedback = from_json(value)
        order = np.argsort(feedback.positions)
        noise = feedback.noise_variance
        in_order = Feedback(
            positions=feedback.positions[order],
            rewards=feedback.rewards[order],
            noise_variance=None if noise is None else noise[order],
        )
        value = to_json(in_order)
    return encode_body({name: value})


# --- ids -----------------------------------------------------------------------------------


def _as_id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID:
        raise InputError(
            f"an id must be text of 1 to {_LONGEST_ID} characters, got {value!r:.60}"
        )
    # It is part of a URL, and of a key.
    if not value.isprintable() or "/" in value or value in (".", ".."):
        raise InputError(
            f"an id must be printable text without '/', and not '.' or '..', got {value!r:.60}"
        )
    return value


def _id_of(decision: Answer | str) -> str:
    return decision.id if isinstance(decision, Answer) else _as_id(decision)
