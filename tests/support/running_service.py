"""A service that runs in a thread of the test, on a free port of loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic, sleep
from typing import Any

import httpx
import uvicorn

from superarm.live import Storage
from superarm.live.service import Settings, create_app


@contextmanager
def running_service(
    storage: Storage, settings: Settings | None = None
) -> Iterator[str]:
    """The URL of a service that runs until the block ends.

    Args:
        storage: Where the journals are.
        settings: How it is run.
    """
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    config = uvicorn.Config(create_app(storage, settings), log_level="error")
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    end = monotonic() + 60.0
    while not server.started:
        assert monotonic() < end
        assert thread.is_alive()
        sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(60.0)
    assert not thread.is_alive()


def http_client(url: str, timeout: float = 60.0, **options: Any) -> httpx.Client:
    """A client of a service on loopback, which needs no certificates: reading them takes long.

    Args:
        url: Where the service is.
        timeout: Seconds to wait for an answer; the machine may be busy.
        options: Further arguments of ``httpx.Client``.
    """
    return httpx.Client(base_url=url, verify=False, timeout=timeout, **options)


def wait_until_ready(http: httpx.Client) -> None:
    """Wait until a service has replayed its journals.

    Args:
        http: A client of the service.
    """
    end = monotonic() + 60.0
    while http.get("/readyz").status_code != 200:
        assert monotonic() < end
        sleep(0.01)
