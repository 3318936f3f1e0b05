"""Numbers for Prometheus."""

from __future__ import annotations

import time as clock
from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .hub import Hub

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """What is counted of one service.

    Args:
        hub: Its bandits.
    """

    def __init__(self, hub: Hub) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_HubCollector(hub))
        self.requests = Counter(
            "superarm_requests",
            "Requests by route and status.",
            ["route", "status"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "superarm_request_seconds",
            "Seconds until the answer, by route.",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def text(self) -> bytes:
        """All numbers in the format of Prometheus."""
        return generate_latest(self._registry)


class RequestMeter:
    """An ASGI application in front of another, whose answers it counts.

    Args:
        app: The application.
        metrics: Where the answers are counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = clock.perf_counter()
        status = 0

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, note_status)
        finally:
            path = getattr(scope.get("route"), "path", "unknown")
            seconds = clock.perf_counter() - began
            self._metrics.requests.labels(path, status).inc()
            self._metrics.seconds.labels(path).observe(seconds)


class _HubCollector(Collector):
    """Numbers that are read when somebody asks for them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self) -> Iterator[Metric]:
        commits = self._hub.storage.commits
        yield GaugeMetricFamily(
            "superarm_bandits_in_memory",
            "Bandits in memory.",
            float(self._hub.count()),
        )
        yield GaugeMetricFamily(
            "superarm_ready",
            "1 after the journals are replayed.",
            float(self._hub.ready),
        )
        yield GaugeMetricFamily(
            "superarm_queue_length",
            "Events that wait for a commit.",
            float(commits.waiting()),
        )
        yield CounterMetricFamily(
            "superarm_commits", "Transactions so far.", float(commits.count)
        )
        yield CounterMetricFamily(
            "superarm_committed_appends",
            "Events and snapshots that these transactions stored.",
            float(commits.appended),
        )
