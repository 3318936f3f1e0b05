"""A bandit that never forgets: ask, act, tell.

Every decision and every reward is an event in a journal, durable before ``ask`` or ``tell`` returns.
What was learned is a cache: a restart reads the journal and continues as if nothing had happened.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Literal, Self
from uuid import uuid4

from superarm.core import Decision, Feedback, Offer, Prediction
from superarm.core.capabilities import Forecaster
from superarm.core.display import Displayable
from superarm.core.errors import ConflictError, InputError
from superarm.core.inputs import as_number, as_path, require_choice
from superarm.core.serialization import to_json
from superarm.posteriors.fitting import FitResult

from .arms import ArmId, as_arms
from .challenger import Challenger, ShadowReport
from .codec import arms_to_bytes, decided_key
from .events import Event, Kind, digest, encode_body
from .explain import Explanation, explain
from .export import Export, export_tables, numbered_features
from .fold import Asked, Fold
from .journal import BanditRow
from .log import Log
from .off_policy import RewardRange
from .open_bandit import export_open_bandit
from .refit import fit_policy
from .replay import Replay, verify
from .spec import BanditSpec
from .storage import Storage
from .tables import FORMATS, Format

EVENTS_PER_SNAPSHOT = 1000
"""Events after which a snapshot is stored: a start folds no more than about these."""
_LONGEST_ID = 200  # characters of an id from outside
_NO_CHALLENGER = "there is no challenger; start one with shadow(policy)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Displayable):
    """What a bandit decided."""

    id: str
    """The id of the decision, by which rewards are told."""
    action: object
    """What to do: a route, a slate, or the ids of the chosen arms."""
    arms: list[ArmId]
    """Ids of the chosen arms."""
    mean: dict[ArmId, float]
    """Expected reward of each chosen arm."""
    std: dict[ArmId, float]
    """Standard deviation of each chosen arm's expected reward."""
    propensity: float | None = None
    """Probability of this action under the policy, where it is known."""

    @classmethod
    def of(cls, asked: Asked) -> Self:
        """The answer to an ask.

        Args:
            asked: The decision, as it is in the journal.
        """
        decision = asked.decision
        ids: Any = decision.ids(asked.offer)
        return cls(
            id=asked.id,
            action=asked.action,
            arms=ids,
            mean=_by_id(ids, decision.mean),
            std=_by_id(ids, decision.std),
            propensity=decision.propensity,
        )


class Bandit(Displayable):
    """A policy with its journal. :func:`create_bandit` and :func:`load_bandit` make one.

    Any number of threads may use it at the same time.
    """

    def __init__(self, row: BanditRow, storage: Storage) -> None:
        self.name = row.name
        self.storage = storage  # which stays open as long as the bandit is used
        self._log = Log(storage.journal, storage.commits, row.id)
        self._lock = RLock()  # whoever holds it applies events
        self._fold: Fold | None = None  # None: must be read from the journal
        self._snapshot_seq = 0  # the last event in a snapshot that was queued
        self._row = row
        self._following = (
            Lock()
        )  # whoever holds it follows the journal with the challenger
        self._challenger: Challenger | None = None  # follows when a report is wanted

    def _display_fields(self) -> Mapping[str, Any]:
        fold = self._current()
        return {"name": self.name, "policy": fold.policy, "pending": len(fold.open)}

    # --- ask -------------------------------------------------------------------------------

    def ask(
        self,
        arms: Any = None,
        *,
        structure: object = None,
        time: float | None = None,
        decision_id: str | None = None,
    ) -> Answer:
        """Decide which arms to choose. The decision is durable when this returns.

        Args:
            arms: The arms on offer: features by id, a table, an array, or ids of named arms; by
                default all named arms.
            structure: The constraints of this round, if the oracle has any.
            time: Physical time, for rewards that drift; by default rounds are evenly spaced.
            decision_id: An id of your own. Asking again with the same id returns the same decision.
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
            earlier = self._log.event(decided_key(number))
            if earlier is not None:
                _check_same(earlier, request, f"decision {number!r}")
                return Answer.of(fold.asked(earlier))
            self._log.remember_arms(request["arms"], offered)
            self._abandon_old()
            offer = fold.offer(offered, structure=structure, time=request["time"])
            decision = fold.decide(offer)
            event = self._event(
                Kind.DECIDED,
                decided_key(number),
                _decided(number, request, offer, decision),
            )
            durable = self._record(event, {request["arms"]: blob})
        durable.result()
        return Answer.of(Asked(number, offer, decision, event.time))

    # --- tell ------------------------------------------------------------------------------

    def tell(
        self,
        decision: Answer | str,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        observation_id: str | None = None,
    ) -> bool:
        """Learn rewards of a decision's arms. They are durable when this returns.

        Rewards may come late, in parts and in any order. Telling the same again changes nothing.

        Args:
            decision: The decision, or its id.
            rewards: Rewards by arm id, of all or some of the chosen arms.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            observation_id: An id of your own for these rewards; by default the arms identify them.

        Returns:
            Whether the rewards are new; false if they were told before.
        """
        decision_id = decision.id if isinstance(decision, Answer) else _as_id(decision)
        with self._lock:
            fold = self._current()
            asked = fold.find(decision_id)
            if asked is None:
                raise InputError(f"there is no decision {decision_id!r}")
            feedback = Feedback.by_id(asked.offer, rewards, noise_variance)
            key = _observed_key(decision_id, feedback, observation_id)
            body = {"decision": decision_id, "feedback": to_json(feedback)}
            earlier = self._log.event(key)
            if earlier is not None:
                _check_same(earlier, body, f"rewards of decision {decision_id!r}")
                return False
            event = self._event(Kind.OBSERVED, key, body)
            durable = self._record(event)
        durable.result()
        return True

    def observe(
        self,
        arms: Any,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        time: float | None = None,
        observation_id: str | None = None,
    ) -> bool:
        """Learn rewards that no decision of this bandit led to, such as those of last year.

        Args:
            arms: The arms, as in :meth:`ask`.
            rewards: Rewards by arm id.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            time: When they were seen, for rewards that drift.
            observation_id: An id of your own: observing again with the same id changes nothing.

        Returns:
            Whether the rewards are new.
        """
        number = uuid4().hex if observation_id is None else _as_id(observation_id)
        with self._lock:
            fold = self._current()
            offered = as_arms(arms, fold.spec, fold.named)
            offer = Offer(step=fold.steps + 1, arms=offered, time=time)
            feedback = Feedback.by_id(offer, rewards, noise_variance)
            blob = arms_to_bytes(offered)
            request = {
                "arms": digest(blob),
                "time": offer.time,
                "feedback": to_json(feedback),
            }
            self._log.remember_arms(request["arms"], offered)
            key = f"history/{number}"
            earlier = self._log.event(key)
            if earlier is not None:
                _check_same(earlier, request, f"observation {number!r}")
                return False
            body = {**request, "step": offer.step}
            event = self._event(Kind.HISTORY, key, body)
            durable = self._record(event, {request["arms"]: blob})
        durable.result()
        return True

    def abandon(self, decision: Answer | str) -> bool:
        """Stop waiting for a decision's rewards. Rewards that come nevertheless are learned.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was waited for.
        """
        decision_id = decision.id if isinstance(decision, Answer) else _as_id(decision)
        with self._lock:
            fold = self._current()
            if fold.find(decision_id) is None:
                raise InputError(f"there is no decision {decision_id!r}")
            if decision_id not in fold.open:
                return False
            durable = self._record_abandoned(decision_id)
        durable.result()
        return True

    def _record_abandoned(self, decision_id: str) -> Future[None]:
        key = f"abandoned/{decision_id}"
        event = self._event(Kind.ABANDONED, key, {"decision": decision_id})
        return self._record(event)

    def _abandon_old(self) -> None:
        """Abandon decisions that are older than the spec's ``max_age``."""
        fold = self._current()
        if fold.spec.max_age is None:
            return
        oldest = clock.time() - fold.spec.max_age
        for decision_id, decision in list(fold.open.items()):
            if decision.time < oldest:
                # Nobody waits for it: the event that follows is durable only after this one.
                self._record_abandoned(decision_id)

    # --- changes of the bandit itself --------------------------------------------------------

    def name_arms(self, arms: Any) -> None:
        """Store arms once; later asks refer to them by id.

        Args:
            arms: The arms, as in :meth:`ask`. They replace those that were named before.
        """
        with self._lock:
            fold = self._current()
            named = as_arms(arms, fold.spec, fold.named)
            blob = arms_to_bytes(named)
            name = digest(blob)
            self._log.remember_arms(name, named)
            event = self._numbered_event(Kind.NAMED, {"arms": name})
            durable = self._record(event, {name: blob})
        durable.result()

    def respecify(self, spec: Any) -> None:
        """Change what the bandit is made of. The new policy learns everything told so far.

        Args:
            spec: The new spec, as in :func:`create_bandit`.
        """
        complete = BanditSpec.from_user(spec)
        complete.build_policy()  # raises before anything changes
        self._change_spec(Kind.RESPECIFIED, complete)

    def refit(self) -> FitResult:
        """Fit the hyper-parameters of the kernel to everything told so far.

        Returns:
            The fitted kernel, noise and mean, and how well they explain the data.
        """
        with self._lock:
            fold = self._current()
            self._log.flush()
            fitted = fit_policy(fold.policy, fold.spec, fold.lessons(), fold.seq + 1)
            self._change_spec(Kind.REFITTED, fitted.spec)
        return fitted.result

    def _change_spec(
        self, kind: Kind, spec: BanditSpec, *, switched: bool = False
    ) -> None:
        with self._lock:
            self._current()
            self._log.flush()  # the new policy learns from durable events
            body: dict[str, Any] = {"spec": spec.as_json()}
            if switched:
                body["switched"] = True
            event = self._numbered_event(kind, body)
            try:
                durable = self._record(event)
            except BaseException:
                # A policy that cannot learn what was told: the one before is read again.
                self._fold = None
                raise
        durable.result()

    # --- a challenger ------------------------------------------------------------------------

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
            event = self._numbered_event(Kind.CHALLENGED, {"spec": table})
            durable = self._record(event)
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
            raise InputError(_NO_CHALLENGER)
        self._log.flush()
        with self._following:
            challenger = self._challenger
            if challenger is None or challenger.challenge.seq != challenge.seq:
                challenger = Challenger(self._separate_log(), challenge)
                self._challenger = challenger
            challenger.catch_up(last)
            return challenger.report(stated_range, level)

    def switch(self) -> None:
        """Make the challenger the policy. It has learned everything told so far."""
        with self._lock:
            challenge = self._current().challenge
            if challenge is None:
                raise InputError(_NO_CHALLENGER)
            self._change_spec(Kind.RESPECIFIED, challenge.spec, switched=True)

    # --- questions -------------------------------------------------------------------------

    @property
    def pending(self) -> list[str]:
        """Ids of the decisions that await rewards, the oldest first."""
        with self._lock:
            return list(self._current().open)

    def predict(self, arms: Any = None, *, time: float | None = None) -> Prediction:
        """Mean and standard deviation of arms, in the order in which they are given.

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
            return policy.beliefs(fold.offer(offered, time=time))

    def explain(self, decision: Answer | str) -> Explanation:
        """Explain a decision by what was known when it was taken.

        This folds the journal up to the decision: it takes as long as a start without a snapshot.

        Args:
            decision: The decision, or its id.
        """
        decision_id = decision.id if isinstance(decision, Answer) else _as_id(decision)
        return explain(self._log, decision_id)

    def verify(self, report: Callable[[Replay], None] | None = None) -> Replay:
        """Fold the journal from its first event, decide everything again, and compare.

        Args:
            report: Called after every event, to show progress.
        """
        return verify(self._log, report)

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
        if self._fold is None:
            self._log.reset()
            self._fold = Fold.load(self._log)
            self._snapshot_seq = self._fold.seq
        return self._fold

    def _event(self, kind: Kind, key: str, body: Mapping[str, Any]) -> Event:
        next_seq = self._current().seq + 1
        return Event(seq=next_seq, key=key, kind=kind, time=clock.time(), body=body)

    def _numbered_event(self, kind: Kind, body: Mapping[str, Any]) -> Event:
        """An event without an id from outside: it is never repeated."""
        return self._event(kind, f"{kind}/{self._current().seq + 1}", body)

    def _record(
        self, event: Event, blobs: Mapping[str, bytes] | None = None
    ) -> Future[None]:
        """Apply an event and queue it; the future is done when it is durable."""
        fold = self._current()
        fold.apply(event)
        durable = self._log.append(event, blobs or {})

        def drop_if_failed(finished: Future[None]) -> None:
            if finished.exception() is not None and self._fold is fold:
                # Memory is ahead of the journal: it is read again when somebody asks next.
                self._fold = None

        durable.add_done_callback(drop_if_failed)
        if fold.seq - self._snapshot_seq >= EVENTS_PER_SNAPSHOT:
            self._log.save_snapshot(fold.snapshot())
            self._snapshot_seq = fold.seq
        return durable

    def save_snapshot(self) -> None:
        """Store what is learned so far, so that the next start is fast."""
        with self._lock:
            fold = self._current()
            durable = self._log.save_snapshot(fold.snapshot())
            self._snapshot_seq = fold.seq
        durable.result()


# --- events --------------------------------------------------------------------------------


def _decided(
    decision_id: str, request: Mapping[str, Any], offer: Offer, decision: Decision
) -> dict[str, Any]:
    """The body of an event ``decided``."""
    return {
        "id": decision_id,
        **request,
        "previous_action": to_json(offer.previous_action),
        "decision": to_json(decision),
    }


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
        if encode_body({name: value}) != encode_body({name: earlier.body[name]}):
            raise ConflictError(
                f"{what} were recorded before with other {name}; use another id"
            )


# --- ids -----------------------------------------------------------------------------------


def _as_id(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_ID:
        raise InputError(
            f"the id {value!r:.60} must be text of 1 to {_LONGEST_ID} characters"
        )
    if not value.isprintable():
        raise InputError(f"the id {value!r:.60} must be printable")
    return value


def _by_id(ids: list[ArmId], values: Any) -> dict[ArmId, float]:
    if values is None:
        return {}
    return dict(zip(ids, values.tolist(), strict=True))
