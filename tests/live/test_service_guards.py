"""What one caller cannot do to others: learn of the operator's files, hold threads, streams or memory."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import islice
from pathlib import Path
from threading import Event, Semaphore
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from fastapi import HTTPException
from insistent_clients import MENU, menu_policy
from running_service import http_client, running_service, wait_until_ready
from starlette.types import Message

from superarm.core.errors import InputError
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.core.tables import Encoding
from superarm.live import Bandit, BanditSpec, Storage, create_bandit
from superarm.live.access import SCOPES, make_token
from superarm.live.journal import StorageError
from superarm.live.personalizer import personalizer_spec
from superarm.live.service import Limits, Settings, create_app, hub
from superarm.live.service.context import Service
from superarm.live.service.gate import Gate
from superarm.live.service.guard import _LimitedBody
from superarm.live.service.handover import Handover
from superarm.live.service.problems import Refusal
from superarm.live.service.rate_limit import RateLimit
from superarm.live.service.streams import EventStream

POLICY = menu_policy()
SPEC = to_json(spec_of(POLICY))
EVENTS = "/v1/bandits/menu/events"
DECISIONS = "/v1/bandits/menu/decisions"
LONGEST = 60.0  # seconds, for what happens at once


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with Storage(f"sqlite:///{tmp_path / 'private.db'}") as opened:
        yield opened


@pytest.fixture
def bandit(storage: Storage) -> Bandit:
    return create_bandit("menu", spec=POLICY, storage=storage)


def client(url: str, token: str | None = None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return http_client(url, headers=headers, timeout=LONGEST)


def limited(**limits: Any) -> Settings:
    return Settings(limits=Limits(**limits))


# --- limits over time ----------------------------------------------------------------------


class SteadyClock:
    """The monotonic clock of a module."""

    def __init__(self, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(f"{module}.clock.monotonic", lambda: self.now)


def test_an_idle_tenant_saves_up_one_second_of_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SteadyClock("superarm.live.service.rate_limit", monkeypatch)
    rate = RateLimit(10.0)
    for _ in range(2):
        rate.take("acme", 10)
        with pytest.raises(Refusal):
            rate.take("acme")
        clock.now += 3600.0
    rate.take("acme", 25)  # a batch passes at once, and is then paid off
    clock.now += 1.4
    with pytest.raises(Refusal):
        rate.take("acme")
    clock.now += 0.2
    rate.take("acme")


@pytest.mark.parametrize(("size", "passes"), [(10, True), (11, False)])
def test_a_body_of_unknown_length_may_have_as_many_bytes(
    size: int, passes: bool
) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * size, "more_body": False}

    body = _LimitedBody(receive, 10)
    if passes:
        assert asyncio.run(body())["body"] == b"x" * 10
    else:
        with pytest.raises(HTTPException, match="exceeds the limit of 10 bytes"):
            asyncio.run(body())


def test_a_removed_token_is_refused_within_seconds(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has removed it, so nothing tells this one."""
    clock = SteadyClock("superarm.live.service.gate", monkeypatch)
    token, row = make_token("acme", "ops", SCOPES)
    storage.journal.add_token(row)
    gate = Gate(storage.journal, needs_token=True)
    assert gate.caller(f"Bearer {token}").tenant == "acme"
    storage.journal.remove_token("acme", "ops")
    clock.now += 4.9
    assert gate.caller(f"Bearer {token}").tenant == "acme"
    clock.now += 0.1
    with pytest.raises(Refusal, match="removed"):
        gate.caller(f"Bearer {token}")


def add_token(storage: Storage, tenant: str, name: str, *scopes: str) -> str:
    token, row = make_token(tenant, name, scopes or SCOPES)
    storage.journal.add_token(row)
    return token


def detail(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    text: str = response.json()["detail"]
    return text


# --- texts of errors -----------------------------------------------------------------------


def test_a_failing_storage_is_named_in_the_log_only(
    storage: Storage,
    bandit: Bandit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = bandit.ask(MENU)
    line = {"decision": answer.id, "rewards": {answer.arms[0]: 1.0}}

    def fail(appends: Any) -> None:
        raise StorageError("private.db cannot be written: the disk is full")

    with running_service(storage) as url, client(url) as http:
        monkeypatch.setattr(storage.journal, "append", fail)
        path = f"/v1/decisions/{answer.id}/observations"
        told = http.post(path, json={"rewards": line["rewards"]})
        batch = http.post(
            "/v1/bandits/menu/observations/batch", content=json.dumps(line)
        )
        monkeypatch.undo()
    assert detail(told, 503).startswith("the storage cannot be")
    assert "private" not in told.text + batch.text
    assert json.loads(batch.text)["status"] == 503
    # One for each request, whichever way it was answered.
    assert caplog.text.count("private.db cannot be written") == 2


def test_a_damaged_journal_is_named_in_the_log_only(
    storage: Storage, bandit: Bandit, caplog: pytest.LogCaptureFixture
) -> None:
    decision = bandit.ask(MENU)
    storage.journal._writer.execute("DELETE FROM blobs")  # type: ignore[attr-defined]
    bandit.forget()
    bandit._journal._arms.clear()
    with running_service(storage) as url, client(url) as http:
        shown = http.get(f"/v1/decisions/{decision.id}/explain")
        rank = "/v1/bandits/menu/personalizer/v1.0/rank"
        ranked = http.post(rank, json={"actions": [{"id": "a", "features": []}]})
    assert "see the service's log" in detail(shown, 500)
    assert ranked.status_code == 500
    assert "private" not in shown.text + ranked.text
    records = [record for record in caplog.records if "is damaged" in record.message]
    assert len(records) == 2  # one for each request
    assert "private.db is damaged" in caplog.text
    for record in records:
        assert record.exc_info is not None
        assert record.exc_info[2] is not None  # where it was raised
    assert "Traceback (most recent call last)" in caplog.text


def test_a_fault_of_many_lines_is_logged_once(
    storage: Storage,
    bandit: Bandit,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = []
    for _ in range(3):
        answer = bandit.ask(MENU)
        lines.append({"decision": answer.id, "rewards": {answer.arms[0]: 1.0}})

    def fail(appends: Any) -> None:
        raise StorageError("private.db cannot be written: the disk is full")

    with running_service(storage) as url, client(url) as http:
        monkeypatch.setattr(storage.journal, "append", fail)
        caplog.clear()
        batch = http.post(
            "/v1/bandits/menu/observations/batch",
            content="\n".join(map(json.dumps, lines)),
        )
        monkeypatch.undo()
    statuses = [json.loads(line)["status"] for line in batch.text.splitlines()]
    assert statuses == [503, 503, 503]
    faults = [
        record for record in caplog.records if "cannot be written" in record.message
    ]
    assert len(faults) == 1


def test_an_unknown_bandit_does_not_name_the_storage(storage: Storage) -> None:
    with running_service(storage) as url, client(url) as http:
        missing = http.get("/v1/bandits/menu")
    assert detail(missing, 404) == "there is no bandit 'menu'"


# --- streams -------------------------------------------------------------------------------


def wait_for(http: httpx.Client, status: int) -> None:
    """Read events until they are answered with a status."""
    end = monotonic() + LONGEST
    while http.get(EVENTS, params={"follow": "false"}).status_code != status:
        assert monotonic() < end
        sleep(0.05)


def test_a_stream_ends_when_its_token_is_removed(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.live.service.streams.RECHECK_SECONDS", 0.0)
    create_bandit("menu", spec=POLICY, storage=storage, tenant="acme")
    admin = add_token(storage, "acme", "admin")
    reader = add_token(storage, "acme", "reader", "read")
    with (
        running_service(storage) as url,
        client(url, admin) as http,
        client(url, reader) as reading,
    ):
        with reading.stream("GET", EVENTS, timeout=10.0) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "id: 1"
            assert http.delete("/v1/tokens/reader").status_code == 204
            rest = list(lines)  # ends, because the service ends it
        assert any("created" in line for line in rest)
        assert reading.get(EVENTS).status_code == 401


@pytest.mark.usefixtures("bandit")
def test_streams_of_a_tenant_are_limited(storage: Storage) -> None:
    settings = limited(streams_per_tenant=1)
    with running_service(storage, settings) as url, client(url) as http:
        with http.stream("GET", EVENTS) as stream:
            lines = stream.iter_lines()  # the stream is closed with it
            assert next(lines) == "id: 1"
            refused = http.get(EVENTS, timeout=10.0)
            assert "streams of this tenant" in detail(refused, 429)
            assert int(refused.headers["retry-after"]) > 0
            assert http.get("/v1/bandits/menu").status_code == 200
        wait_for(http, 200)


def test_streams_of_all_tenants_are_limited(storage: Storage) -> None:
    tokens = []
    for tenant in ("acme", "other"):
        create_bandit("menu", spec=POLICY, storage=storage, tenant=tenant)
        tokens.append(add_token(storage, tenant, "all"))
    with (
        running_service(storage, limited(streams=1)) as url,
        client(url, tokens[0]) as first,
        client(url, tokens[1]) as second,
    ):
        with first.stream("GET", EVENTS) as stream:
            lines = stream.iter_lines()  # the stream is closed with it
            assert next(lines) == "id: 1"
            refused = second.get(EVENTS, timeout=10.0)
            assert "limit of open streams" in detail(refused, 503)
            assert int(refused.headers["retry-after"]) > 0
        wait_for(second, 200)


def test_a_client_that_does_not_read_is_dropped(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.live.service.streams.SEND_SECONDS", 0.05)
    service = Service(storage, limited(streams_per_tenant=1))
    ended = []

    async def events() -> AsyncIterator[str]:
        try:
            while True:
                yield "data: much\n\n"
        finally:
            ended.append(True)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()  # the buffers of the connection are full

    async def open_two() -> None:
        for _ in range(2):  # the second finds the slot of the first
            stream = EventStream(events(), service, "acme")  # type: ignore[arg-type]
            await asyncio.wait_for(
                stream({"type": "http"}, receive, send), timeout=LONGEST
            )

    asyncio.run(open_two())
    assert ended == [True, True]


# --- threads -------------------------------------------------------------------------------


class SlowAsks:
    """Asks of the tenant ``slow`` that wait until the test lets them go.

    Args:
        monkeypatch: Replaces the usual ask.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = Semaphore(0)
        self.may_end = Event()
        usual = Bandit.ask

        def ask(bandit: Bandit, *args: Any, **options: Any) -> Any:
            if bandit._row.tenant == "slow":
                self.started.release()
                assert self.may_end.wait(LONGEST)
            return usual(bandit, *args, **options)

        monkeypatch.setattr(Bandit, "ask", ask)


def test_slow_asks_of_one_tenant_do_not_hold_up_others(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.live.service.app._THREADS", 3)
    monkeypatch.setattr("superarm.live.service.concurrency.MOST_WAITING", 2)
    slow_asks = SlowAsks(monkeypatch)
    tokens = {}
    for tenant in ("slow", "fast"):
        create_bandit("menu", spec=POLICY, storage=storage, tenant=tenant)
        tokens[tenant] = add_token(storage, tenant, "all")
    with (
        running_service(storage, limited(threads_per_tenant=2)) as url,
        client(url, tokens["slow"]) as slow,
        client(url, tokens["fast"]) as fast,
        ThreadPoolExecutor(6) as pool,
    ):
        wait_until_ready(fast)

        def ask_slowly() -> httpx.Response:
            return slow.post(DECISIONS, json={"arms": MENU})

        asks: list[Future[httpx.Response]] = [pool.submit(ask_slowly) for _ in range(6)]
        try:
            for _ in range(2):
                assert slow_asks.started.acquire(timeout=LONGEST)
            for _ in range(3):
                assert fast.post(DECISIONS, json={"arms": MENU}).status_code == 201
            assert fast.get("/healthz").status_code == 200
            assert fast.get("/readyz").status_code == 200
            assert fast.get("/metrics").status_code == 200
            # Two run and two wait until they may end: the first to be answered are refused.
            refused = list(islice(as_completed(asks, timeout=LONGEST), 2))
        finally:
            slow_asks.may_end.set()
        answers = [future.result() for future in asks]
    for future in refused:
        answer = future.result()
        assert "requests of this tenant" in detail(answer, 429)
        assert answer.headers["retry-after"] == "1"
    assert sum(answer.status_code == 201 for answer in answers) == 4


class OtherOwner:
    """Another process that owns every bandit."""

    def other_owner(self, tenant: str, bandit: str) -> str:
        return "http://127.0.0.1:1"


def test_requests_to_another_process_take_turns(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests of a tenant that may have one under way: the second is refused."""
    monkeypatch.setattr("superarm.live.service.concurrency.MOST_WAITING", 0)
    service = Service(storage, limited(threads_per_tenant=1))
    nobody: Any = None
    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def request_twice() -> None:
        refused = asyncio.Event()

        async def answer(request: httpx.Request) -> httpx.Response:
            await asyncio.wait_for(refused.wait(), LONGEST)
            return httpx.Response(200)

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
            owners: Any = OtherOwner()
            handover = Handover(nobody, owners, service, http)
            scope = {
                "type": "http",
                "method": "GET",
                "path": "/v1/bandits/menu",
                "raw_path": b"/v1/bandits/menu",
                "query_string": b"",
                "headers": [],
            }
            requests = [
                asyncio.create_task(handover(dict(scope), receive, send))
                for _ in range(2)
            ]
            await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
            refused.set()
            await asyncio.gather(*requests)

    asyncio.run(request_twice())
    assert statuses == [429, 200]


def test_health_needs_no_thread_of_the_pool(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("superarm.live.service.app._THREADS", 1)
    slow_asks = SlowAsks(monkeypatch)
    create_bandit("menu", spec=POLICY, storage=storage, tenant="slow")
    token = add_token(storage, "slow", "all")
    with (
        running_service(storage) as url,
        client(url, token) as http,
        ThreadPoolExecutor(1) as pool,
    ):
        wait_until_ready(http)
        asking = pool.submit(http.post, DECISIONS, json={"arms": MENU})
        try:
            assert slow_asks.started.acquire(timeout=LONGEST)
            for path in ("/healthz", "/readyz", "/metrics"):
                assert http.get(path, timeout=20.0).status_code == 200
        finally:
            slow_asks.may_end.set()
        assert asking.result().status_code == 201


# --- limits --------------------------------------------------------------------------------


def wide_spec(values: int) -> dict[str, Any]:
    """A spec whose arms have one column, encoded as one feature for each value."""
    encoding = Encoding.of({"colour": [f"c{number:02}" for number in range(values)]})
    spec = BanditSpec(policy=spec_of(POLICY), encoding=encoding)
    return spec.as_json()


@pytest.mark.usefixtures("bandit")
def test_the_width_after_encoding_is_limited(storage: Storage) -> None:
    hashed = personalizer_spec(dimension=64).as_json()
    with running_service(storage, limited(dimension=20)) as url, client(url) as http:
        for spec in (hashed, wide_spec(40)):
            body = {"name": "wide", "spec": spec}
            assert "exceeds the limit of 20" in detail(
                http.post("/v1/bandits", json=body), 413
            )
            for path in ("/v1/bandits/menu/spec", "/v1/bandits/menu/challenger"):
                refused = http.put(path, json={"spec": spec})
                assert "exceeds the limit of 20" in detail(refused, 413)
        body = {"name": "narrow", "spec": wide_spec(10)}
        assert http.post("/v1/bandits", json=body).status_code == 201


def test_all_features_of_a_request_are_limited(storage: Storage) -> None:
    with running_service(storage, limited(numbers=100)) as url, client(url) as http:
        specs = {"colours": wide_spec(10), "ranks": personalizer_spec(dimension=16)}
        create_bandit("ranks", spec=specs["ranks"], storage=storage)
        body = {"name": "colours", "spec": specs["colours"]}
        assert http.post("/v1/bandits", json=body).status_code == 201
        arms = {f"arm{number}": {"colour": "c01"} for number in range(11)}
        path = "/v1/bandits/colours/decisions"
        assert "limit of 100 numbers" in detail(
            http.post(path, json={"arms": arms}), 413
        )
        del arms["arm0"]
        assert http.post(path, json={"arms": arms}).status_code == 201
        actions = [{"id": f"a{number}", "features": []} for number in range(7)]
        path = "/v1/bandits/ranks/personalizer/v1.0/rank"
        assert http.post(path, json={"actions": actions}).status_code == 413
        assert http.post(path, json={"actions": actions[:6]}).status_code == 201


@pytest.mark.usefixtures("bandit")
def test_each_line_of_a_batch_counts_as_a_request(storage: Storage) -> None:
    settings = limited(requests_per_second=0.01)  # so that none is regained
    path = "/v1/bandits/menu/observations/batch"
    line = json.dumps({"decision": "none", "rewards": {"tea": 1.0}}) + "\n"
    with running_service(storage, settings) as url, client(url) as http:
        batch = http.post(path, content=line * 5)
        assert batch.text.count("404") == 5
        refused = http.get("/v1/bandits")
        assert "requests a second" in detail(refused, 429)
        assert int(refused.headers["retry-after"]) > 400  # five requests, 100 s each
        assert detail(http.post(path, content=line), 429)


@pytest.mark.usefixtures("bandit")
def test_json_must_not_nest_deeply(storage: Storage) -> None:
    def nested(levels: int) -> str:
        return "[" * levels + "]" * levels

    with running_service(storage) as url, client(url) as http:
        headers = {"Content-Type": "application/json"}
        for levels, status in ((65, 422), (900, 422), (100_000, 400)):
            content = f'{{"arms": {json.dumps(MENU)}, "structure": {nested(levels)}}}'
            answer = http.post(DECISIONS, content=content, headers=headers)
            assert detail(answer, status)
        spec = f'{{"name": "x", "spec": {{"name": {nested(70)}}}}}'
        answer = http.post("/v1/bandits", content=spec, headers=headers)
        assert "nests deeper than 64 levels" in detail(answer, 422)


def test_bandits_of_a_tenant_are_limited(storage: Storage) -> None:
    acme = add_token(storage, "acme", "all")
    other = add_token(storage, "other", "all")
    settings = limited(bandits_per_tenant=2)
    with running_service(storage, settings) as url, client(url, acme) as http:
        for name in ("one", "two"):
            body = {"name": name, "spec": SPEC}
            assert http.post("/v1/bandits", json=body).status_code == 201
        third = {"name": "three", "spec": SPEC}
        assert "limit of 2 bandits" in detail(http.post("/v1/bandits", json=third), 403)
        again = http.post("/v1/bandits", json={"name": "two", "spec": SPEC})
        assert again.status_code == 200
        with client(url, other) as elsewhere:
            assert elsewhere.post("/v1/bandits", json=third).status_code == 201


# --- metrics -------------------------------------------------------------------------------


def metrics_status(app: Any, token: str | None = None) -> int:
    """The status of ``/metrics`` of an application that need not listen."""

    async def read() -> int:
        transport = httpx.ASGITransport(app)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as http:
            return (await http.get("/metrics")).status_code

    return asyncio.run(read())


def test_metrics_need_a_token_on_other_addresses(storage: Storage) -> None:
    reader = add_token(storage, "acme", "reader", "read")
    admin = add_token(storage, "acme", "admin", "admin")
    asker = add_token(storage, "acme", "asker", "ask")
    app = create_app(storage, Settings(host="0.0.0.0"))
    assert metrics_status(app) == 401
    assert metrics_status(app, asker) == 403
    assert metrics_status(app, reader) == 200
    assert metrics_status(app, admin) == 200
    open_app = create_app(storage, Settings(host="0.0.0.0", open_metrics=True))
    assert metrics_status(open_app) == 200
    assert metrics_status(create_app(storage)) == 200  # on loopback


def test_limits_must_be_counts() -> None:
    with pytest.raises(InputError, match="streams_per_tenant"):
        Limits(streams_per_tenant=0)
    with pytest.raises(InputError, match="threads_per_tenant"):
        Limits(threads_per_tenant=0)


# --- requests that two readers understand differently --------------------------------------


def raw_answer(url: str, request: bytes) -> bytes:
    """What a service answers to bytes, until it closes the connection."""
    address = httpx.URL(url)
    received = b""
    with socket.create_connection((address.host, address.port), LONGEST) as connection:
        connection.sendall(request)
        while part := connection.recv(65536):
            received += part
    return received


def test_a_body_with_two_lengths_is_refused_and_ends_the_connection(
    storage: Storage, bandit: Bandit
) -> None:
    """A proxy that reads the first length forwards as a body what would be a request of its own."""
    with running_service(storage) as url:
        host = f"Host: {httpx.URL(url).netloc.decode()}\r\n".encode()
        hidden = b"GET /v1/bandits/menu HTTP/1.1\r\n" + host + b"\r\n"
        body = b"0\r\n\r\n" + hidden
        length = f"Content-Length: {len(body)}\r\n".encode()
        chunked = b"Transfer-Encoding: chunked\r\n\r\n"
        request = f"POST {DECISIONS} HTTP/1.1\r\n".encode() + host + length + chunked
        answer = raw_answer(url, request + body)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"not both" in answer


def test_a_host_that_only_begins_well_is_refused(storage: Storage) -> None:
    with running_service(storage) as url, client(url) as http:
        for suffix in ("@evil.example", ":80@evil.example", ":port", ":80:80", "]"):
            headers = {"Host": f"127.0.0.1{suffix}"}
            assert http.get("/v1/bandits", headers=headers).status_code == 421, suffix
        for host in ("127.0.0.1", "localhost:80", "127.0.0.1:"):
            assert http.get("/v1/bandits", headers={"Host": host}).is_success, host


def test_ids_that_no_answer_can_contain_are_refused(
    storage: Storage, bandit: Bandit
) -> None:
    """JSON can escape half of a surrogate pair. Such a decision was stored, but never answered."""
    by_id = {"\ud800": [0.1, 0.2]}
    table = {"ids": ["\ud800"], "features": [[0.1, 0.2]]}
    headers = {"Content-Type": "application/json"}
    with running_service(storage) as url, client(url) as http:
        for arms in (by_id, table):
            body = json.dumps({"arms": arms})
            for method, path in (
                ("POST", DECISIONS),
                ("POST", "/v1/bandits/menu/predict"),
                ("PUT", "/v1/bandits/menu/arms"),
            ):
                refused = http.request(method, path, content=body, headers=headers)
                assert refused.status_code == 422
                assert "valid Unicode" in refused.json()["detail"]
    assert bandit.seq == 1


def test_a_spec_that_no_answer_can_contain_is_refused(storage: Storage) -> None:
    spec = BanditSpec(
        policy=SPEC,
        encoding=Encoding.of([{"size": 1.0, "colour": "\ud800"}]),
    )
    with pytest.raises(InputError, match="not valid Unicode"):
        create_bandit("menu", spec=spec, storage=storage)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = monotonic() + LONGEST
    while not is_so():
        assert monotonic() < deadline
        sleep(0.01)


# --- the start -------------------------------------------------------------------------------


def test_a_bandit_that_takes_long_to_load_does_not_delay_the_others(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other tenants are loaded before the service is ready, the tenant's own ones after that."""
    for tenant, name in (("fast", "quick"), ("slow", "later"), ("slow", "large")):
        create_bandit(name, spec=POLICY, storage=storage, tenant=tenant)
    may_load = Event()
    loaded: dict[str, Event] = {name: Event() for name in ("quick", "later", "large")}
    load = Bandit.load

    def load_slowly(bandit: Bandit) -> None:
        if bandit.name == "large":
            assert may_load.wait(LONGEST)
        load(bandit)
        loaded[bandit.name].set()

    monkeypatch.setattr(Bandit, "load", load_slowly)
    monkeypatch.setattr(hub, "_MOST_SECONDS_TO_LOAD", 0.2)
    bandits = hub.Hub(storage, Limits())
    bandits.start()
    try:
        wait_until(lambda: bandits.ready)
        assert loaded["quick"].wait(LONGEST)
        assert loaded["later"].wait(LONGEST)
        assert not loaded["large"].is_set()
        assert bandits.bandit("fast", "quick").pending == []
    finally:
        may_load.set()
    assert loaded["large"].wait(LONGEST)
    bandits.stop()


def test_a_service_stops_while_a_bandit_is_loading(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the journal that it replays no longer than for any, and begins no other."""
    for name in ("later", "large"):
        create_bandit(name, spec=POLICY, storage=storage)
    began: list[str] = []
    may_load = Event()

    def load_slowly(bandit: Bandit) -> None:
        began.append(bandit.name)
        with bandit._current.locked():
            assert may_load.wait(LONGEST)

    monkeypatch.setattr(Bandit, "load", load_slowly)
    monkeypatch.setattr(hub, "_MOST_SECONDS_TO_LOAD", 0.2)
    bandits = hub.Hub(storage, Limits())
    bandits.start()
    try:
        wait_until(lambda: bool(began))
        bandits.stop()
        assert not may_load.is_set()
        began_before = list(began)
    finally:
        may_load.set()
    bandits._starting.join(LONGEST)
    assert began == began_before
