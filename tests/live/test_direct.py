"""Asks and tells that are answered without FastAPI: the same answers as those of the routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_service import http_client, running_service
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, load_bandit
from superarm.live.access import make_token
from superarm.live.journal import StorageError
from superarm.live.service import Limits, Settings, create_app
from superarm.live.service.direct import DirectRoutes
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=2),
)
SPEC = to_json(spec_of(POLICY))
DIRECT = "application/json"
BY_ROUTE = "application/json; charset=utf-8"  # not plain enough to be answered directly

ASKS: tuple[Any, ...] = (
    {"arms": MENU, "decision_id": "d1"},
    {"arms": MENU, "decision_id": "d1"},
    {"arms": {"tea": [0.9, 0.1]}, "decision_id": "d1"},
    {"arms": {"ids": [3, "x"], "features": [[0.1, 0.2], [0.3, 0.4]]}, "decision_id": "d2"},
    {"arms": [[0.1, 0.2], [0.3, 0.4]], "decision_id": "d3", "deferred": True},
    {"arms": MENU, "decision_id": "d/4"},
    {"arms": {}, "decision_id": "d5"},
    {"decision_id": "d6"},
    {"arms": ["mocha"], "decision_id": "d7"},
    {"arms": MENU, "decision_id": "d8", "time": "noon"},
    {"arms": MENU, "decision_id": "d9", "structure": {"$record": "nothing"}},
    {"arms": MENU, "decision_id": "d10", "structure": [[[]]] * 3},
    {"arms": {"tea": [0.9, True]}, "decision_id": "d11"},
    {"arms": {"tea": [0.9], "mocha": [0.1, 0.2]}, "decision_id": "d12"},
    {"unknown": 1},
    [],
)  # fmt: skip
TELLS: tuple[tuple[str, Any], ...] = (
    ("d1", {"rewards": {"latte": 0.5}}),
    ("d1", {"rewards": {"latte": 0.5}}),
    ("d1", {"rewards": {"latte": 0.25}}),
    ("d1", {"rewards": {"cocoa": 0.25}}),
    ("d1", {"rewards": {}}),
    ("d1", {"rewards": {"tea": True}}),
    ("d1", {"rewards": {"tea": 1, "mocha": 2}, "observation_id": "o1"}),
    ("d2", {"rewards": {"3": 1.5, "x": -0.0}, "noise_variance": {"3": 0.1, "x": 0.2}}),
    ("d3", {"rewards": {"0": 1e300}}),
    ("d3", {"rewards": {"0": 10**400}}),
    ("d3", {"rewards": {"1": 0.5}, "observation_id": "a/b"}),
    ("d3", {"rewards": {"1": 0.5}, "noise_variance": {"1": -1.0}}),
    ("none", {"rewards": {"tea": 0.5}}),
    ("..", {"rewards": {"tea": 0.5}}),
    ("d1", None),
)
RAW_BODIES = (
    b"",
    b"{",
    b'{"rewards": {"latte": NaN}}',
    b'{"rewards": {"latte": 0.5, "latte": 0.5}}',
    b'{"rewards": {"\\ud800": 0.5}}',
    b'\xef\xbb\xbf{"rewards": {"latte": 0.5}}',
    b'\xff{"rewards": {"latte": 0.5}}',
    '{"rewards": {"latte": 0.5}}'.encode("utf-16"),
    b'{"rewards":' + b"[" * 100_000,
)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    with Storage(f"sqlite:///{tmp_path / 'bandits.db'}") as opened:
        yield opened


@pytest.fixture
def http(storage: Storage) -> Iterator[httpx.Client]:
    """A client of a service with two equal bandits."""
    with running_service(storage) as url, http_client(url) as client:
        for name in ("direct", "routes"):
            created = client.post("/v1/bandits", json={"name": name, "spec": SPEC})
            assert created.status_code == 201
        yield client


def post(http: httpx.Client, path: str, body: Any, media_type: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": media_type}
    return http.post(path, content=content, headers=headers)


def same_answer(http: httpx.Client, path: str, body: Any) -> httpx.Response:
    """The answer to a request to the bandit ``direct``, and by the routes to the bandit ``routes``."""
    direct = post(http, path.replace("BANDIT", "direct"), body, DIRECT)
    by_route = post(http, path.replace("BANDIT", "routes"), body, BY_ROUTE)
    assert direct.status_code == by_route.status_code, (path, body)
    assert direct.text.replace('"direct"', '"routes"') == by_route.text
    assert direct.headers["content-type"] == by_route.headers["content-type"]
    assert direct.headers.keys() == by_route.headers.keys()
    return direct


def test_direct_answers_are_those_of_the_routes(http: httpx.Client) -> None:
    statuses = set()
    for ask in ASKS:
        answer = same_answer(http, "/v1/bandits/BANDIT/decisions", ask)
        statuses.add(answer.status_code)
    same_answer(http, "/v1/bandits/BANDIT/decisions?x=1", ASKS[0])
    for decision, tell in TELLS:
        path = f"/v1/decisions/{decision}/observations?bandit=BANDIT"
        answer = same_answer(http, path, tell)
        statuses.add(answer.status_code)
    for body in RAW_BODIES:
        same_answer(http, "/v1/decisions/d1/observations?bandit=BANDIT", body)
        same_answer(http, "/v1/bandits/BANDIT/decisions", body)
    assert statuses == {200, 201, 404, 409, 422}
    # Two bandits have a decision d1.
    same_answer(http, "/v1/decisions/d1/observations", TELLS[0][1])
    same_answer(http, "/v1/decisions/d1/observations?bandit=", TELLS[0][1])
    same_answer(http, "/v1/decisions/d1/observations?bandit=nobody", TELLS[0][1])
    same_answer(http, "/v1/bandits/nobody/decisions", ASKS[0])
    same_answer(http, "/v1/bandits/%2e%2e/decisions", ASKS[0])
    events = [http.get(f"/v1/bandits/{name}").json() for name in ("direct", "routes")]
    assert events[0] == {**events[1], "name": "direct", "created": events[0]["created"]}


def test_both_ways_count_as_the_same_route(http: httpx.Client) -> None:
    for media_type in (DIRECT, BY_ROUTE):
        body = {"arms": MENU, "decision_id": media_type[-4:]}
        path = "/v1/bandits/direct/decisions"
        assert post(http, path, body, media_type).status_code == 201
        path = f"/v1/decisions/{media_type[-4:]}/observations?bandit=direct"
        body = {"rewards": {"latte": 0.5}}
        assert post(http, path, body, media_type).status_code == 201
    text = http.get("/metrics").text
    for route in (
        "/v1/bandits/{bandit}/decisions",
        "/v1/decisions/{decision}/observations",
    ):
        labels = f'route="{route}",status="201"'
        assert f"superarm_requests_total{{{labels}}} 2.0" in text


def test_tokens_scopes_and_rates_count_in_both_ways(storage: Storage) -> None:
    journal = storage.journal
    tokens = {}
    for name, scopes in (("asker", ["ask"]), ("reader", ["read"]), ("ops", ["admin"])):
        tokens[name], row = make_token("acme", name, scopes)
        journal.add_token(row)
    settings = Settings(limits=Limits(requests_per_second=0.001))
    with running_service(storage, settings) as url, http_client(url) as http:
        for media_type in (DIRECT, BY_ROUTE):
            path = "/v1/bandits/menu/decisions"
            headers = {"Content-Type": media_type}
            content = json.dumps({"arms": MENU})
            nobody = http.post(path, content=content, headers=headers)
            assert nobody.status_code == 401
            assert nobody.headers["www-authenticate"] == "Bearer"
            headers["Authorization"] = f"Bearer {tokens['reader']}"
            assert http.post(path, content=content, headers=headers).status_code == 403
        statuses = []
        for media_type in (DIRECT, BY_ROUTE, DIRECT):
            headers = {
                "Content-Type": media_type,
                "Authorization": f"Bearer {tokens['asker']}",
            }
            answer = http.post(path, content=content, headers=headers)
            statuses.append(answer.status_code)
        # The first one counts; there is no such bandit.
        assert statuses == [404, 429, 429]
        assert int(answer.headers["retry-after"]) >= 1


def test_what_is_not_plain_goes_on_to_the_routes(storage: Storage) -> None:
    passed_on: list[bytes] = []

    async def routes(scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        passed_on.append(message.get("body", b""))
        await PlainTextResponse("by a route")(scope, receive, send)

    app = create_app(storage)
    direct = DirectRoutes(routes, app.state.service)

    def send(path: str, body: Any, **headers: str) -> tuple[int, bytes]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        plain = {
            "content-type": "application/json",
            "content-length": str(len(content)),
        }
        return asyncio.run(_send(direct, path, content, {**plain, **headers}))

    ask = "/v1/bandits/none/decisions"
    tell = "/v1/decisions/d1/observations"
    assert send(ask, {"arms": MENU})[0] == 404
    assert send(tell, {"rewards": {"tea": 1.0}})[0] == 404
    assert send(tell + "?bandit=none", {"rewards": {"tea": 1.0}})[0] == 404
    assert passed_on == []
    others = [
        (ask + "?bandit=none", {"arms": MENU}, {}),
        (tell + "?bandit=%41", {"rewards": {"tea": 1.0}}, {}),
        (tell + "?bandit=a&bandit=b", {"rewards": {"tea": 1.0}}, {}),
        (tell, {"rewards": {"tea": "much"}}, {}),
        (tell, b"[", {}),
        (tell, {"rewards": {"tea": 1.0}}, {"idempotency-key": "k"}),
        (tell, {"rewards": {"tea": 1.0}}, {"content-type": "text/plain"}),
        (tell, {"rewards": {"tea": 1.0}}, {"content-length": "99999999"}),
        ("/v1/bandits", {"name": "x", "spec": SPEC}, {}),
    ]
    for path, body, headers in others:
        assert send(path, body, **headers)[1] == b"by a route", (path, body, headers)
    bodies = [
        b if isinstance(b, bytes) else json.dumps(b).encode() for _, b, _ in others
    ]
    assert passed_on == bodies


async def _send(
    app: DirectRoutes, target: str, content: bytes, headers: dict[str, str]
) -> tuple[int, bytes]:
    path, _, query = target.partition("?")
    scope: Scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(key.encode(), value.encode()) for key, value in headers.items()],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


def test_tells_that_arrive_together_are_told_apart(
    http: httpx.Client, storage: Storage
) -> None:
    clients = 16
    chosen = []
    for number in range(clients):
        body = {"arms": MENU, "decision_id": f"d{number}"}
        answer = post(http, "/v1/bandits/direct/decisions", body, DIRECT)
        chosen.append(answer.json()["arms"][0])

    def tell(number: int) -> list[int]:
        path = f"/v1/decisions/d{number}/observations?bandit=direct"
        body = {"rewards": {chosen[number]: float(number)}}
        answers = [post(http, path, body, DIRECT) for _ in range(2)]
        # An error of one tell is not an error of those beside it.
        answers.append(post(http, path, {"rewards": {"cocoa": 1.0}}, DIRECT))
        return [answer.status_code for answer in answers]

    with ThreadPoolExecutor(clients) as threads:
        statuses = list(threads.map(tell, range(clients)))
    assert statuses == [[201, 200, 422]] * clients
    bandit = load_bandit("direct", storage=storage)
    assert all(
        bandit.decision(f"d{number}").status == "partial" for number in range(clients)
    )


def test_a_bandit_that_cannot_be_read_fails_each_of_its_tells(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"arms": MENU, "decision_id": "d1"}
    assert post(http, "/v1/bandits/direct/decisions", body, DIRECT).status_code == 201

    def fail(*_: Any) -> Any:
        raise StorageError("/secret/file is gone", public_reason="disk I/O error")

    path = "/v1/decisions/d1/observations?bandit=direct"
    body = {"rewards": {"latte": 0.5}}
    with monkeypatch.context() as patched:
        patched.setattr(Bandit, "tell_many", fail)
        answers = [post(http, path, body, DIRECT) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [503, 503]
    assert "secret" not in answers[0].text
    assert answers[0].headers["retry-after"] == "1"
    assert post(http, path, body, DIRECT).status_code == 201
