"""What the OpenAPI document states about every route: errors, and how callers identify themselves."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from . import bodies
from .problems import MEDIA_TYPE

DESCRIPTION = """
Bandits over combinations: **ask** which arms to choose, act, **tell** the rewards, perhaps a week later.
Acknowledged events are durable. A request that you repeat with the same id counts once.
"""
API_VERSION = "1"
"""The version of the interface, which is also the first part of its paths."""

bearer = HTTPBearer(
    auto_error=False,  # the gate answers, with a problem
    scheme_name="Bearer",
    description="A token from `superarm token create`. A service on loopback needs none "
    "until you create the first token.",
)

_PROBLEM = {"$ref": "#/components/schemas/Problem"}
Responses = dict[int | str, dict[str, Any]]


def _problems(statuses: Iterable[int]) -> Responses:
    return {status: {"model": bodies.Problem} for status in statuses}


GUARD_PROBLEMS = _problems((403, 413, 421))
"""Problems of any request: another site's, too large, or for another host."""
PROBLEMS = _problems((400, 401, 403, 404, 409, 413, 421, 422, 429, 503))
"""Problems of requests about bandits, decisions and tokens."""


def repeated(model: type[bodies.Body], description: str) -> Responses:
    """The answer to a request that was acknowledged before.

    Args:
        model: The body of the answer.
        description: What the status means.
    """
    return {int(HTTPStatus.OK): {"model": model, "description": description}}


def operation_id(route: APIRoute) -> str:
    """The name of a route in generated clients: that of its function.

    Args:
        route: The route.
    """
    return route.name


def describe(app: FastAPI) -> None:
    """Let an application describe its errors as problems.

    Args:
        app: The application, with all its routes.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            _set_media_type_of_problems(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _set_media_type_of_problems(document: dict[str, Any]) -> None:
    """FastAPI describes every model with the media type of the route's usual answer."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= HTTPStatus.BAD_REQUEST:
                    _, content = response["content"].popitem()
                    is_problem = content["schema"] == _PROBLEM
                    media_type = MEDIA_TYPE if is_problem else "application/json"
                    response["content"] = {media_type: content}
