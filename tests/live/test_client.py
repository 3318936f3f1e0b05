"""The client: a program moves to a service by one line, and decides as before."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from menu_policy import menu_policy
from running_service import running_service

from superarm.client import Client, RemoteBandit, ServiceError
from superarm.core.errors import ConflictError, InputError, NotFoundError
from superarm.core.registry import spec_of
from superarm.core.tables import Encoding
from superarm.live import BanditSpec, Storage, create_bandit
from superarm.live.answers import Tell
from superarm.live.decisions import Status
from superarm.live.events import Kind
from superarm.live.journal import StorageError
from superarm.live.verbs import BanditVerbs
from superarm.oracles import TopK
from superarm.policies import Exploring
from superarm.rules import UCB, Fixed, Greedy, Thompson

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}


@pytest.fixture
def client(storage: Storage) -> Iterator[Client]:
    with running_service(storage) as url, Client(url, retries=0) as connected:
        yield connected


def play(bandit: BanditVerbs) -> list[Any]:
    """A program that uses every verb; returns whatever it learned from the bandit."""
    seen: list[Any] = []
    rng = np.random.default_rng(5)
    bandit.name_arms(MENU)
    seen.append(bandit.observe(MENU, {"tea": 0.3}, observation_id="last year"))
    seen.append(bandit.observe(MENU, {"tea": 0.3}, observation_id="last year"))
    for number in range(5):
        arms: Any = None if number % 2 else rng.random((4, 2))
        answer = bandit.ask(arms, decision_id=f"d{number}")
        seen.append(answer)
        if number != 3:
            rewards = {arm: float(rng.normal()) for arm in answer.arms}
            seen.append(bandit.tell(answer, rewards))
    seen.append(bandit.pending)
    seen.append(bandit.decision("d3"))
    seen.append(bandit.abandon("d3"))
    seen.append(bandit.decision("d3").status)
    seen.append(bandit.ask(MENU, decision_id="later", deferred=True))
    seen.append(bandit.decision("later").status)
    seen.append(bandit.pending)
    seen.append([bandit.activate("later"), bandit.activate("later"), bandit.pending])
    forecast = bandit.predict(MENU)
    assert forecast.std is not None
    seen.append([forecast.arms, forecast.mean.tolist(), forecast.std.tolist()])
    seen.append(bandit.explain("d4"))
    late = Tell(decision="d3", rewards={bandit.decision("d3").answer.arms[0]: 0.5})
    unknown = Tell(decision="none", rewards={"tea": 0.5})
    outcomes = bandit.tell_many([late, late, unknown])
    seen.append([type(outcome) for outcome in outcomes])
    seen.append(bandit.refit().spec.as_json())
    bandit.respecify(menu_policy(oracle=TopK(k=1)))
    seen.append(bandit.spec.as_json())
    seen += play_challenger(bandit)
    seen.append([event.kind for event in bandit.events()])
    seen.append(bandit.seq)
    return seen


def play_challenger(bandit: BanditVerbs) -> list[Any]:
    """Start, compare, end and switch to a challenger; returns the reports."""
    reports: list[Any] = []
    bandit.respecify(Exploring(policy=menu_policy(), epsilon=0.5))
    bandit.shadow(menu_policy(rule=Greedy()))
    reports.append(bandit.shadow_report())
    for number in range(6):
        answer = bandit.ask(MENU)
        bandit.tell(answer, dict.fromkeys(answer.arms, 0.1 * number))
    reports.append(bandit.shadow_report())
    reports.append(bandit.shadow_report(reward_range=(0.0, 1.0), level=0.9))
    bandit.shadow(None)
    with pytest.raises(NotFoundError, match="no challenger"):
        bandit.shadow_report()
    bandit.shadow(BanditSpec(policy=spec_of(menu_policy(rule=Greedy())), seed=3))
    bandit.switch()
    with pytest.raises(NotFoundError, match="no challenger"):
        bandit.switch()
    reports.append(bandit.spec.as_json())
    return reports


@pytest.mark.parametrize(
    "rule",
    [
        UCB(schedule=Fixed(value=2.0)),
        pytest.param(Thompson(), marks=pytest.mark.thorough),
    ],
)
def test_a_remote_bandit_is_like_one_of_your_own(
    client: Client, tmp_path: Path, rule: Any
) -> None:
    """The same work in the same order, so that all numbers are equal; JSON keeps floats exactly."""
    with Storage(f"sqlite:///{tmp_path / 'own.db'}") as own:
        embedded = create_bandit("menu", spec=menu_policy(rule=rule), storage=own)
        remote = client.create_bandit("menu", spec=menu_policy(rule=rule))
        watched: Any = WatchedBandit(embedded)
        for mine, theirs in zip(play(watched), play(remote), strict=True):
            assert without_time(mine) == without_time(theirs)
        assert {name for name in vars(BanditVerbs) if name[0] != "_"} <= watched.used


class WatchedBandit:
    """Passes everything on to a bandit, and notes which verbs are used."""

    def __init__(self, bandit: BanditVerbs) -> None:
        self._bandit = bandit
        self.used: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.used.add(name)
        return getattr(self._bandit, name)


def without_time(value: Any) -> Any:
    return value._replace(time=0.0) if hasattr(value, "awaiting") else value


def test_tables_are_encoded_as_at_home(client: Client, tmp_path: Path) -> None:
    table = [
        {"id": "a", "size": 0.2, "kind": "new"},
        {"id": "b", "size": 0.9, "kind": "old"},
    ]
    encoding = Encoding.of(table, columns=["size", "kind"])
    spec = BanditSpec(policy=spec_of(menu_policy(oracle=TopK(k=1))), encoding=encoding)
    with Storage(f"sqlite:///{tmp_path / 'own.db'}") as own:
        embedded = create_bandit("menu", spec=spec, storage=own)
        remote = client.create_bandit("menu", spec=spec)
        columns = {"id": ["a", "b"], "size": [0.2, 0.9], "kind": ["new", "old"]}
        by_id = {row["id"]: row for row in table}
        for arms in (table, columns, by_id):
            embedded.ask(arms)
            answer = remote.ask(arms)
            assert answer.arms in (["a"], ["b"])
            mine = embedded.predict(arms)
            theirs = remote.predict(arms)
            assert mine.arms == theirs.arms == ["a", "b"]
            np.testing.assert_array_equal(mine.mean, theirs.mean)


def test_errors_are_those_of_the_library(client: Client) -> None:
    bandit = client.create_bandit("menu", spec=menu_policy())
    with pytest.raises(ConflictError, match="already"):
        client.create_bandit("menu", spec=menu_policy(oracle=TopK(k=1)))
    loaded = client.create_bandit(
        "menu", spec=menu_policy(oracle=TopK(k=1)), load_if_exists=True
    )
    assert loaded.spec.policy["oracle"]["k"] == 2
    with pytest.raises(NotFoundError, match="no bandit 'other'"):
        client.load_bandit("other")
    with pytest.raises(NotFoundError, match="no decision"):
        bandit.tell("none", {"tea": 1.0})
    with pytest.raises(InputError, match="empty"):
        bandit.ask({})
    answer = bandit.ask(MENU)
    with pytest.raises(InputError, match="rewards"):
        bandit.tell(answer, {answer.arms[0]: float("nan")})
    bandit.tell(answer, {answer.arms[0]: 1.0})
    with pytest.raises(ConflictError, match="already recorded"):
        bandit.tell(answer, {answer.arms[0]: 2.0})
    assert client.bandits() == ["menu"]
    assert bandit.decision(answer.id).status is Status.PARTIAL
    assert next(iter(bandit.events())).kind is Kind.CREATED


@pytest.mark.parametrize("time", [float("nan"), float("inf")])
def test_times_must_be_finite(client: Client, time: float) -> None:
    bandit = client.create_bandit("menu", spec=menu_policy())
    with pytest.raises(InputError, match="time must be a number"):
        bandit.ask(MENU, time=time)
    with pytest.raises(InputError, match="time must be a number"):
        bandit.predict(MENU, time=time)
    with pytest.raises(InputError, match="time must be a number"):
        bandit.observe(MENU, {"tea": 1.0}, time=time)
    assert bandit.seq == 1


@pytest.mark.parametrize("token", ["", "schlüssel", "two words", "line\n"])
def test_tokens_that_no_header_can_contain(token: str) -> None:
    with pytest.raises(InputError, match="token must be"):
        Client("http://127.0.0.1:9", token=token)


def test_a_service_that_is_not_there_is_named() -> None:
    with (
        Client("http://127.0.0.1:9", retries=1) as client,
        pytest.raises(StorageError, match=r"127\.0\.0\.1:9 does not answer"),
    ):
        client.bandits()


class Unsteady(httpx.BaseTransport):
    """Forwards requests, but loses some answers after the service has acted."""

    def __init__(self, statuses: list[int | None]) -> None:
        self._inner = httpx.HTTPTransport()
        self._statuses = statuses
        self.sent = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.sent += 1
        response = self._inner.handle_request(request)
        if not self._statuses:
            return response
        response.read()
        response.close()
        status = self._statuses.pop(0)
        if status is None:
            raise httpx.ReadError("the connection was lost")
        return httpx.Response(status, headers={"Retry-After": "0"})

    def close(self) -> None:
        self._inner.close()


def unsteady_client(url: str, *statuses: int | None) -> tuple[Client, Unsteady]:
    client = Client(url, retries=3)
    transport = Unsteady(list(statuses))
    client.close()
    client._http = httpx.Client(base_url=url, transport=transport)
    return client, transport


def test_lost_answers_count_once(client: Client) -> None:
    client.create_bandit("menu", spec=menu_policy())
    losing, transport = unsteady_client(client.url, None, HTTPStatus.BAD_GATEWAY)
    bandit = RemoteBandit(losing, "menu")
    bandit._spec = BanditSpec.from_user(menu_policy())
    answer = bandit.ask(MENU)
    assert transport.sent == 3
    assert client.load_bandit("menu").pending == [answer.id]
    transport._statuses[:] = [None, HTTPStatus.SERVICE_UNAVAILABLE]
    rewards = dict.fromkeys(answer.arms, 0.5)
    assert (
        bandit.tell(answer, rewards) is False
    )  # the first arrived, its answer did not
    transport._statuses[:] = [None]
    bandit.observe(MENU, {"tea": 0.5})
    assert client.load_bandit("menu").seq == 4
    losing.close()


def test_other_failures_are_not_repeated(client: Client) -> None:
    losing, transport = unsteady_client(client.url, HTTPStatus.FORBIDDEN)
    with pytest.raises(ServiceError, match="403"):
        losing.bandits()
    assert transport.sent == 1
    losing.close()
