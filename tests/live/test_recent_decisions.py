"""Which decisions of a bandit stay in memory."""

from __future__ import annotations

import numpy as np
import pytest
from menu_policy import menu_policy

from superarm.core import Arms, Decision, Offer
from superarm.core.errors import ConflictError
from superarm.live import Storage, create_bandit
from superarm.live.decisions import DecisionRecord
from superarm.live.recent_decisions import RecentDecisions
from superarm.oracles import TopK

ARMS = Arms.numbered(np.zeros((4, 2)))  # 8 features and 4 ids: 12 numbers
# A decision chooses one arm: 12 numbers of its own.


def record(number: int, arms: Arms = ARMS, structure: object = None) -> DecisionRecord:
    offer = Offer(step=number, arms=arms, structure=structure)
    decision = Decision(step=number, action=None, positions=[0])
    return DecisionRecord(f"d{number}", offer, decision, time=0.0)


def new_arms() -> Arms:
    return Arms.numbered(np.zeros((4, 2)))


def kept(recent: RecentDecisions, count: int) -> list[int]:
    return [n for n in range(1, count + 1) if recent.get(f"d{n}") is not None]


def test_the_oldest_make_room():
    recent = RecentDecisions(most=3)
    for number in range(1, 6):
        recent.add(record(number))
    assert kept(recent, 5) == [3, 4, 5]
    assert len(recent) == 3


def test_shared_arms_count_once():
    recent = RecentDecisions(most_numbers=12 + 100 * 12)
    for number in range(1, 101):
        recent.add(record(number))
    assert len(recent) == 100


def test_arms_of_their_own_count_each():
    recent = RecentDecisions(most_numbers=60)  # two and a half decisions with arms
    for number in range(1, 6):
        recent.add(record(number, new_arms()))
    assert kept(recent, 5) == [4, 5]


def test_shared_arms_count_until_their_last_decision_is_gone():
    recent = RecentDecisions(most_numbers=60)
    for number in (1, 2):
        recent.add(record(number))
    recent.add(record(3, new_arms()))  # 60 numbers
    assert kept(recent, 3) == [1, 2, 3]
    recent.add(record(4, new_arms()))  # 84: 1 frees 12, and 2 also the shared arms
    assert kept(recent, 4) == [3, 4]


def test_structures_count():
    recent = RecentDecisions(most_numbers=50)  # 12 of the arms, and 16 of each decision
    for number in range(1, 6):
        recent.add(record(number, structure={"k": 1}))
    assert kept(recent, 5) == [4, 5]


def test_a_decision_beyond_the_budget_is_kept_until_the_next():
    recent = RecentDecisions(most_numbers=1)
    recent.add(record(1))
    assert kept(recent, 1) == [1]
    recent.add(record(2, new_arms()))
    assert kept(recent, 2) == [2]


def test_chosen_arms_count():
    arms = Arms.numbered(np.zeros((100, 1)))  # 200 numbers, shared
    recent = RecentDecisions(most_numbers=200 + 2 * 1200)
    for number in range(1, 6):
        decision = Decision(step=number, action=None, positions=range(100))
        offer = Offer(step=number, arms=arms)
        recent.add(DecisionRecord(f"d{number}", offer, decision, time=0.0))
    assert kept(recent, 5) == [4, 5]


def test_a_removed_decision_frees_its_numbers():
    recent = RecentDecisions(most_numbers=60)
    recent.add(record(1, new_arms()))
    recent.add(record(2, new_arms()))  # 48 numbers
    recent.remove("d1")
    recent.remove("d1")  # it is gone already
    assert kept(recent, 2) == [2]
    recent.add(record(3, new_arms()))
    assert kept(recent, 3) == [2, 3]


def test_a_decision_stays_until_its_last_reward(storage: Storage) -> None:
    bandit = create_bandit("menu", spec=menu_policy(oracle=TopK(k=2)), storage=storage)
    menu = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7]}
    answer = bandit.ask(menu, decision_id="d")
    reader = bandit._current.read().reader
    first, second = answer.arms
    bandit.tell("d", {first: 0.5})
    assert reader.recent_decision("d") is not None
    bandit.tell("d", {second: 0.5})
    assert reader.recent_decision("d") is None
    # A repeated tell reads it from the journal.
    assert not bandit.tell("d", {second: 0.5})
    with pytest.raises(ConflictError):
        bandit.tell("d", {second: 0.75})
