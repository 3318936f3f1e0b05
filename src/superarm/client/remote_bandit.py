"""A bandit of a service: each verb is one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from superarm.core.display import Displayable
from superarm.core.errors import SuperarmError
from superarm.core.inputs import as_number
from superarm.core.serialization import to_json
from superarm.live.answers import Answer, DecisionDetails, Forecast, Tell
from superarm.live.arms import as_arms, is_list_of_ids, plain_id
from superarm.live.events import Event
from superarm.live.explain import Explanation
from superarm.live.refit import Refit
from superarm.live.shadow_report import ShadowReport
from superarm.live.spec import BanditSpec
from superarm.live.verbs import BanditVerbs

from .connection import Connection, encode_json, url_path
from .decoding import (
    decode_answer,
    decode_details,
    decode_event,
    decode_explanation,
    decode_forecast,
    decode_outcome,
    decode_refit,
    decode_report,
)


class RemoteBandit(Displayable, BanditVerbs):
    """A bandit of a service, with the verbs of :class:`superarm.live.Bandit`.

    :meth:`Client.create_bandit` and :meth:`Client.load_bandit` make one.

    Args:
        connection: The connection to the service.
        name: The name of the bandit.
    """

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._spec: BanditSpec | None = None  # read when arms must be encoded

    def _display_fields(self) -> Mapping[str, Any]:
        return {"name": self.name, "service": self._connection.url}

    # --- ask and tell ----------------------------------------------------------------------

    def ask(
        self,
        arms: Any = None,
        *,
        structure: object = None,
        time: float | None = None,
        decision_id: str | None = None,
        deferred: bool = False,
    ) -> Answer:
        body = {
            "arms": self._arms_body(arms),
            "structure": to_json(structure),
            "time": _finite_or_none(time, "time"),
            "decision_id": _id_or_new(decision_id),
            "deferred": deferred,
        }
        answer = self._request("POST", "decisions", body)
        return decode_answer(answer)

    def tell(
        self,
        decision: Answer | str,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        observation_id: str | None = None,
    ) -> bool:
        body = _rewards_body(rewards, noise_variance, observation_id)
        answer = self._decision_request("POST", decision, "observations", body)
        is_new: bool = answer["new"]
        return is_new

    def tell_many(self, tells: Iterable[Tell]) -> list[bool | SuperarmError]:
        lines = []
        for tell in tells:
            body = _rewards_body(tell.rewards, tell.noise_variance, tell.observation_id)
            lines.append(encode_json({"decision": tell.decision, **body}))
        answers = self._request("POST", "observations/batch", b"\n".join(lines))
        return [decode_outcome(answer) for answer in answers]

    def observe(
        self,
        arms: Any,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        time: float | None = None,
        observation_id: str | None = None,
    ) -> bool:
        observation_id = _id_or_new(observation_id)
        body = _rewards_body(rewards, noise_variance, observation_id)
        body["arms"] = self._arms_body(arms)
        body["time"] = _finite_or_none(time, "time")
        answer = self._request("POST", "observations", body)
        is_new: bool = answer["new"]
        return is_new

    def abandon(self, decision: Answer | str) -> bool:
        answer = self._decision_request("POST", decision, "abandon")
        was_pending: bool = answer["awaited"]
        return was_pending

    def activate(self, decision: Answer | str) -> bool:
        answer = self._decision_request("POST", decision, "activate")
        was_deferred: bool = answer["deferred"]
        return was_deferred

    # --- changes of the bandit itself --------------------------------------------------------

    def name_arms(self, arms: Any) -> None:
        self._request("PUT", "arms", {"arms": self._arms_body(arms)})

    def respecify(self, spec: Any) -> None:
        body = {"spec": BanditSpec.from_user(spec).as_json()}
        self._request("PUT", "spec", body)
        self._spec = None

    def refit(self, *, request_id: str | None = None) -> Refit:
        key = _id_or_new(request_id)
        answer = self._request("POST", "refit", idempotency_key=key)
        return decode_refit(answer)

    # --- a challenger ------------------------------------------------------------------------

    def shadow(self, spec: Any, *, request_id: str | None = None) -> None:
        if spec is None:
            self._request("DELETE", "challenger")
            return
        challenger = BanditSpec.from_user(spec, default=self.spec)
        key = _id_or_new(request_id)
        body = {"spec": challenger.as_json()}
        self._request("PUT", "challenger", body, idempotency_key=key)

    def shadow_report(
        self,
        *,
        reward_range: tuple[float, float] | None = None,
        level: float = 0.95,
    ) -> ShadowReport:
        query: dict[str, float] = {"level": as_number(level, "level")}
        if reward_range is not None:
            low, high = reward_range
            query["reward_low"] = as_number(low, "low")
            query["reward_high"] = as_number(high, "high")
        answer = self._request("GET", "challenger", query=query)
        return decode_report(answer)

    def switch(self, *, request_id: str | None = None) -> None:
        key = _id_or_new(request_id)
        self._request("POST", "challenger/switch", idempotency_key=key)
        self._spec = None

    # --- questions -------------------------------------------------------------------------

    @property
    def spec(self) -> BanditSpec:
        answer = self._request("GET", "")
        return BanditSpec.from_json(answer["spec"])

    @property
    def seq(self) -> int:
        answer = self._request("GET", "")
        seq: int = answer["events"]
        return seq

    @property
    def pending(self) -> list[str]:
        answer = self._request("GET", "pending")
        decisions: list[str] = answer["decisions"]
        return decisions

    def events(self, after: int = 0, *, follow: bool = False) -> Iterator[Event]:
        """The durable events in order.

        Args:
            after: The number of the event to start after.
            follow: Whether to keep waiting for new events.
        """
        path = url_path("v1", "bandits", self.name, "events")
        query = {"after": after, "follow": "true" if follow else "false"}
        for line in self._connection.stream(path, query):
            event = decode_event(line)
            if event is not None:
                yield event

    def decision(self, decision_id: str) -> DecisionDetails:
        answer = self._decision_request("GET", decision_id, "")
        return decode_details(answer)

    def predict(self, arms: Any = None, *, time: float | None = None) -> Forecast:
        body = {"arms": self._arms_body(arms), "time": _finite_or_none(time, "time")}
        answer = self._request("POST", "predict", body)
        return decode_forecast(answer)

    def explain(self, decision: Answer | str) -> Explanation:
        answer = self._decision_request("GET", decision, "explain")
        return decode_explanation(answer)

    # --- requests --------------------------------------------------------------------------

    def _request(
        self, method: str, subpath: str, body: Any = None, **options: Any
    ) -> Any:
        path = url_path("v1", "bandits", self.name)
        if subpath:
            path = f"{path}/{subpath}"
        return self._connection.request(method, path, body, **options)

    def _decision_request(
        self, method: str, decision: Answer | str, subpath: str, body: Any = None
    ) -> Any:
        decision_id = decision.id if isinstance(decision, Answer) else decision
        path = url_path("v1", "decisions", decision_id)
        if subpath:
            path = f"{path}/{subpath}"
        query = {"bandit": self.name}
        return self._connection.request(method, path, body, query=query)

    def _arms_body(self, arms: Any) -> Any:
        """Arms as JSON: ids of named arms as they are, others with their features."""
        if arms is None or is_list_of_ids(arms):
            return arms
        if self._spec is None:
            self._spec = self.spec
        offered = as_arms(arms, self._spec, None)
        ids = [plain_id(arm) for arm in offered.ids]
        return {"ids": ids, "features": offered.features.tolist()}


def _id_or_new(value: str | None) -> str:
    """An id that the service checks. A request that is sent again has the same one."""
    return uuid4().hex if value is None else value


def _rewards_body(
    rewards: Mapping[Any, float],
    noise_variance: Mapping[Any, float] | None,
    observation_id: str | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "rewards": _numbers(rewards, "rewards"),
        "noise_variance": None,
        "observation_id": observation_id,
    }
    if noise_variance is not None:
        body["noise_variance"] = _numbers(noise_variance, "noise_variance")
    return body


def _numbers(table: Mapping[Any, float], name: str) -> dict[str, float]:
    return {str(arm): as_number(value, name) for arm, value in table.items()}


def _finite_or_none(value: float | None, name: str) -> float | None:
    return None if value is None else as_number(value, name)
