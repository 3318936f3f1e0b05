"""The tables of ``docs/scale.md``, and its sentences with numbers.

``python -m bench.scale_tables bench/results/scale.json`` prints them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


def tables(facts: dict[str, Any]) -> list[str]:
    """All tables, as they stand on the page.

    Args:
        facts: The measurements of ``bench/scale.py``.
    """
    return [
        _bytes_in_memory(facts),
        _bytes_on_disk(facts),
        _processor_seconds(facts),
        _requests(facts),
        _commits(facts),
        _hit_rates(facts),
        _plans(facts),
    ]


def _bytes_in_memory(facts: dict[str, Any]) -> str:
    working = facts["bytes in memory, at work"]
    loaded = facts["bytes in memory, loaded from a snapshot"]
    snapshots = facts["bytes of a snapshot"]
    lines = []
    for kind, by_rounds in working.items():
        for rounds, size in by_rounds.items():
            line = (
                kind,
                rounds,
                _bytes(size),
                _bytes(loaded[kind][rounds]),
                _bytes(snapshots[kind][rounds]),
            )
            lines.append(line)
    header = ("a bandit with", "rounds", "at work", "just loaded", "its snapshot")
    return _table(header, lines)


def _bytes_on_disk(facts: dict[str, Any]) -> str:
    sizes = facts["bytes on disk of an ask and its tell"]
    storages = list(next(iter(sizes.values())))
    lines = []
    for kind, by_storage in sizes.items():
        lines.append((kind, *(_bytes(by_storage[storage]) for storage in storages)))
    return _table(("an ask and its tell, with", *storages), lines)


def _processor_seconds(facts: dict[str, Any]) -> str:
    library = _by_prefix(facts, "CPU seconds in the library")
    loads = _by_prefix(facts, "CPU seconds of a load")
    lines = []
    for kind, seconds in library.items():
        line = (
            kind,
            _seconds(seconds["ask"]),
            _seconds(seconds["tell"]),
            _seconds(loads[kind]["snapshot"]),
            _seconds(loads[kind]["events"]),
        )
        lines.append(line)
    header = ("a bandit with", "ask", "tell", "load, snapshot", "load, events")
    return _table(header, lines)


def _requests(facts: dict[str, Any]) -> str:
    service = facts["CPU seconds of the service, 10 fixed arms"]
    shared = facts["ask over PostgreSQL"]
    owners = facts["CPU seconds to find the owner, by processes"]
    lines = [
        ("ask", _seconds(service["ask"])),
        ("tell", _seconds(service["tell"])),
        ("tell, 100 in a batch", _seconds(service["tell in a batch"])),
        ("ask, PostgreSQL, at the owner", _seconds(shared["CPU seconds at the owner"])),
        (
            "ask, PostgreSQL, handed over, both processes",
            _seconds(shared["CPU seconds with a hop"]),
        ),
    ]
    for processes, seconds in owners.items():
        lines.append((f"finding the owner among {processes}", _seconds(seconds)))
    return _table(("of the service, 10 fixed arms", "CPU time"), lines)


def _commits(facts: dict[str, Any]) -> str:
    rates = _by_prefix(facts, "events a second of a journal")
    pages = facts["pages of a commit of SQLite, by bandits and events"]
    sizes = list(next(iter(rates.values())))
    lines = []
    for size in sizes:
        cells = []
        for by_size in rates.values():
            single = by_size["1"]["by the clock"]
            rate = by_size[size]["by the clock"]
            cells += [f"{_round(rate):,.0f}", f"{_round(rate / single):g}×"]
        for by_size in pages.values():
            cells.append(str(by_size[size]))
        lines.append((size, *cells))
    header = ["events in a commit"]
    for storage in rates:
        header += [f"{storage}, events/s", "over single"]
    for bandits in pages:
        noun = "bandit" if bandits == "1" else "bandits"
        header.append(f"pages in SQLite, {bandits} {noun}")
    return _table(header, lines)


def _hit_rates(facts: dict[str, Any]) -> str:
    rates = _by_prefix(facts, "hit rate of")
    lines = []
    for exponent, by_share in rates.items():
        cells = [f"{rate['simulated']:.2f}" for rate in by_share.values()]
        lines.append((exponent, *cells))
    shares = list(next(iter(rates.values())))
    header = ("exponent", *(f"{float(share):.0%} in memory" for share in shares))
    return _table(header, lines)


def _plans(facts: dict[str, Any]) -> str:
    by_scenario = facts["plan"]
    lines = [
        ("asks a second", "asks a second", _count),
        ("cores that serve, at full load", "cores that serve, at full load", _count),
        ("loads a second", "loads a second", _count),
        ("cores that load, at full load", "cores that load, at full load", _count),
        ("**processes**, half loaded", "processes", _count),
        ("memory of live bandits", "bytes of live bandits", _bytes),
        ("the same, a process", "bytes of live bandits in a process", _bytes),
        ("all snapshots", "bytes of all snapshots", _bytes),
        (
            "evicted snapshots, a second",
            "bytes a second of evicted snapshots",
            _bytes,
        ),
        ("disk a day", "bytes a day", _bytes),
        ("events a second, a process", "events a second of a process", _count),
    ]
    rows = []
    for label, key, show in lines:
        rows.append((label, *(show(plan[key]) for plan in by_scenario.values())))
    for size in ("1", "10", "100"):
        noun = "event" if size == "1" else "events"
        counts = [
            _count(plan["shards, by events in a commit"][size])
            for plan in by_scenario.values()
        ]
        rows.append((f"**shards**, half loaded, {size} {noun} a commit", *counts))
    return _table(("", *by_scenario), rows)


# --- sentences -----------------------------------------------------------------------------------


def sentences(facts: dict[str, Any]) -> list[str]:
    """The parts of the page's sentences whose numbers follow from the measurements.

    Args:
        facts: The measurements of ``bench/scale.py``.
    """
    return [
        *_page_sentences(facts),
        *_request_sentences(facts),
        *_plan_sentences(facts),
    ]


def _page_sentences(facts: dict[str, Any]) -> list[str]:
    pages = facts["pages of a commit of SQLite, by bandits and events"]
    differences = []
    for by_share in _by_prefix(facts, "hit rate of").values():
        differences += [
            abs(rate["simulated"] - rate["by Che's approximation"])
            for rate in by_share.values()
        ]
    return [
        f"100 events of one bandit change {pages['1']['100']} pages of 4 kB, and "
        f"100 events of 100 bandits change {pages['100']['100']}.",
        f"Che's approximation differs by at most {max(differences):.1g}.",
    ]


def _request_sentences(facts: dict[str, Any]) -> list[str]:
    service = facts["CPU seconds of the service, 10 fixed arms"]
    shared = facts["ask over PostgreSQL"]
    ask = shared["CPU seconds at the owner"]
    owner_seconds = facts["CPU seconds to find the owner, by processes"]["100"]
    batch_gain = service["tell"] / service["tell in a batch"]
    hop_cost = shared["CPU seconds with a hop"] / ask
    return [
        f"One ask over HTTP takes {_seconds(ask)}, so a core answers at most {_count(1 / ask)} a second.",
        f"tells in batches, {_round(batch_gain):g} times cheaper than single ones;",
        f"hashes the names of all processes: {_seconds(owner_seconds)} for 100 processes.",
        f"A request at the wrong process costs {_round(hop_cost):g} times the processor time,",
    ]


def _plan_sentences(facts: dict[str, Any]) -> list[str]:
    plan = facts["plan"]["tells in batches"]
    single = facts["plan"]["single tells"]
    shards = single["shards, by events in a commit"]
    ask_cores = (
        plan["asks a second"] * facts["ask over PostgreSQL"]["CPU seconds at the owner"]
    )
    load_share = plan["cores that load, at full load"] / ask_cores
    return [
        f"each has only {_count(plan['events a second of a process'])} events a second.",
        f"between {_count(shards['100'])} shards, at 100 events a commit, and "
        f"{_count(shards['1'])}, at one.",
        f"At a hit rate of {plan['hit rate']:.2f}, loads need {_round(load_share):g} times the processor "
        "time of the asks themselves,",
        f"a tenth of all bandits takes {_bytes(plan['bytes of live bandits'])}, spread over all processes.",
        f"superarm never removes events, which are {_bytes(single['bytes a day'])} a day in PostgreSQL with "
        "one tell per ask.",
    ]


# --- numbers and tables ------------------------------------------------------------------------


def _round(value: float) -> float:
    """Two digits: more would not be repeated."""
    return float(f"{value:.2g}")


def _count(value: float) -> str:
    return f"{_round(value):,.0f}"


def _bytes(value: float) -> str:
    return _with_unit(value, _BYTES, "B")


def _seconds(value: float) -> str:
    return _with_unit(value, _SECONDS, "s")


def _with_unit(value: float, units: Sequence[tuple[float, str]], base: str) -> str:
    rounded = _round(value)
    for size, unit in units:
        if rounded >= size:
            return f"{_round(rounded / size):g} {unit}"
    return f"{rounded:g} {base}"


def _table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    text = [f"| {' | '.join(header)} |", f"|---{'|---:' * (len(header) - 1)}|"]
    text += [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join(text)


def _by_prefix(facts: dict[str, Any], prefix: str) -> Any:
    (name,) = (name for name in facts if name.startswith(prefix))
    return facts[name]


if __name__ == "__main__":
    stored = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print("\n\n".join(tables(stored["facts"])), end="\n\n")
    print("\n".join(sentences(stored["facts"])))
