"""Several processes on one PostgreSQL: a bandit has one owner, which may die at any time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from threading import Event
from time import monotonic, sleep
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from fault_table import record_menu
from insistent_clients import MENU, Acknowledged, menu_policy
from postgres_cluster import Cluster
from running_service import http_client, running_service
from served_process import ServedProcess
from tampering import tamper

from superarm.client import Client, RemoteBandit
from superarm.core.errors import SuperarmError
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.live import Answer, Storage, load_bandit
from superarm.live.access import SCOPES, make_token
from superarm.live.bandits import NOBODY
from superarm.live.events import Kind
from superarm.live.journal import ProcessRow, StorageError
from superarm.live.service import Settings
from superarm.live.service.handover import Handover
from superarm.live.service.owners import ALIVE_SECONDS, Owners, weight_of

# --- who owns what -------------------------------------------------------------------------


@pytest.fixture
def storages(postgres_url: str) -> Iterator[list[Storage]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Storage(postgres_url)) for _ in range(3)]


def members(storages: list[Storage]) -> list[Owners]:
    """Three processes that have seen each other."""
    owners = []
    for number, storage in enumerate(storages):
        journal = storage.journal
        owners.append(Owners(journal, f"http://127.0.0.1:{number + 1}"))  # type: ignore[arg-type]
    for _ in range(2):
        for one in owners:
            one.beat()
    return owners


def owner_by_each(owners: list[Owners], bandit: str) -> list[str]:
    """The address of the owner of a bandit, as each process sees it."""
    return [one.other_owner("acme", bandit) or one._address for one in owners]


def test_all_processes_agree_on_one_owner(storages: list[Storage]) -> None:
    owners = members(storages)
    shares: Counter[str] = Counter()
    for number in range(300):
        views = owner_by_each(owners, f"bandit{number}")
        assert len(set(views)) == 1
        shares[views[0]] += 1
    # Each has 100 ± 8.2 by chance; five standard deviations are exceeded once in a million.
    assert min(shares.values()) > 100 - 5 * 8.2


def test_only_the_bandits_of_a_process_that_stops_move(storages: list[Storage]) -> None:
    owners = members(storages)
    before = {f"b{n}": owner_by_each(owners, f"b{n}")[0] for n in range(100)}
    leaving = owners.pop()
    leaving._membership.leave(leaving._process)
    for one in owners:
        one.beat()
    for bandit, address in before.items():
        views = owner_by_each(owners, bandit)
        assert len(set(views)) == 1
        if address != leaving._address:
            assert views[0] == address


# --- handing over --------------------------------------------------------------------------


@pytest.mark.slow
def test_requests_reach_the_owner_through_any_process(postgres_url: str) -> None:
    with ExitStack() as stack:
        addresses = []
        services = []
        for _ in range(2):
            served = stack.enter_context(ServedProcess(postgres_url))
            services.append(served)
            addresses.append(served.address)
        wait_until_they_know_each_other(postgres_url, 2)
        first = Client(addresses[0])
        second = Client(addresses[1])
        bandit = first.create_bandit("menu", spec=menu_policy())
        same = second.load_bandit("menu")
        answer = bandit.ask(MENU, decision_id="a")
        assert same.pending == ["a"]
        assert same.ask(MENU, decision_id="a") == answer
        assert same.tell("a", {answer.arms[0]: 0.5})
        assert bandit.pending == []
        assert not bandit.tell("a", {answer.arms[0]: 0.5})
        assert bandit.predict(MENU).mean.tolist() == same.predict(MENU).mean.tolist()
        kinds = [event.kind for event in same.events()]
        assert kinds == [Kind.CREATED, Kind.DECIDED, Kind.OBSERVED]
        unknown = httpx.get(f"{addresses[0]}/v1/decisions/none")
        assert unknown.status_code == 404
        for served in services:
            served.stop()


def wait_until_they_know_each_other(url: str, number: int) -> None:
    """Until all of them are alive, and each has looked since."""
    with Storage(url) as storage:
        wait_until(lambda: len(alive(storage)) >= number)
    sleep(1.5)


def alive(storage: Storage) -> list[ProcessRow]:
    """The processes that count as alive."""
    journal: Any = storage.journal
    rows: list[ProcessRow] = journal.processes(ALIVE_SECONDS)
    return rows


def owner(storage: Storage, tenant: str) -> str | None:
    """The address of the process that owns the bandit ``menu``, by the heartbeats in the journal."""
    rows = alive(storage)
    if not rows:
        return None
    return max(rows, key=lambda row: weight_of(row.id, tenant, "menu")).address


def wait_until(is_reached: Callable[[], bool]) -> None:
    end = monotonic() + 120.0
    while not is_reached():
        if monotonic() > end:
            raise TimeoutError("it did not happen within two minutes")
        sleep(0.05)


class Kills(NamedTuple):
    acknowledged: Acknowledged
    of_owner: int
    """How many of the killed processes owned the bandit."""


def play_under_kills(url: str, clients: int, kills: int) -> Kills:
    """Clients ask and tell through three processes; whichever owns the bandit is killed."""
    with ExitStack() as stack:
        storage = stack.enter_context(Storage(url))
        served = [stack.enter_context(ServedProcess(url)) for _ in range(3)]
        addresses = [process.address for process in served]
        wait_until_they_know_each_other(url, 3)
        Client(addresses[0]).create_bandit("menu", spec=menu_policy())
        stopping = Event()
        numbers = count()
        acknowledged = Acknowledged()
        kills_of_owner = 0

        def use(client_number: int) -> None:
            rng = np.random.default_rng(client_number)
            while not stopping.is_set():
                play_once(addresses, rng, f"d{next(numbers)}", acknowledged)

        with ThreadPoolExecutor(clients) as threads:
            running = [threads.submit(use, number) for number in range(clients)]
            try:
                for _ in range(kills):
                    wait_for_progress(acknowledged)
                    # A process that was killed counts as alive for a while.
                    wait_until(lambda: owner(storage, NOBODY) in addresses)
                    owner_address = owner(storage, NOBODY)
                    (victim,) = (
                        place
                        for place, address in enumerate(addresses)
                        if address == owner_address
                    )
                    served[victim].kill()
                    kills_of_owner += 1
                    wait_for_progress(acknowledged)
                    served[victim] = stack.enter_context(ServedProcess(url))
                    addresses[victim] = served[victim].address
                wait_for_progress(acknowledged)
            finally:
                stopping.set()
            for one in running:
                one.result(120)
        for process in served:
            process.stop()
    return Kills(acknowledged, kills_of_owner)


def play_once(
    addresses: list[str],
    rng: np.random.Generator,
    decision: str,
    acknowledged: Acknowledged,
) -> None:
    """Ask and tell through processes drawn at random, and note what they acknowledge."""
    answer = None
    for _ in range(40):
        address = addresses[int(rng.integers(len(addresses)))]
        try:
            with Client(address, retries=0, timeout=20.0) as client:
                bandit = client.load_bandit("menu")
                if answer is None:
                    answer = bandit.ask(MENU, decision_id=decision)
                    acknowledged.add_ask(decision, str(answer.arms[0]))
                reward = len(decision) / 10
                is_new = bandit.tell(decision, {answer.arms[0]: reward})
                acknowledged.add_tell(decision, reward, is_new=is_new)
                return
        except SuperarmError:
            sleep(0.05)


def wait_for_progress(acknowledged: Acknowledged) -> None:
    """Wait until five more rewards are acknowledged."""
    enough = len(acknowledged.tells) + 5
    wait_until(lambda: len(acknowledged.tells) >= enough)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "kills"), [(4, 2), pytest.param(32, 10, marks=pytest.mark.full)]
)
def test_owners_that_are_killed_lose_nothing(
    cluster: Cluster, postgres_url: str, clients: int, kills: int
) -> None:
    acknowledged, kills_of_owner = play_under_kills(postgres_url, clients, kills)
    assert kills_of_owner == kills
    cluster.wait_until_unused()
    with Storage(postgres_url) as storage:
        record_menu(
            "kill -9 of the owner, one of three processes",
            load_bandit("menu", storage=storage),
            acknowledged,
            clients=clients,
            faults=kills_of_owner,
        )


# --- ownership moves -----------------------------------------------------------------------


def test_one_beat_after_an_owner_expires_survivors_name_the_same(
    postgres_url: str, storages: list[Storage]
) -> None:
    owners = members(storages)
    (before,) = set(owner_by_each(owners, "menu"))
    dead = next(one for one in owners if one._address == before)
    survivors = [one for one in owners if one is not dead]
    tamper(
        postgres_url,
        f"UPDATE processes SET seen = seen - interval '{ALIVE_SECONDS} seconds' "
        f"WHERE id = '{dead._process}'",
    )
    assert owner_by_each(survivors, "menu") == [before, before]  # not yet noticed
    for one in survivors:
        one.beat()
    (after,) = set(owner_by_each(survivors, "menu"))
    assert after in {one._address for one in survivors}


def last_beat(storage: Storage, address: str) -> float:
    """When a process was last seen, by the clock of the database, even if it is dead."""
    journal: Any = storage.journal
    rows: list[ProcessRow] = journal.processes(3600.0)
    return max(row.seen for row in rows if row.address == address)


@pytest.mark.slow
def test_ownership_moves_when_the_owner_is_killed(postgres_url: str) -> None:
    """Each survivor notices with its first heartbeat after the owner has expired.

    So that takes ALIVE_SECONDS and BEAT_SECONDS at most, if the machine is idle. It may not be: this
    waits for the heartbeats and prints the seconds.
    """
    with ExitStack() as stack:
        storage = stack.enter_context(Storage(postgres_url))
        served = [stack.enter_context(ServedProcess(postgres_url)) for _ in range(3)]
        wait_until_they_know_each_other(postgres_url, 3)
        by_address = {process.address: process for process in served}
        Client(served[0].address).create_bandit("menu", spec=menu_policy())
        first_owner = owner(storage, NOBODY)
        assert first_owner is not None
        survivors = [address for address in by_address if address != first_owner]
        clients = [
            stack.enter_context(Client(address, retries=0, timeout=60.0))
            for address in survivors
        ]
        bandits = [client.load_bandit("menu") for client in clients]
        answers = [bandit.ask(MENU) for bandit in bandits]
        by_address[first_owner].kill()
        killed_at = monotonic()
        expires = last_beat(storage, first_owner) + ALIVE_SECONDS
        for bandit, answer in zip(bandits, answers, strict=True):
            wait_until(lambda: tells(bandit, answer))  # noqa: B023
        acknowledged_after = monotonic() - killed_at
        wait_until(lambda: min(last_beat(storage, one) for one in survivors) > expires)
        moved_after = monotonic() - killed_at
        assert {row.address for row in alive(storage)} == set(survivors)
        assert owner(storage, NOBODY) in survivors
        for bandit in bandits:
            answer = bandit.ask(MENU)
            assert bandit.tell(answer, {answer.arms[0]: 0.5})
        print(
            f"rewards acknowledged {acknowledged_after:.1f} s after the kill, "
            f"new owner after {moved_after:.1f} s"
        )
        for address in survivors:
            by_address[address].stop()


def tells(bandit: RemoteBandit, answer: Answer) -> bool:
    """Whether a reward is acknowledged; it is refused while the service looks for the owner."""
    try:
        return bandit.tell(answer, {answer.arms[0]: 0.5})
    except StorageError:
        return False


# --- tokens --------------------------------------------------------------------------------


@pytest.mark.slow
def test_tokens_count_in_a_process_that_hands_over(postgres_url: str) -> None:
    with ExitStack() as stack:
        storage = stack.enter_context(Storage(postgres_url))
        tokens = {}
        for tenant in ("acme", "other"):
            token, row = make_token(tenant, "tests", SCOPES)
            storage.journal.add_token(row)
            tokens[tenant] = {"Authorization": f"Bearer {token}"}
        served = [stack.enter_context(ServedProcess(postgres_url)) for _ in range(2)]
        wait_until_they_know_each_other(postgres_url, 2)
        of_owner = owner(storage, "acme")
        (elsewhere,) = {process.address for process in served} - {of_owner}
        http = stack.enter_context(http_client(elsewhere))
        mine = tokens["acme"]
        body = {"name": "menu", "spec": to_json(spec_of(menu_policy()))}
        assert http.post("/v1/bandits", json=body, headers=mine).status_code == 201
        path = "/v1/bandits/menu/decisions"
        ask = {"arms": MENU, "decision_id": "monday"}
        assert http.post(path, json=ask).status_code == 401
        assert http.post(path, json=ask, headers=tokens["other"]).status_code == 404
        asked = http.post(path, json=ask, headers=mine)
        assert asked.status_code == 201
        tell = {"rewards": {asked.json()["arms"][0]: 0.5}}
        for path in (
            "/v1/decisions/monday/observations",
            "/v1/decisions/monday/observations?bandit=menu",
        ):
            assert http.post(path, json=tell).status_code == 401
            refused = http.post(path, json=tell, headers=tokens["other"])
            assert refused.status_code == 404
            assert "acme" not in refused.text
        accepted = http.post(path, json=tell, headers=mine)
        assert accepted.status_code == 201
        kinds = [
            event.kind
            for event in load_bandit("menu", storage=storage, tenant="acme").events()
        ]
        assert kinds == [Kind.CREATED, Kind.DECIDED, Kind.OBSERVED]
        for process in served:
            process.stop()


# --- an owner that is not there ------------------------------------------------------------


@pytest.mark.slow
def test_a_process_that_cannot_reach_the_owner_answers_itself(
    postgres_url: str,
) -> None:
    """The owner is registered as alive, but nobody listens there."""
    with Storage(postgres_url) as storage, Storage(postgres_url) as other:
        settings = Settings(address="http://127.0.0.1:1")
        with running_service(storage, settings) as url, Client(url) as client:
            for number in range(8):  # about half of them belong to the other
                name = f"menu{number}"
                client.create_bandit(name, spec=menu_policy())
                other.journal.heartbeat("ghost", "http://127.0.0.1:9")  # type: ignore[attr-defined]
                sleep(0.3)
                answer = client.load_bandit(name).ask(MENU)
                assert client.load_bandit(name).tell(answer, {answer.arms[0]: 1.0})


def test_the_path_of_a_request_never_becomes_part_of_a_host() -> None:
    """``http://owner`` and a path such as ``@elsewhere/`` must not be joined as text."""
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={})

    async def forward() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            nobody: Any = None
            handover = Handover(nobody, nobody, nobody, client)
            scope = {
                "method": "GET",
                "raw_path": b"/v1/bandits/x@169.254.169.254/latest",
                "query_string": b"",
                "headers": [],
            }
            await handover._forward("http://127.0.0.1:8642", scope, b"")

    asyncio.run(forward())
    assert asked[0].url.host == "127.0.0.1"
    assert asked[0].url.port == 8642


def test_paths_that_do_not_begin_with_a_slash_are_not_handed_over() -> None:
    passed: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(scope["path"])

    nobody: Any = None
    handover = Handover(app, nobody, nobody, nobody)
    scope = {
        "type": "http",
        "path": "/v1/bandits/x@elsewhere/y",
        "raw_path": b"%2Fv1%2Fbandits%2Fx@elsewhere/y",
        "headers": [],
    }
    asyncio.run(handover(scope, nobody, nobody))
    assert passed == ["/v1/bandits/x@elsewhere/y"]
