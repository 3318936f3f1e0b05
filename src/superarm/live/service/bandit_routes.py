"""Routes of bandits: create, list, show, ask, predict, observe, change."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Response

from superarm.core.serialization import from_json
from superarm.live.access import Caller
from superarm.live.journal import BanditRow
from superarm.live.spec import BanditSpec

from . import bodies
from .admission import AdmittedRoute
from .context import (
    Admin,
    Asker,
    IdempotencyKey,
    Reader,
    Service,
    ServiceDep,
    Teller,
    from_request,
    one_id,
)
from .description import repeated
from .plain import bandit_body, decision_body
from .sizes import arms_of, require_width

router = APIRouter(prefix="/v1/bandits", tags=["bandits"], route_class=AdmittedRoute)


@router.post(
    "",
    status_code=HTTPStatus.CREATED,
    responses=repeated(
        bodies.BanditDetails, "A bandit of this name exists with the same spec."
    ),
)
def create_bandit(
    body: bodies.NewBandit, service: ServiceDep, caller: Admin, response: Response
) -> bodies.BanditDetails:
    """Create a bandit. Creating it again with the same spec changes nothing and answers 200."""
    spec = from_request(BanditSpec.from_json, body.spec)
    require_width(spec, service.limits)
    earlier = service.storage.journal.find(caller.tenant, body.name)
    bandit = service.hub.create(caller.tenant, body.name, spec)
    if earlier is not None:
        response.status_code = HTTPStatus.OK
    return bandit_body(bandit)


@router.get("")
def list_bandits(service: ServiceDep, caller: Reader) -> list[bodies.BanditInfo]:
    """All bandits, by name."""
    rows = service.storage.journal.bandits(caller.tenant)
    return [_info(row) for row in rows]


@router.get("/{bandit}")
def show_bandit(
    bandit: str, service: ServiceDep, caller: Reader
) -> bodies.BanditDetails:
    """A bandit: its spec, and how many events and pending decisions it has."""
    return bandit_body(service.hub.bandit(caller.tenant, bandit))


@router.get("/{bandit}/pending")
def list_pending(
    bandit: str, service: ServiceDep, caller: Reader
) -> bodies.PendingDecisions:
    """Ids of the decisions that await rewards, the oldest first."""
    found = service.hub.bandit(caller.tenant, bandit)
    return bodies.PendingDecisions(decisions=found.pending)


@router.put("/{bandit}/spec")
def change_spec(
    bandit: str, body: bodies.Spec, service: ServiceDep, caller: Admin
) -> bodies.BanditDetails:
    """Replace the spec of a bandit. The new policy learns all rewards recorded so far."""
    found = service.hub.bandit(caller.tenant, bandit)
    spec = from_request(BanditSpec.from_json, body.spec)
    require_width(spec, service.limits)
    found.respecify(spec)
    return bandit_body(found)


@router.put("/{bandit}/arms", status_code=HTTPStatus.NO_CONTENT)
def name_arms(
    bandit: str, body: bodies.NamedArms, service: ServiceDep, caller: Admin
) -> None:
    """Store arms once; later asks refer to them by id."""
    found = service.hub.bandit(caller.tenant, bandit)
    found.name_arms(arms_of(body.arms, found, service.limits))


@router.post("/{bandit}/refit")
def refit_bandit(
    bandit: str,
    service: ServiceDep,
    caller: Admin,
    idempotency_key: IdempotencyKey = None,
) -> bodies.Fitted:
    """Fit the hyper-parameters to all rewards recorded so far.

    Repeated with the same `Idempotency-Key`, it answers with the same fit.
    """
    found = service.hub.bandit(caller.tenant, bandit)
    refit = found.refit(request_id=idempotency_key)
    return bodies.Fitted(
        log_marginal_likelihood=refit.log_marginal_likelihood, spec=refit.spec.as_json()
    )


@router.post("/{bandit}/decisions", status_code=HTTPStatus.CREATED)
def ask(
    bandit: str,
    body: bodies.Ask,
    service: ServiceDep,
    caller: Asker,
    idempotency_key: IdempotencyKey = None,
) -> bodies.Decision:
    """Decide which arms to choose. The decision is durable before the response is sent."""
    return decide(service, caller, bandit, body, idempotency_key)


def decide(
    service: Service,
    caller: Caller,
    bandit: str,
    body: bodies.Ask,
    idempotency_key: str | None = None,
) -> bodies.Decision:
    """Decide which arms to choose; returns once the decision is durable.

    Args:
        service: The service that received the request.
        caller: Who sent it.
        bandit: The name of the bandit.
        body: The arms on offer.
        idempotency_key: The header ``Idempotency-Key``.
    """
    found = service.hub.bandit(caller.tenant, bandit)
    answer = found.ask(
        arms_of(body.arms, found, service.limits),
        structure=from_request(from_json, body.structure),
        time=body.time,
        decision_id=one_id(body.decision_id, idempotency_key, "decision_id"),
        deferred=body.deferred,
    )
    return decision_body(bandit, answer)


@router.post("/{bandit}/predict")
def predict(
    bandit: str, body: bodies.Predict, service: ServiceDep, caller: Reader
) -> bodies.Prediction:
    """Mean and standard deviation of arms."""
    found = service.hub.bandit(caller.tenant, bandit)
    forecast = found.predict(arms_of(body.arms, found, service.limits), time=body.time)
    std = None if forecast.std is None else forecast.std.tolist()
    return bodies.Prediction(arms=forecast.arms, mean=forecast.mean.tolist(), std=std)


@router.post(
    "/{bandit}/observations",
    status_code=HTTPStatus.CREATED,
    responses=repeated(bodies.Told, "The bandit had already recorded these rewards."),
)
def observe(
    bandit: str,
    body: bodies.Observe,
    service: ServiceDep,
    caller: Teller,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> bodies.Told:
    """Learn rewards of decisions that this bandit did not make: 201 new, 200 repeated, 409 different."""
    found = service.hub.bandit(caller.tenant, bandit)
    is_new = found.observe(
        arms_of(body.arms, found, service.limits),
        body.rewards,
        noise_variance=body.noise_variance,
        time=body.time,
        observation_id=one_id(body.observation_id, idempotency_key, "observation_id"),
    )
    if not is_new:
        response.status_code = HTTPStatus.OK
    return bodies.Told(new=is_new)


def _info(row: BanditRow) -> bodies.BanditInfo:
    return bodies.BanditInfo(name=row.name, created=row.created)
