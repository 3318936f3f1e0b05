"""What a million bandits need: bytes, seconds and rates of the parts, and the sums made of them.

Nothing here runs a million bandits. Every part is measured at the size that one process meets: a bandit
in memory, a snapshot, an event, a commit, a load. ``bench/scale_plan.py`` then multiplies.

Processor time counts, not the wall's, wherever the disk is not what is measured. PostgreSQL is measured
where ``SUPERARM_BENCH_POSTGRES`` is the URL of an empty database.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import time
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from superarm.core import Floats
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, Storage, create_bandit, load_bandit
from superarm.live.answers import Tell
from superarm.live.events import Event, Kind
from superarm.live.journal import Append, Membership, ProcessRow
from superarm.live.service.owners import Owners
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.rules import UCB, Fixed

from .measure import Results, Row, row
from .scale_plan import plans
from .service import Connection, serve, timed

_PAGE_BYTES = 4096
_TOGETHER = 10  # decisions that await rewards at a time
POSTGRES = "SUPERARM_BENCH_POSTGRES"
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class BanditKind(NamedTuple):
    """A kind of bandit, and the arms that each ask offers."""

    policy: Callable[[], IndexPolicy]
    name_arms: bool
    """Whether the arms are named once; otherwise each ask has new ones."""
    arms: int


class RoundTimes(NamedTuple):
    """Processor time of one round, in seconds."""

    ask: float
    tell: float


class _Bench:
    """What is measured: where, how often, and what came out."""

    def __init__(self, folder: Path, repeats: int, quick: bool) -> None:
        self.folder = folder
        self.repeats = repeats
        self.quick = quick
        self.rows: list[Row] = []
        self.facts: dict[str, Any] = {}
        self.skipped: list[str] = []
        self._numbers = count()

    def new_storage(self) -> Storage:
        return Storage(f"sqlite:///{self.folder / f'{next(self._numbers)}.db'}")


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    with TemporaryDirectory() as folder:
        bench = _Bench(Path(folder), repeats or (3 if quick else 9), quick)
        for part in (
            _memory,
            _events,
            _loads,
            _requests,
            _handover,
            _commits,  # after the services: it leaves bandits that none can load
            _pages,
            _lru,
            _owners,
        ):
            part(bench)
    if not bench.skipped:
        bench.facts["plan"] = plans(bench.facts)
    return Results(
        suite="scale", rows=bench.rows, facts=bench.facts, skipped=bench.skipped
    )


# --- kinds of bandits ------------------------------------------------------------------------


def _rows(arms: int) -> Floats:
    return np.random.default_rng(arms).random((arms, 4))


def _policy(posterior: Any) -> IndexPolicy:
    rule = UCB(schedule=Fixed(value=2.0))
    return IndexPolicy(posterior=posterior, rule=rule, oracle=TopK(k=1))


def _finite(arms: int) -> Callable[[], IndexPolicy]:
    kernel = SquaredExponential(lengthscale=0.3)
    return lambda: _policy(FiniteGP(kernel, _rows(arms), noise_variance=0.01))


def _streaming() -> IndexPolicy:
    kernel = SquaredExponential(lengthscale=0.3)
    return _policy(StreamingGP(kernel, noise_variance=0.01))


KINDS = {
    "10 fixed arms": BanditKind(_finite(10), name_arms=True, arms=10),
    "100 fixed arms": BanditKind(_finite(100), name_arms=True, arms=100),
    "10 new arms each time": BanditKind(_streaming, name_arms=False, arms=10),
}


def _create(storage: Storage, name: str, kind: BanditKind) -> Bandit:
    bandit = create_bandit(name, spec=kind.policy(), storage=storage)
    if kind.name_arms:
        bandit.name_arms(_rows(kind.arms))
    return bandit


def _play(
    bandit: Bandit, kind: BanditKind, rounds: int, rng: np.random.Generator
) -> RoundTimes:
    """Ask and tell, ten at a time, so that few decisions are pending; the processor time of both."""
    asking = 0.0
    telling = 0.0
    for _ in range(rounds // _TOGETHER):
        began = time.process_time()
        tells = [_ask(bandit, kind, rng) for _ in range(_TOGETHER)]
        asked = time.process_time()
        bandit.tell_many(tells)
        asking += asked - began
        telling += time.process_time() - asked
    return RoundTimes(asking / rounds, telling / rounds)


def _ask(bandit: Bandit, kind: BanditKind, rng: np.random.Generator) -> Tell:
    arms = None if kind.name_arms else rng.random((kind.arms, 4))
    answer = bandit.ask(arms)
    return Tell(decision=answer.id, rewards={answer.arms[0]: float(rng.normal())})


# --- bytes -----------------------------------------------------------------------------------


def _memory(bench: _Bench) -> None:
    """Bytes of a bandit after some rounds: at work, loaded anew, and as a snapshot."""
    working: dict[str, dict[str, int]] = {}
    loaded: dict[str, dict[str, int]] = {}
    snapshots: dict[str, dict[str, int]] = {}
    for name, kind in KINDS.items():
        working[name] = {}
        loaded[name] = {}
        snapshots[name] = {}
        with bench.new_storage() as storage:
            # Whatever is imported or compiled at first does not count.
            _create_and_play(storage, kind, 10)
            _load(storage)
        for rounds in (10,) if bench.quick else (10, 100, 1000):
            key = str(rounds)
            with bench.new_storage() as storage:
                working[name][key] = _traced_bytes(
                    lambda: _create_and_play(storage, kind, rounds)  # noqa: B023
                )
                loaded[name][key] = _traced_bytes(lambda: _load(storage))
                snapshots[name][key] = _snapshot_bytes(storage)
    bench.facts["bytes in memory, at work"] = working
    bench.facts["bytes in memory, loaded from a snapshot"] = loaded
    bench.facts["bytes of a snapshot"] = snapshots


def _create_and_play(storage: Storage, kind: BanditKind, rounds: int) -> Bandit:
    bandit = _create(storage, "one", kind)
    _play(bandit, kind, rounds, np.random.default_rng(1))
    bandit.save_snapshot()
    return bandit


def _load(storage: Storage) -> Bandit:
    bandit = load_bandit("one", storage=storage)
    bandit.load()
    return bandit


def _traced_bytes(make: Callable[[], Bandit]) -> int:
    """Bytes that Python and numpy allocate for a bandit."""
    gc.collect()
    tracemalloc.start()
    try:
        bandit = make()
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bandit.name == "one"  # it lived until here
    return allocated


def _snapshot_bytes(storage: Storage) -> int:
    row = storage.journal.find("", "one")
    assert row is not None
    snapshot = storage.journal.snapshot(row.id)
    assert snapshot is not None
    return len(snapshot.data)


def _events(bench: _Bench) -> None:
    """Bytes on disk of one round: an ask and a tell, indices and arms included."""
    rounds = 20 if bench.quick else 500
    sizes: dict[str, dict[str, float]] = {}
    for name, kind in KINDS.items():
        path = bench.folder / f"events {kind.arms} {kind.name_arms}.db"
        with Storage(f"sqlite:///{path}") as storage:
            _create(storage, "one", kind)
        before = path.stat().st_size
        with Storage(f"sqlite:///{path}") as storage:
            bandit = load_bandit("one", storage=storage)
            _play(bandit, kind, rounds, np.random.default_rng(2))
        growth = path.stat().st_size - before
        sizes[name] = {"SQLite": growth / rounds}
        if os.environ.get(POSTGRES):
            sizes[name] |= _postgres_bytes(kind, rounds)
    bench.facts["bytes on disk of an ask and its tell"] = sizes
    if not os.environ.get(POSTGRES):
        bench.skipped.append(f"PostgreSQL: {POSTGRES} is not set")


def _postgres_bytes(kind: BanditKind, rounds: int) -> dict[str, float]:
    import psycopg

    url = os.environ[POSTGRES]
    tables = (
        b"SELECT (sum(pg_total_relation_size(oid)), pg_current_wal_lsn() - '0/0')::text "
        b"FROM pg_class WHERE relname IN ('events', 'blobs')"
    )

    def sizes() -> list[float]:
        with psycopg.connect(url, autocommit=True) as connection:
            row = connection.execute(tables).fetchone()
        assert row is not None
        return [float(size) for size in row[0].strip("()").split(",")]

    with Storage(url) as storage:
        name = f"events {time.time_ns()}"
        bandit = _create(storage, name.replace(" ", "-"), kind)
        before = sizes()
        _play(bandit, kind, rounds, np.random.default_rng(2))
        after = sizes()
    return {
        "PostgreSQL": (after[0] - before[0]) / rounds,
        "PostgreSQL, its own log": (after[1] - before[1]) / rounds,
    }


# --- loads -----------------------------------------------------------------------------------


def _loads(bench: _Bench) -> None:
    """Seconds to load a bandit that is not in memory, and of asks and tells in the library."""
    loads: dict[str, dict[str, float]] = {}
    played: dict[str, dict[str, float]] = {}
    rounds = 20 if bench.quick else 1000
    for name, kind in KINDS.items():
        with bench.new_storage() as storage:
            bandit = _create(storage, "one", kind)
            played[name] = _play(
                bandit, kind, rounds, np.random.default_rng(3)
            )._asdict()
            began = time.process_time()
            bandit.verify(repeat_decisions=False)
            from_events = time.process_time() - began
            bandit.save_snapshot()
            del bandit
            from_snapshot = _load_seconds(storage, bench.repeats)
        loads[name] = {"snapshot": from_snapshot, "events": from_events}
        case = f"load, {rounds} rounds, {name}"
        bench.rows.append(row(case, from_snapshot, "from events", from_events, None))
    bench.facts[f"CPU seconds of a load, {rounds} rounds"] = loads
    bench.facts[f"CPU seconds in the library, {rounds} rounds"] = played


def _load_seconds(storage: Storage, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        gc.collect()  # the bandit of the last turn is gone: this one is read from the journal
        began = time.process_time()
        bandit = _load(storage)
        times.append(time.process_time() - began)
        del bandit
    return statistics.median(times)


# --- rates -----------------------------------------------------------------------------------


def _commits(bench: _Bench) -> None:
    """Events a second that one journal stores, by the number of events in a transaction."""
    urls = {"SQLite": f"sqlite:///{bench.folder / 'commits.db'}"}
    if os.environ.get(POSTGRES):
        urls["PostgreSQL"] = os.environ[POSTGRES]
    facts: dict[str, dict[str, dict[str, float]]] = {}
    for name, url in urls.items():
        with Storage(url) as storage:
            writer = _Writer(storage, bandits=10 if bench.quick else 100)
            turns = bench.repeats if bench.quick else 5 * bench.repeats
            facts[name] = writer.rates((1, 10, 100, 1000), turns)
    bench.facts["events a second of a journal, by events in a commit"] = facts


def _pages(bench: _Bench) -> None:
    """Pages of 4 kB that a commit of SQLite writes, by events: of 100 bandits in turn, and of one."""
    facts: dict[str, dict[str, int]] = {}
    for bandits in (1, 100):
        by_size = {}
        for size in (1, 10, 100, 1000):
            path = bench.folder / f"pages {bandits} {size}.db"
            with Storage(f"sqlite:///{path}") as storage:
                writer = _Writer(storage, bandits)
                writer.append(1000)  # so that the tables are larger than a page
                last_seqs = writer.last_seqs
            log = path.with_name(f"{path.name}-wal")
            with Storage(f"sqlite:///{path}") as storage:
                _Writer(storage, 0, last_seqs).append(size)
                by_size[str(size)] = log.stat().st_size // _PAGE_BYTES
        facts[str(bandits)] = by_size
    bench.facts["pages of a commit of SQLite, by bandits and events"] = facts


class _Writer:
    """Appends events of many bandits, as a group commit does.

    Args:
        storage: Where the events go.
        bandits: How many bandits to create.
        last_seqs: The number of the last event of bandits that are there already.
    """

    def __init__(
        self,
        storage: Storage,
        bandits: int,
        last_seqs: Mapping[int, int] | None = None,
    ) -> None:
        self._journal = storage.journal
        self.last_seqs = dict(last_seqs or {})
        """The number of the last event, by bandit."""
        stamp = time.time_ns()
        first = Event(seq=1, key="created", kind=Kind.CREATED, time=0.0, body={})
        for number in range(bandits):
            row = self._journal.create("", f"c{stamp}-{number}", first)
            self.last_seqs[row.id] = 1

    def append(self, size: int) -> None:
        """Store so many events in one commit."""
        self._journal.append(self._appends(size))

    def rates(self, sizes: Sequence[int], turns: int) -> dict[str, dict[str, float]]:
        """Events a second, by the clock and by the processor, by events in a commit."""
        walls: dict[int, list[float]] = {size: [] for size in sizes}
        processor: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(turns):
            # In turn: whatever else the disk does falls on all of them.
            for size in sizes:
                appends = self._appends(size)
                began = time.process_time()
                walls[size].append(timed(lambda: self._journal.append(appends)))  # noqa: B023
                processor[size].append(time.process_time() - began)
        rates = {}
        for size in sizes:
            rates[str(size)] = {
                "by the clock": size / statistics.median(walls[size]),
                "by the processor": size / statistics.median(processor[size]),
            }
        return rates

    def _appends(self, size: int) -> list[Append]:
        bandits = list(self.last_seqs)
        appends = []
        for number in range(size):
            bandit = bandits[number % len(bandits)]
            seq = self.last_seqs[bandit] + 1
            self.last_seqs[bandit] = seq
            body = {"decision": f"d{seq}", "feedback": "x" * 200}
            key = f"rewards/{seq}"
            event = Event(seq=seq, key=key, kind=Kind.OBSERVED, time=0.0, body=body)
            appends.append(Append(bandit, [event]))
        return appends


def _requests(bench: _Bench) -> None:
    """Processor time of the service for an ask, a tell, and a tell in a batch of 100."""
    if not Path("/proc/self/stat").exists():
        bench.skipped.append("requests: only Linux shows the time of another process")
        return
    turns = 2 if bench.quick else 10
    url = f"sqlite:///{bench.folder / 'requests.db'}"
    with Storage(url) as storage:
        _create(storage, "one", KINDS["10 fixed arms"])
    seconds = {"ask": 0.0, "tell": 0.0, "tell in a batch": 0.0}
    with serve(url) as service:
        client = _Client(Connection(service.address))
        client.ask(10)
        for _ in range(turns):
            seconds["ask"] += _process_seconds(service.pid, lambda: client.ask(100))
            seconds["tell"] += _process_seconds(service.pid, client.tell)
            seconds["ask"] += _process_seconds(service.pid, lambda: client.ask(100))
            work = client.tell_in_a_batch
            seconds["tell in a batch"] += _process_seconds(service.pid, work)
    facts = {
        "ask": seconds["ask"] / (200 * turns),
        "tell": seconds["tell"] / (100 * turns),
        "tell in a batch": seconds["tell in a batch"] / (100 * turns),
    }
    bench.facts["CPU seconds of the service, 10 fixed arms"] = facts


class _Client:
    """Asks, and tells the rewards of what it asked last.

    Args:
        http: A connection to the service.
    """

    def __init__(self, http: Connection) -> None:
        self._http = http
        self._tells: list[dict[str, Any]] = []

    def ask(self, number: int) -> None:
        """Ask one after another."""
        self._tells = []
        for _ in range(number):
            answer = self._http.post("/v1/bandits/one/decisions", {})
            rewards = {str(answer["arms"][0]): 0.5}
            self._tells.append({"decision": answer["id"], "rewards": rewards})

    def tell(self) -> None:
        """Tell one after another."""
        for tell in self._tells:
            path = f"/v1/decisions/{tell['decision']}/observations?bandit=one"
            self._http.post(path, {"rewards": tell["rewards"]})

    def tell_in_a_batch(self) -> None:
        """Tell all of them in one request."""
        lines = "\n".join(json.dumps(tell) for tell in self._tells)
        self._http.lines("/v1/bandits/one/observations/batch", lines)


def _process_seconds(process: int, work: Callable[[], object]) -> float:
    """Processor time that another process spends meanwhile."""
    before = _cpu_ticks(process)
    work()
    return (_cpu_ticks(process) - before) / _CLOCK_TICKS


def _cpu_ticks(process: int) -> int:
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    user, system = after_name[11:13]
    return int(user) + int(system)


# --- bandits in memory -------------------------------------------------------------------------


def _lru(bench: _Bench) -> None:
    """How often a bandit is in memory, if demand follows Zipf's law. Simulated."""
    bandits = 10_000 if bench.quick else 1_000_000
    requests = 60_000 if bench.quick else 3_000_000
    facts: dict[str, dict[str, dict[str, float]]] = {}
    for exponent in (0.8, 1.0, 1.2):
        demand = zipf(bandits, exponent)
        drawn = np.random.default_rng(5).choice(bandits, requests, p=demand)
        facts[str(exponent)] = {}
        for share in (0.01, 0.1):
            size = int(share * bandits)
            facts[str(exponent)][str(share)] = {
                "simulated": simulated_hit_rate(drawn.tolist(), size),
                "by Che's approximation": che_hit_rate(demand, size),
            }
    bench.facts[f"hit rate of {bandits} bandits, by exponent and share"] = facts


def zipf(bandits: int, exponent: float) -> Floats:
    """The share of requests of each bandit, the most popular first, (bandits,)."""
    weights = np.arange(1, bandits + 1) ** -exponent
    shares: Floats = weights / weights.sum()
    return shares


def simulated_hit_rate(requests: list[int], size: int) -> float:
    """The share of the last two thirds of requests whose bandit is in memory."""
    cache: OrderedDict[int, None] = OrderedDict()
    warm_up = len(requests) // 3
    hits = 0
    for number, bandit in enumerate(requests):
        if bandit in cache:
            cache.move_to_end(bandit)
            hits += number >= warm_up
            continue
        cache[bandit] = None
        if len(cache) > size:
            cache.popitem(last=False)
    return hits / (len(requests) - warm_up)


def che_hit_rate(demand: Floats, size: int) -> float:
    """Che, Tung and Wang (2002), equations 5 and 6, after infinitely many requests.

    A bandit is in memory if it was used within the time t that fills it: Σ 1 - exp(-p t) = size.
    """
    lower, upper = 0.0, 1.0
    while _filled(demand, upper) < size:
        upper *= 2.0
    for _ in range(60):
        middle = (lower + upper) / 2.0
        if _filled(demand, middle) < size:
            lower = middle
        else:
            upper = middle
    return float(np.sum(demand * -np.expm1(-demand * upper)))


def _filled(demand: Floats, window: float) -> float:
    return float(np.sum(-np.expm1(-demand * window)))


# --- several processes -------------------------------------------------------------------------


class _Members(Membership):
    """Processes that never change."""

    def __init__(self, number: int) -> None:
        self._rows = [
            ProcessRow(f"process{place}", f"http://10.0.0.{place}", 0.0)
            for place in range(number)
        ]

    def heartbeat(self, process: str, address: str) -> None:
        """Nothing changes."""

    def leave(self, process: str) -> None:
        """Nothing changes."""

    def processes(self, max_age_seconds: float) -> list[ProcessRow]:
        """All of them."""
        return self._rows


def _owners(bench: _Bench) -> None:
    """Processor time to find the owner of a bandit, by the number of processes."""
    facts = {}
    calls = 100 if bench.quick else 2000
    for number in (2, 10, 100):
        owners = Owners(_Members(number), "http://10.0.0.1")
        owners.beat()
        began = time.process_time()
        for call in range(calls):
            owners.other_owner("acme", f"bandit{call}")
        facts[str(number)] = (time.process_time() - began) / calls
    bench.facts["CPU seconds to find the owner, by processes"] = facts


def _handover(bench: _Bench) -> None:
    """An ask that its owner receives, and one that another process hands over."""
    url = os.environ.get(POSTGRES)
    if not url:
        return
    rounds = 20 if bench.quick else 300
    kind = KINDS["10 fixed arms"]
    name = f"handover-{time.time_ns()}"
    with Storage(url) as storage:
        _create(storage, name, kind)
    with serve(url) as first, serve(url) as second:
        time.sleep(3.0)  # both know each other
        seconds = {}
        processor = {}
        for address in (first.address, second.address):
            http = Connection(address)
            http.post(f"/v1/bandits/{name}/decisions", {})
            before = _cpu_ticks(first.pid) + _cpu_ticks(second.pid)
            times = []
            for _ in range(rounds):
                path = f"/v1/bandits/{name}/decisions"
                times.append(timed(lambda: http.post(path, {})))  # noqa: B023
            ticks = _cpu_ticks(first.pid) + _cpu_ticks(second.pid) - before
            seconds[address] = statistics.median(times)
            processor[address] = ticks / _CLOCK_TICKS / rounds
    # Nobody states who owns the bandit: the process that answers sooner does.
    direct, handed_over = sorted(seconds.values())
    own, both = sorted(processor.values())
    case = "ask that is handed over"
    bench.rows.append(row(case, handed_over, "ask of the owner", direct, None))
    bench.facts["ask over PostgreSQL"] = {
        "seconds at the owner": direct,
        "seconds with a hop": handed_over,
        "CPU seconds at the owner": own,
        "CPU seconds with a hop": both,
    }
