"""Numbers for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

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


class _HubCollector(Collector):
    """Numbers that are read when somebody asks for them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def collect(self):  # type: ignore[no-untyped-def]
        commits = self._hub.storage.commits
        numbers = {
            "superarm_bandits_in_memory": ("Bandits in memory.", self._hub.count()),
            "superarm_ready": ("1 once the journals are replayed.", self._hub.ready),
            "superarm_commits_total": ("Transactions so far.", commits.count),
            "superarm_committed_appends_total": (
                "Events and snapshots that these stored.",
                commits.appended,
            ),
            "superarm_queue_length": (
                "Events that wait for a commit.",
                commits.waiting(),
            ),
        }
        for name, (text, value) in numbers.items():
            yield GaugeMetricFamily(name, text, float(value))
