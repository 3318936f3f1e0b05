"""A storage that is full or read-only for a while: requests fail with a reason, then succeed."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from fault_table import record_menu
from insistent_clients import (
    MENU,
    Acknowledged,
    InsistentClients,
    check_journal,
    menu_policy,
)
from running_service import running_service, wait_until_ready
from served_process import ServedProcess
from storage_faults import full_disk, read_only

from superarm.client import Client
from superarm.core.errors import SuperarmError
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.journal import StorageError

Fault = Callable[[Storage], AbstractContextManager[None]]
FAULTS = [
    pytest.param(full_disk, r"full|No space left", id="full"),
    pytest.param(read_only, r"readonly|read-only", id="read-only"),
]
NAMES: dict[Fault, str] = {full_disk: "full disk", read_only: "read-only storage"}

TIMES = [2, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.full])]
"""How often the fault begins and ends."""

SPEC = to_json(spec_of(menu_policy()))
WRITES = [
    ("/v1/bandits", {"name": "other", "spec": SPEC}),
    ("/v1/bandits/menu/decisions", {"arms": MENU, "decision_id": "second"}),
    ("/v1/decisions/first/observations", {"rewards": {"mocha": 0.5}}),
]
SPARE = [f"f{number:04d}" for number in range(60)]  # ids as long as "first"
READS = ["/healthz", "/readyz", "/v1/bandits/menu", "/v1/decisions/first"]


@pytest.fixture
def storage(url: str) -> Iterator[Storage]:
    with Storage(url) as opened:
        yield opened


def fail_repeatedly(
    clients: InsistentClients, storage: Storage, fault: Fault, times: int, count: int
) -> None:
    """Let a fault begin and end while clients ask and tell."""
    clients.wait_for_acknowledgements(4 * count)
    for _ in range(times):
        with fault(storage):
            clients.wait_for_failures(2 * count)
        clients.wait_for_acknowledgements(4 * count)


def record_reopened(
    storage: Storage, fault: str, clients: InsistentClients, count: int, times: int
) -> None:
    """Count what a bandit has that is loaded anew."""
    storage.close()
    with Storage(storage.url) as reopened:
        record_menu(
            fault,
            load_bandit("menu", storage=reopened),
            clients.acknowledged,
            clients=count,
            faults=times,
        )


def other_failures(
    failures: Sequence[SuperarmError], reason: str
) -> list[SuperarmError]:
    """Failures that do not state the reason, or not that it may pass."""
    return [
        failure
        for failure in failures
        if not isinstance(failure, StorageError)
        or re.search(reason, str(failure)) is None
    ]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("fault", "reason"), FAULTS)
def test_a_bandit_outlives_the_fault(
    storage: Storage, fault: Fault, reason: str, times: int
) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    with InsistentClients([bandit] * 8) as clients:
        fail_repeatedly(clients, storage, fault, times, 8)
    assert len(clients.failures) >= 2 * 8 * times
    assert other_failures(clients.failures, reason) == []
    check_journal(bandit, clients.acknowledged)
    record_reopened(storage, f"{NAMES[fault]} under a bandit", clients, 8, times)


# --- the service ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("fault", "reason"), FAULTS)
def test_a_service_outlives_the_fault(
    storage: Storage, fault: Fault, reason: str, times: int
) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(running_service(storage))
        connections = [
            stack.enter_context(Client(address, retries=0)) for _ in range(8)
        ]
        connections[0].create_bandit("menu", spec=menu_policy())
        bandits = [connection.load_bandit("menu") for connection in connections]
        with InsistentClients(bandits) as clients:
            fail_repeatedly(clients, storage, fault, times, 8)
        assert len(clients.failures) >= 2 * 8 * times
        assert other_failures(clients.failures, reason) == []
        bandit = load_bandit("menu", storage=storage)  # the one that the service has
        check_journal(bandit, clients.acknowledged)
    record_reopened(storage, f"{NAMES[fault]} under the service", clients, 8, times)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "reason"), FAULTS)
def test_every_write_is_503_and_every_read_is_answered(
    storage: Storage, fault: Fault, reason: str
) -> None:
    bandit = create_bandit("menu", spec=menu_policy(), storage=storage)
    for decision in ("first", *SPARE):
        bandit.ask({"mocha": MENU["mocha"]}, decision_id=decision)
    with (
        running_service(storage) as address,
        httpx.Client(base_url=address, timeout=60.0) as http,
    ):
        wait_until_ready(http)
        with fault(storage):
            exhaust(bandit, SPARE)
            for path, body in WRITES:
                refused = http.post(path, json=body)
                assert refused.status_code == 503, refused.text
                assert refused.headers["retry-after"] == "1"
                problem = refused.json()
                assert re.search(reason, problem["detail"]), problem
                explained = http.get("/v1/decisions/first/explain")
                assert explained.status_code == 200, explained.text
            for path in READS:
                assert http.get(path).status_code == 200, path
            predicted = http.post("/v1/bandits/menu/predict", json={"arms": MENU})
            assert predicted.status_code == 200
        for path, body in WRITES:
            accepted = http.post(path, json=body)
            assert accepted.status_code == 201, accepted.text
    check_journal(bandit, Acknowledged())


def exhaust(bandit: Bandit, decisions: Iterable[str]) -> None:
    """Write until it fails: last pages have room, and sessions learn a setting with delay."""
    for decision in decisions:
        try:
            bandit.tell(decision, {"mocha": 0.5})
        except StorageError:
            return
    raise AssertionError("the fault never began")


# --- a file that the system does not let grow ----------------------------------------------


@contextmanager
def limited_files(process: int, most_bytes: int) -> Iterator[None]:
    """No file of a process grows beyond a size until the block ends: its writes fail, or are torn.

    Python ignores the signal that goes with it.

    Args:
        process: Its id.
        most_bytes: The size.
    """
    limits = resource.prlimit(process, resource.RLIMIT_FSIZE)
    _, hard = limits
    resource.prlimit(process, resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, limits)


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux changes the limits of another process"
)
@pytest.mark.parametrize(
    "sizes",
    [[0, 10_000], pytest.param(range(0, 50_000, 2_500), marks=pytest.mark.full)],
    ids=["twice", "twenty times"],
)
def test_a_log_that_cannot_grow_loses_nothing(
    tmp_path: Path, sizes: Sequence[int]
) -> None:
    path = tmp_path / "bandits.db"
    url = f"sqlite:///{path}"
    with Storage(url) as storage:
        create_bandit("menu", spec=menu_policy(), storage=storage)
    with ExitStack() as stack:
        service = stack.enter_context(ServedProcess(url))
        connections = [
            stack.enter_context(Client(service.address, retries=0)) for _ in range(8)
        ]
        bandits = [connection.load_bandit("menu") for connection in connections]
        clients = stack.enter_context(InsistentClients(bandits))
        for more in sizes:
            clients.wait_for_acknowledgements(4 * len(bandits))
            log_bytes = path.with_name(f"{path.name}-wal").stat().st_size
            # In the next frames of the log, which a write then tears. A long log starts anew.
            most_bytes = min(log_bytes, 2**20) + more
            with limited_files(service.process.pid, most_bytes):
                clients.wait_for_failures(2 * len(bandits))
        clients.wait_for_acknowledgements(4 * len(bandits))
        failures = list(clients.failures)
        assert len(failures) >= 2 * len(bandits) * len(sizes)
        assert other_failures(failures, "disk I/O error|full") == []
        service.kill()
    with Storage(url) as storage:
        record_menu(
            "log that cannot grow",
            load_bandit("menu", storage=storage),
            clients.acknowledged,
            clients=len(bandits),
            faults=len(sizes),
        )


@pytest.mark.slow
def test_a_storage_that_cannot_be_created_is_an_error_with_advice(
    tmp_path: Path,
) -> None:
    """The service ends with the reason, and starts once there is room."""
    script = (
        "import resource, sys; from superarm.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY)); "
        "main()"
    )
    url = f"sqlite:///{tmp_path / 'bandits.db'}"
    command = ["serve", "--storage", url, "--port", "0", "--json"]
    finished = subprocess.run(
        [sys.executable, "-c", script, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode != 0
    assert "check disk space" in finished.stderr
    assert "Traceback" not in finished.stderr
    with (
        ServedProcess(url) as service,
        httpx.Client(base_url=service.address, timeout=60.0) as http,
    ):
        wait_until_ready(http)
