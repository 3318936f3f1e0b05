"""The command ``serve``."""

from __future__ import annotations

import socket
from typing import Any

from superarm.core.errors import InputError, require_extra
from superarm.live import Storage

from .common import print_json, say

_BACKLOG = 2048
_GRACE_SECONDS = 10
"""How long requests may take that are under way when the service is stopped."""


def serve(
    *,
    storage: str,
    host: str,
    port: int,
    hosts: tuple[str, ...],
    address: str | None,
    rate: float | None,
    max_body: int,
    max_arms: int,
    max_dimension: int,
    max_bandits: int,
    quiet: bool,
    as_json: bool,
) -> None:
    """Serve bandits until somebody stops the process.

    Args:
        storage: The URL of the storage.
        host: The address to listen on.
        port: The port to listen on; 0: any that is free.
        hosts: Further names by which clients address the service.
        address: Where other processes on the same storage reach it.
        rate: Requests a second of one tenant.
        max_body: Bytes of a body.
        max_arms: Arms in a request.
        max_dimension: Features of an arm.
        max_bandits: Bandits in memory.
        quiet: Whether to print nothing.
        as_json: Whether to print the address as JSON.
    """
    uvicorn = require_extra("uvicorn", "serve")
    require_extra("fastapi", "serve")
    from superarm.live.service import Limits, Settings, create_app

    limits = Limits(
        body_bytes=max_body,
        arms=max_arms,
        dimension=max_dimension,
        requests_per_second=rate,
        bandits=max_bandits,
    )
    with Storage(storage) as opened:
        listener = _listen(host, port)
        listened = _address(listener)
        settings = Settings(
            host=host,
            port=port,
            hosts=hosts,
            address=address or listened,
            limits=limits,
        )
        app = create_app(opened, settings)
        if as_json:
            print_json({"address": listened})
        elif not quiet:
            say(
                f"superarm serves {opened.journal.url} at {listened}; stop it with Ctrl-C."
            )
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # clients that connect at once wait
    except OSError as error:
        raise InputError(
            f"{host} port {port} cannot be listened on: {error.strerror}; choose another --port"
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    name: Any = listener.getsockname()
    host, port = name[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
