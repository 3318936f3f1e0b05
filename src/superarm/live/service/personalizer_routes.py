"""Rank, reward and activate, with the bodies of Azure AI Personalizer 1.0 and 1.1.

A client of Personalizer needs another endpoint and key: ``http://HOST/v1/bandits/NAME`` and a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from superarm.core.errors import SuperarmError
from superarm.live import personalizer

from .admission import AdmittedRoute, Handler
from .bodies import FlatTable
from .context import Asker, ServiceDep, Teller
from .problems import Refusal, detail_of, faults_of, log_error, retry_headers, status_of
from .sizes import require_arms, require_numbers

# Personalizer's own names of errors; others have the phrase of their status.
_CODES = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.NOT_FOUND: "ResourceNotFound",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
}

_STATUSES = (400, 401, 403, 404, 409, 413, 429, 503)


# --- bodies --------------------------------------------------------------------------------


class PersonalizerBody(BaseModel):
    """A body as Personalizer documents it. Further fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        strict=True,
        allow_inf_nan=False,
    )


class RankableAction(PersonalizerBody):
    """An action that may be chosen."""

    id: str
    features: list[FlatTable]


class RankRequest(PersonalizerBody):
    """Actions to rank in a context."""

    actions: list[RankableAction] = Field(
        min_length=1,
        description="In apprentice mode, the bandit chooses the first action that is not excluded.",
    )
    context_features: list[FlatTable] | None = None
    excluded_actions: list[str] | None = Field(
        default=None, description="Ids of actions that the bandit must not choose."
    )
    event_id: str | None = Field(
        default=None,
        description="An id of your own. A repeated rank with the same id returns the same answer.",
    )
    defer_activation: bool | None = Field(
        default=None,
        description="Whether the bandit waits for the reward only after you activate the event.",
    )


class RankedAction(PersonalizerBody):
    """An action, and its probability of being chosen."""

    id: str
    probability: float


class RankResponse(PersonalizerBody):
    """The action to show, and the probability of each."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(PersonalizerBody):
    """The reward of the action that was shown."""

    value: float


class PersonalizerError(PersonalizerBody):
    """What went wrong."""

    code: str
    message: str


class ErrorResponse(PersonalizerBody):
    """An error as Personalizer documents it."""

    error: PersonalizerError


# --- errors --------------------------------------------------------------------------------


class PersonalizerRoute(AdmittedRoute):
    """A route whose errors have Personalizer's body."""

    def get_route_handler(self) -> Handler:
        """The handler of requests."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                return _error(HTTPStatus.BAD_REQUEST, faults_of(error))
            except Refusal as error:
                return _error(error.status, error.detail, error.headers)
            except HTTPException as error:
                return _error(error.status_code, str(error.detail), error.headers)
            except SuperarmError as error:
                log_error(error)
                status = status_of(error)
                return _error(status, detail_of(error), retry_headers(status))

        return answer


def _error(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    answered = HTTPStatus(status)
    if answered is HTTPStatus.UNPROCESSABLE_ENTITY:
        answered = HTTPStatus.BAD_REQUEST  # Personalizer knows no 422
    code = _CODES.get(answered, answered.phrase.replace(" ", ""))
    body = ErrorResponse(error=PersonalizerError(code=code, message=message))
    return JSONResponse(body.model_dump(), status_code=answered, headers=headers)


# --- routes --------------------------------------------------------------------------------

router = APIRouter(
    prefix="/v1/bandits/{bandit}/personalizer/{version}",
    tags=["personalizer"],
    route_class=PersonalizerRoute,
    responses={status: {"model": ErrorResponse} for status in _STATUSES},
)

Version = Annotated[str, Path(pattern=r"^v1\.[01](-preview\.[0-9])?$")]


@router.post("/rank", status_code=HTTPStatus.CREATED)
def rank(
    bandit: str,
    version: Version,
    body: RankRequest,
    service: ServiceDep,
    caller: Asker,
) -> RankResponse:
    """Choose one of the actions. The decision is durable before the response is sent."""
    found = service.hub.bandit(caller.tenant, bandit)
    require_arms(len(body.actions), service.limits, "actions")
    hash_columns = found.spec.hash_columns or 0  # 0: the bandit refuses to rank
    require_numbers(len(body.actions), hash_columns, service.limits)
    ranked = personalizer.rank(
        found,
        [personalizer.Action(action.id, action.features) for action in body.actions],
        context=body.context_features or (),
        excluded=body.excluded_actions or (),
        event_id=body.event_id,
        deferred=bool(body.defer_activation),
    )
    ranking = [
        RankedAction(id=action.id, probability=action.probability)
        for action in ranked.ranking
    ]
    return RankResponse(
        ranking=ranking, event_id=ranked.event_id, reward_action_id=ranked.chosen
    )


@router.post("/events/{event_id}/reward", status_code=HTTPStatus.NO_CONTENT)
def reward_event(
    bandit: str,
    version: Version,
    event_id: str,
    body: RewardRequest,
    service: ServiceDep,
    caller: Teller,
) -> None:
    """Learn the reward of the chosen action: 409 if it differs from an earlier one."""
    found = service.hub.bandit(caller.tenant, bandit)
    personalizer.reward(found, event_id, body.value)


@router.post("/events/{event_id}/activate", status_code=HTTPStatus.NO_CONTENT)
def activate_event(
    bandit: str,
    version: Version,
    event_id: str,
    service: ServiceDep,
    caller: Teller,
) -> None:
    """Activate a deferred event: the bandit waits for its reward from now on. Repeating it changes nothing."""
    service.hub.bandit(caller.tenant, bandit).activate(event_id)
