"""The service: statuses, repetitions, limits, tokens and tenants, batches, events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from running_service import http_client, running_service

from superarm.core.errors import InputError, MissingExtraError, require_extra
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Storage, create_bandit, load_bandit
from superarm.live.access import make_token
from superarm.live.journal import StorageError
from superarm.live.service import Limits, Settings, create_app
from superarm.live.service.problems import detail_of
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed

MENU = {"mocha": [0.1, 0.2], "latte": [0.6, 0.7], "tea": [0.9, 0.1]}
POLICY = IndexPolicy(
    posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
    rule=UCB(schedule=Fixed(value=2.0)),
    oracle=TopK(k=2),
)
SPEC = to_json(spec_of(POLICY))
ACTION = {"id": "tea", "features": [{"warm": True}]}  # of Personalizer


@pytest.fixture
def http(storage: Storage) -> Iterator[httpx.Client]:
    """A client of a service that has the bandit ``menu``."""
    with running_service(storage) as url, http_client(url) as client:
        created = client.post("/v1/bandits", json={"name": "menu", "spec": SPEC})
        assert created.status_code == 201
        yield client


def ask(http: httpx.Client, **body: Any) -> dict[str, Any]:
    response = http.post("/v1/bandits/menu/decisions", json={"arms": MENU, **body})
    assert response.status_code == 201, response.text
    decision: dict[str, Any] = response.json()
    return decision


def tell(http: httpx.Client, decision: str, body: Any) -> httpx.Response:
    return http.post(f"/v1/decisions/{decision}/observations", json=body)


def detail(response: httpx.Response, status: int) -> str:
    """The text of a problem, which has all that RFC 9457 asks for."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["type"] == "about:blank"
    assert problem["title"]
    text: str = problem["detail"]
    return text


# --- ask and tell --------------------------------------------------------------------------


def test_ask_tell_and_what_became_of_it(http: httpx.Client) -> None:
    decision = ask(http)
    assert decision["bandit"] == "menu"
    assert decision["action"] == decision["arms"]
    assert len(decision["arms"]) == 2
    assert decision["propensity"] == 1.0
    assert decision["guarantee"] == {"alpha": 1.0, "probability": 1.0}
    first, second = decision["arms"]
    assert tell(http, decision["id"], {"rewards": {first: 1.0}}).status_code == 201
    details = http.get(f"/v1/decisions/{decision['id']}").json()
    assert details["status"] == "partial"
    assert details["awaiting"] == [second]
    assert tell(http, decision["id"], {"rewards": {second: 0.5}}).status_code == 201
    details = http.get(f"/v1/decisions/{decision['id']}").json()
    assert details["status"] == "rewarded"
    assert details["awaiting"] == []


def test_repeated_rewards_are_200_and_others_409(http: httpx.Client) -> None:
    decision = ask(http)
    rewards = {decision["arms"][0]: 1.0}
    assert tell(http, decision["id"], {"rewards": rewards}).status_code == 201
    again = tell(http, decision["id"], {"rewards": rewards})
    assert again.status_code == 200
    assert again.json() == {"new": False}
    other = tell(http, decision["id"], {"rewards": {decision["arms"][0]: 2.0}})
    assert "already recorded" in detail(other, 409)


def test_an_idempotency_key_makes_an_ask_repeatable(http: httpx.Client) -> None:
    path = "/v1/bandits/menu/decisions"
    headers = {"Idempotency-Key": "monday"}
    first = http.post(path, json={"arms": MENU}, headers=headers).json()
    again = http.post(path, json={"arms": MENU}, headers=headers).json()
    assert first == again
    assert first["id"] == "monday"
    other = http.post(path, json={"arms": {"tea": [0.0, 0.0]}}, headers=headers)
    assert "different arms" in detail(other, 409)
    two_ids = http.post(
        path, json={"arms": MENU, "decision_id": "tuesday"}, headers=headers
    )
    assert "differ; send one of them" in detail(two_ids, 422)


def test_an_idempotency_key_makes_a_tell_repeatable(http: httpx.Client) -> None:
    decision = ask(http)
    first_arm, second_arm = decision["arms"]
    path = f"/v1/decisions/{decision['id']}/observations"
    headers = {"Idempotency-Key": "meter-1"}
    body = {"rewards": {first_arm: 1.0}}
    first = http.post(path, json=body, headers=headers)
    assert first.status_code == 201
    again = http.post(path, json=body, headers=headers)
    assert again.status_code == 200
    assert again.json() == {"new": False}
    named = http.post(path, json={**body, "observation_id": "meter-1"})
    assert named.status_code == 200  # the key is the id of the observation
    other = http.post(path, json={"rewards": {second_arm: 1.0}}, headers=headers)
    assert "already recorded" in detail(other, 409)
    two_ids = http.post(path, json={**body, "observation_id": "m2"}, headers=headers)
    assert "differ; send one of them" in detail(two_ids, 422)
    assert http.get("/v1/bandits/menu").json()["events"] == 3


def test_an_idempotency_key_makes_history_repeatable(http: httpx.Client) -> None:
    path = "/v1/bandits/menu/observations"
    headers = {"Idempotency-Key": "2026-11-18"}
    body = {"arms": MENU, "rewards": {"tea": 0.5}}
    observed = http.post(path, json=body, headers=headers)
    assert observed.status_code == 201
    again = http.post(path, json=body, headers=headers)
    assert again.status_code == 200
    assert again.json()["new"] is False
    other = http.post(path, json={**body, "rewards": {"tea": 0.6}}, headers=headers)
    assert "2026-11-18" in detail(other, 409)
    two_ids = http.post(path, json={**body, "observation_id": "x"}, headers=headers)
    assert "differ; send one of them" in detail(two_ids, 422)
    assert http.get("/v1/bandits/menu").json()["events"] == 2


def test_creating_the_same_bandit_again_changes_nothing(http: httpx.Client) -> None:
    again = http.post("/v1/bandits", json={"name": "menu", "spec": SPEC})
    assert again.status_code == 200
    changed = {**SPEC, "most_pending": 7}
    other = http.post("/v1/bandits", json={"name": "menu", "spec": changed})
    assert "already" in detail(other, 409)


def test_a_spec_may_contain_arrays(http: httpx.Client) -> None:
    kernel = SquaredExponential(lengthscale=0.3)
    posterior = FiniteGP(kernel, [[0.1, 0.2], [0.8, 0.9]], noise_variance=0.01)
    policy = IndexPolicy(
        posterior=posterior, rule=UCB(schedule=Fixed(value=2.0)), oracle=TopK(k=1)
    )
    spec = to_json(spec_of(policy))
    for name, table in (("alone", spec), ("whole", {"policy": spec, "seed": 3})):
        created = http.post("/v1/bandits", json={"name": name, "spec": table})
        assert created.status_code == 201, created.text
        arms = {"arms": [[0.1, 0.2], [0.8, 0.9]]}
        asked = http.post(f"/v1/bandits/{name}/decisions", json=arms)
        assert asked.status_code == 201, asked.text
        changed = http.put(f"/v1/bandits/{name}/spec", json={"spec": spec})
        assert changed.status_code == 200, changed.text


def test_abandon_and_explain(http: httpx.Client) -> None:
    decision = ask(http)
    tell(http, decision["id"], {"rewards": {decision["arms"][0]: 1.0}})
    assert http.post(f"/v1/decisions/{decision['id']}/abandon").json() == {
        "awaited": True
    }
    assert http.post(f"/v1/decisions/{decision['id']}/abandon").json() == {
        "awaited": False
    }
    details = http.get(f"/v1/decisions/{decision['id']}").json()
    assert details["status"] == "abandoned"
    later = ask(http)
    explanation = http.get(f"/v1/decisions/{later['id']}/explain").json()
    assert [arm["arm"] for arm in explanation["arms"]] == later["arms"]
    assert [set(arm) for arm in explanation["runner_up"]] == [
        set(explanation["arms"][0])
    ] * 2
    teachers = [arm["teachers"] for arm in explanation["arms"]]
    assert any(
        teacher["decision"] == decision["id"] for few in teachers for teacher in few
    )


def test_a_deferred_decision_awaits_rewards_once_it_is_activated(
    http: httpx.Client,
) -> None:
    decision = ask(http, deferred=True)
    path = f"/v1/decisions/{decision['id']}"
    assert http.get(path).json()["status"] == "deferred"
    assert http.get("/v1/bandits/menu/pending").json() == {"decisions": []}
    assert http.post(f"{path}/activate").json() == {"deferred": True}
    assert http.post(f"{path}/activate").json() == {"deferred": False}
    assert http.get(path).json()["status"] == "pending"
    assert detail(http.post("/v1/decisions/none/activate"), 404)


def test_rewards_of_numbered_arms_are_reported_by_number(http: httpx.Client) -> None:
    """Keys of JSON are text: "1" is the arm 1."""
    decision = ask(http, arms=[[0.1, 0.2], [0.8, 0.9], [0.4, 0.4]])
    assert all(isinstance(arm, int) for arm in decision["arms"])
    arm = decision["arms"][0]
    response = tell(http, decision["id"], {"rewards": {str(arm): 0.5}})
    assert response.status_code == 201
    body = {"arms": {"ids": [7, 9], "features": [[0.0, 0.1], [0.5, 0.5]]}}
    prediction = http.post("/v1/bandits/menu/predict", json=body).json()
    assert prediction["arms"] == [7, 9]
    assert len(prediction["mean"]) == len(prediction["std"]) == 2


def test_a_body_that_is_not_json_names_the_place(http: httpx.Client) -> None:
    path = "/v1/bandits/menu/decisions"
    as_json = {"Content-Type": "application/json"}
    cut_off = http.post(path, content=b'{"arms": ', headers=as_json)
    assert "body: not JSON, at character 9" in detail(cut_off, 422)
    form = {"Content-Type": "application/x-www-form-urlencoded"}  # as by curl --data
    as_form = http.post(path, content=b'{"arms": ["tea"]}', headers=form)
    assert "Content-Type: application/json" in detail(as_form, 422)


def test_named_arms_and_history(http: httpx.Client) -> None:
    named = http.put("/v1/bandits/menu/arms", json={"arms": MENU})
    assert named.status_code == 204
    decision = ask(http, arms=["tea", "mocha"])
    assert sorted(decision["arms"]) == ["mocha", "tea"]
    http.put("/v1/bandits/menu/arms", json={"arms": {"soup": [0.3, 0.3]}})
    again = ask(http, arms=["tea", "mocha"], decision_id=decision["id"])
    assert again == decision  # by the arms that it was recorded with
    body = {"arms": MENU, "rewards": {"tea": 2.0}, "observation_id": "2025"}
    path = "/v1/bandits/menu/observations"
    assert http.post(path, json=body).status_code == 201
    assert http.post(path, json=body).status_code == 200
    other = {**body, "rewards": {"tea": 3.0}}
    assert "different rewards" in detail(http.post(path, json=other), 409)


def test_a_spec_can_be_changed_and_refitted(http: httpx.Client) -> None:
    for number in range(4):
        decision = ask(http, arms=[[0.1 * number, 0.2], [0.9, 0.3 * number]])
        rewards = {str(arm): 0.1 * number + arm for arm in decision["arms"]}
        assert tell(http, decision["id"], {"rewards": rewards}).status_code == 201
    fitted = http.post("/v1/bandits/menu/refit")
    assert fitted.status_code == 200
    shown = http.get("/v1/bandits/menu").json()
    assert shown["spec"] == fitted.json()["spec"]
    assert shown["spec"]["policy"]["posterior"]["noise_variance"] != 0.01
    changed = http.put("/v1/bandits/menu/spec", json={"spec": SPEC})
    assert changed.json()["spec"]["policy"] == SPEC
    assert http.get("/v1/bandits").json()[0]["name"] == "menu"


def exploring_spec(**changes: Any) -> dict[str, Any]:
    return {"name": "exploring", "policy": SPEC, "epsilon": 0.5, **changes}


def test_a_challenger_is_started_reported_switched_and_ended(
    http: httpx.Client,
) -> None:
    path = "/v1/bandits/menu/challenger"
    assert "no challenger" in detail(http.get(path), 404)
    assert "no challenger" in detail(http.post(f"{path}/switch"), 404)
    assert http.delete(path).status_code == 204
    assert http.get("/v1/bandits/menu").json()["events"] == 1
    http.put("/v1/bandits/menu/spec", json={"spec": exploring_spec()})
    assert http.put(path, json={"spec": SPEC}).status_code == 204
    for _ in range(8):
        decision = ask(http)
        rewards = dict.fromkeys(decision["arms"], 0.5)
        assert tell(http, decision["id"], {"rewards": rewards}).status_code == 201
    query = {"reward_low": 0.0, "reward_high": 2.0, "level": 0.9}
    report = http.get(path, params=query).json()
    assert report["since"] == 3
    assert report["rewarded"] == report["decisions"] == 8
    assert report["current"]["value"] == 1.0
    assert report["current"]["interval"] == "anytime"
    assert report["inverse_propensity"]["level"] == 0.9
    assert http.get(path).json()["current"]["interval"] == "asymptotic"
    switched = http.post(f"{path}/switch")
    assert switched.status_code == 200
    assert switched.json()["spec"]["policy"] == SPEC
    assert detail(http.get(path), 404)
    assert http.put(path, json={"spec": exploring_spec()}).status_code == 204
    assert http.delete(path).status_code == 204
    assert detail(http.get(path), 404)


def test_an_idempotency_key_makes_a_refit_repeatable(http: httpx.Client) -> None:
    for number in range(4):
        decision = ask(http, arms=[[0.1 * number, 0.2], [0.9, 0.3 * number]])
        rewards = {str(arm): 0.1 * number + arm for arm in decision["arms"]}
        assert tell(http, decision["id"], {"rewards": rewards}).status_code == 201
    path = "/v1/bandits/menu/refit"
    first = http.post(path, headers={"Idempotency-Key": "monday"})
    assert first.status_code == 200
    events = http.get("/v1/bandits/menu").json()["events"]
    decision = ask(http)
    rewards = {decision["arms"][0]: 3.0}
    assert tell(http, decision["id"], {"rewards": rewards}).status_code == 201
    again = http.post(path, headers={"Idempotency-Key": "monday"})
    assert again.json() == first.json()
    another = http.post(path, headers={"Idempotency-Key": "tuesday"})
    assert another.status_code == 200
    text = http.get("/v1/bandits/menu/events?follow=false").text
    assert text.count("event: refitted") == 2
    assert text.index("event: refitted") > text.index(f"id: {events}\n")
    assert detail(http.post(path, headers={"Idempotency-Key": "a/b"}), 422)


def test_an_idempotency_key_makes_a_challenger_repeatable(
    http: httpx.Client, storage: Storage
) -> None:
    path = "/v1/bandits/menu/challenger"
    key = {"Idempotency-Key": "monday"}
    body = {"spec": exploring_spec()}
    for _ in range(2):
        assert http.put(path, json=body, headers=key).status_code == 204
    assert http.get("/v1/bandits/menu").json()["events"] == 2
    assert http.get(path).json()["since"] == 2
    other = http.put(path, json={"spec": SPEC}, headers=key)
    assert "different spec" in detail(other, 409)
    for _ in range(2):
        switched = http.post(f"{path}/switch", headers=key)
        assert switched.json()["spec"]["policy"]["name"] == "exploring"
        assert switched.json()["events"] == 3
    assert "no challenger" in detail(http.post(f"{path}/switch"), 404)
    assert load_bandit("menu", storage=storage).verify().same


@pytest.mark.parametrize(
    "query",
    [
        {"reward_low": 0.0},
        {"reward_low": 2.0, "reward_high": 1.0},
        {"reward_low": "nan", "reward_high": 1.0},
        {"level": 1.0},
        {"level": "much"},
    ],
)
def test_wrong_questions_about_a_challenger_are_refused(
    http: httpx.Client, query: dict[str, Any]
) -> None:
    http.put("/v1/bandits/menu/challenger", json={"spec": SPEC})
    assert detail(http.get("/v1/bandits/menu/challenger", params=query), 422)


# --- many at once --------------------------------------------------------------------------


def test_a_batch_answers_each_line(http: httpx.Client) -> None:
    decision = ask(http)
    first, second = decision["arms"]
    lines = [
        {"decision": decision["id"], "rewards": {first: 1.0}},
        {"decision": decision["id"], "rewards": {first: 1.0}},
        {"decision": decision["id"], "rewards": {first: 9.0}},
        {"decision": "nobody's", "rewards": {first: 1.0}},
        {"decision": decision["id"], "rewards": {second: "much"}},
        {"decision": decision["id"], "rewards": {second: 0.5}},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + "\nno JSON\n\n"
    response = http.post("/v1/bandits/menu/observations/batch", content=text)
    assert response.status_code == 200
    answers = [json.loads(line) for line in response.text.splitlines()]
    assert [answer["status"] for answer in answers] == [
        201, 200, 409, 404, 422, 201, 422,
    ]  # fmt: skip
    assert http.get("/v1/bandits/menu/pending").json() == {"decisions": []}


def test_events_are_streamed_and_continue_where_they_were_cut(
    http: httpx.Client,
) -> None:
    decision = ask(http)
    tell(http, decision["id"], {"rewards": {decision["arms"][0]: 1.0}})
    path = "/v1/bandits/menu/events"
    text = http.get(path, params={"follow": "false"}).text
    kinds = [
        line.removeprefix("event: ")
        for line in text.splitlines()
        if line.startswith("event: ")
    ]
    assert kinds == ["created", "decided", "observed"]
    rest = http.get(path, params={"follow": "false", "after": 2}).text
    assert rest.startswith("id: 3\n")
    cut = http.get(path, params={"follow": "false"}, headers={"Last-Event-ID": "2"})
    assert cut.text == rest
    with http.stream("GET", path, params={"after": 3}) as response:
        another = ask(http)
        for line in response.iter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                assert event["body"]["id"] == another["id"]
                break


def test_advice_needs_no_command_line(http: httpx.Client) -> None:
    """Clients of a service cannot list or show parts."""

    def refusal(policy: dict[str, Any]) -> str:
        body = {"name": "other", "spec": {"policy": policy}}
        return detail(http.post("/v1/bandits", json=body), 422)

    posterior = {"name": "streaming", "kernel": {"name": "qwerty"}}
    policy = {"name": "index", "posterior": posterior}
    text = refusal(policy)
    assert "unknown kernel 'qwerty'; choose one of" in text
    assert "matern" in text
    assert "superarm list" not in text
    text = refusal({"name": "index", "qwerty": 1})
    assert "has no parameter 'qwerty'; it takes" in text
    assert "posterior" in text
    assert "superarm show" not in text


def test_a_client_reads_nothing_about_installing_packages() -> None:
    with pytest.raises(MissingExtraError, match="run: pip install") as raised:
        require_extra("not_a_package", "fast")
    text = detail_of(raised.value)
    assert text == "not_a_package is not installed; ask the operator to install it"


def test_health_and_metrics(http: httpx.Client) -> None:
    ask(http)
    assert http.get("/healthz").json()["status"] == "ok"
    assert http.get("/readyz").status_code == 200
    text = http.get("/metrics").text
    route = 'route="/v1/bandits/{bandit}/decisions"'
    assert f'superarm_requests_total{{{route},status="201"}} 1.0' in text
    assert "superarm_ready 1.0" in text


def test_threads_ask_and_tell_side_by_side(
    http: httpx.Client, storage: Storage
) -> None:
    def play(number: int) -> None:
        decision = ask(http, decision_id=f"d{number}")
        rewards = dict.fromkeys(decision["arms"], 0.1)
        assert tell(http, decision["id"], {"rewards": rewards}).status_code == 201

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(play, range(40)))
    bandit = load_bandit("menu", storage=storage)
    assert bandit.seq == 1 + 2 * 40
    assert bandit.pending == []
    assert bandit.verify().same


# --- what is refused -----------------------------------------------------------------------

BAD_REQUESTS = [
    ("POST", "/v1/bandits", {"name": "a/b", "spec": SPEC}, 422),
    ("POST", "/v1/bandits", {"name": "x", "spec": {"name": "os.system"}}, 422),
    ("POST", "/v1/bandits", {"name": "x", "spec": {"policy": 3}}, 422),
    ("POST", "/v1/bandits", {"name": "x", "spec": {"$record": "arms"}}, 422),
    ("POST", "/v1/bandits", {"name": "x"}, 422),
    ("POST", "/v1/bandits", {"name": "x", "spec": SPEC, "more": 1}, 422),
    ("GET", "/v1/bandits/other", None, 404),
    ("PUT", "/v1/bandits/menu/challenger", {"spec": {"name": "none"}}, 422),
    ("PUT", "/v1/bandits/menu/challenger", {"spec": {"policy": 3}}, 422),
    ("PUT", "/v1/bandits/menu/challenger", {"spec": SPEC, "more": 1}, 422),
    ("GET", "/v1/decisions/other", None, 404),
    ("GET", "/v1/decisions/other/explain?bandit=menu", None, 404),
    ("GET", "/v1/nothing", None, 404),
    ("PUT", "/v1/bandits", {}, 405),
    ("POST", "/v1/bandits/menu/decisions", {"arms": {}}, 422),
    ("POST", "/v1/bandits/menu/decisions", {"arms": {"a": [1.0]}, "time": "x"}, 422),
    ("POST", "/v1/bandits/menu/decisions", {"arms": {"a": [1.0, "b"]}}, 422),
    ("POST", "/v1/bandits/menu/decisions", {"arms": {"a": [1, 2], "b": [1]}}, 422),
    ("POST", "/v1/bandits/menu/decisions", {"arms": ["unknown"]}, 422),
    ("POST", "/v1/bandits/menu/decisions", {"arms": MENU, "decision_id": ""}, 422),
    ("POST", "/v1/bandits/menu/decisions", {"arms": MENU, "decision_id": "a\n"}, 422),
    (
        "POST",
        "/v1/bandits/menu/decisions",
        {"arms": MENU, "structure": {"$record": "no"}},
        422,
    ),
    ("POST", "/v1/bandits/menu/decisions", [], 422),
    ("POST", "/v1/decisions/other/observations", {"rewards": {"a": 1.0}}, 404),
    ("POST", "/v1/bandits/menu/predict", {"arms": {"a": [1e400, 0]}}, 422),
    ("DELETE", "/v1/tokens/none", None, 404),
    ("POST", "/v1/tokens", {"name": "x", "scopes": ["root"]}, 422),
]


@pytest.fixture(scope="module")
def shared_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of one service for all requests that change nothing; it has the bandit ``menu``."""
    path = tmp_path_factory.mktemp("shared") / "bandits.db"
    with (
        Storage(f"sqlite:///{path}") as storage,
        running_service(storage) as url,
        http_client(url) as client,
    ):
        create_bandit("menu", spec=POLICY, storage=storage)
        yield client


@pytest.mark.parametrize(("method", "path", "body", "status"), BAD_REQUESTS)
def test_bad_requests_are_answered_and_change_nothing(
    shared_http: httpx.Client, method: str, path: str, body: Any, status: int
) -> None:
    http = shared_http
    content = None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/json"}
    response = http.request(method, path, content=content, headers=headers)
    assert detail(response, status)
    assert http.get("/v1/bandits/menu").json()["events"] == 1
    assert len(http.get("/v1/bandits").json()) == 1


def test_a_tell_of_arms_that_were_not_chosen_is_refused(http: httpx.Client) -> None:
    decision = ask(http)
    (other,) = set(MENU) - set(decision["arms"])
    for rewards in ({other: 1.0}, {"soup": 1.0}, {}):
        assert detail(tell(http, decision["id"], {"rewards": rewards}), 422)
    assert http.get("/v1/bandits/menu").json()["events"] == 2


def test_two_bandits_may_use_the_same_decision_id(http: httpx.Client) -> None:
    http.post("/v1/bandits", json={"name": "other", "spec": SPEC})
    body = {"arms": MENU, "decision_id": "today"}
    for name in ("menu", "other"):
        assert http.post(f"/v1/bandits/{name}/decisions", json=body).status_code == 201
    both = http.get("/v1/decisions/today")
    assert "menu, other" in detail(both, 409)
    one = http.get("/v1/decisions/today", params={"bandit": "other"})
    assert one.json()["bandit"] == "other"


def test_other_hosts_and_origins_are_refused(http: httpx.Client) -> None:
    evil = http.get("/v1/bandits", headers={"Host": "evil.example"})
    assert "is not allowed" in detail(evil, 421)
    page = http.get("/v1/bandits", headers={"Origin": "http://evil.example"})
    assert "cross-origin" in detail(page, 403)
    page = http.get("/v1/bandits", headers={"Origin": "http://["})  # no URL
    assert "cross-origin" in detail(page, 403)
    own = str(http.base_url).rstrip("/")
    assert http.get("/v1/bandits", headers={"Origin": own}).status_code == 200


def test_limits_of_body_arms_and_dimension(storage: Storage) -> None:
    limits = Limits(body_bytes=4000, arms=10, dimension=3)
    settings = Settings(limits=limits)
    with running_service(storage, settings) as url, http_client(url) as http:
        http.post("/v1/bandits", json={"name": "menu", "spec": SPEC})
        path = "/v1/bandits/menu/decisions"
        many = http.post(path, json={"arms": [[0.0, 0.1]] * 11})
        assert "11 arms" in detail(many, 413)
        wide = http.post(path, json={"arms": {"a": [0.0] * 4}})
        assert "4 features" in detail(wide, 413)
        large = http.post(path, content=b" " * 4001)
        assert "4000 bytes" in detail(large, 413)

        def chunks() -> Iterator[bytes]:
            for _ in range(5):
                yield b" " * 1000

        chunked = http.post(path, content=chunks())  # no Content-Length
        assert "4000 bytes" in detail(chunked, 413)
        assert http.get("/v1/bandits/menu").json()["events"] == 1


def test_a_rate_is_held(storage: Storage) -> None:
    limits = Limits(requests_per_second=0.001)
    settings = Settings(limits=limits)
    with running_service(storage, settings) as url, http_client(url) as http:
        assert http.get("/v1/bandits").status_code == 200
        refused = http.get("/v1/bandits")
        assert "requests a second" in detail(refused, 429)
        assert int(refused.headers["retry-after"]) > 1


def test_a_storage_that_fails_is_503_and_recovers(
    http: httpx.Client, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = ask(http)
    rewards = {"rewards": {decision["arms"][0]: 1.0}}

    def fail(appends: Any) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(storage.journal, "append", fail)
        refused = tell(http, decision["id"], rewards)
        assert "storage cannot be" in detail(refused, 503)
        assert refused.headers["retry-after"] == "1"
    assert tell(http, decision["id"], rewards).status_code == 201


# --- tokens and tenants --------------------------------------------------------------------


def add_token(storage: Storage, tenant: str, name: str, *scopes: str) -> dict[str, str]:
    """The headers of a new token."""
    token, row = make_token(tenant, name, scopes)
    assert token not in str(row)
    storage.journal.add_token(row)
    return {"Authorization": f"Bearer {token}"}


ALL = ("read", "ask", "tell", "admin")


def test_other_addresses_need_tokens(storage: Storage) -> None:
    with pytest.raises(InputError, match="superarm token create"):
        create_app(storage, Settings(host="0.0.0.0"))
    add_token(storage, "acme", "ops", "read")
    assert create_app(storage, Settings(host="0.0.0.0"))


def test_tokens_open_what_their_scopes_say(storage: Storage) -> None:
    admin = add_token(storage, "acme", "admin", *ALL)
    asker = add_token(storage, "acme", "asker", "ask")
    with running_service(storage) as url, http_client(url) as http:
        assert "needs a token" in detail(http.get("/v1/bandits"), 401)
        malformed = http.post("/v1/bandits", content=b"{")
        assert "needs a token" in detail(malformed, 401)  # its body was not even read
        wrong = {"Authorization": "Bearer sa_wrong"}
        assert "unknown" in detail(http.get("/v1/bandits", headers=wrong), 401)
        body = {"name": "menu", "spec": SPEC}
        assert "'admin'" in detail(
            http.post("/v1/bandits", json=body, headers=asker), 403
        )
        assert http.post("/v1/bandits", json=body, headers=admin).status_code == 201
        path = "/v1/bandits/menu/decisions"
        decision = http.post(path, json={"arms": MENU}, headers=asker).json()
        rewards = {"rewards": {decision["arms"][0]: 1.0}}
        tell_path = f"/v1/decisions/{decision['id']}/observations"
        assert detail(http.post(tell_path, json=rewards, headers=asker), 403)
        challenger = "/v1/bandits/menu/challenger"
        assert detail(http.put(challenger, json={"spec": SPEC}, headers=asker), 403)
        assert detail(http.get(challenger, headers=asker), 403)
        assert http.post(tell_path, json=rewards, headers=admin).status_code == 201
        # Without a token, but no bandit is shown.
        assert http.get("/healthz").status_code == 200


def test_tokens_are_needed_from_the_first_one_on(http: httpx.Client) -> None:
    body = {"name": "first", "scopes": list(ALL)}
    created = http.post("/v1/tokens", json=body)
    assert created.status_code == 201
    assert "needs a token" in detail(http.get("/v1/bandits/menu"), 401)
    headers = {"Authorization": f"Bearer {created.json()['token']}"}
    assert http.get("/v1/bandits/menu", headers=headers).status_code == 200


def test_tokens_are_created_listed_and_removed(storage: Storage) -> None:
    admin = add_token(storage, "acme", "admin", *ALL)
    other = add_token(storage, "other", "admin", *ALL)
    with running_service(storage) as url, http_client(url) as http:
        body = {"name": "reader", "scopes": ["read"]}
        made = http.post("/v1/tokens", json=body, headers=admin).json()
        reader = {"Authorization": f"Bearer {made['token']}"}
        assert http.get("/v1/bandits", headers=reader).status_code == 200
        names = [row["name"] for row in http.get("/v1/tokens", headers=admin).json()]
        assert names == ["admin", "reader"]
        assert made["token"] not in http.get("/v1/tokens", headers=admin).text
        assert detail(http.post("/v1/tokens", json=body, headers=admin), 409)
        assert detail(http.delete("/v1/tokens/reader", headers=other), 404)
        assert http.delete("/v1/tokens/reader", headers=admin).status_code == 204
        assert detail(http.get("/v1/bandits", headers=reader), 401)


@pytest.mark.slow  # a request to every route
def test_tenants_do_not_see_each_other(storage: Storage) -> None:
    """Whatever one tenant has is for another as if it were not there, byte for byte."""
    acme = add_token(storage, "acme", "all", *ALL)
    other = add_token(storage, "other", "all", *ALL)
    with running_service(storage) as url, http_client(url) as http:
        http.post("/v1/bandits", json={"name": "secret", "spec": SPEC}, headers=acme)
        decision = http.post(
            "/v1/bandits/secret/decisions",
            json={"arms": MENU, "decision_id": "known"},
            headers=acme,
        ).json()
        rewards = {"rewards": {decision["arms"][0]: 1.0}}
        requests: list[tuple[str, str, Any]] = [
            ("GET", "/v1/bandits/{b}", None),
            ("GET", "/v1/bandits/{b}/pending", None),
            ("GET", "/v1/bandits/{b}/events?follow=false", None),
            ("PUT", "/v1/bandits/{b}/arms", {"arms": MENU}),
            ("PUT", "/v1/bandits/{b}/spec", {"spec": SPEC}),
            ("POST", "/v1/bandits/{b}/refit", None),
            ("PUT", "/v1/bandits/{b}/challenger", {"spec": SPEC}),
            ("GET", "/v1/bandits/{b}/challenger", None),
            ("DELETE", "/v1/bandits/{b}/challenger", None),
            ("POST", "/v1/bandits/{b}/challenger/switch", None),
            ("POST", "/v1/bandits/{b}/predict", {"arms": MENU}),
            ("POST", "/v1/bandits/{b}/decisions", {"arms": MENU}),
            ("POST", "/v1/bandits/{b}/observations", {"arms": MENU, **rewards}),
            ("POST", "/v1/bandits/{b}/observations/batch", {}),
            ("GET", "/v1/decisions/{d}", None),
            ("GET", "/v1/decisions/{d}?bandit={b}", None),
            ("GET", "/v1/decisions/{d}/explain", None),
            ("POST", "/v1/decisions/{d}/abandon", None),
            ("POST", "/v1/decisions/{d}/activate", None),
            ("POST", "/v1/bandits/{b}/personalizer/v1.0/rank", {"actions": [ACTION]}),
            (
                "POST",
                "/v1/bandits/{b}/personalizer/v1.0/events/{d}/reward",
                {"value": 1},
            ),
            ("POST", "/v1/bandits/{b}/personalizer/v1.0/events/{d}/activate", None),
            ("POST", "/v1/decisions/{d}/observations", rewards),
        ]
        for method, path, body in requests:
            there = path.format(b="secret", d="known")
            nowhere = path.format(b="nowher", d="nothi")
            seen = http.request(method, there, json=body, headers=other)
            unseen = http.request(method, nowhere, json=body, headers=other)
            assert seen.status_code == unseen.status_code == 404
            expected = unseen.text.replace("nowher", "secret").replace("nothi", "known")
            assert seen.text == expected
            assert seen.headers["content-length"] == unseen.headers["content-length"]
        assert http.get("/v1/bandits", headers=other).json() == []
        # The same names are free for the other tenant.
        created = http.post(
            "/v1/bandits", json={"name": "secret", "spec": SPEC}, headers=other
        )
        assert created.status_code == 201
        assert detail(http.get("/v1/decisions/known", headers=other), 404)
        assert http.get("/v1/bandits/secret", headers=acme).json()["events"] == 2
