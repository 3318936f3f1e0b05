"""The loop of the README in plain Python, where nobody has said how many threads BLAS may take.

Every contender plays it in a fresh process, in turns: superarm as it is, the same with
``OPENBLAS_NUM_THREADS=1`` in the environment, and the same with BLAS's threads left alone. All of
that on the machine as it is, and with a busy process for every core. One loop is no more than a few
turns of the scheduler, so that a process plays it again and again for a while. Processor time,
of all threads together, shows what spins whatever else the machine does.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .measure import Results, Row, at_least, at_most, row

ROUNDS = 100
SECONDS = 2.0
"""How long a process plays, and at least twice."""
OURS = "as it is"
ONE = "OPENBLAS_NUM_THREADS=1"
UNLIMITED = "BLAS threads left alone"
FREE, BUSY = "README loop", "README loop, every core busy"

_PROGRAM = """
import json, sys, time, timeit
import numpy as np
from superarm import Arms, Feedback, IndexPolicy, Offer
from superarm.core import threads
from superarm.kernels import SquaredExponential
from superarm.oracles import TopK
from superarm.posteriors import StreamingGP
from superarm.rules import UCB, OclokUCB

rounds, least, alone = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "alone"
if alone:
    threads._LIMIT.begin = lambda: False

def play(rounds):
    policy = IndexPolicy(
        posterior=StreamingGP(kernel=SquaredExponential(lengthscale=0.3), noise_variance=0.01),
        rule=UCB(schedule=OclokUCB(most_arms=20)),
        oracle=TopK(k=3),
    )
    rng = np.random.default_rng(0)
    moments = []
    start, cpu = time.perf_counter(), time.process_time()
    for step in range(1, rounds + 1):
        arms = Arms.numbered(rng.random((20, 2)))
        truth = np.sin(5.0 * arms.features).sum(axis=1)
        offer = Offer(step=step, arms=arms)
        decision = policy.decide(offer, rng)
        policy.commit(decision)
        rewards = truth[decision.positions] + 0.1 * rng.standard_normal(3)
        policy.learn(offer, decision, Feedback(positions=decision.positions, rewards=rewards), rng)
        moments += [decision.mean.tolist(), decision.std.tolist()]
    return (time.perf_counter() - start) / rounds, (time.process_time() - cpu) / rounds, moments

play(5)
played = []
over = time.perf_counter() + least
while len(played) < 2 or time.perf_counter() < over:
    played.append(play(rounds))
seconds, cpu, moments = zip(*played)
empty = threads.one_blas_thread(int)
held, plain = (min(timeit.repeat(call, number=1000, repeat=20)) / 1000 for call in (empty, int))
count = max((library.get() for library in threads._LIMIT.libraries), default=0)
found = {"seconds": seconds, "cpu": cpu, "moments": moments[0]}
print(json.dumps({**found, "call": held - plain, "threads": count}))
"""


class _Played(NamedTuple):
    seconds: float  # of a round, the median of all times it was played
    cpu: float  # the same of processor time
    call: float  # what holding threads adds to a call, seconds
    moments: Any  # (2 · rounds, 3): mean and std of what was chosen
    threads: int


def _play(contender: str, rounds: int, least: float) -> dict[str, Any]:
    # ``python -m bench`` has set one thread for everything: here users have not.
    environment = {
        name: value for name, value in os.environ.items() if "_NUM_THREADS" not in name
    }
    if contender == ONE:
        environment["OPENBLAS_NUM_THREADS"] = "1"
    arguments = [str(rounds), str(least), "alone" if contender == UNLIMITED else "held"]
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().rpartition("\n")[2])
    played: dict[str, Any] = json.loads(done.stdout)
    return played


@contextmanager
def _busy_cores(count: int) -> Iterator[None]:
    """That many processes that do nothing but take time."""
    busy: list[subprocess.Popen[bytes]] = []
    try:
        command = [sys.executable, "-c", "while True: pass"]
        busy.extend(subprocess.Popen(command) for _ in range(count))
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _lock(rounds: int, least: float, repeats: int) -> dict[str, _Played]:
    found: dict[str, list[dict[str, Any]]] = {OURS: [], ONE: [], UNLIMITED: []}
    for _ in range(repeats):
        for contender, played in found.items():
            played.append(_play(contender, rounds, least))
    return {
        contender: _Played(
            statistics.median(value for one in played for value in one["seconds"]),
            statistics.median(value for one in played for value in one["cpu"]),
            min(one["call"] for one in played),
            np.array(played[0]["moments"]),
            played[0]["threads"],
        )
        for contender, played in found.items()
    }


def _rows(case: str, found: dict[str, _Played]) -> list[Row]:
    ours = found[OURS]
    return [
        row(
            case,
            ours.seconds,
            peer,
            found[peer].seconds,
            float(np.abs(ours.moments - found[peer].moments).max()),
        )
        for peer in (ONE, UNLIMITED)
    ]


def run(*, quick: bool = False, repeats: int | None = None) -> Results:
    rounds, least = (10, 0.0) if quick else (ROUNDS, SECONDS)
    repeats = repeats or (1 if quick else 9)
    free = _lock(rounds, least, repeats)
    with _busy_cores(os.cpu_count() or 1):
        busy = _lock(rounds, least, repeats)
    rows = _rows(FREE, free) + _rows(BUSY, busy)
    with_one, unlimited = rows[2:]
    pinned, held = free[ONE].call, free[OURS].call
    return Results(
        suite="threads",
        rows=rows,
        limits={
            "call_with_one_thread_anyway_s": pinned,
            "call_s": held,
            **{
                f"{case}: CPU {name}_s": played.cpu
                for case, found in ((FREE, free), (BUSY, busy))
                for name, played in found.items()
            },
        },
        facts={"BLAS threads where nobody has set them": free[OURS].threads},
        targets=[
            at_most(f"{BUSY}: ours over {ONE}", 1.0 / with_one.ratio, 1.5),
            at_least(f"{BUSY}: {UNLIMITED} over ours", unlimited.ratio, 5.0),
            at_most(
                "holding threads where there is one anyway, seconds a call",
                pinned,
                1e-6,
            ),
        ],
    )
