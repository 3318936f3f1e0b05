"""A connection to a service, which retries requests that get no answer."""

from __future__ import annotations

import json
import re
import time as clock
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from superarm.core.errors import (
    ConflictError,
    InputError,
    NotFoundError,
    SuperarmError,
    require_extra,
)
from superarm.live.journal import StorageError

if TYPE_CHECKING:
    import httpx

_TRANSIENT = (
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_FIRST_PAUSE = 0.1  # seconds; each pause is twice as long as the one before
_LONGEST_PAUSE = 5.0
_HEADER = re.compile("[!-~]+")  # what a header can contain


class ServiceError(SuperarmError, RuntimeError):
    """The service refused a request, or failed; the message is the service's."""


class Connection:
    """A connection to a service.

    Args:
        url: The URL of the service, such as ``"http://127.0.0.1:8642"``.
        token: A token, if the service needs one.
        timeout: Seconds to wait for an answer.
        retries: How many times to retry a request that got no answer, or that the service
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
        if token is not None:
            _check_header(token, "token")
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        # Reading them takes longer than a request over loopback.
        needs_certificates = not url.lower().startswith("http://")
        self._http: httpx.Client = library.Client(
            base_url=url, headers=headers, timeout=timeout, verify=needs_certificates
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

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """Send a request, retry it if it gets no answer, and return the JSON of the answer.

        Args:
            method: Such as ``"POST"``.
            path: Such as ``"/v1/bandits"``.
            body: The body, sent as JSON; bytes are sent as lines of JSON.
            query: The query parameters.
            idempotency_key: The id by which the service recognises the request, where its body has
                none. Sent twice, it counts once.
        """
        headers = {}
        if idempotency_key is not None:
            _check_header(idempotency_key, "request_id")
            headers["Idempotency-Key"] = idempotency_key
        content, media_type = _encode_content(body)
        pause = _FIRST_PAUSE
        for attempt in range(self._retries + 1):
            is_last = attempt == self._retries
            try:
                response = self._http.request(
                    method,
                    path,
                    content=content,
                    params=query,
                    headers={"Content-Type": media_type, **headers},
                )
            except self._network_error as error:
                if is_last:
                    raise self._no_answer(error) from error
            else:
                if is_last or response.status_code not in _TRANSIENT:
                    return _decode_content(response)
                pause = _pause_of(response, pause)
            clock.sleep(pause)
            pause = min(2.0 * pause, _LONGEST_PAUSE)
        raise AssertionError  # the last attempt returns or raises

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[str]:
        """The lines of an answer that may never end.

        Args:
            path: Such as ``"/v1/bandits/menu/events"``.
            query: The query parameters.
        """
        try:
            with self._http.stream("GET", path, params=query, timeout=None) as response:
                if response.status_code != HTTPStatus.OK:
                    response.read()
                    _decode_content(response)
                yield from response.iter_lines()
        except self._network_error as error:
            raise self._no_answer(error) from error

    def _no_answer(self, error: Exception) -> StorageError:
        return StorageError(
            f"the service at {self.url} does not answer: {error}; check the address, or start it"
        )


# --- what is sent --------------------------------------------------------------------------


def _check_header(value: str, name: str) -> None:
    if _HEADER.fullmatch(value) is None:
        raise InputError(f"{name} must be printable ASCII without spaces")


def url_path(*parts: str) -> str:
    """A path of parts that may contain any character.

    Args:
        parts: The parts.
    """
    return "/" + "/".join(quote(part, safe="") for part in parts)


def encode_json(value: Any) -> bytes:
    """Plain JSON with finite numbers as bytes.

    Args:
        value: The value to send.
    """
    return json.dumps(value, allow_nan=False).encode()


def _encode_content(body: Any) -> tuple[bytes | None, str]:
    """The content of a request, and its media type."""
    if isinstance(body, bytes):
        return body, "application/x-ndjson"
    content = None if body is None else encode_json(body)
    return content, "application/json"


# --- what comes back -----------------------------------------------------------------------


def _decode_content(response: httpx.Response) -> Any:
    """The JSON of an answer; an answer that is an error is raised."""
    if response.is_success:
        media_type = response.headers.get("content-type", "")
        if "ndjson" in media_type:
            return [json.loads(line) for line in response.text.splitlines()]
        return response.json() if response.content else None
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:200]
    raise error_of(response.status_code, str(detail))


def error_of(status: int, detail: str) -> SuperarmError:
    """The error that the library raises in the same case.

    Args:
        status: The HTTP status of the answer.
        detail: Its message.
    """
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
    """Seconds to wait before the next attempt: what the service requests, or ``pause``."""
    requested = response.headers.get("retry-after", "")
    if not requested.isdecimal():
        return pause
    return min(float(requested), _LONGEST_PAUSE)
