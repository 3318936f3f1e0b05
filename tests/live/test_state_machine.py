"""A bandit against a model: whatever is done to it, in whatever order, with restarts and failures."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from fault_table import FaultCounts
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from superarm.core import Arms, Offer
from superarm.core.errors import ConflictError, NotFoundError, SuperarmError
from superarm.core.streams import stream
from superarm.kernels import SquaredExponential
from superarm.live import Storage, create_bandit, load_bandit
from superarm.live.decisions import Status
from superarm.live.event_reader import EventReader
from superarm.live.events import Kind
from superarm.live.fold import LEARN
from superarm.live.journal import Append, StorageError
from superarm.live.replay import Replay
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import SparseVariational, StreamingGP
from superarm.rules import UCB, Fixed

MENUS = (
    {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]},
    {"tea": [0.9, 0.1], "rum": [0.4, 0.4]},
    {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.2, 0.8], "rum": [0.4, 0.4]},
)
KERNEL = SquaredExponential(lengthscale=0.3)
REWARDS = st.sampled_from((-1.0, 0.0, 0.25, 1.0, 3.5))
IDS = st.sampled_from(("x", "y", "z"))
PICKS = st.integers(0, 1000)


def policy_with(posterior: Any) -> IndexPolicy:
    return IndexPolicy(
        posterior=posterior, rule=UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=2)
    )


class DecisionModel:
    """What is known of a decision."""

    def __init__(self, menu: dict[str, Any], chosen: list[Any]) -> None:
        self.menu = menu
        self.chosen = chosen
        self.unseen = set(chosen)
        self.abandoned = False

    @property
    def status(self) -> Status:
        if self.abandoned:
            return Status.ABANDONED
        if not self.unseen:
            return Status.REWARDED
        is_unseen = self.unseen == set(self.chosen)
        return Status.PENDING if is_unseen else Status.PARTIAL

    @property
    def is_open(self) -> bool:
        return self.status in (Status.PENDING, Status.PARTIAL)


class Ending(NamedTuple):
    """What a machine has done when it stops."""

    events: int
    """How many the model expects."""
    faults: int
    """How often the bandit was restarted, or the disk was full."""
    replay: Replay


class BanditMachine(RuleBasedStateMachine):
    """Asks, tells and restarts, with a model in plain dictionaries."""

    order_matters: ClassVar[bool] = False
    endings: ClassVar[list[Ending]] = []  # of every journal

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.url = f"sqlite:///{Path(self.folder.name) / 'bandits.db'}"
        self.decisions: dict[str, DecisionModel] = {}
        self.acknowledged: dict[tuple[str, Any], dict[str, float]] = {}
        self.history: dict[str, tuple[Any, float]] = {}
        self.named: dict[str, Any] | None = None
        self.events = 1
        self.faults = 0

    @staticmethod
    def new_policy() -> IndexPolicy:
        return policy_with(StreamingGP(KERNEL, noise_variance=0.01))

    @initialize()
    def create(self) -> None:
        self.storage = Storage(self.url)
        self.bandit = create_bandit(
            "menu", spec=self.new_policy(), storage=self.storage
        )

    # --- ask -------------------------------------------------------------------------------

    @rule(menu=st.sampled_from(MENUS))
    def ask(self, menu: dict[str, Any]) -> None:
        name = f"decision {len(self.decisions)}"
        answer = self.bandit.ask(menu, decision_id=name)
        self.decisions[name] = DecisionModel(menu, answer.arms)
        self.events += 1

    @precondition(lambda self: self.named is not None)
    @rule()
    def ask_named(self) -> None:
        assert self.named is not None
        name = f"decision {len(self.decisions)}"
        answer = self.bandit.ask(decision_id=name)
        assert set(answer.arms) <= set(self.named)
        self.decisions[name] = DecisionModel(self.named, answer.arms)
        self.events += 1

    @precondition(lambda self: self.decisions)
    @rule(pick=PICKS, menu=st.sampled_from(MENUS))
    def ask_again(self, pick: int, menu: dict[str, Any]) -> None:
        name = self.pick(pick)
        known = self.decisions[name]
        if menu is known.menu:
            assert self.bandit.ask(menu, decision_id=name).arms == known.chosen
        else:
            with pytest.raises(ConflictError):
                self.bandit.ask(menu, decision_id=name)

    @rule(menu=st.sampled_from(MENUS))
    def name_arms(self, menu: dict[str, Any]) -> None:
        self.bandit.name_arms(menu)
        self.named = menu
        self.events += 1

    # --- tell ------------------------------------------------------------------------------

    @precondition(lambda self: self.decisions)
    @rule(pick=PICKS, part=PICKS, reward=REWARDS, observation=st.none() | IDS)
    def tell(
        self, pick: int, part: int, reward: float, observation: str | None
    ) -> None:
        name = self.pick(pick)
        known = self.decisions[name]
        parts = [known.chosen, known.chosen[:1], known.chosen[1:]]
        arms = parts[part % 3] or known.chosen
        rewards = {arm: reward + place for place, arm in enumerate(arms)}
        key = (name, frozenset(arms) if observation is None else observation)
        if key in self.acknowledged:
            self.tell_again(name, rewards, key, observation)
            return
        in_time = known.is_open or not self.order_matters
        if not in_time or not set(arms) <= known.unseen:
            with pytest.raises(ConflictError):
                self.bandit.tell(name, rewards, observation_id=observation)
            return
        assert self.bandit.tell(name, rewards, observation_id=observation)
        self.acknowledged[key] = rewards
        known.unseen -= set(arms)
        self.events += 1

    def tell_again(
        self, name: str, rewards: dict[str, float], key: Any, observation: str | None
    ) -> None:
        if self.acknowledged[key] == rewards:
            assert not self.bandit.tell(name, rewards, observation_id=observation)
        else:
            with pytest.raises(ConflictError):
                self.bandit.tell(name, rewards, observation_id=observation)

    @rule(reward=REWARDS)
    def tell_unknown(self, reward: float) -> None:
        with pytest.raises(NotFoundError):
            self.bandit.tell("unknown", {"tea": reward})
        for name in list(self.decisions)[-1:]:
            with pytest.raises(SuperarmError):
                self.bandit.tell(name, {"lemonade": reward})

    @rule(name=IDS, menu=st.sampled_from(MENUS), reward=REWARDS)
    def observe(self, name: str, menu: dict[str, Any], reward: float) -> None:
        request = (menu, reward)
        earlier = self.history.get(name)
        if earlier is not None and earlier != request:
            with pytest.raises(ConflictError):
                self.bandit.observe(menu, {"tea": reward}, observation_id=name)
            return
        is_new = self.bandit.observe(menu, {"tea": reward}, observation_id=name)
        assert is_new == (earlier is None)
        self.history[name] = request
        self.events += is_new

    @precondition(lambda self: self.decisions)
    @rule(pick=PICKS)
    def abandon(self, pick: int) -> None:
        name = self.pick(pick)
        known = self.decisions[name]
        was_pending = known.is_open
        assert self.bandit.abandon(name) == was_pending
        known.abandoned |= was_pending
        self.events += was_pending

    # --- faults ----------------------------------------------------------------------------

    @rule()
    def snapshot(self) -> None:
        self.bandit.save_snapshot()

    @rule()
    def restart(self) -> None:
        self.faults += 1
        self.storage.close()
        self.storage = Storage(self.url)
        self.bandit = load_bandit("menu", storage=self.storage)

    @rule(menu=st.sampled_from(MENUS), reward=REWARDS)
    def fail(self, menu: dict[str, Any], reward: float) -> None:
        self.faults += 1
        with self.full_disk(), pytest.raises(StorageError, match="the disk is full"):
            self.bandit.ask(menu, decision_id="never stored")
        with self.full_disk(), pytest.raises(StorageError, match="the disk is full"):
            self.bandit.observe(menu, {"tea": reward}, observation_id="never stored")
        pending = self.pending()
        if pending:
            with (
                self.full_disk(),
                pytest.raises(StorageError, match="the disk is full"),
            ):
                self.bandit.abandon(pending[0])

    @contextmanager
    def full_disk(self) -> Iterator[None]:
        """Let the next transaction fail."""
        journal = self.storage.journal
        append = journal.append

        def fail_once(appends: Sequence[Append]) -> None:
            journal.append = append  # type: ignore[method-assign]
            raise StorageError("the disk is full")

        journal.append = fail_once  # type: ignore[method-assign]
        yield
        assert journal.append == append

    # --- what must hold --------------------------------------------------------------------

    def pick(self, number: int) -> str:
        names = list(self.decisions)
        return names[number % len(names)]

    def pending(self) -> list[str]:
        return [name for name, known in self.decisions.items() if known.is_open]

    @invariant()
    def agrees_with_the_model(self) -> None:
        if not hasattr(self, "bandit"):
            return
        assert self.bandit.seq == self.events
        assert self.bandit.pending == self.pending()
        for name, known in list(self.decisions.items())[-5:]:
            recorded = self.bandit.decision(name)
            assert recorded.status is known.status
            awaited = known.unseen if known.is_open else set()
            assert set(recorded.awaiting) == awaited

    def teardown(self) -> None:
        if hasattr(self, "bandit"):
            try:
                self.check_the_end()
            finally:
                self.storage.close()
                self.folder.cleanup()

    def check_the_end(self) -> None:
        replay = self.bandit.verify()
        self.endings.append(Ending(self.events, self.faults, replay))
        assert replay.same
        assert replay.events == self.events
        assert replay.decisions == len(self.decisions)
        assert self.storage.journal.check() == []
        menu = MENUS[-1]
        arms = Arms(ids=list(menu), features=list(menu.values()))
        step = len(self.decisions) + len(self.history) + 1
        twin = learned(self.new_policy(), self.bandit)
        beliefs = twin.beliefs(Offer(step=step, arms=arms))
        forecast = self.bandit.predict(menu)
        np.testing.assert_allclose(forecast.mean, beliefs.mean, atol=1e-9)
        np.testing.assert_allclose(forecast.std, beliefs.std, atol=1e-9)


def learned(policy: IndexPolicy, bandit: Any) -> IndexPolicy:
    """A policy that is taught the journal's events, written down as simply as possible."""
    reader = EventReader(bandit._journal)
    steps: dict[str, int] = {}
    unseen: dict[str, set[int]] = {}
    waiting: list[Any] = []
    for event in bandit.events():
        decision_id = event.body.get("id") or event.body.get("decision")
        if event.kind is Kind.DECIDED:
            decision = reader.decision(event).decision
            policy.commit(decision)
            steps[decision_id] = decision.step
            unseen[decision_id] = set(decision.positions.tolist())
        elif event.kind is Kind.ABANDONED:
            unseen.pop(decision_id)
            policy.give_up(steps[decision_id])
        elif event.kind in (Kind.OBSERVED, Kind.HISTORY):
            observation = reader.observation(event)
            waiting.append(observation)
            mark_seen(unseen, decision_id, observation)
        waiting = learn_ready(policy, waiting, unseen, steps)
    return policy


def mark_seen(unseen: dict[str, set[int]], decision_id: str, observation: Any) -> None:
    if decision_id in unseen:
        unseen[decision_id] -= set(observation.feedback.positions.tolist())
        if not unseen[decision_id]:
            del unseen[decision_id]


def learn_ready(
    policy: IndexPolicy,
    waiting: list[Any],
    unseen: dict[str, set[int]],
    steps: dict[str, int],
) -> list[Any]:
    """Learn what may be learned now; where order matters, the rest waits."""
    open_steps = [steps[name] for name in unseen]
    first_open = min(open_steps, default=None)
    later = []
    for observation in sorted(waiting, key=lambda item: (item.decision.step, item.seq)):
        in_order = first_open is None or observation.decision.step < first_open
        if policy.exchangeable or in_order:
            rng = stream(0, LEARN, observation.seq)
            policy.learn(
                observation.offer, observation.decision, observation.feedback, rng
            )
        else:
            later.append(observation)
    return later


class OrderedMachine(BanditMachine):
    """The same with a policy that learns in the order of decisions."""

    order_matters = True

    @staticmethod
    def new_policy() -> IndexPolicy:
        return policy_with(SparseVariational(KERNEL, noise_variance=0.01))


SMALL = settings(max_examples=3, stateful_step_count=15)
LARGE = settings(max_examples=100, stateful_step_count=60)


def run(machine: type[BanditMachine], size: settings) -> FaultCounts:
    """Run a machine, which checks its invariants; count what its journals have."""
    from hypothesis.stateful import run_state_machine_as_test

    machine.endings = []
    run_state_machine_as_test(machine, settings=size)
    assert machine.endings
    excess = [ending.replay.events - ending.events for ending in machine.endings]
    order = "in order" if machine.order_matters else "in any order"
    return FaultCounts(
        fault=f"restart or full disk between random requests, learning {order}",
        url="sqlite:",
        clients=1,
        faults=sum(ending.faults for ending in machine.endings),
        acknowledged=sum(ending.events for ending in machine.endings),
        lost=sum(max(0, -number) for number in excess),
        doubled=sum(max(0, number) for number in excess),
        replay_same=all(ending.replay.same for ending in machine.endings),
    ).record()


@pytest.mark.parametrize("machine", [BanditMachine, OrderedMachine])
def test_a_bandit_agrees_with_a_model(machine: type[BanditMachine]) -> None:
    assert machine.new_policy().exchangeable != machine.order_matters
    assert run(machine, SMALL).is_clean


@pytest.mark.slow
@pytest.mark.full
@pytest.mark.parametrize("machine", [BanditMachine, OrderedMachine])
def test_a_bandit_agrees_with_a_model_for_long(machine: type[BanditMachine]) -> None:
    assert run(machine, LARGE).is_clean
