"""Load on a service, from one thread that spends little of its own time on a request.

Clients and service share the cores, so what a client costs lowers the rate that the service reaches. This
one sends requests that are ready, each of its connections one after another, and reads of an answer only
its status and its length: 20 to 30 microseconds of processor time a tell.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Generator, Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_MOST_READ = 262_144  # bytes at a time
_END_OF_HEADERS = b"\r\n\r\n"
_LENGTH = b"content-length:"
_TIMEOUT_SECONDS = 120.0
MOST_IDLE_SECONDS = 2.0
"""The service closes connections that rest for five seconds."""


class Answer(NamedTuple):
    """What the service answered."""

    status: int
    content: bytes

    def json(self) -> Any:
        """The content as JSON."""
        return json.loads(self.content)


Script = Generator[bytes, Answer, None]
"""The requests of one client: it yields each one, and gets the answer to it."""


class Load(NamedTuple):
    """What a load took."""

    seconds: float
    cpu_seconds: float
    """Processor time of the clients."""


class UnexpectedAnswerError(RuntimeError):
    """The service refused a request, or closed a connection before its answer."""


def request_bytes(
    method: str, path: str, body: Any = None, media_type: str = "application/json"
) -> bytes:
    """A request as it is sent.

    Args:
        method: Its method.
        path: Its path, with the query.
        body: Its body as text, or as a value of JSON; ``None``: no body.
        media_type: The type of the body.
    """
    content = b""
    if body is not None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join(lines).encode() + _END_OF_HEADERS + content


def send_all(requests: Iterable[bytes], expected: int) -> Script:
    """A client that sends requests one after another.

    Args:
        requests: The requests.
        expected: The status that each answer must have.
    """
    for request in requests:
        require((yield request), expected)


def require(answer: Answer, status: int) -> Answer:
    """The answer, unless it has another status.

    Args:
        answer: What the service answered.
        status: The status that it must have.
    """
    if answer.status != status:
        raise UnexpectedAnswerError(f"{answer.status}: {answer.content[:300]!r}")
    return answer


def run_load(address: str, scripts: Sequence[Script]) -> Load:
    """Run clients at once, each on a connection of its own.

    Args:
        address: The address of the service.
        scripts: The requests of each client.
    """
    clients = [_Client(address, script) for script in scripts]
    with selectors.DefaultSelector() as selector:
        try:
            cpu = time.process_time()
            began = time.perf_counter()
            busy = 0
            for client in clients:
                if client.start():
                    selector.register(client.socket, selectors.EVENT_READ, client)
                    busy += 1
            while busy:
                ready = selector.select(_TIMEOUT_SECONDS)
                if not ready:
                    raise UnexpectedAnswerError("the service does not answer")
                for key, _ in ready:
                    if not key.data.read():
                        selector.unregister(key.fileobj)
                        busy -= 1
            seconds = time.perf_counter() - began
            cpu = time.process_time() - cpu
        finally:
            for client in clients:
                client.socket.close()
    return Load(seconds, cpu)


class _Client:
    """A client on a connection that stays open.

    Args:
        address: The address of the service.
        script: The requests of the client.
    """

    def __init__(self, address: str, script: Script) -> None:
        self.socket = _connect(address)
        self._script = script
        self._received = b""

    def start(self) -> bool:
        """Send the first request; returns whether there was one."""
        request = next(self._script, None)
        if request is not None:
            self.socket.sendall(request)
        return request is not None

    def read(self) -> bool:
        """Read what arrived, and send the next request after a complete answer.

        Returns:
            Whether an answer is awaited.
        """
        self._received += _receive(self.socket)
        answer = _complete_answer(self._received)
        if answer is None:
            return True
        self._received = b""
        try:
            request = self._script.send(answer)
        except StopIteration:
            return False
        self.socket.sendall(request)
        return True


class LeanConnection:
    """One connection that stays open, for one request after another.

    Args:
        address: The address of the service.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket = _connect(address)
        self._used = time.monotonic()

    def exchange(self, request: bytes) -> Answer:
        """Send a request, and wait for the answer.

        Args:
            request: The request, from :func:`request_bytes`.
        """
        if time.monotonic() - self._used > MOST_IDLE_SECONDS:
            self._socket.close()
            self._socket = _connect(self._address)
        self._socket.sendall(request)
        received = b""
        answer = None
        while answer is None:
            received += _receive(self._socket)
            answer = _complete_answer(received)
        self._used = time.monotonic()
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def _connect(address: str) -> socket.socket:
    place = urlsplit(address)
    connection = socket.create_connection(
        (place.hostname or "", place.port or 80), timeout=_TIMEOUT_SECONDS
    )
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _receive(connection: socket.socket) -> bytes:
    received = connection.recv(_MOST_READ)
    if not received:
        raise UnexpectedAnswerError("the service closed a connection")
    return received


def _complete_answer(received: bytes) -> Answer | None:
    """The answer that was received; ``None`` if some of it is still to come."""
    head, separator, content = received.partition(_END_OF_HEADERS)
    if not separator:
        return None
    _, has_length, rest = head.lower().partition(_LENGTH)
    length = int(rest.partition(b"\r\n")[0]) if has_length else 0
    if len(content) < length:
        return None
    return Answer(int(head[9:12]), content)
