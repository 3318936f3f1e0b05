"""The arithmetic for many bandits: from what one of everything costs to what all of them need."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

_DAY_SECONDS = 86_400
_KIND = "10 fixed arms"


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """What is not measured.

    Args:
        bandits: All of them, most of which are cold.
        tells_per_second: Rewards.
        tells_per_ask: Rewards that a decision gets, each told by itself.
        batched: Whether tells come in batches of 100.
        zipf_exponent: How unequal demand is.
        live_share: The share of bandits in memory.
        utilisation: The share of a processor's time, and of a database's rate, that is planned for.
    """

    bandits: int = 1_000_000
    tells_per_second: int = 100_000
    tells_per_ask: int = 1
    batched: bool = True
    zipf_exponent: float = 1.0
    live_share: float = 0.1
    utilisation: float = 0.5


SCENARIOS = {
    "single tells": Assumptions(batched=False),
    "tells in batches": Assumptions(),
    "batches, 10 tells an ask": Assumptions(tells_per_ask=10),
}


def plans(facts: dict[str, Any]) -> dict[str, Any]:
    """What is needed, by scenario.

    Args:
        facts: The measurements of ``bench/scale.py``.
    """
    return {name: plan(facts, assumed) for name, assumed in SCENARIOS.items()}


def plan(facts: dict[str, Any], assumed: Assumptions) -> dict[str, Any]:
    """What the bandits need, by what was measured.

    Args:
        facts: The measurements of ``bench/scale.py``.
        assumed: What is assumed.
    """
    tells = assumed.tells_per_second
    asks = tells / assumed.tells_per_ask
    request = facts["CPU seconds of the service, 10 fixed arms"]
    tell_seconds = request["tell in a batch" if assumed.batched else "tell"]
    # Several processes need PostgreSQL, where asks cost more; tells were measured with SQLite alone.
    ask_seconds = facts["ask over PostgreSQL"]["CPU seconds at the owner"]
    serving_cores = asks * ask_seconds + tells * tell_seconds

    hit_rates = _by_prefix(facts, "hit rate of")[str(assumed.zipf_exponent)]
    hit_rate = hit_rates[str(assumed.live_share)]["by Che's approximation"]
    loads = asks * (1.0 - hit_rate)  # a tell finds the bandit that its ask has loaded
    load_seconds = _by_prefix(facts, "CPU seconds of a load")[_KIND]["snapshot"]
    loading_cores = loads * load_seconds

    processes = (serving_cores + loading_cores) / assumed.utilisation
    live_bandits = assumed.bandits * assumed.live_share
    working_bytes = facts["bytes in memory, at work"][_KIND]
    live_bytes = live_bandits * working_bytes.get("100", _largest(working_bytes))
    snapshot_bytes = _largest(facts["bytes of a snapshot"][_KIND])
    # An ask is about as large as a tell: half of what both take is counted for each.
    pair_bytes = facts["bytes on disk of an ask and its tell"][_KIND]["PostgreSQL"]
    rates = _by_prefix(facts, "events a second of a journal")["PostgreSQL"]
    shards = {}
    for size, rate in rates.items():
        shards[size] = (asks + tells) / (rate["by the clock"] * assumed.utilisation)
    return {
        "assumptions": asdict(assumed),
        "asks a second": asks,
        "hit rate": hit_rate,
        "loads a second": loads,
        "cores that serve, at full load": serving_cores,
        "cores that load, at full load": loading_cores,
        "processes": processes,
        "bytes of live bandits": live_bytes,
        "bytes of live bandits in a process": live_bytes / processes,
        "bytes of all snapshots": assumed.bandits * snapshot_bytes,
        "bytes a second of evicted snapshots": loads * snapshot_bytes,
        "events a second of a process": (asks + tells) / processes,
        "shards, by events in a commit": shards,
        "bytes a day": (asks + tells) * pair_bytes / 2 * _DAY_SECONDS,
    }


def _by_prefix(facts: dict[str, Any], prefix: str) -> Any:
    (name,) = (name for name in facts if name.startswith(prefix))
    return facts[name]


def _largest(by_rounds: dict[str, float]) -> float:
    """What was measured after most rounds."""
    return by_rounds[max(by_rounds, key=int)]
