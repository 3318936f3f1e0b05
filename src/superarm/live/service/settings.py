"""What an operator can set: who may connect, and how much one request may ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit

from superarm.core.inputs import as_count, as_positive


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one request, or one tenant, may ask for.

    Args:
        body_bytes: Bytes of a request's body.
        arms: Arms in one request.
        dimension: Features of an arm, also after encoding.
        numbers: Features of all arms in one request, also after encoding.
        requests_per_second: Requests of one tenant, on average; ``None``: any number. Each line of a
            batch counts.
        bandits: Bandits that are kept in memory; the others are read from the journal when they are
            asked for.
        bandits_per_tenant: Bandits that one tenant can create.
        threads_per_tenant: Requests of one tenant that are worked on at a time; the others wait.
        streams: Streams of events that are open at a time.
        streams_per_tenant: Those of one tenant.
    """

    body_bytes: int = 16 * 2**20
    arms: int = 100_000
    dimension: int = 1000
    numbers: int = 10_000_000
    requests_per_second: float | None = None
    bandits: int = 1000
    bandits_per_tenant: int = 10_000
    threads_per_tenant: int = 64
    streams: int = 1000
    streams_per_tenant: int = 100

    def __post_init__(self) -> None:
        as_count(self.body_bytes, "body_bytes", 1)
        as_count(self.arms, "arms", 1)
        as_count(self.dimension, "dimension", 1)
        as_count(self.numbers, "numbers", 1)
        as_count(self.bandits, "bandits", 1)
        as_count(self.bandits_per_tenant, "bandits_per_tenant", 1)
        as_count(self.threads_per_tenant, "threads_per_tenant", 1)
        as_count(self.streams, "streams", 1)
        as_count(self.streams_per_tenant, "streams_per_tenant", 1)
        if self.requests_per_second is not None:
            as_positive(self.requests_per_second, "requests_per_second")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a service is run.

    Args:
        host: The address that it listens on.
        port: The port that it listens on.
        hosts: Further names by which clients may address it, such as those of a proxy.
        address: Where other processes on the same storage reach it; by default host and port.
        limits: How much a request may ask for.
        open_metrics: Whether ``/metrics`` needs no token on any address.
    """

    host: str = "127.0.0.1"
    port: int = 8642
    hosts: tuple[str, ...] = ()
    address: str | None = None
    limits: Limits = field(default_factory=Limits)
    open_metrics: bool = False

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def own_address(self) -> str:
        """Where other processes reach the service."""
        if self.address is not None:
            return self.address
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Names in the header ``Host`` that are answered."""
        own = urlsplit(self.own_address).hostname or self.host
        return frozenset(
            {"localhost", "127.0.0.1", "[::1]", self.host, own, *self.hosts}
        )
