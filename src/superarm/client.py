"""Bandits of a service, with the verbs of :class:`superarm.live.Bandit`.

A program that has a bandit of its own,

    ``bandit = create_bandit("menu", spec=policy, storage="sqlite:///bandits.db")``

moves to a service by one line:

    ``bandit = Client("http://127.0.0.1:8642").create_bandit("menu", spec=policy)``

A request that fails on its way is sent again if that is safe: an ask or a tell has an id, so that it
counts once. A refit or a switch is sent once.
"""

from __future__ import annotations

import json
import re
import time as clock
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote
from uuid import uuid4

import numpy as np

from superarm.core import Guarantee
from superarm.core.display import Displayable
from superarm.core.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    SuperarmError,
    require_extra,
)
from superarm.core.inputs import as_number
from superarm.core.serialization import to_json
from superarm.live.answers import Answer, DecisionDetails, Forecast, Tell
from superarm.live.arms import as_arms, is_list_of_ids, plain_id
from superarm.live.decisions import Status
from superarm.live.events import Event, Kind
from superarm.live.explain import ArmReasons, Explanation, Teacher
from superarm.live.journal import StorageError
from superarm.live.off_policy import Estimate
from superarm.live.refit import Refit
from superarm.live.shadow_report import ShadowReport
from superarm.live.spec import BanditSpec

if TYPE_CHECKING:
    import httpx

_TRANSIENT = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_LONGEST_PAUSE = 5.0
_TOKEN = re.compile("[!-~]+")  # what a header can contain
_ESTIMATES = ("current", "inverse_propensity", "self_normalised", "doubly_robust")


class ServiceError(SuperarmError, RuntimeError):
    """The service refused a request, or failed; the message is its own."""


class Client:
    """A connection to a service.

    Args:
        url: Where the service is, such as ``"http://127.0.0.1:8642"``.
        token: A token, if the service needs one.
        timeout: Seconds to wait for an answer.
        retries: How many times to send a request again that failed on its way, or that the service
            could not answer at the moment.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
    ) -> None:
        library = require_extra("httpx", "client")
        if token is not None and _TOKEN.fullmatch(token) is None:
            raise InputError("token must be printable ASCII without spaces")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http: httpx.Client = library.Client(
            base_url=url, headers=headers, timeout=timeout
        )
        self._network_error: type[Exception] = library.TransportError
        self._retries = retries
        self.url = url

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def __del__(self) -> None:
        if hasattr(self, "_http"):
            self.close()  # so that ``Client(url).load_bandit(…)`` leaves nothing open

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def create_bandit(
        self, name: str, *, spec: Any, load_if_exists: bool = False
    ) -> RemoteBandit:
        """A new bandit of the service.

        Args:
            name: Its name.
            spec: What it is made of: a policy, the spec of one by registry names, or a ``BanditSpec``.
            load_if_exists: Whether to load a bandit of this name whatever its spec is.
        """
        body = {"name": name, "spec": BanditSpec.from_user(spec).as_json()}
        try:
            self.request("POST", "/v1/bandits", body)
        except ConflictError:
            if not load_if_exists:
                raise
        return RemoteBandit(self, name)

    def load_bandit(self, name: str) -> RemoteBandit:
        """A bandit of the service by name.

        Args:
            name: Its name.
        """
        self.request("GET", _path("v1", "bandits", name))
        return RemoteBandit(self, name)

    def bandits(self) -> list[str]:
        """Names of all bandits."""
        rows = self.request("GET", "/v1/bandits")
        return [row["name"] for row in rows]

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        counts_once: bool = True,
    ) -> Any:
        """Send a request, again if it fails on its way, and return the JSON of its answer.

        Args:
            method: Such as ``"POST"``.
            path: Such as ``"/v1/bandits"``.
            body: What to send as JSON; bytes are sent as lines of JSON.
            query: What to put after ``?``.
            counts_once: Whether sending it twice is the same as sending it once; otherwise it is
                sent once.
        """
        retries = self._retries if counts_once else 0
        content = body if isinstance(body, bytes) else None
        if body is not None and content is None:
            content = json.dumps(body, allow_nan=False).encode()
        kind = "x-ndjson" if isinstance(body, bytes) else "json"
        headers = {"Content-Type": f"application/{kind}"}
        pause = 0.1
        for attempt in range(retries + 1):
            is_last = attempt == retries
            try:
                response = self._http.request(
                    method, path, content=content, params=query, headers=headers
                )
            except self._network_error as error:
                if is_last:
                    raise self._no_answer(error) from error
            else:
                if is_last or response.status_code not in _TRANSIENT:
                    return _content(response)
                pause = _pause_of(response, pause)
            clock.sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
        raise AssertionError  # the last attempt returns or raises

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[str]:
        """The lines of an answer that may never end.

        Args:
            path: Such as ``"/v1/bandits/menu/events"``.
            query: What to put after ``?``.
        """
        try:
            with self._http.stream("GET", path, params=query, timeout=None) as response:
                if response.status_code != HTTPStatus.OK:
                    response.read()
                    _content(response)
                yield from response.iter_lines()
        except self._network_error as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> StorageError:
        return StorageError(
            f"the service at {self.url} does not answer: {error}; is it running?"
        )


class RemoteBandit(Displayable):
    """A bandit of a service, with the verbs of :class:`superarm.live.Bandit`.

    :meth:`Client.create_bandit` and :meth:`Client.load_bandit` make one.
    """

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client
        self._spec: BanditSpec | None = None  # read when arms must be encoded

    def _display_fields(self) -> Mapping[str, Any]:
        return {"name": self.name, "service": self._client.url}

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
        """Decide which arms to choose. The decision is durable when this returns.

        Args:
            arms: The arms on offer: features by id, a table, an array, or ids of named arms; by
                default all named arms.
            structure: The constraints of this round, if the oracle has any.
            time: Physical time, for rewards that drift; by default rounds are evenly spaced.
            decision_id: An id of your own. Asking again with the same id returns the same decision.
            deferred: Whether rewards are awaited only after :meth:`activate`, because the decision may
                never be acted on. It needs a policy that learns rewards in any order.
        """
        body = {
            "arms": self._arms_body(arms),
            "structure": to_json(structure),
            "time": _finite_or_none(time, "time"),
            "decision_id": uuid4().hex if decision_id is None else decision_id,
            "deferred": deferred,
        }
        return _answer(self._request("POST", "decisions", body))

    def tell(
        self,
        decision: Answer | str,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        observation_id: str | None = None,
    ) -> bool:
        """Learn rewards of a decision's arms. They are durable when this returns.

        Rewards may come late, in parts and in any order. Telling the same again changes nothing.

        Args:
            decision: The decision, or its id.
            rewards: Rewards by arm id, of all or some of the chosen arms.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            observation_id: An id of your own for these rewards; by default the arms identify them.

        Returns:
            Whether the rewards are new.
        """
        body = _rewards_body(rewards, noise_variance, observation_id)
        answer = self._decision_request("POST", decision, "observations", body)
        is_new: bool = answer["new"]
        return is_new

    def tell_many(self, tells: Iterable[Tell]) -> list[bool | SuperarmError]:
        """Learn rewards of many decisions in one request.

        Args:
            tells: The arguments of one :meth:`tell` each.

        Returns:
            For each, whether the rewards are new, or the error.
        """
        lines = []
        for tell in tells:
            body = _rewards_body(tell.rewards, tell.noise_variance, tell.observation_id)
            line = json.dumps({"decision": tell.decision, **body}, allow_nan=False)
            lines.append(line)
        answers = self._request("POST", "observations/batch", "\n".join(lines).encode())
        return [_line_outcome(answer) for answer in answers]

    def observe(
        self,
        arms: Any,
        rewards: Mapping[Any, float],
        *,
        noise_variance: Mapping[Any, float] | None = None,
        time: float | None = None,
        observation_id: str | None = None,
    ) -> bool:
        """Learn rewards that no decision of this bandit led to, such as those of last year.

        Args:
            arms: The arms, as in :meth:`ask`.
            rewards: Rewards by arm id.
            noise_variance: The variance of each reward's noise where it is known, by arm id.
            time: When they were seen, for rewards that drift.
            observation_id: An id of your own: observing again with the same id changes nothing.

        Returns:
            Whether the rewards are new.
        """
        number = uuid4().hex if observation_id is None else observation_id
        body = _rewards_body(rewards, noise_variance, number)
        body |= {"arms": self._arms_body(arms), "time": _finite_or_none(time, "time")}
        is_new: bool = self._request("POST", "observations", body)["new"]
        return is_new

    def abandon(self, decision: Answer | str) -> bool:
        """Stop waiting for a decision's rewards. Rewards that come nevertheless are learned.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was waited for.
        """
        awaited: bool = self._decision_request("POST", decision, "abandon")["awaited"]
        return awaited

    def activate(self, decision: Answer | str) -> bool:
        """Await the rewards of a deferred decision: it is acted on now.

        Args:
            decision: The decision, or its id.

        Returns:
            Whether the decision was deferred until now.
        """
        deferred: bool = self._decision_request("POST", decision, "activate")[
            "deferred"
        ]
        return deferred

    # --- changes of the bandit itself --------------------------------------------------------

    def name_arms(self, arms: Any) -> None:
        """Store arms once; later asks refer to them by id.

        Args:
            arms: The arms, as in :meth:`ask`. They replace those that were named before.
        """
        self._request("PUT", "arms", {"arms": self._arms_body(arms)})

    def respecify(self, spec: Any) -> None:
        """Change what the bandit is made of. The new policy learns everything observed so far.

        Args:
            spec: The new spec, as in :meth:`Client.create_bandit`.
        """
        body = {"spec": BanditSpec.from_user(spec).as_json()}
        self._request("PUT", "spec", body)
        self._spec = None

    def refit(self) -> Refit:
        """Fit the hyper-parameters of the kernel to everything observed so far.

        Returns:
            The spec with the fitted kernel, noise and mean, and how well they explain the rewards.
        """
        answer = self._request("POST", "refit", counts_once=False)
        spec = BanditSpec.from_json(answer["spec"])
        return Refit(answer["log_marginal_likelihood"], spec)

    # --- a challenger ------------------------------------------------------------------------

    def shadow(self, spec: Any) -> None:
        """Let a challenger decide on the same offers, without acting. It survives restarts.

        Args:
            spec: A policy, the spec of one by registry names, or a ``BanditSpec``; ``None`` ends the
                challenger. A policy alone takes everything else from the bandit. A challenger that
                runs already is replaced, and the report starts anew.
        """
        if spec is None:
            self._request("DELETE", "challenger")
            return
        challenger = BanditSpec.from_user(spec, default=self.spec)
        self._request("PUT", "challenger", {"spec": challenger.as_json()})

    def shadow_report(
        self,
        *,
        reward_range: tuple[float, float] | None = None,
        level: float = 0.95,
    ) -> ShadowReport:
        """Estimate what the challenger would have earned, in rewards per decision.

        Args:
            reward_range: The least and the greatest possible reward of a decision: the sum over its
                arms. With it, intervals hold for any number of decisions; without it, only for many.
            level: The probability that an interval covers.
        """
        query: dict[str, float] = {"level": as_number(level, "level")}
        if reward_range is not None:
            low, high = reward_range
            query["reward_low"] = as_number(low, "low")
            query["reward_high"] = as_number(high, "high")
        return _report(self._request("GET", "challenger", query=query))

    def switch(self) -> None:
        """Make the challenger the policy. It has learned all rewards recorded so far."""
        self._request("POST", "challenger/switch", counts_once=False)
        self._spec = None

    # --- questions -------------------------------------------------------------------------

    @property
    def spec(self) -> BanditSpec:
        """What the bandit is made of."""
        return BanditSpec.from_json(self._request("GET", "")["spec"])

    @property
    def seq(self) -> int:
        """The number of the last event."""
        events: int = self._request("GET", "")["events"]
        return events

    @property
    def pending(self) -> list[str]:
        """Ids of the decisions that await rewards, the oldest first."""
        decisions: list[str] = self._request("GET", "pending")["decisions"]
        return decisions

    def decision(self, decision_id: str) -> DecisionDetails:
        """A decision of any age, and what became of it.

        Args:
            decision_id: Its id.
        """
        details = self._decision_request("GET", decision_id, "")
        status = Status(details["status"])
        return DecisionDetails(
            _answer(details), status, details["time"], details["awaiting"]
        )

    def predict(self, arms: Any = None, *, time: float | None = None) -> Forecast:
        """Mean and standard deviation of arms, in the order in which they are given.

        Args:
            arms: The arms, as in :meth:`ask`.
            time: Physical time, for rewards that drift.
        """
        body = {"arms": self._arms_body(arms), "time": _finite_or_none(time, "time")}
        answer = self._request("POST", "predict", body)
        mean = np.array(answer["mean"], dtype=np.float64)
        std = answer["std"]
        if std is not None:
            std = np.array(std, dtype=np.float64)
        return Forecast(arms=answer["arms"], mean=mean, std=std)

    def explain(self, decision: Answer | str) -> Explanation:
        """Explain a decision by what was known when it was taken.

        Args:
            decision: The decision, or its id.
        """
        answer = self._decision_request("GET", decision, "explain")
        reasons = []
        for arm in answer["arms"]:
            teachers = [Teacher(**teacher) for teacher in arm["teachers"]]
            reasons.append(ArmReasons(**{**arm, "teachers": teachers}))
        return Explanation(**{**answer, "arms": reasons})

    def events(self, after: int = 0, *, follow: bool = False) -> Iterator[Event]:
        """The events in order.

        Args:
            after: The number of the event to start after.
            follow: Whether to wait for those to come, for ever.
        """
        path = _path("v1", "bandits", self.name, "events")
        query = {"after": after, "follow": "true" if follow else "false"}
        for line in self._client.stream(path, query):
            if line.startswith("data: "):
                data = json.loads(line.removeprefix("data: "))
                yield Event(
                    seq=data["seq"],
                    key="",
                    kind=Kind(data["kind"]),
                    time=data["time"],
                    body=data["body"],
                )

    # --- requests --------------------------------------------------------------------------

    def _arms_body(self, arms: Any) -> Any:
        """Arms as JSON: ids of named arms as they are, others with their features."""
        if arms is None or is_list_of_ids(arms):
            return arms
        if self._spec is None:
            self._spec = self.spec
        offered = as_arms(arms, self._spec, None)
        ids = [plain_id(arm) for arm in offered.ids]
        return {"ids": ids, "features": offered.features.tolist()}

    def _request(self, method: str, rest: str, body: Any = None, **options: Any) -> Any:
        path = _path("v1", "bandits", self.name)
        if rest:
            path = f"{path}/{rest}"
        return self._client.request(method, path, body, **options)

    def _decision_request(
        self, method: str, decision: Answer | str, rest: str, body: Any = None
    ) -> Any:
        number = decision.id if isinstance(decision, Answer) else decision
        path = _path("v1", "decisions", number)
        if rest:
            path = f"{path}/{rest}"
        query = {"bandit": self.name}
        return self._client.request(method, path, body, query=query)


# --- what is sent --------------------------------------------------------------------------


def _path(*parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in parts)


def _rewards_body(
    rewards: Mapping[Any, float],
    noise_variance: Mapping[Any, float] | None,
    observation_id: str | None,
) -> dict[str, Any]:
    return {
        "rewards": _numbers(rewards, "rewards"),
        "noise_variance": None
        if noise_variance is None
        else _numbers(noise_variance, "noise_variance"),
        "observation_id": observation_id,
    }


def _finite_or_none(value: float | None, name: str) -> float | None:
    return None if value is None else as_number(value, name)


def _numbers(table: Mapping[Any, float], name: str) -> dict[str, float]:
    return {str(arm): as_number(value, name) for arm, value in table.items()}


# --- what comes back -----------------------------------------------------------------------


def _content(response: httpx.Response) -> Any:
    """The JSON of an answer; an answer that is an error is raised."""
    if response.is_success:
        kind = response.headers.get("content-type", "")
        if "ndjson" in kind:
            return [json.loads(line) for line in response.text.splitlines()]
        return response.json() if response.content else None
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:200]
    raise _error(response.status_code, str(detail))


def _error(status: int, detail: str) -> SuperarmError:
    """The error that the library raises in the same case."""
    match status:
        case HTTPStatus.NOT_FOUND:
            return NotFoundError(detail)
        case HTTPStatus.UNPROCESSABLE_ENTITY:
            return InputError(detail)
        case HTTPStatus.CONFLICT:
            return ConflictError(detail)
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return StorageError(detail)
        case _:
            return ServiceError(f"{status} {detail}")


def _pause_of(response: httpx.Response, pause: float) -> float:
    """Seconds to wait before the next attempt: what the service says, or ``pause``."""
    wanted = response.headers.get("retry-after", "")
    return min(float(wanted), _LONGEST_PAUSE) if wanted.isdecimal() else pause


def _answer(body: Mapping[str, Any]) -> Answer:
    arms = body["arms"]
    guarantee = body["guarantee"]
    return Answer(
        id=body["id"],
        action=body["action"],
        arms=arms,
        mean=_by_arm(arms, body["mean"]),
        std=_by_arm(arms, body["std"]),
        propensity=body["propensity"],
        guarantee=None if guarantee is None else Guarantee(**guarantee),
    )


def _report(body: Mapping[str, Any]) -> ShadowReport:
    estimates = {}
    for name in _ESTIMATES:
        table = body[name]
        estimates[name] = None if table is None else Estimate(**table)
    return ShadowReport(**{**body, **estimates})


def _by_arm(arms: list[Any], values: Mapping[str, float]) -> dict[Any, float]:
    """Values by arm id: the keys of JSON are text, whatever the ids are."""
    return {arm: values[str(arm)] for arm in arms if str(arm) in values}


def _line_outcome(answer: Mapping[str, Any]) -> bool | SuperarmError:
    if "new" in answer:
        is_new: bool = answer["new"]
        return is_new
    return _error(answer["status"], answer["detail"])
