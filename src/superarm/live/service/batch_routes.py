"""Many rewards in one request, and all events as a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from superarm.core.errors import SuperarmError
from superarm.live.answers import Tell
from superarm.live.bandit import Bandit
from superarm.live.events import Event

from . import bodies
from .admission import AdmittedRoute
from .context import BatchTeller, Service, ServiceDep, StreamReader
from .problems import Refusal, detail_of, log_errors, problem_body, status_of
from .streams import EVENT_STREAM, EventStream, Permit

router = APIRouter(prefix="/v1/bandits", tags=["bandits"], route_class=AdmittedRoute)

NDJSON = "application/x-ndjson"
_MOST_LINES = 10_000
_POLL_SECONDS = 0.2
_KEEP_ALIVE_SECONDS = 15.0
_EVENTS_TOGETHER = 500
_EVENT_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}


class _Lines(Response):
    """Lines of JSON."""

    media_type = NDJSON


@router.post(
    "/{bandit}/observations/batch",
    response_class=_Lines,
    responses={
        200: {
            "description": "One line of JSON for each line of the request: its status, and whether it is new.",
            "content": {NDJSON: {"schema": {"type": "string"}}},
        }
    },
    openapi_extra={
        "requestBody": {
            "content": {
                NDJSON: {
                    "schema": {
                        "type": "string",
                        "description": "Lines of JSON: decision, rewards and, as in a single tell, "
                        "noise_variance and observation_id.",
                    }
                }
            },
        }
    },
)
async def tell_batch(
    bandit: str, request: Request, service: ServiceDep, caller: BatchTeller
) -> Response:
    """Learn rewards of many decisions. Each line gets a line in response: its status, and whether it is new.

    The bandit learns valid lines even if it refuses others. Each line counts as a request.
    """
    text = await request.body()
    lines = [line for line in text.split(b"\n") if line.strip()]
    if len(lines) > _MOST_LINES:
        raise Refusal(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"{len(lines)} lines exceed the limit of {_MOST_LINES}; split the batch",
        )
    service.count_requests(caller.tenant, max(1, len(lines)))
    answer = await run_in_threadpool(
        lambda: _tell_lines(service.hub.bandit(caller.tenant, bandit), lines)
    )
    return _Lines(answer)


def _tell_lines(bandit: Bandit, lines: Sequence[bytes]) -> str:
    answers: list[dict[str, Any]] = []
    tells: list[Tell] = []
    places: list[int] = []  # of the answers to the tells
    for line in lines:
        try:
            body = bodies.BatchTell.model_validate_json(line)
        except ValidationError as error:
            fault = error.errors()[0]
            field = ".".join(map(str, fault["loc"])) or "line"
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            answers.append(problem_body(status, f"{field}: {fault['msg']}"))
            continue
        places.append(len(answers))
        answers.append({})
        tells.append(Tell(**body.model_dump()))
    outcomes = bandit.tell_many(tells)
    log_errors(outcome for outcome in outcomes if isinstance(outcome, SuperarmError))
    for place, outcome in zip(places, outcomes, strict=True):
        answers[place] = _line_answer(outcome)
    return "".join(json.dumps(answer) + "\n" for answer in answers)


def _line_answer(outcome: bool | SuperarmError) -> dict[str, Any]:
    if isinstance(outcome, SuperarmError):
        return problem_body(status_of(outcome), detail_of(outcome))
    status = HTTPStatus.CREATED if outcome else HTTPStatus.OK
    return {"status": int(status), "new": outcome}


@router.get(
    "/{bandit}/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-sent events: `id` is the number of the event, `event` its kind, "
            "`data` the event as JSON.",
            "content": {EVENT_STREAM: {"schema": _EVENT_SCHEMA}},
        }
    },
)
async def stream_events(
    bandit: str,
    request: Request,
    service: ServiceDep,
    caller: StreamReader,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    follow: bool = True,
) -> Response:
    """The events of a bandit as server-sent events. New events follow unless `follow` is false.

    A stream ends when its token is removed, or when the client does not read it.
    """
    found = await run_sync(
        service.hub.bandit, caller.tenant, bandit, limiter=service.stream_threads
    )
    last_id = request.headers.get("last-event-id", "")
    if last_id.isdecimal():
        after = int(last_id[:16])  # a browser continues where it was cut off
    permit = Permit(service, request, caller)
    events = _event_texts(found, request, service, permit, after, follow)
    return EventStream(events, service, caller.tenant)


async def _event_texts(
    bandit: Bandit,
    request: Request,
    service: Service,
    permit: Permit,
    after: int,
    follow: bool,
) -> AsyncGenerator[str]:
    last = after
    silent_seconds = 0.0
    while not await request.is_disconnected():
        # A thread, and a connection to the storage, for as long as this takes; none while it waits.
        events = await run_sync(
            _next_events, bandit, last, limiter=service.stream_threads
        )
        for event in events:
            if not await permit.is_valid():
                return
            last = event.seq
            silent_seconds = 0.0
            yield _event_text(event)
        if events:
            continue
        if not follow or not await permit.is_valid():
            return
        await asyncio.sleep(_POLL_SECONDS)
        silent_seconds += _POLL_SECONDS
        if silent_seconds >= _KEEP_ALIVE_SECONDS:
            silent_seconds = 0.0
            yield ": keep-alive\n\n"  # so that proxies keep the connection


def _next_events(bandit: Bandit, after: int) -> list[Event]:
    # From the journal, not from memory: another process may own the bandit.
    return list(islice(bandit.events(after), _EVENTS_TOGETHER))


def _event_text(event: Event) -> str:
    data = {"seq": event.seq, "kind": event.kind, "time": event.time}
    text = json.dumps({**data, "body": event.body})
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {text}\n\n"
