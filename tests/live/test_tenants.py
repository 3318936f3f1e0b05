"""Two tenants that try each other's ids at the same time: not one byte leaks."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from documented_operations import operation_of, operations
from fault_table import FaultCounts
from running_service import http_client, running_service

from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, load_bandit
from superarm.live.access import SCOPES, make_token
from superarm.live.events import Kind
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, Fixed

POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=1),
)
SPEC = to_json(spec_of(POLICY))
MISSING = "missing"
"""An id that nobody has, of the same length as those that somebody has."""


class Tenant:
    """A tenant with a bandit; all its words contain its name.

    Args:
        name: Its name, of seven letters.
        token: Its token.
        url: Where the service is.
    """

    def __init__(self, name: str, token: str, url: str) -> None:
        self.name = name
        headers = {"Authorization": f"Bearer {token}"}
        self.http = http_client(url, headers=headers)
        self.arms = {f"{name}-tea": [0.1, 0.2], f"{name}-rum": [0.7, 0.9]}

    def create(self) -> None:
        """Create a bandit, and one decision with a reward."""
        created = self.http.post("/v1/bandits", json={"name": self.name, "spec": SPEC})
        assert created.status_code == 201
        self.work(self.name)

    def work(self, decision: str) -> None:
        """Ask and tell in its own bandit."""
        path = f"/v1/bandits/{self.name}/decisions"
        body = {"arms": self.arms, "decision_id": decision}
        asked = self.http.post(path, json=body)
        assert asked.status_code == 201, asked.text
        rewards = {asked.json()["arms"][0]: 0.5}
        response = self.http.post(
            f"/v1/decisions/{decision}/observations", json={"rewards": rewards}
        )
        assert response.status_code == 201, response.text

    def intrude(self, other: str) -> list[str]:
        """What a tenant sees of ids that are not its own: status, headers and body of each answer."""
        return [
            self._normalised(method, path.format(id=other), body, other)
            for method, path, body in _requests(self.arms)
        ]

    def _normalised(self, method: str, path: str, body: Any, other: str) -> str:
        content = None if body is None else json.dumps(body).replace("{id}", other)
        headers = {"Content-Type": "application/json"}
        answer = self.http.request(method, path, content=content, headers=headers)
        shown_headers = dict(answer.headers)
        del shown_headers["date"]
        text = f"{method} {answer.status_code} {shown_headers} {answer.text}"
        return text.replace(other, "{id}")

    def everything(self) -> str:
        """All that a tenant can read about itself."""
        pages = [
            self.http.get(path).text
            for path in (
                "/v1/bandits",
                "/v1/tokens",
                f"/v1/bandits/{self.name}",
                f"/v1/bandits/{self.name}/pending",
                f"/v1/bandits/{self.name}/events?follow=false",
                f"/v1/decisions/{self.name}",
                f"/v1/decisions/{self.name}/explain",
                "/metrics",
                "/readyz",
            )
        ]
        return "\n".join(pages)


def _requests(arms: Any) -> list[tuple[str, str, Any]]:
    rewards = {"rewards": {"{id}-tea": 1.0}}
    bandit = "/v1/bandits/{id}"
    decision = "/v1/decisions/{id}"
    personalizer = f"{bandit}/personalizer/v1.0"
    actions = [{"id": "{id}-tea", "features": [{"warm": True}]}]
    return [
        ("GET", bandit, None),
        ("GET", f"{bandit}/pending", None),
        ("GET", f"{bandit}/events?follow=false", None),
        ("PUT", f"{bandit}/spec", {"spec": SPEC}),
        ("PUT", f"{bandit}/arms", {"arms": arms}),
        ("POST", f"{bandit}/refit", None),
        ("POST", f"{bandit}/decisions", {"arms": arms, "decision_id": "{id}"}),
        ("POST", f"{bandit}/predict", {"arms": arms}),
        ("POST", f"{bandit}/observations", {"arms": arms, **rewards}),
        ("POST", f"{bandit}/observations/batch", {"decision": "{id}", **rewards}),
        ("PUT", f"{bandit}/challenger", {"spec": SPEC}),
        ("GET", f"{bandit}/challenger", None),
        ("POST", f"{bandit}/challenger/switch", None),
        ("DELETE", f"{bandit}/challenger", None),
        ("POST", f"{personalizer}/rank", {"actions": actions, "eventId": "{id}"}),
        ("POST", f"{personalizer}/events/{{id}}/reward", {"value": 1.0}),
        ("POST", f"{personalizer}/events/{{id}}/activate", None),
        ("GET", decision, None),
        ("GET", decision + "?bandit={id}", None),
        ("POST", f"{decision}/observations", rewards),
        ("POST", decision + "/observations?bandit={id}", rewards),
        ("POST", f"{decision}/abandon", None),
        ("POST", f"{decision}/activate", None),
        ("GET", f"{decision}/explain", None),
        ("DELETE", "/v1/tokens/{id}", None),
    ]


def add_token(storage: Storage, tenant: str) -> str:
    """A new token of a tenant, which allows everything."""
    token, row = make_token(tenant, tenant, SCOPES)
    storage.journal.add_token(row)
    return token


def hammer(storage: Storage, rounds: int) -> FaultCounts:
    """Let two tenants work and try each other's ids; count what they tried and have."""
    names = ("alphaco", "betainc")
    tokens = {name: add_token(storage, name) for name in names}
    clients = 8
    with running_service(storage) as url:
        first, second = (Tenant(name, tokens[name], url) for name in names)
        first.create()
        second.create()
        expected = first.intrude(MISSING)
        assert {text.split()[1] for text in expected} == {"404"}

        def run(number: int) -> int:
            tenant, other = (first, second) if number % 2 else (second, first)
            tenant.work(f"{tenant.name}-{number}")
            assert tenant.intrude(other.name) == expected
            return len(expected)

        with ThreadPoolExecutor(clients) as pool:
            intrusions = sum(pool.map(run, range(rounds)))
        for tenant, other in ((first, second), (second, first)):
            assert tenant.name in tenant.everything()
            assert other.name not in tenant.everything()
        first.http.close()
        second.http.close()
    assert intrusions == rounds * len(_requests({}))
    bandits = {name: load_bandit(name, storage=storage, tenant=name) for name in names}
    stored = Counter[str]()
    for bandit in bandits.values():
        stored += count_events(bandit)
    expected_events = Counter[str]()
    for name, remainder in (("alphaco", 1), ("betainc", 0)):
        decisions = [
            name,
            *(f"{name}-{n}" for n in range(rounds) if n % 2 == remainder),
        ]
        for decision in decisions:
            expected_events[f"ask {decision}"] += 1
            expected_events[f"tell {decision}"] += 1
    counts = FaultCounts(
        fault="request with an id of another tenant",
        url=storage.url,
        clients=clients,
        faults=intrusions,
        acknowledged=expected_events.total(),
        lost=(expected_events - stored).total(),
        doubled=(stored - expected_events).total(),
        replay_same=all(bandit.verify().same for bandit in bandits.values()),
    ).record()
    check_words(bandits["alphaco"], "betainc")
    check_words(bandits["betainc"], "alphaco")
    return counts


def count_events(bandit: Bandit) -> Counter[str]:
    """How often each decision and each reward is in a journal, which has nothing else."""
    counts = Counter[str]()
    for event in bandit.events():
        if event.kind is Kind.DECIDED:
            counts[f"ask {event.body['id']}"] += 1
        elif event.kind is Kind.OBSERVED:
            counts[f"tell {event.body['decision']}"] += 1
        else:
            assert event.kind is Kind.CREATED
    return counts


def check_words(bandit: Bandit, other: str) -> None:
    """A journal contains no word of the other tenant."""
    events = list(bandit.events())
    assert other not in str(events)
    for event in events:
        if "arms" in event.body:
            ids = bandit._journal.arms(event.body["arms"]).ids
            assert list(ids) == [f"{bandit.name}-tea", f"{bandit.name}-rum"]


@pytest.mark.slow
def test_tenants_see_nothing_of_each_other(url: str) -> None:
    with Storage(url) as storage:
        counts = hammer(storage, rounds=6)
    assert counts.is_clean
    assert counts.faults == 6 * len(_requests({}))


@pytest.mark.slow
@pytest.mark.full
def test_tenants_see_nothing_of_each_other_for_long(url: str) -> None:
    with Storage(url) as storage:
        counts = hammer(storage, rounds=400)
    assert counts.is_clean
    assert counts.faults == 400 * len(_requests({}))


NO_ID = {
    "GET /healthz": "names no id",
    "GET /readyz": "names no id",
    "GET /metrics": "names no id; Tenant.everything reads it",
    "GET /v1/bandits": "lists a tenant's own; Tenant.everything reads it",
    "POST /v1/bandits": "names of bandits are a tenant's own: it may use any",
    "GET /v1/tokens": "lists a tenant's own; Tenant.everything reads it",
    "POST /v1/tokens": "names of tokens are a tenant's own: it may use any",
}


def test_every_operation_is_tried_with_ids_of_another_tenant() -> None:
    tried = {
        operation_of(method, path.format(id="x")) for method, path, _ in _requests({})
    }
    assert tried.isdisjoint(NO_ID)
    assert tried | set(NO_ID) == set(operations())
