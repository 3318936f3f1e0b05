"""Files of SQLite that a crash has torn or a disk has damaged: a prefix of the events, or an error."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_table import FaultCounts
from insistent_clients import MENU, menu_policy

from superarm.core.errors import FileError, StateError
from superarm.live import Storage, create_bandit, load_bandit
from superarm.live.events import Event, Kind

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
PAGE_BYTES = 4096
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES


class Recording(NamedTuple):
    """A copy of a database and its log, taken while both were open."""

    database: bytes
    log: bytes
    events: list[Event]
    sizes: list[int]
    """The bytes of the log when each event was acknowledged."""

    def acknowledged_within(self, log_bytes: int) -> int:
        """How many events were acknowledged when the log was this long."""
        return sum(size <= log_bytes for size in self.sizes)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A bandit that asked and told, and never closed its file."""
    path = tmp_path_factory.mktemp("live") / "bandits.db"
    log = path.with_name("bandits.db-wal")
    with Storage(f"sqlite:///{path}") as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        sizes = [log.stat().st_size]
        for number in range(12):
            answer = bandit.ask(MENU, decision_id=f"d{number}")
            sizes.append(log.stat().st_size)
            bandit.tell(answer, {answer.arms[0]: number / 10})
            sizes.append(log.stat().st_size)
        return Recording(
            path.read_bytes(), log.read_bytes(), list(bandit.events()), sizes
        )


def write_files(folder: Path, database: bytes, log: bytes) -> Path:
    folder.mkdir()
    path = folder / "bandits.db"
    path.write_bytes(database)
    path.with_name("bandits.db-wal").write_bytes(log)
    return path


def recovered_events(path: Path) -> list[Event]:
    """The events of the bandit, which answers and replays; none if it was never created."""
    with Storage(f"sqlite:///{path}") as storage:
        assert storage.journal.check() == []
        if storage.journal.find("", "menu") is None:
            return []
        bandit = load_bandit("menu", storage=storage)
        events = list(bandit.events())
        assert bandit.verify().same
        bandit.ask(MENU)
        return events


def doubled_events(events: Sequence[Event]) -> int:
    """Events with the key of an earlier one."""
    keys = [event.key for event in events]
    return len(keys) - len(set(keys))


@dataclass
class LogCounts:
    """What copies with a damaged log have lost, and whether the rest is as recorded."""

    acknowledged: int = 0
    lost: int = 0
    doubled: int = 0
    is_same: bool = True

    def add(self, events: Sequence[Event], acknowledged: int, *, is_same: bool) -> None:
        self.acknowledged += acknowledged
        self.lost += max(0, acknowledged - len(events))
        self.doubled += doubled_events(events)
        self.is_same &= is_same

    def record(self, fault: str, faults: int) -> FaultCounts:
        return FaultCounts(
            fault=fault,
            url="sqlite:",
            clients=1,
            faults=faults,
            acknowledged=self.acknowledged,
            lost=self.lost,
            doubled=self.doubled,
            events_same=self.is_same,
        ).record()


def refusals(path: Path) -> list[str]:
    """Why the file cannot be opened, or what a check finds."""
    try:
        with Storage(f"sqlite:///{path}") as storage:
            return storage.journal.check()
    except (StateError, FileError) as error:
        return [str(error)]


def test_the_recording_has_several_frames_for_each_event(recording: Recording) -> None:
    assert len(recording.log) == recording.sizes[-1]
    assert (len(recording.log) - HEADER_BYTES) % FRAME_BYTES == 0
    assert len(set(recording.sizes)) == len(recording.events) == 25


# --- a torn end ----------------------------------------------------------------------------


def cuts(recording: Recording, count: int) -> list[int]:
    """Places in the log: ends of commits and of frames, beside them, and anywhere."""
    rng = random.Random(0)
    total = len(recording.log)
    frames = list(range(HEADER_BYTES, total + 1, FRAME_BYTES))
    near = [
        place + shift
        for place in [*rng.sample(frames, count // 4), *recording.sizes[-2:]]
        for shift in (-1, 0, 1, FRAME_HEADER_BYTES)
    ]
    anywhere = [rng.randrange(total) for _ in range(count // 4)]
    places = {0, 1, HEADER_BYTES - 1, HEADER_BYTES, total, *near, *anywhere}
    return sorted(place for place in places if 0 <= place <= total)


def prove_cuts(recording: Recording, folder: Path, count: int) -> FaultCounts:
    places = cuts(recording, count)
    counts = LogCounts()
    for cut in places:
        path = write_files(folder / str(cut), recording.database, recording.log[:cut])
        events = recovered_events(path)
        expected = recording.events[: recording.acknowledged_within(cut)]
        counts.add(events, len(expected), is_same=events == expected)
    return counts.record("log that is cut off", len(places))


def test_a_log_that_is_cut_has_every_commit_before(
    recording: Recording, tmp_path: Path
) -> None:
    assert prove_cuts(recording, tmp_path, count=12).is_clean


@pytest.mark.slow
@pytest.mark.full
def test_a_log_that_is_cut_anywhere_has_every_commit_before(
    recording: Recording, tmp_path: Path
) -> None:
    count = len(recording.log) // FRAME_BYTES * 4
    assert prove_cuts(recording, tmp_path, count=count).is_clean


def flipped(content: bytes, place: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 0xFF
    return bytes(changed)


@pytest.mark.parametrize(
    "offset", [0, 3, 7, 8, 15, 16, 23, 24, FRAME_BYTES // 2, FRAME_BYTES - 1]
)
def test_a_damaged_last_frame_costs_its_commit_alone(
    offset: int, recording: Recording, tmp_path: Path
) -> None:
    place = len(recording.log) - FRAME_BYTES + offset
    path = write_files(
        tmp_path / "copy", recording.database, flipped(recording.log, place)
    )
    assert recovered_events(path) == recording.events[:-1]


# --- damage before the end -------------------------------------------------------------------


def prove_flips(recording: Recording, folder: Path, places: Sequence[int]) -> int:
    """Flip bytes of the log, each in a copy; how many copies were refused."""
    refused = 0
    counts = LogCounts()
    for place in places:
        path = write_files(
            folder / str(place), recording.database, flipped(recording.log, place)
        )
        if refusals(path):
            refused += 1
            continue
        events = recovered_events(path)
        # Nobody can tell the last commits from torn ones.
        sound = max(recording.acknowledged_within(place), len(recording.events) - 2)
        is_same = events == recording.events[: len(events)]
        counts.add(events, sound, is_same=is_same)
    print(f"{refused} of {len(places)} refused")
    counts.record("log with a flipped byte", len(places))
    return refused


def inner_places(recording: Recording, count: int) -> list[int]:
    rng = random.Random(1)
    return rng.sample(range(HEADER_BYTES, len(recording.log)), count)


def test_a_log_that_is_damaged_before_later_commits_is_refused(
    recording: Recording, tmp_path: Path
) -> None:
    places = inner_places(recording, 12)
    assert prove_flips(recording, tmp_path, places) >= 8


@pytest.mark.slow
@pytest.mark.full
def test_a_log_that_is_damaged_anywhere_is_refused(
    recording: Recording, tmp_path: Path
) -> None:
    places = inner_places(recording, 500)
    assert prove_flips(recording, tmp_path, places) >= 400


def test_a_log_with_a_damaged_header_is_refused(
    recording: Recording, tmp_path: Path
) -> None:
    places = range(HEADER_BYTES)
    assert prove_flips(recording, tmp_path, places) == HEADER_BYTES


def test_what_failed_commits_left_behind_is_no_damage(
    recording: Recording, tmp_path: Path
) -> None:
    """Commits of decreasing length that the disk refused: each overwrote the first frames."""
    sizes = recording.sizes
    remnants = [
        recording.log[sizes[place] + FRAME_BYTES : sizes[place + 1]]
        for place in (11, 15, 19)
    ]
    assert all(len(remnant) >= FRAME_BYTES for remnant in remnants)
    log = recording.log[: sizes[10]] + b"".join(remnants)
    path = write_files(tmp_path / "copy", recording.database, log)
    assert recovered_events(path) == recording.events[:11]


def test_the_advice_leads_to_the_events_before_the_damage(
    recording: Recording, tmp_path: Path
) -> None:
    place = recording.sizes[5] + 100
    path = write_files(
        tmp_path / "copy", recording.database, flipped(recording.log, place)
    )
    before = path.with_name("bandits.db-wal").read_bytes()
    with pytest.raises(StateError) as caught:
        Storage(f"sqlite:///{path}")
    assert path.read_bytes() == recording.database
    assert path.with_name("bandits.db-wal").read_bytes() == before
    message = str(caught.value)
    assert "restore a backup" in message
    size = int(message.rpartition("--size=")[2].partition("`")[0])
    log = path.with_name("bandits.db-wal")
    log.write_bytes(before[:size])
    assert recovered_events(path) == recording.events[:6]


@pytest.mark.parametrize("size", [32, 512, 4096])
def test_a_log_whose_beginning_is_gone_is_refused(
    recording: Recording, tmp_path: Path, size: int
) -> None:
    log = bytes(size) + recording.log[size:]
    path = write_files(tmp_path / "copy", recording.database, log)
    with pytest.raises(StateError, match="is damaged at byte"):
        Storage(f"sqlite:///{path}")


# --- a copy of a process at work ---------------------------------------------------------------

WRITERS = textwrap.dedent(
    """
    import sys, threading
    sys.path[:0] = sys.argv[2:]
    from insistent_clients import MENU
    from superarm.live import Storage, load_bandit

    storage = Storage(sys.argv[1])
    storage.journal._writer.execute("PRAGMA wal_autocheckpoint = 20")
    bandit = load_bandit("menu", storage=storage)
    lock = threading.Lock()

    def loop(client):
        number = 0
        while True:
            number += 1
            name = f"{client}-{number}"
            answer = bandit.ask(MENU, decision_id=name)
            bandit.tell(answer, {answer.arms[0]: number % 11 / 10})
            with lock:
                print(name, flush=True)

    for client in range(4):
        threading.Thread(target=loop, args=(client,)).start()
    """
)


def copies_of_a_process(folder: Path, count: int) -> Iterator[tuple[Path, set[str]]]:
    """Copies of the files at any moment, and the decisions that were told before."""
    path = folder / "bandits.db"
    url = f"sqlite:///{path}"
    with Storage(url) as storage:
        create_bandit("menu", spec=menu_policy(), storage=storage)
    here = Path(__file__).parents[1]
    folders = [str(here / "support"), str(here.parent / "src")]
    acknowledged: set[str] = set()
    with subprocess.Popen(
        [sys.executable, "-c", WRITERS, url, *folders],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for number in range(count):
                for _ in range(5):
                    acknowledged.add(process.stdout.readline().strip())
                process.send_signal(signal.SIGSTOP)
                _, status = os.waitpid(process.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status)  # it writes nothing while it is copied
                target = folder / f"copy{number}"
                target.mkdir()
                for name in ("bandits.db", "bandits.db-wal"):
                    shutil.copy(folder / name, target / name)
                yield target / "bandits.db", set(acknowledged)
                process.send_signal(signal.SIGCONT)
        finally:
            process.kill()


def prove_copies(folder: Path, count: int) -> FaultCounts:
    rng = random.Random(2)
    all_acknowledged = 0
    lost = 0
    doubled = 0
    is_same = True
    for path, acknowledged in copies_of_a_process(folder, count):
        assert "" not in acknowledged
        log = path.with_name("bandits.db-wal").read_bytes()
        torn_at = rng.randrange(len(log))
        torn = write_files(path.parent / "torn", path.read_bytes(), log[:torn_at])
        events = recovered_events(path)
        rewarded = {
            event.body["decision"] for event in events if event.kind is Kind.OBSERVED
        }
        all_acknowledged += len(acknowledged)
        lost += len(acknowledged - rewarded)
        doubled += doubled_events(events)
        # The last events may be missing, never others. Where these are in the database in part,
        # because a checkpoint had begun, the file is refused.
        if not refusals(torn):
            earlier = recovered_events(torn)
            is_same &= earlier == events[: len(earlier)]
    counts = FaultCounts(
        fault="copy of the files of a process at work, whole and torn",
        url="sqlite:",
        clients=4,
        faults=2 * count,
        acknowledged=all_acknowledged,
        lost=lost,
        doubled=doubled,
        events_same=is_same,
    )
    counts.record()
    return counts


@pytest.mark.thorough
def test_a_copy_at_any_moment_has_everything_acknowledged(tmp_path: Path) -> None:
    counts = prove_copies(tmp_path, count=3)
    assert (counts.lost, counts.doubled, counts.events_same) == (0, 0, True)


@pytest.mark.slow
@pytest.mark.full
def test_fifty_copies_have_everything_acknowledged(tmp_path: Path) -> None:
    counts = prove_copies(tmp_path, count=50)
    assert (counts.lost, counts.doubled, counts.events_same) == (0, 0, True)


# --- the database itself -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed_file(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database that was closed: everything is in one file."""
    path = tmp_path_factory.mktemp("closed") / "bandits.db"
    with Storage(f"sqlite:///{path}") as storage:
        bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
        for number in range(40):
            answer = bandit.ask(MENU, decision_id=f"d{number}")
            bandit.tell(answer, {answer.arms[0]: number / 10})
    assert not path.with_name("bandits.db-wal").exists()
    return path.read_bytes()


@pytest.mark.parametrize("content", [b"\0", b"\xa5"], ids=["zeros", "garbage"])
def test_a_damaged_page_is_found(
    content: bytes, closed_file: bytes, tmp_path: Path
) -> None:
    """Every page, each in a copy."""
    for start in range(0, len(closed_file), PAGE_BYTES):
        damaged = bytearray(closed_file)
        damaged[start : start + PAGE_BYTES] = content * PAGE_BYTES
        path = tmp_path / f"{start}.db"
        path.write_bytes(damaged)
        problems = refusals(path)
        assert problems, f"page at {start}"


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_file_that_lost_its_end_is_refused(
    keep: float, closed_file: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "bandits.db"
    pages = int(keep * len(closed_file) / PAGE_BYTES)
    path.write_bytes(closed_file[: pages * PAGE_BYTES])
    assert any(str(path) in message for message in refusals(path))


def test_a_file_of_zeros_is_refused(closed_file: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bandits.db"
    path.write_bytes(bytes(len(closed_file)))
    with pytest.raises(StateError, match="not a database"):
        Storage(f"sqlite:///{path}")
    assert path.read_bytes() == bytes(len(closed_file))


def test_a_changed_reward_is_found_by_a_replay(
    closed_file: bytes, tmp_path: Path
) -> None:
    """SQLite has no checksums of pages: a check cannot find it."""
    path = tmp_path / "bandits.db"
    assert closed_file.count(b"[1],[0.7]]") == 1
    path.write_bytes(closed_file.replace(b"[1],[0.7]]", b"[1],[0.9]]"))
    assert refusals(path) == []
    with Storage(f"sqlite:///{path}") as storage:
        bandit = load_bandit("menu", storage=storage)
        assert not bandit.verify().same
