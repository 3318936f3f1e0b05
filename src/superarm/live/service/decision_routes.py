"""Routes of decisions: show, tell, abandon, activate, explain."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool

from superarm.live.access import Caller
from superarm.live.answers import Tell
from superarm.live.ids import as_id

from . import bodies
from .admission import AdmittedRoute
from .context import IdempotencyKey, Reader, Service, ServiceDep, Teller, one_id
from .description import repeated
from .plain import details_body, explanation_body

router = APIRouter(
    prefix="/v1/decisions", tags=["decisions"], route_class=AdmittedRoute
)

BanditName = Annotated[
    str | None,
    Query(
        description="The bandit; needed only if several have a decision with this id."
    ),
]


@router.get("/{decision}")
def show_decision(
    decision: str, service: ServiceDep, caller: Reader, bandit: BanditName = None
) -> bodies.DecisionDetails:
    """A decision of any age, with its status."""
    found = service.hub.with_decision(caller.tenant, decision, bandit)
    return details_body(found.name, found.decision(decision))


@router.post(
    "/{decision}/observations",
    status_code=HTTPStatus.CREATED,
    responses=repeated(bodies.Told, "The bandit had already recorded these rewards."),
)
async def tell(
    decision: str,
    body: bodies.Tell,
    service: ServiceDep,
    caller: Teller,
    response: Response,
    bandit: BanditName = None,
    idempotency_key: IdempotencyKey = None,
) -> bodies.Told:
    """Learn rewards of a decision's arms: 201 if they are new, 200 if repeated, 409 if they differ."""
    is_new = await learn(
        service, caller, decision, body, bandit=bandit, idempotency_key=idempotency_key
    )
    if not is_new:
        response.status_code = HTTPStatus.OK
    return bodies.Told(new=is_new)


async def learn(
    service: Service,
    caller: Caller,
    decision: str,
    body: bodies.Tell,
    *,
    bandit: str | None,
    idempotency_key: str | None = None,
) -> bool:
    """Learn rewards of a decision's arms; returns whether they are new, once they are durable.

    Args:
        service: The service that received the request.
        caller: Who sent it.
        decision: The id of the decision.
        body: The rewards.
        bandit: The bandit, where the caller names it.
        idempotency_key: The header ``Idempotency-Key``.
    """
    if bandit is None:
        found = await run_in_threadpool(
            service.hub.with_decision, caller.tenant, decision
        )
        bandit = found.name
    tell = Tell(
        decision=as_id(decision),
        rewards=body.rewards,
        noise_variance=body.noise_variance,
        observation_id=one_id(body.observation_id, idempotency_key, "observation_id"),
    )
    return await service.tells.tell(caller.tenant, bandit, tell)


@router.post("/{decision}/abandon")
def abandon(
    decision: str, service: ServiceDep, caller: Teller, bandit: BanditName = None
) -> bodies.Abandoned:
    """Stop waiting for rewards. The bandit still learns rewards that arrive later."""
    found = service.hub.with_decision(caller.tenant, decision, bandit)
    return bodies.Abandoned(awaited=found.abandon(decision))


@router.post("/{decision}/activate")
def activate(
    decision: str, service: ServiceDep, caller: Teller, bandit: BanditName = None
) -> bodies.Activated:
    """Activate a deferred decision: the bandit waits for its rewards from now on."""
    found = service.hub.with_decision(caller.tenant, decision, bandit)
    return bodies.Activated(deferred=found.activate(decision))


@router.get("/{decision}/explain")
def explain(
    decision: str, service: ServiceDep, caller: Reader, bandit: BanditName = None
) -> bodies.Explanation:
    """Why a bandit decided as it did, with what it had learned at the time."""
    found = service.hub.with_decision(caller.tenant, decision, bandit)
    return explanation_body(found.explain(decision))
