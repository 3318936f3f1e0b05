"""Answers of a service as the library's own records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from superarm.core import Floats, Guarantee
from superarm.core.errors import SuperarmError
from superarm.live.answers import Answer, DecisionDetails, Forecast
from superarm.live.decisions import Status
from superarm.live.events import Event, Kind
from superarm.live.explain import ArmReasons, Explanation
from superarm.live.off_policy import Estimate
from superarm.live.refit import Refit
from superarm.live.shadow_report import ShadowReport
from superarm.live.spec import BanditSpec
from superarm.live.teachers import Teacher

from .connection import error_of

_ESTIMATES = ("current", "inverse_propensity", "self_normalised", "doubly_robust")
_EVENT_PREFIX = "data: "  # of a line with an event, in a stream of server-sent events


def decode_answer(body: Mapping[str, Any]) -> Answer:
    """What a bandit decided.

    Args:
        body: The JSON of a decision.
    """
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


def _by_arm(arms: list[Any], values: Mapping[str, float]) -> dict[Any, float]:
    """Values by arm id: the keys of JSON are text, whatever the ids are."""
    return {arm: values[str(arm)] for arm in arms if str(arm) in values}


def decode_details(body: Mapping[str, Any]) -> DecisionDetails:
    """A decision with its status.

    Args:
        body: The JSON of a decision's details.
    """
    return DecisionDetails(
        answer=decode_answer(body),
        status=Status(body["status"]),
        time=body["time"],
        awaiting=body["awaiting"],
    )


def decode_outcome(body: Mapping[str, Any]) -> bool | SuperarmError:
    """Whether rewards are new, or the error with which they were refused.

    Args:
        body: The JSON of one line of a batch.
    """
    if "new" in body:
        is_new: bool = body["new"]
        return is_new
    return error_of(body["status"], body["detail"])


def decode_forecast(body: Mapping[str, Any]) -> Forecast:
    """What a bandit expects of arms.

    Args:
        body: The JSON of a forecast.
    """
    std = body["std"]
    return Forecast(
        arms=body["arms"],
        mean=_as_floats(body["mean"]),
        std=None if std is None else _as_floats(std),
    )


def _as_floats(values: list[float]) -> Floats:
    return np.array(values, dtype=np.float64)


def decode_explanation(body: Mapping[str, Any]) -> Explanation:
    """Why a bandit decided as it did.

    Args:
        body: The JSON of an explanation.
    """
    return Explanation(
        decision=body["decision"],
        arms=[_decode_reasons(arm) for arm in body["arms"]],
        runner_up=[_decode_reasons(arm) for arm in body["runner_up"]],
        margin=body["margin"],
        teachers_refusal=body.get("teachers_refusal"),  # not of earlier services
    )


def _decode_reasons(body: Mapping[str, Any]) -> ArmReasons:
    teachers = [Teacher(**teacher) for teacher in body["teachers"]]
    return ArmReasons(**{**body, "teachers": teachers})


def decode_refit(body: Mapping[str, Any]) -> Refit:
    """The result of a fit.

    Args:
        body: The JSON of a refit.
    """
    spec = BanditSpec.from_json(body["spec"])
    return Refit(body["log_marginal_likelihood"], spec)


def decode_report(body: Mapping[str, Any]) -> ShadowReport:
    """What a challenger would have earned.

    Args:
        body: The JSON of a report.
    """
    estimates = {}
    for name in _ESTIMATES:
        table = body[name]
        estimates[name] = None if table is None else Estimate(**table)
    return ShadowReport(**{**body, **estimates})


def decode_event(line: str) -> Event | None:
    """An event of a stream; ``None`` if the line has none.

    Args:
        line: A line of server-sent events.
    """
    if not line.startswith(_EVENT_PREFIX):
        return None
    data = json.loads(line.removeprefix(_EVENT_PREFIX))
    return Event(
        seq=data["seq"],
        key="",
        kind=Kind(data["kind"]),
        time=data["time"],
        body=data["body"],
    )
