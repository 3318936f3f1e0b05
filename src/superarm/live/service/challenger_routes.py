"""Routes of challengers: start one, read its report, make it the policy, end it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from superarm.core.errors import InputError
from superarm.live.spec import BanditSpec

from . import bodies
from .admission import AdmittedRoute
from .context import Admin, IdempotencyKey, Reader, ServiceDep, from_request
from .plain import bandit_body, report_body
from .sizes import require_width

router = APIRouter(
    prefix="/v1/bandits", tags=["challengers"], route_class=AdmittedRoute
)

Reward = Annotated[float | None, Query(allow_inf_nan=False)]


@router.put("/{bandit}/challenger", status_code=HTTPStatus.NO_CONTENT)
def start_challenger(
    bandit: str,
    body: bodies.Spec,
    service: ServiceDep,
    caller: Admin,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Let a challenger decide on the same offers, without acting. It replaces an earlier one.

    Repeated with the same `Idempotency-Key`, it changes nothing.
    """
    found = service.hub.bandit(caller.tenant, bandit)

    def read(table: object) -> BanditSpec:
        return BanditSpec.from_user(table, default=found.spec)

    spec = from_request(read, body.spec)
    require_width(spec, service.limits)
    found.shadow(spec, request_id=idempotency_key)


@router.get("/{bandit}/challenger")
def report_challenger(
    bandit: str,
    service: ServiceDep,
    caller: Reader,
    reward_low: Reward = None,
    reward_high: Reward = None,
    level: Annotated[float, Query(gt=0.0, lt=1.0)] = 0.95,
) -> bodies.ShadowReport:
    """What the challenger would have earned, in rewards per decision. 404 without a challenger.

    With the least and the greatest possible reward of a decision, intervals hold for any number of
    decisions.
    """
    found = service.hub.bandit(caller.tenant, bandit)
    if (reward_low is None) != (reward_high is None):
        raise InputError("pass both reward_low and reward_high, or neither")
    reward_range = None
    if reward_low is not None and reward_high is not None:
        reward_range = (reward_low, reward_high)
    return report_body(found.shadow_report(reward_range=reward_range, level=level))


@router.delete("/{bandit}/challenger", status_code=HTTPStatus.NO_CONTENT)
def end_challenger(bandit: str, service: ServiceDep, caller: Admin) -> None:
    """End the challenger. Without one, nothing changes."""
    service.hub.bandit(caller.tenant, bandit).shadow(None)


@router.post("/{bandit}/challenger/switch")
def switch_to_challenger(
    bandit: str,
    service: ServiceDep,
    caller: Admin,
    idempotency_key: IdempotencyKey = None,
) -> bodies.BanditDetails:
    """Make the challenger the policy, by one event. 404 without a challenger.

    Repeated with the same `Idempotency-Key`, it changes nothing.
    """
    found = service.hub.bandit(caller.tenant, bandit)
    found.switch(request_id=idempotency_key)
    return bandit_body(found)
