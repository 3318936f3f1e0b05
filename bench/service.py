"""The service in a process of its own, on loopback, beside the library and beside Optuna.

Every ask and every tell is durable before it is answered. So times are compared with what the same disk
takes for one commit, measured in the same run, and with Optuna's storages, which promise the same.
"""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from superarm.core import Floats
from superarm.core.registry import spec_of
from superarm.core.serialization import to_json
from superarm.kernels import SquaredExponential
from superarm.live import Bandit, BanditSpec, Storage, create_bandit
from superarm.live.arms import plain_id
from superarm.oracles import TopK
from superarm.policies import IndexPolicy
from superarm.posteriors import FiniteGP, StreamingGP
from superarm.roads.policies import route_ts
from superarm.rules import UCB, Fixed

from .measure import Results, Row, Target, at_least, at_most, row
from .network_policy import the_problem
from .service_load import (
    MOST_IDLE_SECONDS,
    LeanConnection,
    Script,
    UnexpectedAnswerError,
    request_bytes,
    require,
    run_load,
    send_all,
)
from .service_memory import create_finite, sample_in_own_process, tell_often

ARMS = 100
CLIENTS = 64
TELLS_OVER_COMMITS = 20.0
"""How many times as many tells as single commits a second there should be."""
NETWORK_CLIENTS = 8
TURNS = 3
"""Of asks, tells and single commits."""
MEMORY_TELLS = 1_000_000
_POLL_SECONDS = 0.01


class _Bench:
    """What is measured: where, how often, and what came out."""

    def __init__(self, folder: Path, rounds: int, quick: bool) -> None:
        self.folder = folder
        self.rounds = rounds
        self.quick = quick
        self.rows: list[Row] = []
        self.facts: dict[str, Any] = {}
        self.limits: dict[str, float] = {}
        self.targets: list[Target] = []
        self.skipped: list[str] = []


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    rounds = repeats or (10 if quick else 200)
    with TemporaryDirectory() as folder:
        bench = _Bench(Path(folder), rounds, quick)
        for part in (_asks, _tells, _network, _restart, _memory, _optuna):
            seconds = timed(lambda: part(bench))  # noqa: B023
            print(f"{part.__name__}: {seconds:.0f} s", file=sys.stderr, flush=True)
    return Results(
        suite="service",
        rows=bench.rows,
        limits=bench.limits,
        facts=bench.facts,
        targets=bench.targets,
        skipped=bench.skipped,
    )


# --- the service, and a client for all that is not timed -------------------------------------


class ServiceProcess(NamedTuple):
    """``superarm serve`` in a process of its own."""

    pid: int
    address: str


@contextmanager
def serve(storage: str) -> Iterator[ServiceProcess]:
    """Serve a storage until the block ends."""
    command = [sys.executable, "-m", "superarm", "serve", "--storage", storage]
    process = subprocess.Popen(
        [*command, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
        yield ServiceProcess(process.pid, address)
    finally:
        process.terminate()
        process.wait()


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class RefusedError(RuntimeError):
    """The service answered with an error."""


class Connection:
    """One connection that is kept open."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self._http = HTTPConnection(place.hostname or "", place.port, timeout=120)
        self._used = time.monotonic()

    def _request(self, method: str, path: str, *content: Any) -> None:
        # The service closes connections that rest for five seconds; the next request opens a new one.
        if time.monotonic() - self._used > MOST_IDLE_SECONDS:
            self._http.close()
        self._http.request(method, path, *content)
        self._used = time.monotonic()

    def post(self, path: str, body: Any) -> Any:
        """The JSON of an answer."""
        return self.send("POST", path, body)

    def lines(self, path: str, text: str) -> list[Any]:
        """The lines of an answer to lines."""
        self._request("POST", path, text, {"Content-Type": "application/x-ndjson"})
        content = self._http.getresponse().read().decode()
        return [json.loads(line) for line in content.splitlines()]

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        self._request("GET", path)
        return self._answer()

    def send(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        self._request(method, path, json.dumps(body), headers)
        return self._answer()

    def _answer(self) -> Any:
        response = self._http.getresponse()
        content = response.read()
        if response.status >= 400:
            raise RefusedError(content.decode()[:300])
        return json.loads(content) if content else None


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _streaming_policy() -> IndexPolicy:
    return IndexPolicy(
        posterior=StreamingGP(SquaredExponential(lengthscale=0.3), noise_variance=0.01),
        rule=UCB(schedule=Fixed(value=2.0)),
        oracle=TopK(k=5),
    )


def _finite_policy(arms: Floats, k: int = 1) -> IndexPolicy:
    return IndexPolicy(
        posterior=FiniteGP(
            SquaredExponential(lengthscale=0.3), arms, noise_variance=0.01
        ),
        rule=UCB(schedule=Fixed(value=2.0)),
        oracle=TopK(k=k),
    )


def _spec_json(policy: Any) -> Any:
    return to_json(spec_of(policy))


# --- ask -------------------------------------------------------------------------------------


def _asks(bench: _Bench) -> None:
    """Asks and tells on 100 changing arms: the service, and the library with its commit, in turn."""
    rng = np.random.default_rng(1)
    own = create_bandit(
        "asks", spec=_streaming_policy(), storage=f"sqlite:///{bench.folder / 'own.db'}"
    )
    with serve(f"sqlite:///{bench.folder / 'asks.db'}") as process:
        http = Connection(process.address)
        http.post(
            "/v1/bandits", {"name": "asks", "spec": _spec_json(_streaming_policy())}
        )
        timed_http = LeanConnection(process.address)
        library: list[float] = []
        service: list[float] = []
        for number in range(bench.rounds):
            features = rng.random((ARMS, 4))
            decision = f"d{number}"
            body = {"arms": features.tolist(), "decision_id": decision}
            request = request_bytes("POST", "/v1/bandits/asks/decisions", body)
            library.append(timed(lambda: own.ask(features, decision_id=decision)))  # noqa: B023
            service.append(timed(lambda: require(timed_http.exchange(request), 201)))  # noqa: B023
            _reward(own, http, decision, rng)
        request = request_bytes("GET", "/healthz")
        empty = [
            timed(lambda: timed_http.exchange(request)) for _ in range(bench.rounds)
        ]
        timed_http.close()
    own.storage.close()
    bench.limits["request that does nothing (/healthz)_s"] = statistics.median(empty)
    library_s = statistics.median(library)
    service_s = statistics.median(service)
    bench.rows.append(
        row(
            f"ask, {ARMS} new arms",
            service_s,
            "library with its commit",
            library_s,
            None,
        )
    )
    bench.targets.append(
        at_most("ask over the library with its commit", service_s / library_s, 1.5)
    )


def _reward(own: Bandit, http: Connection, decision: str, rng: Any) -> None:
    arms = own.decision(decision).answer.arms
    rewards = {str(arm): float(rng.normal()) for arm in arms}
    own.tell(decision, rewards)
    details = http.get(f"/v1/decisions/{decision}")
    remote = {str(arm): float(rng.normal()) for arm in details["arms"]}
    http.post(f"/v1/decisions/{decision}/observations", {"rewards": remote})


# --- tell ------------------------------------------------------------------------------------


def single_commit_rate(path: Path, commits: int) -> float:
    """Transactions a second of one row each, as SQLite stores them durably on this disk."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE items (number INTEGER, body TEXT)")
        began = time.perf_counter()
        for number in range(commits):
            connection.execute("INSERT INTO items VALUES (?, ?)", (number, "x" * 300))
        return commits / (time.perf_counter() - began)


class _TellTurn(NamedTuple):
    """What the tells of all clients took."""

    rate: float
    """Tells a second."""
    cpu: float
    """Processor seconds of the service for a tell."""
    client_cpu: float
    """Processor seconds of all clients for a tell."""
    together: float
    """Tells in a commit, on average."""


def _tells(bench: _Bench) -> None:
    """Tells of 64 clients: one by one, and each client's in one batch."""
    arms = np.random.default_rng(2).random((50, 2))
    count = max(2, bench.rounds // 4)  # tells of each client
    single: list[float] = []
    alone: list[float] = []
    turns: list[_TellTurn] = []
    batch_turns: list[_TellTurn] = []
    with serve(f"sqlite:///{bench.folder / 'tells.db'}") as process:
        first = Connection(process.address)
        spec = _spec_json(_finite_policy(arms))
        first.post("/v1/bandits", {"name": "tells", "spec": spec})
        first.send("PUT", "/v1/bandits/tells/arms", {"arms": arms.tolist()})
        for turn in range(1 if bench.quick else TURNS):
            single.append(single_commit_rate(bench.folder / f"commits{turn}.db", 500))
            tellers = [_Teller(f"{turn}-{client}") for client in range(CLIENTS)]
            run_load(process.address, [teller.ask(count) for teller in tellers])
            scripts = [teller.tell_each() for teller in tellers]
            turns.append(_tell_turn(process, scripts, count))
            run_load(process.address, [teller.ask(count) for teller in tellers])
            scripts = [teller.tell_batch() for teller in tellers]
            batch_turns.append(_tell_turn(process, scripts, count))
            teller = _Teller(f"{turn}-alone")
            run_load(process.address, [teller.ask(count)])
            alone.append(run_load(process.address, [teller.tell_each()]).seconds)
    commits = statistics.median(single)
    one_by_one = _median_turn(turns)
    batched = _median_turn(batch_turns)
    peer = "one commit each"
    one_s = statistics.median(alone) / count
    bench.rows.append(row("tell, one client", one_s, peer, 1 / commits, None))
    bench.rows.append(
        row("tell, 64 clients", 1 / one_by_one.rate, peer, 1 / commits, None)
    )
    bench.rows.append(
        row(f"tell in batches of {count}", 1 / batched.rate, peer, 1 / commits, None)
    )
    bench.limits["one commit_s"] = 1 / commits
    bench.limits["tell, processor of the service_s"] = one_by_one.cpu
    bench.limits["tell, processor of all clients_s"] = one_by_one.client_cpu
    bench.limits["tell in a batch, processor of the service_s"] = batched.cpu
    bench.facts["single commits a second"] = commits
    bench.facts["single commits a second, each turn"] = single
    bench.facts["tells a second, 64 clients"] = one_by_one.rate
    bench.facts["tells a second, 64 clients, each turn"] = [turn.rate for turn in turns]
    bench.facts["tells a second in batches, 64 clients"] = batched.rate
    bench.facts["tells in a commit, 64 clients"] = one_by_one.together
    over = "over single commits"
    for name, median in (
        ("tells of 64 clients", one_by_one),
        ("batched tells", batched),
    ):
        target = at_least(f"{name} {over}", median.rate / commits, TELLS_OVER_COMMITS)
        bench.targets.append(target)
        case = f"disks on which {name} reach the target: commits a second, at most"
        bench.facts[case] = median.rate / TELLS_OVER_COMMITS


def _tell_turn(process: ServiceProcess, scripts: list[Script], count: int) -> _TellTurn:
    """Run the tells of all clients.

    Args:
        process: The service.
        scripts: The tells of each client.
        count: How many of them.
    """
    tells = len(scripts) * count
    cpu = cpu_seconds(process.pid)
    before = _commits(process.address)
    load = run_load(process.address, scripts)
    commits = _commits(process.address) - before
    cpu = cpu_seconds(process.pid) - cpu
    return _TellTurn(
        rate=tells / load.seconds,
        cpu=cpu / tells,
        client_cpu=load.cpu_seconds / tells,
        together=tells / commits,
    )


def _median_turn(turns: list[_TellTurn]) -> _TellTurn:
    """The turn with the median rate."""
    by_rate = sorted(turns, key=lambda turn: turn.rate)
    return by_rate[len(turns) // 2]


def _commits(address: str) -> float:
    """Transactions of the service so far, by its metrics."""
    connection = LeanConnection(address)
    text = connection.exchange(request_bytes("GET", "/metrics")).content.decode()
    connection.close()
    name = "superarm_commits_total "
    (line,) = (line for line in text.splitlines() if line.startswith(name))
    return float(line.removeprefix(name))


class _Teller:
    """A client that asks, and then tells.

    Args:
        name: Its name, which its decisions begin with.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked = 0
        self._lines: list[dict[str, Any]] = []

    def ask(self, count: int) -> Script:
        """Ask for decisions.

        Args:
            count: How many.
        """
        self._lines = []
        for _ in range(count):
            self._asked += 1
            body = {"decision_id": f"d{self._name}-{self._asked}"}
            answer = yield request_bytes("POST", "/v1/bandits/tells/decisions", body)
            decision = require(answer, 201).json()
            rewards = {str(decision["arms"][0]): 0.5}
            self._lines.append({"decision": decision["id"], "rewards": rewards})

    def tell_each(self) -> Script:
        """Tell the reward of each decision; the requests are made before."""
        requests = []
        for line in self._lines:
            path = f"/v1/decisions/{line['decision']}/observations?bandit=tells"
            requests.append(request_bytes("POST", path, {"rewards": line["rewards"]}))
        return send_all(requests, expected=201)

    def tell_batch(self) -> Script:
        """Tell all rewards in one request."""
        text = "\n".join(json.dumps(line) for line in self._lines)
        path = "/v1/bandits/tells/observations/batch"
        answer = yield request_bytes("POST", path, text, "application/x-ndjson")
        statuses = [json.loads(line)["status"] for line in answer.content.splitlines()]
        if statuses != [201] * len(self._lines):
            raise UnexpectedAnswerError(str(statuses[:3]))


# --- a road network ----------------------------------------------------------------------------


def _network(bench: _Bench) -> None:
    """Routes through a city of 6,000 edges, asked for by one client, and by eight at once."""
    world, left_out = the_problem(bench.quick, bench.rounds)
    bench.skipped.extend(left_out)
    offer = world.offer(1)
    edges = len(offer.arms)
    asks = max(2, bench.rounds // 4)  # of each client
    body = {"structure": to_json(offer.structure)}
    with serve(f"sqlite:///{bench.folder / 'network.db'}") as process:
        first = Connection(process.address)
        spec = BanditSpec(policy=spec_of(route_ts(world.model))).as_json()
        first.post("/v1/bandits", {"name": "routes", "spec": spec})
        ids = [plain_id(arm) for arm in offer.arms.ids]
        table = {"ids": ids, "features": offer.arms.features.tolist()}
        first.send("PUT", "/v1/bandits/routes/arms", {"arms": table})

        def drive(clients: int) -> list[float]:
            taken: list[float] = []
            scripts = [_drive(body, asks, taken) for _ in range(clients)]
            run_load(process.address, scripts)
            return taken

        drive(1)  # warms up, and visits the first edges
        alone = drive(1)
        cpu = cpu_seconds(process.pid)
        together = drive(NETWORK_CLIENTS)
        cpu = cpu_seconds(process.pid) - cpu
    for clients, taken in ((1, alone), (NETWORK_CLIENTS, together)):
        p50, p99 = np.quantile(taken, [0.5, 0.99]).tolist()
        case = f"ask on {edges} edges, clients: {clients}, asks: {len(taken)}"
        bench.facts[f"{case}: p50 and p99, seconds"] = [p50, p99]
    bench.limits[f"ask and tell on {edges} edges, processor_s"] = cpu / len(taken)
    bench.targets.append(at_most(f"{case}, p50, seconds", p50, 0.04))
    bench.targets.append(at_most(f"{case}, p99, seconds", p99, 0.15))


def _drive(body: Any, asks: int, taken: list[float]) -> Script:
    """Ask for routes, and tell what their edges took.

    Args:
        body: The body of an ask.
        asks: How many.
        taken: Where to add the seconds of each ask.
    """
    ask = request_bytes("POST", "/v1/bandits/routes/decisions", body)
    for _ in range(asks):
        began = time.perf_counter()
        answer = yield ask
        taken.append(time.perf_counter() - began)
        decision = require(answer, 201).json()
        path = f"/v1/decisions/{decision['id']}/observations?bandit=routes"
        rewards = dict.fromkeys(map(str, decision["arms"]), 10.0)
        response = yield request_bytes("POST", path, {"rewards": rewards})
        require(response, 201)


# --- restarts and memory -----------------------------------------------------------------------


def _restart(bench: _Bench) -> None:
    """A start with 100,000 observations until the service is ready: with a snapshot, and without."""
    observations = 1_000 if bench.quick else 100_000
    file = bench.folder / "restart.db"
    with Storage(f"sqlite:///{file}") as storage:
        # The last snapshot is one that was taken on the way, as after a crash.
        for _ in tell_often(create_finite("old", storage), observations):
            pass
    empty = _seconds_until_ready(bench.folder / "empty.db")
    with_snapshot = _seconds_until_ready(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DELETE FROM snapshots")
    without = _seconds_until_ready(file)
    case = f"start with {observations} observations"
    bench.facts["seconds until ready, no bandits"] = empty
    bench.rows.append(row(case, with_snapshot, "without a snapshot", without, None))
    bench.targets.append(at_most(f"{case}, seconds", with_snapshot, 5.0))


def _seconds_until_ready(file: Path) -> float:
    """From the start of the process until ``/readyz`` answers 200."""
    began = time.perf_counter()
    with serve(f"sqlite:///{file}") as process:
        while not _is_ready(process.address):
            time.sleep(_POLL_SECONDS)
        return time.perf_counter() - began


def _is_ready(address: str) -> bool:
    try:
        Connection(address).get("/readyz")
    except RefusedError:
        return False
    return True


def _memory(bench: _Bench) -> None:
    """Memory over many tells on a finite set of arms, from the first tenth of them on."""
    if not Path("/proc/self/status").exists():
        bench.skipped.append("memory: only Linux states it in /proc")
        return
    tells = 1_000 if bench.quick else MEMORY_TELLS
    samples = sample_in_own_process(bench.folder / "memory.db", tells)
    bench.facts["resident memory by number of tells, MiB"] = {
        str(sample.tells): round(sample.mib, 1) for sample in samples
    }
    growth = samples[-1].mib - samples[0].mib
    case = f"growth of memory from {samples[0].tells} to {tells} tells, MiB"
    bench.targets.append(at_most(case, growth, 10.0))


# --- Optuna ------------------------------------------------------------------------------------


def _optuna(bench: _Bench) -> None:
    """An ask and its tell: ours on SQLite, Optuna's on its RDB and journal storages, in turn."""
    try:
        optuna: Any = importlib.import_module("optuna")
    except ImportError:
        bench.skipped.append("Optuna: not installed")
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    journal: Any = importlib.import_module("optuna.storages.journal")
    backend = journal.JournalFileBackend(str(bench.folder / "optuna.log"))
    studies = {
        "Optuna, RDB (SQLite)": optuna.create_study(
            storage=f"sqlite:///{bench.folder / 'optuna.db'}",
            sampler=optuna.samplers.RandomSampler(seed=0),
        ),
        "Optuna, journal file": optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            sampler=optuna.samplers.RandomSampler(seed=0),
        ),
    }
    bandit = create_bandit(
        "peer",
        spec=_streaming_policy(),
        storage=f"sqlite:///{bench.folder / 'peer.db'}",
    )
    rng = np.random.default_rng(6)
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in studies}

    def round_of_ours() -> None:
        answer = bandit.ask(rng.random((ARMS, 4)))
        bandit.tell(answer, dict.fromkeys(answer.arms, 0.5))

    def round_of_theirs(study: Any) -> None:
        trial = study.ask()
        for column in range(4):
            trial.suggest_float(f"x{column}", 0.0, 1.0)
        study.tell(trial, 0.5)

    for _ in range(bench.rounds):
        ours.append(timed(round_of_ours))
        for name, study in studies.items():
            theirs[name].append(timed(lambda: round_of_theirs(study)))  # noqa: B023
    bandit.storage.close()
    median = statistics.median(ours)
    for name, times in theirs.items():
        case = f"ask and tell, {ARMS} new arms, 5 rewards"
        bench.rows.append(
            row(case, median, f"{name}, 4 numbers", statistics.median(times), None)
        )
    with suppress(AttributeError):
        for study in studies.values():
            study._storage.remove_session()
