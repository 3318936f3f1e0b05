"""Rank and reward as Personalizer documents them, over an ordinary bandit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from running_service import http_client, running_service

from superarm.client import Client
from superarm.core.errors import ConflictError, InputError, NotFoundError
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, BanditSpec, Storage, create_bandit, load_bandit
from superarm.live.access import make_token
from superarm.live.decisions import Status
from superarm.live.events import Kind
from superarm.live.personalizer import (
    Action,
    hash_features,
    personalizer_spec,
    rank,
    reward,
)
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import InducingGP
from superarm.rules import UCB, Fixed

# The fields that Personalizer 1.0 documents for a rank, all of them.
REQUEST: dict[str, Any] = {
    "contextFeatures": [
        {"weather": {"sky": "rain", "celsius": 0.9}},
        {"device": {"mobile": True, "languages": ["en", "fr"]}},
    ],
    "actions": [
        {"id": "soup", "features": [{"warm": True, "price": 0.4}, {"kind": "meal"}]},
        {"id": "salad", "features": [{"warm": False, "price": 0.6}, {"kind": "meal"}]},
        {"id": "tea", "features": [{"warm": True, "price": 0.2}, {"kind": "drink"}]},
    ],
    "excludedActions": ["salad"],
    "eventId": "lunch-1",
    "deferActivation": False,
}
PATH = "/v1/bandits/menu/personalizer/v1.0"


@pytest.fixture
def bandit(storage: Storage) -> Bandit:
    return create_bandit("menu", spec=personalizer_spec(), storage=storage)


@pytest.fixture
def http(bandit: Bandit) -> Iterator[httpx.Client]:
    """A client of a service that has the bandit ``menu``."""
    with running_service(bandit.storage) as url, http_client(url) as client:
        yield client


def request(**changes: Any) -> dict[str, Any]:
    return {**REQUEST, **changes}


def error(response: httpx.Response, status: int, code: str) -> str:
    """The message of an error, which has Personalizer's body."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["code"] == code
    message: str = body["error"]["message"]
    assert message
    return message


# --- rank and reward -----------------------------------------------------------------------


def test_rank_and_reward_have_the_documented_bodies(
    http: httpx.Client, bandit: Bandit
) -> None:
    ranked = http.post(f"{PATH}/rank", json=REQUEST)
    assert ranked.status_code == 201
    body = ranked.json()
    assert set(body) == {"ranking", "eventId", "rewardActionId"}
    assert body["eventId"] == "lunch-1"
    assert [set(action) for action in body["ranking"]] == [{"id", "probability"}] * 3
    chosen, other, excluded = body["ranking"]
    assert chosen["id"] == body["rewardActionId"]
    assert {chosen["id"], other["id"]} == {"soup", "tea"}
    assert excluded == {"id": "salad", "probability": 0.0}
    probabilities = sorted([chosen["probability"], other["probability"]])
    assert probabilities == pytest.approx([0.1, 0.9])
    rewarded = http.post(f"{PATH}/events/lunch-1/reward", json={"value": 0.5})
    assert rewarded.status_code == 204
    assert rewarded.content == b""
    recorded = bandit.decision("lunch-1")
    assert recorded.status is Status.REWARDED
    assert recorded.answer.propensity == pytest.approx(chosen["probability"])
    assert bandit.verify().same


def test_optional_fields_may_be_missing_or_null(http: httpx.Client) -> None:
    actions = REQUEST["actions"]
    few = http.post(f"{PATH}/rank", json={"actions": actions})
    assert few.status_code == 201
    assert few.json()["eventId"]
    nulls = dict.fromkeys(
        ["contextFeatures", "excludedActions", "eventId", "deferActivation"]
    )
    body = {"actions": actions, **nulls, "slots": []}
    answer = http.post(f"{PATH}/rank", json=body).json()
    assert sum(action["probability"] for action in answer["ranking"]) == (
        pytest.approx(1.0)
    )
    assert len(answer["ranking"]) == 3


@pytest.mark.parametrize("version", ["v1.0", "v1.1", "v1.1-preview.3"])
def test_versions(http: httpx.Client, version: str) -> None:
    path = f"/v1/bandits/menu/personalizer/{version}"
    event = http.post(f"{path}/rank", json=request(eventId=version)).json()["eventId"]
    activated = http.post(f"{path}/events/{event}/activate")
    assert activated.status_code == 204
    rewarded = http.post(f"{path}/events/{event}/reward", json={"value": 1})
    assert rewarded.status_code == 204


def test_repeats_change_nothing_and_other_bodies_are_conflicts(
    http: httpx.Client, bandit: Bandit
) -> None:
    first = http.post(f"{PATH}/rank", json=REQUEST).json()
    path = f"{PATH}/events/lunch-1/reward"
    assert http.post(path, json={"value": -1.0}).status_code == 204
    events = bandit.seq
    # The policy has learned since, but an answer is an answer.
    assert http.post(f"{PATH}/rank", json=REQUEST).json() == first
    assert http.post(path, json={"value": -1.0}).status_code == 204
    other = http.post(path, json={"value": 1.0})
    assert "already recorded" in error(other, 409, "Conflict")
    fewer = http.post(f"{PATH}/rank", json=request(excludedActions=["soup"]))
    assert "different arms" in error(fewer, 409, "Conflict")
    assert bandit.seq == events


def test_excluded_actions_are_never_chosen(bandit: Bandit) -> None:
    actions = [Action(name, [{"name": name}]) for name in "abcd"]
    for _ in range(60):
        ranked = rank(bandit, actions, excluded=["b", "d", "unknown"])
        assert ranked.chosen in ("a", "c")
        assert [action.id for action in ranked.ranking[2:]] == ["b", "d"]
    with pytest.raises(InputError, match="names every action"):
        rank(bandit, actions, excluded=list("abcd"))


BAD = [
    ("rank", {}),
    ("rank", []),
    ("rank", request(actions=[])),
    ("rank", request(actions=[{"id": "soup"}])),
    ("rank", request(actions=[{"id": 3, "features": []}])),
    ("rank", request(actions=[REQUEST["actions"][0]] * 2)),
    ("rank", request(excludedActions=["soup", "salad", "tea"])),
    ("rank", request(contextFeatures={"sky": "rain"})),
    ("rank", request(contextFeatures=[{"size": 1e12}])),
    ("rank", request(contextFeatures=[{"size": 10**400}])),
    ("rank", request(contextFeatures=[{"size": float("nan")}])),
    ("rank", request(contextFeatures=[{"a": {"\ud800": 1e12}}])),
    ("rank", request(actions=[{"id": "\ud800", "features": []}])),
    ("rank", request(eventId="")),
    ("rank", request(eventId="x" * 300)),
    ("rank", request(deferActivation="yes")),
    ("events/lunch-1/reward", {}),
    ("events/lunch-1/reward", {"value": "much"}),
    ("events/lunch-1/reward", {"value": float("inf")}),
]


class Shared(NamedTuple):
    """One service for all requests that change nothing."""

    http: httpx.Client
    bandit: Bandit


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    path = tmp_path_factory.mktemp("shared") / "bandits.db"
    with (
        Storage(f"sqlite:///{path}") as storage,
        running_service(storage) as url,
        http_client(url) as http,
    ):
        bandit = create_bandit("menu", spec=personalizer_spec(), storage=storage)
        assert http.post(f"{PATH}/rank", json=REQUEST).status_code == 201
        yield Shared(http, bandit)


@pytest.mark.parametrize(("path", "body"), BAD)
def test_bad_requests_have_the_documented_error(
    shared: Shared, path: str, body: Any
) -> None:
    http, bandit = shared
    events = bandit.seq
    content = json.dumps(body)
    headers = {"Content-Type": "application/json"}
    response = http.post(f"{PATH}/{path}", content=content, headers=headers)
    error(response, 400, "BadRequest")
    assert bandit.seq == events


def test_what_does_not_exist(http: httpx.Client, storage: Storage) -> None:
    elsewhere = "/v1/bandits/other/personalizer/v1.0/rank"
    missing = http.post(elsewhere, json=REQUEST)
    assert "no bandit 'other'" in error(missing, 404, "ResourceNotFound")
    for verb, body in (("reward", {"value": 1.0}), ("activate", None)):
        response = http.post(f"{PATH}/events/unknown/{verb}", json=body)
        assert "no decision" in error(response, 404, "ResourceNotFound")
    later = http.post("/v1/bandits/menu/personalizer/v2.0/rank", json=REQUEST)
    assert "version" in error(later, 400, "BadRequest")
    plain = IndexPolicy(
        posterior=InducingGP(SquaredExponential(lengthscale=1.0), 0.1),
        rule=UCB(schedule=Fixed(value=1.0)),
        oracle=TopK(k=1),
    )
    create_bandit("plain", spec=plain, storage=storage)
    path = "/v1/bandits/plain/personalizer/v1.0/rank"
    assert "personalizer_spec" in error(
        http.post(path, json=REQUEST), 400, "BadRequest"
    )


def test_a_token_is_the_subscription_key(storage: Storage) -> None:
    """Another tenant's bandit is answered as one that does not exist, byte for byte."""
    headers = {}
    for tenant in ("acme", "other"):
        token, row = make_token(tenant, "app", ["ask", "tell"])
        storage.journal.add_token(row)
        headers[tenant] = {"Ocp-Apim-Subscription-Key": token}
    spec = personalizer_spec()
    create_bandit("menu", spec=spec, storage=storage, tenant="acme")
    with running_service(storage) as url, http_client(url) as http:
        error(http.post(f"{PATH}/rank", json=REQUEST), 401, "Unauthorized")
        wrong = {"Ocp-Apim-Subscription-Key": "sa_wrong"}
        refused = http.post(f"{PATH}/rank", json=REQUEST, headers=wrong)
        error(refused, 401, "Unauthorized")
        mine = http.post(f"{PATH}/rank", json=REQUEST, headers=headers["acme"])
        assert mine.status_code == 201
        for rest, body in (
            ("rank", REQUEST),
            ("events/lunch-1/reward", {"value": 1.0}),
            ("events/lunch-1/activate", None),
        ):
            path = f"{PATH}/{rest}"
            seen = http.post(path, json=body, headers=headers["other"])
            nowhere = path.replace("/menu/", "/none/")
            unseen = http.post(nowhere, json=body, headers=headers["other"])
            error(seen, 404, "ResourceNotFound")
            assert seen.text == unseen.text.replace("'none'", "'menu'")
        path = f"{PATH}/events/lunch-1/reward"
        rewarded = http.post(path, json={"value": 1.0}, headers=headers["acme"])
        assert rewarded.status_code == 204
        # Only what the token allows.
        assert http.get("/v1/bandits", headers=headers["acme"]).status_code == 403


# --- deferred activation -------------------------------------------------------------------


def reopened(bandit: Bandit) -> Bandit:
    url = bandit.storage.journal.url
    bandit.storage.close()
    return load_bandit("menu", storage=Storage(url))


def test_a_deferred_event_awaits_no_reward_until_it_is_activated(
    http: httpx.Client, bandit: Bandit
) -> None:
    body = request(deferActivation=True)
    http.post(f"{PATH}/rank", json=body)
    assert http.post(f"{PATH}/rank", json=body).status_code == 201
    assert bandit.pending == []
    assert bandit.decision("lunch-1").status is Status.DEFERRED
    for _ in range(2):
        activated = http.post(f"{PATH}/events/lunch-1/activate")
        assert activated.status_code == 204
    assert bandit.pending == ["lunch-1"]
    assert bandit.decision("lunch-1").status is Status.PENDING
    kinds = [event.kind for event in bandit.events()]
    assert kinds == [Kind.CREATED, Kind.DECIDED, Kind.ACTIVATED]


def test_deferral_outlives_restarts_and_a_reward_activates(
    storage: Storage, tmp_path: Path
) -> None:
    bandit = create_bandit("menu", spec=personalizer_spec(), storage=storage)
    actions = [Action(name, [{"name": name}]) for name in "ab"]
    for event in ("never", "rewarded", "activated", "late"):
        rank(bandit, actions, event_id=event, deferred=True)
    assert reward(bandit, "rewarded", 1.0)
    assert bandit.activate("activated")
    assert not bandit.activate("activated")
    for save in (False, True):
        if save:
            bandit.save_snapshot()
        bandit = reopened(bandit)
        assert bandit.pending == ["activated"]
        assert bandit.decision("never").status is Status.DEFERRED
        assert bandit.decision("rewarded").status is Status.REWARDED
    bandit.abandon("late")
    assert not bandit.activate("late")
    assert bandit.decision("late").status is Status.ABANDONED
    assert bandit.verify().same
    bandit.export(tmp_path / "tables")
    lines = (tmp_path / "tables" / "decisions.csv").read_text(encoding="utf-8")
    statuses = ["deferred", "rewarded", "pending", "abandoned"]
    for line, status in zip(lines.splitlines()[1:], statuses, strict=True):
        assert f",{status}," in line
    bandit.storage.close()


def test_a_policy_that_learns_in_order_defers_nothing(storage: Storage) -> None:
    policy = IndexPolicy(
        posterior=InducingGP(SquaredExponential(lengthscale=1.0), 0.1),
        rule=UCB(schedule=Fixed(value=1.0)),
        oracle=TopK(k=1),
    )
    bandit = create_bandit("menu", spec=policy, storage=storage)
    with pytest.raises(InputError, match="decision order"):
        bandit.ask({"a": [0.0]}, deferred=True)
    assert bandit.seq == 1
    answer = bandit.ask({"a": [0.0]})
    with pytest.raises(InputError, match="no recorded probabilities"):
        bandit.probabilities(answer.id)
    with pytest.raises(NotFoundError, match="no decision"):
        bandit.probabilities("other")


# --- apprentice mode -----------------------------------------------------------------------


def lunch(number: int) -> dict[str, Any]:
    """Soup is first, and right when it rains; tea is right when it does not."""
    sky = "rain" if number % 2 else "sun"
    return request(
        contextFeatures=[{"sky": sky}], excludedActions=[], eventId=f"lunch-{number}"
    )


def earned(number: int, action: str) -> float:
    best = "soup" if number % 2 else "tea"
    return float(action == best)


@pytest.mark.slow
def test_an_apprentice_follows_and_then_acts(storage: Storage) -> None:
    with running_service(storage) as url, http_client(url) as http:
        spec = personalizer_spec(apprentice=True)
        bandit = Client(url).create_bandit("menu", spec=spec)
        bandit.shadow(personalizer_spec(epsilon=0.2))
        for number in range(30):
            ranked = http.post(f"{PATH}/rank", json=lunch(number)).json()
            assert ranked["rewardActionId"] == "soup"
            assert [action["probability"] for action in ranked["ranking"]] == [1, 0, 0]
            value = {"value": earned(number, "soup")}
            path = f"{PATH}/events/lunch-{number}/reward"
            assert http.post(path, json=value).status_code == 204
        excluded = request(excludedActions=["soup"], eventId="no soup")
        ranked = http.post(f"{PATH}/rank", json=excluded).json()
        assert ranked["rewardActionId"] == "salad"
        report = bandit.shadow_report()
        assert report.decisions == 31
        assert report.agreement is not None
        assert report.agreement > 0.5
        # Nothing but the first action was ever tried.
        assert report.refusal is not None
        events = bandit.seq
        bandit.switch()
        assert bandit.seq == events + 1
        right = []
        for number in range(31, 131):
            ranked = http.post(f"{PATH}/rank", json=lunch(number)).json()
            total = sum(action["probability"] for action in ranked["ranking"])
            assert total == pytest.approx(1.0)
            value = {"value": earned(number, ranked["rewardActionId"])}
            path = f"{PATH}/events/lunch-{number}/reward"
            assert http.post(path, json=value).status_code == 204
            right.append(value["value"])
        assert np.mean(right[-40:]) > 0.75  # the apprentice would have had a half
    assert load_bandit("menu", storage=storage).verify().same


def test_the_apprentices_policy_has_learned_when_it_takes_over(
    storage: Storage,
) -> None:
    """It is the same as one that observed the same rewards itself."""
    apprentice = create_bandit(
        "apprentice", spec=personalizer_spec(apprentice=True), storage=storage
    )
    online = create_bandit("online", spec=personalizer_spec(), storage=storage)
    actions = [Action(name, [{"name": name}]) for name in "ab"]
    features = hash_features([], [action.features for action in actions], 128)
    for number in range(4):
        ranked = rank(apprentice, actions)
        reward(apprentice, ranked.event_id, 0.25 * number)
        online.observe({"a": features[0]}, {"a": 0.25 * number})
    apprentice.shadow(personalizer_spec())
    apprentice.switch()
    arms = {"a": features[0], "b": features[1]}
    mine = apprentice.predict(arms)
    theirs = online.predict(arms)
    np.testing.assert_allclose(mine.mean, theirs.mean, rtol=1e-9)
    assert mine.mean[0] > 0.1


# --- features ------------------------------------------------------------------------------


def test_hashed_features_are_the_same_in_every_process() -> None:
    """What a journal contains was hashed long ago."""
    row = hash_features([{"sky": "rain"}], [[{"price": 0.5}]], 16)[0]
    (places,) = np.nonzero(row)
    expected = np.zeros(16)
    expected[GOLDEN_PLACES] = GOLDEN_VALUES
    np.testing.assert_array_equal(row, expected)
    assert len(places) == 3


GOLDEN_PLACES = [2, 4, 8]
GOLDEN_VALUES = [1.0, 0.5, -0.5]


def one(features: Any, columns: int = 4096) -> Any:
    return hash_features([], [features], columns)[0]


def test_numbers_are_values_and_texts_indicators() -> None:
    np.testing.assert_array_equal(one([{"a": 2.0}]), 2.0 * one([{"a": 1}]))
    assert not np.array_equal(one([{"a": "1"}]), one([{"a": 1}]))
    for name in ("rain", "", "é", True, False):
        row = one([{"sky": name}])
        assert np.abs(row).sum() == 1.0
    np.testing.assert_array_equal(one([{"a": None}, {}]), np.zeros(4096))


def test_paths_matter_and_order_does_not() -> None:
    nested = one([{"a": {"b": "x"}}])
    assert not np.array_equal(nested, one([{"b": "x"}]))
    assert not np.array_equal(nested, one([{"a": {"c": "x"}}]))
    np.testing.assert_array_equal(
        one([{"a": 1, "b": "x"}]), one([{"b": "x"}, {"a": 1}])
    )
    np.testing.assert_array_equal(one([{"a": ["x", "y"]}]), one([{"a": ["y", "x"]}]))
    assert not np.array_equal(one([{"a": [1, 2]}]), one([{"a": [2, 1]}]))


def test_pairs_of_context_and_action() -> None:
    """A row differs by the context in more than the part of the context."""
    columns = 4096
    rain, sun = (
        hash_features([{"sky": sky}], [[{"warm": True}]], columns)[0]
        for sky in ("rain", "sun")
    )
    quarter = columns // 4
    action_part = slice(quarter, 2 * quarter)
    np.testing.assert_array_equal(rain[action_part], sun[action_part])
    assert np.abs(rain[action_part]).sum() == 1.0
    pairs = slice(2 * quarter, None)
    assert np.abs(rain[pairs] - sun[pairs]).sum() == 2.0


def test_features_that_are_refused() -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = {"a": deep}
    with pytest.raises(InputError, match="nested"):
        one([deep])
    for number in (1e7, float("nan"), float("inf"), 10**400):
        with pytest.raises(InputError, match=r"a\.b"):
            one([{"a": {"b": number}}])
    many = [{str(number): "x" for number in range(1100)}]
    with pytest.raises(InputError, match="pairs"):
        hash_features(many, [many], 64)


@pytest.mark.parametrize("dimension", [3, 0, 10**9, 2.5])
def test_dimensions_that_are_refused(dimension: Any) -> None:
    with pytest.raises(InputError, match=r"dimension|hash_columns"):
        personalizer_spec(dimension=dimension)


def test_a_spec_survives_json() -> None:
    spec = personalizer_spec(dimension=64, epsilon=0.3, seed=5, max_age=60.0)
    table = json.loads(json.dumps(spec.as_json()))
    assert table["hash_columns"] == 64
    assert BanditSpec.from_json(table).as_json() == spec.as_json()


def test_an_event_id_belongs_to_one_bandit(bandit: Bandit) -> None:
    actions = [Action(name, [{"name": name}]) for name in "ab"]
    ranked = rank(bandit, actions, event_id="e")
    assert reward(bandit, "e", 0.5)
    assert not reward(bandit, "e", 0.5)
    with pytest.raises(ConflictError, match="already recorded"):
        reward(bandit, "e", 0.75)
    assert bandit.probabilities("e") == {
        action.id: action.probability for action in ranked.ranking
    }
