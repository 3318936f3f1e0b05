"""Several processes on one PostgreSQL: a bandit has one owner, which may die at any time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from threading import Event
from time import monotonic, sleep
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from running_service import running_service
from served_process import ServedProcess

from superarm.client import Client
from superarm.core import Arms, Floats
from superarm.core.errors import SuperarmError
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, load_bandit
from superarm.live.events import Kind
from superarm.live.fold import Fold
from superarm.live.service import Settings
from superarm.live.service.handover import Handover
from superarm.live.service.owners import Owners
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=1),
)


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
        bandit = first.create_bandit("menu", spec=POLICY)
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
        end = monotonic() + 60.0
        while len(storage.journal.processes(3.0)) < number:  # type: ignore[attr-defined]
            if monotonic() > end:
                raise TimeoutError(f"{number} processes did not start within a minute")
            sleep(0.1)
    sleep(1.5)


def play_under_kills(url: str, clients: int, kills: int) -> set[str]:
    """Clients ask and tell through three processes, one of which is killed again and again.

    Returns:
        The decisions whose rewards were acknowledged.
    """
    with ExitStack() as stack:
        served = [stack.enter_context(ServedProcess(url)) for _ in range(3)]
        addresses = [process.address for process in served]
        wait_until_they_know_each_other(url, 3)
        Client(addresses[0]).create_bandit("menu", spec=POLICY)
        stopping = Event()
        numbers = count()
        acknowledged: set[str] = set()

        def use(client_number: int) -> None:
            rng = np.random.default_rng(client_number)
            while not stopping.is_set():
                number = next(numbers)
                decision = f"d{number}"
                if play_once(addresses, rng, decision):
                    acknowledged.add(decision)

        with ThreadPoolExecutor(clients) as threads:
            running = [threads.submit(use, number) for number in range(clients)]
            for kill in range(kills):
                wait_for_progress(acknowledged)
                victim = kill % 3
                served[victim].kill()
                wait_for_progress(acknowledged)
                served[victim] = stack.enter_context(ServedProcess(url))
                addresses[victim] = served[victim].address
            wait_for_progress(acknowledged)
            stopping.set()
            for one in running:
                one.result(120)
        for process in served:
            process.stop()
    return acknowledged


def play_once(addresses: list[str], rng: np.random.Generator, decision: str) -> bool:
    """Ask and tell through processes drawn at random; whether the rewards were acknowledged."""
    answer = None
    for _ in range(40):
        address = addresses[int(rng.integers(len(addresses)))]
        try:
            with Client(address, retries=0, timeout=20.0) as client:
                bandit = client.load_bandit("menu")
                if answer is None:
                    answer = bandit.ask(MENU, decision_id=decision)
                rewards = {str(arm): len(decision) / 10 for arm in answer.arms}
                bandit.tell(decision, rewards)
                return True
        except SuperarmError:
            sleep(0.05)
    return False


def wait_for_progress(acknowledged: set[str]) -> None:
    """Wait until five more decisions are acknowledged."""
    enough = len(acknowledged) + 5
    end = monotonic() + 60.0
    while len(acknowledged) < enough:
        if monotonic() > end:
            raise TimeoutError("fewer than five requests succeeded within a minute")
        sleep(0.05)


class JournalCounts(NamedTuple):
    """How many events of a journal each decision has, by its id."""

    decided: Counter[str]
    observed: Counter[str]


def count_events(bandit: Bandit) -> JournalCounts:
    decided = Counter[str]()
    observed = Counter[str]()
    for event in bandit.events():
        if event.kind is Kind.DECIDED:
            decided[event.body["id"]] += 1
        if event.kind is Kind.OBSERVED:
            observed[event.body["decision"]] += 1
    return JournalCounts(decided, observed)


def replayed_mean(bandit: Bandit) -> Floats:
    """The mean of every arm on the menu, by a policy that learns all events anew."""
    fold = Fold(bandit._journal)
    fold.catch_up()
    arms = Arms(ids=list(MENU), features=list(MENU.values()))
    offer = fold.offer(arms)
    policy: Any = fold.policy
    mean: Floats = policy.beliefs(offer).mean
    return mean


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "kills"), [(4, 2), pytest.param(32, 10, marks=pytest.mark.full)]
)
def test_owners_that_are_killed_lose_nothing(
    postgres_url: str, clients: int, kills: int
) -> None:
    acknowledged = play_under_kills(postgres_url, clients, kills)
    with Storage(postgres_url) as storage:
        bandit = load_bandit("menu", storage=storage)
        decided, observed = count_events(bandit)
        lost = acknowledged - set(observed)
        doubled = [name for name, times in observed.items() if times > 1]
        print(
            f"{len(acknowledged)} acknowledged, {len(lost)} lost, {len(doubled)} doubled"
        )
        assert lost == set()
        assert doubled == []
        assert set(decided.values()) == {1}
        assert set(observed) <= set(decided)
        assert bandit.verify().same
        # Learned anew from the first event on, not from a snapshot: equal but for rounding.
        np.testing.assert_allclose(
            bandit.predict(MENU).mean, replayed_mean(bandit), rtol=1e-9, atol=1e-12
        )


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
                client.create_bandit(name, spec=POLICY)
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
