"""What an operator does with a storage: replay, tokens, damage, backups, upgrades."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superarm.core.errors import SpecError
from superarm.lab.results.formats import count_text
from superarm.live.access import DEFAULT_SCOPES, make_token
from superarm.live.journal import SCHEMA
from superarm.live.replay import Replay

from .bandits import load_stored_bandit, open_storage
from .common import print_json, say


def replay_journal(
    url: str,
    tenant: str,
    name: str,
    verify: bool,
    report: Callable[[int, int], None] | None,
) -> Replay:
    """Fold a bandit's journal from its first event.

    Args:
        url: The storage.
        tenant: Whose bandit it is.
        name: The bandit.
        verify: Whether to repeat every decision.
        report: Called with the events done and all events.
    """
    with open_storage(url) as storage:
        bandit = load_stored_bandit(name, storage, tenant)
        total = bandit.seq

        def show(replay: Replay) -> None:
            if report is not None:
                report(replay.events, total)

        return bandit.verify(show, repeat_decisions=verify)


def print_replay(replay: Replay, verify: bool, as_json: bool) -> None:
    """Print the result of a replay. Exits with 1 if a decision differs.

    Args:
        replay: The result.
        verify: Whether every decision was repeated.
        as_json: Whether to print JSON.
    """
    if as_json:
        same = replay.same if verify else None
        print_json({**asdict(replay), "same": same})
    elif not verify:
        events = count_text(replay.events, "event")
        decisions = count_text(replay.decisions, "decision")
        say(f"Replayed {events}, {decisions} among them.")
    elif replay.same:
        decisions = count_text(replay.decisions, "decision")
        say(f"Repeated {decisions}; all agree with the journal.")
    else:
        say("\n".join(replay.differences))
    if not replay.same:
        sys.exit(1)


def create_token(url: str, tenant: str, name: str, scopes: Sequence[str]) -> str:
    """A new token.

    Args:
        url: The storage, which is created if it does not exist.
        tenant: Whose bandits it can use.
        name: Its name.
        scopes: What it allows; empty: read, ask and tell.
    """
    with open_storage(url, create=True) as storage:
        secret, row = make_token(tenant, name, scopes or DEFAULT_SCOPES)
        storage.journal.add_token(row)
    return secret


def list_tokens(url: str) -> list[dict[str, Any]]:
    """Tenant, name and scopes of all tokens of a storage.

    Args:
        url: The storage.
    """
    with open_storage(url) as storage:
        rows = storage.journal.tokens()
    tokens = []
    for row in rows:
        scopes = row.scopes.split()
        tokens.append({"tenant": row.tenant, "name": row.name, "scopes": scopes})
    return tokens


def remove_token(url: str, tenant: str, name: str) -> None:
    """Remove a token.

    Args:
        url: The storage.
        tenant: Whose token it is.
        name: Its name.
    """
    with open_storage(url) as storage:
        removed = storage.journal.remove_token(tenant, name)
    if not removed:
        owner = f"of tenant {tenant!r}" if tenant else "without a tenant"
        raise SpecError(
            f"there is no token {name!r} {owner}; see `superarm token list`"
        )


def check_storage(url: str) -> list[str]:
    """Problems of a storage, one sentence each.

    Args:
        url: The storage.
    """
    with open_storage(url) as storage:
        return storage.journal.check()


def back_up(url: str, path: Path) -> None:
    """Copy a storage to a file.

    Args:
        url: The storage.
        path: The file, which must not exist.
    """
    with open_storage(url) as storage:
        storage.journal.backup(path)


def upgrade_storage(url: str) -> int:
    """Upgrade a storage of an earlier version; returns its schema.

    Args:
        url: The storage.
    """
    with open_storage(url, upgrade=True):
        return SCHEMA
