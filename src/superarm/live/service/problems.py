"""Errors as RFC 9457 describes them: JSON with type, title, status and detail."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from superarm.core.errors import (
    ConflictError,
    InfeasibleError,
    InputError,
    MissingExtraError,
    NotFoundError,
    NotPositiveDefiniteError,
    SuperarmError,
    text_without_commands,
)
from superarm.live.journal import StaleOwnerError, StorageError

MEDIA_TYPE = "application/problem+json"
_RETRY_SECONDS = "1"
_log = logging.getLogger("superarm.service")  # of the operator

# The first that fits counts.
_STATUSES: tuple[tuple[type[SuperarmError], HTTPStatus], ...] = (
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (InputError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (InfeasibleError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (NotPositiveDefiniteError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (MissingExtraError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (ConflictError, HTTPStatus.CONFLICT),
    (StorageError, HTTPStatus.SERVICE_UNAVAILABLE),
    (StaleOwnerError, HTTPStatus.SERVICE_UNAVAILABLE),
)


_NO_STORAGE = "the storage cannot be read or written at the moment"
_OTHER_OWNER = "another process is changing this bandit; retry soon"
_INTERNAL_ERROR = "internal error; see the service's log"


class Refusal(Exception):  # noqa: N818 - it is an answer
    """A request that is refused before a bandit sees it.

    Args:
        status: The status of the answer.
        detail: Why, and what to do.
        headers: Headers of the answer.
    """

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    """An error as a response.

    Args:
        status: The status.
        detail: What was wrong, and what to do.
        headers: Further headers.
    """
    return JSONResponse(
        problem_body(status, detail),
        status_code=status,
        headers=None if headers is None else dict(headers),
        media_type=MEDIA_TYPE,
    )


def problem_body(status: int, detail: str) -> dict[str, Any]:
    """An error as JSON.

    Args:
        status: The status.
        detail: What was wrong, and what to do.
    """
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
    }


def status_of(error: SuperarmError) -> HTTPStatus:
    """The status with which an error is answered.

    Args:
        error: The error.
    """
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR


def detail_of(error: SuperarmError) -> str:
    """The text of an error for the caller; :func:`log_error` logs what the caller must not see.

    Args:
        error: The error.
    """
    # Their texts may name files, URLs and addresses, which are the operator's business alone.
    if isinstance(error, StorageError):
        reason = f": {error.public_reason}" if error.public_reason else ""
        return f"{_NO_STORAGE}{reason}; retry soon"
    if isinstance(error, StaleOwnerError):
        return _OTHER_OWNER
    if status_of(error) is HTTPStatus.INTERNAL_SERVER_ERROR:
        return _INTERNAL_ERROR
    return text_without_commands(error)


def log_error(error: SuperarmError) -> None:
    """Log an error that is the operator's business; a defect with its traceback.

    Args:
        error: The error.
    """
    status = status_of(error)
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        _log.warning("%s", error)
    elif status is HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("%s", error, exc_info=error)


def log_errors(errors: Iterable[SuperarmError]) -> None:
    """Log the errors of one batch, each text once: one fault may fail thousands of lines.

    Args:
        errors: The errors.
    """
    by_text = {(type(error), str(error)): error for error in errors}
    for error in by_text.values():
        log_error(error)


def error_response(error: SuperarmError) -> JSONResponse:
    """The response to a request that raised an error.

    Args:
        error: The error.
    """
    status = status_of(error)
    return problem(status, detail_of(error), retry_headers(status))


def refusal_response(refusal: Refusal) -> JSONResponse:
    """The response to a request that was refused.

    Args:
        refusal: Why, and what to do.
    """
    return problem(refusal.status, refusal.detail, refusal.headers)


def retry_headers(status: HTTPStatus) -> dict[str, str] | None:
    """When to retry, for temporary errors.

    Args:
        status: The status of the answer.
    """
    if status is HTTPStatus.SERVICE_UNAVAILABLE:
        return {"Retry-After": _RETRY_SECONDS}
    return None


def add_handlers(app: FastAPI) -> None:
    """Answer every error as a problem.

    Args:
        app: The service.
    """

    @app.exception_handler(SuperarmError)
    async def answer_error(request: Request, error: SuperarmError) -> JSONResponse:
        log_error(error)
        return error_response(error)

    @app.exception_handler(Refusal)
    async def answer_refusal(request: Request, error: Refusal) -> JSONResponse:
        return refusal_response(error)

    @app.exception_handler(RequestValidationError)
    async def answer_invalid(
        request: Request, error: RequestValidationError
    ) -> JSONResponse:
        return problem(HTTPStatus.UNPROCESSABLE_ENTITY, faults_of(error))

    @app.exception_handler(HTTPException)
    async def answer_http(request: Request, error: HTTPException) -> JSONResponse:
        headers = error.headers
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            methods = _allowed_methods(app, request.url.path)
            headers = {"Allow": ", ".join(methods)} if methods else headers
        return problem(error.status_code, str(error.detail), headers)

    @app.exception_handler(Exception)
    async def answer_defect(request: Request, error: Exception) -> JSONResponse:
        return problem(HTTPStatus.INTERNAL_SERVER_ERROR, _INTERNAL_ERROR)


def _allowed_methods(app: FastAPI, path: str) -> list[str]:
    """The methods of a path. Several routes may share it, of which Starlette names one."""
    methods: set[str] = set()
    for template, operations in app.openapi()["paths"].items():
        pattern, _, _ = compile_path(template)
        if pattern.match(path):
            methods |= {method.upper() for method in operations}
    return sorted(methods)


def faults_of(error: RequestValidationError) -> str:
    """What is wrong with a request: its first three faults.

    Args:
        error: The error of the request.
    """
    return "; ".join(_describe(fault) for fault in error.errors()[:3])


def _describe(fault: dict[str, Any]) -> str:
    """What is wrong in one place of a request."""
    if fault["type"] == "json_invalid":
        where, character = fault["loc"]
        return f"{where}: not JSON, at character {character}: {fault['ctx']['error']}"
    if tuple(fault["loc"]) == ("body",) and fault["type"] == "model_attributes_type":
        return "body: must be a JSON object, sent as Content-Type: application/json"
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}"
