"""Who may use a storage: the process that opened it, as long as its file is in its place."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from insistent_clients import MENU, menu_policy
from running_service import running_service, wait_until_ready

from superarm.core.errors import ConflictError
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.journal import StorageError

no_windows = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows does not fork, nor remove open files"
)


# --- forks ---------------------------------------------------------------------------------

FORKED: dict[str, Callable[[Bandit], object]] = {
    "ask": lambda bandit: bandit.ask(MENU),
    "tell": lambda bandit: bandit.tell("first", {"mocha": 1.0}),
    "read": lambda bandit: list(bandit.events()),
    "save_snapshot": lambda bandit: bandit.save_snapshot(),
}


@no_windows
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_must_open_the_storage_again(url: str) -> None:
    """It has neither the thread that writes nor connections of its own: it would wait for ever."""
    with Storage(url) as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        bandit.ask({"mocha": MENU["mocha"]}, decision_id="first")
        context = multiprocessing.get_context("fork")
        answers = context.SimpleQueue()

        def work() -> None:
            for use in FORKED.values():
                try:
                    use(bandit)
                except StorageError as error:
                    answers.put(str(error))
            storage.close()
            is_file = url.startswith("sqlite:")
            try:
                loaded = load_bandit("menu", storage=url)
            except ConflictError:
                answers.put("owned")  # an SQLite file has one process
            else:
                answers.put("owned" if is_file else " ".join(loaded.pending))

        process = context.Process(target=work)
        process.start()
        process.join(60.0)
        exit_code = process.exitcode
        process.kill()  # where it waits for ever
        assert exit_code == 0
        refusals = [answers.get() for _ in FORKED]
        assert all("open it again in each process" in text for text in refusals)
        assert answers.get() == ("owned" if url.startswith("sqlite:") else "first")
        assert bandit.tell("first", {"mocha": 1.0})  # the connections still work
        assert len(list(bandit.events())) == 3


# --- the file ------------------------------------------------------------------------------


@no_windows
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("name", ["bandits.db", "bandits.db-wal"])
def test_nothing_is_acknowledged_once_the_file_is_gone(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    """Nor once its log is gone, which has the latest commits."""
    path = tmp_path / "bandits.db"
    file = tmp_path / name
    with Storage(f"sqlite:///{path}") as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        bandit.ask(MENU, decision_id="first")
        moved = file.rename(tmp_path / "moved")
        if replaced:
            file.write_bytes(moved.read_bytes())
        for _ in range(2):
            with pytest.raises(StorageError, match="removed, moved or replaced"):
                bandit.ask(MENU, decision_id="second")
        assert bandit.decision("first").answer.id == "first"
        moved.replace(file)  # it is in its place again
        bandit.ask(MENU, decision_id="second")
    with Storage(f"sqlite:///{path}") as storage:
        assert load_bandit("menu", storage=storage).pending == ["first", "second"]


@no_windows
def test_a_file_that_is_taken_away_during_a_commit_is_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bandits.db"
    with Storage(f"sqlite:///{path}") as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)

        def vanish(*_: object) -> None:
            path.rename(tmp_path / "moved.db")

        monkeypatch.setattr("superarm.live.sqlite_journal._insert_blobs", vanish)
        with pytest.raises(StorageError, match="removed, moved or replaced"):
            bandit.ask(MENU)


@no_windows
def test_a_service_without_its_file_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "bandits.db"
    with (
        Storage(f"sqlite:///{path}") as storage,
        running_service(storage) as address,
        httpx.Client(base_url=address, timeout=60.0) as http,
    ):
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        wait_until_ready(http)
        path.rename(tmp_path / "moved.db")
        for answer in (
            http.get("/readyz"),
            http.post("/v1/bandits/menu/decisions", json={"arms": MENU}),
        ):
            assert answer.status_code == 503
            assert "removed or replaced" in answer.json()["detail"]
            assert str(tmp_path) not in answer.text
        assert http.get("/v1/bandits/menu").status_code == 200
        (tmp_path / "moved.db").rename(path)
        bandit.ask(MENU)


# --- the lock ------------------------------------------------------------------------------

SECOND = """
import sys
from superarm.live import Storage
with Storage(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.readline()
"""


@no_windows
def test_a_lock_that_is_removed_is_taken_again(tmp_path: Path) -> None:
    """Unless another process was faster: then only that one writes."""
    path = tmp_path / "bandits.db"
    lock = tmp_path / ".bandits.db.lock"
    url = f"sqlite:///{path}"
    with Storage(url) as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        lock.unlink()
        bandit.ask(MENU, decision_id="first")
        with pytest.raises(ConflictError, match="another process uses"):
            Storage(url)
        lock.unlink()
        command = [sys.executable, "-c", SECOND, url]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as second:
            assert second.stdin is not None
            assert second.stdout is not None
            assert second.stdout.readline() == "open\n"
            with pytest.raises(StorageError, match="another process has opened"):
                bandit.ask(MENU, decision_id="second")
            second.stdin.write("\n")
            second.stdin.flush()
            second.wait(60.0)
        bandit.ask(MENU, decision_id="second")
        assert bandit.pending == ["first", "second"]
        assert storage.journal.check() == []
