"""Journals that earlier versions wrote, and one that a later version may write."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from superarm.core.errors import StateError
from superarm.live import Storage, load_bandit
from superarm.live.journal import SCHEMA, TokenRow
from superarm.live.sqlite_schema import STEPS

FILES = Path(__file__).parent / "files"
EARLIER = range(1, SCHEMA)
MEANS = {
    "menu": [0.3790006618713904, -0.47580207779380806, 0.4407525241869746],
    "drawn": [0.058532811523158146, 0.3119366290731222, -0.012651493859370729],
}
"""What the bandits of the files expected of their named arms when the files were written."""
CHANGED_MEANS = [0.9086065151887167, -0.5957163835148036, 0.4160397180907168]
"""The same of the bandit ``changed``, which files have from schema 2 on."""


def copy_of(schema: int, folder: Path) -> str:
    path = folder / "bandits.db"
    shutil.copy(FILES / f"schema{schema}.db", path)
    return f"sqlite:///{path}"


def schema_of(url: str) -> int:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    schema: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return schema


def test_there_is_a_step_to_every_schema() -> None:
    assert len(STEPS) == SCHEMA


@pytest.mark.parametrize("schema", EARLIER)
def test_an_earlier_schema_is_refused_with_advice(schema: int, tmp_path: Path) -> None:
    url = copy_of(schema, tmp_path)
    with pytest.raises(StateError, match=f"superarm storage upgrade {url}"):
        Storage(url)
    assert schema_of(url) == schema


@pytest.mark.parametrize("schema", EARLIER)
def test_an_upgrade_keeps_everything(schema: int, tmp_path: Path) -> None:
    url = copy_of(schema, tmp_path)
    Storage(url, upgrade=True).close()
    assert schema_of(url) == SCHEMA
    with Storage(url) as storage:
        for name, means in MEANS.items():
            bandit = load_bandit(name, storage=storage)
            assert bandit.pending == [f"{name}-5", "shared"]
            replay = bandit.verify()
            assert replay.decisions == 7
            assert replay.same, replay.differences
            np.testing.assert_allclose(bandit.predict().mean, means, rtol=1e-9)


def test_an_upgrade_keeps_changes_of_a_bandit_tokens_and_snapshots(
    tmp_path: Path,
) -> None:
    """What version 2 added: switched, fitted anew, deferred; and who may use a service."""
    url = copy_of(2, tmp_path)
    with Storage(url, upgrade=True) as storage:
        bandit = load_bandit("changed", storage=storage)
        assert bandit.pending == ["changed-5", "shared"]
        assert bandit.verify().same
        np.testing.assert_allclose(bandit.predict().mean, CHANGED_MEANS, rtol=1e-9)
        token = TokenRow("0" * 64, "acme", "laptop", "ask tell", 1795003142.25)
        assert storage.journal.tokens() == [token]
        assert snapshots_of(storage) == [14, 14, 15]
        assert storage.journal.check() == []


def snapshots_of(storage: Storage) -> list[int]:
    """The event of the latest snapshot of each bandit."""
    snapshots = [storage.journal.snapshot(bandit) for bandit in (1, 2, 3)]
    return [snapshot.seq for snapshot in snapshots if snapshot is not None]


KILLED = """
import os, signal, sqlite3, sys
from superarm.live import Storage

count = int(sys.argv[2])
connect = sqlite3.connect

def traced(*args, **options):
    connection = connect(*args, **options)

    def kill(statement):
        global count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    connection.set_trace_callback(kill)
    return connection

sqlite3.connect = traced
Storage(sys.argv[1], upgrade=True).close()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("schema", EARLIER)
def test_an_upgrade_killed_at_any_statement_is_done_or_not(
    schema: int, tmp_path: Path
) -> None:
    """And is then done by the next one."""
    found = []
    for statements in range(100):
        folder = tmp_path / str(statements)
        folder.mkdir()
        url = copy_of(schema, folder)
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, url, str(statements)], check=False
        )
        found.append(schema_of(url))
        with Storage(url, upgrade=True) as storage:
            assert storage.journal.check() == []
            for name in MEANS:
                assert load_bandit(name, storage=storage).verify().same
        if killed.returncode == 0:
            break
    assert killed.returncode == 0
    assert sorted(found) == found
    assert set(found) == {schema, SCHEMA}


@pytest.mark.parametrize("schema", EARLIER)
def test_an_upgraded_journal_has_the_tables_of_a_new_one(
    schema: int, tmp_path: Path
) -> None:
    url = copy_of(schema, tmp_path)
    Storage(url, upgrade=True).close()
    new = f"sqlite:///{tmp_path / 'new.db'}"
    Storage(new).close()
    assert tables_of(url) == tables_of(new)


def tables_of(url: str) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    query = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    rows = connection.execute(query).fetchall()
    connection.close()
    return rows


def test_decisions_of_an_upgraded_journal_are_found_by_id(tmp_path: Path) -> None:
    url = copy_of(1, tmp_path)
    with Storage(url, upgrade=True) as storage:
        journal = storage.journal
        found = journal.find_decision("", "decision/shared")
        assert [row.name for row in found] == ["drawn", "menu"]
        assert [row.name for row in journal.find_decision("", "decision/menu-0")] == [
            "menu"
        ]
        assert journal.find_decision("another tenant", "decision/menu-0") == []


def test_a_later_schema_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bandits.db'}"
    Storage(url).close()
    connection = sqlite3.connect(tmp_path / "bandits.db")
    connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    with pytest.raises(StateError, match="upgrade superarm"):
        Storage(url, upgrade=True)
    assert schema_of(url) == SCHEMA + 1
