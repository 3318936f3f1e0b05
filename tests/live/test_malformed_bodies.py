"""Bodies that no client should send: refused with a reason, without a trace."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from malformed_bodies import malformed_body
from running_service import http_client, running_service

from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Storage, load_bandit
from superarm.live.access import SCOPES, make_token
from superarm.live.bandits import NOBODY
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
TABLE = {"ids": [1, 2], "features": [[0.1, 0.2], [0.3, 0.4]]}


class Route(NamedTuple):
    method: str
    path: str
    valid: Any


def routes(decision: dict[str, Any]) -> list[Route]:
    """Every route that takes a body, with a valid one."""
    rewards = {decision["arms"][0]: 1.0}
    noise = {decision["arms"][0]: 0.1}
    feedback = {"rewards": rewards, "noise_variance": noise}
    history = {"arms": MENU, "rewards": {"tea": 0.5}, "time": 1.0}
    spec = {"policy": SPEC, "seed": 1, "max_age": 1000.0}
    menu = "/v1/bandits/menu"
    other = "/v1/bandits/other"
    decided = f"/v1/decisions/{decision['id']}"
    return [
        Route("POST", "/v1/bandits", {"name": "third", "spec": SPEC}),
        Route("PUT", f"{other}/spec", {"spec": spec}),
        Route("PUT", f"{other}/arms", {"arms": MENU}),
        Route("POST", f"{other}/refit", {}),
        Route("POST", f"{menu}/decisions", {"arms": MENU, "time": 2.0}),
        Route("POST", f"{menu}/decisions", {"arms": TABLE}),
        Route("POST", f"{menu}/predict", {"arms": MENU, "time": 2.0}),
        Route("POST", f"{menu}/observations", history),
        Route("POST", f"{decided}/observations", feedback),
        Route("POST", f"{decided}/abandon", {}),
        Route(
            "POST",
            f"{menu}/observations/batch",
            {"decision": decision["id"], **feedback},
        ),
        Route("POST", "/v1/tokens", {"name": "ops", "scopes": ["read"]}),
    ]


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
    limits = Limits(body_bytes=2**20, arms=1000, dimension=50)
    with (
        running_service(storage, Settings(limits=limits)) as url,
        http_client(url, timeout=60.0, headers=authorization) as http,
    ):
        for name in ("menu", "other"):
            created = http.post("/v1/bandits", json={"name": name, "spec": SPEC})
            assert created.status_code == 201
        bandits = {
            name: load_bandit(name, storage=storage) for name in ("menu", "other")
        }
        asked = http.post("/v1/bandits/menu/decisions", json={"arms": MENU})
        for number in range(count):
            choices = routes(asked.json())
            route = choices[number % len(choices)]
            body = malformed_body(rng, route.valid)
            headers = {"Content-Type": rng.choice(CONTENT_TYPES)}
            if rng.random() < 0.05:
                headers["Content-Encoding"] = "gzip"
            before = {name: bandit.seq for name, bandit in bandits.items()}
            answer = http.request(
                route.method, route.path, content=body, headers=headers
            )
            sent = f"{route.method} {route.path} {headers} {body[:300]!r}"
            check_answer(answer, sent)
            if answer.is_error:
                refused += 1
                assert {name: each.seq for name, each in bandits.items()} == before
        for bandit in bandits.values():
            assert len(list(bandit.events())) == bandit.seq
            assert bandit.verify().same
    assert storage.journal.check() == []
    return refused


def check_answer(answer: httpx.Response, sent: str) -> None:
    """No answer is a defect, and each that is an error is a problem."""
    assert answer.status_code < 500, f"{sent}: {answer.text[:500]}"
    if answer.is_error:
        assert answer.headers["content-type"] == "application/problem+json", sent
        assert answer.json()["status"] == answer.status_code
    elif answer.headers.get("content-type") == "application/x-ndjson":
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
        http_client(address, timeout=60.0) as http,
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
        http_client(address, timeout=60.0) as http,
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
