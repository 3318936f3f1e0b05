"""How things are timed, and the records that come out.

All contenders take turns within one run on one thread, so that whatever else the machine does
falls on all of them: times are worth little, their ratios a lot. Garbage collection is off
while the clock runs, and every contender is warmed up before.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

PACKAGES = (
    "superarm",
    "numpy",
    "scipy",
    "numba",
    "scikit-learn",
    "POT",
    "torch",
    "gpytorch",
    "botorch",
    "fastapi",
    "uvicorn",
    "optuna",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One case of ours beside one peer; times are seconds for one round."""

    case: str
    ours_s: float
    peer: str
    peer_s: float
    ratio: float
    """How many times faster ours is: ``peer_s / ours_s``."""
    max_abs_diff: float | None
    """Largest difference of any mean or standard deviation; ``None`` where none is predicted."""
    ours_cpu_s: float | None = None
    """Processor time of ours; ``None`` where it was not measured."""
    peer_cpu_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a number should be, and what it is."""

    text: str
    value: float
    holds: bool


@dataclass(frozen=True, kw_only=True)
class Results:
    """All that a suite found."""

    suite: str
    rows: list[Row]
    growth: dict[str, float] = field(default_factory=dict)
    """Exponents p of time ~ size^p (or memory ~ size^p)."""
    limits: dict[str, float] = field(default_factory=dict)
    """Seconds that the arithmetic alone takes, and how near ours comes."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Further numbers, by name."""
    targets: list[Target] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Peers left out, and why."""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "machine": machine()}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Results:
        rows = [Row(**each) for each in stored["rows"]]
        targets = [Target(**each) for each in stored["targets"]]
        fields = {key: value for key, value in stored.items() if key != "machine"}
        return cls(**{**fields, "rows": rows, "targets": targets})


class Spent(NamedTuple):
    """Seconds of one call: by the clock on the wall, and of the processor."""

    wall: float
    cpu: float


def row(
    case: str,
    ours: Spent | float,
    peer: str,
    theirs: Spent | float,
    max_abs_diff: float | None,
) -> Row:
    """Times may be given without processor time."""
    ours_s = ours.wall if isinstance(ours, Spent) else ours
    peer_s = theirs.wall if isinstance(theirs, Spent) else theirs
    return Row(
        case=case,
        ours_s=ours_s,
        peer=peer,
        peer_s=peer_s,
        ratio=peer_s / ours_s,
        max_abs_diff=max_abs_diff,
        ours_cpu_s=ours.cpu if isinstance(ours, Spent) else None,
        peer_cpu_s=theirs.cpu if isinstance(theirs, Spent) else None,
    )


def cpu_over(one: Row) -> float:
    """Processor time of ours over the peer's."""
    assert one.ours_cpu_s is not None
    assert one.peer_cpu_s is not None
    return one.ours_cpu_s / one.peer_cpu_s


def at_least(text: str, value: float, least: float) -> Target:
    return Target(text=f"{text}: at least {least:g}", value=value, holds=value >= least)


def at_most(text: str, value: float, most: float) -> Target:
    return Target(text=f"{text}: at most {most:g}", value=value, holds=value <= most)


# --- clocks ------------------------------------------------------------------------------


@contextmanager
def without_gc() -> Iterator[None]:
    """No collection inside; what exists already is set aside, so that ``collect`` stays quick."""
    enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spent(work: Callable[[], object]) -> Spent:
    cpu, start = time.process_time(), time.perf_counter()
    work()
    wall = time.perf_counter() - start
    return Spent(wall, time.process_time() - cpu)


def median_spent(times: Sequence[Spent], calls: int = 1) -> Spent:
    """Medians of both clocks, each divided by the number of calls that one entry stands for."""
    walls, cpus = zip(*times, strict=True)
    return Spent(statistics.median(walls) / calls, statistics.median(cpus) / calls)


def mean_spent(times: Sequence[Spent]) -> Spent:
    """Means: where some calls cost far more than others and all of them count."""
    walls, cpus = zip(*times, strict=True)
    return Spent(statistics.fmean(walls), statistics.fmean(cpus))


def take_turns(
    contenders: Mapping[str, Callable[[], object]], turns: int, *, burst: int = 1
) -> dict[str, Spent]:
    """Medians of one call of each; in every turn each is called ``burst`` times, first or last.

    A burst is for calls of microseconds, which the clocks would disturb. The first turn warms up.
    """
    times: dict[str, list[Spent]] = {name: [] for name in contenders}
    order = list(contenders)

    def many(work: Callable[[], object]) -> None:
        for _ in range(burst):
            work()

    for name in order:
        many(contenders[name])
    with without_gc():
        for _ in range(turns):
            for name in order:
                times[name].append(spent(partial(many, contenders[name])))
            order.reverse()  # nobody always comes after the same one
    return {name: median_spent(found, burst) for name, found in times.items()}


def median_seconds(
    work: Callable[[Any], object],
    repeats: int,
    prepare: Callable[[], Any] = lambda: None,
) -> float:
    """Median time of ``work(prepare())``, preparation excluded, after one warm-up."""
    work(prepare())
    times = []
    with without_gc():
        for _ in range(repeats):
            prepared = prepare()
            start = time.perf_counter()
            work(prepared)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """p of value ~ size^p, by least squares on logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


# --- limits ------------------------------------------------------------------------------


def gemm_gflops(repeats: int, size: int = 768) -> float:
    """What this core's matrix product reaches, 10⁹ operations a second."""
    matrix = np.random.default_rng(0).random((size, size))
    out = np.empty_like(matrix)
    taken = median_seconds(lambda _: np.matmul(matrix, matrix, out=out), repeats)
    return 2.0 * size**3 / taken / 1e9


def bandwidth(repeats: int = 9, size: int = 2**24) -> float:
    """Bytes a second that one core reads from memory: a sum over 128 MB, far beyond the caches."""
    numbers = np.ones(size)
    return 8.0 * size / median_seconds(lambda _: numbers.sum(), repeats)


def array_bytes(thing: object) -> int:
    """Bytes of all arrays that an object holds, directly or through its parts."""
    seen: set[int] = set()

    def visit(part: object) -> int:
        if id(part) in seen:
            return 0
        seen.add(id(part))
        if isinstance(part, np.ndarray):
            return part.nbytes if part.base is None else visit(part.base)
        if isinstance(part, Mapping):
            return sum(visit(value) for value in part.values())
        if isinstance(part, list | tuple):
            return sum(visit(value) for value in part)
        if is_dataclass(part) or type(part).__module__.startswith("superarm."):
            return visit(getattr(part, "__dict__", {}))
        return 0

    return visit(thing)


# --- where it ran ------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"cpu": _cpu(), "cores": os.cpu_count(), "threads": 1, "versions": versions}


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [
                line.partition(":")[2].strip()
                for line in lines
                if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
