"""A storage that a later version of superarm has changed, before and while a service runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from insistent_clients import MENU, menu_policy
from running_service import running_service, wait_until_ready
from tampering import tamper

from superarm.core.errors import StateError
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.access import make_token
from superarm.live.journal import SCHEMA, StorageError


def set_schema(url: str, schema: int) -> None:
    if url.startswith("sqlite:"):
        tamper(url, f"PRAGMA user_version = {schema}")
    else:
        tamper(url, f"UPDATE superarm_schema SET version = {schema}")


@pytest.fixture
def menu_url(url: str) -> str:
    """A storage with a bandit that awaits a reward."""
    with Storage(url) as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        bandit.ask(MENU, decision_id="first")
    return url


@pytest.mark.slow
def test_a_service_refuses_to_start_on_a_later_schema(menu_url: str) -> None:
    set_schema(menu_url, SCHEMA + 1)
    try:
        finished = subprocess.run(
            [
                *(sys.executable, "-m", "superarm", "serve"),
                *("--storage", menu_url, "--port", "0", "--json"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode != 0
        assert finished.stdout == ""
        assert f"has schema {SCHEMA + 1}" in finished.stderr
        assert "upgrade superarm" in finished.stderr
        with pytest.raises(StateError, match="upgrade superarm"):
            Storage(menu_url)
    finally:
        set_schema(menu_url, SCHEMA)
    with Storage(menu_url) as storage:
        assert load_bandit("menu", storage=storage).pending == ["first"]


def test_a_running_service_is_not_ready_once_the_schema_is_later(
    menu_url: str,
) -> None:
    with (
        Storage(menu_url) as storage,
        running_service(storage) as address,
        httpx.Client(base_url=address, timeout=60.0) as http,
    ):
        wait_until_ready(http)
        set_schema(menu_url, SCHEMA + 1)
        try:
            answer = http.get("/readyz")
            assert answer.status_code == 503
            assert "upgrade this service" in answer.json()["detail"]
            assert http.get("/healthz").status_code == 200
        finally:
            set_schema(menu_url, SCHEMA)
        assert http.get("/readyz").status_code == 200


def first_rewards(bandit: Bandit) -> dict[object, float]:
    """Rewards for the decision that awaits them."""
    return dict.fromkeys(bandit.decision("first").answer.arms, 1.0)


WRITES: dict[str, Callable[[Bandit], object]] = {
    "ask": lambda bandit: bandit.ask(MENU),
    "tell": lambda bandit: bandit.tell("first", first_rewards(bandit)),
    "abandon": lambda bandit: bandit.abandon("first"),
    "name_arms": lambda bandit: bandit.name_arms(MENU),
    "respecify": lambda bandit: bandit.respecify(menu_policy()),
    "save_snapshot": lambda bandit: bandit.save_snapshot(),
    "create": lambda bandit: create_bandit(
        "other", spec=menu_policy(), storage=bandit.storage
    ),
    "add_token": lambda bandit: bandit.storage.journal.add_token(
        make_token("acme", "ops", ["read"])[1]
    ),
    "remove_token": lambda bandit: bandit.storage.journal.remove_token("acme", "ops"),
}


def test_a_process_writes_nothing_once_the_schema_is_later(menu_url: str) -> None:
    with Storage(menu_url) as storage:
        bandit = load_bandit("menu", storage=storage)
        chosen = bandit.decision("first").answer
        before = bandit.predict(MENU).mean.tolist()
        set_schema(menu_url, SCHEMA + 1)
        try:
            for write in WRITES.values():
                with pytest.raises(StorageError, match=f"schema {SCHEMA + 1}"):
                    write(bandit)
            # Reads are answered, and so are repeated requests.
            assert bandit.decision("first").answer == chosen
            assert bandit.ask(MENU, decision_id="first") == chosen
            assert bandit.predict(MENU).mean.tolist() == before
            assert bandit.explain("first").decision == "first"
            assert bandit.pending == ["first"]
            assert len(list(bandit.events())) == 2
        finally:
            set_schema(menu_url, SCHEMA)
        assert bandit.tell("first", first_rewards(bandit))
        assert storage.journal.check() == []


def test_a_running_service_refuses_writes_once_the_schema_is_later(
    menu_url: str,
) -> None:
    with (
        Storage(menu_url) as storage,
        running_service(storage) as address,
        httpx.Client(base_url=address, timeout=60.0) as http,
    ):
        wait_until_ready(http)
        ask = {"arms": MENU, "decision_id": "second"}
        set_schema(menu_url, SCHEMA + 1)
        try:
            refused = http.post("/v1/bandits/menu/decisions", json=ask)
            assert refused.status_code == 503
            assert "upgrade this service" in refused.json()["detail"]
            assert refused.headers["retry-after"]
            for path in ("bandits/menu", "decisions/first", "decisions/first/explain"):
                assert http.get(f"/v1/{path}").status_code == 200, path
        finally:
            set_schema(menu_url, SCHEMA)
        assert http.post("/v1/bandits/menu/decisions", json=ask).status_code == 201


def test_an_old_process_is_no_member_once_the_schema_is_later(
    postgres_url: str,
) -> None:
    """Others own its bandits then, instead of handing requests over that it must refuse."""
    with Storage(postgres_url) as storage:
        journal: Any = storage.journal
        journal.heartbeat("old", "http://127.0.0.1:1")
        (row,) = journal.processes(60.0)
        set_schema(postgres_url, SCHEMA + 1)
        with pytest.raises(StorageError, match="upgrade superarm"):
            journal.heartbeat("old", "http://127.0.0.1:1")
        assert journal.processes(60.0) == [row]


def test_an_event_of_an_unknown_kind_is_refused_with_advice(menu_url: str) -> None:
    tamper(menu_url, "UPDATE events SET kind = 'dreamt' WHERE seq = 2")
    with Storage(menu_url) as storage:
        bandit = load_bandit("menu", storage=storage)
        with pytest.raises(StateError, match="unknown kind 'dreamt'; upgrade superarm"):
            bandit.ask(MENU)
        assert any("dreamt" in problem for problem in storage.journal.check())
