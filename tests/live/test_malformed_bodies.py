"""Bodies that no client should send: refused with a reason, without a trace."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from documented_operations import operation_of, operations
from fault_table import FaultCounts
from malformed_bodies import malformed_body
from running_service import http_client, running_service

from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Storage, load_bandit
from superarm.live.access import SCOPES, make_token
from superarm.live.bandits import NOBODY
from superarm.live.personalizer import personalizer_spec
from superarm.live.service import Limits, Settings
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
BANDITS = {
    "menu": SPEC,
    "other": SPEC,
    "ranked": personalizer_spec(dimension=16).as_json(),
}
RANKING = {
    "contextFeatures": [{"weather": {"sky": "rain", "celsius": 0.9}}],
    "actions": [
        {"id": "soup", "features": [{"warm": True, "price": 0.4}]},
        {"id": "tea", "features": [{"warm": True, "price": 0.2}]},
    ],
    "excludedActions": ["tea"],
    "deferActivation": True,
}
TABLE = {"ids": [1, 2], "features": [[0.1, 0.2], [0.3, 0.4]]}


class Route(NamedTuple):
    method: str
    path: str
    valid: Any


def routes(decision: str, arm: str) -> list[Route]:
    """Every route that takes a body or changes something, with a valid body."""
    rewards = {arm: 1.0}
    noise = {arm: 0.1}
    feedback = {"rewards": rewards, "noise_variance": noise}
    history = {"arms": MENU, "rewards": {"tea": 0.5}, "time": 1.0}
    spec = {"policy": SPEC, "seed": 1, "max_age": 1000.0}
    menu = "/v1/bandits/menu"
    other = "/v1/bandits/other"
    decided = f"/v1/decisions/{decision}"
    personalizer = "/v1/bandits/ranked/personalizer/v1.0"
    lunch = f"{personalizer}/events/lunch"
    return [
        Route("POST", "/v1/bandits", {"name": "third", "spec": SPEC}),
        Route("PUT", f"{other}/spec", {"spec": spec}),
        Route("PUT", f"{other}/arms", {"arms": MENU}),
        Route("POST", f"{other}/refit", {}),
        Route("PUT", f"{other}/challenger", {"spec": SPEC}),
        Route("GET", f"{other}/challenger", {}),
        Route("POST", f"{other}/challenger/switch", {}),
        Route("DELETE", f"{other}/challenger", {}),
        Route("POST", f"{menu}/decisions", {"arms": MENU, "time": 2.0}),
        Route("POST", f"{menu}/decisions", {"arms": TABLE}),
        Route("POST", f"{menu}/predict", {"arms": MENU, "time": 2.0}),
        Route("POST", f"{menu}/observations", history),
        Route("POST", f"{decided}/observations", feedback),
        Route("POST", f"{decided}/abandon", {}),
        Route("POST", f"{decided}/activate", {}),
        Route(
            "POST",
            f"{menu}/observations/batch",
            {"decision": decision, **feedback},
        ),
        Route("POST", f"{personalizer}/rank", RANKING),
        Route("POST", f"{lunch}/reward", {"value": 1.0}),
        Route("POST", f"{lunch}/activate", {}),
        Route("POST", "/v1/tokens", {"name": "ops", "scopes": ["read"]}),
    ]


NO_BODY = {
    "GET /healthz": "takes no input",
    "GET /readyz": "takes no input",
    "GET /metrics": "takes no input",
    "GET /v1/bandits": "takes no body",
    "GET /v1/bandits/{bandit}": "takes no body; see test_hostile_ids_are_unknown",
    "GET /v1/bandits/{bandit}/pending": "takes no body",
    "GET /v1/bandits/{bandit}/events": "takes no body; see test_hostile_ids_are_unknown",
    "GET /v1/decisions/{decision}": "takes no body; see test_hostile_ids_are_unknown",
    "GET /v1/decisions/{decision}/explain": "takes no body; see test_hostile_ids_are_unknown",
    "GET /v1/tokens": "takes no body",
    "DELETE /v1/tokens/{name}": "takes no body; see test_hostile_ids_are_unknown",
}


def test_every_operation_gets_malformed_bodies() -> None:
    tried = {
        operation_of(route.method, route.path) for route in routes("monday", "tea")
    }
    assert tried.isdisjoint(NO_BODY)
    assert tried | set(NO_BODY) == set(operations())


CONTENT_TYPES = (
    "application/json",
    "application/json",
    "application/json",
    "application/json; charset=utf-16",
    "application/x-ndjson",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "nonsense",
)


def send_malformed(storage: Storage, count: int) -> int:
    """Send malformed bodies to every route; the number that was refused."""
    rng = random.Random(20261118)
    token, row = make_token(NOBODY, "tests", SCOPES)
    storage.journal.add_token(row)
    authorization = {"Authorization": f"Bearer {token}"}
    refused = 0
    acknowledged = 0
    limits = Limits(body_bytes=2**20, arms=1000, dimension=50)
    with (
        running_service(storage, Settings(limits=limits)) as url,
        http_client(url, headers=authorization) as http,
    ):
        for name, spec in BANDITS.items():
            created = http.post("/v1/bandits", json={"name": name, "spec": spec})
            assert created.status_code == 201, created.text
        bandits = {name: load_bandit(name, storage=storage) for name in BANDITS}
        asked = http.post("/v1/bandits/menu/decisions", json={"arms": MENU}).json()
        ranked = http.post(
            "/v1/bandits/ranked/personalizer/v1.0/rank",
            json={**RANKING, "eventId": "lunch"},
        )
        assert ranked.status_code == 201, ranked.text
        started = sum(bandit.seq for bandit in bandits.values())
        for number in range(count):
            choices = routes(asked["id"], asked["arms"][0])
            route = choices[number % len(choices)]
            body = malformed_body(rng, route.valid)
            headers = {"Content-Type": rng.choice(CONTENT_TYPES)}
            if rng.random() < 0.05:
                headers["Content-Encoding"] = "gzip"
            before = sum(bandit.seq for bandit in bandits.values())
            answer = http.request(
                route.method, route.path, content=body, headers=headers
            )
            sent = f"{route.method} {route.path} {headers} {body[:300]!r}"
            check_answer(answer, sent)
            stored = sum(bandit.seq for bandit in bandits.values()) - before
            if answer.is_error:
                refused += 1
                assert stored == 0, sent
            acknowledged += stored
    storage.close()
    with Storage(storage.url) as reopened:
        again = [load_bandit(name, storage=reopened) for name in BANDITS]
        keys = [f"{one.name} {event.key}" for one in again for event in one.events()]
        FaultCounts(
            fault="malformed body",
            url=storage.url,
            clients=1,
            faults=refused,
            acknowledged=acknowledged,
            lost=max(0, started + acknowledged - len(keys)),
            doubled=len(keys) - len(set(keys)),
            replay_same=all(bandit.verify().same for bandit in again),
        ).record()
        assert len(keys) == started + acknowledged
        assert reopened.journal.check() == []
    return refused


def check_answer(answer: httpx.Response, sent: str) -> None:
    """No answer is a defect, and each that is an error is a problem, or has Personalizer's body."""
    assert answer.status_code < 500, f"{sent}: {answer.text[:500]}"
    content_type = answer.headers.get("content-type")
    if answer.is_error:
        if content_type == "application/json":
            assert "/personalizer/" in answer.url.path, sent
            assert answer.json()["error"]["code"], sent
            return
        assert content_type == "application/problem+json", sent
        assert answer.json()["status"] == answer.status_code
    elif content_type == "application/x-ndjson":
        for line in answer.text.splitlines():
            assert json.loads(line)["status"] < 500, f"{sent}: {line[:500]}"


@pytest.mark.slow
def test_malformed_bodies_are_refused_without_a_trace(url: str) -> None:
    with Storage(url) as storage:
        assert send_malformed(storage, 100) > 50


@pytest.mark.slow
@pytest.mark.full
def test_ten_thousand_malformed_bodies(url: str) -> None:
    with Storage(url) as storage:
        assert send_malformed(storage, 10_000) > 5000


IDS = ("%00", "a%00b", "%ED%A0%80", "%FF", "%F0%9F%8D%B5", "x" * 3000, "%2e%2e", "%0a")


@pytest.mark.slow
def test_hostile_ids_are_unknown(url: str) -> None:
    with (
        Storage(url) as storage,
        running_service(storage) as address,
        http_client(address) as http,
    ):
        body = {"name": "menu", "spec": SPEC}
        assert http.post("/v1/bandits", json=body).status_code == 201
        for name in IDS:
            for path in (
                f"/v1/bandits/{name}",
                f"/v1/bandits/{name}/events?follow=false",
                f"/v1/decisions/{name}",
                f"/v1/decisions/{name}/explain",
                f"/v1/decisions/x?bandit={name}",
                f"/v1/decisions/{name}/explain?bandit=menu",
                f"/v1/decisions/{name}?bandit=menu",
            ):
                answer = http.get(path)
                check_answer(answer, path)
                assert answer.status_code in (404, 422), path
            removed = http.delete(f"/v1/tokens/{name}")
            check_answer(removed, name)
            assert removed.status_code in (404, 422), name


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Origin", b"http://["),
        ("Origin", b"\xff"),
        ("Last-Event-ID", b"\xb2"),  # a digit, but no number
        ("Last-Event-ID", b"9" * 5000),
        ("Authorization", b"Bearer \xff"),
        ("Idempotency-Key", b"\xff\x80"),
        ("Content-Type", b"\xff"),
    ],
)
def test_hostile_headers_are_no_defect(
    tmp_path: Path, header: str, value: bytes
) -> None:
    with (
        Storage(f"sqlite:///{tmp_path / 'bandits.db'}") as storage,
        running_service(storage) as address,
        http_client(address) as http,
    ):
        headers = {header.encode(): value}
        body = {"name": "menu", "spec": SPEC}
        assert http.post("/v1/bandits", json=body).status_code == 201
        asked = http.post(
            "/v1/bandits/menu/decisions",
            content=json.dumps({"arms": MENU}),
            headers=headers,
        )
        check_answer(asked, header)
        events = http.get("/v1/bandits/menu/events?follow=false", headers=headers)
        check_answer(events, header)
