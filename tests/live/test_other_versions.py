"""A storage that a later version of superarm has changed, before and while a service runs."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest
from insistent_clients import MENU, menu_policy
from running_service import running_service, wait_until_ready
from tampering import tamper

from superarm.core.errors import StateError
from superarm.live import Storage, create_bandit, load_bandit
from superarm.live.journal import SCHEMA


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


def test_an_event_of_an_unknown_kind_is_refused_with_advice(menu_url: str) -> None:
    tamper(menu_url, "UPDATE events SET kind = 'dreamt' WHERE seq = 2")
    with Storage(menu_url) as storage:
        bandit = load_bandit("menu", storage=storage)
        with pytest.raises(StateError, match="unknown kind 'dreamt'; upgrade superarm"):
            bandit.ask(MENU)
        assert any("dreamt" in problem for problem in storage.journal.check())
