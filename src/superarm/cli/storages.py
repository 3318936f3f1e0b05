"""What an operator does with a storage: replay, tokens, damage, backups, upgrades."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from superarm.core.errors import SpecError
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
        verify: Whether to decide everything again.
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
    """Print the result of a replay. Exits with 1 if a decision came out differently.

    Args:
        replay: The result.
        verify: Whether everything was decided again.
        as_json: Whether to print JSON.
    """
    if as_json:
        same = replay.same if verify else None
        print_json({**asdict(replay), "same": same})
    elif not verify:
        say(f"Folded {replay.events} events, {replay.decisions} decisions among them.")
    elif replay.same:
        say(f"All {replay.decisions} decisions came out as they were recorded.")
    else:
        say("\n".join(replay.differences))
    if not replay.same:
        sys.exit(1)


def create_token(url: str, tenant: str, name: str, scopes: Sequence[str]) -> str:
    """A new token.

    Args:
        url: The storage, which is created if it does not exist.
        tenant: Whose bandits it opens.
        name: Its name.
        scopes: What it allows; empty: read, ask and tell.
    """
    with open_storage(url, create=True) as storage:
        secret, row = make_token(tenant, name, scopes or DEFAULT_SCOPES)
        storage.journal.add_token(row)
    return secret


def list_tokens(url: str) -> list[dict[str, Any]]:
    """All tokens of a storage, without what is secret.

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
        owner = f"tenant {tenant!r}" if tenant else "no tenant"
        raise SpecError(
            f"there is no token {name!r} of {owner}; `superarm token list` lists all"
        )


def check_storage(url: str) -> list[str]:
    """One sentence for each problem of a storage.

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
    """Bring a storage of an earlier version up to date; returns its schema.

    Args:
        url: The storage.
    """
    with open_storage(url, upgrade=True):
        return SCHEMA
