"""The command ``serve``."""

from __future__ import annotations

import gc
import signal
import socket
from typing import Any

from superarm.core.errors import InputError, SpecError, require_extra

from .bandits import open_storage, usage_errors
from .common import print_json, say

_ANY_ADDRESS = ("0.0.0.0", "::")
_BACKLOG = 2048
_COLLECT_AFTER = (20_000, 20, 100)
"""New objects after which Python looks for garbage among them; the other numbers are those of older ones."""
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
    max_numbers: int,
    max_bandits: int,
    max_tenant_bandits: int,
    max_tenant_threads: int,
    max_streams: int,
    max_tenant_streams: int,
    open_metrics: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Serve bandits until SIGINT or SIGTERM.

    Args:
        storage: The URL of the storage, which is created if it does not exist.
        host: The address to listen on.
        port: The port to listen on; 0: any that is free.
        hosts: Further names by which clients address the service.
        address: Where other processes on the same storage reach it.
        rate: Requests per second of one tenant; ``None``: no limit.
        max_body: Bytes of a body.
        max_arms: Arms in a request.
        max_dimension: Features of an arm.
        max_numbers: Features of all arms in a request.
        max_bandits: Bandits in memory.
        max_tenant_bandits: Bandits of one tenant.
        max_tenant_threads: Concurrent requests of one tenant.
        max_streams: Open streams of events.
        max_tenant_streams: Open streams of events of one tenant.
        open_metrics: Whether ``/metrics`` needs no token.
        quiet: Whether to print nothing.
        as_json: Whether to print the address as JSON.
    """
    uvicorn = require_extra("uvicorn", "serve")
    require_extra("fastapi", "serve")
    require_extra("prometheus_client", "serve")
    from superarm.live.service import Limits, Settings, create_app

    with usage_errors():
        limits = Limits(
            body_bytes=max_body,
            arms=max_arms,
            dimension=max_dimension,
            numbers=max_numbers,
            requests_per_second=rate,
            bandits=max_bandits,
            bandits_per_tenant=max_tenant_bandits,
            threads_per_tenant=max_tenant_threads,
            streams=max_streams,
            streams_per_tenant=max_tenant_streams,
        )
    if address is None and host in _ANY_ADDRESS and storage.startswith("postgresql://"):
        raise SpecError(
            f"other processes cannot connect to --host {host}; add --address URL"
        )
    with open_storage(storage, create=True) as opened, listen(host, port) as listener:
        listened = _address(listener)
        settings = Settings(
            host=host,
            port=port,
            hosts=hosts,
            address=address or listened,
            limits=limits,
            open_metrics=open_metrics,
        )
        config = uvicorn.Config(
            create_app(opened, settings),
            log_level="warning",
            access_log=False,
            # It limits the head of a request to 64 KiB. httptools, which uvicorn prefers where it is
            # installed, takes 50 microseconds less for a request, but reads endless headers into memory.
            http="h11",
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        server = uvicorn.Server(config)
        _stop_on_signals(server)
        _collect_rarely()
        if as_json:
            print_json({"address": listened})
        elif not quiet:
            url = opened.journal.url  # without a password
            say(f"Serving {url} at {listened}; press Ctrl-C to stop.")
        server.run(sockets=[listener])


def _collect_rarely() -> None:
    """Let Python look for garbage less often, and never among what the program itself consists of.

    Little of a service is garbage that only a search finds, but a search stops all requests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def _stop_on_signals(server: Any) -> None:
    """Stop the server on SIGINT and SIGTERM, and return from its ``run``.

    uvicorn stops by itself, but then raises the signal again, which would end the process before the
    storage is closed.
    """

    def stop(*_: object) -> None:
        server.should_exit = True

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections; they wait until the service has started.

    Args:
        host: The address or name to listen on.
        port: The port; 0 chooses a free one.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        # asyncio sends answers at once (TCP_NODELAY) only through sockets that name their protocol.
        # Otherwise a client that keeps its connection waits 40 ms for every answer.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        return _bind(listener, host, port)
    except OSError as error:
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror}; choose another --host or --port"
        ) from None


def _bind(listener: socket.socket, host: str, port: int) -> socket.socket:
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket) -> str:
    name: Any = listener.getsockname()
    host, port = name[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
